// A file of ops: who calls whom decides the order; every op becomes a Program.
#include "expr/text/elaborate.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "expr/core/syntax.h"
#include "expr/text/elaborate_scope.h"
#include "expr/text/errors.h"

namespace xhat {
namespace {

using Ops = std::map<std::string, std::shared_ptr<const Program>>;

std::vector<const ast::Block*> blocks_of(const OpAst& op) {
  std::vector<const ast::Block*> blocks = {&op.op->body};
  if (op.op->backward) blocks.push_back(&*op.op->backward);
  if (op.gradient) blocks.push_back(&op.gradient->body);
  return blocks;
}

std::map<std::string, OpAst> collect_ops(const ast::File& file) {
  std::map<std::string, OpAst> ops;
  std::vector<std::string> names;
  for (const ast::Op& op : file.ops) {
    if (op.kind == ast::Op::Kind::grad) continue;
    if (ast::is_function_name(op.name) || ast::is_reduction_name(op.name))
      throw Error(op.name + " is built in; give the op another name", op.pos);
    auto [it, fresh] = ops.emplace(op.name, OpAst{&op, nullptr});
    if (!fresh)
      throw Error(fmt::format("op {} stands here again, after {}; names of ops are unique", op.name,
                              place(it->second.op->pos)),
                  op.pos);
    names.push_back(op.name);
  }
  for (const ast::Op& op : file.ops) {
    if (op.kind != ast::Op::Kind::grad) continue;
    auto it = ops.find(op.name);
    if (it == ops.end())
      throw Error(
          fmt::format("grad {} belongs to no op of this file{}", op.name, did_you_mean(op.name, names)),
          op.pos);
    if (it->second.gradient)
      throw Error(fmt::format("op {} has a grad already, at {}", op.name, place(it->second.gradient->pos)),
                  op.pos);
    it->second.gradient = &op;
  }
  return ops;
}

struct Call {
  std::string callee;
  Pos pos;
};

std::vector<Call> calls_of(const ast::File& file, const OpAst& op, const std::map<std::string, OpAst>& ops) {
  std::vector<Call> calls;
  std::vector<ast::Ref> below;
  for (const ast::Block* block : blocks_of(op)) collect_below(file, block->statements, below);
  for (ast::Ref r : below)
    if (file.nodes[r].kind == ast::Kind::call && ops.contains(file.nodes[r].text))
      calls.push_back({file.nodes[r].text, file.nodes[r].pos});
  return calls;
}

// Callees first. Ops call each other without recursion, however indirect.
std::vector<std::string> call_order(const ast::File& file, const std::map<std::string, OpAst>& ops) {
  enum class Mark : uint8_t { white, grey, black };
  std::map<std::string, Mark> marks;
  std::vector<std::string> order;
  struct Visit {
    std::string name;
    std::vector<Call> calls;
    size_t next = 0;
  };
  for (const ast::Op& start : file.ops) {
    if (start.kind == ast::Op::Kind::grad || marks[start.name] != Mark::white) continue;
    std::vector<Visit> stack = {{start.name, calls_of(file, ops.at(start.name), ops)}};
    marks[start.name] = Mark::grey;
    while (!stack.empty()) {
      Visit& top = stack.back();
      if (top.next == top.calls.size()) {
        marks[top.name] = Mark::black;
        order.push_back(top.name);
        stack.pop_back();
        continue;
      }
      Call call = top.calls[top.next++];
      if (marks[call.callee] == Mark::grey) {
        std::string cycle;
        bool inside = false;
        for (const Visit& v : stack) {
          inside |= v.name == call.callee;
          if (inside) cycle += v.name + " -> ";
        }
        throw Error(
            fmt::format("ops call each other in a cycle: {}{}; recursion is not allowed", cycle, call.callee),
            call.pos);
      }
      if (marks[call.callee] == Mark::black) continue;
      marks[call.callee] = Mark::grey;
      stack.push_back({call.callee, calls_of(file, ops.at(call.callee), ops)});
    }
  }
  return order;
}

// What an op becomes when its calls are written out, which is done before gradients are derived.
struct Expansion {
  int64_t definitions = 0;
  int levels = 0;  // of ops that call each other
};
// Planning takes longer than a minute from some ten thousand definitions on. Ops that call others twice reach 2^30 in 30 levels, which
// fits no memory. Calls are written out by recursion: a thousand levels take a tenth of a thread's stack.
constexpr int64_t kMaxDefinitions = 100'000;
constexpr int kMaxLevels = 1'000;

using Expansions = std::unordered_map<const Program*, Expansion>;

Expansion expansion_of(const Program& p, const Expansions& callees) {
  Expansion e{0, 1};
  for (const Definition& d : p.definitions()) {
    const Expansion inner = d.is_call() ? callees.at(d.callee.get()) : Expansion{1, 0};
    // No overflow: both are below 2^60.
    e.definitions = std::min(e.definitions + inner.definitions, int64_t{1} << 60);
    e.levels = std::max(e.levels, inner.levels + 1);
  }
  if (p.custom_gradient) {
    const Expansion stated = expansion_of(*p.custom_gradient, callees);
    e = {std::max(e.definitions, stated.definitions), std::max(e.levels, stated.levels)};
  }
  return e;
}

void check_expansion(const ast::Op& op, const Expansion& e) {
  if (e.definitions > kMaxDefinitions)
    throw Error(fmt::format("op {} with its calls written out has {} definitions; {} are the most. call fewer ops, or an op that takes "
                            "another dimension in place of several calls",
                            op.name, e.definitions, kMaxDefinitions),
                op.pos);
  if (e.levels > kMaxLevels)
    throw Error(fmt::format("op {} calls ops that call ops, {} levels deep; {} are the most", op.name, e.levels, kMaxLevels), op.pos);
}

// Letters to insert, delete, replace or swap with their neighbour.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

}  // namespace

std::string did_you_mean(ast::Stranger kind, const std::string& name, const std::vector<std::string>& known) {
  const std::string hint = ast::stranger(kind, name);
  return hint.empty() ? did_you_mean(name, known) : hint;
}

std::string did_you_mean(const std::string& name, const std::vector<std::string>& known) {
  // At most one letter in three may be wrong, and no more than two: of names that have less in common a guess misleads. Of equally
  // near names, one of the same length.
  constexpr size_t kLettersPerMistake = 3, kMaxMistakes = 2;
  auto distance = [&](const std::string& k) {
    if (ast::small_letters(name) == ast::small_letters(k)) return std::pair<size_t, size_t>(0, 0);
    size_t longer = std::max(name.size(), k.size());
    return std::pair(edit_distance(name, k), 2 * longer - name.size() - k.size());
  };
  const std::string* best = nullptr;
  std::pair<size_t, size_t> least = {kMaxMistakes + 1, 0};
  for (const std::string& k : known) {
    std::pair<size_t, size_t> d = distance(k);
    if (d >= least || d.first * kLettersPerMistake > std::max(name.size(), k.size())) continue;
    least = d;
    best = &k;
  }
  return best ? "; did you mean " + *best + "?" : "";
}

void collect_below(const ast::File& file, ast::Ref root, std::vector<ast::Ref>& found) {
  size_t begin = found.size();
  auto add = [&](ast::Ref r) {
    if (r != ast::kAbsent) found.push_back(r);
  };
  add(root);
  for (size_t at = begin; at < found.size(); ++at) {
    const ast::Node& n = file.nodes[found[at]];
    for (ast::Ref r : n.args) add(r);
    for (const ast::Axis& axis : n.axes) add(axis.begin), add(axis.end);
    add(n.condition);
    add(n.otherwise);
  }
  std::sort(found.begin() + static_cast<std::ptrdiff_t>(begin), found.end());
}

void collect_below(const ast::File& file, const std::vector<ast::Statement>& statements, std::vector<ast::Ref>& found) {
  for (const ast::Statement& s : statements) {
    for (ast::Ref r : {s.place, s.first, s.last, s.body}) collect_below(file, r, found);
    collect_below(file, s.statements, found);
    collect_below(file, s.otherwise, found);
  }
}

bool reads_behind(const ast::File& file, ast::Ref root) {
  std::vector<ast::Ref> below;
  collect_below(file, root, below);
  return std::ranges::any_of(below, [&](ast::Ref r) {
    const ast::Node& n = file.nodes[r];
    return n.kind == ast::Kind::read && n.otherwise == ast::kAbsent &&
           std::ranges::any_of(n.args, [&](ast::Ref x) { return file.nodes[x].kind != ast::Kind::name; });
  });
}

std::string text_of(const OpScope& s, Id expression) { return print(s.program, expression); }

Module elaborate(const ast::File& file) {
  auto arena = std::make_shared<Arena>();
  std::map<std::string, OpAst> ops = collect_ops(file);
  Ops done;
  Expansions expansions;
  std::vector<Error> wrong;
  for (const std::string& name : call_order(file, ops)) try {
      const bool callee_is_wrong =
          std::ranges::any_of(calls_of(file, ops.at(name), ops), [&](const Call& c) { return !done.contains(c.callee); });
      if (callee_is_wrong) continue;
      auto made =
          std::make_shared<const Program>(ops.at(name).op->kind == ast::Op::Kind::prog ? elaborate_prog(file, arena, *ops.at(name).op, done)
                                                                                       : elaborate_op(file, arena, ops.at(name), done));
      const Expansion expansion = expansion_of(*made, expansions);
      check_expansion(*ops.at(name).op, expansion);
      expansions[made.get()] = expansion;
      done[name] = std::move(made);
    } catch (const Error& e) {
      for (const Error& one : all_of(e)) wrong.push_back(one);
      if (!e.pos().known() || wrong.size() >= kMaxErrors) break;
    }
  if (!wrong.empty()) throw_all(std::move(wrong));
  Module module;
  for (const ast::Op& op : file.ops)
    if (op.kind != ast::Op::Kind::grad) module.ops.push_back(done.at(op.name));
  return module;
}

const Program* Module::find(std::string_view name) const {
  for (const auto& op : ops)
    if (op->name == name) return op.get();
  return nullptr;
}

}  // namespace xhat

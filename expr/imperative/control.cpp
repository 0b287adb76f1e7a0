// Loops and branches.
//
// A branch is run as both sides one after the other, each write asking for the condition, where both sides are straight; else the
// sides stay apart. A loop is run once with its variable as an axis, on values that stand for what enters an iteration.
#include <fmt/format.h>

#include <algorithm>

#include "expr/core/conditions.h"
#include "expr/imperative/rename.h"
#include "expr/imperative/symbolic.h"
#include "expr/rules/simplify.h"

namespace xhat::imperative {

using ast::Kind;
using ast::Statement;

namespace {
// Loops with few iterations that are known are written out where nothing else fits, and, if an iteration has shapes of its own, loops
// with more.
constexpr int64_t kUnrolled = 8;
constexpr int64_t kUnrolledShapes = 64;
}  // namespace

// A condition that costs more than a few operations is a tensor of its own.
Id Symbolic::shared_condition(Id condition, Pos pos) {
  if (std::ranges::none_of(reachable(a_, condition), [&](Id x) { return is_reduction(a_[x].op); })) return condition;
  const TensorId t = c_.define("condition", {}, c_.guarded(condition), pos);
  return a_.read(t, DType::boolean, {});
}

void Symbolic::branch(const Statement& s) {
  Expression e(c_);
  e.run_calls(s.body);
  Id condition = e.condition(s.body, "the condition of if");
  condition = simplify(a_, e.checked(condition));
  const std::vector<AxisRange> loops = c_.loop_ranges();
  const bool always = c_.implied(loops, c_.state.conditions, condition);
  const bool never = !always && c_.excluded(loops, c_.state.conditions, condition);
  if (always || never) {
    ++c_.state.depth;
    run(always ? s.statements : s.otherwise);
    --c_.state.depth;
    drop_locals();
    return;
  }
  condition = shared_condition(condition, s.pos);
  const State before = c_.state;
  Items sides;
  Items* outer = std::exchange(c_.items, &sides);
  guarded_sides(s, condition);
  c_.items = outer;
  if (is_straight(sides)) {
    outer->insert(outer->end(), sides.begin(), sides.end());
    return;
  }
  c_.state = before;
  separate_sides(s, condition);
}

void Symbolic::drop_locals() {
  std::erase_if(c_.state.names, [&](const auto& entry) { return entry.second.depth > c_.state.depth; });
}

void Symbolic::guarded_sides(const Statement& s, Id condition) {
  const State before = c_.state;
  std::map<std::string, Binding> names[2];
  const Id holds[2] = {condition, negation(a_, condition)};
  const std::vector<Statement>* sides[2] = {&s.statements, &s.otherwise};
  for (int k = 0; k < 2; ++k) {
    c_.state.names = before.names;
    c_.state.conditions.push_back(holds[k]);
    c_.state.guards.push_back(holds[k]);
    ++c_.state.depth;
    run(*sides[k]);
    --c_.state.depth;
    c_.state.conditions.pop_back();
    c_.state.guards.pop_back();
    drop_locals();
    names[k] = c_.state.names;
  }
  merge_names(before, names[0], names[1], condition, s.pos);
}

// The shared storage of a name that only one side binds anew.
void Symbolic::merge_names(const State& before, const std::map<std::string, Binding>& then, const std::map<std::string, Binding>& otherwise,
                           Id condition, Pos pos) {
  auto same = [](const View& x, const View& y) { return x.storage == y.storage && x.indices == y.indices && x.axes == y.axes; };
  for (const auto& [name, old] : before.names) {
    const View x = then.at(name).view, y = otherwise.at(name).view;
    if (same(x, y)) {
      c_.state.names[name].view = x;
      continue;
    }
    const std::vector<AxisRange> axes = c_.element_axes(old.view.shape());
    auto value = [&](const View& v) {
      Replacements to;
      for (size_t k = 0; k < axes.size(); ++k) to[v.axes[k].axis] = axes[k].axis;
      std::vector<Id> indices;
      for (Id index : v.indices) indices.push_back(substitute(a_, index, to));
      const Storage& s = c_.state.storages[v.storage];
      return a_.read(s.value, s.type, indices);
    };
    const Id body = a_.select(condition, value(x), value(y));
    const Storage like = c_.state.storages[old.view.storage];
    const TensorId t = c_.define(name, axes, c_.guarded(body), pos);
    const size_t storage = c_.new_storage(name, like.type, old.view.shape(), t);
    for (const View* v : {&x, &y})
      if (v->storage < before.storages.size()) c_.state.storages[storage].merged_from.push_back(v->storage);
    c_.state.storages[storage].merged_why = fmt::format("{} names another storage or not, by the branch at {}", name, place(pos));
    Binding b = old;
    b.view = c_.whole(storage);
    c_.state.names[name] = std::move(b);
  }
}

TensorId Symbolic::value_of(const View& v, const std::string& name, Pos pos) {
  const Storage s = c_.state.storages[v.storage];
  bool all = v.axes.size() == s.shape.size();
  for (size_t d = 0; all && d < v.axes.size(); ++d) all = v.indices[d] == v.axes[d].axis && c_.scope.same_extent(v.axes[d].end, s.shape[d]);
  if (all) return s.value;
  return c_.define(name, v.axes, c_.guarded(a_.read(s.value, s.type, v.indices)), pos);
}

void Symbolic::separate_sides(const Statement& s, Id condition) {
  if (!c_.state.guards.empty()) throw Error("not yet: a loop that stays in a branch that stands in a straight branch", s.pos);
  BranchItem item;
  item.pos = s.pos;
  item.condition = c_.define("condition", {}, condition, s.pos);
  const State before = c_.state;
  State after[2];
  Items* sides[2] = {&item.then, &item.otherwise};
  const std::vector<Statement>* statements[2] = {&s.statements, &s.otherwise};
  const Id holds[2] = {condition, negation(a_, condition)};
  Items* outer = c_.items;
  std::vector<std::string> rebound;
  std::map<std::string, TensorId> values[2];
  for (int k = 0; k < 2; ++k) {
    // Storages of both sides are numbered apart from each other: those before are shared.
    c_.state = before;
    c_.items = sides[k];
    c_.state.conditions.push_back(holds[k]);
    ++c_.state.depth;
    run(*statements[k]);
    --c_.state.depth;
    drop_locals();
    after[k] = c_.state;
  }
  auto same = [](const View& x, const View& y) { return x.storage == y.storage && x.indices == y.indices && x.axes == y.axes; };
  for (const auto& [name, old] : before.names)
    if (!same(after[0].names.at(name).view, old.view) || !same(after[1].names.at(name).view, old.view)) rebound.push_back(name);
  for (int k = 0; k < 2; ++k) {
    c_.state = after[k];
    c_.items = sides[k];
    for (const std::string& name : rebound) values[k][name] = value_of(c_.state.names.at(name).view, name, s.pos);
  }
  c_.items = outer;
  c_.state = before;
  auto merged = [&](const std::string& name, DType type, const Shape& shape, TensorId then, TensorId otherwise) {
    if (then == otherwise) return then;
    const TensorId t = c_.new_tensor(name, type, shape);
    item.merges.push_back({then, otherwise, t});
    return t;
  };
  for (size_t i = 0; i < before.storages.size(); ++i) {
    const Storage& st = before.storages[i];
    c_.state.storages[i].value = merged(st.name, st.type, st.shape, after[0].storages[i].value, after[1].storages[i].value);
  }
  for (const std::string& name : rebound) {
    const Binding old = before.names.at(name);
    const Storage like = before.storages[old.view.storage];
    const TensorId t = merged(name, like.type, old.view.shape(), values[0].at(name), values[1].at(name));
    const size_t storage = c_.new_storage(name, like.type, old.view.shape(), t);
    for (int k = 0; k < 2; ++k)
      if (const size_t from = after[k].names.at(name).view.storage; from < before.storages.size())
        c_.state.storages[storage].merged_from.push_back(from);
    c_.state.storages[storage].merged_why = fmt::format("{} names another storage or not, by the branch at {}", name, place(s.pos));
    c_.state.names[name].view = c_.whole(storage);
  }
  c_.items->emplace_back();
  c_.items->back().is = std::move(item);
}

// Names that are bound anew somewhere in a loop, and are declared outside.
std::set<std::string> Symbolic::rebound_names(const Statement& loop) const {
  std::set<std::string> found, local;
  if (loop.kind == Statement::Kind::loop) local.insert(loop.targets[0].text);
  auto walk = [&](auto& self, const std::vector<Statement>& list) -> void {
    for (const Statement& s : list) {
      auto bound = [&](const std::string& name) {
        if (c_.state.names.contains(name))
          found.insert(name);
        else
          local.insert(name);
      };
      if (s.kind == Statement::Kind::variable || s.kind == Statement::Kind::loop) local.insert(s.targets[0].text);
      if (s.kind == Statement::Kind::call)
        for (const ast::Name& target : s.targets) bound(target.text);
      if (s.kind == Statement::Kind::assign && s.sign == "=") {
        const ast::Node& place = node(s.place);
        if (place.kind == Kind::name) bound(place.text);
        if (place.kind == Kind::read) {
          const Expression e(c_);
          auto it = c_.state.names.find(place.text);
          const bool axes = std::ranges::all_of(place.args, [&](ast::Ref r) {
            return node(r).kind == Kind::range || (node(r).kind == Kind::name && !e.known(node(r).text) && !local.contains(node(r).text));
          });
          if (axes && (it == c_.state.names.end() || it->second.view.axes.size() == place.args.size())) bound(place.text);
        }
      }
      self(self, s.statements);
      self(self, s.otherwise);
    }
  };
  walk(walk, loop.statements);
  return found;
}

LoopItem Symbolic::iterate(const Statement& s, LoopItem loop, const LoopVariable& variable) {
  const State before = c_.state;
  const std::set<std::string> rebound = rebound_names(s);
  struct Entering {
    size_t storage;
    std::string name;  // of a name that is bound anew; else empty
    TensorId initial, entering;
  };
  std::vector<Entering> all;
  std::set<size_t> seen;
  for (const auto& [name, binding] : before.names) {
    const size_t i = binding.view.storage;
    const Storage st = c_.state.storages[i];
    if (!st.parameter && seen.insert(i).second) {
      all.push_back({i, "", st.value, c_.new_tensor(st.name, st.type, st.shape)});
      c_.state.storages[i].value = all.back().entering;
    }
  }
  for (const std::string& name : rebound) {
    const Binding b = before.names.at(name);
    if (!b.variable && b.depth <= before.depth) {
      // Refused where it is assigned, with the place.
      continue;
    }
    const Storage like = before.storages[b.view.storage];
    c_.state.storages[b.view.storage].value = before.storages[b.view.storage].value;
    const TensorId initial = value_of(b.view, name, s.pos);
    for (const Entering& e : all)
      if (e.storage == b.view.storage) c_.state.storages[b.view.storage].value = e.entering;
    const size_t storage = c_.new_storage(name, like.type, b.view.shape(), 0);
    const TensorId entering = c_.new_tensor(name, like.type, b.view.shape());
    c_.state.storages[storage].value = entering;
    const bool shared = like.parameter || std::ranges::any_of(before.names, [&](const auto& other) {
                          return other.first != name && other.second.view.storage == b.view.storage;
                        });
    if (shared) {
      c_.state.storages[storage].merged_from = {b.view.storage};
      c_.state.storages[storage].merged_why = fmt::format("{} names {} in the first iteration only", name, like.name);
    }
    c_.state.names[name].view = c_.whole(storage);
    all.push_back({storage, name, initial, entering});
  }
  Items* outer = c_.items;
  if (s.kind == Statement::Kind::repeat) {
    c_.items = &loop.test;
    Expression e(c_);
    e.run_calls(s.body);
    loop.condition = c_.define("condition", {}, e.checked(e.condition(s.body, "the condition of while")), node(s.body).pos);
  }
  c_.items = &loop.body;
  ++c_.state.depth;
  c_.state.loops.push_back(variable);
  if (variable.bounds_read && s.kind == Statement::Kind::loop) {
    // How far it runs is data, and so it is data itself: what it is an index of is checked in the run.
    Binding b;
    b.depth = c_.state.depth;
    b.pos = s.targets[0].pos;
    const size_t storage = c_.new_storage(variable.name, DType::i64, {}, c_.define(variable.name, {}, variable.range.axis, s.pos));
    c_.state.storages[storage].loop_variable = true;
    b.view = c_.whole(storage);
    c_.state.names[variable.name] = std::move(b);
    c_.state.loops.back().name = "";
  }
  run(s.statements);
  c_.state.loops.pop_back();
  --c_.state.depth;
  drop_locals();
  State after = c_.state;
  std::map<TensorId, TensorId> unchanged;
  std::vector<std::pair<size_t, CarriedValue>> results;
  std::vector<std::pair<std::string, CarriedValue>> named;
  for (const Entering& e : all) {
    CarriedValue v{e.initial, e.entering, after.storages[e.storage].value, 0};
    if (!e.name.empty()) v.leaving = value_of(after.names.at(e.name).view, e.name, s.pos);
    if (v.leaving == v.entering) {
      unchanged[v.entering] = v.initial;
      continue;
    }
    const Storage& st = after.storages[e.storage];
    v.result = c_.new_tensor(e.name.empty() ? st.name : e.name, st.type, st.shape);
    loop.carried.push_back(v);
    if (e.name.empty())
      results.push_back({e.storage, v});
    else
      named.push_back({e.name, v});
  }
  // What leaves may be what enters another way.
  for (CarriedValue& v : loop.carried)
    if (auto it = unchanged.find(v.leaving); it != unchanged.end()) v.leaving = it->second;
  rename_tensors(a_, loop.test, unchanged);
  rename_tensors(a_, loop.body, unchanged);
  c_.items = outer;
  c_.state = before;
  for (const auto& [storage, v] : results) c_.state.storages[storage].value = v.result;
  for (const auto& [name, v] : named) {
    const View old = before.names.at(name).view;
    const size_t storage = c_.new_storage(name, before.storages[old.storage].type, old.shape(), v.result);
    const Id trips = c_.tidy(a_.sub(loop.end, loop.begin));
    const bool runs = s.kind == Statement::Kind::loop && a_[trips].op == Op::constant && a_[trips].integer > 0;
    if (!runs) {
      c_.state.storages[storage].merged_from = {old.storage};
      c_.state.storages[storage].merged_why =
          fmt::format("{} names another storage or not, by how often the loop at {} runs", name, place(s.pos));
    }
    c_.state.names[name].view = c_.whole(storage);
  }
  return loop;
}

void Symbolic::unroll(const Statement& s, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    c_.state.numbers[s.targets[0].text] = a_.integer(i);
    ++c_.state.depth;
    run(s.statements);
    --c_.state.depth;
    drop_locals();
  }
  c_.state.numbers.erase(s.targets[0].text);
}

void Symbolic::loop(const Statement& s) {
  const ast::Name& name = s.targets[0];
  check_new_name(name, "loop variable");
  Expression bounds(c_);
  const Id begin = bounds.checked(bounds.number(s.first, true, "a bound of a loop")),
           end = bounds.checked(bounds.number(s.last, true, "a bound of a loop"));
  const Id trips = c_.tidy(a_.sub(end, begin));
  const bool known = a_[trips].op == Op::constant && a_[begin].op == Op::constant;
  if (known && a_[trips].integer <= 0) return;
  const State before = c_.state;
  Items* const items = c_.items;
  const size_t preconditions = c_.program.preconditions.size(), size = c_.items->size();
  std::optional<Error> problem;
  Items* const outer = c_.items;  // an error leaves it where the body was
  try {
    LoopItem item;
    item.variable = a_.axis(name.text);
    item.begin = begin;
    item.end = end;
    item.pos = s.pos;
    LoopVariable variable{name.text, {item.variable, begin, end}, c_.state.depth, reads_data(a_, begin) || reads_data(a_, end)};
    item = iterate(s, std::move(item), variable);
    if (std::optional<Items> straight = without_loop(c_, item, item.why)) {
      c_.items->insert(c_.items->end(), straight->begin(), straight->end());
      return;
    }
    if (!known || a_[trips].integer > kUnrolled) {
      c_.items->emplace_back().is = std::move(item);
      return;
    }
  } catch (const Error& e) {
    if (!known || a_[trips].integer > kUnrolledShapes) throw;
    problem = e;
  }
  c_.items = outer;
  c_.state = before;
  c_.items = items;
  c_.items->resize(size);
  c_.program.preconditions.resize(preconditions);
  unroll(s, a_[begin].integer, a_[end].integer);
}

void Symbolic::repeat(const Statement& s) {
  Expression bounds(c_);
  LoopItem item;
  item.begin = a_.integer(0);
  item.end = bounds.checked(bounds.number(s.last, true, "the most iterations of a loop"));
  item.pos = s.pos;
  std::string name = "iteration";
  for (int i = 1; c_.words.contains(name) || std::ranges::any_of(c_.state.loops, [&](const LoopVariable& l) { return l.name == name; });
       ++i)
    name = fmt::format("iteration{}", i);
  item.variable = a_.axis(name);
  item.why = "it runs until its condition fails";
  LoopVariable variable{name, {item.variable, item.begin, item.end}, c_.state.depth, reads_data(a_, item.end)};
  item = iterate(s, std::move(item), variable);
  c_.items->emplace_back().is = std::move(item);
}

}  // namespace xhat::imperative

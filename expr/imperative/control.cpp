// Loops. A loop is run once with its variable as an axis, on values that stand for what enters an iteration.
#include <fmt/format.h>

#include <algorithm>

#include "expr/core/conditions.h"
#include "expr/imperative/rename.h"
#include "expr/imperative/symbolic.h"
#include "expr/index/linear.h"
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

// Names that are bound anew somewhere in these statements, and are declared outside.
std::set<std::string> Symbolic::rebound_names(const std::vector<Statement>& statements, const std::string* variable) const {
  std::set<std::string> found;
  auto walk = [&](auto& self, const std::vector<Statement>& list, std::set<std::string> local) -> void {
    for (const Statement& s : list) {
      auto bound = [&](const std::string& name) {
        if (c_.state.names.contains(name))
          found.insert(name);
        else
          local.insert(name);
      };
      if (s.kind == Statement::Kind::variable) local.insert(s.targets[0].text);
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
      std::set<std::string> inside = local;
      if (s.kind == Statement::Kind::loop) inside.insert(s.targets[0].text);
      self(self, s.statements, std::move(inside));
      self(self, s.otherwise, local);
    }
  };
  walk(walk, statements, variable ? std::set<std::string>{*variable} : std::set<std::string>{});
  return found;
}

// Names that statements assign, write, or give another name to: what these stand for may change.
std::set<std::string> Symbolic::touched_names(const std::vector<Statement>& statements) const {
  std::set<std::string> found;
  for (const Statement& s : statements) {
    for (const ast::Name& target : s.targets) found.insert(target.text);
    if (s.kind == Statement::Kind::assign) found.insert(node(root(s.place)).text);
    if (s.kind == Statement::Kind::variable) found.insert(node(root(s.body)).text);
    found.merge(touched_names(s.statements));
    found.merge(touched_names(s.otherwise));
  }
  return found;
}

LoopItem Symbolic::iterate(const Statement& s, LoopItem loop, const LoopVariable& variable) {
  const State before = c_.state;
  const std::set<std::string> rebound = rebound_names(s.statements, s.targets.empty() ? nullptr : &s.targets[0].text);
  struct Entering {
    size_t storage;
    std::string name;  // of a name that is bound anew; else empty
    TensorId initial, entering;
    size_t flag = 0;  // the storage that says whether it was; 0: not asked for
  };
  std::vector<Entering> all;
  // Names that are bound anew have a storage of their own in an iteration, which the first one enters with what they stood for.
  for (const std::string& name : rebound) {
    const Binding b = before.names.at(name);
    if (!b.variable && b.depth <= before.depth) continue;  // refused where it is assigned, with the place
    all.push_back({0, name, value_of(b.view, name, s.pos), 0});
  }
  const std::set<std::string> touched = touched_names(s.statements);
  std::set<size_t> changing;
  for (const auto& [name, binding] : before.names)
    if (touched.contains(name))
      for (size_t i : storages_of(binding.view)) changing.insert(i);
  std::set<size_t> seen;
  for (const auto& [name, binding] : before.names)
    for (size_t i : storages_of(binding.view)) {
      const Storage st = c_.state.storages[i];
      if (st.parameter || !seen.insert(i).second) continue;
      all.push_back({i, "", st.value, c_.new_tensor(st.name, st.type, st.shape)});
      c_.state.storages[i].value = all.back().entering;
      if (auto number = c_.decided.find(st.value); number != c_.decided.end() && !changing.contains(i))
        c_.decided.emplace(all.back().entering, number->second);
    }
  std::vector<Entering> flags;
  for (Entering& e : all) {
    if (e.name.empty()) continue;
    const View old = before.names.at(e.name).view;
    const DType type = before.storages[old.storage].type;
    e.entering = c_.new_tensor(e.name, type, old.shape());
    e.storage = c_.new_storage(e.name, type, old.shape(), e.entering);
    if (!c_.handed_on.contains({&s, e.name})) {
      c_.state.storages[e.storage].maybe = storages_of(old);
      c_.state.storages[e.storage].maybe_by = {{&s, e.name}};
      c_.state.names[e.name].view = c_.whole(e.storage);
      continue;
    }
    const TensorId initial = c_.define(e.name + "_moved", {}, a_.boolean(false), s.pos);
    const TensorId entering = c_.new_tensor(e.name + "_moved", DType::boolean, {});
    e.flag = c_.new_storage(e.name + "_moved", DType::boolean, {}, entering);
    flags.push_back({e.flag, "", initial, entering});
    c_.state.names[e.name].view = unless_moved(e.storage, a_.read(entering, DType::boolean, {}), old);
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
  for (const Entering& e : all) {
    if (e.flag == 0) continue;
    const View &now = c_.state.names.at(e.name).view, &was = before.names.at(e.name).view;
    if (const auto by = unsure(now, was); !by.empty()) throw Ambiguous{by};
    c_.state.storages[e.flag].value = c_.define(e.name + "_moved", {}, moved(now, was), s.pos);
  }
  all.insert(all.end(), flags.begin(), flags.end());
  State after = c_.state;
  for (const auto& [name, binding] : before.names)
    if (!rebound.contains(name) && after.names.at(name).view.storage != binding.view.storage)
      throw Bug("a loop binds " + name + " anew unseen");
  std::set<std::string> always_moves;
  for (const std::string& name : rebound)
    if (is_true(a_, moved(after.names.at(name).view, before.names.at(name).view)) &&
        unsure(after.names.at(name).view, before.names.at(name).view).empty() &&
        std::ranges::none_of(all, [&](const Entering& e) { return e.name == name && e.storage == after.names.at(name).view.storage; }))
      always_moves.insert(name);
  std::map<TensorId, TensorId> unchanged;
  std::vector<std::pair<size_t, CarriedValue>> results;
  std::vector<std::pair<Entering, CarriedValue>> named;
  std::map<size_t, TensorId> flag_results;
  for (const Entering& e : all) {
    CarriedValue v{e.initial, e.entering, after.storages[e.storage].value, 0};
    if (!e.name.empty()) v.leaving = value_of(after.names.at(e.name).view, e.name, s.pos);
    if (v.leaving == v.entering) {
      unchanged[v.entering] = v.initial;
      // The value stays, but the name may have become one of its own for it.
      v.result = v.initial;
      if (!e.name.empty() && after.names.at(e.name).view.storage != e.storage) named.push_back({e, v});
      continue;
    }
    const Storage& st = after.storages[e.storage];
    v.result = c_.new_tensor(e.name.empty() ? st.name : e.name, st.type, st.shape);
    loop.carried.push_back(v);
    if (!e.name.empty())
      named.push_back({e, v});
    else if (e.storage < before.storages.size())
      results.push_back({e.storage, v});
    else
      flag_results[e.storage] = v.result;
  }
  // What leaves may be what enters another way.
  for (CarriedValue& v : loop.carried)
    if (auto it = unchanged.find(v.leaving); it != unchanged.end()) v.leaving = it->second;
  rename_tensors(a_, loop.test, unchanged);
  rename_tensors(a_, loop.body, unchanged);
  c_.items = outer;
  c_.state = before;
  for (const auto& [storage, v] : results) c_.state.storages[storage].value = v.result;
  for (const auto& [e, v] : named) {
    const View old = before.names.at(e.name).view;
    const size_t storage = c_.new_storage(e.name, before.storages[old.storage].type, old.shape(), v.result);
    const Id trips = c_.tidy(a_.sub(loop.end, loop.begin));
    const bool runs = s.kind == Statement::Kind::loop && a_[trips].op == Op::constant && a_[trips].integer > 0;
    Id flag = a_.boolean(true);
    if (e.flag != 0) {
      auto it = flag_results.find(e.flag);
      flag = it == flag_results.end() ? a_.boolean(false) : a_.read(it->second, DType::boolean, {});
    } else if (!runs || always_moves.count(e.name) == 0) {
      c_.state.storages[storage].maybe = storages_of(old);
      c_.state.storages[storage].maybe_by = {{&s, e.name}};
    }
    c_.state.names[e.name].view = unless_moved(storage, flag, old);
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

// A range that goes down as written (N..0, N-1..-1, 5..0) has nothing in it for any sizes; one that has nothing for some, or whose ends are
// equal, is as good as any.
void Symbolic::refuse_descending(const Statement& s, Id begin, Id end) {
  if (reads_data(a_, begin) || reads_data(a_, end)) return;
  auto dims_in = [&](Id x) {
    std::vector<Id> found;
    for (Id y : reachable(a_, x))
      if (a_[y].op == Op::dim) found.push_back(y);
    return found;
  };
  auto literal = [&](ast::Ref r) {
    return node(r).kind == Kind::number || (node(r).kind == Kind::unary && node(node(r).args[0]).kind == Kind::number);
  };
  bool down = false;
  if (a_[begin].op == Op::constant) {
    down = literal(s.first) && literal(s.last) && a_[end].op == Op::constant && a_[begin].integer > a_[end].integer;
  } else if (a_[end].op == Op::constant ? a_[end].integer <= 0 : !dims_in(begin).empty() && !c_.scope.same_extent(begin, end)) {
    // Sizes near 0 make N-1..0 begin at -1, which nobody means.
    std::vector<Id> conditions = {a_.binary(Op::lt, begin, end)};
    for (Id dim : dims_in(a_.sub(begin, end))) conditions.push_back(a_.binary(Op::le, a_.integer(8), dim));
    down = c_.never(c_.loop_ranges(), conditions);
  }
  if (!down) return;
  std::string up = "k";
  for (const char* name : {"k", "j", "n", "m", "u"})
    if (up = name; !c_.words.contains(up)) break;
  // Both as in Python's range(N-1, -1, -1), and N-1..0 with both ends, as other languages count; else the numbers of the range, from behind.
  const bool inclusive = is_constant(a_, end, -1) || (is_constant(a_, end, 0) && linear(a_, begin).constant < 0);
  const Id first = inclusive ? begin : c_.tidy(a_.sub(begin, a_.integer(1)));
  const Id count = c_.tidy(inclusive ? a_.add(begin, a_.integer(1)) : a_.sub(begin, end));
  const Id last = c_.tidy(a_.add(a_.sub(first, count), a_.integer(1)));
  const std::string& name = s.targets[0].text;
  throw Error(fmt::format("for {} in {}..{} runs no time, for a range goes up. from {} down to {} write for {} in 0..{} {{ {} = {} - {}; … }}",
                          name, ast::print(c_.file, s.first), ast::print(c_.file, s.last), text_of(c_.scope, first), text_of(c_.scope, last), up,
                          text_of(c_.scope, count), name, text_of(c_.scope, first), up),
              s.targets[0].pos);
}

void Symbolic::loop(const Statement& s) {
  const ast::Name& name = s.targets[0];
  check_new_name(name, "loop variable");
  Expression bounds(c_);
  const Id begin = bounds.checked(bounds.number(s.first, true, "a bound of a loop")),
           end = bounds.checked(bounds.number(s.last, true, "a bound of a loop"));
  refuse_descending(s, begin, end);
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
    if (c_.all_loops) {
      c_.items->emplace_back().is = std::move(item);
      return;
    }
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

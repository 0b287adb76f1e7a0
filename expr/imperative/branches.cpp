// Branches. Both sides are run one after the other, each write asking for the condition, where both are straight; else the sides stay apart.
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
// Thrown from a branch that stands in sides which are run one after the other, and in which something stays: then those sides are run
// apart from each other, too, and the outermost branch begins anew.
struct Stays {};
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
  const Id shared = shared_condition(condition, s.pos);
  const State before = c_.state;
  Items sides;
  Items* outer = std::exchange(c_.items, &sides);
  bool straight = true;
  try {
    guarded_sides(s, shared);
    straight = is_straight(sides);
  } catch (const Stays&) {
    if (!before.guards.empty()) throw;
    straight = false;
  }
  c_.items = outer;
  if (straight) {
    outer->insert(outer->end(), sides.begin(), sides.end());
    return;
  }
  if (!before.guards.empty()) throw Stays();
  c_.state = before;
  separate_sides(s, shared);
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
  merge_names(before, names[0], names[1], condition);
}

// A name that the sides bind to different things stands for one of them by the condition.
void Symbolic::merge_names(const State& before, const std::map<std::string, Binding>& then, const std::map<std::string, Binding>& otherwise,
                           Id condition) {
  for (const auto& [name, old] : before.names) {
    const View &x = then.at(name).view, &y = otherwise.at(name).view;
    c_.state.names[name].view = x == y ? y : chosen(condition, x, y);
  }
}

// What both may stand for under the same conditions, at their ends, is listed once: an `if` in an `if` adds what it binds, no more.
View Symbolic::chosen(Id condition, const View& x, const View& y) {
  auto last = [](const View& v) { return View{v.storage, v.axes, v.indices}; };
  const bool same = last(x) == last(y);
  size_t shared = 0;
  while (same && shared < x.others.size() && shared < y.others.size()) {
    const size_t i = x.others.size() - 1 - shared, k = y.others.size() - 1 - shared;
    if (x.unless[i] != y.unless[k] || x.others[i] != y.others[k]) break;
    ++shared;
  }
  View v = last(y);
  auto add = [&](Id c, const View& view) {
    v.unless.push_back(c);
    v.others.push_back(last(view));
  };
  for (size_t k = 0; k < x.others.size() - shared; ++k) add(a_.select(condition, x.unless[k], a_.boolean(false)), x.others[k]);
  if (!same) add(condition, x);
  for (size_t k = 0; k < y.others.size(); ++k) {
    const bool own = same && k < y.others.size() - shared;
    add(own ? a_.select(condition, a_.boolean(false), y.unless[k]) : y.unless[k], y.others[k]);
  }
  return v;
}

TensorId Symbolic::value_of(const View& v, const std::string& name, Pos pos) {
  if (std::optional<TensorId> t = c_.whole_value(v)) return *t;
  std::vector<Id> positions;
  for (const AxisRange& r : v.axes) positions.push_back(r.axis);
  return c_.define(name, v.axes, c_.guarded(c_.element(v, positions)), pos);
}

Id Symbolic::moved(const View& v, const View& old) {
  const std::vector<size_t> before = storages_of(old);
  auto is_new = [&](size_t storage) { return a_.boolean(std::ranges::find(before, storage) == before.end()); };
  Id result = is_new(v.storage);
  for (size_t k = v.others.size(); k-- > 0;) result = a_.select(v.unless[k], is_new(v.others[k].storage), result);
  return simplify(a_, result);
}

View Symbolic::unless_moved(size_t storage, Id moved, const View& old) {
  View v = c_.whole(storage);
  if (is_true(a_, moved)) return v;
  const Id stays = simplify(a_, negation(a_, moved));
  for (size_t k = 0; k < old.others.size(); ++k) {
    v.unless.push_back(a_.select(stays, old.unless[k], a_.boolean(false)));
    v.others.push_back(old.others[k]);
  }
  v.unless.push_back(stays);
  v.others.push_back(View{old.storage, old.axes, old.indices});
  return v;
}

void Symbolic::separate_sides(const Statement& s, Id condition) {
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
  for (const auto& [name, old] : before.names)
    if (after[0].names.at(name).view != old.view || after[1].names.at(name).view != old.view) rebound.push_back(name);
  std::map<std::string, TensorId> flags[2];
  std::map<std::string, std::set<LoopName>> loops;  // within a side, by which a name may still be what it was
  for (int k = 0; k < 2; ++k) {
    c_.state = after[k];
    c_.items = sides[k];
    for (const std::string& name : rebound) {
      const View& v = c_.state.names.at(name).view;
      values[k][name] = value_of(v, name, s.pos);
      flags[k][name] = c_.define(name + "_moved", {}, moved(v, before.names.at(name).view), s.pos);
      loops[name].merge(unsure(v, before.names.at(name).view));
    }
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
    const Id both[2] = {moved(after[0].names.at(name).view, old.view), moved(after[1].names.at(name).view, old.view)};
    Id flag = a_.boolean(true);
    if (a_[both[0]].op == Op::constant && a_[both[1]].op == Op::constant) {
      flag = simplify(a_, a_.select(a_.read(item.condition, DType::boolean, {}), both[0], both[1]));
    } else {
      flag = a_.read(merged(name + "_moved", DType::boolean, {}, flags[0].at(name), flags[1].at(name)), DType::boolean, {});
    }
    c_.state.names[name].view = unless_moved(storage, flag, old.view);
    if (loops.at(name).empty()) continue;
    c_.state.storages[storage].maybe = storages_of(old.view);
    c_.state.storages[storage].maybe_by = loops.at(name);
  }
  c_.items->emplace_back();
  c_.items->back().is = std::move(item);
}

}  // namespace xhat::imperative

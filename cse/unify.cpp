#include "cse/unify.h"

#include <algorithm>

namespace xhat {
namespace {

constexpr int kMostSteps = 20000;  // then the answer is "no match": a share is missed, nothing breaks
constexpr size_t kMostBindings = 16;

void add_scaled(Linear& to, const Linear& from, int64_t scale) {
  to.constant += scale * from.constant;
  for (auto [node, k] : from.terms)
    if ((to.terms[node] += scale * k) == 0) to.terms.erase(node);
}

}  // namespace

Linear linear(const Arena& a, Id index) {
  std::map<Id, Linear> done;
  for (Id id : reachable(a, index)) {
    const Node& n = a[id];
    Linear l;
    auto sub = [&](size_t i) -> const Linear& { return done.at(n.arg(i)); };
    bool whole = n.type == DType::i64;
    if (n.op == Op::constant && is_integer(n.type))
      l.constant = n.integer;
    else if (whole && n.op == Op::neg)
      add_scaled(l, sub(0), -1);
    else if (whole && (n.op == Op::add || n.op == Op::sub)) {
      l = sub(0);
      add_scaled(l, sub(1), n.op == Op::add ? 1 : -1);
    } else if (whole && n.op == Op::mul && sub(0).terms.empty())
      add_scaled(l, sub(1), sub(0).constant);
    else if (whole && n.op == Op::mul && sub(1).terms.empty())
      add_scaled(l, sub(0), sub(1).constant);
    else
      l.terms[id] = 1;
    done[id] = std::move(l);
  }
  return done.at(index);
}

Id to_index(Arena& a, const Linear& l) {
  Id value = kNone;
  auto put = [&](Id node, int64_t k) {
    int64_t size = k < 0 ? -k : k;
    Id term = size == 1 ? node : a.mul(a.integer(size), node);
    if (value == kNone)
      value = k < 0 ? a.unary(Op::neg, term) : term;
    else
      value = k < 0 ? a.sub(value, term) : a.add(value, term);
  };
  for (auto [node, k] : l.terms)
    if (k > 0) put(node, k);
  if (value == kNone && l.constant != 0)
    value = a.integer(l.constant);
  else if (l.constant > 0)
    value = a.add(value, a.integer(l.constant));
  else if (l.constant < 0)
    value = a.sub(value, a.integer(-l.constant));
  for (auto [node, k] : l.terms)
    if (k < 0) put(node, k);
  return value == kNone ? a.integer(0) : value;
}

Id tidy_index(Arena& a, Id index) {
  const Node& n = a[index];
  if (n.op != Op::add && n.op != Op::sub && n.op != Op::mul && n.op != Op::neg) return index;
  return n.type == DType::i64 ? to_index(a, linear(a, index)) : index;
}

bool Unifier::has_axes(Id pattern) const {
  return std::ranges::any_of(tree_.arena()[pattern].free_axes(), [&](Id x) { return axes_.contains(x); });
}

// Goes down as step_node does, where there is one way to go. Most pairs that passes ask about end here: comparing every part
// of a forward with every factor of its backward would be a state or more for each.
bool Unifier::possible(Id pattern, Id target, int depth) {
  constexpr int kDeepest = 64;
  const Arena& a = tree_.arena();
  if (pattern == target || depth > kDeepest) return true;
  const Node &p = a[pattern], &t = a[target];
  if (p.type != t.type) return false;
  if (is_integer(p.type) && !is_read(p.op) && !is_reduction(p.op)) return true;
  if (is_float(p.type)) {
    const auto* pt = tree_.terms(pattern);
    const auto* tt = tree_.terms(target);
    if (pt || tt) return pt && tt && pt->size() == tt->size();
  }
  if (p.op != t.op || p.symbol != t.symbol || p.arg_count != t.arg_count) return false;
  // Operands in any order, or indices: for step_node to try.
  if (p.arg_count > 1 || is_read(p.op) || p.arg_count == 0) return true;
  Id x = p.arg(0), y = t.arg(0);
  if (!is_float(p.type) || !is_float(a[x].type) || a[x].type != a[y].type) return possible(x, y, depth + 1);
  Product px = tree_.form(x), py = tree_.form(y);
  if (!negligible(px.coefficient - py.coefficient, px.coefficient)) return false;
  if (px.factors.size() != py.factors.size()) return false;
  if (px.factors.size() != 1) return true;
  return px.factors[0].halves == py.factors[0].halves &&
         possible(px.factors[0].atom, py.factors[0].atom, depth + 1);
}

std::optional<Binding> Unifier::atoms(Id pattern, Id target, const Binding& from) {
  if (!possible(pattern, target)) return std::nullopt;
  State s{{{Goal::Kind::node, pattern, target}}, {}, from};
  auto found = solve(std::move(s), 1);
  return found.empty() ? std::nullopt : std::optional(found[0]);
}

std::vector<Binding> Unifier::products(const Product& pattern, const Product& target) {
  Goal g{Goal::Kind::factors, kNone, kNone, pattern.factors, target.factors};
  return solve({{g}, {}, {}}, kMostBindings);
}

std::vector<Binding> Unifier::contained(std::span<const Factor> pattern, std::span<const Factor> target,
                                        const Binding& from) {
  Goal g{
      Goal::Kind::contained, kNone, kNone, {pattern.begin(), pattern.end()}, {target.begin(), target.end()}};
  return solve({{g}, {}, from}, kMostBindings);
}

std::vector<Binding> Unifier::solve(State start, size_t wanted) {
  std::vector<Binding> found;
  std::vector<State> open;
  open.push_back(std::move(start));
  for (int steps = 0; !open.empty() && steps < kMostSteps && found.size() < wanted; ++steps) {
    State s = std::move(open.back());
    open.pop_back();
    if (s.goals.empty()) {
      if (indices(s) && std::ranges::find(found, s.binding) == found.end()) found.push_back(s.binding);
      continue;
    }
    std::vector<State> branches;
    if (!step(s, branches)) continue;
    if (branches.empty()) open.push_back(std::move(s));
    // The first way is tried first: it is the one in the order of the normal form.
    for (auto it = branches.rbegin(); it != branches.rend(); ++it) open.push_back(std::move(*it));
  }
  return found;
}

bool Unifier::step(State& s, std::vector<State>& branches) {
  Goal g = std::move(s.goals.back());
  s.goals.pop_back();
  auto without = [](auto list, size_t i) {
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
    return list;
  };
  switch (g.kind) {
    case Goal::Kind::node: return step_node(s, g.pattern, g.target, branches);
    case Goal::Kind::factors:
    case Goal::Kind::contained: {
      bool exact = g.kind == Goal::Kind::factors;
      if (exact && g.pattern_factors.size() != g.target_factors.size()) return false;
      if (g.pattern_factors.empty()) return true;
      Factor p = g.pattern_factors.front();
      for (size_t i = 0; i < g.target_factors.size(); ++i) {
        Factor t = g.target_factors[i];
        bool same_sign = (p.halves > 0) == (t.halves > 0);
        if (exact ? p.halves != t.halves : !same_sign || std::abs(p.halves) > std::abs(t.halves)) continue;
        if (!possible(p.atom, t.atom)) continue;
        State next = s;
        Goal rest{g.kind, kNone, kNone, without(g.pattern_factors, 0), without(g.target_factors, i)};
        next.goals.push_back(std::move(rest));
        next.goals.push_back({Goal::Kind::node, p.atom, t.atom});
        branches.push_back(std::move(next));
      }
      return !branches.empty();
    }
    case Goal::Kind::terms: {
      if (g.pattern_terms.size() != g.target_terms.size()) return false;
      if (g.pattern_terms.empty()) return true;
      const Product& p = g.pattern_terms.front();
      for (size_t i = 0; i < g.target_terms.size(); ++i) {
        const Product& t = g.target_terms[i];
        if (p.factors.size() != t.factors.size()) continue;
        if (!negligible(p.coefficient - g.sign * t.coefficient, p.coefficient)) continue;
        State next = s;
        Goal rest{g.kind, kNone, kNone, {}, {}, without(g.pattern_terms, 0), without(g.target_terms, i),
                  g.sign};
        next.goals.push_back(std::move(rest));
        next.goals.push_back({Goal::Kind::factors, kNone, kNone, p.factors, t.factors});
        branches.push_back(std::move(next));
      }
      return !branches.empty();
    }
  }
  return false;
}

bool Unifier::step_node(State& s, Id pattern, Id target, std::vector<State>& branches) {
  Arena& a = tree_.arena();
  if (!has_axes(pattern)) return pattern == target;
  const Node p = a[pattern];
  const Node t = a[target];
  if (p.type != t.type) return false;
  if (is_integer(p.type) && !is_read(p.op) && !is_reduction(p.op)) {
    if (axes_.contains(pattern)) {
      auto [it, fresh] = s.binding.emplace(pattern, target);
      return fresh || it->second == target || tidy_index(a, it->second) == tidy_index(a, target);
    }
    s.later.push_back({pattern, target});
    return true;
  }
  if (is_float(p.type)) {
    const auto* pt = tree_.terms(pattern);
    const auto* tt = tree_.terms(target);
    if (pt || tt) {
      if (!pt || !tt || pt->size() != tt->size()) return false;
      s.goals.push_back({Goal::Kind::terms, kNone, kNone, {}, {}, *pt, *tt, 1});
      return true;
    }
  }
  if (p.op != t.op || p.symbol != t.symbol || p.arg_count != t.arg_count || is_reduction(p.op)) return false;
  if (p.op == Op::constant) return p.integer == t.integer;
  auto operands = [&](State& to, size_t first, size_t second) {
    for (size_t i = 0; i < p.arg_count; ++i) {
      size_t j = i == first ? second : i == second ? first : i;
      Id x = p.arg(i), y = t.arg(j);
      // Below a function, operands are products again; below a comparison, they stay as written.
      bool algebra = is_float(a[x].type) && is_float(p.type) && a[x].type == a[y].type;
      if (!algebra || !has_axes(x)) {
        to.goals.push_back({Goal::Kind::node, x, y});
        continue;
      }
      Product px = tree_.form(x), py = tree_.form(y);
      if (!negligible(px.coefficient - py.coefficient, px.coefficient)) return false;
      to.goals.push_back({Goal::Kind::factors, kNone, kNone, px.factors, py.factors});
    }
    return true;
  };
  bool commutes = p.op == Op::maximum || p.op == Op::minimum || p.op == Op::eq || p.op == Op::ne ||
                  p.op == Op::land || p.op == Op::lor || (p.type == DType::i64 && p.op == Op::mul);
  if (!commutes) return operands(s, 0, 0);
  State straight = s, crossed = s;
  if (operands(straight, 0, 0)) branches.push_back(std::move(straight));
  if (operands(crossed, 0, 1)) branches.push_back(std::move(crossed));
  return !branches.empty();
}

// Solves p(axes) == t for one unbound axis at a time; what has none left must be equal.
bool Unifier::indices(State& s) {
  Arena& a = tree_.arena();
  while (!s.later.empty()) {
    bool progress = false;
    for (size_t i = 0; i < s.later.size(); ++i) {
      auto [pattern, target] = s.later[i];
      Replacements known;
      std::vector<Id> unknown;
      for (Id x : a[pattern].free_axes()) {
        if (auto it = s.binding.find(x); it != s.binding.end())
          known[x] = it->second;
        else if (axes_.contains(x))
          unknown.push_back(x);
      }
      if (unknown.size() > 1) continue;
      Id now = known.empty() ? pattern : substitute(a, pattern, known);
      Linear difference = linear(a, target);
      add_scaled(difference, linear(a, now), -1);
      if (unknown.empty()) {
        if (difference != Linear{}) return false;
      } else {
        // target - rest = k*axis with k = 1 or -1 (difference holds -k)
        auto it = difference.terms.find(unknown[0]);
        if (it == difference.terms.end() || (it->second != 1 && it->second != -1)) return false;
        int64_t k = -it->second;
        difference.terms.erase(it);
        Linear solution;
        add_scaled(solution, difference, k);
        for (auto [node, unused] : solution.terms)
          if (std::ranges::count(a[node].free_axes(), unknown[0]))
            return false;  // also within i/2 or the like
        s.binding[unknown[0]] = to_index(a, solution);
      }
      s.later.erase(s.later.begin() + static_cast<std::ptrdiff_t>(i));
      progress = true;
      break;
    }
    if (!progress) return false;
  }
  return true;
}

}  // namespace xhat

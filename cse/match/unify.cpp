#include "cse/match/unify.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <numeric>

namespace xhat {
namespace {

constexpr int kMaxSteps = 20000;  // then the answer is "no match": a share is missed, nothing breaks
constexpr size_t kMaxBindings = 16;

}  // namespace

bool Unifier::has_axes(Id pattern) const {
  return std::ranges::any_of(tree_.arena()[pattern].free_axes(), [&](Id x) { return axes_.contains(x); });
}

// Goals form a stack that ways share (each knows the one below it); what a way has bound and asked is undone when the
// next is tried.
class Unifier::Search {
 public:
  Search(Unifier& u, const Binding& from) : tree_(u.tree_), a_(u.tree_.arena()), u_(u), binding_(from) {}

  void node(Id pattern, Id target, bool either_sign = false) { push({.pattern = pattern, .target = target, .either_sign = either_sign}); }
  void index(Id pattern, Id target) { later_.push_back({pattern, target}); }
  // The forms must stay where they are.
  bool factors(std::span<const Factor> pattern, std::span<const Factor> target, bool exact, bool either_sign = false) {
    if (exact && pattern.size() != target.size()) return false;
    auto shapes = [&](std::span<const Factor> list) {
      std::vector<uint64_t> found;
      for (const Factor& f : list) found.push_back(tree_.shape(f.atom));
      return found;
    };
    auto fits = [pattern, target, exact](size_t i, size_t j) {
      int p = pattern[i].halves, t = target[j].halves;
      return exact ? p == t : (p > 0) == (t > 0) && std::abs(p) <= std::abs(t);
    };
    return pair(shapes(pattern), shapes(target), fits, [this, pattern, target, either_sign](size_t i, size_t j) {
      node(pattern[i].atom, target[j].atom, either_sign || pattern[i].halves % 4 == 0);
      return true;
    });
  }
  std::vector<Binding> solve(size_t wanted);
  bool more() const { return !branches_.empty(); }  // ways not tried

 private:
  static constexpr size_t kBottom = SIZE_MAX;

  // Who stands for whom among some of the parts of two sums or products.
  struct Pairing {
    std::vector<std::vector<size_t>> ways;       // for each part of the pattern
    std::function<bool(size_t, size_t)> choose;  // pushes what the choice asks for
  };
  struct Goal {
    Id pattern = kNone, target = kNone;
    bool crossed = false;      // the operands, exchanged
    bool either_sign = false;  // a square, below an even function, or asked for so: a difference may be turned round
    bool turned = false;       // it is
    size_t pairing = kBottom;  // or a pairing: the part that is next
    size_t part = 0;
    size_t below = kBottom;
  };
  // A way not yet taken: where it leaves the others, and what it begins with.
  struct Branch {
    size_t top, bound, asked, later, taken;
    Goal goal;
    size_t way;
  };

  void push(Goal g) {
    g.below = top_;
    top_ = goals_.size();
    goals_.push_back(g);
  }
  template <class Fits, class Choose>
  bool pair(const std::vector<uint64_t>& pattern, const std::vector<uint64_t>& target, Fits&& fits, Choose&& choose);
  bool terms(const std::vector<Product>& pattern, const std::vector<Product>& target, double sign);
  std::vector<uint64_t> shapes_of(const std::vector<Product>& terms, double sign);
  bool turns_round(Id atom);
  bool step(const Goal& g);
  bool step_pairing(const Goal& g, size_t first);
  bool step_node(const Goal& g);
  bool operands(const Node& p, const Node& t, bool crossed, bool either_sign);
  bool bind(Id axis, Id target);
  void branch(const Goal& g, size_t way);
  void undo_to(const Branch& b);
  bool indices(Binding& binding);
  bool by_coefficient(Binding& binding, const std::vector<std::pair<Id, Id>>& open);

  TensorExprTree& tree_;
  Arena& a_;
  Unifier& u_;
  std::vector<Goal> goals_;
  size_t top_ = kBottom;
  std::deque<Pairing> pairings_;
  std::vector<Branch> branches_;
  // What this way has found out, in order.
  Binding binding_;
  std::vector<Id> bound_;
  std::set<std::pair<Id, Id>> asked_;
  std::vector<std::pair<Id, Id>> asked_order_;
  std::vector<std::pair<Id, Id>> later_;          // indices to solve once simpler ones have bound axes
  std::vector<std::pair<size_t, size_t>> taken_;  // in a pairing, the parts of the target
};

std::optional<Binding> Unifier::atoms(Id pattern, Id target, const Binding& from) {
  if (tree_.shape(pattern) != tree_.shape(target)) return std::nullopt;
  auto known = from.empty() ? atoms_.find({pattern, target}) : atoms_.end();
  if (known != atoms_.end()) return known->second.first;
  Search search(*this, from);
  search.node(pattern, target);
  auto found = search.solve(1);
  std::optional<Binding> first = found.empty() ? std::nullopt : std::optional(found[0]);
  if (from.empty()) atoms_[{pattern, target}] = {first, !search.more()};
  return first;
}

std::vector<Binding> Unifier::products(const Product& pattern, const Product& target, bool either_sign) {
  Search search(*this, {});
  if (!search.factors(pattern.factors, target.factors, true, either_sign)) return {};
  return search.solve(kMaxBindings);
}

std::vector<Binding> Unifier::contained(std::span<const Factor> pattern, std::span<const Factor> target, const Binding& from,
                                        bool either_sign) {
  Search search(*this, from);
  if (!search.factors(pattern, target, false, either_sign)) return {};
  return search.solve(kMaxBindings);
}

std::optional<Binding> Unifier::indices(std::span<const std::pair<Id, Id>> pairs, const Binding& from) {
  Search search(*this, from);
  for (auto [pattern, target] : pairs) search.index(pattern, target);
  auto found = search.solve(1);
  return found.empty() ? std::nullopt : std::optional(std::move(found[0]));
}

std::vector<Binding> Unifier::Search::solve(size_t wanted) {
  std::vector<Binding> found;
  for (int steps = 0; steps < kMaxSteps; ++steps) {
    bool holds = true;
    if (top_ == kBottom) {
      Binding whole = binding_;
      if (indices(whole) && std::ranges::find(found, whole) == found.end()) found.push_back(std::move(whole));
      if (found.size() == wanted) break;
      holds = false;
    } else {
      Goal g = goals_[top_];
      top_ = g.below;
      holds = step(g);
    }
    while (!holds) {
      if (branches_.empty()) return found;
      Branch b = branches_.back();
      branches_.pop_back();
      undo_to(b);
      holds = b.goal.pairing == kBottom ? step(b.goal) : step_pairing(b.goal, b.way);
    }
  }
  return found;
}

void Unifier::Search::branch(const Goal& g, size_t way) {
  branches_.push_back({top_, bound_.size(), asked_order_.size(), later_.size(), taken_.size(), g, way});
}

void Unifier::Search::undo_to(const Branch& b) {
  for (; bound_.size() > b.bound; bound_.pop_back()) binding_.erase(bound_.back());
  for (; asked_order_.size() > b.asked; asked_order_.pop_back()) asked_.erase(asked_order_.back());
  later_.resize(b.later);
  taken_.resize(b.taken);
  top_ = b.top;
}

bool Unifier::Search::step(const Goal& g) { return g.pairing == kBottom ? step_node(g) : step_pairing(g, 0); }

// Parts for which there is one way take it; the others become one goal.
template <class Fits, class Choose>
bool Unifier::Search::pair(const std::vector<uint64_t>& pattern, const std::vector<uint64_t>& target, Fits&& fits, Choose&& choose) {
  std::vector<size_t> order(target.size());
  std::iota(order.begin(), order.end(), 0);
  auto shape_of = [&](size_t j) { return target[j]; };
  std::ranges::stable_sort(order, {}, shape_of);
  std::vector<std::vector<size_t>> ways(pattern.size());
  std::vector<bool> taken(target.size());
  for (size_t i = 0; i < pattern.size(); ++i) {
    for (size_t j : std::ranges::equal_range(order, pattern[i], {}, shape_of))
      if (fits(i, j)) ways[i].push_back(j);
    if (ways[i].empty()) return false;
    if (ways[i].size() > 1) continue;
    if (taken[ways[i][0]]) return false;
    taken[ways[i][0]] = true;
  }
  std::vector<size_t> open;
  for (size_t i = 0; i < ways.size(); ++i) {
    if (ways[i].size() > 1) {
      std::erase_if(ways[i], [&](size_t j) { return taken[j]; });
      if (ways[i].empty()) return false;
      open.push_back(i);
    }
  }
  if (!open.empty()) {
    Pairing later;
    for (size_t i : open) later.ways.push_back(ways[i]);
    later.choose = [open, choose](size_t part, size_t j) { return choose(open[part], j); };
    push({.pairing = pairings_.size()});
    pairings_.push_back(std::move(later));
  }
  // The first is looked at first.
  for (size_t i = ways.size(); i-- > 0;)
    if (!std::ranges::binary_search(open, i) && !choose(i, ways[i][0])) return false;
  return true;
}

bool Unifier::Search::terms(const std::vector<Product>& pattern, const std::vector<Product>& target, double sign) {
  if (pattern.size() != target.size()) return false;
  auto fits = [&](size_t i, size_t j) {
    const Product &p = pattern[i], &t = target[j];
    return p.factors.size() == t.factors.size() && negligible(p.coefficient - sign * t.coefficient, p.coefficient);
  };
  return pair(shapes_of(pattern, 1), shapes_of(target, sign), fits,
              [this, &pattern, &target](size_t i, size_t j) { return factors(pattern[i].factors, target[j].factors, true); });
}

std::vector<uint64_t> Unifier::Search::shapes_of(const std::vector<Product>& terms, double sign) {
  std::vector<uint64_t> found;
  for (const Product& t : terms) found.push_back(sign == 1 ? tree_.shape(t) : tree_.shape({sign * t.coefficient, t.factors}));
  return found;
}

// A sum whose terms are those of its negative up to axes: the normal form writes one of the two, whichever.
bool Unifier::Search::turns_round(Id atom) {
  const auto* terms = tree_.terms(atom);
  if (!terms) return false;
  std::vector<uint64_t> as_it_is = shapes_of(*terms, 1), negative = shapes_of(*terms, -1);
  std::ranges::sort(as_it_is);
  std::ranges::sort(negative);
  return as_it_is == negative;
}

bool Unifier::Search::step_pairing(const Goal& g, size_t first) {
  const Pairing& pairing = pairings_[g.pairing];
  const std::vector<size_t>& ways = pairing.ways[g.part];
  auto free = [&](size_t from) {
    while (from < ways.size() && std::ranges::find(taken_, std::pair(g.pairing, ways[from])) != taken_.end()) ++from;
    return from;
  };
  size_t way = free(first);
  if (way == ways.size()) return false;
  if (size_t next = free(way + 1); next < ways.size()) branch(g, next);
  taken_.push_back({g.pairing, ways[way]});
  if (g.part + 1 < pairing.ways.size()) push({.pairing = g.pairing, .part = g.part + 1});
  return pairing.choose(g.part, ways[way]);
}

bool Unifier::Search::bind(Id axis, Id target) {
  auto [it, fresh] = binding_.emplace(axis, target);
  if (fresh) bound_.push_back(axis);
  return fresh || it->second == target || tidy_index(a_, it->second) == tidy_index(a_, target);
}

bool Unifier::Search::step_node(const Goal& g) {
  if (!u_.has_axes(g.pattern)) return g.pattern == g.target;
  const Node p = a_[g.pattern], t = a_[g.target];
  if (p.type != t.type) return false;
  if (is_integer(p.type) && !is_read(p.op) && !is_reduction(p.op)) {
    if (u_.axes_.contains(g.pattern)) return bind(g.pattern, g.target);
    index(g.pattern, g.target);
    return true;
  }
  if (g.turned) return terms(*tree_.terms(g.pattern), *tree_.terms(g.target), -1);
  if (g.either_sign && turns_round(g.pattern) && tree_.terms(g.target)) {
    Goal other = g;
    other.turned = true;
    branch(other, 0);
  }
  const bool odd = info(p.op).parity == Parity::odd;
  auto known = g.either_sign && odd ? u_.atoms_.end() : u_.atoms_.find({g.pattern, g.target});
  if (known != u_.atoms_.end() && known->second.first && known->second.only)
    return std::ranges::all_of(*known->second.first, [&](const auto& b) { return bind(b.first, b.second); });
  if (!g.crossed) {
    if (!asked_.insert({g.pattern, g.target}).second) return true;
    asked_order_.push_back({g.pattern, g.target});
  }
  if (is_float(p.type)) {
    const auto* pt = tree_.terms(g.pattern);
    const auto* tt = tree_.terms(g.target);
    if (pt || tt) return pt && tt && terms(*pt, *tt, 1);
    const Product *pf = tree_.factors(g.pattern), *tf = tree_.factors(g.target);
    if (pf || tf) return pf && tf && factors(pf->factors, tf->factors, true);
  }
  if (p.op != t.op || p.symbol != t.symbol || p.arg_count != t.arg_count || is_reduction(p.op)) return false;
  if (p.op == Op::constant) return p.integer == t.integer;
  if (commutes(p) && !g.crossed) {
    Goal other = g;
    other.crossed = true;
    branch(other, 0);
  }
  return operands(p, t, g.crossed, info(p.op).parity == Parity::even || (odd && g.either_sign));
}

bool Unifier::Search::operands(const Node& p, const Node& t, bool crossed, bool either_sign) {
  for (size_t i = 0; i < p.arg_count; ++i) {
    size_t j = crossed && i < 2 ? 1 - i : i;
    Id x = p.arg(i), y = t.arg(j);
    // Below a function, operands are products again; below a comparison, and below what jumps, they stay as written.
    bool algebra = is_float(a_[x].type) && is_float(p.type) && a_[x].type == a_[y].type && !jumps(p.op);
    if (!algebra || !u_.has_axes(x)) {
      node(x, y);
      continue;
    }
    const Product &px = tree_.known_form(x), &py = tree_.known_form(y);
    if (!negligible(px.coefficient - py.coefficient, px.coefficient)) return false;
    if (!factors(px.factors, py.factors, true, either_sign)) return false;
  }
  return true;
}

// Solves p(axes) == t for one unbound axis at a time; what has none left must be equal.
bool Unifier::Search::indices(Binding& binding) {
  std::vector<std::pair<Id, Id>> later = later_;
  while (!later.empty()) {
    bool progress = false;
    for (size_t i = 0; i < later.size(); ++i) {
      auto [pattern, target] = later[i];
      Replacements known;
      std::vector<Id> unknown;
      for (Id x : a_[pattern].free_axes()) {
        if (auto it = binding.find(x); it != binding.end())
          known[x] = it->second;
        else if (u_.axes_.contains(x))
          unknown.push_back(x);
      }
      if (unknown.size() > 1) continue;
      Id now = known.empty() ? pattern : substitute(a_, pattern, known);
      if (now != target || !unknown.empty()) {
        Linear difference = linear(a_, target);
        add_scaled(difference, linear(a_, now), -1);
        if (unknown.empty()) {
          if (difference != Linear{}) return false;
        } else {
          // target - rest = k*axis (difference holds -k), and k must divide all of it: 2*i is 2*j + 2 for i = j + 1.
          auto it = difference.terms.find(unknown[0]);
          if (it == difference.terms.end()) return false;
          int64_t k = -it->second;
          difference.terms.erase(it);
          if (difference.constant % k != 0) return false;
          Linear solution;
          solution.constant = difference.constant / k;
          for (auto [node, coefficient] : difference.terms) {
            bool within = std::ranges::count(a_[node].free_axes(), unknown[0]) > 0;  // i/2 or the like
            if (within || coefficient % k != 0) return false;
            solution.terms[node] = coefficient / k;
          }
          binding[unknown[0]] = to_index(a_, solution);
        }
      }
      later.erase(later.begin() + static_cast<std::ptrdiff_t>(i));
      progress = true;
      break;
    }
    if (!progress && !by_coefficient(binding, later)) return false;
  }
  return true;
}

// Of several axes that are open in one index (8*g + k), binds one whose coefficient a single term of the target has. Whether
// all is equal is asked when none is left open.
bool Unifier::Search::by_coefficient(Binding& binding, const std::vector<std::pair<Id, Id>>& open) {
  for (auto [pattern, target] : open) {
    Replacements known;
    for (Id x : a_[pattern].free_axes())
      if (auto it = binding.find(x); it != binding.end()) known[x] = it->second;
    const Linear wanted = linear(a_, substitute(a_, pattern, known));
    Linear left = linear(a_, target);
    add_scaled(left, wanted, -1);
    std::vector<std::pair<Id, int64_t>> axes;
    for (auto term : wanted.terms)
      if (u_.axes_.contains(term.first)) axes.push_back(term);
    // The smallest first: what the others are made of besides is found once they are alone.
    std::ranges::stable_sort(axes, {}, [](const auto& term) { return std::abs(term.second); });
    for (auto [axis, k] : axes) {
      auto fits = [&, k = k](const auto& term) { return term.second == k && !u_.axes_.contains(term.first); };
      if (std::ranges::count_if(left.terms, fits) != 1) continue;
      binding[axis] = std::ranges::find_if(left.terms, fits)->first;
      return true;
    }
  }
  return false;
}

}  // namespace xhat

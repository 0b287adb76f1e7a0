#include "ad/gather/gather.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ad/common/guards.h"
#include "ad/gather/choices.h"
#include "ad/gather/pieces.h"
#include "expr/index/affine.h"
#include "expr/index/simplify_index.h"
#include "expr/rules/simplify.h"

namespace xhat {
namespace {

// index == target, as a condition of a sum has it: the target is an axis from outside, the index has bound
// axes.
struct Equation {
  Id index;
  AxisRange target;
  Id literal;
};

using Ranges = std::unordered_map<Id, AxisRange>;

constexpr size_t kMostPieces = 9;  // of one sum, each of which is code: the inside, edges and corners of a picture

// Ranges of all axes of a body by name; a name with two ranges is of no use as a target.
Ranges ranges_of(const Arena& a, const Definition& d) {
  Ranges ranges;
  std::vector<Id> ambiguous;
  auto note = [&](const AxisRange& r) {
    auto [at, fresh] = ranges.emplace(r.axis, r);
    if (!fresh && !(at->second == r)) ambiguous.push_back(r.axis);
  };
  for (const AxisRange& r : d.axes) note(r);
  for (Id id : reachable(a, d.body))
    if (is_reduction(a[id].op))
      for (const AxisRange& r : reduce_axes(a[id])) note(r);
  for (Id axis : ambiguous) ranges.erase(axis);
  return ranges;
}

class Gatherer {
 public:
  Gatherer(const Program& p, const Ranges& ranges, std::vector<Id> taken)
      : p_(p), a_(*p.arena), ranges_(ranges), taken_(std::move(taken)) {}

  // The sum with its equations solved, or itself; kNone unless it has fewer of them than that. (An answer may leave the equation and
  // narrow a range, if sum(r: ...) has both clamp(i + (r - 1) % 2, 0, H - 1) == h and clamp(j + r % 2, 0, W - 1) == w.)
  Id solved(Id id, size_t fewer_than = std::numeric_limits<size_t>::max()) {
    const Node& n = a_[id];
    look_at(n);
    if (Id found = found_by_data(id); found != kNone) return solved_inside(found);
    if (Id apart = by_pieces(id); apart != kNone) return apart;
    std::vector<Equation> equations = find_equations();
    if (equations.size() >= fewer_than) return kNone;
    // All at once; if that is out of reach, those that can be solved one by one.
    if (equations.empty() && std::ranges::none_of(literals_, [&](Id x) { return is_relation(x) || of_pieces_.contains(x); })) return id;
    if (Id whole = attempt(n, equations); whole != kNone) return whole;
    if (equations.size() <= 1) return id;
    for (const Equation& e : equations) {
      const Id part = attempt(n, {e});
      if (part == kNone) continue;
      const Id whole = a_[part].op == Op::sum ? solved(part, equations.size()) : part;
      if (whole != kNone) return whole;
      look_at(n);
    }
    return id;
  }

  // A choice by an equation that stands in a sum is a condition of the sum: sum(e: if ids[e] == v then a[e] else 0) visits one v for each e as
  // sum(e if ids[e] == v: a[e]). Of choices that are added up each has a sum of its own. Itself where something else is added, too, which
  // visits all v. exact: what a condition leaves out may be infinite, so that only numbers may be multiplied by what it chooses.
  Id with_choices_outside(Id id, bool exact) {
    const Node n = a_[id];
    look_at(n);
    parts_looked_at_ = 0;
    std::vector<Term> choices;
    if (!collect_choices(reduce_body(n), {}, exact, choices)) return id;
    Id sum = kNone;
    for (const Term& c : choices) {
      Literals all = literals_;
      add_literals(a_, all, c.condition);
      Id value = c.value;
      for (const auto& [op, by] : c.scaled) value = a_.binary(op, value, by);
      const Id part = solved_inside(a_.reduce(n.op, reduce_axes(n), conjunction(a_, all), value));
      look_at(n);
      if (sum == kNone)
        sum = c.subtracted ? a_.unary(Op::neg, part) : part;
      else
        sum = c.subtracted ? a_.sub(sum, part) : a_.add(sum, part);
    }
    return sum;
  }

  // The same of another reduction, where what is chosen else changes nothing: max(e: if ids[e] == v then a[e] else -inf).
  Id with_choice_outside(Id id) {
    const Node n = a_[id];
    look_at(n);
    const Choice chosen = choice_in(a_, n.op, reduce_body(n));
    if (std::ranges::none_of(chosen.conditions, [&](Id x) { return names_a_place(x); })) return id;
    Literals all = literals_;
    for (Id x : chosen.conditions) add_literals(a_, all, x);
    return a_.reduce(n.op, reduce_axes(n), conjunction(a_, all), chosen.value);
  }

  // Another reduction, with the conditions that its ranges can say in them.
  Id narrowed(Id id) {
    const Node& n = a_[id];
    look_at(n);
    if (std::ranges::none_of(literals_, [&](Id x) { return is_relation(x); })) return id;
    const Id made = attempt(n, {});
    return made != kNone && a_[made].op == n.op ? made : id;
  }

 private:
  void look_at(const Node& n) {
    axes_ = reduce_axes(n);
    bound_.clear();
    for (const AxisRange& r : axes_) bound_.push_back(r.axis);
    literals_.clear();
    add_literals(a_, literals_, reduce_condition(n));
  }

  using Scaled = std::vector<std::pair<Op, Id>>;  // multiplied or divided by, the innermost first
  struct Term {
    Id condition, value;
    bool subtracted;
    Scaled scaled;
  };

  // Is all that is added up a choice between a value and zero, by an equation that leaves out most points?
  bool collect_choices(Id value, const Term& around, bool exact, std::vector<Term>& choices) {
    constexpr size_t kMostParts = 100;
    if (++parts_looked_at_ > kMostParts) return false;
    const Node& n = a_[value];
    Term inside = around;
    if (n.op == Op::neg) {
      inside.subtracted = !around.subtracted;
      return collect_choices(n.arg(0), inside, exact, choices);
    }
    if (n.op == Op::add || n.op == Op::sub) {
      if (!collect_choices(n.arg(0), around, exact, choices)) return false;
      inside.subtracted = around.subtracted != (n.op == Op::sub);
      return collect_choices(n.arg(1), inside, exact, choices);
    }
    auto may_go_along = [&](Id x) { return !exact || (a_[x].op == Op::constant && std::isfinite(a_[x].value) && a_[x].value != 0); };
    if (is_float(n.type) && (n.op == Op::mul || n.op == Op::div))
      for (size_t side : {0u, 1u}) {
        if ((n.op == Op::div && side == 1) || !may_go_along(n.arg(1 - side))) continue;
        const size_t found = choices.size();
        inside.scaled.insert(inside.scaled.begin(), {n.op, n.arg(1 - side)});
        if (collect_choices(n.arg(side), inside, exact, choices)) return true;
        choices.resize(found);
        inside.scaled = around.scaled;
      }
    const Choice chosen = choice_in(a_, Op::sum, value);
    choices.push_back({conjunction(a_, chosen.conditions), chosen.value, around.subtracted, around.scaled});
    return std::ranges::any_of(chosen.conditions, [&](Id x) { return names_a_place(x); });
  }

  // ids[e] == v, where one side runs in the sum and the other one does not, or elsewhere.
  bool names_a_place(Id literal) const {
    const Node& n = a_[literal];
    if (n.op != Op::eq || a_[n.arg(0)].type != DType::i64) return false;
    return std::ranges::any_of(std::array{0u, 1u}, [&](size_t side) {
      const Id axis = n.arg(side), place = n.arg(1 - side);
      if (a_[axis].op != Op::axis || tensors_read(a_, place).empty() || contains(a_[place].free_axes(), axis)) return false;
      return contains(bound_, axis) || (ranges_.contains(axis) && depends_on(a_, place, bound_));
    });
  }

  // The sum that is left, under its guards.
  Id solved_inside(Id id) {
    const Node& n = a_[id];
    if (n.op == Op::select) return a_.select(n.arg(0), solved_inside(n.arg(1)), n.arg(2));
    return n.op == Op::sum ? solved(id) : id;
  }

  // Of sum(v if ids[b] == v: dy[v]) one term is left, that at v = ids[b], if this is in the range of v. (What reads no tensor is solved
  // with all other equations.)
  Id found_by_data(Id id) {
    const Node& n = a_[id];
    for (Id literal : literals_) {
      const Node& eq = a_[literal];
      if (eq.op != Op::eq || a_[eq.arg(0)].type != DType::i64) continue;
      for (size_t side : {0u, 1u}) {
        const Id axis = eq.arg(side), place = eq.arg(1 - side);
        if (!contains(bound_, axis) || contains(a_[place].free_axes(), axis) || tensors_read(a_, place).empty()) continue;
        if (bounds_a_range(a_, id, axis)) continue;
        InvertAnswer answer;
        answer.solved.emplace_back(axis, place);
        for (const AxisRange& r : axes_) {
          if (r.axis != axis)
            answer.remaining.push_back(r);
          else
            answer.guard = a_.land(a_.binary(Op::le, r.begin, place), a_.binary(Op::lt, place, r.end));
        }
        Literals rest = literals_;
        std::erase(rest, literal);
        return rebuilt(n, answer, rest);
      }
    }
    return kNone;
  }

  // sum(i if clamp(i - 1, 0, N - 1) == n: dy[i]) as a sum for each piece of the index, whose equation is affine: the inside, where
  // terms are found by a shift, and both edges, which are at one n each. kNone: no index has pieces, or some piece is not solved.
  Id by_pieces(Id id) {
    const Node n = a_[id];
    Id part = kNone;
    for (Id literal : literals_) {
      const Node& eq = a_[literal];
      if (eq.op != Op::eq || a_[eq.arg(0)].type != DType::i64) continue;
      for (Id side : eq.args())
        if (const Id found = part_with_pieces(a_, side, bound_); found != kNone) part = found;
    }
    if (part == kNone) return too_many_ = too_many_ || ++pieces_ > kMostPieces, kNone;
    if (binds_any(reduce_body(n), a_[part].free_axes())) return kNone;
    std::vector<AxisRange> scope = ranges_around(n);
    scope.insert(scope.end(), axes_.begin(), axes_.end());
    std::vector<Id> known;
    for (const Precondition& c : p_.preconditions) known.push_back(c.condition);
    std::ranges::copy_if(literals_, std::back_inserter(known), [&](Id x) { return is_affine(x); });
    const std::vector<IndexPiece> pieces = pieces_of(a_, part, scope, known);
    if (pieces.empty()) return kNone;
    const bool whole = !std::exchange(in_pieces_, true);
    if (whole) pieces_ = 0, too_many_ = false;
    Id sum = kNone;
    for (const IndexPiece& piece : pieces) {
      of_pieces_.insert(piece.where.begin(), piece.where.end());
      Literals conditions = piece.where;
      for (Id literal : literals_) add_literals(a_, conditions, substitute(a_, literal, {{part, piece.value}}));
      const Id body = substitute(a_, reduce_body(n), {{part, piece.value}});
      const Id made = solved(a_.reduce(Op::sum, axes_, conjunction(a_, conditions), body));
      const Id term = without_divisions_by_zero(where_there_are_terms(made));
      look_at(n);
      if (too_many_ || searches(term)) {
        sum = kNone;
        break;
      }
      if (sum == kNone || has_no_terms(sum))
        sum = term;
      else if (!has_no_terms(term))
        sum = a_.add(sum, term);
    }
    if (whole) in_pieces_ = false;
    return sum;
  }

  // The sum under the conditions on single axes outside of it without which its ranges are empty: at an edge alone, and what is made of it
  // is as small as the edge.
  Id where_there_are_terms(Id term) {
    const Node n = a_[term];
    if (n.op == Op::select) return a_.select(n.arg(0), where_there_are_terms(n.arg(1)), n.arg(2));
    if (n.op != Op::sum) return term;
    Literals all, needed;
    add_literals(a_, all, nonempty(a_, reduce_axes(n), ranges_around(n)));
    std::ranges::copy_if(all, std::back_inserter(needed), [&](Id x) { return a_[x].axes_count == 1 && is_affine(x); });
    return guarded(a_, needed, term);
  }

  bool has_no_terms(Id term) {
    if (a_[term].op != Op::select) return false;
    const std::vector<Id> guards = conjuncts(a_, a_[term].arg(0));
    return std::ranges::any_of(guards, [&](Id x) { return is_false(a_, x); });
  }

  // An edge may be one place, at which i % (i*i) is a remainder by the number 0. It is 0, but no text may say it.
  Id without_divisions_by_zero(Id term) {
    return rewrite(a_, term, [&](Id id) {
      const Node& n = a_[id];
      const bool divides = (n.op == Op::div || n.op == Op::mod) && is_integer(n.type);
      return divides && is_constant(a_, simplify(a_, n.arg(1)), 0) ? a_.constant(n.type, 0) : id;
    });
  }

  // An inner reduction that gives another meaning to one of the axes.
  bool binds_any(Id root, std::span<const Id> axes) const {
    return std::ranges::any_of(reachable(a_, root), [&](Id id) {
      if (!is_reduction(a_[id].op)) return false;
      const auto bound = reduce_axes(a_[id]);
      return std::ranges::any_of(bound, [&](const AxisRange& r) { return contains(axes, r.axis); });
    });
  }

  // Does a sum of the term, outside of what was its body, still search for the terms of one place?
  bool searches(Id term) {
    const Node n = a_[term];
    if (n.op == Op::add) return searches(n.arg(0)) || searches(n.arg(1));
    if (n.op == Op::select) return searches(n.arg(1));
    if (n.op != Op::sum) return false;
    const std::vector<AxisRange> axes = reduce_axes(n);
    return std::ranges::any_of(conjuncts(a_, reduce_condition(n)), [&](Id c) {
      return a_[c].op == Op::eq && a_[a_[c].arg(0)].type == DType::i64 && tensors_read(a_, c).empty() &&
             std::ranges::any_of(axes, [&](const AxisRange& r) { return a_[c].depends_on(r.axis); });
    });
  }

  std::vector<Equation> find_equations() const {
    std::vector<Equation> found;
    std::vector<Id> targets;
    for (Id literal : literals_) {
      const Node& n = a_[literal];
      if (n.op != Op::eq || a_[n.arg(0)].type != DType::i64) continue;
      for (size_t side : {1u, 0u}) {
        Id target = n.arg(side), index = n.arg(1 - side);
        if (a_[target].op != Op::axis || contains(bound_, target) || contains(targets, target)) continue;
        if (!depends_on(a_, index, bound_) || contains(a_[index].free_axes(), target)) continue;
        auto range = ranges_.find(target);
        if (range == ranges_.end()) continue;
        found.push_back({index, range->second, literal});
        targets.push_back(target);
        break;
      }
    }
    return found;
  }

  // 2*i + r - 1 == o, or 2*i <= o, with i bound and o from outside: the user's condition, or the range of an axis that was
  // solved already. The axes from outside are known in what invert() is asked. Or (t + 1) % 2 == 0: every second t.
  bool is_relation(Id literal) const {
    Op op = a_[literal].op;
    if ((op != Op::eq && op != Op::le && op != Op::lt) || !is_affine(literal) || !depends_on(a_, literal, bound_)) return false;
    if (op == Op::eq && fusion::divides(a_, literal)) return true;
    auto axes = a_[literal].free_axes();
    return std::ranges::any_of(axes, [&](Id x) { return !contains(bound_, x) && ranges_.contains(x); });
  }

  // Within reach of isl: no tensor is read, nothing but integers compared. Not i % (i*i): what is known of it only because i is
  // in its range must not stand for that range.
  bool is_affine(Id literal) const {
    return std::ranges::all_of(reachable(a_, literal), [&](Id id) {
      const Node& n = a_[id];
      bool product = n.op == Op::mul || n.op == Op::div || n.op == Op::mod;
      if (product && depends_on(a_, n.arg(0), bound_) && depends_on(a_, n.arg(1), bound_)) return false;
      return !is_read(n.op) && !is_reduction(n.op) && !is_float(n.type);
    });
  }

  Id attempt(const Node& n, const std::vector<Equation>& equations) {
    std::vector<Id> indices;
    std::vector<AxisRange> targets;
    Literals known, rest;
    for (const Equation& e : equations) {
      indices.push_back(e.index);
      targets.push_back(e.target);
    }
    for (Id literal : literals_) {
      if (is_relation(literal))
        for (Id x : a_[literal].free_axes()) {
          auto r = ranges_.find(x);
          bool known_target = std::ranges::any_of(targets, [&](const AxisRange& t) { return t.axis == x; });
          if (r != ranges_.end() && !contains(bound_, x) && !known_target) targets.push_back(r->second);
        }
      if (std::ranges::any_of(equations, [&](const Equation& e) { return e.literal == literal; })) continue;
      (is_affine(literal) ? known : rest).push_back(literal);
    }
    Literals pieces;
    for (Id literal : known)
      if (of_pieces_.contains(literal)) pieces.push_back(literal);
    std::erase_if(known, [&](Id x) { return of_pieces_.contains(x); });
    std::optional<InvertAnswer> answer = inverted({axes_, conjunction(a_, known), conjunction(a_, pieces), indices, targets});
    if (!answer || !without_data_in_ranges(&*answer, &rest)) return kNone;
    return rebuilt(n, *answer, rest);
  }

  // No range reads a tensor: what data decide of an axis is a condition beside the range that it had, and before all that may read by it. False
  // where it had none.
  bool without_data_in_ranges(InvertAnswer* answer, Literals* rest) {
    for (AxisRange& r : answer->remaining) {
      if (tensors_read(a_, r.begin).empty() && tensors_read(a_, r.end).empty()) continue;
      const auto had = std::ranges::find(axes_, r.axis, &AxisRange::axis);
      if (had == axes_.end()) return false;
      rest->insert(rest->begin(), {a_.binary(Op::le, r.begin, r.axis), a_.binary(Op::lt, r.axis, r.end)});
      r = *had;
    }
    return true;
  }

  // A gradient has a term for each use of a tensor, often over the same axes by the same indices, and isl takes milliseconds.
  struct Question {
    std::vector<AxisRange> axes;
    Id condition, pieces;
    std::vector<Id> indices;
    std::vector<AxisRange> targets;
    bool operator==(const Question&) const = default;
  };
  const std::optional<InvertAnswer>& inverted(Question q) {
    for (const auto& [asked, answer] : asked_)
      if (asked == q) return answer;
    auto answer = invert(a_, {q.axes, q.condition, q.indices, q.targets, taken_, q.pieces});
    return asked_.emplace_back(std::move(q), std::move(answer)).second;
  }

  Id rebuilt(const Node& n, const InvertAnswer& answer, const Literals& rest) {
    Replacements map(answer.solved.begin(), answer.solved.end());
    std::vector<Id> remaining;
    for (const AxisRange& r : answer.remaining) remaining.push_back(r.axis);
    auto moved = [&](Id x) { return map.empty() ? x : substitute(a_, x, map, remaining); };
    Literals all;
    add_literals(a_, all, answer.guard);
    for (Id literal : rest) add_literals(a_, all, moved(literal));
    positions_first(a_, all);
    std::vector<AxisRange> around = ranges_around(n);
    auto [inner, outer] = split_guards(a_, p_, all, remaining, around);
    Id body = moved(reduce_body(n));
    if (!remaining.empty()) body = a_.reduce(n.op, answer.remaining, conjunction(a_, inner), body);
    return guarded(a_, outer, body);
  }

  // Of the axes that stand outside the sum, outer first.
  std::vector<AxisRange> ranges_around(const Node& n) const {
    std::vector<AxisRange> found;
    std::vector<Id> open(n.free_axes().begin(), n.free_axes().end());
    while (!open.empty()) {
      auto at = ranges_.find(open.back());
      open.pop_back();
      if (at == ranges_.end() || std::ranges::find(found, at->second) != found.end()) continue;
      found.push_back(at->second);
      for (Id e : {at->second.begin, at->second.end}) open.insert(open.end(), a_[e].free_axes().begin(), a_[e].free_axes().end());
    }
    std::ranges::stable_sort(found, {}, [&](const AxisRange& r) { return a_[r.begin].axes_count + a_[r.end].axes_count; });
    return found;
  }

  const Program& p_;
  Arena& a_;
  const Ranges& ranges_;
  std::vector<Id> taken_;  // axes of the body
  std::vector<AxisRange> axes_;
  std::vector<Id> bound_;
  Literals literals_;
  size_t parts_looked_at_ = 0;
  std::vector<std::pair<Question, std::optional<InvertAnswer>>> asked_;
  std::unordered_set<Id> of_pieces_;  // conditions that say which piece it is
  bool in_pieces_ = false, too_many_ = false;
  size_t pieces_ = 0;  // of the sum that is taken apart
};

// Has the sum, wherever it stands now, fewer conditions than it had? What a user wrote stays as it is otherwise.
bool has_fewer_conditions(const Arena& a, Id was, Id made) {
  while (a[made].op == Op::select) made = a[made].arg(1);
  if (!is_reduction(a[made].op)) return true;
  Literals before, after;
  add_literals(a, before, reduce_condition(a[was]));
  add_literals(a, after, reduce_condition(a[made]));
  // Ranges by squares become conditions again.
  auto curved = [&](Id id) {
    const bool product = a[id].op == Op::mul && a[a[id].arg(0)].op != Op::constant && a[a[id].arg(1)].op != Op::constant;
    return product || a[id].op == Op::pow;
  };
  for (const AxisRange& r : reduce_axes(a[made]))
    if (std::ranges::any_of(reachable(a, std::vector<Id>{r.begin, r.end}), curved)) return false;
  return after.size() < before.size();
}

}  // namespace

Program gather(const Program& p) {
  Arena& a = *p.arena;
  Program result = p;
  size_t number = 0;
  for (Definition& d : result.definitions()) {
    const bool written = number++ < result.forward.definitions.size();
    if (d.is_call()) continue;
    Ranges ranges = ranges_of(a, d);
    std::vector<Id> taken = all_axes(a, std::span<const Id>(&d.body, 1));
    for (const AxisRange& r : d.axes) taken.push_back(r.axis);
    Gatherer gatherer(p, ranges, std::move(taken));
    d.body = rewrite(a, d.body, [&](Id id) {
      const Op op = a[id].op;
      if (op != Op::sum && op != Op::prod && op != Op::max && op != Op::min) return id;
      if (const Id apart = op == Op::sum ? gatherer.with_choices_outside(id, written) : gatherer.with_choice_outside(id); apart != id)
        return apart;
      const Id made = op == Op::sum ? gatherer.solved(id) : gatherer.narrowed(id);
      return made == id || !written || has_fewer_conditions(a, id, made) ? made : id;
    });
  }
  return result;
}

}  // namespace xhat

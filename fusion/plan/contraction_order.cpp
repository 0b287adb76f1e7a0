#include "fusion/plan/contraction_order.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <set>
#include <unordered_map>

#include "expr/index/data_ends.h"
#include "expr/index/hull.h"
#include "fusion/plan/running.h"
#include "fusion/relations/scatter.h"

namespace xhat {
namespace {

constexpr double kOneSumShare = 0.75;   // of the price of one sum
constexpr double kProductTerm_ps = 14;  // of a product of matrices, whose kernels read each operand for many results
constexpr double kTerm_ps = 28;         // of another sum of one or two factors
constexpr double kLongTerm_ps = 40;     // of more
constexpr double kRunning = 32;         // terms that a result of a running sum takes as long as (fusion/plan/prefix_sums.h)
constexpr double kColumns = 8;          // below, vectors along them would be short
constexpr size_t kMostFactors = 8;      // more are joined, those first that have the same axes
constexpr size_t kMostAxes = 32;

using Axes = uint32_t;     // a set of a definition's axes, as bits
using Factors = uint32_t;  // a set of the product's factors

class ContractionOrder {
 public:
  ContractionOrder(const Program& p, const DimValues& sizes, const MachineModel& machine)
      : p_(p), a_(*p.arena), sizes_(sizes), machine_(machine) {}

  Program run() {
    std::vector<Definition> all;
    for (const Definition& d : std::vector<Definition>(p_.forward.definitions))
      if (!rewritten(d, &all)) all.push_back(d);
    p_.forward.definitions = std::move(all);
    return std::move(p_);
  }

 private:
  // Of one axis of the definition at hand.
  struct Axis {
    AxisRange range;
    AxisRange table;                // as an intermediate has it, from 0 on
    double points = 0, places = 0;  // in the sum, and in an intermediate
    bool result = false;
    bool only_at_root = false;  // summed there, and nowhere else
    bool as_it_is = true;       // an intermediate's places are the range's
    bool in_tables = true;      // an intermediate may have it
    size_t runs_to = SIZE_MAX;  // of a running sum, the result's axis that its range moves with
  };
  struct Factor {
    Id value;
    Axes axes;
    bool anywhere;  // may stand in an intermediate: reads nothing outside at its places
  };
  // What is multiplied at one node: single factors as they are, and partial sums.
  struct Part {
    Factors factors;
    bool summed;
  };
  struct Choice {
    double cost = 0;  // of the partial sums
    std::vector<Part> parts;
  };

  int64_t number(Id extent) const { return evaluate_extent(a_, extent, sizes_); }

  // --- what the sum is made of ---

  bool collect_axes(const Definition& d) {
    axes_.clear();
    where_.clear();
    const Node root = a_[d.body];
    const std::vector<AxisRange> summed = reduce_axes(root);
    if (d.axes.size() + summed.size() > kMostAxes) return false;
    Ranges ranges;
    for (const std::vector<AxisRange>& list : {d.axes, summed})
      for (const AxisRange& r : list) {
        if (!ranges.emplace(r.axis, r).second) return false;
        where_[r.axis] = axes_.size();
        axes_.push_back({.range = r, .table = r, .result = axes_.size() < d.axes.size()});
      }
    Hull hull(a_, ranges);
    AxisValues middle;
    for (Axis& x : axes_) {
      const AxisRange& r = x.range;
      const int64_t begin = evaluate_extent(a_, r.begin, sizes_, middle);
      const int64_t points = evaluate_extent(a_, r.end, sizes_, middle) - begin;
      if (points <= 0) return false;
      middle[r.axis] = begin + points / 2;
      x.points = x.places = static_cast<double>(points);
      x.only_at_root = a_[reduce_condition(root)].depends_on(r.axis);
      for (Id bound : {r.begin, r.end})
        for (Id other : a_[bound].free_axes()) {
          x.only_at_root = true;
          if (auto at = where_.find(other); at != where_.end()) axes_[at->second].only_at_root = true;
        }
      for (auto [still, moves] : {std::pair(r.begin, r.end), std::pair(r.end, r.begin)})
        if (const auto by = fusion::axis_and_number(p_, sizes_, d, moves); by && a_[still].free_axes().empty()) x.runs_to = by->first;
      x.as_it_is = range_is_plain(a_, r);
      if (x.as_it_is) continue;
      const std::optional<AxisRange> box = hull.box(r);
      x.in_tables = box && number(box->begin) >= 0 && number(box->end) > 0;
      if (!x.in_tables) continue;
      x.table = {r.axis, a_.integer(0), box->end};
      x.places = static_cast<double>(number(box->end));
    }
    return std::ranges::any_of(axes_, [](const Axis& x) { return !x.result && !x.only_at_root; });
  }

  // A partial sum would have all pairs of a place and a segment, of which the sum has few.
  bool of_segments(const Definition& d) {
    std::vector<Id> all;
    for (const Axis& x : axes_) all.push_back(x.range.axis);
    const Id condition = reduce_condition(a_[d.body]);
    return std::ranges::any_of(all, [&](Id x) { return a_[condition].depends_on(x) && in_segments(a_, condition, x, all); });
  }

  Axes axes_of(Id id) const {
    Axes found = 0;
    for (Id x : a_[id].free_axes())
      if (auto at = where_.find(x); at != where_.end()) found |= Axes{1} << at->second;
    return found;
  }

  double places(Axes set) const {
    double n = 1;
    for (size_t i = 0; i < axes_.size(); ++i)
      if (set >> i & 1) n *= axes_[i].places;
    return n;
  }

  // Factors into `values`, what they are divided by into `divisors`. Returns whether its sign turns.
  bool collect_product(Id id, std::vector<Id>* values, std::vector<Id>* divisors) const {
    const Node& n = a_[id];
    if (n.op == Op::mul) {
      const bool x = collect_product(n.arg(0), values, divisors), y = collect_product(n.arg(1), values, divisors);
      return x != y;
    }
    if (n.op == Op::neg) return !collect_product(n.arg(0), values, divisors);
    if (n.op == Op::div) {
      divisors->push_back(n.arg(1));
      return collect_product(n.arg(0), values, divisors);
    }
    values->push_back(id);
    return false;
  }

  // Reads outside are guarded by the condition and by the ranges, which intermediates do not have.
  bool reads_inside(Id root) const {
    Ranges tables;
    for (const Axis& x : axes_) tables[x.range.axis] = x.table;
    Hull hull(a_, tables);
    return std::ranges::all_of(reachable(a_, root), [&](Id id) {
      const Node& n = a_[id];
      if (is_reduction(n.op)) return false;
      if (n.op != Op::read) return true;
      const auto indices = read_indices(n);
      for (size_t i = 0; i < indices.size(); ++i) {
        if (axes_of(indices[i]) == 0) continue;
        const auto box = hull.box({indices[i], indices[i], a_.add(a_.to(DType::i64, indices[i]), a_.integer(1))});
        if (!box || number(box->begin) < 0 || number(box->end) > number(p_.tensor(n.symbol).shape[i])) return false;
      }
      return true;
    });
  }

  bool collect_factors(Id body) {
    factors_.clear();
    outer_.clear();
    std::vector<Id> values, divisors;
    negative_ = collect_product(body, &values, &divisors);
    // A divisor stays with a factor that has its axes: by itself its reciprocal could leave the range of numbers.
    for (Id divisor : divisors) {
      Id* least = nullptr;
      for (Id& v : values)
        if ((axes_of(divisor) & ~axes_of(v)) == 0 && axes_of(v) != 0 && (!least || std::popcount(axes_of(v)) < std::popcount(axes_of(*least))))
          least = &v;
      if (!least) return false;
      *least = a_.div(*least, divisor);
    }
    Axes unsure = 0, never = 0;
    for (size_t i = 0; i < axes_.size(); ++i) {
      if (!axes_[i].as_it_is || (axes_[i].only_at_root && !axes_[i].result)) unsure |= Axes{1} << i;
      if (a_[condition_].depends_on(axes_[i].range.axis)) unsure |= Axes{1} << i;
      if (!axes_[i].in_tables) never |= Axes{1} << i;
    }
    for (Id v : values) {
      const Axes has = axes_of(v);
      if (has == 0)
        outer_.push_back(v);
      else
        factors_.push_back({v, has, (has & never) == 0 && ((has & unsure) == 0 || reads_inside(v))});
    }
    while (factors_.size() > kMostFactors) join_two();
    Axes known = 0;
    for (const Factor& f : factors_) known |= f.axes;
    for (size_t i = 0; i < axes_.size(); ++i)
      if (!axes_[i].result && !(known >> i & 1)) return false;
    return factors_.size() >= 2;
  }

  // Those two that have the fewest points together.
  void join_two() {
    size_t x = 0, y = 1;
    double least = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < factors_.size(); ++i)
      for (size_t j = i + 1; j < factors_.size(); ++j)
        if (const double n = places(factors_[i].axes | factors_[j].axes); n < least) least = n, x = i, y = j;
    factors_[x] = {a_.mul(factors_[x].value, factors_[y].value), factors_[x].axes | factors_[y].axes,
                   factors_[x].anywhere && factors_[y].anywhere};
    factors_.erase(factors_.begin() + static_cast<std::ptrdiff_t>(y));
  }

  // --- the cheapest tree ---

  // The axes that a partial sum of these factors has: those of the result, those of others, and those that the root sums over.
  Axes left_by(Factors set) const {
    Axes inside = 0, outside = 0;
    for (size_t i = 0; i < factors_.size(); ++i) (set >> i & 1 ? inside : outside) |= factors_[i].axes;
    for (size_t i = 0; i < axes_.size(); ++i)
      if (axes_[i].result || axes_[i].only_at_root) outside |= Axes{1} << i;
    return inside & outside;
  }
  const Factor& only(const Part& part) const { return factors_[static_cast<size_t>(std::countr_zero(part.factors))]; }
  Axes axes_of(const Part& part) const { return part.summed ? left_by(part.factors) : only(part).axes; }

  // Of multiplying the parts and adding one term: `left` remain of their axes.
  double cost_of_term(const std::vector<Part>& parts, Axes left) const {
    const bool matrices = parts.size() == 2 && (axes_of(parts[0]) & axes_of(parts[1]) & ~left) != 0 &&
                          (axes_of(parts[0]) & ~axes_of(parts[1]) & left) != 0 && (axes_of(parts[1]) & ~axes_of(parts[0]) & left) != 0;
    return matrices ? kProductTerm_ps : parts.size() > 2 ? kLongTerm_ps : kTerm_ps;
  }

  double cost_at_root(const std::vector<Part>& parts, Axes all, Axes results) const {
    double terms = 1;
    for (size_t i = 0; i < axes_.size(); ++i) {
      if (!(all >> i & 1)) continue;
      const Axis& x = axes_[i];
      const Axes both = x.runs_to == SIZE_MAX ? 0 : Axes{1} << i | Axes{1} << x.runs_to;
      const bool runs = both != 0 && std::ranges::none_of(parts, [&](const Part& part) { return (axes_of(part) & both) == both; });
      terms *= runs ? std::min(x.points, kRunning) : x.points;
    }
    return terms * cost_of_term(parts, results);
  }

  double cost_of_keeping(Axes left) const {
    const auto bytes = static_cast<double>(byte_size(type_));
    return places(left) * bytes * static_cast<double>(machine_.read_ps_per_byte + machine_.write_ps_per_byte) +
           static_cast<double>(machine_.pass_ps);
  }

  // Every operand once from memory, in any order.
  double cost_of_operands() const {
    double bytes = 0;
    std::set<TensorId> seen;
    for (const Factor& f : factors_)
      for (Id id : reachable(a_, f.value)) {
        const Node& n = a_[id];
        if (!is_read(n.op) || !seen.insert(n.symbol).second) continue;
        bytes += std::min(static_cast<double>(bytes_of(p_, n.symbol, sizes_)),
                          places(axes_of(id)) * static_cast<double>(byte_size(n.type)));
      }
    return bytes * static_cast<double>(machine_.read_ps_per_byte);
  }

  // All ways to make parts of the factors, by the axes that they have together: the cheapest of each. Not one sum of all of them.
  using Ways = std::map<Axes, Choice>;
  const Ways& ways_of(Factors set) {
    if (auto at = ways_.find(set); at != ways_.end()) return at->second;
    Ways found;
    const Factors first = set & (~set + 1);
    auto take = [&](Part part, double cost, const Choice& others, Axes axes) {
      auto [at, fresh] = found.try_emplace(axes | axes_of(part));
      if (!fresh && at->second.cost <= others.cost + cost) return;
      at->second = others;
      at->second.cost += cost;
      at->second.parts.insert(at->second.parts.begin(), part);
    };
    auto take_with = [&](Part part, double cost) {
      const Factors others = set & ~part.factors;
      if (others == 0) return take(part, cost, {}, 0);
      for (const auto& [axes, way] : ways_of(others)) take(part, cost, way, axes);
      if (std::has_single_bit(others)) return;
      if (const Choice* sum = sum_of(others)) take(part, cost, {sum->cost, {{others, true}}}, left_by(others));
    };
    take_with({first, false}, 0);
    for (Factors part = set; part != 0; part = (part - 1) & set) {
      if (!(part & first) || (part == set && set != first)) continue;
      if (const Choice* sum = sum_of(part)) take_with({part, true}, sum->cost);
    }
    return ways_[set] = std::move(found);
  }

  // The cheapest partial sum of these factors, which sums over at least one axis itself; none: there is none.
  const Choice* sum_of(Factors set) {
    if (auto at = sums_.find(set); at != sums_.end()) return at->second.parts.empty() ? nullptr : &at->second;
    Choice best;
    const Axes left = left_by(set);
    Axes has = 0;
    bool anywhere = true;
    for (size_t i = 0; i < factors_.size(); ++i)
      if (set >> i & 1) has |= factors_[i].axes, anywhere = anywhere && factors_[i].anywhere;
    if (anywhere && has != left) {
      auto consider = [&](const Choice& way, Axes axes) {
        if ((axes & ~left) == 0) return;
        const double cost = way.cost + places(axes) * cost_of_term(way.parts, left) + cost_of_keeping(left);
        if (!best.parts.empty() && cost >= best.cost) return;
        best = way;
        best.cost = cost;
      };
      if (std::has_single_bit(set))
        consider({0, {{set, false}}}, has);
      else
        for (const auto& [axes, way] : ways_of(set)) consider(way, axes);
    }
    const Choice& made = sums_[set] = std::move(best);
    return made.parts.empty() ? nullptr : &made;
  }

  // The parts of the root; none: it stays as it is.
  std::optional<Choice> cheapest() {
    ways_.clear();
    sums_.clear();
    const Factors all = (Factors{1} << factors_.size()) - 1;
    Axes results = 0;
    for (size_t i = 0; i < axes_.size(); ++i)
      if (axes_[i].result) results |= Axes{1} << i;
    const double operands = cost_of_operands();
    Choice one, best;
    for (size_t i = 0; i < factors_.size(); ++i) one.parts.push_back({Factors{1} << i, false});
    const double whole = operands + cost_at_root(one.parts, ~Axes{0}, results);
    double least = kOneSumShare * whole;
    auto consider = [&](const Choice& way, Axes axes) {
      const double cost = operands + way.cost + cost_at_root(way.parts, axes | results, results);
      if (cost >= least) return;
      least = cost;
      best = way;
    };
    for (const auto& [axes, way] : ways_of(all)) consider(way, axes);
    if (const Choice* sum = sum_of(all)) consider({sum->cost, {{all, true}}}, left_by(all));
    if (best.parts.empty()) return {};
    return best;
  }

  // --- definitions ---

  std::vector<AxisRange> summed_over(Axes set) const {
    std::vector<AxisRange> ranges;
    for (size_t i = 0; i < axes_.size(); ++i)
      if ((set >> i & 1) && !axes_[i].result) ranges.push_back(axes_[i].range);
    return ranges;
  }

  // As they lie in what is read beside it, or else in what it is made of: what lies side by side there does here. The result's last axis comes last
  // where they are the columns of a product, of which what lies beside has the rows.
  std::vector<AxisRange> in_order(Axes left, Factors made_of, size_t results) const {
    std::vector<size_t> lie;
    bool beside = false, rows = false;
    for (size_t f = 0; f < factors_.size(); ++f) {
      const bool outside = !(made_of >> f & 1);
      for (Id id : reachable(a_, factors_[f].value)) {
        const Node& n = a_[id];
        if (!is_read(n.op)) continue;
        std::vector<size_t> own;
        for (Id index : read_indices(n))
          for (size_t i = 0; i < axes_.size(); ++i)
            if ((left >> i & 1) && a_[index].depends_on(axes_[i].range.axis) && std::ranges::find(own, i) == own.end()) own.push_back(i);
        if (own.size() > lie.size() || (own.size() == lie.size() && outside && !beside)) {
          lie = own;
          beside = outside;
          rows = outside && (axes_of(id) & ~left & ((Axes{1} << results) - 1)) != 0;
        }
      }
    }
    const bool columns = rows && axes_[results - 1].places >= kColumns && (left >> (results - 1) & 1) && std::ranges::find(lie, results - 1) == lie.end();
    std::vector<AxisRange> order;
    for (size_t i = 0; i < axes_.size(); ++i)
      if ((left >> i & 1) && !(columns && i + 1 == results) && std::ranges::find(lie, i) == lie.end()) order.push_back(axes_[i].table);
    for (size_t i : lie) order.push_back(axes_[i].table);
    if (columns) order.push_back(axes_[results - 1].table);
    return order;
  }

  Id product_of(const Definition& d, const std::vector<Part>& parts, std::vector<Definition>* all) {
    Id made = kNone;
    for (const Part& part : parts) {
      const Id value = part.summed ? partial_sum(d, part.factors, all) : only(part).value;
      made = made == kNone ? value : a_.mul(made, value);
    }
    return made;
  }

  Id partial_sum(const Definition& d, Factors set, std::vector<Definition>* all) {
    const Choice& sum = sums_.at(set);
    const Axes left = left_by(set);
    Axes has = 0;
    for (const Part& part : sum.parts) has |= axes_of(part);
    const Id terms = product_of(d, sum.parts, all);
    const std::vector<AxisRange> axes = in_order(left, set, d.axes.size());
    const Id body = a_.reduce(Op::sum, summed_over(has & ~left), a_.boolean(true), terms);
    TensorId made = same_as(axes, body);
    if (made == kNoTensor) {
      all->push_back(fusion::defined_over(p_, d, p_.tensor(d.target()).name + "_part", axes, body));
      made = all->back().target();
      parts_.push_back(all->back());
    }
    return a_.read(made, type_, fusion::indices_of(axes));
  }

  // A partial sum that has been made already, maybe with other names of its axes.
  TensorId same_as(const std::vector<AxisRange>& axes, Id body) {
    for (const Definition& other : parts_) {
      const std::vector<AxisRange> mine = reduce_axes(a_[body]), theirs = reduce_axes(a_[other.body]);
      if (other.axes.size() != axes.size() || mine.size() != theirs.size()) continue;
      Replacements names;
      bool same = true;
      auto match = [&](const AxisRange& x, const AxisRange& y) {
        names[x.axis] = y.axis;
        same = same && x.begin == y.begin && x.end == y.end;
      };
      for (size_t i = 0; i < axes.size(); ++i) match(axes[i], other.axes[i]);
      for (size_t i = 0; i < mine.size(); ++i) match(mine[i], theirs[i]);
      if (same && substitute(a_, reduce_body(a_[body]), names) == reduce_body(a_[other.body])) return other.target();
    }
    return kNoTensor;
  }

  bool rewritten(const Definition& d, std::vector<Definition>* all) {
    if (d.is_call()) return false;
    const Node root = a_[d.body];
    if (root.op != Op::sum || (root.type != DType::f32 && root.type != DType::f64)) return false;
    type_ = root.type;
    condition_ = reduce_condition(root);
    const Node& body = a_[reduce_body(root)];
    if (body.op != Op::mul && body.op != Op::neg && body.op != Op::div) return false;
    if (!collect_axes(d) || !collect_factors(reduce_body(root)) || as_scatter(a_, d) || of_segments(d)) return false;
    const auto found = cheapest();
    if (!found) return false;
    Axes has = 0;
    for (const Part& part : found->parts) has |= axes_of(part);
    Id value = product_of(d, found->parts, all);
    for (Id x : outer_) value = a_.mul(x, value);
    if (negative_) value = a_.unary(Op::neg, value);
    const std::vector<AxisRange> axes = summed_over(has);
    Definition rest = d;
    if (!axes.empty())
      rest.body = a_.reduce(Op::sum, axes, condition_, value);
    else
      rest.body = is_true(a_, condition_) ? value : a_.select(condition_, value, a_.constant(type_, 0));
    all->push_back(rest);
    return true;
  }

  Program p_;
  Arena& a_;
  const DimValues& sizes_;
  const MachineModel& machine_;
  // Of the definition at hand
  DType type_ = DType::f32;
  Id condition_ = kNone;
  std::vector<Axis> axes_;                // the result's, then those of the sum
  std::unordered_map<Id, size_t> where_;  // by axis
  std::vector<Factor> factors_;
  std::vector<Id> outer_;  // numbers, which the root multiplies by
  bool negative_ = false;
  std::map<Factors, Ways> ways_;
  std::map<Factors, Choice> sums_;
  std::vector<Definition> parts_;  // partial sums of all definitions so far
};

}  // namespace

Program products_in_order(const Program& p, const DimValues& sizes, const PlanRequest& request) {
  return request.options.policy == FusePolicy::full ? ContractionOrder(p, sizes, request.machine).run() : p;
}

}  // namespace xhat

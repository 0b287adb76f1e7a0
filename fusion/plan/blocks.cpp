#include "fusion/plan/blocks.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "expr/core/conditions.h"
#include "expr/index/linear.h"
#include "expr/index/loop_bounds.h"

namespace xhat {
namespace {

constexpr int64_t kLongSum = 4;        // terms, beside which a result's copy is little
constexpr int64_t kWindow = 32;        // terms of one, at most
constexpr size_t kVector = 32;         // bytes
constexpr int64_t kLargerProduct = 4;  // times as many rows and columns, for the copy to be worth it

class Blocks {
 public:
  Blocks(const Program& p, const DimValues& sizes) : p_(p), a_(*p.arena), sizes_(sizes) {}

  Program run() {
    std::vector<Definition> all;
    for (const Definition& d : std::vector<Definition>(p_.forward.definitions))
      if (d.is_call() || !in_blocks(d, &all)) all.push_back(d);
    p_.forward.definitions = std::move(all);
    return std::move(p_);
  }

 private:
  // How a body uses an axis: by its quotient and remainder by this number, and in reads also as it is.
  struct Use {
    int64_t by = 0;  // 0: in other ways
    bool bare = false;
  };

  Use use(Id body, Id axis, int64_t extent) const {
    Use u;
    for (Id id : reachable(a_, body)) {
      const Node& n = a_[id];
      const auto args = n.args();
      if (std::ranges::find(args, axis) == args.end()) continue;
      if (is_read(n.op) || n.op == Op::add || n.op == Op::sub) {  // x[e], x[e + 4*E]
        u.bare = true;
        continue;
      }
      const bool divided = (n.op == Op::div || n.op == Op::mod) && n.arg(0) == axis && a_[n.arg(1)].op == Op::constant;
      if (!divided || (u.by != 0 && a_[n.arg(1)].integer != u.by)) return {};
      u.by = a_[n.arg(1)].integer;
    }
    return u.by > 1 && extent % u.by == 0 && u.by < extent && (read_apart(body, axis, u.by) || leaps(body, axis)) ? u : Use{};
  }

  // Do quotient and remainder stand in different reads? In one they are a walk along it, as of the rows of an image. The axis itself is both.
  bool read_apart(Id body, Id axis, int64_t by) const {
    const Id quotient = a_.div(axis, a_.integer(by)), remainder = a_.binary(Op::mod, axis, a_.integer(by));
    auto readers = [&](Id part) {
      std::set<Id> found;
      for (Id id : reachable(a_, body)) {
        if (!is_read(a_[id].op)) continue;
        const auto indices = read_indices(a_[id]);
        const bool bare = std::ranges::any_of(indices, [&](Id index) {
          const Id zero = a_.integer(0), rest = substitute(a_, index, {{quotient, zero}, {remainder, zero}});
          return a_[rest].depends_on(axis);
        });
        if (bare || std::ranges::binary_search(reachable(a_, id), part)) found.insert(id);
      }
      return found;
    };
    return readers(quotient) != readers(remainder);
  }

  // Does a read leap from block to block, as heads that are the columns of a result do in o[j/32,t,j%32]? Vectors along j would gather.
  bool leaps(Id body, Id axis) const {
    const auto part_of = [&](Id index, Op op) { return a_[index].op == op && a_[index].arg(0) == axis && a_[a_[index].arg(1)].op == Op::constant; };
    return std::ranges::any_of(reachable(a_, body), [&](Id id) {
      if (!is_read(a_[id].op)) return false;
      const auto indices = read_indices(a_[id]);
      const auto block = std::ranges::find_if(indices, [&](Id x) { return part_of(x, Op::div); });
      if (block == indices.end() || indices.end() - block <= 2 || !part_of(indices.back(), Op::mod)) return false;
      return static_cast<size_t>(a_[a_[*block].arg(1)].integer) * byte_size(a_[id].type) >= kVector;
    });
  }

  // The axes that each read depends on, places in a window that moves counted from its beginning: of dy[i]*w[h+1-i], i in max(0,h-1)..h+2, dy
  // depends on h and w does not.
  std::vector<std::set<Id>> axes_of_reads(Id body, const std::vector<AxisRange>& around) const {
    Replacements windows;
    AxisValues middle;
    for (const AxisRange& r : around) middle[r.axis] = evaluate_extent(a_, r.end, sizes_) / 2;
    for (const AxisRange& r : reduce_axes(a_[body])) {
      const int64_t begin = evaluate_extent(a_, r.begin, sizes_, middle);
      const Id moves = moving_begin(a_, r, [&](Id bound) { return evaluate_extent(a_, bound, sizes_, middle); });
      if (moves != kNone) windows[r.axis] = a_.add(moves, r.axis);
      middle[r.axis] = begin + (evaluate_extent(a_, r.end, sizes_, middle) - begin) / 2;
    }
    std::vector<std::set<Id>> found;
    for (Id id : reachable(a_, body)) {
      if (!is_read(a_[id].op)) continue;
      std::set<Id>& axes = found.emplace_back();
      for (Id index : read_indices(a_[id]))
        for (const auto& [node, times] : linear(a_, substitute(a_, index, windows)).terms)
          axes.insert(a_[node].free_axes().begin(), a_[node].free_axes().end());
    }
    return found;
  }

  // Rows times columns of the largest product of matrices that it is: of axes that no read depends on both of. At least 1.
  int64_t product_size(Id body, const std::vector<AxisRange>& axes) const {
    const std::vector<std::set<Id>> reads = axes_of_reads(body, axes);
    int64_t largest = 1;
    for (size_t i = 0; i < axes.size(); ++i)
      for (size_t j = 0; j < i; ++j) {
        const bool apart =
            std::ranges::none_of(reads, [&](const auto& read) { return read.contains(axes[i].axis) && read.contains(axes[j].axis); });
        if (apart) largest = std::max(largest, evaluate_extent(a_, axes[i].end, sizes_) * evaluate_extent(a_, axes[j].end, sizes_));
      }
    return largest;
  }

  // Of y[n,o] = sum(c: w[c,o]*x[n,o/3,c]) vectors run along o, as w lies: blocks of three would leave most of their lanes idle.
  bool splits_vectors(const Definition& d, const AxisRange& last, const Replacements& wholes) const {
    const Id axis = d.axes.back().axis;
    const bool short_blocks = evaluate_extent(a_, last.end, sizes_) * byte_size(p_.tensor(d.target()).type) < kVector;
    return wholes.contains(axis) && short_blocks && std::ranges::any_of(reachable(a_, d.body), [&](Id id) {
             return is_read(a_[id].op) && !read_indices(a_[id]).empty() && read_indices(a_[id]).back() == axis;
           });
  }

  // (e - 4*E)/E as e/E - 4, and its remainder as that of e: parts of a row that lie side by side, queries, keys and values.
  Id counted_from_the_start(const Definition& d) {
    return rewrite(a_, d.body, [&](Id id) {
      const Node n = a_[id];
      if ((n.op != Op::div && n.op != Op::mod) || n.type != DType::i64 || a_[n.arg(1)].op != Op::constant) return id;
      const Linear from = linear(a_, n.arg(0));
      const int64_t by = a_[n.arg(1)].integer;
      int64_t number = from.constant;
      Id axis = kNone;
      for (auto [node, k] : from.terms) {
        if (a_[node].op == Op::dim)
          number += k * evaluate_extent(a_, node, sizes_);
        else if (k == 1 && axis == kNone && std::ranges::find(d.axes, node, &AxisRange::axis) != d.axes.end())
          axis = node;
        else
          return id;
      }
      if (axis == kNone || number == 0 || by < 1 || number % by != 0) return id;
      const Id part = a_.binary(n.op, axis, n.arg(1));
      return n.op == Op::mod ? part : a_.add(part, a_.integer(number / by));
    });
  }

  // Of the sum at the middle of all axes: a range may depend on others. What moves as a window does not count: beside those a copy is much.
  int64_t terms_in_the_middle(const Definition& d) const {
    AxisValues middle;
    int64_t terms = 1;
    const std::vector<AxisRange> bound = reduce_axes(a_[d.body]);
    for (const auto* list : {&d.axes, &bound})
      for (const AxisRange& r : *list) {
        const int64_t begin = evaluate_extent(a_, r.begin, sizes_, middle), extent = evaluate_extent(a_, r.end, sizes_, middle) - begin;
        middle[r.axis] = begin + extent / 2;
        if (list == &bound && (range_is_plain(a_, r) || extent > kWindow)) terms *= std::max<int64_t>(0, extent);
      }
    return terms;
  }

  // The steps [begin, end) of an axis at which an inequality holds that is about nothing else; none if it is about more.
  std::optional<std::pair<int64_t, int64_t>> steps_with(Id condition, const AxisRange& r) const {
    LoopBounds bounds;
    if (a_[condition].op == Op::eq || !bound_by(a_, condition, r.axis, &bounds)) return std::nullopt;
    std::pair steps(int64_t{0}, evaluate_extent(a_, r.end, sizes_));
    for (const auto* side : {&bounds.begins, &bounds.ends})
      for (Id bound : *side) {
        if (!a_[bound].free_axes().empty() || !tensors_read(a_, bound).empty()) return std::nullopt;
        const int64_t at = evaluate_extent(a_, bound, sizes_);
        side == &bounds.begins ? steps.first = std::max(steps.first, at) : steps.second = std::min(steps.second, at);
      }
    return steps;
  }

  // Blocks without terms, of parts of a row that lie side by side, are no results: sum(t if 4 <= e: s[e-4,t]*z[t,b]) for e of 4..8 alone. Makes
  // the new axes, which are none of the result's own, shorter, and says where results have terms; kNone: everywhere.
  Id only_with_terms(Definition& made, std::vector<AxisRange>& axes, std::vector<Id>& places, const std::vector<AxisRange>& own) {
    const Node root = a_[made.body];
    if (root.op != Op::sum) return kNone;
    Id left = kNone, computed = kNone;
    Replacements moved;
    std::vector<std::pair<int64_t, int64_t>> steps;
    std::vector<int64_t> extents;
    for (const AxisRange& r : axes) steps.emplace_back(0, extents.emplace_back(evaluate_extent(a_, r.end, sizes_)));
    for (Id c : conjuncts(a_, reduce_condition(root))) {
      bool solved = false;
      for (size_t i = 0; i < axes.size() && !solved; ++i) {
        if (std::ranges::find(own, axes[i].axis, &AxisRange::axis) != own.end()) continue;
        const auto found = steps_with(c, axes[i]);
        if (!found) continue;
        const std::pair both(std::max(steps[i].first, found->first), std::min(steps[i].second, found->second));
        if (both.first >= both.second) continue;
        steps[i] = both;
        solved = true;
      }
      if (!solved) left = left == kNone ? c : a_.land(left, c);
    }
    for (size_t i = 0; i < axes.size(); ++i) {
      const auto [begin, end] = steps[i];
      if (begin == 0 && end == extents[i]) continue;
      axes[i].end = a_.integer(end - begin);
      auto also = [&](Id condition) { computed = computed == kNone ? condition : a_.land(computed, condition); };
      if (begin > 0) also(a_.binary(Op::le, a_.integer(begin), places[i]));
      if (end < extents[i]) also(a_.binary(Op::lt, places[i], a_.integer(end)));
      if (begin > 0) moved[axes[i].axis] = a_.add(axes[i].axis, a_.integer(begin));
      if (begin > 0) places[i] = a_.sub(places[i], a_.integer(begin));
    }
    if (computed == kNone) return kNone;
    made.body = a_.reduce(root.op, reduce_axes(root), left == kNone ? a_.boolean(true) : left, reduce_body(root));
    made.body = rewrite(a_, substitute(a_, made.body, moved), [&](Id id) { return tidy_index(a_, id); });
    return computed;
  }

  bool in_blocks(const Definition& as_it_is, std::vector<Definition>* all) {
    Definition d = as_it_is;
    d.body = counted_from_the_start(d);
    const Node root = a_[d.body];
    if (root.op != Op::sum && root.op != Op::max && root.op != Op::min) return false;
    if (terms_in_the_middle(d) < kLongSum) return false;
    std::vector<Id> taken = all_axes(a_, std::span<const Id>(&d.body, 1));
    for (const AxisRange& r : d.axes) taken.push_back(r.axis);
    std::vector<AxisRange> axes;
    std::vector<Id> places;  // of the axes, in terms of the result's
    Replacements parts, wholes;
    for (const AxisRange& r : d.axes) {
      const int64_t extent = range_is_plain(a_, r) ? evaluate_extent(a_, r.end, sizes_) : 0;
      const auto [by, bare] = extent > 0 ? use(d.body, r.axis, extent) : Use{};
      if (by == 0) {
        if (!range_is_plain(a_, r)) return false;
        axes.push_back(r);
        places.push_back(r.axis);
        continue;
      }
      for (Op op : {Op::div, Op::mod}) {
        const Id part = a_.binary(op, r.axis, a_.integer(by)), axis = a_.fresh_axis(r.axis, taken);
        taken.push_back(axis);
        parts[part] = axis;
        axes.push_back({axis, a_.integer(0), a_.integer(op == Op::div ? extent / by : by)});
        places.push_back(part);
      }
      if (bare) wholes[r.axis] = a_.add(a_.mul(axes[axes.size() - 2].axis, a_.integer(by)), axes.back().axis);
    }
    if (parts.empty()) return false;
    Definition made = d;
    made.body = substitute(a_, substitute(a_, d.body, parts), wholes);
    const Id computed = only_with_terms(made, axes, places, d.axes);  // where it is
    // What reads each axis.
    std::vector<std::set<Id>> readers(axes.size());
    std::vector<Id> reads;
    for (Id id : reachable(a_, made.body))
      if (is_read(a_[id].op)) reads.push_back(id);
    std::vector<size_t> order;
    for (size_t i = 0; i < axes.size(); ++i) {
      for (Id id : reads)
        if (a_[id].depends_on(axes[i].axis)) readers[i].insert(id);
      const bool used = a_[made.body].depends_on(axes[i].axis);
      if (used || std::ranges::find(d.axes, axes[i].axis, &AxisRange::axis) != d.axes.end()) order.push_back(i);
    }
    if (splits_vectors(d, axes.back(), wholes)) return false;
    if (order.size() == axes.size() && product_size(made.body, axes) < kLargerProduct * product_size(d.body, d.axes) && !leaps(d.body, d.axes.back().axis))
      return false;
    // Where the axis itself is read, the order of memory is kept.
    std::vector<size_t> sorted = wholes.empty() ? std::vector<size_t>{} : order;
    for (size_t i : order)
      for (size_t j : order)
        if (readers[i] == readers[j] && std::ranges::find(sorted, j) == sorted.end()) sorted.push_back(j);
    std::vector<Id> shape, at;
    made.axes.clear();
    for (size_t i : sorted) {
      made.axes.push_back(axes[i]);
      shape.push_back(axes[i].end);
      at.push_back(places[i]);
    }
    const Tensor result = p_.tensor(d.target());
    made.targets = {p_.add_tensor(result.name + "_blocks", result.type, shape)};
    Definition copy = d;
    copy.body = a_.read(made.target(), result.type, at);
    if (computed != kNone) copy.body = a_.select(computed, copy.body, a_.constant(result.type, 0));
    all->push_back(made);
    all->push_back(copy);
    return true;
  }

  Program p_;
  Arena& a_;
  const DimValues& sizes_;
};

}  // namespace

Program blocks_as_axes(const Program& p, const DimValues& sizes, const PlanRequest& request) {
  return request.options.policy == FusePolicy::full ? Blocks(p, sizes).run() : p;
}

}  // namespace xhat

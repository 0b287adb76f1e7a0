#include "fusion/plan/triangles.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "cse/normalize/path_conditions.h"
#include "expr/core/conditions.h"
#include "expr/index/linear.h"
#include "expr/rules/simplify.h"

namespace xhat {
namespace {

constexpr int64_t kRows = 4, kColumns = 8;  // of a product's block, at least
constexpr int64_t kFewTerms = 32;           // of a window whose terms are written out
constexpr int64_t kWorthCopying = 128;      // terms: half of them are saved, for a copy of each result to its mirrored place
constexpr double kWorthLeavingOut = 0.9;    // of the results; if more are needed, all are computed

// Forms of positions that are not negative where something is known.
using Known = std::vector<Linear>;

class Triangles {
 public:
  Triangles(const Program& p, const DimValues& sizes) : p_(p), a_(*p.arena), sizes_(sizes) {}

  Program run() {
    for (Definition& d : p_.forward.definitions)
      if (is_product(d)) windows_as_conditions(d);
    read_what_is_mirrored();
    leave_out_unread();
    mirror();
    return std::move(p_);
  }

 private:
  int64_t number(Id extent) const { return evaluate_extent(a_, extent, sizes_); }

  // A sum, or an extreme, of what is read along the rows or along the columns of its result, not along both.
  bool is_product(const Definition& d) const {
    if (d.is_call()) return false;
    const Node& root = a_[d.body];
    if (!is_reduction(root.op) || root.op == Op::argmax || root.op == Op::argmin || (root.type != DType::f32 && root.type != DType::f64))
      return false;
    std::vector<Id> reads;
    for (Id id : reachable(a_, reduce_body(root)))
      if (is_read(a_[id].op)) reads.push_back(id);
    auto read = [&](Id x) { return std::ranges::any_of(reads, [&](Id r) { return a_[r].depends_on(x); }); };
    auto along = [&](const AxisRange& r, int64_t least) { return range_is_plain(a_, r) && number(r.end) >= least && read(r.axis); };
    for (const AxisRange& v : d.axes)
      for (const AxisRange& y : d.axes) {
        if (v.axis == y.axis || !along(v, kColumns) || !along(y, kRows)) continue;
        if (std::ranges::none_of(reads, [&](Id r) { return a_[r].depends_on(v.axis) && a_[r].depends_on(y.axis); })) return true;
      }
    return false;
  }

  double terms(const Definition& d) const {
    double n = 1;
    for (const AxisRange& r : reduce_axes(a_[d.body]))
      n *= range_is_plain(a_, r) ? static_cast<double>(number(r.end)) : static_cast<double>(kFewTerms);
    return n;
  }

  // One end of a range that moves with both ends becomes a condition, where the other bound of that end does not move.
  void windows_as_conditions(Definition& d) {
    const Node root = a_[d.body];
    std::vector<AxisRange> axes = reduce_axes(root);
    Id condition = reduce_condition(root);
    auto moves = [&](Id bound) { return !a_[bound].free_axes().empty(); };
    auto also = [&](Id c) { condition = is_true(a_, condition) ? c : a_.land(condition, c); };
    bool changed = false;
    for (AxisRange& r : axes) {
      const auto begins = operands_of(a_, r.begin, Op::maximum), ends = operands_of(a_, r.end, Op::minimum);
      if (std::ranges::none_of(begins, moves) || std::ranges::none_of(ends, moves) || width(r, d, axes) <= kFewTerms) continue;
      const auto first = std::ranges::find_if_not(begins, moves), last = std::ranges::find_if_not(ends, moves);
      if (first != begins.end()) {
        for (Id b : begins)
          if (moves(b)) also(a_.binary(Op::le, b, r.axis));
        r.begin = *first;
      } else if (last != ends.end()) {
        for (Id e : ends)
          if (moves(e)) also(a_.binary(Op::lt, r.axis, e));
        r.end = *last;
      } else {
        continue;
      }
      changed = true;
    }
    if (changed) d.body = a_.reduce(root.op, axes, condition, reduce_body(root));
  }

  // In the middle of the other axes.
  int64_t width(const AxisRange& r, const Definition& d, const std::vector<AxisRange>& axes) const {
    AxisValues middle;
    for (const auto* list : {&d.axes, &axes})
      for (const AxisRange& x : *list) {
        if (x.axis == r.axis) return evaluate_extent(a_, r.end, sizes_, middle) - evaluate_extent(a_, r.begin, sizes_, middle);
        const int64_t begin = evaluate_extent(a_, x.begin, sizes_, middle);
        middle[x.axis] = begin + (evaluate_extent(a_, x.end, sizes_, middle) - begin) / 2;
      }
    return 0;
  }

  // The same for all that differ only in the order of operands: (y-x)^2 is (x-y)^2, to the bit.
  Id unordered(Id root) {
    std::map<Id, Id> done;
    for (Id id : reachable(a_, root)) {
      const Node n = a_[id];
      std::vector<Id> args;
      for (Id x : n.args()) args.push_back(done.at(x));
      const bool square = n.op == Op::pow && a_[n.arg(1)].op == Op::constant && whole_power(a_, n).value_or(1) % 2 == 0;
      if (n.op == Op::add || n.op == Op::mul) {
        std::ranges::sort(args);
        if (n.op == Op::mul && args[0] == args[1]) args = {difference_in_order(a_, args[0]), difference_in_order(a_, args[1])};
      } else if (square || (n.op == Op::abs && is_float(n.type))) {
        args[0] = difference_in_order(a_, args[0]);
      }
      done[id] = n.arg_count == 0 ? id : a_.with_args(id, args);
    }
    return done.at(root);
  }

  // The definition's reduction with one axis of its result for another, two at a time.
  Id exchanged(const Definition& d, size_t i, size_t j) {
    return unordered(substitute(a_, d.body, {{d.axes[i].axis, d.axes[j].axis}, {d.axes[j].axis, d.axes[i].axis}}));
  }

  bool alike(const Definition& d, size_t i, size_t j) const { return d.axes[i].begin == d.axes[j].begin && d.axes[i].end == d.axes[j].end; }

  // Sums that are others with two axes exchanged, as both halves of a covariance are: they read the same tensors.
  void read_what_is_mirrored() {
    std::map<std::vector<TensorId>, std::vector<Definition>> kept;
    std::set<TensorId> gone;
    for (const Definition& later : std::vector<Definition>(p_.forward.definitions)) {
      if (!is_product(later)) continue;
      std::vector<Definition>& firsts = kept[tensors_read(a_, later.body)];
      const bool may = !has_tensor(p_.outputs, later.target()) && terms(later) >= kFewTerms;
      if (may && std::ranges::any_of(firsts, [&](const Definition& first) { return replaced(first, later); }))
        gone.insert(later.target());
      else
        firsts.push_back(later);
    }
    std::erase_if(p_.forward.definitions, [&](const Definition& d) { return !d.is_call() && gone.contains(d.target()); });
  }

  bool replaced(const Definition& first, const Definition& later) {
    if (first.axes.size() != later.axes.size() || a_[first.body].op != a_[later.body].op) return false;
    const std::vector<AxisRange> bound = reduce_axes(a_[first.body]), others = reduce_axes(a_[later.body]);
    if (bound.size() != others.size()) return false;
    Definition renamed = first;
    Replacements to;
    for (size_t i = 0; i < first.axes.size(); ++i) to[later.axes[i].axis] = first.axes[i].axis;
    for (size_t i = 0; i < bound.size(); ++i)
      if (bound[i].axis != others[i].axis) to[others[i].axis] = bound[i].axis;
    auto now = [&](Id x) { return substitute(a_, x, to); };
    std::vector<AxisRange> ranges = others;
    for (size_t i = 0; i < bound.size(); ++i) ranges[i] = {bound[i].axis, now(others[i].begin), now(others[i].end)};
    const Node root = a_[later.body];
    renamed.body = a_.reduce(root.op, ranges, now(reduce_condition(root)), now(reduce_body(root)));
    const Id mine = unordered(first.body);
    for (size_t i = 0; i < first.axes.size(); ++i)
      for (size_t j = 0; j < i; ++j) {
        if (!alike(first, i, j) || exchanged(renamed, i, j) != mine) continue;
        const TensorId old = later.target(), tensor = first.target();
        for (Definition& d : p_.forward.definitions)
          if (!d.is_call())
            d.body = rewrite(a_, d.body, [&](Id id) {
              const Node n = a_[id];
              if (n.op != Op::read || n.symbol != old) return id;
              std::vector<Id> at(n.args().begin(), n.args().end());
              std::swap(at[i], at[j]);
              return a_.read(tensor, n.type, at);
            });
        return true;
      }
    return false;
  }

  Known of(Id condition) {
    Known known;
    for (Id c : conjuncts(a_, condition)) {
      const Node n = a_[c];
      if ((n.op != Op::lt && n.op != Op::le) || a_[n.arg(0)].type != DType::i64) continue;
      for (Id high : operands_of(a_, n.arg(1), Op::minimum))
        for (Id low : operands_of(a_, n.arg(0), Op::maximum)) known.push_back(not_negative(low, high, n.op == Op::lt));
    }
    return known;
  }

  Linear not_negative(Id low, Id high, bool less) const {
    Linear form = linear(a_, high);
    add_scaled(form, linear(a_, low), -1);
    if (less) --form.constant;
    return form;
  }

  // Of products that are read at axes alone: what is known at all of these places, in terms of the product's axes.
  void leave_out_unread() {
    std::map<TensorId, Definition*> products;
    for (Definition& d : p_.forward.definitions)
      if (is_product(d) && !has_tensor(p_.outputs, d.target())) products[d.target()] = &d;
    std::map<TensorId, std::optional<Known>> at_reads;
    std::set<TensorId> anywhere;
    for (const Definition& d : p_.forward.definitions) {
      if (d.is_call()) {
        for (TensorId t : tensors_read(a_, d)) anywhere.insert(t);
        continue;
      }
      const std::vector<Id> ids = reachable(a_, d.body);
      if (std::ranges::none_of(ids, [&](Id id) { return is_read(a_[id].op) && products.contains(a_[id].symbol); })) continue;
      Known whole;
      if (is_reduction(a_[d.body].op))
        for (const AxisRange& r : reduce_axes(a_[d.body])) {
          for (Id low : operands_of(a_, r.begin, Op::maximum)) whole.push_back(not_negative(low, r.axis, false));
          for (Id high : operands_of(a_, r.end, Op::minimum)) whole.push_back(not_negative(r.axis, high, true));
        }
      auto narrow = [&](Known known, Id condition) {
        for (const Linear& l : of(condition)) known.push_back(l);
        return known;
      };
      auto join = [](Known& into, const Known& other) {
        std::erase_if(into, [&](const Linear& l) { return std::ranges::find(other, l) == other.end(); });
      };
      for (const auto& [id, known] : known_on_paths(a_, d.body, whole, narrow, join)) {
        if (!is_read(a_[id].op) || !products.contains(a_[id].symbol)) continue;
        const auto here = as_seen_by(*products.at(a_[id].symbol), a_[id], known);
        auto& all = at_reads[a_[id].symbol];
        if (!here)
          anywhere.insert(a_[id].symbol);
        else if (!all)
          all = *here;
        else
          join(*all, *here);
      }
    }
    for (const auto& [t, known] : at_reads)
      if (known && !anywhere.contains(t)) restrict(*products.at(t), *known);
  }

  std::optional<Known> as_seen_by(const Definition& d, const Node& read, const Known& known) const {
    std::map<Id, Id> axes;
    for (size_t i = 0; i < d.axes.size(); ++i)
      if (a_[read.arg(i)].op != Op::axis || !axes.emplace(read.arg(i), d.axes[i].axis).second) return {};
    Known seen;
    for (const Linear& l : known) {
      Linear form;
      form.constant = l.constant;
      bool all = true;
      for (const auto& [node, times] : l.terms) {
        const bool size = a_[node].free_axes().empty() &&
                          std::ranges::none_of(reachable(a_, node), [&](Id x) { return is_read(a_[x].op) || is_reduction(a_[x].op); });
        if (auto it = axes.find(node); it != axes.end())
          form.terms[it->second] += times;
        else if (size)
          form.terms[node] += times;
        else
          all = false;
      }
      if (all) seen.push_back(form);
    }
    return seen;
  }

  // How many of the results are needed, by some of them.
  double needed(const Definition& d, const Known& known) const {
    constexpr int kSteps = 24;
    std::vector<Id> axes;
    for (const AxisRange& r : d.axes)
      if (std::ranges::any_of(known, [&](const Linear& l) { return l.terms.contains(r.axis); })) axes.push_back(r.axis);
    if (axes.size() != 2) return axes.empty() ? 1 : 0.5;
    int within = 0;
    auto extent = [&](Id axis) { return number(std::ranges::find(d.axes, axis, &AxisRange::axis)->end); };
    for (int i = 0; i < kSteps; ++i)
      for (int j = 0; j < kSteps; ++j) {
        const std::map<Id, int64_t> at = {{axes[0], extent(axes[0]) * i / kSteps}, {axes[1], extent(axes[1]) * j / kSteps}};
        within += std::ranges::all_of(known, [&](const Linear& l) {
          int64_t value = l.constant;
          for (const auto& [node, times] : l.terms)
            value += times * (at.contains(node) ? at.at(node) : a_[node].free_axes().empty() ? number(node) : 0);
          return value >= 0;
        });
      }
    return static_cast<double>(within) / (kSteps * kSteps);
  }

  void restrict(Definition& d, Known known) {
    // What says something of two positions; the rest holds at all of them, or nearly.
    std::erase_if(known, [&](const Linear& l) {
      return std::ranges::count_if(l.terms, [&](const auto& t) { return a_[t.first].op == Op::axis; }) < 2;
    });
    const Node root = a_[d.body];
    for (const Linear& l : of(reduce_condition(root))) std::erase(known, l);
    if (known.empty() || needed(d, known) > kWorthLeavingOut) return;
    Id condition = reduce_condition(root);
    for (size_t i = 0; i < known.size(); ++i) {
      if (std::ranges::find(known.begin(), known.begin() + static_cast<std::ptrdiff_t>(i), known[i]) !=
          known.begin() + static_cast<std::ptrdiff_t>(i))
        continue;
      const Id c = a_.binary(Op::le, a_.integer(0), to_index(a_, known[i]));
      condition = is_true(a_, condition) ? c : a_.land(condition, c);
    }
    d.body = a_.reduce(root.op, reduce_axes(root), condition, reduce_body(root));
  }

  // Products that are the same with two axes exchanged: half of them, and a copy.
  void mirror() {
    std::vector<Definition> all;
    for (Definition& d : std::vector<Definition>(p_.forward.definitions)) {
      const auto axes = is_product(d) && terms(d) >= kWorthCopying ? symmetric(d) : std::nullopt;
      if (!axes) {
        all.push_back(d);
        continue;
      }
      const auto [i, j] = *axes;
      const Tensor result = p_.tensor(d.target());
      const Node root = a_[d.body];
      Definition half = d, whole = d;
      const Id kept = a_.binary(Op::le, d.axes[j].axis, d.axes[i].axis);
      half.body = a_.reduce(root.op, reduce_axes(root), is_true(a_, reduce_condition(root)) ? kept : a_.land(reduce_condition(root), kept),
                            reduce_body(root));
      half.targets = {p_.add_tensor(result.name + "_half", result.type, result.shape)};
      std::vector<Id> at, mirrored;
      for (const AxisRange& r : d.axes) at.push_back(r.axis);
      mirrored = at;
      std::swap(mirrored[i], mirrored[j]);
      whole.body = a_.select(kept, a_.read(half.target(), result.type, at), a_.read(half.target(), result.type, mirrored));
      all.push_back(half);
      all.push_back(whole);
    }
    p_.forward.definitions = std::move(all);
  }

  std::optional<std::pair<size_t, size_t>> symmetric(const Definition& d) {
    for (const Linear& l : of(reduce_condition(a_[d.body])))
      if (std::ranges::count_if(l.terms,
                                [&](const auto& t) { return std::ranges::find(d.axes, t.first, &AxisRange::axis) != d.axes.end(); }) > 1)
        return {};  // a part of it already
    const Id mine = unordered(d.body);
    for (size_t j = d.axes.size(); j-- > 0;)
      for (size_t i = 0; i < j; ++i)
        if (alike(d, i, j) && range_is_plain(a_, d.axes[i]) && number(d.axes[i].end) >= 4 * kColumns && exchanged(d, i, j) == mine)
          return std::pair(i, j);
    return {};
  }

  Program p_;
  Arena& a_;
  const DimValues& sizes_;
};

}  // namespace

Program products_in_triangles(const Program& p, const DimValues& sizes, const PlanRequest& request) {
  const bool wanted = request.options.policy == FusePolicy::full && request.machine.tiles_in_order;
  return wanted ? Triangles(p, sizes).run() : p;
}

}  // namespace xhat

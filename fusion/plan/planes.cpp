#include "fusion/plan/planes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>

#include <fmt/format.h>

#include "cse/normalize/auto_inliner.h"
#include "expr/core/conditions.h"
#include "expr/index/linear.h"
#include "fusion/plan/vector_price.h"

namespace xhat {
namespace {

constexpr int64_t kShortRow = 32;  // bytes: half a vector of AVX-512, all of one of AVX2
constexpr int64_t kVectorBytes = 64;
constexpr double kPointsPerElement = 16;  // points of a definition for each element that is copied
constexpr double kManyPoints = 1 << 14;
constexpr double kGain = 0.7;  // of the time: copies and one more sweep cost something

class Planes {
 public:
  Planes(const Program& p, const DimValues& sizes) : p_(p), a_(*p.arena), sizes_(sizes) {}

  Program run() {
    std::vector<Definition> all;
    for (const Definition& d : std::vector<Definition>(p_.forward.definitions)) {
      if (d.is_call() || !in_planes(d, &all)) all.push_back(d);
    }
    all.insert(all.begin(), of_inputs_.begin(), of_inputs_.end());
    p_.forward.definitions = std::move(all);
    return std::move(p_);
  }

 private:
  // How a definition's loops look: the axes that vectors may run along, and what it reads.
  struct Loops {
    std::vector<AxisRange> reduced;
    std::vector<Id> reads;
    std::map<Id, int64_t> extent;  // of each axis, at most
    double points = 1;
    double term = 0;  // additions that one point costs as much as
    std::vector<Id> left;
    bool product = false;  // a sum of products, as matrices are multiplied
  };

  int64_t number(Id extent) const { return evaluate_extent(a_, extent, sizes_); }

  double elements(TensorId t) const {
    double n = 1;
    for (Id extent : p_.tensor(t).shape) n *= static_cast<double>(number(extent));
    return n;
  }

  bool has_short_rows(TensorId t) const {
    const Tensor& x = p_.tensor(t);
    if (x.shape.size() < 2) return false;
    const int64_t row = number(x.shape.back());
    return row > 1 && row * byte_size(x.type) <= kShortRow;
  }

  bool often_for(const Loops& l, TensorId t) const { return has_short_rows(t) && l.points >= kPointsPerElement * elements(t); }

  // Of ranges that depend on other axes: the widest at an end of these.
  int64_t widest(const AxisRange& r, const Loops& l) const {
    int64_t most = 0;
    for (bool last : {false, true}) {
      AxisValues at;
      for (const auto& [axis, extent] : l.extent) at[axis] = last ? extent - 1 : 0;
      most = std::max(most, evaluate_extent(a_, r.end, sizes_, at) - evaluate_extent(a_, r.begin, sizes_, at));
    }
    return most;
  }

  std::optional<Loops> loops(const Definition& d) const {
    Loops l;
    std::vector<AxisRange> all = d.axes;
    const Node root = a_[d.body];
    if (is_reduction(root.op)) l.reduced = reduce_axes(root);
    all.insert(all.end(), l.reduced.begin(), l.reduced.end());
    for (const AxisRange& r : all) {
      for (Id side : {r.begin, r.end})
        if (!tensors_read(a_, side).empty()) return {};
      l.extent[r.axis] = widest(r, l);
      l.points *= static_cast<double>(l.extent[r.axis]);
    }
    for (Id id : reachable(a_, d.body)) {
      if (is_reduction(a_[id].op) && id != d.body) return {};
      if (is_read(a_[id].op) && !read_indices(a_[id]).empty()) l.reads.push_back(id);
    }
    if (is_reduction(root.op) && !tensors_read(a_, reduce_condition(root)).empty()) return {};  // a scatter or a search
    for (const AxisRange& r : d.axes) l.left.push_back(r.axis);
    l.product = root.op == Op::sum && a_[reduce_body(root)].op == Op::mul;
    l.term = static_cast<double>(evaluation_cost_ps(a_, is_reduction(root.op) ? reduce_body(root) : d.body)) /
             static_cast<double>(info(Op::add).cost_ps);
    return l;
  }

  std::vector<Id> indices(Id read, const std::set<TensorId>& turned) const {
    const auto ids = read_indices(a_[read]);
    std::vector<Id> found(ids.begin(), ids.end());
    if (turned.contains(a_[read].symbol)) std::swap(found[found.size() - 1], found[found.size() - 2]);
    return found;
  }

  bool runs_along(const std::vector<Id>& indices, Id v) const {
    for (Id slower : std::span(indices).first(indices.size() - 1))
      if (a_[slower].depends_on(v)) return false;
    const Linear last = linear(a_, indices.back());
    auto at = last.terms.find(v);
    return at != last.terms.end() && at->second == 1;
  }

  // Elements of a row along v. Products take rows of two axes as one where all that goes along either goes along both, one after the other:
  // f[n,i,g]*w[o,i,g], summed over i and g.
  int64_t row(const Loops& l, Id v, const std::set<TensorId>& turned) const {
    const int64_t own = l.extent.at(v);
    Id slower = kNone;
    auto goes_on = [&](const std::vector<Id>& at, Id whole) {
      const size_t n = at.size();
      if (n < 2 || at[n - 1] != v || !l.extent.contains(at[n - 2]) || number(whole) != own) return false;
      if (slower == kNone) slower = at[n - 2];
      return at[n - 2] == slower &&
             std::ranges::none_of(std::span(at).first(n - 2), [&](Id i) { return a_[i].depends_on(v) || a_[i].depends_on(slower); });
    };
    if (!l.product) return own;
    for (Id read : l.reads)
      if (a_[read].depends_on(v) &&
          (turned.contains(a_[read].symbol) || !goes_on(indices(read, {}), p_.tensor(a_[read].symbol).shape.back())))
        return own;
    if (slower == kNone || std::ranges::any_of(l.reads, [&](Id read) { return a_[read].depends_on(slower) && !a_[read].depends_on(v); })) return own;
    auto written = [&](Id axis) { return std::ranges::find(l.left, axis) != l.left.end(); };
    if (written(v) ? l.left.size() < 2 || l.left.back() != v || l.left[l.left.size() - 2] != slower : written(slower)) return own;
    return own * l.extent.at(slower);
  }

  // What a point costs if vectors run along v.
  double price(const Loops& l, Id v, DType type, const std::set<TensorId>& turned) const {
    double strided = 0;
    for (Id read : l.reads)
      if (a_[read].depends_on(v) && !runs_along(indices(read, turned), v)) ++strided;
    return vector_price(l.term, strided, lanes_filled(row(l, v, turned), kVectorBytes / static_cast<int64_t>(byte_size(type))));
  }

  std::pair<double, Id> best(const Loops& l, Id written, DType type, const std::set<TensorId>& turned) const {
    std::pair<double, Id> found{1e300, kNone};
    auto consider = [&](Id v) {
      if (const double p = price(l, v, type, turned); v != kNone && p < found.first) found = {p, v};
    };
    if (written != kNone) consider(written);
    for (const AxisRange& r : l.reduced) consider(r.axis);
    return found;
  }

  bool in_planes(const Definition& d, std::vector<Definition>* all) {
    if (d.axes.empty()) return false;
    const std::optional<Loops> l = loops(d);
    if (!l || l->points < kManyPoints) return false;
    const TensorId target = d.target();
    std::set<TensorId> turned;
    for (Id read : l->reads)
      if (often_for(*l, a_[read].symbol)) turned.insert(a_[read].symbol);
    const bool turns = !l->reduced.empty() && often_for(*l, target);
    const Id written = d.axes.back().axis;
    const DType type = p_.tensor(target).type;
    const auto plain = best(*l, written, type, {});
    auto planes = best(*l, written, type, turned);
    bool turns_result = false;
    if (turns) {
      const auto [price, v] = best(*l, d.axes[d.axes.size() - 2].axis, type, turned);
      turns_result = v == d.axes[d.axes.size() - 2].axis && price < planes.first;
      if (turns_result) planes = {price, v};
    }
    if (planes.first > kGain * plain.first) return false;
    Replacements reads;
    for (Id read : l->reads)
      if (turned.contains(a_[read].symbol) && a_[read].depends_on(planes.second)) {
        Node n = a_[read];
        std::vector<Id> at = indices(read, turned);
        const TensorId t = copied(n.symbol, d, all);
        reads[read] = n.op == Op::read ? a_.read(t, n.type, at) : a_.read_or(t, n.type, at, n.args().back());
      }
    if (reads.empty() && !turns_result) return false;
    Definition made = d;
    const Node root = a_[d.body];
    made.body = is_reduction(root.op) ? a_.reduce(root.op, l->reduced, substitute(a_, reduce_condition(root), reads),
                                                  substitute(a_, reduce_body(root), reads))
                                      : substitute(a_, d.body, reads);
    if (turns_result) {
      const size_t n = d.axes.size();
      Definition back = d;
      std::vector<Id> shape = p_.tensor(target).shape, at;
      std::swap(shape[n - 1], shape[n - 2]);
      std::swap(made.axes[n - 1], made.axes[n - 2]);
      for (const AxisRange& r : made.axes) at.push_back(r.axis);
      made.targets = {p_.add_tensor(p_.tensor(target).name + "_planes", p_.tensor(target).type, shape)};
      back.body = a_.read(made.target(), p_.tensor(target).type, at);
      all->push_back(made);
      all->push_back(back);
    } else {
      all->push_back(made);
    }
    return true;
  }

  TensorId copied(TensorId t, const Definition& d, std::vector<Definition>* all) {
    if (auto it = copies_.find(t); it != copies_.end()) return it->second;
    const Tensor x = p_.tensor(t);
    Definition copy = d;
    copy.axes.clear();
    std::vector<Id> at, shape = x.shape;
    for (Id extent : shape) {
      const Id axis = a_.axis(fmt::format("{}_{}", x.name, at.size()));
      copy.axes.push_back({axis, a_.integer(0), extent});
      at.push_back(axis);
    }
    const size_t n = shape.size();
    std::swap(shape[n - 1], shape[n - 2]);
    std::swap(copy.axes[n - 1], copy.axes[n - 2]);
    copy.targets = {p_.add_tensor(x.name + "_planes", x.type, shape)};
    copy.body = a_.read(t, x.type, at);
    (has_tensor(p_.inputs, t) ? &of_inputs_ : all)->push_back(copy);
    return copies_[t] = copy.target();
  }

  Program p_;
  Arena& a_;
  const DimValues& sizes_;
  std::map<TensorId, TensorId> copies_;
  std::vector<Definition> of_inputs_;  // copies that come first, so that none stands between definitions that one kernel can have
};

}  // namespace

Program short_rows_as_planes(const Program& p, const DimValues& sizes, const PlanRequest& request) {
  return request.options.policy == FusePolicy::full ? Planes(p, sizes).run() : p;
}

}  // namespace xhat

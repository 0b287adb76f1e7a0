// A kernel while the planner builds it: members, classes of axes, and which tensor dimensions they run over.
#pragma once
#include <algorithm>
#include <compare>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>

#include "expr/core/uses.h"
#include "fusion/plan/plan.h"

namespace xhat::fusion {

// A definition taken apart: its local axes (left, then those of a root reduction) and its reads.
struct Shape {
  std::vector<AxisRange> axes;
  std::vector<int64_t> extents;
  size_t left = 0;
  std::vector<Id> reads;  // read nodes, ascending
  // Per read, the axes that it depends on, places in a window that moves with another axis counted from its beginning:
  // w[h+1-i] for i in max(0,h-1)..min(h+2,H) does not depend on h.
  std::vector<std::vector<Id>> read_axes;
  // Of axes with phases: the divisor that all their quotients have, and read_axes if what depends on the remainder by it is
  // not counted: w[h%2] does not depend on h.
  std::vector<int64_t> phases;  // per axis; 1: none
  bool phases_decide = false;   // by a condition or a range, which terms a result has
  std::vector<std::vector<Id>> phase_axes;
  // Per read and dimension, where the index is an axis, its quotient by a number, or its multiple and another axis beside:
  // c, c/8, 8*g+k with k in 0..8.
  struct Form {
    size_t axis = SIZE_MAX;
    int64_t divided = 1, times = 1;
    bool bare() const { return axis != SIZE_MAX && divided == 1 && times == 1; }
  };
  std::vector<std::vector<Form>> forms;
  std::vector<bool> in_runs;  // by read: terms of the sum lie side by side in it
  bool is_reduction = false;
  bool in_parts = false;                // a reduction that tiles may compute in parts
  bool plain_ranges = true;             // every axis runs over [0, its extent), whatever the others are
  std::optional<size_t> in_order;       // the left axis along which it reads its own results
  std::vector<size_t> scatter_targets;  // left axes that data decide; none if it is not a scatter
  // Axes whose places data bound on both sides, o[r] <= t && t < o[r+1], and those that the data differ along.
  struct Segments {
    size_t places;
    std::vector<size_t> by;
  };
  std::vector<Segments> segments;
  // Of a product of matrices in the widest sense, the axes of its result's rows and columns: no read depends on both, some
  // on either.
  struct Product {
    size_t rows, columns;
    bool in_phases;          // only with the axes' phases apart
    size_t beside = 0;       // short axes before the columns that all reads have together with these, and that become one loop with them
    size_t rows_beside = 0;  // axes before the rows that become one loop with them
    bool torn = false;       // by tiles of all columns: they are made as those of other sums
  };
  std::optional<Product> product;
  double work_ps = 0;  // of all its points; of a scatter, of its updates; of segments, of their places and of the segments
};

struct Draft {
  std::vector<KernelAxis> axes;
  std::vector<bool> shared;
  std::vector<Member> members;
  std::map<TensorId, std::vector<int>> dims;  // class of each dimension where it is read or written by a bare axis
  std::map<TensorId, size_t> producer;        // index into members
  // The class whose tiles decide those of c: itself, unless c is tied to another.
  int walked_by(int c) const { return axes[static_cast<size_t>(c)].of >= 0 ? axes[static_cast<size_t>(c)].of : c; }
  bool walked(int c) const { return shared[static_cast<size_t>(walked_by(c))]; }
};

// Do all members reduce this axis?
inline bool reduced_by_all(const Draft& d, int c) {
  return std::ranges::all_of(d.members, [&](const Member& m) { return std::ranges::find(m.reduced, c) != m.reduced.end(); });
}

struct PricedDraft {
  Draft draft;
  int64_t bytes = 0;  // as priced (Kernel::bytes_priced)
};

constexpr double kClearlyCheaper = 0.95;  // of another price: prices are no closer to the clock than that

// What the planner makes small: bytes first, then kernels.
struct PlanCost {
  int64_t bytes = 0;  // as priced
  int64_t kernels = 0;
  auto operator<=>(const PlanCost&) const = default;
};

// Planning 6 definitions exactly takes about a millisecond, 8 ten.
constexpr size_t kExactDefinitions = 6;

class Planner {
 public:
  Planner(const Program& p, const DimValues& sizes, const PlanRequest& request);
  // exact: programs of at most so many definitions are planned exactly (exact_plan.cpp).
  KernelPlan run(size_t exact = kExactDefinitions);
  // These definitions, in order, as one kernel; none if the template does not have it.
  std::optional<PricedDraft> together(const std::vector<size_t>& definitions) const;
  int64_t outside() const;                              // bytes of what comes from outside and what leaves: no kernels move fewer
  std::map<TensorId, Shape::Product> products() const;  // by target

 private:
  std::vector<std::vector<size_t>> cheapest_groups() const;
  std::vector<size_t> chain_by_chain() const;
  class Prices;
  std::vector<std::vector<size_t>> cheapest_runs(const std::vector<size_t>& order, Prices& prices) const;
  int64_t handled(const Draft& draft) const;
  PlanCost cost(const std::vector<Draft>& drafts) const;
  void improve(std::vector<Draft>& drafts, std::vector<std::string>& reasons, size_t exact) const;
  void group(std::vector<Draft>& drafts, std::vector<std::string>& reasons) const;
  int64_t extent(Id e) const {
    auto [known, fresh] = extents_.try_emplace(e, 0);
    if (fresh) known->second = evaluate_extent(*p_.arena, e, sizes_);
    return known->second;
  }
  int64_t bytes(TensorId t) const;
  Shape take_apart(const Definition& d) const;
  std::vector<Id> axes_of(Id read, const Replacements& windows, const Replacements& apart = {}) const;
  bool in_runs(Id read, const Shape& s) const;
  void find_segments(Shape& s, Id condition) const;
  double share_of_pairs(const Shape& s) const;
  void find_phases(const Definition& d, Shape& s, const Replacements& windows) const;
  Draft start(size_t definition) const;
  std::optional<Draft> join(const Draft& draft, size_t definition, std::string* why) const;
  std::vector<int> same_loops(const Draft& into, const Draft& from) const;
  std::optional<Draft> merged(const Draft& into, const Draft& from, std::string* why) const;
  std::optional<size_t> place_of_both(const std::vector<Draft>& drafts, size_t j, size_t k) const;
  std::string misfit(const Draft& joined, int64_t tiles, const std::string& why) const;
  std::string refusal(const Draft& joined, int64_t tiles, const std::function<int64_t()>& apart, const std::string& why) const;
  void unshare_what_must_be_complete(Draft& draft, const Member& member, std::string* why) const;
  Shape::Form form_of(Id index, const Shape& s) const;
  void map_axes(const Draft& draft, const Shape& s, std::vector<int>& local) const;
  void tie_axes(Draft& draft, const Shape& s, std::vector<int>& local) const;
  bool worth(const Draft& draft, const Shape& s) const;
  int64_t value_at(Id e, const std::unordered_map<Id, int64_t>& axes) const;
  int64_t reach(Id index, const std::unordered_map<Id, int64_t>& points) const;
  std::map<TensorId, std::vector<int64_t>> windows(const Draft& draft, bool whole_tile) const;
  int64_t in_tile(const Draft& draft, int c, bool whole_tile) const;
  int64_t footprint(const Draft& draft, bool whole_tile) const;
  bool leaves(const Draft& draft, TensorId t) const;
  bool alone(const Member& m) const;
  Draft as_tiled(const Draft& draft, const Kernel& k) const;
  Kernel finished(const Draft& draft, const KernelChoice& choice = {}) const;
  Kernel tiled_from(const Draft& draft, const KernelChoice& choice, std::optional<int> first) const;
  int64_t shared_tiles(const Draft& draft) const;
  int depth(const Draft& draft) const;
  std::optional<Shape::Product> product_of(const Shape& s) const;
  std::optional<Shape::Product> product_of(const Shape& s, bool in_phases) const;
  const Shape& shape(const Member& m) const { return shapes_[m.definition]; }
  bool may_share_a_sweep() const { return machine_.tiles_in_order && !request_.in_turn; }
  bool reads_from(const Kernel& k, const Kernel& maker) const;
  void find_epilogues(std::vector<Kernel>& kernels) const;
  void find_horizontal_groups(std::vector<Kernel>& kernels) const;
  bool cuts_a_product(const Kernel& k) const;
  std::optional<Kernel> make_products_whole(Draft& d) const;
  bool leaves_threads_idle(const Kernel& k, int64_t tiles) const;
  int64_t packed_in_tile(const Draft& d, const Member& m) const;
  int64_t multiplied_in_vain(const Draft& d, const Member& m, int64_t tiles) const;
  int64_t columns_in_tile(const Draft& d, const std::vector<Member>& members, int columns, int64_t rows) const;
  int64_t asked_in_tile(const Draft& d, const Member& m) const;
  int64_t asked_bytes(const Draft& d) const;
  int64_t looked_at_in_vain(const Draft& d, const Kernel& k, const Member& m, int64_t tiles) const;
  int64_t idle_lanes(const Draft& d, const Member& m, int64_t tiles) const;
  bool may_carry(const Draft& d, const std::vector<Member>& members, const std::vector<int>& order, int c) const;
  void scatter_at_once(const Draft& draft, Kernel& kernel) const;
  void order_and_tile(const Draft& draft, Kernel& k, std::optional<int> first) const;
  int64_t waited_for(const Draft& draft, TensorId t, int64_t moved, const std::vector<int64_t>* window) const;
  void count_bytes(const Draft& draft, Kernel& k) const;
  bool rows_off_lines(const Draft& draft, const Kernel& k) const;
  void count_flops(const Draft& draft, Kernel& k) const;

  const Program& p_;
  const DimValues& sizes_;
  mutable std::unordered_map<Id, int64_t> extents_;  // at these sizes
  const PlanRequest& request_;
  const FusionOptions& options_;
  const Uses uses_{p_};
  const MachineModel& machine_;
  std::vector<Shape> shapes_;
  bool small_ = false;  // all that is read takes no second thread
  bool ties_ = false;   // axes may be tied to others
};

}  // namespace xhat::fusion

#include "cse/stash_planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <fmt/format.h>

#include "cse/auto_inliner.h"
#include "cse/bodies.h"
#include "cse/cse_optimizer.h"
#include "cse/empty_sums.h"
#include "cse/equal_reductions.h"
#include "cse/nominal_sizes.h"
#include "cse/reduction_algebra.h"
#include "cse/stash_budget.h"
#include "cse/stash_masks.h"

namespace xhat {
namespace {

using Policy = StashOptions::Policy;
using Verdict = StashCandidate::Verdict;

double nanoseconds(int64_t ps) {
  return ps == kNever ? std::numeric_limits<double>::infinity() : static_cast<double>(ps) / 1000;
}

class Planner {
 public:
  Planner(const Program& p, const StashOptions& o) : p_(p), a_(*p.arena), o_(o) {}
  StashPlan run();
  std::vector<ParetoPoint> front();

 private:
  void prepare();
  void choose_retained();
  std::set<TensorId> compared(const Program& p);
  void propose_masks();
  void take_masks(const Cut& cut);
  void build_nodes(const std::set<TensorId>& strict);
  bool draws_random_numbers(Id body);
  CutNode price(TensorId t, const Definition* d, bool strict);
  Cut choose();
  std::vector<bool> extremes_of_recomputed();
  void report(const Cut& cut);
  void rebuild(const Cut& cut);
  void redirect_backward(const std::map<TensorId, TensorId>& to);
  TensorId copy_of(TensorId t);
  DType stored_type(TensorId t) const;

  int64_t bytes(TensorId t, DType type) const {
    return static_cast<int64_t>(byte_size(type)) * sizes_.elements(p_.tensors[t].shape);
  }
  bool is_mask(TensorId t) const {
    return std::ranges::any_of(masks_, [&](const Mask& m) { return m.definition.target() == t; });
  }
  bool retained(TensorId t) const { return retained_.contains(t); }
  bool outside(TensorId t) const { return has_tensor(p_.inputs, t) || has_tensor(p_.outputs, t); }

  Program p_;
  Arena& a_;
  const StashOptions& o_;
  RememberBounds remember_{a_};
  const NominalSizes sizes_{p_, o_.nominal, o_.nominal_extent};
  std::set<TensorId> retained_;
  std::vector<TensorId> tensors_;  // parallel to nodes_
  std::vector<CutNode> nodes_;
  std::set<TensorId> strict_;
  std::set<TensorId> exact_;  // comparisons depend on them
  std::vector<Mask> masks_;
  Region unmasked_;  // the program's, without masks
  bool all_shared_ = true;
  StashPlan plan_;
};

void Planner::choose_retained() {
  auto find = [&](const std::string& name) {
    auto t = p_.find(name);
    if (!t || !outside(*t)) {
      std::string known;
      for (TensorId x : p_.inputs) known += (known.empty() ? "" : ", ") + p_.tensors[x].name;
      for (TensorId x : p_.outputs) known += ", " + p_.tensors[x].name;
      throw Error("'" + name + "' is no input or output of " + p_.name +
                  "; these can be kept or dropped: " + known);
    }
    return *t;
  };
  if (o_.kept_by_caller) {
    for (const std::string& name : *o_.kept_by_caller) retained_.insert(find(name));
  } else {
    retained_.insert(p_.inputs.begin(), p_.inputs.end());
    retained_.insert(p_.outputs.begin(), p_.outputs.end());
  }
  for (const std::string& name : o_.dropped) retained_.erase(find(name));
}

// Forward reductions whose values decide something in the backward, also by way of maps.
std::set<TensorId> Planner::compared(const Program& p) {
  std::set<TensorId> found;
  std::set<TensorId> decide = deciding(p, Through::maps);
  for (const Definition& d : p.body.definitions) {
    if (d.direction != Direction::forward || !is_reduction(a_[d.body].op)) continue;
    bool extreme = a_[d.body].op != Op::sum && a_[d.body].op != Op::prod;
    if (extreme || decide.contains(d.target())) found.insert(d.target());
  }
  return found;
}

CutNode Planner::price(TensorId t, const Definition* d, bool strict) {
  const StashPrices& prices = o_.prices;
  const Tensor& tensor = p_.tensors[t];
  const int64_t size = bytes(t, stored_type(t));
  CutNode n;
  n.bytes = retained(t) ? 0 : size;
  n.keep_ps = size * prices.read_ps_per_byte + n.bytes * prices.memory_ps_per_byte;
  // Inputs and outputs that the caller drops are copied; a reduction's or a part's value is written only
  // for this.
  if (!retained(t)) n.keep_ps += size * prices.write_ps_per_byte;
  // The forward computes a mask for this alone.
  if (d && is_mask(t)) n.keep_ps += evaluation_cost_ps(a_, d->body) * sizes_.elements(tensor.shape);
  if (!d || strict) return n;
  if (!retained(t) && draws_random_numbers(d->body)) n.keep_ps = kNever;
  // Each node once per point of its own axes: what is invariant is hoisted.
  std::map<Id, int64_t> sizes;
  for (const AxisRange& r : d->axes) sizes[r.axis] = sizes_.extent(r.end);
  const Node root = a_[d->body];
  if (is_reduction(root.op))
    for (const AxisRange& r : reduce_axes(root)) sizes[r.axis] = sizes_.extent(a_.sub(r.end, r.begin));
  n.recompute_ps = 0;
  std::set<TensorId> read;
  for (Id id : reachable(a_, d->body)) {
    const Node node = a_[id];
    if (is_read(node.op))
      read.insert(node.symbol);
    else if (node.type == DType::boolean || is_float(node.type)) {
      std::vector<Id> axes(node.free_axes().begin(), node.free_axes().end());
      if (is_reduction(node.op))
        for (const AxisRange& r : reduce_axes(node)) axes.push_back(r.axis);
      auto price = [&](Op op) {
        auto priced = prices.op_ps.find(op);
        return priced == prices.op_ps.end() ? int64_t{info(op).cost_ps} : priced->second;
      };
      n.recompute_ps += cost_ps(a_, node, price) * NominalSizes::elements(axes, sizes);
    }
  }
  if (is_reduction(root.op)) {
    // Another pass over its inputs.
    n.recompute_ps += prices.pass_ps;
    for (TensorId u : read) n.recompute_ps += prices.read_ps_per_byte * bytes(u, p_.tensors[u].type);
  }
  return n;
}

// The language promises that they are drawn again, never kept. What is made of them and of data may be.
bool Planner::draws_random_numbers(Id body) {
  bool random = false;
  for (Id id : reachable(a_, body)) {
    random = random || a_[id].op == Op::random;
    if (!is_read(a_[id].op) || !is_float(a_[id].type)) continue;
    const Definition* made = p_.definition_of(a_[id].symbol);
    if (!made || !draws_random_numbers(made->body)) return false;
    random = true;
  }
  return random;
}

// A comparison instead of what it compares, where the latter does not stay with the caller and is larger.
void Planner::propose_masks() {
  auto worth = [&](const std::vector<Id>& shape, const std::vector<TensorId>& reads) {
    int64_t instead = 0;
    for (TensorId t : reads)
      if (!retained(t)) instead += bytes(t, p_.tensors[t].type);
    return sizes_.elements(shape) < instead;
  };
  masks_ = find_masks(p_, worth);
  unmasked_ = p_.body;
  p_ = with_masks(p_, masks_);
}

// Where a mask is not kept, the comparison stands as it stood.
void Planner::take_masks(const Cut& cut) {
  if (masks_.empty()) return;
  for (size_t i = 0; i < nodes_.size(); ++i)
    if (cut.choices[i] != Choice::kept)
      std::erase_if(masks_, [&](const Mask& m) { return m.definition.target() == tensors_[i]; });
  p_.body = unmasked_;
  p_ = with_masks(p_, masks_);
}

void Planner::build_nodes(const std::set<TensorId>& strict) {
  std::map<TensorId, size_t> index;
  auto add = [&](TensorId t, const Definition* d) {
    if (index.contains(t)) return;
    index[t] = nodes_.size();
    tensors_.push_back(t);
    nodes_.push_back(price(t, d, strict.contains(t)));
    if (d)
      for (TensorId u : tensors_read(a_, d->body)) nodes_.back().operands.push_back(index.at(u));
  };
  for (TensorId t : p_.inputs) add(t, nullptr);
  for (const Definition& d : p_.body.definitions)
    if (d.direction == Direction::forward) add(d.target(), &d);
  for (const Definition& d : p_.body.definitions)
    if (d.direction == Direction::backward)
      for (TensorId t : tensors_read(a_, d.body))
        if (auto it = index.find(t); it != index.end()) nodes_[it->second].needed = true;
}

// Largest and smallest of what depends on a sum that the backward adds up again, maybe in another order: they are recomputed from
// that sum, though the caller may have them, or none of it would equal them.
std::vector<bool> Planner::extremes_of_recomputed() {
  std::vector<bool> extreme(nodes_.size()), varies(nodes_.size());
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Definition* d = p_.definition_of(tensors_[i]);
    if (!d || nodes_[i].recompute_ps == kNever) continue;
    const Op op = a_[d->body].op;
    varies[i] = std::ranges::any_of(nodes_[i].operands, [&](size_t x) { return varies[x]; });
    extreme[i] = varies[i] && (op == Op::max || op == Op::min);
    varies[i] = extreme[i] || (!retained(tensors_[i]) && (varies[i] || op == Op::sum || op == Op::prod));
  }
  return extreme;
}

Cut Planner::choose() {
  std::vector<bool> keep(nodes_.size());
  switch (o_.policy) {
    case Policy::cost: return cheapest_cut(nodes_);
    case Policy::budget: {
      BudgetCut cut = cheapest_cut_within(nodes_, o_.budget);
      if (cut.cost_ps == kNever)
        throw Error("the stash budget cannot be met: no choice of kept values takes at most " +
                    std::to_string(o_.budget) + " bytes beyond what the caller keeps; the smallest takes " +
                    std::to_string(cut.bytes));
      return cut;
    }
    case Policy::largest:
      for (size_t i = 0; i < nodes_.size(); ++i) keep[i] = nodes_[i].keep_ps != kNever;
      break;
    case Policy::none: {
      const std::vector<bool> again = extremes_of_recomputed();
      for (size_t i = 0; i < nodes_.size(); ++i)
        keep[i] = (retained(tensors_[i]) && !again[i]) || nodes_[i].recompute_ps == kNever;
      break;
    }
  }
  Cut cut = consequences(nodes_, keep);
  cut.lower_bound_ps = cheapest_cut(nodes_).lower_bound_ps;
  return cut;
}

void Planner::report(const Cut& cut) {
  std::map<TensorId, int> backward_uses;
  for (const Definition& b : p_.body.definitions)
    if (b.direction == Direction::backward)
      for (TensorId t : tensors_read(a_, b.body)) ++backward_uses[t];
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (cut.choices[i] == Choice::unneeded) continue;
    const CutNode& n = nodes_[i];
    TensorId t = tensors_[i];
    const Tensor& tensor = p_.tensors[t];
    const Definition* d = p_.definition_of(t);
    StashCandidate c;
    c.tensor = t;
    c.verdict = cut.choices[i] == Choice::recomputed ? Verdict::recomputed
                : retained(t)                        ? Verdict::free
                                                     : Verdict::kept;
    c.name = tensor.name;
    if (d) c.expression = print(p_, d->body);
    c.shape = tensor.shape;
    c.bytes = bytes(t, stored_type(t));
    if (auto it = backward_uses.find(t); it != backward_uses.end()) c.uses = it->second;
    for (size_t j = 0; j < nodes_.size(); ++j)
      if (cut.choices[j] == Choice::recomputed)
        c.uses += std::ranges::find(nodes_[j].operands, i) != nodes_[j].operands.end();
    c.keep_ns = nanoseconds(n.keep_ps);
    c.recompute_ns = nanoseconds(n.recompute_ps);
    auto compare = [](int64_t x, int64_t y) {
      return x < y ? "cheaper than" : x == y ? "as cheap as" : "dearer than";
    };
    if (c.verdict == Verdict::free)
      c.reason = "stays with the caller";
    else if (!d)
      c.reason = "the backward needs this input, and the caller does not keep it";
    else if (c.verdict == Verdict::kept && strict_.contains(t))
      c.reason = "decides a branch: both passes must see the same bits";
    else if (n.keep_ps == kNever)
      c.reason = "random numbers are drawn again from the seed";
    else if (o_.policy == Policy::none)
      c.reason = "policy none keeps nothing";
    else if (o_.policy == Policy::largest)
      c.reason = "policy largest keeps what both passes compute";
    else if (c.verdict == Verdict::kept && n.keep_ps > n.recompute_ps)
      c.reason = "recomputing it alone is cheaper, but not with what it needs";
    else if (c.verdict == Verdict::kept)
      c.reason = std::string("keeping is ") + compare(n.keep_ps, n.recompute_ps) +
                 " recomputing it and what it needs";
    else
      c.reason = std::string("recomputing is ") + compare(n.recompute_ps, n.keep_ps) + " keeping it";
    if (c.verdict == Verdict::kept && stored_type(t) != tensor.type)
      c.reason += fmt::format("; stored as {}", name_of(stored_type(t)));
    plan_.candidates.push_back(std::move(c));
  }
}

void Planner::redirect_backward(const std::map<TensorId, TensorId>& to) {
  for (Definition& d : p_.body.definitions) {
    if (d.direction != Direction::backward) continue;
    d.body = rewrite(a_, d.body, [&](Id id) {
      const Node n = a_[id];
      auto it = is_read(n.op) ? to.find(n.symbol) : to.end();
      if (it == to.end()) return id;
      DType stored = p_.tensors[it->second].type;
      if (n.op == Op::read) return a_.to(n.type, a_.read(it->second, stored, n.args()));
      return a_.to(n.type, a_.read_or(it->second, stored, read_indices(n), a_.to(stored, n.args().back())));
    });
  }
}

DType Planner::stored_type(TensorId t) const {
  DType type = p_.tensors[t].type;
  bool narrow = o_.store_as && is_float(type) && byte_size(*o_.store_as) < byte_size(type);
  return narrow && !retained(t) && !exact_.contains(t) ? *o_.store_as : type;
}

// A forward definition that copies what the caller does not keep, or what is stored narrower than computed.
TensorId Planner::copy_of(TensorId t) {
  Definition d;
  std::vector<Id> indices, avoid;
  for (size_t i = 0; i < p_.tensors[t].shape.size(); ++i) {
    std::string name = "i" + std::to_string(i);
    while (p_.find(name) ||
           std::ranges::any_of(p_.dims, [&](const Dim& x) { return a_.name(x.dim) == name; }))
      name += "_";
    d.axes.push_back({a_.axis(name), a_.integer(0), p_.tensors[t].shape[i]});
    indices.push_back(d.axes.back().axis);
  }
  const DType type = stored_type(t);
  d.body = a_.to(type, read_at(a_, p_, t, indices));
  d.direction = Direction::forward;
  TensorId copy = p_.add_tensor(p_.tensors[t].name + "_kept", type, p_.tensors[t].shape);
  d.targets = {copy};
  p_.body.definitions.push_back(d);
  return copy;
}

// Kept values stay forward definitions; recomputed ones get a backward copy, which disappears into its
// readers if it is a map that is cheap to repeat.
void Planner::rebuild(const Cut& cut) {
  std::map<TensorId, TensorId> to;
  std::vector<TensorId> kept, hidden;
  std::vector<Definition> copies;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    TensorId t = tensors_[i];
    const Definition* d = p_.definition_of(t);
    if (!d && !outside(t)) continue;  // a mask that is not kept
    if (cut.choices[i] != Choice::kept && !(d && retained(t))) hidden.push_back(t);
    if (cut.choices[i] == Choice::recomputed) {
      Definition copy = *d;
      copy.direction = Direction::backward;
      TensorId again = p_.add_tensor(p_.tensors[t].name + "_again", p_.tensors[t].type, p_.tensors[t].shape);
      copy.targets = {again};
      copies.push_back(copy);
      to[t] = again;
    } else if (cut.choices[i] == Choice::kept) {
      TensorId stays = t;
      const bool narrow = stored_type(t) != p_.tensors[t].type;
      if (!retained(t) && (outside(t) || narrow)) stays = to[t] = copy_of(t);
      if (narrow) hidden.push_back(t);
      kept.push_back(stays);
    }
  }
  for (Definition& d : copies) p_.body.definitions.push_back(d);
  redirect_backward(to);
  p_ = ordered(p_);
  p_ = guard_empty_sums(reuse_backward(simplify_reductions(p_, kept, hidden)));
  plan_.program = p_;
}

void Planner::prepare() {
  if (o_.store_as && *o_.store_as != DType::bf16 && *o_.store_as != DType::f16)
    throw Error(fmt::format("kept values can be stored as bf16 or f16, not as {}", name_of(*o_.store_as)));
  choose_retained();
  p_ = simplify_reductions(reuse_equal_reductions(p_));
  strict_ = compared(p_);
  std::vector<TensorId> stored, dropped;
  for (const auto& list : {p_.inputs, p_.outputs})
    for (TensorId t : list)
      if (!retained(t)) dropped.push_back(t);
  bool priced = o_.policy == Policy::cost || o_.policy == Policy::budget;
  for (TensorId t : p_.outputs)
    if (priced || retained(t)) stored.push_back(t);
  if (o_.policy == Policy::none) {
    p_ = reuse_stored(p_, stored, dropped);
  } else {
    Shared shared = share_largest(p_, stored, dropped, o_.policy == Policy::largest);
    p_ = shared.program;
    all_shared_ = shared.all;
    plan_.compared = shared.compared;
  }
  exact_ = deciding(p_);
  if (priced) propose_masks();
  build_nodes(o_.policy == Policy::none ? std::set<TensorId>{} : strict_);
}

StashPlan Planner::run() {
  prepare();
  Cut cut = choose();
  if (cut.cost_ps == kNever)
    throw Bug("stash planner: a value that cannot be recomputed cannot be kept either");
  report(cut);
  take_masks(cut);
  plan_.nominal = sizes_.dims();
  plan_.cost_ns = nanoseconds(cut.cost_ps);
  plan_.lower_bound_ns = nanoseconds(cut.lower_bound_ps);
  plan_.optimal = all_shared_ && cut.cost_ps == cut.lower_bound_ps;
  rebuild(cut);
  for (TensorId t : stashes(plan_.program)) plan_.stash_bytes += bytes(t, p_.tensors[t].type);
  return std::move(plan_);
}

std::vector<ParetoPoint> Planner::front() {
  prepare();
  std::vector<ParetoPoint> points;
  for (const BudgetCut& cut : pareto_cuts(nodes_)) {
    points.push_back({cut.bytes, nanoseconds(cut.cost_ps), nanoseconds(cut.lower_bound_ps), all_shared_ && cut.optimal, {}});
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (cut.choices[i] == Choice::kept && !retained(tensors_[i]))
        points.back().kept.push_back(p_.tensors[tensors_[i]].name);
  }
  return points;
}

}  // namespace

StashPlan plan_stash(const Program& p, const StashOptions& options) { return Planner(p, options).run(); }

std::vector<ParetoPoint> pareto_front(const Program& p, const StashOptions& options) {
  StashOptions priced = options;
  priced.policy = Policy::budget;
  return Planner(p, priced).front();
}

}  // namespace xhat

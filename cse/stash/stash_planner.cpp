#include "cse/stash/stash_planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <fmt/format.h>

#include "cse/algebra/empty_sums.h"
#include "cse/algebra/equal_reductions.h"
#include "cse/algebra/joined_sums.h"
#include "cse/algebra/reduction_algebra.h"
#include "cse/algebra/turned_reads.h"
#include "cse/algebra/whole_differences.h"
#include "cse/match/bodies.h"
#include "cse/normalize/auto_inliner.h"
#include "cse/share/cse_optimizer.h"
#include "cse/stash/nominal_sizes.h"
#include "cse/stash/stash_budget.h"
#include "cse/stash/stash_masks.h"
#include "cse/stash/stash_prepare.h"
#include "cse/stash/stash_reason.h"
#include "expr/core/watch.h"
#include "expr/text/import.h"

namespace xhat {
namespace {

using Policy = StashOptions::Policy;
using Verdict = StashCandidate::Verdict;

double nanoseconds(int64_t ps) {
  return ps == kNever ? std::numeric_limits<double>::infinity() : static_cast<double>(ps) / 1000;
}

constexpr int64_t kMaxBytes = int64_t{1} << 60;  // of a tensor: sums of some are numbers still

// At given sizes.
class Planner {
 public:
  Planner(PreparedStash prepared, const StashOptions& o, const MachineModel& machine, const DimValues& sizes);
  StashChoice choose();
  StashPlan plan(const Cut& cut);
  StashReason why(const Cut& cut, const std::string& name);
  std::vector<ParetoPoint> front();

 private:
  void propose_masks();
  void take_masks(const Cut& cut);
  void build_nodes();
  bool draws_random_numbers(Id body);
  CutNode price(TensorId t, const Definition* d, bool strict);
  std::vector<bool> extremes_of_recomputed();
  std::string key(const Cut& cut) const;
  void report(const Cut& cut);
  std::string reason(const StashCandidate& c, const CutNode& n) const;
  void rebuild(const Cut& cut);
  void redirect_backward(const std::map<TensorId, TensorId>& to);
  TensorId copy_of(TensorId t);
  DType stored_type(TensorId t) const;

  int64_t bytes(const NominalSizes& sizes, TensorId t, DType type) const {
    return saturating_mul(static_cast<int64_t>(byte_size(type)), sizes.elements(p_.tensors[t].shape));
  }
  int64_t bytes(TensorId t, DType type) const { return bytes(sizes_, t, type); }
  bool is_mask(TensorId t) const {
    return std::ranges::any_of(masks_, [&](const Mask& m) { return m.definition.target() == t; });
  }
  bool retained(TensorId t) const { return prepared_.retained.contains(t); }
  bool outside(TensorId t) const { return has_tensor(p_.inputs, t) || has_tensor(p_.outputs, t); }

  const PreparedStash prepared_;
  Program p_;
  Arena& a_;
  const StashOptions& o_;
  const MachineModel& machine_;
  RememberBounds remember_{a_};
  const NominalSizes sizes_;   // that bytes are of
  const NominalSizes priced_;  // that prices are of
  int64_t highest_ps_ = 0;     // of a price
  std::vector<TensorId> tensors_;  // parallel to nodes_
  std::vector<CutNode> nodes_;
  std::vector<Mask> masks_;
  Program unmasked_;  // as before with_masks
  StashPlan plan_;
};

DimValues with(DimValues sizes, const DimValues& others) {
  for (const auto& [name, size] : others) sizes[name] = size;
  return sizes;
}

Planner::Planner(PreparedStash prepared, const StashOptions& o, const MachineModel& machine, const DimValues& sizes)
    : prepared_(std::move(prepared)), p_(prepared_.program), a_(*p_.arena), o_(o), machine_(machine),
      sizes_(p_, with(o.nominal, sizes), o.nominal_extent), priced_(p_, with(sizes, o.nominal), o.nominal_extent) {
  for (TensorId t = 0; t < p_.tensors.size(); ++t)
    if (std::max(bytes(t, p_.tensors[t].type), bytes(priced_, t, p_.tensors[t].type)) > kMaxBytes)
      throw Error(fmt::format("op {}: {} has more than 2^60 bytes{}{}; no stash can be planned for such sizes", p_.name, p_.tensors[t].name,
                              sizes_.dims().empty() ? "" : " with ", dims_text(sizes_.dims())),
                  p_.tensors[t].pos);
  // The flow through the network adds up what enters every node, each of which the prices of all nodes may enter (stash_cut.cpp).
  const auto nodes = static_cast<int64_t>(p_.tensors.size()) + 1;
  highest_ps_ = (int64_t{1} << 60) / (2 * nodes * nodes);
  if (goes_by_prices(o_)) propose_masks();
  build_nodes();
}

// prod(j in k+1..t+1: a[j]), over k and t: as a weight of a sum it is one factor per step of a recurrence, and never there for all pairs of
// places.
bool is_between_places(const Arena& a, const Node& root) {
  if (root.op != Op::prod || reduce_axes(root).size() != 1) return false;
  const AxisRange r = reduce_axes(root)[0];
  return !a[r.begin].free_axes().empty() && !a[r.end].free_axes().empty();
}

CutNode Planner::price(TensorId t, const Definition* d, bool strict) {
  const Tensor& tensor = p_.tensors[t];
  const DType type = stored_type(t);
  const int64_t size = bytes(priced_, t, type);
  CutNode n;
  n.bytes = retained(t) ? 0 : bytes(t, type);
  auto add = [&](int64_t& to, int64_t amount, int64_t price) {
    to = std::min(highest_ps_, saturating_add(to, saturating_mul(amount, price)));
  };
  add(n.keep_ps, size, machine_.read_ps_per_byte);
  if (!retained(t)) add(n.keep_ps, size, machine_.memory_ps_per_byte);
  // Inputs and outputs that the caller drops are copied; a reduction's or a part's value is written only
  // for this.
  if (!retained(t)) add(n.keep_ps, size, machine_.write_ps_per_byte);
  // The forward computes a mask for this alone.
  if (d && is_mask(t)) add(n.keep_ps, priced_.elements(tensor.shape), evaluation_cost_ps(a_, d->body));
  if (!d || strict) return n;
  if (!retained(t) && draws_random_numbers(d->body)) n.keep_ps = kNever;
  // Each node once per point of its own axes: what is invariant is hoisted.
  std::map<Id, int64_t> sizes;
  for (const AxisRange& r : d->axes) sizes[r.axis] = priced_.extent(r.end);
  const Node root = a_[d->body];
  if (is_reduction(root.op))
    for (const AxisRange& r : reduce_axes(root)) sizes[r.axis] = priced_.extent(a_.sub(r.end, r.begin));
  n.recompute_ps = 0;
  if (is_between_places(a_, root)) return n;
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
        auto priced = machine_.op_ps.find(op);
        return priced == machine_.op_ps.end() ? int64_t{info(op).cost_ps} : priced->second;
      };
      add(n.recompute_ps, NominalSizes::elements(axes, sizes), cost_ps(a_, node, price));
    }
  }
  if (is_reduction(root.op)) {
    // Another pass over its inputs.
    add(n.recompute_ps, 1, machine_.pass_ps);
    for (TensorId u : read) add(n.recompute_ps, bytes(priced_, u, p_.tensors[u].type), machine_.read_ps_per_byte);
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
      if (!retained(t)) instead = saturating_add(instead, bytes(priced_, t, p_.tensors[t].type));
    return priced_.elements(shape) < instead;
  };
  masks_ = find_masks(p_, worth);
  unmasked_ = p_;
  p_ = with_masks(p_, masks_);
}

// Where a mask is not kept, the comparison stands as it stood.
void Planner::take_masks(const Cut& cut) {
  if (masks_.empty()) return;
  for (size_t i = 0; i < nodes_.size(); ++i)
    if (cut.choices[i] != Choice::kept)
      std::erase_if(masks_, [&](const Mask& m) { return m.definition.target() == tensors_[i]; });
  p_ = with_masks(unmasked_, masks_);
}

void Planner::build_nodes() {
  std::map<TensorId, size_t> index;
  auto add = [&](TensorId t, const Definition* d) {
    if (index.contains(t)) return;
    index[t] = nodes_.size();
    tensors_.push_back(t);
    nodes_.push_back(price(t, d, prepared_.strict.contains(t)));
    if (d)
      for (TensorId u : tensors_read(a_, d->body)) nodes_.back().operands.push_back(index.at(u));
  };
  for (TensorId t : p_.inputs) add(t, nullptr);
  for (const Definition& d : p_.forward.definitions) add(d.target(), &d);
  for (const Definition& d : p_.backward.definitions)
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

StashChoice Planner::choose() {
  StashChoice made;
  made.sizes = sizes_.dims();
  std::vector<bool> keep(nodes_.size());
  const std::vector<bool> again = o_.policy == Policy::none ? extremes_of_recomputed() : std::vector<bool>(nodes_.size());
  if (o_.policy == Policy::cost) {
    made.cut = cheapest_cut(nodes_);
  } else if (o_.policy == Policy::budget) {
    BudgetCut cut = cheapest_cut_within(nodes_, o_.budget);
    made.over_budget = cut.cost_ps == kNever;
    made.cut = made.over_budget ? cheapest_cut_within(nodes_, cut.bytes) : cut;
  } else {
    for (size_t i = 0; i < nodes_.size(); ++i)
      keep[i] = o_.policy == Policy::largest ? nodes_[i].keep_ps != kNever
                                           : (retained(tensors_[i]) && !again[i]) || nodes_[i].recompute_ps == kNever;
    made.cut = consequences(nodes_, keep);
    made.cut.lower_bound_ps = cheapest_cut(nodes_).lower_bound_ps;
  }
  if (made.cut.cost_ps == kNever) throw Bug("stash planner: a value that cannot be recomputed cannot be kept either");
  made.key = key(made.cut);
  return made;
}

// The masks that were candidates, and what became of every node: all that the program depends on.
std::string Planner::key(const Cut& cut) const {
  std::string text;
  for (const Mask& m : masks_) text += print(p_, m.definition) + "\n";
  for (Choice c : cut.choices) text += c == Choice::unneeded ? '-' : c == Choice::kept ? 'k' : 'r';
  return text;
}

void Planner::report(const Cut& cut) {
  std::map<TensorId, int> backward_uses;
  for (const Definition& b : p_.backward.definitions)
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
    c.reason = reason(c, n);
    plan_.candidates.push_back(std::move(c));
  }
}

std::string Planner::reason(const StashCandidate& c, const CutNode& n) const {
  const bool kept = c.verdict == Verdict::kept;
  auto compare = [](int64_t x, int64_t y) {
    return x < y ? "cheaper than" : x == y ? "as cheap as" : "dearer than";
  };
  auto why = [&]() -> std::string {
    if (c.verdict == Verdict::free) return "stays with the caller";
    if (!p_.definition_of(c.tensor)) return "the backward needs this input, and the caller does not keep it";
    if (kept && prepared_.strict.contains(c.tensor)) return "decides a branch: both passes must see the same bits";
    if (n.keep_ps == kNever) return "random numbers are drawn again from the seed";
    if (o_.policy == Policy::none) return "policy none keeps nothing";
    if (o_.policy == Policy::largest) return "policy largest keeps what both passes compute";
    if (kept && n.keep_ps > n.recompute_ps) return "recomputing it alone is cheaper, but not with what it needs";
    if (kept) return std::string("keeping is ") + compare(n.keep_ps, n.recompute_ps) + " recomputing it and what it needs";
    return std::string("recomputing is ") + compare(n.recompute_ps, n.keep_ps) + " keeping it";
  };
  const DType stored = stored_type(c.tensor);
  const bool narrower = kept && stored != p_.tensors[c.tensor].type;
  return why() + (narrower ? fmt::format("; stored as {}", name_of(stored)) : "");
}

void Planner::redirect_backward(const std::map<TensorId, TensorId>& to) {
  for (Definition& d : p_.backward.definitions)
    d.body = rewrite(a_, d.body, [&](Id id) {
      const Node n = a_[id];
      auto it = is_read(n.op) ? to.find(n.symbol) : to.end();
      if (it == to.end()) return id;
      DType stored = p_.tensors[it->second].type;
      if (n.op == Op::read) return a_.to(n.type, a_.read(it->second, stored, n.args()));
      return a_.to(n.type, a_.read_or(it->second, stored, read_indices(n), a_.to(stored, n.args().back())));
    });
}

DType Planner::stored_type(TensorId t) const {
  DType type = p_.tensors[t].type;
  bool narrow = o_.store_as && is_float(type) && byte_size(*o_.store_as) < byte_size(type);
  return narrow && !retained(t) && !prepared_.exact.contains(t) ? *o_.store_as : type;
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
  TensorId copy = p_.add_tensor(p_.tensors[t].name + "_kept", type, p_.tensors[t].shape);
  d.targets = {copy};
  p_.forward.definitions.push_back(d);
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
  for (Definition& d : copies) p_.backward.definitions.push_back(d);
  redirect_backward(to);
  p_ = ordered(p_);
  step_done("cut", p_);
  p_ = simplify_reductions(p_, kept, hidden);
  step_done("reduction_algebra", p_);
  auto turn = [&](const TurnPrices& prices) {
    const std::optional<Program> turned = with_turned_reads(p_, prices);
    if (turned) step_done("turned_reads", p_ = *turned);
    return turned.has_value();
  };
  if (turn({})) p_ = simplify_reductions(reuse_equal_reductions(p_, kept), kept, hidden);  // equal: what was another one turned
  if (Program joined = with_joined_sums(p_); joined.tensors.size() > p_.tensors.size()) {
    p_ = simplify_reductions(joined, kept, hidden);
    step_done("joined_sums", p_);
  }
  p_ = reuse_backward(p_);
  step_done("shared_in_backward", p_);
  // Last: to others, a tensor and the same one turned are equal.
  turn([&](const Definition& d) {
    const CutNode n = price(d.target(), &d, false);
    return TurnPrice{is_between_places(a_, a_[d.body]) ? kNever : n.recompute_ps, n.keep_ps};
  });
  p_ = with_whole_differences(guard_empty_sums(p_), prepared_.written);
  plan_.program = p_;
}

StashPlan Planner::plan(const Cut& cut) {
  plan_.compared = prepared_.compared;
  report(cut);
  take_masks(cut);
  step_done("masks", p_);
  plan_.nominal = sizes_.dims();
  plan_.cost_ns = nanoseconds(cut.cost_ps);
  plan_.lower_bound_ns = nanoseconds(cut.lower_bound_ps);
  plan_.optimal = prepared_.all_shared && cut.cost_ps == cut.lower_bound_ps;
  rebuild(cut);
  for (TensorId t : stashes(plan_.program)) plan_.stash_bytes += bytes(t, p_.tensors[t].type);
  return std::move(plan_);
}

StashReason Planner::why(const Cut& cut, const std::string& name) {
  report(cut);
  auto found = std::ranges::find(plan_.candidates, name, &StashCandidate::name);
  if (found == plan_.candidates.end()) {
    std::string known;
    for (const StashCandidate& c : plan_.candidates) known += (known.empty() ? "" : ", ") + c.name;
    throw Error(fmt::format("op {}: the backward needs no value {} of the forward; it needs {}", p_.name, name, known.empty() ? "none" : known));
  }
  StashReason why{*found, {}, {}, nanoseconds(cut.cost_ps), std::numeric_limits<double>::infinity()};
  const auto at = static_cast<size_t>(std::ranges::find(tensors_, found->tensor) - tensors_.begin());
  for (const Definition& d : p_.backward.definitions)
    if (has_tensor(tensors_read(a_, d.body), found->tensor)) why.read_by.push_back(p_.tensors[d.target()].name);
  for (size_t i = 0; i < nodes_.size(); ++i)
    if (cut.choices[i] == Choice::recomputed && std::ranges::count(nodes_[i].operands, at) > 0) why.read_by.push_back(p_.tensors[tensors_[i]].name);
  for (size_t operand : nodes_[at].operands) why.made_of.push_back(p_.tensors[tensors_[operand]].name);
  std::vector<CutNode> otherwise = nodes_;
  (cut.choices[at] == Choice::kept ? otherwise[at].keep_ps : otherwise[at].recompute_ps) = kNever;
  const bool possible = otherwise[at].keep_ps != kNever || otherwise[at].recompute_ps != kNever;
  // Forced: where it is not needed to recompute others, either.
  if (possible) why.other_ns = nanoseconds(cheapest_cut(otherwise).cost_ps);
  return why;
}

std::vector<ParetoPoint> Planner::front() {
  std::vector<ParetoPoint> points;
  for (const BudgetCut& cut : pareto_cuts(nodes_)) {
    points.push_back({cut.bytes, nanoseconds(cut.cost_ps), nanoseconds(cut.lower_bound_ps), prepared_.all_shared && cut.optimal, {}});
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (cut.choices[i] == Choice::kept && !retained(tensors_[i]))
        points.back().kept.push_back(p_.tensors[tensors_[i]].name);
  }
  return points;
}

}  // namespace

StashPlanner::StashPlanner(const Program& p, StashOptions options, MachineModel machine)
    : options_(std::move(options)), machine_(std::move(machine)), prepared_(std::make_unique<PreparedStash>(prepare_stash(p, options_))) {}
StashPlanner::~StashPlanner() = default;

// Nodes that one question adds to an arena must not change the answer to the next one.
PreparedStash StashPlanner::own_prepared() const {
  PreparedStash own = *prepared_;
  own.program = own_copy(own.program);
  return own;
}

StashChoice StashPlanner::choose(const DimValues& sizes) const { return Planner(own_prepared(), options_, machine_, sizes).choose(); }

StashPlan StashPlanner::plan(const StashChoice& choice) const {
  return Planner(own_prepared(), options_, machine_, choice.sizes).plan(choice.cut);
}

void StashPlanner::require_budget(const StashChoice& choice) const {
  if (!choice.over_budget) return;
  throw Error(fmt::format("op {}: the stash budget cannot be met{}{}: no choice of kept values takes at most {} bytes beyond what the "
                          "caller keeps; the smallest takes {}",
                          prepared_->program.name, choice.sizes.empty() ? "" : " with ", dims_text(choice.sizes), options_.budget,
                          choice.cut.bytes));
}

StashPlan plan_stash(const Program& p, const StashOptions& options, const MachineModel& machine) {
  StashPlanner planner(p, options, machine);
  StashChoice choice = planner.choose({});
  planner.require_budget(choice);
  return planner.plan(choice);
}

std::vector<ParetoPoint> pareto_front(const Program& p, const StashOptions& options, const MachineModel& machine) {
  StashOptions priced = options;
  priced.policy = Policy::budget;
  return Planner(prepare_stash(p, priced), priced, machine, {}).front();
}

StashReason stash_reason(const Program& p, const StashOptions& options, const MachineModel& machine, const DimValues& sizes,
                         const std::string& name) {
  Planner planner(prepare_stash(p, options), options, machine, sizes);
  return planner.why(planner.choose().cut, name);
}

}  // namespace xhat

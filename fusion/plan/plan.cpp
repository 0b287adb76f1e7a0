// Definitions are taken in order; each joins the latest kernel that may have it, else starts one. Then other kernels that it
// reads from, or reads the same as, become one with its own if they may (merge_drafts.cpp).
//
// Joining: the definition's axes are identified with classes of the kernel through the tensors both touch by bare axes
// (what the kernel produces first, then the largest). A class stays shared only if every member runs over it and no
// member needs more of another than the same tile: a value that was reduced over the class, or read at another index
// along it, must be complete, so the class is then walked whole inside the tile. The join is refused when that leaves
// no parallel work, a tile that is looked at again does not fit the cache, or together they would cost more: bytes that they move, that
// products pack, and that could have been moved while memory was waited for (Kernel::bytes_priced).
#include "fusion/plan/plan.h"

#include <algorithm>
#include <set>
#include <span>

#include "cse/normalize/auto_inliner.h"
#include "expr/core/reduction_order.h"
#include "expr/index/affine_poly.h"
#include "expr/index/loop_bounds.h"
#include "expr/index/recurrence.h"
#include "fusion/plan/kernel_draft.h"
#include "fusion/plan/kernel_key.h"
#include "fusion/plan/whole_phases.h"
#include "fusion/relations/scatter.h"

namespace xhat {
namespace fusion {

Planner::Planner(const Program& p, const DimValues& sizes, const PlanRequest& request)
    : p_(p), sizes_(sizes), request_(request), options_(request.options), machine_(request.machine) {
  int64_t everything = 0;
  for (TensorId t = 0; t < p.tensors.size(); ++t) everything += uses_.readers(t).empty() ? 0 : bytes(t);
  small_ = everything <= machine_.serial_bytes;
  // In smaller programs reading twice is cheaper than the coarse tiles that tied axes make. GroupNorm of 16x64x56x56 (13 MB) on two threads,
  // tied and not: backward 1.10 and 0.93 ms; of 8x256x64x64 (34 MB): 2.25 and 3.77.
  ties_ = machine_.tiles_in_order && machine_.fills_the_cache(everything);
  for (const Definition& d : p.forward.definitions) shapes_.push_back(take_apart(d));
}

int64_t Planner::bytes(TensorId t) const {
  int64_t n = static_cast<int64_t>(byte_size(p_.tensors[t].type));
  for (Id e : p_.tensors[t].shape) n *= std::max<int64_t>(extent(e), 0);
  return n;
}

Shape Planner::take_apart(const Definition& d) const {
  const Arena& a = *p_.arena;
  Shape s;
  s.axes = d.axes;
  s.left = d.axes.size();
  const Node& root = a[d.body];
  s.is_reduction = is_reduction(root.op);
  std::vector<Id> left;
  for (const AxisRange& r : d.axes) left.push_back(r.axis);
  if (auto own = recurrence_of(a, d.target(), left, d.body)) s.in_order = own->along;
  s.in_parts = s.is_reduction && combines_in_parts(root.op, root.type);
  if (s.is_reduction)
    for (const AxisRange& r : reduce_axes(root)) s.axes.push_back(r);
  std::unordered_map<Id, int64_t> middle;  // of the axes so far
  for (const AxisRange& r : s.axes) {
    if (!a[r.begin].free_axes().empty() || !a[r.end].free_axes().empty()) {
      // A range that depends on other axes is never shared; its size in their middle stands for all.
      s.extents.push_back(std::max<int64_t>(1, value_at(r.end, middle) - value_at(r.begin, middle)));
      s.plain_ranges = false;
    } else {
      s.extents.push_back(std::max<int64_t>(0, extent(r.end) - extent(r.begin)));
      if (!is_constant(a, r.begin, 0)) s.plain_ranges = false;
    }
    middle[r.axis] = value_at(r.begin, middle) + s.extents.back() / 2;
  }
  Replacements windows;
  for (const AxisRange& r : s.axes)
    if (const Id moves = moving_begin(a, r, [&](Id bound) { return value_at(bound, middle); }); moves != kNone)
      windows[r.axis] = p_.arena->add(moves, r.axis);
  for (Id id : reachable(a, d.body))
    if (is_read(a[id].op)) {
      s.reads.push_back(id);
      s.read_axes.push_back(axes_of(id, windows));
      std::vector<Shape::Form>& forms = s.forms.emplace_back();
      for (Id index : read_indices(a[id])) forms.push_back(form_of(index, s));
      s.in_runs.push_back(in_runs(id, s));
    }
  find_phases(d, s, windows);
  if (auto scatter = as_scatter(*p_.arena, d))
    for (auto& [axis, index] : scatter->targets) s.scatter_targets.push_back(axis);
  if (s.is_reduction && s.scatter_targets.empty()) find_segments(s, reduce_condition(root));
  s.product = product_of(s);
  s.work_ps = static_cast<double>(evaluation_cost_ps(a, s.is_reduction ? reduce_body(root) : d.body));
  for (size_t i = 0; i < s.axes.size(); ++i)
    if (std::ranges::find(s.scatter_targets, i) == s.scatter_targets.end()) s.work_ps *= static_cast<double>(s.extents[i]);
  s.work_ps *= share_of_pairs(s);
  return s;
}

void Planner::find_phases(const Definition& d, Shape& s, const Replacements& windows) const {
  Arena& a = *p_.arena;
  s.phases.assign(s.axes.size(), 1);
  const Node root = a[d.body];
  const Id condition = s.is_reduction ? reduce_condition(root) : kNone;
  Replacements apart;
  for (size_t i = 0; i < s.left; ++i) {
    const int64_t by = phases_along(a, d.body, s.axes[i].axis);
    if (by == 1 || s.extents[i] % by != 0) continue;
    s.phases[i] = by;
    s.phases_decide |= condition != kNone && phases_along(a, condition, s.axes[i].axis) > 1;
    for (size_t j = s.left; j < s.axes.size(); ++j)
      for (Id bound : {s.axes[j].begin, s.axes[j].end}) s.phases_decide |= phases_along(a, bound, s.axes[i].axis) > 1;
    Id x = s.axes[i].axis;
    apart[x] = a.add(a.mul(a.integer(s.phases[i]), x), a.axis("phase"));
  }
  if (apart.empty()) return;
  for (Id id : s.reads) s.phase_axes.push_back(axes_of(id, windows, apart));
}

std::vector<Id> Planner::axes_of(Id read, const Replacements& windows, const Replacements& apart) const {
  Arena& a = *p_.arena;
  const Node n = a[read];
  if (windows.empty() && apart.empty()) return {n.free_axes().begin(), n.free_axes().end()};
  std::function<affine::Poly(Id)> atom = [&](Id x) {
    auto it = apart.find(x);
    return it == apart.end() ? affine::Poly::atom(x) : affine::polynomial_through_divisions(a, it->second, affine::Poly::atom);
  };
  auto collected = [&](Id x) {
    try {
      return affine::expression(a, affine::polynomial_through_divisions(a, x, atom));
    } catch (const affine::GaveUp&) {
      return x;
    }
  };
  std::set<Id> axes;
  for (Id x : n.args()) {
    Id moved = substitute(a, x, windows);
    if (a[x].type == DType::i64) moved = collected(moved);
    axes.insert(a[moved].free_axes().begin(), a[moved].free_axes().end());
  }
  return {axes.begin(), axes.end()};
}

Draft Planner::start(size_t definition) const {
  Draft empty;
  std::string why;
  Draft d = *join(empty, definition, &why);
  const Shape& s = shapes_[definition];
  // Alone, every axis with a plain range may be tiled, reduced ones too (they leave partial results).
  const bool combines = !s.is_reduction || s.in_parts;
  for (size_t i = 0; i < s.axes.size(); ++i)
    d.shared[i] = s.in_order != i && range_is_plain(*p_.arena, s.axes[i]) && (i < s.left || (combines && s.plain_ranges));
  return d;
}

// Is there anything to gain: a value handed on, or an input read by both?
bool Planner::worth(const Draft& draft, const Shape& s) const {
  return std::ranges::any_of(s.reads, [&](Id r) { return draft.dims.contains((*p_.arena)[r].symbol); });
}

// Classes over which the member needs more than its own tile of what other members make.
void Planner::unshare_what_must_be_complete(Draft& draft, const Member& member, std::string* why) const {
  const Arena& a = *p_.arena;
  const Shape& s = shape(member);
  // A tile of the index is so many elements for each of the class's that it is walked by.
  auto in_step = [&](int c) { return std::pair(draft.walked_by(c), draft.axes[static_cast<size_t>(c)].each); };
  auto place = [&](const Shape::Form& f) -> std::pair<int, int64_t> {
    if (f.axis == SIZE_MAX) return {-1, 0};
    auto [c, each] = in_step(f.axis < s.left ? member.left[f.axis] : member.reduced[f.axis - s.left]);
    return each * f.times % f.divided == 0 ? std::pair(c, each * f.times / f.divided) : std::pair(-1, int64_t{0});
  };
  for (size_t i = 0; i < draft.axes.size(); ++i) {
    const int c = static_cast<int>(i);
    for (size_t r = 0; r < s.reads.size(); ++r) {
      const TensorId t = a[s.reads[r]].symbol;
      auto it = draft.producer.find(t);
      if (!draft.shared[i] || it == draft.producer.end()) continue;
      auto unshare = [&](const char* what) {
        draft.shared[i] = false;
        *why = p_.tensors[t].name + what + draft.axes[i].name;
      };
      const Member& made = draft.members[it->second];
      if (std::ranges::find(made.reduced, c) != made.reduced.end()) unshare(" must be complete over ");
      for (size_t dim = 0; dim < made.left.size(); ++dim)
        if (draft.walked_by(made.left[dim]) == c && place(s.forms[r][dim]) != in_step(made.left[dim])) unshare(" is read elsewhere along ");
    }
  }
}

std::optional<Draft> Planner::join(const Draft& draft, size_t definition, std::string* why) const {
  const Arena& a = *p_.arena;
  const Definition& d = p_.forward.definitions[definition];
  const Shape& s = shapes_[definition];
  Draft result = draft;
  std::vector<int> local(s.axes.size(), -1);
  map_axes(draft, s, local);
  tie_axes(result, s, local);
  for (size_t i = 0; i < local.size(); ++i) {
    if (local[i] >= 0) continue;
    local[i] = static_cast<int>(result.axes.size());
    result.axes.push_back({a.name(s.axes[i].axis), s.extents[i], s.extents[i]});
    result.shared.push_back(false);
  }
  for (size_t c = 0; c < result.axes.size(); ++c)
    if (result.shared[c] && std::ranges::none_of(local, [&](int l) { return result.walked_by(l) == static_cast<int>(c); })) {
      result.shared[c] = false;
      *why = p_.tensors[d.target()].name + " does not run over " + result.axes[c].name;
    }
  for (size_t i = s.left; i < local.size(); ++i)
    if (const int of = result.axes[static_cast<size_t>(local[i])].of; of >= 0) {
      result.shared[static_cast<size_t>(of)] = false;
      *why = p_.tensors[d.target()].name + " is summed over groups of " + result.axes[static_cast<size_t>(of)].name;
    }
  Member m;
  m.definition = definition;
  m.left.assign(local.begin(), local.begin() + static_cast<std::ptrdiff_t>(s.left));
  m.reduced.assign(local.begin() + static_cast<std::ptrdiff_t>(s.left), local.end());
  for (int c : m.reduced)
    if (const int walked = result.walked_by(c); s.is_reduction && !s.in_parts && result.shared[static_cast<size_t>(walked)]) {
      result.shared[static_cast<size_t>(walked)] = false;
      *why = p_.tensors[d.target()].name + " is not put together from parts, as of " + result.axes[static_cast<size_t>(c)].name;
    }
  if (s.in_order)
    if (const int walked = result.walked_by(local[*s.in_order]); result.shared[static_cast<size_t>(walked)]) {
      result.shared[static_cast<size_t>(walked)] = false;
      *why = p_.tensors[d.target()].name + " goes along " + result.axes[static_cast<size_t>(walked)].name + " in order";
    }
  unshare_what_must_be_complete(result, m, why);
  result.producer[d.target()] = result.members.size();
  result.members.push_back(m);
  result.dims[d.target()] = m.left;
  for (size_t r = 0; r < s.reads.size(); ++r) {
    const std::vector<Shape::Form>& forms = s.forms[r];
    auto& classes = result.dims.try_emplace(a[s.reads[r]].symbol, std::vector<int>(forms.size(), -1)).first->second;
    // Others may take an axis as their own only if its extent is the same everywhere.
    for (size_t i = 0; i < forms.size(); ++i)
      if (forms[i].bare() && classes[i] < 0 && range_is_plain(a, s.axes[forms[i].axis])) classes[i] = local[forms[i].axis];
  }
  return result;
}

int64_t Planner::shared_tiles(const Draft& draft) const {
  int64_t n = 1;
  for (size_t c = 0; c < draft.axes.size(); ++c)
    if (draft.shared[c]) n *= draft.axes[c].extent;
  return n;
}

// Number of looks at the tile: 1 + the longest chain of reductions that must finish before the next member starts.
int Planner::depth(const Draft& draft) const {
  std::vector<int> level(draft.members.size(), 1);
  int deepest = 1;
  for (size_t i = 0; i < draft.members.size(); ++i) {
    for (Id r : shapes_[draft.members[i].definition].reads)
      if (auto it = draft.producer.find((*p_.arena)[r].symbol); it != draft.producer.end() && it->second < i)
        level[i] = std::max(level[i], level[it->second] + shapes_[draft.members[it->second].definition].is_reduction);
    deepest = std::max(deepest, level[i]);
  }
  return deepest;
}

// Does a library compute it?
bool Planner::alone(const Member& m) const {
  return std::ranges::find(request_.alone, p_.forward.definitions[m.definition].target()) != request_.alone.end();
}

// Is the tensor needed by anyone but the draft's members?
bool Planner::leaves(const Draft& draft, TensorId t) const {
  return std::ranges::find(p_.outputs, t) != p_.outputs.end() ||
         std::ranges::any_of(uses_.readers(t), [&](const Definition* d) { return !draft.producer.contains(d->target()); });
}

Draft Planner::as_tiled(const Draft& draft, const Kernel& k) const {
  Draft tiled = draft;
  tiled.axes = k.axes;
  tiled.shared.assign(tiled.shared.size(), false);
  for (int c : k.shared) tiled.shared[static_cast<size_t>(c)] = true;
  return tiled;
}

// The kernels that the request names, in order of their last members: by then all that they read has been computed.
void Planner::group(std::vector<Draft>& drafts, std::vector<std::string>& reasons) const {
  std::map<TensorId, size_t> group_of;
  for (size_t g = 0; g < request_.groups.size(); ++g)
    for (TensorId t : request_.groups[g].definitions) group_of[t] = g;
  std::vector<size_t> missing(request_.groups.size(), 0);  // members that are still to come
  for (const Definition& d : p_.forward.definitions)
    if (auto it = group_of.find(d.target()); it != group_of.end()) ++missing[it->second];
  std::map<size_t, Draft> open;
  for (size_t i = 0; i < shapes_.size(); ++i) {
    auto it = group_of.find(p_.forward.definitions[i].target());
    if (it == group_of.end()) {
      drafts.push_back(start(i));
      reasons.emplace_back();
      continue;
    }
    const size_t g = it->second;
    std::string why;
    open[g] = open.contains(g) ? *join(open[g], i, &why) : start(i);
    if (--missing[g] > 0) continue;
    drafts.push_back(std::move(open[g]));
    reasons.push_back(request_.groups[g].reason);
  }
}

// Tiles that take a part of a product's sum: it would not be computed in blocks.
bool Planner::cuts_a_product(const Kernel& k) const {
  auto cut = [&](int c) { return k.leaves_partials(c); };
  return std::ranges::any_of(k.members, [&](const Member& m) { return shape(m).product && std::ranges::any_of(m.reduced, cut); });
}

// Does one thread compute all of it, and much, because its tiles take all axes whole? tiles: how many the part with the fewest could have.
bool Planner::leaves_threads_idle(const Kernel& k, int64_t tiles) const {
  double work_ps = 0;
  for (const Member& m : k.members) work_ps += shape(m).work_ps;
  int64_t in_parallel = 1;
  for (int c : std::span(k.shared).first(k.shared.size() - k.sequential)) {
    const KernelAxis& axis = k.axes[static_cast<size_t>(c)];
    in_parallel *= axis.tile > 0 ? (axis.extent + axis.tile - 1) / axis.tile : 1;
  }
  return work_ps > machine_.serial_ps && in_parallel == 1 && k.sequential == 0 && tiles > 1;
}

// Why the template does not have this kernel; empty if it has. tiles: the fewest of one of its parts.
std::string Planner::misfit(const Draft& joined, int64_t tiles, const std::string& why) const {
  auto apart = [&](const Member& m) { return alone(m); };
  if (joined.members.size() > 1 && std::ranges::any_of(joined.members, apart)) return "a library computes one of them";
  if (small_) return "";
  if (depth(joined) > 1 && footprint(joined, false) > machine_.cache_bytes) return "a tile would not fit the cache";
  bool has_shared = std::ranges::find(joined.shared, true) != joined.shared.end() || joined.axes.empty();
  if (!has_shared || shared_tiles(joined) < std::min<int64_t>(4, tiles)) return why.empty() ? "too few tiles" : why;
  return "";
}

// Why drafts had better not be this one kernel. apart: what they move and pack as they are.
std::string Planner::refusal(const Draft& joined, int64_t tiles, const std::function<int64_t()>& apart, const std::string& why) const {
  std::string reason = misfit(joined, tiles, why);
  if (!reason.empty()) return reason;
  Kernel both = finished(joined);
  if (cuts_a_product(both)) return "a product would be cut along its sum";
  if (small_) return "";
  if (leaves_threads_idle(both, tiles)) return "too few tiles";
  const int64_t parts = apart();
  if (both.bytes_moved + both.bytes_packed > parts) return "together they would move and pack more bytes";
  return both.bytes_priced() > parts ? "together they would wait longer for memory, which they would touch in short runs" : "";
}

int64_t Planner::handled(const Draft& draft) const { return finished(draft).bytes_priced(); }

// What a direction cannot avoid: each element from outside that it reads once, each it delivers once.
int64_t Planner::outside() const {
  std::set<TensorId> outside(p_.outputs.begin(), p_.outputs.end());
  for (TensorId t = 0; t < p_.tensors.size(); ++t)
    if (p_.tensors[t].role != Role::defined && !uses_.readers(t).empty()) outside.insert(t);
  int64_t n = 0;
  for (TensorId t : outside) n += bytes(t);
  return n;
}

std::map<TensorId, Shape::Product> Planner::products() const {
  std::map<TensorId, Shape::Product> found;
  for (size_t i = 0; i < shapes_.size(); ++i)
    if (shapes_[i].product) found.emplace(p_.forward.definitions[i].target(), *shapes_[i].product);
  return found;
}

KernelPlan Planner::run(size_t exact) {
  std::vector<Draft> drafts;
  std::vector<std::string> reasons;
  std::map<TensorId, size_t> home;  // kernel that produces a tensor

  // Kernels that definition i ties to that of its own are one with it, if they may.
  auto gather_up = [&](size_t i) {
    size_t k = home.at(p_.forward.definitions[i].target());
    for (size_t j = drafts.size(); j-- > 0;) {
      if (j == k || !worth(drafts[j], shapes_[i])) continue;
      auto place = place_of_both(drafts, std::min(j, k), std::max(j, k));
      if (!place) continue;
      std::string why;
      std::optional<Draft> both = merged(drafts[std::min(j, k)], drafts[std::max(j, k)], &why);
      if (!both) continue;
      auto apart = [&] { return handled(drafts[j]) + handled(drafts[k]); };
      if (!refusal(*both, std::min(shared_tiles(drafts[j]), shared_tiles(drafts[k])), apart, why).empty()) continue;
      const size_t left = *place == k ? j : k;
      if (reasons[*place].empty()) reasons[*place] = reasons[left];
      drafts[left] = {};
      drafts[*place] = std::move(*both);
      k = *place;
      for (const Member& m : drafts[k].members) home[p_.forward.definitions[m.definition].target()] = k;
    }
  };

  if (options_.policy == FusePolicy::relay) group(drafts, reasons);
  for (size_t i = 0; options_.policy != FusePolicy::relay && i < shapes_.size(); ++i) {
    const Shape& s = shapes_[i];
    size_t earliest = 0;
    for (Id r : s.reads)
      if (auto it = home.find((*p_.arena)[r].symbol); it != home.end()) earliest = std::max(earliest, it->second);
    bool placed = false;
    std::string refused;
    std::optional<int64_t> alone;  // this definition by itself
    for (size_t k = drafts.size(); options_.policy == FusePolicy::full && k-- > earliest && !placed;) {
      if (!worth(drafts[k], s)) continue;
      std::string why;
      Draft joined = *join(drafts[k], i, &why);
      auto apart = [&] {
        if (!alone) alone = handled(start(i));
        return handled(drafts[k]) + *alone;
      };
      std::string reason = refusal(joined, shared_tiles(drafts[k]), apart, why);
      placed = reason.empty();
      if (!placed) {
        if (refused.empty()) refused = reason;
        continue;
      }
      drafts[k] = std::move(joined);
      home[p_.forward.definitions[i].target()] = k;
    }
    if (!placed) {
      home[p_.forward.definitions[i].target()] = drafts.size();
      drafts.push_back(start(i));
      reasons.push_back(refused);
    }
    if (options_.policy == FusePolicy::full) gather_up(i);
  }
  if (options_.policy == FusePolicy::full) improve(drafts, reasons, exact);

  KernelPlan plan;
  for (size_t k = 0; k < drafts.size(); ++k) {
    if (drafts[k].members.empty()) continue;  // merged with another
    Kernel kernel = finished(drafts[k]);
    if (std::ranges::all_of(kernel.results, [&](TensorId t) { return bytes(t) == 0; })) continue;
    std::string key = kernel_key(p_, kernel, sizes_);
    if (auto it = request_.choices.find(key); it != request_.choices.end()) kernel = finished(drafts[k], it->second);
    if (request_.one_thread) scatter_at_once(drafts[k], kernel);
    kernel.key = std::move(key);
    count_flops(as_tiled(drafts[k], kernel), kernel);
    kernel.reason = reasons[k];
    plan.bytes_moved += kernel.bytes_moved;
    plan.flops += kernel.flops;
    plan.kernels.push_back(std::move(kernel));
  }
  if (options_.policy == FusePolicy::full) {
    find_epilogues(plan.kernels);
    if (may_share_a_sweep()) find_horizontal_groups(plan.kernels);
  }
  plan.reductions = distinct_reductions(p_);
  return plan;
}

}  // namespace fusion

int distinct_reductions(const Program& p) {
  std::set<Id> found;
  for (const Definition& d : p.forward.definitions)
    if (!d.is_call())
      for (Id id : reachable(*p.arena, d.body))
        if (is_reduction((*p.arena)[id].op)) found.insert(id);
  return static_cast<int>(found.size());
}

bool Kernel::leaves_partials(int c) const {
  const auto parallel = std::span(shared).first(shared.size() - sequential);
  const KernelAxis& axis = axes[static_cast<size_t>(c)];
  return std::ranges::find(parallel, c) != parallel.end() && axis.tile < axis.extent;
}

int KernelPlan::sweeps() const {
  return static_cast<int>(std::ranges::count_if(kernels, [](const Kernel& k) { return !k.epilogue && !k.horizontal; }));
}

KernelPlan plan_kernels(const Program& p, const DimValues& sizes, const PlanRequest& request) {
  fusion::Planner planner(p, sizes, request);
  KernelPlan plan = planner.run();
  plan.bytes_unavoidable = planner.outside();
  return plan;
}

}  // namespace xhat

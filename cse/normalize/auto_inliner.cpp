#include "cse/normalize/auto_inliner.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "cse/match/bodies.h"
#include "cse/normalize/checked_index.h"
#include "cse/normalize/lift_reductions.h"
#include "cse/normalize/places_read.h"
#include "expr/core/machine_model.h"
#include "expr/index/affine.h"
#include "expr/rules/simplify.h"

namespace xhat {
namespace {

bool has_reduction(const Arena& a, Id body) {
  return std::ranges::any_of(reachable(a, body), [&](Id id) { return is_reduction(a[id].op); });
}

// Tensors of a map's own size that each of its users reads again.
constexpr size_t kMostReadAgain = 3;

// Nodes of a body from which on it is simplified before it is substituted into others: in a chain of stencils x[(i-1)+1] and x[i] would
// otherwise be two, and twice as many in each that follows.
constexpr size_t kLargeBody = 200;

class Inliner {
 public:
  Inliner(const Program& p, std::span<const TensorId> keep) : p_(p), a_(*p.arena), keep_(keep) {}

  Program run() {
    for (Region* r : {&p_.forward, &p_.backward}) {
      reductions_.clear();
      for (Definition& d : r->definitions) {
        d.body = inlined(d);
        bool leaves = std::ranges::find(p_.outputs, d.target()) != p_.outputs.end() ||
                      std::ranges::find(p_.gradients, d.target()) != p_.gradients.end() ||
                      std::ranges::find(keep_, d.target()) != keep_.end();
        if (!leaves && is_reduction(a_[d.body].op)) d.body = shared(d);
        if (reachable(a_, d.body).size() > kLargeBody) d.body = simplify(a_, d.body);
        if (!leaves && !has_reduction(a_, d.body) && !stays_written(a_, uses_, d)) maps_[d.target()] = d;
        if (is_reduction(a_[d.body].op)) reductions_.try_emplace(key(d), d.target());
      }
    }
    return without_dead(p_);
  }

 private:
  // Reductions of a region that turn out equal once maps are gone are one. Not across regions: a copy in the backward is
  // there for not being kept.
  std::vector<Id> key(const Definition& d) {
    std::vector<Id> k = nameless_reduction(a_, d);
    k.push_back(static_cast<Id>(p_.tensors[d.target()].type));
    return k;
  }
  Id shared(const Definition& d) {
    auto first = reductions_.find(key(d));
    if (first == reductions_.end()) return d.body;
    std::vector<Id> axes;
    for (const AxisRange& r : d.axes) axes.push_back(r.axis);
    return a_.read(first->second, p_.tensors[first->second].type, axes);
  }

  Id inlined(const Definition& d) {
    const bool reduces = is_reduction(a_[d.body].op);
    auto wanted = [&](Id read, const std::vector<Id>& scope) { return !(reduces && repeats(a_[read], scope)); };
    Id body = expanded(d, d.body, [&](Id, Id read, const std::vector<Id>& scope) { return wanted(read, scope) && !loses_check(read); });
    // Where an index is proved to be inside, there is no check to lose.
    for (std::vector<Id> proved = proved_reads(d, body); !proved.empty(); proved = proved_reads(d, body)) {
      const Id before = body;
      body = expanded(d, body, [&](Id id, Id read, const std::vector<Id>& scope) {
        return std::ranges::find(proved, id) != proved.end() && wanted(read, scope);
      });
      if (body == before) break;
    }
    return body;
  }

  // The body with those reads of maps substituted of which `take(as it stands, with its indices rewritten, axes in scope)` holds.
  template <class Take>
  Id expanded(const Definition& d, Id body, Take take) {
    std::vector<Id> scope;
    for (const AxisRange& r : d.axes) scope.push_back(r.axis);
    std::vector<Id> ids = reachable(a_, body);
    for (Id id : ids)
      if (a_[id].op == Op::axis && std::ranges::find(scope, id) == scope.end()) scope.push_back(id);
    std::unordered_map<Id, Id> done;
    std::vector<Id> args;
    for (Id id : ids) {
      args.clear();
      for (Id x : a_[id].args()) args.push_back(done.at(x));
      if (a_[id].op == Op::read) keep_checks(d, body, id, args);
      Id rebuilt = a_.with_args(id, args);
      const Node& n = a_[rebuilt];
      if (is_read(n.op) && maps_.contains(n.symbol) && take(id, rebuilt, scope)) rebuilt = expand(rebuilt, scope);
      done[id] = rebuilt;
    }
    return done.at(body);
  }

  // An index that is no longer made of data is not checked any more when a kernel runs: at[i] = 2*i; y = x[at[i]]. It stays as it was
  // unless it is inside for sure.
  void keep_checks(const Definition& d, Id body, Id read, std::vector<Id>& args) {
    const Node n = a_[read];
    for (size_t i = 0; i < args.size(); ++i) {
      if (args[i] == n.arg(i) || !depends_on_data(a_, n.arg(i)) || depends_on_data(a_, args[i]) || out_of_reach(a_, args[i])) continue;
      std::vector<AxisRange> axes = d.axes;
      if (is_reduction(a_[body].op))
        for (const AxisRange& r : reduce_axes(a_[body])) axes.push_back(r);
      const Id when = conditions_on_paths(a_, body).at(read);
      if (!proved_inside(a_, Uses(p_), args[i], p_.tensors[n.symbol].shape[i], axes, when)) args[i] = n.arg(i);
    }
  }

  // The run-time check of an index that depends on data goes with the read: p[k in 0..4] = 2*k; y = p[id]. It stays where the map reads a
  // tensor of the same extent there.
  bool loses_check(Id read) {
    const Node n = a_[read];
    if (n.op != Op::read) return false;
    const Definition& map = maps_.at(n.symbol);
    for (size_t i = 0; i < n.arg_count; ++i)
      if (depends_on_data(a_, n.arg(i)) && !reads_whole_axis(a_, p_.tensors, map, i)) return true;
    return false;
  }

  // Reads of maps that would lose a check, but are inside for sure.
  std::vector<Id> proved_reads(const Definition& d, Id body) {
    std::vector<Id> open, proved;
    for (Id id : reachable(a_, body))
      if (is_read(a_[id].op) && maps_.contains(a_[id].symbol) && loses_check(id)) open.push_back(id);
    if (open.empty()) return proved;
    const Uses uses(p_);
    const auto when = conditions_on_paths(a_, body);
    std::vector<AxisRange> axes = d.axes;
    if (is_reduction(a_[body].op))
      for (const AxisRange& r : reduce_axes(a_[body])) axes.push_back(r);
    for (Id id : open) {
      const Node n = a_[id];
      bool inside = true;
      for (size_t i = 0; inside && i < n.arg_count; ++i)
        inside = !depends_on_data(a_, n.arg(i)) || proved_inside(a_, uses, n.arg(i), p_.tensors[n.symbol].shape[i], axes, when.at(id));
      if (inside) proved.push_back(id);
    }
    return proved;
  }

  // Would a reduction evaluate it again for steps of an axis it doesn't depend on?
  bool repeats(const Node& read, const std::vector<Id>& scope) {
    auto free = read.free_axes();
    if (std::ranges::all_of(scope, [&](Id x) { return std::ranges::find(free, x) != free.end(); })) return false;
    auto cost = cost_.find(read.symbol);
    if (cost == cost_.end()) cost = cost_.emplace(read.symbol, evaluation_cost_ps(a_, maps_.at(read.symbol).body)).first;
    return cost->second > kCheap_ps;
  }

  Id expand(Id read, const std::vector<Id>& scope) {
    const Node n = a_[read];
    const Definition& d = maps_.at(n.symbol);
    Replacements at;
    auto indices = read_indices(n);
    for (size_t i = 0; i < indices.size(); ++i) at[d.axes[i].axis] = a_.to(DType::i64, indices[i]);
    Id value = substitute(a_, d.body, at, scope);
    if (n.op == Op::read) return value;
    Id inside = a_.boolean(true);
    for (size_t i = 0; i < indices.size(); ++i) {
      Id index = at.at(d.axes[i].axis);
      Id within = a_.land(a_.binary(Op::le, a_.integer(0), index), a_.binary(Op::lt, index, d.axes[i].end));
      inside = is_true(a_, inside) ? within : a_.land(inside, within);
    }
    return a_.select(inside, value, n.args().back());
  }

  Program p_;
  Arena& a_;
  std::span<const TensorId> keep_;
  const Uses uses_{p_};
  std::unordered_map<TensorId, Definition> maps_;
  std::unordered_map<TensorId, int64_t> cost_;
  std::map<std::vector<Id>, TensorId> reductions_;  // of the region
};

}  // namespace

// Is it read at so many places that computing it for each takes longer than writing and reading it?
static bool is_dear_at_its_places(Arena& a, const Uses& uses, const Definition& map) {
  const int64_t kept = kKept_ps * static_cast<int64_t>(byte_size(a[map.body].type)) / 4;
  if (!costs_at_least(a, map.body, kept / (kMostPlacesRead - 1) + 1)) return false;
  const PlacesRead read = places_read(a, uses, map.target());
  return read.several && costs_at_least(a, map.body, kept / (read.all - 1) + 1);
}

bool stays_written(Arena& a, const Uses& uses, const Definition& map) {
  if (map.is_call() || is_reduction(a[map.body].op)) return false;
  if (is_dear_at_its_places(a, uses, map)) return true;
  if (uses.readers(map.target()).size() < 2) return false;
  std::set<TensorId> read;
  for (Id id : reachable(a, map.body)) {
    const Node& n = a[id];
    auto has = [&](const AxisRange& r) { return n.depends_on(r.axis); };
    // What is read where data say has another size than the map: z[n,t[n]] is as much as t[n].
    const bool at_data = is_read(n.op) && std::ranges::any_of(read_indices(n), [&](Id x) { return !tensors_read(a, x).empty(); });
    if (is_read(n.op) && !at_data && std::ranges::all_of(map.axes, has)) read.insert(n.symbol);
  }
  return read.size() > kMostReadAgain;
}

// Is there a read in the expression? In a chain it is found behind a few nodes.
static bool reads_anything(const Arena& a, Id root, int64_t* visited) {
  std::unordered_set<Id> met = {root};
  std::vector<Id> open = {root};
  while (!open.empty()) {
    const Node& n = a[open.back()];
    open.pop_back();
    if (visited) ++*visited;
    if (is_read(n.op)) return true;
    for (Id x : n.args())
      if (x != kNone && met.insert(x).second) open.push_back(x);
  }
  return false;
}

int64_t evaluation_cost_ps(const Arena& a, Id body) {
  int64_t cost = 0;
  std::unordered_map<Id, bool> reads;  // of what has no axes
  auto reads_any = [&](Id x) { return a[x].free_axes().empty() ? reads.at(x) : !tensors_read(a, x).empty(); };
  for (Id id : reachable(a, body)) {
    const Node& n = a[id];
    if (n.free_axes().empty()) reads[id] = is_read(n.op) || std::ranges::any_of(n.args(), reads_any);
    // Reads are paid by whoever moves the bytes; index arithmetic is nearly free, and numbers made of dims are.
    if (is_read(n.op) || (n.free_axes().empty() && !reads.at(id))) continue;
    if (is_float(n.type) || n.type == DType::boolean) cost += cost_ps(a, n);
  }
  return cost;
}

bool costs_at_least(const Arena& a, Id body, int64_t ps, int64_t* visited) {
  std::unordered_set<Id> met = {body};
  std::vector<Id> open = {body};
  int64_t cost = 0;
  auto descend = [&](const Node& n) {
    for (Id x : n.args())
      if (x != kNone && met.insert(x).second) open.push_back(x);
  };
  while (!open.empty() && cost < ps) {
    const Id id = open.back();
    open.pop_back();
    const Node& n = a[id];
    if (visited) ++*visited;
    descend(n);
    if (is_read(n.op) || !(is_float(n.type) || n.type == DType::boolean)) continue;
    if (!n.free_axes().empty() || reads_anything(a, id, visited)) cost += cost_ps(a, n);
  }
  return cost >= ps;
}

Program inline_maps(const Program& p, std::span<const TensorId> keep) { return Inliner(p, keep).run(); }
Program inline_injective(const Program& p, std::span<const TensorId> keep) { return inline_maps(lift_reductions(ordered(p)), keep); }

}  // namespace xhat

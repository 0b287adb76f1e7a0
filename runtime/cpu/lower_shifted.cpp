// What terms of a window compute at shifted places, computed once. The weights of a bilateral filter, exp(-(x[i+r-1] - x[i])^2),
// are the same function of a pair of neighbours from both sides: its value for r = 2 at i is that for r = 0 at i+1. Nine
// exponentials a point are five, for a block of rows and columns whose values stay in cache (8 images of 1024x1024, two threads: 10.9
// ms and not 12.8; without the sums of weights, 9.8 and 11.4). Sums that one map alone reads are part of its expression:
//
//   for each block:  w0, w1, … = exp(…), on the block and its border
//                    for each point of it:  sum = w0[i]*… + w0[i+1]*… + …
//
// Two terms' values are the same function if they are equal once the axes are moved to where the first read is at 0. What is read at one
// place only (dy / sum of weights, of each neighbour) is a copy with a border (emit_padding.cpp), not of every block.
#include <algorithm>
#include <map>
#include <set>

#include "cse/normalize/auto_inliner.h"
#include "expr/index/affine_poly.h"
#include "expr/rules/simplify.h"
#include "runtime/cpu/lowering.h"

namespace xhat::runtime {
namespace {

using affine::Poly;

// What a block's border costs is 1/16 by either side; its values of four functions fill 74 KB of L2 (8 rows of 128: 21 KB in L1, and
// the bilateral filter's forward and backward 28.6 ms instead of 27.7).
constexpr int64_t kBlockRows = 16, kBlockColumns = 256;

// Of arithmetic in what is left of the terms: more than in others that are written out, as without it all of them compute what
// they share (the bilateral filter's backward, 3180: 19.3 ms instead of 20.8).
constexpr int64_t kMaxLeft_ps = 5 * kWrittenOut_ps / 2;

// `axis + offset`, if an index is that.
std::optional<std::pair<Id, int64_t>> axis_and_offset(Arena& a, Id index) {
  try {
    const Poly p = affine::polynomial_through_divisions(a, index, Poly::atom);
    const auto axes = a[index].free_axes();
    if (axes.size() != 1 || p.coefficient(axes[0]) != 1) return {};
    if (auto offset = p.without(axes[0]).as_constant()) return {{axes[0], *offset}};
  } catch (const affine::GaveUp&) {
  }
  return {};
}

}  // namespace

// Finds such values among the terms of one group.
class Lowering::ShiftFinder {
 public:
  ShiftFinder(const Lowering& l, const SpecMember& m, const std::vector<std::vector<SpecMember>>& terms)
      : l_(l), a_(*l.spec_.arena), m_(m), terms_(terms) {
    for (const auto& term : terms)
      for (const SpecMember& x : term) note_outside(x.body);
  }

  void find(Shifted& found) {
    for (const auto& term : terms_)
      for (const SpecMember& x : term)
        for (Id id : reachable(a_, x.body))
          if (const Place* p = place(id)) bases_[p->function].insert(p->base);
    std::map<Id, size_t> numbers;
    std::set<Id> seen;
    for (const auto& term : terms_)
      for (const SpecMember& x : term) {
        found.remaining_ps += evaluation_cost_ps(a_, x.body);
        std::vector<Id> stack = {x.body};
        std::set<Id> here;
        while (!stack.empty()) {
          const Id id = stack.back();
          stack.pop_back();
          if (!here.insert(id).second || is_read(a_[id].op)) continue;
          const Place* p = place(id);
          if (!p || !pays(id, bases_.at(p->function).size())) {
            for (Id arg : a_[id].args()) stack.push_back(arg);
            continue;
          }
          found.remaining_ps -= evaluation_cost_ps(a_, id);
          if (!seen.insert(id).second) continue;
          auto [at, fresh] = numbers.emplace(p->function, found.functions.size());
          if (fresh) found.functions.push_back(p->function);
          found.uses.push_back({id, at->second, p->base});
        }
      }
  }

 private:
  // Against a store, and a load where it is used.
  bool pays(Id value, size_t places) const {
    constexpr int64_t kMove_ps = 25;
    const auto n = static_cast<int64_t>(places);
    return (n - 1) * evaluation_cost_ps(a_, value) > (n + 1) * kMove_ps;
  }

  struct Place {
    Id function;
    std::vector<int64_t> base;  // by m.left
  };

  void note_outside(Id body) {
    for (Id id : reachable(a_, body)) {
      const Node& n = a_[id];
      if (n.op != Op::read_or) continue;
      auto [at, fresh] = outside_.emplace(n.symbol, n.args().back());
      if ((!fresh && at->second != n.args().back()) || a_[n.args().back()].op != Op::constant) at->second = kNone;
    }
  }

  const Place* place(Id id) {
    auto [at, fresh] = places_.emplace(id, std::nullopt);
    if (fresh) at->second = placed(id);
    return at->second ? &*at->second : nullptr;
  }

  // Parts that are worth a store and two loads. Not a product: what adds it needs its factors, for one fma (emit.cpp).
  std::optional<Place> placed(Id root) {
    constexpr int64_t kWorthIt_ps = 30;
    if (!is_float(a_[root].type) || is_read(a_[root].op) || a_[root].op == Op::mul || evaluation_cost_ps(a_, root) < kWorthIt_ps) return {};
    std::vector<std::optional<int64_t>> least(m_.left.size());
    std::map<Id, std::vector<std::pair<size_t, int64_t>>> reads;  // per index: which of m.left, and how far from it
    std::vector<Id> stack = {root};
    std::set<Id> seen;
    while (!stack.empty()) {
      const Id id = stack.back();
      stack.pop_back();
      if (!seen.insert(id).second) continue;
      const Node& n = a_[id];
      if (n.op == Op::axis) return {};
      if (!is_read(n.op)) {
        for (Id arg : n.args()) stack.push_back(arg);
        continue;
      }
      if (l_.spec_.tensors[n.symbol].use != SpecTensor::Use::input) return {};
      if (auto o = outside_.find(n.symbol); o != outside_.end() && o->second == kNone) return {};
      auto& at = reads[id];
      for (Id index : read_indices(n)) {
        auto found = axis_and_offset(a_, index);
        if (!found) return {};
        auto left = std::ranges::find(m_.left, found->first);
        if (left == m_.left.end()) return {};
        const auto i = static_cast<size_t>(left - m_.left.begin());
        at.emplace_back(i, found->second);
        least[i] = std::min(least[i].value_or(found->second), found->second);
      }
    }
    if (std::ranges::none_of(reads, [](const auto& r) { return !r.second.empty(); })) return {};
    Place p{kNone, {}};
    for (size_t i = 0; i < least.size(); ++i) {
      p.base.push_back(least[i].value_or(0));
      if (p.base.back() != 0 && l_.axis(m_.left[i]).kind() == AxisKind::point) return {};
    }
    p.function = moved(root, p.base, reads);
    return p;
  }

  // With every read that much earlier, and with an `else`, as it may be outside there; of (a-b)*(a-b) and (b-a)*(b-a) one.
  Id moved(Id root, const std::vector<int64_t>& base, const std::map<Id, std::vector<std::pair<size_t, int64_t>>>& reads) {
    std::unordered_map<Id, Id> done;
    for (Id id : reachable(a_, root)) {
      const Node n = a_[id];
      if (auto r = reads.find(id); r != reads.end() && !r->second.empty()) {
        std::vector<Id> indices;
        for (auto [i, offset] : r->second)
          indices.push_back(offset == base[i] ? m_.left[i] : a_.add(m_.left[i], a_.integer(offset - base[i])));
        auto o = outside_.find(n.symbol);
        done[id] = a_.read_or(n.symbol, n.type, indices, o == outside_.end() ? a_.constant(n.type, 0) : o->second);
        continue;
      }
      if (n.arg_count == 0 || is_read(n.op)) {
        done[id] = id;
        continue;
      }
      std::vector<Id> args;
      for (Id arg : n.args()) args.push_back(done.at(arg));
      const bool even = (n.op == Op::mul && args[0] == args[1]) || whole_power(a_, n).value_or(1) % 2 == 0;
      if (even) args[0] = difference_in_order(a_, args[0]);
      if (even && n.op == Op::mul) args[1] = args[0];
      done[id] = a_.with_args(id, args);
    }
    return done.at(root);
  }

  const Lowering& l_;
  Arena& a_;
  const SpecMember& m_;
  const std::vector<std::vector<SpecMember>>& terms_;
  std::map<TensorId, Id> outside_;  // what `else` says; kNone: not always the same
  std::map<Id, std::optional<Place>> places_;
  std::map<Id, std::set<std::vector<int64_t>>> bases_;  // by function
};

std::optional<Lowering::Shifted> Lowering::shifted_values(const std::vector<size_t>& group) const {
  const SpecMember& m = spec_.members[group[0]];
  if (!vectors_ || spec_.terms(m) < 2 || spec_.terms(m) > kFewTerms) return {};
  if (m.op == Op::constant || m.op == Op::argmax || m.op == Op::argmin || !m.scatter.empty()) return {};
  if (!std::ranges::all_of(m.reduced, [&](Id x) { return constant(x) && axis(x).kind() == AxisKind::untiled; })) return {};
  if (std::ranges::none_of(m.reduced, [&](Id x) { return moves_window(m, x); })) return {};
  Arena& a = *spec_.arena;
  Shifted s;
  std::vector<int64_t> at(m.reduced.size(), 0);
  for (bool more = true; more;) {
    Replacements point;
    for (size_t i = 0; i < at.size(); ++i) point[m.reduced[i]] = a.integer(at[i]);
    auto& term = s.terms.emplace_back();
    for (const SpecMember* x : members_of(group)) {
      term.push_back(*x);
      term.back().body = with_collected_indices(a, substitute(a, x->body, point));
      term.back().condition = with_collected_indices(a, substitute(a, x->condition, point));
    }
    more = false;
    for (size_t i = at.size(); i-- > 0 && !more;) {
      more = ++at[i] < axis(m.reduced[i]).extent;
      if (!more) at[i] = 0;
    }
  }
  ShiftFinder(*this, m, s.terms).find(s);
  if (s.functions.empty() || s.remaining_ps > kMaxLeft_ps) return {};
  return s;
}

// What the function reads, if all of it is read where the axes are.
std::vector<Id> Lowering::reads_at(Id function, const std::vector<Id>& left) const {
  const Arena& a = *spec_.arena;
  std::vector<Id> reads;
  for (Id id : reachable(a, function)) {
    if (!is_read(a[id].op) || read_indices(a[id]).empty()) continue;
    if (!std::ranges::equal(read_indices(a[id]), left)) return {};
    reads.push_back(id);
  }
  return reads;
}

// The one map that reads all of the group's results, and nobody else does: then they are part of its expression.
const SpecMember* Lowering::map_of(const std::vector<size_t>& group) const {
  const Arena& a = *spec_.arena;
  const SpecMember* found = nullptr;
  for (const SpecMember* m : members_of(group)) {
    if (!part_of_a_map(*m)) return nullptr;
    for (const SpecMember& other : spec_.members) {
      const auto read = tensors_read(a, other.body);
      if (std::ranges::find(read, m->tensor) == read.end()) continue;
      if ((found && found != &other) || other.left != m->left) return nullptr;
      found = &other;
    }
  }
  const std::vector<size_t> maps = {static_cast<size_t>(found - spec_.members.data())};
  return quotients_of(maps).empty() && !turned_map(maps) ? found : nullptr;
}

void Lowering::by_blocks(Func f, const SpecMember& m, Id v, const std::vector<Func>& functions) const {
  const int width = natural(widest(m));
  const int columns = static_cast<int>(std::min(kBlockColumns, axis(v).extent / width * width));
  Var vo("vo"), vi("vi"), yo("yo"), yi("yi");
  order_rows(f, m, v);
  f.split(vars_.at(v), vo, vi, columns, TailStrategy::ShiftInwards).vectorize(vi, width);
  if (const auto rows = rows_of(m, v); !rows.empty())
    f.split(vars_.at(rows[0]), yo, yi, static_cast<int>(kBlockRows), TailStrategy::GuardWithIf)
        .reorder(vi, yi, vo, yo)
        .never_partition(yo);
  for (Func w : functions) w.compute_at(f, vo).vectorize(w.args()[0], width, TailStrategy::RoundUp);
}

void Lowering::shifted(const std::vector<size_t>& group, const Shifted& s, Id v) {
  const SpecMember& m = spec_.members[group[0]];
  const Arena& a = *spec_.arena;
  const std::vector<Var> left = func_vars(m);
  const auto dims = tile_dimensions(spec_, m);
  std::vector<Func> functions;
  std::map<size_t, std::vector<Id>> once;  // those of one place are copies with a border
  for (Id f : s.functions) {
    if (auto reads = reads_at(f, m.left); !reads.empty()) {
      once[functions.size()] = reads;
      functions.emplace_back();
      continue;
    }
    Func w(name("shifted", static_cast<size_t>(squares_++)));
    Emitter inside = emit_;
    inside.values_once = false;
    for (Id id : reachable(a, f))
      if (is_read(a[id].op) && !read_indices(a[id]).empty()) inside.given[id] = emit_.padded(id, left_locals(m));
    define(w, exprs(left), {inside.value(f, left_locals(m))});
    functions.push_back(w);
  }
  Emitter with = emit_;
  with.values_once = false;  // by functions
  for (const auto& use : s.uses) {
    if (auto reads = once.find(use.function); reads != once.end()) {
      Emitter::Axes moved = left_locals(m);
      for (size_t i : dims) moved[m.left[i]] = vars_.at(m.left[i]) + static_cast<int>(use.base[i]);
      with.given[use.value] = emit_.padded_value(s.functions[use.function], reads->second, moved);
      continue;
    }
    std::vector<Expr> at;
    for (size_t i = dims.size(); i-- > 0;) at.push_back(vars_.at(m.left[dims[i]]) + static_cast<int>(use.base[dims[i]]));
    with.given[use.value] = functions[use.function](at);
  }
  std::vector<Expr> values = identities(group);
  for (const auto& term : s.terms) {
    std::vector<const SpecMember*> members;
    for (const SpecMember& x : term) members.push_back(&x);
    values = with.steps(members, std::move(values), left_locals(m));
  }
  std::erase_if(functions, [](const Func& f) { return !f.defined(); });
  if (group.size() == 1) values[0] = to_storage(m, values[0]);
  Func all(name("few", m.tensor));
  define(all, exprs(left), values);
  if (const SpecMember* map = map_of(group)) {
    in_blocks_[map->tensor] = functions;  // all of the group are temporaries, which it reads
  } else {
    by_blocks(all, m, v, functions);
    if (group.size() == 1) return publish(m, all);
    place(all);
  }
  results_of(group, [&](size_t i) { return element(all, exprs(left), i, group.size()); }, true);
}

}  // namespace xhat::runtime

#include "runtime/emit/emit.h"

#include <cmath>
#include <limits>
#include <unordered_set>

#include "cse/normalize/auto_inliner.h"
#include "expr/core/conditions.h"
#include "expr/index/affine.h"
#include "expr/index/linear.h"
#include "runtime/emit/emit_ops.h"
#include "runtime/emit/emit_walk.h"
#include "runtime/emit/vector_math.h"
#include "runtime/kernel/kernel_access.h"

namespace xhat::runtime {

using namespace ops;

Expr hidden_zero() {
  return Halide::Internal::Call::make(Halide::Int(32), "llvm.bitreverse.i32", {Expr(0)}, Halide::Internal::Call::PureExtern);
}

Expr Walk::axis(Id id) const {
  Expr local = axes.at(id);
  auto it = e.origin.find(id);
  return it == e.origin.end() ? local : Expr(it->second) + local;
}

// Integer expressions that index or compare positions: 32 bits are enough when their interval fits.
bool Walk::fits_index(Id id) const {
  auto [low, high] = e.spec.interval(id);
  return low > std::numeric_limits<int32_t>::min() && high < std::numeric_limits<int32_t>::max();
}

// Undefined where it, or a number that it is made of, may not fit. (An index that is narrowed from 64 bits is clamped; where Halide's
// simplifier takes the clamp away, its bounds narrow 0 to 2^32-1 to 0 to -1, and it leaves out what is computed under a condition on it.)
Expr Walk::in_32_bits(Id id) {
  const std::vector<Id> parts = reachable(arena(), id);
  const bool all_fit = std::ranges::all_of(parts, [&](Id x) {
    const DType type = arena()[x].type;
    return is_float(type) || type == DType::boolean || fits_index(x);
  });
  if (all_fit) return index(id);
  const Node& n = arena()[id];
  if (n.op != Op::cast || arena()[n.arg(0)].type != DType::i32) return {};
  auto narrow = values.find(n.arg(0));
  return narrow == values.end() ? Expr() : narrow->second;
}

// Indices are 32-bit while they and all that they are made of fit; else computed in their own width, then clamped.
// Clamped to what they can be: Halide adds up bounds and stops at an overflow.
Expr Walk::index(Id root) {
  for (Id id : reachable(arena(), root)) {
    if (indices.contains(id)) continue;
    const Node& n = arena()[id];
    if (is_float(n.type) || n.type == DType::boolean) continue;
    auto has = [&](Id arg) { return arena()[arg].type == DType::boolean || (indices.contains(arg) && fits_index(arg)); };
    bool wraps = n.type == DType::u8 || n.type == DType::u32;
    bool small = fits_index(id) && !wraps && (is_read(n.op) || std::ranges::all_of(n.args(), has));
    auto x = [&](size_t i) { return indices.at(n.arg(i)); };
    Expr r;
    switch (small ? n.op : Op::read) {
      case Op::constant: r = Expr(static_cast<int32_t>(n.integer)); break;
      case Op::axis: r = axis(id); break;
      case Op::dim: r = Expr(e.counts.at(e.spec.sizes.at(id))); break;
      case Op::add: r = x(0) + x(1); break;
      case Op::sub: r = x(0) - x(1); break;
      case Op::neg: r = -x(0); break;
      case Op::mul: r = x(0) * x(1); break;
      case Op::div: r = floor_div(x(0), x(1)); break;
      case Op::mod: r = floor_mod(x(0), x(1)); break;
      case Op::minimum: r = Halide::min(x(0), x(1)); break;
      case Op::maximum: r = Halide::max(x(0), x(1)); break;
      case Op::clamp: r = Halide::min(Halide::max(x(0), x(1)), x(2)); break;
      case Op::abs: r = Halide::max(x(0), -x(0), 0); break;  // and 0: of max(x, -x) Halide loads from the least x on
      case Op::relu: r = Halide::max(x(0), 0); break;
      case Op::select: r = selected(n, x(1), x(2)); break;
      default: r = narrowed(id); break;
    }
    indices[id] = r;
  }
  return indices.at(root);
}

// Of a place that is inside a tensor: what does not depend on axes is by itself, so that vectors run along memory.
Expr Walk::index_inside(Id id) {
  if (fits_index(id)) return index(id);
  const Linear all = linear(arena(), id);
  const auto whole = [](int64_t v) { return Halide::Internal::make_const(Halide::Int(64), v); };
  Expr by_axes = 0, rest = whole(all.constant);
  for (const auto& [node, scale] : all.terms) {
    if (arena()[node].op == Op::axis)
      by_axes = by_axes + axis(node) * static_cast<int32_t>(scale);
    else
      rest = rest + Halide::cast<int64_t>(stored(value(node))) * whole(scale);
  }
  return by_axes + Halide::cast<int32_t>(rest);
}

// Where all places of its axes are read, what data say is brought inside.
Expr Walk::moved_inside(Id id, int64_t extent) {
  const auto whole = [](int64_t v) { return Halide::Internal::make_const(Halide::Int(64), v); };
  const Moved moved = *moved_by_data(e.spec, id);
  Expr by_axes = 0, rest = whole(moved.constant);
  for (const auto& [x, scale] : moved.by_axes) by_axes = by_axes + axis(x) * static_cast<int32_t>(scale);
  for (const auto& [node, scale] : moved.rest) rest = rest + Halide::cast<int64_t>(stored(value(node))) * whole(scale);
  const int64_t low = moved.constant - moved.least;
  return by_axes + Halide::cast<int32_t>(Halide::clamp(rest, whole(low), whole(std::max(low, extent - 1 - moved.most + moved.constant))));
}

Expr Walk::narrowed(Id id) {
  auto [low, high] = e.spec.interval(id);
  Expr wide = Halide::cast<int64_t>(stored(value(id)));
  // Halide adds to bounds: those of places that sizes not known yet or data say are so far away that it may, if no tensor reaches there.
  const auto reaches = [](const SpecTensor& t) {
    return std::ranges::any_of(t.shape, [](int64_t x) { return x > INT32_MAX - (1 << 17); });
  };
  const int64_t spare = std::ranges::any_of(e.spec.tensors, reaches) ? 0 : 1 << 16;
  auto bound = [&](int64_t v) { return Expr(static_cast<int32_t>(std::clamp<int64_t>(v, INT32_MIN + spare, INT32_MAX - spare))); };
  // Of bits, and of numbers that were floats, Halide has bounds of its own, which are none (v21), and takes the clamp away; not so of data.
  const bool of_data = std::ranges::any_of(reachable(arena(), id), [&](Id x) { return is_read(arena()[x].op); });
  const bool beyond = !of_data && out_of_reach(arena(), id);
  const Expr narrow = Halide::cast<int32_t>(Halide::clamp(wide, Halide::cast<int64_t>(bound(low)), Halide::cast<int64_t>(bound(high))));
  return beyond ? Halide::unsafe_promise_clamped(narrow + hidden_zero(), bound(low), bound(high)) : narrow;
}

Expr Walk::read(Id id, const Node& n) {
  const SpecTensor& t = e.spec.tensors[n.symbol];
  auto ids = read_indices(n);
  auto made = e.made.find(n.symbol);
  if (e.padding && worth_padding(n)) return padded(n);
  const std::vector<Bend>* border = border_of(n);
  std::vector<Expr> args, extents;  // extents: of dimensions that the index may leave
  for (size_t i = ids.size(); i-- > 0;) {
    if (border && (*border)[i].at != kNone) {
      args.push_back(bent((*border)[i], index(ids[i]), i + 1 == ids.size() ? t.shape[i] : 0));
      extents.emplace_back();
      continue;
    }
    const SpecAxis* shared = nullptr;
    if (made != e.made.end()) {
      auto it = e.spec.axes.find(e.left_axes.at(n.symbol)[i]);
      if (it->second.kind() != AxisKind::untiled) shared = &it->second;
    }
    // Made in this tile, and the planner saw to it that the index is the axis itself: one element, or a local place.
    if (shared && shared->kind() == AxisKind::point) continue;
    // Or it is the place that a scattered term falls on: in this tile, where the term counts.
    if (const auto at = shared ? axes.find(ids[i]) : axes.end(); shared && at == axes.end()) {
      const Id axis = e.left_axes.at(n.symbol)[i];
      args.push_back(Halide::clamp(e.local_index(ids[i], axis, axes), 0, Expr(e.counts.at(axis)) - 1));
      extents.emplace_back();
      continue;
    }
    if (!shared && made == e.made.end() && e.moved.contains({id, i})) {
      args.push_back(moved_inside(ids[i], t.shape[i]));
      extents.emplace_back();
      continue;
    }
    const bool along = e.inside_along != kNone && arena()[ids[i]].depends_on(e.inside_along);
    const bool cut = made == e.made.end() && i + 1 == ids.size() && e.cut_along != kNone && arena()[ids[i]].depends_on(e.cut_along);
    args.push_back(shared ? axes.at(ids[i]) : along ? index_inside(ids[i]) : cut ? in_its_run(ids[i]) : index(ids[i]));
    extents.emplace_back();
    if (shared || along || surely_inside(n, i)) continue;
    // A dimension is unknown where axes of unknown extent are its only index. And where Halide is to find the places that
    // are inside, of a plain read: told the extent, it leaves out the last ones (box blur's backward: 4.9 ms, not 3.7).
    auto x = e.spec.axes.find(ids[i]);
    // Nor is Halide told where its loops read at remainders: by what its simplifier knows of them it takes the clamp away, and its bounds,
    // which know less, then find reads outside.
    auto is_remainder = [&](Id part) { return arena()[part].op == Op::mod; };
    const bool told =
        (!e.mostly_inside || n.op == Op::read_or) && !(e.loops_by_halide && std::ranges::any_of(reachable(arena(), ids[i]), is_remainder));
    const bool sized = e.spec.any_size() && t.sized[i];
    bool known = !sized && (made != e.made.end() || (told && (x == e.spec.axes.end() || x->second.static_extent)));
    if (sized && made != e.made.end())
      extents.back() = Expr(e.counts.at(e.left_axes.at(n.symbol)[i]));
    else if (known)
      extents.back() = Expr(static_cast<int32_t>(t.shape[i]));
    else
      extents.back() = Expr(e.inputs[n.symbol].dim(static_cast<int>(ids.size() - 1 - i)).extent());
  }
  Expr inside = clamp_to(args, extents);
  Expr loaded = made == e.made.end() ? element(e.inputs[n.symbol], args) : Expr(made->second(args));
  if (t.type == DType::boolean) loaded = boolean(loaded);
  if (n.op == Op::read_or && !border && inside.defined()) loaded = chosen(inside, loaded, value(n.args().back()));
  return loaded;
}

const std::vector<Bend>* Walk::border_of(const Node& read) const {
  if (!e.borders || read.op != Op::read_or) return nullptr;
  const auto found = e.borders->find(read.args().back());
  return found == e.borders->end() ? nullptr : &found->second;
}

// The place, if it is one of first..last, as most are: Halide then makes a loop of its own for these, in which nothing is asked. (Likely twice:
// in what several reads share the inner one is lost, v21.)
static Expr mostly(const Expr& place, int64_t first, int64_t last, const Expr& otherwise) {
  const Expr low = static_cast<int>(first), high = static_cast<int>(last);
  return Halide::select(place >= low && place <= high, Halide::likely(Halide::clamp(Halide::likely(place), low, high)), otherwise);
}

// What is read for this place. length: of a row, most of which Halide is to find is read where it is; 0: it need not.
Expr Walk::bent(const Bend& bend, const Expr& place, int64_t length) const {
  Emitter::Axes at = axes;
  at[bend.at] = place - static_cast<int>(bend.first);
  const Expr there = Walk{e, at}.index(bend.index);
  if (!e.mostly_inside || length == 0) return there;
  return mostly(place, 0, length - 1, there);
}

Expr Walk::in_its_run(Id id) {
  const auto run = straight_run(e.spec, id);
  if (!run) return index(id);
  return mostly(index(run->part) + static_cast<int>(run->shift), run->first + run->shift, run->last + run->shift, index(id));
}

bool Walk::is_within(Id index, int64_t extent) const {
  auto [low, high] = e.spec.interval(index);
  return low >= 0 && high < extent;
}

// Of code for all sizes: a read without `else` is proved to be inside, and extents are not numbers to be compared with. (Halide does not see that a
// place is inside which is computed in 64 bits.)
bool Walk::surely_inside(const Node& read, size_t dimension) const {
  const SpecTensor& t = e.spec.tensors[read.symbol];
  if (e.spec.any_size() && (read.op == Op::read || t.sized[dimension]))
    return read.op == Op::read &&
           std::ranges::all_of(reachable(arena(), read_indices(read)[dimension]), [&](Id x) { return fits_index(x); });
  return is_within(read_indices(read)[dimension], t.shape[dimension]);
}

// Clamps what has an extent; where all of it is inside (undefined: everywhere).
Expr Walk::clamp_to(std::vector<Expr>& args, const std::vector<Expr>& extents) const {
  Expr inside;
  for (size_t d = 0; d < args.size(); ++d) {
    if (!extents[d].defined()) continue;
    Expr at = args[d], ok = at >= 0 && at < extents[d];
    inside = inside.defined() ? inside && ok : ok;
    args[d] = Halide::clamp(e.mostly_inside ? Halide::likely(at) : at, 0, Halide::max(extents[d] - 1, 0));
  }
  return inside;
}

Expr Walk::chosen(const Expr& inside, const Expr& loaded, const Expr& otherwise) const {
  return e.mostly_inside ? Halide::select(inside, Halide::likely(loaded), otherwise)
                         : Halide::select(not_to_cut_by(inside), loaded, otherwise);
}

// The same condition, by which Halide does not cut loops. Where vectors end beyond the end of a loop, their loads are masked, and
// it takes what is loaded for the likelier choice; where the condition then is known from a loop further out, it makes that choice
// at all other places as well, though the condition is another there (v21: PartitionLoops.cpp replaces every occurrence of a node,
// whatever its variables are let be). It cannot solve this one for an axis, neither to be true nor to be false.
Expr Walk::not_to_cut_by(const Expr& condition) const {
  return e.loops_by_halide ? (condition && hidden_zero() == 0) || hidden_zero() < 0 : condition;
}

// What a select asks.
Expr Walk::choice(Id condition) { return uses_axes_itself(condition) ? not_to_cut_by(value(condition)) : value(condition); }

// Of which the factors are at hand: what is computed elsewhere comes as one number.
bool Walk::is_product(Id id) const { return arena()[id].op == Op::mul && !e.given.contains(id); }

Expr Walk::sum_of_product(const Node& n) {
  // The product may stand on either side. On both, each is rounded: a*b - b*a is 0, of which an fma would leave what rounding took from
  // one of them, and that is the normal of a triangle without area.
  const Node& l = arena()[n.arg(0)];
  const Node& r = arena()[n.arg(1)];
  auto ends_in_product = [&](Id id) { return is_product(id) || (arena()[id].op == Op::neg && is_product(arena()[id].arg(0))); };
  const bool on_both = ends_in_product(n.arg(0)) && ends_in_product(n.arg(1));
  Expr minus = Halide::Internal::make_const(storage_type(n.type), -1);
  if (is_product(n.arg(0)) && !on_both) {
    Expr c = values.at(n.arg(1));
    return vmath::fma(values.at(l.arg(0)), values.at(l.arg(1)), n.op == Op::sub ? c * minus : c);
  }
  if (is_product(n.arg(1)) && !on_both) {
    Expr a = values.at(r.arg(0));
    return vmath::fma(n.op == Op::sub ? a * minus : a, values.at(r.arg(1)), values.at(n.arg(0)));
  }
  return float_op(n, {values.at(n.arg(0)), values.at(n.arg(1))});
}

Expr Walk::make(Id id, const Node& n) {
  std::vector<Expr> x;
  if (!is_read(n.op))
    for (Id arg : n.args()) x.push_back(values.at(arg));
  switch (n.op) {
    case Op::constant: return constant(n);
    case Op::axis: return Halide::cast<int64_t>(axis(id));
    case Op::dim: return Halide::cast<int64_t>(Expr(e.counts.at(e.spec.sizes.at(id))));
    case Op::read:
    case Op::read_or: return read(id, n);
    case Op::select: return selected(n, x[1], x[2]);
    case Op::cast: {
      // Of 32 bits a vector is converted at once; of 64 one number after the other, but with AVX-512.
      const Expr narrow = is_float(n.type) && arena()[n.arg(0)].type == DType::i64 ? in_32_bits(n.arg(0)) : Expr();
      return cast_to(n.type, narrow.defined() ? narrow : x[0]);
    }
    case Op::eq:
    case Op::ne:
    case Op::lt:
    case Op::le: {
      DType t = arena()[n.arg(0)].type;
      if (t == DType::boolean) return n.op == Op::eq ? x[0] == x[1] : compare(n.op, stored(x[0]), stored(x[1]));
      if (t != DType::i64) return compare(n.op, x[0], x[1]);
      // In 32 bits, of which a vector holds twice as many.
      const Expr a = in_32_bits(n.arg(0)), b = in_32_bits(n.arg(1));
      return a.defined() && b.defined() ? compare(n.op, a, b) : compare(n.op, x[0], x[1]);
    }
    case Op::land: return x[0] && x[1];
    case Op::lor: return x[0] || x[1];
    case Op::lnot: return !x[0];
    case Op::isnan: return vmath::is_nan(x[0]);
    case Op::isfinite: return vmath::is_finite(x[0]);
    case Op::random: return philox(x[0], x[1]);
    case Op::pow:
      if (is_float(n.type)) return power(arena(), n, x);
      return integer_op(n, x);
    case Op::add:
    case Op::sub:
      if (is_float(n.type)) return sum_of_product(n);
      return integer_op(n, x);
    default: break;
  }
  if (n.op == Op::stop_gradient) return x[0];
  if (n.op == Op::div && is_float(n.type)) {
    const Node& divisor = arena()[n.arg(1)];
    // stop_gradient: what decides is divided as written (fusion/plan/settled_bits.h).
    bool known =
        divisor.op == Op::constant || divisor.op == Op::stop_gradient || (is_read(divisor.op) && e.spec.tensors[divisor.symbol].is_size());
    if (!known && divisor.axes_count < n.axes_count) return divide_by_invariant(x[0], x[1]);
  }
  return is_float(n.type) ? float_op(n, x) : integer_op(n, x);
}

// The nodes reachable from root, stopping at those that are precomputed.
std::vector<Id> Walk::needed(Id root) const {
  std::vector<Id> ids = reachable(arena(), root);
  if (e.given.empty()) return ids;
  std::unordered_set<Id> wanted = {root};
  for (size_t i = ids.size(); i-- > 0;)
    if (wanted.contains(ids[i]) && !e.given.contains(ids[i]))
      for (Id x : arena()[ids[i]].args()) wanted.insert(x);
  std::erase_if(ids, [&](Id id) { return !wanted.contains(id); });
  return ids;
}

Expr Walk::value(Id root) {
  for (Id id : needed(root)) {
    if (values.contains(id)) continue;
    if (auto it = e.given.find(id); it != e.given.end()) {
      values[id] = it->second;
      continue;
    }
    if (auto reads = reads_at_one_place(id); !reads.empty()) {
      values[id] = computed_once(id, reads);
      continue;
    }
    // What only indexes a read need not exist as a 64-bit value; make() asks for it when it does.
    values[id] = make(id, arena()[id]);
  }
  return values.at(root);
}

Expr Emitter::value(Id root, const Axes& axes) const { return Walk{*this, axes}.value(root); }

Expr Emitter::identity(Op op, DType type) {
  Halide::Type t = storage_type(type);
  double infinity = std::numeric_limits<double>::infinity();
  switch (op) {
    case Op::sum: return Halide::Internal::make_zero(t);
    case Op::prod: return Halide::Internal::make_one(t);
    case Op::max: return t.is_float() ? number(type, -infinity) : t.min();
    case Op::min: return t.is_float() ? number(type, infinity) : t.max();
    case Op::any: return Halide::Internal::make_zero(t);
    case Op::all: return Halide::Internal::make_one(t);
    default: throw Bug("no identity for " + std::string(info(op).id));
  }
}

Expr Emitter::combine(Op op, Expr a, Expr v) {
  bool real = a.type().is_float();
  switch (op) {
    case Op::sum: return real ? a + v : wrapping(Op::add, a, v);
    case Op::prod: return real ? a * v : wrapping(Op::mul, a, v);
    case Op::max: return real ? vmath::max(a, v) : Halide::max(a, v);
    case Op::min: return real ? vmath::min(a, v) : Halide::min(a, v);
    case Op::any: return a | stored(v);
    case Op::all: return a & stored(v);
    default: throw Bug("no combination for " + std::string(info(op).id));
  }
}

std::vector<Expr> Emitter::steps(const std::vector<const SpecMember*>& group, std::vector<Expr> accumulated, const Axes& axes) const {
  const Arena& a = *spec.arena;
  Walk walk{*this, axes};
  for (size_t i = 0; i < group.size(); ++i) {
    const SpecMember& m = *group[i];
    const Node& body = a[m.body];
    Expr next, chosen;
    if (!is_true(a, m.condition)) {
      chosen = mostly_inside ? walk.value(m.condition) : walk.choice(m.condition);
      if (group.size() == 1) walk.held = conjuncts(*spec.arena, m.condition);  // of the body alone: the condition may be a choice, too
    }
    if (m.op == Op::sum && walk.is_product(m.body) && is_float(body.type)) {
      walk.value(m.body);
      next = vmath::fma(walk.values.at(body.arg(0)), walk.values.at(body.arg(1)), accumulated[i]);
    } else {
      next = combine(m.op, accumulated[i], walk.value(m.body));
    }
    // One choice: of two Halide 21 makes a negation that bounds inference refuses (argument of Not is not a bool).
    if (only.defined()) chosen = chosen.defined() ? only && chosen : only;
    if (chosen.defined()) next = Halide::select(chosen, mostly_inside ? Halide::likely(next) : next, accumulated[i]);
    accumulated[i] = next;
  }
  return accumulated;
}

Expr Emitter::local_index(Id index, Id axis, const Axes& axes) const {
  Walk walk{*this, axes};
  Expr global = walk.index(index);
  auto it = origin.find(axis);
  return it == origin.end() ? global : global - Expr(it->second);
}

}  // namespace xhat::runtime

#include "runtime/emit.h"

#include <cmath>
#include <limits>
#include <unordered_set>

#include "runtime/vector_math.h"

namespace xhat::runtime {

using Halide::Expr;

Halide::Type storage_type(DType t) {
  switch (t) {
    case DType::f64: return Halide::Float(64);
    case DType::f32: return Halide::Float(32);
    case DType::i64: return Halide::Int(64);
    case DType::i32: return Halide::Int(32);
    case DType::u8:
    case DType::boolean: return Halide::UInt(8);
    case DType::f16: return Halide::Float(16);
    case DType::bf16: return Halide::BFloat(16);
    case DType::u32: return Halide::UInt(32);
  }
  throw Bug("unknown dtype");
}

namespace {

Expr boolean(const Expr& stored) { return stored.type().is_bool() ? stored : stored != Halide::cast<uint8_t>(0); }
Expr stored(const Expr& e) { return e.type().is_bool() ? Halide::cast<uint8_t>(e) : e; }

Expr number(DType t, double v) { return Halide::Internal::make_const(storage_type(t), v); }

Expr constant(const Node& n) {
  if (n.type == DType::boolean) return Halide::Internal::make_bool(n.integer != 0);
  if (is_float(n.type)) return number(n.type, n.value);
  return Halide::Internal::make_const(storage_type(n.type), n.integer);
}

// Integers wrap; Halide's signed overflow is undefined, so the work is done unsigned.
Expr wrapping(Op op, const Expr& a, const Expr& b) {
  Halide::Type u = a.type().with_code(halide_type_uint);
  Expr x = Halide::reinterpret(u, a), y = Halide::reinterpret(u, b);
  Expr r = op == Op::add ? x + y : op == Op::sub ? x - y : x * y;
  return Halide::reinterpret(a.type(), r);
}

// Floor division; Halide's rounds so that the remainder is not negative, which differs for negative divisors.
// Both give 0 for a divisor of 0.
Expr floor_div(const Expr& a, const Expr& b) {
  Expr q = a / b;
  if (a.type().is_uint() || Halide::Internal::is_positive_const(b)) return q;
  return Halide::select(b < 0 && a % b != 0, q - 1, q);
}

Expr floor_mod(const Expr& a, const Expr& b) {
  Expr r = a % b;
  if (a.type().is_uint() || Halide::Internal::is_positive_const(b)) return r;
  return Halide::select(b < 0 && r != 0, r + b, r);
}

Expr cast_to(DType t, const Expr& e) {
  if (t == DType::boolean) return e.type().is_bool() ? e : e != Halide::cast(e.type(), 0);
  Halide::Type to = storage_type(t);
  if (e.type() == to) return e;
  if (e.type().is_bool()) return Halide::cast(to, stored(e));
  if (e.type().is_float() && !to.is_float()) {
    // Saturating, NaN to 0 (expr/scalar.h); out of range the conversion itself would be undefined.
    Expr wide = Halide::cast<double>(e);
    double low = to.is_uint() ? 0.0 : -std::ldexp(1.0, to.bits() - 1);
    double high = to.is_uint() ? std::ldexp(1.0, to.bits()) - 1 : std::ldexp(1.0, to.bits() - 1) - 1;
    auto real = [](double v) { return Halide::Internal::make_const(Halide::Float(64), v); };
    double largest = to.bits() == 64 ? std::nextafter(high, 0.0) : high;
    Expr inside = Halide::cast(
        to, Halide::clamp(Halide::select(vmath::is_nan(wide), real(0), wide), real(low), real(largest)));
    if (to.bits() < 64) return inside;
    return Halide::select(wide >= real(high), to.max(), inside);
  }
  // Halide narrows f32 to f16 and bf16 by itself; anything else by way of f32.
  if (to.is_float() && to.bits() == 16) return Halide::cast(to, Halide::cast<float>(e));
  if (e.type().is_float() && e.type().bits() == 16) return Halide::cast(to, Halide::cast<float>(e));
  return Halide::cast(to, e);
}

// Philox4x32-10, word 0: Salmon et al., SC 2011. Counter = i, key = seed.
Expr philox(const Expr& seed, const Expr& i) {
  auto u32 = [](uint32_t v) { return Halide::Internal::make_const(Halide::UInt(32), v); };
  auto u64 = [](uint64_t v) { return Halide::Internal::make_const(Halide::UInt(64), static_cast<int64_t>(v)); };
  auto wide = [](const Expr& e) { return Halide::cast<uint64_t>(e); };
  auto low = [&](const Expr& e) { return Halide::cast<uint32_t>(e & u64(0xffffffff)); };
  auto high = [&](const Expr& e) { return Halide::cast<uint32_t>(e >> u64(32)); };
  Expr s = Halide::reinterpret<uint64_t>(Halide::cast<int64_t>(seed));
  Expr n = Halide::reinterpret<uint64_t>(Halide::cast<int64_t>(i));
  Expr c0 = low(n), c1 = high(n), c2 = u32(0), c3 = u32(0), k0 = low(s), k1 = high(s);
  for (int round = 0; round < 10; ++round) {
    Expr p0 = wide(c0) * u64(0xD2511F53), p1 = wide(c2) * u64(0xCD9E8D57);
    Expr n0 = high(p1) ^ c1 ^ k0, n2 = high(p0) ^ c3 ^ k1;
    c1 = low(p1);
    c3 = low(p0);
    c0 = n0;
    c2 = n2;
    k0 = k0 + u32(0x9E3779B9);
    k1 = k1 + u32(0xBB67AE85);
  }
  return Halide::cast<float>(c0 >> u32(8)) * Expr(0x1p-24f);
}

Expr from_table(Op op, std::vector<Expr> args) {
  const vmath::Row* row = vmath::find_row(std::string(info(op).id).c_str());
  if (!row) throw Bug("no vector math for " + std::string(info(op).id));
  return row->make(args);
}

// Halide refuses to divide by 0, as a mean over nothing does, and by what it finds to be 0 (a count of ties, where there is
// none): so it must not look. LLVM makes nothing of the call.
Expr quotient(const Expr& x, const Expr& divisor) {
  if (Halide::Internal::is_const(divisor) && !Halide::Internal::is_const_zero(divisor)) return x / divisor;
  const char* call = divisor.type().bits() == 32 ? "llvm.copysign.f32" : "llvm.copysign.f64";
  return x / Halide::Internal::Call::make(divisor.type(), call, {divisor, divisor}, Halide::Internal::Call::PureExtern);
}

Expr float_op(const Node& n, const std::vector<Expr>& x) {
  switch (n.op) {
    case Op::neg: return x[0] * Halide::Internal::make_const(x[0].type(), -1);
    case Op::add: return x[0] + x[1];
    case Op::sub: return x[0] - x[1];
    case Op::mul: return x[0] * x[1];
    case Op::div: return quotient(x[0], x[1]);
    case Op::mod: return vmath::mod(x[0], x[1]);
    case Op::maximum: return vmath::max(x[0], x[1]);
    case Op::minimum: return vmath::min(x[0], x[1]);
    case Op::clamp: return vmath::min(vmath::max(x[0], x[1]), x[2]);
    case Op::relu: return vmath::max(x[0], Halide::Internal::make_zero(x[0].type()));
    case Op::stop_gradient: return x[0];
    default: return from_table(n.op, x);
  }
}

Expr integer_op(const Node& n, const std::vector<Expr>& x) {
  Halide::Type t = x[0].type();
  switch (n.op) {
    case Op::neg: return wrapping(Op::sub, Halide::Internal::make_zero(t), x[0]);
    case Op::add:
    case Op::sub:
    case Op::mul: return wrapping(n.op, x[0], x[1]);
    case Op::div: return floor_div(x[0], x[1]);
    case Op::mod: return floor_mod(x[0], x[1]);
    case Op::maximum: return Halide::max(x[0], x[1]);
    case Op::minimum: return Halide::min(x[0], x[1]);
    case Op::clamp: return Halide::min(Halide::max(x[0], x[1]), x[2]);
    case Op::abs: return t.is_uint() ? x[0] : Halide::select(x[0] < 0, wrapping(Op::sub, Halide::Internal::make_zero(t), x[0]), x[0]);
    case Op::sign: return Halide::select(x[0] > 0, Halide::Internal::make_one(t), x[0] == 0, Halide::Internal::make_zero(t), Halide::Internal::make_const(t, -1));
    case Op::relu: return Halide::max(x[0], Halide::Internal::make_zero(t));
    case Op::stop_gradient: return x[0];
    case Op::pow: {
      // Exponents are not negative (elaborate sees to constants); by squaring, as the evaluator does.
      Expr result = Halide::Internal::make_one(t), base = x[0], e = x[1];
      for (int bit = 0; bit < 63; ++bit) {
        if (auto c = Halide::Internal::as_const_int(e); c && (*c >> bit) == 0) break;
        result = Halide::select(((e >> bit) & 1) == 1, wrapping(Op::mul, result, base), result);
        base = wrapping(Op::mul, base, base);
        if (!Halide::Internal::is_const(e) && bit >= 31) break;
      }
      return result;
    }
    default: throw Bug("no integer code for " + std::string(info(n.op).id));
  }
}

// Signed integers are compared for equality as unsigned: Halide solves 2*k == 2*k + r + 1 for k by dividing by 2 - 2 and gets
// k == 0 (v21: Solve.cpp, visit_cmp, for == and != of signed integers only).
Expr unsolvable(const Expr& e) { return e.type().is_int() ? Halide::reinterpret(e.type().with_code(halide_type_uint), e) : e; }

Expr compare(Op op, const Expr& a, const Expr& b) {
  switch (op) {
    case Op::eq: return unsolvable(a) == unsolvable(b);
    case Op::ne: return unsolvable(a) != unsolvable(b);
    case Op::lt: return a < b;
    case Op::le: return a <= b;
    default: throw Bug("not a comparison");
  }
}

// x^2, x^0.5 and the like by what they are; the general one costs a log and an exp.
Expr power(const Arena& a, const Node& n, const std::vector<Expr>& x) {
  const Node& e = a[n.arg(1)];
  if (e.op == Op::constant && is_float(e.type)) {
    double v = e.value;
    if (v == 0.5) return vmath::sqrt(x[0]);
    double magnitude = std::abs(v);
    if (magnitude == std::floor(magnitude) && magnitude <= 64) {
      Expr result = Halide::Internal::make_one(x[0].type()), base = x[0];
      bool first = true;
      for (auto k = static_cast<int>(magnitude); k; k >>= 1) {
        if (k & 1) {
          result = first ? base : result * base;
          first = false;
        }
        base = base * base;
      }
      if (magnitude == 0) return Halide::select(vmath::is_nan(x[0]), x[0], result);
      return v < 0 ? Halide::Internal::make_one(x[0].type()) / result : result;
    }
  }
  // C's pow gives 1 for pow(nan, 0) and pow(1, nan); in the language NaN goes through every operation.
  Expr nan = vmath::is_nan(x[0]) || vmath::is_nan(x[1]);
  return Halide::select(nan, x[0] + x[1], from_table(Op::pow, x));
}

// x / s for an s that fewer axes determine than x: times its reciprocal, which leaves the inner loop (a vector division
// takes ten times as long as a product). Scaled, so that 1/s neither overflows nor loses bits; zeros, infinities and NaN
// come out as from the division; otherwise within 1.5 ulp of it. Chosen by the expression alone, so that a value has the
// same bits in every kernel.
Expr divide_by_invariant(const Expr& x, const Expr& s) {
  auto number = [&](double v) { return Halide::Internal::make_const(s.type(), v); };
  bool wide = s.type().bits() == 64;
  double near = wide ? 0x1p-900 : 0x1p-96, far = wide ? 0x1p900 : 0x1p96, step = wide ? 0x1p200 : 0x1p32;
  Expr size = vmath::abs(s);
  Expr scale = Halide::select(size < number(near), number(step), size > number(far), number(1 / step), number(1));
  return x * quotient(number(1), s * scale) * scale;
}

// Halide takes loads of a pipeline's own output for aligned to the vector, whatever the caller's buffer is (v21:
// CodeGen_LLVM::codegen_vector_load knows the buffers of inputs only). So it must not see that the index is a multiple of
// anything: plus a zero that only LLVM folds.
Expr of_unknown_alignment(const Expr& index) {
  Expr zero = Halide::Internal::Call::make(Halide::Int(32), "llvm.bitreverse.i32", {Expr(0)}, Halide::Internal::Call::PureExtern);
  return Halide::unsafe_promise_clamped(index + zero, index, index);
}

// A temporary of a narrow type is kept in f32.
Expr of_type(Halide::Type t, const Expr& e) { return e.type() == t ? e : Halide::cast(t, e); }

struct Walk {
  const Emitter& e;
  const Emitter::Axes& axes;
  std::unordered_map<Id, Expr> values = {};   // of the node's own type
  std::unordered_map<Id, Expr> indices = {};  // integers as int32, for indexing

  const Arena& arena() const { return *e.spec.arena; }

  Expr axis(Id id) const {
    Expr local = axes.at(id);
    auto it = e.origin.find(id);
    return it == e.origin.end() ? local : Expr(it->second) + local;
  }

  // Integer expressions that index or compare positions: 32 bits are enough when their interval fits.
  bool fits_index(Id id) const {
    auto [low, high] = e.spec.interval(id);
    return low > std::numeric_limits<int32_t>::min() && high < std::numeric_limits<int32_t>::max();
  }

  // Indices are 32-bit while they and all that they are made of fit; else computed in their own width, then clamped.
  // Clamped to what they can be: Halide adds up bounds and stops at an overflow.
  Expr index(Id root) {
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
        case Op::add: r = x(0) + x(1); break;
        case Op::sub: r = x(0) - x(1); break;
        case Op::neg: r = -x(0); break;
        case Op::mul: r = x(0) * x(1); break;
        case Op::div: r = floor_div(x(0), x(1)); break;
        case Op::mod: r = floor_mod(x(0), x(1)); break;
        case Op::minimum: r = Halide::min(x(0), x(1)); break;
        case Op::maximum: r = Halide::max(x(0), x(1)); break;
        case Op::clamp: r = Halide::min(Halide::max(x(0), x(1)), x(2)); break;
        case Op::select: r = Halide::select(value(n.arg(0)), x(1), x(2)); break;
        default: r = narrowed(id); break;
      }
      indices[id] = r;
    }
    return indices.at(root);
  }

  Expr narrowed(Id id) {
    auto [low, high] = e.spec.interval(id);
    Expr wide = Halide::cast<int64_t>(stored(value(id)));
    auto bound = [](int64_t v) { return Expr(static_cast<int32_t>(std::clamp<int64_t>(v, INT32_MIN, INT32_MAX))); };
    return Halide::cast<int32_t>(Halide::clamp(wide, Halide::cast<int64_t>(bound(low)), Halide::cast<int64_t>(bound(high))));
  }

  Expr read(const Node& n) {
    const SpecTensor& t = e.spec.tensors[n.symbol];
    auto ids = read_indices(n);
    auto made = e.made.find(n.symbol);
    if (made == e.made.end() && e.padding && worth_padding(n)) return padded(n);
    std::vector<Expr> args;
    std::vector<bool> within;
    for (size_t i = ids.size(); i-- > 0;) {
      const SpecAxis* shared = nullptr;
      if (made != e.made.end()) {
        auto it = e.spec.axes.find(e.left_axes.at(n.symbol)[i]);
        if (it->second.kind() != AxisKind::whole) shared = &it->second;
      }
      if (shared) {
        // Made in this tile: the planner saw to it that the index is the axis itself.
        if (shared->kind() == AxisKind::part) {
          args.push_back(axes.at(ids[i]));
          within.push_back(true);
        }
        continue;
      }
      args.push_back(index(ids[i]));
      within.push_back(is_within(ids[i], t.shape[i]));
    }
    Expr inside = clamp_to(args, within, [&](size_t d) {
      return made == e.made.end() ? e.inputs[n.symbol].dim(static_cast<int>(d)).extent()
                                  : Expr(static_cast<int32_t>(t.shape[t.shape.size() - 1 - d]));
    });
    if (t.use == SpecTensor::Use::result && !args.empty()) args[0] = of_unknown_alignment(args[0]);
    Expr loaded = made == e.made.end() ? Expr(e.inputs[n.symbol](args)) : Expr(made->second(args));
    if (t.type == DType::boolean) loaded = boolean(loaded);
    if (n.op == Op::read_or && inside.defined()) loaded = chosen(inside, loaded, value(n.args().back()));
    return loaded;
  }

  bool is_within(Id index, int64_t extent) const {
    auto [low, high] = e.spec.interval(index);
    return low >= 0 && high < extent;
  }

  // Clamps what is not within; where all of it is (undefined: everywhere).
  template <class Extent>
  Expr clamp_to(std::vector<Expr>& args, const std::vector<bool>& within, Extent&& extent_of) const {
    Expr inside;
    for (size_t d = 0; d < args.size(); ++d) {
      if (within[d]) continue;
      Expr at = args[d], extent = extent_of(d), ok = at >= 0 && at < extent;
      inside = inside.defined() ? inside && ok : ok;
      args[d] = Halide::clamp(e.mostly_inside ? Halide::likely(at) : at, 0, Halide::max(extent - 1, 0));
    }
    return inside;
  }

  Expr chosen(const Expr& inside, const Expr& loaded, const Expr& otherwise) const {
    return Halide::select(inside, e.mostly_inside ? Halide::likely(loaded) : loaded, of_type(loaded.type(), otherwise));
  }

  // Some of it outside, at places that axes alone tell and that lie as densely as they are read.
  bool worth_padding(const Node& n) const {
    const SpecTensor& t = e.spec.tensors[n.symbol];
    bool outside = false;
    double copied = 1, read = 1;
    std::vector<Id> ids(read_indices(n).begin(), read_indices(n).end());
    for (size_t i = 0; i < ids.size(); ++i) {
      outside |= !is_within(ids[i], t.shape[i]);
      for (Id id : reachable(arena(), ids[i]))
        if (is_read(arena()[id].op)) return false;
      auto [low, high] = e.spec.interval(ids[i]);
      std::vector<Id> axes_in(arena()[ids[i]].free_axes().begin(), arena()[ids[i]].free_axes().end());
      double points = 1, whole = 1;
      for (Id x : axes_in) {
        points *= static_cast<double>(e.spec.axes.at(x).in_tile());
        whole *= static_cast<double>(e.spec.axes.at(x).in_tile()) / static_cast<double>(std::max<int64_t>(1, e.spec.axes.at(x).extent));
      }
      copied *= std::max(1.0, static_cast<double>(high - low + 1) * whole);
      read *= points;
    }
    bool known = n.op == Op::read || arena()[n.args().back()].op == Op::constant;
    return outside && known && copied <= 2 * read;
  }

  Expr padded(const Node& n) {
    std::vector<Id> ids(read_indices(n).begin(), read_indices(n).end());
    Id otherwise = n.op == Op::read_or ? n.args().back() : kNone;
    Halide::Func& f = e.padding->funcs[{n.symbol, otherwise}];
    if (!f.defined()) {
      Emitter inside_out = e;
      inside_out.padding = nullptr;
      inside_out.mostly_inside = true;
      Walk walk{inside_out, axes};
      std::vector<Halide::Var> vars;
      for (size_t d = 0; d < ids.size(); ++d) vars.emplace_back("p" + std::to_string(d));
      std::vector<Expr> args(vars.begin(), vars.end());
      Halide::ImageParam image = e.inputs[n.symbol];
      Expr inside = walk.clamp_to(args, std::vector<bool>(args.size(), false),
                                  [&](size_t d) { return image.dim(static_cast<int>(d)).extent(); });
      Expr loaded = image(args);
      if (e.spec.tensors[n.symbol].type == DType::boolean) loaded = boolean(loaded);
      if (otherwise != kNone) loaded = walk.chosen(inside, loaded, walk.value(otherwise));
      f = Halide::Func("xh_pad" + std::to_string(n.symbol) + "_" + std::to_string(e.padding->funcs.size()));
      f(vars) = loaded;
    }
    std::vector<Expr> args;
    for (size_t i = ids.size(); i-- > 0;) args.push_back(index(ids[i]));
    return f(args);
  }

  Expr sum_of_product(const Node& n) {
    // The product may stand on either side; if on both, the left one is rounded inside the fma.
    const Node& l = arena()[n.arg(0)];
    const Node& r = arena()[n.arg(1)];
    Expr minus = Halide::Internal::make_const(storage_type(n.type), -1);
    if (l.op == Op::mul) {
      Expr c = values.at(n.arg(1));
      return vmath::fma(values.at(l.arg(0)), values.at(l.arg(1)), n.op == Op::sub ? c * minus : c);
    }
    if (r.op == Op::mul) {
      Expr a = values.at(r.arg(0));
      return vmath::fma(n.op == Op::sub ? a * minus : a, values.at(r.arg(1)), values.at(n.arg(0)));
    }
    return float_op(n, {values.at(n.arg(0)), values.at(n.arg(1))});
  }

  Expr make(Id id, const Node& n) {
    std::vector<Expr> x;
    if (!is_read(n.op))
      for (Id arg : n.args()) x.push_back(values.at(arg));
    switch (n.op) {
      case Op::constant: return constant(n);
      case Op::axis: return Halide::cast<int64_t>(axis(id));
      case Op::read:
      case Op::read_or: return read(n);
      case Op::select: return Halide::select(x[0], x[1], x[2]);
      case Op::cast: return cast_to(n.type, x[0]);
      case Op::eq:
      case Op::ne:
      case Op::lt:
      case Op::le: {
        DType t = arena()[n.arg(0)].type;
        if (t == DType::boolean) return n.op == Op::eq ? x[0] == x[1] : compare(n.op, stored(x[0]), stored(x[1]));
        if (t == DType::i64 && fits_index(n.arg(0)) && fits_index(n.arg(1)))
          return compare(n.op, index(n.arg(0)), index(n.arg(1)));
        return compare(n.op, x[0], x[1]);
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
      if (divisor.op != Op::constant && divisor.axes_count < n.axes_count) return divide_by_invariant(x[0], x[1]);
    }
    return is_float(n.type) ? float_op(n, x) : integer_op(n, x);
  }

  // root and what it is made of, but for what is given.
  std::vector<Id> needed(Id root) const {
    std::vector<Id> ids = reachable(arena(), root);
    if (e.given.empty()) return ids;
    std::unordered_set<Id> wanted = {root};
    for (size_t i = ids.size(); i-- > 0;)
      if (wanted.contains(ids[i]) && !e.given.contains(ids[i]))
        for (Id x : arena()[ids[i]].args()) wanted.insert(x);
    std::erase_if(ids, [&](Id id) { return !wanted.contains(id); });
    return ids;
  }

  Expr value(Id root) {
    for (Id id : needed(root)) {
      if (values.contains(id)) continue;
      if (auto it = e.given.find(id); it != e.given.end()) {
        values[id] = it->second;
        continue;
      }
      // What only indexes a read need not exist as a 64-bit value; make() asks for it when it does.
      values[id] = make(id, arena()[id]);
    }
    return values.at(root);
  }
};

}  // namespace

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

std::vector<Expr> Emitter::steps(const std::vector<const SpecMember*>& group, std::vector<Expr> accumulated,
                                 const Axes& axes) const {
  const Arena& a = *spec.arena;
  Walk walk{*this, axes};
  for (size_t i = 0; i < group.size(); ++i) {
    const SpecMember& m = *group[i];
    const Node& body = a[m.body];
    Expr next;
    if (m.op == Op::sum && body.op == Op::mul && is_float(body.type)) {
      walk.value(m.body);
      next = vmath::fma(walk.values.at(body.arg(0)), walk.values.at(body.arg(1)), accumulated[i]);
    } else {
      next = combine(m.op, accumulated[i], walk.value(m.body));
    }
    if (!is_true(a, m.condition))
      next = Halide::select(walk.value(m.condition), mostly_inside ? Halide::likely(next) : next, accumulated[i]);
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

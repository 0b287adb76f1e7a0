#include "runtime/emit/emit_ops.h"

#include <cmath>
#include <limits>
#include <map>

#include "runtime/emit/emit.h"
#include "runtime/emit/vector_math.h"
#include "runtime/host/element_type.h"

namespace xhat::runtime {

using Halide::Expr;

Halide::Type storage_type(DType t) { return element_type(t); }

namespace ops {

Expr boolean(const Expr& stored) { return stored.type().is_bool() ? stored : stored != Halide::cast<uint8_t>(0); }
Expr stored(const Expr& e) { return e.type().is_bool() ? Halide::cast<uint8_t>(e) : e; }

Expr element(const Halide::ImageParam& input, const std::vector<Expr>& place) {
  return Halide::Internal::Call::make(input.parameter(), place);
}

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

// An f64 as an f32 that rounds to f16 and bf16 as the f64 itself does: digits that are lost leave their trace in the last bit (rounding to
// odd). It works on bits, because LLVM would make one conversion of two: from f64 to f16 at once, for which neither processors have an
// instruction nor Halide's runtime a function.
static Expr narrowed_to_odd(const Expr& e) {
  using Halide::Internal::make_const;
  const Expr below = make_const(Halide::UInt(64), 0x1fffffff);  // the 29 digits that an f32 has not
  Expr bits = Halide::reinterpret<uint64_t>(e);
  Expr kept = Halide::reinterpret<uint32_t>(Halide::cast<float>(Halide::reinterpret<double>(bits & ~below)));
  Expr finite = (kept & make_const(Halide::UInt(32), 0x7fffffff)) < make_const(Halide::UInt(32), 0x7f800000);
  Expr trace = Halide::select((bits & below) != 0 && finite, make_const(Halide::UInt(32), 1), make_const(Halide::UInt(32), 0));
  return Halide::reinterpret<float>(Halide::select(vmath::is_nan(e), make_const(Halide::UInt(32), 0x7fc00000), kept | trace));
}

Expr cast_to(DType t, const Expr& e) {
  if (t == DType::boolean) return e.type().is_bool() ? e : e != Halide::cast(e.type(), 0);
  Halide::Type to = storage_type(t);
  if (e.type() == to) return e;
  if (e.type().is_bool()) return Halide::cast(to, stored(e));
  if (e.type().is_float() && !to.is_float()) {
    // Saturating, NaN to 0 (expr/core/scalar.h); out of range the conversion itself would be undefined. The choice comes last: of a cast of the
    // cast (unsigned, where integers wrap) Halide's simplifier makes one, from the float to unsigned bits, which no negative number has.
    double low = to.is_uint() ? 0.0 : -std::ldexp(1.0, to.bits() - 1);
    double high = to.is_uint() ? std::ldexp(1.0, to.bits()) - 1 : std::ldexp(1.0, to.bits() - 1) - 1;
    auto real = [](double v) { return Halide::Internal::make_const(Halide::Float(64), v); };
    const Expr wide = Halide::cast<double>(e);
    const double largest = to.bits() == 64 ? std::nextafter(high, 0.0) : high;
    Expr inside = Halide::cast(to, Halide::clamp(wide, real(low), real(largest)));
    if (to.bits() == 64) inside = Halide::select(wide >= real(high), to.max(), inside);
    return Halide::select(vmath::is_nan(wide), Halide::Internal::make_zero(to), inside);
  }
  // Halide narrows f32 to f16 and bf16 by itself; anything else by way of f32.
  if (to.is_float() && to.bits() == 16) {
    if (e.type() == Halide::Float(64)) return Halide::cast(to, narrowed_to_odd(e));
    const bool exact = e.type().bits() <= 16 || !to.is_bfloat();  // integers that f16 holds are exact in f32
    return Halide::cast(to, e.type().is_float() || exact ? Halide::cast<float>(e) : narrowed_to_odd(Halide::cast<double>(e)));
  }
  if (e.type().is_float() && e.type().bits() == 16) return Halide::cast(to, Halide::cast<float>(e));
  // An index may be made of it. Halide's bounds know nothing of 32 unsigned bits, and its simplifier takes away the clamp to 0 that
  // would bound them: it knows that they are not negative. This it does not see through.
  if (e.type() == Halide::UInt(32) && to == Halide::Int(64))
    return Halide::cast(to, Halide::reinterpret<int32_t>(e)) & Halide::Internal::make_const(to, 0xffffffff);
  return Halide::cast(to, e);
}

namespace {

// The bits of numbers of 16-bit floating type that were widened to f32. Each node is looked at once: of a minimum that is written out, the
// later term has the one before in it at several places.
struct NarrowBits {
  Halide::Type to;
  std::map<Expr, Expr, Halide::ExprCompare> known;

  // Undefined if e may be another number.
  Expr of(const Expr& e) {
    auto [at, is_new] = known.try_emplace(e);
    if (is_new) at->second = make(e);
    return at->second;
  }

  Expr make(const Expr& e) {
    using namespace Halide::Internal;
    Halide::Type bits = to.with_code(halide_type_uint);
    if (const Cast* c = e.as<Cast>(); c && c->value.type() == to) return Halide::reinterpret(bits, c->value);
    if (const FloatImm* f = e.as<FloatImm>())
      return make_const(bits, to.is_bfloat() ? Halide::bfloat16_t(f->value).to_bits() : Halide::float16_t(f->value).to_bits());
    const Select* s = e.as<Select>();
    if (!s) return {};
    Expr then = of(s->true_value), otherwise = of(s->false_value);
    return then.defined() && otherwise.defined() ? Halide::select(s->condition, then, otherwise) : Expr();
  }
};

}  // namespace

Expr as_stored(Halide::Type to, const Expr& e) {
  if (e.type() == to) return e;
  if (e.as<Halide::Internal::Select>() && to.is_float() && to.bits() == 16)
    if (Expr bits = NarrowBits{to, {}}.of(e); bits.defined()) return Halide::reinterpret(to, bits);
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

static Expr from_table(Op op, std::vector<Expr> args) {
  const vmath::Row* row = vmath::find_row(std::string(info(op).id).c_str());
  if (!row) throw Bug("no vector math for " + std::string(info(op).id));
  return vmath::call_of(*row, args);
}

Expr float_op(const Node& n, const std::vector<Expr>& x) {
  switch (n.op) {
    case Op::neg: return x[0] * Halide::Internal::make_const(x[0].type(), -1);
    case Op::add: return x[0] + x[1];
    case Op::sub: return x[0] - x[1];
    case Op::mul: return x[0] * x[1];
    case Op::div: return vmath::quotient(x[0], x[1]);
    case Op::mod: return vmath::mod(x[0], x[1]);
    case Op::maximum: return vmath::max(x[0], x[1]);
    case Op::minimum: return vmath::min(x[0], x[1]);
    case Op::clamp: return vmath::min(vmath::max(x[0], x[1]), x[2]);
    case Op::relu: return vmath::max(x[0], Halide::Internal::make_zero(x[0].type()));
    case Op::stop_gradient: return x[0];
    default: return from_table(n.op, x);
  }
}

// A count below 0 or not below the width shifts everything out.
static Expr shifted(bool left, const Expr& a, const Expr& count) {
  const Halide::Type unsigned_type = a.type().with_code(halide_type_uint);
  const Expr width = Halide::Internal::make_const(unsigned_type, a.type().bits()), by = Halide::reinterpret(unsigned_type, count);
  const Expr inside = by < width, last = width - Halide::Internal::make_one(unsigned_type), places = Halide::min(by, last);
  if (!left && a.type().is_int()) return a >> places;  // of a negative number the sign fills
  const Expr bits = Halide::reinterpret(unsigned_type, a), moved = left ? bits << places : bits >> places;
  return Halide::reinterpret(a.type(), Halide::select(inside, moved, Halide::Internal::make_zero(unsigned_type)));
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
    case Op::sign:
      return Halide::select(x[0] > 0, Halide::Internal::make_one(t), x[0] == 0, Halide::Internal::make_zero(t),
                            Halide::Internal::make_const(t, -1));
    case Op::relu: return Halide::max(x[0], Halide::Internal::make_zero(t));
    case Op::stop_gradient: return x[0];
    case Op::bit_and: return x[0] & x[1];
    case Op::bit_or: return x[0] | x[1];
    case Op::bit_xor: return x[0] ^ x[1];
    case Op::bit_not: return ~x[0];
    case Op::shift_left:
    case Op::shift_right: return shifted(n.op == Op::shift_left, x[0], x[1]);
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
static Expr unsolvable(const Expr& e) { return e.type().is_int() ? Halide::reinterpret(e.type().with_code(halide_type_uint), e) : e; }

Expr compare(Op op, const Expr& a, const Expr& b) {
  switch (op) {
    case Op::eq: return unsolvable(a) == unsolvable(b);
    case Op::ne: return unsolvable(a) != unsolvable(b);
    case Op::lt: return a < b;
    case Op::le: return a <= b;
    default: throw Bug("not a comparison");
  }
}

static Expr whole_power_of(const Expr& x, int k) {
  Expr result, base = x;
  for (; k; k >>= 1) {
    if (k & 1) result = result.defined() ? result * base : base;
    base = base * base;
  }
  return result.defined() ? result : Halide::Internal::make_one(x.type());
}

// x^(quarters/4) by square roots, within 4 ulp. A reciprocal is taken of each part, as x^1.5 may be subnormal where x^-1.5 is not. abs: zeros
// and infinities have no sign, as in C.
static Expr root_power(const Expr& x, int quarters) {
  const Expr infinity = Halide::Internal::make_const(x.type(), std::numeric_limits<double>::infinity());
  const Expr base = Halide::select(x == -infinity, infinity, x);  // whose powers C takes for those of infinity
  const int whole = std::abs(quarters) / 4, rest = std::abs(quarters) % 4;
  const Expr half = vmath::sqrt(base);
  Expr root = rest == 2 ? half : vmath::sqrt(half);
  if (rest == 3) root = half * root;
  Expr one = Halide::Internal::make_one(x.type()), power = base;
  if (quarters < 0) {
    root = vmath::quotient(one, root);
    power = vmath::quotient(one, base);
  }
  return vmath::abs(whole ? root * whole_power_of(power, whole) : root);
}

// x^2, x^-1.5 and the like by products and roots; the general one costs a log and an exp.
Expr power(const Arena& a, const Node& n, const std::vector<Expr>& x) {
  if (auto quarters = quarter_power(a, n)) return root_power(x[0], *quarters);
  if (auto whole = whole_power(a, n)) {
    const Expr result = whole_power_of(x[0], std::abs(*whole));
    if (*whole == 0) return Halide::select(vmath::is_nan(x[0]), x[0], result);
    return *whole < 0 ? vmath::quotient(Halide::Internal::make_one(x[0].type()), result) : result;
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
  Expr scale = Halide::select(size<number(near), number(step), size> number(far), number(1 / step), number(1));
  return x * vmath::quotient(number(1), s * scale) * scale;
}

}  // namespace ops
}  // namespace xhat::runtime

#include "runtime/explain/c_operations.h"

#include "expr/core/error.h"

namespace xhat {
namespace {

const COperation kOperations[] = {
    {Op::neg, "-{0}", "wrap_sub<{T}>(0, {0})", kUnary},
    {Op::lnot, "!{0}", nullptr, kUnary},
    {Op::add, "{0} + {1}", "wrap_add<{T}>({0}, {1})", kSum},
    {Op::sub, "{0} - {1}", "wrap_sub<{T}>({0}, {1})", kSum},
    {Op::mul, "{0} * {1}", "wrap_mul<{T}>({0}, {1})", kProduct},
    {Op::div, "{0} / {1}", "floor_div<{T}>({0}, {1})", kProduct},
    {Op::mod, "real_mod<{T}>({0}, {1})", "floor_mod<{T}>({0}, {1})"},
    {Op::pow, "real_power<{T}>({0}, {1})", "integer_power<{T}>({0}, {1})"},
    {Op::eq, "{0} == {1}", nullptr, kEqual},
    {Op::ne, "{0} != {1}", nullptr, kEqual},
    {Op::lt, "{0} < {1}", nullptr, kLess},
    {Op::le, "{0} <= {1}", nullptr, kLess},
    {Op::land, "{0} && {1}", nullptr, kAnd},
    {Op::lor, "{0} || {1}", nullptr, kOr},
    {Op::minimum, "minimum<{T}>({0}, {1})", nullptr},
    {Op::maximum, "maximum<{T}>({0}, {1})", nullptr},
    {Op::clamp, "clamped<{T}>({0}, {1}, {2})", nullptr},
    {Op::exp, "std::exp({0})", nullptr},
    {Op::log, "std::log({0})", nullptr},
    {Op::log1p, "std::log1p({0})", nullptr},
    {Op::expm1, "std::expm1({0})", nullptr},
    {Op::sqrt, "std::sqrt({0})", nullptr},
    {Op::rsqrt, "1 / std::sqrt({0})", nullptr, kProduct},
    {Op::sin, "std::sin({0})", nullptr},
    {Op::cos, "std::cos({0})", nullptr},
    {Op::tan, "std::tan({0})", nullptr},
    {Op::tanh, "std::tanh({0})", nullptr},
    {Op::sigmoid, "sigmoid<{T}>({0})", nullptr},
    {Op::erf, "std::erf({0})", nullptr},
    {Op::abs, "std::fabs({0})", "magnitude<{T}>({0})"},
    {Op::sign, "sign_of<{T}>({0})", nullptr},
    {Op::floor, "std::floor({0})", nullptr},
    {Op::ceil, "std::ceil({0})", nullptr},
    {Op::round, "std::nearbyint({0})", nullptr},
    {Op::relu, "rectified<{T}>({0})", nullptr},
    {Op::softplus, "softplus<{T}>({0})", nullptr},
    {Op::isnan, "std::isnan({0})", nullptr},
    {Op::isfinite, "std::isfinite({0})", nullptr},
    {Op::exp2, "std::exp2({0})", nullptr},
    {Op::log2, "std::log2({0})", nullptr},
    {Op::log10, "std::log10({0})", nullptr},
    {Op::sinh, "std::sinh({0})", nullptr},
    {Op::cosh, "std::cosh({0})", nullptr},
    {Op::asin, "std::asin({0})", nullptr},
    {Op::acos, "std::acos({0})", nullptr},
    {Op::atan, "std::atan({0})", nullptr},
    {Op::asinh, "std::asinh({0})", nullptr},
    {Op::acosh, "std::acosh({0})", nullptr},
    {Op::atanh, "std::atanh({0})", nullptr},
    {Op::cbrt, "std::cbrt({0})", nullptr},
    {Op::erfc, "std::erfc({0})", nullptr},
    {Op::lgamma, "std::lgamma({0})", nullptr},
    {Op::trunc, "std::trunc({0})", nullptr},
    {Op::atan2, "std::atan2({0}, {1})", nullptr},
    {Op::hypot, "std::hypot({0}, {1})", nullptr},
    {Op::fmod, "std::fmod({0}, {1})", nullptr},
    {Op::remainder, "std::remainder({0}, {1})", nullptr},
    {Op::copysign, "std::copysign({0}, {1})", nullptr},
    {Op::erfinv, "{T}(erfinv({0}))", nullptr},
    {Op::digamma, "{T}(digamma({0}))", nullptr},
    {Op::sinc, "{T}(sinc({0}))", nullptr},
    {Op::polygamma, "{T}(polygamma({0}, {1}))", nullptr},
    {Op::logaddexp, "{T}(logaddexp({0}, {1}))", nullptr},
    {Op::i0e, "{T}(scaled_bessel(0, {0}))", nullptr},
    {Op::i1e, "{T}(scaled_bessel(1, {0}))", nullptr},
    {Op::bit_and, "{0} & {1}", nullptr, kBitAnd},
    {Op::bit_or, "{0} | {1}", nullptr, kBitOr},
    {Op::bit_xor, "{0} ^ {1}", nullptr, kBitXor},
    {Op::bit_not, "{T}(~{0})", nullptr},
    {Op::shift_left, "shift_left<{T}>({0}, {1})", nullptr},
    {Op::shift_right, "shift_right<{T}>({0}, {1})", nullptr},
    {Op::random, "random_at({0}, {1})", nullptr},
};

}  // namespace

const COperation& c_operation(Op op) {
  for (const COperation& r : kOperations)
    if (r.op == op) return r;
  throw Bug("c_expression: no row for op " + std::string(info(op).id));
}

}  // namespace xhat

// Every row of ops.def against std:: or a stated value, and the special values of LANGUAGE.md.
#include "expr/core/scalar.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace xhat::scalar_test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double real(Op op, double a, double b = 0, double c = 0) {
  const double x[3] = {a, b, c};
  return scalar(op).reals.at(x);
}
int64_t integer(Op op, int64_t a, int64_t b = 0, int64_t c = 0) {
  const int64_t x[3] = {a, b, c};
  return scalar(op).integers.at(x);
}
bool test(Op op, double a, double b = 0) {
  const double x[2] = {a, b};
  return scalar(op).tests.at(x) != 0;
}

struct RealRow {
  Op op;
  double a, b, c, result;
};
bool same(double x, double y) { return (std::isnan(x) && std::isnan(y)) || x == y; }

TEST(Scalar, RealFunctions) {
  const RealRow rows[] = {
      {Op::neg, 2.5, 0, 0, -2.5},
      {Op::add, 0.1, 0.2, 0, 0.1 + 0.2},
      {Op::sub, 0.1, 0.2, 0, 0.1 - 0.2},
      {Op::mul, 0.1, 0.2, 0, 0.1 * 0.2},
      {Op::div, 1, 3, 0, 1.0 / 3},
      {Op::mod, 5.5, 2, 0, 1.5},
      {Op::mod, -5.5, 2, 0, 0.5},
      {Op::mod, 5.5, -2, 0, -0.5},
      {Op::pow, 2, 0.5, 0, std::sqrt(2.0)},
      {Op::pow, 3, 2, 0, 9},
      {Op::pow, -2, -3, 0, -0.125},
      {Op::minimum, 1, 2, 0, 1},
      {Op::maximum, 1, 2, 0, 2},
      {Op::clamp, 5, -1, 1, 1},
      {Op::clamp, -5, -1, 1, -1},
      {Op::clamp, 0.5, -1, 1, 0.5},
      {Op::exp, 1.5, 0, 0, std::exp(1.5)},
      {Op::log, 1.5, 0, 0, std::log(1.5)},
      {Op::log1p, 1e-20, 0, 0, 1e-20},
      {Op::expm1, 1e-20, 0, 0, 1e-20},
      {Op::sqrt, 2, 0, 0, std::sqrt(2.0)},
      {Op::rsqrt, 4, 0, 0, 0.5},
      {Op::sin, 1, 0, 0, std::sin(1.0)},
      {Op::cos, 1, 0, 0, std::cos(1.0)},
      {Op::tan, 1, 0, 0, std::tan(1.0)},
      {Op::tanh, 1, 0, 0, std::tanh(1.0)},
      {Op::sigmoid, 0, 0, 0, 0.5},
      {Op::erf, 0.5, 0, 0, std::erf(0.5)},
      {Op::abs, -2.5, 0, 0, 2.5},
      {Op::sign, -2.5, 0, 0, -1},
      {Op::sign, 0, 0, 0, 0},
      {Op::sign, 7, 0, 0, 1},
      {Op::floor, -1.5, 0, 0, -2},
      {Op::ceil, -1.5, 0, 0, -1},
      {Op::round, 0.5, 0, 0, 0},  // half to even
      {Op::round, 1.5, 0, 0, 2},
      {Op::round, 2.5, 0, 0, 2},
      {Op::round, -2.6, 0, 0, -3},
      {Op::relu, -1, 0, 0, 0},
      {Op::relu, 3, 0, 0, 3},
      {Op::softplus, 0, 0, 0, std::log(2.0)},
      {Op::exp2, 10, 0, 0, 1024},
      {Op::log2, 8, 0, 0, 3},
      {Op::log10, 1000, 0, 0, 3},
      {Op::sinh, 0.5, 0, 0, std::sinh(0.5)},
      {Op::cosh, 0.5, 0, 0, std::cosh(0.5)},
      {Op::asin, 0.5, 0, 0, std::asin(0.5)},
      {Op::acos, 0.5, 0, 0, std::acos(0.5)},
      {Op::atan, 2, 0, 0, std::atan(2.0)},
      {Op::atan2, 1, -1, 0, std::atan2(1.0, -1.0)},
      {Op::asinh, 2, 0, 0, std::asinh(2.0)},
      {Op::acosh, 2, 0, 0, std::acosh(2.0)},
      {Op::atanh, 0.5, 0, 0, std::atanh(0.5)},
      {Op::hypot, 3, -4, 0, 5},
      {Op::cbrt, -27, 0, 0, -3},
      {Op::erfc, 2, 0, 0, std::erfc(2.0)},
      {Op::erfinv, std::erf(0.75), 0, 0, 0.75},
      {Op::lgamma, 5, 0, 0, std::log(24.0)},
      {Op::digamma, 1, 0, 0, -0.57721566490153286},
      {Op::polygamma, 1, 1, 0, 1.6449340668482264},
      {Op::polygamma, 0, 1, 0, -0.57721566490153286},
      {Op::i0e, 1, 0, 0, 0.46575960759364043},
      {Op::i1e, -1, 0, 0, -0.20791041534970844},
      {Op::sinc, 0.5, 0, 0, 0.63661977236758134},
      {Op::sinc, 3, 0, 0, 0},
      {Op::logaddexp, 2, 2, 0, 2 + std::log(2.0)},
      {Op::fmod, -5.5, 2, 0, -1.5},
      {Op::remainder, 5.5, 2, 0, -0.5},
      {Op::copysign, 3, -0.0, 0, -3},
      {Op::trunc, -2.7, 0, 0, -2},
      {Op::stop_gradient, 3, 0, 0, 3},
  };
  for (const RealRow& r : rows)
    EXPECT_DOUBLE_EQ(real(r.op, r.a, r.b, r.c), r.result)
        << info(r.op).id << "(" << r.a << ", " << r.b << ")";
}

TEST(Scalar, RealSpecials) {
  const RealRow rows[] = {
      {Op::pow, 0, 0, 0, 1},           {Op::pow, kInf, 0, 0, 1},         {Op::pow, 0, -1, 0, kInf},
      {Op::pow, -8, 1.0 / 3, 0, kNan}, {Op::pow, kNan, 0, 0, kNan},  // unlike C
      {Op::pow, 1, kNan, 0, kNan},     {Op::minimum, kNan, 1, 0, kNan},  {Op::minimum, 1, kNan, 0, kNan},
      {Op::maximum, kNan, 1, 0, kNan}, {Op::maximum, 1, kNan, 0, kNan},  {Op::clamp, kNan, 0, 1, kNan},
      {Op::clamp, 0.5, kNan, 1, kNan}, {Op::clamp, 0.5, 0, kNan, kNan},  {Op::relu, kNan, 0, 0, kNan},
      {Op::sign, kNan, 0, 0, kNan},    {Op::softplus, kNan, 0, 0, kNan}, {Op::softplus, kInf, 0, 0, kInf},
      {Op::softplus, -kInf, 0, 0, 0},  {Op::softplus, 1000, 0, 0, 1000}, {Op::sigmoid, -kInf, 0, 0, 0},
      {Op::sigmoid, kInf, 0, 0, 1},    {Op::sigmoid, kNan, 0, 0, kNan},  {Op::sigmoid, -800, 0, 0, 0},
      {Op::exp, -kInf, 0, 0, 0},       {Op::log, 0, 0, 0, -kInf},        {Op::log, -1, 0, 0, kNan},
      {Op::sqrt, -1, 0, 0, kNan},      {Op::rsqrt, 0, 0, 0, kInf},       {Op::tanh, kInf, 0, 0, 1},
      {Op::erf, -kInf, 0, 0, -1},      {Op::div, 1, 0, 0, kInf},         {Op::div, 0, 0, 0, kNan},
      {Op::mod, 1, 0, 0, kNan},        {Op::mul, 0, kInf, 0, kNan},      {Op::sub, kInf, kInf, 0, kNan},
      {Op::hypot, kInf, kNan, 0, kNan},  // unlike C
      {Op::hypot, kInf, -1, 0, kInf},  {Op::atan2, 0, 0, 0, 0},          {Op::erfinv, 1, 0, 0, kInf},
      {Op::erfinv, 2, 0, 0, kNan},     {Op::lgamma, -2, 0, 0, kInf},     {Op::digamma, 0, 0, 0, -kInf},
      {Op::digamma, -2, 0, 0, kNan},   {Op::polygamma, 0.5, 1, 0, kNan}, {Op::sinc, kInf, 0, 0, 0},
      {Op::logaddexp, -kInf, -kInf, 0, -kInf}, {Op::logaddexp, kInf, -kInf, 0, kInf}, {Op::i0e, kInf, 0, 0, 0},
  };
  for (const RealRow& r : rows)
    EXPECT_PRED2(same, real(r.op, r.a, r.b, r.c), r.result)
        << info(r.op).id << "(" << r.a << ", " << r.b << ")";
}

TEST(Scalar, NanGoesThroughEveryFloatFunction) {
  for (auto op = static_cast<size_t>(Op::neg); op <= static_cast<size_t>(Op::stop_gradient); ++op) {
    const ScalarOp& row = scalar(static_cast<Op>(op));
    if (!row.reals) continue;
    for (int at = 0; at < info(static_cast<Op>(op)).arity; ++at) {
      double x[3] = {0.5, 0.5, 0.5};
      x[at] = kNan;
      EXPECT_TRUE(std::isnan(row.reals.at(x))) << info(static_cast<Op>(op)).id << " operand " << at;
    }
  }
}

TEST(Scalar, Comparisons) {
  EXPECT_TRUE(test(Op::eq, 1, 1));
  EXPECT_TRUE(test(Op::lt, 1, 2));
  EXPECT_TRUE(test(Op::le, 2, 2));
  EXPECT_FALSE(test(Op::ne, 2, 2));
  for (Op op : {Op::eq, Op::lt, Op::le}) {
    EXPECT_FALSE(test(op, kNan, 1)) << info(op).id;
    EXPECT_FALSE(test(op, kNan, kNan)) << info(op).id;
  }
  EXPECT_TRUE(test(Op::ne, kNan, kNan));
  EXPECT_TRUE(test(Op::isnan, kNan));
  EXPECT_FALSE(test(Op::isnan, kInf));
  EXPECT_TRUE(test(Op::isfinite, 1));
  EXPECT_FALSE(test(Op::isfinite, -kInf));
  EXPECT_FALSE(test(Op::isfinite, kNan));
  EXPECT_EQ(integer(Op::lt, -1, 0), 1);
  EXPECT_EQ(integer(Op::land, 1, 0), 0);
  EXPECT_EQ(integer(Op::lor, 1, 0), 1);
  EXPECT_EQ(integer(Op::lnot, 1), 0);
}

TEST(Scalar, IntegersFloorAndWrap) {
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(integer(Op::div, 7, 2), 3);
  EXPECT_EQ(integer(Op::div, -7, 2), -4);
  EXPECT_EQ(integer(Op::div, 7, -2), -4);
  EXPECT_EQ(integer(Op::div, -7, -2), 3);
  EXPECT_EQ(integer(Op::div, 7, 0), 0);
  EXPECT_EQ(integer(Op::div, kLowest, -1), kLowest);
  EXPECT_EQ(integer(Op::mod, 7, 2), 1);
  EXPECT_EQ(integer(Op::mod, -7, 2), 1);
  EXPECT_EQ(integer(Op::mod, 7, -2), -1);
  EXPECT_EQ(integer(Op::mod, -7, -2), -1);
  EXPECT_EQ(integer(Op::mod, 7, 0), 0);
  EXPECT_EQ(integer(Op::mod, kLowest, -1), 0);
  EXPECT_EQ(integer(Op::add, kHighest, 1), kLowest);
  EXPECT_EQ(integer(Op::sub, kLowest, 1), kHighest);
  EXPECT_EQ(integer(Op::mul, kHighest, 2), -2);
  EXPECT_EQ(integer(Op::neg, kLowest), kLowest);
  EXPECT_EQ(integer(Op::abs, -5), 5);
  EXPECT_EQ(integer(Op::sign, -5), -1);
  EXPECT_EQ(integer(Op::pow, 3, 4), 81);
  EXPECT_EQ(integer(Op::pow, 0, 0), 1);
  EXPECT_EQ(integer(Op::pow, 2, -1), 0);
  EXPECT_EQ(integer(Op::pow, -1, -3), -1);
  EXPECT_EQ(integer(Op::clamp, 9, 0, 4), 4);
  EXPECT_EQ(integer(Op::relu, -9), 0);
  EXPECT_EQ(integer(Op::bit_and, 12, 10), 8);
  EXPECT_EQ(integer(Op::bit_or, 12, 10), 14);
  EXPECT_EQ(integer(Op::bit_xor, -1, 10), -11);
  EXPECT_EQ(integer(Op::bit_not, 5), -6);
  EXPECT_EQ(integer(Op::shift_left, 3, 62), int64_t{3} << 62);
  EXPECT_EQ(integer(Op::shift_left, 1, 64), 0);
  EXPECT_EQ(integer(Op::shift_left, 1, -1), 0);
  EXPECT_EQ(integer(Op::shift_right, -9, 2), -3);
  EXPECT_EQ(integer(Op::shift_right, -9, 99), -1);
  EXPECT_EQ(integer(Op::shift_right, 9, -1), 0);
}

TEST(Scalar, Casts) {
  EXPECT_EQ(integer_from(DType::i32, 2.9), 2);
  EXPECT_EQ(integer_from(DType::i32, -2.9), -2);
  EXPECT_EQ(integer_from(DType::i32, 3e9), 2147483647);
  EXPECT_EQ(integer_from(DType::i32, -kInf), -2147483648LL);
  EXPECT_EQ(integer_from(DType::i32, kNan), 0);
  EXPECT_EQ(integer_from(DType::u8, 300.0), 255);
  EXPECT_EQ(integer_from(DType::u8, -1.0), 0);
  EXPECT_EQ(integer_from(DType::i64, 1e300), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(integer_from(DType::boolean, kNan), 1);
  EXPECT_EQ(integer_from(DType::boolean, 0.25), 1);
  EXPECT_EQ(integer_from(DType::u8, int64_t{257}), 1);  // between integers: wraps
  EXPECT_EQ(integer_from(DType::boolean, int64_t{256}), 1);
  EXPECT_EQ(real_from(DType::f32, 16777217), 16777216);
  EXPECT_EQ(real_from(DType::f32, (int64_t{1} << 60) + (int64_t{1} << 36) + 1),
            0x1.000002p60);  // rounded once
  EXPECT_TRUE(std::isinf(real_from(DType::f16, 100000)));
}

// Known answers from the authors' Random123 distribution (tests/kat_vectors, philox4x32 10 rounds).
TEST(Scalar, PhiloxKnownAnswers) {
  struct Vector {
    uint32_t counter[4], key[2], out[4];
  };
  const Vector vectors[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Vector& v : vectors) {
    uint32_t out[4];
    philox4x32(v.counter, v.key, out);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(out[i], v.out[i]);
  }
  EXPECT_EQ(random_at(0, 0), 0x6627e8 / 16777216.0);  // the top 24 bits of 0x6627e8d5
  EXPECT_NE(random_at(1, 0), random_at(0, 0));
  EXPECT_NE(random_at(0, 1), random_at(0, 0));
  EXPECT_NE(random_at(int64_t{1} << 40, 0), random_at(0, 0));  // the upper half of the seed counts
  EXPECT_NE(random_at(0, int64_t{1} << 40), random_at(0, 0));
}

TEST(Scalar, LanesAgreeWithPoints) {
  const double a[5] = {0.3, -1.25, 2, 0.75, -0.5}, b[5] = {1.5, 0.25, -2, 3, 0.5}, c[5] = {2, 2, 2, 4, 1};
  for (auto op = static_cast<size_t>(Op::neg); op <= static_cast<size_t>(Op::stop_gradient); ++op) {
    const ScalarOp& row = scalar(static_cast<Op>(op));
    if (!row.reals) continue;
    int arity = info(static_cast<Op>(op)).arity;
    for (int repeated = 0; repeated < (1 << arity); ++repeated) {
      if (arity == 1 && repeated) continue;
      const Lanes<double> operands[3] = {{a, (repeated & 1) ? size_t{0} : 1},
                                         {b, (repeated & 2) ? size_t{0} : 1},
                                         {c, (repeated & 4) ? size_t{0} : 1}};
      double out[5];
      row.reals.lanes(5, out, operands);
      for (size_t i = 0; i < 5; ++i) {
        const double x[3] = {operands[0][i], operands[1][i], operands[2][i]};
        EXPECT_PRED2(same, out[i], row.reals.at(x)) << info(static_cast<Op>(op)).id << " " << repeated;
      }
    }
  }
}

}  // namespace
}  // namespace xhat::scalar_test

// The code of products and convolutions: lengths of vectors, what is packed.
#include <gtest/gtest.h>

#include "cse/normalize/auto_inliner.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/lowered_code.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::runtime::products_test {
namespace {

using Halide::Target;

const char kConvolution[] = R"(op f(x: f32[N,C,H,W], w: f32[K,C,3,3]) -> (y) {
  y[n,k, i in 0..H, j in 0..W] = sum(c,r,s: x[n,c,i+r-1,j+s-1 else 0] * w[k,c,r,s]) })";
const char kProduct[] = "op f(x: f32[N,D], w: f32[D,M]) -> (y) { y[n,m] = sum(d: x[n,d] * w[d,m]) }";

std::string code_of(const std::string& text, const DimValues& sizes, Target::Processor tuned_for = Target::Processor::ProcessorGeneric) {
  Target target = target_of(CpuLevel::avx512);
  target.set_feature(Target::JIT);
  target.processor_tune = tuned_for;
  return testing::lowered_code(testing::only_spec(infer_program(inline_injective(parse_op(text))), sizes), target);
}

bool has(const std::string& code, const std::string& what) { return code.find(what) != std::string::npos; }

// 56 columns are seven vectors of 8, and three and a half of 16.
TEST(Products, VectorsOfHalfTheLengthWhereTheyFillARow) {
  auto halves = [](int64_t columns, Target::Processor tuned_for) {
    std::string code = code_of(kConvolution, {{"N", 2}, {"C", 4}, {"K", 32}, {"H", 9}, {"W", columns}}, tuned_for);
    return has(code, "xh_acc0[ramp(0, 1, 8)] = x8(");
  };
  EXPECT_TRUE(halves(56, Target::Processor::ZnVer4));
  EXPECT_FALSE(halves(64, Target::Processor::ZnVer4));
  EXPECT_FALSE(halves(56, Target::Processor::ProcessorGeneric));  // which takes 512 bits in one pass, for all we know
}

// What slides along the results lies beside them anyhow; rows of a matrix are packed.
TEST(Products, AWindowIsReadWhereItLies) {
  EXPECT_FALSE(has(code_of(kConvolution, {{"N", 2}, {"C", 16}, {"K", 32}, {"H", 9}, {"W", 64}}), "allocate xh_part"));
  EXPECT_TRUE(has(code_of(kProduct, {{"N", 512}, {"D", 64}, {"M", 64}}), "allocate xh_part"));
}

// What depends on the columns alone is packed, as one number where it is a product itself: then none of its factors is at hand for an fma.
TEST(PackedProducts, AreNumbers) {
  using namespace xhat::testing;
  for (const char* body : {"sum(p if id[k] != p: a[p,m] * b[p,m])", "sum(p: abs(a[p,m] * b[p,m] + x[k,p]))",
                           "sum(p: tanh(x[k,p] - a[p,m] * b[p,m]))", "sum(p if id[k] < p: a[p,m] * b[p,m] * x[k,p])"}) {
    SCOPED_TRACE(body);
    const Program op = parse_op(std::string("op f(a: f32[P,M], b: f32[P,M], x: f32[K,P], id: i32[K]) -> (y) { y[k in 0..K, m in 0..M] = ") +
                                body + " }");
    const DimValues dims = {{"K", 40}, {"M", 64}, {"P", 32}};
    const Arrays data = random_data(op, dims, 5);
    EXPECT_EQ(difference(evaluate_on(op, data, dims), run_infer(compile(op), data, dims), 5e-5), "");
  }
}

}  // namespace
}  // namespace xhat::runtime::products_test

// Loops that change a part of a tensor in each iteration (tests/audit/windows_in_place.xh): what the backward needs of it is that part.
#include <gtest/gtest.h>

#include "runtime/call/compile.h"
#include "tests/helpers/op_of_text.h"

namespace xhat::loops_in_place_test {
namespace {

using namespace xhat::testing;

constexpr int64_t kSide = 24;

// How many elements a forward keeps.
int64_t kept(const Program& op) {
  CompiledOp compiled = compile(op, {.dims = {{"N", kSide}}});
  std::vector<double> in(kSide * kSide, 0.5), out(kSide * kSide);
  auto tensor = [&](TensorId t, std::vector<double>& memory) {
    return Argument{op.tensors[t].name, TensorView(memory.data(), {kSide, kSide})};
  };
  return compiled.forward({tensor(op.inputs[0], in), tensor(op.outputs[0], out)}).bytes() / static_cast<int64_t>(sizeof(double));
}

// The trailing matrix alone is written and kept, N^3/3 elements of N^3, and rows of it are copied for the iteration.
TEST(LoopsInPlace, KeepThePartThatTheyChange) {
  const Program op = op_of_text(R"(
prog lu(a0: f64[N,N]) -> (a) {
  var a = a0 + 1.0
  for k in 0..N-1 {
    for i in k+1..N {
      a[i,k] /= a[k,k]
      for j in k+1..N { a[i,j] -= a[i,k]*a[k,j] }
    }
  }
})",
                                "lu");
  const int64_t n = kSide;
  EXPECT_LE(kept(op), (n - 1) * n * (2 * n - 1) / 6 + 8 * n * n);
}

TEST(LoopsInPlace, KeepNothingOfWhatIsLinear) {
  const Program op = op_of_text(R"(
prog smooth(x: f64[N,N]) -> (y) {
  var y = clone(x)
  for t in 1..N {
    for s in t..N { y[s] = 0.9*y[s] + 0.1*y[t-1] }
  }
})",
                                "smooth");
  EXPECT_LE(kept(op), 2 * kSide * kSide);
}

}  // namespace
}  // namespace xhat::loops_in_place_test

// One compiled kernel serves all sizes of a batch, and the tails are right.
#include <gtest/gtest.h>

#include <set>

#include "ad/reverse/gradient.h"
#include "runtime/cpu/kernel_cache.h"
#include "tests/helpers/batch_ops.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::batch_sizes_of_many_kernels_test {
namespace {

using namespace xhat::testing;

// One op, sizes one after the other in the same kernels: around the tile, and around the classes.
TEST(BatchSizesOfManyKernels, ValuesAgreeAtTheEdges) {
  for (const BatchOp& op : {BatchOp{kTanh, {}}, {kGelu, {{"C", 33}}}, {kSoftmax, {{"D", 70}}}, {kLayerNorm, {{"D", 70}}},
                            {kBatchNorm, {{"C", 5}, {"H", 3}, {"W", 7}}}, {kCrossEntropy, {{"C", 37}}}, {kDense, {{"I", 40}, {"O", 48}}},
                            {kConv, {{"C", 3}, {"K", 8}, {"H", 9}, {"W", 18}}}, {kEmbedding, {{"V", 50}, {"D", 24}, {"L", 3}}},
                            {kDepthwise, {{"C", 3}, {"H", 9}, {"W", 18}}}}) {
    Program written = parse_op(op.text), all = gradient(written);
    CompileOptions options;
    options.machine.serial_bytes = 4 << 10;  // several tiles soon
    options.machine.tile_bytes = 2 << 10;
    options.cache = std::make_shared<runtime::KernelCache>();
    CompiledOp compiled = compile(written, options);
    DimValues dims = op.dims;
    std::set<int64_t> sizes = {1, 2, 3, 9};
    dims["N"] = 40;
    for (const Kernel& k : compiled.plan(CompiledOp::Phase::infer, dims).kernels)
      if (!k.shared.empty())
        for (int64_t tile = k.axes[static_cast<size_t>(k.shared[0])].tile, d = -1; d <= 1; ++d)
          for (int64_t n : {tile + d, 4 * tile + d})
            if (n > 0 && n < 70) sizes.insert(n);
    for (int64_t n : sizes) {
      dims["N"] = n;
      Arrays data = random_data(all, dims, 3);
      EXPECT_EQ(difference(evaluate_on(all, data, dims), run_both(compiled, data, dims), 2e-4), "") << op.text << " N=" << n;
    }
    dims["N"] = 0;
    if (std::string(op.text).find("mean(n") == std::string::npos) {  // of nothing
      Arrays data = random_data(all, dims, 3);
      EXPECT_EQ(difference(evaluate_on(all, data, dims), run_both(compiled, data, dims), 2e-4), "") << op.text << " N=0";
    }
  }
}

}  // namespace
}  // namespace xhat::batch_sizes_of_many_kernels_test

// How many kernels serve an op for all batches:
//
//     build/bench/batch_kernels [OP...]
//
// Each op of bench/peer_ops, one batch after the other: kernels that inference has compiled by then, the last number all of them.
#include <algorithm>
#include <iostream>
#include <string>

#include <fmt/format.h>

#include "bench/peer_op.h"
#include "bench/small_ops.h"
#include "runtime/call/compile.h"
#include "runtime/cpu/kernel_cache.h"

namespace {

using namespace xhat;

constexpr int64_t kBatches[] = {1, 7, 32, 33, 100, 1000};
constexpr size_t kFew = 3;
constexpr int kThreads = 2;

void table(const std::vector<std::string>& chosen) {
  fmt::print("| op | kernels after each batch |\n|---|---|\n");
  size_t ops = 0, with_few = 0;
  for (const bench::SmallOp& c : bench::small_ops()) {
    if (!chosen.empty() && std::ranges::find(chosen, c.op) == chosen.end()) continue;
    CompileOptions options;
    options.threads = kThreads;
    options.cache = std::make_shared<runtime::KernelCache>();
    const CompiledOp op = compile(parse_op(bench::peer_op(c.op)), options);
    DimValues dims = c.dims;
    std::string counts;
    for (int64_t n : kBatches) {
      dims[c.batch] = n;
      op.prepare(CompiledOp::Phase::infer, dims);
      counts += fmt::format(" {}", options.cache->size());
    }
    fmt::print("| {} |{} |\n", c.op, counts);
    std::fflush(stdout);
    ++ops;
    with_few += options.cache->size() <= kFew;
  }
  fmt::print("\n{} of {} ops: at most {} kernels\n", with_few, ops, kFew);
}

}  // namespace

int main(int argc, char** argv) try {
  table(std::vector<std::string>(argv + 1, argv + argc));
  return 0;
} catch (const std::exception& e) {
  std::cerr << "batch_kernels: " << e.what() << "\n";
  return 1;
}

// The code of GPUs rounds as the emitted expressions say: nobody after us contracts a product and a sum into an fma, or the bits of what
// decides a tie would depend on the kernel that it stands in.
#include <gtest/gtest.h>

#include <regex>

#include "fusion/plan/plan.h"
#include "runtime/call/compile.h"
#include "runtime/call/gpu_direction.h"
#include "runtime/call/machine.h"
#include "runtime/gpu/gpu_kernel.h"

namespace xhat::gpu_bits_test {
namespace {

// Of all kernels of both directions. The product is rounded before the sum, as both decide where the maximum is.
std::string code_of(const std::string& type, Target target) {
  const Derivation d = compile(parse_op("op f(x: " + type + "[N,K], w: " + type + "[K], b: " + type +
                                        "[N]) -> (y) { y[i in 0..N] = max(k: sin(x[i,k])*w[k] + b[i]) - b[i]*b[i] }"))
                           .derivation();
  const DimValues sizes = {{"N", 64}, {"K", 32}};
  std::string text;
  for (const Program& p : {forward_program(d.program), backward_program(d.program)})
    for (const runtime::KernelSpec& spec : runtime::gpu_specs(p, plan_kernels(p, sizes, {.machine = for_gpu({})}), sizes, target))
      text += runtime::device_code(runtime::class_of(target, spec, runtime::stored_types(p))).kernel.text;
  return text;
}

TEST(GpuBits, PtxNamesTheRoundingOfSumsAndProducts) {
  for (const char* type : {"f32", "f64"}) {  // sin of f64 is NVIDIA's
    const std::string code = code_of(type, Target::cuda);
    for (const char* operation : {"mul", "add", "fma"})
      EXPECT_TRUE(code.find("\t" + std::string(operation) + ".rn." + type) != std::string::npos) << operation;
    EXPECT_FALSE(std::regex_search(code, std::regex("\t(mul|add|sub|mad)\\.f(32|64)")));
  }
}

TEST(GpuBits, OpenClDoesNotContract) {
  for (const char* type : {"f32", "f64"}) {
    const std::string code = code_of(type, Target::opencl);
    EXPECT_NE(code.find("#pragma OPENCL FP_CONTRACT OFF"), std::string::npos);
    EXPECT_EQ(code.find("FP_CONTRACT ON"), std::string::npos);
  }
}

}  // namespace
}  // namespace xhat::gpu_bits_test

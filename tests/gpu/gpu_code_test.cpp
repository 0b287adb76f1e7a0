// Code for CUDA, which no machine of ours runs: every op of bench/peer_ops at a size worth a GPU, assembled by NVIDIA's ptxas for
// sm_80 and sm_90. Nothing may spill or keep local memory, launches are as few as the planner's kernels allow, and
// tests/gpu_code.txt says, per direction, what there is (XHAT_UPDATE_GOLDEN=1 rewrites it):
//   launches   of how many kernels; the rest of them finish, or are further members of a kernel
//   registers  the most of a thread
//   shared     the most bytes of a block
//   wide       loads and stores of 128 bits
//   shuffles   of lanes of a warp
//   atomics    on global memory
// and each launch: blocks x threads; ~: so many at these sizes
#include <gtest/gtest.h>

#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include <fmt/format.h>

#include "fusion/plan/plan.h"
#include "runtime/call/compile.h"
#include "runtime/call/gpu_direction.h"
#include "runtime/call/machine.h"
#include "tests/helpers/gpu_ops.h"

namespace xhat::gpu_code_test {
namespace {

using namespace xhat::testing;
namespace fs = std::filesystem;

const fs::path kPtxas = XHAT_SOURCE_DIR "/.deps/nvcc-12.9.86/ptxas", kTable = XHAT_SOURCE_DIR "/tests/gpu_code.txt";
constexpr int64_t kSharedBytes = 48 << 10;  // of a block, which every device has

int count(const std::string& text, const std::string& what) {
  int n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

struct Assembled {
  int registers = 0, stack = 0, spilled = 0;
  std::string said;
};

Assembled assemble(const std::string& ptx, const std::string& arch) {
  std::string stem = (fs::temp_directory_path() / fmt::format("xhat-{}-{}", getpid(), arch)).string();
  std::ofstream(stem + ".ptx") << ptx;
  std::string command =
      fmt::format("{} -v -arch={} --maxrregcount {} {}.ptx -o {}.cubin 2>&1", kPtxas.string(), arch, runtime::kMaxRegisters, stem, stem);
  Assembled a;
  FILE* pipe = popen(command.c_str(), "r");
  char line[512];
  while (fgets(line, sizeof line, pipe)) a.said += line;
  int status = pclose(pipe);
  fs::remove(stem + ".ptx");
  fs::remove(stem + ".cubin");
  EXPECT_EQ(status, 0) << a.said;
  std::regex used("Used (\\d+) registers"), kept("(\\d+) bytes stack frame, (\\d+) bytes spill stores, (\\d+) bytes spill loads");
  for (std::sregex_iterator i(a.said.begin(), a.said.end(), used), end; i != end; ++i)
    a.registers = std::max(a.registers, std::stoi((*i)[1]));
  for (std::sregex_iterator i(a.said.begin(), a.said.end(), kept), end; i != end; ++i) {
    a.stack += std::stoi((*i)[1]);
    a.spilled += std::stoi((*i)[2]) + std::stoi((*i)[3]);
  }
  return a;
}

std::map<std::string, std::string> table() {
  std::map<std::string, std::string> rows;
  std::ifstream in(kTable);
  for (std::string line; std::getline(in, line);)
    if (!line.empty() && line[0] != '#') rows[line.substr(0, line.find(':'))] = line;
  return rows;
}

class GpuCodeTest : public ::testing::TestWithParam<GpuOp> {
 protected:
  void SetUp() override {
    if (fs::exists(kPtxas)) return;
    std::string why = "there is no " + kPtxas.string() + "; cmake/setup.sh tests fetches it";
    if (std::getenv("XHAT_NEED_DEVICES")) FAIL() << why;
    GTEST_SKIP() << why;
  }

  // Of one direction; checks what holds for all, returns its row of the table.
  std::string direction(const std::string& name, const Program& p) {
    SCOPED_TRACE(name);
    const DimValues& sizes = GetParam().real;
    KernelPlan plan = plan_kernels(p, sizes, {.machine = for_gpu({})});
    std::vector<DType> stored = runtime::stored_types(p);
    int launches = 0, registers = 0, wide = 0, shuffles = 0, atomics = 0;
    int64_t shared = 0;
    std::string each;
    for (const runtime::KernelSpec& spec : runtime::gpu_specs(p, plan, sizes, Target::cuda)) {
      SCOPED_TRACE(spec.name);
      runtime::DeviceCode code = runtime::device_code(runtime::class_of(Target::cuda, spec, stored));
      const std::vector<runtime::SizeValue> values = runtime::values_of(code, spec);
      const std::vector<runtime::DeviceLaunch>& launched = code.kernel.launches;
      launches += static_cast<int>(launched.size());
      // At most one for each member, and one that adds up what several blocks leave of its sum.
      EXPECT_LE(launched.size(),
                spec.members.size() + static_cast<size_t>(std::ranges::count(launched, "finish", &runtime::DeviceLaunch::what)));
      for (const runtime::DeviceLaunch& l : launched) {
        each += fmt::format(" {}({}{}x{})", l.what, l.blocks.value < 0 ? "" : "~", l.blocks.at(values), l.threads);
        shared = std::max(shared, l.shared_bytes);
        EXPECT_LE(l.shared_bytes, kSharedBytes);
      }
      EXPECT_EQ(count(code.kernel.text, ".entry "), static_cast<int>(launched.size()));
      for (const char* arch : {"sm_80", "sm_90"}) {
        Assembled a = assemble(code.kernel.text, arch);
        EXPECT_EQ(a.spilled, 0) << a.said;
        EXPECT_EQ(a.stack, 0) << a.said;  // local memory lies in global memory
        EXPECT_LE(a.registers, runtime::kMaxRegisters);
        if (std::string(arch) == "sm_80") registers = std::max(registers, a.registers);
      }
      wide += count(code.kernel.text, ".v4.b32") + count(code.kernel.text, ".v2.b64");
      shuffles += count(code.kernel.text, "shfl.sync");
      atomics += count(code.kernel.text, "atom.global") + count(code.kernel.text, "\tred.");
    }
    return fmt::format("{}: launches {} of {} kernels, registers {}, shared {}, wide {}, shuffles {}, atomics {};{}",
                       GetParam().name + (" " + name), launches, plan.kernels.size(), registers, shared, wide, shuffles, atomics, each);
  }
};

TEST_P(GpuCodeTest, IsAsTheTableSays) {
  Derivation d = compile(GetParam().parse()).derivation();
  std::map<std::string, std::string> rows = table(), got;
  for (const auto& [name, p] : {std::pair{"forward", forward_program(d.program)}, std::pair{"backward", backward_program(d.program)}})
    if (!p.outputs.empty()) got[GetParam().name + (" " + std::string(name))] = direction(name, p);
  if (!std::getenv("XHAT_UPDATE_GOLDEN")) {
    for (const auto& [key, row] : got) EXPECT_EQ(rows[key], row);
    return;
  }
  for (const auto& [key, row] : got) rows[key] = row;
  std::ofstream out(kTable);
  out << "# Code for CUDA at the sizes of tests/helpers/gpu_ops.h: see tests/gpu/gpu_code_test.cpp.\n";
  for (const auto& [key, row] : rows) out << row << "\n";
}

INSTANTIATE_TEST_SUITE_P(Ops, GpuCodeTest, ::testing::ValuesIn(gpu_ops()), name_of_gpu_op);

}  // namespace
}  // namespace xhat::gpu_code_test

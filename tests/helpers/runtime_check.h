// What `xhat check` compares, for tests that ask it of hundreds of programs: derivatives with finite differences, the passes and
// the kernels with the evaluator. A program is checked in one combination of policies and processor level, chosen by a hash, and
// finite differences are taken at few places.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cse/stash/stash_planner.h"
#include "expr/index/dims.h"
#include "fusion/plan/plan.h"
#include "runtime/host/cpu_level.h"
#include "runtime/host/target.h"

namespace xhat::testing {

struct CheckConfig {
  StashOptions stash;
  FusePolicy fuse = FusePolicy::full;
  CpuLevel level = CpuLevel::avx2;
  bool products = false;  // the kernels of jvp and hvp as well
  Target target = Target::cpu;
  MachineModel machine;
};

// One combination of stash policy, fusion policy and a level that this processor has, by a hash of the program; every: all
// combinations of the policies, at levels in turn.
std::vector<CheckConfig> check_configs(uint64_t hash, bool every);

// Bits that depend on all bits of x.
uint64_t mixed(uint64_t x);

// Starts what check_failure says where the op itself cannot run: an index in the data that no draw keeps inside, an argmax over
// nothing, no numbers at which all results are finite.
constexpr std::string_view kNoData = "no data";

// What is wrong, starting with a word for the check that found it; empty if nothing is. Throws nothing.
std::string check_failure(const Program& op, const DimValues& dims, uint64_t seed, const CheckConfig& config);

// The command that checks the program in this way, for messages.
std::string check_command(const std::string& file, const DimValues& dims, uint64_t seed, const CheckConfig& config);

}  // namespace xhat::testing

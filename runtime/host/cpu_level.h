// Instruction sets that code is compiled for.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace xhat {

// avx2 includes FMA and F16C. avx512 is F, CD, VL, DQ and BW, as Skylake servers and Zen 4 have them.
enum class CpuLevel : uint8_t { sse41, avx2, avx512 };
constexpr int kCpuLevels = 3;
inline constexpr std::string_view kCpuLevelNames[kCpuLevels] = {"sse41", "avx2", "avx512"};

inline std::string_view name_of(CpuLevel level) { return kCpuLevelNames[static_cast<int>(level)]; }
inline std::optional<CpuLevel> cpu_level_from_name(std::string_view name) {
  for (int i = 0; i < kCpuLevels; ++i)
    if (kCpuLevelNames[i] == name) return static_cast<CpuLevel>(i);
  return {};
}

}  // namespace xhat

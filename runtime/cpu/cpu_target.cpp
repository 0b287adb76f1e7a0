// What Halide compiles for on the CPU: this machine, a level that XHAT_CPU_LEVEL asks for, or one of a library (runtime/cpu/lower.h).
#include <cstdlib>

#include "runtime/cpu/lower.h"

namespace xhat::runtime {

Halide::Target target_of(CpuLevel level) {
  using T = Halide::Target;
  std::vector<T::Feature> features = {T::SSE41, T::StrictFloat, T::NoBoundsQuery, T::UserContext};
  if (!std::getenv("XHAT_HALIDE_CHECKS")) features.push_back(T::NoAsserts);
  if (level >= CpuLevel::avx2) features.insert(features.end(), {T::AVX, T::AVX2, T::FMA, T::F16C});
  if (level >= CpuLevel::avx512) features.insert(features.end(), {T::AVX512, T::AVX512_Skylake});
  return Halide::Target(T::Linux, T::X86, 64, features);
}

Halide::Target cpu_target() {
  Halide::Target t = Halide::get_host_target();
  if (const char* name = std::getenv("XHAT_CPU_LEVEL"); name && *name) {
    auto level = cpu_level_from_name(name);
    if (!level) throw Error(std::string("XHAT_CPU_LEVEL is sse41, avx2 or avx512, not '") + name + "'");
    Halide::Target wanted = target_of(*level);
    using T = Halide::Target;
    for (auto f : {T::SSE41, T::AVX, T::AVX2, T::FMA, T::F16C, T::AVX512, T::AVX512_Skylake})
      if (wanted.has_feature(f) && !t.has_feature(f))
        throw Error(std::string("XHAT_CPU_LEVEL asks for ") + name + ", which this processor lacks");
    t = wanted;
  }
  t.set_feature(Halide::Target::StrictFloat);
  if (!std::getenv("XHAT_HALIDE_CHECKS")) t.set_feature(Halide::Target::NoAsserts);
  t.set_feature(Halide::Target::NoBoundsQuery);
  t.set_feature(Halide::Target::JIT);
  t.set_feature(Halide::Target::UserContext);
  return t;
}

Halide::Target object_target() {
  return cpu_target().without_feature(Halide::Target::JIT).with_feature(Halide::Target::NoRuntime);
}

}  // namespace xhat::runtime

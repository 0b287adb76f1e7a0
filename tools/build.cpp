// xhat build: compiles an op ahead of time, to a static library with a C and a C++ header.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include <fmt/format.h>

#include "runtime/ahead/build/ahead.h"
#include "tools/commands.h"
#include "tools/progress.h"

namespace xhat::tool {
namespace {

namespace fs = std::filesystem;

// What every library takes in: beside the tool where it was built, in lib/ beside its bin/ where it was installed.
std::string support_library() {
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  for (const fs::path& path : {here / "libxhat_ahead.a", here.parent_path() / XHAT_INSTALL_LIBDIR / "libxhat_ahead.a"})
    if (fs::exists(path)) return path.string();
  return (here / "libxhat_ahead.a").string();
}

std::string environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

std::vector<CpuLevel> levels_of(const Command& c) {
  std::vector<CpuLevel> levels;
  for (const std::string& name : c.levels) {
    auto level = cpu_level_from_name(name);
    if (!level) throw UsageError("--levels are of sse41, avx2, avx512, not '" + name + "'");
    levels.push_back(*level);
  }
  std::ranges::sort(levels);
  levels.erase(std::ranges::unique(levels).begin(), levels.end());
  return levels;
}

}  // namespace

int build_command(const Command& c, const Program& op) {
  if (op.steps) throw Error(op.name + ": libraries of programs with loops or branches that stay are not there yet; run it, or write an op");
  if (c.out.empty()) throw UsageError("build wants a folder for the library: -o DIR");
  Progress progress("build");
  AheadOptions options;
  options.compile = compile_options(c);
  options.compile.differentiate = !c.infer_only;
  options.compile.stash.nominal = stash_sizes_of(c);
  options.sizes = sizes_of(c);
  options.strided = c.strided;
  options.devices = gpus_of(c);
  options.device_sizes = gpu_sizes_of(c);
  options.levels = levels_of(c);
  options.name = c.library;
  options.support = c.support.empty() ? support_library() : c.support;
  options.compiler = environment("CXX", "c++");
  options.archiver = environment("AR", "ar");
  options.jobs = c.threads;
  options.progress = [&](const std::string& what, bool often) { progress.show(what, often); };
  AheadLibrary made;
  try {
    made = build_ahead(op, options, c.out);
  } catch (...) {
    progress.show("");
    throw;
  }
  progress.show("");
  std::string gpus = options.devices.empty() ? "" : fmt::format("{} kernels for GPUs, ", made.device_kernels);
  std::cout << fmt::format("{}: {} tiles for each of {} processor levels, {} plans, {}{} KB\n", made.files.at(0), made.kernels,
                           options.levels.size(), made.plans, gpus, (made.bytes + 1023) / 1024);
  for (size_t i = 1; i < made.files.size(); ++i) std::cout << made.files[i] << "\n";
  return kFine;
}

}  // namespace xhat::tool

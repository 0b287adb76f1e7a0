// The steps: plan, compile tiles to object files, write the source and compile it, put all objects into one archive. Works in a temporary folder
// beside the result; the library gets its name when it is complete.
#include "runtime/ahead/build/ahead.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>

#include <fmt/format.h>

#include "runtime/ahead/build/ahead_device.h"
#include "runtime/ahead/build/ahead_plans.h"
#include "runtime/ahead/build/ahead_stash.h"
#include "runtime/ahead/build/ahead_text.h"
#include "runtime/cpu/kernel_compile.h"
#include "runtime/host/thread_pool.h"
#include "runtime/store/child.h"
#include "runtime/store/work_folder.h"

namespace xhat {
namespace {

namespace fs = std::filesystem;

using runtime::WorkFolder;

void write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) throw Error(fmt::format("{}: it cannot be written: {}", path, std::strerror(errno)));
}

// Runs a program in a folder. If it fails, throws Error with its output.
void run_program(const WorkFolder& work, const std::vector<std::string>& command) {
  runtime::ChildEnd end = runtime::run_child(command, work.file("said"), work.path());
  if (end.failed) throw Error(fmt::format("{} cannot be run: {}", command[0], std::strerror(end.failed)));
  if (!end.fine()) throw Error(fmt::format("{} failed:\n{}", fmt::join(command, " "), end.said));
}

// Splits a compiler command of several words, as in CXX="ccache g++".
std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> found;
  for (std::string w; in >> w;) found.push_back(w);
  return found;
}

void check_name(const std::string& name) {
  bool fine = !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0]));
  for (char c : name) fine &= c == '_' || std::isalnum(static_cast<unsigned char>(c));
  if (!fine) throw Error(fmt::format("'{}' cannot be the name of a library and of C functions; letters, digits and _ can", name));
}

// Is this object of the support library for devices only? These are a third of its bytes, and only libraries with code for a GPU need them.
bool for_devices(const std::string& object) {
  return object.starts_with("unity_device") || object.starts_with("device_") || object.starts_with("cu") || object.ends_with("driver.cpp.o");  // cu: CUDA and its libraries
}

// Compiles all tiles in parallel; returns the object files.
std::vector<std::string> compile_tiles(const runtime::AheadPlans& plans, const AheadOptions& options, const std::string& name,
                                       const WorkFolder& work) {
  struct Job {
    const runtime::KernelSpec* spec;
    CpuLevel level;
    std::string symbol, path;
  };
  std::vector<Job> jobs;
  for (CpuLevel level : options.levels)
    for (size_t c = 0; c < plans.kernels.size(); ++c) {
      std::string symbol = runtime::tile_symbol(name, level, c);
      jobs.push_back({&plans.kernels[c], level, symbol, work.file(symbol + ".o")});
    }
  std::mutex mutex;
  size_t done = 0;
  runtime::run_jobs(jobs.size(), runtime::threads_or_all(options.jobs), [&](size_t i) {
    runtime::compile_to_object(*jobs[i].spec, jobs[i].level, jobs[i].symbol, jobs[i].path);
    std::lock_guard lock(mutex);
    ++done;
    if (options.progress) options.progress(fmt::format("compiled {} of {} tiles", done, jobs.size()), true);
  });
  std::vector<std::string> objects;
  for (const Job& j : jobs) objects.push_back(fs::path(j.path).filename().string());
  return objects;
}

}  // namespace

AheadLibrary build_ahead(const Program& op, const AheadOptions& options, const std::string& folder) {
  auto tell = [&](const std::string& what) {
    if (options.progress) options.progress(what, false);
  };
  AheadLibrary made;
  made.name = options.name.empty() ? op.name : options.name;
  check_name(made.name);
  if (options.levels.empty()) throw Error("a library needs code for one processor level at least: sse41, avx2, avx512");
  if (!fs::exists(options.support))
    throw Error(
        fmt::format("there is no {}, which every library takes in; it is made with xhat: build the target xhat_ahead", options.support));

  tell("planning");
  Derivation derivation = runtime::derive_ahead(op, options);
  runtime::AheadPlans plans = runtime::plan_ahead(derivation, options);
  plans.stash_sizes = runtime::stash_sizes_text(derivation, options);
  made.open = plans.open;
  made.kernels = plans.kernels.size();
  for (const runtime::AheadSide& side : plans.table.sides) made.plans += side.variants.size();
  for (Target target : options.devices) {
    tell(fmt::format("compiling for {}", name_of(target)));
    plans.table.devices.push_back(runtime::device_code_of(derivation, options, target));
    made.device_kernels += plans.table.devices.back().kernels.size();
  }

  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error(fmt::format("{}: it cannot be made: {}", folder, error.message()));
  const std::string begins = (fs::absolute(folder) / ".build-").string();
  runtime::remove_stale(begins);
  const WorkFolder work(begins);
  if (work.path().empty()) throw Error(fmt::format("{}: no folder can be made in it: {}", folder, std::strerror(errno)));
  tell(fmt::format("compiling {} tiles", plans.kernels.size() * options.levels.size()));
  std::vector<std::string> objects = compile_tiles(plans, options, made.name, work);

  tell("compiling the calls");
  runtime::AheadTexts texts = runtime::ahead_texts(derivation.program, plans, made.name);
  const std::string library = fmt::format("lib{}.a", made.name);
  write_file(work.file(made.name + ".h"), texts.header);
  write_file(work.file(made.name + ".hpp"), texts.cpp_header);
  write_file(work.file(made.name + ".cpp"), texts.source);
  std::vector<std::string> compile = words(options.compiler);
  compile.insert(compile.end(), {"-c", "-O1", "-fPIC", made.name + ".cpp", "-o", made.name + ".o"});
  run_program(work, compile);
  std::vector<std::string> archiver = words(options.archiver), extract = archiver, gather = archiver, support;
  objects.push_back(made.name + ".o");
  extract.insert(extract.end(), {"x", fs::absolute(options.support).string()});
  std::ranges::sort(objects);
  run_program(work, extract);
  for (const auto& entry : fs::directory_iterator(work.path())) {
    std::string file = entry.path().filename().string();
    if (options.devices.empty() && for_devices(file)) continue;
    if (file.ends_with(".o") && !std::ranges::binary_search(objects, file)) support.push_back(file);
  }
  std::ranges::sort(support);
  objects.insert(objects.end(), support.begin(), support.end());
  gather.insert(gather.end(), {"rcsD", library});
  gather.insert(gather.end(), objects.begin(), objects.end());
  run_program(work, gather);
  made.bytes = static_cast<int64_t>(fs::file_size(work.file(library)));
  for (const std::string& file : {library, made.name + ".h", made.name + ".hpp"}) {
    fs::rename(work.file(file), fs::path(folder) / file);
    made.files.push_back((fs::path(folder) / file).string());
  }
  return made;
}

}  // namespace xhat

#include "runtime/cpu/kernel_compile.h"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>

#include "runtime/cpu/assumptions.h"
#include "runtime/cpu/ir/late_functions.h"
#include "runtime/cpu/lower.h"
#include "runtime/host/tile_services.h"
#include "runtime/store/fingerprint.h"
#include "runtime/store/link_kernel.h"
#include "runtime/store/nontemporal.h"
#include "runtime/store/whole_file.h"

namespace xhat::runtime {
namespace {

#ifdef __SANITIZE_ADDRESS__
// Halide compiles on a stack that it makes itself. The sanitizer does not know it, and takes what lies there for overflows: so on the
// caller's.
const bool compiles_here = [] {
  Halide::set_compiler_stack_size(0);
  return true;
}();
#endif

class JitTile : public TileCode {
 public:
  JitTile(Halide::Callable code, bool streams) : code_(std::move(code)), streams_(streams) {}

  int call(size_t argc, const void* const* argv) const override {
    Halide::JITUserContext context;
    context.handlers.custom_malloc = [](Halide::JITUserContext*, size_t size) { return tile_services().allocate(nullptr, size); };
    context.handlers.custom_free = [](Halide::JITUserContext*, void* p) { tile_services().release(nullptr, p); };
    Halide::JITUserContext* pointer = &context;
    auto args = const_cast<const void**>(argv);  // slot 0 is ours
    args[0] = &pointer;
    int status = code_.call_argv_fast(argc, args);
    if (streams_) end_streaming();
    return status;
  }

 private:
  Halide::Callable code_;
  bool streams_;
};

// Halide warns whoever writes pipelines (of emulated float16, of checks that must fail); ours are generated, and a user
// could do nothing about it. Process-wide in Halide.
struct Quiet final : Halide::CompileTimeErrorReporter {
  void warning(const char*) override {}
  [[noreturn]] void error(const char* message) override { throw Halide::CompileError(message); }
};

void set_up_halide() {
  static Quiet quiet;
  static std::once_flag once;
  std::call_once(once, [] {
    Halide::set_custom_compile_time_error_reporter(&quiet);
    setenv(kLlvmVariable, kLlvmOptions, 0);  // read once, when LLVM starts
  });
}

// What Halide says, without its lines of where that is in its source.
std::string in_one_line(std::string text) {
  if (const size_t at = text.find("Condition failed"); at != std::string::npos) text.erase(0, at);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (char& c : text)
    if (c == '\n') c = ' ';
  constexpr size_t kMost = 300;
  return text.substr(0, kMost);
}

// Halide 21 trips over some kernels (slices of interleaved loads, stages under conditions on computed floats), and code may rest on what
// is not so (assumptions.h). Slow and right is better than none, and says so: compile_it gets the reason, too.
template <class F>
auto with_care(const KernelSpec& spec, F&& compile_it) {
  set_up_halide();
  std::string why;
  for (Care care : {Care::none, Care::all_stages}) {
    try {
      return compile_it(care, why);
    } catch (const Halide::Error& refused) {
      if (care == Care::none) why = "every stage is computed, whatever conditions say: " + in_one_line(refused.what());
      else why = "its code is scalar: " + in_one_line(refused.what());
    }
  }
  try {
    return compile_it(Care::no_vectors, why);
  } catch (const Halide::Error& refused) {
    throw Bug("Halide refused kernel " + spec.name + ": " + refused.what());
  }
}

using Files = std::map<Halide::OutputFileType, std::string>;  // paths

void emit(LoweredKernel& lowered, const std::string& symbol, const Halide::Target& target, const Files& files) {
  lowered_with_assertions(lowered.pipeline, lowered.arguments, symbol, target).compile(files);
}
void emit_object(LoweredKernel& lowered, const std::string& symbol, const Halide::Target& target, const std::string& path) {
  emit(lowered, symbol, target, {{Halide::OutputFileType::object, path}});
}

std::string path_of(const File& file) { return "/proc/self/fd/" + std::to_string(static_cast<int>(file)); }

using Emit = std::function<void(const std::string& path)>;

bool can_link() { return !linker_hangs() && find_linker() && !services_object().empty(); }

// Linked in a folder that is gone when this returns. None where that cannot be done. tell: nobody else says that the linker hung.
std::vector<std::unique_ptr<TileCode>> by_way_of_a_file(const std::vector<NamedKernel>& kernels, bool tell, const Emit& emit) {
  const std::optional<Linker> linker = find_linker();
  std::error_code failed;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(failed);
  if (!linker || failed) return {};
  const std::string begins = folder / "xhat-work-";
  static std::once_flag cleaned;
  std::call_once(cleaned, [&] { remove_stale(begins); });
  const WorkFolder work(begins);
  const std::string shared = work.file("kernel.so");
  if (work.path().empty()) return {};
  const std::string why = link_kernels(*linker, work, kernels, emit, shared);
  static std::atomic<bool> told = false;
  if (tell && linker_hangs() && !told.exchange(true)) std::fprintf(stderr, "xhat: %s. kernels are compiled into memory\n", why.c_str());
  if (!why.empty()) return {};
  std::vector<std::unique_ptr<TileCode>> made;
  for (size_t i = 0; i < kernels.size(); ++i) {
    made.push_back(load_tile(shared, i, kernels[i].arguments.streams));
    if (!made.back()) return {};
  }
  return made;
}

// Of the object file that `emit` writes. It takes as long to make as code in memory, and Halide's own runtime, half a second of a process's time,
// is not needed. None where that cannot be done.
std::vector<std::unique_ptr<TileCode>> from_a_file(const std::vector<NamedKernel>& kernels, DiskCache* disk, const Emit& emit) {
  if (disk && disk->stores())
    if (auto made = disk->store(kernels, emit); !made.empty()) return made;
  return can_link() ? by_way_of_a_file(kernels, disk == nullptr, emit) : std::vector<std::unique_ptr<TileCode>>{};
}

KernelArguments arguments_of(const KernelSpec& spec, const LoweredKernel& lowered, const std::string& why) {
  KernelArguments a{{}, lowered.inputs, lowered.results, spec.streams, why};
  for (const TileScalar& s : lowered.scalars) a.scalars.push_back({spec.arena->name(s.axis), s.count});
  return a;
}

using Compiled = std::unique_ptr<CompiledKernel>;

// Lowered as one module. careful: the care that the only kernel needs; else each gets what its lowering needs. None where nothing can be linked.
std::vector<Compiled> from_a_file(const std::vector<KernelToCompile>& kernels, DiskCache* disk,
                                  std::optional<std::pair<Care, std::string>> careful = {}) {
  if (std::getenv("XHAT_HALIDE_CHECKS") || !((disk && disk->stores()) || can_link())) return {};
  const Halide::Target target = object_target();
  Halide::Module all(kTileSymbol, target);
  std::vector<NamedKernel> named;
  for (const auto& [spec, key] : kernels) {
    auto code_of = [&, spec = spec](Care care, const std::string& why) {
      LoweredKernel lowered = lower(*spec, target, care);
      return std::pair(arguments_of(*spec, lowered, why),
                       lowered_with_assertions(lowered.pipeline, lowered.arguments, tile_symbol(named.size()), target));
    };
    auto [arguments, code] = careful ? code_of(careful->first, careful->second) : with_care(*spec, code_of);
    add_to(all, code);
    named.push_back({key, std::move(arguments)});
  }
  std::vector<Compiled> made;
  auto codes = from_a_file(named, disk, [&](const std::string& path) { all.compile({{Halide::OutputFileType::object, path}}); });
  for (size_t i = 0; i < codes.size(); ++i)
    made.push_back(std::make_unique<CompiledKernel>(std::move(named[i].arguments), std::move(codes[i])));
  return made;
}

}  // namespace

std::vector<Compiled> compile(const std::vector<KernelToCompile>& kernels, DiskCache* disk) {
  try {
    if (auto made = from_a_file(kernels, disk); !made.empty()) return made;
  } catch (const Halide::Error&) {
    // The part of Halide that makes code of LLVM refused one of them. Which one, and what it takes, is seen when each is compiled by itself.
  }
  std::vector<Compiled> made;
  for (const KernelToCompile& k : kernels)
    made.push_back(with_care(*k.spec, [&](Care care, const std::string& why) {
      if (auto one = from_a_file({k}, disk, std::pair(care, why)); !one.empty()) return std::move(one.front());
      // Code in memory, where nothing can be linked: without non-temporal stores. (With Halide's own checks it needs its runtime.)
      const Halide::Target target = cpu_target().without_feature(Halide::Target::NoAsserts);
      LoweredKernel lowered = lower(*k.spec, target, care);
      write_out_late_functions(lowered.pipeline, target);
      auto code = std::make_unique<JitTile>(lowered.pipeline.compile_to_callable(lowered.arguments, target), k.spec->streams);
      return std::make_unique<CompiledKernel>(arguments_of(*k.spec, lowered, why), std::move(code));
    }));
  return made;
}

std::unique_ptr<TileCode> compile_function(const std::string& key, DiskCache* disk, const Emit& emit) {
  set_up_halide();
  if (disk)
    if (auto found = disk->load(key)) return std::move(found->code);
  auto made = from_a_file({{key, {}}}, disk, emit);
  return made.empty() ? nullptr : std::move(made.front());
}

KernelArguments arguments_of(const KernelSpec& spec) {
  return with_care(spec, [&](Care care, const std::string& why) { return arguments_of(spec, lower(spec, target_of(CpuLevel::avx2), care), why); });
}

void compile_to_object(const KernelSpec& spec, CpuLevel level, const std::string& symbol, const std::string& path) {
  with_care(spec, [&](Care care, const std::string&) {
    Halide::Target target = target_of(level).with_feature(Halide::Target::NoRuntime);
    LoweredKernel lowered = lower(spec, target, care);
    // By way of memory: where the disk is full, LLVM ends the process.
    const File object(memfd_create("xhat object", MFD_CLOEXEC));
    std::string content;
    if (object >= 0) emit_object(lowered, symbol, target, path_of(object));
    bool written = object >= 0 && read_all(object, content);
    if (written && spec.streams) make_nontemporal_in(content);
    written = written && write_all(path, content);
    if (!written) throw Error(path + ": it cannot be written: " + std::strerror(errno));
    return true;
  });
}

Listings listings_of(const KernelSpec& spec) {
  return with_care(spec, [&](Care care, const std::string&) {
    const Halide::Target target = object_target();
    LoweredKernel lowered = lower(spec, target, care);
    const File statements(memfd_create("xhat statements", MFD_CLOEXEC)), assembly(memfd_create("xhat assembly", MFD_CLOEXEC));
    Listings made;
    emit(lowered, kTileSymbol, target, {{Halide::OutputFileType::stmt, path_of(statements)}, {Halide::OutputFileType::assembly, path_of(assembly)}});
    if (!read_all(statements, made.statements) || !read_all(assembly, made.assembly)) throw Error("no memory for listings of " + spec.name);
    return made;
  });
}

}  // namespace xhat::runtime

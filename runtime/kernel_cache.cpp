#include "runtime/kernel_cache.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <sstream>

#include "runtime/lower.h"
#include "runtime/stream_stores.h"

namespace xhat::runtime {
namespace {

// Heap temporaries of a tile. Every call asks for the same few sizes, so each thread keeps what it got: no allocation in
// the steady state, and 10 ns instead of 90.
struct Scratch {
  struct Block {
    void* data;
    size_t size;
    bool used;
  };
  std::vector<Block> blocks;

  void* take(size_t size) {
    for (Block& b : blocks)
      if (!b.used && b.size >= size && b.size <= 2 * size + 4096) {
        b.used = true;
        return b.data;
      }
    // Halide wants 64-byte alignment and may read a vector past the end.
    size_t rounded = (size + 127) / 64 * 64; 
    void* data = std::aligned_alloc(64, rounded);
    if (data) blocks.push_back({data, rounded, true});
    return data;
  }
  void give(void* data) {
    for (Block& b : blocks)
      if (b.data == data) b.used = false;
  }
  ~Scratch() {
    for (Block& b : blocks) std::free(b.data);
  }
};

Scratch& scratch() {
  thread_local Scratch s;
  return s;
}

class JitTile : public TileCode {
 public:
  JitTile(Halide::Callable code, bool streams) : code_(std::move(code)), streams_(streams) {}

  int call(size_t argc, const void* const* argv) const override {
    Halide::JITUserContext context;
    context.handlers.custom_malloc = [](Halide::JITUserContext*, size_t size) { return scratch().take(size); };
    context.handlers.custom_free = [](Halide::JITUserContext*, void* p) { scratch().give(p); };
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

void silence_halide() {
  static Quiet quiet;
  static std::once_flag once;
  std::call_once(once, [] { Halide::set_custom_compile_time_error_reporter(&quiet); });
}

std::shared_ptr<CompiledKernel> compiled(const KernelSpec& spec, bool vectors) {
  auto made = std::make_shared<CompiledKernel>();
  Halide::Target target = cpu_target();
  LoweredKernel lowered = lower(spec, target, vectors);
  for (const TileScalar& s : lowered.scalars)
    made->scalars.push_back({spec.arena->name(s.axis), s.count});
  made->inputs = lowered.inputs;
  made->results = lowered.results;
  made->code = std::make_unique<JitTile>(lowered.pipeline.compile_to_callable(lowered.arguments, target), spec.streams);
  return made;
}

std::shared_ptr<const CompiledKernel> compile(const KernelSpec& spec) {
  silence_halide();
  auto start = std::chrono::steady_clock::now();
  std::shared_ptr<CompiledKernel> made;
  try {
    made = compiled(spec, true);
  } catch (const Halide::Error& refused) {
    // Halide 21 trips over some gathers of vectors (slices of interleaved loads: one random program in some thousands).
    // Slow and right is better than none.
    try {
      made = compiled(spec, false);
    } catch (const Halide::Error&) {
      throw Bug("Halide refused kernel " + spec.name + ": " + refused.what());
    }
  }
  made->compile_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return made;
}

}  // namespace

std::shared_ptr<const CompiledKernel> KernelCache::get(const KernelSpec& spec) {
  std::string key = spec.key();
  std::promise<std::shared_ptr<const CompiledKernel>> promise;
  Entry entry;
  bool mine = false;
  {
    std::lock_guard lock(mutex_);
    auto [it, fresh] = entries_.try_emplace(key);
    if (fresh) it->second = promise.get_future().share();
    entry = it->second;
    mine = fresh;
  }
  if (!mine) return entry.get();
  try {
    promise.set_value(compile(spec));
  } catch (...) {
    promise.set_exception(std::current_exception());
    std::lock_guard lock(mutex_);
    entries_.erase(key);  // the next caller may try again
  }
  return entry.get();
}

size_t KernelCache::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

std::shared_ptr<KernelCache> KernelCache::process() {
  static auto cache = std::make_shared<KernelCache>();
  return cache;
}

}  // namespace xhat::runtime

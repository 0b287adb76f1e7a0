// A kernel spec to machine code, in this process or in a file.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/host/compiled_kernel.h"
#include "runtime/host/cpu_level.h"
#include "runtime/kernel/kernel_spec.h"
#include "runtime/store/disk_cache.h"

namespace xhat::runtime {

struct KernelToCompile {
  const KernelSpec* spec;
  std::string key;
};
// Compiled as one module, for LLVM and the linker take longer to start than to compile a small kernel. Kept in the disk cache, if there is one.
// Throws Bug if Halide refuses one of them.
std::vector<std::unique_ptr<CompiledKernel>> compile(const std::vector<KernelToCompile>& kernels, DiskCache* disk);

// A function kTileSymbol that `emit` writes to an object file without a runtime; from the disk cache, if it is there. Null if there is neither a
// disk cache that keeps it nor a linker.
std::unique_ptr<TileCode> compile_function(const std::string& key, DiskCache* disk, const std::function<void(const std::string& path)>& emit);

// What the code's arguments are, without the code. For any level: they are the same for all.
KernelArguments arguments_of(const KernelSpec& spec);

// An object file with the function `symbol`_argv, an int (void**): argv[0] points to the user context. The calls in it to
// halide_malloc, halide_free and xhat_stream must be linked (runtime/ahead/support/run.cpp).
void compile_to_object(const KernelSpec& spec, CpuLevel level, const std::string& symbol, const std::string& path);

// The loops as Halide has them after its passes and ours, and the assembly for this machine.
struct Listings {
  std::string statements, assembly;
};
Listings listings_of(const KernelSpec& spec);

}  // namespace xhat::runtime

// Links Halide's object file, without a runtime, to a shared object by the system's linker, and loads it.
//
// Beside the C library, the code calls only the services of runtime/host/tile_services.h. It is linked with an object of ours, in which each
// service is a jump through the context that every call of the kernel has as its first argument. So there are no symbols to resolve
// at load time, there is no second runtime, and nothing differs between processes.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/host/compiled_kernel.h"
#include "runtime/store/work_folder.h"

namespace xhat::runtime {

constexpr const char* kTileSymbol = "xhat_tile";  // name of the function in Halide's object
std::string tile_symbol(size_t i);                // of the i-th of several in one object; of the first kTileSymbol

struct Linker {
  std::string program;  // its path
  bool compiler;        // cc, which takes options for the linker by -Xlinker
};
// The first of ld, ld.lld and cc on PATH.
std::optional<Linker> find_linker();

// The object with the services; empty for an unsupported processor.
std::string services_object();

// Returns "" or an error message. A linker that has not ended within XHAT_LINK_SECONDS (default: 30) is stopped, and the process starts no
// further one, which would hang as well.
std::string link_shared(const Linker& linker, const std::string& folder, const std::vector<std::string>& objects,
                        const std::string& shared);
bool linker_hangs();  // has one been stopped?

// Links the object file that `emit` writes to the given path, in which the i-th kernel is the function tile_symbol(i), and the services.
// Exceptions of emit are passed on.
std::string link_kernels(const Linker& linker, const WorkFolder& work, const std::vector<NamedKernel>& kernels,
                         const std::function<void(const std::string& path)>& emit, const std::string& shared);

// The i-th function of a file. Null if the file cannot be loaded; then `why` has the reason. The caller must know that the file is ours.
std::unique_ptr<TileCode> load_tile(const std::string& shared, size_t i, bool streams, std::string* why = nullptr);

}  // namespace xhat::runtime

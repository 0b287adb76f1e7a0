// An object file of Halide's, without a runtime, into a shared object, by the system's linker; and into the process.
//
// What the code calls beside the C library are the few services of runtime/host/tile_services.h. An object of our own is linked
// to it, in which each of these is a jump through the context that every call of the kernel carries as its first argument:
// no symbols to resolve at load time, no second runtime, nothing that differs between processes.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runtime/host/compiled_kernel.h"
#include "runtime/store/work_folder.h"

namespace xhat::runtime {

constexpr const char* kTileSymbol = "xhat_tile";  // what Halide is to call the code

struct Linker {
  std::string program;  // its path
  bool compiler;        // cc, which is told options for the linker in its own way
};
// The first of ld, ld.lld and cc on PATH.
std::optional<Linker> find_linker();

// The object with the services; empty for a processor that it is not written for.
std::string services_object();

// Empty if all is well, else what is wrong. A linker that has not ended within XHAT_LINK_SECONDS (default: 30) is stopped, and no other
// is started by this process: it would not end either.
std::string link_shared(const Linker& linker, const std::string& folder, const std::vector<std::string>& objects,
                        const std::string& shared);
bool linker_hangs();  // has one been stopped?

// The same of what `emit` writes to a path, an object file with kTileSymbol in it, and of the services. What emit throws is handed on.
std::string link_kernel(const Linker& linker, const WorkFolder& work, bool streams,
                        const std::function<void(const std::string& path)>& emit, const std::string& shared);

// Null if it cannot be loaded; then `why` says why. The file must be known to be ours.
std::unique_ptr<TileCode> load_tile(const std::string& shared, bool streams, std::string* why = nullptr);

}  // namespace xhat::runtime

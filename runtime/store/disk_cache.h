// Kernels on disk: what one process compiled, the next ones load, with no compiler and in well under a millisecond.
//
// One file per kernel (runtime/store/kernel_file.h), a shared object, or of a GPU's kernel its text and launches, in a folder that only
// its user can write to. Files appear by
// rename, whole, and are never changed afterwards, so any number of processes may use a folder at once. They are made in folders that
// are locked meanwhile; those of a process that was killed, which nobody has locked, the next process that keeps a kernel removes. Whatever cannot be
// used, be it torn, damaged, somebody else's or of another build or processor, is as if it were not there, and is written anew.
// Nothing here is ever an error for who runs an op: where kernels cannot be kept, one line on stderr says why.
//
//   XHAT_CACHE_DIR     the folder; empty: none (default: $XDG_CACHE_HOME/xhat/kernels, ~/.cache/xhat/kernels)
//   XHAT_CACHE_BYTES   what its files may take; those that were not used for longest go (default: 1 GiB)
//   XHAT_LINK_SECONDS  how long the linker may take (runtime/store/link_kernel.h)
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/host/compiled_kernel.h"

namespace xhat::runtime {

class DiskCache {
 public:
  static constexpr int64_t kDefaultBytes = int64_t{1} << 30;
  explicit DiskCache(const std::string& folder, int64_t bytes = kDefaultBytes);
  // Where the environment says, as it was when first asked for; null if it says nowhere. One for the process.
  static std::shared_ptr<DiskCache> of_environment();

  // Null: not there, or of no use.
  std::unique_ptr<CompiledKernel> load(const std::string& key);

  // The same of any bytes, which nobody loads as code. What cannot be kept is not kept.
  std::optional<std::string> load_bytes(const std::string& key);
  void store_bytes(const std::string& key, const std::string& bytes);

  // Can kernels be kept here? Else the caller compiles into memory.
  bool stores();
  // emit: writes an object file, without a runtime, in which kTileSymbol is the code, to this path; what it throws is handed on.
  // Null if it could not be kept after all.
  std::unique_ptr<TileCode> store(const std::string& key, const KernelArguments& arguments,
                                  const std::function<void(const std::string& path)>& emit);

 private:
  struct Found;
  std::string path_of(const std::string& key, const char* kind) const;
  std::optional<Found> find(const std::string& key, const char* kind) const;
  bool has_folder();
  void give_up(const std::string& why);
  void clean();
  void make_room(int64_t written);

  const std::string folder_, fingerprint_;
  const int64_t bytes_;
  std::atomic<bool> gave_up_ = false;
  std::once_flag cleaned_;
  std::mutex mutex_;
  int64_t used_ = -1;  // bytes in the folder, as far as known; -1: nobody looked
};

}  // namespace xhat::runtime

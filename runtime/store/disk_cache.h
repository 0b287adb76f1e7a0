// Kernels on disk: later processes load what one process compiled, without a compiler and in well under a millisecond.
//
// A kernel is a file (runtime/store/kernel_file.h): a shared object, or for a GPU its text and launches. Kernels that were compiled together are
// one file with a name for each (hard links). The folder is writable for its user only. Files get their names when they are complete, by
// rename, and are never changed afterwards, so any number of processes may use a folder at once. They are made in locked folders; the next
// process that keeps a kernel removes unlocked ones, which killed processes left. A file that is torn, damaged, of another user, build or
// processor counts as absent and is written anew. Nothing here is an error for the caller of an op: if kernels cannot be kept, one line on stderr
// says why.
//
//   XHAT_CACHE_DIR     the folder; empty: none (default: $XDG_CACHE_HOME/xhat/kernels, ~/.cache/xhat/kernels)
//   XHAT_CACHE_BYTES   most bytes of its files; the least recently used are removed (default: 1 GiB)
//   XHAT_LINK_SECONDS  how long the linker may take (runtime/store/link_kernel.h)
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/host/compiled_kernel.h"

namespace xhat::runtime {

class DiskCache {
 public:
  static constexpr int64_t kDefaultBytes = int64_t{1} << 30;
  explicit DiskCache(const std::string& folder, int64_t bytes = kDefaultBytes);
  // The process's cache, in the folder that the environment names at the first call; null if it names none.
  static std::shared_ptr<DiskCache> of_environment();

  // Null if there is no usable file.
  std::unique_ptr<CompiledKernel> load(const std::string& key);

  // The same for bytes that are not loaded as code. If they cannot be kept, nothing happens.
  std::optional<std::string> load_bytes(const std::string& key);
  void store_bytes(const std::string& key, const std::string& bytes);

  // Can kernels be kept here? Else the caller compiles into memory.
  bool stores();
  // Links, keeps and loads kernels. emit writes an object file without a runtime, whose functions are named tile_symbol(), to the given path; its
  // exceptions are passed on. None if they could not be kept.
  std::vector<std::unique_ptr<TileCode>> store(const std::vector<NamedKernel>& kernels,
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
  int64_t used_ = -1;  // bytes in the folder, as last counted; -1: not counted yet
};

}  // namespace xhat::runtime

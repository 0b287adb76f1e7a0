#include "runtime/store/disk_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "runtime/store/fingerprint.h"
#include "runtime/store/kernel_file.h"
#include "runtime/store/link_kernel.h"
#include "runtime/store/whole_file.h"

namespace xhat::runtime {
namespace {

namespace fs = std::filesystem;

constexpr const char *kCode = ".so", *kBytes = ".gpu";  // extensions of file names
constexpr const char* kWork = "work-";  // prefix of the folders in which kernels are made
constexpr double kKept = 0.9;  // share of the limit that is kept when files are removed: otherwise every new kernel would scan the folder

// Is it ours, and not writable for others?
bool is_private(const struct stat& s) { return s.st_uid == geteuid() && (s.st_mode & (S_IWGRP | S_IWOTH)) == 0; }

bool is_private_folder(const std::string& path) {
  struct stat s;
  return stat(path.c_str(), &s) == 0 && S_ISDIR(s.st_mode) && is_private(s);
}

std::string folder_of_environment() {
  // secure_getenv ignores the environment of a program that runs with more rights than its caller (setuid).
  if (const char* given = secure_getenv("XHAT_CACHE_DIR")) return given;
  if (const char* given = secure_getenv("XDG_CACHE_HOME"); given && *given == '/') return std::string(given) + "/xhat/kernels";
  if (const char* home = secure_getenv("HOME"); home && *home == '/') return std::string(home) + "/.cache/xhat/kernels";
  return "";
}

// One more name for a complete file, in the place of an older file; for a copy, where the file system knows no second names.
bool add_name(const std::string& file, const std::string& name, const WorkFolder& work, const std::string& content) {
  const std::string next = work.file("next");
  const bool made = link(file.c_str(), next.c_str()) == 0 || (write_all(next, content) && chmod(next.c_str(), 0600) == 0);
  return made && rename(next.c_str(), name.c_str()) == 0;
}

void warn(const std::string& what) { std::fprintf(stderr, "xhat: %s\n", what.c_str()); }

}  // namespace

DiskCache::DiskCache(const std::string& folder, int64_t bytes)
    : folder_(fs::absolute(folder).string()), fingerprint_(code_fingerprint()), bytes_(bytes) {}

std::shared_ptr<DiskCache> DiskCache::of_environment() {
  static const std::shared_ptr<DiskCache> cache = []() -> std::shared_ptr<DiskCache> {
    // Kernels with Halide's own checks call its runtime, so they are not kept.
    std::string folder = std::getenv("XHAT_HALIDE_CHECKS") ? "" : folder_of_environment();
    if (folder.empty()) return nullptr;
    int64_t bytes = kDefaultBytes;
    if (const char* given = std::getenv("XHAT_CACHE_BYTES")) {
      const char* end = given + std::strlen(given);
      auto [stop, failed] = std::from_chars(given, end, bytes);
      if (failed != std::errc() || stop != end || bytes < 0) {
        warn(fmt::format("XHAT_CACHE_BYTES={} is no number of bytes; kernels are not kept", given));
        bytes = 0;
      }
    }
    return bytes == 0 ? nullptr : std::make_shared<DiskCache>(folder, bytes);
  }();
  return cache;
}

std::string DiskCache::path_of(const std::string& key, const char* kind) const {
  return folder_ + "/" + name_hash(fingerprint_ + "\n" + key) + kind;
}

void DiskCache::give_up(const std::string& why) {
  if (!gave_up_.exchange(true))
    warn(fmt::format("kernels are not kept in {}: {}. they are compiled in every process (XHAT_CACHE_DIR= for no cache)", folder_, why));
}

struct DiskCache::Found {
  std::unique_ptr<File> file;
  std::string content;
  size_t object_bytes;
  size_t at;  // among the file's kernels
  KernelArguments arguments;
  void used() const { futimens(*file, nullptr); }  // sets the time of last use
};

std::optional<DiskCache::Found> DiskCache::find(const std::string& key, const char* kind) const {
  if (!is_private_folder(folder_)) return {};
  auto file = std::make_unique<File>(open(path_of(key, kind).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat s;
  std::string content;
  if (*file < 0 || fstat(*file, &s) != 0 || !S_ISREG(s.st_mode) || !is_private(s) || !read_all(*file, content)) return {};
  auto record = read_record(content);
  if (!record || record->fingerprint != fingerprint_) return {};
  const auto named = std::ranges::find(record->kernels, key, &NamedKernel::key);
  if (named == record->kernels.end()) return {};
  const auto at = static_cast<size_t>(named - record->kernels.begin());
  return Found{std::move(file), std::move(content), record->object_bytes, at, std::move(named->arguments)};
}

std::unique_ptr<CompiledKernel> DiskCache::load(const std::string& key) {
  auto found = find(key, kCode);
  if (!found) return nullptr;
  auto kernel = std::make_unique<CompiledKernel>();
  kernel->code = load_tile(path_of(key, kCode), found->at, found->arguments.streams);
  if (!kernel->code) return nullptr;
  kernel->arguments = std::move(found->arguments);
  found->used();
  return kernel;
}

std::optional<std::string> DiskCache::load_bytes(const std::string& key) {
  auto found = find(key, kBytes);
  if (!found) return {};
  found->used();
  return found->content.substr(0, found->object_bytes);
}

void DiskCache::store_bytes(const std::string& key, const std::string& bytes) {
  std::string made = folder_ + "/" + kWork + "XXXXXX";
  if (!has_folder()) return;
  clean();
  File file(mkostemp(made.data(), O_CLOEXEC));  // mkostemp makes a private file
  const std::string content = bytes + trailer(bytes, {fingerprint_, {{key, {}}}});
  if (file < 0) return give_up(std::strerror(errno));
  if (!lock_and_keep(file, made)) return;  // another process removed it as abandoned; the kernel is kept next time
  if (!write_all(file, content) || rename(made.c_str(), path_of(key, kBytes).c_str()) != 0) {
    give_up(std::strerror(errno));
    unlink(made.c_str());
    return;
  }
  make_room(static_cast<int64_t>(content.size()));
}

bool DiskCache::has_folder() {
  if (gave_up_) return false;
  std::error_code failed;
  if (!fs::exists(folder_, failed)) {
    fs::create_directories(fs::path(folder_).parent_path(), failed);
    if (mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) give_up(std::strerror(errno));
  }
  if (!gave_up_ && !is_private_folder(folder_)) give_up("it is no folder that only its owner, who runs this, can write to");
  if (!gave_up_ && access(folder_.c_str(), W_OK) != 0) give_up(std::strerror(errno));
  return !gave_up_;
}

bool DiskCache::stores() {
  if (!has_folder()) return false;
  if (!gave_up_ && !find_linker()) give_up("there is no linker on PATH (ld, ld.lld or cc)");
  if (!gave_up_ && services_object().empty()) give_up("that is not written for this processor");
  return !gave_up_;
}

std::vector<std::unique_ptr<TileCode>> DiskCache::store(const std::vector<NamedKernel>& kernels,
                                                        const std::function<void(const std::string& path)>& emit) {
  auto linker = find_linker();
  clean();
  const WorkFolder work(folder_ + "/" + kWork);
  if (!linker || work.path().empty()) {
    give_up(std::strerror(errno));
    return {};
  }
  const std::string shared = work.file("kernel.so");
  std::string content, why = link_kernels(*linker, work, kernels, emit, shared);
  if (why.empty()) {
    File linked(open(shared.c_str(), O_RDONLY | O_CLOEXEC));
    bool written = linked >= 0 && read_all(linked, content);
    std::string behind = trailer(content, {fingerprint_, kernels});
    content += behind;
    written = written && write_all(shared, behind) && chmod(shared.c_str(), 0600) == 0;
    for (size_t i = 0; written && i < kernels.size(); ++i) written = add_name(shared, path_of(kernels[i].key, kCode), work, content);
    unlink(shared.c_str());  // make_room() counts names
    if (!written) why = std::strerror(errno);
  }
  std::vector<std::unique_ptr<TileCode>> code;
  // Loaded only under their final names: the loader takes two successive files of the same name for one.
  for (size_t i = 0; why.empty() && i < kernels.size(); ++i)
    code.push_back(load_tile(path_of(kernels[i].key, kCode), i, kernels[i].arguments.streams, &why));
  if (!why.empty()) {
    give_up(why);
    return {};
  }
  make_room(static_cast<int64_t>(content.size()));
  return code;
}

// Once per process is enough; the next process removes what is abandoned later.
void DiskCache::clean() {
  std::call_once(cleaned_, [&] { remove_stale(folder_ + "/" + kWork); });
}

void DiskCache::make_room(int64_t written) {
  std::lock_guard lock(mutex_);
  if (used_ >= 0) used_ += written;
  if (used_ >= 0 && used_ <= bytes_) return;
  struct Entry {
    fs::file_time_type used;
    int64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  used_ = 0;
  std::error_code failed;
  for (fs::directory_iterator it(folder_, failed), end; !failed && it != end; it.increment(failed)) {
    std::error_code gone;  // an error if another process has removed the file
    auto time = it->last_write_time(gone);
    if (gone) continue;
    if (it->path().extension() == kCode || it->path().extension() == kBytes) {
      const auto names = std::max<std::uintmax_t>(1, it->hard_link_count(gone));
      const auto bytes = static_cast<int64_t>(it->file_size(gone) / names);
      if (gone) continue;
      entries.push_back({time, bytes, it->path()});
      used_ += bytes;
    }
  }
  if (used_ <= bytes_) return;
  std::ranges::sort(entries, {}, &Entry::used);
  for (const Entry& e : entries) {
    if (static_cast<double>(used_) <= kKept * static_cast<double>(bytes_)) break;
    fs::remove(e.path, failed);
    used_ -= e.bytes;
  }
}

}  // namespace xhat::runtime

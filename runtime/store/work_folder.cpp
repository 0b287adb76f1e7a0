#include "runtime/store/work_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "runtime/store/whole_file.h"

namespace xhat::runtime {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRandom = "XXXXXX";  // the letters that mkdtemp() replaces
constexpr time_t kAbandoned_s = 3600;      // older folders are abandoned: a kernel takes seconds

bool is_at(int file, const std::string& path) {
  struct stat open, named;
  return fstat(file, &open) == 0 && lstat(path.c_str(), &named) == 0 && open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

}  // namespace

// remove_stale() of another process may find the folder between its creation and its lock. It removes only what it has locked, so when we get
// the lock the folder is either gone or ours.
bool lock_and_keep(int file, const std::string& path) {
  while (flock(file, LOCK_EX) != 0 && errno == EINTR) {
  }
  return is_at(file, path);
}

WorkFolder::WorkFolder(const std::string& begins) {
  constexpr int kAttempts = 8;
  for (int i = 0; i < kAttempts && lock_ < 0; ++i) {
    path_ = begins + kRandom;
    if (!mkdtemp(path_.data())) break;
    lock_ = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock_ >= 0 && lock_and_keep(lock_, path_)) return;
    if (lock_ >= 0) close(lock_);
    lock_ = -1;
  }
  path_.clear();
}

WorkFolder::~WorkFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
  if (lock_ >= 0) close(lock_);
}

void remove_stale(const std::string& begins) {
  const fs::path folder = fs::path(begins).parent_path();
  const std::string prefix = fs::path(begins).filename().string();
  std::error_code failed, ignored;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    const std::string name = it->path().filename().string(), path = it->path().string();
    if (!name.starts_with(prefix) || name.size() != prefix.size() + std::string(kRandom).size()) continue;
    const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat s;
    if (file < 0 || fstat(file, &s) != 0 || s.st_uid != geteuid() || !is_at(file, path)) continue;
    const bool locked = flock(file, LOCK_EX | LOCK_NB) == 0;
    if (!locked && (errno == EWOULDBLOCK || time(nullptr) - s.st_mtime < kAbandoned_s)) continue;
    if (is_at(file, path)) fs::remove_all(path, ignored);  // not if another process has renamed it meanwhile
  }
}

}  // namespace xhat::runtime

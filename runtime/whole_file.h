// Files in one go, by the system's calls: nothing is thrown, errno says why.
#pragma once
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>

namespace xhat::runtime {

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  operator int() const { return descriptor_; }

 private:
  int descriptor_;
};

// All of it; false if that fails.
inline bool read_all(int file, std::string& content) {
  struct stat s;
  if (fstat(file, &s) != 0) return false;
  content.resize(static_cast<size_t>(s.st_size));
  for (size_t done = 0; done < content.size();) {
    ssize_t n = pread(file, content.data() + done, content.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

// Behind what is there; only its owner may read it.
inline bool write_all(const std::string& path, std::string_view content) {
  File file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  while (file >= 0 && !content.empty()) {
    ssize_t n = write(file, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    content.remove_prefix(static_cast<size_t>(n));
  }
  return file >= 0;
}

}  // namespace xhat::runtime

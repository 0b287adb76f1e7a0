// Reads and writes whole files by system calls. Nothing throws; errno has the reason of a failure.
#pragma once
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
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

// Reads the whole file; false on failure.
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

// Writes at the file's position; false on failure.
inline bool write_all(int file, std::string_view content) {
  while (file >= 0 && !content.empty()) {
    ssize_t n = write(file, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    content.remove_prefix(static_cast<size_t>(n));
  }
  return file >= 0;
}

// Appends to the file, which is private if it is new. Checks close() too, because some file systems report a full disk only then.
inline bool write_all(const std::string& path, std::string_view content) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const bool written = write_all(file, content);
  const int why = errno;
  const bool closed = file >= 0 && close(file) == 0;
  if (!written) errno = why;
  return written && closed;
}

// Replaces the file's content, or leaves the file as it was if any step fails: the content is written to a file beside it, which is then renamed.
// For a symbolic link the file that it points to is replaced. A file that is not regular, such as /dev/stdout, is written in place.
inline bool replace_file(const std::string& path, std::string_view content) {
  struct stat old;
  const bool exists = stat(path.c_str(), &old) == 0;
  if (exists && access(path.c_str(), W_OK) != 0) return false;
  const std::unique_ptr<char, void (*)(void*)> real(exists ? realpath(path.c_str(), nullptr) : nullptr, std::free);
  const std::string target = real ? real.get() : path;
  const bool in_place = exists && !S_ISREG(old.st_mode);
  const std::string made = in_place ? target : target + ".part-" + std::to_string(getpid());
  const int file = open(made.c_str(), O_WRONLY | O_CLOEXEC | (in_place ? 0 : O_CREAT | O_TRUNC | O_NOFOLLOW), 0666);
  if (file < 0) return false;
  bool fine = write_all(file, content) && (!exists || in_place || fchmod(file, old.st_mode & 07777) == 0);
  int why = errno;
  if (close(file) != 0 && fine) {
    fine = false;
    why = errno;
  }
  if (in_place) {
    errno = why;
    return fine;
  }
  if (fine && rename(made.c_str(), target.c_str()) != 0) {
    fine = false;
    why = errno;
  }
  if (!fine) unlink(made.c_str());
  errno = why;
  return fine;
}

}  // namespace xhat::runtime

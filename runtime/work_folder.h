// A new folder of one's own to work in, gone with this.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace xhat::runtime {

class WorkFolder {
 public:
  // begins: how its path begins. Where it cannot be made the path is empty, and errno says why.
  explicit WorkFolder(const std::string& begins) : path_(begins + "XXXXXX") {
    if (!mkdtemp(path_.data())) path_.clear();
  }
  ~WorkFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace xhat::runtime

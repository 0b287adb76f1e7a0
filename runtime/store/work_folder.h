// A new private folder, removed by the destructor. It is locked (flock) while the object exists, and the system unlocks it when the process
// ends for any reason. So folders that a killed process left can be told from folders in use.
#pragma once
#include <string>

namespace xhat::runtime {

class WorkFolder {
 public:
  // begins: prefix of its path. If the folder cannot be made, the path is empty, and errno has the reason.
  explicit WorkFolder(const std::string& begins);
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
  int lock_ = -1;
};

// Locks an open file or folder against remove_stale() of other processes. Returns whether it still exists under that path.
bool lock_and_keep(int file, const std::string& path);

// Removes our unlocked folders and files whose path is `begins` and six letters of mkdtemp() or mkstemp(). On a file system without locks: those
// that have not been changed for an hour.
void remove_stale(const std::string& begins);

}  // namespace xhat::runtime

// A new folder of one's own to work in, gone with this. It is locked (flock) for as long as this lives, and the system unlocks it when
// the process ends, however that happens: so what a killed process has left behind can be told from what others work in.
#pragma once
#include <string>

namespace xhat::runtime {

class WorkFolder {
 public:
  // begins: how its path begins. Where it cannot be made the path is empty, and errno says why.
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

// Locks an open file or folder that others find by remove_stale(), and says whether it is still there under that path.
bool lock_and_keep(int file, const std::string& path);

// Removes folders and files of ours whose path begins so, with the six letters of mkdtemp() or mkstemp() behind, and that nobody has
// locked. Where the file system knows no locks: those that nobody has changed for an hour.
void remove_stale(const std::string& begins);

}  // namespace xhat::runtime

#include "runtime/child.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>

extern char** environ;

namespace xhat::runtime {

ChildEnd run_child(const std::vector<std::string>& command, const std::string& log, const std::string& folder) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  if (!folder.empty()) posix_spawn_file_actions_addchdir_np(&files, folder.c_str());
  pid_t child = 0;
  ChildEnd end;
  end.failed = posix_spawnp(&child, argv[0], &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (end.failed) return end;
  int status = 0;
  pid_t waited;
  while ((waited = waitpid(child, &status, 0)) < 0 && errno == EINTR) {
  }
  if (waited == child) end.status = status;
  std::ifstream in(log, std::ios::binary);
  end.said.assign(std::istreambuf_iterator<char>(in), {});
  return end;
}

}  // namespace xhat::runtime

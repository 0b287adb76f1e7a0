#include "runtime/store/child.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <thread>

extern char** environ;

namespace xhat::runtime {
namespace {

// Waits for the child, at most `seconds`. True if it has ended, or if other code took its status.
bool wait_for(pid_t child, int& status, double seconds) {
  constexpr auto kLook = std::chrono::microseconds(500);  // time between two polls; a linker takes some 10 ms
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    const pid_t waited = waitpid(child, &status, WNOHANG);
    if (waited == child) return true;
    status = 0;
    if (waited < 0 && errno != EINTR) return true;
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace

ChildEnd run_child(const std::vector<std::string>& command, const std::string& log, const std::string& folder, double seconds) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  if (!folder.empty()) posix_spawn_file_actions_addchdir_np(&files, folder.c_str());
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  if (seconds > 0) {  // a process group of its own, so that its child processes can be killed with it
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes, 0);
  }
  pid_t child = 0;
  ChildEnd end;
  end.failed = posix_spawnp(&child, argv[0], &files, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (end.failed) return end;
  int status = 0;
  if (seconds > 0) {
    constexpr double kDying = 5;  // seconds to wait after the kill: a process blocked in a file system that does not answer does not end
    if (wait_for(child, status, seconds)) {
      end.status = status;
    } else {
      end.stopped = true;
      kill(-child, SIGKILL);
      wait_for(child, status, kDying);
    }
  } else {
    pid_t waited;
    while ((waited = waitpid(child, &status, 0)) < 0 && errno == EINTR) {
    }
    if (waited == child) end.status = status;
  }
  std::ifstream in(log, std::ios::binary);
  end.said.assign(std::istreambuf_iterator<char>(in), {});
  return end;
}

}  // namespace xhat::runtime

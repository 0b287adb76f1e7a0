// What xhat and generators have in common: how they end.
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>
#include <new>

#include "tools/commands.h"

namespace xhat::tool {

int fail(const std::string& message) {
  std::cout.flush();
  std::cerr << message << "\n";
  return kBadInput;
}

int exit_status_of(const std::function<int()>& program) {
  // Where a file would become larger than the process may write (ulimit -f), write() fails and says so; by default the signal ends
  // the process, and half of a file would stay.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    int status = program();
    errno = 0;
    if (!std::cout.flush())
      return fail(std::string("xhat: error: standard output cannot be written") + (errno ? std::string(": ") + std::strerror(errno) : ""));
    return status;
  } catch (const std::bad_alloc&) {
    return fail("xhat: error: out of memory; take smaller sizes");
  } catch (const UsageError& e) {
    return fail(std::string("xhat: error: ") + e.what());
  } catch (const Error& e) {
    return fail(e.what());
  } catch (const std::exception& e) {  // Bug, out of memory
    return fail(std::string("xhat: error: ") + e.what());
  }
}

}  // namespace xhat::tool

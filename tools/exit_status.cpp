// What xhat and generators have in common: how they end.
#include <iostream>

#include "tools/commands.h"

namespace xhat::tool {

int fail(const std::string& message) {
  std::cout.flush();
  std::cerr << message << "\n";
  return kBadInput;
}

int exit_status_of(const std::function<int()>& program) {
  try {
    return program();
  } catch (const UsageError& e) {
    return fail(std::string("xhat: error: ") + e.what());
  } catch (const Error& e) {
    return fail(e.what());
  } catch (const std::exception& e) {  // Bug, out of memory
    return fail(std::string("xhat: error: ") + e.what());
  }
}

}  // namespace xhat::tool

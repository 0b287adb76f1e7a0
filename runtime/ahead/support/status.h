// The status codes of a library compiled ahead of time; its generated header has the same.
#pragma once
#include <string>

namespace xhat::runtime {

enum class AheadStatus : int {
  ok = 0,
  bad_argument = 1,
  bad_size = 2,
  bad_data = 3,
  no_memory = 4,
  bad_cpu = 5,
  internal = 6,
  no_device = 7,
  bad_pointer = 8,
  device_failed = 9
};

struct Failure {
  AheadStatus status;
  std::string message;
};

}  // namespace xhat::runtime

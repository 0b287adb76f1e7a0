// Which cases of tests/audit the usual `./test` takes. Header only.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <vector>

#include "runtime/store/fingerprint.h"
#include "tests/helpers/audit_cases.h"
#include "tests/helpers/random_program.h"

namespace xhat::testing {

// So many of these cases, however many were written: others after each change of the engine's sources, the same on all machines. All of them
// in `./test --long` and with XHAT_TEST_AUDIT=all.
inline std::vector<AuditCase> audit_sample(std::vector<AuditCase> cases, size_t count) {
  const char* all = std::getenv("XHAT_TEST_AUDIT");
  if (long_run() || (all && std::string_view(all) == "all") || cases.size() <= count) return cases;
  const std::string fingerprint = runtime::code_fingerprint(), sources = fingerprint.substr(0, fingerprint.find(';'));  // of any machine
  std::ranges::sort(cases, {}, [&](const AuditCase& c) { return std::hash<std::string>{}(sources + c.name() + std::to_string(c.seed)); });
  cases.resize(count);
  std::ranges::sort(cases, {}, [](const AuditCase& c) { return std::pair(c.file, c.op); });  // a file is parsed once
  return cases;
}

}  // namespace xhat::testing

// Which cases of tests/audit the usual `./test` takes. Header only.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/store/fingerprint.h"
#include "tests/helpers/audit_cases.h"
#include "tests/helpers/random_program.h"

namespace xhat::testing {

// Does this run take all cases and not a sample?
inline bool takes_all() {
  const char* all = std::getenv("XHAT_TEST_AUDIT");
  return long_run() || (all && std::string_view(all) == "all");
}

inline std::string fingerprint_of_sources() {  // the same on any machine
  const std::string fingerprint = runtime::code_fingerprint();
  return fingerprint.substr(0, fingerprint.find(';'));
}

// So many of these cases, however many were written: others after each change of the engine's sources, the same on all machines. All of them
// in `./test --long` and with XHAT_TEST_AUDIT=all.
inline std::vector<AuditCase> audit_sample(std::vector<AuditCase> cases, size_t count) {
  if (takes_all() || cases.size() <= count) return cases;
  const std::string sources = fingerprint_of_sources();
  std::ranges::sort(cases, {}, [&](const AuditCase& c) { return std::hash<std::string>{}(sources + c.name() + std::to_string(c.seed)); });
  cases.resize(count);
  std::ranges::sort(cases, {}, [](const AuditCase& c) { return std::pair(c.file, c.op); });  // a file is parsed once
  return cases;
}

}  // namespace xhat::testing

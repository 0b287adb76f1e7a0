#pragma once
#include <string>
#include <utility>

#include "expr/core/error.h"

namespace xhat::testing {

// The message of the Error that f throws; `none` if it throws none.
template <class F>
std::string error_of(F&& f, const std::string& none = "no error") {
  try {
    std::forward<F>(f)();
  } catch (const Error& e) {
    return e.message();
  }
  return none;
}

}  // namespace xhat::testing

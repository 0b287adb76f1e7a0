// A variable of the environment, for as long as this lives. Header only.
#pragma once
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

namespace xhat::testing {

class Environment {
 public:
  Environment(const char* name, std::string_view value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, std::string(value).c_str(), 1);
  }
  ~Environment() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace xhat::testing

// Several mistakes of one text, which are said together.
#pragma once
#include <vector>

#include "expr/core/error.h"

namespace xhat {

constexpr size_t kMaxErrors = 8;  // of a text; more are seldom read

// Message and place are those of the first, what() is that of all.
class Errors : public Error {
 public:
  // At least one; they are put in the order of the text.
  explicit Errors(std::vector<Error> all);
  Errors located(const std::string& file, const std::string& text) const;
  const std::vector<Error>& all() const { return all_; }
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::vector<Error> all_;
  std::string what_;
};

// What a catch clause for Error has caught, as a list.
std::vector<Error> all_of(const Error& e);
// Throws one as it is, several as Errors.
[[noreturn]] void throw_all(std::vector<Error> all);

}  // namespace xhat

// Two kinds of failure: Error is the user's to mend (the op, the data, the call), Bug is ours.
#pragma once
#include <stdexcept>
#include <string>

namespace xhat {

// A place in a text, 1-based; line 0 means "no place" (built by the C++ DSL or by a pass).
struct Pos {
  int line = 0;
  int column = 0;
  bool known() const { return line > 0; }
};
std::string place(Pos pos);  // "12:5", or "before" where there is none

// what() is "FILE:LINE:COLUMN: error: MESSAGE" followed by the source line and a caret when the place and the text are
// known, else "error: MESSAGE". Message style: lower case; what is wrong; what is known; what to do.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, Pos pos = {});
  // Renders with the file's name and text; called by whoever knows them (parse, load).
  Error located(const std::string& file, const std::string& text) const;
  const std::string& message() const { return message_; }
  Pos pos() const { return pos_; }

 private:
  Error(const std::string& rendered, const std::string& message, Pos pos);
  std::string message_;
  Pos pos_;
};

class Bug : public std::logic_error {
 public:
  explicit Bug(const std::string& message) : std::logic_error("xhat bug: " + message) {}
};

}  // namespace xhat

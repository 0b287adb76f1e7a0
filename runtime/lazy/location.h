// Where a call stands in the caller's program. Clang before 15 has no std::source_location.
#pragma once
#include <version>
#ifdef __cpp_lib_source_location
#include <source_location>
#endif

namespace xhat::lazy {

#ifdef __cpp_lib_source_location
using Location = std::source_location;
#else
class Location {
 public:
  static constexpr Location current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) { return Location(file, line); }
  constexpr const char* file_name() const { return file_; }
  constexpr unsigned line() const { return line_; }

 private:
  constexpr Location(const char* file, unsigned line) : file_(file), line_(line) {}
  const char* file_;
  unsigned line_;
};
#endif

}  // namespace xhat::lazy

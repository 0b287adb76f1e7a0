// What the lessons share: the op's text beside the program, and checks that decide the exit status.
#pragma once
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "xhat.h"

namespace lesson {

// The op of examples/<name>.
inline xhat::Program from_file(const std::string& name) {
  std::ifstream file(std::string(XHAT_SOURCE_DIR "/examples/") + name);
  if (!file) throw xhat::Error("cannot read examples/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return xhat::parse_op(text.str());
}

class Checks {
 public:
  void that(bool held, const std::string& what) {
    std::printf("  %-6s %s\n", held ? "ok" : "FAILED", what.c_str());
    failed_ += !held;
  }
  void near(double got, double want, double tolerance, const std::string& what) {
    that(std::fabs(got - want) <= tolerance, what);  // false for NaN
  }
  int status() const { return failed_ == 0 ? 0 : 1; }

 private:
  int failed_ = 0;
};

// The backward definitions of a derived program, indented.
inline std::string backward(const xhat::Program& p) {
  std::string text;
  for (const xhat::Definition& d : p.backward.definitions) text += "    " + xhat::print(p, d) + "\n";
  return text;
}

}  // namespace lesson

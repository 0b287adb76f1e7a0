// What the environment variable XHAT asks for: XHAT=dump=DIR,time,check,limit=N (docs/passes.md).
#pragma once
#include <string>

namespace xhat::runtime {

struct Debug {
  std::string dump;   // folder that every step is written to; empty: none
  bool time = false;
  bool check = false;
  int limit = 1000;   // steps of passes that run
};
// Throws Error for an unknown word.
Debug debug_options();

// Writes DIR/name; creates the folder. Throws Error where that fails.
void write_dump(const Debug& debug, const std::string& name, const std::string& text);

}  // namespace xhat::runtime

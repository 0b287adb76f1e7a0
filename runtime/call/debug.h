// What the environment variables XHAT and DEBUG ask for: XHAT=dump=DIR,time,check,compiles,limit=N,WORD…, DEBUG=0..7 (docs/passes.md).
#pragma once
#include <string>

namespace xhat::runtime {

struct Debug {
  std::string dump;   // folder that every step is written to; empty: none
  bool time = false;
  bool check = false;
  bool compiles = false;  // a line on standard error when kernels are compiled, with the cause
  int limit = 1000;       // steps of passes that run
  // Written to standard error, the first so many by DEBUG.
  bool devices = false, kernels = false, schedule = false, loops = false, source = false, passes = false, assembly = false;
};
// Throws Error for an unknown word of XHAT. DEBUG is a name that other programs use: what is no number of a level is ignored.
Debug debug_options();

// Writes DIR/name; creates the folder. Throws Error where that fails.
void write_dump(const Debug& debug, const std::string& name, const std::string& text);

// "xhat: text" on standard error.
void show_text(const std::string& text);

}  // namespace xhat::runtime

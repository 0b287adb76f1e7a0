// The command line, taken apart: one struct for all subcommands.
#pragma once
#include <cstdint>
#include <iostream>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/call/compile.h"

namespace CLI {
class App;
}

namespace xhat::tool {

// How the tool ends.
constexpr int kFine = 0;
constexpr int kCheckFailed = 1;
constexpr int kBadInput = 2;  // the file, the arrays, an index in the data, usage
constexpr int kInterrupted = 130;  // by Ctrl-C, as a shell says it

struct Command {
  std::string name;  // "explain", ...
  std::string file;
  std::string op;  // empty: the file's only or last one
  std::string stash = "cost";
  std::string stash_dtype;  // empty: as computed
  std::string fuse = "full";
  std::vector<std::string> derive;  // what is made of the op, one after the other
  std::vector<std::string> opaque, relay;
  std::optional<std::string> keep, drop;
  std::vector<std::string> wrt;
  std::string prices;
  std::string tuned;
  std::vector<std::string> sets;
  std::vector<std::string> dims;
  std::string target = "cpu";
  std::string libraries = "auto";
  int threads = 0;
  bool ignore_memory = false;  // take sizes that the machine seems to have no memory for
  bool check_values = false;
  bool grad = false;       // of run: gradients too, where no --dy says so
  std::string definition;  // of explain: the one to look at; empty: all
  bool json = false;
  int listed = 24;
  bool no_run = false;
  bool pareto = false;
  bool relations = false;
  std::string why;
  bool c = false;  // plain loops
  uint64_t seed = 1;
  double limit = 5;  // seconds, of a call without stash or without fusion
  int repeats = 0;  // 0: as many as fit a few seconds
  double seconds = 30;
  std::vector<std::string> in, dy, jvp, hvp;
  std::string out;
  std::vector<std::string> levels = {"sse41", "avx2", "avx512"};
  std::string library;  // name of what build makes; empty: the op's
  bool infer_only = false;
  std::vector<std::string> gpu_dims;
  std::vector<std::string> stash_dims;
  std::vector<std::string> strided;
  std::string page;     // of manual: man, bash or zsh
  std::string support;  // libxhat_ahead.a; empty: beside the program
  std::ostream* answer = &std::cout;  // of explain, check and viz: where they say what was asked for
};

// A mistake in the call or in a file other than the op's: has no place in the op's text.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Declares all subcommands and options; the chosen one is in command.name after app.parse().
void declare(CLI::App& app, Command& command);
// The options of build alone, for generators (tools/generator/main.cpp), which have neither subcommands nor a FILE.
void declare_build(CLI::App& app, Command& command);

// What the options mean. Throws UsageError.
DimValues dims_of(const Command& c);
// Of build, where a dim may have several values: C=64,C=128.
std::map<std::string, std::vector<int64_t>> sizes_of(const Command& c);
// The same of --gpu-dims.
std::map<std::string, std::vector<int64_t>> gpu_sizes_of(const Command& c);
// One size each, of --stash-dims.
DimValues stash_sizes_of(const Command& c);
// Of build: beside the CPU.
std::vector<Target> gpus_of(const Command& c);
CompileOptions compile_options(const Command& c);
Target target_of(const std::string& name);
// NAME=VALUE pairs, in order. Throws UsageError for one without '=' or a name given twice.
std::vector<std::pair<std::string, std::string>> pairs_of(const std::vector<std::string>& items,
                                                          const std::string& option);
// Throws UsageError for a missing FILE, and ("not yet: ...") for what later issues bring.
void settle(Command& c);

// The file's text and the op chosen from it.
struct Source {
  std::string file;
  std::string text;
  Program op;
};
std::string read_text(const std::string& path);
Source load(const Command& c);

}  // namespace xhat::tool

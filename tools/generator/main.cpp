// main() of the programs that xhat_add_op(... SOURCES ...) makes: compiles an op that is written in C++, as xhat build does one
// of a file. The ops are in the sources that it is linked with (runtime/ahead/build/registered_ops.h).
#include <iostream>

#include <CLI/CLI.hpp>

#include "runtime/ahead/build/registered_ops.h"
#include "tools/commands.h"

int main(int argc, char** argv) {
  using namespace xhat::tool;
  CLI::App app{"compiles ops that are written in C++ ahead of time, to static libraries with C and C++ headers"};
  Command command;
  command.name = "build";
  declare_build(app, command);
  bool list = false;
  app.add_flag("--list", list, "the names of the ops");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help
    return fail(std::string("xhat: error: ") + e.what() + "; --help says what there is");
  }
  return exit_status_of([&] {
    if (list)
      for (const xhat::RegisteredOp& op : xhat::registered_ops()) std::cout << op.name << "\n";
    return list ? kFine : build_command(command, xhat::registered_op(command.op));
  });
}

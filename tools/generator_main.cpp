// What main() of generators (tools/generator/main.cpp) does: the options of build, and one of the ops.
#include <iostream>

#include <CLI/CLI.hpp>

#include "runtime/ahead/build/registered_ops.h"
#include "tools/commands.h"
#include "tools/mains.h"

namespace xhat::tool {

int generator_main(int argc, char** argv) {
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
      for (const RegisteredOp& op : registered_ops()) std::cout << op.name << "\n";
    return list ? kFine : build_command(command, registered_op(command.op));
  });
}

}  // namespace xhat::tool

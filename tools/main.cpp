// xhat: explains, checks, runs and times ops written in .xh files.
#include <iostream>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "expr/eval/nonfinite.h"
#include "expr/text/ast.h"
#include "tools/commands.h"
#include "tools/data.h"

namespace xhat::tool {
namespace {

int dispatch(Command& c, const CLI::App& app) {
  settle(c);
  if (c.name == "manual") return manual_command(c, app);
  if (c.name == "fmt") return format_command(c);
  if (c.name == "calibrate") return calibrate_command(c);
  Source source = load(c);
  scalars_of(c, source.op);  // --set of what there is not is a mistake, whether the command needs it or not
  try {
    if (c.name == "explain") return explain_command(c, source);
    if (c.name == "check") return check_command(c, source);
    if (c.name == "run") return run_command(c, source);
    if (c.name == "bench") return bench_command(c, source);
    if (c.name == "tune") return tune_command(c, source);
    if (c.name == "viz") return viz_command(c, source);
    if (c.name == "build") return build_command(c, source.op);
  } catch (const NonFinite& e) {
    fail(located(e, source));
    return kCheckFailed;
  } catch (const Error& e) {
    return fail(located(e, source));
  }
  throw Bug("subcommand " + c.name + " is not dispatched");
}

}  // namespace

int format_command(const Command& c) {
  std::string text = read_text(c.file);
  try {
    std::cout << ast::print(*ast::parse(text, c.file), true);
  } catch (const Error& e) {
    throw e.located(c.file, text);
  }
  return kFine;
}

}  // namespace xhat::tool

int main(int argc, char** argv) {
  using namespace xhat::tool;
  CLI::App app{"xhat: tensor ops with derived gradients, what to keep for them, and fused kernels", "xhat"};
  Command command;
  declare(app, command);
  app.set_version_flag("--version", "xhat " XHAT_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help
    std::cerr << "xhat: error: " << e.what()
              << "; xhat --help and xhat SUBCOMMAND --help say what there is\n";
    return kBadInput;
  }
  return exit_status_of([&] { return dispatch(command, app); });
}

// What main() of `xhat` does: the options, and which subcommand.
#include <algorithm>
#include <iostream>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "expr/eval/nonfinite.h"
#include "expr/text/ast.h"
#include "expr/text/elaborate_scope.h"
#include "tools/commands.h"
#include "tools/data.h"
#include "tools/mains.h"

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

// "there is no option --dim; did you mean --dims?", or what CLI11 says.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words) {
  const CLI::App* at = &app;
  for (const std::string& word : words) {
    if (at == &app && !word.starts_with('-')) {
      std::vector<std::string> names;
      for (const CLI::App* sub : app.get_subcommands({})) names.push_back(sub->get_name());
      if (!std::ranges::count(names, word)) return "there is no subcommand " + word + did_you_mean(word, names);
      at = app.get_subcommand(word);
    }
    const std::string option = word.substr(0, word.find('='));
    if (!option.starts_with("--") || at->get_option_no_throw(option)) continue;
    std::vector<std::string> names;
    for (const CLI::Option* o : at->get_options())
      for (const std::string& name : o->get_lnames()) names.push_back("--" + name);
    return "there is no option " + option + did_you_mean(option, names);
  }
  return error.what();
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

int tool_main(int argc, char** argv) {
  CLI::App app{"xhat: tensor ops with derived gradients, what to keep for them, and fused kernels", "xhat"};
  Command command;
  declare(app, command);
  app.set_version_flag("--version", "xhat " XHAT_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help
    const std::string said = usage_error(app, e, {argv + 1, argv + argc});
    std::cerr << "xhat: error: " << said << (said.ends_with('?') ? " " : "; ")
              << "xhat --help and xhat SUBCOMMAND --help say what there is\n";
    return kBadInput;
  }
  return exit_status_of([&] { return dispatch(command, app); });
}

}  // namespace xhat::tool

// The subcommands. Each returns the exit status; what is wrong with the op or its data is thrown as Error.
#pragma once
#include <functional>

#include "tools/options.h"

namespace xhat::tool {

// Runs a program; what it throws becomes a message and an exit status.
int exit_status_of(const std::function<int()>& program);
int fail(const std::string& message);  // prints it, returns kBadInput
// The error's text with its place, a line of the source and a caret; where it has no place, with that of the op's name.
std::string located(const Error& e, const Source& s);

int explain_command(const Command& c, const Source& source);
int check_command(const Command& c, const Source& source);
int run_command(const Command& c, const Source& source);
int bench_command(const Command& c, const Source& source);
int tune_command(const Command& c, const Source& source);
int viz_command(const Command& c, const Source& source);
int build_command(const Command& c, const Program& op);
int format_command(const Command& c);
int calibrate_command(const Command& c);
int manual_command(const Command& c, const CLI::App& app);

}  // namespace xhat::tool

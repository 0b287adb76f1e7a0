// The subcommands. Each returns the exit status; what is wrong with the op or its data is thrown as Error.
#pragma once
#include "tools/options.h"

namespace xhat::tool {

int explain_command(const Command& c, const Source& source);
int check_command(const Command& c, const Source& source);
int run_command(const Command& c, const Source& source);
int bench_command(const Command& c, const Source& source);
int tune_command(const Command& c, const Source& source);
int build_command(const Command& c, const Source& source);
int format_command(const Command& c);
int calibrate_command(const Command& c);

}  // namespace xhat::tool

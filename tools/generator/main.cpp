// main() of the programs that xhat_add_op(... SOURCES ...) makes: compiles an op that is written in C++, as xhat build does one
// of a file. The ops are in the sources that it is linked with (runtime/ahead/build/registered_ops.h).
#include "tools/mains.h"

int main(int argc, char** argv) { return xhat::tool::generator_main(argc, argv); }

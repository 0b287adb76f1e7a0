// xhat: explains, checks, runs and times ops written in .xh files.
#include "tools/mains.h"

int main(int argc, char** argv) { return xhat::tool::tool_main(argc, argv); }

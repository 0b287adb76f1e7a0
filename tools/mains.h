// main() of `xhat`, and of generators (tools/generator/main.cpp), without what they need.
#pragma once

namespace xhat::tool {

int tool_main(int argc, char** argv);
int generator_main(int argc, char** argv);

}  // namespace xhat::tool

// Loops of a program that run as one function each (runtime/loops), because calling kernels for their blocks would take longer than what the
// blocks compute.
#pragma once
#include <map>
#include <memory>

#include "expr/core/steps.h"
#include "runtime/call/compile.h"
#include "runtime/loops/tiled_loop.h"

namespace xhat::runtime {

using WholeLoops = std::map<const Loop*, std::unique_ptr<TiledLoop>>;

// p: with gradients, if options.differentiate; p, dims and shapes outlive the loops. None of them contains another one.
WholeLoops whole_loops(const Program& p, const CompileOptions& options, const DimValues& dims,
                       const std::vector<std::vector<int64_t>>& shapes);

// As a kernel: "loop over t", or "loop over t in 125 tiles".
std::string name_of(const Program& p, const Loop& loop, const TiledLoop& code);
// By block, the loop that it runs in.
std::map<const Block*, const Loop*> blocks_of(const WholeLoops& loops);
// Of a call, in one direction: what it reads from outside, and what it carries, once each.
int64_t bytes_of(const Program& p, const Loop& loop, const TiledLoop& code, const std::vector<std::vector<int64_t>>& shapes);

}  // namespace xhat::runtime

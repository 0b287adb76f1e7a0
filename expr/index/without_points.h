// Sizes at which a written range is empty. What is derived from a program may drop that range, or compute outside of it, and so make a read
// that the program itself never makes: of an element that is not there, whose value decides nothing.
#pragma once
#include "expr/core/program.h"
#include "expr/index/dims.h"

namespace xhat {

// Is the range of an axis, or of a reduction, of any definition empty at these sizes (of all dims)? Ranges that depend on axes or data are
// not looked at.
bool has_range_without_points(const Program& p, const DimValues& sizes);

// The same program, in which every read gives 0 outside of its tensor.
Program with_reads_anywhere(const Program& p);
// The program with reads anywhere if a range has no points at these sizes, else the program itself.
Program readable_at(const Program& p, const DimValues& sizes);

}  // namespace xhat

// Results written past the cache (non-temporal stores). A line that is written without being read first, and that nobody
// reads again soon, should not be fetched from memory only to be overwritten, nor push others out.
//
// Halide 21 has no such store. In code that becomes an object file, stores are marked, and made non-temporal there
// (nontemporal.h); this takes a run that begins with a line. Else a loop that writes consecutive elements of a result writes a
// few lines of them to a scratch that stays in L1, and a function of ours copies these on, line by line, while the next ones
// are computed.
//
//   for i: y[i*64 .. +64] = f(i)    =>    if &y[0] begins a line: for i: y[i*64 .. +64] = f(i), marked
//                                         else: for c: for i in chunk c: s[..] = f(i);    xhat_stream(&y[c*512], s, 2048)
#pragma once
#include <set>
#include <string>

#include "Halide.h"

namespace xhat::runtime {

// Adds the pass to the pipeline. results: names of output Funcs; those that the pipeline reads again, and loops that do not
// write whole runs, stay as they are. vector_bytes: of the largest store that may be marked; 0: none, as nobody will look for
// the marks.
void stream_results(Halide::Pipeline& pipeline, const std::set<std::string>& results, int vector_bytes);

}  // namespace xhat::runtime

// One page, without anything from elsewhere, that shows what the engine made of an op: the graph, the stash, the kernels, every pass.
//
//   std::ofstream("softmax.html") << xhat::viz(program, {}, {{"N", 4096}, {"D", 1024}});
//
// docs/viz.md says what is on the page. XHAT_VIZ=1 in the environment writes such pages for all ops that a process runs.
#pragma once
#include <string>
#include <vector>

#include "runtime/call/compile.h"

namespace xhat {

// A kernel of a run, for the timeline.
struct VizEvent {
  std::string direction;  // "infer", "forward", "backward"
  std::string kernel;
  double start_ns = 0, ns = 0;
};

struct VizOptions {
  std::vector<VizEvent> timeline = {};
  std::string timeline_of = {};  // what ran: a sentence for the page, also where nothing did
  // Texts of kernels (loops and statements) are shown for this many kernels of a direction at most: lowering one takes about a tenth of a
  // second. 0: none.
  int listed_kernels = 24;
};

// The page, HTML. given: dims that are known, as for explain().
std::string viz(const Program& op, const CompileOptions& options = {}, const DimValues& given = {}, const VizOptions& viz_options = {});
// What it shows, JSON.
std::string viz_data(const Program& op, const CompileOptions& options = {}, const DimValues& given = {},
                     const VizOptions& viz_options = {});

}  // namespace xhat

#include "runtime/lazy/viz.h"

#include <fmt/format.h>

#include "runtime/lazy/options.h"
#include "runtime/lazy/plans.h"
#include "runtime/lazy/realize.h"

namespace xhat::lazy {

using namespace detail;

namespace {

// What is there already is shown as if it were not.
struct Hidden {
  Hidden() { known_values().hide(true); }
  ~Hidden() { known_values().hide(false); }
};

}  // namespace

std::vector<std::string> viz_pages(std::span<const Array> arrays, const VizOptions& viz_options) {
  std::vector<Plan> plans;
  {
    std::lock_guard lock(engine_mutex());
    const Hidden hidden;
    std::vector<NodePtr> roots;
    for (const Array& x : arrays) {
      const NodePtr& n = node_of(x);
      roots.push_back(n->realized() && n->origin ? pooled<Node>(*n->origin) : n);
    }
    cost_of(roots, [&](const Plan& p) { plans.push_back(p); });
  }
  if (plans.empty()) throw Error("viz: nothing has to be computed for these arrays: they are memory, or views of it, or constants");
  std::vector<std::string> pages;
  for (const Plan& plan : plans) {
    CompileOptions wanted = options().compile;
    wanted.differentiate = false;
    VizOptions shown = viz_options;
    if (shown.timeline_of.empty()) {
      shown.timeline_of =
          "Nothing ran for this page: it shows what realize() makes. XHAT_VIZ=1 in the environment writes pages of what ran.";
      if (plans.size() > 1) shown.timeline_of += fmt::format(" Program {} of {}.", pages.size() + 1, plans.size());
    }
    pages.push_back(xhat::viz(plan.constant ? *plan.constant : plan.op.derivation().source, wanted, plan.dims, shown));
  }
  return pages;
}

std::string viz(std::span<const Array> arrays, const VizOptions& viz_options) { return viz_pages(arrays, viz_options).back(); }

}  // namespace xhat::lazy

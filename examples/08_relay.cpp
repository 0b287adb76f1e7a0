// Lesson 8: how classic graph compilers fuse. Relay's algorithm, phase by phase: a graph of ops, the post-dominator tree, which says
// where a value has been used up, and groups that grow by a table of rules. Then the same op without any of it.
#include <cstdio>

#include "expr/eval/evaluate.h"
#include "fusion/relations/relations.h"
#include "fusion/relay/relay_text.h"
#include "lesson.h"
#include "xhat.h"

using namespace xhat;
using namespace xhat::fusion;

namespace {

Program op_named(const std::string& name) {
  std::ifstream file(XHAT_SOURCE_DIR "/examples/relay.xh");
  std::stringstream text;
  text << file.rdbuf();
  return *parse(text.str()).find(name);
}

// Prints everything on the way, and gives the groups after each phase as text.
std::vector<std::string> shown(const Program& p) {
  const DataflowGraph ops = dataflow(p);  // every definition is an op; its kind is read off the elements that it needs
  const ForwardGraph graph = forward_graph(ops);
  const std::vector<PostDominator> tree = post_dominators(graph);
  const auto phases = relay_phases(graph);
  std::printf("op %s\n\n%s\nbelow the node where its value is used up:\n%s\n", p.name.c_str(),
              table_text(graph, tree, phases.back()).c_str(), to_text(graph, tree).c_str());
  std::vector<std::string> texts;
  for (size_t i = 0; i < phases.size(); ++i) {
    texts.push_back(to_text(graph, phases[i]));
    std::printf("%s %s\n", i == 0 ? "at first:     " : ("after phase " + std::to_string(i - 1) + ":").c_str(), texts.back().c_str());
  }
  std::printf("\n");
  return texts;
}

size_t kernels(const Program& p, FusePolicy policy, const DimValues& sizes) {
  CompileOptions options;
  options.differentiate = false;
  options.fusion.policy = policy;
  return compile(p, options).plan(CompiledOp::Phase::infer, sizes).kernels.size();
}

}  // namespace

int main() {
  lesson::Checks checks;

  // Each op's value is used up at the next one, so each joins it: in phase 0 already, for all are elementwise or broadcast.
  const Program chain = op_named("chain");
  auto groups = shown(chain);
  checks.that(groups[0] == "{quotient} {product} {y}", "every op begins as a group of its own");
  checks.that(groups[1] == "{quotient product y}", "divide, multiply, relu: one group after phase 0");

  // out_fusable ops take what is elementwise behind them, and never another anchor.
  const Program pool = op_named("conv_relu_pool");
  groups = shown(pool);
  checks.that(groups.back() == "{conv active} {y}", "the convolution takes the relu; the pooling is a kernel of its own");

  // The diamond: conv is used by two, whose ways meet at product.
  const Program gated = op_named("gated");
  groups = shown(gated);
  checks.that(groups[1] == "{conv shifted gate product} {turned} {y}", "phase 0: the convolution with all between it and product");
  checks.that(groups.back() == "{conv shifted gate product} {turned y}", "phase 1: the transpose joins what follows");

  const DimValues sizes = {{"N", 2}, {"C", 3}, {"K", 4}, {"H", 10}, {"W", 12}};
  std::printf("kernels of gated: %zu by these groups, %zu by cost\n", kernels(gated, FusePolicy::relay, sizes),
              kernels(gated, FusePolicy::full, sizes));
  checks.that(kernels(gated, FusePolicy::relay, sizes) == 2, "the groups are the kernels");
  checks.that(kernels(gated, FusePolicy::full, sizes) <= 2, "the planner, which asks for bytes instead of kinds, needs no more");
  return checks.status();
}

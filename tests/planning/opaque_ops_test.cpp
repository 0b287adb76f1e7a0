// Ops that nothing is fused with: calls and definitions that the classic policy keeps as nodes, and its limits as options.
#include <gtest/gtest.h>

#include "expr/index/expand_calls.h"
#include "ad/common/opaque_ops.h"
#include "cse/normalize/lift_reductions.h"
#include "fusion/relay/relay_kernels.h"

namespace xhat::opaque_ops_test {
namespace {

const char* const kText = R"(
op softmax(x: f32[N,D]) -> (y) {
  m[n] = max(d: x[n,d])
  e[n,d] = exp(x[n,d] - m[n])
  y[n,d] = e[n,d] / sum(k: e[n,k])
}
op f(x: f32[N,D], a: f32[N,D]) -> (z) {
  u[n,d] = x[n,d] * a[n,d]
  v[n,d] = u[n,d] + 1
  s = softmax(v)
  t[n,d] = s[n,d] * 2
  z[n,d] = t[n,d] - a[n,d]
})";

// The groups by the names of their definitions, "u v | s | t z".
std::string groups_of(const std::string& text, const fusion::RelayOptions& options) {
  Program op = parse_op(text);
  Program p = with_written_ops(ordered(expand_calls(op)), ordered(expand_calls(op)));
  std::string all;
  for (const FusionGroup& g : relay_kernels(p, options, opaque_nodes(op, options.opaque)).groups) {
    all += all.empty() ? "" : " | ";
    for (size_t i = 0; i < g.definitions.size(); ++i) all += (i ? " " : "") + p.tensors[g.definitions[i]].name;
  }
  return all;
}

TEST(OpaqueOps, NothingCrossesTheirBorder) {
  EXPECT_EQ(groups_of(kText, {}), "u v | softmax_m | softmax_e | s_sum | s t z");
  EXPECT_EQ(groups_of(kText, {.opaque = {"softmax"}}), "u v | softmax_m | softmax_e | s_sum | s | t z");
  EXPECT_EQ(groups_of(kText, {.opaque = {"v"}}), "u | v | softmax_m | softmax_e | s_sum | s t z");
}

TEST(OpaqueOps, ANodeIsOneOpOfTheGraph) {
  Program op = parse_op(kText);
  fusion::RelayOptions options;
  options.opaque = {"softmax"};
  Program p = with_written_ops(ordered(expand_calls(op)), ordered(expand_calls(op)));
  const std::string dump = relay_kernels(p, options, opaque_nodes(op, options.opaque)).dump;
  EXPECT_NE(dump.find("softmax s  opaque"), std::string::npos) << dump;
  EXPECT_NE(dump.find("inside of softmax s"), std::string::npos) << dump;
  EXPECT_LT(dump.find("t z}"), dump.find("inside of")) << dump;
}

TEST(OpaqueOps, LimitsAreOptions) {
  const char* chain = "op f(x: f32[N]) -> (d) { a[i] = exp(x[i]); b[i] = tanh(a[i]); c[i] = sin(b[i]); d[i] = cos(c[i]) }";
  EXPECT_EQ(groups_of(chain, {}), "a b c d");
  EXPECT_EQ(groups_of(chain, {.opt_level = 0}), "a | b | c | d");
  EXPECT_EQ(groups_of(chain, {.max_fuse_depth = 2}), "a b | c d");
  EXPECT_EQ(groups_of(chain, {.phases = 0}), "a | b | c | d");
}

TEST(OpaqueOps, UnknownNamesAreErrors) {
  try {
    opaque_nodes(parse_op(kText), {"softmax", "nobody"});
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("neither calls an op nor defines a tensor 'nobody'"), std::string::npos) << e.message();
  }
}

}  // namespace
}  // namespace xhat::opaque_ops_test

// The plain C loops of ops (`xhat explain --c`), compiled by the system's compiler, compute what the evaluator does: every 7th op of
// tests/audit, in a long run (XHAT_TEST_LONG=1) all of them, in one file.
#include "runtime/explain/c_loops.h"

#include <gtest/gtest.h>

#include <fstream>

#include "ad/check/random_inputs.h"
#include "bench/compiled_c.h"
#include "tests/helpers/audit_cases.h"
#include "tests/helpers/op_of_text.h"
#include "tests/helpers/random_program.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::c_loops_test {
namespace {

using namespace xhat::testing;

// Calls one direction: tensors are taken from data, and results are put there.
void call(bench::CompiledC::Entry entry, const Program& direction, const DimValues& dims, Arrays* data) {
  std::vector<Buffer> buffers;
  std::vector<void*> tensors;
  for (TensorId t : direction.inputs) buffers.emplace_back(rounded(data->at(direction.tensor(t).name)));
  for (TensorId t : direction.outputs) buffers.emplace_back(zeros(direction.tensor(t).type, shape_of(direction, t, dims)));
  for (Buffer& b : buffers) tensors.push_back(b.view().data);
  entry(tensors.data());
  for (size_t k = 0; k < direction.outputs.size(); ++k)
    (*data)[direction.tensor(direction.outputs[k]).name] = buffers[direction.inputs.size() + k].array();
}

TEST(CLoops, OfAuditOpsComputeWhatTheEvaluatorDoes) {
  struct Case {
    AuditCase from;
    Program derived;
    DimValues dims;
    std::string name;
  };
  std::vector<Case> cases;
  std::string code;
  const size_t parts = long_run() ? 1 : 7;
  for (const AuditCase& from : audit_cases(0, parts)) {
    std::ifstream in(from.file);
    const Program op = op_of_text({std::istreambuf_iterator<char>(in), {}}, from.op);
    if (op.steps) continue;  // programs with loops have none
    const DimValues dims = solve_dims(op, {}, sample_dims(op, from.seed, from.dims));
    // A derived program may read outside of tensors where the written one has no points (docs/design.md, "Empty ranges").
    if (std::ranges::any_of(op.tensors, [&](const Tensor& t) { return element_count(shape_of(op, *op.find(t.name), dims)) == 0; })) continue;
    Case c{from, derive(op, {}, dims).program, dims, "op" + std::to_string(cases.size())};
    const Program forward = forward_program(c.derived), backward = backward_program(c.derived);
    code += c_function(forward, c.name + "_forward", dims) + c_entry(forward, c.name + "_forward");
    code += c_function(backward, c.name + "_backward", dims) + c_entry(backward, c.name + "_backward");
    cases.push_back(std::move(c));
  }
  const bench::CompiledC loops(c_with_prelude(code), "-O1");
  for (const Case& c : cases) {
    SCOPED_TRACE("xhat explain --c " + c.from.file.string() + " --op " + c.from.op + " --dims " + dims_text(c.dims));
    ASSERT_TRUE(loops.entry(c.name + "_forward")) << loops.messages;
    const Arrays data = random_data(c.derived, c.dims, c.from.seed);
    Arrays got = data;
    call(loops.entry(c.name + "_forward"), forward_program(c.derived), c.dims, &got);
    call(loops.entry(c.name + "_backward"), backward_program(c.derived), c.dims, &got);
    const bool narrow =
        std::ranges::any_of(c.derived.tensors, [](const Tensor& t) { return t.type == DType::f16 || t.type == DType::bf16; });
    Arrays expected = evaluate_on(c.derived, data, c.dims, Rounding::declared);
    if (narrow)  // which of several values are equal is decided by the loops' own rounding
      for (TensorId t : c.derived.gradients) expected.erase(c.derived.tensor(t).name);
    EXPECT_EQ(difference(expected, got, narrow ? 3e-2 : 2e-4), "");
  }
  EXPECT_GT(cases.size(), 80u);
}

TEST(CLoops, HaveTheBoundsThatAreTrue) {
  auto function = [](const std::string& text, const DimValues& dims) {
    const Program op = parse_op(text);
    return c_function(infer_program(derive(op, {}, dims).program), "f", dims);
  };
  // A condition is a bound of the loop, a place that data say is no loop, rows are walked along memory.
  const std::string prefix = function("op f(x: f32[N]) -> (y) { y[i in 0..N] = sum(k if k <= i: x[k]) }", {{"N", 9}});
  EXPECT_NE(prefix.find("k < i + 1"), std::string::npos) << prefix;
  const std::string scatter =
      function("op f(x: f32[B,D], id: i32[B]) -> (y) { y[v in 0..7, d] = sum(b if i64(id[b]) == v: x[b,d]) }", {{"B", 5}, {"D", 4}});
  EXPECT_NE(scatter.find("const int64_t v = "), std::string::npos) << scatter;
  const std::string columns = function("op f(x: f32[N,D]) -> (y) { y[d] = sum(n: x[n,d]) }", {{"N", 9}, {"D", 4}});
  EXPECT_LT(columns.rfind("for (int64_t n"), columns.rfind("for (int64_t d"));
}

}  // namespace
}  // namespace xhat::c_loops_test

// Ops against PyTorch in float64: values and gradients stored by tests/oracle/make_values.py; the evaluator and the kernels
// must both agree with them.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "ad/gather/gather.h"
#include "ad/reverse/gradient.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::oracle_test {
namespace {

using namespace xhat::testing;
using Json = nlohmann::json;

// Both sides compute in double; sums of up to some hundred terms in another order.
constexpr double kTolerance = 1e-11;

struct Row {
  std::string name;
  Json json;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

std::vector<Row> rows() {
  std::ifstream in(std::string(XHAT_SOURCE_DIR) + "/tests/oracle/values.json");
  std::vector<Row> list;
  for (Json& row : Json::parse(in)) list.push_back({row["name"], std::move(row)});
  return list;
}

class OracleTest : public ::testing::TestWithParam<Row> {
 protected:
  void SetUp() override {
    const Json& row = GetParam().json;
    op = parse_op(row["op"].get<std::string>());
    derived = gradient(op);
    Shapes shapes;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const Tensor& t = op.tensor(op.inputs[i]);
      Array a;
      a.type = t.type;
      a.shape = row["inputs"][i]["shape"].get<std::vector<int64_t>>();
      auto values = row["inputs"][i]["values"].get<std::vector<double>>();
      if (a.real()) a.reals = values;
      else a.integers.assign(values.begin(), values.end());
      shapes[t.name] = a.shape;
      data[t.name] = a;
    }
    dims = solve_dims(op, shapes);
    fill(data, derived, derived.cotangents[0], row["cotangent"]);
    fill(expected, derived, derived.outputs[0], row["output"]);
    for (size_t i = 0; i < derived.gradients.size(); ++i) fill(expected, derived, derived.gradients[i], row["gradients"][i]);
  }

  void fill(Arrays& to, const Program& p, TensorId t, const Json& values) const {
    Array a = zeros(DType::f64, shape_of(p, t, dims));
    auto list = values.get<std::vector<double>>();
    ASSERT_EQ(list.size(), a.size()) << p.tensor(t).name;
    a.reals = list;
    to[p.tensor(t).name] = a;
  }

  Program op, derived;
  DimValues dims;
  Arrays data, expected;
};

TEST_P(OracleTest, TheEvaluatorAgrees) {
  EXPECT_EQ(difference(expected, evaluate_on(gather(derived), data, dims), kTolerance), "");
}

TEST_P(OracleTest, TheKernelsAgree) {
  EXPECT_EQ(difference(expected, run_both(compile(op), data, dims), kTolerance), "");
}

INSTANTIATE_TEST_SUITE_P(PyTorch, OracleTest, ::testing::ValuesIn(rows()), [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace xhat::oracle_test

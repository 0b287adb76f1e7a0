#include "bench/gradbench/problem.h"

#include <fstream>
#include <sstream>

#include "expr/index/dims.h"

namespace xhat::gradbench {

std::string op_text(const std::string& file) {
  const std::string path = std::string(XHAT_SOURCE_DIR) + "/bench/gradbench/ops/" + file;
  std::ifstream in(path);
  if (!in) throw Error("cannot read " + path);
  std::stringstream all;
  all << in.rdbuf();
  return all.str();
}

namespace {

CompiledOp compiled(const Program& program, const ProblemOptions& wanted) {
  static std::map<std::string, CompiledOp> known;
  std::string key = print(program) + (wanted.differentiate ? "gradient" : "");
  for (const auto& [dim, extent] : wanted.dims) key += " " + dim + "=" + std::to_string(extent);
  if (auto found = known.find(key); found != known.end()) return found->second;
  CompileOptions options;
  options.threads = 1;
  options.differentiate = wanted.differentiate;
  options.dims = wanted.dims;
  return known.emplace(key, compile(program, options)).first->second;
}

}  // namespace

Problem::Problem(const Program& program, const ProblemOptions& options) : op_(compiled(program, options)), dims_(options.dims) {}

TensorView Problem::new_view(const std::string& name, DType type, std::vector<int64_t> shape, double value) {
  TensorView view(nullptr, type, shape, {});
  view.data = buffers_.emplace_back(static_cast<size_t>(view.bytes())).data();
  if (value != 0) std::fill_n(static_cast<double*>(view.data), view.elements(), value);
  return given_[name] = view;
}

template <class T>
void Problem::fill(const std::string& name, std::vector<int64_t> shape, const std::vector<T>& values) {
  const TensorView view = new_view(name, dtype_of<T>(), std::move(shape), 0);
  if (view.elements() != static_cast<int64_t>(values.size()))
    throw Error(name + " has " + std::to_string(values.size()) + " elements, where its shape has " + std::to_string(view.elements()));
  std::copy(values.begin(), values.end(), static_cast<T*>(view.data));
}

void Problem::input(const std::string& name, std::vector<int64_t> shape, const std::vector<double>& values) {
  fill(name, std::move(shape), values);
}
void Problem::input(const std::string& name, std::vector<int64_t> shape, const std::vector<int32_t>& values) {
  fill(name, std::move(shape), values);
}
void Problem::whole_number(const std::string& name, int64_t value) { fill(name, {}, std::vector<int64_t>{value}); }

// The arguments of a call: what was given, and memory for the rest.
void Problem::gather(bool backward) {
  const Program& p = op_.program();
  Shapes shapes;
  for (TensorId t : p.inputs)
    if (auto found = given_.find(p.tensor(t).name); found != given_.end())
      shapes[found->first].assign(found->second.extents().begin(), found->second.extents().end());
  const DimValues dims = solve_dims(p, shapes, dims_);
  std::vector<Argument>& to = backward ? inner_ : outer_;
  auto add = [&](TensorId t, double value) {
    const Tensor& tensor = p.tensor(t);
    auto found = given_.find(tensor.name);
    to.push_back({tensor.name, found != given_.end() ? found->second : new_view(tensor.name, tensor.type, shape_of(p, t, dims), value)});
  };
  to.clear();
  if (!backward)
    for (const auto* list : {&p.inputs, &p.outputs})
      for (TensorId t : *list) add(t, 0);
  else {
    for (TensorId t : p.cotangents) add(t, 1);
    for (TensorId t : p.gradients) add(t, 0);
  }
}

void Problem::move(const std::string& name, void* data) {
  given_.at(name).data = data;
  for (Argument& argument : inner_)
    if (argument.name == name) argument.view.data = data;
}

void Problem::infer() {
  if (outer_.empty()) gather(false);
  op_.infer(outer_);
}

void Problem::forward() {
  if (outer_.empty()) gather(false);
  if (!stash_) stash_.emplace();
  op_.forward(outer_, *stash_);
}

void Problem::backward() {
  if (inner_.empty()) gather(true);
  op_.backward(inner_, *stash_);
}

void Problem::gradient() {
  forward();
  backward();
}

double* Problem::data(const std::string& name) { return static_cast<double*>(given_.at(name).data); }

std::vector<double> Problem::values(const std::string& name) {
  const double* first = data(name);
  return {first, first + given_.at(name).elements()};
}

}  // namespace xhat::gradbench

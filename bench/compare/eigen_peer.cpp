// Eigen as a program of the protocol in protocol.h: ops written by hand, forward and backward, as one who
// knows Eigen would write them. Elementwise work goes by blocks or rows that stay in the cache, so that its
// passes touch memory once; OpenMP runs blocks, rows and Eigen's products on all threads.
#include <omp.h>

#include <memory>
#include <utility>

#include "bench/compare/eigen_op.h"

namespace xhat::bench::eigen {

const Data& Op::read(const std::string& file) {
  return data_.try_emplace(file, folder_ + "/" + file + ".npy").first->second;
}

Tensor Op::add(const std::string& name, std::vector<int64_t> shape) {
  return view(data_.try_emplace(name, DType::f32, std::move(shape)).first->second);
}

Tensor Op::input(const std::string& name) { return view(read("in." + name)); }
Tensor Op::output(const std::string& name, std::vector<int64_t> shape) {
  return add("y." + name, std::move(shape));
}
Tensor Op::gradient(const std::string& input) { return add("g." + input, read("in." + input).shape); }

Tensor Op::scratch(std::vector<int64_t> shape) {
  return add("scratch." + std::to_string(data_.size()), std::move(shape));
}

Tensor Op::stash(std::vector<int64_t> shape) {
  Tensor kept = scratch(std::move(shape));
  saved_["extra"] += kept.size() * static_cast<int64_t>(sizeof(float));
  return kept;
}

void Op::saves(std::initializer_list<std::string> inputs_or_outputs) {
  for (const std::string& name : inputs_or_outputs) {
    auto input = data_.find("in." + name);
    const Data& kept = input != data_.end() ? input->second : data_.at("y." + name);
    saved_[input != data_.end() ? "inputs" : "outputs"] += static_cast<int64_t>(kept.bytes());
  }
}

Tensor Op::over(const std::string& output, const std::string& input_name) {
  over_[output] = input_name;
  return input(input_name);
}

LoadedOp Op::loaded() const {
  LoadedOp op;
  if (backward) op.described["saved"] = saved_;
  op.infer = infer ? infer : forward;
  op.forward = forward;
  op.backward = backward;
  for (const auto& [name, data] : data_) {
    if (name.starts_with("y.")) op.outputs[name.substr(2)] = &data;
    if (name.starts_with("g.")) op.gradients[name.substr(2)] = &data;
  }
  std::vector<const Data*> written;
  for (const auto& [output, input] : over_) written.push_back(op.outputs[output] = &data_.at("in." + input));
  if (!written.empty()) op.restart = restarter(written);
  return op;
}

namespace {

LoadedOp load(const std::string& name, const std::string& folder) {
  Loaders loaders = pointwise_loaders();
  loaders.merge(row_loaders());
  loaders.merge(product_loaders());
  auto loader = loaders.find(name);
  if (loader == loaders.end()) throw Skip("not written in Eigen here");
  auto op = std::make_shared<Op>(folder);
  loader->second(*op);
  LoadedOp loaded = op->loaded();
  loaded.owner = op;
  return loaded;
}

}  // namespace

}  // namespace xhat::bench::eigen

int main() {
  omp_set_num_threads(xhat::bench::threads());
  Eigen::setNbThreads(xhat::bench::threads());
  std::string version = std::to_string(EIGEN_WORLD_VERSION) + "." + std::to_string(EIGEN_MAJOR_VERSION) +
                        "." + std::to_string(EIGEN_MINOR_VERSION);
  return xhat::bench::serve(
      version, [] {}, xhat::bench::eigen::load);
}

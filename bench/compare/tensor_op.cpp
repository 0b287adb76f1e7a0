#include "bench/compare/tensor_op.h"

#include <omp.h>

#include <memory>
#include <utility>

namespace xhat::bench {

const Data& TensorOp::read(const std::string& file) {
  return data_.try_emplace(file, folder_ + "/" + file + ".npy").first->second;
}

Tensor TensorOp::add(const std::string& name, std::vector<int64_t> shape) {
  return view(data_.try_emplace(name, DType::f32, std::move(shape)).first->second);
}

Tensor TensorOp::input(const std::string& name) { return view(read("in." + name)); }
Tensor TensorOp::output(const std::string& name, std::vector<int64_t> shape) {
  return add("y." + name, std::move(shape));
}
Tensor TensorOp::gradient(const std::string& input) { return add("g." + input, read("in." + input).shape); }

Tensor TensorOp::scratch(std::vector<int64_t> shape) {
  return add("scratch." + std::to_string(data_.size()), std::move(shape));
}

Tensor TensorOp::stash(std::vector<int64_t> shape) {
  Tensor kept = scratch(std::move(shape));
  saved_["extra"] += kept.size() * static_cast<int64_t>(sizeof(float));
  return kept;
}

void TensorOp::saves(std::initializer_list<std::string> inputs_or_outputs) {
  for (const std::string& name : inputs_or_outputs) {
    auto input = data_.find("in." + name);
    const Data& kept = input != data_.end() ? input->second : data_.at("y." + name);
    saved_[input != data_.end() ? "inputs" : "outputs"] += static_cast<int64_t>(kept.bytes());
  }
}

Tensor TensorOp::over(const std::string& output, const std::string& input_name) {
  over_[output] = input_name;
  return input(input_name);
}

LoadedOp TensorOp::loaded() const {
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

int serve_ops(const std::string& version, const Loaders& loaders, const std::string& missing) {
  omp_set_num_threads(threads());
  return serve(version, [] {}, [&](const std::string& name, const std::string& folder) {
    auto loader = loaders.find(name);
    if (loader == loaders.end()) throw Skip(missing);
    auto op = std::make_shared<TensorOp>(folder);
    loader->second(*op);
    LoadedOp loaded = op->loaded();
    loaded.owner = op;
    return loaded;
  });
}

}  // namespace xhat::bench

// What the ops of halide_ops.cpp are written in: their inputs as Funcs.
//
// Every op is written down anew for each pipeline, because a schedule belongs to the Funcs: one pipeline for infer,
// one for backward, which computes from inputs and cotangents what it needs of the forward. forward() is infer(),
// except where an op keeps something (softmax).
#pragma once
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "Halide.h"
#include "bench/compare/protocol.h"

namespace xhat::halide_peer {

using bench::Data;
using Halide::Buffer;
using Halide::Func;
using Halide::ImageParam;
using Halide::Var;

enum class Phase { infer, forward, backward };

inline std::vector<int> extents(const Data& data) { return {data.shape.rbegin(), data.shape.rend()}; }
inline Buffer<float> view(const Data& data) { return Buffer<float>(data.floats(), extents(data)); }

inline Halide::Region region(const std::vector<int>& extents) {
  Halide::Region box;
  for (int extent : extents) box.emplace_back(0, extent);
  return box;
}

// Bounds and strides are told: shapes are constants, as they are for the compilers in Python.
template <typename Parameter>
void fix_shape(Parameter parameter, const std::vector<int>& extents) {
  int stride = 1;
  for (size_t i = 0; i < extents.size(); ++i) {
    parameter.dim(static_cast<int>(i)).set_bounds(0, extents[i]).set_stride(stride).set_estimate(0, extents[i]);
    stride *= extents[i];
  }
}

// The tensors of one op, which its pipelines share, by the names of their files: in.x, d.y, y.y, g.x, kept.m.
class Tensors {
 public:
  explicit Tensors(std::string folder) : folder_(std::move(folder)) {}

  const Data& file(const std::string& name) {
    auto found = data_.find(name);
    return found != data_.end() ? found->second
                                : data_.try_emplace(name, folder_ + "/" + name + ".npy").first->second;
  }
  const Data& make(const std::string& name, const std::vector<int64_t>& shape) {
    return data_.try_emplace(name, DType::f32, shape).first->second;
  }
  int64_t input_bytes() const {
    int64_t bytes = 0;
    for (const auto& [name, data] : data_)
      if (name.starts_with("in.")) bytes += static_cast<int64_t>(data.bytes());
    return bytes;
  }

 private:
  std::string folder_;
  std::map<std::string, Data> data_;
};

// What an op's definition sees: inputs as Funcs.
class Inputs {
 public:
  Inputs(Phase phase, Tensors* tensors) : phase_(phase), tensors_(tensors) {}

  const Func& operator[](const std::string& name) {
    auto found = funcs_.find(name);
    return found != funcs_.end() ? found->second
                                 : funcs_.emplace(name, read("in." + name)).first->second;
  }
  // With zeros all around. Its gradient is the input's: inside the two are the same. (Differentiated through the
  // boundary condition, it would be scattered to clamped coordinates.)
  const Func& padded(const std::string& name) {
    has_stencil = true;
    return funcs_.emplace(name, read_padded("in." + name)).first->second;
  }
  int extent(const std::string& name, int dimension) {
    return extents(tensors_->file("in." + name)).at(static_cast<size_t>(dimension));
  }

  // A value without gradient, of the shape given: in the backward pipeline an input that the forward computed.
  Func keep(const std::string& name, const Func& value, const std::vector<int64_t>& shape) {
    const Data& data = tensors_->make("kept." + name, shape);
    kept_bytes += static_cast<int64_t>(data.bytes());
    if (phase_ == Phase::backward) return read("kept." + name);
    if (phase_ == Phase::forward) kept.emplace_back(value, &data);
    return value;
  }

  Func read_padded(const std::string& file) {
    return Halide::BoundaryConditions::constant_exterior(read(file), 0.0F,
                                                         region(extents(tensors_->file(file))));
  }

  Func read(const std::string& file) {
    const Data& data = tensors_->file(file);
    std::vector<int> sizes = extents(data);
    std::string name = file;  // for Halide's messages
    std::ranges::replace(name, '.', '_');
    ImageParam image(Halide::Float(32), static_cast<int>(sizes.size()), name);
    fix_shape(image, sizes);
    image.set(view(data));
    std::vector<Var> vars(sizes.size());
    Func input;
    input(vars) = image(vars);
    return input;
  }

  std::vector<std::pair<Func, const Data*>> kept;
  int64_t kept_bytes = 0;
  bool has_stencil = false;

 private:
  Phase phase_;
  Tensors* tensors_;
  std::map<std::string, Func> funcs_;
};

using Outputs = std::map<std::string, Func>;

struct Definition {
  Outputs (*outputs)(Inputs& in);
  std::vector<std::string> differentiated;  // inputs; none: inference only
};

extern const std::map<std::string, Definition> kOps;

}  // namespace xhat::halide_peer

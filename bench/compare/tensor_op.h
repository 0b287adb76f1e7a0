// What the ops written in C++ share: their tensors, by name, and their calls.
#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "bench/compare/protocol.h"

namespace xhat::bench {

// A row-major tensor, which the TensorOp owns.
struct Tensor {
  float* data;
  std::vector<int64_t> shape;

  int64_t columns() const { return shape.back(); }
  int64_t rows() const { return size() / columns(); }
  int64_t size() const {
    int64_t n = 1;
    for (int64_t extent : shape) n *= extent;
    return n;
  }
};

// One op: its tensors and its calls, which a loader sets.
class TensorOp {
 public:
  explicit TensorOp(std::string folder) : folder_(std::move(folder)) {}

  std::function<void()> infer;              // empty where forward is as good
  std::function<void()> forward, backward;  // empty where no gradient is asked for

  Tensor input(const std::string& name);
  const Data& ids(const std::string& name) { return read("in." + name); }
  Tensor output(const std::string& name, std::vector<int64_t> shape);
  Tensor over(const std::string& output, const std::string& input);  // the output, in the input's place
  Tensor cotangent(const std::string& output) { return view(read("d." + output)); }
  Tensor gradient(const std::string& input);
  Tensor stash(std::vector<int64_t> shape);    // what forward keeps for backward beside inputs and outputs
  Tensor scratch(std::vector<int64_t> shape);  // what no call leaves to another
  void saves(std::initializer_list<std::string> inputs_or_outputs);  // what backward reads of them

  LoadedOp loaded() const;

 private:
  static Tensor view(const Data& data) { return {data.floats(), data.shape}; }
  const Data& read(const std::string& file);
  Tensor add(const std::string& name, std::vector<int64_t> shape);

  std::string folder_;
  std::map<std::string, Data> data_;  // by file name: in.x, y.y, d.y, g.x
  std::map<std::string, std::string> over_;  // by output
  std::map<std::string, int64_t> saved_ = {{"inputs", 0}, {"outputs", 0}, {"extra", 0}};  // bytes
};

using Loader = void (*)(TensorOp&);
using Loaders = std::map<std::string, Loader>;

// serve() for these ops, with OpenMP on all threads. `missing`: why another op is left out.
int serve_ops(const std::string& version, const Loaders& loaders, const std::string& missing);

}  // namespace xhat::bench

// One op's tensors for tests of calls on a GPU: layer norm, whose backward hands sums from one kernel to the next. Header only.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "runtime/call/compile.h"

namespace xhat::testing {

struct LayerNorm {
  int64_t rows = 300, width = 132;  // many tiles, of which the last one is not full

  static CompiledOp compiled(Target target) {
    CompileOptions options;
    options.target = target;
    return compile(parse_op("op layer_norm(x: f32[N,D], gamma: f32[D], beta: f32[D]) -> (y) {\n"
                            "  mu[n] = mean(d: x[n,d])\n"
                            "  var[n] = mean(d: (x[n,d] - mu[n])^2)\n"
                            "  y[n,d] = (x[n,d] - mu[n]) / sqrt(var[n] + 1e-5) * gamma[d] + beta[d]\n}"),
                   options);
  }
  static std::vector<std::string> forward_names() { return {"x", "gamma", "beta", "y"}; }
  static std::vector<std::string> backward_names() { return {"x", "gamma", "dy", "grad_x", "grad_gamma", "grad_beta"}; }
  static std::vector<std::string> results() { return {"y", "grad_x", "grad_gamma", "grad_beta"}; }

  std::vector<int64_t> shape(const std::string& name) const {
    bool matrix = name == "x" || name == "y" || name == "dy" || name == "grad_x";
    return matrix ? std::vector<int64_t>{rows, width} : std::vector<int64_t>{width};
  }
  size_t elements(const std::string& name) const {
    size_t n = 1;
    for (int64_t e : shape(name)) n *= static_cast<size_t>(e);
    return n;
  }
  // Inputs: some numbers, others for every seed. Results: rubbish.
  std::vector<float> numbers(const std::string& name, int seed) const {
    std::vector<float> v(elements(name));
    size_t at = static_cast<size_t>(seed) * 77 + name.size();
    for (float& f : v) f = static_cast<float>((++at * 2654435761u) % 1000) / 500 - 1;
    return v;
  }
};

using Numbers = std::map<std::string, std::vector<float>>;

// By buffers of the host.
inline Numbers on_host_buffers(const CompiledOp& op, const LayerNorm& norm, int seed) {
  Numbers all;
  auto arguments = [&](const std::vector<std::string>& names) {
    std::vector<Argument> list;
    for (const std::string& name : names) {
      auto [it, fresh] = all.try_emplace(name);
      if (fresh) it->second = norm.numbers(name, seed);
      auto shape = norm.shape(name);
      list.push_back({it->first, TensorView(it->second.data(), std::span<const int64_t>(shape))});
    }
    return list;
  };
  Stash stash = op.forward(arguments(norm.forward_names()));
  op.backward(arguments(norm.backward_names()), stash);
  return all;
}

}  // namespace xhat::testing

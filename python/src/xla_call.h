// Calls of ops from XLA, which JAX compiles to: one handler for all of them, which finds the op by a key among its attributes.
#pragma once
#include <memory>
#include <string>

#include "python/src/op.h"

namespace xhat::python {

// An op that a handler may be asked for, by buffers in order.
class XlaCall {
 public:
  // gradient: (inputs, cotangents) -> gradients, by forward and backward; else (inputs) -> outputs.
  XlaCall(std::shared_ptr<Variant> variant, bool gradient);
  void run(std::span<const TensorView> arguments, std::span<const TensorView> results) const;

  const std::vector<Parameter>& results() const { return gradient_ ? variant_->gradients : variant_->outputs; }
  size_t arguments() const { return variant_->inputs.size() + (gradient_ ? variant_->cotangents.size() : 0); }
  const Parameter& argument(size_t i) const {
    const size_t inputs = variant_->inputs.size();
    return i < inputs ? variant_->inputs[i] : variant_->cotangents[i - inputs];
  }

 private:
  std::shared_ptr<Variant> variant_;
  bool gradient_;
};

// Keys are of what is computed, not of this process: code that XLA kept on disk finds the same op, or none.
void register_call(const std::string& key, XlaCall call);

}  // namespace xhat::python

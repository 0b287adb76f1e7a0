// An op or program as Python sees it: a text, options, and what is compiled of them when it is first called.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "python/src/array_view.h"
#include "runtime/call/compile.h"
#include "tools/commands.h"

namespace xhat::python {

// A tensor that calls take or give.
struct Parameter {
  std::string name;
  DType type = DType::f32;
  TensorId tensor = 0;
};

// An op compiled for what one set of keywords says of its dims.
class Variant {
 public:
  Variant(const Program& op, const CompileOptions& options);

  // The shapes of `results`, in order, for a call with these inputs (and more views behind them); kept for the last few shapes seen.
  using ShapeList = std::vector<std::vector<int64_t>>;
  std::shared_ptr<const ShapeList> shapes_of(const std::vector<Parameter>& results, std::span<const TensorView> inputs, size_t which);
  ShapeList shapes_now(const std::vector<Parameter>& results, std::span<const TensorView> inputs) const;  // from any thread

  CompiledOp compiled;
  DimValues given;
  std::vector<Parameter> inputs, outputs, cotangents, gradients;

 private:
  struct Seen {
    std::vector<int64_t> extents;  // of all inputs, one after the other
    std::shared_ptr<const ShapeList> shapes;
  };
  const Program program_;      // forward, and backward if there is one; its own copy: others plan with the compiled op's meanwhile
  std::vector<Seen> seen_[2];  // of outputs, of gradients
  size_t next_ = 0;
};

// What a forward keeps: the stash, and of the caller's arrays those that the backward reads.
class Kept {
 public:
  std::shared_ptr<Variant> variant;
  Stash stash;
  std::vector<std::string> names;   // of the caller's arrays that are kept
  std::vector<nb::object> objects;  // these; parallel to names
  std::vector<TensorView> inputs;   // shapes of the call
  Library library;
  int64_t bytes() const { return stash.bytes(); }
};

class PyOp : public std::enable_shared_from_this<PyOp> {
 public:
  PyOp(tool::Source source, tool::Command options);

  nb::object call(const nb::args& args, const nb::kwargs& kwargs);
  nb::object forward(const nb::args& args, const nb::kwargs& kwargs);
  nb::object backward(Kept& kept, const nb::args& args, const nb::kwargs& kwargs);

  std::shared_ptr<Variant> variant_of(const nb::dict& dims, bool differentiate);
  // The subcommand on this op: exit status and answer.
  std::pair<int, std::string> tool(const std::string& name, const nb::dict& dims, const nb::dict& options) const;

  std::shared_ptr<PyOp> with_options(const nb::kwargs& options) const;
  enum class Product : uint8_t { vjp, jvp, hvp, jacobian, hessian };
  std::shared_ptr<PyOp> product(Product which) const;
  std::shared_ptr<PyOp> vmap(const nb::args& inputs) const;
  // The op with these outputs only, and what they need.
  std::shared_ptr<PyOp> only(const std::vector<std::string>& outputs) const;
  // Inference, forward (whose further outputs are the stash) and backward as ops of their own, at the nominal sizes or those given.
  std::vector<std::shared_ptr<PyOp>> directions(const nb::dict& dims) const;

  const Program& program() const { return source_.op; }
  const tool::Source& source() const { return source_; }
  nb::tuple state() const;       // (text, file, name, options) that make() takes: for pickle
  std::string identity() const;  // all that decides what it computes and how
  std::vector<std::string> gradients();
  std::vector<std::string> cotangents();
  std::vector<std::string> differentiable() const;  // the inputs that gradients are of, in this order

 private:
  struct Call;
  std::shared_ptr<Variant> variant(const DimValues& dims, bool differentiate);
  // With the arguments looked at, and place for results.
  std::shared_ptr<Variant> ready(Call& c, const nb::args& args, const nb::kwargs& kwargs, bool differentiate);
  [[noreturn]] void rethrow(const Error& e) const;  // with its place in the text
  bool derived_ = false;                            // not what the source says, but made of it
  std::shared_ptr<PyOp> derived(Program program, tool::Command options) const;
  std::shared_ptr<PyOp> new_product(Product which) const;

  const tool::Source source_;
  const tool::Command options_;
  std::vector<Parameter> inputs_;
  std::vector<std::string> dims_;
  std::map<std::pair<DimValues, bool>, std::shared_ptr<Variant>> variants_;
  mutable std::map<Product, std::shared_ptr<PyOp>> products_;
  std::shared_ptr<Variant> plain_[2];  // without dims given: to infer, to differentiate
};

// Options by keyword, as those of the tool. Throws Error for one that is not known.
void set_options(tool::Command& c, const nb::dict& options);

}  // namespace xhat::python

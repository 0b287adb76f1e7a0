// xhat run: .npy files in, .npy files out; the gradients too where cotangents are given, and products with the
// derivatives where tangents are.
#include <algorithm>
#include <filesystem>
#include <iostream>

#include <fmt/format.h>

#include "ad/common/differentiation.h"
#include "ad/forward/jvp.h"
#include "expr/eval/evaluate.h"
#include "expr/index/size_limits.h"
#include "expr/index/without_points.h"
#include "tools/commands.h"
#include "tools/data.h"
#include "tools/memory.h"
#include "tools/progress.h"

namespace xhat::tool {
namespace {

std::string list_of(const Program& p, const std::vector<TensorId>& tensors) {
  return fmt::format("{}", fmt::join(names_of(p, tensors), ", "));
}

class Run {
 public:
  Run(const Command& c, const Program& op) : c_(c), op_(op) {
    for (TensorId t : op.outputs)
      if (is_float(op.tensors[t].type)) float_outputs_.push_back(t);
  }

  int run() {
    read_inputs();
    read_cotangents();
    read_tangents(c_.jvp, "--jvp", jvp_);
    read_tangents(c_.hvp, "--hvp", hvp_);
    Shapes shapes;
    for (const auto& [name, array] : inputs_) shapes[name] = array.shape;
    dims_ = solve_dims(op_, shapes, dims_of(c_));
    for (const Number& n : numbers_)
      (*n.into)[op_.tensors[n.tensor].name] = filled(op_.tensors[n.tensor].type, shape_of(op_, n.tensor, dims_), n.value);
    check_shapes();

    options_ = compile_options(c_);
    options_.on_compile = [this](size_t ready, size_t all) { progress_.show(fmt::format("kernel {} of {}", ready, all), true); };
    options_.differentiate = !cotangents_.empty();
    options_.dims = dims_of(c_);
    if (options_.differentiate || jvp_.empty()) run_kernels();
    options_.differentiate = false;
    if (!jvp_.empty()) run_jvp();
    if (!hvp_.empty()) run_hvp();
    progress_.show("");
    write();
    return kFine;
  }

 private:
  const Command& c_;
  const Program& op_;
  std::vector<TensorId> float_outputs_;
  CompileOptions options_;
  std::map<std::string, NpyArray> inputs_, cotangents_;  // by input, by output
  std::map<std::string, NpyArray> jvp_, hvp_;            // tangents by input
  std::map<std::string, NpyArray> results_;              // by file name
  struct Number {                                        // that stands for a whole array
    std::map<std::string, NpyArray>* into;
    TensorId tensor;
    double value;
  };
  std::vector<Number> numbers_;
  Progress progress_{"run"};
  DimValues dims_;

  void read_inputs() {
    for (const auto& [name, path] : pairs_of(c_.in, "--in")) {
      const TensorId t = input_named(op_, name, "--in");
      const auto number = op_.tensors[t].shape.empty() && is_float(op_.tensors[t].type) ? number_for(path) : std::nullopt;
      inputs_[name] = number ? filled(op_.tensors[t].type, {}, *number) : read_array(op_, t, path, name);
    }
    for (const auto& [name, value] : scalars_of(c_, op_)) {
      if (inputs_.contains(name)) throw UsageError(fmt::format("{} is given by --in and by --set", name));
      inputs_[name] = to_npy(value);
    }
    for (TensorId t : op_.inputs) {
      const Tensor& tensor = op_.tensors[t];
      if (inputs_.contains(tensor.name)) continue;
      throw Error(
          fmt::format("op {}: the input {} is missing; give it, as --in {}=FILE{}", op_.name, tensor.name,
                      tensor.name, tensor.shape.empty() ? " or --set " + tensor.name + "=VALUE" : ""),
          tensor.pos);
    }
  }

  void read_cotangents() {
    for (const auto& [name, path] : pairs_of(c_.dy, "--dy")) {
      auto t = op_.find(name);
      bool output = t && std::ranges::find(op_.outputs, *t) != op_.outputs.end();
      if (!output)
        throw UsageError(fmt::format("--dy {}: op {} has no output of that name; it has {}", name, op_.name,
                                     list_of(op_, op_.outputs)));
      if (!is_float(op_.tensors[*t].type))
        throw UsageError(
            fmt::format("--dy {}: this output of op {} is {} and has no cotangent; those that have are {}",
                        name, op_.name, name_of(op_.tensors[*t].type), list_of(op_, float_outputs_)));
      if (const auto number = number_for(path))
        numbers_.push_back({&cotangents_, *t, *number});
      else
        cotangents_[name] = read_array(op_, *t, path, "the cotangent of " + name);
    }
    if (c_.dy.empty() && c_.hvp.empty() && !c_.grad) return;
    for (const Number& n : numbers_) cotangents_[op_.tensors[n.tensor].name];  // filled when its shape is known
    if (cotangents_.empty() && float_outputs_.size() == 1 && op_.tensors[float_outputs_[0]].shape.empty())
      cotangents_[op_.tensors[float_outputs_[0]].name] = filled(op_.tensors[float_outputs_[0]].type, {}, 1);  // of a loss
    for (TensorId t : float_outputs_)
      if (!cotangents_.contains(op_.tensors[t].name))
        throw Error(fmt::format("op {}: the cotangent of output {} is missing; give it, as --dy {}=FILE or a number: gradients and "
                                "--hvp need one for every float output ({})",
                                op_.name, op_.tensors[t].name, op_.tensors[t].name, list_of(op_, float_outputs_)),
                    op_.tensors[t].pos);
  }

  void read_tangents(const std::vector<std::string>& items, const std::string& option,
                     std::map<std::string, NpyArray>& tangents) {
    for (const auto& [name, path] : pairs_of(items, option)) {
      input_named(op_, name, option);
      TensorId t = asked_for(op_, {name}).at(0);  // throws for one that does not move
      if (const auto number = number_for(path)) {
        tangents[name];
        numbers_.push_back({&tangents, t, *number});
      } else {
        tangents[name] = read_array(op_, t, path, "the tangent of " + name);
      }
    }
  }

  void check_shapes() const {
    auto check = [&](const std::map<std::string, NpyArray>& arrays, const std::string& what) {
      for (const auto& [name, array] : arrays) {
        auto want = shape_of(op_, *op_.find(name), dims_);
        if (array.shape != want)
          throw Error(fmt::format("op {}: the {} of {} has shape {}, but {} has {} with {}", op_.name, what,
                                  name, shape_text(array.shape), name, shape_text(want), dims_text(dims_)),
                      op_.tensors[*op_.find(name)].pos);
      }
    };
    check(cotangents_, "cotangent");
    check(jvp_, "tangent");
    check(hvp_, "direction");
  }

  // Cotangents are named by the derivation, in the order of the float outputs.
  std::string cotangent_name(const Program& p, size_t i) const { return p.tensors[p.cotangents[i]].name; }

  static std::vector<std::string> names(const std::map<std::string, NpyArray>& arrays) {
    std::vector<std::string> list;
    for (const auto& [name, array] : arrays) list.push_back(name);
    return list;
  }

  void run_jvp() {
    std::vector<std::string> moving = names(jvp_), files;
    for (TensorId t : op_.outputs) files.push_back(op_.tensors[t].name);
    for (TensorId t : float_outputs_) files.push_back("jvp_" + op_.tensors[t].name);
    run_product(readable_at(jvp(op_, {moving}), dims_), jvp_, files);
  }

  void run_hvp() {
    std::vector<std::string> files;
    for (TensorId t : asked_for(op_, options_.wrt)) files.push_back("hvp_" + op_.tensors[t].name);
    run_product(readable_at(hvp(op_, {.wrt = options_.wrt, .along = names(hvp_)}), dims_), hvp_, files);
  }

  // An op whose inputs are the op's, maybe the cotangents, and the tangents in the order of their names; files: what
  // its outputs are called.
  void run_product(const Program& product, const std::map<std::string, NpyArray>& tangents,
                   const std::vector<std::string>& files) {
    std::map<std::string, NpyArray> data = inputs_;
    size_t next = op_.inputs.size();
    auto give = [&](const NpyArray& array) { data[product.tensors[product.inputs[next++]].name] = array; };
    if (product.inputs.size() > op_.inputs.size() + tangents.size())
      for (TensorId t : float_outputs_) give(cotangents_.at(op_.tensors[t].name));
    for (const auto& [name, array] : tangents) give(array);

    CompiledOp compiled = compile(product, options_);
    check_sizes(product);
    Buffers buffers;
    for (const auto& [name, array] : data) buffers.emplace(name, Buffer(array));
    for (TensorId t : product.outputs)
      buffers.emplace(product.tensors[t].name, Buffer(product.tensors[t].type, shape_of(product, t, dims_)));
    compiled.infer(arguments_of(buffers));
    for (size_t i = 0; i < files.size(); ++i)
      results_[files[i]] = buffers.at(product.tensors[product.outputs[i]].name).npy();
  }

  // Of files it has more than it needs; what kernels hand on to each other is small as a rule.
  void check_sizes(const Program& p) const {
    check_kernel_sizes(p, dims_);
    double bytes = bytes_of(p, p.inputs, dims_) + bytes_of(p, p.outputs, dims_) + bytes_of(p, p.cotangents, dims_) +
                   bytes_of(p, p.gradients, dims_);
    if (options_.differentiate) bytes += bytes_of(p, stashes(p), dims_);
    check_memory(c_, op_, dims_, bytes);
  }

  void run_kernels() {
    CompiledOp compiled = compile(op_, options_);
    const Program& p = compiled.program(dims_);
    check_sizes(p);
    Buffers forward;
    for (const auto& [name, array] : inputs_) forward.emplace(name, Buffer(array));
    for (TensorId t : p.outputs)
      forward.emplace(p.tensors[t].name, Buffer(p.tensors[t].type, shape_of(p, t, dims_)));
    if (!options_.differentiate) {
      compiled.infer(arguments_of(forward));
    } else {
      Stash stash = compiled.forward(arguments_of(forward));
      Buffers gradients, cotangents;
      for (size_t i = 0; i < p.cotangents.size(); ++i)
        cotangents.emplace(cotangent_name(p, i), Buffer(cotangents_.at(op_.tensors[float_outputs_[i]].name)));
      for (TensorId t : p.gradients)
        gradients.emplace(p.tensors[t].name, Buffer(p.tensors[t].type, shape_of(p, t, dims_)));
      // Only what stays with the caller is handed to the backward.
      std::vector<Argument> arguments = arguments_of(cotangents);
      for (const Argument& a : arguments_of(gradients)) arguments.push_back(a);
      std::vector<std::string> kept = compiled.kept(stash);  // outlives the arguments
      for (const std::string& name : kept) arguments.push_back({name, forward.at(name).view()});
      compiled.backward(arguments, stash);
      for (size_t i = 0; i < p.gradients.size(); ++i)
        results_["grad_" + p.tensors[p.gradient_of[i]].name] =
            gradients.at(p.tensors[p.gradients[i]].name).npy();
    }
    for (TensorId t : p.outputs) results_[p.tensors[t].name] = forward.at(p.tensors[t].name).npy();
  }

  void write() const {
    std::error_code error;
    std::filesystem::create_directories(c_.out, error);
    if (error) throw UsageError(fmt::format("--out {}: it cannot be made: {}", c_.out, error.message()));
    for (const auto& [name, array] : results_) {
      try {
        write_npy((std::filesystem::path(c_.out) / (name + ".npy")).string(), array);
      } catch (const Error& e) {
        throw UsageError(e.message());
      }
    }
  }
};

}  // namespace

int run_command(const Command& c, const Source& source) { return Run(c, source.op).run(); }

}  // namespace xhat::tool

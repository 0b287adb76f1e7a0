// xhat as a program of the protocol in protocol.h: ops from bench/peer_ops/<op>.xh or bench/programs/<op>.xh, or from FOLDER/<op>.xh,
// or those of a file with many.
//
//     build/bench/xhat_peer [FOLDER or FILE.xh]
//
// Stash policy: cost, all inputs and outputs stay with the caller, and the stash is handed to forward() again.
#include <algorithm>
#include <fstream>
#include <list>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "bench/compare/protocol.h"
#include "expr/index/dims.h"
#include "runtime/call/compile.h"
#include "runtime/cpu/kernel_cache.h"

namespace {

using namespace xhat;
using bench::Data;
using bench::json;
using bench::now;
using Phase = CompiledOp::Phase;

// Ops that the suite lets write over their inputs ("in place" in ops.py): the input by output.
const std::map<std::string, std::map<std::string, std::string>> kInPlace = {{"adam_step", {{"p1", "p"}, {"m1", "m"}, {"v1", "v"}}}};

// One op with its data: compiled, and its calls.
class XhatOp {
 public:
  XhatOp(const std::string& text, const std::string& wanted, const std::string& folder) {
    double start = now();
    Program op = parse_op(text, wanted);
    trained_ = std::ranges::any_of(op.inputs, [&](TensorId t) { return is_float(op.tensor(t).type) && !op.tensor(t).constant; });
    compile_s_ = {{"infer", now() - start}};

    Shapes shapes;
    for (TensorId t : op.inputs) {
      const std::string& name = op.tensor(t).name;
      shapes[name] = data_.emplace_back(folder + "/in." + name + ".npy").shape;
    }
    outside_ = outside_dims(op, folder);
    dims_ = solve_dims(op, shapes, outside_);
    build(op);

    const Program& p = program();
    auto input = data_.begin();
    for (TensorId t : p.inputs) add(t, *input++, &outer_);
    for (TensorId t : p.outputs) add_output(t);
    if (!over_.empty()) {
      restart_ = bench::restarter(over_);
      start = now();
      infer();  // compiles
      compile_s_["infer"] = compile_s_["infer"].get<double>() + now() - start;
    }
    inner_ = outer_;
    for (size_t i = 0; i < p.cotangents.size(); ++i)
      add(p.cotangents[i], data_.emplace_back(folder + "/d." + p.tensor(p.outputs[i]).name + ".npy"), &inner_);
    for (TensorId t : p.gradients) add_new(t, &inner_);
  }

  bool trained() const { return trained_; }
  const std::function<void()>& restart() const { return restart_; }
  void infer() { op_.infer(outer_); }
  void forward() { op_.forward(outer_, stash_); }
  void backward() { op_.backward(inner_, stash_); }

  std::map<std::string, const Data*> outputs() const {
    std::map<std::string, const Data*> named;
    for (TensorId t : program().outputs) named[program().tensor(t).name] = of_tensor_[t];
    return named;
  }
  std::map<std::string, const Data*> gradients() const {
    std::map<std::string, const Data*> named;
    for (size_t i = 0; i < program().gradients.size(); ++i)
      named[program().tensor(program().gradient_of[i]).name] = of_tensor_[program().gradients[i]];
    return named;
  }

  json describe() {
    json kernels = {{"infer", op_.plan(Phase::infer, dims_).sweeps()}};
    json saved = json::object();
    if (trained_) {
      kernels["fwd"] = op_.plan(Phase::forward, dims_).sweeps();
      kernels["bwd"] = op_.plan(Phase::backward, dims_).sweeps();
      kernels["total"] = kernels["fwd"].get<int>() + kernels["bwd"].get<int>();
      forward();  // makes the stash
      saved = {{"inputs", kept_bytes(program().inputs)}, {"outputs", kept_bytes(program().outputs)}, {"extra", stash_.bytes()}};
    }
    return {{"compile_s", compile_s_}, {"saved", saved}, {"kernels", kernels}};
  }

 private:
  const Program& program() const { return op_.program(); }

  // What no input's shape says: FOLDER/dims.json, where a suite writes that.
  static DimValues outside_dims(const Program& op, const std::string& folder) {
    DimValues values;
    std::ifstream file(folder + "/dims.json");
    const auto written = file ? json::parse(file).get<DimValues>() : values;
    for (const auto& d : op.dims)
      if (auto it = written.find(op.arena->name(d.dim)); d.definition == kNone && it != written.end()) values.insert(*it);
    return values;
  }

  // A cache of its own, so that no compile time is saved by an op measured before.
  void build(const Program& op) {
    CompileOptions options;
    options.threads = bench::threads();
    options.differentiate = trained_;
    options.dims = outside_;
    for (const auto& [name, value] : dims_) options.stash.nominal[name] = value;
    options.cache = std::make_shared<runtime::KernelCache>();
    double start = now();
    op_ = compile(op, options);
    double derived = now();
    if (!kInPlace.contains(op.name)) op_.prepare(Phase::infer, dims_);
    double inferring = now();
    double parsing = compile_s_["infer"];
    // Deriving the gradient is no part of compiling for inference; without one it is.
    compile_s_["infer"] = parsing + (inferring - derived) + (trained_ ? 0 : derived - start);
    if (!trained_) return;
    op_.prepare(Phase::forward, dims_);
    op_.prepare(Phase::backward, dims_);
    // Kernels that forward shares with infer were compiled above.
    compile_s_["train"] = parsing + (derived - start) + (now() - inferring);
  }

  void add_output(TensorId t) {
    auto op = kInPlace.find(program().name);
    if (op == kInPlace.end()) return add_new(t, &outer_);
    const std::string& input = op->second.at(program().tensor(t).name);
    auto name = [&](TensorId x) { return program().tensor(x).name; };
    over_.push_back(of_tensor_[*std::ranges::find(program().inputs, input, name)]);
    add(t, *over_.back(), &outer_);
  }

  void add_new(TensorId t, std::vector<Argument>* to) {
    add(t, data_.emplace_back(program().tensor(t).type, shape_of(program(), t, dims_)), to);
  }

  void add(TensorId t, const Data& data, std::vector<Argument>* to) {
    const Tensor& tensor = program().tensor(t);
    if (data.type != tensor.type || data.shape != shape_of(program(), t, dims_))
      throw Error("the file for '" + tensor.name + "' has another type or shape than the op wants");
    of_tensor_.resize(program().tensors.size());
    of_tensor_[t] = &data;
    to->push_back({tensor.name, TensorView(data.raw(), data.type, data.shape, {})});
  }

  int64_t kept_bytes(const std::vector<TensorId>& among) const {
    int64_t bytes = 0;
    std::vector<std::string> kept = op_.kept();
    for (TensorId t : among)
      if (std::ranges::find(kept, program().tensor(t).name) != kept.end()) bytes += static_cast<int64_t>(of_tensor_[t]->bytes());
    return bytes;
  }

  CompiledOp op_;
  bool trained_ = false;  // has inputs to differentiate
  DimValues outside_, dims_;
  json compile_s_;
  std::list<Data> data_;  // a list, for elements stay where they are
  std::vector<const Data*> of_tensor_;
  std::vector<Argument> outer_, inner_;  // of infer and forward; of backward
  Stash stash_;
  std::vector<const Data*> over_;  // inputs that outputs are written over
  std::function<void()> restart_;  // empty unless in place
};

// The first compile of a process also sets LLVM up, a matter of the process and not of an op.
void start_compiler() {
  CompileOptions options;
  options.cache = std::make_shared<runtime::KernelCache>();
  Program op = parse_op("op start(x: f32[N]) -> (y) { y[i] = x[i] + 1 }");
  compile(op, options).prepare(Phase::infer, {{"N", 8}});
}

bench::LoadedOp load(const std::vector<std::string>& ops, const std::string& op_name, const std::string& folder) {
  std::string path;
  std::ifstream file;
  bool of_many = false;  // in one file; else the op of the file with its name is taken, whatever it is called there
  for (const std::string& place : ops) {
    if (file.is_open()) break;
    of_many = place.ends_with(".xh");
    file.open(path = of_many ? place : place + "/" + op_name + ".xh");
  }
  if (!file) throw bench::Skip("there is no " + path);
  std::stringstream text;
  text << file.rdbuf();
  auto op = std::make_shared<XhatOp>(text.str(), of_many ? op_name : "", folder);
  bench::LoadedOp loaded;
  loaded.described = op->describe();
  loaded.infer = [op] { op->infer(); };
  loaded.restart = op->restart();
  if (op->trained()) {
    loaded.forward = [op] { op->forward(); };
    loaded.backward = [op] { op->backward(); };
  }
  loaded.outputs = op->outputs();
  loaded.gradients = op->gradients();
  loaded.owner = op;
  return loaded;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string bench = XHAT_SOURCE_DIR "/bench/";
  const std::vector<std::string> ops = argc > 1 ? std::vector<std::string>{argv[1]} : std::vector{bench + "peer_ops", bench + "programs"};
  return bench::serve("0.1", start_compiler, [&](const std::string& op, const std::string& folder) { return load(ops, op, folder); });
}

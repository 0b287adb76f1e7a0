// xhat as a peer of the runner run_peers.py: commands on stdin, one a line, each answered by one line of JSON.
//
//     run_peers.py --peer xhat=build/bench/xhat_peer           ops from bench/peer_ops/<op>.xh
//     build/bench/xhat_peer FOLDER                             ops from FOLDER/<op>.xh
//
//   load OP DIR     reads DIR/in.<input>.npy and DIR/d.<output>.npy, compiles, warms up
//   check DIR TAG   writes DIR/TAG.y.<output>.npy (of infer), DIR/TAG.g.<input>.npy (of forward and backward)
//   time MIN_MS     one sample of each phase, in milliseconds, averaged as the built-in peers average
//   drop            frees the op
//
// One difference from the built-in peers: they return new arrays from every call, out of an allocator that keeps
// its memory and asks for huge pages. Our calls write into the caller's buffers, so these are allocated once per
// op, on huge pages and touched before any timing, and the stash is handed to forward() again; that is how a C++
// program would use the library. Threads: 2. Stash policy: cost, all inputs and outputs stay with the caller.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/touched_buffer.h"
#include "expr/dims.h"
#include "runtime/compile.h"
#include "runtime/kernel_cache.h"
#include "tools/npy.h"

namespace {

using namespace xhat;
using nlohmann::json;
using Phase = CompiledOp::Phase;

constexpr int kThreads = 2;        // as the built-in peers
constexpr double kLongCall = 0.5;  // seconds: a call this long needs no uncounted one before it, as theirs

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// One op with its data: compiled, and its calls.
class LoadedOp {
 public:
  LoadedOp(const std::string& text, const std::string& folder) {
    double start = now();
    Program op = parse_op(text);
    trained_ = std::ranges::any_of(op.inputs, [&](TensorId t) {
      return is_float(op.tensor(t).type) && !op.tensor(t).constant;
    });
    compile_s_ = {{"infer", now() - start}};

    std::vector<NpyArray> inputs;
    Shapes shapes;
    for (TensorId t : op.inputs) {
      inputs.push_back(read_npy(folder + "/in." + op.tensor(t).name + ".npy"));
      shapes[op.tensor(t).name] = inputs.back().shape;
    }
    dims_ = solve_dims(op, shapes);
    build(op);

    const Program& p = program();
    for (size_t i = 0; i < p.inputs.size(); ++i) add(p.inputs[i], &inputs[i], &outer_);
    for (TensorId t : p.outputs) add(t, nullptr, &outer_);
    inner_ = outer_;
    for (size_t i = 0; i < p.cotangents.size(); ++i) {
      NpyArray dy = read_npy(folder + "/d." + p.tensor(p.outputs[i]).name + ".npy");
      add(p.cotangents[i], &dy, &inner_);
    }
    for (TensorId t : p.gradients) add(t, nullptr, &inner_);
    warm_up();
  }

  json describe() const {
    json kernels = {{"infer", op_.plan(Phase::infer, dims_).sweeps()}};
    json saved = json::object();
    if (trained_) {
      kernels["fwd"] = op_.plan(Phase::forward, dims_).sweeps();
      kernels["bwd"] = op_.plan(Phase::backward, dims_).sweeps();
      kernels["total"] = kernels["fwd"].get<int>() + kernels["bwd"].get<int>();
      saved = {{"inputs", kept_bytes(program().inputs)},
               {"outputs", kept_bytes(program().outputs)},
               {"extra", stash_.bytes()}};
    }
    return {{"compile_s", compile_s_}, {"saved", saved}, {"kernels", kernels}};
  }

  void check(const std::string& prefix) {
    infer();
    for (TensorId t : program().outputs) write(prefix + ".y." + program().tensor(t).name, t);
    if (!trained_) return;
    forward();
    backward();
    for (size_t i = 0; i < program().gradients.size(); ++i)
      write(prefix + ".g." + program().tensor(program().gradient_of[i]).name, program().gradients[i]);
  }

  json time(double min_ms) {
    auto calls = [&](double seconds) {
      double ms = seconds * 1e3;
      return ms >= min_ms ? 1 : static_cast<int>(std::min(1000.0, std::ceil(min_ms / std::max(ms, 1e-6))));
    };
    int n = calls(t_infer_);
    if (t_infer_ < kLongCall) infer();
    double start = now();
    for (int i = 0; i < n; ++i) infer();
    json sample = {{"infer", (now() - start) / n * 1e3}};
    if (!trained_) return sample;

    n = calls(t_train_);
    if (t_train_ < kLongCall) forward(), backward();
    double forward_s = 0, backward_s = 0;
    for (int i = 0; i < n; ++i) {
      double a = now();
      forward();
      double b = now();
      backward();
      forward_s += b - a;
      backward_s += now() - b;
    }
    sample["fwd"] = forward_s / n * 1e3;
    sample["bwd"] = backward_s / n * 1e3;
    sample["total"] = (forward_s + backward_s) / n * 1e3;  // there is no call that does both in one
    return sample;
  }

 private:
  const Program& program() const { return op_.program(); }
  void infer() { op_.infer(outer_); }
  void forward() { op_.forward(outer_, stash_); }
  void backward() { op_.backward(inner_, stash_); }

  // A cache of its own, so that no compile time is saved by an op measured before.
  void build(const Program& op) {
    CompileOptions options;
    options.threads = kThreads;
    options.differentiate = trained_;
    for (const auto& [name, value] : dims_) options.stash.nominal[name] = value;
    options.cache = std::make_shared<runtime::KernelCache>();
    double start = now();
    op_ = compile(op, options);
    double derived = now();
    op_.prepare(Phase::infer, dims_);
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

  // As the built-in peers: the first call warms up, the second says how many calls make a sample.
  void warm_up() {
    infer();
    double start = now();
    infer();
    t_infer_ = now() - start;
    if (!trained_) return;
    forward(), backward();
    start = now();
    forward(), backward();
    t_train_ = now() - start;
  }

  void add(TensorId t, const NpyArray* values, std::vector<Argument>* to) {
    const Tensor& tensor = program().tensor(t);
    std::vector<int64_t> shape = shape_of(program(), t, dims_);
    TensorView view(nullptr, tensor.type, shape, {});
    size_t bytes = static_cast<size_t>(view.elements()) * byte_size(tensor.type);
    const bench::TouchedBuffer& buffer = buffers_.emplace_back(bytes);
    if (values) {
      if (values->type != tensor.type || values->shape != shape)
        throw Error("the file for '" + tensor.name + "' has another type or shape than the op wants");
      std::memcpy(buffer.data(), values->bytes.data(), bytes);
    }
    view.data = buffer.data();
    views_.resize(program().tensors.size());
    views_[t] = view;
    to->push_back({tensor.name, view});
  }

  int64_t kept_bytes(const std::vector<TensorId>& among) const {
    int64_t bytes = 0;
    std::vector<std::string> kept = op_.kept();
    for (TensorId t : among)
      if (std::ranges::find(kept, program().tensor(t).name) != kept.end())
        bytes += views_[t].elements() * static_cast<int64_t>(byte_size(views_[t].type));
    return bytes;
  }

  void write(const std::string& path, TensorId t) const {
    const TensorView& v = views_[t];
    NpyArray array{v.type, {v.extents().begin(), v.extents().end()}, {}};
    auto* data = static_cast<const std::byte*>(v.data);
    array.bytes.assign(data, data + static_cast<size_t>(v.elements()) * byte_size(v.type));
    write_npy(path + ".npy", array);
  }

  CompiledOp op_;
  bool trained_ = false;  // has inputs to differentiate
  DimValues dims_;
  json compile_s_;
  std::vector<bench::TouchedBuffer> buffers_;
  std::vector<TensorView> views_;           // by tensor
  std::vector<Argument> outer_, inner_;     // of infer and forward; of backward
  Stash stash_;
  double t_infer_ = 0, t_train_ = 0;        // seconds of one call
};

// The first compile of a process also sets LLVM up, a matter of the process and not of an op.
void start_compiler() {
  CompileOptions options;
  options.cache = std::make_shared<runtime::KernelCache>();
  Program op = parse_op("op start(x: f32[N]) -> (y) { y[i] = x[i] + 1 }");
  compile(op, options).prepare(Phase::infer, {{"N", 8}});
}

class Session {
 public:
  explicit Session(std::string folder) : folder_(std::move(folder)) {}

  json answer(const std::string& line) {
    std::istringstream words(line);
    std::string command, a, b;
    words >> command >> a >> b;
    try {
      if (command == "load") return load(a, b);
      if (command == "drop") return op_.reset(), json::object();
      if (command != "check" && command != "time") return {{"error", "unknown command " + command}};
      if (!op_) return {{"error", "no op is loaded"}};
      if (command == "time") return op_->time(std::strtod(a.c_str(), nullptr));
      op_->check(a + "/" + b);
      return json::object();
    } catch (const std::exception& e) {
      return {{"error", e.what()}};
    }
  }

 private:
  json load(const std::string& name, const std::string& data) {
    op_.reset();
    std::string path = folder_ + "/" + name + ".xh";
    std::ifstream file(path);
    if (!file) return {{"skip", "there is no " + path}};
    std::stringstream text;
    text << file.rdbuf();
    op_ = std::make_unique<LoadedOp>(text.str(), data);
    return op_->describe();
  }

  std::string folder_;
  std::unique_ptr<LoadedOp> op_;
};

// One JSON object a line. What is no number in JSON becomes null, what is no UTF-8 a replacement character.
void reply(FILE* to, const json& object) {
  std::string line = object.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
  std::fwrite(line.data(), 1, line.size(), to);
  std::fflush(to);
}

}  // namespace

int main(int argc, char** argv) {
  // Whatever else prints to stdout goes to stderr: one stray line would end the whole run.
  std::fflush(stdout);
  FILE* replies = fdopen(dup(STDOUT_FILENO), "w");
  if (!replies || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    std::perror("xhat_peer: cannot set stdout aside");
    return 1;
  }
  json hello = {{"version", "0.1"}};
  try {
    double start = now();
    start_compiler();
    hello["startup_s"] = now() - start;
  } catch (const std::exception& e) {
    hello["error"] = e.what();
  }
  reply(replies, hello);
  Session session(argc > 1 ? argv[1] : XHAT_SOURCE_DIR "/bench/peer_ops");
  for (std::string line; std::getline(std::cin, line);) reply(replies, session.answer(line));
  return 0;
}

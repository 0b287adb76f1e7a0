// Halide as a program of the protocol in protocol.h: its front end, its autodiff (propagate_adjoints) and its
// autoscheduler Adams2019, with no schedule by hand. The ops are in halide_ops.cpp.
#include <dlfcn.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/compare/halide_ops.h"

namespace {

using namespace xhat;
using namespace xhat::halide_peer;
using bench::json;
using bench::now;

// propagate_adjoints wants the last index where its documentation says the extent.
Halide::Region region_to_last(const std::vector<int>& extents) {
  Halide::Region box;
  for (int extent : extents) box.emplace_back(0, extent - 1);
  return box;
}

// One phase of an op: scheduled and compiled when constructed, then called.
class Compiled {
 public:
  Compiled(const Definition& op, Phase phase, Tensors* tensors) {
    double start = now();
    Inputs in(phase, tensors);
    Outputs outputs = op.outputs(in);
    if (phase == Phase::backward) {
      add_gradients(op, outputs, in, tensors);
    } else {
      for (const auto& [name, func] : outputs)
        add(func, name, tensors->make("y." + name, tensors->file("d." + name).shape));
    }
    for (const auto& [func, data] : in.kept) add(func, "", *data);
    kept_bytes = in.kept_bytes;

    Halide::Target target = Halide::get_jit_target_from_environment();
    pipeline_ = Halide::Pipeline(funcs_);
    pipeline_.apply_autoscheduler(target, {"Adams2019", {{"parallelism", std::to_string(bench::threads())}}});
    pipeline_.compile_jit(target);
    realization_.emplace(buffers_);
    compile_s = now() - start;
  }

  void operator()() {
    try {
      pipeline_.realize(*realization_);
    } catch (const Halide::Error& failed) {  // no std::exception
      throw Error(failed.what());
    }
  }

  std::map<std::string, const Data*> results;
  int64_t kept_bytes = 0;
  double compile_s = 0;

 private:
  void add(Func func, const std::string& name, const Data& data) {
    std::vector<int> sizes = extents(data);
    func.set_estimates(region(sizes));
    fix_shape(func.output_buffer(), sizes);
    funcs_.push_back(func);
    buffers_.emplace_back(view(data));
    if (!name.empty()) results[name] = &data;
  }

  void add_gradients(const Definition& op, const Outputs& outputs, Inputs& in, Tensors* tensors) {
    const auto& [name, y] = *outputs.begin();
    // The gradient of a stencil looks past the edges of the cotangent too.
    Func cotangent = in.has_stencil ? in.read_padded("d." + name) : in.read("d." + name);
    Halide::Derivative gradient =
        Halide::propagate_adjoints(y, cotangent, region_to_last(extents(tensors->file("d." + name))));
    for (const std::string& input : op.differentiated)
      add(gradient(in[input]), input, tensors->make("g." + input, tensors->file("in." + input).shape));
  }

  std::vector<Func> funcs_;
  std::vector<Buffer<>> buffers_;
  Halide::Pipeline pipeline_;
  std::optional<Halide::Realization> realization_;
};

struct LoadedPipelines {
  explicit LoadedPipelines(const std::string& folder) : tensors(folder) {}
  Tensors tensors;
  std::optional<Compiled> infer, forward, backward;
};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

bench::LoadedOp load(const std::string& name, const std::string& folder) {
  auto found = kOps.find(name);
  if (found == kOps.end()) throw bench::Skip("not written down for Halide");
  const Definition& op = found->second;
  auto all = std::make_shared<LoadedPipelines>(folder);
  bench::LoadedOp loaded;
  loaded.owner = all;
  try {
    Compiled& infer = all->infer.emplace(op, Phase::infer, &all->tensors);
    loaded.infer = [all] { (*all->infer)(); };
    loaded.outputs = infer.results;
    json compile_s = {{"infer", infer.compile_s}}, saved = json::object();
    if (!op.differentiated.empty()) {
      if (infer.kept_bytes) all->forward.emplace(op, Phase::forward, &all->tensors);
      Compiled& backward = all->backward.emplace(op, Phase::backward, &all->tensors);
      loaded.forward = [all] { all->forward ? (*all->forward)() : (*all->infer)(); };
      loaded.backward = [all] { (*all->backward)(); };
      loaded.gradients = backward.results;
      compile_s["train"] = (all->forward ? all->forward->compile_s : infer.compile_s) + backward.compile_s;
      saved = {{"inputs", all->tensors.input_bytes()}, {"outputs", 0}, {"extra", infer.kept_bytes}};
    }
    loaded.described = {{"compile_s", compile_s}, {"saved", saved}};
  } catch (const Halide::Error& why) {
    throw bench::Skip(first_line(why.what()));
  }
  return loaded;
}

// The first compile of a process also sets LLVM up. Halide's load_plugin() looks in the system's folders alone; this
// looks where libHalide.so was found.
void start_compiler() {
  if (!dlopen("libautoschedule_adams2019.so", RTLD_LAZY)) throw Error(dlerror());
  Var i;
  Func start;
  start(i) = i + 1;
  start.realize({8});
  Halide::Internal::JITSharedRuntime::set_num_threads(bench::threads());
}

}  // namespace

int main() {
  std::string version = std::to_string(HALIDE_VERSION_MAJOR) + "." + std::to_string(HALIDE_VERSION_MINOR) + "." +
                        std::to_string(HALIDE_VERSION_PATCH);
  return bench::serve(version, start_compiler, load);
}

// What the first call of a process costs: without a disk cache, with an empty one, which it fills, and with a full one.
//
//     build/bench/first_call [--runs N] [OP...]
//
// Each op of bench/peer_ops, in processes of its own, at a small batch, so that the calls themselves take little (`warm`). All
// in ms: `derive`: parse and derive the op; then the first infer; the first forward; the first backward (each in the process
// that made no other call but, before backward, forward). Least of N runs (default 5), of two where kernels are compiled.
// `first call` is derive and infer, or derive and forward, whichever is longer.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/peer_op.h"
#include "bench/small_ops.h"
#include "bench/touched_buffer.h"
#include "expr/index/dims.h"
#include "runtime/call/compile.h"

namespace {

using namespace xhat;
using nlohmann::json;
namespace fs = std::filesystem;

using bench::SmallOp;

constexpr int kColdRuns = 2;

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

// The child: one op, from its text; prints {"derive": ..., "infer": ..., "infer warm": ..., ...}.
int child(const SmallOp& c, bool train) {
  auto start = Clock::now();
  CompiledOp op = compile(parse_op(bench::peer_op(c.op)));
  json ms = {{"derive", ms_since(start)}};
  const Program& p = op.program();
  std::vector<bench::TouchedBuffer> buffers;
  std::vector<Argument> outer, inner;
  for (const auto* list : {&p.inputs, &p.outputs, &p.cotangents, &p.gradients})
    for (TensorId t : *list) {
      const Tensor& x = p.tensor(t);
      TensorView view(nullptr, x.type, shape_of(p, t, c.dims), {});
      auto count = static_cast<size_t>(view.elements());
      view.data = buffers.emplace_back(count * byte_size(x.type)).data();
      for (size_t i = 0; x.type == DType::f32 && i < count; ++i)
        static_cast<float*>(view.data)[i] = static_cast<float>((i * 37 + t) % 101) * 0.001f + 0.01f;  // no gate shut
      inner.push_back({x.name, view});
      if (list == &p.inputs || list == &p.outputs) outer.push_back({x.name, view});
    }
  auto timed = [&](const std::string& name, auto&& call) {
    for (const char* when : {"", " warm"}) {
      auto begin = Clock::now();
      call();
      ms[name + when] = ms_since(begin);
    }
  };
  if (!train) {
    timed("infer", [&] { op.infer(outer); });
  } else {
    Stash stash;
    timed("forward", [&] { op.forward(outer, stash); });
    if (!p.gradients.empty()) timed("backward", [&] { op.backward(inner, stash); });
  }
  std::cout << ms.dump() << std::endl;
  return 0;
}

// What a child of this program prints; "process": ms from its start to its end.
json of_child(const std::string& op, const std::string& what, const std::string& cache) {
  auto start = Clock::now();
  std::string command = fmt::format("XHAT_CACHE_DIR='{}' /proc/{}/exe --child {} {}", cache, getpid(), what, op), out;
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) throw Error("cannot start " + command);
  char part[4096];
  while (size_t n = fread(part, 1, sizeof part, pipe)) out.append(part, n);
  if (pclose(pipe) != 0) throw Error(command + " failed");
  json j = out.empty() ? json::object() : json::parse(out);
  j["process"] = ms_since(start);
  return j;
}

void keep_least(json& to, const json& from) {
  for (auto& [key, value] : from.items())
    to[key] = to.contains(key) ? std::min(to[key].get<double>(), value.get<double>()) : value.get<double>();
}

std::string cell(const json& j, const std::string& key) { return j.contains(key) ? fmt::format("{:.1f}", j[key].get<double>()) : "–"; }

int table(const std::vector<std::string>& chosen, int runs) {
  std::string folder = (fs::temp_directory_path() / "xhat-first-call-XXXXXX").string();
  if (!mkdtemp(folder.data())) throw Error("cannot make " + folder);
  fmt::print("| op | no cache: infer, fwd, bwd | empty: infer, fwd, bwd | derive | full: infer, fwd, bwd | warm | first call |\n"
             "|---|--:|--:|--:|--:|--:|--:|\n");
  double longest = 0, start = 1e9, compiled = 0, filled = 0;
  for (const SmallOp& c : bench::small_ops()) {
    if (!chosen.empty() && std::ranges::find(chosen, c.op) == chosen.end()) continue;
    json none, empty, full;
    for (const char* what : {"infer", "train"}) {
      std::string cache;
      for (int run = 0; run < kColdRuns; ++run) {
        cache = fmt::format("{}/{}_{}_{}", folder, c.op, what, run);
        keep_least(none, of_child(c.op, what, ""));
        keep_least(empty, of_child(c.op, what, cache));
      }
      for (int run = 0; run < runs; ++run) keep_least(full, of_child(c.op, what, cache));
    }
    for (int run = 0; run < runs; ++run) start = std::min(start, of_child(c.op, "nothing", "")["process"].get<double>());
    for (const char* call : {"infer", "forward", "backward"}) {
      compiled += none.value(call, 0.0);
      filled += empty.value(call, 0.0);
    }
    auto three = [](const json& j, const std::string& more) {
      return fmt::format("{} / {} / {}", cell(j, "infer" + more), cell(j, "forward" + more), cell(j, "backward" + more));
    };
    double first = full["derive"].get<double>() + std::max(full["infer"].get<double>(), full["forward"].get<double>());
    longest = std::max({longest, first, full.value("backward", 0.0)});
    fmt::print("| {} | {} | {} | {} | {} | {} | {:.1f} |\n", c.op, three(none, ""), three(empty, ""), cell(full, "derive"), three(full, ""),
               three(full, " warm"), first);
    std::fflush(stdout);
  }
  fmt::print("\nlongest first call, or first backward: {:.1f} ms; start of the process and its end: {:.1f} ms\n"
             "all first calls together: {:.0f} ms without a cache, {:.0f} ms with an empty one\n",
             longest, start, compiled, filled);
  fs::remove_all(folder);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  std::vector<std::string> words(argv + 1, argv + argc), chosen;
  if (words.size() == 3 && words[0] == "--child") {
    if (words[1] == "nothing") return 0;
    for (const SmallOp& c : bench::small_ops())
      if (c.op == words[2]) return child(c, words[1] == "train");
  }
  int runs = 5;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--runs" && i + 1 < words.size()) runs = std::max(1, std::atoi(words[++i].c_str()));
    else chosen.push_back(words[i]);
  }
  return table(chosen, runs);
} catch (const std::exception& e) {
  std::cerr << "first_call: " << e.what() << "\n";
  return 1;
}

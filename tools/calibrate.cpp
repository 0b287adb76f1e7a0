// xhat calibrate: the prices that the stash planner goes by, measured here, as the file that --prices reads.
//
// One thread, as in the reference table; the least of many samples, for a machine that others use too. Our own kernels are
// measured, since they are what will run.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/call/compile.h"
#include "runtime/explain/tuning.h"
#include "runtime/store/whole_file.h"
#include "tools/commands.h"
#include "tools/data.h"

namespace xhat::tool {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr int64_t kInMemory = int64_t{1} << 24;  // f32: 64 MiB, beyond what a core has of any cache
constexpr int64_t kInCache = int64_t{1} << 16;   // f32: 256 KiB in and as much out, in the L2
constexpr int kSamples = 15;
constexpr double kManyCallsMs = 1;  // of many calls: the clock must not be what is measured

std::string machine() {
  Machine m = this_machine();
  return fmt::format("{}, {} threads", m.cpu, m.threads);
}

// Picoseconds of one call of infer, on inputs between 0.5 and 1.5.
double time_ps(const std::string& text, int64_t n, FusePolicy fuse = FusePolicy::full) {
  Program op = parse_op(text);
  CompileOptions options;
  options.disk_cache = false;  // nobody else runs these
  options.threads = 1;
  options.fusion.policy = fuse;
  options.differentiate = false;
  DimValues dims;
  for (const Dim& d : op.dims) dims[op.arena->name(d.dim)] = n;
  options.dims = dims;
  CompiledOp compiled = compile(op, options);
  Buffers buffers;
  for (const auto* list : {&op.inputs, &op.outputs})
    for (TensorId t : *list) {
      Array values = zeros(op.tensors[t].type, shape_of(op, t, dims));
      for (size_t i = 0; i < values.reals.size(); ++i)
        values.reals[i] = 0.5 + static_cast<double>(static_cast<uint32_t>(i) * 2654435761u) * 0x1p-32;
      buffers.emplace(op.tensors[t].name, Buffer(values));
    }
  std::vector<Argument> arguments = arguments_of(buffers);
  compiled.infer(arguments);
  int calls = 1;
  double least = INFINITY;
  for (int sample = 0; sample < kSamples; ++sample) {
    auto start = Clock::now();
    for (int i = 0; i < calls; ++i) compiled.infer(arguments);
    double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    least = std::min(least, ms * 1e9 / calls);
    if (ms < kManyCallsMs && calls < 100'000) calls *= 2, --sample;
  }
  return least;
}

int64_t rounded(double ps) { return std::max<int64_t>(0, std::llround(ps)); }

Json measured() {
  const MachineModel reference;
  Json prices = {{"machine", machine()}};
  constexpr double kBytes = 4.0 * kInMemory;
  prices["read_ps_per_byte"] =
      rounded(time_ps("op read(x: f32[N]) -> (y) { y = max(n: x[n]) }", kInMemory) / kBytes);
  prices["write_ps_per_byte"] =
      rounded(time_ps("op write(x: f32) -> (y) { y[n in 0..N] = x }", kInMemory) / kBytes);
  // Three sums, each over all that the one before gave: three sweeps more than none.
  const std::string sweeps =
      "op sweeps(x: f32[N]) -> (y) {\n a = sum(n: x[n])\n b = sum(n: x[n] - a)\n c = sum(n: x[n] - b)\n"
      " y[n] = x[n] - c }";
  const std::string none = "op none(x: f32[N]) -> (y) { y[n] = x[n] - 1 }";
  prices["pass_ps"] =
      rounded((time_ps(sweeps, 16, FusePolicy::off) - time_ps(none, 16, FusePolicy::off)) / 3);
  prices["memory_ps_per_byte"] =
      reference.memory_ps_per_byte;  // no time: what memory is worth is for people to say
  const double copy = time_ps("op copy(x: f32[N]) -> (y) { y[n] = x[n] }", kInCache);
  Json ops = Json::object();
  for (int i = 0; i < kOpCount; ++i) {
    const OpInfo& row = info(static_cast<Op>(i));
    bool unary = row.syntax == Syntax::function && row.arity == 1;
    if (!unary || (row.type != TypeRule::same_float && row.type != TypeRule::same)) continue;
    double ps =
        time_ps(fmt::format("op f(x: f32[N]) -> (y) {{ y[n] = {}(x[n]) }}", row.text), kInCache) - copy;
    ops[std::string(row.id)] = rounded(ps / kInCache);
  }
  prices["ops"] = ops;
  return prices;
}

}  // namespace

int calibrate_command(const Command& c) {
  std::string text = measured().dump(2) + "\n";
  if (c.out.empty()) {
    std::cout << text;
    return kFine;
  }
  if (!runtime::replace_file(c.out, text)) throw UsageError(c.out + ": it cannot be written: " + std::strerror(errno));
  return kFine;
}

}  // namespace xhat::tool

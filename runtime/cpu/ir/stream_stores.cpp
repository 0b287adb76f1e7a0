#include "runtime/cpu/ir/stream_stores.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "runtime/cpu/ir/lowered_ir.h"
#include "runtime/host/tile_services.h"

namespace xhat::runtime {
namespace {

using namespace Halide::Internal;
using Halide::Expr;

// Of one result, per call of the copying function. Backward of mish, two threads: 4.1 ms with 512 bytes, 4.7, 5.0 and 5.4 with
// 1, 2 and 4 KB, 6.4 by plain stores; cheap maps are equal with 512 to 4096, and slower with 256.
constexpr int64_t kChunkBytes = 512;
// Rows so short have too many lines that they share with their neighbours: max pooling's backward, rows of 224 bytes, took
// 1.8 ms instead of 1.15.
constexpr int64_t kShortRun = 1024;

// What an innermost loop's body does.
struct Body : IRVisitor {
  using IRVisitor::visit;
  bool has_loop = false;
  int conditions = 0;
  Lets lets;
  std::map<std::string, std::vector<const Store*>> stores;
  std::set<std::string> irregular;  // written only sometimes, or in part

  void visit(const For*) override { has_loop = true; }
  void visit(const IfThenElse* op) override {
    ++conditions;
    IRVisitor::visit(op);
    --conditions;
  }
  void visit(const LetStmt* op) override {
    lets.emplace_back(op->name, op->value);
    IRVisitor::visit(op);
  }
  void visit(const Store* op) override {
    stores[op->name].push_back(op);
    if (conditions > 0 || !is_const_one(op->predicate)) irregular.insert(op->name);
    IRVisitor::visit(op);
  }
};

// A result of which every step of a loop writes the next `elements`.
struct Run {
  std::string result, scratch;
  Halide::Type type;
  Expr first;  // index of the first element of a step
  int64_t elements = 0;
  std::map<const Store*, int64_t> offsets;

  int room() const { return static_cast<int>(kStreamLine) / type.bytes(); }
};

std::optional<Run> run_of(const std::string& result, const std::vector<const Store*>& stores, const Body& body, const For& loop) {
  Run run{result, loop.name + "." + result, stores[0]->value.type().element_of(), {}, 0, {}};
  std::map<int64_t, int64_t> lanes;  // by offset
  for (const Store* s : stores) {
    const auto* ramp = s->index.as<Ramp>();
    if (!ramp || !is_const_one(ramp->stride) || s->value.type().element_of() != run.type) return {};
    Expr base = written_out(ramp->base, body.lets);
    if (!run.first.defined()) run.first = base;
    auto offset = as_const_int(simplify(base - run.first));
    if (!offset) return {};
    run.offsets[s] = *offset;
    lanes[*offset] = ramp->lanes;
  }
  int64_t least = lanes.begin()->first;
  for (auto [offset, n] : lanes) {
    if (offset != least + run.elements) return {};
    run.elements += n;
  }
  for (auto& [s, offset] : run.offsets) offset -= least;
  run.first = simplify(run.first + static_cast<int>(least));
  Expr next = graph_substitute(loop.name, Variable::make(Halide::Int(32), loop.name) + 1, run.first);
  auto step = as_const_int(simplify(next - run.first));
  if (!step || *step != run.elements) return {};
  const auto steps =
      as_const_int(find_constant_bound(loop.extent, Halide::Internal::Direction::Upper));  // of those left over by a longer loop, a few
  if (steps && *steps * run.elements * run.type.bytes() < kShortRun) return {};
  return run;
}

// The stores of a body, to the scratch: step `in` of a chunk writes its elements there.
struct ToScratch : IRMutator {
  using IRMutator::visit;
  const std::vector<Run>& runs;
  Expr in;
  ToScratch(const std::vector<Run>& r, Expr i) : runs(r), in(std::move(i)) {}
  Stmt visit(const Store* op) override {
    for (const Run& r : runs)
      if (auto it = r.offsets.find(op); it != r.offsets.end()) {
        Expr base = in * static_cast<int>(r.elements) + static_cast<int>(it->second) + r.room();
        return Store::make(r.scratch, op->value, Ramp::make(base, 1, op->value.type().lanes()), {}, op->predicate, {});
      }
    return op;
  }
};

// The stores of a body, each followed by a fetch of what it wrote (nontemporal.h).
struct Marked : IRMutator {
  using IRMutator::visit;
  const std::vector<Run>& runs;
  explicit Marked(const std::vector<Run>& r) : runs(r) {}
  Stmt visit(const Store* op) override {
    if (std::ranges::none_of(runs, [&](const Run& r) { return r.offsets.contains(op); })) return op;
    const std::vector<Expr> line = {Variable::make(Halide::Handle(), op->name), op->index.as<Ramp>()->base, 1, 1};
    return Block::make(op, Evaluate::make(Call::make(op->value.type().element_of(), Call::prefetch, line, Call::Intrinsic)));
  }
};

// Are the stores what a machine has non-temporal ones for, wherever a run begins with a line?
bool by_lines(const std::vector<Run>& runs, int vector_bytes) {
  return std::ranges::all_of(runs, [&](const Run& r) {
    const bool floats = r.type.is_float() && r.type.bits() >= 32;
    return floats && r.elements * r.type.bytes() % static_cast<int64_t>(kStreamLine) == 0 && std::ranges::all_of(r.offsets, [&](const auto& o) {
      const int64_t bytes = int64_t{r.type.bytes()} * o.first->value.type().lanes();
      return bytes >= 16 && bytes <= vector_bytes && o.second * r.type.bytes() % bytes == 0;
    });
  });
}

// Does each run begin with a line?
Expr begins_lines(const std::vector<Run>& runs, const For& loop) {
  Expr all;
  for (const Run& r : runs) {
    const Expr to = Halide::reinterpret(Halide::UInt(64), Variable::make(Halide::Handle(), r.result));
    const Expr first = Halide::cast<uint64_t>(Halide::cast<int64_t>(graph_substitute(loop.name, loop.min, r.first)));
    const Expr begins = (to + first * Expr(static_cast<uint64_t>(r.type.bytes()))) % Expr(uint64_t{kStreamLine}) == Expr(uint64_t{0});
    all = all.defined() ? all && begins : begins;
  }
  return all;
}

struct Streamer : IRMutator {
  using IRMutator::visit;
  std::set<std::string> results;
  int vector_bytes = 0;  // 0: no store may be marked

  Stmt visit(const For* loop) override {
    Body body;
    loop->body.accept(&body);
    if (body.has_loop || loop->for_type != ForType::Serial) return IRMutator::visit(loop);
    std::vector<Run> runs;
    for (const auto& [name, stores] : body.stores)
      if (results.contains(name) && !body.irregular.contains(name))
        if (auto run = run_of(name, stores, body, *loop)) runs.push_back(std::move(*run));
    if (runs.empty()) return loop;

    int64_t most = 0;  // bytes of a step
    for (const Run& r : runs) most = std::max(most, r.elements * r.type.bytes());
    int steps = static_cast<int>(std::max<int64_t>(1, kChunkBytes / most));
    Expr chunk = Variable::make(Halide::Int(32), loop->name + ".chunk"), in = Variable::make(Halide::Int(32), loop->name + ".in");
    Expr chunks = (loop->extent + (steps - 1)) / steps;
    Expr begin = loop->min + chunk * steps, count = Halide::min(loop->extent - chunk * steps, steps);
    Stmt computed = ToScratch(runs, in).mutate(loop->body);
    computed = graph_substitute(loop->name, begin + in, computed);
    Stmt stmt = For::make(loop->name + ".in", 0, count, ForType::Serial, loop->partition_policy, loop->device_api, computed);
    for (const Run& r : runs) {
      Expr context = Variable::make(Halide::Handle(), "__user_context");
      Expr to = Variable::make(Halide::Handle(), r.result), from = Variable::make(Halide::Handle(), r.scratch);
      std::vector<Expr> arguments = {context, to, graph_substitute(loop->name, begin, r.first), from, count * static_cast<int>(r.elements),
                                     r.type.bytes(), chunk == 0, chunk == chunks - 1};
      stmt = Block::make(stmt, Evaluate::make(Call::make(Halide::Int(32), kStreamSymbol, arguments, Call::Extern)));
    }
    stmt = For::make(loop->name + ".chunk", 0, chunks, ForType::Serial, loop->partition_policy, loop->device_api, stmt);
    for (const Run& r : runs)
      stmt = Allocate::make(r.scratch, r.type, Halide::MemoryType::Stack, {static_cast<int>(r.elements * steps) + 2 * r.room()},
                            const_true(), stmt);
    if (!by_lines(runs, vector_bytes)) return stmt;
    const Stmt direct = For::make(loop->name, loop->min, loop->extent, loop->for_type, loop->partition_policy, loop->device_api,
                                  Marked(runs).mutate(loop->body));
    return IfThenElse::make(begins_lines(runs, *loop), direct, stmt);
  }
};

// As Halide calls it, with all of the pipeline.
struct StreamPass : IRMutator {
  std::set<std::string> results;
  int vector_bytes = 0;
  Stmt mutate(const Stmt& all) override {
    Loads loads;
    all.accept(&loads);
    Streamer streamer;
    streamer.vector_bytes = vector_bytes;
    std::ranges::set_difference(results, loads.names, std::inserter(streamer.results, streamer.results.end()));
    return streamer.mutate(all);
  }
};

}  // namespace

void stream_results(Halide::Pipeline& pipeline, const std::set<std::string>& results, int vector_bytes) {
  auto* pass = new StreamPass;
  pass->results = results;
  pass->vector_bytes = vector_bytes;
  pipeline.add_custom_lowering_pass(pass);
}

}  // namespace xhat::runtime

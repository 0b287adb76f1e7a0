#include "runtime/call/whole_loops.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "ad/common/differentiation.h"
#include "expr/core/array.h"
#include "expr/index/steps_blocks.h"
#include "fusion/plan/invariants.h"
#include "runtime/call/debug.h"
#include "runtime/call/op_plans.h"
#include "runtime/host/thread_pool.h"
#include "runtime/loops/loop_adjoints.h"
#include "runtime/loops/loop_code.h"
#include "runtime/loops/loop_tape.h"
#include "runtime/loops/nest_pieces.h"
#include "runtime/loops/nest_vectors.h"
#include "runtime/loops/read_before.h"

namespace xhat::runtime {
namespace {

// What a run of a block costs beside its kernels, in picoseconds, and what each operand and result adds to it (build/xhat bench of a loop of
// one block of 16 elements: 0.8 us to infer, 2.5 forward, 1.2 backward; of an LSTM's with nine operands 2.8, 6.8 and 6.1).
struct CallPrice {
  double once, each;
};
constexpr CallPrice kInfer{0.6e6, 0.2e6}, kForward{2e6, 0.5e6}, kBackward{1e6, 0.5e6};
// How much longer plain loops take than kernels on one thread that share rows of products and keep them in registers.
constexpr double kPlainProduct = 3;
// How much longer a kernel's threads take together, which write next to what they read (build/xhat bench of jacobi_2d, heat_3d, fdtd_2d of
// bench/npbench, each way: 1.3 to 3), and what the other threads cost a kernel.
constexpr double kKernel = 1.8, kWake_ps = 2.5e6;
// An element that is copied in cache, or written to the tape and read again.
constexpr double kCopy_ps = 60, kTape_ps = 1000;
constexpr size_t kMostDefinitions = 300;         // of one function: compiling is not linear in them
constexpr int64_t kMostTape = int64_t{1} << 30;  // bytes

using Role = LoopBlock::Role;

class Blocks {
 public:
  Blocks(const Program& p, const CompileOptions& options, const DimValues& dims) : p_(p), options_(options), dims_(dims) {
    for (BlockAt& at : blocks_at(p, dims)) at_[at.block] = std::move(at);
  }

  // Of all blocks of the loop; none where one has no plain loops.
  std::optional<LoopBlocks> of(const Loop& loop) {
    LoopBlocks all;
    bool possible = true;
    size_t definitions = 0;
    auto add = [&](const Block& b) {
      if (!possible || all.contains(&b)) return;
      std::optional<LoopBlock> made = block(b);
      possible = made.has_value();
      if (!possible) return;
      definitions += made->infer.spec.members.size();
      all.emplace(&b, std::move(*made));
    };
    for_each_block(loop.test, add);
    for_each_block(loop.body, add);
    if (!possible || definitions > kMostDefinitions) return {};
    return all;
  }

  // What it takes as one function and by kernels.
  struct Times {
    double whole, kernels;
  };
  // On one thread and on all threads of the machine. What is computed may not depend on how many a call has, so a loop is one function only where
  // that pays on either.
  struct Price {
    Times on_one, on_all;
    std::optional<LoopTiles> tiles = {};
    bool pays() const { return on_one.whole < on_one.kernels && on_all.whole < on_all.kernels; }
  };
  // taped: forward and backward; else values only. tiles: not of all points at once.
  Price price(const Loop& loop, const LoopBlocks& blocks, bool taped, const LoopTiles* tiles) const {
    const LoopMemory memory(p_, loop, in_place_of(blocks)), adjoints = adjoint_memory(p_, loop, blocks);
    const LoopBlocks in_tile = tiles ? restricted(blocks, *tiles, tiles->tile) : LoopBlocks();
    const double count = tiles ? static_cast<double>(tiles->extent) / static_cast<double>(tiles->tile) : 1;
    std::optional<LoopTape> tape;
    if (taped) tape.emplace(p_, loop, dims_, blocks, memory);
    double plain = copies_ps(loop, memory, tape ? &*tape : nullptr), kernels = 0, kernels_on_all = 0;
    for (const auto& [b, block] : blocks) {
      const auto runs = static_cast<double>(at_.at(b).runs);
      const bool differentiated = taped && block.backward;
      double work = 0, work_on_all = 0, plain_work = 0;
      auto add = [&](const LoopBlock::Direction& by_kernels, const LoopBlock::Direction& plain_loops,
                     const std::function<bool(uint32_t)>& is_added) {
        const KernelSpec& plain_spec = plain_loops.spec;
        auto lies_over = [&](uint32_t to, uint32_t from) {
          const auto r = plain_loops.roles.find(plain_spec.tensors[to].original),
                     o = plain_loops.roles.find(plain_spec.tensors[from].original);
          return r != plain_loops.roles.end() && o != plain_loops.roles.end() && r->second.is == Role::Is::result &&
                 o->second.is == Role::Is::operand && b->operands[o->second.number].scalar == kNone &&
                 b->operands[o->second.number].row.empty() &&
                 memory.place(b->results[r->second.number]) == memory.place(b->operands[o->second.number].value);
        };
        const KernelSpec& spec = by_kernels.spec;
        const double ps = price_ps(spec, [](uint32_t) { return false; });
        const bool parallel = bytes(spec) > static_cast<double>(options_.machine.serial_bytes) || ps > options_.machine.serial_ps;
        work += kKernel * ps;
        work_on_all += kKernel * (parallel ? ps / threads_ : ps) + (parallel ? kWake_ps * sweeps(spec) : 0);
        plain_work += count * price_ps(
                                  plain_spec, is_added, [&](const SpecMember& m) { return is_product(plain_spec, m) ? kPlainProduct : 1; },
                                  lies_over);
      };
      const LoopBlock& plain_block = tiles ? in_tile.at(b) : block;
      auto nothing_added = [](uint32_t) { return false; };
      if (differentiated) {
        const BackwardInPlace backward = backward_in_place(*b, plain_block, adjoints);
        add(*block.forward, *plain_block.forward, nothing_added);
        add(*block.backward, backward.direction, [&](uint32_t t) { return backward.is_added(t); });
      } else {
        add(block.infer, plain_block.infer, nothing_added);
      }
      const auto values = static_cast<double>(b->operands.size() + b->results.size());
      auto call = [&](CallPrice price) { return price.once + price.each * values; };
      if (tape) plain_work += kTape_ps * tape->elements(*b);
      plain += runs * plain_work;
      const double calls = differentiated ? call(kForward) + call(kBackward) : call(kInfer);
      kernels += runs * (work + calls), kernels_on_all += runs * (work_on_all + calls);
    }
    const double plain_on_all = tiles ? plain / std::min(threads_, static_cast<int>(tiles->count())) : plain;
    return {{plain, kernels}, {plain_on_all, kernels_on_all}};
  }

  // With the tiles with which it takes least, if that is less than without, and worth other threads.
  Price least_price(const Loop& loop, const LoopBlocks& blocks, bool taped, const std::vector<std::vector<int64_t>>& shapes) const {
    Price best = price(loop, blocks, taped, nullptr);
    if (best.on_all.whole <= options_.machine.serial_ps) return best;
    for (LoopTiles& tiles : tiles_of(p_, loop, blocks, taped, shapes))
      if (Price in_tiles = price(loop, blocks, taped, &tiles); in_tiles.on_all.whole < best.on_all.whole) {
        best = std::move(in_tiles);
        best.tiles = std::move(tiles);
      }
    return best;
  }

 private:
  const Program& p_;
  const CompileOptions& options_;
  const DimValues& dims_;
  const int threads_ = threads_or_all();  // of the machine, not of the call: what is computed does not depend on that
  std::map<const Block*, BlockAt> at_;
  // Blocks of one op at the same sizes have the same nests.
  std::map<std::pair<const Program*, DimValues>, std::optional<LoopBlock>> made_;

  // Kernels at least: what is read at other elements than it is written for is there before.
  static int sweeps(const KernelSpec& spec) {
    std::map<uint32_t, int> made_in;
    int last = 1;
    for (const SpecMember& m : spec.members) {
      int& in = made_in[m.tensor] = 1;
      for (Id id : reachable(*spec.arena, m.body)) {
        const Node& n = (*spec.arena)[id];
        if (!is_read(n.op) || !made_in.contains(n.symbol)) continue;
        in = std::max(in, made_in[n.symbol] + (m.reduced.empty() && !std::ranges::equal(read_indices(n), m.left) ? 1 : 0));
      }
      last = std::max(last, in);
    }
    return last;
  }

  // Do kernels share what it reads between points?
  static bool is_product(const KernelSpec& spec, const SpecMember& m) {
    const Arena& a = *spec.arena;
    if (m.op != Op::sum || !m.scatter.empty() || m.reduced.empty() || m.left.size() + m.reduced.size() < 3) return false;
    const std::vector<Id> read = reads_in(a, std::array{m.body});
    return read.size() >= 2 && std::ranges::all_of(read, [&](Id id) {
             auto lacks = [&](Id axis) { return !a[id].depends_on(axis); };
             return std::ranges::any_of(m.left, lacks) || std::ranges::any_of(m.reduced, lacks);
           });
  }

  static double bytes(const KernelSpec& spec) {
    double sum = 0;
    for (const SpecTensor& t : spec.tensors) sum += static_cast<double>(element_count(t.shape)) * static_cast<double>(byte_size(t.type));
    return sum;
  }
  double elements(TensorId t) const { return static_cast<double>(element_count(shape_of(p_, t, dims_))); }

  // Of what iterations leave elsewhere than the next one finds it.
  double copies_ps(const Loop& loop, const LoopMemory& memory, const LoopTape* tape) const {
    double sum = 0, runs = 0;
    for (const Step& s : loop.body) {
      if (auto* b = std::get_if<Block>(&s.is)) runs = std::max(runs, static_cast<double>(at_.at(b).runs));
      if (auto* inner = std::get_if<Loop>(&s.is)) sum += copies_ps(*inner, memory, tape);
    }
    for (const Carried& c : loop.carried)
      if (memory.place(c.leaving) != memory.place(c.entering))
        sum += runs * elements(c.entering) * (kCopy_ps + (tape && tape->is_restored(c.entering) ? kTape_ps : 0));
    return sum;
  }

  std::optional<LoopBlock> block(const Block& b) {
    const BlockAt& at = at_.at(&b);
    const Program* key = b.with_gradient ? b.with_gradient.get() : b.op.get();
    auto [it, fresh] = made_.try_emplace({key, at.dims});
    if (fresh) it->second = make(b, at.dims);
    return it->second;
  }

  std::optional<LoopBlock> make(const Block& b, const DimValues& dims) const {
    CompileOptions o = options_;
    o.dims.clear();
    o.differentiate = b.with_gradient != nullptr;
    o.wrt = o.differentiate ? names_of(*b.with_gradient, b.with_gradient->gradient_of) : std::vector<std::string>{};
    OpPlans plans(*b.op, o);
    const std::shared_ptr<OpPlan> plan = plans.at(dims, false);
    for (Id of_sizes : plan->infer.checks.of_sizes)
      if (evaluate_extent(*plan->program().arena, of_sizes, dims) != 0) return {};
    try {
      LoopBlock made;
      Names names = names_of_block(b, plan->program());
      auto direction = [&](const Program& p) { return LoopBlock::Direction{make_nest_spec(p, dims), roles(p, names)}; };
      if (plan->infer.checks.of_data) {
        // What a check needs of the block's results it computes for itself: they may lie where operands do, which the block still reads.
        const Names all = names;
        std::erase_if(names, [](const auto& named) { return named.second.is == Role::Is::result; });
        made.check = direction(plan->infer.checks.first());
        if (plan->infer.checks.at_first) made.exact = direction(*plan->infer.checks.of_data);
        names = all;
      }
      // What is dear and the same for many points is computed once for them; a sweep more is a loop more.
      PlanRequest request = plan->infer.request;
      request.machine.pass_ps = kLoopStart_ps;
      auto computed = [&](const Program& p) { return direction(invariants_apart(p, dims, request)); };
      auto values = [&](const Program& p) {
        LoopBlock::Direction d = computed(p);
        auto is = [&](uint32_t t, Role::Is what) {
          const auto role = d.roles.find(d.spec.tensors[t].original);
          return role != d.roles.end() && role->second.is == what;
        };
        read_before_writing(
            d.spec, [&](uint32_t t) { return is(t, Role::Is::result); }, [&](uint32_t t) { return is(t, Role::Is::operand); });
        return d;
      };
      made.infer = values(plan->infer.program);
      if (o.differentiate) {
        const Program& f = plan->forward.program;
        for (TensorId t : plan->stash) {
          names[f.tensors[t].name] = {Role::Is::kept, made.kept.size()};
          made.kept.push_back({f.tensors[t].type, shape_of(f, t, dims)});
        }
        made.forward = values(f);
        made.backward = computed(plan->backward.program);
        add_where_terms_go(made.backward->spec, [&](uint32_t t) { return made.backward->is_added(t); });
      }
      for (const auto* d : {made.check ? &*made.check : nullptr, made.exact ? &*made.exact : nullptr, &made.infer,
                            made.forward ? &*made.forward : nullptr, made.backward ? &*made.backward : nullptr})
        if (d && !has_nest(d->spec)) return {};
      made.in_place = found_in_place(made);
      made.adjoints_in_place = found_adjoints_in_place(made);
      return made;
    } catch (const Error&) {
      return {};  // ranges without bounds that are known, or too many steps: the call says so
    }
  }

  using Names = std::map<std::string, Role>;
  static Names names_of_block(const Block& b, const Program& with_gradient) {
    Names names;
    auto number = [](const std::vector<TensorId>& list, TensorId t) {
      return static_cast<size_t>(std::ranges::find(list, t) - list.begin());
    };
    for (size_t k = 0; k < b.op->inputs.size(); ++k) names[b.op->tensors[b.op->inputs[k]].name] = {Role::Is::operand, k};
    size_t next = 0;
    for (size_t k = 0; k < b.op->outputs.size(); ++k) {
      const Tensor& t = b.op->tensors[b.op->outputs[k]];
      names[t.name] = {Role::Is::result, k};
      if (is_float(t.type) && next < with_gradient.cotangents.size())
        names[with_gradient.tensors[with_gradient.cotangents[next++]].name] = {Role::Is::cotangent, k};
    }
    for (size_t i = 0; i < with_gradient.gradients.size(); ++i)
      names[with_gradient.tensors[with_gradient.gradients[i]].name] = {Role::Is::gradient,
                                                                       number(with_gradient.inputs, with_gradient.gradient_of[i])};
    return names;
  }
  static std::unordered_map<TensorId, Role> roles(const Program& p, const Names& names) {
    std::unordered_map<TensorId, Role> found;
    for (TensorId t = 0; t < p.tensors.size(); ++t)
      if (auto it = names.find(p.tensors[t].name); it != names.end()) found[t] = it->second;
    return found;
  }
};

class Choice {
 public:
  Choice(const Program& p, const CompileOptions& options, const DimValues& dims, const std::vector<std::vector<int64_t>>& shapes)
      : p_(p), options_(options), dims_(dims), shapes_(shapes), blocks_(p, options, dims) {}

  WholeLoops run() {
    list(*p_.steps);
    return std::move(found_);
  }

 private:
  const Program& p_;
  const CompileOptions& options_;
  const DimValues& dims_;
  const std::vector<std::vector<int64_t>>& shapes_;
  Blocks blocks_;
  WholeLoops found_;

  void list(const Steps& steps) {
    for (const Step& s : steps) {
      if (auto* branch = std::get_if<Branch>(&s.is)) list(branch->then), list(branch->otherwise);
      auto* loop = std::get_if<Loop>(&s.is);
      if (loop && !take(*loop)) list(loop->test), list(loop->body);
    }
  }
  bool take(const Loop& loop) {
    std::optional<LoopBlocks> blocks = blocks_.of(loop);
    if (!blocks) return false;
    const bool differentiated =
        options_.differentiate && std::ranges::any_of(*blocks, [](const auto& b) { return b.second.backward.has_value(); });
    Blocks::Price price = blocks_.least_price(loop, *blocks, differentiated, shapes_);
    const bool by_kernels = differentiated && !price.pays();  // forward and backward
    if (by_kernels) price = blocks_.least_price(loop, *blocks, false, shapes_);
    if (!price.pays()) return false;
    DiskCache* disk = options_.disk_cache ? DiskCache::of_environment().get() : nullptr;
    auto made = std::make_unique<TiledLoop>(p_, loop, dims_, shapes_, *blocks, price.tiles, disk);
    // How long the tapes of each tile are must be known before.
    if (price.tiles && options_.differentiate && !by_kernels && !made->knows_tapes())
      made = std::make_unique<TiledLoop>(p_, loop, dims_, shapes_, *blocks, std::nullopt, disk);
    if (!made->has(LoopPhase::infer)) return false;
    if (by_kernels) made->leave_forward_to_kernels();
    if (options_.differentiate && !by_kernels && made->knows_tapes() && made->variables().empty()) {
      int64_t bytes = 0, most = 0;
      for (const CompiledLoop::Tape& t : made->tapes({})) {
        bytes += t.elements * t.element_bytes;
        most = std::max(most, t.elements);
      }
      if (bytes > kMostTape || most > INT32_MAX) made->leave_forward_to_kernels();
    }
    show(loop, *made);
    found_[&loop] = std::move(made);
    return true;
  }

  // The statements of each direction as NAME.loop_VARIABLE.DIRECTION.stmt.
  void show(const Loop& loop, TiledLoop& made) const {
    const Debug debug = debug_options();
    if (debug.dump.empty() && !debug.source) return;
    std::vector<std::pair<LoopPhase, const char*>> phases = {{LoopPhase::infer, "infer"}};
    if (options_.differentiate && made.has(LoopPhase::forward))
      phases.insert(phases.end(), {{LoopPhase::forward, "forward"}, {LoopPhase::backward, "backward"}});
    for (auto [phase, name] : phases) {
      const std::string file = p_.name + ".loop_" + p_.arena->name(loop.variable) + "." + name + ".stmt", text = made.listing(phase);
      if (debug.source) show_text(file + "\n" + text);
      if (!debug.dump.empty()) write_dump(debug, file, text);
    }
  }
};

}  // namespace

WholeLoops whole_loops(const Program& p, const CompileOptions& options, const DimValues& dims,
                       const std::vector<std::vector<int64_t>>& shapes) {
  if (options.check_values || options.stash.policy == StashOptions::Policy::budget || options.fusion.policy != FusePolicy::full) return {};
  return Choice(p, options, dims, shapes).run();
}

std::string name_of(const Program& p, const Loop& loop, const TiledLoop& code) {
  const std::string name = "loop over " + p.arena->name(loop.variable);
  return code.tiles() > 1 ? name + " in " + std::to_string(code.tiles()) + " tiles" : name;
}

std::map<const Block*, const Loop*> blocks_of(const WholeLoops& loops) {
  std::map<const Block*, const Loop*> found;
  for (const auto& [loop, code] : loops)
    for (const Steps* steps : {&loop->test, &loop->body}) for_each_block(*steps, [&, l = loop](const Block& b) { found[&b] = l; });
  return found;
}

int64_t bytes_of(const Program& p, const Loop& loop, const TiledLoop& code, const std::vector<std::vector<int64_t>>& shapes) {
  int64_t bytes = 0;
  auto add = [&](TensorId t) { bytes += element_count(shapes[t]) * static_cast<int64_t>(byte_size(p.tensors[t].type)); };
  for (TensorId t : code.outside()) add(t);
  for (const Carried& c : loop.carried) add(c.result);
  return bytes;
}

}  // namespace xhat::runtime

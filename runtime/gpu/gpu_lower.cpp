// Launches of a kernel:
//   tile     several members: a block per tile of the axes that they share, in it one member after the other, barriers
//            between. Temporaries lie in shared memory while there is room, else in a buffer of their own. What is reduced
//            across tiles leaves a row per tile.
//   contract  sums that read the same elements for many results, and maps of these: see gpu_contract.cpp
//   map, reduce  one member, or several over the same axes: a thread per element, some threads per result
//   scatter  a thread per term that adds to the place that its index names, in memory that the driver has set to zero
//   recurrence  a thread per row of results of which each reads the one before: see gpu_recurrence.cpp
//   finish   adds up the rows that tiles leave
// Kernels whose members cannot share a launch (one tile for very much work) have one launch per member.
#include "runtime/cpu/ir/statements.h"
#include "runtime/gpu/gpu_lower.h"

#include <algorithm>
#include <bit>
#include <set>

#include "runtime/emit/emit_ops.h"
#include "runtime/gpu/gpu_lowering.h"
#include "runtime/kernel/kernel_access.h"

namespace xhat::runtime {

using namespace Halide::Internal;

namespace {

constexpr int64_t kSharedBytes = 40960;  // of 48 KB that every device has: temporaries; the rest is for adding up
constexpr int64_t kOneBlock = 1 << 17;   // elements; more are not left to one block
constexpr double kShares = 1.1;          // prices are rough: members share a launch unless that is clearly slower
constexpr double kKept = 4;              // times what the caller has, or so many bytes: more is handed on from launch to launch only
constexpr double kRoom = 64 << 20;       // if that is
constexpr double kMuchFaster = 4;        // times as fast
constexpr int64_t kTermsOfLane = 16;     // at least, where a sum is split among blocks

// A number that comes with a launch: a half as its bits.
Halide::Type passed_as(DType t) { return t == DType::f16 || t == DType::bf16 ? Halide::UInt(16) : storage_type(t); }

bool is_index_of_extreme(Op op) { return op == Op::argmax || op == Op::argmin; }

}  // namespace

GpuLowering::GpuLowering(const KernelSpec& spec, DeviceKind kind, const std::vector<DType>& stored)
    : spec_(spec), kind_(kind), stored_(stored), emit_{spec, {}, {}, {}, {}, {}} {
  emit_.loops_by_halide = false;
  emit_.inputs.resize(spec_.tensors.size());
  for (uint32_t t = 0; t < spec_.tensors.size(); ++t) {
    const SpecTensor& x = spec_.tensors[t];
    if (x.is_number()) {
      Expr value = Variable::make(passed_as(x.type), "xh_size" + std::to_string(t));
      if (x.type == DType::boolean) value = ops::boolean(value);
      if (x.type == DType::f16) value = Halide::cast(storage_type(x.type), float16_to_float32(value));
      if (x.type == DType::bf16) value = Halide::cast(storage_type(x.type), bfloat16_to_float32(value));
      emit_.given[spec_.arena->read(t, x.type, {})] = value;
      out_.values.push_back(t);
      continue;
    }
    emit_.inputs[t] = Halide::ImageParam(storage_type(x.type), static_cast<int>(x.shape.size()), buffer_of(t));
  }
}

Count GpuLowering::given(int64_t like, uint32_t count, int64_t multiple) const {
  if (count == kNoCount) return like;
  auto value = std::ranges::find(out_.values, count) - out_.values.begin();
  return {like, value, emit_.given.at(spec_.arena->read(count, DType::i32, {})), multiple};
}

Count GpuLowering::elements(uint32_t tensor) const {
  Count n = 1;
  for (size_t i = 0; i < spec_.tensors[tensor].shape.size(); ++i) n = n * dimension(tensor, i);
  return n;
}

void GpuLowering::reset() {
  lies_.assign(spec_.tensors.size(), {});
  shared_bytes_ = scratch_ = 0;
}

Expr GpuLowering::index_of(uint32_t tensor, const std::vector<Expr>& at) const {
  const Lies& lies = lies_[tensor];
  const std::vector<int64_t>& extents = lies.in == Lies::In::shared ? lies.extents : spec_.tensors[tensor].shape;
  Expr index = 0;
  for (size_t i = 0; i < at.size(); ++i) {
    Expr x = at[i];
    if (lies.in == Lies::In::shared && lies.origins[i].defined()) x = x - lies.origins[i];
    index = index * static_cast<int>(extents[i]) + x;
  }
  return index;
}

ElementPlace GpuLowering::place(const std::string& image, const std::vector<Expr>& indices) const {
  auto tensor = static_cast<uint32_t>(std::stoul(image.substr(4)));  // buffer_of
  const Lies& lies = lies_[tensor];
  Expr index = simplify(index_of(tensor, {indices.rbegin(), indices.rend()}));
  if (lies.in == Lies::In::global) return {image, index};
  return {"xh_shared", index + static_cast<int>(lies.offset / storage_type(spec_.tensors[tensor].type).bytes())};
}

Expr GpuLowering::device(const Expr& e) {
  ForDevice made(kind_, [this](const std::string& image, const std::vector<Expr>& indices) { return place(image, indices); });
  return made(e);
}

std::vector<Id> GpuLowering::shared_axes() const {
  std::vector<Id> axes;
  for (Id x : spec_.shared)
    if (axis(x).kind() != AxisKind::untiled) axes.push_back(x);
  return axes;
}

// Neighbours among the members that one loop computes: maps over the same axes, of which the later ones read the earlier ones
// at the same place; reductions over the same axes under the same condition that don't read each other.
std::vector<std::vector<size_t>> GpuLowering::groups() const {
  const Arena& a = *spec_.arena;
  std::vector<std::vector<size_t>> all;
  auto joins = [&](const std::vector<size_t>& group, const SpecMember& m) {
    const SpecMember& f = spec_.members[group[0]];
    bool map = m.op == Op::constant;
    if (map != (f.op == Op::constant) || m.left != f.left || m.reduced != f.reduced || m.condition != f.condition) return false;
    if (!map && (is_index_of_extreme(m.op) || is_index_of_extreme(f.op))) return false;
    if (!m.scatter.empty() || !f.scatter.empty() || recurs(m) || recurs(f)) return false;
    return std::ranges::all_of(reachable(a, roots(m)), [&](Id id) {
      const Node& n = a[id];
      if (!is_read(n.op)) return true;
      bool from_group = std::ranges::any_of(group, [&](size_t g) { return spec_.members[g].tensor == n.symbol; });
      return !from_group || (map && n.op == Op::read && std::ranges::equal(read_indices(n), m.left));
    });
  };
  for (size_t i = 0; i < spec_.members.size(); ++i) {
    if (!all.empty() && joins(all.back(), spec_.members[i]))
      all.back().push_back(i);
    else
      all.push_back({i});
  }
  return all;
}

bool GpuLowering::one_tile_launch(const std::vector<std::vector<size_t>>& groups) const {
  if (std::ranges::any_of(spec_.members, [&](const SpecMember& m) { return recurs(m); })) return false;
  bool partial = std::ranges::any_of(spec_.members, [&](const SpecMember& m) { return spec_.across_tiles(m); });
  if (groups.size() == 1 && !partial) return false;
  int64_t points = 0;  // of one tile
  for (const SpecMember& m : spec_.members) {
    if (!m.scatter.empty()) return false;
    int64_t n = 1;
    for (const auto* list : {&m.left, &m.reduced})
      for (Id x : *list) n *= axis(x).in_tile();
    points = std::max(points, n);
  }
  if (spec_.tiles() == 1) return points <= kOneBlock;
  // What a tile keeps to itself, launches of their own hand on in memory.
  double kept = 0, callers = 0;
  for (uint32_t t = 0; t < spec_.tensors.size(); ++t) {
    const SpecTensor& x = spec_.tensors[t];
    if (!x.is_number()) (x.use == SpecTensor::Use::temporary ? kept : callers) += bytes(t);
  }
  const bool much = kept > std::max(kKept * callers, kRoom);
  return tile_ns(groups) <= (much ? kMuchFaster : kShares) * launches_ns(groups);
}

namespace {

// Elements of several widths lie in a block's shared memory. Halide takes a store for overwritten where the next one has the same buffer
// and index, whatever is stored (v21), though element 24 of the halves is not where element 24 of the floats is. So while it simplifies,
// each width has a name.
struct SharedByWidth : IRMutator {
  using IRMutator::visit;
  bool apart;
  explicit SharedByWidth(bool a) : apart(a) {}
  std::string name(const std::string& buffer, const Halide::Type& type) const {
    const std::string shared = "xh_shared";
    if (!buffer.starts_with(shared)) return buffer;
    return apart ? shared + std::to_string(type.bits()) : shared;
  }
  Expr visit(const Load* op) override {
    return Load::make(op->type, name(op->name, op->type), mutate(op->index), op->image, op->param, mutate(op->predicate), op->alignment);
  }
  Stmt visit(const Store* op) override {
    return Store::make(name(op->name, op->value.type()), mutate(op->value), mutate(op->index), op->param, mutate(op->predicate),
                       op->alignment);
  }
};

}  // namespace

void GpuLowering::launch(const std::string& what, const Count& blocks, int threads, const std::vector<Stmt>& stages) {
  constexpr int64_t kAtOnce = 16;
  if (blocks.is(0)) return;
  Stmt s = Block::make(stages);
  if (shared_bytes_ > 0) {
    shared_bytes_ = (shared_bytes_ + kAtOnce - 1) / kAtOnce * kAtOnce;
    s = Allocate::make("xh_shared", Halide::Float(32), Halide::MemoryType::GPUShared, {static_cast<int>(shared_bytes_ / 4)}, const_true(),
                       Block::make(s, Free::make("xh_shared")));
  }
  auto api = api_of(kind_);
  s = For::make("xh_launch" + gpu_thread_name(0), 0, threads, ForType::GPUThread, Halide::Partition::Auto, api, s);
  s = For::make("xh_launch" + gpu_block_name(0), 0, blocks.expr(), ForType::GPUBlock, Halide::Partition::Auto, api, s);
  // These see the loops over threads: what is atomic stays so.
  s = unroll_loops(s);
  s = vectorize_loops(s, {});
  s = SharedByWidth(true).mutate(s);
  s = Halide::Internal::simplify(s);
  s = SharedByWidth(false).mutate(s);
  if (is_no_op(s)) return;  // a scatter whose terms all lie outside, as sizes say
  if (kind_ == DeviceKind::opencl) s = with_vector_masks(s);
  launches_.push_back(s);
  out_.launches.push_back({what, blocks.amount(), threads, shared_bytes_, {}, {}});
}

// Sums over the same terms, and maps of what they come to at the same point, which is then in a register.
bool GpuLowering::sum_launch(const std::vector<std::vector<size_t>>& groups) {
  const auto [sums, maps] = apart(groups);
  if (sums.size() != 1 || maps.empty() || !sums_and_maps(groups)) return false;
  flat_launch(sums[0], maps);
  return true;
}

// maps: of what the group's sums come to.
void GpuLowering::flat_launch(const std::vector<size_t>& group, const std::vector<size_t>& maps) {
  reset();
  const SpecMember& m = spec_.members[group[0]];
  Points points = all_of(m.left);
  if (points.total().is(0)) return;
  if (!m.scatter.empty()) return scatter_launches(m);
  if (recurs(m)) return recurrence_launch(m);
  if (m.op == Op::constant) {
    Count n = points.total().over(vector_of(group, points));
    int threads = threads_for(n, 1);
    Expr number = block() * threads + thread();
    launch("map", n.over(threads), threads, {map_stage(group, points, number, 0)});
    return;
  }
  Accumulation a = accumulation(group);
  Count n = points.total();
  const int64_t all_terms = all_of(m.reduced).total().like();
  Sharing s = sharing(group, n.like(), all_terms, kThreads);
  s.threads = threads_for(n, s.lanes);
  const Count blocks = n.over(s.results());
  const int64_t enough = std::min(kEnoughBlocks / std::max<int64_t>(1, blocks.like()), all_terms / (s.lanes * kTermsOfLane));
  const Split split = this->split(group, enough);
  Expr number = block(), part = 0;
  if (split.some()) {
    part = number / blocks.expr();
    number = number % blocks.expr();
  }
  auto stores = [&](const Point& p, const std::vector<Expr>& values) {
    if (!maps.empty() && !split.some()) return with_maps({group}, {values}, maps, p.axes);
    return write(group, values, p.axes, split.some() ? part : Expr());
  };
  Stmt stage = reduce_stage(a, points, part_of(m.reduced, split, part), s, number * s.results(), stores);
  launch("reduce", blocks * split.parts, s.threads, {stage});
  if (split.some()) finish_launch(group, split.parts, maps);
}

// What a group's accumulation came to, at a point; in row `row` of the partial results if that is defined.
Stmt GpuLowering::write(const std::vector<size_t>& group, const std::vector<Expr>& values, const Emitter::Axes& at, const Expr& row) {
  std::vector<Stmt> stores;
  for (size_t i = 0; i < group.size(); ++i) {
    const SpecMember& x = spec_.members[group[i]];
    Expr value = is_index_of_extreme(x.op) ? Halide::cast<int64_t>(values[1]) : values[i];
    stores.push_back(row.defined() ? store_partial(x, value, at, row) : store(x, value, at));
  }
  return Block::make(stores);
}

// What groups of sums came to at a point, and what maps make of them there.
Stmt GpuLowering::with_maps(const std::vector<std::vector<size_t>>& sums, const std::vector<std::vector<Expr>>& values,
                            const std::vector<size_t>& maps, const Emitter::Axes& at) {
  auto given = emit_.given;
  std::vector<Stmt> all;
  for (size_t g = 0; g < sums.size(); ++g)
    for (size_t i = 0; i < sums[g].size(); ++i) {
      const SpecMember& m = spec_.members[sums[g][i]];
      const SpecTensor& t = spec_.tensors[m.tensor];
      Expr value = values[g][i];
      if (leaves(m) || maps.empty()) all.push_back(store(m, value, at));
      if (value.type() != storage_type(t.type)) value = Halide::cast(storage_type(t.type), value);
      emit_.given[spec_.arena->read(m.tensor, t.type, m.left)] = t.type == DType::boolean ? ops::boolean(value) : value;
    }
  if (!maps.empty()) all.push_back(map_at(maps, at));
  emit_.given = given;
  return Block::make(all);
}

void GpuLowering::scatter_launches(const SpecMember& m) {
  Halide::Type type = storage_type(spec_.tensors[m.tensor].type);
  zeros_.push_back(m.tensor);
  Expr number = block() * kThreads + thread();

  // The axes that no index stands for go last: their neighbours lie side by side.
  std::vector<Id> walked = m.reduced;
  auto targeted = [&](Id axis) { return std::ranges::any_of(m.scatter, [&](auto& x) { return x.first == axis; }); };
  for (Id axis : m.left)
    if (!targeted(axis)) walked.push_back(axis);
  Points terms = all_of(walked);
  Point p = point(terms, number);
  Emitter::Axes at = p.axes;
  Expr inside = number < terms.total().expr();
  std::vector<std::pair<std::string, Expr>> lets;
  Expr there;
  for (auto& [axis, index] : m.scatter) {
    std::string name = fresh("to");
    lets.emplace_back(name, device(Halide::cast<int>(emit_.value(index, at))));
    Expr x = Variable::make(Halide::Int(32), name), here = x >= 0 && x < extent(axis).expr();
    there = there.defined() ? there && here : here;
    at[axis] = x;
  }
  if (!is_true(*spec_.arena, m.condition)) there = there && device(emit_.condition(m.condition, at));
  Expr value = emit_.value(m.body, at);
  std::vector<Expr> place;
  for (Id x : m.left) place.push_back(at.at(x));
  std::string term = fresh("term"), index = fresh("index");
  Expr to = Variable::make(Halide::Int(32), index);
  Expr sum = Add::make(Load::make(type, buffer_of(m.tensor), to, {}, {}, const_true(), {}), Variable::make(type, term));
  Stmt add = Atomic::make(buffer_of(m.tensor), "", Store::make(buffer_of(m.tensor), sum, to, {}, const_true(), {}));
  add = LetStmt::make(index, device(index_of(m.tensor, place)),
                      LetStmt::make(term, device(value.type() == type ? value : Halide::cast(type, value)), add));
  Stmt body = IfThenElse::make(inside, with_lets(p.lets, with_lets(lets, IfThenElse::make(there, add))));
  launch("scatter", terms.total().over(kThreads), kThreads, {body});
}

void GpuLowering::tile_launch(const std::vector<std::vector<size_t>>& groups) {
  reset();
  std::vector<Id> shared = shared_axes();
  // Where this block's tile begins.
  std::vector<std::pair<std::string, Expr>> lets;
  std::unordered_map<Id, Expr> origin, position;
  Expr rest = block();
  Count tiles = 1;
  for (size_t i = shared.size(); i-- > 0;) {
    Count n = tiles_along(shared[i]);
    tiles = tiles * n;
    std::string name = fresh("tile");
    lets.emplace_back(name, i == 0 ? rest : n.is(1) ? Expr(0) : rest % n.expr());
    if (i > 0) rest = simplify(rest / n.expr());
    position[shared[i]] = Variable::make(Halide::Int(32), name);
    origin[shared[i]] = simplify(position[shared[i]] * static_cast<int>(axis(shared[i]).tile));
  }
  auto in_tile = [&](const std::vector<Id>& axes) {
    Points p = all_of(axes);
    for (size_t i = 0; i < axes.size(); ++i) {
      auto it = origin.find(axes[i]);
      if (it == origin.end()) continue;
      const SpecAxis& x = axis(axes[i]);
      p.counts[i] = x.tile;
      p.origins[i] = it->second;
      if (!extent(axes[i]).divisible_by(x.tile)) p.limits[i] = extent(axes[i]).expr();
    }
    return p;
  };

  // Temporaries that other groups read lie in shared memory, in order of their members, while there is room.
  for (size_t g = 0; g < groups.size(); ++g)
    for (size_t i : groups[g]) {
      const SpecMember& m = spec_.members[i];
      if (leaves(m)) continue;
      bool read = false;
      for (size_t j = 0; j < spec_.members.size(); ++j)
        if (std::ranges::find(groups[g], j) == groups[g].end())
          for (const Access& x : accesses(spec_, spec_.members[j])) read |= x.tensor == m.tensor;
      if (!read) continue;
      Points p = in_tile(m.left);
      if (p.open()) continue;
      int64_t bytes = (p.total().like() * static_cast<int64_t>(byte_size(spec_.tensors[m.tensor].type)) + 15) / 16 * 16;
      if (scratch_ + bytes > kSharedBytes) continue;
      lies_[m.tensor] = {Lies::In::shared, scratch_, {}, p.origins};
      for (const Count& n : p.counts) lies_[m.tensor].extents.push_back(n.like());
      scratch_ += bytes;
    }
  shared_bytes_ = scratch_;

  int64_t most = 1;
  for (const SpecMember& m : spec_.members) {
    Points l = in_tile(m.left), r = in_tile(m.reduced);
    most = std::max(most, l.total().like() * r.total().like());
  }
  constexpr int64_t kPerThread = 4;
  int threads = static_cast<int>(
      std::clamp<int64_t>(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(most / kPerThread + 1))), kWarp, kThreads));

  std::vector<Stmt> stages;
  for (const auto& group : groups) {
    const SpecMember& m = spec_.members[group[0]];
    if (!stages.empty()) stages.push_back(barrier());
    Points points = in_tile(m.left);
    if (m.op == Op::constant) {
      stages.push_back(map_stage(group, points, thread(), threads));
      continue;
    }
    Points terms = in_tile(m.reduced);
    Expr row = 0;  // of the partial results
    for (Id x : shared)
      if (std::ranges::find(m.reduced, x) != m.reduced.end()) row = row * tiles_along(x).expr() + position.at(x);
    if (!spec_.across_tiles(m)) row = Expr();
    if (auto r = rectangle({group}, points, true, threads, in_tile)) {
      auto stores = [&](const Emitter::Axes& at, const std::vector<std::vector<Expr>>& values) { return write(group, values[0], at, row); };
      stages.push_back(contract_stage({group}, *r, points, Expr(), in_tile, stores));
      continue;
    }
    Sharing s = sharing(group, points.total().like(), terms.total().like(), threads);
    auto stores = [&](const Point& p, const std::vector<Expr>& values) { return write(group, values, p.axes, row); };
    stages.push_back(reduce_stage(accumulation(group), points, terms, s, Expr(), stores));
  }
  launch("tile", tiles, threads, {with_lets(lets, Block::make(stages))});
  std::vector<size_t> partial;
  for (size_t i = 0; i < spec_.members.size(); ++i)
    if (spec_.across_tiles(spec_.members[i])) partial.push_back(i);
  finish_launches(partial, [&](const SpecMember& m) {
    Count rows = 1;
    for (Id x : shared)
      if (std::ranges::find(m.reduced, x) != m.reduced.end()) rows = rows * tiles_along(x);
    return rows;
  });
}

namespace {

struct Buffers : IRVisitor {
  using IRVisitor::visit;
  std::set<std::string> names;
  void visit(const Load* op) override {
    names.insert(op->name);
    IRVisitor::visit(op);
  }
  void visit(const Store* op) override {
    names.insert(op->name);
    IRVisitor::visit(op);
  }
};

}  // namespace

GpuKernel GpuLowering::run() {
  auto all = groups();
  if (contract_launch(all) || sum_launch(all)) {
  } else if (one_tile_launch(all)) {
    tile_launch(all);
  } else {
    for (const auto& group : all)
      if (!contract_launch({group})) flat_launch(group);
  }
  Replaced* pass = new Replaced;
  pass->with = launches_.empty() ? Evaluate::make(0) : Block::make(launches_);

  Buffers used;
  pass->with.accept(&used);
  for (uint32_t t : zeros_) used.names.insert(buffer_of(t));
  for (uint32_t t : out_.values)
    out_.arguments.emplace_back("xh_size" + std::to_string(t), Halide::Argument::InputScalar, passed_as(spec_.tensors[t].type), 0,
                                Halide::ArgumentEstimates());
  for (uint32_t t = 0; t < spec_.tensors.size(); ++t)
    for (bool partial : {false, true}) {
      std::string name = buffer_of(t, partial);
      if (!used.names.contains(name)) continue;
      const SpecTensor& x = spec_.tensors[t];
      GpuBuffer b{t, partial};
      if (partial || x.use == SpecTensor::Use::temporary) {
        Count bytes = elements(t);
        if (partial) bytes = bytes * rows_.at(t);
        b.bytes = (bytes * static_cast<int64_t>(byte_size(x.type))).amount();
      }
      if (!partial && std::ranges::find(zeros_, t) != zeros_.end())
        out_.zeros.push_back(
            {static_cast<uint32_t>(out_.buffers.size()), (elements(t) * static_cast<int64_t>(byte_size(x.type))).amount()});
      out_.buffers.push_back(b);
      out_.arguments.emplace_back(name, Halide::Argument::InputBuffer, storage_type(x.type), 1, Halide::ArgumentEstimates());
    }
  Halide::Func nothing("xh_nothing");
  nothing() = 0;
  out_.pipeline = Halide::Pipeline(nothing);
  out_.pipeline.add_custom_lowering_pass(pass);
  return std::move(out_);
}

GpuKernel gpu_lower(const KernelSpec& spec, DeviceKind kind, const std::vector<DType>& stored) {
  return GpuLowering(spec, kind, stored).run();
}

}  // namespace xhat::runtime

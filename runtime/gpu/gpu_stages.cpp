// What the threads of a block do for a member of a kernel:
//   map     each thread takes every n-th element, four neighbours at once where they lie next to each other
//   reduce  `lanes` threads take every n-th term of a result into registers; then they add up in pairs, by shuffles within a
//           warp (CUDA) or through shared memory
#include <algorithm>
#include <bit>

#include "cse/normalize/auto_inliner.h"
#include "expr/core/reduction_order.h"
#include "runtime/emit/emit_ops.h"
#include "runtime/gpu/gpu_lowering.h"
#include "runtime/kernel/kernel_access.h"

namespace xhat::runtime {

using namespace Halide::Internal;

Expr GpuLowering::thread() { return Variable::make(Halide::Int(32), "xh_launch" + gpu_thread_name(0)); }
Expr GpuLowering::block() { return Variable::make(Halide::Int(32), "xh_launch" + gpu_block_name(0)); }

Stmt GpuLowering::barrier() {
  constexpr int kDeviceAndShared = 3;
  return Evaluate::make(Call::make(Halide::Int(32), Call::gpu_thread_barrier, {Expr(kDeviceAndShared)}, Call::Intrinsic));
}

Stmt GpuLowering::with_lets(const std::vector<std::pair<std::string, Expr>>& lets, Stmt s) {
  for (size_t i = lets.size(); i-- > 0;) s = LetStmt::make(lets[i].first, lets[i].second, s);
  return s;
}

Points GpuLowering::all_of(const std::vector<Id>& axes) const {
  Points p;
  for (Id x : axes) {
    p.axes.push_back(x);
    p.counts.push_back(extent(x));
    p.origins.emplace_back();
    p.limits.emplace_back();
  }
  return p;
}

// The same, of the axis that is split only its part of that number.
Points GpuLowering::part_of(const std::vector<Id>& axes, const Split& split, const Expr& part) const {
  Points p = all_of(axes);
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!split.some() || axes[i] != split.axis) continue;
    const Count whole = p.counts[i];
    p.counts[i] = split.each;
    p.origins[i] = part * split.each.expr();
    if (whole.open() || !whole.is(split.each.like() * split.parts)) p.limits[i] = whole.expr();
  }
  return p;
}

// The last axis counts in steps of `vector`.
Point GpuLowering::point(const Points& points, const Expr& number, int vector) {
  Point p;
  Expr rest = number;
  for (size_t i = points.axes.size(); i-- > 0;) {
    Count count = points.counts[i];
    if (i + 1 == points.axes.size()) count = count.over(vector);
    Expr at = i == 0 ? rest : count.is(1) ? Expr(0) : rest % count.expr();
    if (i > 0) rest = simplify(rest / count.expr());
    if (i + 1 == points.axes.size() && vector > 1) at = at * vector;
    if (points.origins[i].defined()) at = points.origins[i] + at;
    std::string name = fresh("i");
    p.lets.emplace_back(name, simplify(at));
    Expr x = Variable::make(Halide::Int(32), name);
    p.axes[points.axes[i]] = x;
    if (points.limits[i].defined()) p.inside = p.inside.defined() ? p.inside && x < points.limits[i] : x < points.limits[i];
  }
  return p;
}

Stmt GpuLowering::store(const SpecMember& m, const Expr& value, const Emitter::Axes& axes) {
  std::vector<Expr> at;
  for (Id x : m.left) at.push_back(axes.at(x));
  const Lies& lies = lies_[m.tensor];
  // A sum that tiles leave parts of may be added up in a wider type than the caller's.
  const SpecTensor& t = spec_.tensors[m.tensor];
  const bool callers = t.use == SpecTensor::Use::partial && t.original != kInternal;
  Halide::Type type = storage_type(callers ? stored_[t.original] : t.type);
  Expr stored = device(value.type() == type ? value : Halide::cast(type, value));
  Expr index = device(index_of(m.tensor, at));
  if (lies.in == Lies::In::shared) index = index + static_cast<int>(lies.offset / stored.type().bytes());
  std::string name = lies.in == Lies::In::shared ? "xh_shared" : buffer_of(m.tensor);
  return Store::make(name, stored, index, {}, const_true(), {});
}

Stmt GpuLowering::store_partial(const SpecMember& m, const Expr& value, const Emitter::Axes& axes, const Expr& row) {
  std::vector<Expr> at;
  for (Id x : m.left) at.push_back(axes.at(x));
  Expr stored = device(Halide::cast(storage_type(spec_.tensors[m.tensor].type), value));
  return Store::make(buffer_of(m.tensor, true), stored, simplify(row * elements(m.tensor).expr() + device(index_of(m.tensor, at))), {},
                     const_true(), {});
}

// What a device's code keeps of a value, as whoever reads the value expects it: a half is kept as its bits.
Expr GpuLowering::as_read(const Expr& kept, DType type) {
  const Halide::Type stored = storage_type(type);
  if (type == DType::boolean) return ops::boolean(kept);
  if (!stored.is_float() || stored.bits() != 16) return kept;
  return Halide::cast(stored, stored.is_bfloat() ? bfloat16_to_float32(kept) : float16_to_float32(kept));
}

// Members of the group one after the other; what one makes of this point the next ones take from its register.
Stmt GpuLowering::map_at(const std::vector<size_t>& group, const Emitter::Axes& axes) {
  std::vector<std::pair<std::string, Expr>> lets;
  std::vector<Stmt> stores;
  auto given = emit_.given;
  for (size_t g : group) {
    const SpecMember& m = spec_.members[g];
    const SpecTensor& t = spec_.tensors[m.tensor];
    Halide::Type type = storage_type(t.type);
    Expr value = emit_.value(m.body, axes);
    if (value.type() != type) value = Halide::cast(type, value);
    std::string name = fresh("v");
    Expr computed = device(value);
    lets.emplace_back(name, computed);
    Expr kept = Variable::make(computed.type(), name);
    std::vector<Expr> at;
    for (Id x : m.left) at.push_back(axes.at(x));
    bool read_elsewhere = leaves(m);
    for (size_t i = 0; i < spec_.members.size() && !read_elsewhere; ++i) {
      if (std::ranges::find(group, i) != group.end()) continue;
      for (Id root : roots(spec_.members[i]))
        for (TensorId read : tensors_read(*spec_.arena, root)) read_elsewhere |= read == m.tensor;
    }
    if (read_elsewhere) {
      const Lies& lies = lies_[m.tensor];
      Expr index = device(index_of(m.tensor, at));
      if (lies.in == Lies::In::shared) index = index + static_cast<int>(lies.offset / type.bytes());
      stores.push_back(Store::make(lies.in == Lies::In::shared ? "xh_shared" : buffer_of(m.tensor), kept, index, {}, const_true(), {}));
    }
    emit_.given[spec_.arena->read(m.tensor, t.type, m.left)] = as_read(kept, t.type);
  }
  emit_.given = given;
  return with_lets(lets, Block::make(stores));
}

// Whether four neighbours along the axis can be computed at once: what is read lies side by side or doesn't depend on the axis.
bool GpuLowering::side_by_side(const std::vector<size_t>& group, Id last) const {
  const Arena& a = *spec_.arena;
  for (size_t g : group)
    for (Id id : reachable(a, roots(spec_.members[g]))) {
      const Node& n = a[id];
      if (n.op == Op::random) return false;
      if (id == last || n.free_axes().empty() || !n.depends_on(last)) continue;
      if (!is_read(n.op)) {
        bool real_word = is_float(n.type) && byte_size(n.type) == 4;
        if (byte_size(n.type) == 8 || ((n.op == Op::div || n.op == Op::mod) && !(real_word && n.op == Op::div))) return false;
        continue;
      }
      auto ids = read_indices(n);
      if (n.op == Op::read_or || byte_size(n.type) != 4) return false;
      for (size_t i = 0; i < ids.size(); ++i) {
        bool depends = a[ids[i]].depends_on(last);
        if (depends && (i + 1 < ids.size() || ids[i] != last)) return false;
        // Rows must begin where 16 bytes do.
        if (depends && i > 0 && spec_.tensors[n.symbol].shape.back() % kVector != 0) return false;
      }
    }
  return true;
}

// One row of elements, which may end within a vector.
bool GpuLowering::is_row(const Points& points) {
  constexpr int64_t kLong = 1024;
  return points.axes.size() == 1 && !points.origins[0].defined() && (points.open() || points.counts[0].like() >= kLong);
}

int GpuLowering::vector_of(const std::vector<size_t>& group, const Points& points) const {
  if (points.axes.empty()) return 1;
  Id last = points.axes.back();
  if (!is_row(points) && !(points.counts.back().divisible_by(kVector) && extent(last).divisible_by(kVector))) return 1;
  for (size_t g : group)
    if (byte_size(spec_.tensors[spec_.members[g].tensor].type) != 4) return 1;
  return side_by_side(group, last) ? kVector : 1;
}

// Elements first, first + step, … of the points. Step 0: that one alone.
Stmt GpuLowering::map_stage(const std::vector<size_t>& group, const Points& points, const Expr& first, int64_t step) {
  const int vector = vector_of(group, points);
  const bool ragged = vector > 1 && !points.counts.back().divisible_by(vector);
  const Count n = points.total().over(vector);
  auto lanes = [&](const Point& p, ForType type, const Expr& end) {
    std::string lane = fresh("lane");
    Emitter::Axes axes = p.axes;
    Expr& x = axes.at(points.axes.back());
    x = x + Variable::make(Halide::Int(32), lane);
    Stmt s = map_at(group, axes);
    if (end.defined()) s = IfThenElse::make(x < end, s);
    return For::make(lane, 0, vector, type, Halide::Partition::Auto, Halide::DeviceAPI::None, s);
  };
  auto element = [&](const Expr& number, bool guarded) {
    Point p = point(points, number, vector);
    Stmt s = vector > 1 ? lanes(p, ForType::Vectorized, Expr()) : map_at(group, p.axes);
    if (ragged) {
      Expr end = points.counts[0].expr();
      s = IfThenElse::make(p.axes.at(points.axes[0]) + (vector - 1) < end, s, lanes(p, ForType::Serial, end));
    }
    if (p.inside.defined()) s = IfThenElse::make(p.inside, s);
    s = with_lets(p.lets, s);
    return guarded ? IfThenElse::make(number < n.expr(), s) : s;
  };
  if (step == 0) return element(first, true);
  const int at_once = under_way(group, vector, points.axes.size());
  const Expr whole = simplify(n.expr() / static_cast<int>(step)), last = simplify(whole * static_cast<int>(step) + first);
  std::vector<Stmt> turns = {repeat(whole, at_once, [&](const Expr& turn) { return element(turn * static_cast<int>(step) + first, false); })};
  if (!n.divisible_by(step)) turns.push_back(element(last, true));
  return Block::make(turns);
}

// Threads of a warp should read neighbours: lanes of one result where the sum runs along memory, else results.
Sharing GpuLowering::sharing(const std::vector<size_t>& group, int64_t results, int64_t terms, int threads) const {
  constexpr int64_t kTermsPerLane = 4, kEnough = 1 << 14;
  Arena& a = *spec_.arena;
  const SpecMember& m = spec_.members[group[0]];
  double along_terms = 0, along_results = 0;
  for (size_t g : group)
    for (Id id : reachable(a, spec_.members[g].body)) {
      const Node& n = a[id];
      if (!is_read(n.op) || read_indices(n).empty()) continue;
      double weight = 1;
      for (Id x : n.free_axes()) weight *= static_cast<double>(axis(x).extent);
      // Runs shorter than a sector of memory are no reason.
      if (!m.reduced.empty() && axis(m.reduced.back()).extent >= kSector && step_along(a, read_indices(n).back(), m.reduced.back()) == 1)
        along_terms += weight;
      if (!m.left.empty() && step_along(a, read_indices(n).back(), m.left.back()) == 1) along_results += weight;
    }
  Sharing s;
  s.threads = threads;
  // Neighbours along both (a window): results, where there are enough of them, for nothing is left to add up then.
  s.lanes_first = along_terms > along_results || (along_terms == along_results && results < kEnough);
  int64_t wanted = s.lanes_first        ? std::max<int64_t>(1, terms / kTermsPerLane)
                   : results >= kEnough ? 1
                                        : std::max<int64_t>(1, kEnough / std::max<int64_t>(1, results));
  wanted = std::min({wanted, std::max<int64_t>(1, terms / kTermsPerLane), static_cast<int64_t>(threads)});
  if (!s.lanes_first)
    wanted = std::min<int64_t>(wanted, std::max<int64_t>(1, threads / std::max<int64_t>(1, std::min<int64_t>(results, kSector))));
  for (size_t g : group) {
    const SpecMember& x = spec_.members[g];
    if (x.op == Op::prod && !combines_in_parts(x.op, (*spec_.arena)[x.body].type)) wanted = 1;
  }
  s.lanes = static_cast<int>(std::bit_floor(static_cast<uint64_t>(wanted)));
  return s;
}

Stmt GpuLowering::reduce_stage(const Accumulation& a, const Points& points, const Points& terms, const Sharing& s, const Expr& first,
                               const std::function<Stmt(const Point&, const std::vector<Expr>&)>& store) {
  const Count n = points.total();
  if (n.is(0)) return Evaluate::make(0);
  const int results = s.results();
  Expr slot = s.lanes == 1 ? thread() : s.lanes_first ? thread() / s.lanes : thread() % results;
  Expr lane = s.lanes == 1 ? Expr(0) : s.lanes_first ? thread() % s.lanes : thread() / results;
  const bool in_turns = !first.defined();
  const Count turns = in_turns ? n.over(results) : 1;
  const bool again = !turns.is(1);
  std::string turn = fresh("turn");
  Expr base = in_turns ? (again ? Variable::make(Halide::Int(32), turn) * results : Expr(0)) : first;
  Expr number = base + slot;
  Point p = point(points, number);
  Expr there = !n.divisible_by(results) || (in_turns && s.threads > n.like() * s.lanes) ? Expr(number < n.expr()) : Expr();
  Expr inside = p.inside;
  if (there.defined()) inside = inside.defined() ? there && inside : there;

  std::vector<std::string> names;
  std::vector<Halide::Type> types;
  for (const Expr& e : a.identities) {
    names.push_back(fresh("acc"));
    types.push_back(e.type());
  }
  auto load = [&](const std::string& name, size_t i, const Expr& index) {
    return Load::make(types[i], name, index, {}, {}, const_true(), {});
  };
  auto put = [&](const std::vector<Expr>& values) { return into_registers(names, values, 0); };
  std::vector<Expr> mine;
  for (size_t i = 0; i < names.size(); ++i) mine.push_back(load(names[i], i, 0));

  std::vector<Stmt> stmts;
  const int vector = terms_at_once(a, terms, s);
  for (size_t i = 0; i < names.size(); ++i)
    for (int j = 0; j < vector; ++j) stmts.push_back(Store::make(names[i], device(a.identities[i]), j, {}, const_true(), {}));
  Stmt sum = accumulate(a, names, terms, p.axes, s);
  stmts.push_back(inside.defined() ? IfThenElse::make(inside, sum) : sum);
  for (int j = 1; j < vector; ++j) {
    std::vector<Expr> theirs;
    for (size_t i = 0; i < names.size(); ++i) theirs.push_back(load(names[i], i, j));
    stmts.push_back(put(a.combine(mine, theirs)));
  }

  // Lanes add up in pairs: the upper half of them hands over to the lower half, until one is left.
  int lanes = s.lanes;
  const bool shuffles =
      kind_ == DeviceKind::cuda && s.lanes_first && std::ranges::all_of(types, [](const Halide::Type& t) { return t.bits() == 32; });
  auto shuffled = [&](int distance) {
    std::vector<Expr> theirs;
    for (size_t i = 0; i < names.size(); ++i) {
      std::string name = types[i].is_float() ? "llvm.nvvm.shfl.sync.bfly.f32" : "llvm.nvvm.shfl.sync.bfly.i32";
      Expr sent = types[i].is_uint() ? Halide::reinterpret(Halide::Int(32), mine[i]) : mine[i];
      Expr got = Call::make(sent.type(), name, {Expr(-1), sent, Expr(distance), Expr(kWarp - 1)}, Call::Extern);
      theirs.push_back(got.type() == types[i] ? got : Halide::reinterpret(types[i], got));
    }
    return put(a.combine(mine, theirs));
  };
  auto scratch = [&](size_t i) {  // where each thread's i-th value begins, in elements of its type
    int64_t bytes = scratch_;
    for (size_t j = 0; j < i; ++j) bytes += int64_t{8} * s.threads;
    return static_cast<int>(bytes / types[i].bytes());
  };
  auto in_shared = [&](size_t i, const Expr& number_of) { return load("xh_shared", i, number_of + scratch(i)); };
  auto share = [&](const Expr& number_of) {
    std::vector<Stmt> stores;
    for (size_t i = 0; i < names.size(); ++i)
      stores.push_back(Store::make("xh_shared", mine[i], number_of + scratch(i), {}, const_true(), {}));
    return Block::make(stores);
  };
  if (lanes > 1 && shuffles) {
    for (int d = std::min(lanes, kWarp) / 2; d > 0; d /= 2) stmts.push_back(shuffled(d));
    if (lanes > kWarp) {
      const int warps = lanes / kWarp;  // of a result: one value each
      shared_bytes_ = std::max(shared_bytes_, scratch_ + static_cast<int64_t>(8 * names.size()) * s.threads);
      stmts.push_back(IfThenElse::make(thread() % kWarp == 0, share(thread() / kWarp)));
      stmts.push_back(barrier());
      std::vector<Expr> theirs;
      for (size_t i = 0; i < names.size(); ++i) theirs.push_back(in_shared(i, slot * warps + lane % warps));
      stmts.push_back(put(theirs));
      for (int d = warps / 2; d > 0; d /= 2) stmts.push_back(shuffled(d));
    }
  } else if (lanes > 1) {
    shared_bytes_ = std::max(shared_bytes_, scratch_ + static_cast<int64_t>(8 * names.size()) * s.threads);
    const int apart = s.lanes_first ? 1 : results;
    stmts.push_back(share(thread()));
    stmts.push_back(barrier());
    for (int d = lanes / 2; d > 0; d /= 2) {
      std::vector<Expr> theirs;
      for (size_t i = 0; i < names.size(); ++i) theirs.push_back(in_shared(i, thread() + d * apart));
      Stmt add = Block::make(put(a.combine(mine, theirs)), share(thread()));
      stmts.push_back(IfThenElse::make(lane < d, add));
      if (d > 1) stmts.push_back(barrier());
    }
  }
  Stmt last = store(p, mine);
  if (lanes > 1) inside = inside.defined() ? inside && lane == 0 : lane == 0;
  if (inside.defined()) last = IfThenElse::make(inside, last);
  stmts.push_back(last);
  if (again && lanes > 1) stmts.push_back(barrier());  // before the scratch is used again
  for (const std::string& name : names) stmts.push_back(Free::make(name));
  Stmt all = Block::make(stmts);
  for (size_t i = names.size(); i-- > 0;)
    all = Allocate::make(names[i], types[i], Halide::MemoryType::Register, {vector}, const_true(), all);
  all = with_lets(p.lets, all);
  if (again) all = For::make(turn, 0, turns.expr(), ForType::Serial, Halide::Partition::Auto, Halide::DeviceAPI::None, all);
  return all;
}

}  // namespace xhat::runtime

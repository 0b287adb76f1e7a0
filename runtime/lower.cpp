// Shapes of code, one per kind of member:
//   map        one nest, vectorized along its fastest axis
//   row sum    reduced along the contiguous axis: kLanes independent accumulators (64 hide the latency of fma), a tail,
//              then a tree; all sums over the same axes in one pass
//   column sum reduced along another axis: accumulators lie along the vector axis, rows are walked in memory order
//   scatter    adds at computed places, serially
// Members are whole in the tile, one nest after another, while the tile stays in cache. If the kernel has a single
// result that contains the others' axes, they are computed inside its row loop instead, so that rows stay in L1.
#include "runtime/lower.h"

#include <algorithm>
#include <set>

#include "runtime/emit.h"

namespace xhat::runtime {
namespace {

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::RVar;
using Halide::TailStrategy;
using Halide::Var;
using Halide::VarOrRVar;

constexpr int kLanes = 64;   // accumulators of a row sum: 4 vectors of 16 keep two fma ports busy for 4 cycles each
constexpr int kUnroll = 4;   // vectors per step of a map: 2-4 help memory overlap (1.43 -> 1.38 ms for tanh)

struct Nest {
  Func func;
  std::vector<Var> vars;  // innermost first
};

class Lowering {
 public:
  Lowering(const KernelSpec& spec, const Halide::Target& target) : spec_(spec), target_(target), emit_{spec, {}, {}, {}, {}} {}

  LoweredKernel run() {
    declare();
    std::vector<bool> emitted(spec_.members.size(), false);
    find_row_loop();
    for (size_t i = 0; i < spec_.members.size(); ++i) {
      if (emitted[i]) continue;
      std::vector<size_t> group = {i};
      if (spec_.members[i].op != Op::constant) group = same_domain(i, emitted);
      for (size_t g : group) emitted[g] = true;
      member(group);
    }
    finish();
    return std::move(out_);
  }

 private:
  const KernelSpec& spec_;
  const Halide::Target& target_;
  Emitter emit_;
  LoweredKernel out_;
  std::unordered_map<Id, Var> vars_;
  std::vector<Halide::OutputImageParam> outputs_;
  std::unordered_map<uint32_t, Func> results_;
  // Set when everything else is computed inside the rows of one result.
  size_t row_result_ = SIZE_MAX;
  Id row_axis_ = kNone;
  struct Deferred {
    Func func;
  };
  std::vector<Func> inside_;  // placed in the row loop once the result's Func exists

  const SpecAxis& axis(Id id) const { return spec_.axes.at(id); }
  int natural(DType t) const { return target_.natural_vector_size(storage_type(t)); }

  // Tensor and axis names must not collide with libm's or Halide's own: prefixed and numbered.
  std::string name(const char* kind, size_t i) const { return std::string("xh_") + kind + std::to_string(i); }

  void declare() {
    for (auto& [id, axis] : spec_.axes) vars_.emplace(id, Var("v_" + spec_.arena->name(id)));
    for (Id id : spec_.shared) {
      if (axis(id).kind() == AxisKind::whole) continue;
      Halide::Param<int> origin("o_" + spec_.arena->name(id));
      emit_.origin.emplace(id, origin);
      out_.origins.push_back(id);
      out_.arguments.push_back(origin);
    }
    emit_.inputs.resize(spec_.tensors.size());
    for (uint32_t t = 0; t < spec_.tensors.size(); ++t) {
      const SpecTensor& x = spec_.tensors[t];
      if (x.use != SpecTensor::Use::input) continue;
      Halide::ImageParam image(storage_type(x.type), static_cast<int>(x.shape.size()), name("in", t));
      for (int d = 0; d < static_cast<int>(x.shape.size()); ++d) image.dim(d).set_min(0);
      if (!x.shape.empty() && !x.dense) image.dim(0).set_stride(Expr());
      emit_.inputs[t] = image;
      out_.inputs.push_back(t);
      out_.arguments.push_back(image);
    }
  }

  // Reductions that one pass can do: the same axes and condition, and nothing of one needed by another.
  std::vector<size_t> same_domain(size_t first, const std::vector<bool>& emitted) const {
    const SpecMember& f = spec_.members[first];
    std::vector<size_t> group = {first};
    if (!f.scatter.empty() || f.op == Op::argmax || f.op == Op::argmin) return group;
    std::set<uint32_t> pending;  // made, but not before this pass
    for (size_t i = first; i < spec_.members.size(); ++i)
      if (!emitted[i]) pending.insert(spec_.members[i].tensor);
    for (size_t i = first + 1; i < spec_.members.size(); ++i) {
      const SpecMember& m = spec_.members[i];
      if (emitted[i] || m.op == Op::constant || m.op == Op::argmax || m.op == Op::argmin || !m.scatter.empty()) continue;
      if (m.left != f.left || m.reduced != f.reduced || m.condition != f.condition) continue;
      auto read = tensors_read(*spec_.arena, m.body);
      if (std::ranges::any_of(read, [&](TensorId t) { return pending.contains(t); })) continue;
      group.push_back(i);
    }
    return group;
  }

  // Where vectors run: a map along the last axis it writes; a reduction along the axis that is contiguous in most of the
  // bytes it reads, if that is reduced or the last one written. kNone if there is none.
  Id vector_axis(const std::vector<size_t>& group) const {
    const SpecMember& m = spec_.members[group[0]];
    Id written = m.left.empty() || axis(m.left.back()).kind() == AxisKind::single ? kNone : m.left.back();
    if (m.op == Op::constant) return written;
    const Arena& a = *spec_.arena;
    std::vector<Id> candidates = m.reduced;
    if (written != kNone) candidates.push_back(written);
    std::erase_if(candidates, [&](Id x) { return axis(x).kind() == AxisKind::single; });
    std::unordered_map<Id, double> score;
    std::vector<Id> roots;
    for (size_t g : group) roots.push_back(spec_.members[g].body);
    for (Id id : reachable(a, roots)) {
      const Node& n = a[id];
      if (!is_read(n.op) || read_indices(n).empty()) continue;
      double points = 1;
      for (Id x : n.free_axes()) points *= static_cast<double>(axis(x).extent);
      // Unit step: the axis itself, or plus or minus something free of it.
      Id last = read_indices(n).back();
      for (Id x : candidates) {
        bool shifted = (a[last].op == Op::add || a[last].op == Op::sub) && a[last].arg(0) == x;
        if (last == x || shifted) score[x] += points;
      }
    }
    Id best = kNone;
    for (Id x : candidates)
      if (score.contains(x) && (best == kNone || score[x] > score[best])) best = x;
    if (best == kNone) best = written != kNone ? written : candidates.empty() ? kNone : candidates.back();
    return best;
  }

  std::vector<Var> func_vars(const SpecMember& m) const {
    std::vector<Var> v;
    auto dims = tile_dimensions(spec_, m);
    for (size_t i = dims.size(); i-- > 0;) v.push_back(vars_.at(m.left[dims[i]]));
    return v;
  }

  Emitter::Axes left_locals(const SpecMember& m) const {
    Emitter::Axes axes;
    for (Id x : m.left) axes[x] = axis(x).kind() == AxisKind::single ? Expr(0) : Expr(vars_.at(x));
    return axes;
  }

  // Elements of an axis in this tile: a constant, or for a part, known by the tile's tail.
  Expr extent(Id x) const {
    if (axis(x).kind() == AxisKind::part) {
      // The last tile may have fewer: extent - origin.
      Expr whole = axis(x).baked ? Expr(static_cast<int>(axis(x).extent)) : Expr(unbaked_extent(x));
      return Halide::min(static_cast<int>(axis(x).tile), whole - emit_.origin.at(x));
    }
    return axis(x).kind() == AxisKind::single ? Expr(1) : Expr(static_cast<int>(axis(x).extent));
  }

  // Of a shared axis whose extent the code doesn't know: taken from an input it indexes, or from a result.
  Expr unbaked_extent(Id x) const {
    for (const SpecMember& m : spec_.members)
      for (Id id : reachable(*spec_.arena, m.body)) {
        const Node& n = (*spec_.arena)[id];
        if (n.op != Op::read || !emit_.inputs[n.symbol].defined()) continue;
        for (size_t i = 0; i < n.arg_count; ++i)
          if (n.arg(i) == x) return emit_.inputs[n.symbol].dim(static_cast<int>(n.arg_count - 1 - i)).extent();
      }
    throw Bug("no tensor tells the extent of a tiled axis");
  }

  // Vectorizes v of a stage by what fits: the natural width, less for short constant extents.
  template <class Stage>
  void vectorize(Stage stage, const VarOrRVar& v, Id x, DType type, int unroll) const {
    const SpecAxis& a = axis(x);
    int width = natural(type);
    if (a.kind() == AxisKind::whole)
      while (width > 1 && a.extent < width) width /= 2;
    if (width <= 1) return;
    if (a.kind() == AxisKind::whole && a.extent < static_cast<int64_t>(width) * unroll) unroll = 1;
    if (unroll > 1) {
      split_unrolled(stage, v, width, unroll);
    } else {
      stage.vectorize(v, width, TailStrategy::GuardWithIf);
    }
  }

  template <class Stage>
  static void split_unrolled(Stage& stage, const VarOrRVar& v, int width, int unroll) {
    if (v.is_rvar) {
      RVar o(v.name() + "_o"), i(v.name() + "_i");
      stage.split(v.rvar, o, i, width * unroll, TailStrategy::GuardWithIf).vectorize(i, width, TailStrategy::GuardWithIf).unroll(i);
    } else {
      Var o(v.name() + "_o"), i(v.name() + "_i");
      stage.split(v.var, o, i, width * unroll, TailStrategy::GuardWithIf).vectorize(i, width, TailStrategy::GuardWithIf).unroll(i);
    }
  }

  // Is there one result into whose row loop the rest can go?
  void find_row_loop() {
    size_t result = SIZE_MAX;
    for (size_t i = 0; i < spec_.members.size(); ++i) {
      if (spec_.tensors[spec_.members[i].tensor].use == SpecTensor::Use::temporary) continue;
      if (result != SIZE_MAX) return;
      result = i;
    }
    const SpecMember& r = spec_.members[result];
    if (r.op != Op::constant || spec_.members.size() == 1) return;
    Id row = kNone;
    for (Id x : spec_.shared)
      if (axis(x).kind() != AxisKind::single) row = x;
    if (row == kNone) return;
    for (const SpecMember& m : spec_.members)
      for (Id x : spec_.shared)
        if (axis(x).kind() != AxisKind::single && std::ranges::find(m.left, x) == m.left.end()) return;
    if (vector_axis({result}) == row) return;
    row_result_ = result;
    row_axis_ = row;
  }

  void place(Func f) {
    if (row_result_ == SIZE_MAX) f.compute_root();
    else inside_.push_back(f);
  }

  void publish(const SpecMember& m, Func f) {
    emit_.made[m.tensor] = f;
    emit_.left_axes[m.tensor] = m.left;
    bool leaves = spec_.tensors[m.tensor].use != SpecTensor::Use::temporary;
    if (leaves) results_[m.tensor] = f;
    else place(f);
  }

  Expr to_storage(const SpecMember& m, const Expr& e) const {
    return spec_.tensors[m.tensor].type == DType::boolean && e.type().is_bool() ? Halide::cast<uint8_t>(e) : e;
  }

  void member(const std::vector<size_t>& group) {
    const SpecMember& m = spec_.members[group[0]];
    if (m.op == Op::constant) return map(m);
    if (!m.scatter.empty()) return scatter(m);
    if (m.op == Op::argmax || m.op == Op::argmin) return extreme_index(m);
    Id v = vector_axis(group);
    bool along = v != kNone && std::ranges::find(m.reduced, v) != m.reduced.end();
    bool long_enough = v != kNone && (axis(v).kind() == AxisKind::part || axis(v).extent >= natural(spec_.tensors[m.tensor].type));
    if (along && long_enough) row_sum(group, v);
    else column_sum(group, along ? kNone : v);
  }

  void map(const SpecMember& m) {
    Func f(name("map", m.tensor));
    auto vars = func_vars(m);
    f(vars) = to_storage(m, emit_.value(m.body, left_locals(m)));
    size_t self = static_cast<size_t>(&m - spec_.members.data());
    Id v = vector_axis({self});
    order_rows(f, m, v);
    if (v != kNone && !vars.empty()) vectorize(f, vars_.at(v), v, widest(m), kUnroll);
    publish(m, f);
  }

  // Shared axes outermost, so that a row is finished before the next; the vector axis innermost.
  void order_rows(Func f, const SpecMember& m, Id v) const {
    std::vector<VarOrRVar> order;
    auto dims = tile_dimensions(spec_, m);
    if (v != kNone && std::ranges::find(m.left, v) != m.left.end()) order.push_back(vars_.at(v));
    for (int pass = 0; pass < 2; ++pass)
      for (size_t i = dims.size(); i-- > 0;) {
        Id x = m.left[dims[i]];
        if (x != v && (axis(x).shared >= 0) == (pass == 1)) order.push_back(vars_.at(x));
      }
    if (order.size() > 1) f.reorder(order);
  }

  // The widest element type that a member computes with decides the vector width.
  DType widest(const SpecMember& m) const {
    DType best = spec_.tensors[m.tensor].type;
    for (Id id : reachable(*spec_.arena, m.body)) {
      const Node& n = (*spec_.arena)[id];
      if ((is_float(n.type) || is_read(n.op)) && byte_size(n.type) > byte_size(best)) best = n.type;
    }
    if (byte_size(best) < 4) best = DType::f32;  // masks are computed beside floats
    return best;
  }

  Halide::Tuple identities(const std::vector<size_t>& group) const {
    std::vector<Expr> e;
    for (size_t g : group) e.push_back(Emitter::identity(spec_.members[g].op, accumulated(spec_.members[g])));
    return Halide::Tuple(e);
  }

  DType accumulated(const SpecMember& m) const { return (*spec_.arena)[m.body].type; }

  static Expr element(Func f, const std::vector<Expr>& args, size_t i, size_t of) {
    return of == 1 ? Expr(f(args)) : Expr(f(args)[static_cast<int>(i)]);
  }

  void define(Func f, const std::vector<Expr>& args, const std::vector<Expr>& values) const {
    if (values.size() == 1) f(args) = values[0];
    else f(args) = Halide::Tuple(values);
  }

  std::vector<Expr> steps(const std::vector<size_t>& group, Func f, const std::vector<Expr>& args, const Emitter::Axes& axes) const {
    std::vector<Expr> next;
    for (size_t i = 0; i < group.size(); ++i)
      next.push_back(emit_.step(spec_.members[group[i]], element(f, args, i, group.size()), axes));
    return next;
  }

  static std::vector<Expr> exprs(const std::vector<Var>& vars) { return {vars.begin(), vars.end()}; }

  // One result Func per member of a group, from the finished accumulators.
  template <class F>
  void results_of(const std::vector<size_t>& group, F&& value) {
    for (size_t i = 0; i < group.size(); ++i) {
      const SpecMember& m = spec_.members[group[i]];
      Func r(name("red", m.tensor));
      r(func_vars(m)) = to_storage(m, value(i));
      publish(m, r);
    }
  }

  void row_sum(const std::vector<size_t>& group, Id v) {
    const SpecMember& m = spec_.members[group[0]];
    DType type = widest(m);
    int width = natural(type);
    int64_t known = axis(v).kind() == AxisKind::whole ? axis(v).extent : axis(v).tile;
    int lanes = kLanes * 4 / static_cast<int>(byte_size(type));
    while (lanes > width && known < 2 * lanes) lanes /= 2;
    Var u("u");
    std::vector<Var> left = func_vars(m), args = {u};
    args.insert(args.end(), left.begin(), left.end());

    Func acc(name("acc", m.tensor));
    std::vector<Expr> at = exprs(args);
    std::vector<Expr> init;
    for (size_t g : group) init.push_back(Emitter::identity(spec_.members[g].op, accumulated(spec_.members[g])));
    define(acc, at, init);

    // Full blocks of `lanes`, then what is left.
    Halide::Region region;
    std::vector<Id> others;
    Expr n = extent(v);
    for (size_t i = m.reduced.size(); i-- > 0;)
      if (m.reduced[i] != v) others.push_back(m.reduced[i]);
    auto domain = [&](Expr first) {
      std::vector<Halide::Range> ranges = {{0, first}};
      for (Id x : others) ranges.emplace_back(0, extent(x));
      return RDom(Halide::Region(ranges));
    };
    auto bind = [&](const RDom& r, Expr along) {
      Emitter::Axes axes = left_locals(m);
      axes[v] = along;
      for (size_t i = 0; i < others.size(); ++i) axes[others[i]] = r[static_cast<int>(i) + 1];
      return axes;
    };
    RDom blocks = domain(n / lanes);
    define(acc, at, steps(group, acc, at, bind(blocks, blocks[0] * lanes + u)));
    bool tail = axis(v).kind() == AxisKind::part || known % lanes != 0;
    RDom rest;
    if (tail) {
      rest = domain(n % lanes);
      std::vector<Expr> in_tail = at;
      in_tail[0] = rest[0];
      define(acc, in_tail, steps(group, acc, in_tail, bind(rest, (n / lanes) * lanes + rest[0])));
    }
    acc.bound(u, 0, lanes).vectorize(u, width).unroll(u);
    std::vector<VarOrRVar> order = {u};
    for (int i = 0; i <= static_cast<int>(others.size()); ++i) order.push_back(RVar(blocks[i]));
    for (Var x : left) order.push_back(x);
    acc.update(0).reorder(order).vectorize(u, width).unroll(u);
    if (tail) acc.update(1).vectorize(RVar(rest[0]), width, TailStrategy::GuardWithIf);

    // Tree: lanes -> one vector, then pairs.
    Func one(name("vec", m.tensor));
    std::vector<Expr> folded;
    for (size_t i = 0; i < group.size(); ++i) {
      std::vector<Expr> parts;
      for (int l = 0; l < lanes; l += width) {
        std::vector<Expr> from = at;
        from[0] = u + l;
        parts.push_back(element(acc, from, i, group.size()));
      }
      folded.push_back(pairwise(spec_.members[group[i]].op, parts));
    }
    define(one, at, folded);
    one.bound(u, 0, width).vectorize(u, width);
    place_beside(acc, one, left);
    place(one);
    results_of(group, [&](size_t i) {
      std::vector<Expr> parts;
      for (int l = 0; l < width; ++l) {
        std::vector<Expr> from = at;
        from[0] = l;
        parts.push_back(element(one, from, i, group.size()));
      }
      return pairwise(spec_.members[group[i]].op, parts);
    });
  }

  // The accumulators of one row live in registers or on the stack: computed where the row's result is.
  void place_beside(Func inner, Func outer, const std::vector<Var>& left) const {
    if (left.empty()) inner.compute_root();
    else inner.compute_at(outer, left[0]);
  }

  static Expr pairwise(Op op, std::vector<Expr> parts) {
    while (parts.size() > 1) {
      std::vector<Expr> next;
      size_t half = parts.size() / 2;
      for (size_t i = 0; i < half; ++i) next.push_back(Emitter::combine(op, parts[i], parts[i + half]));
      if (parts.size() % 2) next.push_back(parts.back());
      parts = next;
    }
    return parts[0];
  }

  void column_sum(const std::vector<size_t>& group, Id v) {
    const SpecMember& m = spec_.members[group[0]];
    std::vector<Var> left = func_vars(m);
    std::vector<Expr> at = exprs(left);
    Func acc(name("acc", m.tensor));
    std::vector<Expr> init;
    for (size_t g : group) init.push_back(Emitter::identity(spec_.members[g].op, accumulated(spec_.members[g])));
    define(acc, at, init);
    std::vector<Halide::Range> ranges;
    for (size_t i = m.reduced.size(); i-- > 0;) ranges.emplace_back(0, extent(m.reduced[i]));
    RDom r{Halide::Region(ranges)};
    Emitter::Axes axes = left_locals(m);
    for (size_t i = 0; i < m.reduced.size(); ++i) axes[m.reduced[m.reduced.size() - 1 - i]] = r[static_cast<int>(i)];
    define(acc, at, steps(group, acc, at, axes));
    bool vectors = v != kNone && std::ranges::find(m.left, v) != m.left.end();
    std::vector<VarOrRVar> order;
    if (vectors) order.push_back(vars_.at(v));
    for (int i = 0; i < r.dimensions(); ++i) order.push_back(RVar(r[i]));
    for (Var x : left)
      if (!vectors || x.name() != vars_.at(v).name()) order.push_back(x);
    if (order.size() > 1) acc.update(0).reorder(order);
    if (vectors) {
      order_rows(acc, m, v);
      vectorize(acc, vars_.at(v), v, widest(m), 1);
      vectorize(acc.update(0), vars_.at(v), v, widest(m), 2);
    }
    place(acc);
    results_of(group, [&](size_t i) { return element(acc, at, i, group.size()); });
  }

  void scatter(const SpecMember& m) {
    std::vector<Var> left = func_vars(m);
    Func acc(name("acc", m.tensor));
    acc(left) = Emitter::identity(m.op, accumulated(m));
    std::vector<Halide::Range> ranges;
    for (size_t i = m.reduced.size(); i-- > 0;) ranges.emplace_back(0, extent(m.reduced[i]));
    RDom r{Halide::Region(ranges)};
    Emitter::Axes axes = left_locals(m);
    for (size_t i = 0; i < m.reduced.size(); ++i) axes[m.reduced[m.reduced.size() - 1 - i]] = r[static_cast<int>(i)];
    std::vector<Expr> at;
    std::vector<Var> pure;
    auto dims = tile_dimensions(spec_, m);
    for (size_t i = dims.size(); i-- > 0;) {
      size_t target = SIZE_MAX;
      for (size_t t = 0; t < m.scatter.size(); ++t)
        if (m.scatter[t].first == dims[i]) target = t;
      if (target != SIZE_MAX) {
        at.push_back(emit_.scatter_index(m, target, axes));
      } else {
        pure.push_back(vars_.at(m.left[dims[i]]));
        at.push_back(pure.back());
      }
    }
    acc(at) = emit_.step(m, acc(at), axes);
    if (!pure.empty()) {
      Id v = kNone;
      for (Id x : m.left)
        if (vars_.at(x).name() == pure[0].name()) v = x;
      std::vector<VarOrRVar> order = {pure[0]};
      for (int i = 0; i < r.dimensions(); ++i) order.push_back(RVar(r[i]));
      for (size_t i = 1; i < pure.size(); ++i) order.push_back(pure[i]);
      acc.update(0).reorder(order);
      vectorize(acc.update(0), pure[0], v, widest(m), 1);
    }
    place(acc);
    results_of({static_cast<size_t>(&m - spec_.members.data())}, [&](size_t) { return Expr(acc(left)); });
  }

  // First extreme, or the first NaN. Serial: ties must go to the first.
  void extreme_index(const SpecMember& m) {
    std::vector<Var> left = func_vars(m);
    Func acc(name("acc", m.tensor));
    DType type = accumulated(m);
    Emitter::Axes axes = left_locals(m);
    acc(left) = Halide::Tuple(Halide::Internal::make_zero(storage_type(type)), Expr(-1));
    RDom r(0, extent(m.reduced[0]));
    axes[m.reduced[0]] = r.x;
    Expr v = emit_.value(m.body, axes), best = acc(left)[0], where = acc(left)[1];
    if (v.type().is_bool()) v = Halide::cast<uint8_t>(v);
    Expr better = m.op == Op::argmax ? v > best : v < best;
    if (is_float(type)) better = (better || Halide::is_nan(v)) && !Halide::is_nan(best);
    better = where < 0 || better;
    if (!is_true(*spec_.arena, m.condition)) better = better && emit_.condition(m.condition, axes);
    acc(left) = Halide::Tuple(Halide::select(better, v, best), Halide::select(better, Expr(r.x), where));
    place(acc);
    results_of({static_cast<size_t>(&m - spec_.members.data())},
               [&](size_t) { return Halide::cast<int64_t>(acc(left)[1]); });
  }

  void finish() {
    if (row_result_ != SIZE_MAX) {
      Func result = results_.at(spec_.members[row_result_].tensor);
      for (Func f : inside_) f.compute_at(result, vars_.at(row_axis_));
    }
    std::vector<Func> funcs;
    for (const SpecMember& m : spec_.members) {
      auto it = results_.find(m.tensor);
      if (it == results_.end()) continue;
      Func f = it->second;
      auto dims = tile_dimensions(spec_, m);
      auto buffers = f.output_buffers();
      for (size_t i = 0; i < dims.size(); ++i) {
        Id x = m.left[dims[dims.size() - 1 - i]];
        buffers[0].dim(static_cast<int>(i)).set_min(0);
        if (axis(x).kind() == AxisKind::whole) f.bound(vars_.at(x), 0, static_cast<int>(axis(x).extent));
      }
      bool unit = !dims.empty() && dims.back() + 1 == m.left.size() &&
                  (spec_.tensors[m.tensor].dense || spec_.tensors[m.tensor].use == SpecTensor::Use::partial);
      if (!dims.empty() && !unit) buffers[0].dim(0).set_stride(Expr());
      funcs.push_back(f);
      out_.results.push_back(m.tensor);
    }
    out_.pipeline = Halide::Pipeline(funcs);
  }
};

}  // namespace

std::vector<size_t> tile_dimensions(const KernelSpec& spec, const SpecMember& m) {
  std::vector<size_t> dims;
  for (size_t i = 0; i < m.left.size(); ++i)
    if (spec.axes.at(m.left[i]).kind() != AxisKind::single) dims.push_back(i);
  return dims;
}

LoweredKernel lower(const KernelSpec& spec, const Halide::Target& target) { return Lowering(spec, target).run(); }

Halide::Target cpu_target() {
  Halide::Target t = Halide::get_host_target();
  t.set_feature(Halide::Target::StrictFloat);
  if (!std::getenv("XHAT_HALIDE_CHECKS")) t.set_feature(Halide::Target::NoAsserts);
  t.set_feature(Halide::Target::NoBoundsQuery);
  t.set_feature(Halide::Target::JIT);
  t.set_feature(Halide::Target::UserContext);
  return t;
}

}  // namespace xhat::runtime

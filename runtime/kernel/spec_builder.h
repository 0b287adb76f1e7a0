// Members of a planned kernel, with sizes filled in, as those of a spec: shared by kernel_spec.cpp and open_spec.cpp. For these only.
#pragma once
#include <algorithm>
#include <limits>
#include <set>

#include "expr/core/reduction_order.h"
#include "expr/core/scalar.h"
#include "expr/index/affine.h"
#include "expr/index/size_limits.h"
#include "expr/rules/simplify.h"
#include "fusion/relations/scatter.h"
#include "runtime/kernel/kernel_access.h"
#include "runtime/kernel/kernel_spec.h"

namespace xhat::runtime {

inline bool is_narrow(DType t) { return t == DType::f16 || t == DType::bf16; }
constexpr int64_t kSomeSize = 64;  // larger than windows

struct SpecBuilder {
  const Program& p;
  const Kernel& k;
  const DimValues& sizes;
  const std::vector<bool>& dense;
  enum class Scatters : uint8_t { all, words, none } scatters = Scatters::all;  // the others are sums with a condition
  KernelSpec spec = {};
  std::unordered_map<TensorId, uint32_t> local = {};
  std::vector<Id> class_axis = {};
  std::unordered_map<Id, uint32_t> size_values = {};  // by constant: the tensor
  std::set<Id> batch_dims = {};
  std::set<Id> open_dims = {};  // of the program: arguments of the code
  bool in_rows = false;

  Arena& arena() { return *spec.arena; }

  uint32_t tensor(TensorId t) {
    auto [it, fresh] = local.emplace(t, static_cast<uint32_t>(spec.tensors.size()));
    if (fresh) {
      SpecTensor s;
      s.original = t;
      s.type = p.tensors[t].type;
      s.shape = shape_of(p, t, sizes);
      for (int i = 0; i < static_cast<int>(s.shape.size()); ++i) s.groups.emplace_back(i, i);
      s.steps.assign(s.shape.size(), 1);
      s.dense = dense[t];
      s.mostly_zero = p.tensors[t].mostly_zero;
      s.rows = in_rows && !dense[t];
      spec.tensors.push_back(s);
    }
    return it->second;
  }

  [[noreturn]] void unknown_range(Id axis) const {
    throw Error(p.name + ": the kernel of " + k.name + " runs over axis " + p.arena->name(axis) +
                ", whose range has no bounds that are known before it runs, or bounds beyond 2^40; bound it, as in " + p.arena->name(axis) +
                " in 0..clamp(…, 0, N)");
  }

  [[noreturn]] void too_many_steps(Id axis, const Definition& d, int64_t steps) const {
    throw Error(p.name + ": axis " + p.arena->name(axis) + " of " + p.tensors[d.target()].name + " takes " + std::to_string(steps) +
                " values" + (sizes.empty() ? "" : " with " + dims_text(sizes)) + "; kernels take up to 2^31-1 steps. make two axes of it");
  }

  Id axis_of(const Replacements& axes, Id axis) const {
    auto it = axes.find(axis);
    if (it == axes.end()) unknown_range(axis);  // of a reduction that could not be lifted
    return it->second;
  }

  // f16 and bf16 are how numbers are stored; kernels compute in f32. What is compared is rounded first, for the other side
  // may have been stored (a maximum, and what it was taken of).
  Id rounded(DType type, Id id) {
    if (!is_narrow(type) || is_rounded(type, arena()[id])) return id;
    return arena().cast(DType::f32, arena().cast(type, id));
  }

  // Widened from the narrow type, and no temporary of this kernel, which is not rounded (uses()).
  bool is_rounded(DType type, const Node& n) {
    if (n.op != Op::cast || arena()[n.arg(0)].type != type) return false;
    const Node& narrow = arena()[n.arg(0)];
    return !is_read(narrow.op) || !is_made_here(spec.tensors[narrow.symbol].original);
  }

  bool is_made_here(TensorId t) const {
    return std::ranges::any_of(k.members, [&](const Member& m) { return p.forward.definitions[m.definition].target() == t; });
  }

  // What a batch size decides as a number and not as an index (mean's divisor) is an input of the kernel: the code need not
  // know it.
  Id size_value(Id expression) {
    Id constant = simplify(arena(), expression);
    const Node n = arena()[constant];
    if (n.op != Op::constant) return expression;
    auto [it, fresh] = size_values.emplace(constant, static_cast<uint32_t>(spec.tensors.size()));
    if (fresh) {
      SpecTensor s;
      s.original = kInternal;
      s.type = n.type;
      s.value = n.value;
      spec.tensors.push_back(s);
    }
    return arena().read(it->second, n.type, {});
  }

  // A loop over nothing has no code: a result without elements is no member, and a reduction over nothing is a number. Halide gives each
  // loop at least one step when it works out what is needed where, and simplifies all that comes after it by what it then finds.
  bool over_nothing(const std::vector<Id>& axes) const {
    return std::ranges::any_of(axes, [&](Id x) { return spec.axes.at(x).extent <= 0; });
  }

  // A kernel reads in all branches of its conditions, at indices that it clamps, and a tensor without elements has no place to clamp them to.
  bool has_nothing(TensorId t) const {
    return std::ranges::any_of(shape_of(p, t, sizes), [](int64_t extent) { return extent <= 0; });
  }

  // What a read of it gives: what `else` says, or anything where no value of it is used.
  Id value_of_nothing(const Node& read, Id otherwise) {
    if (read.op == Op::read_or) return is_narrow(read.type) ? arena().cast(read.type, otherwise) : otherwise;
    if (read.type == DType::boolean) return arena().boolean(false);
    return is_float(read.type) ? arena().constant(is_narrow(read.type) ? DType::f32 : read.type, 0) : arena().integer(0, read.type);
  }

  // Copies an expression of the program, filling in sizes and renaming axes.
  Id copy(Id root, const Replacements& axes) {
    const Arena& from = *p.arena;
    std::unordered_map<Id, Id> done;
    std::unordered_map<Id, bool> of_sizes;  // expressions of sizes and numbers alone; true: of a batch's
    auto handed_on = [&](Id x) {
      auto it = of_sizes.find(x);
      return it != of_sizes.end() && it->second && is_float(from[x].type) ? size_value(done.at(x)) : done.at(x);
    };
    std::vector<Id> args;
    for (Id id : reachable(from, root)) {
      const Node& n = from[id];
      bool sizes_alone = n.op != Op::axis && !is_read(n.op) && !is_reduction(n.op) && n.op != Op::random, batch = batch_dims.contains(id);
      for (Id x : n.args()) {
        auto it = of_sizes.find(x);
        sizes_alone = sizes_alone && it != of_sizes.end();
        batch |= sizes_alone && it->second;
      }
      if (sizes_alone) of_sizes[id] = batch;
      args.clear();
      for (Id x : n.args()) args.push_back(sizes_alone ? done.at(x) : handed_on(x));
      Id made = kNone;
      if (n.op == Op::constant && is_narrow(n.type))
        made = arena().constant(DType::f32, round_to(n.type, n.value));
      else if (n.op == Op::constant)
        made = is_float(n.type) ? arena().constant(n.type, n.value) : arena().integer(n.integer, n.type);
      else if (n.op == Op::axis)
        made = axis_of(axes, id);
      else if (n.op == Op::dim)
        made = open_dims.contains(id) ? arena().dim(from.name(id)) : arena().integer(sizes.at(from.name(id)));
      else if (is_read(n.op) && has_nothing(n.symbol))
        made = value_of_nothing(n, args.empty() ? kNone : args.back());
      else if (n.op == Op::read)
        made = arena().read(tensor(n.symbol), n.type, args);
      else if (n.op == Op::read_or)
        made = arena().read_or(tensor(n.symbol), n.type, std::span(args).first(args.size() - 1),
                               is_narrow(n.type) ? arena().cast(n.type, args.back()) : args.back());
      else if (n.op == Op::select)
        made = arena().select(args[0], args[1], args[2]);
      else if (n.op == Op::cast)
        made = arena().cast(n.type, args[0]);
      else if (is_reduction(n.op))
        unknown_range(n.arg(2));
      else {
        if (is_comparison(n.op) || n.op == Op::stop_gradient)
          for (size_t i = 0; i < args.size(); ++i) args[i] = rounded(from[n.arg(i)].type, args[i]);
        made = arena().apply(n.op, args);
      }
      if (is_narrow(n.type) && arena()[made].type == n.type) made = arena().cast(DType::f32, made);
      done[id] = made;
    }
    // Sizes are numbers now.
    return simplify(arena(), handed_on(root));
  }

  Id body(const Node& root, const Replacements& axes) {
    Id made = copy(reduce_body(root), axes);
    bool picks = root.op == Op::max || root.op == Op::min || root.op == Op::argmax || root.op == Op::argmin;
    return picks ? rounded((*p.arena)[reduce_body(root)].type, made) : made;
  }

  // What a reduction over nothing gives.
  Id of_nothing(Op reduction, DType type) {
    if (is_float(type)) return arena().constant(is_narrow(type) ? DType::f32 : type, identity_of(reduction));
    const int64_t number = identity_of(reduction, type);
    return type == DType::boolean ? arena().boolean(number != 0) : arena().integer(number, type);
  }

  // Both ends of the range move with other axes: walked from one of its beginnings, as far as it can reach.
  struct Window {
    Id first = kNone;
    int64_t width = 0;
    std::vector<Id> guards(Arena& a, Id value, Id begin, Id end) const {
      std::vector<Id> all;
      for (Id x : operands_of(a, begin, Op::maximum))
        if (x != first) all.push_back(a.binary(Op::le, x, value));
      for (Id x : operands_of(a, end, Op::minimum))
        if (!provably_equal(a, x, a.add(first, a.integer(width)))) all.push_back(a.binary(Op::lt, value, x));
      return all;
    }
  };

  std::optional<Window> window(Id begin, Id end, const SpecMember& s) {
    std::vector<AxisRange> around;
    for (const auto* list : {&s.left, &s.reduced})
      for (Id x : *list) {
        // A window of few elements is one at all sizes, however few a small size leaves of it.
        const SpecAxis& axis = spec.axes.at(x);
        around.push_back({x, arena().integer(0), arena().integer(axis.sized ? std::max(kSomeSize, axis.extent) : axis.extent)});
      }
    std::optional<Window> best;
    for (Id b : operands_of(arena(), begin, Op::maximum))
      for (Id e : operands_of(arena(), end, Op::minimum)) {
        if (arena()[b].axes_count == 0) continue;
        auto width = largest_difference(arena(), e, b, around);
        if (width && *width >= 0 && (!best || *width < best->width)) best = Window{b, *width};
      }
    return best;
  }

  void note_dims(Id axis, const AxisRange& range) {
    bool fixed = (*p.arena)[range.begin].op == Op::constant && (*p.arena)[range.end].op == Op::constant;
    if (!fixed) spec.axes.at(axis).fixed = false;
  }

  // Does it depend on dims that are arguments, or (of this kernel's arena) on axes whose extents do?
  bool is_open(Id root) const {
    return !open_dims.empty() && std::ranges::any_of(reachable(*p.arena, root), [&](Id id) { return open_dims.contains(id); });
  }
  bool is_sized(Id root) {
    return std::ranges::any_of(reachable(arena(), root), [&](Id id) {
      if (arena()[id].op == Op::dim) return true;
      auto axis = spec.axes.find(id);
      return axis != spec.axes.end() && axis->second.sized;
    });
  }

  // What is inside in the range as written need not be where the loop goes on and a guard fails.
  Id read_anywhere(Id root) {
    return rewrite(arena(), root, [&](Id id) {
      const Node n = arena()[id];
      if (n.op != Op::read || n.arg_count == 0) return id;
      const std::vector<Id> indices(n.args().begin(), n.args().end());
      return arena().read_or(n.symbol, n.type, indices, arena().constant(n.type, 0));
    });
  }

  void member(const Member& m) {
    const Definition& d = p.forward.definitions[m.definition];
    const Node& root = (*p.arena)[d.body];
    SpecMember s;
    Replacements axes;
    for (size_t i = 0; i < d.axes.size(); ++i) {
      Id axis = class_axis[static_cast<size_t>(m.left[i])];
      axes[d.axes[i].axis] = axis;
      s.left.push_back(axis);
      note_dims(axis, d.axes[i]);
      if (is_open(d.axes[i].begin) || is_open(d.axes[i].end)) spec.axes.at(axis).sized = true;
    }
    if (over_nothing(s.left)) return;
    s.tensor = tensor(d.target());
    if (!is_reduction(root.op)) {
      s.body = copy(d.body, axes);
      s.condition = arena().boolean(true);
      spec.members.push_back(std::move(s));
      return;
    }
    s.op = root.op;
    std::vector<Id> guards;
    bool windows = false;
    auto reduced = reduce_axes(root);
    for (size_t i = 0; i < reduced.size(); ++i) {
      // Ranges become [0, extent): windows as they are, others shifted by their smallest begin; guarded where they depend on
      // other axes.
      Id axis = class_axis[static_cast<size_t>(m.reduced[i])];
      note_dims(axis, reduced[i]);
      Id begin = copy(reduced[i].begin, axes), end = copy(reduced[i].end, axes);
      int64_t low = spec.interval(begin).first, high = spec.interval(end).second;
      SpecAxis& info = spec.axes.at(axis);
      if (info.shared < 0 && arena()[begin].axes_count > 0 && arena()[end].axes_count > 0)
        if (auto w = window(begin, end, s); w && (w->width < high - low || (!open_dims.empty() && is_sized(arena().sub(end, begin))))) {
          Id value = arena().add(w->first, axis);
          axes[reduced[i].axis] = value;
          for (Id g : w->guards(arena(), value, begin, end)) guards.push_back(g);
          info.extent = info.tile = w->width;
          s.reduced.push_back(axis);
          windows = true;
          continue;
        }
      if (is_sized(begin) || is_sized(end)) info.sized = true;
      if (low == -KernelSpec::kFar || high == KernelSpec::kFar) unknown_range(reduced[i].axis);
      if (high - low > kMaxElements) too_many_steps(reduced[i].axis, d, high - low);
      // By sizes of the call alone: the extent is what lies between, and nothing is left to guard.
      auto by_sizes = [&](Id bound) { return is_sized(bound) && arena()[bound].axes_count == 0; };
      const bool begins_by_size = by_sizes(begin), ends_by_size = by_sizes(end);
      Id value = begins_by_size ? arena().add(axis, begin) : low == 0 ? axis : arena().add(axis, arena().integer(low));
      axes[reduced[i].axis] = value;
      for (Id b : operands_of(arena(), begin, Op::maximum))
        if (!begins_by_size && (arena()[b].op != Op::constant || arena()[b].integer > low))
          guards.push_back(arena().binary(Op::le, b, value));
      for (Id e : operands_of(arena(), end, Op::minimum))
        if (!ends_by_size && (arena()[e].op != Op::constant || arena()[e].integer < high))
          guards.push_back(arena().binary(Op::lt, value, e));
      if (info.shared < 0) info.extent = info.tile = std::max<int64_t>(0, high - low);
      s.reduced.push_back(axis);
    }
    if (over_nothing(s.reduced)) {
      s.reduced.clear();
      s.op = Op::constant;
      s.body = of_nothing(root.op, (*p.arena)[d.body].type);
      s.condition = arena().boolean(true);
      spec.members.push_back(std::move(s));
      return;
    }
    Definition scattered = d;
    bool may_scatter =
        scatters == Scatters::all || (scatters == Scatters::words && root.op == Op::sum && byte_size((*p.arena)[d.body].type) == 4);
    if (auto scatter = may_scatter ? as_scatter(*p.arena, scattered) : std::nullopt) {
      Replacements found;
      for (auto [at, index] : scatter->targets) {
        s.scatter.emplace_back(s.left[at], copy(index, axes));
        found[d.axes[at].axis] = s.scatter.back().second;
      }
      Replacements inside = axes;
      for (auto [axis, index] : found) inside[axis] = arena().to(DType::i64, index);
      s.body = body(root, inside);
      s.condition = copy(scatter->rest, inside);
    } else {
      s.body = body(root, axes);
      s.condition = copy(reduce_condition(root), axes);
    }
    if (!open_dims.empty() && !guards.empty()) {
      s.body = read_anywhere(s.body);
      s.condition = read_anywhere(s.condition);
    }
    for (Id g : guards) s.condition = is_true(arena(), s.condition) ? g : arena().land(s.condition, g);
    if (windows) {
      s.body = simplify(arena(), with_collected_indices(arena(), s.body));
      s.condition = simplify(arena(), with_collected_indices(arena(), s.condition));
    }
    spec.members.push_back(std::move(s));
  }

  void uses() {
    for (SpecTensor& t : spec.tensors) {
      bool made = std::ranges::any_of(spec.members, [&](auto& m) { return &spec.tensors[m.tensor] == &t; });
      bool leaves = t.original != kInternal && std::ranges::find(k.results, t.original) != k.results.end();
      t.use = !made ? SpecTensor::Use::input : leaves ? SpecTensor::Use::result : SpecTensor::Use::temporary;
    }
    for (const SpecMember& m : spec.members)
      if (spec.across_tiles(m)) spec.tensors[m.tensor].use = SpecTensor::Use::partial;
    // Partial results are rounded when they are put together. Every other tensor has its own type wherever it is kept, so that a sum
    // in f16 has the same bits where it is a temporary (infer) and where it is stored (forward).
    for (SpecTensor& t : spec.tensors)
      if (is_narrow(t.type) && t.use == SpecTensor::Use::partial) t.type = DType::f32;
  }
};

// Dims that are the slowest dimension wherever they are one.
inline std::set<Id> batch_dims_of(const Program& p) {
  std::set<Id> first, later;
  for (const Tensor& t : p.tensors)
    for (size_t i = 0; i < t.shape.size(); ++i)
      for (Id id : reachable(*p.arena, t.shape[i]))
        if ((*p.arena)[id].op == Op::dim) (i == 0 ? first : later).insert(id);
  std::erase_if(first, [&](Id id) { return later.contains(id); });
  return first;
}

inline void begin(SpecBuilder& b, bool open_batch = true) {
  const Kernel& k = b.k;
  b.spec.name = k.name;
  if (open_batch) b.batch_dims = batch_dims_of(b.p);
  if (!b.spec.arena) b.spec.arena = std::make_shared<Arena>();
  for (size_t c = 0; c < k.axes.size(); ++c) {
    b.class_axis.push_back(b.arena().axis("a" + std::to_string(c)));
    SpecAxis axis;
    axis.extent = k.axes[c].extent;
    axis.tile = std::max<int64_t>(1, k.axes[c].tile);
    b.spec.axes[b.class_axis.back()] = axis;
  }
  for (size_t i = 0; i < k.shared.size(); ++i) {
    Id axis = b.class_axis[static_cast<size_t>(k.shared[i])];
    b.spec.axes.at(axis).shared = static_cast<int>(i);
    b.spec.axes.at(axis).planned = {i};
    b.spec.axes.at(axis).sequential = i + k.sequential >= k.shared.size();
    b.spec.shared.push_back(axis);
  }
  for (const Member& m : k.members) b.member(m);
}

}  // namespace xhat::runtime

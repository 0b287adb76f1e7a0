#include "ad/check/random_inputs.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <random>
#include <ranges>
#include <unordered_map>

#include "ad/common/differentiation.h"
#include "expr/core/steps.h"

namespace xhat {
namespace {

enum class Draw : uint8_t {
  normal,
  positive,
  between
};  // between: in (0, 1), for log(1 - x), atanh and the like

// The standard library's distributions differ between implementations; these do not.
class Generator {
 public:
  explicit Generator(uint64_t seed) : bits_(seed * 0x9E3779B97F4A7C15u + 1) {}
  double uniform() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }
  double normal() {
    double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  int64_t integer(int64_t begin, int64_t end) {
    return begin + static_cast<int64_t>(bits_() % static_cast<uint64_t>(end - begin));
  }
  double real(Draw how) {
    switch (how) {
      case Draw::normal: return normal();
      case Draw::positive: return std::fabs(normal()) + 0.1;
      case Draw::between: return 0.05 + 0.9 * uniform();
    }
    throw Bug("unreachable draw");
  }

 private:
  std::mt19937_64 bits_;
};

// How large the values of integer tensors may be: below the extent of whatever they index.
class Limits {
 public:
  Limits(const Program& program, const DimValues& dim_values)
      : p(program), a(*program.arena), dims(dim_values) {
    // Backwards, so that what limits a temporary limits what it is made of.
    for (const Definition& d : p.definitions() | std::views::reverse) {
      if (d.is_call())
        call(d);
      else
        definition(d);
    }
    if (p.steps)
      for_each_list(*p.steps, [&](const Steps& list) {
        for (const Step& step : list | std::views::reverse) {
          if (auto* block = std::get_if<Block>(&step.is)) call(*block);
          if (auto* update = std::get_if<Update>(&step.is)) rows(update->base, update->row);
        }
      });
  }
  std::optional<int64_t> of(TensorId t) const {
    auto it = limit.find(t);
    return it == limit.end() ? std::nullopt : std::optional(it->second);
  }

 private:
  const Program& p;
  const Arena& a;
  const DimValues& dims;
  std::unordered_map<TensorId, int64_t> limit;
  std::unordered_map<Id, int64_t> axis_end;

  void lower(TensorId t, int64_t bound) {
    auto [it, fresh] = limit.emplace(t, bound);
    if (!fresh) it->second = std::min(it->second, bound);
  }

  void integers_in(Id root, int64_t bound) {
    for (Id id : reachable(a, root))
      if (is_read(a[id].op) && is_integer(a[id].type)) lower(a[id].symbol, bound);
  }

  void note_axis(const AxisRange& r) {
    for (Id id : reachable(a, r.end))
      if (a[id].op == Op::axis || is_read(a[id].op) || is_reduction(a[id].op)) return;
    axis_end[r.axis] = evaluate_extent(a, r.end, dims);
  }

  void definition(const Definition& d) {
    axis_end.clear();
    for (const AxisRange& r : d.axes) note_axis(r);
    std::vector<Id> nodes = reachable(a, d.body);
    for (Id id : nodes)
      if (is_reduction(a[id].op))
        for (const AxisRange& r : reduce_axes(a[id])) note_axis(r);
    if (auto bound = of(d.target()); bound && is_integer(a[d.body].type)) integers_in(d.body, *bound);
    for (Id id : nodes) {
      const Node& n = a[id];
      if (is_read(n.op)) {
        std::vector<int64_t> shape = shape_of(p, n.symbol, dims);
        for (size_t k = 0; k < shape.size(); ++k) integers_in(n.arg(k), shape[k]);
      }
      if (n.op == Op::eq || n.op == Op::ne)
        for (auto [axis, other] : {std::pair(n.arg(0), n.arg(1)), std::pair(n.arg(1), n.arg(0))})
          if (auto it = axis_end.find(axis); it != axis_end.end()) integers_in(other, it->second);
    }
  }

  void rows(TensorId t, const std::vector<Id>& row) {
    const std::vector<int64_t> shape = shape_of(p, t, dims);
    for (size_t k = 0; k < row.size(); ++k)
      if (row[k] != kNone) integers_in(row[k], shape[k]);
  }

  void call(const Block& b) {
    Shapes shapes;
    for (size_t k = 0; k < b.operands.size(); ++k) {
      const Operand& o = b.operands[k];
      std::vector<int64_t> shape;
      if (o.scalar == kNone) shape = shape_of(p, o.value, dims), rows(o.value, o.row);
      shapes[b.op->tensor(b.op->inputs[k]).name] = of_row(shape, o.row);
    }
    const DimValues inner = dims_of_call(*b.op, shapes, dims);
    Limits limits(*b.op, inner);
    for (size_t k = 0; k < b.operands.size(); ++k)
      if (auto bound = limits.of(b.op->inputs[k]); bound && b.operands[k].scalar == kNone) lower(b.operands[k].value, *bound);
  }

  void call(const Definition& d) {
    const Program& callee = *d.callee;
    Shapes shapes;
    for (size_t k = 0; k < d.arguments.size(); ++k)
      shapes[callee.tensor(callee.inputs[k]).name] = shape_of(p, d.arguments[k], dims);
    DimValues inner = dims_of_call(callee, shapes, dims);
    Limits limits(callee, inner);
    for (size_t k = 0; k < d.arguments.size(); ++k)
      if (auto bound = limits.of(callee.inputs[k])) lower(d.arguments[k], *bound);
  }
};

Array draw(const Program& p, TensorId t, const DimValues& dims, const Limits& limits, Generator& g, Draw how,
           bool small_indices) {
  Array a = zeros(p.tensor(t).type, shape_of(p, t, dims));
  for (double& v : a.reals) v = g.real(how);
  auto limit = limits.of(t);
  int64_t begin = -4, end = 5;
  if (a.type == DType::u8 || a.type == DType::u32) begin = 0, end = 10;
  if (a.type == DType::boolean) begin = 0, end = 2;
  if (limit) begin = 0, end = small_indices ? 1 : std::max<int64_t>(*limit, 1);
  for (int64_t& v : a.integers) v = g.integer(begin, end);
  return rounded(std::move(a));
}

}  // namespace

Arrays random_inputs(const Program& p, const DimValues& dims, uint64_t seed, const RandomOptions& options) {
  constexpr int kTriesPerDraw = 4;
  Limits limits(p, dims);
  Program forward = without_backward(p);  // what the backward does with data is not the data's fault
  std::optional<Error> last;
  bool small_indices = false;
  for (Draw how : {Draw::normal, Draw::positive, Draw::between}) {
    for (int attempt = 0; attempt < kTriesPerDraw; ++attempt) {
      Generator g(seed + 1000003 * static_cast<uint64_t>(attempt));
      Arrays inputs;
      for (TensorId t : p.inputs) inputs[p.tensor(t).name] = draw(p, t, dims, limits, g, how, small_indices);
      if (!options.finite) return inputs;
      try {
        if (all_finite(evaluate(forward, inputs, dims, kExact))) return inputs;
      } catch (const Error& e) {  // an index computed from an index, say
        last = e;
        small_indices = true;
      }
    }
  }
  if (last) throw *last;
  throw Error(
      "op " + p.name +
      ": no random inputs were found for which every output is finite, with normals, positive numbers and "
      "numbers between 0 and 1 tried; give the inputs");
}

Array random_normals(DType type, std::vector<int64_t> shape, uint64_t seed) {
  Generator g(seed);
  Array a = zeros(type, std::move(shape));
  for (double& v : a.reals) v = g.normal();
  return rounded(std::move(a));
}

Arrays random_cotangents(const Program& p, const DimValues& dims, uint64_t seed) {
  Arrays result;
  for (TensorId t : p.cotangents)
    result[p.tensor(t).name] = random_normals(p.tensor(t).type, shape_of(p, t, dims), ++seed + 7919);
  return result;
}

}  // namespace xhat

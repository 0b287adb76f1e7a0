#include "expr/index/dims.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <unordered_map>

#include "expr/core/array.h"
#include "expr/core/scalar.h"
#include "expr/index/affine.h"

namespace xhat {
namespace {

// Sums, differences and products of extents: the result is false if it leaves 64 bits.
bool computed(Op op, int64_t x, int64_t y, int64_t& result) {
  switch (op) {
    case Op::add: return !__builtin_add_overflow(x, y, &result);
    case Op::sub: return !__builtin_sub_overflow(x, y, &result);
    case Op::mul: return !__builtin_mul_overflow(x, y, &result);
    case Op::neg: return !__builtin_sub_overflow(0, x, &result);
    default: throw Bug("an extent is computed by " + std::string(info(op).id));
  }
}

std::optional<LinearExtent> combine(Op op, const LinearExtent& x, const LinearExtent& y) {
  LinearExtent r;
  if (op == Op::mul) {
    if (x.factor != 0 && y.factor != 0) return std::nullopt;
    const LinearExtent& l = x.factor != 0 ? x : y;
    int64_t c = x.factor != 0 ? y.offset : x.offset;
    r.dim = l.dim;
    if (!computed(op, l.factor, c, r.factor) || !computed(op, l.offset, c, r.offset)) return std::nullopt;
    return r;
  }
  if (x.factor != 0 && y.factor != 0 && x.dim != y.dim) return std::nullopt;
  r.dim = x.factor != 0 ? x.dim : y.dim;
  if (!computed(op, x.factor, y.factor, r.factor) || !computed(op, x.offset, y.offset, r.offset)) return std::nullopt;
  return r;
}

}  // namespace

std::optional<LinearExtent> linear_form(const Arena& a, Id extent) {
  std::unordered_map<Id, std::optional<LinearExtent>> form;
  for (Id id : reachable(a, extent)) {
    const Node& n = a[id];
    std::optional<LinearExtent> f;
    if (n.op == Op::constant && n.type != DType::boolean && is_integer(n.type)) f = LinearExtent{kNone, 0, n.integer};
    if (n.op == Op::dim) f = LinearExtent{id, 1, 0};
    if (n.op == Op::cast) f = form[n.arg(0)];
    if (n.op == Op::neg)
      if (auto x = form[n.arg(0)]) f = combine(Op::sub, {}, *x);
    if (n.op == Op::add || n.op == Op::sub || n.op == Op::mul) {
      auto x = form[n.arg(0)], y = form[n.arg(1)];
      if (x && y) f = combine(n.op, *x, *y);
    }
    form[id] = f;
  }
  auto f = form[extent];
  return f && f->factor != 0 ? f : std::nullopt;
}

namespace {

// A plain rendering of an extent for messages; the printer would do it too, but stands to the right of this
// file.
std::string extent_text(const Arena& a, Id extent) {
  auto f = linear_form(a, extent);
  if (!f) return "its extent";
  std::string text = f->factor == 1 ? "" : f->factor == -1 ? "-" : std::to_string(f->factor) + "*";
  text += a.name(f->dim);
  if (f->offset > 0) text += "+" + std::to_string(f->offset);
  if (f->offset < 0) text += std::to_string(f->offset);
  return text;
}

std::string dims_in(const Arena& a, Id expression, const DimValues& dims) {
  DimValues used;
  for (Id id : reachable(a, expression))
    if (a[id].op == Op::dim)
      if (auto it = dims.find(a.name(id)); it != dims.end()) used.insert(*it);
  return dims_text(used);
}

// Throws Error for a name that is no dim of the program, and for a negative size.
void check_dims(const Program& p, const DimValues& given) {
  for (const auto& [name, value] : given) {
    if (!std::ranges::any_of(p.dims, [&](const Dim& d) { return p.arena->name(d.dim) == name; })) {
      std::string known;
      for (const Dim& d : p.dims) known += (known.empty() ? "" : ", ") + p.arena->name(d.dim);
      throw op_error(p, "there is no dim " + name + "; " + (known.empty() ? "it has no dims" : "its dims are " + known));
    }
    if (value < 0) throw op_error(p, "dim " + name + " = " + std::to_string(value) + " is negative; give 0 or more");
  }
}

class DimSolver {
 public:
  DimSolver(const Program& program, const Shapes& input_shapes, const DimValues& given_dims)
      : p(program), a(*program.arena), shapes(input_shapes), given(given_dims) {}

  DimValues solve() {
    check_names();
    solve_from_inputs();
    take_given();
    solve_from_the_known();
    compute_defined();
    check_extents();
    check_conditions();
    return values;
  }

 private:
  const Program& p;
  const Arena& a;
  const Shapes& shapes;
  const DimValues& given;
  DimValues values;
  std::map<std::string, std::string> source;  // of a value, for messages: "y, with shape [5,4],"

  bool is_parameter(TensorId t) const {
    return std::ranges::find(p.inputs, t) != p.inputs.end() || std::ranges::find(p.cotangents, t) != p.cotangents.end();
  }

  void check_names() const {
    for (const auto& [name, shape] : shapes) {
      auto t = p.find(name);
      if (!t || !is_parameter(*t)) throw op_error(p, "there is no parameter " + name);
      size_t rank = p.tensor(*t).shape.size();
      if (shape.size() != rank)
        throw op_error(p, name + " has shape " + shape_text(shape) + ", but is declared with " + std::to_string(rank) +
                              (rank == 1 ? " dimension" : " dimensions") + ", not " + std::to_string(shape.size()));
    }
    check_dims(p, given);
  }

  void solve_from_inputs() {
    for (TensorId t : p.inputs) {
      const Tensor& tensor = p.tensor(t);
      auto it = shapes.find(tensor.name);
      if (it == shapes.end()) continue;
      for (size_t d = 0; d < tensor.shape.size(); ++d) {
        auto f = linear_form(a, tensor.shape[d]);
        if (!f || values.contains(a.name(f->dim)) || is_defined(f->dim)) continue;
        int64_t rest = 0;
        const bool solved = computed(Op::sub, it->second[d], f->offset, rest) && computed(Op::neg, rest, 0, rest) &&
                            computed(Op::neg, rest, 0, rest) && rest % f->factor == 0 && rest / f->factor >= 0;
        if (!solved)
          throw op_error(p,
                         tensor.name + " has shape " + shape_text(it->second) + ", but its dimension " + std::to_string(d) + " is " +
                             extent_text(a, tensor.shape[d]) + ", which is " + std::to_string(it->second[d]) + " for no " + a.name(f->dim) +
                             " >= 0",
                         tensor.pos);
        values[a.name(f->dim)] = rest / f->factor;
        source[a.name(f->dim)] = tensor.name + ", with shape " + shape_text(it->second) + ",";
      }
    }
  }

  // An extent of several dims, as G*C, says the one that nothing else does, where it is affine in it.
  void solve_from_the_known() {
    for (bool more = true; more;) {
      more = false;
      for (TensorId t : p.inputs) {
        auto it = shapes.find(p.tensor(t).name);
        for (size_t d = 0; it != shapes.end() && d < it->second.size(); ++d) more |= solve_for_the_unknown(p.tensor(t), d, it->second);
      }
    }
  }

  bool solve_for_the_unknown(const Tensor& tensor, size_t d, const std::vector<int64_t>& shape) {
    std::vector<Id> unknown;
    for (Id id : reachable(a, tensor.shape[d]))
      if (a[id].op == Op::dim && !values.contains(a.name(id))) unknown.push_back(id);
    if (unknown.size() != 1 || is_defined(unknown[0])) return false;
    auto extent = [&](int64_t value) {
      DimValues tried = values;
      tried[a.name(unknown[0])] = value;
      return evaluate_extent(a, tensor.shape[d], tried);
    };
    int64_t step = 0, rest = 0;
    if (!computed(Op::sub, extent(1), extent(0), step) || step == 0) return false;
    if (!computed(Op::sub, shape[d], extent(0), rest) || rest % step != 0 || rest / step < 0 || extent(rest / step) != shape[d])
      return false;
    values[a.name(unknown[0])] = rest / step;
    source[a.name(unknown[0])] = tensor.name + ", with shape " + shape_text(shape) + ",";
    return true;
  }

  bool is_defined(Id dim) const {
    return std::ranges::any_of(p.dims, [&](const Dim& d) { return d.dim == dim && d.definition != kNone; });
  }

  void take_given() {
    for (const auto& [name, value] : given) {
      auto [it, fresh] = values.emplace(name, value);
      if (!fresh && it->second != value)
        throw op_error(p, name + " = " + std::to_string(value) + " was given, but " + source[name] + " says " + name + " = " +
                              std::to_string(it->second) + "; leave it out, or make them agree");
      if (fresh) source[name] = "the given value";
    }
  }

  void compute_defined() {
    // Definitions may stand in any order: go round until nothing more can be computed.
    for (bool more = true; more;) {
      more = false;
      for (const Dim& d : p.dims) {
        if (d.definition == kNone || computed_.contains(d.dim) || !all_known(d.definition)) continue;
        int64_t value = evaluate_extent(a, d.definition, values);
        const std::string& name = a.name(d.dim);
        if (value < 0)
          throw op_error(p,
                         "dim " + name + " = " + std::to_string(value) + " is negative with " + dims_in(a, d.definition, values) +
                             "; the inputs are too small",
                         d.pos);
        if (auto [it, fresh] = values.emplace(name, value); !fresh && it->second != value)
          throw op_error(p,
                         source[name] + " says " + name + " = " + std::to_string(it->second) + ", but by its definition it is " +
                             std::to_string(value),
                         d.pos);
        source[name] = "its definition";
        computed_[d.dim] = true;
        more = true;
      }
    }
    for (const Dim& d : p.dims)
      if (!values.contains(a.name(d.dim)))
        throw op_error(p,
                       "the value of dim " + a.name(d.dim) + " is not known; no input that was given determines it; give it, as --dims " +
                           a.name(d.dim) + "=VALUE (in Python " + a.name(d.dim) + "=VALUE)",
                       d.pos);
  }

  bool all_known(Id expression) const {
    return std::ranges::all_of(reachable(a, expression), [&](Id id) { return a[id].op != Op::dim || values.contains(a.name(id)); });
  }

  void check_extents() const {
    auto check = [&](TensorId t) {
      const Tensor& tensor = p.tensor(t);
      auto it = shapes.find(tensor.name);
      if (it == shapes.end()) return;
      for (size_t d = 0; d < tensor.shape.size(); ++d) check_extent(tensor, d, it->second);
    };
    for (TensorId t : p.inputs) check(t);
    for (TensorId t : p.cotangents) check(t);
    std::vector<TensorId> seen = p.outputs;  // from outside; what was derived may run over nothing (shape_of)
    for (const auto* list : {&p.inputs, &p.cotangents}) seen.insert(seen.end(), list->begin(), list->end());
    std::ranges::sort(seen);
    for (TensorId t : seen) {
      const Tensor& tensor = p.tensor(t);
      for (size_t d = 0; d < tensor.shape.size(); ++d) {
        int64_t extent = extent_of(tensor, d);
        if (extent < 0)
          throw op_error(p,
                         "dimension " + std::to_string(d) + " of " + tensor.name + " would have " + std::to_string(extent) +
                             " elements with " + dims_in(a, tensor.shape[d], values) + "; extents are 0 or more",
                         tensor.pos);
      }
    }
  }

  int64_t extent_of(const Tensor& tensor, size_t d) const {
    try {
      return evaluate_extent(a, tensor.shape[d], values);
    } catch (const Error& e) {
      throw op_error(p, "dimension " + std::to_string(d) + " of " + tensor.name + ": " + e.message(), tensor.pos);
    }
  }

  void check_extent(const Tensor& tensor, size_t d, const std::vector<int64_t>& shape) const {
    int64_t expected = extent_of(tensor, d);
    if (shape[d] == expected) return;
    std::string has = tensor.name + " has shape " + shape_text(shape);
    auto f = linear_form(a, tensor.shape[d]);
    if (f && f->factor == 1 && f->offset == 0) {
      const std::string& name = a.name(f->dim);
      throw op_error(p,
                     has + ", so " + name + " = " + std::to_string(shape[d]) + " in its dimension " + std::to_string(d) + ", but " +
                         source.at(name) + " says " + name + " = " + std::to_string(expected) + "; make the two agree",
                     tensor.pos);
    }
    std::string known = dims_in(a, tensor.shape[d], values);
    throw op_error(p,
                   has + ", but its dimension " + std::to_string(d) + " must be " + std::to_string(expected) +
                       (known.empty() ? ""
                        : f           ? " (" + extent_text(a, tensor.shape[d]) + " with " + known + ")"
                                      : " (with " + known + ")") +
                       ", not " + std::to_string(shape[d]),
                   tensor.pos);
  }

  void check_conditions() const {
    for (const Precondition& c : p.preconditions) {
      if (is_open_question(a, c.condition)) {
        BoundsAnswer answer = answer_at(a, c.condition, values);
        if (answer.verdict == BoundsAnswer::Verdict::violated)
          throw op_error(p, c.reason + ", and falls outside: " + answer.example, c.pos);
      } else if (!evaluate_extent(a, c.condition, values)) {
        throw op_error(p, c.reason + "; it cannot run with " + dims_in(a, c.condition, values), c.pos);
      }
    }
  }

  std::unordered_map<Id, bool> computed_;
};

}  // namespace

std::string dims_text(const DimValues& dims) {
  std::string text;
  for (const auto& [name, value] : dims) text += (text.empty() ? "" : ", ") + name + " = " + std::to_string(value);
  return text;
}

int64_t evaluate_extent(const Arena& a, Id extent, const DimValues& dims, const AxisValues& axes) {
  if (a[extent].op == Op::constant) return a[extent].integer;
  if (a[extent].op == Op::dim)
    if (auto it = dims.find(a.name(extent)); it != dims.end()) return it->second;
  struct Number {
    int64_t integer = 0;
    double real = 0;
    bool lost = false;  // it, or what it depends on, left 64 bits
  };
  std::unordered_map<Id, Number> value;
  for (Id id : reachable(a, extent)) {
    const Node& n = a[id];
    if (auto it = axes.find(id); it != axes.end()) {
      value[id].integer = it->second;
      continue;
    }
    if (is_read(n.op) || is_reduction(n.op) || n.op == Op::axis) throw Bug("an extent holds a node that is no function of dims");
    int64_t x[3] = {};
    double u[3] = {};
    bool lost = false;
    for (size_t i = 0; i < n.arg_count; ++i) {
      const Number& of = value[n.arg(i)];
      x[i] = of.integer;
      u[i] = of.real;
      lost |= of.lost;
    }
    bool from_real = n.arg_count > 0 && is_float(a[n.arg(0)].type);
    Number& v = value[id];
    if (n.op == Op::constant) {
      if (is_float(n.type))
        v.real = n.value;
      else
        v.integer = n.integer;
    } else if (n.op == Op::dim) {
      auto it = dims.find(a.name(id));
      if (it == dims.end()) throw Error("the value of dim " + a.name(id) + " is not known");
      v.integer = it->second;
    } else if (n.op == Op::select) {
      const bool undecided = value[n.arg(0)].lost;
      v = value[n.arg(x[0] ? 1 : 2)];
      lost = v.lost || undecided;
    } else if (n.op == Op::cast && is_float(n.type)) {
      v.real = from_real ? u[0] : static_cast<double>(x[0]);
    } else if (n.op == Op::cast) {
      v.integer = from_real ? integer_from(n.type, u[0]) : integer_from(n.type, x[0]);
    } else {
      const ScalarOp& op = scalar(n.op);
      if (from_real && is_float(n.type) && op.reals)
        v.real = op.reals.at(u);
      else if (from_real && op.tests)
        v.integer = op.tests.at(u);
      else if (!from_real && is_float(n.type) && op.draws)
        v.real = op.draws.at(x);
      else if (!from_real && op.integers) {
        v.integer = op.integers.at(x);
        const bool can_leave = n.type == DType::i64 && (n.op == Op::add || n.op == Op::sub || n.op == Op::mul || n.op == Op::neg);
        if (int64_t exact = 0; can_leave) lost |= !computed(n.op, x[0], x[1], exact);
        if (n.op == Op::pow) lost |= std::fabs(std::pow(static_cast<double>(x[0]), static_cast<double>(x[1]))) >= 0x1p63;
      } else
        throw Bug("an extent holds " + std::string(info(n.op).id));
    }
    v.lost = lost;
  }
  if (value[extent].lost) throw Error("a size leaves 64 bits with " + dims_in(a, extent, dims) + "; take smaller ones");
  return value[extent].integer;
}

Error op_error(const Program& p, const std::string& message, Pos pos) {
  Error e("op " + p.name + ": " + message, pos);
  return p.text && pos.known() ? e.located(p.file, *p.text) : e;
}

std::vector<int64_t> shape_of(const Program& p, TensorId t, const DimValues& dims) {
  std::vector<int64_t> shape;
  for (Id extent : p.tensor(t).shape) shape.push_back(std::max<int64_t>(0, evaluate_extent(*p.arena, extent, dims)));
  return shape;
}

int64_t bytes_of(const Program& p, TensorId t, const DimValues& dims) {
  auto bytes = static_cast<int64_t>(byte_size(p.tensor(t).type));
  for (int64_t extent : shape_of(p, t, dims)) bytes *= extent;
  return bytes;
}

DimValues solve_dims(const Program& p, const Shapes& input_shapes, const DimValues& given) {
  return DimSolver(p, input_shapes, given).solve();
}

DimValues dims_of_call(const Program& callee, const Shapes& arguments, const DimValues& caller) {
  DimValues given;
  for (const std::string& name : free_dims(callee))
    if (auto it = caller.find(name); it != caller.end()) given.insert(*it);
  return solve_dims(callee, arguments, given);
}

std::vector<std::string> free_dims(const Program& p) {
  std::vector<Id> determined;
  for (TensorId t : p.inputs)
    for (Id extent : p.tensor(t).shape)
      if (auto f = linear_form(*p.arena, extent)) determined.push_back(f->dim);
  std::vector<std::string> names;
  for (const Dim& d : p.dims)
    if (d.definition == kNone && std::ranges::find(determined, d.dim) == determined.end()) names.push_back(p.arena->name(d.dim));
  return names;
}

std::vector<std::string> open_reads(const Program& p) {
  std::vector<std::string> reads;
  for (const Precondition& c : p.preconditions)
    if (is_open_question(*p.arena, c.condition)) reads.push_back(c.reason);
  return reads;
}

DimValues sample_dims(const Program& p, uint64_t seed, const DimValues& given) {
  // Different odd sizes first: they show a mixed-up dimension, a tail, an off-by-one. Then wider and wider
  // ranges, also even numbers, for programs with demands (kernels larger than 3, extents that divide others).
  constexpr int kAttempts = 4000;
  constexpr int kOddAttempts = 1000;
  constexpr int kAttemptsPerSize = 40;
  constexpr size_t kSizes = 3;      // to choose from at least
  constexpr size_t kMoreSizes = 5;  // if there are so many dims
  check_dims(p, given);
  size_t choices = std::clamp(p.dims.size() - std::min(p.dims.size(), given.size()), kSizes, kMoreSizes);
  std::mt19937_64 random(seed);
  std::string last = "no sizes found";
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    DimValues wanted = given;
    size_t width = choices + static_cast<size_t>(attempt % kOddAttempts) / kAttemptsPerSize;
    std::vector<int64_t> sizes;
    for (size_t i = 0; i < width; ++i)
      sizes.push_back(attempt < kOddAttempts ? 2 * static_cast<int64_t>(i) + 3 : static_cast<int64_t>(i) + 1);
    size_t next = sizes.size();
    for (const Dim& d : p.dims) {
      if (d.definition != kNone || wanted.contains(p.arena->name(d.dim))) continue;
      if (next == sizes.size()) {
        for (size_t i = sizes.size(); i > 1; --i) std::swap(sizes[i - 1], sizes[random() % i]);
        next = 0;
      }
      wanted[p.arena->name(d.dim)] = sizes[next++];
    }
    try {
      return solve_dims(p, {}, wanted);
    } catch (const Error& e) {
      last = e.message();
      if (wanted == given) throw;  // nothing to choose
    }
  }
  throw op_error(p, "no small sizes meet all its preconditions; the last try: " + last + "; give some with --dims");
}

}  // namespace xhat

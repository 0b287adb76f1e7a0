// The expression: a scalar at a point. One node struct, a closed enum, hash-consed in an arena.
//
// Equal nodes of one arena have equal ids, and a child's id is always smaller than its parent's, so a walk over an
// expression is a loop over ids and equality is an integer comparison. Constructors never simplify (expr/rules/simplify does).
// Shapes exist only on tensors and axes (expr/core/program.h); a node knows its type and its free axes.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "expr/core/dtype.h"

namespace xhat {

using Id = uint32_t;        // a node of an Arena
using TensorId = uint32_t;  // an index into Program::tensors
constexpr Id kNone = UINT32_MAX;
constexpr TensorId kNoTensor = UINT32_MAX;

enum class Op : uint8_t {
  // Leaves
  constant,  // Node::value (floats) or Node::integer (integers, bool)
  axis,      // an axis by name, i64; its range stands where it is bound (Definition::axes or a reduction)
  dim,       // a named size, i64, >= 0
  // Reads of a tensor. args: one index (i64 or i32) per dimension
  read,
  read_or,  // args: the indices, then the value outside the tensor
  // args: condition, then, else. Only the branch taken is evaluated (a read in the other is not checked).
  select,
  cast,  // args: value
  // Reductions. args: body, condition (constant true if none), then (axis, begin, end) per axis. Axes are i64 and
  // run over [begin, end), which may use outer axes, dims, and earlier axes of the same reduction.
  sum,
  prod,
  max,
  min,
  any,
  all,
  argmax,  // one axis; the first extreme (the first NaN if there is one), i64
  argmin,
// The rows of ops.def
#define XHAT_OP(id, ...) id,
#include "expr/core/ops.def"
};

constexpr int kOpCount = static_cast<int>(Op::argmin) + 1
#define XHAT_OP(id, ...) +1
#include "expr/core/ops.def"
    ;

enum class TypeRule : uint8_t { same_float, same, same_or_bool, whole, compare, logic, classify, any };
enum class Parity : uint8_t { none, odd, even };
enum class Syntax : uint8_t { function, infix, prefix, special };

struct OpInfo {
  std::string_view id;    // the enumerator
  std::string_view text;  // name or sign in the language
  Syntax syntax;
  int arity;  // -1: varies
  TypeRule type;
  Parity parity;                      // of functions
  int cost_ps;                        // per element, see ops.def
  std::vector<const char*> partials;  // per operand
};
const OpInfo& info(Op op);
constexpr bool is_reduction(Op op) { return op >= Op::sum && op <= Op::argmin; }
inline bool is_comparison(Op op) { return op == Op::eq || op == Op::ne || op == Op::lt || op == Op::le; }
constexpr bool is_read(Op op) { return op == Op::read || op == Op::read_or; }
class Arena;
struct Node;
// x^k with a constant whole k, which is computed by products: k. Limit: 64.
std::optional<int> whole_power(const Arena& a, const Node& n);
// x^k with a constant k in quarters, -4 < k < 4 and not whole, which is computed by square roots: 4*k.
std::optional<int> quarter_power(const Arena& a, const Node& n);
// What the node costs per element, its operands not included: by the table, a power by whole numbers or quarters by the products and roots
// that it takes.
int64_t cost_ps(
    const Arena& a, const Node& n, const std::function<int64_t(Op)>& price = [](Op op) { return info(op).cost_ps; });
// The function, operator or reduction of that name in the language ("tanh", "max" as a function, ...), or none.
const Op* function_named(std::string_view name);
const Op* reduction_named(std::string_view name);

struct Node {
  Op op;
  DType type;
  uint32_t symbol = 0;  // axis, dim: Arena::name; read, read_or: TensorId
  uint32_t arg_count = 0;
  const Id* arg_data = nullptr;
  const Id* axes_data = nullptr;  // free axes, ascending ids
  uint32_t axes_count = 0;
  union {
    double value = 0;  // constant of a float type, as written (not rounded to f32)
    int64_t integer;   // constant of an integer type or bool
  };
  std::span<const Id> args() const { return {arg_data, arg_count}; }
  std::span<const Id> free_axes() const { return {axes_data, axes_count}; }
  bool depends_on(Id axis) const { return std::binary_search(axes_data, axes_data + axes_count, axis); }
  Id arg(size_t i) const { return arg_data[i]; }
};

// An axis with its half-open range.
struct AxisRange {
  Id axis;
  Id begin;
  Id end;
  bool operator==(const AxisRange&) const = default;
};

// Owns nodes. References to nodes stay valid while the arena lives. Not thread-safe: one thread builds.
class Arena {
 public:
  Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Id constant(DType type, double value);  // any type; integers take the value truncated
  Id integer(int64_t value, DType type = DType::i64);
  Id boolean(bool value);
  Id axis(std::string_view name);
  Id dim(std::string_view name);
  Id read(TensorId tensor, DType type, std::span<const Id> indices);
  Id read_or(TensorId tensor, DType type, std::span<const Id> indices, Id otherwise);
  Id select(Id condition, Id then, Id otherwise);
  Id cast(DType type, Id value);                                             // makes a node even if the type is the same already; see to()
  Id reduce(Op op, std::span<const AxisRange> axes, Id condition, Id body);  // condition kNone: none
  // An operation of ops.def; operands must have the types its rule wants (Bug otherwise: elaborate checks first).
  Id apply(Op op, std::span<const Id> args);
  Id unary(Op op, Id a) { return apply(op, {{a}}); }
  Id binary(Op op, Id a, Id b) { return apply(op, {{a, b}}); }

  // Shorthands that the passes use often; operands of one type.
  Id add(Id a, Id b) { return binary(Op::add, a, b); }
  Id sub(Id a, Id b) { return binary(Op::sub, a, b); }
  Id mul(Id a, Id b) { return binary(Op::mul, a, b); }
  Id div(Id a, Id b) { return binary(Op::div, a, b); }
  Id eq(Id a, Id b) { return binary(Op::eq, a, b); }
  Id land(Id a, Id b) { return binary(Op::land, a, b); }
  Id to(DType type, Id value) { return (*this)[value].type == type ? value : cast(type, value); }

  // The same node with other operands (rebuilds types and free axes).
  Id with_args(Id node, std::span<const Id> args);

  const Node& operator[](Id id) const { return nodes_[id]; }
  size_t size() const { return nodes_.size(); }
  const std::string& name(Id axis_or_dim) const { return names_[nodes_[axis_or_dim].symbol]; }
  // An axis whose name starts like base's and that is not among avoid: the same question gets the same answer.
  Id fresh_axis(Id base, std::span<const Id> avoid);

 private:
  Id intern(Node node, std::span<const Id> args);
  uint32_t symbol(std::string_view name);
  const Id* store(std::span<const Id> ids);

  std::deque<Node> nodes_;
  std::deque<std::vector<Id>> pool_;
  std::unordered_multimap<uint64_t, Id> index_;
  std::deque<std::string> names_;
  std::map<std::string, uint32_t, std::less<>> symbols_;
};

// Views of a reduction's operands.
inline Id reduce_body(const Node& n) { return n.arg(0); }
inline Id reduce_condition(const Node& n) { return n.arg(1); }
std::vector<AxisRange> reduce_axes(const Node& n);
// The indices of a read, without the value outside.
inline std::span<const Id> read_indices(const Node& n) { return n.args().first(n.arg_count - (n.op == Op::read_or)); }

bool is_constant(const Arena& a, Id id, double value);  // a number constant of any type equal to value
bool is_true(const Arena& a, Id id);
// From 0 to an end that does not depend on other axes.
inline bool range_is_plain(const Arena& a, const AxisRange& r) { return is_constant(a, r.begin, 0) && a[r.end].free_axes().empty(); }

// All nodes below and including the roots, ascending (children before parents).
std::vector<Id> reachable(const Arena& a, std::span<const Id> roots);
inline std::vector<Id> reachable(const Arena& a, Id root) { return reachable(a, std::span<const Id>(&root, 1)); }

// a, b, c of max(a, max(b, c)), for op max; the node itself where it is something else.
std::vector<Id> operands_of(const Arena& a, Id root, Op op);
// Every axis node that occurs, free or bound.
std::vector<Id> all_axes(const Arena& a, std::span<const Id> roots);
// Does the range of a reduction in it depend on the axis? What data decide may not stand for the axis then: no range reads a tensor.
bool bounds_a_range(const Arena& a, Id root, Id axis);

// Replaces nodes (usually axes, dims or reads) by others, everywhere below root. Keys are looked up by the original
// node, so replacements are not rewritten again. Bound axes that are in avoid, or free in a replacement, are renamed,
// so nothing is captured. No key may be an axis that root binds.
using Replacements = std::unordered_map<Id, Id>;
Id substitute(Arena& a, Id root, const Replacements& replace, std::span<const Id> avoid = {});

// Rebuilds root bottom-up: f sees each node with its operands already rebuilt and returns what stands for it.
template <class F>
Id rewrite(Arena& a, Id root, F&& f) {
  std::unordered_map<Id, Id> done;
  std::vector<Id> args;
  for (Id id : reachable(a, root)) {
    args.clear();
    for (Id x : a[id].args()) args.push_back(done.at(x));
    done[id] = f(a.with_args(id, args));
  }
  return done.at(root);
}

// The same expression in another arena. tensors maps read targets; may be empty for "the same".
Id import(Arena& to, const Arena& from, Id root, const std::vector<TensorId>& tensors, std::unordered_map<Id, Id>& memo);

}  // namespace xhat

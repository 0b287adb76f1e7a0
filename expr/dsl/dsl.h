// The language in C++: handles that build the same tree as the text (expr/text/ast.h), which build() elaborates.
//
//   using namespace xhat::dsl;
//   Op op("batch_norm");
//   Dim N("N"), C("C"), H("H"), W("W");
//   Axis n("n"), c("c"), h("h"), w("w");
//   Tensor x = op.input("x", f32, {N, C, H, W});
//   Tensor gamma = op.input("gamma", f32, {C}), beta = op.input("beta", f32, {C});
//   Tensor mean("mean"), var("var"), y("y");
//   mean(c) = sum({n, h, w}, x(n, c, h, w)) / (N * H * W);
//   var(c) = sum({n, h, w}, pow(x(n, c, h, w) - mean(c), 2)) / (N * H * W);
//   y(n, c, h, w) = gamma(c) * (x(n, c, h, w) - mean(c)) / sqrt(var(c) + 1e-5) + beta(c);
//   op.output(y);
//   Program program = op.build();
//
//   text                                 C++
//   y[n, i in 0..N] = x[n]               y(n, in(i, 0, N)) = x(n)
//   loss = …  and reads of it            loss() = …    loss or loss()
//   sum(k, l in 0..k if k <= l: e)       sum({k, in(l, 0, k)}, when(k <= l), e)   braces also around one
//   x[i+r-1 else 0]                      x(i + r - 1).otherwise(0)
//   if c then a else b                   select(c, a, b)
//   a^b   f32(i)   bool(i)               pow(a, b)   f32(i)   boolean(i)
//   dim OH = (H - 3) / 2 + 1             Dim OH("OH", (H - 3) / 2 + 1)
//   ids: i32[B] const                    op.constant("ids", i32, {B})
//   y = softmax(x)                       Tensor y = call(softmax, {x}).result("y")
//   grad f(x, y, dy) -> (dx) { … }       Tensor dy = op.cotangent(y), dx("dx");
//                                        dx(i) = …;  op.gradient(x, dx);
//
// Expr, Tensor, Dim, Axis, Op are handles: copying one shares what it stands for, which lives as long as any
// handle or expression needs it. Expressions never change. A tensor belongs to no op until an output of the
// op needs it; definitions come in the order in which the outputs read them. An expression in a C++ variable
// is written out at each use: what is large and used often is better a tensor of its own. Mind C++: 1/2 is 0
// there, 1.0/2 is not. Errors (xhat::Error) show the definition as text, and name the line of the caller's source where it stands.
#pragma once
#include <concepts>
#include <initializer_list>
#include <memory>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "expr/core/program.h"
#include "expr/text/ast.h"

namespace xhat::dsl {

using xhat::Program;  // so that users open this namespace only: in xhat, Op, Tensor and Dim are the engine's own

namespace detail {
struct Node;
struct DimState;
struct TensorState;
struct CallState;
struct OpState;
using NodePtr = std::shared_ptr<const Node>;
}  // namespace detail

// A scalar at a point.
class Expr {
 public:
  template <std::integral T>
  Expr(T value) : Expr(std::same_as<T, bool> ? of_bool(value != T{0}) : of_integer(std::to_string(+value))) {}
  Expr(double value);
  Expr(float value);
  explicit Expr(detail::NodePtr node) : node_(std::move(node)) {}

  Expr& operator+=(const Expr& other);
  Expr& operator-=(const Expr& other);
  Expr& operator*=(const Expr& other);
  Expr& operator/=(const Expr& other);

  const detail::NodePtr& node() const { return node_; }

 private:
  static Expr of_bool(bool value);
  static Expr of_integer(const std::string& digits);
  detail::NodePtr node_;
};

// Where in the caller's source something is said, for messages: an argument that nobody gives.
using Where = std::source_location;

// What is assigned to a tensor's element, and where.
struct Assigned {
  template <std::convertible_to<Expr> T>
  Assigned(const T& assigned, Where place = Where::current()) : value(static_cast<Expr>(assigned)), where(place) {}
  Expr value;
  Where where;
};

// An element type, and the cast to it: f32(i).
struct Type {
  DType dtype;
  constexpr operator DType() const { return dtype; }
  Expr operator()(const Expr& value) const;
};
inline constexpr Type f64{DType::f64}, f32{DType::f32}, f16{DType::f16}, bf16{DType::bf16}, i64{DType::i64},
    i32{DType::i32}, u32{DType::u32}, u8{DType::u8}, boolean{DType::boolean};

// A named size. Two Dims of one name are the same.
class Dim {
 public:
  explicit Dim(const std::string& name);
  Dim(const std::string& name, const Expr& definition, Where where = Where::current());
  operator Expr() const { return expr_; }

 private:
  Expr expr_;
};

// Two axes of one name are the same.
class Axis {
 public:
  explicit Axis(const std::string& name);
  operator Expr() const { return expr_; }

 private:
  Expr expr_;
};

// An axis, with begin and end where they are written.
class Range {
 public:
  Range(const Axis& axis);
  detail::NodePtr axis, begin, end;
};
Range in(const Axis& axis, const Expr& begin, const Expr& end);

// What stands between the parentheses of a tensor.
class Subscript {
 public:
  Subscript(Range range)
      : axis(std::move(range.axis)), begin(std::move(range.begin)), end(std::move(range.end)) {}
  template <std::convertible_to<Expr> T>
  Subscript(const T& index) : axis(static_cast<Expr>(index).node()) {}
  detail::NodePtr axis, begin, end;  // axis: any index where a tensor is read
};

// tensor(subscripts): an element when read, a definition when assigned to.
class Access {
 public:
  Access(std::shared_ptr<detail::TensorState> tensor, std::vector<Subscript> subscripts);
  Access(const Access&) = default;
  operator Expr() const { return read(nullptr); }
  Expr otherwise(const Expr& outside) const { return read(outside.node()); }
  void operator=(const Assigned& body) const { define(body.value, body.where); }
  // Of one that has a name in C++, which says nothing of its place: that of the tensor's name is taken. (y(i) = x(i) goes the other way.)
  void operator=(const Access& body) & { define(body, Where()); }

 private:
  Expr read(detail::NodePtr outside) const;
  void define(const Expr& body, const Where& where) const;
  std::shared_ptr<detail::TensorState> tensor_;
  std::vector<Subscript> subscripts_;
};

class Tensor {
 public:
  explicit Tensor(const std::string& name, Where where = Where::current());
  explicit Tensor(std::shared_ptr<detail::TensorState> state) : state_(std::move(state)) {}
  template <class... Subscripts>
  Access operator()(const Subscripts&... subscripts) const {
    return Access(state_, {Subscript(subscripts)...});
  }
  operator Expr() const;  // a scalar, or the whole tensor where a call takes it
  const std::shared_ptr<detail::TensorState>& state() const { return state_; }

 private:
  std::shared_ptr<detail::TensorState> state_;
};

class Op {
 public:
  explicit Op(const std::string& name, Where where = Where::current());
  Tensor input(const std::string& name, DType type, const std::vector<Expr>& extents = {});
  Tensor constant(const std::string& name, DType type,
                  const std::vector<Expr>& extents = {});  // not differentiated
  void output(const Tensor& tensor);
  // A gradient of one's own: op.gradient(x, dx) for inputs, from inputs, outputs and their cotangents.
  Tensor cotangent(const Tensor& output, const std::string& name = "");  // default: d<output>
  void gradient(const Tensor& input, const Tensor& gradient);

  const std::string& name() const;
  std::shared_ptr<ast::File> tree() const;  // with the ops it calls, which come first
  Program build() const;

 private:
  std::shared_ptr<detail::OpState> state_;
};

// A call of an op, as it is now. Its results are taken in the order of the op's outputs, all of them.
class Call {
 public:
  explicit Call(std::shared_ptr<detail::CallState> state) : state_(std::move(state)) {}
  Tensor result(const std::string& name);
  operator Expr() const;  // the result of an op that has one, as part of an expression: of programs (expr/dsl/prog.h) only
  const std::shared_ptr<detail::CallState>& state() const { return state_; }

 private:
  std::shared_ptr<detail::CallState> state_;
};
Call call(const Op& op, const std::vector<Expr>& arguments);

// Signs.
Expr unary(const char* sign, const Expr& a);
Expr binary(const char* sign, const Expr& a, const Expr& b);
inline Expr operator-(const Expr& a) { return unary("-", a); }
inline Expr operator!(const Expr& a) { return unary("!", a); }
#define XHAT_DSL_SIGN(sign) \
  inline Expr operator sign(const Expr& a, const Expr& b) { return binary(#sign, a, b); }
XHAT_DSL_SIGN(+)
XHAT_DSL_SIGN(-)
XHAT_DSL_SIGN(*)
XHAT_DSL_SIGN(/)
XHAT_DSL_SIGN(%)
XHAT_DSL_SIGN(==)
XHAT_DSL_SIGN(!=)
XHAT_DSL_SIGN(<)
XHAT_DSL_SIGN(<=)
XHAT_DSL_SIGN(>)
XHAT_DSL_SIGN(>=)
XHAT_DSL_SIGN(&&)
XHAT_DSL_SIGN(||)
#undef XHAT_DSL_SIGN
inline Expr pow(const Expr& a, const Expr& b) { return binary("^", a, b); }
Expr select(const Expr& condition, const Expr& then, const Expr& otherwise);

// Any function of the table (expr/core/ops.def) by name; those below are the same with less to write.
Expr function(const char* name, const std::vector<Expr>& arguments);
#define XHAT_UNARY(name) \
  inline Expr name(const Expr& a) { return function(#name, {a}); }
#define XHAT_BINARY(name) \
  inline Expr name(const Expr& a, const Expr& b) { return function(#name, {a, b}); }
#include "expr/core/functions.def"
inline Expr min(const Expr& a, const Expr& b) { return function("min", {a, b}); }
inline Expr max(const Expr& a, const Expr& b) { return function("max", {a, b}); }
inline Expr clamp(const Expr& x, const Expr& lo, const Expr& hi) { return function("clamp", {x, lo, hi}); }
inline Expr random(const Expr& seed, const Expr& i) { return function("random", {seed, i}); }

// Reductions: sum({k, in(l, 0, 3)}, body), sum({k, l}, when(k <= l), body).
using Ranges = std::initializer_list<Range>;
struct When {
  Expr condition;
};
inline When when(const Expr& condition) { return {condition}; }
Expr reduction(const char* name, Ranges axes, const detail::NodePtr& condition, const Expr& body);
#define XHAT_DSL_REDUCTION(name)                                                                    \
  inline Expr name(Ranges axes, const Expr& body) { return reduction(#name, axes, nullptr, body); } \
  inline Expr name(Ranges axes, const When& w, const Expr& body) {                                  \
    return reduction(#name, axes, w.condition.node(), body);                                        \
  }
XHAT_DSL_REDUCTION(sum)
XHAT_DSL_REDUCTION(prod)
XHAT_DSL_REDUCTION(min)
XHAT_DSL_REDUCTION(max)
XHAT_DSL_REDUCTION(any)
XHAT_DSL_REDUCTION(all)
XHAT_DSL_REDUCTION(argmax)
XHAT_DSL_REDUCTION(argmin)
XHAT_DSL_REDUCTION(mean)
#undef XHAT_DSL_REDUCTION

}  // namespace xhat::dsl

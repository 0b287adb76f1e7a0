// Programs that mutate tensors, in C++: what is done to the handles is noted as statements, which are the text of a `prog`.
//
//   using namespace xhat::dsl;
//   Prog p("lstm");
//   Dim T("T"), B("B"), I("I"), H("H");
//   Axis t("t"), b("b"), i("i"), j("j"), k("k");
//   Var x = p.input("x", f32, {T, B, I}), h0 = p.input("h0", f32, {B, H}), w = p.input("w", f32, {H, I}), u = p.input("u", f32, {H, H});
//   Var h = p.var("h", h0), out = p.var("out", zeros(f32, {T, B, H})), z = p.local("z");
//   p.For(t, 0, T, [&] {
//     z(b, j) = sum({i}, x(t, b, i) * w(j, i)) + sum({k}, h(b, k) * u(j, k));
//     h = tanh(z);
//     out(t) = h;
//   });
//   p.output(out);
//   Program program = p.build();
//
//   text                                   C++
//   var h = h0                             Var h = p.var("h", h0)
//   z[b,j] = …   a name without var        Var z = p.local("z"); z(b, j) = …
//   h = e   out[t] = h   s += e            h = e   out(t) = h   s += e
//   x[:,c]   x[1:-1]   x[a:]   x[::2]      x(slice(), c)   x(slice(1, -1))   x(slice(a))   x(slice({}, {}, 2))
//   y[b, i in 0..4] = …                    y(b, in(i, 0, 4)) = …
//   x.transpose(0,1).reshape[N,-1]         x.transpose(0, 1).reshape({N, -1})   also squeeze unsqueeze expand diagonal
//   (x * 2).transpose(0,1)                 view(x * 2).transpose(0, 1)
//   clone(x) zeros f32[N] full(1) f32[N]   clone(x)   zeros(f32, {N})   full(1, f32, {N})
//   concat(0, a, b) flip(0, a) roll(0,1,a) concat(0, {a, b})   flip(0, a)   roll(0, 1, a)
//   for t in 0..T { … }                    p.For(t, 0, T, [&] { … })
//   while c max 9 { … }                    p.While(c, 9, [&] { … })
//   if c { … } else { … }                  p.If(c, [&] { … }, [&] { … })
//   y = f(x) + 1   (a, b) = g(x)           y = call(f, {x}) + 1   p.assign({a, b}, call(g, {x}))
//   x: inout f32[N]                        p.inout("x", f32, {N})
//
// An expression is text, and means what it means where it is assigned: `Expr e = h * 2; h = h + 1; y = e;` doubles the new h. A Var is a
// name, or a view of one; C++ copies of it are the same name. build() reads the text (Prog::text); errors show the statement in it, and name
// the line of the caller's source where it stands.
#pragma once
#include <functional>
#include <optional>

#include "expr/dsl/dsl.h"

namespace xhat::dsl {

namespace detail {
struct ProgState;
}

// begin:end:step inside of brackets.
Subscript slice(const std::optional<Expr>& begin = {}, const std::optional<Expr>& end = {}, const std::optional<Expr>& step = {});

class Var {
 public:
  Var(detail::NodePtr node, std::shared_ptr<detail::ProgState> program) : node_(std::move(node)), program_(std::move(program)) {}
  Var(const Var&) = default;
  operator Expr() const { return Expr(node_); }

  // x(t): a view or an element, by how many indices there are.
  template <class... Subscripts>
  Var operator()(const Subscripts&... subscripts) const {
    return brackets({Subscript(subscripts)...});
  }
  Expr otherwise(const Expr& outside) const;  // of x(i): where i is outside
  Var transpose(const Expr& i, const Expr& j) const { return method("transpose", {i, j}); }
  Var squeeze(const Expr& i) const { return method("squeeze", {i}); }
  Var unsqueeze(const Expr& i) const { return method("unsqueeze", {i}); }
  Var diagonal() const { return method("diagonal", {}); }
  Var reshape(const std::vector<Expr>& extents) const { return method("reshape", extents); }
  Var expand(const std::vector<Expr>& extents) const { return method("expand", extents); }

  // Statements.
  void operator=(const Assigned& value) const { assign("=", value.value, value.where); }
  // C++ says nothing of the place of x = y; x(i) = y goes the other way.
  void operator=(const Var& value) & { assign("=", value, Where()); }
  void operator+=(const Assigned& value) const { assign("+=", value.value, value.where); }
  void operator-=(const Assigned& value) const { assign("-=", value.value, value.where); }
  void operator*=(const Assigned& value) const { assign("*=", value.value, value.where); }
  void operator/=(const Assigned& value) const { assign("/=", value.value, value.where); }

 private:
  Var brackets(const std::vector<Subscript>& subscripts) const;
  Var method(const char* name, const std::vector<Expr>& arguments) const;
  void assign(const char* sign, const Expr& value, const Where& where) const;
  friend class Prog;

  detail::NodePtr node_;
  std::shared_ptr<detail::ProgState> program_;  // null: of a value, which is no place
};

// A value to take views of.
Var view(const Expr& value);

Expr clone(const Expr& value);
Expr zeros(DType type, const std::vector<Expr>& extents = {});
Expr full(const Expr& value, DType type, const std::vector<Expr>& extents = {});
Expr concat(const Expr& axis, const std::vector<Expr>& parts);
Expr flip(const Expr& axis, const Expr& value);
Expr roll(const Expr& axis, const Expr& by, const Expr& value);

class Prog {
 public:
  using Body = std::function<void()>;

  explicit Prog(const std::string& name, Where where = Where::current());
  Var input(const std::string& name, DType type, const std::vector<Expr>& extents = {});
  Var constant(const std::string& name, DType type, const std::vector<Expr>& extents = {});  // not differentiated
  Var inout(const std::string& name, DType type, const std::vector<Expr>& extents = {});     // written, and an output, too
  void output(const Var& name);

  Var var(const std::string& name, const Expr& value, Where where = Where::current());
  Var local(const std::string& name);  // its first assignment makes it
  void assign(const std::vector<Var>& names, const Call& call, Where where = Where::current());
  void For(const Axis& variable, const Expr& begin, const Expr& end, const Body& body, Where where = Where::current());
  void While(const Expr& condition, const Expr& most, const Body& body, Where where = Where::current());
  void If(const Expr& condition, const Body& then, const Body& otherwise = {}, Where where = Where::current());

  const std::string& name() const;
  std::shared_ptr<ast::File> tree() const;  // with the ops that it calls, which come first
  std::string text() const;
  Program build() const;

 private:
  Var parameter(const std::string& name, DType type, const std::vector<Expr>& extents, bool constant, bool inout);
  void check_own(const Var& name, const Where& where) const;
  std::shared_ptr<detail::ProgState> state_;
};
Call call(const Prog& program, const std::vector<Expr>& arguments);

}  // namespace xhat::dsl

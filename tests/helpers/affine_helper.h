// Index expressions in C++ and their values at a point, for the tests of expr/index/affine.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "expr/index/affine.h"

namespace xhat::testing {

// An i64 or bool expression: operators build nodes of one arena. Integers convert where the other operand is
// an E.
struct E {
  Arena* arena = nullptr;
  Id id = kNone;
};
inline E lift(Arena* a, int64_t v) { return {a, a->integer(v)}; }
inline E make(Op op, E x, E y) { return {x.arena, x.arena->binary(op, x.id, y.id)}; }
#define XHAT_TEST_OPERATOR(sign, op)                                                   \
  inline E operator sign(E x, E y) { return make(Op::op, x, y); }                      \
  inline E operator sign(E x, int64_t y) { return make(Op::op, x, lift(x.arena, y)); } \
  inline E operator sign(int64_t x, E y) { return make(Op::op, lift(y.arena, x), y); }
XHAT_TEST_OPERATOR(+, add)
XHAT_TEST_OPERATOR(-, sub)
XHAT_TEST_OPERATOR(*, mul)
XHAT_TEST_OPERATOR(/, div)
XHAT_TEST_OPERATOR(%, mod)
XHAT_TEST_OPERATOR(<, lt)
XHAT_TEST_OPERATOR(<=, le)
XHAT_TEST_OPERATOR(==, eq)
XHAT_TEST_OPERATOR(!=, ne)
#undef XHAT_TEST_OPERATOR
inline E operator&&(E x, E y) { return make(Op::land, x, y); }
inline E operator||(E x, E y) { return make(Op::lor, x, y); }
inline E operator!(E x) { return {x.arena, x.arena->unary(Op::lnot, x.id)}; }
inline E operator-(E x) { return {x.arena, x.arena->unary(Op::neg, x.id)}; }
inline E min(E x, E y) { return make(Op::minimum, x, y); }
inline E max(E x, E y) { return make(Op::maximum, x, y); }
inline E min(E x, int64_t y) { return min(x, lift(x.arena, y)); }
inline E max(E x, int64_t y) { return max(x, lift(x.arena, y)); }
inline E abs(E x) { return {x.arena, x.arena->unary(Op::abs, x.id)}; }
inline E relu(E x) { return {x.arena, x.arena->unary(Op::relu, x.id)}; }
inline E clamp(E x, E low, E high) { return {x.arena, x.arena->apply(Op::clamp, {{x.id, low.id, high.id}})}; }
inline E select(E c, E x, E y) { return {x.arena, x.arena->select(c.id, x.id, y.id)}; }
inline E cast(DType t, E x) { return {x.arena, x.arena->cast(t, x.id)}; }

// What every axis and dim stands for at one point of one arena. Remembers how expressions are walked.
struct Env : std::map<Id, int64_t> {
  struct Step {
    Id id;
    std::vector<size_t> args;  // places of the operands' values
  };
  std::shared_ptr<std::map<Id, std::vector<Step>>> walks =
      std::make_shared<std::map<Id, std::vector<Step>>>();
};
// Reads of integer tensors give small numbers that depend on the position.
int64_t value_at(const Arena& a, Id e, const Env& env);

// Calls f(env) for every point of the ranges (in order; they may use what env already has).
template <class F>
void for_each_point(const Arena& a, const std::vector<AxisRange>& axes, Env& env, F&& f, size_t from = 0) {
  if (from == axes.size()) return f(env);
  const int64_t begin = value_at(a, axes[from].begin, env), end = value_at(a, axes[from].end, env);
  for (int64_t v = begin; v < end; ++v) {
    env[axes[from].axis] = v;
    for_each_point(a, axes, env, f, from + 1);
  }
  env.erase(axes[from].axis);
}

// For messages: infix, fully parenthesized.
std::string text_of(const Arena& a, Id e);
std::string text_of(const Arena& a, const InvertAnswer& answer);

}  // namespace xhat::testing

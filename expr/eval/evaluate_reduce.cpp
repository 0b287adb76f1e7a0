// Inside the evaluator: reductions. The accumulator is the result's register itself; the innermost loop hands
// over a block of lanes, which either have an accumulator each or all go into one.
#include <algorithm>
#include <cmath>

#include "expr/eval/evaluate_machine.h"

namespace xhat::evaluation {
namespace {

bool wants_index(Op op) { return op == Op::argmax || op == Op::argmin; }

}  // namespace

void Machine::reduce(const Instruction& i, size_t n) {
  const Reduction& r = code_.reductions[i.index];
  if (wants_index(r.op)) {
    Extreme& e = extremes_[i.index];
    e.real.resize(block_);
    e.integer.resize(block_);
    e.seen.assign(block_, 0);
    std::fill_n(integer(i.out), n, 0);
  } else if (is_float(i.type)) {
    std::fill_n(real(i.out), n, identity_of(r.op));
  } else {
    std::fill_n(integer(i.out), n, identity_of(r.op, r.body_type));
  }

  if (r.first)
    enter(r.first, &r);
  else
    accumulate(r);

  if (wants_index(r.op)) {
    for (size_t k = 0; k < n; ++k)
      if (!extremes_[i.index].seen[k] && !poison_at(i.out, k)) mark(i.out, k, failed(i, 0, k));
    return;
  }
  if (r.op == Op::sum || r.op == Op::prod) {
    if (is_float(i.type)) settle(accumulator_of(i.type), i.out, n);
    settle(i.type, i.out, n);
  }
}

bool Machine::masked(const Reduction& r) const {
  if (r.first)
    for (uint32_t loop = r.first; loop != kNone; loop = code_.loops[loop].inner)
      if (code_.loops[loop].masked) return true;
  return false;
}

// Does this lane take part, by the ranges and the condition?
bool Machine::active(const Reduction& r, size_t lane) {
  if (r.first)
    for (uint32_t id = r.first; id != kNone; id = code_.loops[id].inner) {
      const Loop& loop = code_.loops[id];
      if (!loop.masked) continue;
      int64_t v = integers_of(loop.axis)[lane];
      if (v < integers_of(loop.begin)[lane] || v >= integers_of(loop.end)[lane]) return false;
    }
  if (r.condition == kNone) return true;
  if (poisoned_)
    if (uint32_t failure = poison_at(r.condition, lane)) {
      mark(r.out, lane * stride(r.out), failure);
      return false;
    }
  return integers_of(r.condition)[lane] != 0;
}

void Machine::accumulate(const Reduction& r) {
  bool own_lanes = r.first && code_.loops[r.last].lanes;
  size_t count = stride(r.out) || own_lanes ? lanes_ : 1;
  if (is_float(r.body_type))
    fold(r, count, wants_index(r.op) ? nullptr : real(r.out), reals_of(r.body));
  else
    fold(r, count, integer(r.out), integers_of(r.body));
  if (poisoned_ && poison_[r.body].any)
    for (size_t k = 0; k < count; ++k)
      if (uint32_t failure = poison_at(r.body, k); failure && active(r, k))
        mark(r.out, k * stride(r.out), failure);
}

template <class T, class F>
void Machine::fold_with(const Reduction& r, size_t count, T* into, Lanes<T> body, F f) {
  size_t step = stride(r.out);
  if (r.condition != kNone && !poisoned_ && !masked(r)) {
    const Lanes<int64_t> holds = integers_of(r.condition);
    for (size_t k = 0; k < count; ++k)
      if (holds[k]) into[k * step] = f(into[k * step], body[k]);
  } else if (r.condition != kNone || masked(r)) {
    for (size_t k = 0; k < count; ++k)
      if (active(r, k)) into[k * step] = f(into[k * step], body[k]);
  } else if (step && body.stride) {
    for (size_t k = 0; k < count; ++k) into[k] = f(into[k], body.data[k]);
  } else if (step) {
    for (size_t k = 0; k < count; ++k) into[k] = f(into[k], *body.data);
  } else {
    T one = *into;
    for (size_t k = 0; k < count; ++k) one = f(one, body[k]);
    *into = one;
  }
}

template <class T>
void Machine::fold(const Reduction& r, size_t count, T* into, Lanes<T> body) {
  constexpr bool floats = std::is_same_v<T, double>;
  // NaN wins: once there, no comparison removes it.
  auto nan = [](T v) { return floats && std::isnan(static_cast<double>(v)); };
  switch (r.op) {
    case Op::sum:
      if constexpr (floats) {
        if (noise_ == 0) return fold_with(r, count, into, body, [](T x, T y) { return x + y; });
        return fold_with(r, count, into, body, [&](T x, T y) { return (x + y) * (1 + (x == 0 ? 0 : noise_ * chance_of(r.op, x, y))); });
      } else
        return fold_with(r, count, into, body, [](T x, T y) {
          return static_cast<T>(static_cast<uint64_t>(x) + static_cast<uint64_t>(y));
        });
    case Op::prod:
      if constexpr (floats) {
        DType type = declared_ ? accumulator_of(r.body_type) : DType::f64;
        return fold_with(r, count, into, body, [type](T x, T y) { return round_to(type, x * y); });
      } else {
        return fold_with(r, count, into, body, [](T x, T y) {
          return static_cast<T>(static_cast<uint64_t>(x) * static_cast<uint64_t>(y));
        });
      }
    case Op::max: return fold_with(r, count, into, body, [&](T x, T y) { return y > x || nan(y) ? y : x; });
    case Op::min: return fold_with(r, count, into, body, [&](T x, T y) { return y < x || nan(y) ? y : x; });
    case Op::any:
      return fold_with(r, count, into, body, [](T x, T y) { return static_cast<T>(x != 0 || y != 0); });
    case Op::all:
      return fold_with(r, count, into, body, [](T x, T y) { return static_cast<T>(x != 0 && y != 0); });
    default: break;
  }
  Extreme& e = extremes_[static_cast<size_t>(&r - code_.reductions.data())];
  if constexpr (floats)
    fold_extreme(r, count, e.real, body);
  else
    fold_extreme(r, count, e.integer, body);
}

template <class T>
void Machine::fold_extreme(const Reduction& r, size_t count, std::vector<T>& best, Lanes<T> body) {
  Extreme& e = extremes_[static_cast<size_t>(&r - code_.reductions.data())];
  Lanes<int64_t> axis = integers_of(code_.loops[r.last].axis);
  auto nan = [](T v) { return std::is_same_v<T, double> && std::isnan(static_cast<double>(v)); };
  for (size_t k = 0; k < count; ++k) {
    if (!active(r, k)) continue;
    size_t at = k * stride(r.out);
    T v = body[k];
    if (e.seen[at]) {
      bool better = r.op == Op::argmax ? v > best[at] : v < best[at];
      if (nan(best[at]) || !(better || nan(v))) continue;
    }
    e.seen[at] = 1;
    best[at] = v;
    integer(r.out)[at] = axis[k];
  }
}

}  // namespace xhat::evaluation

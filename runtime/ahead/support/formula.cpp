#include <algorithm>

#include "runtime/ahead/support/table.h"

namespace xhat::runtime {

int64_t evaluate(const Formula& f, const std::vector<int64_t>& dims) {
  std::vector<int64_t> values;
  for (const FormulaNode& n : f) {
    auto x = [&](size_t i) { return values[static_cast<size_t>(n.args[i])]; };
    auto wrapped = [](uint64_t v) { return static_cast<int64_t>(v); };
    auto u = [&](size_t i) { return static_cast<uint64_t>(x(i)); };
    auto divided = [&](int64_t a, int64_t b) { return b == 0 ? 0 : a / b - (a % b != 0 && (a % b < 0) != (b < 0)); };
    int64_t v = 0;
    switch (n.op) {
      case Op::constant: v = n.number; break;
      case Op::dim: v = dims[static_cast<size_t>(n.number)]; break;
      case Op::cast: v = x(0); break;
      case Op::neg: v = wrapped(0 - u(0)); break;
      case Op::add: v = wrapped(u(0) + u(1)); break;
      case Op::sub: v = wrapped(u(0) - u(1)); break;
      case Op::mul: v = wrapped(u(0) * u(1)); break;
      case Op::div: v = divided(x(0), x(1)); break;
      case Op::mod: v = x(1) == 0 ? 0 : x(0) - x(1) * divided(x(0), x(1)); break;
      case Op::abs: v = std::abs(x(0)); break;
      case Op::minimum: v = std::min(x(0), x(1)); break;
      case Op::maximum: v = std::max(x(0), x(1)); break;
      case Op::clamp: v = std::min(std::max(x(0), x(1)), x(2)); break;
      case Op::select: v = x(0) ? x(1) : x(2); break;
      case Op::eq: v = x(0) == x(1); break;
      case Op::ne: v = x(0) != x(1); break;
      case Op::lt: v = x(0) < x(1); break;
      case Op::le: v = x(0) <= x(1); break;
      case Op::land: v = x(0) && x(1); break;
      case Op::lor: v = x(0) || x(1); break;
      case Op::lnot: v = !x(0); break;
      default: throw Bug("a size is computed by an operation that sizes do not have");
    }
    values.push_back(v);
  }
  return values.back();
}

}  // namespace xhat::runtime

#include "tests/affine_helper.h"

#include "expr/error.h"
#include "expr/scalar.h"

namespace xhat::testing {

int64_t value_at(const Arena& a, Id e, const Env& env) {
  std::map<Id, int64_t> values;
  for (Id id : reachable(a, e)) {
    const Node& n = a[id];
    std::vector<int64_t> x;
    for (Id arg : n.args()) x.push_back(values.at(arg));
    switch (n.op) {
      case Op::constant: values[id] = n.integer; break;
      case Op::axis: case Op::dim: values[id] = env.at(id); break;
      case Op::select: values[id] = x[0] ? x[1] : x[2]; break;
      case Op::cast: values[id] = integer_from(n.type, x[0]); break;
      case Op::read: {
        int64_t v = n.symbol;
        for (int64_t i : x) v = v * 7 + i * i + 3 * i;
        values[id] = v % 5;
        break;
      }
      default: {
        const auto form = scalar(n.op).integers;
        if (!form) throw Bug("the test's evaluator has no " + std::string(info(n.op).text));
        values[id] = form.at(x.data());
      }
    }
  }
  return values.at(e);
}

std::string text_of(const Arena& a, Id e) {
  std::map<Id, std::string> texts;
  for (Id id : reachable(a, e)) {
    const Node& n = a[id];
    std::string& t = texts[id];
    if (n.op == Op::constant) {
      t = std::to_string(n.integer);
    } else if (n.op == Op::axis || n.op == Op::dim) {
      t = a.name(id);
    } else if (info(n.op).syntax == Syntax::infix) {
      t = "(" + texts[n.arg(0)] + " " + std::string(info(n.op).text) + " " + texts[n.arg(1)] + ")";
    } else {
      t = std::string(info(n.op).text) + "(";
      for (size_t i = 0; i < n.arg_count; ++i) t += (i ? ", " : "") + texts[n.arg(i)];
      t += ")";
    }
  }
  return texts.at(e);
}

std::string text_of(const Arena& a, const InvertAnswer& answer) {
  std::string t;
  for (const AxisRange& r : answer.remaining)
    t += a.name(r.axis) + " in " + text_of(a, r.begin) + ".." + text_of(a, r.end) + "; ";
  for (const auto& [x, e] : answer.solved) t += a.name(x) + " = " + text_of(a, e) + "; ";
  return t + (answer.guard == kNone ? "no guard" : "if " + text_of(a, answer.guard));
}

}  // namespace xhat::testing

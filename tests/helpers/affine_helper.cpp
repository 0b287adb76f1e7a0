#include "tests/helpers/affine_helper.h"

#include "expr/core/error.h"
#include "expr/core/scalar.h"

namespace xhat::testing {

namespace {

const std::vector<Env::Step>& walk_of(const Arena& a, Id e, const Env& env) {
  auto [it, fresh] = env.walks->try_emplace(e);
  if (!fresh) return it->second;
  std::map<Id, size_t> places;
  for (Id id : reachable(a, e)) {
    Env::Step step{id, {}};
    for (Id x : a[id].args()) step.args.push_back(places.at(x));
    places[id] = it->second.size();
    it->second.push_back(std::move(step));
  }
  return it->second;
}

}  // namespace

int64_t value_at(const Arena& a, Id e, const Env& env) {
  std::vector<int64_t> values, x;
  for (const Env::Step& step : walk_of(a, e, env)) {
    const Node& n = a[step.id];
    x.clear();
    for (size_t at : step.args) x.push_back(values[at]);
    switch (n.op) {
      case Op::constant: values.push_back(n.integer); break;
      case Op::axis:
      case Op::dim: values.push_back(env.at(step.id)); break;
      case Op::select: values.push_back(x[0] ? x[1] : x[2]); break;
      case Op::cast: values.push_back(integer_from(n.type, x[0])); break;
      case Op::read: {
        int64_t v = n.symbol;
        for (int64_t i : x) v = v * 7 + i * i + 3 * i;
        values.push_back(v % 5);
        break;
      }
      default: {
        const auto form = scalar(n.op).integers;
        if (!form) throw Bug("the test's evaluator has no " + std::string(info(n.op).text));
        values.push_back(form.at(x.data()));
      }
    }
  }
  return values.back();
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

// Text is built from the outside in. A scope holds the axes in reach; a budget of leaves bounds the size. Where an index is not an
// axis of the dimension's own extent, the read mostly gets an `else` or a condition around it, and is sometimes left bare.
#include "tests/helpers/composed_program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>
#include <vector>

#include "expr/core/program.h"

namespace xhat::testing {
namespace {

constexpr int kMaxTries = 60;  // a program in four is refused

struct ComposedTensor {
  std::string name, type;
  std::vector<std::string> shape;  // extents as text
};

struct ComposedAxis {
  std::string name, extent;  // in 0..extent, or in a part of it
};
using Scope = std::vector<ComposedAxis>;

class Composer {
 public:
  explicit Composer(uint64_t seed) : random_(seed) {}

  std::string run() {
    const char* types[] = {"f64", "f64", "f32", "f32", "f32", "f16", "bf16"};
    type_ = types[pick(7)];
    const char* dims[] = {"N", "M", "K"};
    for (int k = 0; k <= pick(3); ++k) extents_.push_back(dims[k]);
    std::string parameters = inputs(), statements, helper = chance(1, 6) ? helper_op() : "";
    std::vector<std::string> outputs;
    for (int k = 0, last = pick(3); k <= last; ++k) {
      std::string name = fmt::format("t{}", k);
      std::string statement = !helper.empty() && chance(1, 2) ? call(name) : definition(name);
      // What nothing reads is an output, so that nothing is written in vain.
      if (k > 0 && chance(3, 4) && statement.find(fmt::format("t{}[", k - 1)) != std::string::npos) outputs.pop_back();
      statements += statement;
      outputs.push_back(name);
    }
    if (chance(1, 8)) {
      statements += fmt::format("  whole[i in 0..{0}] = {1}\n", extent(), integer({{"i", "9"}}, 2));
      outputs.push_back("whole");
    }
    if (chance(1, 8)) {
      std::string e = extent();
      statements += fmt::format("  truth[i in 0..{0}] = {1}\n", e, condition({{"i", e}}, 2));
      outputs.push_back("truth");
    }
    return fmt::format("{}op f({}) -> ({}) {{\n{}}}\n", helper, parameters, fmt::join(outputs, ", "), statements);
  }

 private:
  // --- choices --------------------------------------------------------------------------------------------------

  int pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool chance(int n, int of) { return pick(of) < n; }
  template <class T>
  const T& one(const std::vector<T>& list) {
    return list[static_cast<size_t>(pick(static_cast<int>(list.size())))];
  }
  std::string form(std::initializer_list<const char*> forms) { return *(forms.begin() + pick(static_cast<int>(forms.size()))); }
  std::string extent() { return one(extents_); }
  std::string fresh(const char* prefix) { return fmt::format("{}{}", prefix, next_++); }
  template <class... T>
  std::string fill(std::initializer_list<const char*> forms, const T&... parts) {
    return fmt::format(fmt::runtime(form(forms)), parts...);
  }

  // --- tensors --------------------------------------------------------------------------------------------------

  std::string parameter(const ComposedTensor& t) {
    return t.shape.empty() ? fmt::format("{}: {}", t.name, t.type) : fmt::format("{}: {}[{}]", t.name, t.type, fmt::join(t.shape, ","));
  }

  std::string inputs() {
    std::vector<std::string> parameters;
    ComposedTensor first{"x", type_, extents_};
    if (chance(1, 3)) std::ranges::reverse(first.shape);
    if (first.shape.size() == 1 && chance(1, 3)) first.shape.push_back(first.shape[0]);
    floats_.push_back(first);
    for (int k = pick(3); k > 0; --k) {
      ComposedTensor t{fresh("v"), chance(1, 8) ? form({"f64", "f32", "f16", "bf16"}) : type_, {}};
      for (int r = pick(4); r > 0; --r) t.shape.push_back(chance(1, 5) ? fill({"3", "4", "2*{}", "{}+1", "2*{}+1"}, extent()) : extent());
      floats_.push_back(t);
    }
    for (const ComposedTensor& t : floats_) parameters.push_back(parameter(t) + (t.name != "x" && chance(1, 10) ? " const" : ""));
    for (int k = pick(3); k > 0; --k) {
      ComposedTensor t{fresh("n"), form({"i32", "i64", "u32", "u8"}), {extent()}};
      if (chance(1, 3)) t.shape.push_back(extent());
      integers_.push_back(t);
      parameters.push_back(parameter(t));
    }
    if (chance(1, 3)) {
      bools_.push_back({"b", "bool", {extent()}});
      parameters.push_back(parameter(bools_[0]));
    }
    return fmt::format("{}", fmt::join(parameters, ", "));
  }

  std::string helper_op() {
    std::string body = form({"tanh(a[p]) * s", "sum(q in 0..p+1: a[q]) * s", "a[p] - max(q: a[q]) + s", "a[P-1-p] * s",
                             "if a[p] > s then a[p] else s * a[p]", "a[p] / (1 + sum(q: a[q]^2)) - s"});
    const char* left = body.find("P-1-p") != std::string::npos || body.find("0..p") != std::string::npos ? "p in 0..P" : "p";
    return fmt::format("op helper(a: {0}[P], s: {0}) -> (c) {{ c[{1}] = {2} }}\n", type_, left, body);
  }

  std::string call(const std::string& name) {
    for (const ComposedTensor& t : floats_)
      if (t.shape.size() == 1 && t.type == type_) {
        ComposedTensor made{name, type_, t.shape};
        std::string argument = fill({"{}", "2 * {}", "sin({})"}, t.name);
        floats_.push_back(made);
        return fmt::format("  {} = helper({}, {})\n", name, argument, form({"0.5", "-1", "2"}));
      }
    return definition(name);
  }

  std::string definition(const std::string& name) {
    ComposedTensor t{name, type_, {}};
    Scope scope;
    std::vector<std::string> left;
    for (int r = chance(1, 8) ? 0 : 1 + pick(3); r > 0; --r) {
      std::string e = extent();
      if (chance(1, 3)) e = fill({"3", "5", "{}-1", "{}+1", "2*{}", "{}/2+1"}, e);
      ComposedAxis axis{fresh("i"), e};
      left.push_back(fmt::format("{} in 0..{}", axis.name, e));
      t.shape.push_back(e);
      scope.push_back(axis);
    }
    if (chance(1, 10) && extents_.size() > 1) return flattened(name);
    int budget = 2 + pick(8);
    std::string body = real(scope, budget);
    floats_.push_back(t);
    return fmt::format("  {}{} = {}\n", name, left.empty() ? "" : fmt::format("[{}]", fmt::join(left, ", ")), body);
  }

  // Two axes as one.
  std::string flattened(const std::string& name) {
    std::string a = extents_[0], b = extents_[1], p = fresh("p");
    Scope scope{{fmt::format("{}/{}", p, b), a}, {fmt::format("{}%{}", p, b), b}};
    int budget = 2 + pick(3);
    std::string body = real(scope, budget);
    floats_.push_back({name, type_, {fmt::format("{}*{}", a, b)}});
    return fmt::format("  {}[{} in 0..{}*{}] = {}\n", name, p, a, b, body);
  }

  // --- reads ----------------------------------------------------------------------------------------------------

  // An axis of that extent, if there is one.
  std::string fitting(const Scope& scope, const std::string& extent) {
    Scope fit;
    std::ranges::copy_if(scope, std::back_inserter(fit), [&](const ComposedAxis& a) { return a.extent == extent; });
    return fit.empty() ? "" : one(fit).name;
  }

  std::string index(const Scope& scope, const std::string& e, bool& sure) {
    std::string own = fitting(scope, e);
    if (!own.empty() && chance(2, 3)) return own;
    if (!own.empty() && chance(1, 3))
      return fill({"{1}-1-{0}", "{0}/2", "max({0}-1,0)", "min({0}+1,{1}-1)", "clamp({0}-2,0,{1}-1)", "({0}+1)%{1}",
                   "if {0} > 0 then {0}-1 else {1}-1"},
                  own, e);
    if (!integers_.empty() && chance(1, 4)) {
      const ComposedTensor& t = one(integers_);
      bool inside = true;
      std::string n = fmt::format("{}[{}]", t.name, indices(scope, t.shape, inside));
      if (inside) return chance(1, 3) ? fmt::format("{}%{}", n, e) : n;
    }
    sure = false;
    if (scope.empty()) return form({"0", "1", "2"});
    const std::string &a = one(scope).name, &b = one(scope).name;
    if (a == b || chance(1, 2))
      return fill({"{0}", "{0}+1", "{0}-1", "2*{0}", "2*{0}+1", "2*{0}-1", "2-{0}", "{0}/2", "{0}%2", "{1}-{0}"}, a, e);
    return fill({"{0}+{1}", "{0}+{1}-1", "2*{0}+{1}-1", "{0}-{1}", "{0}+2*{1}", "({0}+{1})/2"}, a, b);
  }

  std::string indices(const Scope& scope, const std::vector<std::string>& shape, bool& sure) {
    std::vector<std::string> parts;
    for (const std::string& e : shape) parts.push_back(index(scope, e, sure));
    return fmt::format("{}", fmt::join(parts, ","));
  }

  std::string read(const Scope& scope, const ComposedTensor& t) {
    if (t.shape.empty()) return t.name;
    bool sure = true;
    std::string at = indices(scope, t.shape, sure);
    if (sure || chance(1, 20)) return fmt::format("{}[{}]", t.name, at);
    return fmt::format("{}[{} else {}]", t.name, at, form({"0", "0", "1", "-0.5", "0.25"}));
  }

  std::string leaf(const Scope& scope) {
    if (chance(1, 12)) return form({"0.5", "2", "1", "1e-3", "3/4", "-1"});
    if (!scope.empty() && chance(1, 12)) return fmt::format("{}({})", type_, one(scope).name);
    if (!integers_.empty() && chance(1, 14)) return fmt::format("{}({})", type_, integer(scope, 1));
    return read(scope, one(floats_));
  }

  // --- floats ---------------------------------------------------------------------------------------------------

  // Divides what is left of the budget.
  std::string part(const Scope& scope, int budget) { return real(scope, budget / 2); }

  std::string real(const Scope& scope, int budget) {
    if (budget <= 1) return leaf(scope);
    switch (pick(16)) {
      case 0:
      case 1: return fill({"({} + {})", "({} - {})", "{} * {}", "{} * {}"}, part(scope, budget), part(scope, budget + 1));
      case 2: return guarded_binary(scope, budget);
      case 3:
      case 4: return unary(real(scope, budget - 1));
      case 5: return fmt::format("(if {} then {} else {})", condition(scope, 1), part(scope, budget), part(scope, budget));
      case 6:
      case 7: return window(scope, budget);
      case 8:
      case 9: return ranged(scope, budget);
      case 10: return contraction(scope);
      case 11: return extreme(scope, budget);
      case 12: return norm(scope);
      case 13: {
        std::string v = fresh("h");
        return fmt::format("(let {0} = {1} in {2})", v, real(scope, budget - 1),
                           fill({"{0}*{0} + {0}", "{0} * sin({0})", "(if {0} > 0.1 then {0} else {0} / 4)"}, v));
      }
      case 14: return part_of_data(scope, budget);
      default: return other(scope, budget);
    }
  }

  std::string unary(const std::string& e) {
    return fill({"tanh({})", "sigmoid({})", "sin({})", "exp(-abs({}))", "relu({})", "abs({})", "softplus({})", "log1p({0}^2)",
                 "sqrt(0.5 + abs({}))", "rsqrt(1 + {0}^2)", "erf({})", "expm1(tanh({}))", "-{}", "(1/3*{})", "round({})",
                 "clamp({}, -0.6, 0.9)", "log(1.5 + abs({}))", "atan({})", "sinc({})", "cosh(tanh({}))", "asinh({})", "erfc({})", "i0e({})",
                 "lgamma(1.5 + abs({}))", "exp2(tanh({}))"},
                e);
  }

  std::string guarded_binary(const Scope& scope, int budget) {
    return fill({"{} / (1.5 + cos({}))", "max({}, {})", "min({}, {})", "({})^2 * {}", "(1.2 + sin({0}))^cos({1})", "{} % (1.5 + abs({}))",
                 "hypot({}, 1 + abs({}))", "logaddexp({}, {})", "atan2({}, 1.5 + abs({}))",
                 "(if {0} > 0.2 then {1} / {0} else {1})"},
                part(scope, budget), part(scope, budget));
  }

  std::string reduction_kind() { return form({"sum", "sum", "sum", "max", "min", "mean", "prod"}); }
  // A prod's factors near 1; an extreme and a mean over what may be nothing behind a guard.
  std::string reduce(const std::string& kind, const std::string& axes, const std::string& body, bool maybe_nothing) {
    if (kind == "prod") return fmt::format("prod({}: 1 + 0.5 * sin({}))", axes, body);
    std::string all = fmt::format("{}({}: {})", kind, axes, body);
    if (kind == "sum" || !maybe_nothing) return all;
    std::string v = fresh("g");
    return fmt::format("(let {0} = {1} in if isfinite({0}) then {0} else 0)", v, all);
  }

  // x[2*i+r-1 else 0] under a reduction over r.
  std::string window(const Scope& scope, int budget) {
    const ComposedTensor& t = one(floats_);
    if (t.shape.empty() || scope.empty()) return contraction(scope);
    ComposedAxis r{fresh("r"), form({"2", "3", "3", "5"})};
    Scope inner = scope;
    inner.push_back(r);
    std::vector<std::string> at;
    const size_t shifted = static_cast<size_t>(pick(static_cast<int>(t.shape.size())));
    bool sure = false;
    for (size_t k = 0; k < t.shape.size(); ++k) {
      std::string own = fitting(scope, t.shape[k]);
      if (own.empty()) own = one(scope).name;
      at.push_back(k == shifted ? fill({"{0}+{1}-1", "{0}+{1}", "{0}-{1}", "2*{0}+{1}-1", "{0}+2*{1}-2", "{2}-1-{0}+{1}", "({0}+{1})/2",
                                        "{0}-2*{1}+1"},
                                       own, r.name, t.shape[k])
                                : index(inner, t.shape[k], sure));
    }
    std::string body = fmt::format("{}[{} else {}]", t.name, fmt::join(at, ","), form({"0", "0", "0.5", "1"}));
    if (chance(1, 2)) body += " * " + part(inner, budget);
    std::string axes = fmt::format("{} in 0..{}", r.name, r.extent);
    bool nothing = chance(1, 5);
    if (nothing) axes += " if " + condition(inner, 1);
    return reduce(reduction_kind(), axes, body, nothing);
  }

  // Over ranges that depend on axes.
  std::string ranged(const Scope& scope, int budget) {
    std::vector<std::string> axes;
    Scope inner = scope;
    bool nothing = false;
    for (int k = chance(1, 4) ? 2 : 1; k > 0; --k) {
      ComposedAxis axis{fresh("r"), extent()};
      std::string range = fmt::format("0..{}", axis.extent);
      if (!scope.empty() && chance(1, 2)) {
        const ComposedAxis& a = one(scope);
        axis.extent = a.extent;
        nothing = true;
        range = fill({"0..{0}+1", "{0}..{1}", "0..{0}", "max({0}-1,0)..min({0}+2,{1})", "{0}/2..{0}+1", "{0}+1..{1}"}, a.name, a.extent);
      }
      axes.push_back(fmt::format("{} in {}", axis.name, range));
      inner.push_back(axis);
    }
    std::string all = fmt::format("{}", fmt::join(axes, ", "));
    if (chance(1, 4)) {
      all += " if " + condition(inner, 1);
      nothing = true;
    }
    return reduce(reduction_kind(), all, real(inner, budget - 1), nothing || chance(9, 10));
  }

  std::string contraction(const Scope& scope) {
    ComposedAxis k{fresh("k"), extent()};
    Scope inner = scope;
    inner.push_back(k);
    return fmt::format("sum({} in 0..{}: {} * {})", k.name, k.extent, read(inner, one(floats_)), read(inner, one(floats_)));
  }

  // A maximum or minimum over shifted and gathered values, some of them equal.
  std::string extreme(const Scope& scope, int budget) {
    ComposedAxis k{fresh("k"), chance(1, 3) ? "3" : extent()};
    Scope inner = scope;
    inner.push_back(k);
    std::string body = fill({"{}", "{} - {}", "{} * {}", "relu({})", "max({}, {})"}, read(inner, one(floats_)), part(inner, budget));
    return reduce(form({"max", "min"}), fmt::format("{} in 0..{}", k.name, k.extent), body, true);
  }

  // Softmax, norms, centered values of a tensor's row.
  std::string norm(const Scope& scope) {
    const ComposedTensor& t = one(floats_);
    if (t.shape.empty()) return leaf(scope);
    ComposedAxis k{fresh("k"), t.shape.back()};
    Scope rows = scope;
    std::erase_if(rows, [&](const ComposedAxis& a) { return a.extent == k.extent && chance(1, 2); });
    bool sure = true;
    std::string outer = indices(rows, {t.shape.begin(), t.shape.end() - 1}, sure), own = fitting(scope, k.extent);
    if (own.empty() || !sure) return leaf(scope);
    auto at = [&](const std::string& last) { return fmt::format("{}[{}{}{}]", t.name, outer, outer.empty() ? "" : ",", last); };
    return fill(
        {"exp({0} - max({1}: {2})) / sum({1}: exp({2} - max({1}_2 in 0..{3}: {4})))",
         "({0} - mean({1}: {2})) * rsqrt(mean({1}: {2}^2) + 0.1)", "{0} / (0.1 + sum({1}: abs({2})))", "log(sum({1}: exp({2}))) - {0}"},
        at(own), fmt::format("{} in 0..{}", k.name, k.extent), at(k.name), k.extent, at(k.name + "_2"));
  }

  // What depends on integers and bools of the data.
  std::string part_of_data(const Scope& scope, int budget) {
    if (!integers_.empty() && chance(1, 2)) {
      const ComposedTensor& t = one(integers_);
      ComposedAxis k{fresh("k"), t.shape[0]};
      Scope inner = scope;
      inner.push_back(k);
      bool sure = true;
      std::vector<std::string> rest(t.shape.begin() + 1, t.shape.end());
      std::string at = rest.empty() ? k.name : k.name + "," + indices(scope, rest, sure);
      if (sure) {
        std::string key = scope.empty() ? "1" : one(scope).name;
        return fmt::format("sum({} in 0..{} if {}[{}] {} {}: {})", k.name, k.extent, t.name, at, form({"==", "==", "<", ">=", "!="}), key,
                           part(inner, budget));
      }
    }
    std::string value = part(scope, budget), limit = form({"0", "0.3", "-0.5"});
    return fmt::format("(if {} {} {} then {} else {})", read(scope, floats_[0]), form({"<", ">", "<=", ">="}), limit, value, leaf(scope));
  }

  std::string other(const Scope& scope, int budget) {
    switch (pick(5)) {
      case 0: return fmt::format("stop_gradient({}) * {}", leaf(scope), part(scope, budget));
      case 1: return fmt::format("{}(random({}, {}))", type_, 1 + pick(9), integer(scope, 1));
      case 2: return fill({"f32({})", "f64({})", "{0}"}, part(scope, budget));
      case 3: {  // the place of a maximum
        const ComposedTensor& t = floats_[0];
        if (t.shape.size() != 1) return leaf(scope);
        std::string k = fresh("k");
        return fmt::format("{0}[clamp(argmax({1} in 0..{2}+1: {0}[{1} else -9]), 0, {2}-1) else 0]", t.name, k, t.shape[0]);
      }
      default: return fmt::format("(if {} then {} else {})", condition(scope, 2), leaf(scope), part(scope, budget));
    }
  }

  // --- integers and conditions ----------------------------------------------------------------------------------

  std::string integer(const Scope& scope, int depth) {
    if (depth <= 0) {
      if (!integers_.empty() && chance(1, 2)) {
        const ComposedTensor& t = one(integers_);
        bool sure = true;
        std::string at = indices(scope, t.shape, sure);
        return fmt::format("i64({}[{}{}])", t.name, at, sure ? "" : " else 1");
      }
      return scope.empty() ? form({"i64(2)", "i64(-1)"}) : one(scope).name;
    }
    std::string a = integer(scope, depth - 1), b = integer(scope, depth - 1);
    return fill({"({} + {})", "({} - {})", "({} * {})", "({} / 2 - {})", "({0} % 3)", "min({}, {})", "abs({0} - 1)",
                 "(if {0} < {1} then {1} else {0})", "({0} % ({1} * {1} + 1))", "sign({0})"},
                a, b);
  }

  std::string condition(const Scope& scope, int depth) {
    switch (pick(depth > 0 ? 8 : 4)) {
      case 0:
      case 1: return fmt::format("{} {} {}", integer(scope, depth - 1), form({"<", "<=", ">", "==", "!="}), integer(scope, depth - 1));
      case 2: return fmt::format("{} {} {}", read(scope, floats_[0]), form({"<", ">"}), form({"0", "0.4", "-0.3"}));
      case 3:
        if (bools_.empty()) return fmt::format("{} % 2 == 0", integer(scope, depth - 1));
        if (std::string at = fitting(scope, bools_[0].shape[0]); !at.empty()) return fmt::format("b[{}]", at);
        return fmt::format("{} > 0", integer(scope, depth));
      case 4: return fmt::format("({}) && ({})", condition(scope, depth - 1), condition(scope, depth - 1));
      case 5: return fmt::format("({}) || ({})", condition(scope, depth - 1), condition(scope, depth - 1));
      case 6: return fmt::format("!({})", condition(scope, depth - 1));
      default: {
        ComposedAxis k{fresh("k"), extent()};
        Scope inner = scope;
        inner.push_back(k);
        return fmt::format("{}({} in 0..{}: {})", form({"any", "all"}), k.name, k.extent, condition(inner, depth - 1));
      }
    }
  }

  std::mt19937_64 random_;
  std::string type_;
  std::vector<std::string> extents_;
  std::vector<ComposedTensor> floats_, integers_, bools_;
  int next_ = 0;
};

}  // namespace

ComposedProgram composed_program(uint64_t seed) {
  std::string last;
  for (int k = 0; k < kMaxTries; ++k) {
    std::string text = Composer(seed * 0xD1342543DE82EF95u + static_cast<uint64_t>(k) * 0x9E3779B97F4A7C15u + 29).run();
    try {
      parse_op(text);
      return {text, k};
    } catch (const Error& e) {
      last = text + e.what();
    }
  }
  throw Bug("no program of seed " + std::to_string(seed) + " is accepted; the last one:\n" + last);
}

}  // namespace xhat::testing

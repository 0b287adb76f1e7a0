// Text is built from the outside in. A scope knows its axes and their extents; a read looks, per dimension of its tensor,
// for an index that is provably inside: an axis of that extent, its flip, half of it, a clamp, an index tensor, or
// something affine with `else`. Domains are made safe where they must be: log(1.5 + abs(e)), e / (2 + sin(f)).
#include "tests/helpers/random_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <vector>

namespace xhat::testing {
namespace {

struct RandomTensor {
  std::string name;
  std::vector<std::string> shape;  // extents as text
};

struct RandomAxis {
  std::string name, extent;
};

class Generator {
 public:
  Generator(uint64_t seed, const RandomProgramOptions& options) : random_(seed * 0x9E3779B97F4A7C15u + 17), options_(options) {}

  std::string run() {
    type_ = chance(4) ? "f32" : "f64";
    bool symbolic = chance(1, 2);
    int count = 1 + pick(3);
    const char* names[] = {"N", "M", "K"};
    const char* sizes[] = {"3", "1", "5", "2", "4"};
    for (int k = 0; k < count; ++k) extents_.push_back(symbolic ? names[k] : sizes[pick(5)]);
    std::string parameters = inputs();
    bool helper = chance(1, 6);
    std::string statements;
    int definitions = 1 + pick(options_.definitions);
    std::vector<std::string> outputs;
    for (int k = 0; k < definitions; ++k) {
      std::string name = fmt::format("t{}", k);
      if (helper && chance(1, 3) && call(name, statements)) {
        outputs.push_back(name);
        continue;
      }
      statements += definition(name, k);
      if (k + 1 == definitions || chance(1, 4)) outputs.push_back(name);
    }
    if (chance(1, 5)) {
      statements += fmt::format("  int_out[i in 0..{}] = {}\n", extents_[0], integer({{"i", extents_[0]}}, 2));
      outputs.push_back("int_out");
    }
    if (chance(1, 6)) {
      statements += fmt::format("  bool_out[i in 0..{}] = {}\n", extents_[0], condition({{"i", extents_[0]}}, 2));
      outputs.push_back("bool_out");
    }
    std::string text;
    if (helper) text = fmt::format("op helper(a: {0}[P], b: {0}) -> (c) {{ c[p] = {1} }}\n", type_, helper_body());
    return text + fmt::format("op f({}) -> ({}) {{\n{}}}\n", parameters, fmt::join(outputs, ", "), statements);
  }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool chance(int of) { return pick(of) != 0; }  // all but one in `of`
  bool chance(int n, int of) { return pick(of) < n; }
  const std::string& extent() { return extents_[static_cast<size_t>(pick(static_cast<int>(extents_.size())))]; }
  std::string fresh() { return fmt::format("k{}", next_axis_++); }
  static bool is_number(const std::string& text) { return text[0] >= '0' && text[0] <= '9'; }

  std::string inputs() {
    std::vector<std::string> parameters;
    int count = 1 + pick(3);
    for (int k = 0; k < count; ++k) {
      RandomTensor t{fmt::format("x{}", k), {}};
      int rank = k == 0 ? 1 + pick(2) : pick(4);
      for (int r = 0; r < rank; ++r) t.shape.push_back(extent());
      // A dim must be found in a parameter's extent.
      if (k == 0)
        for (const std::string& e : extents_)
          if (std::find(t.shape.begin(), t.shape.end(), e) == t.shape.end()) t.shape.push_back(e);
      parameters.push_back(parameter(t, type_) + (k > 0 && chance(1, 8) ? " const" : ""));
      floats_.push_back(t);
    }
    if (chance(1, 2)) {
      RandomTensor t{"ids", {extent()}};
      parameters.push_back(parameter(t, chance(1, 2) ? "i32" : "i64"));
      id_extent_ = extent();
      ids_ = t;
    }
    if (chance(1, 2)) {
      RandomTensor t{"n0", {extent()}};
      int_type_ = chance(1, 3) ? "i64" : "i32";
      parameters.push_back(parameter(t, int_type_));
      integers_.push_back(t);
    }
    if (chance(1, 3)) {
      RandomTensor t{"flag", {extent()}};
      parameters.push_back(parameter(t, "bool"));
      flags_.push_back(t);
    }
    return fmt::format("{}", fmt::join(parameters, ", "));
  }

  static std::string parameter(const RandomTensor& t, const std::string& type) {
    if (t.shape.empty()) return t.name + ": " + type;
    return fmt::format("{}: {}[{}]", t.name, type, fmt::join(t.shape, ","));
  }

  std::string definition(const std::string& name, int number) {
    RandomTensor t{name, {}};
    std::vector<RandomAxis> axes;
    int rank = pick(4) == 0 ? 0 : 1 + pick(2);
    std::vector<std::string> left;
    for (int r = 0; r < rank; ++r) {
      RandomAxis axis{fmt::format("{}{}", "ijl"[r], number), extent()};
      t.shape.push_back(axis.extent);
      axes.push_back(axis);
      left.push_back(fmt::format("{} in 0..{}", axis.name, axis.extent));
    }
    std::string body = real(axes, options_.depth);
    std::string indices = rank ? fmt::format("[{}]", fmt::join(left, ", ")) : "";
    floats_.push_back(t);
    return fmt::format("  {}{} = {}\n", name, indices, body);
  }

  bool call(const std::string& name, std::string& statements) {
    const RandomTensor* vector = nullptr;
    const RandomTensor* scalar = nullptr;
    for (const RandomTensor& t : floats_) {
      if (t.shape.size() == 1) vector = &t;
      if (t.shape.empty()) scalar = &t;
    }
    if (!vector || !scalar) return false;
    statements += fmt::format("  {} = helper({}, {})\n", name, vector->name, scalar->name);
    RandomTensor made{name, vector->shape};
    floats_.push_back(made);
    return true;
  }
  std::string helper_body() {
    const char* bodies[] = {"a[p] * b", "tanh(a[p] + b)", "sum(q: a[q] * b) - a[p]", "if a[p] > b then a[p] else b * a[p]"};
    return bodies[pick(4)];
  }

  // --- floats -------------------------------------------------------------------------------------------------

  std::string real(const std::vector<RandomAxis>& scope, int depth) {
    if (depth == 0) return leaf(scope);
    if (options_.shielded && chance(1, 4)) return shielded(scope, depth);
    switch (pick(13)) {
      case 0:
      case 1: return leaf(scope);
      case 2: return fmt::format("({} + {})", real(scope, depth - 1), real(scope, depth - 1));
      case 3: return fmt::format("({} - {})", real(scope, depth - 1), real(scope, depth - 1));
      case 4: return fmt::format("({} * {})", real(scope, depth - 1), real(scope, depth - 1));
      case 5: return binary(scope, depth);
      case 6:
      case 7: return unary(real(scope, depth - 1));
      case 8:
        return fmt::format("(if {} then {} else {})", condition(scope, depth - 1), real(scope, depth - 1),
                           real(scope, depth - 1));
      case 9:
      case 10:
      case 11: return reduction(scope, depth);
      default: return other(scope, depth);
    }
  }

  std::string binary(const std::vector<RandomAxis>& scope, int depth) {
    std::string a = real(scope, depth - 1), b = real(scope, depth - 1);
    switch (pick(11)) {
      case 0: return fmt::format("{} / (2 + sin({}))", a, b);
      case 7: return fmt::format("hypot(0.5 + abs({}), {})", a, b);
      case 8: return fmt::format("atan2({}, 1.5 + abs({}))", a, b);
      case 9: return fmt::format("logaddexp({}, {})", a, b);
      case 10: return fmt::format("copysign({}, {})", a, b);
      case 1: return fmt::format("min({}, {})", a, b);
      case 2: return fmt::format("max({}, {})", a, b);
      case 3: return fmt::format("pow(1.5 + sin({}), cos({}))", a, b);
      case 4: return fmt::format("({})^{}", a, chance(1, 2) ? "2" : "3");
      case 5: return fmt::format("clamp({}, -0.75, {})", a, chance(1, 2) ? "1.25" : "1 + abs(" + b + ")");
      default: return fmt::format("({} % {})", a, chance(1, 2) ? "1.75" : "(2.5 + sin(" + b + "))");
    }
  }

  std::string unary(const std::string& e) {
    const char* forms[] = {"tanh({})",        "sigmoid({})",     "sin({})",       "cos({})",       "erf({})",
                           "abs({})",         "relu({})",        "softplus({})",  "exp(sin({}))",  "log(1.5 + abs({}))",
                           "log1p(abs({}))",  "expm1(cos({}))",  "sqrt(1 + abs({}))", "rsqrt(0.5 + abs({}))",
                           "tan(sin({}))",    "floor({})",       "ceil({})",      "round({})",     "sign({})",
                           "atan({})",         "asinh({})",       "sinh(sin({}))", "cosh(sin({}))", "cbrt(1.5 + abs({}))", "exp2(sin({}))",
                           "log2(1.5 + abs({}))", "erfc({})",    "sinc({})",      "i0e({})",       "lgamma(1.5 + abs({}))", "erfinv(0.9*sin({}))",
                           "acos(0.9*sin({}))", "trunc({})",     "i1e({})",       "digamma(1.5 + abs({}))",
                           "(-{})",           "({} * 0.5)",      "(1 / (1 + exp(-{})))", "(1/2*{})", "f64({})"};
    int which = pick(40);
    if (which == 39 && type_ != "f64") which = 0;
    return fmt::format(fmt::runtime(forms[which]), e);
  }

  std::string other(const std::vector<RandomAxis>& scope, int depth) {
    switch (pick(5)) {
      case 0: return fmt::format("(let v{0} = {1} in v{0} * v{0} + v{0})", next_let_++, real(scope, depth - 1));
      case 1: return fmt::format("{}({})", type_, integer(scope, depth - 1));
      case 2: return fmt::format("(if {} then 1.5 else {})", condition(scope, depth - 1), real(scope, depth - 1));
      case 3:
        if (!options_.differentiable) return fmt::format("stop_gradient({})", real(scope, depth - 1));
        return guarded(scope);
      default: return type_ == "f32" ? fmt::format("random(7, {})", integer(scope, 1)) : guarded(scope);
    }
  }

  // A read that only its condition keeps inside.
  std::string guarded(const std::vector<RandomAxis>& scope) {
    for (const RandomAxis& axis : scope)
      for (const RandomTensor& t : floats_)
        if (t.shape.size() == 1 && t.shape[0] == axis.extent)
          return chance(1, 2) ? fmt::format("(if {0} > 0 then {1}[{0}-1] else 0.25)", axis.name, t.name)
                              : fmt::format("(if {0} + 1 < {2} then {1}[{0}+1] else {1}[{0}])", axis.name, t.name, axis.extent);
    return leaf(scope);
  }

  // What conditions around it must keep from being computed elsewhere: reads with reductions around them, functions that are
  // no number there, extremes over nothing.
  std::string shielded(const std::vector<RandomAxis>& scope, int depth) {
    RandomAxis k{fresh(), extent()};
    std::vector<RandomAxis> inner = scope;
    inner.push_back(k);
    auto sum = [&](const std::string& body) { return fmt::format("sum({} in 0..{}: {})", k.name, k.extent, body); };
    if (scope.empty() || chance(1, 3)) {
      const char* forms[] = {"sqrt({})", "rsqrt({})", "log({})", "1 / {}", "{}^1.5"};
      std::string v = fmt::format("v{}", next_let_++);
      std::string body = fmt::format(fmt::runtime(forms[pick(5)]), v);
      if (chance(2, 3)) body = sum(fmt::format("{} * {}", real(inner, 0), body));
      return fmt::format("(let {0} = {1} in if {0} > 0.1 then {2} else {3})", v, real(scope, depth - 1), body,
                         real(scope, depth - 1));
    }
    const RandomAxis& a = scope[static_cast<size_t>(pick(static_cast<int>(scope.size())))];
    RandomAxis below{fresh(), a.extent};  // in 0..a
    std::vector<RandomAxis> triangle = scope;
    triangle.push_back(below);
    std::string before = previous(inner, a);
    if (chance(1, 2)) before += " * " + real(inner, 0);
    std::string value = sum(before), otherwise = real(scope, depth - 1);
    const char* functions[] = {"sin({})", "{}^2", "exp(-{}^2)", "{}", "tanh({})"};
    std::string function = fmt::format(fmt::runtime(functions[pick(5)]), value);
    switch (pick(4)) {
      case 0: return fmt::format("sum({} in 0..{}: {} * {})", below.name, a.name, real(triangle, 0), function);
      case 1:
        return fmt::format("(if {} > 0 then sum({} in 0..{}: {} * max({} in 0..{}: {})) else {})", a.name, k.name, k.extent,
                           real(inner, 0), below.name, a.name, real(triangle, 0), otherwise);
      case 2: return fmt::format("(if {} > 0 && ({}) then {} else {})", a.name, condition(scope, depth - 1), function, otherwise);
      default: return fmt::format("(if {} > 0 then if {} > 0.2 then {} else 0.1 else {})", a.name, value, function, otherwise);
    }
  }

  // A tensor's element at the place before the axis's: inside where the axis is not 0.
  std::string previous(const std::vector<RandomAxis>& scope, const RandomAxis& a) {
    for (size_t k = 0; k < floats_.size(); ++k) {
      const RandomTensor& t = floats_[(k + static_cast<size_t>(next_axis_)) % floats_.size()];
      auto at = std::find(t.shape.begin(), t.shape.end(), a.extent);
      if (at == t.shape.end()) continue;
      std::vector<std::string> indices;
      bool outside = false;
      for (auto e = t.shape.begin(); e != t.shape.end(); ++e)
        indices.push_back(e == at ? a.name + "-1" : index(scope, *e, outside));
      return fmt::format("{}[{}{}]", t.name, fmt::join(indices, ","), outside ? " else 0.5" : "");
    }
    return leaf(scope);
  }

  std::string leaf(const std::vector<RandomAxis>& scope) {
    int which = pick(10);
    if (which == 0) {
      const char* literals[] = {"0.5", "2", "1e-3", "0", "1", "3/4"};
      return literals[pick(6)];
    }
    if (which == 1 && !scope.empty())
      return fmt::format("{}({})", type_, scope[static_cast<size_t>(pick(static_cast<int>(scope.size())))].name);
    return read(scope, floats_[static_cast<size_t>(pick(static_cast<int>(floats_.size())))]);
  }

  std::string read(const std::vector<RandomAxis>& scope, const RandomTensor& t) {
    if (t.shape.empty()) return t.name;
    std::vector<std::string> indices;
    bool outside = false;
    for (const std::string& e : t.shape) indices.push_back(index(scope, e, outside));
    std::string otherwise = outside ? (chance(1, 2) ? " else 0" : " else -0.5") : "";
    return fmt::format("{}[{}{}]", t.name, fmt::join(indices, ","), otherwise);
  }

  // An index for a dimension of this extent; outside: it may be outside, so the read needs an else.
  std::string index(const std::vector<RandomAxis>& scope, const std::string& e, bool& outside) {
    std::vector<RandomAxis> fitting;
    for (const RandomAxis& a : scope)
      if (a.extent == e) fitting.push_back(a);
    if (fitting.empty() || chance(1, 8)) {
      outside = true;
      if (scope.empty()) return chance(1, 2) ? "0" : "1";
      const std::string& a = scope[static_cast<size_t>(pick(static_cast<int>(scope.size())))].name;
      const char* forms[] = {"{}", "{}+1", "2*{}-1", "2-{}", "{}/2", "{}%2", "abs({}-1)", "{}-1"};
      return fmt::format(fmt::runtime(forms[pick(8)]), a);
    }
    const std::string& a = fitting[static_cast<size_t>(pick(static_cast<int>(fitting.size())))].name;
    if (ids_.name == "ids" && e == id_extent_ && chance(1, 4))
      for (const RandomAxis& s : scope)
        if (s.extent == ids_.shape[0]) return fmt::format("ids[{}]", s.name);
    switch (pick(9)) {
      case 0: return fmt::format("{}-1-{}", e, a);
      case 1: return fmt::format("{}/2", a);
      case 2: return fmt::format("clamp({}-1,0,{}-1)", a, e);
      case 3: return fmt::format("min({}+1,{}-1)", a, e);
      default: return a;
    }
  }

  std::string reduction(const std::vector<RandomAxis>& scope, int depth) {
    std::vector<RandomAxis> inner = scope;
    std::vector<std::string> axes;
    int count = chance(1, 4) ? 2 : 1;
    bool triangular = !scope.empty() && chance(1, 5);
    RandomAxis first;
    for (int k = 0; k < count; ++k) {
      RandomAxis axis{fresh(), extent()};
      if (k == 0 && triangular) {
        const RandomAxis& outer = scope.back();
        axis.extent = outer.extent;
        axes.push_back(fmt::format("{} in 0..{}+1", axis.name, outer.name));
      } else {
        axes.push_back(fmt::format("{} in 0..{}", axis.name, axis.extent));
      }
      if (k == 0) first = axis;
      inner.push_back(axis);
    }
    std::string test;
    if (chance(1, 5)) test = " if " + condition(inner, 1);
    std::string body = real(inner, depth - 1);
    bool guarded_extreme = !test.empty();
    const char* kinds[] = {"sum", "sum", "sum", "mean", "prod", "max", "min"};
    std::string kind = kinds[pick(guarded_extreme ? 3 : 7)];
    if (kind == "prod") body = fmt::format("(0.75 + 0.5 * sin({}))", body);
    // Extremes and means over nothing are infinite; a symbolic extent may be zero, but not in the samples.
    return fmt::format("{}({}{}: {})", kind, fmt::join(axes, ", "), test, body);
  }

  // --- integers and conditions ----------------------------------------------------------------------------------

  std::string integer(const std::vector<RandomAxis>& scope, int depth) {
    if (depth <= 0 || chance(1, 4)) {
      for (const RandomTensor& t : integers_)
        for (const RandomAxis& a : scope)
          if (t.shape[0] == a.extent && chance(1, 2)) return fmt::format("i64({}[{}])", t.name, a.name);
      if (scope.empty()) return "i64(3)";
      return scope[static_cast<size_t>(pick(static_cast<int>(scope.size())))].name;
    }
    std::string a = integer(scope, depth - 1), b = integer(scope, depth - 1);
    switch (pick(11)) {
      case 0: return fmt::format("({} + {})", a, b);
      case 1: return fmt::format("({} - {})", a, b);
      case 2: return fmt::format("({} * {})", a, b);
      case 3: return fmt::format("({} / 3)", a);
      case 4: return fmt::format("({} % ({} * {} + 2))", a, b, b);
      case 5: return fmt::format("min({}, {})", a, b);
      case 6: return fmt::format("max({}, 2 - {})", a, b);
      case 7: return fmt::format("abs({} - 2)", a);
      case 8: return fmt::format("(if {} then {} else {})", condition(scope, depth - 1), a, b);
      case 9: {
        std::vector<RandomAxis> inner = scope;
        RandomAxis axis{fresh(), extent()};
        inner.push_back(axis);
        const char* kinds[] = {"sum", "max", "min", "argmax", "argmin"};
        int kind = pick(is_number(axis.extent) ? 5 : 1);  // argmax over nothing is an error
        return fmt::format("{}({} in 0..{}: {})", kinds[kind], axis.name, axis.extent,
                           kind > 2 ? real(inner, 1) + " + 0.001*" + type_ + "(" + axis.name + ")" : integer(inner, depth - 1));
      }
      default: return fmt::format("sign({} - 1)", a);
    }
  }

  std::string condition(const std::vector<RandomAxis>& scope, int depth) {
    const char* signs[] = {"<", "<=", ">", ">=", "==", "!="};
    switch (pick(depth > 0 ? 9 : 4)) {
      case 0:
      case 1: return fmt::format("{} {} {}", integer(scope, depth - 1), signs[pick(6)], integer(scope, depth - 1));
      case 2: return fmt::format("{} {} 0.3", real(scope, std::max(depth - 1, 0)), signs[pick(4)]);
      case 3: {
        for (const RandomTensor& t : flags_)
          for (const RandomAxis& a : scope)
            if (t.shape[0] == a.extent) return fmt::format("{}[{}]", t.name, a.name);
        return fmt::format("{} > 1", integer(scope, depth - 1));
      }
      case 4: return fmt::format("({}) && ({})", condition(scope, depth - 1), condition(scope, depth - 1));
      case 5: return fmt::format("({}) || ({})", condition(scope, depth - 1), condition(scope, depth - 1));
      case 6: return fmt::format("!({})", condition(scope, depth - 1));
      case 7: {
        std::vector<RandomAxis> inner = scope;
        RandomAxis axis{fresh(), extent()};
        inner.push_back(axis);
        return fmt::format("{}({} in 0..{}: {})", chance(1, 2) ? "any" : "all", axis.name, axis.extent,
                           condition(inner, depth - 1));
      }
      default: return fmt::format("{}({}({}))", chance(1, 2) ? "isnan" : "isfinite", type_, real(scope, depth - 1));
    }
  }

  std::mt19937_64 random_;
  RandomProgramOptions options_;
  std::string type_;
  std::vector<std::string> extents_;
  std::vector<RandomTensor> floats_, integers_, flags_;
  RandomTensor ids_;
  std::string id_extent_, int_type_;
  int next_axis_ = 0, next_let_ = 0;
};

int64_t number_from(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text && *text ? std::atoll(text) : otherwise;
}

}  // namespace

std::string random_program(uint64_t seed, const RandomProgramOptions& options) { return Generator(seed, options).run(); }

bool long_run() { return number_from("XHAT_TEST_LONG", 0) != 0; }

int property_count(int usual, int all) { return static_cast<int>(number_from("XHAT_PROPERTY_COUNT", long_run() ? all : usual)); }
uint64_t property_seed() { return static_cast<uint64_t>(number_from("XHAT_PROPERTY_SEED", 1)); }

}  // namespace xhat::testing

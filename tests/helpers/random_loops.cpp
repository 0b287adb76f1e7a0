// What is assigned stays in [-2, 2] or so: results are put through sin, tanh or halves, so that many iterations lose few digits. Every index
// in the data is taken modulo the extent. Names tell what they are: a, b, c: [N]; y: [T,N]; m, v: numbers; i, j: places; g: [N] of another type.
#include "tests/helpers/random_loops.h"

#include <fmt/format.h>

#include <initializer_list>
#include <random>
#include <vector>

namespace xhat::testing {
namespace {

class LoopsGenerator {
 public:
  explicit LoopsGenerator(uint64_t seed) : random_(seed * 0x9E3779B97F4A7C15u + 11) {}

  std::string run() {
    const char* types[] = {"f64", "f64", "f32", "f32", "f16"};
    type_ = types[pick(5)];
    narrow_ = chance(25) ? form({"f16", "f32", "f64", "bf16"}) : "";
    integer_ = form({"i32", "i32", "i64"});
    text_ = fmt::format("prog p(x: {0}[N,M], u: {0}[N], r: {0}[M], w: {0}[T], s: {0}, id: {1}[N], from: {1}[T], k: i32, flag: bool) -> (",
                        type_, integer_);
    text_ += fmt::format("a, b, h, y, m, v, place, j{}) {{\n", narrow_.empty() ? "" : ", g");
    line(1, fmt::format("var a = {}", form({"clone(u)", "u * 2", "sin(u)", "clone(w[0] + u)"})));
    line(1, fmt::format("var b = {}", form({"clone(u)", "x[:,0] * 1", "cos(u)"})));
    line(1, fmt::format("var h = {}", chance(60) ? fmt::format("zeros {}[N]", type_) : "clone(u)"));
    const bool rows = chance(40);
    if (rows) line(1, "rows[t in 0..T, i in 0..N] = w[t] * u[i]");
    line(1, rows ? "var y = rows * 1" : fmt::format("var y = zeros {}[T,N]", type_));
    line(1, fmt::format("var m = {}(0.5)", type_));
    line(1, fmt::format("var v = {}(0)", type_));
    line(1, fmt::format("var place = id % {}(N)", integer_));
    line(1, fmt::format("var j = {0}({1}) % {0}(N)", integer_, pick(2)));
    if (!narrow_.empty()) line(1, fmt::format("var g = {}(u)", narrow_));
    if (chance(15)) statement(1);
    for (int loops = chance(20) ? 2 : 1; loops > 0; --loops) outer();
    if (chance(15)) statement(1);
    return text_ + "}\n";
  }

 private:
  std::mt19937_64 random_;
  std::string text_, type_, narrow_, integer_, time_;  // time_: a loop variable in 0..T, or nothing
  int names_ = 0, depth_of_loops_ = 0;

  int pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return pick(100) < percent; }
  std::string form(std::initializer_list<const char*> forms) { return *(forms.begin() + pick(static_cast<int>(forms.size()))); }
  template <class... T>
  std::string fill(std::initializer_list<const char*> forms, const T&... parts) {
    return fmt::format(fmt::runtime(form(forms)), parts...);
  }
  void line(int depth, const std::string& s) { text_ += std::string(static_cast<size_t>(2 * depth), ' ') + s + "\n"; }
  std::string fresh(const char* prefix) { return fmt::format("{}{}", prefix, names_++); }

  // --- values ---------------------------------------------------------------------------------------------------

  std::string vector() { return form({"a", "b", "h", "a", "b", "u"}); }
  std::string carried() { return form({"a", "b", "h"}); }
  std::string time() { return time_.empty() ? "0" : time_; }

  // An element of `place` or j as an index of an extent.
  std::string place(const std::string& i) {
    return i.empty() || chance(25) ? "j"
           : chance(60)            ? fmt::format("place[{}]", i)
                                   : fill({"place[(2*{0}+1) % N]", "place[N-1-{0}]", "id[{0}] % {1}(N)"}, i, integer_);
  }

  // A number at the element i of [N]; without i a scalar.
  std::string leaf(const std::string& i) {
    if (i.empty()) {
      switch (pick(9)) {
        case 0: return "s";
        case 1: return "m";
        case 2: return "v";
        case 3: return fmt::format("w[{}]", time());
        case 4: return fmt::format("{}[j]", vector());
        case 5: return fmt::format("{}(j)", type_);
        case 6: return fmt::format("{}[0]", vector());
        case 7: return fmt::format("y[{},0]", time_.empty() ? "T-1" : chance(50) ? time_ : "T-1-" + time_);
        default: return fmt::format("x[j,{}]", form({"0", "M-1"}));
      }
    }
    switch (pick(14)) {
      case 0:
      case 1:
      case 2: return fmt::format("{}[{}]", vector(), i);
      case 3:
      case 4: return fmt::format("{}[{}]", vector(), place(i));
      case 5: return fmt::format("x[{},{}]", chance(50) ? i : place(i), form({"0", "M-1", "0"}));
      case 6: return fmt::format("y[{},{}]", time_.empty() ? "0" : chance(50) ? time_ : "T-1-" + time_, chance(60) ? i : place(i));
      case 7: return fmt::format("{}(place[{}])", type_, i);
      case 8: return fmt::format("{}[N-1-{}]", vector(), i);
      case 9: return fmt::format("{}[({}+1) % N]", vector(), i);
      case 10: return narrow_.empty() ? "m" : fmt::format("{}(g[{}])", type_, i);
      case 11: return fmt::format("{}[max({}-1, 0)]", carried(), i);
      default: return leaf("");
    }
  }

  std::string condition(const std::string& i) {
    switch (pick(i.empty() ? 6 : 8)) {
      case 0: return "flag";
      case 1: return "k > 0";
      case 2: return fmt::format("{} > 0.1", leaf(i));
      case 3: return fmt::format("{} < {}", leaf(i), leaf(i));
      case 4: return "j % 2 == 0";
      case 5: return time_.empty() ? "!flag" : fmt::format("{} % 2 == {}", time_, pick(2));
      case 6: return fmt::format("place[{}] % 2 == 0", i);
      default: return fmt::format("i64(place[{0}]) {1} {0}", i, form({"<", ">=", "=="}));
    }
  }

  std::string reduction(const std::string& i) {
    const std::string q = fresh("q");
    const std::string body = chance(70) ? leaf(q) : fmt::format("{} * {}", leaf(q), leaf(i.empty() ? q : i));
    std::string over = fmt::format("{} in 0..N", q);
    switch (pick(12)) {
      case 0:
      case 1: return fmt::format("(sum({}: {}) / 4)", over, body);
      case 2: return fmt::format("(sum({} if {}: {}) / 4)", over, condition(q), body);
      case 3: return fmt::format("{}({}: {})", form({"max", "min"}), over, body);
      case 4: return fmt::format("prod({}: 0.6 + 0.3*sin({}))", over, body);
      case 5:
        if (i.empty()) break;
        return fmt::format("sum({} if i64(place[{}]) == {}: {})", over, q, i, body);  // a histogram
      case 6:
        if (i.empty()) break;
        return fmt::format("(sum({} in 0..{}+1: {}) / 4)", q, i, body);
      case 7:
        if (i.empty()) break;
        return fmt::format("max({} in {}..N: {})", q, i, body);
      case 8: return fmt::format("(sum({0} in 0..M: {1}[{2}] * x[{3},{0}]) / 4)", q, "r", q, i.empty() ? "j" : i);
      case 9:  // rows of earlier iterations
        if (time_.empty()) break;
        return fmt::format("(sum({0} in 0..{1}: y[{0},{2}] * {3}) / 4)", q, time_, i.empty() ? "0" : i,
                           chance(50) ? "0.5" : fmt::format("w[{}]", q));
      case 10:
        if (i.empty()) break;
        return fmt::format("sum({} in 0..N if (2*{} + 1) % N == {}: {})", q, q, i, body);
      default: break;
    }
    return fmt::format("mean({}: {})", over, body);
  }

  std::string real(const std::string& i, int depth) {
    if (depth <= 0) return leaf(i);
    switch (pick(10)) {
      case 0: return fmt::format("({} + {})", real(i, depth - 1), leaf(i));
      case 1: return fmt::format("({} - {})", leaf(i), real(i, depth - 1));
      case 2: return fmt::format("{} * {}", leaf(i), real(i, depth - 1));
      case 3: return fill({"sin({})", "cos({})", "sigmoid({})", "exp(-abs({}))", "relu({})"}, real(i, depth - 1));
      case 4: return fmt::format("(if {} then {} else {})", condition(i), real(i, depth - 1), leaf(i));
      case 5:
      case 6:
      case 7: return reduction(i);
      case 8: return fill({"max({}, {})", "min({}, {})"}, leaf(i), real(i, depth - 1));
      default: return leaf(i);
    }
  }

  std::string bounded(const std::string& i, int depth) { return fill({"sin({})", "tanh({})", "0.5*sin({})", "cos({})"}, real(i, depth)); }

  std::string whole_number(const std::string& i) {
    const std::string at = i.empty() ? "j" : fmt::format("place[{}]", i);
    switch (pick(i.empty() ? 6 : 8)) {
      case 0: return fmt::format("({}*2 + 1) % {}(N)", at, integer_);
      case 1: return fmt::format("({} + 1) % {}(N)", at, integer_);
      case 2: return fmt::format("{}({}({}: {}))", integer_, form({"argmax", "argmin"}), "z in 0..N", leaf("z"));
      case 3: return time_.empty() ? at : fmt::format("({} + from[{}]) % {}(N)", at, time_, integer_);
      case 4: return fmt::format("(if {} then {} else ({} + 2) % {}(N))", condition(i), at, at, integer_);
      case 5: return fmt::format("place[{}]", place(i));
      case 6: return fmt::format("{}({}) % {}(N)", integer_, i, integer_);
      default: return fmt::format("{}(N-1) - {}", integer_, at);
    }
  }

  // --- statements -----------------------------------------------------------------------------------------------

  void outer() {
    switch (pick(10)) {
      case 0:
      case 1: {
        const std::string n = fresh("n");
        line(1, fmt::format("var {} = 0", n) + ".0");
        line(1, fmt::format("while {} < {} && {} max {} {{", n, 2 + pick(9),
                            form({"sum(q: a[q]*a[q]) < 50", "m < 9", "b[0] > -9", "a[j] < 5"}), 4 + pick(8)));
        block(2, 1 + pick(4));
        line(2, fmt::format("{} += 1", n));
        return line(1, "}");
      }
      default: {
        time_ = fresh("t");
        line(1, fmt::format("for {} in {} {{", time_, form({"0..T", "0..T", "0..T", "1..T", "0..T-1", "0..min(T,9)"})));
        ++depth_of_loops_;
        block(2, 2 + pick(4));
        --depth_of_loops_;
        time_.clear();
        return line(1, "}");
      }
    }
  }

  void block(int depth, int statements) {
    for (int n = 0; n < statements; ++n) statement(depth);
  }

  std::string sign() { return form({"=", "=", "+=", "-=", "*="}); }

  void statement(int depth) {
    switch (pick(depth < 4 ? 22 : 16)) {
      case 0:
      case 1: return line(depth, fmt::format("{}[i in 0..N] = {}", carried(), bounded("i", 2)));
      case 2: return line(depth, fmt::format("place[i in 0..N] = {}", whole_number("i")));
      case 3: {  // beside what still reads the old places
        const std::string next = fresh("next");
        line(depth, fmt::format("{}[i in 0..N] = {}", next, whole_number("i")));
        block(depth, 1);
        return line(depth, fmt::format("place = {}", next));
      }
      case 4:
        return line(depth, fmt::format("h[i in 0..N] = 0.5*h[i] + {}sum(q in 0..N if i64(place[q]) == i: {})", chance(30) ? "m*" : "",
                                       bounded("q", 1)));
      case 5: {  // a scatter
        const std::string i = fresh("i"), op = chance(70) ? "+=" : chance(50) ? "-=" : "=";
        const std::string to = carried();
        line(depth, fmt::format("for {} in 0..N {{ {}[{}] {} {} }}", i, to, place(i), op, bounded(i, 1)));
        return line(depth, fmt::format("{0} = tanh({0})", to));
      }
      case 6: return line(depth, fmt::format("{}[j] {} {}", carried(), sign(), bounded("", 1)));
      case 7: return line(depth, fmt::format("j = {}", whole_number("")));
      case 8:
      case 9:
        if (time_.empty()) return line(depth, fmt::format("y[j % {}(T)] = {}", integer_, carried()));
        if (chance(50))
          return line(depth, fmt::format("y[{}] = {}", chance(75) ? time_ : "T-1-" + time_,
                                         fill({"{0}", "{0} * m", "sin({0} + {1})"}, carried(), carried())));
        return line(depth, fmt::format("y[{},i] = {}", chance(75) ? time_ : "T-1-" + time_, bounded("i", 1)));
      case 10: return line(depth, fmt::format("m = {}", chance(50) ? bounded("", 1) : fmt::format("0.5*m + {}", reduction(""))));
      case 11: return line(depth, fmt::format("v {}= {}", form({"+", "-"}), bounded("", 1)));
      case 12:
        if (!narrow_.empty()) return line(depth, fmt::format("g[i in 0..N] = {}({})", narrow_, bounded("i", 1)));
        return line(depth, fmt::format("a = {}", form({"b", "sin(b + u)", "b * m", "0.5*a + h"})));
      case 13:
        return line(depth, fmt::format("{}[1:] {} {}[:-1]", form({"a", "b"}), form({"=", "+=", "-="}),
                                       form({"sin(a)", "sin(b)", "tanh(h)", "cos(u)"})));
      case 14:
        if (!time_.empty()) {
          if (chance(50)) return line(depth, fmt::format("v = sum(q in 0..{0}: y[q,{1}]) / 8", time_, chance(50) ? "0" : "j"));
          return line(depth, fmt::format("y[{0}:] {1} 0.5*y[{0}:]", time_, form({"=", "+=", "-="})));
        }
        return line(depth, fmt::format("b = {}", form({"a", "cos(a)", "0.5*b + h"})));
      case 15: {
        const std::string q = fresh("e");
        line(depth, fmt::format("{}[i in 0..N] = {}", q, bounded("i", 2)));
        return line(depth, fmt::format("{}[i in 0..N] = {}[{}] * {}", carried(), q, place("i"), leaf("i")));
      }
      case 16:
      case 17: {
        line(depth, fmt::format("if {} {{", condition("")));
        block(depth + 1, 1 + pick(2));
        if (chance(60)) {
          line(depth, "} else {");
          block(depth + 1, 1 + pick(2));
        }
        return line(depth, "}");
      }
      case 18: {
        const std::string n = fresh("n");
        line(depth, fmt::format("var {} = 0.0", n));
        line(depth, fmt::format("while {} < {} && {} max {} {{", n, 1 + pick(4), condition(""), 2 + pick(3)));
        block(depth + 1, 1 + pick(2));
        line(depth + 1, fmt::format("{} += 1", n));
        return line(depth, "}");
      }
      default: return inner_loop(depth);
    }
  }

  // Over elements, in a triangle of the outer loop or whole; one element depends on the ones before.
  void inner_loop(int depth) {
    const std::string i = fresh("i");
    std::string range = form({"0..N", "1..N", "0..N-1"});
    if (!time_.empty() && chance(60))
      range = fill({"0..min({0}+1,N)", "min({0},N)..N", "0..min({0},N)", "max(min({0},N)-1,0)..min({0}+2,N)"}, time_);
    if (chance(10)) range = "0..i64(j)";
    line(depth, fmt::format("for {} in {} {{", i, range));
    const int statements = 1 + pick(3);
    for (int n = 0; n < statements; ++n) {
      const std::string to = carried();
      switch (pick(7)) {
        case 0:
        case 1: line(depth + 1, fmt::format("{}[{}] = {}", to, i, bounded(i, 2))); break;
        case 2: line(depth + 1, fmt::format("m = 0.6*m + {}", bounded(i, 1))); break;
        case 3: line(depth + 1, fmt::format("{0}[{1}] = 0.5*{0}[{1}] + {2}", to, place(i), bounded(i, 1))); break;
        case 4: line(depth + 1, fmt::format("place[{}] = {}", i, whole_number(i))); break;
        case 5:
          line(depth + 1, fmt::format("if {} {{ {}[{}] = {} }} else {{ v = {} }}", condition(i), to, i, bounded(i, 1), bounded(i, 1)));
          break;
        default: line(depth + 1, fmt::format("j = {}", whole_number(i))); break;
      }
    }
    line(depth, "}");
  }
};

}  // namespace

std::string random_loops(uint64_t seed) { return LoopsGenerator(seed).run(); }

DimValues random_loops_dims(uint64_t seed) {
  const int64_t n[] = {4, 5, 3, 9, 17, 2, 1}, m[] = {3, 2, 5, 1}, t[] = {9, 3, 4, 12, 2, 1, 10};
  return {{"N", n[seed % 7]}, {"M", m[seed / 7 % 4]}, {"T", t[seed / 28 % 7]}};
}

}  // namespace xhat::testing

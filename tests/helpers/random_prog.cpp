#include "tests/helpers/random_prog.h"

#include <random>
#include <vector>

#include <fmt/format.h>

namespace xhat::testing {
namespace {

enum class Shape : uint8_t { matrix, row, column, scalar };  // [N,M], [M], [N], []

class ProgGenerator {
 public:
  explicit ProgGenerator(uint64_t seed) : random_(seed * 0x9E3779B97F4A7C15u + 7) {}

  std::string run() {
    text_ = "prog p(x: f64[N,M], y: f64[N,M], u: f64[N], r: f64[M], s: f64, c: bool, k: i32) -> (a, b, v, w) {\n";
    values_ = {{"x", Shape::matrix}, {"y", Shape::matrix}, {"u", Shape::column}, {"r", Shape::row}, {"s", Shape::scalar}};
    variable("a", Shape::matrix);
    variable("b", Shape::matrix);
    variable("v", Shape::column);
    variable("w", Shape::row);
    block(1, 3 + pick(5));
    return text_ + "}\n";
  }

 private:
  struct Value {
    std::string name;
    Shape shape;
  };
  std::mt19937_64 random_;
  std::string text_;
  std::vector<Value> values_, variables_;
  std::vector<std::string> rows_;  // loop variables that run over 0..N-1 or less
  int names_ = 0;

  int pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return pick(100) < percent; }
  void line(int depth, const std::string& s) { text_ += std::string(static_cast<size_t>(2 * depth), ' ') + s + "\n"; }

  void variable(const std::string& name, Shape shape) {
    line(1, fmt::format("var {} = {}", name, chance(30) ? zeros(shape) : "clone(" + whole(shape, 1) + ")"));
    values_.push_back({name, shape});
    variables_.push_back({name, shape});
  }
  static std::string zeros(Shape s) {
    const char* extents[] = {"[N,M]", "[M]", "[N]", ""};
    return std::string("zeros f64") + extents[static_cast<int>(s)];
  }

  std::string name_of(Shape shape) {
    std::vector<std::string> fitting;
    for (const Value& v : values_)
      if (v.shape == shape) fitting.push_back(v.name);
    return fitting[static_cast<size_t>(pick(static_cast<int>(fitting.size())))];
  }

  // An index of the first dimension.
  std::string row_index() {
    if (!rows_.empty() && chance(75)) {
      const std::string& t = rows_[static_cast<size_t>(pick(static_cast<int>(rows_.size())))];
      return chance(70) ? t : chance(50) ? fmt::format("N-1-{}", t) : fmt::format("({}+1)%N", t);
    }
    const char* fixed[] = {"0", "1", "-1", "N-1", "k", "2"};
    return fixed[pick(6)];
  }
  std::string column_index() {
    const char* fixed[] = {"0", "-1", "1", "M-1"};
    return fixed[pick(4)];
  }

  // An expression over whole tensors.
  std::string whole(Shape shape, int depth) {
    if (depth == 0 || chance(25)) return leaf(shape);
    switch (pick(7)) {
      case 0: return fmt::format("sin({})", whole(shape, depth - 1));
      case 1: return fmt::format("tanh({})", whole(shape, depth - 1));
      case 2: return fmt::format("({} - {})", whole(shape, depth - 1), whole(shape, depth - 1));
      case 3: return fmt::format("{} * {}", leaf(shape), leaf(shape));
      case 4: return fmt::format("({} + {})", whole(shape, depth - 1), shape == Shape::matrix ? leaf(Shape::row) : leaf(Shape::scalar));
      case 5: return fmt::format("0.5 * {}", whole(shape, depth - 1));
      default: return fmt::format("({} + {})", whole(shape, depth - 1), leaf(shape));
    }
  }

  std::string leaf(Shape shape) {
    switch (shape) {
      case Shape::matrix: return chance(15) ? fmt::format("flip(0, {})", name_of(shape)) : name_of(shape);
      case Shape::row: return chance(50) ? fmt::format("{}[{}]", name_of(Shape::matrix), row_index()) : name_of(shape);
      case Shape::column: return chance(50) ? fmt::format("{}[:,{}]", name_of(Shape::matrix), column_index()) : name_of(shape);
      case Shape::scalar: break;
    }
    switch (pick(4)) {
      case 0: return fmt::format("{}[{},{}]", name_of(Shape::matrix), row_index(), column_index());
      case 1: return fmt::format("{}[{}]", name_of(Shape::column), row_index());
      case 2: return fmt::format("(sum(q: {}[q]) / 4)", name_of(Shape::row));
      default: return "s";
    }
  }

  // At a point (i, j) of [N,M].
  std::string point(int depth) {
    if (depth > 0 && chance(60)) {
      const std::string a = point(depth - 1), b = point(depth - 1);
      switch (pick(3)) {
        case 0: return fmt::format("{} * {}", a, b);
        case 1: return fmt::format("sin({} + {})", a, b);
        default: return fmt::format("({} - {})", a, b);
      }
    }
    switch (pick(5)) {
      case 0: return fmt::format("{}[i,j]", name_of(Shape::matrix));
      case 1: return fmt::format("{}[N-1-i,j]", name_of(Shape::matrix));
      case 2: return fmt::format("{}[i]", name_of(Shape::column));
      case 3: return fmt::format("{}[j]", name_of(Shape::row));
      default: return fmt::format("(sum(q: {0}[i,q] * {1}[q]) / 3)", name_of(Shape::matrix), name_of(Shape::row));
    }
  }

  Value target() { return variables_[static_cast<size_t>(pick(static_cast<int>(variables_.size())))]; }

  void block(int depth, int statements) {
    const size_t values = values_.size(), variables = variables_.size();
    for (int n = 0; n < statements; ++n) statement(depth);
    values_.resize(values);
    variables_.resize(variables);
  }

  void statement(int depth) {
    const Value t = target();
    switch (pick(depth < 3 ? 11 : 8)) {
      case 0: return line(depth, fmt::format("{} = {}", t.name, whole(t.shape, 2)));
      case 1: return line(depth, fmt::format("{} {}= {}", t.name, chance(60) ? "+" : "-", whole(t.shape, 1)));
      case 2:
      case 3: return write_part(depth, t);
      case 4: return line(depth, fmt::format("{}[i,j] = {}", t.shape == Shape::matrix ? t.name : "a", point(2)));
      case 5: return write_points(depth);
      case 6: return alias(depth, t);
      case 7: return local(depth);
      case 8: return branch(depth);
      default: return loop(depth);
    }
  }

  void write_part(int depth, const Value& t) {
    const std::string sign = chance(60) ? "=" : chance(50) ? "+=" : "*=";
    switch (t.shape) {
      case Shape::matrix:
        if (chance(60)) return line(depth, fmt::format("{}[{}] {} {}", t.name, row_index(), sign, whole(Shape::row, 1)));
        if (chance(50)) return line(depth, fmt::format("{}[:,{}] {} {}", t.name, column_index(), sign, whole(Shape::column, 1)));
        if (chance(50)) return line(depth, fmt::format("{}[1:N] {} {}[0:N-1]", t.name, sign, name_of(Shape::matrix)));
        return line(depth, fmt::format("{}[0:N-1, 1:] {} 0.5 * {}[1:N, :-1]", t.name, sign, name_of(Shape::matrix)));
      case Shape::row: return line(depth, fmt::format("{}[{}] {} {}", t.name, column_index(), sign, whole(Shape::scalar, 1)));
      case Shape::column: return line(depth, fmt::format("{}[{}] {} {}", t.name, row_index(), sign, whole(Shape::scalar, 1)));
      case Shape::scalar: return;
    }
  }

  void write_points(int depth) {
    const std::string to = chance(50) ? "a" : "b", row = row_index();
    line(depth, fmt::format("{}[{},j] {} {}[{},j] * {}[j] + {}", to, row, chance(70) ? "=" : "+=", name_of(Shape::matrix), row_index(),
                            name_of(Shape::row), leaf(Shape::scalar)));
  }

  void alias(int depth, const Value& t) {
    const std::string name = fmt::format("z{}", names_++);
    Value made{name, t.shape};
    std::string of = t.name;
    if (t.shape == Shape::matrix && chance(70)) {
      made.shape = chance(60) ? Shape::row : Shape::column;
      of += made.shape == Shape::row ? fmt::format("[{}]", row_index()) : fmt::format("[:,{}]", column_index());
    }
    line(depth, fmt::format("var {} = {}", name, of));
    values_.push_back(made);
    variables_.push_back(made);
  }

  void local(int depth) {
    const std::string name = fmt::format("z{}", names_++);
    const Shape shape = static_cast<Shape>(pick(3));
    if (shape == Shape::matrix && chance(50)) line(depth, fmt::format("{}[i in 0..N, j in 0..M] = {}", name, point(2)));
    else line(depth, fmt::format("{} = {}", name, whole(shape, 2)));
    values_.push_back({name, shape});
  }

  void branch(int depth) {
    const char* conditions[] = {"c", "!c", "k > 0", "s > 0"};
    std::string condition = conditions[pick(4)];
    if (chance(30)) condition = fmt::format("{} > 0.1", leaf(Shape::scalar));
    line(depth, fmt::format("if {} {{", condition));
    block(depth + 1, 1 + pick(2));
    if (chance(60)) {
      line(depth, "} else {");
      block(depth + 1, 1 + pick(2));
    }
    line(depth, "}");
  }

  void loop(int depth) {
    const std::string t = fmt::format("t{}", names_++);
    if (chance(15)) {
      const std::string n = fmt::format("n{}", names_++);
      line(depth, fmt::format("var {} = 0.0", n));
      line(depth, fmt::format("while {} < {} max 3 {{", n, 1 + pick(4)));
      block(depth + 1, 1 + pick(2));
      line(depth + 1, fmt::format("{} += 1", n));
      return line(depth, "}");
    }
    const char* ranges[] = {"0..N", "1..N", "0..2", "0..N-1", "1..1"};
    std::string range = ranges[pick(5)];
    if (!rows_.empty() && chance(30)) range = chance(50) ? fmt::format("0..{}", rows_.back()) : fmt::format("{}..N", rows_.back());
    line(depth, fmt::format("for {} in {} {{", t, range));
    rows_.push_back(t);
    block(depth + 1, 1 + pick(3));
    rows_.pop_back();
    line(depth, "}");
  }
};

}  // namespace

std::string random_prog(uint64_t seed) { return ProgGenerator(seed).run(); }

}  // namespace xhat::testing

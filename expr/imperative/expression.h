// Whole-tensor expressions of a program: their shapes, and their values element by element.
//
// An expression is asked twice: for its shape, which also finds the ranges of the axes in its reductions, and then for the value at given
// positions, one index for each of its dimensions. Views of anything are positions that are mapped on the way down.
#pragma once
#include <set>
#include <unordered_map>

#include "expr/imperative/state.h"

namespace xhat::imperative {

// A view of something: its element `axes` is the base's element `indices`.
struct Mapping {
  std::vector<AxisRange> axes;
  std::vector<Id> indices;
};

class Expression {
 public:
  explicit Expression(Context& context) : c_(context), a_(context.arena()) {}

  // Axes that the left side binds. Without an end: found where they stand alone as an index.
  void bind(const std::string& name, Id end, Pos pos);
  // Their ranges, once the shapes of all that uses them were asked for.
  std::vector<AxisRange> bound_ranges();

  Shape shape(ast::Ref ref);
  // Positions may be more than the shape has dimensions: the last ones count, and where an extent is 1 the position is 0.
  Value at(ast::Ref ref, std::span<const Id> positions);

  // A name or a view of one: what it is a view of. None for values.
  std::optional<View> view(ast::Ref ref);
  // Does this name mean anything (a tensor, dim, axis, loop variable)?
  bool known(const std::string& name) const;
  // A scalar, i64, over dims, loop variables and scalar tensors. new_dims: names that are nothing else are dims from outside.
  Id number(ast::Ref ref, bool new_dims, const char* what);
  Id integer(ast::Ref ref, const char* what);  // of a scalar
  std::optional<ast::Ref> float_name(ast::Ref ref) const;
  Id condition(ast::Ref ref, const char* what);
  // The value of a scalar that sizes and loop variables alone decide, an integer or a bool; none for others.
  std::optional<Value> decided(ast::Ref ref);
  // Is it a scalar without a type, which could be an integer?
  bool is_number(ast::Ref ref);
  // The same expression, whose reads are inside (an error else).
  Id checked(Id expression);
  // Calls of ops below: their results are defined before the statement.
  void run_calls(ast::Ref ref);
  // A result is kept in a tensor of its largest size, where its shape depends on the iteration.
  struct Result {
    TensorId tensor;
    Shape shape;
  };
  std::vector<Result> call(ast::Ref ref, size_t results);

  // The value of the expression over axes as a right side of this type (none: its own), checked against its bounds.
  Id body(ast::Ref ref, std::span<const AxisRange> axes, std::span<const Id> positions, std::optional<DType> type,
          const std::string& target);
  // The value of `place op value`, of which place is a view.
  Id updated(ast::Ref place, char op, ast::Ref value, std::span<const AxisRange> axes, std::span<const Id> positions, DType type,
             const std::string& target);
  // The expression as a tensor: a view of it if it is one already.
  TensorId tensor(ast::Ref ref, std::optional<DType> type, const std::string& name);

 private:
  struct Evidence {
    Id extent;
    ast::Ref read;
    bool with_else;
  };
  struct BoundAxis {
    std::string name;
    AxisRange range;
    Pos pos;
    std::vector<Evidence> evidence = {};
  };
  struct Let {
    ast::Ref value;
  };

  Id finished(const Value& v, std::span<const AxisRange> axes, std::optional<DType> type, const std::string& target, Pos pos);
  void require_of_call(const ast::Node& call, const Program& callee, const Replacements& dims);
  Shape shape_of(ast::Ref ref, const ast::Node& n);
  Shape reduction_shape(ast::Ref ref, const ast::Node& n);
  Shape read_shape(ast::Ref ref, const ast::Node& n);
  Shape method_shape(ast::Ref ref, const ast::Node& n);
  Shape call_shape(ast::Ref ref, const ast::Node& n);
  Shape broadcast(std::span<const ast::Ref> parts, Pos pos);
  Shape name_shape(const ast::Node& n);
  void infer(BoundAxis& axis);
  void open_axis(const std::string& name, AxisRange range, Pos pos, const char* what);
  void note(ast::Ref index, Id extent, ast::Ref read, bool with_else);

  Value value_of(ast::Ref ref, const ast::Node& n, std::vector<Id> p);
  Value name_value(ast::Ref ref, const ast::Node& n, std::span<const Id> p);
  Value reduction_value(ast::Ref ref, const ast::Node& n, std::span<const Id> p);
  Value read_value(ast::Ref ref, const ast::Node& n, std::span<const Id> p);
  Value call_value(ast::Ref ref, const ast::Node& n, std::span<const Id> p);
  Value moved(const ast::Node& n, std::vector<Id> p);  // flip, roll
  Value concatenated(const ast::Node& n, std::vector<Id> p);
  Value binary(ast::Ref ref, std::span<const Id> p);
  void check_chosen(ast::Ref ref, const Value& beside, const std::string& sign, Pos pos) const;
  Value read(TensorId t, std::span<const Id> indices, ast::Ref ref);
  Value read(const View& v, std::span<const Id> p, ast::Ref ref);

  View composed(const View& base, const Mapping& m);
  Mapping brackets(ast::Ref ref, const Shape& base, size_t first);
  Mapping method(const ast::Node& n, const Shape& base);
  Mapping mapping(ast::Ref ref, const ast::Node& n);
  void reshape(const ast::Node& n, const Shape& base, Shape& to, Mapping& m);
  Id index(ast::Ref ref, Id extent, size_t dimension, const std::string& of);
  bool difference_is_known(Id index, std::span<const Id> known) const;
  AxisRange slice(ast::Ref ref, Id extent, size_t k, Id& index, const std::string& of);
  Id slice_end(ast::Ref ref, Id extent, const std::string& of);
  int64_t constant(ast::Ref ref, const char* what);
  size_t dimension(ast::Ref ref, size_t rank, const char* what);
  Id integer_value(const Value& v, ast::Ref ref, const char* what);
  ast::Ref base_of(ast::Ref ref, const ast::Node& n) const;
  const ast::Node& node(ast::Ref r) const { return c_.file.nodes[r]; }
  std::string text(ast::Ref r) const { return ast::print(c_.file, r); }
  bool is_op(const ast::Node& n) const;
  // Is it made of loop variables, sizes and numbers alone?
  bool is_of_positions(ast::Ref ref) const;
  [[noreturn]] void unknown(const ast::Node& n) const;

  Context& c_;
  Arena& a_;
  std::unordered_map<ast::Ref, Shape> shapes_;
  std::unordered_map<ast::Ref, std::vector<AxisRange>> reduced_;
  std::unordered_map<ast::Ref, Result> calls_;
  std::vector<BoundAxis> axes_;
  std::map<std::string, ast::Ref> lets_;
  bool new_dims_ = false;
  bool decided_names_ = true;  // names of typed scalars stand for what these are `decided` to hold
  std::unordered_map<Id, std::vector<Occurrence>> reads_;
};

}  // namespace xhat::imperative

// Runs the statements of a program symbolically: every write makes a new value of a storage, and loops and branches hand values on.
#pragma once
#include "expr/imperative/expression.h"

namespace xhat::imperative {

class Symbolic {
 public:
  explicit Symbolic(Context& context) : c_(context), a_(context.arena()) {}

  void run(const std::vector<ast::Statement>& statements);

 private:
  void statement(const ast::Statement& s);
  void variable(const ast::Statement& s);
  void assign(const ast::Statement& s);
  void call(const ast::Statement& s);
  void branch(const ast::Statement& s);
  void loop(const ast::Statement& s);
  void refuse_descending(const ast::Statement& s, Id begin, Id end);
  void repeat(const ast::Statement& s);

  TensorId scalar_or_tensor(Expression& e, ast::Ref body, std::optional<DType> type, const std::string& name, bool variable);
  void rebind(const ast::Name& name, const Binding* old, Expression& e, ast::Ref body);
  void define(const ast::Statement& s, const Binding* old);
  void write(const ast::Statement& s);
  void put(const View& v, const std::vector<AxisRange>& axes, Id body, const std::string& name, Pos pos);
  void bind_value(const ast::Name& name, const Binding* old, DType type, const Shape& shape, TensorId value);
  Binding* assignable(const ast::Name& name);
  void check_new_name(const ast::Name& name, const char* what);
  bool is_new_axis(const ast::Node& n, const Expression& e) const;
  void check_written(const View& v, const std::string& name, Pos pos, bool maybe = false);

  void guarded_sides(const ast::Statement& s, Id condition);
  void separate_sides(const ast::Statement& s, Id condition);
  void merge_names(const State& before, const std::map<std::string, Binding>& then, const std::map<std::string, Binding>& otherwise,
                   Id condition);
  View chosen(Id condition, const View& x, const View& y);
  void drop_locals();
  Id shared_condition(Id condition, Pos pos);

  LoopItem iterate(const ast::Statement& s, LoopItem loop, const LoopVariable& variable);
  void unroll(const ast::Statement& s, int64_t begin, int64_t end);
  std::set<std::string> touched_names(const std::vector<ast::Statement>& statements) const;
  // What an expression is a view of: a name, if it is a place.
  ast::Ref root(ast::Ref ref) const;
  std::set<std::string> rebound_names(const std::vector<ast::Statement>& statements, const std::string* variable) const;
  void finish(LoopItem loop);
  // Where the name does not stand any more for what it did.
  Id moved(const View& v, const View& old);
  // What a storage may stand for by how often loops run, and may stand for in turn; and these loops.
  struct MayBe {
    std::set<size_t> storages;
    std::set<LoopName> by;
  };
  MayBe may_be(size_t storage) const;
  // The loops by which v may still be the old view where it says that it has moved.
  std::set<LoopName> unsure(const View& v, const View& old) const;
  // The view of this storage, but the old one where it has not moved.
  View unless_moved(size_t storage, Id moved, const View& old);
  TensorId value_of(const View& v, const std::string& name, Pos pos);

  const ast::Node& node(ast::Ref r) const { return c_.file.nodes[r]; }

  Context& c_;
  Arena& a_;
};

std::vector<size_t> storages_of(const View& v);

// A loop whose iterations are independent, or that only adds up, as definitions; what keeps it from that in `why` else (loops.cpp).
std::optional<Items> without_loop(Context& context, const LoopItem& loop, std::string& why);

}  // namespace xhat::imperative

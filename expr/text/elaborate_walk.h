// The walk over one right side: its own stack of surface nodes, a stack of values, the axes that are open.
// The steps are in elaborate_body.cpp, what a finished node becomes is in elaborate_leaf.cpp.
#pragma once
#include "expr/text/elaborate_scope.h"

namespace xhat {

struct Evidence {
  Id extent;
  ast::Ref read;
  bool with_else;
};

struct OpenAxis {
  std::string name;
  AxisRange range;
  Pos pos;
  std::vector<Evidence> evidence;
  bool given = false;  // its range stands in the text
};

struct Frame {
  ast::Ref ref;
  uint32_t stage = 0;
  uint32_t saved_conditions = 0;
};

class Walk {
 public:
  Walk(OpScope& scope, const BodyRequest& request) : s_(scope), a_(scope.arena), request_(request) {}

  BodyResult run();
  // Only dims: for extents.
  Id extent(ast::Ref ref, bool new_dims, const char* what);

 private:
  // Each returns the next child to visit, or kAbsent once it has pushed its value.
  ast::Ref step(Frame& f, const ast::Node& n);
  ast::Ref step_children(Frame& f, const ast::Node& n);
  ast::Ref step_choose(Frame& f, const ast::Node& n);
  ast::Ref step_let(Frame& f, const ast::Node& n);
  ast::Ref step_reduce(Frame& f, const ast::Node& n);

  Value walk(ast::Ref root);
  Value name_value(ast::Ref ref, const ast::Node& n);
  Value tensor_value(TensorId t, ast::Ref ref, const ast::Node& n);
  Value read_value(ast::Ref ref, const ast::Node& n);
  Value operation_value(const ast::Node& n);
  Value call_value(ast::Ref ref, const ast::Node& n);
  Value finish_reduce(const ast::Node& n);
  void rename_shadowing(std::vector<AxisRange>& axes, Id& condition, Value& body);
  Id unused_axis(const std::string& wanted, const std::vector<AxisRange>& axes, const std::vector<Id*>& parts);
  std::vector<Value> pop(size_t count);
  Value pop_one() { return pop(1)[0]; }
  Id range_end(const Value& v, ast::Ref ref);

  void check_new(const std::string& name, Pos pos, const char* what) const;
  void open_axis(const ast::Axis& axis, Id begin, Id end);
  AxisRange close_axis();
  void infer(OpenAxis& axis);
  bool agrees(const OpenAxis& axis, Id extent, ast::Ref read) const;
  struct Better {
    int gain;  // how many axes more are named like their dims
    std::string text;
  };
  std::vector<Better> better_indices(const OpenAxis& axis, const Evidence& e, Id wanted) const;
  void open_left_axes();
  void check_callable(const ast::Node& n) const;
  [[noreturn]] void unknown(const ast::Node& n) const;

  OpScope& s_;
  Arena& a_;
  const BodyRequest& request_;
  BodyResult result_;
  std::vector<Value> values_;
  std::vector<OpenAxis> axes_;
  std::map<std::string, Value, std::less<>> lets_;
  uint32_t conditions_ = Chains::kEmpty;
  bool only_dims_ = false;
  bool new_dims_ = false;
};

}  // namespace xhat

// Expressions in C, and where their parts stand: a part that several need, a reduction or a costly function is computed in the outermost
// block where its axes are known and which is as sure to run as the place that needs it.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "expr/core/program.h"
#include "expr/index/dims.h"
#include "expr/index/loop_bounds.h"

namespace xhat {

// C text with the precedence of its outermost operator, for parentheses.
struct CText {
  std::string text;
  int precedence = 20;  // of names, calls and literals
};

const char* c_type(DType stored);      // of memory
const char* c_arithmetic(DType type);  // of values: 16-bit floats are computed as float

class CWriter {
 public:
  CWriter(const Program& p, const DimValues& sizes);

  // A block of C: what is in it, the axes that its loop binds, and whether it may not run though the block around it does.
  struct Block {
    std::string code;
    std::set<Id> axes;
    bool conditional = false;
    std::map<Id, CText> named;
  };

  CText value(Id id);                               // may write statements into the blocks that are open
  std::string argument(Id id, int precedence = 0);  // with parentheses, if the operator outside has this precedence or a higher one
  void line(const std::string& text) { indented(blocks_.back(), blocks_.size(), text); }
  void open(const std::string& head, std::set<Id> axes, bool conditional, bool parallel = false);  // "for (…)", without brace
  void close(const std::string& tail = "}");
  // Opens the loop of an axis over its range cut by bounds.
  void open_loop(const AxisRange& range, const LoopBounds& bounds, bool parallel = false);
  // The opening of a reduction's loops in this order, conditions as bounds where they can be and else as guards. How many were opened.
  size_t open_loops(const std::vector<AxisRange>& axes, std::vector<Id> conditions);
  void count_uses(Id root);
  std::string place(TensorId t, const std::vector<std::string>& indices) const;  // "y[n * D + d]"
  std::string axis_name(Id axis) const;
  std::string tensor_name(TensorId t) const;
  std::string fresh(const std::string& stem);  // no tensor, dim or axis of the program has this name
  std::string finish() { return blocks_.front().code; }
  bool known_positive(const AxisRange& r) const;
  int64_t extent_of(const AxisRange& r) const;  // 0 where it depends on other axes

  std::string start_of(const Node& reduction) const;                                            // "0.0f"
  std::string step_of(const Node& reduction, const std::string& sum, const CText& term) const;  // the statement
  DType accumulator(const Node& reduction) const;

 private:
  void indented(Block& b, size_t depth, const std::string& text);
  size_t home_of(Id id) const;
  bool wants_name(Id id) const;
  CText written(Id id);
  CText literal(const Node& n) const;
  CText read(Id id);
  CText select(Id id);
  CText cast(Id id);
  CText reduction(Id id);
  CText operation(Id id);
  bool never_negative(Id id) const;
  // The value inside a block of its own; statements that it needed are left in *code.
  CText apart(Id id, std::string* code);

  const Program& p_;
  Arena& a_;
  const DimValues& sizes_;
  std::vector<Block> blocks_{1};
  std::map<Id, int> uses_;
  std::map<Id, Id> begins_;     // of the ranges of axes whose loops were opened
  std::map<Id, int64_t> ends_;  // the same, where they do not depend on other axes
  std::set<std::string> taken_;  // names of dims, tensors and axes
  int names_ = 0;
};

// The order of loops in which memory lies: outermost first. results: axes of what is computed; reduced: those of its reduction.
std::vector<AxisRange> memory_order(const Program& p, const CWriter& w, TensorId target, std::vector<AxisRange> results,
                                    const std::vector<AxisRange>& reduced, Id body);

}  // namespace xhat

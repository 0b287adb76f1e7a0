// One iteration of a loop, in terms of what stands before the loop.
//
// A read of what enters is one of what entered the loop, if no earlier iteration wrote that element; a read of what the iteration wrote
// is what it wrote there.
#pragma once
#include <deque>
#include <unordered_map>

#include "expr/imperative/state.h"

namespace xhat::imperative {

// Thrown where iterations depend on each other; the reason goes to the loop.
struct Dependent {
  std::string why;
};

// The axes around an expression and what holds there.
struct Known {
  std::vector<AxisRange> axes;
  std::vector<Id> conditions;
};

class Iteration {
 public:
  Iteration(Context& context, const LoopItem& loop) : c_(context), a_(context.arena()), l_(loop) {}

 protected:
  struct Lifted {
    TensorId tensor;
    Id first;  // the iteration of its first element; kNone: all have the same
  };
  // What expressions are once resolved: here, and wherever the same axes are in scope, if no condition was asked for on the way.
  // Without the second, a value chosen by data of one chosen by data, and so on, doubles the work with each choice.
  struct Resolved {
    std::unordered_map<Id, Id> here;
    std::unordered_map<Id, Id>& anywhere;
  };
  // The write of another iteration: its indices, ranges and guard, with axes of their own.
  struct Other {
    std::vector<AxisRange> axes;
    std::vector<Id> indices;
    Id guard = kNone;
  };
  const std::string& name(TensorId t) const { return c_.program.tensors[t].name; }
  // Finds what the iteration defines. Throws Dependent where it has more than definitions and writes.
  void enter();
  void expand(const Definition& call);
  // The writes from what enters to what leaves, first one first.
  std::vector<const Write*> chain(const CarriedValue& v) const;
  bool ends_in_entering(const CarriedValue& v) const;
  Other other(const Write& w, Id variable, const char* mark);
  // No element is written by two iterations.
  bool disjoint(const CarriedValue& v);
  // The read of what enters at this element is one of what entered the loop: no earlier iteration wrote it.
  Id from_before(const Node& read, const Known& known);
  bool touches(Id x);
  // The expression in terms of what stands before the loop, at an iteration.
  Id resolved(Id x, const Known& known);
  Id resolved(Id x, const Known& known, Resolved& memo);
  Id resolved_node(Id x, const Known& known, Resolved& memo);
  // A read, its indices resolved, of something that an iteration has.
  Id element(Id x, const Known& known);
  Known around(std::span<const AxisRange> axes) const;
  Id tidied(Id body);
  bool is_inner(TensorId t) const { return entering_.contains(t) || writes_.contains(t) || definitions_.contains(t); }

  Context& c_;
  Arena& a_;
  const LoopItem& l_;
  std::vector<AxisRange> around_;  // ranges of the loops around
  AxisRange range_{};              // of this one
  std::map<TensorId, size_t> entering_;
  std::map<TensorId, const Write*> writes_;
  std::map<TensorId, const Definition*> definitions_;
  std::vector<const Definition*> order_;  // those that stand in it, calls expanded
  std::deque<Definition> expanded_;
  std::deque<Definition> anew_;        // writes of all elements
  std::map<TensorId, Lifted> lifted_;  // definitions that are made for all iterations at once
  std::unordered_map<Id, bool> touches_;
  std::map<std::vector<Id>, std::unordered_map<Id, Id>> anywhere_;  // by the axes in scope; empty again when a definition is lifted
  size_t asked_ = 0;                                                // how often a result depended on the conditions around it
};

}  // namespace xhat::imperative

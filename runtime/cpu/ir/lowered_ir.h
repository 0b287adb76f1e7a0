// What passes over Halide's lowered code share. Includes Halide; for these only.
#pragma once
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "Halide.h"

namespace xhat::runtime {

// Names that are let, the outermost first.
using Lets = std::vector<std::pair<std::string, Halide::Expr>>;

// The same expression with none of these names in it.
inline Halide::Expr written_out(Halide::Expr e, const Lets& lets) {
  for (size_t i = lets.size(); i-- > 0;) e = Halide::Internal::graph_substitute(lets[i].first, lets[i].second, e);
  return e;
}

// What is loaded from.
struct Loads : Halide::Internal::IRVisitor {
  using IRVisitor::visit;
  std::set<std::string> names;
  void visit(const Halide::Internal::Load* op) override {
    names.insert(op->name);
    IRVisitor::visit(op);
  }
};

}  // namespace xhat::runtime

#include "runtime/emit/read_always.h"

#include <map>

namespace xhat::runtime {
namespace {

using namespace Halide::Internal;
using Halide::Expr;

// ReadsInBranches of stages, one each.
struct ReadsInBranches : IRGraphVisitor {
  using IRGraphVisitor::visit;
  const bool in_branches;
  std::map<std::string, Expr> found;

  explicit ReadsInBranches(bool branches) : in_branches(branches) {}

  void visit(const Call* op) override {
    if (op->call_type == Call::Halide) found.emplace(op->name, Expr(op));
    IRGraphVisitor::visit(op);
  }
  void visit(const Select* op) override {
    if (in_branches) return IRGraphVisitor::visit(op);
    include(op->condition);
  }
};

}  // namespace

Expr reading_always(Expr value, const std::vector<Expr>& reads) {
  for (const Expr& r : reads) value = Call::make(value.type(), Call::return_second, {r, value}, Call::PureIntrinsic);
  return value;
}

std::vector<Expr> reading_stages_always(std::vector<Expr> values, const std::string& itself) {
  ReadsInBranches all(true), outside(false);
  for (const Expr& value : values) {
    value.accept(&all);
    value.accept(&outside);
  }
  std::vector<Expr> missing;
  for (const auto& [name, read] : all.found)
    if (name != itself && !outside.found.contains(name)) missing.push_back(read);
  values[0] = reading_always(values[0], missing);
  return values;
}

}  // namespace xhat::runtime

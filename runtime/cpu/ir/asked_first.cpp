#include "runtime/cpu/ir/asked_first.h"

#include <algorithm>
#include <optional>
#include <set>

#include "runtime/cpu/ir/statements.h"

namespace xhat::runtime {
namespace {

bool is_asked(const Expr& condition) {
  const auto* cast = condition.as<hi::Cast>();
  const auto* load = (cast ? cast->value : condition).as<hi::Load>();
  return load && load->name.find(kAskedBuffer) != std::string::npos;
}

struct Guarded {
  Expr condition;
  Stmt rest;
};

// A statement that does nothing where a buffer says no, without that question.
std::optional<Guarded> guarded(const Stmt& s) {
  if (const auto* either = s.as<hi::IfThenElse>(); either && !either->else_case.defined()) {
    if (is_asked(either->condition)) return Guarded{either->condition, either->then_case};
    auto inside = guarded(either->then_case);
    if (inside) inside->rest = hi::IfThenElse::make(either->condition, inside->rest);
    return inside;
  }
  if (const auto* let = s.as<hi::LetStmt>()) {
    auto inside = guarded(let->body);
    if (!inside || hi::expr_uses_var(inside->condition, let->name)) return {};
    inside->rest = hi::LetStmt::make(let->name, let->value, inside->rest);
    return inside;
  }
  if (const auto* block = s.as<hi::Block>()) {
    const auto first = guarded(block->first), rest = guarded(block->rest);
    if (!first || !rest || !hi::equal(first->condition, rest->condition)) return {};
    return Guarded{first->condition, hi::Block::make(first->rest, rest->rest)};
  }
  return {};
}

// Does it read a buffer that the statement writes?
bool reads_what_is_written(const Expr& condition, const Stmt& s) {
  struct Buffers : hi::IRVisitor {
    using IRVisitor::visit;
    std::set<std::string> read, written;
    void visit(const hi::Load* op) override {
      read.insert(op->name);
      IRVisitor::visit(op);
    }
    void visit(const hi::Store* op) override {
      written.insert(op->name);
      IRVisitor::visit(op);
    }
  } of_condition, of_statement;
  condition.accept(&of_condition);
  s.accept(&of_statement);
  return std::ranges::any_of(of_condition.read, [&](const std::string& name) { return of_statement.written.contains(name); });
}

struct AskedFirst : hi::IRMutator {
  using IRMutator::visit;
  Stmt visit(const hi::For* op) override {
    const Stmt body = mutate(op->body);
    auto loop = [&](const Stmt& in) {
      return hi::For::make(op->name, op->min, op->extent, op->for_type, op->partition_policy, op->device_api, in);
    };
    auto inside = guarded(body);
    if (const auto* either = body.as<hi::IfThenElse>(); !inside && either && !either->else_case.defined())
      if (!reads_what_is_written(either->condition, body)) inside = Guarded{either->condition, either->then_case};
    if (!inside || hi::expr_uses_var(inside->condition, op->name)) return loop(body);
    return hi::IfThenElse::make(inside->condition, loop(inside->rest));
  }
};

}  // namespace

void ask_first(Halide::Pipeline& pipeline) { pipeline.add_custom_lowering_pass(new AskedFirst); }

}  // namespace xhat::runtime

#include "runtime/cpu/ir/write_over.h"

#include <algorithm>
#include <set>
#include <utility>

#include "expr/core/error.h"

namespace xhat::runtime {
namespace {

using namespace Halide::Internal;
using Halide::Expr;

struct FromResult : IRMutator {
  using IRMutator::visit;
  const std::vector<WrittenOver>& over;
  explicit FromResult(const std::vector<WrittenOver>& o) : over(o) {}
  Expr visit(const Load* op) override {
    auto it = std::ranges::find(over, op->name, &WrittenOver::input);
    if (it == over.end()) return IRMutator::visit(op);
    Expr begin = op->index.type().is_scalar() ? it->begin : Broadcast::make(it->begin, op->index.type().lanes());
    return Load::make(op->type, it->result, simplify(mutate(op->index) - begin), {}, {}, mutate(op->predicate), {});
  }
};

// Of one step: no loop, no branch.
bool straight(const Stmt& s) {
  if (const auto* block = s.as<Block>()) return straight(block->first) && straight(block->rest);
  if (const auto* let = s.as<LetStmt>()) return straight(let->body);
  return s.as<Store>() != nullptr;
}

struct StoresLast : IRMutator {
  using IRMutator::visit;

  std::vector<std::pair<std::string, Expr>> lets;
  std::vector<Stmt> stores;
  void take(const Stmt& s) {
    if (const auto* block = s.as<Block>()) {
      take(block->first);
      take(block->rest);
    } else if (const auto* let = s.as<LetStmt>()) {
      lets.emplace_back(let->name, let->value);
      take(let->body);
    } else {
      const auto* store = s.as<Store>();
      std::string name = unique_name("xh_stored");
      lets.emplace_back(name, store->value);
      stores.push_back(Store::make(store->name, Variable::make(store->value.type(), name), store->index, store->param, store->predicate,
                                   store->alignment));
    }
  }
  Stmt whole(const Stmt& s) {
    lets.clear();
    stores.clear();
    take(s);
    Stmt all = Block::make(stores);
    for (size_t i = lets.size(); i-- > 0;) all = LetStmt::make(lets[i].first, lets[i].second, all);
    return all;
  }
  Stmt visit(const Block* op) override { return straight(op) ? whole(op) : IRMutator::visit(op); }
  Stmt visit(const LetStmt* op) override { return straight(op) ? whole(op) : IRMutator::visit(op); }
};

// Nothing is loaded of where the same step has stored before.
struct Hazards : IRVisitor {
  using IRVisitor::visit;
  std::set<std::string> results;
  std::vector<std::pair<std::string, Expr>> stored;

  void visit(const For* op) override {
    auto before = std::exchange(stored, {});
    IRVisitor::visit(op);
    stored = std::move(before);
  }
  void visit(const IfThenElse* op) override {  // only one of the two runs
    op->condition.accept(this);
    const auto before = stored;
    op->then_case.accept(this);
    if (!op->else_case.defined()) return;
    const auto then = std::exchange(stored, before);
    op->else_case.accept(this);
    stored.insert(stored.end(), then.begin(), then.end());
  }
  void visit(const Load* op) override {
    for (const auto& [name, index] : stored)
      if (name == op->name && equal(index, op->index)) throw Bug("a result is written over an input before all of it was read");
    IRVisitor::visit(op);
  }
  void visit(const Store* op) override {
    IRVisitor::visit(op);
    if (results.contains(op->name)) stored.emplace_back(op->name, op->index);
  }
};

struct LoadsFromResult : IRMutator {
  std::vector<WrittenOver> over;
  Stmt mutate(const Stmt& all) override { return FromResult(over).mutate(all); }
};

// As Halide calls it, with all of the pipeline.
struct WriteOverPass : IRMutator {
  std::vector<WrittenOver> over;
  Stmt mutate(const Stmt& all) override {
    Stmt done = StoresLast().mutate(FromResult(over).mutate(all));
    Hazards hazards;
    for (const WrittenOver& o : over) hazards.results.insert(o.result);
    done.accept(&hazards);
    return done;
  }
};

}  // namespace

void write_over(Halide::Pipeline& pipeline, const std::vector<WrittenOver>& over) {
  auto* pass = new WriteOverPass;
  pass->over = over;
  pipeline.add_custom_lowering_pass(pass);
}

void read_results(Halide::Pipeline& pipeline, const std::vector<WrittenOver>& over) {
  auto* pass = new LoadsFromResult;
  pass->over = over;
  pipeline.add_custom_lowering_pass(pass);
}

}  // namespace xhat::runtime

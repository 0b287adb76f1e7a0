#include "runtime/cpu/ir/sums_beside.h"

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/cpu/ir/lowered_ir.h"

namespace xhat::runtime {
namespace {

using namespace Halide::Internal;
using Halide::Expr;

Stmt with_body(const For& loop, const Stmt& body) {
  return For::make(loop.name, loop.min, loop.extent, loop.for_type, loop.partition_policy, loop.device_api, body);
}

// The loops of a name, and what is around the last.
struct Place : IRVisitor {
  using IRVisitor::visit;
  std::string name;
  int found = 0;
  const For* loop = nullptr;
  Lets lets;
  std::set<std::string> within;  // loops and memory
  explicit Place(std::string of) : name(std::move(of)) {}

  void visit(const For* op) override {
    if (op->name == name) {
      ++found;
      loop = op;
      lets = lets_now;
      within = within_now;
    }
    inside(op->name, op->body);
  }
  void visit(const Allocate* op) override { inside(op->name, op->body); }
  void visit(const LetStmt* op) override {
    lets_now.emplace_back(op->name, op->value);
    op->body.accept(this);
    lets_now.pop_back();
  }

 private:
  Lets lets_now;
  std::set<std::string> within_now;
  void inside(const std::string& what, const Stmt& body) {
    const bool fresh = within_now.insert(what).second;
    body.accept(this);
    if (fresh) within_now.erase(what);
  }
};

Stmt beside(const std::string& map, const Stmt& m, const Stmt& s);

// A sum's loop goes into the map's own that has the same steps.
struct Into : IRMutator {
  using IRMutator::visit;
  const std::string& map;
  const For& sum;
  bool done = false;
  Into(const std::string& of, const For& s) : map(of), sum(s) {}
  Stmt visit(const For* op) override {
    const bool same = op->name.starts_with(map) && op->for_type == sum.for_type && equal(op->min, sum.min) && equal(op->extent, sum.extent);
    if (done || !same) return op;
    done = true;
    return with_body(*op, beside(map, op->body, substitute(sum.name, Variable::make(Halide::Int(32), op->name), sum.body)));
  }
};

// One step of the map's loops and the same of the sum's. Neither writes what the other reads, so any order is right.
Stmt beside(const std::string& map, const Stmt& m, const Stmt& s) {
  if (const auto* let = s.as<LetStmt>()) return LetStmt::make(let->name, let->value, beside(map, m, let->body));
  if (const auto* block = s.as<Block>()) return Block::make(beside(map, m, block->first), block->rest);
  if (const auto* loop = s.as<For>()) {
    Into into(map, *loop);
    Stmt all = into.mutate(m);
    if (into.done) return all;
  }
  return Block::make(m, s);
}

struct Replace : IRMutator {
  using IRMutator::visit;
  std::string gone, replaced;
  Stmt by;
  Stmt visit(const For* op) override {
    if (op->name == gone) return Evaluate::make(0);
    return op->name == replaced ? by : IRMutator::visit(op);
  }
};

// As Halide calls it, with all of the pipeline.
struct SumsPass : IRMutator {
  std::string map_loop, sum_loop;
  Stmt mutate(const Stmt& all) override {
    Place map(map_loop), sum(sum_loop);
    all.accept(&map), all.accept(&sum);
    if (map.found != 1 || sum.found != 1 || !std::ranges::includes(sum.within, map.within)) return all;
    if (!is_const_zero(map.loop->min) || !is_const_zero(sum.loop->min)) return all;
    const Stmt terms = substitute(sum_loop, Variable::make(Halide::Int(32), map_loop), sum.loop->body);
    Stmt both = with_body(*map.loop, beside(map_loop.substr(0, map_loop.find(".s0.") + 4), map.loop->body, terms));
    for (size_t i = map.lets.size(); i-- > 0;)
      if (std::ranges::find(sum.lets, map.lets[i].first, &Lets::value_type::first) == sum.lets.end())
        both = LetStmt::make(map.lets[i].first, map.lets[i].second, both);
    Replace replace;
    replace.gone = map_loop, replace.replaced = sum_loop, replace.by = both;
    return replace.mutate(all);
  }
};

}  // namespace

void sums_beside(Halide::Pipeline& pipeline, const std::string& map_loop, const std::string& sum_loop) {
  auto* pass = new SumsPass;
  pass->map_loop = map_loop;
  pass->sum_loop = sum_loop;
  pipeline.add_custom_lowering_pass(pass);
}

}  // namespace xhat::runtime

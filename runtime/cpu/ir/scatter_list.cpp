#include "runtime/cpu/ir/scatter_list.h"

#include "expr/core/error.h"
#include "runtime/host/tile_services.h"

namespace xhat::runtime {
namespace {

using namespace Halide::Internal;
using Halide::Expr;

struct Lister : IRMutator {
  explicit Lister(const ScatterList& list) : s(list), row(0) {}
  using IRMutator::visit;
  const ScatterList s;
  Expr row;  // where the loop is
  int listed = 0, walked = 0;

  Expr begin(const Expr& of_row) const { return Load::make(Halide::Int(32), s.list, of_row, {}, {}, const_true(), {}); }

  Stmt visit(const For* loop) override {
    if (loop->name.starts_with(s.list + ".s0.")) {
      ++listed;
      Expr context = Variable::make(Halide::Handle(), "__user_context");
      Expr from = Variable::make(Halide::Handle(), s.places), to = Variable::make(Halide::Handle(), s.list);
      return Evaluate::make(Call::make(Halide::Int(32), kListSymbol, {context, from, s.terms, s.rows, to}, Call::Extern));
    }
    if (!s.row.empty() && loop->name == s.row) row = Variable::make(Halide::Int(32), loop->name);
    if (loop->name != s.hits) return IRMutator::visit(loop);
    ++walked;
    Expr first = begin(row), count = begin(row + 1) - first;
    return For::make(loop->name, first, count, loop->for_type, loop->partition_policy, loop->device_api, mutate(loop->body));
  }
};

// As Halide calls it, with all of the pipeline.
struct ScatterPass : IRMutator {
  explicit ScatterPass(const ScatterList& list) : lister(list) {}
  Lister lister;
  Stmt mutate(const Stmt& all) override {
    Stmt done = lister.mutate(all);
    const bool row = lister.s.row.empty() || lister.row.as<Variable>();
    if (lister.listed == 0 || lister.walked == 0 || !row) throw Bug("the loops of a scatter are not where they were expected");
    return done;
  }
};

}  // namespace

void list_scattered(Halide::Pipeline& pipeline, const ScatterList& s) { pipeline.add_custom_lowering_pass(new ScatterPass(s)); }

}  // namespace xhat::runtime

#include "runtime/scatter_list.h"

#include "expr/error.h"
#include "runtime/tile_services.h"

namespace xhat::runtime {
namespace {

using namespace Halide::Internal;
using Halide::Expr;

struct Lister : IRMutator {
  using IRMutator::visit;
  std::string places, list, hits;
  Expr terms;
  int listed = 0, walked = 0;

  Stmt visit(const For* loop) override {
    if (loop->name.starts_with(list + ".s0.")) {
      ++listed;
      Expr context = Variable::make(Halide::Handle(), "__user_context");
      Expr from = Variable::make(Halide::Handle(), places), to = Variable::make(Halide::Handle(), list);
      return Evaluate::make(Call::make(Halide::Int(32), kListSymbol, {context, from, terms, to}, Call::Extern));
    }
    if (loop->name != hits) return IRMutator::visit(loop);
    ++walked;
    Expr count = Load::make(Halide::Int(32), list, 0, {}, {}, const_true(), {});
    return For::make(loop->name, loop->min, count, loop->for_type, loop->partition_policy, loop->device_api, mutate(loop->body));
  }
};

// As Halide calls it, with all of the pipeline.
struct Pass : IRMutator {
  Lister lister;
  Stmt mutate(const Stmt& all) override {
    Stmt done = lister.mutate(all);
    if (lister.listed == 0 || lister.walked == 0) throw Bug("the loops of a scatter are not where they were expected");
    return done;
  }
};

}  // namespace

void list_scattered(Halide::Pipeline& pipeline, const ScatterList& s) {
  auto* pass = new Pass;
  pass->lister.places = s.places;
  pass->lister.list = s.list;
  pass->lister.hits = s.hits;
  pass->lister.terms = s.terms;
  pipeline.add_custom_lowering_pass(pass);
}

}  // namespace xhat::runtime

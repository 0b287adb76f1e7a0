#include "runtime/cpu/ir/ramps.h"

#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "runtime/emit/emit.h"

namespace xhat::runtime {
namespace {

using namespace Halide::Internal;
using Halide::Expr;
using Halide::Type;

// b of (a, b - a) in the forms that the simplifier leaves. Where it has gone further, a + (b - a) has to do.
Expr second(const Expr& a, const Expr& step) {
  if (is_const_zero(a)) return step;
  if (const Sub* difference = step.as<Sub>(); difference && equal(difference->b, a)) return difference->a;
  if (const Add* sum = step.as<Add>()) {  // b - 3 is b + -3
    const FloatImm *first = a.as<FloatImm>(), *added = sum->b.as<FloatImm>();
    if (first && added && added->value == -first->value) return sum->a;
  }
  const Select *from = a.as<Select>(), *choice = step.as<Select>();
  if (from && choice && equal(from->condition, choice->condition))
    return Select::make(choice->condition, second(from->true_value, choice->true_value), second(from->false_value, choice->false_value));
  return Add::make(a, step);
}

// The same places in ascending order, where they descend side by side, or from a constant by a constant; else undefined. The lowest may be
// negative under a mask; Halide asserts that constant places are not.
Expr ascending(const Expr& index) {
  const Ramp* r = index.as<Ramp>();
  if (!r) return {};
  const auto base = as_const_int(r->base), stride = as_const_int(r->stride);
  if (!stride || *stride >= 0 || (!base && *stride != -1)) return {};
  const Type t = r->base.type();
  const Expr up = make_const(t, -*stride), below = make_const(t, (r->lanes - 1) * *stride);
  if (!base) return Ramp::make(Add::make(r->base, below), up, r->lanes);
  const int64_t lowest = *base + (r->lanes - 1) * *stride;
  const Expr first = make_const(t, lowest);
  return Ramp::make(lowest < 0 ? Add::make(hidden_zero(), first) : first, up, r->lanes);
}

Expr turned_over(const Expr& e) {
  std::vector<int> lanes(static_cast<size_t>(e.type().lanes()));
  std::iota(lanes.rbegin(), lanes.rend(), 0);
  return is_const_one(e) ? e : Shuffle::make({e}, lanes);
}

// Where an accumulator's lanes are written a known stride apart, these places.
const Ramp* known_apart(const Stmt& s) {
  const auto* store = s.as<Store>();
  const auto* places = store ? store->index.as<Ramp>() : nullptr;
  const auto* load = store ? store->value.as<Load>() : nullptr;
  if (!places || !load || load->name == store->name || !store->value.type().is_float() || !places->base.type().is_scalar()) return nullptr;
  const auto* from = load->index.as<Ramp>();
  const auto stride = as_const_int(places->stride);
  return from && is_const_one(from->stride) && stride && *stride > 1 ? places : nullptr;
}

// The load of a vector that may begin at any element.
Expr anywhere(const Load* load) {
  const auto* r = load->index.as<Ramp>();
  if (!r || !r->base.type().is_scalar()) return load;
  const Expr index = Ramp::make(Add::make(r->base, hidden_zero()), r->stride, r->lanes);
  return Load::make(load->type, load->name, index, load->image, load->param, load->predicate, {});
}

// The difference q - p of a mask whose lane i holds where p + i <= q: the last lane that holds. Else undefined.
Expr last_lane(const Expr& mask) {
  const LE* le = mask.as<LE>();
  const Ramp* from = le ? le->a.as<Ramp>() : nullptr;
  const Broadcast* to = le ? le->b.as<Broadcast>() : nullptr;
  if (!from || !to || !is_const_one(from->stride) || !from->base.type().is_scalar() || !to->value.type().is_scalar()) return {};
  return Sub::make(to->value, from->base);
}

bool loads_under_masks(const Halide::Target& target, Type of) {
  return target.has_feature(Halide::Target::AVX512_Skylake) || (target.has_feature(Halide::Target::AVX) && of.bits() >= 32);
}

// Every few-th lane up to the last, of one vector with what lies between; undefined where the lanes lie otherwise.
Expr as_part_of_all(const Load* op, const Expr& last) {
  constexpr int64_t kMostApart = 8;
  const Ramp* r = op->index.as<Ramp>();
  const auto stride = r && r->base.type().is_scalar() ? as_const_int(r->stride) : std::nullopt;
  if (!stride || *stride < 2 || *stride > kMostApart) return {};
  const int apart = static_cast<int>(*stride), lanes = apart * r->lanes;
  const Type t = r->base.type();
  const Expr index = Ramp::make(r->base, make_one(t), lanes);
  const Expr mask = LE::make(Ramp::make(make_zero(t), make_one(t), lanes), Broadcast::make(Mul::make(last, make_const(t, apart)), lanes));
  const Expr all = Load::make(op->type.with_lanes(lanes), op->name, index, op->image, op->param, mask, {});
  return Shuffle::make_slice(all, 0, apart, r->lanes);
}

struct Ramps : IRMutator {
  using IRMutator::visit;
  explicit Ramps(const Halide::Target& t) : target(t) {}
  Expr visit(const Load* op) override {
    Expr e = IRMutator::visit(op);
    op = e.as<Load>();
    if (const Expr last = last_lane(written(op->predicate)); last.defined() && loads_under_masks(target, op->type))
      if (const Expr all = as_part_of_all(op, last); all.defined()) return all;
    const Expr up = ascending(op->index);
    if (!up.defined()) return callers.contains(op->name) && !op->param.defined() && !op->image.defined() ? anywhere(op) : e;
    return turned_over(Load::make(op->type, op->name, up, op->image, op->param, turned_over(op->predicate), {}));
  }
  Stmt visit(const Store* op) override {
    Stmt s = IRMutator::visit(op);
    op = s.as<Store>();
    const Expr up = ascending(op->index);
    if (!up.defined()) return s;
    return Store::make(op->name, turned_over(op->value), up, op->param, turned_over(op->predicate), {});
  }
  Expr visit(const Let* op) override {
    const ScopedBinding<Expr> bound(op->value.type().is_bool(), masks, op->name, op->value);
    return IRMutator::visit(op);
  }
  Stmt visit(const LetStmt* op) override {
    const ScopedBinding<Expr> bound(op->value.type().is_bool(), masks, op->name, op->value);
    const auto* call = op->value.as<Call>();
    if (call && call->name == Call::buffer_get_host) callers.insert(op->name);
    if (!unknown_zero.defined() && call && call->name == Call::buffer_get_host)
      unknown_zero = Call::make(Halide::Int(32), Call::buffer_get_dimensions, call->args, Call::Extern) >> 31;
    return IRMutator::visit(op);
  }
  Stmt visit(const Block* op) override {
    std::vector<Stmt> all;
    Stmt rest = op;
    for (const Block* block = op; block; block = rest.as<Block>()) {
      all.push_back(block->first);
      rest = block->rest;
    }
    all.push_back(rest);
    std::map<std::string, int> apart;  // vectors, by what they are written to
    for (const Stmt& s : all)
      if (known_apart(s)) ++apart[s.as<Store>()->name];
    for (Stmt& s : all) {
      const Ramp* places = known_apart(s);
      const Store* store = s.as<Store>();
      if (places && unknown_zero.defined() && apart.at(store->name) > 1) {
        const Expr index = Ramp::make(places->base, Add::make(places->stride, unknown_zero), places->lanes);
        s = Store::make(store->name, store->value, index, store->param, store->predicate, store->alignment);
      } else {
        s = mutate(s);
      }
    }
    return Block::make(all);
  }
  Expr visit(const Ramp* op) override {
    if (!op->type.is_float() || op->lanes != 2 || !op->base.type().is_scalar()) return IRMutator::visit(op);
    Expr first = mutate(op->base);
    return Shuffle::make_concat({first, mutate(second(op->base, op->stride))});
  }
  Expr written(const Expr& mask) const {
    const auto* v = mask.as<Variable>();
    const Expr* let = v ? masks.find(v->name) : nullptr;
    return let ? *let : mask;
  }
  const Halide::Target target;
  Scope<Expr> masks;              // what names of truths stand for
  std::set<std::string> callers;  // memory
  Expr unknown_zero;              // the sign of a buffer's number of dimensions
};

}  // namespace

void mend_ramps(Halide::Pipeline& pipeline, const Halide::Target& target) { pipeline.add_custom_lowering_pass(new Ramps(target)); }
Stmt with_mended_ramps(const Stmt& lowered, const Halide::Target& target) { return Ramps(target).mutate(lowered); }

}  // namespace xhat::runtime

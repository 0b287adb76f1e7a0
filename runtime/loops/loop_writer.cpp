#include "runtime/loops/loop_writer.h"

#include <algorithm>
#include <utility>

#include "expr/core/array.h"
#include "runtime/emit/emit.h"

namespace xhat::runtime {

namespace {
// Halide takes memory that is no parameter's for its own, which begins at a multiple of a vector.
struct OfArguments : hi::IRMutator {
  using hi::IRMutator::visit;
  explicit OfArguments(const std::vector<std::string>& list) : names(list.begin(), list.end()) {}
  std::set<std::string> names;
  std::map<std::string, Halide::Parameter> parameters;

  Halide::Parameter parameter(const std::string& name, Halide::Type type) {
    return parameters.try_emplace(name, type.element_of(), true, 1, name).first->second;
  }
  Expr visit(const hi::Load* op) override {
    if (!names.contains(op->name)) return hi::IRMutator::visit(op);
    return hi::Load::make(op->type, op->name, mutate(op->index), {}, parameter(op->name, op->type), mutate(op->predicate), op->alignment);
  }
  Stmt visit(const hi::Store* op) override {
    if (!names.contains(op->name)) return hi::IRMutator::visit(op);
    return hi::Store::make(op->name, mutate(op->value), mutate(op->index), parameter(op->name, op->value.type()), mutate(op->predicate),
                           op->alignment);
  }
};
}  // namespace

LoopWriter::LoopWriter(const Program& p_, const Loop& l, const DimValues& d, const std::vector<std::vector<int64_t>>& s,
                       const std::vector<std::vector<int64_t>>& callers, const LoopBlocks& b, const Halide::Target& t)
    : p(p_),
      loop(l),
      dims(d),
      shapes(s),
      callers_shapes(callers),
      blocks(b),
      target(t),
      memory(p_, l, in_place_of(b)),
      adjoints(adjoint_memory(p_, l, b)),
      tape_plan(p_, l, d, b, memory) {
  for (const Carried& c : loop.carried) {
    in_place &= place(c.entering) == place(c.result) && adjoints.place(c.entering) == adjoints.place(c.result);
    carried.insert(place(c.result)), carried_adjoints.insert(adjoints.place(c.result));
  }
  std::set<Id> own, met;
  note_loop(loop, own, met);
  for (Id x : met)
    if (!own.contains(x)) around.push_back(x);
}

Stmt LoopWriter::where(const Expr& loaded, const Stmt& then, const Stmt& otherwise) {
  const std::string name = names("side");
  return hi::LetStmt::make(name, loaded,
                           hi::IfThenElse::make(variable(loaded.type(), name) != hi::make_zero(loaded.type()), then, otherwise));
}

void LoopWriter::note_loop(const Loop& l, std::set<Id>& own, std::set<Id>& met) {
  own.insert(l.variable);
  note_axes(l.begin, met);
  note_axes(l.end, met);
  if (depends_on_data(l)) bounded = false;
  note_list(l.test, own, met);
  note_list(l.body, own, met);
}

void LoopWriter::note_axes(Id expression, std::set<Id>& met) {
  if (expression != kNone) met.insert((*p.arena)[expression].free_axes().begin(), (*p.arena)[expression].free_axes().end());
}

void LoopWriter::note_list(const Steps& steps, std::set<Id>& own, std::set<Id>& met) {
  for (const Step& s : steps) {
    if (auto* b = std::get_if<Block>(&s.is))
      for (const Operand& o : b->operands) {
        note_axes(o.scalar, met);
        for (Id x : o.row) note_axes(x, met);
      }
    if (auto* u = std::get_if<Update>(&s.is))
      for (Id x : u->row) note_axes(x, met);
    if (auto* l = std::get_if<Loop>(&s.is)) note_loop(*l, own, met);
    if (auto* b = std::get_if<Branch>(&s.is)) note_list(b->then, own, met), note_list(b->otherwise, own, met);
  }
}

Halide::Type LoopWriter::type(TensorId t) const { return storage_type(p.tensors[t].type); }

int64_t LoopWriter::elements(TensorId t) const { return element_count(shapes[t]); }

bool LoopWriter::is_float_value(TensorId t) const { return is_float(p.tensors[t].type); }

std::string LoopWriter::value_name(TensorId t) {
  const TensorId at = place(t);
  if (phase == LoopPhase::backward && tape_plan.is_lasting(at)) return left_name(tape_plan.left().at(at));
  const std::string name = (memory.is_outside(at) ? "xh_outside" : "xh_value") + std::to_string(at);
  return wanted_memory(name, type(at), elements(at), false, memory.is_outside(at));
}

std::string LoopWriter::adjoint_name(TensorId t) {
  const TensorId at = adjoints.place(t);
  const std::string name = (memory.is_outside(at) ? "xh_outside_adjoint" : "xh_adjoint") + std::to_string(at);
  return wanted_memory(name, type(at), elements(at), true, memory.is_outside(at));
}

std::string LoopWriter::kept_name(const Block* b, size_t k) {
  const LoopBlock::Kept& kept = blocks.at(b).kept[k];
  const std::string name = "xh_kept" + std::to_string(b->results[0]) + "_" + std::to_string(k);
  return wanted_memory(name, storage_type(kept.type), element_count(kept.shape), false, false);
}

std::string LoopWriter::wanted_memory(const std::string& name, Halide::Type t, int64_t n, bool zero, bool given) {
  if (has.insert(name).second && !given) wanted.push_back({name, t, n, zero});
  return name;
}

std::string LoopWriter::tape_of(Halide::Type t) {
  const Halide::Type kept = t.is_float() ? t : t.with_code(halide_type_int);
  const std::string name = "xh_tape_" + std::string(t.is_float() ? "f" : "i") + std::to_string(t.bits());
  if (tapes.emplace(name, kept).second) tape_order.push_back(name);
  return name;
}

size_t LoopWriter::number_of(const std::string& tape) const {
  return static_cast<size_t>(std::ranges::find(tape_order, tape) - tape_order.begin());
}

std::string LoopWriter::top_of(const std::string& tape) { return tape + "_top"; }

LoopWriter::Part LoopWriter::number_in(const std::string& buffer) { return {{buffer, 0, {}}, Halide::Int(32), {}}; }

Expr LoopWriter::placed(const Part& part, size_t dimension, Expr* inside) {
  for (const Changed::Kept& k : part.some->kept) {
    const std::vector<int64_t> strides = strides_of(blocks.at(part.of).kept[k.number].shape);
    Expr index = 0;
    for (size_t d = 0; d < k.at.size(); ++d) {
      const Expr i = Halide::clamp(number(k.at[d]), 0, static_cast<int32_t>(blocks.at(part.of).kept[k.number].shape[d] - 1));
      index = index + Halide::cast<int32_t>(i) * static_cast<int32_t>(strides[d]);
    }
    const Halide::Type kept = storage_type(blocks.at(part.of).kept[k.number].type);
    variables[k.axis] = Halide::cast<int64_t>(loaded(kept, kept_name(part.of, k.number), index));
  }
  const Expr at = number(part.some->places[dimension]);
  const Expr zero = hi::make_zero(at.type()), end = hi::make_const(at.type(), part.extents[dimension]);
  *inside = *inside && at >= zero && at < end;
  return Halide::cast<int32_t>(Halide::max(zero, Halide::min(at, end - 1))) * static_cast<int32_t>(part.region.strides[dimension]);
}

bool LoopWriter::depends(const Changed& some, Id place, Id axis) const {
  const Arena& a = *p.arena;
  return a[place].depends_on(axis) || std::ranges::any_of(some.kept, [&](const Changed::Kept& k) {
           return a[place].depends_on(k.axis) && std::ranges::any_of(k.at, [&](Id x) { return depends(some, x, axis); });
         });
}

LoopWriter::Walk LoopWriter::walk(const Part& part) {
  const Changed& some = *part.some;
  Walk w{{part.region.buffer, part.region.at, std::vector<int64_t>(some.axes.size())}, {}, {}, {}, hi::const_true(), 1};
  auto outer_guards = std::exchange(guards, {});  // the block itself says what is outside
  for (size_t d = 0; d < some.places.size(); ++d) {
    const auto axis = std::ranges::find(some.axes, some.places[d]);
    if (axis != some.axes.end())
      w.region.strides[axis - some.axes.begin()] = part.region.strides[d];
    else if (std::ranges::any_of(some.axes, [&](Id x) { return depends(some, some.places[d], x); }))
      w.computed.push_back(d);
    else
      w.region.at = w.region.at + placed(part, d, &w.inside);
  }
  for (size_t k = 0; k < some.box.size(); ++k) {
    const Expr begin = named(Halide::cast<int32_t>(number(some.box[k].begin))), end = named(Halide::cast<int32_t>(number(some.box[k].end)));
    w.begins.push_back(begin);
    w.extents.push_back(named(hi::simplify(Halide::max(end - begin, 0))));
    w.region.at = w.region.at + begin * static_cast<int32_t>(w.region.strides[k]);
    w.elements = w.elements * w.extents.back();
  }
  w.region.at = named(w.region.at);
  w.elements = named(w.elements);
  w.inside = named(w.inside);
  guards = std::move(outer_guards);
  return w;
}

Stmt LoopWriter::walked(const Part& part, const Walk& w, const std::string& tape, const Expr& here, bool back) {
  auto if_inside = [](const Expr& inside, const Stmt& s) { return hi::is_const_one(inside) ? s : hi::IfThenElse::make(inside, s); };
  if (w.computed.empty()) return if_inside(w.inside, packed(w.region, w.extents, tape, here, back, part.type, target, names));
  const Changed& some = *part.some;
  auto outer_guards = std::exchange(guards, {});
  std::vector<std::string> loops;
  Expr at = w.region.at, slot = 0, inside = w.inside;
  for (size_t k = 0; k < some.axes.size(); ++k) {
    loops.push_back(names("i"));
    const Expr i = int_variable(loops.back());
    slot = slot * w.extents[k] + i;
    at = at + i * static_cast<int32_t>(w.region.strides[k]);
    variables[some.axes[k]] = Halide::cast<int64_t>(w.begins[k] + i);
    const auto dimension = std::ranges::find(some.places, some.axes[k]) - some.places.begin();
    ranges[some.axes[k]] = {0, std::max<int64_t>(part.extents[dimension] - 1, 0)};
  }
  Stmt s = with_own_lets([&] {
    for (size_t d : w.computed) at = at + placed(part, d, &inside);
    const Expr there = loaded(part.type, part.region.buffer, at), kept = loaded(part.type, tape, here + slot);
    return if_inside(inside, back ? stored_at(part.region.buffer, kept, at) : stored_at(tape, there, here + slot));
  });
  for (Id x : some.axes) variables.erase(x), ranges.erase(x);
  guards = std::move(outer_guards);
  for (size_t k = loops.size(); k-- > 0;) s = serial(loops[k], 0, w.extents[k], s);
  return s;
}

std::vector<LoopWriter::Part> LoopWriter::changed(const Block& b, size_t result) {
  std::vector<Part> parts;
  for (const Changed& c : tape_plan.changed(b, result)) {
    parts.push_back(value(b.results[result]));
    parts.back().some = &c;
    parts.back().of = &b;
  }
  return parts.empty() ? std::vector<Part>{value(b.results[result])} : parts;
}

void LoopWriter::push(std::vector<Stmt>& made, const Part& part) {
  const int64_t n = element_count(part.extents);
  if (!is_taping() || n == 0) return;
  const std::string tape = tape_of(part.type);
  const std::string top = names("top");
  const Expr here = variable(Halide::Int(32), top);
  if (part.some) {
    pushing->boxes.emplace_back(number_of(tape), part.some->box);
    made.push_back(with_own_lets([&] {
      const Walk w = walk(part);
      Stmt put = stored_at(top_of(tape), Halide::min(here, kMostOnTape) + Halide::min(w.elements, kMostOnTape), 0);
      if (phase != LoopPhase::count)
        put = hi::Block::make(walked(part, w, tape, here, false), stored_at(top_of(tape), here + w.elements, 0));
      return hi::LetStmt::make(top, loaded(Halide::Int(32), top_of(tape), 0), put);
    }));
    return;
  }
  pushing->here[number_of(tape)] += n;
  if (phase == LoopPhase::count) {  // of what is too much, not more than that it is
    const Expr sum = Halide::min(here, kMostOnTape) + static_cast<int32_t>(std::min<int64_t>(n, kMostOnTape));
    made.push_back(hi::LetStmt::make(top, loaded(Halide::Int(32), top_of(tape), 0), stored_at(top_of(tape), sum, 0)));
    return;
  }
  made.push_back(hi::LetStmt::make(top, loaded(Halide::Int(32), top_of(tape), 0),
                                   hi::Block::make(copy({tape, here, strides_of(part.extents)}, part.region, part),
                                                   stored_at(top_of(tape), here + static_cast<int32_t>(n), 0))));
}

void LoopWriter::pop(std::vector<Stmt>& made, const Part& part) {
  const int64_t n = element_count(part.extents);
  if (n == 0) return;
  const std::string tape = tape_of(part.type);
  const std::string top = names("top");
  const Expr here = variable(Halide::Int(32), top);
  if (part.some) {
    made.push_back(with_own_lets([&] {
      const Walk w = walk(part);
      return hi::LetStmt::make(top, loaded(Halide::Int(32), top_of(tape), 0) - w.elements,
                               hi::Block::make(walked(part, w, tape, here, true), stored_at(top_of(tape), here, 0)));
    }));
    return;
  }
  made.push_back(hi::LetStmt::make(
      top, loaded(Halide::Int(32), top_of(tape), 0) - static_cast<int32_t>(n),
      hi::Block::make(copy(part.region, {tape, here, strides_of(part.extents)}, part), stored_at(top_of(tape), here, 0))));
}

std::string LoopWriter::left_name(size_t of_carried) { return "xh_left" + std::to_string(of_carried); }

void LoopWriter::keep(std::vector<Stmt>& made, TensorId t, const Part& part) {
  if (tape_plan.is_restored(t)) push(made, part);
}

void LoopWriter::take_back(std::vector<Stmt>& made, TensorId t, const Part& part) {
  if (tape_plan.is_restored(t)) pop(made, part);
}

Stmt LoopWriter::copy(const Region& to, const Region& from, const Part& part, bool added) {
  return copied(to, from, part.type, part.extents, added, target, names);
}

Stmt LoopWriter::clear(const Part& part) { return copied(part.region, {}, part.type, part.extents, false, target, names); }

std::vector<int64_t> LoopWriter::value_strides(TensorId t) const {
  const bool with_caller = phase == LoopPhase::backward ? tape_plan.is_lasting(t) : carried.contains(place(t));
  const bool callers = memory.is_outside(t) || with_caller;
  return strides_of(callers ? callers_shapes[t] : shapes[t]);
}

std::vector<int64_t> LoopWriter::adjoint_strides(TensorId t) const {
  const bool callers = memory.is_outside(t) || carried_adjoints.contains(adjoints.place(t));
  return strides_of(callers ? callers_shapes[t] : shapes[t]);
}

LoopWriter::Part LoopWriter::whole(const std::string& buffer, TensorId t, std::vector<int64_t> strides) const {
  return {{buffer, 0, std::move(strides)}, type(t), shapes[t]};
}

LoopWriter::Part LoopWriter::value(TensorId t) { return whole(value_name(t), t, value_strides(t)); }

LoopWriter::Part LoopWriter::adjoint(TensorId t) { return whole(adjoint_name(t), t, adjoint_strides(t)); }

LoopWriter::Part LoopWriter::put_aside(TensorId t) { return whole(aside(t), t, strides_of(shapes[t])); }

LoopWriter::Part LoopWriter::row_of(Part of, const Row& row, const Expr& at) {
  of.region.at = at;
  of.region.strides = xhat::of_row(of.region.strides, row);
  of.extents = xhat::of_row(of.extents, row);
  return of;
}

LoopWriter::Part LoopWriter::kept_part(const Block* b, size_t k) {
  const LoopBlock::Kept& kept = blocks.at(b).kept[k];
  return {{kept_name(b, k), 0, strides_of(kept.shape)}, storage_type(kept.type), kept.shape};
}

std::vector<size_t> LoopWriter::copied_rows(const Block& b, bool to_keep) const {
  const LoopBlock& block = blocks.at(&b);
  std::vector<size_t> found;
  for (size_t k = 0; k < b.operands.size(); ++k)
    if (memory.is_copied(b, k) && (!to_keep || block.backward_reads(LoopBlock::Role::Is::operand, k))) found.push_back(k);
  return found;
}

LoopWriter::Part LoopWriter::copied_row(const Block& b, size_t operand) {
  const Operand& o = b.operands[operand];
  const std::vector<int64_t> extents = xhat::of_row(shapes[o.value], o.row);
  const std::string name = "xh_row" + std::to_string(b.results[0]) + "_" + std::to_string(operand);
  return {{wanted_memory(name, type(o.value), element_count(extents), false, false), 0, strides_of(extents)}, type(o.value), extents};
}

bool LoopWriter::is_kept_as_read(const Block& b, size_t operand) const {
  const std::vector<size_t> all = tape_plan.operands_as_read(b);
  return std::ranges::count(all, operand) > 0;
}

LoopWriter::Part LoopWriter::part_as_read(const Block& b, size_t operand) {
  const Operand& o = b.operands[operand];
  const Part all = value(o.value);
  return row_of(all, o.row, row_offset(o.value, o.row, all.region.strides));
}

std::vector<LoopWriter::Part> LoopWriter::kept_at_the_end() {
  std::vector<Part> all;
  for (TensorId t : memory.places())
    if (tape_plan.is_read_back(t) && !tape_plan.left().contains(t)) all.push_back(value(t));
  std::vector<const Block*> in_order;
  for_each_block(loop.test, [&](const Block& b) { in_order.push_back(&b); });
  for_each_block(loop.body, [&](const Block& b) { in_order.push_back(&b); });
  for (const Block* b : in_order)
    for (size_t k : copied_rows(*b, true)) all.push_back(copied_row(*b, k));
  for (const Block* b : in_order)
    for (size_t k = 0; blocks.at(b).forward && k < blocks.at(b).kept.size(); ++k) all.push_back(kept_part(b, k));
  return all;
}

LoopFunction LoopWriter::function(LoopPhase which) {
  phase = which;
  names = {};
  wanted.clear(), has.clear(), tapes.clear(), tape_order.clear(), variables.clear(), ranges.clear();
  if (is_taping()) pushes = {};
  pushing = is_taping() ? &pushes : nullptr;
  for (size_t k = 0; k < around.size(); ++k) variables[around[k]] = variable(Halide::Int(64), "xh_around" + std::to_string(k));
  // Tapes have the same numbers in both directions.
  for (auto t : {Halide::Float(32), Halide::Float(64), Halide::Int(32), Halide::Int(64), Halide::Int(8)}) tape_of(t);
  std::vector<Stmt> made;
  if (phase != LoopPhase::backward) {
    made.push_back(turns(loop));
    if (is_taping())
      for (const Part& part : kept_at_the_end()) push(made, part);
  } else {
    const std::vector<Part> kept = kept_at_the_end();
    for (size_t i = kept.size(); i-- > 0;) pop(made, kept[i]);
    for (const auto& [t, k] : tape_plan.left())
      if (!tape_plan.is_lasting(t)) made.push_back(copy(value(t).region, {left_name(k), 0, strides_of(callers_shapes[t])}, value(t)));
    made.push_back(turns_back(loop));
  }
  return finished(std::move(made));
}

LoopFunction LoopWriter::finished(std::vector<Stmt> made) {
  LoopFunction f;
  auto argument = [&](const std::string& name, LoopArgument a) {
    f.names.push_back(name);
    f.arguments.push_back(a);
  };
  using Is = LoopArgument::Is;
  for (size_t k = 0; k < around.size(); ++k) argument("xh_around" + std::to_string(k), {Is::variable, k});
  for (size_t k = 0; k < memory.outside().size(); ++k) {
    const TensorId t = memory.outside()[k];
    if (has.contains("xh_outside" + std::to_string(t))) argument("xh_outside" + std::to_string(t), {Is::outside, k});
    if (has.contains("xh_outside_adjoint" + std::to_string(t)))
      argument("xh_outside_adjoint" + std::to_string(t), {Is::outside_adjoint, k});
  }
  // What is carried lies with the caller.
  std::set<std::string> callers;
  for (size_t k = 0; k < loop.carried.size(); ++k) {
    const TensorId t = loop.carried[k].result;
    const bool back = phase == LoopPhase::backward;
    if (back && !is_float_value(t)) continue;
    const std::string name = back ? adjoint_name(t) : value_name(t);
    callers.insert(name);
    argument(name, {back ? Is::adjoint : Is::carried, k});
  }
  for (const auto& [t, k] : tape_plan.left())
    if (phase == LoopPhase::backward) argument(left_name(k), {Is::carried, k});
  std::vector<Memory> small;
  std::vector<Stmt> first;
  for (const Memory& m : wanted) {
    if (callers.contains(m.name)) continue;
    if (m.zero) first.push_back(clear({{m.name, 0, {1}}, m.type, {m.elements}}));
    if (m.elements * m.type.bytes() <= kStackBytes)
      small.push_back(m);
    else
      argument(m.name, {Is::memory, 0, m.elements * m.type.bytes()});
  }
  argument("xh_status", {Is::status});
  std::vector<Stmt> all;
  if (phase != LoopPhase::infer)
    for (size_t k = 0; k < tape_order.size(); ++k) {
      if (phase != LoopPhase::count) argument(tape_order[k], {Is::tape, k});
      const Expr top = phase == LoopPhase::backward ? loaded(Halide::Int(32), "xh_status", static_cast<int32_t>(k + 1)) : Expr(0);
      all.push_back(stored_at(top_of(tape_order[k]), top, 0));
    }
  all.insert(all.end(), first.begin(), first.end());
  all.insert(all.end(), made.begin(), made.end());
  if (is_taping())
    for (size_t k = 0; k < tape_order.size(); ++k)
      all.push_back(stored_at("xh_status", loaded(Halide::Int(32), top_of(tape_order[k]), 0), static_cast<int32_t>(k + 1)));
  Stmt s = hi::Block::make(all);
  if (phase != LoopPhase::infer)
    for (const std::string& tape : tape_order) s = on_stack(top_of(tape), Halide::Int(32), 1, s);
  for (const Memory& m : small) s = on_stack(m.name, m.type, m.elements, s);
  f.body = OfArguments(f.names).mutate(ready_for_code(s, target));
  return f;
}

void LoopWriter::count(const Pushes& of, AxisValues& at, int64_t times, std::vector<int64_t>& sums) const {
  for (auto [tape, n] : of.here) sums[tape] += times * n;
  for (const auto& [tape, box] : of.boxes) sums[tape] += times * elements_in(*p.arena, box, dims, at);
  for (const Pushes::Repeated& r : of.loops) {
    const int64_t begin = evaluate_extent(*p.arena, r.loop->begin, dims, at), end = evaluate_extent(*p.arena, r.loop->end, dims, at);
    const int64_t turns = std::max<int64_t>(0, (end - begin + r.loop->stride - 1) / r.loop->stride);
    if (!depends(*r.each, r.loop->variable)) {
      at[r.loop->variable] = begin;
      count(*r.each, at, times * turns, sums);
    } else {
      for (int64_t k = 0; k < turns; ++k) {
        at[r.loop->variable] = begin + k * r.loop->stride;
        count(*r.each, at, times, sums);
      }
    }
  }
}

bool LoopWriter::depends(const Pushes& of, Id variable) const {
  for (const auto& [tape, box] : of.boxes)
    for (const Reach& r : box)
      if ((*p.arena)[r.begin].depends_on(variable) || (*p.arena)[r.end].depends_on(variable)) return true;
  return std::ranges::any_of(of.loops, [&](const Pushes::Repeated& r) {
    auto has = [&](Id e) { return (*p.arena)[e].depends_on(variable); };
    return has(r.loop->begin) || has(r.loop->end) || depends(*r.each, variable);
  });
}

}  // namespace xhat::runtime

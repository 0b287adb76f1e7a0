// Steps of a loop, forward.
#include "runtime/loops/loop_writer.h"

#include <algorithm>
#include <optional>

#include "expr/core/array.h"
#include "expr/core/scalar.h"
#include "runtime/emit/emit.h"
#include "runtime/emit/emit_ops.h"
#include "runtime/loops/nest_vectors.h"

namespace xhat::runtime {

namespace {
constexpr int64_t kFar = int64_t{1} << 40;
}  // namespace

std::pair<int64_t, int64_t> LoopWriter::range(Id id) const {
  const Node& n = (*p.arena)[id];
  auto bounded_to = [](double low, double high) {
    return std::pair(static_cast<int64_t>(std::max(low, -static_cast<double>(kFar))),
                     static_cast<int64_t>(std::min(high, static_cast<double>(kFar))));
  };
  auto x = [&](size_t i) { return range(n.arg(i)); };
  switch (n.op) {
    case Op::constant: return {n.integer, n.integer};
    case Op::axis:
      if (auto it = ranges.find(id); it != ranges.end()) return it->second;
      break;
    case Op::dim: return {dims.at(p.arena->name(id)), dims.at(p.arena->name(id))};
    case Op::add: {
      const auto a = x(0), b = x(1);
      return bounded_to(double(a.first) + double(b.first), double(a.second) + double(b.second));
    }
    case Op::sub: {
      const auto a = x(0), b = x(1);
      return bounded_to(double(a.first) - double(b.second), double(a.second) - double(b.first));
    }
    case Op::mul: {
      const auto a = x(0), b = x(1);
      const double all[] = {double(a.first) * double(b.first), double(a.first) * double(b.second), double(a.second) * double(b.first),
                            double(a.second) * double(b.second)};
      return bounded_to(*std::ranges::min_element(all), *std::ranges::max_element(all));
    }
    case Op::minimum: return {std::min(x(0).first, x(1).first), std::min(x(0).second, x(1).second)};
    case Op::maximum: return {std::max(x(0).first, x(1).first), std::max(x(0).second, x(1).second)};
    default: break;
  }
  return {-kFar, kFar};
}

Expr LoopWriter::number(Id id) {
  const Node& n = (*p.arena)[id];
  std::vector<Expr> x;
  if (!is_read(n.op))
    for (Id arg : n.args()) x.push_back(number(arg));
  switch (n.op) {
    case Op::constant: return ops::constant(n);
    case Op::axis: return variables.at(id);
    case Op::dim: return hi::make_const(Halide::Int(64), dims.at(p.arena->name(id)));
    case Op::read:
    case Op::read_or: return element(n);
    case Op::select: return Halide::select(x[0], x[1], x[2]);
    case Op::cast: return ops::cast_to(n.type, x[0]);
    case Op::land: return x[0] && x[1];
    case Op::lor: return x[0] || x[1];
    case Op::lnot: return !x[0];
    case Op::eq:
    case Op::ne:
    case Op::lt:
    case Op::le: return ops::compare(n.op, ops::stored(x[0]), ops::stored(x[1]));
    default: return ops::integer_op(n, x);
  }
}

Expr LoopWriter::element(const Node& n) {
  const TensorId t = n.symbol;
  const std::vector<Id> at{read_indices(n).begin(), read_indices(n).end()};
  Expr inside = hi::const_true();
  const Expr index = offset(t, at, value_strides(t), &inside);
  Expr v = loaded(type(t), value_name(t), index);
  if (p.tensors[t].type == DType::boolean) v = ops::boolean(v);
  if (n.op == Op::read_or) return Halide::select(inside, v, number(n.args().back()));
  guard(inside);
  return v;
}

Expr LoopWriter::offset(TensorId t, const std::vector<Id>& row, const std::vector<int64_t>& strides, Expr* inside) {
  Expr sum = 0;
  for (size_t k = 0; k < row.size(); ++k) {
    if (row[k] == kNone) continue;
    Expr i = named(number(row[k]));
    const auto [low, high] = range(row[k]);
    const int64_t extent = shapes[t][k];
    if (low < 0 || high >= extent) {
      const Expr end = hi::make_const(i.type(), extent);
      *inside = *inside && i >= hi::make_zero(i.type()) && i < end;
      i = Halide::clamp(i, hi::make_zero(i.type()), hi::make_const(i.type(), std::max<int64_t>(extent - 1, 0)));
    }
    sum = sum + Halide::cast<int32_t>(i) * static_cast<int32_t>(strides[k]);
  }
  return sum;
}

Expr LoopWriter::row_offset(TensorId t, const std::vector<Id>& row, const std::vector<int64_t>& strides) {
  if (row.empty()) return 0;
  Expr inside = hi::const_true();
  const Expr at = named(offset(t, row, strides, &inside));
  guard(inside);
  return at;
}

Expr LoopWriter::named(const Expr& e) {
  if (hi::is_const(e) || e.as<hi::Variable>()) return e;
  const std::string name = names("n");
  lets.emplace_back(name, e);
  return variable(e.type(), name);
}

Stmt LoopWriter::with_own_lets(const std::function<Stmt()>& made) {
  auto outer = std::exchange(lets, {});
  Stmt s = made();
  for (size_t i = lets.size(); i-- > 0;) s = hi::LetStmt::make(lets[i].first, lets[i].second, s);
  lets = std::move(outer);
  return s;
}

Stmt LoopWriter::complete(std::vector<Stmt> made) {
  if (phase != LoopPhase::backward)
    for (const Expr& g : guards) made.insert(made.begin(), hi::IfThenElse::make(!g, stored_at("xh_status", 1, 0)));
  guards.clear();
  Stmt s = made.empty() ? hi::Evaluate::make(0) : hi::Block::make(made);
  for (size_t i = lets.size(); i-- > 0;) s = hi::LetStmt::make(lets[i].first, lets[i].second, s);
  lets.clear();
  return s;
}

void LoopWriter::guard(const Expr& inside) {
  if (!hi::is_const_one(inside)) guards.push_back(inside);
}

Stmt LoopWriter::list(const Steps& steps) {
  std::vector<Stmt> made;
  for (const Step& s : steps) std::visit([&](const auto& x) { made.push_back(step(x)); }, s.is);
  return made.empty() ? hi::Evaluate::make(0) : hi::Block::make(made);
}

NestPlace LoopWriter::place_of(const Block& b, const LoopBlock::Direction& d, uint32_t number_in_spec,
                               std::vector<Temporary>& temporaries) {
  const SpecTensor& t = d.spec.tensors[number_in_spec];
  const LoopBlock::Role role = d.roles.contains(t.original) ? d.roles.at(t.original) : LoopBlock::Role{};
  NestPlace at;
  at.strides = strides_of(t.shape);
  using Is = LoopBlock::Role::Is;
  switch (role.is) {
    case Is::operand:
    case Is::gradient: {
      const Operand& o = b.operands[role.number];
      if (o.scalar != kNone) {
        at.value = named(number(o.scalar));
        return at;
      }
      const bool as_read = phase == LoopPhase::backward && is_kept_as_read(b, role.number);
      if (role.is == Is::operand && (memory.is_copied(b, role.number) || as_read)) {
        const Part copy = copied_row(b, role.number);
        at.buffer = copy.region.buffer, at.strides = copy.region.strides;
        return at;
      }
      at.buffer = role.is == Is::gradient ? adjoint_name(o.value) : value_name(o.value);
      const std::vector<int64_t> strides = role.is == Is::gradient ? adjoint_strides(o.value) : value_strides(o.value);
      at.offset = row_offset(o.value, o.row, strides);
      at.strides = of_row(strides, o.row);
      return at;
    }
    case Is::result:
    case Is::cotangent: {
      const TensorId r = b.results[role.number];
      at.buffer = role.is == Is::result ? value_name(r) : adjoint_name(r);
      at.strides = role.is == Is::result ? value_strides(r) : adjoint_strides(r);
      return at;
    }
    case Is::kept: at.buffer = kept_name(&b, role.number); return at;
    case Is::temporary: {
      temporaries.push_back({names("temporary"), storage_type(t.type), element_count(t.shape), t.use == SpecTensor::Use::result});
      at.buffer = temporaries.back().name;
      return at;
    }
  }
  return at;
}

NestPlace LoopWriter::place_of_gradient(const Block& b, const BackwardInPlace& d, uint32_t number_in_spec,
                                        std::vector<Temporary>& temporaries, std::vector<Stmt>& before, std::vector<Stmt>& after) {
  NestPlace at = place_of(b, d.direction, number_in_spec, temporaries);
  at.added = !d.written.contains(number_in_spec);
  // Where others of the block's definitions read it, it is not only a part of the adjoint.
  const bool is_read = reads(d.direction.spec, number_in_spec);
  if (at.value.defined() || (!is_read && !d.apart.contains(number_in_spec))) return at;
  const SpecTensor& t = d.direction.spec.tensors[number_in_spec];
  temporaries.push_back({names("temporary"), storage_type(t.type), element_count(t.shape), false});
  const Region own{temporaries.back().name, 0, strides_of(t.shape)};
  after.push_back(copied({at.buffer, at.offset, at.strides}, own, storage_type(t.type), t.shape, true, target, names));
  if (!is_read) before.push_back(copied(own, {}, storage_type(t.type), t.shape, false, target, names));
  return {own.buffer, own.at, own.strides, {}, !is_read};
}

Stmt LoopWriter::nest_of(const Block& b, const LoopBlock::Direction& d, std::vector<Temporary>& temporaries) {
  return nest(
      d.spec, [&](uint32_t t) { return place_of(b, d, t, temporaries); }, target, names);
}

Stmt LoopWriter::nest_of(const Block& b, const BackwardInPlace& d, std::vector<Temporary>& temporaries) {
  std::vector<Stmt> all, after;
  auto place = [&](uint32_t t) {
    const auto role = d.direction.roles.find(d.direction.spec.tensors[t].original);
    const bool gradient = role != d.direction.roles.end() && role->second.is == LoopBlock::Role::Is::gradient;
    return gradient ? place_of_gradient(b, d, t, temporaries, all, after) : place_of(b, d.direction, t, temporaries);
  };
  const Stmt definitions = nest(d.direction.spec, place, target, names);
  all.push_back(definitions);
  all.insert(all.end(), after.begin(), after.end());
  return all.size() == 1 ? all[0] : hi::Block::make(all);
}

Stmt LoopWriter::with_temporaries(Stmt s, const std::vector<Temporary>& temporaries) {
  for (const Temporary& t : temporaries) {
    if (t.elements * t.type.bytes() > kStackBytes)
      wanted.push_back({t.name, t.type, t.elements, false});
    else
      s = on_stack(t.name, t.type, t.elements, s);
  }
  return s;
}

namespace {

LoopBlock::Direction only(const LoopBlock::Direction& d, const std::set<size_t>& members) {
  LoopBlock::Direction made = d;
  made.spec.members.clear();
  for (size_t k : members) made.spec.members.push_back(d.spec.members[k]);
  return made;
}

// Of these members what they leave in memory is there; what they computed for themselves is not, and others may need it.
std::set<size_t> all_but(const LoopBlock::Direction& d, const std::set<size_t>& members) {
  std::set<size_t> left;
  std::set<uint32_t> read;
  for (size_t k = d.spec.members.size(); k-- > 0;) {
    const SpecMember& m = d.spec.members[k];
    if (members.contains(k) && (d.roles.contains(d.spec.tensors[m.tensor].original) || !read.contains(m.tensor))) continue;
    left.insert(k);
    for (Id id : reads_of(*d.spec.arena, m)) read.insert((*d.spec.arena)[id].symbol);
  }
  return left;
}

}  // namespace

std::set<size_t> LoopWriter::members_for_places(const Block& b) const {
  std::set<size_t> members;
  for (size_t k = 0; k < b.results.size(); ++k)
    for (const Changed& c : tape_plan.is_restored(b.results[k]) ? tape_plan.changed(b, k) : std::vector<Changed>())
      members.insert(c.members.begin(), c.members.end());
  return members;
}

Stmt LoopWriter::step(const Block& b) {
  const LoopBlock& block = blocks.at(&b);
  std::vector<Stmt> made;
  std::vector<Temporary> temporaries;
  if (is_taping())
    for (size_t k : copied_rows(b, true)) push(made, copied_row(b, k));
  for (size_t k : copied_rows(b, false)) {
    const Operand& o = b.operands[k];
    const Part copy_of = copied_row(b, k), all = value(o.value);
    made.push_back(copy(copy_of.region, row_of(all, o.row, row_offset(o.value, o.row, all.region.strides)).region, copy_of));
  }
  if (block.check) {
    made.push_back(nest_of(b, *block.check, temporaries));
    const std::vector<Temporary> found = temporaries;
    std::vector<Stmt> fails = {stored_at("xh_status", 1, 0)};
    if (block.exact) {
      fails = {nest_of(b, *block.exact, temporaries)};
      for (size_t k = found.size(); k < temporaries.size(); ++k)
        if (const Temporary& t = temporaries[k]; t.leaves) fails.push_back(where(loaded(t.type, t.name, 0), stored_at("xh_status", 1, 0)));
    }
    for (const Temporary& t : found)
      if (t.leaves) made.push_back(where(loaded(t.type, t.name, 0), hi::Block::make(fails)));
  }
  const bool taped = is_taping() && block.forward;
  const LoopBlock::Direction& all = taped && phase == LoopPhase::forward ? *block.forward : block.infer;
  std::optional<LoopBlock::Direction> rest;  // without what was computed before
  if (is_taping()) {
    auto keep_results = [&](bool first, bool computed) {
      for (size_t k : tape_plan.results_in_order(b))
        if (tape_plan.is_undone_first(b, k) == first && tape_plan.is_computed(b, k) == computed)
          for (const Part& part : changed(b, k)) keep(made, b.results[k], part);
    };
    keep_results(false, false);
    for (size_t k = 0; taped && k < block.kept.size(); ++k) push(made, kept_part(&b, k));
    keep_results(true, false);
    if (const std::set<size_t> members = members_for_places(b); !members.empty()) {
      const LoopBlock::Direction& values = block.forward ? *block.forward : block.infer;
      made.push_back(nest_of(b, only(values, members), temporaries));
      if (&values == &all) rest = only(values, all_but(values, members));
    }
    keep_results(true, true);
    for (size_t k : tape_plan.operands_as_read(b)) push(made, part_as_read(b, k));
  }
  made.push_back(nest_of(b, rest ? *rest : all, temporaries));
  for (size_t k : is_taping() ? tape_plan.results_as_read(b) : std::vector<size_t>()) push(made, value(b.results[k]));
  return with_temporaries(complete(std::move(made)), temporaries);
}

Stmt LoopWriter::step(const Update& u) {
  std::vector<Stmt> made;
  const Part all = value(u.result), row = row_of(all, u.row, row_offset(u.base, u.row, all.region.strides));
  if (place(u.base) == place(u.result)) {
    keep(made, u.result, row);
  } else {
    keep(made, u.result, all);
    made.push_back(copy(all.region, value(u.base).region, all));
  }
  made.push_back(copy(row.region, value(u.value).region, row));
  return complete(std::move(made));
}

std::vector<LoopWriter::Move> LoopWriter::real(const LoopMemory& in, std::vector<Move> moves) {
  std::erase_if(moves, [&](const Move& m) { return in.place(m.to) == in.place(m.from); });
  return moves;
}

bool LoopWriter::is_overwritten(const LoopMemory& in, const std::vector<Move>& moves, TensorId from) {
  return std::ranges::any_of(moves, [&](const Move& m) { return in.place(m.to) == in.place(from); });
}

std::string LoopWriter::aside(TensorId t) { return wanted_memory("xh_aside" + std::to_string(t), type(t), elements(t), false, false); }

Stmt LoopWriter::moved(const std::vector<Move>& all) {
  const std::vector<Move> moves = real(memory, all);
  std::vector<Stmt> made;
  for (const Move& m : moves)
    if (is_overwritten(memory, moves, m.from)) made.push_back(copy(put_aside(m.to).region, value(m.from).region, value(m.to)));
  for (const Move& m : moves) {
    const Part to = value(m.to);
    keep(made, m.to, to);
    made.push_back(copy(to.region, is_overwritten(memory, moves, m.from) ? put_aside(m.to).region : value(m.from).region, to));
  }
  return made.empty() ? hi::Evaluate::make(0) : hi::Block::make(made);
}

Stmt LoopWriter::moved_back(const std::vector<Move>& all) {
  const std::vector<Move> of_values = real(memory, all), moves = real(adjoints, all);
  std::vector<Stmt> made;
  for (size_t i = of_values.size(); i-- > 0;) take_back(made, of_values[i].to, value(of_values[i].to));
  // Adjoints leave where others arrive before these do.
  auto each = [&](bool apart, auto f) {
    for (const Move& m : moves)
      if (is_float_value(m.to) && is_overwritten(adjoints, moves, m.from) == apart) f(m);
  };
  each(true, [&](const Move& m) {
    made.push_back(copy(put_aside(m.to).region, adjoint(m.to).region, adjoint(m.to)));
    made.push_back(clear(adjoint(m.to)));
  });
  each(false, [&](const Move& m) {
    made.push_back(copy(adjoint(m.from).region, adjoint(m.to).region, adjoint(m.to), true));
    made.push_back(clear(adjoint(m.to)));
  });
  each(true, [&](const Move& m) { made.push_back(copy(adjoint(m.from).region, put_aside(m.to).region, adjoint(m.to), true)); });
  return made.empty() ? hi::Evaluate::make(0) : hi::Block::make(made);
}

std::vector<LoopWriter::Move> LoopWriter::moves(const Loop& l, TensorId Carried::*to, TensorId Carried::*from) {
  std::vector<Move> all;
  for (const Carried& c : l.carried) all.push_back({c.*to, c.*from});
  return all;
}

LoopWriter::Turns LoopWriter::turns_of(const Loop& l) {
  const Expr begin = named(number(l.begin)), end = named(number(l.end));
  const Expr stride = hi::make_const(Halide::Int(64), l.stride);
  Expr count = Halide::max(end - begin, hi::make_zero(Halide::Int(64)));
  if (l.stride != 1) count = (count + (stride - 1)) / stride;
  const auto low = range(l.begin).first, high = range(l.end).second;
  ranges[l.variable] = {low, std::max(low, high - 1)};
  return {begin, named(Halide::cast<int32_t>(count))};
}

Stmt LoopWriter::with_variable(const Loop& l, const Turns& turns, const Expr& turn, const std::function<Stmt()>& body) {
  const std::string name = names("turn");
  variables[l.variable] = variable(Halide::Int(64), name);
  const Stmt s = body();
  variables.erase(l.variable);
  return hi::LetStmt::make(name, turns.begin + Halide::cast<int64_t>(turn) * hi::make_const(Halide::Int(64), l.stride), s);
}

bool LoopWriter::depends_on_data(const Loop& l) const {
  return l.condition || !tensors_read(*p.arena, l.begin).empty() || !tensors_read(*p.arena, l.end).empty();
}

Stmt LoopWriter::turns(const Loop& l) {
  auto each = std::make_shared<Pushes>();
  const Turns turns = turns_of(l);
  auto outer_lets = std::exchange(lets, {});
  auto outer_guards = std::exchange(guards, {});
  Pushes* around_it = std::exchange(pushing, each.get());
  const std::string name = names("loop"), going = names("going"), done = names("done"), doubled = names("doubled");
  // A while loop asks once in 1, 2, 4, … turns whether it still runs, so that a bound far beyond costs nothing.
  const Expr before = l.condition ? (Expr(1) << int_variable(doubled)) - 1 : Expr(0);
  Stmt body = with_variable(l, turns, before + variable(Halide::Int(32), name), [&] {
    Stmt s = hi::Block::make(list(l.body), moved(moves(l, &Carried::entering, &Carried::leaving)));
    if (!l.condition) return s;
    const Expr on = loaded(type(*l.condition), value_name(*l.condition), 0);
    const Expr goes = loaded(Halide::Int(32), going, 0);
    s = hi::Block::make(s, stored_at(done, loaded(Halide::Int(32), done, 0) + 1, 0));
    return where(goes, hi::Block::make({list(l.test), stored_at(going, Halide::cast<int32_t>(on), 0), where(goes, s)}));
  });
  pushing = around_it;
  if (pushing) pushing->loops.push_back({&l, each});
  lets = std::move(outer_lets);
  guards = std::move(outer_guards);
  std::vector<Stmt> made;
  if (l.condition) {
    made = {stored_at(going, 1, 0), stored_at(done, 0, 0)};
    const Expr left = Halide::clamp(turns.count - before, 0, Expr(1) << int_variable(doubled));
    const std::string some = names("some");
    const Expr on = loaded(Halide::Int(32), going, 0) != 0;
    made.push_back(serial(doubled, 0, 31, hi::LetStmt::make(some, Halide::select(on, left, 0), serial(name, 0, int_variable(some), body))));
  } else {
    made.push_back(serial(name, 0, turns.count, body));
  }
  if (!depends_on_data(l)) return complete(std::move(made));
  // What the backward cannot find out again.
  const std::string first = names("first");
  made.push_back(stored_at(first, turns.begin, 0));
  if (!l.condition) made.push_back(stored_at(done, turns.count, 0));
  push(made, {{first, 0, {}}, Halide::Int(64), {}});
  push(made, number_in(done));
  if (l.condition) push(made, number_in(going));
  Stmt s = complete(std::move(made));
  for (const auto& [buffer, t] : {std::pair(going, Halide::Int(32)), std::pair(done, Halide::Int(32)), std::pair(first, Halide::Int(64))})
    s = on_stack(buffer, t, 1, s);
  return s;
}

Stmt LoopWriter::step(const Loop& l) {
  std::vector<Stmt> made = {moved(moves(l, &Carried::entering, &Carried::initial)), turns(l),
                            moved(moves(l, &Carried::result, &Carried::entering))};
  return hi::Block::make(made);
}

std::vector<LoopWriter::Move> LoopWriter::merged(const Branch& b, TensorId Branch::Merge::*from) {
  std::vector<Move> all;
  for (const Branch::Merge& m : b.merges) all.push_back({m.result, m.*from});
  return all;
}

Stmt LoopWriter::step(const Branch& b) {
  const Stmt then = hi::Block::make(list(b.then), moved(merged(b, &Branch::Merge::then)));
  const Stmt otherwise = hi::Block::make(list(b.otherwise), moved(merged(b, &Branch::Merge::otherwise)));
  const std::string taken = names("taken");
  std::vector<Stmt> made = {stored_at(taken, Halide::cast<int32_t>(loaded(type(b.condition), value_name(b.condition), 0)), 0),
                            where(loaded(Halide::Int(32), taken, 0), then, otherwise)};
  push(made, number_in(taken));
  return on_stack(taken, Halide::Int(32), 1, hi::Block::make(made));
}

}  // namespace xhat::runtime

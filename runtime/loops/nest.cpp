#include "runtime/loops/nest.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "cse/normalize/auto_inliner.h"
#include "expr/core/machine_model.h"
#include "expr/index/loop_bounds.h"
#include "expr/rules/simplify.h"
#include "runtime/cpu/ir/ramps.h"
#include "runtime/cpu/ir/statements.h"
#include "runtime/cpu/ir/without_fma.h"
#include "runtime/emit/emit.h"
#include "runtime/emit/emit_ops.h"
#include "runtime/emit/first_extreme.h"
#include "runtime/loops/nest_pieces.h"
#include "runtime/loops/nest_together.h"
#include "runtime/loops/nest_vectors.h"

namespace xhat::runtime {
namespace {

Stmt in_order(const std::vector<Stmt>& all) { return hi::Block::make(all); }

class Nest {
 public:
  Nest(const KernelSpec& spec, const std::function<NestPlace(uint32_t)>& place, const Halide::Target& target, NestNames& names)
      : spec_(spec), a_(*spec.arena), target_(target), names_(names), emit_{spec_, {}, {}, {}, {}, {}} {
    emit_.loops_by_halide = false;
    for (uint32_t t = 0; t < spec_.tensors.size(); ++t) {
      const std::string name = names_("t");
      emit_.inputs.emplace_back(storage_type(spec_.tensors[t].type), static_cast<int>(spec_.tensors[t].shape.size()), name);
      tensors_[name] = t;
      places_.push_back(place(t));
    }
  }

  Stmt all() {
    std::vector<ReadyPiece> pieces;
    for (const SpecMember& m : spec_.members)
      for (const Piece& piece : pieces_of(spec_, m, places_[m.tensor].added))
        if (std::optional<ReadyPiece> made = ready(piece)) pieces.push_back(std::move(*made));
    std::vector<Stmt> made;
    for (const std::vector<ReadyPiece>& group : together(spec_, std::move(pieces), places_)) made.push_back(written(group));
    if (made.empty()) return hi::Evaluate::make(0);
    return in_order(made);
  }

 private:
  using Loop = NestLoop;

  KernelSpec spec_;
  Arena& a_;
  std::vector<int64_t> first_;  // of the piece being made
  const Halide::Target& target_;
  NestNames& names_;
  Emitter emit_;
  std::vector<NestPlace> places_;
  std::map<std::string, uint32_t> tensors_;
  Emitter::Axes axes_;

  struct Loads : hi::IRGraphMutator {
    using hi::IRGraphMutator::visit;
    explicit Loads(const Nest& n) : nest(n) {}
    const Nest& nest;
    Expr visit(const hi::Call* op) override {
      if (is_hint(op)) return mutate(op->args[0]);
      if (op->call_type != hi::Call::Image) return hi::IRGraphMutator::visit(op);
      std::vector<Expr> args;
      for (const Expr& x : op->args) args.push_back(mutate(x));
      std::ranges::reverse(args);
      const NestPlace& place = nest.places_[nest.tensors_.at(op->name)];
      if (place.value.defined()) return Halide::cast(op->type, place.value);
      return loaded(op->type, place.buffer, element(place, args));
    }
  };
  static Expr element(const NestPlace& place, const std::vector<Expr>& at) {
    Expr index = place.offset;
    for (size_t d = 0; d < at.size(); ++d) index = index + at[d] * static_cast<int32_t>(place.strides[d]);
    return index;
  }
  // Parts in common get names first: what makes floats strict walks through each of their uses.
  Expr finished(const Expr& e) const { return hi::strictify_float(hi::common_subexpression_elimination(Loads(*this).mutate(e))); }
  Expr value(Id id) const { return finished(emit_.value(id, axes_)); }
  Expr index(Id id) const { return finished(emit_.local_index(id, kNone, axes_)); }

  // One step of a loop nest, from its axes: a loop over each, conditions as its bounds.
  Stmt loops(const std::vector<Loop>& list, size_t k, const std::function<Stmt()>& inside) {
    if (k == list.size()) return inside();
    const auto [first, end] = bounds(list[k]);
    const std::string name = names_("i");
    axes_[list[k].axis] = int_variable(name);
    const Stmt body = loops(list, k + 1, inside);
    axes_.erase(list[k].axis);
    return serial(name, first, end - first, body);
  }

  std::pair<Expr, Expr> bounds(const Loop& l) {
    Expr first = 0, end = static_cast<int32_t>(spec_.axes.at(l.axis).extent);
    LoopBounds found;
    for (Id c : l.guards) bound_by(a_, c, l.axis, &found);
    for (Id b : found.begins) first = Halide::max(first, index(b));
    for (Id e : found.ends) end = Halide::min(end, index(e));
    if (found.begins.empty() && found.ends.empty()) return {first, end};
    return {hi::simplify(first), hi::simplify(end)};
  }

  // Takes from the conditions those that bound one of the axes by what is known outside of its loop. The axis of vectors has no bounds that
  // other axes inside of it need; where it is in a condition of an axis inside, lanes differ, and the condition stays.
  std::vector<Loop> bounded(const std::vector<Id>& axes, std::set<Id> inside, Id vectors, std::vector<Id>* conditions) {
    std::vector<Loop> list;
    for (Id x : axes) {
      list.push_back({x, {}});
      inside.erase(x);
      std::erase_if(*conditions, [&](Id c) {
        if (!a_[c].depends_on(x) || (vectors != kNone && x != vectors && a_[c].depends_on(vectors))) return false;
        if (std::ranges::any_of(inside, [&](Id other) { return a_[c].depends_on(other); })) return false;
        LoopBounds bounds;
        if (!bound_by(a_, c, x, &bounds)) return false;
        list.back().guards.push_back(c);
        return true;
      });
    }
    return list;
  }

  std::vector<Expr> at(const SpecMember& m) const {
    std::vector<Expr> index;
    for (size_t k = 0; k < m.left.size(); ++k) index.push_back(axes_.at(m.left[k]) + static_cast<int32_t>(first_[k]));
    return index;
  }

  Stmt leave(const SpecMember& m, const Expr& computed, const std::vector<Expr>& at) const {
    const NestPlace& place = places_[m.tensor];
    const Halide::Type type = storage_type(spec_.tensors[m.tensor].type);
    Expr value = computed.type() == type ? computed : finished(ops::as_stored(type, computed));
    const Expr index = element(place, at);
    if (place.added) value = hi::strictify_float(loaded(type, place.buffer, index) + value);
    return stored_at(place.buffer, value, index);
  }

  // Is it what lies there already?
  bool is_there(const SpecMember& m) const { return m.reduced.empty() && is_true(a_, m.condition) && is_there(m, m.body); }
  bool is_there(const SpecMember& m, Id body) const {
    const Node n = a_[body];
    if (!is_read(n.op)) return false;
    const NestPlace &to = places_[m.tensor], &from = places_[n.symbol];
    if (to.added || from.value.defined() || from.buffer != to.buffer || from.strides != to.strides || !hi::equal(from.offset, to.offset))
      return false;
    return is_own_element(spec_, m, first_, n);
  }

  // Axes of one place have no loop. None: there is nothing to do.
  std::optional<ReadyPiece> ready(const Piece& piece) {
    const SpecMember& m = piece.member;
    if (!m.scatter.empty()) return ReadyPiece{piece, {}, {}};
    first_ = piece.first;
    if (is_there(m)) return {};
    ReadyPiece made{piece, {}, {}};
    SpecMember& local = made.piece.member;
    Replacements ones;
    for (Id x : m.left)
      if (spec_.axes.at(x).extent == 1) ones[x] = a_.integer(0), axes_[x] = 0;
    if (!ones.empty())
      for (Id* id : {&local.body, &local.condition}) *id = simplify(a_, with_collected_indices(a_, substitute(a_, *id, ones)));
    const bool added = places_[m.tensor].added;
    std::vector<Id> conditions = conjuncts_of(a_, local.condition);
    // A piece to which nothing is added.
    if (m.reduced.empty() && added && a_[local.body].op == Op::constant && a_[local.body].value == 0) return {};
    made.vectors = vector_axis(spec_, local);
    std::vector<Id> reduced = local.reduced;
    if (auto it = std::ranges::find(reduced, made.vectors); it != reduced.end()) {
      reduced.erase(it);
      reduced.push_back(made.vectors);
    }
    std::vector<Id> left = local.left;
    std::erase_if(left, [&](Id x) { return ones.contains(x); });
    made.along_left = std::ranges::count(left, made.vectors) > 0;
    if (made.along_left) {
      std::erase(left, made.vectors);
      left.push_back(made.vectors);
    }
    // Where it is added to, places for which nothing is added need no loop.
    std::set<Id> inside(left.begin(), left.end());
    inside.insert(reduced.begin(), reduced.end());
    const Id lanes_differ_along = made.along_left ? made.vectors : kNone;
    std::vector<Id> chosen, *bounding = added ? &conditions : &chosen;
    // Likewise where a choice leaves what lies there (r[i+j] -= … for j in 0..m, of a long r), if vectors do not take all of it at once.
    const Node body = a_[local.body];
    const bool some =
        !added && m.reduced.empty() && conditions.empty() && body.op == Op::select && is_there(m, body.arg(2)) &&
        (!made.along_left || spec_.axes.at(made.vectors).extent >= kManyVectors * lanes_along(spec_, target_, local, made.vectors));
    if (some) chosen = conjuncts_of(a_, body.arg(0));
    made.outer = bounded(left, inside, lanes_differ_along, bounding);
    if (some) local.body = chosen.empty() ? body.arg(1) : a_.select(condition_of(a_, chosen), body.arg(1), body.arg(2));
    for (Id x : left) inside.erase(x);
    made.inner = bounded(reduced, inside, lanes_differ_along, &conditions);
    local.condition = condition_of(a_, conditions);
    if (made.along_left) made.lanes = lanes_along(spec_, target_, local, made.vectors);
    if (!made.along_left && made.vectors != kNone) {
      made.width = lanes_along(spec_, target_, local, made.vectors);
      // Cheap terms are there before the sum of those before them is.
      const bool waits = evaluation_cost_ps(a_, local.body) <= kCheap_ps;
      if (waits && spec_.axes.at(made.vectors).extent >= kLongSum * made.width) made.parts = kParts;
    }
    return made;
  }

  // What is at a point of each, one after the other.
  Stmt written(const std::vector<ReadyPiece>& group) {
    const ReadyPiece& leader = group.front();
    first_ = leader.piece.first;
    if (!leader.piece.member.scatter.empty()) return scatter(leader.piece.member);
    emit_.inside_along = inside_along(group);
    auto points = [&](int lanes) {
      const std::string lane = std::exchange(lane_, "");
      std::vector<Stmt> made;
      if (!leader.piece.member.reduced.empty() && !is_place(leader.piece.member.op)) return summed(group, lane, lanes);
      for (const ReadyPiece& r : group) {
        first_ = r.piece.first;
        lane_ = lane;
        made.push_back(point(r, lanes));
      }
      return in_order(made);
    };
    if (!leader.along_left) return loops(leader.outer, 0, [&] { return points(1); });
    const std::vector<Loop> scalar(leader.outer.begin(), leader.outer.end() - 1);
    return loops(scalar, 0, [&] { return in_vectors(leader.outer.back(), leader.lanes, points); });
  }
  // The axis of vectors, if bounds of its loop keep all reads inside that depend on it.
  Id inside_along(const std::vector<ReadyPiece>& group) const {
    const ReadyPiece& leader = group.front();
    if (!leader.along_left || leader.outer.back().guards.empty()) return kNone;
    const auto& [axis, guards] = leader.outer.back();
    for (const ReadyPiece& r : group)
      if (!keep_inside(spec_, guards, axis, reads_in(a_, std::array{r.piece.member.body, r.piece.member.condition}))) return kNone;
    return axis;
  }
  Stmt point(const ReadyPiece& r, int lanes) {
    const SpecMember& m = r.piece.member;
    return is_place(m.op) ? place_of_extreme(m, r.inner, r.along_left ? kNone : r.vectors, lanes) : mapped(m, lanes);
  }

  static constexpr int64_t kManyVectors = 4;  // along an axis, beside which a loop with bounds of its own counts little
  static constexpr int64_t kShortAxis = 8;    // vectors: of longer ones what is left counts little
  static constexpr int kParts = 4;            // a sum of vectors is added up in: an addition takes four clocks, and one can begin in each
  static constexpr int64_t kLongSum = 16;     // vectors: shorter sums are added up in one part

  // A loop in vectors, of so many parts at once, and what is left one by one. inside(lanes) makes one step: its axis is a vector of that many.
  Stmt in_vectors(const Loop& l, int lanes, const std::function<Stmt(int)>& inside, int parts = 1) {
    const auto [from, end] = bounds(l);
    const bool known = l.guards.empty();
    const int64_t extent = spec_.axes.at(l.axis).extent;
    const std::string rest = names_("i");
    std::vector<Stmt> made;
    Expr first = from;
    int64_t done = 0;  // of a known extent
    for (const int beside : parts == 1 ? std::vector{1} : std::vector{parts, 1}) {
      const int many = beside * lanes;
      const std::string block = names_("b");
      const Expr whole = known ? Expr(static_cast<int32_t>((extent - done) / many)) : hi::simplify(Halide::max(end - first, 0) / many);
      std::vector<Stmt> steps;
      for (part_ = 0; part_ < beside && (!known || extent - done >= many); ++part_) {
        const std::string lane = names_("v");
        axes_[l.axis] = first + int_variable(block) * many + part_ * lanes + int_variable(lane);
        steps.push_back(inside(lanes_in_loop(lane, lanes)));
      }
      part_ = 0;
      if (!steps.empty()) made.push_back(serial(block, 0, whole, in_order(steps)));
      done += (extent - done) / many * many;
      first = known ? from + static_cast<int32_t>(done) : hi::simplify(first + whole * many);
    }
    // What is left of a short axis, in shorter vectors.
    for (int fewer = lanes / 2; known && extent < kShortAxis * lanes && fewer >= 2; fewer /= 2)
      if (extent - done >= fewer) {
        const std::string shorter = names_("v");
        axes_[l.axis] = from + static_cast<int32_t>(done) + int_variable(shorter);
        made.push_back(inside(lanes_in_loop(shorter, fewer)));
        done += fewer;
      }
    if (!known || done < extent) {
      axes_[l.axis] = int_variable(rest);
      const Expr begin = known ? Expr(static_cast<int32_t>(done)) : first;
      made.push_back(serial(rest, begin, end - begin, inside(lanes_in_loop("", 1))));
    }
    axes_.erase(l.axis);
    return in_order(made);
  }
  int lanes_in_loop(const std::string& lane, int lanes) {
    lane_ = lane;
    return lanes;
  }
  std::string lane_;  // the variable of the vector that the point being made is in
  int part_ = 0;      // of the vectors beside each other, the one that is being made

  Stmt mapped(const SpecMember& m, int lanes) {
    const std::string lane = std::exchange(lane_, "");
    Stmt s;
    if (is_true(a_, m.condition)) {
      s = leave(m, value(m.body), at(m));
    } else {
      const Expr zero = hi::make_zero(storage_type(spec_.tensors[m.tensor].type));
      s = leave(m, finished(Halide::select(emit_.condition(m.condition, axes_), emit_.value(m.body, axes_), zero)), at(m));
    }
    return lane.empty() ? s : vectorized(lane, lanes, s);
  }

  // An argmax or argmin at one point, or at a vector of points; along: the reduced axis that vectors run along. Held are the best value so far
  // and its place, of each lane. Sizes or the checks of the loop say that there is one.
  Stmt place_of_extreme(const SpecMember& m, const std::vector<Loop>& inner, Id along, int lanes) {
    const std::string lane = std::exchange(lane_, "");
    const DType type = a_[m.body].type;
    const Halide::Type stored = type == DType::boolean ? Halide::UInt(8) : storage_type(type);
    const FirstExtreme extreme(m.op, type);
    const std::string best = names_("best"), place = names_("place"), takes = names_("takes"), value = names_("value");
    auto held = [&](const Expr& slot) { return FirstExtreme::Found{loaded(stored, best, slot), loaded(Halide::Int(32), place, slot)}; };
    auto in_vector = [&](const Stmt& s) { return lane.empty() ? s : vectorized(lane, lanes, s); };
    auto nothing = [&](const Expr& slot) {
      return hi::Block::make(stored_at(best, hi::make_zero(stored), slot), stored_at(place, -1, slot));
    };
    // The slot gets the candidate where that is better.
    auto noted = [&](const Expr& better, const FirstExtreme::Found& candidate, const Expr& slot) {
      const Expr taken = variable(Halide::Bool(), takes);
      const Stmt both = hi::Block::make(stored_at(best, Halide::select(taken, candidate.value, held(slot).value), slot),
                                        stored_at(place, Halide::select(taken, candidate.place, held(slot).place), slot));
      return hi::LetStmt::make(takes, finished(better), both);
    };
    auto step = [&](const Expr& slot) {
      const Expr next = finished(Halide::cast(stored, emit_.value(m.body, axes_)));
      Expr better = held(slot).place < 0 || extreme.better(variable(stored, value), held(slot).value);
      if (!is_true(a_, m.condition)) better = better && emit_.condition(m.condition, axes_);
      return hi::LetStmt::make(value, next, noted(better, {variable(stored, value), axes_.at(m.reduced[0])}, slot));
    };
    const Expr slot = lane.empty() ? Expr(0) : int_variable(lane);
    const Stmt last = in_vector(leave(m, Halide::cast<int64_t>(held(slot).place), at(m)));
    std::vector<Stmt> made;
    int slots = lanes;
    if (along == kNone) {
      made = {in_vector(nothing(slot)), loops(inner, 0, [&] { return in_vector(step(slot)); })};
    } else {  // the lanes of a vector, and what is left, by themselves
      const int width = lanes_along(spec_, target_, m, along);
      slots = width + 1;
      const std::string each = names_("i");
      made.push_back(serial(each, 0, slots, nothing(int_variable(each))));
      made.push_back(in_vectors(inner.back(), width, [&](int n) {
        const std::string at_lane = std::exchange(lane_, "");
        return at_lane.empty() ? step(width) : vectorized(at_lane, n, step(int_variable(at_lane)));
      }));
      const FirstExtreme::Found other = held(int_variable(each));
      made.push_back(serial(each, 1, width, noted(extreme.wins(other, held(0)), other, 0)));
    }
    made.push_back(last);
    return on_stack(best, stored, slots, on_stack(place, Halide::Int(32), slots, in_order(made)));
  }

  // Reductions at one point, or at a vector of points, in one loop over their terms; each is added up as if it were alone.
  Stmt summed(const std::vector<ReadyPiece>& group, const std::string& lane, int lanes) {
    const ReadyPiece& leader = group.front();
    const Id along = leader.along_left ? kNone : leader.vectors;
    struct Sum {
      const ReadyPiece* of;
      Halide::Type stored;
      std::string sum, part;
    };
    std::vector<Sum> sums;
    for (const ReadyPiece& r : group) {
      const DType type = a_[r.piece.member.body].type;
      sums.push_back({&r, type == DType::boolean ? Halide::UInt(8) : storage_type(type), names_("sum"), names_("part")});
    }
    auto in_vector = [&](const Stmt& s) { return lane.empty() ? s : vectorized(lane, lanes, s); };
    const Expr slot = lane.empty() ? Expr(0) : int_variable(lane);
    auto identity = [&](const Sum& s) {
      return Halide::cast(s.stored, Emitter::identity(s.of->piece.member.op, a_[s.of->piece.member.body].type));
    };
    auto step = [&](const Sum& s, const std::string& buffer, const Expr& place) {
      const Expr next = emit_.step(s.of->piece.member, loaded(s.stored, buffer, place), axes_);
      return stored_at(buffer, finished(Halide::cast(s.stored, next)), place);
    };
    auto steps = [&](std::string Sum::*buffer, const Expr& place) {
      std::vector<Stmt> all;
      for (const Sum& s : sums) all.push_back(step(s, s.*buffer, place));
      return in_order(all);
    };
    auto combined = [&](const Sum& s, const Expr& x, const Expr& y) {
      return finished(Halide::cast(s.stored, Emitter::combine(s.of->piece.member.op, x, y)));
    };
    const int width = leader.width, all_lanes = width * leader.parts;
    std::vector<Stmt> made;
    for (const Sum& s : sums) {
      made.push_back(in_vector(stored_at(s.sum, identity(s), slot)));
      const std::string l = names_("v");
      for (int part = 0; along != kNone && part < leader.parts; ++part)
        made.push_back(vectorized(l, width, stored_at(s.part, identity(s), int_variable(l) + part * width)));
    }
    if (along == kNone) {
      made.push_back(loops(leader.inner, 0, [&] { return in_vector(steps(&Sum::sum, slot)); }));
    } else {  // Lanes of a vector, and what is left, are added up apart.
      const std::vector<Loop> outer(leader.inner.begin(), leader.inner.end() - 1);
      made.push_back(loops(outer, 0, [&] {
        return in_vectors(
            leader.inner.back(), leader.width,
            [&](int n) {
              const std::string at_lane = std::exchange(lane_, "");
              return at_lane.empty() ? steps(&Sum::sum, 0)
                                     : vectorized(at_lane, n, steps(&Sum::part, int_variable(at_lane) + part_ * leader.width));
            },
            leader.parts);
      }));
    }
    for (const Sum& s : sums) {
      for (int half = all_lanes / 2; along != kNone && half >= 1; half /= 2) {
        const int lanes_of_half = std::min(half, width);
        for (int from = 0; from < half; from += lanes_of_half) {
          const std::string h = names_("v");
          const Expr low = loaded(s.stored, s.part, int_variable(h) + from), high = loaded(s.stored, s.part, int_variable(h) + from + half);
          const Stmt folded = stored_at(s.part, combined(s, low, high), int_variable(h) + from);
          made.push_back(half == 1 ? hi::substitute(h, 0, folded) : vectorized(h, lanes_of_half, folded));
        }
      }
      if (along != kNone) made.push_back(stored_at(s.sum, combined(s, loaded(s.stored, s.sum, 0), loaded(s.stored, s.part, 0)), 0));
      first_ = s.of->piece.first;
      const SpecMember& m = s.of->piece.member;
      const Expr result = loaded(s.stored, s.sum, slot);
      made.push_back(in_vector(leave(m, a_[m.body].type == DType::boolean ? ops::boolean(result) : result, at(m))));
    }
    Stmt all = in_order(made);
    for (const Sum& s : sums) {
      if (along != kNone) all = on_stack(s.part, s.stored, all_lanes, all);
      all = on_stack(s.sum, s.stored, along == kNone ? lanes : 1, all);
    }
    return all;
  }

  // Terms go where an index says, one by one, or a row at a time.
  Stmt scatter(const SpecMember& m) {
    std::vector<Id> found, conditions = conjuncts_of(a_, m.condition);
    for (const auto& [axis, index] : m.scatter) found.push_back(axis);
    const Id row = vector_axis(spec_, m);
    std::vector<Id> walked;
    for (Id x : m.left)
      if (std::ranges::count(found, x) == 0 && x != row) walked.push_back(x);
    const Halide::Type stored = storage_type(spec_.tensors[m.tensor].type);
    const NestPlace& place = places_[m.tensor];
    std::vector<Stmt> made;
    if (!place.added) {
      std::vector<Loop> all;
      for (Id x : m.left) all.push_back({x, {}});
      made.push_back(loops(all, 0, [&] {
        return stored_at(place.buffer, Halide::cast(stored, Emitter::identity(m.op, spec_.tensors[m.tensor].type)), element(place, at(m)));
      }));
    }
    walked.insert(walked.end(), m.reduced.begin(), m.reduced.end());
    const std::vector<Loop> list = bounded(walked, {walked.begin(), walked.end()}, kNone, &conditions);
    SpecMember local = m;
    local.condition = a_.boolean(true);
    const Id rest = condition_of(a_, conditions);
    made.push_back(loops(list, 0, [&] {
      Expr inside = is_true(a_, rest) ? hi::const_true() : Expr(value(rest));
      for (const auto& [axis, index_of] : m.scatter) {
        const Expr i = index(index_of);
        axes_[axis] = i;
        inside = inside && i >= 0 && i < static_cast<int32_t>(spec_.axes.at(axis).extent);
      }
      auto add = [&](int lanes) {
        const std::string lane = std::exchange(lane_, "");
        const Expr index = element(place, at(m));
        const Expr next = finished(Halide::cast(stored, emit_.step(local, loaded(stored, place.buffer, index), axes_)));
        const Stmt added = stored_at(place.buffer, next, index);
        return lane.empty() ? added : vectorized(lane, lanes, added);
      };
      const Stmt s = hi::IfThenElse::make(inside, row == kNone ? add(1) : in_vectors({row, {}}, lanes_along(spec_, target_, m, row), add));
      for (const auto& [axis, index_of] : m.scatter) axes_.erase(axis);
      return s;
    }));
    return in_order(made);
  }
};

}  // namespace

bool has_nest(const KernelSpec& spec) {
  return std::ranges::none_of(spec.tensors, [](const SpecTensor& t) { return t.type == DType::f16 || t.type == DType::bf16; });
}

Stmt nest(const KernelSpec& spec, const std::function<NestPlace(uint32_t)>& place, const Halide::Target& target, NestNames& names) {
  return Nest(spec, place, target, names).all();
}

Stmt ready_for_code(const Stmt& s, const Halide::Target& target) {
  Stmt made = hi::simplify(s);
  made = hi::vectorize_loops(made, {});
  made = with_mended_ramps(hi::simplify(made), target);
  return target.has_feature(Halide::Target::FMA) ? made : without_fma(made);
}

}  // namespace xhat::runtime

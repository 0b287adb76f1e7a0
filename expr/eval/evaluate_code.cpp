#include "expr/eval/evaluate_code.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

namespace xhat::evaluation {
namespace {

// Fewer points than this in the loop over lanes, and another loop is looked for.
constexpr int64_t kFewLanes = 16;

class Translator {
 public:
  Translator(const Program& p, const DimValues& dims) : a_(*p.arena), dims_(dims) {}

  Code run(const Definition& d) {
    code_.loops.emplace_back();
    std::vector<size_t> order = definition_order(d);
    code_.axis_loops.resize(d.axes.size());
    uint32_t previous = 0;
    for (size_t i : order) {
      Reg begin = expression(d.axes[i].begin), end = expression(d.axes[i].end);
      previous = add_loop(d.axes[i].axis, begin, end, previous, lanes_axis_ == d.axes[i].axis);
      code_.axis_loops[i] = previous;
      if (code_.last_loop)
        code_.loops[code_.last_loop].inner = previous;
      else
        code_.loops[0].inner = previous;
      code_.last_loop = previous;
    }
    code_.result = expression(d.body);
    return std::move(code_);
  }

 private:
  const Arena& a_;
  const DimValues& dims_;
  Code code_;
  Id lanes_axis_ = kNone;                   // of the definition
  std::unordered_map<Id, uint32_t> bound_;  // axes in scope -> their loops
  std::unordered_map<uint64_t, Reg> done_;  // (node, loop it stands in) -> register

  static uint64_t key(Id node, uint32_t loop) { return static_cast<uint64_t>(node) << 32 | loop; }

  std::optional<int64_t> known_extent(const AxisRange& r) const {
    for (Id id : reachable(a_, std::vector<Id>{r.begin, r.end}))
      if (a_[id].op == Op::axis || is_read(a_[id].op) || is_reduction(a_[id].op)) return std::nullopt;
    return std::max<int64_t>(0, evaluate_extent(a_, r.end, dims_) - evaluate_extent(a_, r.begin, dims_));
  }

  // The axis to take lanes from: the last one that has enough points, else the longest.
  std::pair<size_t, int64_t> best_axis(const std::vector<AxisRange>& axes) const {
    size_t best = axes.size();
    int64_t longest = -1;
    for (size_t i = axes.size(); i-- > 0 && longest < kFewLanes;)
      if (int64_t n = known_extent(axes[i]).value_or(-1); n > longest) {
        longest = n;
        best = i;
      }
    return {best, longest};
  }

  std::vector<size_t> definition_order(const Definition& d) {
    std::vector<size_t> order(d.axes.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (order.empty()) return order;
    auto [best, longest] = best_axis(d.axes);
    // A short definition with reductions does better with the lanes inside the reductions.
    bool reduces = std::ranges::any_of(reachable(a_, d.body), [&](Id id) { return is_reduction(a_[id].op); });
    if (longest < kFewLanes && reduces) return order;
    lanes_axis_ = d.axes[best].axis;
    order.erase(order.begin() + static_cast<std::ptrdiff_t>(best));
    order.push_back(best);
    return order;
  }

  Reg add_register(DType type, bool lanes) {
    code_.registers.push_back({type, lanes, false});
    return static_cast<Reg>(code_.registers.size() - 1);
  }

  uint32_t add_loop(Id axis, Reg begin, Reg end, uint32_t parent, bool lanes) {
    auto id = static_cast<uint32_t>(code_.loops.size());
    Loop loop;
    loop.axis = add_register(DType::i64, lanes);
    code_.registers[loop.axis].counts = lanes;
    loop.begin = begin;
    loop.end = end;
    loop.lanes = lanes;
    loop.masked = code_.registers[begin].lanes || code_.registers[end].lanes;
    loop.depth = code_.loops[parent].depth + 1;
    code_.loops.push_back(std::move(loop));
    bound_[axis] = id;
    done_[key(axis, id)] = code_.loops[id].axis;
    return id;
  }

  // The loop that a node stands in: the innermost of those that bind its free axes.
  uint32_t loop_of(Id node) const {
    uint32_t found = 0;
    for (Id axis : a_[node].free_axes()) {
      auto it = bound_.find(axis);
      if (it == bound_.end()) throw Bug("evaluate: axis " + a_.name(axis) + " is not bound");
      if (code_.loops[it->second].depth > code_.loops[found].depth) found = it->second;
    }
    return found;
  }

  bool has_lanes(Id node) const {
    return std::ranges::any_of(a_[node].free_axes(),
                               [&](Id axis) { return code_.loops[bound_.at(axis)].lanes; });
  }

  // Emits what is missing below root, operands first. Bodies of reductions are entered by reduction().
  Reg expression(Id root) {
    std::vector<Id> todo, stack = {root};
    std::unordered_set<Id> seen = {root};
    while (!stack.empty()) {
      Id id = stack.back();
      stack.pop_back();
      if (done_.contains(key(id, loop_of(id)))) continue;
      todo.push_back(id);
      if (is_reduction(a_[id].op)) continue;
      for (Id x : a_[id].args())
        if (seen.insert(x).second) stack.push_back(x);
    }
    std::ranges::sort(todo);
    for (Id id : todo) emit(id);
    return done_.at(key(root, loop_of(root)));
  }

  void emit(Id id) {
    const Node& n = a_[id];
    uint32_t loop = loop_of(id);
    if (n.op == Op::constant || n.op == Op::dim) return preset(id, n);
    Instruction i;
    i.op = n.op;
    i.type = n.type;
    i.out = add_register(n.type, has_lanes(id));
    if (is_reduction(n.op)) {
      i.kind = Instruction::Kind::reduce;
      i.index = reduction(n, loop, i.out);
      places(i, n);
    } else {
      i.first = static_cast<uint32_t>(code_.operands.size());
      i.count = n.arg_count;
      for (Id x : n.args()) code_.operands.push_back(done_.at(key(x, loop_of(x))));
      classify(i, n);
    }
    code_.loops[loop].body.push_back(i);
    done_[key(id, loop)] = i.out;
  }

  void preset(Id id, const Node& n) {
    Preset p{add_register(n.type, false), 0, 0};
    if (n.op == Op::dim)
      p.integer = evaluate_extent(a_, id, dims_);
    else if (is_float(n.type))
      p.real = n.value;
    else
      p.integer = n.integer;
    code_.presets.push_back(p);
    done_[key(id, 0)] = p.out;
  }

  void places(Instruction& i, const Node& n) {
    i.first_place = static_cast<uint32_t>(code_.places.size());
    for (Id axis : n.free_axes()) code_.places.emplace_back(axis, code_.loops[bound_.at(axis)].axis);
    i.place_count = n.axes_count;
  }

  void classify(Instruction& i, const Node& n) {
    using Kind = Instruction::Kind;
    switch (n.op) {
      case Op::read:
      case Op::read_or:
        i.kind = n.op == Op::read ? Kind::read : Kind::read_or;
        i.index = n.symbol;
        places(i, n);
        return;
      case Op::select: i.kind = Kind::select; return;
      case Op::cast: i.kind = Kind::cast; return;
      default: break;
    }
    i.scalar = &scalar(n.op);
    bool from_real = is_float(a_[n.arg(0)].type), to_real = is_float(n.type);
    i.kind = from_real ? (to_real ? Kind::reals : Kind::tests) : (to_real ? Kind::draws : Kind::integers);
    bool there = i.kind == Kind::reals      ? static_cast<bool>(i.scalar->reals)
                 : i.kind == Kind::tests    ? static_cast<bool>(i.scalar->tests)
                 : i.kind == Kind::integers ? static_cast<bool>(i.scalar->integers)
                                            : static_cast<bool>(i.scalar->draws);
    if (!there)
      throw Bug("evaluate: " + std::string(info(n.op).id) + " of " + std::string(name_of(a_[n.arg(0)].type)));
  }

  uint32_t reduction(const Node& n, uint32_t loop, Reg out) {
    std::vector<AxisRange> axes = reduce_axes(n);
    bool take_lanes = !code_.registers[out].lanes && !axes.empty();
    // The same wherever it stands, with lanes or without: equal sums have equal bits. A prod's order is part of its meaning.
    if (n.op != Op::prod) move_longest_last(axes);
    Reduction r{n.op, 0, 0, 0, kNone, out, a_[reduce_body(n)].type};
    uint32_t previous = loop;
    for (const AxisRange& axis : axes) {
      Reg begin = expression(axis.begin), end = expression(axis.end);
      bool last = &axis == &axes.back();
      uint32_t next = add_loop(axis.axis, begin, end, previous, take_lanes && last);
      if (r.first)
        code_.loops[previous].inner = next;
      else
        r.first = next;
      previous = next;
    }
    r.last = previous;
    r.body = expression(reduce_body(n));
    if (!is_true(a_, reduce_condition(n))) r.condition = expression(reduce_condition(n));
    for (const AxisRange& axis : axes) bound_.erase(axis.axis);
    code_.reductions.push_back(r);
    return static_cast<uint32_t>(code_.reductions.size() - 1);
  }

  void move_longest_last(std::vector<AxisRange>& axes) const {
    if (!std::ranges::all_of(axes, [&](const AxisRange& r) { return known_extent(r).has_value(); })) return;
    auto best = axes.begin() + static_cast<std::ptrdiff_t>(best_axis(axes).first);
    std::rotate(best, best + 1, axes.end());
  }
};

}  // namespace

Code translate(const Program& p, const Definition& d, const DimValues& dims) {
  return Translator(p, dims).run(d);
}

}  // namespace xhat::evaluation

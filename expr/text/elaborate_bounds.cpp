// Every read is in bounds wherever it is evaluated: asked of expr/index/affine for each read, in each context it stands in.
//
// The check walks nodes, not text: a node that stands in two branches (or behind a `let`) is checked under the
// conditions of each of its uses, so naming a shared part never changes what is provable. A context is the axes bound
// around a node with their ranges, and the conditions about positions known to hold there; both are interned chains. (Of conditions on data
// alone nothing follows for places. Twenty choices by data in a row would give what they begin with a million contexts.)
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "expr/index/affine.h"
#include "expr/text/elaborate_scope.h"

namespace xhat {

uint32_t Chains::push(uint32_t chain, uint32_t item) {
  auto [it, fresh] = index_.emplace(std::pair{chain, item}, static_cast<uint32_t>(links_.size()));
  if (fresh) links_.push_back({chain, item});
  return it->second;
}

std::vector<uint32_t> Chains::items(uint32_t chain) const {
  std::vector<uint32_t> found;
  for (; chain != kEmpty; chain = links_[chain].first) found.push_back(links_[chain].second);
  std::ranges::reverse(found);
  return found;
}

namespace {

struct Context {
  uint32_t axes = Chains::kEmpty;
  uint32_t conditions = Chains::kEmpty;
  bool operator==(const Context&) const = default;
};

class BoundsCheck {
 public:
  BoundsCheck(OpScope& scope, BodyResult& body) : s_(scope), a_(scope.arena), body_(body) {}

  void run() {
    ids_ = reachable(a_, body_.body);
    for (Id id : ids_) {
      const Node& n = a_[id];
      bool below = std::ranges::any_of(n.args(), [&](Id x) { return has_read_.contains(x); });
      if (is_read(n.op) || below) has_read_.insert(id);
    }
    Context outer;
    for (const AxisRange& r : body_.axes) outer.axes = bind(outer.axes, r);
    enter(body_.body, outer);
    for (size_t i = ids_.size(); i-- > 0;) {
      auto it = contexts_.find(ids_[i]);
      if (it == contexts_.end()) continue;
      std::vector<Context> here = std::move(it->second);
      contexts_.erase(it);
      for (const Context& c : here) visit(ids_[i], c);
    }
  }

 private:
  uint32_t bind(uint32_t chain, const AxisRange& r) {
    auto [it, fresh] = range_index_.emplace(std::array<Id, 3>{r.axis, r.begin, r.end},
                                            static_cast<uint32_t>(ranges_.size()));
    if (fresh) ranges_.push_back(r);
    return axes_.push(chain, it->second);
  }

  void enter(Id id, const Context& c) {
    if (!has_read_.contains(id)) return;
    std::vector<Context>& known = contexts_[id];
    if (std::ranges::find(known, c) == known.end()) known.push_back(c);
  }

  Context with_all(Context c, std::span<const Id> conditions) {
    for (Id x : conditions)
      if (is_about_positions(a_, x)) c.conditions = body_.conditions.push(c.conditions, x);
    return c;
  }

  void visit(Id id, const Context& c) {
    const Node n = a_[id];
    if (n.op == Op::select) {
      enter(n.arg(0), c);
      if (has_read_.contains(n.arg(1))) enter(n.arg(1), with_all(c, conjuncts(a_, n.arg(0))));
      if (has_read_.contains(n.arg(2))) enter(n.arg(2), with_all(c, negated_conjuncts(a_, n.arg(0))));
      return;
    }
    if (is_reduction(n.op)) {
      Context inner = c;
      for (const AxisRange& r : reduce_axes(n)) {
        enter(r.begin, inner);
        enter(r.end, inner);
        inner.axes = bind(inner.axes, r);
      }
      enter(reduce_condition(n), inner);
      bool always = is_true(a_, reduce_condition(n));
      enter(reduce_body(n), always ? inner : with_all(inner, conjuncts(a_, reduce_condition(n))));
      return;
    }
    for (Id x : n.args()) enter(x, c);
    if (n.op != Op::read) return;
    for (size_t d = 0; d < n.arg_count; ++d) ask(id, d, c);
  }

  const AxisRange* range_of(Id axis, const Context& c) const {
    for (uint32_t r : axes_.items(c.axes))
      if (ranges_[r].axis == axis) return &ranges_[r];
    return nullptr;
  }

  // Most reads are x[n,c]: not worth a question.
  bool evident(Id index, Id extent, const Context& c) const {
    const Node& n = a_[index];
    const Node& e = a_[extent];
    if (n.op == Op::constant && e.op == Op::constant) return n.integer >= 0 && n.integer < e.integer;
    if (n.op != Op::axis) return false;
    const AxisRange* r = range_of(index, c);
    return r && r->end == extent && a_[r->begin].op == Op::constant && a_[r->begin].integer >= 0;
  }

  // The axes and conditions that can matter: those connected with the index through conditions and ranges. An axis around
  // the read whose range depends on one of these matters although the index lacks it: the range may be empty.
  void relevant(Id index, const Context& c, std::vector<AxisRange>& axes, std::vector<Id>& conditions) {
    std::vector<AxisRange> scope;
    for (uint32_t r : axes_.items(c.axes)) scope.push_back(ranges_[r]);
    const std::vector<Id> known = body_.conditions.items(c.conditions);
    std::set<Id> wanted(a_[index].free_axes().begin(), a_[index].free_axes().end());
    auto add_axes = [&](Id x) {
      size_t before = wanted.size();
      wanted.insert(a_[x].free_axes().begin(), a_[x].free_axes().end());
      return wanted.size() != before;
    };
    auto meets = [&](Id x) {
      return std::ranges::any_of(a_[x].free_axes(), [&](Id y) { return wanted.contains(y); });
    };
    auto touches = [&](Id x) { return a_[x].free_axes().empty() || meets(x); };
    for (bool more = true; more;) {
      more = false;
      for (const AxisRange& r : scope) {
        if (meets(r.begin) || meets(r.end)) more |= wanted.insert(r.axis).second;
        if (wanted.contains(r.axis)) more |= add_axes(r.begin) | add_axes(r.end);
      }
      for (Id x : known)
        if (touches(x)) more |= add_axes(x);
    }
    for (const AxisRange& r : scope)
      if (wanted.contains(r.axis)) axes.push_back({r.axis, s_.expanded(r.begin), s_.expanded(r.end)});
    for (Id x : known)
      if (touches(x)) conditions.push_back(s_.expanded(x));
  }

  // Conditions on other axes matter where they contradict themselves, and ranges where they are empty: under i != i, and for k in
  // 0..0, nothing is read.
  bool never_read(const Context& c, const BoundsQuestion& q) {
    std::vector<AxisRange> axes;
    std::vector<Id> conditions;
    for (uint32_t r : axes_.items(c.axes))
      axes.push_back({ranges_[r].axis, s_.expanded(ranges_[r].begin), s_.expanded(ranges_[r].end)});
    for (Id x : body_.conditions.items(c.conditions)) conditions.push_back(s_.expanded(x));
    if (conditions.size() == q.conditions.size() && axes.size() == q.axes.size()) return false;
    return prove_bounds(a_, {axes, conditions, q.index, q.extent}).verdict == BoundsAnswer::Verdict::proved;
  }

  void ask(Id read, size_t dimension, const Context& c) {
    Id index = a_[read].arg(dimension);
    Id extent = s_.program.tensors[a_[read].symbol].shape[dimension];
    if (has_read_.contains(index) || evident(index, extent, c)) return;
    std::vector<AxisRange> axes;
    std::vector<Id> conditions;
    relevant(index, c, axes, conditions);
    BoundsQuestion q{axes, conditions, s_.expanded(index), s_.expanded(extent)};
    std::vector<Id> key = {q.index, q.extent};
    for (const AxisRange& r : axes) key.insert(key.end(), {r.axis, r.begin, r.end});
    key.push_back(kNone);
    key.insert(key.end(), conditions.begin(), conditions.end());
    if (!s_.asked.emplace(key, 1).second) return;
    BoundsAnswer answer = prove_bounds(a_, q);
    bool proved = answer.verdict == BoundsAnswer::Verdict::proved;
    if (!proved && never_read(c, q)) return;
    switch (answer.verdict) {
      case BoundsAnswer::Verdict::proved: return;
      case BoundsAnswer::Verdict::unknown:
        if (out_of_reach(a_, q.index)) return;  // asked when a kernel runs
        return leave_open(read, dimension, c, q);
      case BoundsAnswer::Verdict::precondition:
        for (auto [dim, least] : answer.safe)
          s_.require(a_.binary(Op::le, a_.integer(least), dim), reason(read, dimension, c),
                     occurrence(read, c).second);
        return;
      case BoundsAnswer::Verdict::violated:
        fail(read, dimension, c, answer.example);
    }
  }

  // Decided when the sizes are known; but what falls outside at all sizes tried need not wait for them.
  void leave_open(Id read, size_t dimension, const Context& c, BoundsQuestion q) {
    std::vector<Id> conditions(q.conditions.begin(), q.conditions.end());
    std::erase_if(conditions, [&](Id x) { return !tensors_read(a_, x).empty(); });  // they may hold, whatever the sizes
    q.conditions = conditions;
    BoundsAnswer tried = try_sizes(a_, q);
    if (tried.verdict == BoundsAnswer::Verdict::violated) fail(read, dimension, c, tried.example);
    s_.require(open_question(a_, q), reason(read, dimension, c), occurrence(read, c).second);
  }

  std::pair<std::string, Pos> occurrence(Id read, const Context& c) {
    auto it = body_.reads.find(read);
    if (it == body_.reads.end()) return {text_of(s_, read), {}};
    const Occurrence* best = &it->second.front();
    for (const Occurrence& o : it->second)
      if (with_all({}, body_.conditions.items(o.conditions)).conditions == c.conditions) {
        best = &o;
        break;
      }
    return {ast::print(s_.file, best->ref), s_.file.nodes[best->ref].pos};
  }

  std::string dimension_text(Id read, size_t dimension) const {
    const Tensor& t = s_.program.tensors[a_[read].symbol];
    return fmt::format("dimension {} of {}, which has extent {}", dimension, t.name,
                       text_of(s_, t.shape[dimension]));
  }

  std::string reason(Id read, size_t dimension, const Context& c) {
    const Tensor& t = s_.program.tensors[a_[read].symbol];
    return fmt::format("{} reads element {} of {}'s dimension {} ({})", occurrence(read, c).first,
                       text_of(s_, a_[read].arg(dimension)), t.name, dimension,
                       text_of(s_, t.shape[dimension]));
  }

  [[noreturn]] void fail(Id read, size_t dimension, const Context& c, const std::string& example) {
    auto [text, pos] = occurrence(read, c);
    std::string with_else = text.ends_with(']') ? text.substr(0, text.size() - 1) + " else 0]" : text;
    throw Error(
        fmt::format(
            "{} can fall outside {}: {}; write {}, a condition around it, or a range that keeps it inside",
            text, dimension_text(read, dimension), example, with_else),
        pos);
  }

  OpScope& s_;
  Arena& a_;
  BodyResult& body_;
  std::vector<Id> ids_;
  std::unordered_set<Id> has_read_;
  std::unordered_map<Id, std::vector<Context>> contexts_;
  Chains axes_;
  std::vector<AxisRange> ranges_;
  std::map<std::array<Id, 3>, uint32_t> range_index_;
};

}  // namespace

void check_bounds(OpScope& scope, BodyResult& result) { BoundsCheck(scope, result).run(); }

void OpScope::require(Id condition, const std::string& reason, Pos pos) {
  for (const Precondition& p : program.preconditions)
    if (p.condition == condition) return;
  program.preconditions.push_back({condition, reason, pos});
}

void OpScope::require_extent(Id extent, const std::string& what, Pos pos) {
  Id e = expanded(extent);
  if (arena[e].op == Op::dim) return;
  if (arena[e].op == Op::constant) {
    if (arena[e].integer >= 0) return;
    throw Error(fmt::format("{} has the extent {}; extents are 0 or more", what, arena[e].integer), pos);
  }
  BoundsQuestion q{{}, {}, e, arena.add(e, arena.integer(1))};
  BoundsAnswer answer = prove_bounds(arena, q);
  std::string reason =
      fmt::format("{} has the extent {}, which must not be negative", what, text_of(*this, extent));
  switch (answer.verdict) {
    case BoundsAnswer::Verdict::proved: return;
    case BoundsAnswer::Verdict::precondition:
      for (auto [dim, least] : answer.safe)
        require(arena.binary(Op::le, arena.integer(least), dim), reason, pos);
      return;
    case BoundsAnswer::Verdict::violated:
    case BoundsAnswer::Verdict::unknown:
      require(arena.binary(Op::le, arena.integer(0), e), reason, pos);
      return;
  }
}

bool OpScope::same_extent(Id x, Id y) {
  if (x == y) return true;
  auto [it, fresh] = equal_extents.emplace(std::minmax(x, y), false);
  if (fresh) it->second = provably_equal(arena, expanded(x), expanded(y));
  return it->second;
}

Id OpScope::expanded(Id expression) {
  return dim_definitions.empty() ? expression : substitute(arena, expression, dim_definitions);
}

}  // namespace xhat

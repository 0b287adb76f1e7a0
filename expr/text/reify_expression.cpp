// The inverse of elaboration for one body. Two things decide the text:
//
// Types. Number constants and expressions of dims are printed bare and take their type from a typed sibling, as
// elaboration gives it back (elaborate_number.h). Where all operands of an operation would be bare, elaboration would
// fold them, so the first gets a cast. Text carries that along: typed; or untyped, and then pure (one number) or not.
//
// Sharing. A body is cut into regions: the body itself, and the body, condition and ranges of each reduction. A part
// belongs to the outermost region where its free axes are bound, and gets a `let` at that region's start if it is used
// twice. Order and names follow from the structure alone, never from ids, so equal programs print the same text.
#include "expr/text/reify_expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <unordered_set>

#include "expr/core/node_table.h"
#include "expr/core/syntax.h"
#include "expr/text/elaborate_scope.h"

namespace xhat {
namespace {

using ast::Kind;
using ast::Ref;

// Parts of this size are repeated instead of named: i + r - 1, N * H * W.
constexpr uint32_t kSmall = 12;
// The parser takes 256 nested brackets; deeper parts get a name although they are used once.
constexpr int kDeep = 100;

struct Emitted {
  Ref ref = ast::kAbsent;
  bool untyped = false;
  bool pure = false;      // untyped, of literals and dims only
  bool constant = false;  // a literal
  int depth = 0;          // of brackets, at most
};

struct Let {
  Ref let = ast::kAbsent;
  Emitted value;
  std::vector<Ref> uses;
  bool forced = false;
};

class Reifier {
 public:
  Reifier(const Program& p, ast::File& file, Id root) : p_(p), a_(*p.arena), f_(file), parts_(reachable(a_, root)) {}

  Ref run(Id root, std::span<const AxisRange> scope, bool typed) {
    measure();
    std::set<Id> bound;
    for (const AxisRange& r : scope) bound.insert(r.axis);
    Emitted e = region(root, bound);
    if (typed && e.untyped && a_[root].type != DType::f32) e = wrapped(e, a_[root].type);
    inline_single_uses();
    name_lets(root, scope);
    return e.ref;
  }

 private:
  // --- what is repeated, and what is shared -----------------------------------------------------------------------

  struct Measure {
    uint32_t size = 0;  // as a tree, saturated
    bool small = false;
    bool numbers = false;  // constants, axes, dims and arithmetic on them
    bool pure = false;     // numbers without axes
    bool reads = false;    // a read at anything but axes
  };

  // What is known of a part below the root.
  struct Part {
    Measure measure;
    bool apart = false;            // right operand of && or || that needs a name
    size_t let = SIZE_MAX;         // it has one here
    std::optional<Emitted> built;  // it waits for its one use
  };

  void measure() {
    for (Id id : parts_.ids()) {
      const Node& n = a_[id];
      Measure m{1, false, !is_read(n.op) && !is_reduction(n.op), n.op != Op::axis};
      bool small_args = true;
      for (Id x : n.args()) {
        const Measure& below = parts_[x].measure;
        m.size = std::min(m.size + below.size, 1000u);
        m.numbers &= below.numbers;
        small_args &= below.small;
        m.reads |= below.reads;
      }
      m.pure &= m.numbers && std::ranges::all_of(n.args(), [&](Id x) { return parts_[x].measure.pure; });
      if (n.op == Op::read)
        m.reads |=
            std::ranges::any_of(n.args(), [&](Id x) { return a_[x].op != Op::axis && a_[x].op != Op::dim; });
      if ((n.op == Op::land || n.op == Op::lor) && parts_[n.arg(1)].measure.reads) {
        // Bare, `a && x[i-1] > 0` would be read as a select; `let t = x[i-1] > 0 in a && t` is a conjunction.
        parts_[n.arg(1)].apart = true;
        parts_[n.arg(1)].measure.small = false;
      }
      bool arithmetic = n.op != Op::select && (is_integer(n.type) || m.pure);
      m.small = n.arg_count == 0 || (is_read(n.op) && small_args && m.size <= 2 * kSmall) ||
                (m.numbers && arithmetic && m.size <= kSmall);
      parts_[id].measure = m;
    }
  }

  bool inside(Id id, const std::set<Id>& bound) const {
    return std::ranges::all_of(a_[id].free_axes(), [&](Id x) { return bound.contains(x); });
  }

  bool is_done(Id id) const {
    const Part& part = parts_[id];
    return part.measure.small || part.let != SIZE_MAX || part.built;
  }

  // Children before parents, by the order of operands.
  std::vector<Id> postorder(Id root) const {
    std::vector<Id> found;
    std::unordered_set<Id> seen = {root};
    std::vector<std::pair<Id, uint32_t>> stack = {{root, 0}};
    while (!stack.empty()) {
      auto& [id, next] = stack.back();
      if (next == a_[id].arg_count) {
        found.push_back(id);
        stack.pop_back();
        continue;
      }
      Id child = a_[id].arg(next++);
      if (!is_done(child) && seen.insert(child).second) stack.push_back({child, 0});
    }
    return found;
  }

  // How often each part would be written in this region, saturated at 2.
  std::unordered_map<Id, int> counted(const std::vector<Id>& order, const std::set<Id>& bound) const {
    std::unordered_map<Id, int> count = {{order.back(), 1}};
    for (size_t i = order.size(); i-- > 0;) {
      Id id = order[i];
      bool here = inside(id, bound);
      int times = here ? 1 : count[id];
      for (Id x : a_[id].args())
        if (!is_done(x)) count[x] = std::min(count[x] + times, 2);
    }
    return count;
  }

  Emitted region(Id root, const std::set<Id>& bound) {
    if (is_done(root)) return use(root);
    std::vector<Id> order = postorder(root);
    std::unordered_map<Id, int> count = counted(order, bound);
    std::vector<std::pair<Id, size_t>> lets;
    for (Id id : order) {
      if (!inside(id, bound)) continue;
      Emitted e = node(id, bound);
      bool apart = (e.depth >= kDeep || parts_[id].apart) && id != root;
      if (count.at(id) < 2 && !apart) {
        parts_[id].built = e;
        continue;
      }
      lets.push_back({id, lets_.size()});
      parts_[id].let = lets_.size();
      lets_.push_back({ast::kAbsent, e, {}, apart});
    }
    Emitted body = use(root);
    for (size_t i = lets.size(); i-- > 0;) {
      Let& let = lets_[lets[i].second];
      ast::Node n = make(Kind::let, {});
      n.args = {let.value.ref, body.ref};
      let.let = body.ref = f_.add(std::move(n));
      parts_[lets[i].first].let = SIZE_MAX;
    }
    for (Id id : order) parts_[id].built.reset();  // a range that is not written leaves its parts unused
    return body;
  }

  // --- text ---------------------------------------------------------------------------------------------------

  static ast::Node make(Kind kind, std::string text) {
    ast::Node n{};
    n.kind = kind;
    n.text = std::move(text);
    return n;
  }

  Ref add(Kind kind, std::string text, std::vector<Ref> args = {}) {
    ast::Node n = make(kind, std::move(text));
    n.args = std::move(args);
    return f_.add(std::move(n));
  }

  Emitted wrapped(const Emitted& e, DType type) {
    Emitted r;
    r.ref = add(Kind::call, std::string(name_of(type)), {e.ref});
    r.depth = e.depth + 1;
    return r;
  }

  Emitted typed(const Emitted& e, Id id) { return e.untyped ? wrapped(e, a_[id].type) : e; }

  // The text of a part at the place where it is used.
  Emitted use(Id id) {
    if (size_t at = parts_[id].let; at != SIZE_MAX) {
      Let& let = lets_[at];
      Emitted e = let.value;
      e.ref = add(Kind::name, "");
      e.depth = let.forced ? 0 : e.depth;
      let.uses.push_back(e.ref);
      return e;
    }
    if (auto& built = parts_[id].built) {
      Emitted e = *built;
      built.reset();
      return e;
    }
    return node(id, {});  // small: no reductions below
  }

  Emitted node(Id id, const std::set<Id>& bound) {
    const Node& n = a_[id];
    if (n.op == Op::constant) return constant(n);
    if (n.op == Op::axis) return {add(Kind::name, a_.name(id))};
    if (n.op == Op::dim) return {add(Kind::name, a_.name(id)), true, true};
    if (is_read(n.op)) return read(n);
    if (n.op == Op::cast) return cast(n);
    if (n.op == Op::select) return select(id, n);
    if (is_reduction(n.op)) return reduce(n, bound);
    return operation(id, n);
  }

  Emitted constant(const Node& n) {
    if (n.type == DType::boolean) return {add(Kind::boolean, n.integer ? "true" : "false")};
    Emitted e{ast::kAbsent, true, true, true};
    bool negative = is_float(n.type) ? std::signbit(n.value) && !std::isnan(n.value) : n.integer < 0;
    if (!is_float(n.type) && n.integer == std::numeric_limits<int64_t>::min()) {
      // Its absolute value is no i64: as a difference, which folds.
      Ref least = add(Kind::unary, "-", {add(Kind::number, "9223372036854775807")});
      e.ref = add(Kind::binary, "-", {least, add(Kind::number, "1")});
      return e;
    }
    std::string text =
        is_float(n.type) ? float_text(std::fabs(n.value)) : fmt::format("{}", std::abs(n.integer));
    e.ref = add(Kind::number, text);
    if (negative) e.ref = add(Kind::unary, "-", {e.ref});
    return e;
  }

  // The shortest text that reads back as the same double: 1e-5, not 1e-05.
  static std::string float_text(double v) {
    if (std::isnan(v)) return "nan";
    std::string text = fmt::format("{}", v);
    size_t at = text.find('e');
    if (at == std::string::npos) return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
    std::string sign = text[at + 1] == '-' ? "-" : "";
    size_t digits = text.find_first_not_of("+-0", at + 1);
    return text.substr(0, at + 1) + sign + text.substr(digits);
  }

  Emitted read(const Node& n) {
    ast::Node r = make(n.arg_count == 0 ? Kind::name : Kind::read, p_.tensors[n.symbol].name);
    Emitted e;
    for (Id x : read_indices(n)) {
      Emitted index = use(x);
      if (index.untyped && a_[x].type != DType::i64) index = wrapped(index, a_[x].type);
      e.depth = std::max(e.depth, index.depth + 1);
      r.args.push_back(index.ref);
    }
    if (n.op == Op::read_or) {
      Emitted outside = use(n.args().back());
      e.depth = std::max(e.depth, outside.depth + 1);
      r.kind = Kind::read;
      r.otherwise = outside.ref;
    }
    e.ref = f_.add(std::move(r));
    return e;
  }

  Emitted cast(const Node& n) {
    Id from = n.arg(0);
    DType type = a_[from].type;
    Emitted e = use(from);
    bool number = e.untyped && e.pure && !e.constant && n.type != type && n.type != DType::boolean;
    // What elaboration makes of a number of dims, spelled as one.
    bool as_float = is_float(n.type) && (n.type == DType::f64 ? a_[from].op == Op::dim : type == DType::f64);
    bool as_int = is_integer(n.type) && type == DType::i64;
    if (number && (as_float || as_int)) return e;
    return wrapped(typed(e, from), n.type);
  }

  Emitted select(Id id, const Node& n) {
    Emitted c = use(n.arg(0)), x = use(n.arg(1)), y = use(n.arg(2));
    Emitted e;
    e.depth = std::max({c.depth, x.depth, y.depth - 1}) + 1;
    // How elaboration spells `a && b` and `a || b` where b must not be evaluated unless a asks for it.
    bool boolean = n.type == DType::boolean;
    const Node& last = a_[n.arg(2)];
    if (boolean && last.op == Op::constant && !last.integer && reads_behind(f_, x.ref)) {
      e.ref = add(Kind::binary, "&&", {c.ref, x.ref});
      return e;
    }
    if (boolean && is_true(a_, n.arg(1)) && reads_behind(f_, y.ref)) {
      e.ref = add(Kind::binary, "||", {c.ref, y.ref});
      return e;
    }
    bool pure = parts_[id].measure.pure;
    bool bare = x.untyped && y.untyped;
    if (bare && pure && n.type != DType::f64 && n.type != DType::i64) {
      x = wrapped(x, n.type);
      bare = false;
    }
    e.untyped = bare;
    e.pure = bare && pure;
    e.ref = add(Kind::choose, "", {c.ref, x.ref, y.ref});
    return e;
  }

  Emitted operation(Id id, const Node& n) {
    const OpInfo& row = info(n.op);
    std::vector<Emitted> args;
    for (Id x : n.args()) args.push_back(use(x));
    bool bare = std::ranges::all_of(args, &Emitted::untyped);
    Emitted e;
    if (bare && !stays_bare(n, row, args)) {
      args[0] = wrapped(args[0], a_[n.arg(0)].type);
      bare = false;
    }
    e.untyped = bare && is_number(row);
    e.pure = e.untyped && parts_[id].measure.pure;
    std::vector<Ref> refs;
    for (size_t i = 0; i < args.size(); ++i) {
      refs.push_back(args[i].ref);
      e.depth = std::max(e.depth, args[i].depth + (i > 0 || row.syntax == Syntax::function ? 1 : 0));
    }
    Kind kind = row.syntax == Syntax::infix    ? Kind::binary
                : row.syntax == Syntax::prefix ? Kind::unary
                                               : Kind::call;
    e.ref = add(kind, std::string(row.text), refs);
    return e;
  }

  static bool is_number(const OpInfo& row) {
    return row.type == TypeRule::same || row.type == TypeRule::same_float ||
           row.type == TypeRule::same_or_bool || row.type == TypeRule::whole;
  }

  // Would elaboration give this node for bare operands? It folds constants, and makes one number of a pure expression.
  bool stays_bare(const Node& n, const OpInfo& row, const std::vector<Emitted>& args) const {
    DType type = a_[n.arg(0)].type;
    bool constants = std::ranges::all_of(args, &Emitted::constant);
    bool pure = std::ranges::all_of(args, &Emitted::pure);
    bool native = type == DType::f64 || type == DType::i64;
    switch (row.type) {
      case TypeRule::whole: return pure ? type == DType::i64 : true;
      case TypeRule::same:
      case TypeRule::same_float: return pure ? native && !constants : true;
      case TypeRule::same_or_bool: return !pure;
      case TypeRule::compare: return type == DType::i64;
      case TypeRule::classify: return type == DType::f64;
      case TypeRule::logic:
      case TypeRule::any: return true;
    }
    throw Bug("unreachable type rule");
  }

  Emitted reduce(const Node& n, std::set<Id> bound) {
    ast::Node r = make(Kind::reduce, std::string(info(n.op).text));
    Emitted e;
    Id condition = reduce_condition(n);
    std::vector<AxisRange> axes = reduce_axes(n);
    for (size_t i = 0; i < axes.size(); ++i) {
      std::vector<Id> places = {reduce_body(n), condition};
      for (size_t j = i + 1; j < axes.size(); ++j) places.insert(places.end(), {axes[j].begin, axes[j].end});
      ast::Axis axis{a_.name(axes[i].axis), ast::kAbsent, ast::kAbsent, {}};
      if (!range_is_inferred(p_, axes[i], places)) {
        axis.begin = region(axes[i].begin, bound).ref;
        axis.end = region(axes[i].end, bound).ref;
      }
      r.axes.push_back(axis);
      bound.insert(axes[i].axis);
    }
    if (!is_true(a_, condition)) {
      Emitted c = region(condition, bound);
      r.condition = c.ref;
      e.depth = c.depth + 1;
    }
    Emitted body = region(reduce_body(n), bound);
    bool index = n.op == Op::argmax || n.op == Op::argmin;
    if (index && body.untyped && a_[reduce_body(n)].type != DType::f32) body = typed(body, reduce_body(n));
    e.depth = std::max(e.depth, body.depth + 1);
    e.untyped = body.untyped && !index;
    r.args = {body.ref};
    e.ref = f_.add(std::move(r));
    return e;
  }

  // --- names of lets --------------------------------------------------------------------------------------------

  // Counting uses across regions may be too high; a let that is used once goes. Inner lets first: an outer one's node
  // is copied from what stands in it.
  void inline_single_uses() {
    std::vector<size_t> order(lets_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::sort(order, {}, [&](size_t i) { return lets_[i].let; });
    for (size_t i : order) {
      let_at_[lets_[i].let] = i;
      for (Ref use : lets_[i].uses) use_at_[use] = i;
    }
    for (size_t i : order) {
      Let& let = lets_[i];
      if (let.uses.size() > 1 || (let.forced && !let.uses.empty())) continue;
      for (Ref use : let.uses) copy(let.value.ref, use);
      Ref at = let.let;
      let.let = ast::kAbsent;
      copy(f_.nodes[at].args[1], at);
    }
  }

  // A let or a use of one that is copied stands at its new place from then on: that is where its name goes.
  void copy(Ref from, Ref to) {
    f_.nodes[to] = f_.nodes[from];
    let_at_.erase(to);  // what stood there is gone
    use_at_.erase(to);
    if (auto it = let_at_.find(from); it != let_at_.end()) lets_[let_at_[to] = it->second].let = to;
    if (auto it = use_at_.find(from); it != use_at_.end())
      std::ranges::replace(lets_[use_at_[to] = it->second].uses, from, to);
  }

  void name_lets(Id root, std::span<const AxisRange> scope) {
    if (std::ranges::all_of(lets_, [](const Let& let) { return let.let == ast::kAbsent; })) return;
    std::set<std::string> taken;
    // Only what is printed: names of tensors that a pass dropped would be forgotten when the text is read back.
    for (TensorId t : p_.inputs) taken.insert(p_.tensors[t].name);
    for (TensorId t : p_.cotangents) taken.insert(p_.tensors[t].name);
    for (const Definition& d : p_.definitions())
      for (TensorId t : d.targets) taken.insert(p_.tensors[t].name);
    for (const Dim& d : p_.dims) taken.insert(a_.name(d.dim));
    for (const AxisRange& r : scope) taken.insert(a_.name(r.axis));
    for (Id axis : all_axes(a_, std::span<const Id>(&root, 1))) taken.insert(a_.name(axis));
    int number = 1;
    for (Let& let : lets_) {
      if (let.let == ast::kAbsent) continue;
      std::string name = fmt::format("t{}", number++);
      while (taken.contains(name)) name = fmt::format("t{}", number++);
      f_.nodes[let.let].text = name;
      for (Ref use : let.uses) f_.nodes[use].text = name;
    }
  }

  const Program& p_;
  const Arena& a_;
  ast::File& f_;
  NodeTable<Part> parts_;
  std::vector<Let> lets_;
  std::unordered_map<Ref, size_t> let_at_, use_at_;  // the lets of these nodes
};

}  // namespace

ast::Ref reify_expression(const Program& p, ast::File& file, Id root, std::span<const AxisRange> scope,
                          bool typed) {
  return Reifier(p, file, root).run(root, scope, typed);
}

}  // namespace xhat

#include "cse/stash/stash_masks.h"

#include <algorithm>
#include <limits>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "cse/match/bodies.h"

namespace xhat {
namespace {

// Whole subexpressions, the outermost first.
Id replaced(Arena& a, Id root, const std::unordered_map<Id, Id>& by) {
  std::unordered_map<Id, Id> done;
  std::vector<Id> args;
  for (Id id : reachable(a, root)) {
    args.clear();
    for (Id x : a[id].args()) args.push_back(done.at(x));
    auto it = by.find(id);
    done[id] = it != by.end() ? it->second : a.with_args(id, args);
  }
  return done.at(root);
}

struct Condition {
  TensorId in;
  std::vector<AxisRange> scope;
  Id id;    // bool, or the sign of a float
  Id held;  // what a mask keeps of it
};

// Of a sign, which of four things it is.
constexpr int64_t kZero = 0, kPositive = 1, kNegative = 2, kNaN = 3;

Id code_of_sign(Arena& a, Id sign) {
  Id u = a[sign].arg(0), zero = a.constant(a[u].type, 0);
  auto byte = [&](Id condition, int64_t code) {
    return a.select(condition, a.integer(code, DType::u8), a.integer(kZero, DType::u8));
  };
  Id codes = a.add(byte(a.binary(Op::lt, zero, u), kPositive), byte(a.binary(Op::lt, u, zero), kNegative));
  return a.add(codes, byte(a.binary(Op::ne, u, u), kNaN));
}

Id sign_of_code(Arena& a, Id code, DType type) {
  auto choose = [&](int64_t which, double value, Id otherwise) {
    return a.select(a.eq(code, a.integer(which, DType::u8)), a.constant(type, value), otherwise);
  };
  Id nan = a.constant(type, std::numeric_limits<double>::quiet_NaN());
  return choose(kZero, 0, choose(kPositive, 1, choose(kNegative, -1, nan)));
}

class Finder {
 public:
  Finder(Program& p, const MaskWorth& worth) : p_(p), a_(*p.arena), worth_(worth) {}

  std::vector<Mask> run() {
    std::vector<Condition> left;
    for (const Condition& c : conditions())
      if (!served(c) && !over_its_own_axes(c)) left.push_back(c);
    for (const Condition& c : left)
      if (!served(c)) over_points_of_a_read(c);
    return std::move(masks_);
  }

 private:
  Program& p_;
  Arena& a_;
  const MaskWorth& worth_;
  std::vector<Mask> masks_;
  std::vector<Id> points_;  // parallel: the read that has exactly the mask's axes
  std::unordered_map<Id, uint64_t> skeletons_;
  struct Kind {
    bool reads;       // anything
    bool of_forward;  // made of forward values, at places that no data decide
  };
  std::unordered_map<Id, Kind> kinds_;

  // The largest boolean expressions all of whose comparisons are of forward values, and signs of these.
  std::vector<Condition> conditions() {
    std::vector<Condition> found;
    for (const Definition& d : p_.backward.definitions) {
      std::vector<AxisRange> scope = d.axes;
      if (is_reduction(a_[d.body].op))
        for (const AxisRange& r : reduce_axes(a_[d.body])) scope.push_back(r);
      classify(d.body);
      std::unordered_set<Id> seen;
      std::vector<Id> open = {d.body};
      while (!open.empty()) {
        Id id = open.back();
        open.pop_back();
        if (!seen.insert(id).second) continue;
        bool sign = a_[id].op == Op::sign && is_float(a_[id].type);
        if ((sign || a_[id].type == DType::boolean) && !is_read(a_[id].op) && kinds_.at(id).of_forward)
          found.push_back({d.target(), scope, id, sign ? code_of_sign(a_, id) : id});
        else
          for (Id x : a_[id].args()) open.push_back(x);
      }
    }
    return found;
  }

  // Classifies the nodes of a body, operands before users. A node is visited once, however many conditions it is part of.
  void classify(Id body) {
    for (Id id : reachable(a_, body)) {
      if (kinds_.contains(id)) continue;
      const Node& n = a_[id];
      Kind kind = {is_read(n.op), n.op != Op::read_or && n.op != Op::random && !is_reduction(n.op)};
      if (n.op == Op::read) kind.of_forward = is_forward(n.symbol);
      for (Id x : n.args()) {
        if (x == kNone) continue;
        if (n.op == Op::read && kinds_[x].reads) kind.of_forward = false;
        kind.reads |= kinds_[x].reads;
        kind.of_forward &= kinds_[x].of_forward;
      }
      // A condition that reads nothing is about positions, and guards its neighbours: it must not move away from them.
      if (n.type == DType::boolean && n.op != Op::constant && !kind.reads) kind.of_forward = false;
      kinds_[id] = kind;
    }
  }

  bool is_forward(TensorId t) { return p_.tensors[t].role == Role::input || p_.forward.definition_of(t); }

  std::vector<Id> reads(Id condition) {
    std::vector<Id> found;
    for (Id id : reachable(a_, condition))
      if (a_[id].op == Op::read) found.push_back(id);
    return found;
  }

  bool all_inside(Id condition, const std::vector<AxisRange>& axes) {
    for (Id read : reads(condition))
      for (size_t i = 0; i < a_[read].arg_count; ++i)
        if (!in_bounds(a_, a_[read].arg(i), p_.tensors[a_[read].symbol].shape[i], axes)) return false;
    return true;
  }

  // One read's indices are axes of the condition, or equal to axes: x[2*(i/2)+i%2] is x[i].
  bool over_its_own_axes(const Condition& c) {
    for (Id read : reads(c.id)) {
      const Node n = a_[read];
      std::vector<AxisRange> axes;
      for (size_t i = 0; i < n.arg_count; ++i)
        for (const AxisRange& r : c.scope) {
          bool whole = is_constant(a_, r.begin, 0) && r.end == p_.tensors[n.symbol].shape[i];
          if (axes.size() == i && whole && equal_in(c.scope, n.arg(i), r.axis)) axes.push_back(r);
        }
      if (axes.size() == n.arg_count && define(c, read, axes)) return true;
    }
    return false;
  }

  // The indices of one read become axes.
  bool over_points_of_a_read(const Condition& c) {
    for (Id read : reads(c.id)) {
      const Node n = a_[read];
      std::vector<AxisRange> axes;
      for (size_t i = 0; i < n.arg_count; ++i)
        axes.push_back({a_.axis(unused_name(i)), a_.integer(0), p_.tensors[n.symbol].shape[i]});
      if (define(c, read, axes)) return true;
    }
    return false;
  }

  std::string unused_name(size_t i) {
    std::string name = "i" + std::to_string(i);
    while (p_.find(name) ||
           std::ranges::any_of(p_.dims, [&](const Dim& d) { return a_.name(d.dim) == name; }))
      name += "_";
    return name;
  }

  // The read's indices are replaced by these axes, wherever they stand.
  bool define(const Condition& c, Id read, const std::vector<AxisRange>& axes) {
    std::unordered_map<Id, Id> at;
    std::vector<Id> shape;
    for (size_t i = 0; i < axes.size(); ++i) {
      at[a_[read].arg(i)] = axes[i].axis;
      shape.push_back(axes[i].end);
    }
    const Id body = replaced(a_, c.held, at), point = replaced(a_, read, at);
    std::set<Id> own;
    for (const AxisRange& r : axes) own.insert(r.axis);
    auto free = a_[body].free_axes();
    if (own.size() != axes.size() || free.size() != axes.size()) return false;
    if (!std::ranges::all_of(free, [&](Id x) { return own.contains(x); })) return false;
    if (!worth_(shape, tensors_read(a_, body)) || !all_inside(body, axes)) return false;
    Definition d;
    d.axes = axes;
    d.body = body;
    d.targets = {p_.add_tensor(p_.tensors[a_[point].symbol].name + "_mask", a_[body].type, shape)};
    masks_.push_back({d, {}});
    points_.push_back(point);
    return served(c);
  }

  bool equal_in(const std::vector<AxisRange>& scope, Id x, Id y) {
    if (x == y) return true;
    Id apart = a_.sub(a_.to(DType::i64, x), a_.to(DType::i64, y));  // 0 <= apart < 1
    return in_bounds(a_, apart, a_.integer(1), scope);
  }

  // A hash that is equal for expressions which same() may find equal: of positions it knows nothing. Without it a program of n masks,
  // each made of the one before (x^x^x^…), takes n^3 steps.
  uint64_t skeleton(Id root) {
    if (auto known = skeletons_.find(root); known != skeletons_.end()) return known->second;
    for (Id id : reachable(a_, root)) {
      if (skeletons_.contains(id)) continue;
      const Node& n = a_[id];
      uint64_t hash = 1;
      if (is_float(n.type) || n.type == DType::boolean) {
        auto mix = [&](uint64_t value) { hash = (hash ^ value) * 0x9e3779b97f4a7c15u, hash ^= hash >> 32; };
        mix(static_cast<uint64_t>(n.op));
        mix(static_cast<uint64_t>(n.type));
        mix(n.arg_count);
        if (n.op == Op::read) mix(n.symbol);
        else if (n.arg_count == 0) mix(id);
        else for (Id x : n.args()) mix(x == kNone ? 0 : skeletons_.at(x));
      }
      skeletons_[id] = hash;
    }
    return skeletons_.at(root);
  }

  // Is a mask, at the indices of one of the condition's reads, this condition?
  bool served(const Condition& c) {
    const uint64_t wanted = masks_.empty() ? 0 : skeleton(c.held);
    for (Id read : reads(c.id))
      for (size_t m = 0; m < masks_.size(); ++m) {
        const Node n = a_[read], point = a_[points_[m]];
        if (n.symbol != point.symbol || skeleton(masks_[m].definition.body) != wanted) continue;
        Replacements at;
        for (size_t i = 0; i < n.arg_count; ++i) at[point.arg(i)] = a_.to(DType::i64, n.arg(i));
        if (!same(substitute(a_, masks_[m].definition.body, at), c.held, c.scope)) continue;
        std::vector<Id> indices(n.args().begin(), n.args().end());
        Id value = a_.read(masks_[m].definition.target(), a_[c.held].type, indices);
        masks_[m].uses.push_back({c.in, c.id, c.held == c.id ? value : sign_of_code(a_, value, a_[c.id].type)});
        return true;
      }
    return false;
  }

  // Equal but for indices that are equal in the scope.
  bool same(Id x, Id y, const std::vector<AxisRange>& scope) {
    std::set<std::pair<Id, Id>> seen;
    std::vector<std::pair<Id, Id>> open = {{x, y}};
    while (!open.empty()) {
      auto [u, v] = open.back();
      open.pop_back();
      if (u == v || !seen.insert({u, v}).second) continue;
      const Node m = a_[u], n = a_[v];
      if (m.op != n.op || m.type != n.type || m.arg_count != n.arg_count || m.arg_count == 0) return false;
      if (m.op == Op::read && m.symbol != n.symbol) return false;
      for (size_t i = 0; i < m.arg_count; ++i) {
        if (m.op != Op::read)
          open.push_back({m.arg(i), n.arg(i)});
        else if (!equal_in(scope, m.arg(i), n.arg(i)))
          return false;
      }
    }
    return true;
  }
};

}  // namespace

std::vector<Mask> find_masks(Program& p, const MaskWorth& worth) { return Finder(p, worth).run(); }

Program with_masks(const Program& p, const std::vector<Mask>& masks) {
  if (masks.empty()) return p;
  Program out = p;
  Arena& a = *out.arena;
  for (Definition& d : out.definitions()) {
    std::unordered_map<Id, Id> to;
    for (const Mask& m : masks)
      for (const Mask::Use& use : m.uses)
        if (use.in == d.target()) to[use.condition] = use.read;
    if (!to.empty()) d.body = replaced(a, d.body, to);
  }
  for (const Mask& m : masks) out.forward.definitions.push_back(m.definition);
  return ordered(out);
}

}  // namespace xhat

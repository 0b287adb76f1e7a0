#include "runtime/loops/loop_adjoints.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "expr/core/conditions.h"
#include "expr/rules/simplify.h"
#include "runtime/loops/nest_pieces.h"
#include "runtime/loops/nest_vectors.h"
#include "runtime/loops/read_before.h"

namespace xhat::runtime {
namespace {

using Is = LoopBlock::Role::Is;

bool stands_for(const LoopBlock::Direction& d, uint32_t tensor, Is what, size_t number) {
  const auto role = d.roles.find(d.spec.tensors[tensor].original);
  return role != d.roles.end() && role->second.is == what && role->second.number == number;
}

std::optional<uint32_t> tensor_of(const LoopBlock::Direction& d, Is what, size_t number) {
  for (uint32_t t = 0; t < d.spec.tensors.size(); ++t)
    if (stands_for(d, t, what, number)) return t;
  return {};
}

// A body in two parts, which add up to it. kNone: zero.
struct Halves {
  Id own = kNone;   // reads the cotangent at the element being made only
  Id rest = kNone;  // all else
};

class Split {
 public:
  Split(Arena& a, uint32_t cotangent, std::span<const Id> left) : a_(a), cotangent_(cotangent), left_(left) {}

  bool reads(Id e) const {
    return std::ranges::any_of(reads_in(a_, std::array{e}), [&](Id id) { return a_[id].symbol == cotangent_; });
  }
  bool is_own(Id e) const {
    const Node& n = a_[e];
    return n.op == Op::read && n.symbol == cotangent_ && std::ranges::equal(read_indices(n), left_);
  }

  Halves of(Id e) {
    const Node n = a_[e];
    if (n.op == Op::constant && n.value == 0) return {};
    const std::vector<Id> all = reads_in(a_, std::array{e});
    if (std::ranges::none_of(all, [&](Id id) { return a_[id].symbol == cotangent_; })) return {kNone, e};
    switch (n.op) {
      case Op::neg: {
        const Halves x = of(n.arg(0));
        return {negative(x.own), negative(x.rest)};
      }
      case Op::add:
      case Op::sub: {
        const Halves x = of(n.arg(0)), y = of(n.arg(1));
        return {joined(n.op, x.own, y.own), joined(n.op, x.rest, y.rest)};
      }
      case Op::select: {
        if (reads(n.arg(0))) break;
        const Halves x = of(n.arg(1)), y = of(n.arg(2));
        return {chosen(n, x.own, y.own), chosen(n, x.rest, y.rest)};
      }
      default: break;
    }
    const bool own = std::ranges::all_of(all, [&](Id id) { return a_[id].symbol != cotangent_ || is_own(id); });
    return own ? Halves{e, kNone} : Halves{kNone, e};
  }

  // As `if changed then … else what is there`, if some of it stays.
  Id as_change(Id e) {
    std::vector<Id> conditions;
    Id there = kNone;
    for (Node n = a_[e]; n.op == Op::select && (is_own(n.arg(1)) || is_own(n.arg(2))); n = a_[e]) {
      const bool stays_where_not = is_own(n.arg(2));
      there = n.arg(stays_where_not ? 2 : 1);
      for (Id c : stays_where_not ? conjuncts(a_, n.arg(0)) : negated_conjuncts(a_, n.arg(0))) conditions.push_back(c);
      e = n.arg(stays_where_not ? 1 : 2);
    }
    return there == kNone ? e : a_.select(condition_of(a_, conditions), e, there);
  }

  // Is it of that form?
  bool stays(Id change) const {
    const Node& n = a_[change];
    return is_own(change) || (n.op == Op::select && is_own(n.arg(2)));
  }

 private:
  Arena& a_;
  const uint32_t cotangent_;
  const std::span<const Id> left_;

  Id negative(Id x) { return x == kNone ? kNone : a_.unary(Op::neg, x); }
  Id joined(Op op, Id x, Id y) {
    if (y == kNone) return x;
    if (x == kNone) return op == Op::sub ? negative(y) : y;
    return a_.binary(op, x, y);
  }
  Id chosen(const Node& n, Id x, Id y) {
    if (x == kNone && y == kNone) return kNone;
    auto or_zero = [&](Id side) { return side == kNone ? a_.constant(n.type, 0) : side; };
    return a_.select(n.arg(0), or_zero(x), or_zero(y));
  }
};

bool is_map(const SpecMember& m) { return m.reduced.empty() && m.scatter.empty(); }

// The definition that makes the gradient of each element once, if there is one, and its body.
struct Own {
  size_t member;
  Halves parts;
};
std::optional<Own> own_of(const KernelSpec& spec, uint32_t gradient, uint32_t cotangent) {
  Arena& a = *spec.arena;
  std::optional<Own> found;
  for (size_t k = 0; k < spec.members.size(); ++k) {
    const SpecMember& m = spec.members[k];
    if (m.tensor != gradient || !is_map(m)) continue;
    if (found) return {};
    const Id body = is_true(a, m.condition) ? m.body : a.select(m.condition, m.body, a.constant(a[m.body].type, 0));
    found = Own{k, Split(a, cotangent, m.left).of(body)};
  }
  if (found && found->parts.own == kNone) return {};
  return found;
}

bool reads(const Arena& a, Id e, uint32_t tensor) {
  return std::ranges::any_of(reads_in(a, std::array{e}), [&](Id id) { return a[id].symbol == tensor; });
}

}  // namespace

std::set<std::pair<size_t, size_t>> found_adjoints_in_place(const LoopBlock& block) {
  std::set<std::pair<size_t, size_t>> found;
  if (!block.backward) return found;
  const LoopBlock::Direction& d = *block.backward;
  const KernelSpec& spec = d.spec;
  struct Pair {
    uint32_t cotangent;
    Id own;
  };
  std::vector<Pair> taken;
  for (uint32_t c = 0; c < spec.tensors.size(); ++c)
    for (uint32_t g = 0; g < spec.tensors.size(); ++g) {
      const auto of_cotangent = d.roles.find(spec.tensors[c].original), of_gradient = d.roles.find(spec.tensors[g].original);
      if (of_cotangent == d.roles.end() || of_cotangent->second.is != Is::cotangent || of_gradient == d.roles.end() || !d.is_added(g))
        continue;
      if (spec.tensors[c].type != spec.tensors[g].type || spec.tensors[c].shape != spec.tensors[g].shape) continue;
      const std::optional<Own> own = own_of(spec, g, c);
      // Where two are written over, neither is made of the other.
      if (!own || std::ranges::any_of(taken, [&](const Pair& other) {
            return other.cotangent != c && (reads(*spec.arena, own->parts.own, other.cotangent) || reads(*spec.arena, other.own, c));
          }))
        continue;
      taken.push_back({c, own->parts.own});
      found.emplace(of_cotangent->second.number, of_gradient->second.number);
    }
  return found;
}

LoopMemory adjoint_memory(const Program& p, const Loop& loop, const LoopBlocks& blocks) {
  LoopMemory in_place(p, loop, [&](const Block& b, size_t result, size_t operand) {
    return blocks.at(&b).adjoints_in_place.contains({result, operand});
  });
  const bool possible =
      std::ranges::all_of(loop.carried, [&](const Carried& c) { return in_place.place(c.entering) == in_place.place(c.result); });
  return possible ? in_place : LoopMemory(p, loop);
}

namespace {

// The operand whose adjoint is written over that of the result.
std::optional<size_t> written_over(const Block& b, const LoopBlock& block, const LoopMemory& adjoints, size_t result) {
  for (const auto& [r, operand] : block.adjoints_in_place) {
    const Operand& o = b.operands[operand];
    if (r == result && o.scalar == kNone && o.row.empty() && adjoints.place(o.value) == adjoints.place(b.results[r])) return operand;
  }
  return {};
}

class InPlace {
 public:
  InPlace(const Block& b, const LoopBlock& block, const LoopMemory& adjoints)
      : b_(b), block_(block), adjoints_(adjoints), made_{*block.backward, {}, {}}, spec_(made_.direction.spec), a_(*spec_.arena) {}

  BackwardInPlace run() {
    for (size_t r = 0; r < b_.results.size(); ++r)
      if (const std::optional<size_t> o = written_over(b_, block_, adjoints_, r)) take(r, *o);
    if (cotangents_.empty()) return std::move(made_);
    // Whatever is added to one of these adjoints comes after what is written over it.
    std::vector<SpecMember> before, after;
    for (SpecMember& m : spec_.members) {
      if (!places_.contains(place_of(m.tensor)))
        before.push_back(std::move(m));
      else if (rests_.contains(m.tensor))
        after.push_back(of_copies(std::move(m)));
      else if (made_.apart.contains(m.tensor) || reads_cotangents(m) || !made_.direction.is_added(m.tensor))
        made_.apart.insert(m.tensor), before.push_back(std::move(m));
      else
        after.push_back(std::move(m));
    }
    // A gradient of which one term is computed apart is apart.
    std::erase_if(after, [&](SpecMember& m) {
      const bool apart = made_.apart.contains(m.tensor);
      if (apart) before.push_back(std::move(m));
      return apart;
    });
    for (auto* list : {&copies_, &written_, &after}) before.insert(before.end(), list->begin(), list->end());
    spec_.members = std::move(before);
    return std::move(made_);
  }

 private:
  const Block& b_;
  const LoopBlock& block_;
  const LoopMemory& adjoints_;
  BackwardInPlace made_;
  KernelSpec& spec_;
  Arena& a_;
  std::set<TensorId> places_;                  // of adjoints that are written over
  std::set<uint32_t> rests_;                   // what is added to the gradients that are written over, under numbers of their own
  std::set<uint32_t> cotangents_;              // that are written over
  std::map<uint32_t, SpecMember> as_written_;  // by cotangent
  std::map<uint32_t, uint32_t> copy_of_;       // by cotangent
  std::vector<SpecMember> copies_, written_;

  // Of the adjoint that a gradient is added to.
  TensorId place_of(uint32_t tensor) const {
    const auto role = made_.direction.roles.find(spec_.tensors[tensor].original);
    if (role == made_.direction.roles.end() || role->second.is != Is::gradient) return kNoTensor;
    const Operand& o = b_.operands[role->second.number];
    return o.scalar == kNone ? adjoints_.place(o.value) : kNoTensor;
  }
  bool reads_cotangents(const SpecMember& m) const {
    return std::ranges::any_of(reads_of(a_, m), [&](Id id) { return cotangents_.contains(a_[id].symbol); });
  }

  bool reads_any_cotangent(Id e) const {
    return std::ranges::any_of(reads_in(a_, std::array{e}), [&](Id id) {
      const auto role = made_.direction.roles.find(spec_.tensors[a_[id].symbol].original);
      return role != made_.direction.roles.end() && role->second.is == Is::cotangent;
    });
  }

  void take(size_t result, size_t operand) {
    const std::optional<uint32_t> c = tensor_of(made_.direction, Is::cotangent, result),
                                  g = tensor_of(made_.direction, Is::gradient, operand);
    const Own own = *own_of(spec_, *g, *c);
    Split split(a_, *c, spec_.members[own.member].left);
    SpecMember written = spec_.members[own.member];
    written.condition = a_.boolean(true);
    written.body = split.as_change(own.parts.own);
    Id rest = own.parts.rest;
    // Where all of it is written anyway, what is added is added there.
    if (rest != kNone && !split.stays(written.body) && !reads_any_cotangent(rest))
      written.body = a_.add(written.body, std::exchange(rest, kNone));
    cotangents_.insert(*c);
    places_.insert(adjoints_.place(b_.results[result]));
    made_.written.insert(*g);
    as_written_.emplace(*c, written);
    if (!split.is_own(written.body)) written_.push_back(written);
    const auto added = static_cast<uint32_t>(spec_.tensors.size());
    spec_.tensors.push_back(SpecTensor(spec_.tensors[*g]));
    rests_.insert(added);
    for (size_t k = 0; k < spec_.members.size(); ++k)
      if (spec_.members[k].tensor == *g) spec_.members[k].tensor = added;
    SpecMember& m = spec_.members[own.member];
    m.condition = a_.boolean(true);
    m.body = rest;
    if (rest == kNone) spec_.members.erase(spec_.members.begin() + static_cast<std::ptrdiff_t>(own.member));
  }

  // With what is read of cotangents before they are written over, or with copies of them.
  SpecMember of_copies(SpecMember m) {
    if (read_before(
            spec_, m, [&](Id read) { return cotangents_.contains(a_[read].symbol); }, copies_))
      return m;
    for (uint32_t c : cotangents_) {
      if (std::ranges::none_of(reads_of(a_, m), [&](Id id) { return a_[id].symbol == c; })) continue;
      const uint32_t copy = copy_of(c);
      auto renamed = [&](Id root) {
        return rewrite(a_, root, [&](Id x) {
          const Node n = a_[x];
          if (!is_read(n.op) || n.symbol != c) return x;
          const std::vector<Id> args(n.args().begin(), n.args().end());
          if (n.op == Op::read) return a_.read(copy, n.type, args);
          return a_.read_or(copy, n.type, std::span(args).first(args.size() - 1), args.back());
        });
      };
      m.body = renamed(m.body);
      m.condition = renamed(m.condition);
      for (auto& [axis, index] : m.scatter) index = renamed(index);
    }
    return m;
  }
  uint32_t copy_of(uint32_t c) {
    const auto [it, fresh] = copy_of_.emplace(c, static_cast<uint32_t>(spec_.tensors.size()));
    if (!fresh) return it->second;
    SpecTensor copy = spec_.tensors[c];
    copy.original = kInternal;
    copy.use = SpecTensor::Use::temporary;
    spec_.tensors.push_back(std::move(copy));
    SpecMember m = as_written_.at(c);
    m.tensor = it->second;
    m.body = a_.read(c, spec_.tensors[c].type, m.left);
    copies_.push_back(std::move(m));
    return it->second;
  }
};

}  // namespace

BackwardInPlace backward_in_place(const Block& b, const LoopBlock& block, const LoopMemory& adjoints) {
  return InPlace(b, block, adjoints).run();
}

bool is_written_over(const Block& b, const LoopBlock& block, const LoopMemory& adjoints, size_t result) {
  return written_over(b, block, adjoints, result).has_value();
}

}  // namespace xhat::runtime

#include "runtime/loops/read_before.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "expr/core/array.h"
#include "expr/core/conditions.h"
#include "expr/index/loop_bounds.h"
#include "runtime/loops/nest_pieces.h"
#include "runtime/loops/nest_vectors.h"

namespace xhat::runtime {
namespace {

class ReadBefore {
 public:
  ReadBefore(KernelSpec& spec, const SpecMember& m, const std::function<bool(Id)>& these)
      : spec_(spec), a_(*spec.arena), m_(m), these_(these) {}

  std::vector<SpecMember> made;

  // e without these reads, where the conditions hold; kNone: it cannot do without.
  Id without(Id e, const std::vector<Id>& conditions) {
    if (!reads_these(e)) return e;
    if (const Id read = made_before(e, conditions); read != kNone) return read;
    const Node n = a_[e];
    std::vector<Id> args(n.args().begin(), n.args().end());
    if (is_read(n.op) || is_reduction(n.op)) return kNone;
    if (n.op == Op::select) {
      if (reads_these(args[0])) return kNone;
      for (size_t side : {1, 2}) {
        std::vector<Id> here = conditions;
        for (Id c : side == 1 ? conjuncts(a_, args[0]) : negated_conjuncts(a_, args[0])) here.push_back(c);
        if ((args[side] = without(args[side], here)) == kNone) return kNone;
      }
      return a_.with_args(e, args);
    }
    for (Id& arg : args)
      if ((arg = without(arg, conditions)) == kNone) return kNone;
    return a_.with_args(e, args);
  }

 private:
  KernelSpec& spec_;
  Arena& a_;
  const SpecMember& m_;
  const std::function<bool(Id)>& these_;
  std::map<Id, Id> reads_;  // by what is made before

  bool reads_these(Id e) const {
    return std::ranges::any_of(reads_in(a_, std::array{e}), [&](Id id) { return these_(id); });
  }

  // The place along the axis that the conditions leave, if it is one.
  Id place(const std::vector<Id>& conditions, Id axis) const {
    for (Id c : conditions)
      if (const Id at = place_by(a_, c, axis); at != kNone) return at;
    return kNone;
  }

  // At the places that conditions name, under all of them: evaluated where e is.
  Id made_before(Id e, std::vector<Id> conditions) {
    std::vector<Id> left;
    for (Id axis : m_.left) {
      const Id at = place(conditions, axis);
      if (at == kNone) {
        left.push_back(axis);
        continue;
      }
      if (std::ranges::any_of(conditions, [&](Id c) { return reads_these(c); }) || reads_these(at)) return kNone;
      const Replacements there = {{axis, at}};
      e = substitute(a_, e, there);
      for (Id& c : conditions) c = substitute(a_, c, there);
      const Id zero = a_.integer(0), end = a_.integer(spec_.axes.at(axis).extent);
      conditions.insert(conditions.begin(), {a_.binary(Op::le, zero, at), a_.binary(Op::lt, at, end)});
    }
    if (left.size() == m_.left.size()) return kNone;
    return read_of(a_.select(condition_of(a_, conditions), e, a_.constant(a_[e].type, 0)), left);
  }

  Id read_of(Id body, const std::vector<Id>& left) {
    if (auto it = reads_.find(body); it != reads_.end()) return it->second;
    SpecMember t;
    t.left = left;
    t.body = body;
    t.condition = a_.boolean(true);
    t.tensor = static_cast<uint32_t>(spec_.tensors.size());
    SpecTensor tensor;
    tensor.original = kInternal;
    tensor.use = SpecTensor::Use::temporary;
    tensor.type = a_[body].type;
    for (size_t i = 0; i < left.size(); ++i) {
      tensor.shape.push_back(spec_.axes.at(left[i]).extent);
      tensor.groups.emplace_back(static_cast<int>(i), static_cast<int>(i));
      tensor.steps.push_back(1);
    }
    spec_.tensors.push_back(tensor);
    made.push_back(t);
    return reads_[body] = a_.read(t.tensor, tensor.type, left);
  }
};

}  // namespace

bool read_before(KernelSpec& spec, SpecMember& m, const std::function<bool(Id)>& these, std::vector<SpecMember>& before) {
  if (!m.reduced.empty() || !m.scatter.empty()) return false;
  const size_t tensors = spec.tensors.size();
  ReadBefore r(spec, m, these);
  const std::vector<Id> reads = reads_in(*spec.arena, std::array{m.condition});
  const Id body = std::ranges::any_of(reads, these) ? kNone : r.without(m.body, conjuncts(*spec.arena, m.condition));
  if (body == kNone) {
    spec.tensors.resize(tensors);
    return false;
  }
  m.body = body;
  before.insert(before.end(), r.made.begin(), r.made.end());
  return true;
}

namespace {

// Where choices leave it as it was: the tensor whose elements these are.
std::set<uint32_t> left_as_they_were(const Arena& a, const SpecMember& m, Id body) {
  const Node n = a[body];
  if (n.op == Op::read && std::ranges::equal(read_indices(n), m.left)) return {n.symbol};
  if (n.op != Op::select) return {};
  std::set<uint32_t> found = left_as_they_were(a, m, n.arg(1));
  found.merge(left_as_they_were(a, m, n.arg(2)));
  return found;
}

// Behind what it reads of the members.
size_t earliest(const KernelSpec& spec, const std::vector<SpecMember>& members, const SpecMember& m) {
  const std::vector<Id> reads = reads_of(*spec.arena, m);
  size_t at = members.size();
  while (at > 0 && std::ranges::none_of(reads, [&](Id id) { return (*spec.arena)[id].symbol == members[at - 1].tensor; })) --at;
  return at;
}

}  // namespace

void read_before_writing(KernelSpec& spec, const std::function<bool(uint32_t)>& is_result,
                         const std::function<bool(uint32_t)>& is_operand) {
  const Arena& a = *spec.arena;
  std::vector<SpecMember> members;
  std::set<uint32_t> written;  // operands that results made so far may lie where they are
  for (SpecMember m : std::vector<SpecMember>(spec.members)) {
    std::vector<SpecMember> before;
    const std::set<uint32_t> own = is_result(m.tensor) && m.reduced.empty() ? left_as_they_were(a, m, m.body) : std::set<uint32_t>();
    for (uint32_t t = 0; is_result(m.tensor) && t < spec.tensors.size(); ++t) {
      if (!is_operand(t) || spec.tensors[t].type != spec.tensors[m.tensor].type || spec.tensors[t].shape != spec.tensors[m.tensor].shape)
        continue;
      auto of_operand = [&](Id read) { return a[read].symbol == t; };
      auto elsewhere = [&](Id read) {
        return of_operand(read) && (!own.contains(t) || !std::ranges::equal(read_indices(a[read]), m.left));
      };
      const std::vector<Id> reads = reads_of(a, m);
      const bool in_the_way = own.contains(t) || (!own.empty() && written.contains(t));
      if (in_the_way && std::ranges::any_of(reads, elsewhere)) read_before(spec, m, elsewhere, before);
    }
    written.insert(own.begin(), own.end());
    for (SpecMember& b : before) members.insert(members.begin() + static_cast<std::ptrdiff_t>(earliest(spec, members, b)), std::move(b));
    members.push_back(std::move(m));
  }
  spec.members = std::move(members);
}

}  // namespace xhat::runtime

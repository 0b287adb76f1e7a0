#include "runtime/loops/loop_memory.h"

#include <algorithm>

namespace xhat::runtime {

LoopMemory::LoopMemory(const Program& p, const Loop& loop, InPlace in_place)
    : p_(p), in_place_(std::move(in_place)), made_(made_within(loop)) {
  for (const Carried& c : loop.carried) made_.insert(c.result);
  Live live;
  std::vector<Move> last;
  for (const Carried& c : loop.carried) live.insert(c.result), last.push_back({c.result, c.entering});
  move(last, live);
  within(loop, live);
  for (Id bound : {loop.begin, loop.end}) read_in(bound, live);
  merge();
  std::ranges::sort(outside_in_order_);
}

TensorId LoopMemory::place(TensorId t) const {
  auto it = parent_.find(t);
  if (it == parent_.end() || it->second == t) return t;
  return it->second = place(it->second);
}

std::vector<TensorId> LoopMemory::places() const {
  std::set<TensorId> found;
  for (TensorId t : made_) found.insert(place(t));
  return {found.begin(), found.end()};
}

void LoopMemory::read(TensorId t, Live& live) {
  if (made_.contains(t))
    live.insert(t);
  else if (outside_.insert(t).second)
    outside_in_order_.push_back(t);
}
void LoopMemory::read_in(Id expression, Live& live) {
  if (expression == kNone) return;
  for (TensorId t : tensors_read(*p_.arena, expression)) read(t, live);
}
void LoopMemory::interfere(TensorId x, TensorId y) {
  if (x == y || !made_.contains(x) || !made_.contains(y)) return;
  interferes_[x].insert(y);
  interferes_[y].insert(x);
}

void LoopMemory::define(TensorId t, const Live& live, TensorId from) {
  for (TensorId x : live)
    if (x != from) interfere(t, x);
}

void LoopMemory::move(const std::vector<Move>& moves, Live& live) {
  for (const Move& m : moves) {
    define(m.to, live, m.from);
    for (const Move& other : moves) {
      interfere(m.to, other.to);
      if (other.from != m.from) interfere(m.to, other.from);
    }
    moves_.push_back(m);
  }
  for (const Move& m : moves) live.erase(m.to);
  for (const Move& m : moves) read(m.from, live);
}

void LoopMemory::list(const Steps& steps, Live& live) {
  for (size_t i = steps.size(); i-- > 0;) std::visit([&](const auto& s) { step(s, live); }, steps[i].is);
}

bool LoopMemory::is_beside(const Block& b, size_t result, TensorId value) const {
  for (size_t i = 0; in_place_ && i < b.operands.size(); ++i) {
    const Operand& o = b.operands[i];
    if (o.scalar == kNone && o.value == value && o.row.empty() && in_place_(b, result, i)) return true;
  }
  return false;
}

bool LoopMemory::is_copied(const Block& b, size_t operand) const {
  const Operand& o = b.operands[operand];
  return o.scalar == kNone && !o.row.empty() && made_.contains(o.value) &&
         std::ranges::any_of(b.results, [&](TensorId r) { return place(r) == place(o.value); });
}

void LoopMemory::step(const Block& b, Live& live) {
  for (size_t k = 0; k < b.results.size(); ++k) {
    const TensorId r = b.results[k];
    define(r, live, kNoTensor);
    for (TensorId other : b.results) interfere(r, other);
    for (size_t i = 0; i < b.operands.size(); ++i) {
      const Operand& o = b.operands[i];
      for (Id index : o.row)
        for (TensorId t : tensors_read(*p_.arena, index)) interfere(r, t);
      if (o.scalar != kNone) continue;
      if (o.row.empty() && in_place_ && in_place_(b, k, i))
        moves_.push_back({r, o.value});
      else if (o.row.empty() || !is_beside(b, k, o.value))
        interfere(r, o.value);
    }
  }
  for (TensorId r : b.results) live.erase(r);
  for (const Operand& o : b.operands) {
    if (o.scalar == kNone) read(o.value, live);
    read_in(o.scalar, live);
    for (Id index : o.row) read_in(index, live);
  }
}

void LoopMemory::step(const Update& u, Live& live) {
  interfere(u.result, u.value);
  for (Id index : u.row)
    for (TensorId t : tensors_read(*p_.arena, index)) interfere(u.result, t);
  define(u.result, live, kNoTensor);  // the base too, if it is still needed as it was
  moves_.push_back({u.result, u.base});
  live.erase(u.result);
  read(u.base, live);
  read(u.value, live);
  for (Id index : u.row) read_in(index, live);
}

void LoopMemory::within(const Loop& l, Live& header) {
  std::vector<Move> next;
  for (const Carried& c : l.carried) next.push_back({c.entering, c.leaving});
  const size_t known = moves_.size();
  for (size_t before = SIZE_MAX; before != header.size();) {
    before = header.size();
    moves_.resize(known);
    Live live = header;
    move(next, live);
    list(l.body, live);
    if (l.condition) {
      live.insert(header.begin(), header.end());
      read(*l.condition, live);
      list(l.test, live);
    }
    header.insert(live.begin(), live.end());
  }
}

void LoopMemory::step(const Loop& l, Live& live) {
  std::vector<Move> first, last;
  for (const Carried& c : l.carried) {
    first.push_back({c.entering, c.initial});
    last.push_back({c.result, c.entering});
  }
  move(last, live);
  within(l, live);
  move(first, live);
  read_in(l.begin, live);
  read_in(l.end, live);
}

void LoopMemory::step(const Branch& b, Live& live) {
  Live other = live;
  auto side = [&](const Steps& steps, TensorId Branch::Merge::*from, Live& l) {
    std::vector<Move> moves;
    for (const Branch::Merge& m : b.merges) moves.push_back({m.result, m.*from});
    move(moves, l);
    list(steps, l);
  };
  side(b.then, &Branch::Merge::then, live);
  side(b.otherwise, &Branch::Merge::otherwise, other);
  live.insert(other.begin(), other.end());
  read(b.condition, live);
}

void LoopMemory::merge() {
  std::unordered_map<TensorId, std::set<TensorId>> members;
  for (TensorId t : made_) members[t] = {t}, parent_[t] = t;
  // Those found last are of the innermost loops.
  for (size_t i = moves_.size(); i-- > 0;) {
    if (!made_.contains(moves_[i].to) || !made_.contains(moves_[i].from)) continue;
    const TensorId x = place(moves_[i].to), y = place(moves_[i].from);
    if (x == y) continue;
    const bool apart = std::ranges::any_of(members[x], [&](TensorId a) {
      const auto it = interferes_.find(a);
      return it != interferes_.end() && std::ranges::any_of(members[y], [&](TensorId b) { return it->second.contains(b); });
    });
    if (apart) continue;
    parent_[y] = x;
    members[x].merge(members[y]);
  }
}

}  // namespace xhat::runtime

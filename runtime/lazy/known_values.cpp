#include "runtime/lazy/known_values.h"

#include <bit>

namespace xhat::lazy::detail {

Structure structure_of(const Node& n, std::span<const Structure> operands) {
  // Two multiplicative hashes with different constants (of SplitMix64 and of Murmur3).
  Structure s{0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f};
  auto mix = [&](uint64_t v) {
    s.a = std::rotl((s.a ^ v) * 0xbf58476d1ce4e5b9, 31);
    s.b = (std::rotl(s.b, 27) ^ v) * 0xff51afd7ed558ccd;
  };
  mix(static_cast<uint64_t>(n.kind) | static_cast<uint64_t>(n.op) << 8 | static_cast<uint64_t>(n.type) << 16 |
      uint64_t{n.params.size()} << 32);
  const bool itself = n.kind == Kind::leaf || n.kind == Kind::grad || n.kind == Kind::assign || n.kind == Kind::update;
  if (itself) {
    mix(n.serial);
  } else {
    for (const Structure& o : operands) mix(o.a), mix(o.b);
    for (int64_t p : n.params) mix(static_cast<uint64_t>(p));
    for (int64_t e : n.shape) mix(static_cast<uint64_t>(e));
    if (n.kind == Kind::constant) mix(is_float(n.type) ? std::bit_cast<uint64_t>(n.value) : static_cast<uint64_t>(n.integer));
    if (n.kind == Kind::call) mix(std::bit_cast<uint64_t>(n.program.get()));
  }
  return s;
}

NodePtr KnownValues::find(const Structure& s) {
  const auto it = values_.find(s);
  if (it == values_.end()) return nullptr;
  NodePtr n = it->second.lock();
  if (n && n->realized() && !n->expired && !n->storage->exposed) return n;
  values_.erase(it);
  return nullptr;
}

void KnownValues::add(const Structure& s, const NodePtr& realized) {
  values_.insert_or_assign(s, realized);
  if (values_.size() < limit_) return;
  std::erase_if(values_, [](const auto& entry) { return entry.second.expired(); });
  limit_ = 2 * values_.size() + 1024;
}

KnownValues& known_values() {
  static auto* held = new KnownValues;
  return *held;
}

}  // namespace xhat::lazy::detail

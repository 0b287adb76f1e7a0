#include "cse/stash/nominal_sizes.h"

#include <algorithm>

namespace xhat {

NominalSizes::NominalSizes(const Program& p, const std::map<std::string, int64_t>& given, int64_t otherwise)
    : a_(*p.arena), otherwise_(otherwise) {
  for (const Dim& d : p.dims) {
    const std::string& name = a_.name(d.dim);
    auto it = given.find(name);
    if (it != given.end())
      sizes_[name] = it->second;
    else if (d.definition == kNone)
      sizes_[name] = otherwise;
  }
  // Defined dims may use each other in any order.
  for (size_t round = 0; round < p.dims.size(); ++round)
    for (const Dim& d : p.dims) {
      if (d.definition == kNone || sizes_.contains(a_.name(d.dim))) continue;
      bool known = true;
      for (Id id : reachable(a_, d.definition))
        known = known && (a_[id].op != Op::dim || sizes_.contains(a_.name(id)));
      if (known) sizes_[a_.name(d.dim)] = evaluate_extent(a_, d.definition, sizes_);
    }
}

int64_t NominalSizes::extent(Id id) const {
  // A range that depends on outer axes counts as the nominal size.
  for (Id x : reachable(a_, id))
    if (a_[x].op == Op::axis || is_read(a_[x].op) || (a_[x].op == Op::dim && !sizes_.contains(a_.name(x))))
      return otherwise_;
  return std::max<int64_t>(0, evaluate_extent(a_, id, sizes_));
}

int64_t NominalSizes::elements(std::span<const Id> shape) const {
  int64_t n = 1;
  for (Id s : shape) n = saturating_mul(n, extent(s));
  return n;
}

int64_t NominalSizes::elements(std::span<const Id> axes, const std::map<Id, int64_t>& sizes) {
  int64_t n = 1;
  for (Id x : axes)
    if (auto it = sizes.find(x); it != sizes.end()) n = saturating_mul(n, it->second);
  return n;
}

}  // namespace xhat

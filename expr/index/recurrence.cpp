#include "expr/index/recurrence.h"

#include "expr/core/error.h"
#include "expr/index/linear.h"

namespace xhat {

std::optional<Recurrence> recurrence_of(const Arena& a, TensorId y, std::span<const Id> axes, Id body) {
  for (Id id : reachable(a, body)) {
    if (!is_read(a[id].op) || a[id].symbol != y) continue;
    const auto indices = read_indices(a[id]);
    for (size_t i = 0; i < indices.size(); ++i)
      if (indices[i] != axes[i]) return Recurrence{id, i, linear(a, indices[i]).constant > 0};
    throw Bug("a recurrence reads what it computes");
  }
  return {};
}

}  // namespace xhat

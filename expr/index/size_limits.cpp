#include "expr/index/size_limits.h"

#include <algorithm>
#include <cstdio>

#include "expr/core/array.h"

namespace xhat {

void check_elements(const Program& p, TensorId t, const DimValues& dims) {
  const std::vector<int64_t> shape = shape_of(p, t, dims);
  double elements = 1;
  for (int64_t extent : shape) elements *= static_cast<double>(extent);
  const bool empty = std::ranges::find(shape, 0) != shape.end();
  const bool fits =
      empty ? std::ranges::all_of(shape, [](int64_t e) { return e <= kMaxElements; }) : elements <= static_cast<double>(kMaxElements);
  if (fits) return;
  char count[32];
  std::snprintf(count, sizeof count, "%.15g", elements);
  throw op_error(p,
                 p.tensor(t).name + " would have " + count + " elements, shape " + shape_text(shape) +
                     (dims.empty() ? "" : " with " + dims_text(dims)) + "; kernels take up to 2^31-1. split it into pieces",
                 p.tensor(t).pos);
}

void check_kernel_sizes(const Program& p, const DimValues& dims) {
  const Arena& a = *p.arena;
  for (auto* list : {&p.inputs, &p.outputs, &p.cotangents, &p.gradients})
    for (TensorId t : *list) check_elements(p, t, dims);
  auto check = [&](const Definition& d, const AxisRange& r) {
    for (Id end : {r.begin, r.end})
      for (Id id : reachable(a, end))
        if (a[id].op == Op::axis || is_read(a[id].op) || is_reduction(a[id].op)) return;  // its largest extent is found with the kernel
    int64_t extent = 0;
    const int64_t begin = evaluate_extent(a, r.begin, dims), end = evaluate_extent(a, r.end, dims);
    if (end <= begin || (!__builtin_sub_overflow(end, begin, &extent) && extent <= kMaxElements)) return;
    throw op_error(p,
                   "axis " + a.name(r.axis) + " of " + p.tensor(d.target()).name + " runs from " + std::to_string(begin) + " to " +
                       std::to_string(end) + (dims.empty() ? "" : " with " + dims_text(dims)) +
                       "; kernels take up to 2^31-1 steps. make two axes of it",
                   d.pos);
  };
  for (const Definition& d : p.definitions()) {
    if (d.is_call()) continue;
    for (const AxisRange& r : d.axes) check(d, r);
    for (Id id : reachable(a, d.body))
      if (is_reduction(a[id].op))
        for (const AxisRange& r : reduce_axes(a[id])) check(d, r);
  }
}

}  // namespace xhat

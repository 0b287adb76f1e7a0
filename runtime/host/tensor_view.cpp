#include "runtime/host/tensor_view.h"

namespace xhat {

int64_t TensorView::elements() const {
  int64_t n = 1;
  for (int i = 0; i < rank; ++i) n *= shape[static_cast<size_t>(i)];
  return n;
}

bool TensorView::dense() const {
  int64_t step = 1;
  for (size_t i = static_cast<size_t>(rank); i-- > 0;) {
    // The stride of a dimension of one element does not matter.
    if (shape[i] != 1 && strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

const char* TensorView::end() const {
  if (elements() == 0) return begin();
  int64_t last = 0;
  for (size_t i = 0; i < static_cast<size_t>(rank); ++i) last += (shape[i] - 1) * strides[i];
  return begin() + (last + 1) * static_cast<int64_t>(byte_size(type));
}

bool runtime::overlap(const TensorView& a, const TensorView& b) {
  if (a.place != b.place || !a.data || !b.data || a.elements() == 0 || b.elements() == 0) return false;
  const bool addresses = a.place == Target::cpu || a.place == Target::cuda;
  return addresses ? a.begin() < b.end() && b.begin() < a.end() : a.data == b.data;
}

}  // namespace xhat

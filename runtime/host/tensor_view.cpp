#include "runtime/host/tensor_view.h"

#include <string>

namespace xhat {
namespace {

// "[3,4]"; without fmt, which libraries compiled ahead of time do not take in.
std::string list_text(std::span<const int64_t> numbers) {
  std::string text;
  for (int64_t n : numbers) text += (text.empty() ? "" : ",") + std::to_string(n);
  return "[" + text + "]";
}

}  // namespace

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

void TensorView::check_length(int64_t given) const {
  const std::string what = "a tensor of shape " + list_text(extents());
  if (dense()) {
    if (elements() == given) return;
    throw Error(what + " has " + std::to_string(elements()) + " elements, but the memory given for it has " + std::to_string(given));
  }
  int64_t reach = elements() == 0 ? 0 : 1;
  for (size_t i = 0; i < static_cast<size_t>(rank) && reach > 0; ++i) reach += (shape[i] - 1) * strides[i];
  if (reach > given)
    throw Error(what + " with strides " + list_text(std::span(strides).first(static_cast<size_t>(rank))) + " reaches over " +
                std::to_string(reach) + " elements, but the memory given for it has " + std::to_string(given));
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

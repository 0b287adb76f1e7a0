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

namespace {

// Where a view lies in every line of `pitch` bytes, if it lies in the same place of each: its strides are whole lines, or stay within one.
struct Columns {
  int64_t first = 0, bytes = 0;
  Columns(const TensorView& v, int64_t pitch) {
    const auto size = static_cast<int64_t>(byte_size(v.type));
    first = static_cast<int64_t>(reinterpret_cast<uintptr_t>(v.data) % static_cast<uintptr_t>(pitch));
    bytes = size;
    for (size_t i = 0; i < static_cast<size_t>(v.rank); ++i)
      if (v.strides[i] * size % pitch != 0) bytes += (v.shape[i] - 1) * v.strides[i] * size;
  }
};

// Columns of one matrix that share none, such as x[:,0] and x[:,1:]: with some stride of either as the length of a line.
bool in_columns_apart(const TensorView& a, const TensorView& b) {
  for (const TensorView* v : {&a, &b})
    for (size_t i = 0; i < static_cast<size_t>(v->rank); ++i) {
      const int64_t pitch = v->shape[i] > 1 ? v->strides[i] * static_cast<int64_t>(byte_size(v->type)) : 0;
      if (pitch <= 0) continue;
      const Columns left(a, pitch), right(b, pitch);
      const int64_t on = (right.first - left.first + pitch) % pitch;  // from the beginning of the one to that of the other
      if (left.bytes <= on && right.bytes <= pitch - on) return true;
    }
  return false;
}

}  // namespace

bool runtime::overlap(const TensorView& a, const TensorView& b) {
  if (a.place != b.place || !a.data || !b.data || a.elements() == 0 || b.elements() == 0) return false;
  const bool addresses = a.place == Target::cpu || a.place == Target::cuda;
  if (!addresses) return a.data == b.data;
  return a.begin() < b.end() && b.begin() < a.end() && !in_columns_apart(a, b);
}

}  // namespace xhat

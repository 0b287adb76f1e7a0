// Tensors whose axes stand in another order, with their definitions and all reads of them.
#pragma once
#include <map>
#include <numeric>
#include <vector>

#include "expr/core/program.h"

namespace xhat {

// The dimension that comes first, the one that comes second, …
using Permutation = std::vector<size_t>;

inline Permutation unpermuted(size_t n) {
  Permutation order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  return order;
}

template <class T>
std::vector<T> permuted(const std::vector<T>& of, const Permutation& order) {
  std::vector<T> result;
  for (size_t i : order) result.push_back(of[i]);
  return result;
}

// As the tensor's; as it is, if it has none.
template <class T>
std::vector<T> permuted(const std::vector<T>& of, const std::map<TensorId, Permutation>& orders, TensorId t) {
  const auto order = orders.find(t);
  return order == orders.end() ? of : permuted(of, order->second);
}

// Needs: tensors that definitions other than calls make, and that no call reads.
Program with_permuted_axes(const Program& p, const std::map<TensorId, Permutation>& orders);

}  // namespace xhat

// Extents of a lazy array, slowest dimension first, without memory of its own on the heap.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "runtime/host/tensor_view.h"

namespace xhat::lazy {

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> extents) : Shape(std::span<const int64_t>(extents.begin(), extents.size())) {}
  Shape(const std::vector<int64_t>& extents) : Shape(std::span<const int64_t>(extents)) {}
  Shape(std::span<const int64_t> extents) {
    if (extents.size() > kMaxRank) throw Error("an array has at most 12 dimensions");
    for (int64_t e : extents) push_back(e);
  }

  size_t size() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  int64_t operator[](size_t i) const { return extents_[i]; }
  int64_t& operator[](size_t i) { return extents_[i]; }
  const int64_t* begin() const { return extents_.data(); }
  const int64_t* end() const { return extents_.data() + rank_; }
  int64_t back() const { return extents_[rank_ - 1]; }
  void push_back(int64_t extent) {
    if (rank_ == kMaxRank) throw Error("an array has at most 12 dimensions");
    extents_[rank_++] = extent;
  }
  int64_t elements() const {
    int64_t n = 1;
    for (int64_t e : *this) n *= e;
    return n;
  }
  operator std::span<const int64_t>() const { return {extents_.data(), rank_}; }
  std::vector<int64_t> vector() const { return {begin(), end()}; }
  operator std::vector<int64_t>() const { return vector(); }
  bool operator==(const Shape& other) const { return std::ranges::equal(*this, other); }

 private:
  size_t rank_ = 0;
  std::array<int64_t, kMaxRank> extents_;  // only the first rank_ are set
};

std::string text(const Shape& shape);  // "[3,4]"

}  // namespace xhat::lazy

// A vector whose first elements need no memory on the heap: operands and parameters of nodes are few.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

namespace xhat::lazy::detail {

template <class T, size_t kInline>
class SmallVector {
 public:
  using value_type = T;
  SmallVector() = default;
  SmallVector(std::initializer_list<T> values) { append(values); }
  SmallVector(const std::vector<T>& values) { append(values); }
  explicit SmallVector(std::span<const T> values) { append(values); }
  SmallVector(const SmallVector&) = default;
  SmallVector& operator=(const SmallVector&) = default;
  SmallVector(SmallVector&& o) noexcept : here_(std::move(o.here_)), more_(std::move(o.more_)), count_(std::exchange(o.count_, 0)) {}
  SmallVector& operator=(SmallVector&& o) noexcept {
    here_ = std::move(o.here_);
    more_ = std::move(o.more_);
    count_ = std::exchange(o.count_, 0);
    return *this;
  }

  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  T* data() { return more_.empty() ? here_.data() : more_.data(); }
  const T* data() const { return more_.empty() ? here_.data() : more_.data(); }
  T* begin() { return data(); }
  T* end() { return data() + count_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + count_; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T& back() { return data()[count_ - 1]; }

  void push_back(T value) {
    if (more_.empty() && count_ < kInline) {
      here_[count_++] = std::move(value);
      return;
    }
    if (more_.empty())
      for (T& v : here_) more_.push_back(std::move(v));
    more_.push_back(std::move(value));
    ++count_;
  }
  void append(const auto& values) {
    for (const T& v : values) push_back(v);
  }
  void clear() {
    for (T& v : std::span<T>(here_.data(), std::min(count_, kInline))) v = T();
    more_.clear();
    count_ = 0;
  }
  bool operator==(const SmallVector& o) const { return std::ranges::equal(*this, o); }

 private:
  std::array<T, kInline> here_ = {};
  std::vector<T> more_;  // all of them, once they are more than fit
  size_t count_ = 0;
};

}  // namespace xhat::lazy::detail

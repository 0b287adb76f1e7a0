#include "runtime/ahead/build/ahead_text_parts.h"

namespace xhat::runtime {
namespace {

// The part that all generated C++ headers share; include guards keep the first.
constexpr const char* kShared = R"(#ifndef XHAT_OPS_SHARED
#define XHAT_OPS_SHARED
namespace xhat_ops {

class error : public std::runtime_error {
 public:
  error(int status, const std::string& message) : std::runtime_error(message), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

// Memory of an array: of a std::vector, std::span or std::array, of an Eigen matrix, array, map or tensor in row-major order, or of
// a pointer and a number of elements. array<const T> is read.
template <class T>
class array {
 public:
  array(std::nullptr_t) {}  // a gradient that nobody wants
  array(T* data, std::size_t size) : data_(data), size_(static_cast<std::int64_t>(size)) {}
  template <class A>
    requires(!std::is_same_v<std::remove_cvref_t<A>, array> && requires(A& a) {
      { a.data() } -> std::convertible_to<T*>;
      { a.size() } -> std::convertible_to<std::int64_t>;
    })
  array(A&& a) : data_(a.data()), size_(static_cast<std::int64_t>(a.size())) {
    using X = std::remove_cvref_t<A>;
    if constexpr (requires { X::IsRowMajor; X::IsVectorAtCompileTime; }) {  // Eigen's matrices and arrays
      static_assert(X::IsRowMajor || X::IsVectorAtCompileTime, "arrays are row-major: say Eigen::RowMajor");
      if constexpr (requires { a.outerStride(); })
        if (size_ > 0 && (a.innerStride() != 1 || (a.outerSize() > 1 && a.outerStride() != a.innerSize())))
          throw error(1, "an Eigen map or block has gaps; arrays are dense: copy it into a matrix first");
    } else if constexpr (requires { X::Layout; }) {  // Eigen's tensors
      static_assert(int(X::Layout) == 1, "arrays are row-major: say Eigen::RowMajor");
    }
  }
  T* data() const { return data_; }
  std::int64_t size() const { return size_; }

 private:
  T* data_ = nullptr;
  std::int64_t size_ = -1;  // -1: none
};

// An array that may have gaps or be transposed: of what array takes, of a pointer and the strides of its dimensions in elements (the slowest
// first), of a std::mdspan, or of an Eigen map or block in row-major order.
template <class T>
class strided {
 public:
  strided(std::nullptr_t) {}
  strided(T* data, std::initializer_list<std::int64_t> strides) : data_(data) {
    for (std::int64_t s : strides) add(s);
  }
  template <class A>
    requires(!std::is_same_v<std::remove_cvref_t<A>, strided>)
  strided(A&& a) {
    using X = std::remove_cvref_t<A>;
    if constexpr (requires { a.data_handle(); a.stride(0); X::rank(); }) {
      data_ = a.data_handle();
      size_ = static_cast<std::int64_t>(a.size());
      for (std::size_t i = 0; i < X::rank(); ++i) add(static_cast<std::int64_t>(a.stride(i)));
    } else if constexpr (requires { a.outerStride(); X::IsRowMajor; X::IsVectorAtCompileTime; }) {
      static_assert(X::IsRowMajor || X::IsVectorAtCompileTime, "arrays are row-major: say Eigen::RowMajor");
      data_ = a.data();
      size_ = static_cast<std::int64_t>(a.size());
      if constexpr (!X::IsVectorAtCompileTime) add(static_cast<std::int64_t>(a.outerStride()));
      add(static_cast<std::int64_t>(a.innerStride()));
    } else {
      const array<T> dense(std::forward<A>(a));
      data_ = dense.data();
      size_ = dense.size();
    }
  }
  T* data() const { return data_; }
  std::int64_t size() const { return size_; }
  const std::int64_t* strides(const char* name, std::size_t rank) const {
    if (rank_ == 0) return nullptr;
    if (rank_ != rank)
      throw error(1, std::string(name) + " has " + std::to_string(rank) + " dimensions, but is given " + std::to_string(rank_) + " strides");
    return strides_;
  }

 private:
  void add(std::int64_t stride) {
    if (rank_ == 12) throw error(1, "arrays have at most 12 dimensions");
    strides_[rank_++] = stride;
  }
  T* data_ = nullptr;
  std::int64_t size_ = -1;  // -1: not said
  std::int64_t strides_[12] = {};
  std::size_t rank_ = 0;  // 0: dense
};

// Memory of a CUDA device: a pointer, and its number of elements where that is to be checked.
template <class T>
class device_span {
 public:
  device_span(std::nullptr_t) {}  // a gradient that nobody wants
  device_span(T* data) : data_(data) {}
  device_span(T* data, std::size_t size) : data_(data), size_(static_cast<std::int64_t>(size)) {}
  device_span(const device_span<std::remove_const_t<T>>& other) requires std::is_const_v<T> : data_(other.data()), size_(other.size()) {}
  T* data() const { return data_; }
  std::int64_t size() const { return size_; }

 private:
  T* data_ = nullptr;
  std::int64_t size_ = -1;  // -1: not said
};

}  // namespace xhat_ops
#endif
)";

}  // namespace

std::string Text::cpp_size_checks(const TextSide& side) const {
  const char* dims = dims_.empty() ? "" : "dims, ";
  std::string s;
  for (const Parameter& p : side.parameters)
    if (!p.value) s += fmt::format("  check_size({}\"{}\", {}.size());\n", dims, p_.tensors[p.tensor].name, p.name);
  return s;
}

std::string Text::cpp_header() const {
  std::string up = upper(name_), d = dims_.empty() ? "" : "&dims";
  std::string s =
      fmt::format(R"(// The op {0} for C++20, compiled ahead of time by xhat {1}. Generated: changes are lost. What {0}.h says holds; here
// arrays know their number of elements, which is checked, and what goes wrong is thrown as xhat_ops::error.
#ifndef XHAT_OP_{2}_HPP
#define XHAT_OP_{2}_HPP

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "{0}.h"

{3}
namespace xhat_ops::{4} {{

)",
                  name_, XHAT_VERSION, up, kShared, word(name_));
  if (!dims_.empty()) s += fmt::format("using dims_type = ::{}_dims;\n\n", name_);
  s += fmt::format(R"(inline void check(int status) {{
  if (status != {1}_OK) throw error(status, ::{0}_message());
}}

inline void check_size({2}const char* tensor, std::int64_t size) {{
  std::int64_t wanted = ::{0}_elements({3}tensor);
  if (wanted < 0) throw error({1}_BAD_SIZE, ::{0}_message());
  if (size >= 0 && size != wanted)
    throw error({1}_BAD_ARGUMENT, std::string("{0}: ") + tensor + " has " + std::to_string(size) + " elements, but needs " + std::to_string(wanted));
}}

)",
                   name_, up, dims_.empty() ? "" : "const dims_type& dims, ", dims_.empty() ? "" : "&dims, ");
  if (sides_.size() > 1)
    s += fmt::format(R"(// What forward keeps for backward. May be used again, for other sizes too.
class stash_type {{
 public:
  void* reserve(std::size_t bytes) {{
    if (bytes == 0) throw error({1}_BAD_SIZE, ::{0}_message());
    if (bytes > bytes_) {{
      block_.reset(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
      bytes_ = block_ ? bytes : 0;
      if (!block_) throw error({1}_NO_MEMORY, "{0}: out of memory: " + std::to_string(bytes) + " bytes for the stash");
    }}
    return block_.get();
  }}
  const void* data() const {{ return block_.get(); }}
  std::size_t bytes() const {{ return bytes_; }}

 private:
  struct Free {{
    void operator()(void* p) const {{ std::free(p); }}
  }};
  std::unique_ptr<void, Free> block_;
  std::size_t bytes_ = 0;
}};

)",
                     name_, up);
  for (const TextSide& side : sides_) {
    std::string parameters = list(side.parameters, [](const Parameter& p) {
      if (p.value) return fmt::format("{} {}", p.type, p.name);
      return fmt::format("{}<{}{}>{} {}", p.strided ? "const strided" : "array", p.written ? "" : "const ", p.type, p.strided ? "&" : "",
                         p.name);
    });
    std::string arguments = list(side.parameters, [&](const Parameter& p) {
      if (p.value) return p.name;
      const Tensor& t = p_.tensors[p.tensor];
      return p.name + ".data()" + (p.strided ? fmt::format(", {}.strides(\"{}\", {})", p.name, t.name, t.shape.size()) : "");
    });
    std::string first = dims_.empty() ? "" : "const dims_type& dims";
    bool forward = side.forward();
    std::string stash = !side.keeps() ? "" : forward ? "stash_type& stash" : "const stash_type& stash";
    s += fmt::format("// {}\n//\n", side.what);
    for (const Parameter& p : side.parameters) s += fmt::format("//   {}: {}{}\n", p.name, p.what, p.written ? ", written" : "");
    s += fmt::format("inline void {}({}) {{\n", side.name, join(first, join(parameters, stash)));
    s += cpp_size_checks(side);
    std::string block = !side.keeps() ? "" : forward ? fmt::format("stash.reserve(::{}_stash_bytes({}))", name_, d) : "stash.data()";
    s += fmt::format("  check(::{}_{}({}));\n}}\n\n", name_, side.name, join(d, join(arguments, block)));
  }
  for (const AheadDevice& device : t_.devices) s += device_cpp_header(device);
  return s + fmt::format("}}  // namespace xhat_ops::{}\n\n#endif\n", word(name_));
}

}  // namespace xhat::runtime

// Memory of one tensor for timing: on huge pages where the system gives them, every page touched. The first touch
// of a page costs more than most ops do with it.
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "expr/core/error.h"

namespace xhat::bench {

class TouchedBuffer {
 public:
  explicit TouchedBuffer(size_t bytes) {
    constexpr size_t huge_page = size_t{2} << 20, line = 64;
    size_t alignment = bytes >= huge_page ? huge_page : line;
    size_t rounded = std::max<size_t>(1, (bytes + alignment - 1) / alignment) * alignment;
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
    if (!data_) throw Error("out of memory");
    // A wish; without it things are only slower.
    if (alignment == huge_page) madvise(data_.get(), rounded, MADV_HUGEPAGE);
    std::memset(data_.get(), 0, rounded);
  }
  std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace xhat::bench

// Parts of buffers, and loops that copy them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "Halide.h"

namespace xhat::runtime {

// Names that no other has.
class NestNames {
 public:
  std::string operator()(const std::string& stem) { return "xh_" + stem + std::to_string(next_++); }

 private:
  int next_ = 0;
};

// A part of a buffer: its first element, and steps by dimension, in elements.
struct Region {
  std::string buffer;  // empty: zeros
  Halide::Expr at = 0;
  std::vector<int64_t> strides = {};
};
std::vector<int64_t> strides_of(const std::vector<int64_t>& shape);  // of a tensor without gaps
// to = from, or to += from, over these extents. Where both are the same buffer, they do not overlap.
Halide::Internal::Stmt copied(const Region& to, const Region& from, Halide::Type type, const std::vector<int64_t>& extents, bool added,
                              const Halide::Target& target, NestNames& names);
// A box of a tensor, of extents that the run knows, one element after the other from `at` on in the buffer; back: from there into the box.
Halide::Internal::Stmt packed(const Region& region, const std::vector<Halide::Expr>& extents, const std::string& buffer,
                              const Halide::Expr& at, bool back, Halide::Type type, const Halide::Target& target, NestNames& names);

}  // namespace xhat::runtime

#include "runtime/loops/region.h"

#include "runtime/cpu/ir/statements.h"

namespace xhat::runtime {

std::vector<int64_t> strides_of(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t step = 1;
  for (size_t d = shape.size(); d-- > 0; step *= shape[d]) strides[d] = step;
  return strides;
}

Stmt copied(const Region& to, const Region& from, Halide::Type type, const std::vector<int64_t>& extents, bool added,
            const Halide::Target& target, NestNames& names) {
  const bool zeros = from.buffer.empty();
  struct Dimension {
    int64_t extent, to, from;
  };
  std::vector<Dimension> dims;  // those that both walk through as one are one
  for (size_t d = 0; d < extents.size(); ++d) {
    const Dimension next{extents[d], to.strides[d], zeros ? to.strides[d] : from.strides[d]};
    if (next.extent == 0) return hi::Evaluate::make(0);
    if (next.extent == 1) continue;
    if (!dims.empty() && dims.back().to == next.to * next.extent && dims.back().from == next.from * next.extent)
      dims.back() = {dims.back().extent * next.extent, next.to, next.from};
    else
      dims.push_back(next);
  }
  Expr to_at = to.at, from_at = from.at;
  auto element = [&](const Expr& i, int64_t to_step, int64_t from_step) {
    const Expr place = to_at + i * static_cast<int32_t>(to_step);
    Expr v = zeros ? hi::make_zero(type) : loaded(type, from.buffer, from_at + i * static_cast<int32_t>(from_step));
    if (added) v = hi::strictify_float(loaded(type, to.buffer, place) + v);
    return stored_at(to.buffer, v, place);
  };
  if (dims.empty()) return element(0, 1, 1);
  std::vector<std::pair<std::string, int64_t>> outer;
  for (size_t d = 0; d + 1 < dims.size(); ++d) {
    outer.emplace_back(names("i"), dims[d].extent);
    to_at = to_at + int_variable(outer.back().first) * static_cast<int32_t>(dims[d].to);
    from_at = from_at + int_variable(outer.back().first) * static_cast<int32_t>(dims[d].from);
  }
  const Dimension inner = dims.back();
  const int lanes = inner.to == 1 && inner.from == 1 ? target.natural_vector_size(type) : 1;
  const auto whole = static_cast<int32_t>(inner.extent / lanes), left = static_cast<int32_t>(inner.extent % lanes);
  std::vector<Stmt> made;
  const std::string block = names("b"), lane = names("v"), rest = names("i");
  if (lanes > 1 && whole > 0)
    made.push_back(serial(block, 0, whole, vectorized(lane, lanes, element(int_variable(block) * lanes + int_variable(lane), 1, 1))));
  if (lanes > 1 && left > 0) made.push_back(serial(rest, whole * lanes, left, element(int_variable(rest), 1, 1)));
  if (lanes == 1) made.push_back(serial(rest, 0, whole, element(int_variable(rest), inner.to, inner.from)));
  Stmt s = hi::Block::make(made);
  for (size_t d = outer.size(); d-- > 0;) s = serial(outer[d].first, 0, static_cast<int32_t>(outer[d].second), s);
  return s;
}

}  // namespace xhat::runtime

#include "runtime/loops/region.h"

#include "runtime/cpu/ir/statements.h"

namespace xhat::runtime {

std::vector<int64_t> strides_of(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t step = 1;
  for (size_t d = shape.size(); d-- > 0; step *= shape[d]) strides[d] = step;
  return strides;
}

namespace {

struct Dimension {
  Expr extent, to, from;  // and the steps on both sides
};

Stmt copied_along(std::vector<Dimension> dims, const Region& to, const Region& from, Halide::Type type, bool added,
                  const Halide::Target& target, NestNames& names) {
  Expr to_at = to.at, from_at = from.at;
  auto element = [&](const Expr& i, const Expr& to_step, const Expr& from_step) {
    const Expr place = to_at + i * to_step;
    Expr v = from.buffer.empty() ? hi::make_zero(type) : loaded(type, from.buffer, from_at + i * from_step);
    if (added) v = hi::strictify_float(loaded(type, to.buffer, place) + v);
    return stored_at(to.buffer, v, place);
  };
  if (dims.empty()) return element(0, 1, 1);
  std::vector<std::pair<std::string, Expr>> outer;
  for (size_t d = 0; d + 1 < dims.size(); ++d) {
    outer.emplace_back(names("i"), dims[d].extent);
    to_at = to_at + int_variable(outer.back().first) * dims[d].to;
    from_at = from_at + int_variable(outer.back().first) * dims[d].from;
  }
  const Dimension inner = dims.back();
  const int lanes = hi::is_const_one(inner.to) && hi::is_const_one(inner.from) ? target.natural_vector_size(type) : 1;
  const Expr whole = hi::simplify(inner.extent / lanes), left = hi::simplify(inner.extent % lanes);
  std::vector<Stmt> made;
  const std::string block = names("b"), lane = names("v"), rest = names("i");
  if (lanes > 1 && !hi::is_const_zero(whole))
    made.push_back(serial(block, 0, whole, vectorized(lane, lanes, element(int_variable(block) * lanes + int_variable(lane), 1, 1))));
  if (lanes > 1 && !hi::is_const_zero(left)) made.push_back(serial(rest, whole * lanes, left, element(int_variable(rest), 1, 1)));
  if (lanes == 1) made.push_back(serial(rest, 0, whole, element(int_variable(rest), inner.to, inner.from)));
  Stmt s = hi::Block::make(made);
  for (size_t d = outer.size(); d-- > 0;) s = serial(outer[d].first, 0, outer[d].second, s);
  return s;
}

}  // namespace

Stmt copied(const Region& to, const Region& from, Halide::Type type, const std::vector<int64_t>& extents, bool added,
            const Halide::Target& target, NestNames& names) {
  const bool zeros = from.buffer.empty();
  struct Known {
    int64_t extent, to, from;
  };
  std::vector<Known> dims;  // those that both walk through as one are one
  for (size_t d = 0; d < extents.size(); ++d) {
    const Known next{extents[d], to.strides[d], zeros ? to.strides[d] : from.strides[d]};
    if (next.extent == 0) return hi::Evaluate::make(0);
    if (next.extent == 1) continue;
    if (!dims.empty() && dims.back().to == next.to * next.extent && dims.back().from == next.from * next.extent)
      dims.back() = {dims.back().extent * next.extent, next.to, next.from};
    else
      dims.push_back(next);
  }
  std::vector<Dimension> all;
  for (const Known& d : dims) all.push_back({static_cast<int32_t>(d.extent), static_cast<int32_t>(d.to), static_cast<int32_t>(d.from)});
  return copied_along(std::move(all), to, from, type, added, target, names);
}

Stmt packed(const Region& region, const std::vector<Expr>& extents, const std::string& buffer, const Expr& at, bool back, Halide::Type type,
            const Halide::Target& target, NestNames& names) {
  std::vector<Dimension> dims(extents.size());
  Expr step = 1;
  for (size_t d = extents.size(); d-- > 0; step = step * extents[d]) {
    const Expr there = static_cast<int32_t>(region.strides[d]);
    dims[d] = back ? Dimension{extents[d], there, step} : Dimension{extents[d], step, there};
  }
  const Region tape{buffer, at, {}};
  return back ? copied_along(std::move(dims), region, tape, type, false, target, names)
              : copied_along(std::move(dims), tape, region, type, false, target, names);
}

}  // namespace xhat::runtime

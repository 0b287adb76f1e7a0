// Expressions that add up: reductions, products, convolutions, windows.
#include "expr/core/scalar.h"
#include "runtime/lazy/emit.h"

namespace xhat::lazy::detail {

Id Emitter::reduction(Op op, const std::vector<AxisRange>& axes, Id value, DType type) {
  Arena& a = s_.arena();
  const bool index = op == Op::argmax || op == Op::argmin;
  const DType sum_type = op == Op::sum || op == Op::prod ? accumulator_of(a[value].type) : a[value].type;
  const Id total = axes.empty() ? a.to(sum_type, value) : a.reduce(op, axes, a.boolean(true), a.to(sum_type, value));
  return index ? total : a.to(type, total);
}

Id Emitter::reduce(const Item& item, const Ids& indices) {
  const Node& n = *item.node;
  const uint32_t a = g_.args_of(item)[0];
  std::vector<AxisRange> axes;
  Ids own;
  for (size_t d = 0, kept = 0; d < terms_[a].size(); ++d) {
    const bool gone = std::ranges::find(n.params, static_cast<int64_t>(d)) != n.params.end();
    if (!gone) {
      own.push_back(indices[kept++]);
    } else if (s_.extents.is_one(terms_[a][d]) && n.params.size() > 1) {
      own.push_back(integer(0));
    } else {
      axes.push_back({s_.axis("r", d), integer(0), extent(terms_[a][d])});
      own.push_back(axes.back().axis);
    }
  }
  return reduction(n.op, axes, at(a, own), n.type);
}

Id Emitter::contract(const Item& item, const Ids& indices) {
  const Params& p = item.node->params;
  std::map<int64_t, Id> letters;
  const auto free = static_cast<size_t>(p[0]);
  for (size_t d = 0; d < free; ++d) letters[p[d + 1]] = indices[d];
  std::vector<AxisRange> axes;
  Id product = kNone;
  size_t at_param = free + 1;
  // A summed letter runs over its largest extent: of operands that have it, some may have 1.
  std::map<int64_t, Extents::Term> summed;
  for (size_t k = 0, q = at_param; k < item.count; ++k)
    for (auto count = static_cast<size_t>(p[q++]), d = size_t{0}; d < count; ++d, ++q) {
      const Extents::Term t = terms_[g_.args_of(item)[k]][d];
      if (letters.contains(p[q])) continue;
      const auto [it, fresh] = summed.try_emplace(p[q], t);
      if (!fresh && s_.extents.is_one(it->second)) it->second = t;
    }
  for (auto& [letter, term] : summed) {
    axes.push_back({s_.axis("r", axes.size()), integer(0), extent(term)});
    letters[letter] = axes.back().axis;
  }
  for (size_t k = 0; k < item.count; ++k) {
    const uint32_t a = g_.args_of(item)[k];
    const auto count = static_cast<size_t>(p[at_param++]);
    Ids own;
    for (size_t d = 0; d < count; ++d) own.push_back(s_.extents.is_one(terms_[a][d]) ? integer(0) : letters.at(p[at_param + d]));
    at_param += count;
    const Id value = at(a, own);
    product = product == kNone ? value : s_.arena().mul(product, value);
  }
  return reduction(Op::sum, axes, product, item.node->type);
}

Id Emitter::guarded(uint32_t item, const Ids& indices, const std::vector<char>& outside, Id otherwise) {
  Arena& a = s_.arena();
  if (std::ranges::none_of(outside, [](char c) { return c != 0; })) return at(item, indices);
  const bool memory = g_.items[item].role != Role::value;
  if (tensors_[item] != kNone && memory) return a.read_or(tensors_[item], g_.items[item].node->type, indices, otherwise);
  Id inside = kNone;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!outside[d]) continue;
    const Id here = a.land(a.binary(Op::le, integer(0), indices[d]), a.binary(Op::lt, indices[d], extent(terms_[item][d])));
    inside = inside == kNone ? here : a.land(inside, here);
  }
  return a.select(inside, at(item, indices), otherwise);
}

Id Emitter::conv(const Item& item, const Ids& indices) {
  Arena& a = s_.arena();
  const Params& p = item.node->params;
  const uint32_t x = g_.args_of(item)[0], w = g_.args_of(item)[1];
  std::vector<AxisRange> axes = {{s_.axis("r", 0), integer(0), extent(terms_[w][1])}};
  Ids of_x = {indices[0], axes[0].axis}, of_w = {indices[1], axes[0].axis};
  if (p[0] > 1) {
    // Output channel o belongs to group o / (out / groups), which begins at channel group * (channels / groups).
    const int64_t outs = s_.extents.value(terms_[w][0]) / p[0], ins = s_.extents.value(terms_[w][1]);
    const Id group = outs == 1 ? indices[1] : a.div(indices[1], integer(outs));
    of_x[1] = ins == 1 ? group : a.add(times(group, ins), axes[0].axis);
    if (ins == 1) axes.clear(), of_w[1] = integer(0);
  }
  std::vector<char> outside = {0, 0};
  for (size_t d = 2; d < terms_[x].size(); ++d) {
    const int64_t stride = p[3 * d - 5], padding = p[3 * d - 4], dilation = p[3 * d - 3];
    Id tap = integer(0);
    if (s_.extents.value(terms_[w][d]) > 1) {
      axes.push_back({s_.axis("r", d), integer(0), extent(terms_[w][d])});
      tap = axes.back().axis;
    }
    of_w.push_back(tap);
    const Id begin = times(indices[d], stride);
    of_x.push_back(plus(s_.extents.value(terms_[w][d]) > 1 ? a.add(begin, times(tap, dilation)) : begin, -padding));
    outside.push_back(padding > 0);
  }
  const DType type = item.node->type;
  const Id product = a.mul(guarded(x, of_x, outside, a.constant(type, 0)), at(w, of_w));
  return reduction(Op::sum, axes, product, type);
}

Id Emitter::window(const Item& item, const Ids& indices) {
  Arena& a = s_.arena();
  const Node& n = *item.node;
  const uint32_t x = g_.args_of(item)[0];
  const size_t windows = n.params.size() / 4, first = indices.size() - windows;
  Ids own(indices.begin(), indices.begin() + static_cast<std::ptrdiff_t>(first));
  std::vector<char> outside(first, 0);
  std::vector<AxisRange> axes;
  for (size_t d = 0; d < windows; ++d) {
    const int64_t size = n.params[4 * d], stride = n.params[4 * d + 1], padding = n.params[4 * d + 2], dilation = n.params[4 * d + 3];
    axes.push_back({s_.axis("r", d), integer(0), integer(size)});
    own.push_back(plus(a.add(times(indices[first + d], stride), times(axes.back().axis, dilation)), -padding));
    outside.push_back(padding > 0);
  }
  const Id otherwise = is_float(n.type) ? a.constant(n.type, identity_of(n.op)) : integer(identity_of(n.op, n.type));
  return reduction(n.op, axes, guarded(x, own, outside, a.to(n.type, otherwise)), n.type);
}

}  // namespace xhat::lazy::detail

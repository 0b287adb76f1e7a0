#include "fusion/library/library_calls.h"

#include <algorithm>
#include <numeric>

#include "expr/index/affine_poly.h"

namespace xhat {

Factors factors_of(const Arena& a, Id body) {
  Factors f;
  std::vector<Id> stack = {body};
  while (!stack.empty()) {
    const Node& n = a[stack.back()];
    const Id id = stack.back();
    stack.pop_back();
    if (n.op == Op::mul) {
      stack.push_back(n.arg(1));
      stack.push_back(n.arg(0));
    } else if (n.op == Op::neg) {
      f.alpha = -f.alpha;
      stack.push_back(n.arg(0));
    } else if (n.op == Op::constant && is_float(n.type)) {
      f.alpha *= n.value;
    } else if (n.op == Op::div && a[n.arg(1)].op == Op::constant && a[n.arg(1)].value != 0) {
      f.alpha /= a[n.arg(1)].value;
      stack.push_back(n.arg(0));
    } else {
      f.factors.push_back(id);
    }
  }
  return f;
}

namespace fusion {
namespace {

bool is_narrow(DType t) { return t == DType::f16 || t == DType::bf16; }

std::optional<LibraryRead> read_of(const Arena& a, Id factor, DType sum) {
  Id id = factor;
  if (a[id].op == Op::cast && a[id].type == DType::f32 && is_narrow(a[a[id].arg(0)].type)) id = a[id].arg(0);
  const Node& n = a[id];
  if (!is_read(n.op) || (n.op == Op::read_or && !is_constant(a, n.args().back(), 0))) return std::nullopt;
  const bool fits = n.type == sum || (sum == DType::f32 && is_narrow(n.type));
  if (!is_float(n.type) || !fits) return std::nullopt;
  auto indices = read_indices(n);
  for (Id i : indices)
    for (Id x : reachable(a, i))
      if (is_read(a[x].op)) return std::nullopt;  // a place that data decide
  return LibraryRead{n.symbol, n.type, {indices.begin(), indices.end()}, n.op == Op::read_or};
}

}  // namespace

std::vector<int64_t> steps_of(const std::vector<int64_t>& shape) {
  std::vector<int64_t> steps(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) steps[i - 1] = steps[i] * shape[i];
  return steps;
}

std::optional<TwoReads> two_reads(const Program& p, const Definition& d) {
  const Arena& a = *p.arena;
  if (d.is_call() || a[d.body].op != Op::sum) return std::nullopt;
  const Node& root = a[d.body];
  Factors f = factors_of(a, reduce_body(root));
  if (f.factors.size() != 2) return std::nullopt;
  auto x = read_of(a, f.factors[0], root.type), y = read_of(a, f.factors[1], root.type);
  if (!x || !y || x->type != y->type) return std::nullopt;
  return TwoReads{d.axes, reduce_axes(root), reduce_condition(root), {*x, *y}, f.alpha};
}

namespace {

enum Side : size_t { kA, kB, kC };

// Points along one axis, or along several that are contiguous in all three tensors.
struct Line {
  int64_t extent;
  std::array<int64_t, 3> steps;
};

void collapse(std::vector<Line>& lines) {
  std::erase_if(lines, [](const Line& l) { return l.extent == 1; });
  std::ranges::stable_sort(lines, [](const Line& x, const Line& y) { return x.steps > y.steps; });
  for (size_t i = 1; i < lines.size();) {
    Line &outer = lines[i - 1], &inner = lines[i];
    bool behind = true;
    for (size_t s = 0; s < 3; ++s) behind = behind && outer.steps[s] == inner.extent * inner.steps[s];
    if (behind) {
      inner.extent *= outer.extent;
      lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(i) - 1);
    } else {
      ++i;
    }
  }
}

// Can a library take this matrix? One of its two axes must have step 1, and rows or columns must not overlap.
bool is_matrix(int64_t down, int64_t down_step, int64_t across, int64_t across_step) {
  auto lies = [](int64_t inner, int64_t inner_step, int64_t outer, int64_t outer_step) {
    return (inner == 1 || inner_step == 1) && (outer == 1 || outer_step >= inner);
  };
  return lies(across, across_step, down, down_step) || lies(down, down_step, across, across_step);
}

// The places that a read visits, in elements from the first, as a linear function of the axes; none if they are not linear.
struct Places {
  int64_t offset = 0;
  std::map<Id, int64_t> steps;
};
std::optional<Places> places_of(const Program& p, const LibraryRead& read, const std::map<Id, std::pair<int64_t, int64_t>>& ranges,
                                const DimValues& sizes) {
  const Arena& a = *p.arena;
  const std::vector<int64_t> shape = shape_of(p, read.tensor, sizes), steps = steps_of(shape);
  auto atom = [&](Id x) {
    return a[x].op == Op::dim ? affine::Poly::constant(sizes.at(a.name(x))) : affine::Poly::atom(x);
  };
  Places all;
  for (size_t i = 0; i < read.indices.size(); ++i) {
    affine::Poly index;
    try {
      index = affine::polynomial(a, read.indices[i], atom);
    } catch (const affine::GaveUp&) {
      return std::nullopt;
    }
    int64_t low = 0, high = 0;
    for (const auto& [monomial, c] : index.terms) {
      if (monomial.empty()) {
        low += c;
        high += c;
        all.offset += c * steps[i];
        continue;
      }
      auto range = ranges.find(monomial[0]);
      if (monomial.size() != 1 || range == ranges.end()) return std::nullopt;
      auto [begin, end] = range->second;
      low += c * (c > 0 ? begin : end - 1);
      high += c * (c > 0 ? end - 1 : begin);
      all.steps[monomial[0]] += c * steps[i];
    }
    if (low < 0 || high >= shape[i]) return std::nullopt;
  }
  return all;
}

LibrarySide side_of(TensorId tensor, DType type) { return {tensor, type, 0, {}}; }

}  // namespace

std::optional<MatrixProduct> product_of(const Program& p, TensorId target, const TwoReads& s, const DimValues& sizes) {
  const Arena& a = *p.arena;
  if (!is_true(a, s.condition)) return std::nullopt;
  std::map<Id, std::pair<int64_t, int64_t>> ranges;
  for (const auto* list : {&s.left, &s.reduced})
    for (const AxisRange& r : *list) {
      if (a[r.begin].axes_count > 0 || a[r.end].axes_count > 0) return std::nullopt;
      int64_t begin = evaluate_extent(a, r.begin, sizes), end = evaluate_extent(a, r.end, sizes);
      if (end <= begin) return std::nullopt;
      ranges[r.axis] = {begin, end};
    }
  std::array<Places, 3> places;
  for (size_t i = 0; i < 2; ++i) {
    auto found = places_of(p, s.reads[i], ranges, sizes);
    if (!found) return std::nullopt;
    places[i] = *found;
  }
  const std::vector<int64_t> written = steps_of(shape_of(p, target, sizes));
  for (size_t i = 0; i < s.left.size(); ++i) places[kC].steps[s.left[i].axis] = written[i];

  std::vector<Line> rows, columns, terms, batch;
  for (const auto* list : {&s.left, &s.reduced})
    for (const AxisRange& r : *list) {
      auto [begin, end] = ranges.at(r.axis);
      Line l{end - begin, {}};
      for (size_t i = 0; i < 3; ++i) {
        auto it = places[i].steps.find(r.axis);
        l.steps[i] = it == places[i].steps.end() ? 0 : it->second;
        places[i].offset += l.steps[i] * begin;
        if (l.steps[i] < 0) return std::nullopt;
      }
      const bool in_a = l.steps[kA] > 0, in_b = l.steps[kB] > 0, left = list == &s.left;
      if (l.extent > 1 && !in_a && !in_b) return std::nullopt;
      if (l.extent > 1 && !left && in_a != in_b) return std::nullopt;  // the axis sums one operand alone
      (!left ? terms : in_a && in_b ? batch : in_a ? rows : columns).push_back(l);
    }
  for (auto* lines : {&rows, &columns, &terms, &batch}) collapse(*lines);
  if (terms.size() > 1) return std::nullopt;
  const Line none{1, {0, 0, 0}};
  auto or_none = [&](std::vector<Line>& lines) {
    if (lines.empty()) lines.push_back(none);
  };
  for (auto* lines : {&rows, &columns, &terms}) or_none(*lines);
  const Line& k = terms[0];
  for (size_t r = rows.size(); r-- > 0;)
    for (size_t c = columns.size(); c-- > 0;) {
      const Line &i = rows[r], &j = columns[c];
      if (!is_matrix(i.extent, i.steps[kA], k.extent, k.steps[kA]) || !is_matrix(k.extent, k.steps[kB], j.extent, j.steps[kB]) ||
          !is_matrix(i.extent, i.steps[kC], j.extent, j.steps[kC]))
        continue;
      // Further axes of rows or columns become axes of the batch, along which the other operand has step 0.
      std::vector<Line> others = batch;
      for (size_t x = 0; x < rows.size(); ++x)
        if (x != r) others.push_back(rows[x]);
      for (size_t x = 0; x < columns.size(); ++x)
        if (x != c) others.push_back(columns[x]);
      std::ranges::stable_sort(others, {}, &Line::extent);  // the longest last: one call does all of its points
      MatrixProduct m;
      m.rows = i.extent;
      m.columns = j.extent;
      m.terms = k.extent;
      m.alpha = s.alpha;
      m.a = side_of(s.reads[0].tensor, s.reads[0].type);
      m.b = side_of(s.reads[1].tensor, s.reads[1].type);
      m.c = side_of(target, p.tensors[target].type);
      m.a.steps = {i.steps[kA], k.steps[kA]};
      m.b.steps = {k.steps[kB], j.steps[kB]};
      m.c.steps = {i.steps[kC], j.steps[kC]};
      std::array<LibrarySide*, 3> sides = {&m.a, &m.b, &m.c};
      for (const Line& l : others) m.batch.push_back(l.extent);
      for (size_t side = 0; side < 3; ++side) {
        sides[side]->offset = places[side].offset;
        for (const Line& l : others) sides[side]->steps.push_back(l.steps[side]);
      }
      return m;
    }
  return std::nullopt;
}

}  // namespace fusion

std::optional<LibraryCall> library_call(const Program& p, const Definition& d, const DimValues& sizes) {
  auto s = fusion::two_reads(p, d);
  if (!s) return std::nullopt;
  for (int64_t n : shape_of(p, d.target(), sizes))
    if (n == 0) return std::nullopt;
  if (auto m = fusion::product_of(p, d.target(), *s, sizes)) return *m;
  if (auto c = fusion::convolution_of(p, d.target(), *s, sizes)) return *c;
  return std::nullopt;
}

}  // namespace xhat

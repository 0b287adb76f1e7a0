// What a library call means, by plain loops over numbers: elements are read and written by functions. Header only.
#pragma once
#include <functional>
#include <numeric>

#include "fusion/library/library_calls.h"

namespace xhat::testing {

using ReadElement = std::function<double(const LibrarySide&, int64_t)>;
using WriteElement = std::function<void(const LibrarySide&, int64_t, double)>;

inline void compute(const MatrixProduct& m, const ReadElement& read, const WriteElement& write) {
  const int64_t points = std::accumulate(m.batch.begin(), m.batch.end(), int64_t{1}, std::multiplies<>());
  for (int64_t point = 0; point < points; ++point) {
    int64_t a = m.a.offset, b = m.b.offset, c = m.c.offset, rest = point;
    for (size_t x = m.batch.size(); x-- > 0; rest /= m.batch[x]) {
      const int64_t at = rest % m.batch[x];
      a += at * m.a.steps[2 + x];
      b += at * m.b.steps[2 + x];
      c += at * m.c.steps[2 + x];
    }
    for (int64_t i = 0; i < m.rows; ++i)
      for (int64_t j = 0; j < m.columns; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < m.terms; ++k)
          sum += read(m.a, a + i * m.a.steps[0] + k * m.a.steps[1]) * read(m.b, b + k * m.b.steps[0] + j * m.b.steps[1]);
        write(m.c, c + i * m.c.steps[0] + j * m.c.steps[1], m.alpha * sum);
      }
  }
}

// Told of every term: where it is in the input, the filter and the output.
inline void for_each_term(const Convolution& c, const std::function<void(int64_t, int64_t, int64_t)>& term) {
  auto space = [&](auto&& self, size_t d, int64_t i, int64_t f, int64_t o) -> void {
    if (d == c.space.size()) return term(i, f, o);
    const auto& s = c.space[d];
    for (int64_t out = 0; out < s.output; ++out)
      for (int64_t r = 0; r < s.filter; ++r) {
        const int64_t at = s.stride * out + s.dilation * r - s.pad;
        if (at < 0 || at >= s.input) continue;
        const int64_t tap = s.flipped ? s.filter - 1 - r : r;
        self(self, d + 1, i + at * c.input.steps[2 + d], f + tap * c.filter.steps[2 + d], o + out * c.output.steps[2 + d]);
      }
  };
  for (int64_t n = 0; n < c.images; ++n)
    for (int64_t g = 0; g < c.groups; ++g)
      for (int64_t k = g * c.filters; k < (g + 1) * c.filters; ++k)
        for (int64_t ch = 0; ch < c.channels; ++ch)
          space(space, 0, n * c.input.steps[0] + (g * c.channels + ch) * c.input.steps[1], k * c.filter.steps[0] + ch * c.filter.steps[1],
                n * c.output.steps[0] + k * c.output.steps[1]);
}

inline void compute(const Convolution& c, int64_t results, const ReadElement& read, const WriteElement& write) {
  std::vector<double> sums(static_cast<size_t>(results), 0.0);
  const LibrarySide* made = nullptr;
  for_each_term(c, [&](int64_t i, int64_t f, int64_t o) {
    switch (c.kind) {
      case Convolution::Kind::forward: sums[static_cast<size_t>(o)] += read(c.input, i) * read(c.filter, f); break;
      case Convolution::Kind::data: sums[static_cast<size_t>(i)] += read(c.output, o) * read(c.filter, f); break;
      case Convolution::Kind::filter: sums[static_cast<size_t>(f)] += read(c.input, i) * read(c.output, o); break;
    }
  });
  switch (c.kind) {
    case Convolution::Kind::forward: made = &c.output; break;
    case Convolution::Kind::data: made = &c.input; break;
    case Convolution::Kind::filter: made = &c.filter; break;
  }
  for (int64_t i = 0; i < results; ++i) write(*made, i, c.alpha * sums[static_cast<size_t>(i)]);
}

// Elements from the tensor's first one to the last that the call touches.
inline int64_t reach(const LibraryCall& call, const LibrarySide& side) {
  if (const auto* m = std::get_if<MatrixProduct>(&call)) {
    const int64_t down = &side == &m->b ? m->terms : m->rows, across = &side == &m->a ? m->terms : m->columns;
    int64_t n = side.offset + 1 + (down - 1) * side.steps[0] + (across - 1) * side.steps[1];
    for (size_t i = 0; i < m->batch.size(); ++i) n += (m->batch[i] - 1) * side.steps[2 + i];
    return n;
  }
  const auto& c = std::get<Convolution>(call);
  const bool input = &side == &c.input, filter = &side == &c.filter;
  int64_t n = c.groups * (filter ? c.filters * c.channels : c.images * (input ? c.channels : c.filters));
  for (const auto& s : c.space) n *= input ? s.input : filter ? s.filter : s.output;
  return n;
}

}  // namespace xhat::testing

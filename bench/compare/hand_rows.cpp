// Reductions along rows that stay in the first-level cache, and sums of rows.
#include <cmath>
#include <utility>
#include <vector>

#include "bench/compare/hand.h"

namespace xhat::bench::hand {
namespace {

constexpr int64_t kRows = 16;  // of a tile

// f(row) for all rows, in tiles.
template <class F>
void rows(int64_t n, F f) {
  tiles((n + kRows - 1) / kRows, [&](int64_t tile) {
    for (int64_t r = tile * kRows, end = std::min(n, r + kRows); r < end; ++r) f(r);
  });
}

float most_of(const float* x, int64_t n) {
  V m[4] = {load_unaligned(x), load_unaligned(x), load_unaligned(x), load_unaligned(x)};
  int64_t i = 0;
  for (; i + 4 * kStep <= n; i += 4 * kStep)
    for (int64_t k = 0; k < 4; ++k) m[k] = max(m[k], load_unaligned(x + i + k * kStep));
  for (; i + kStep <= n; i += kStep) m[0] = max(m[0], load_unaligned(x + i));
  float found = most(max(max(m[0], m[1]), max(m[2], m[3])));
  for (; i < n; ++i) found = std::max(found, x[i]);
  return found;
}

void softmax(TensorOp& op) {
  Tensor x = op.input("x"), y = op.output("y", x.shape);
  Tensor dy = op.cotangent("y"), dx = op.gradient("x");
  const int64_t n = x.columns();
  whole_vectors({n});
  if (n > kMaxColumns) throw Skip("rows longer than the stack's");
  op.saves({"y"});
  op.forward = [=] {
    streamed(8 * x.size(), [&](auto stream) {
      rows(x.rows(), [&](int64_t r) {
        alignas(64) float e[kMaxColumns];
        const float* in = x.data + r * n;
        V m = set(most_of(in, n));
        V s = sum_of(n, [&](int64_t i) {
          V v = exp_of(load(in + i) - m);
          store(e + i, v);
          return v;
        });
        V scale = set(1 / sum(s));
        for (int64_t i = 0; i < n; i += kStep) put<stream.value>(y.data + r * n + i, load(e + i) * scale);
      });
    });
  };
  op.backward = [=] {
    streamed(12 * x.size(), [&](auto stream) {
      rows(x.rows(), [&](int64_t r) {
        const float *out = y.data + r * n, *d = dy.data + r * n;
        V s = set(sum(sum_of(n, [&](int64_t i) { return load(out + i) * load(d + i); })));
        for (int64_t i = 0; i < n; i += kStep) put<stream.value>(dx.data + r * n + i, load(out + i) * (load(d + i) - s));
      });
    });
  };
}

// Rows of any length: where sums are made, the last vector is filled up; where a map is, it overlaps the one before.
void cross_entropy(TensorOp& op) {
  Tensor x = op.input("x"), y = op.output("y", {x.rows()}), logsumexp = op.stash({x.rows()});
  Tensor dy = op.cotangent("y"), dx = op.gradient("x");
  const int32_t* labels = op.ids("labels").ints();
  const int64_t n = x.columns(), whole = n / kStep * kStep;
  if (n < kStep) throw Skip("rows shorter than a vector");
  op.saves({"x", "labels"});
  op.forward = [=] {
    rows(x.rows(), [&](int64_t r) {
      const float* in = x.data + r * n;
      const float m = most_of(in, n);
      V s = sum_of(whole, [&](int64_t i) { return exp_of(load_unaligned(in + i) - set(m)); });
      if (whole < n) {
        alignas(64) float last[kLanes];
        std::fill(last, last + kLanes, m - 100);  // e^-100 is nothing
        std::copy(in + whole, in + n, last);
        s += exp_of(load(last) - set(m));
      }
      logsumexp.data[r] = std::log(sum(s)) + m;
      y.data[r] = logsumexp.data[r] - in[labels[r]];
    });
  };
  op.backward = [=] {
    rows(x.rows(), [&](int64_t r) {
      float* out = dx.data + r * n;
      auto part = [&](int64_t i) {
        store_unaligned(out + i, set(dy.data[r]) * exp_of(load_unaligned(x.data + r * n + i) - set(logsumexp.data[r])));
      };
      for (int64_t i = 0; i < whole; i += kStep) part(i);
      if (whole < n) part(n - kStep);
      out[labels[r]] -= dy.data[r];
    });
  };
}

// f(r, sums) for all rows, where `sums` are rows that it adds to, of `totals` each; these then are the sums of all.
class RowsWithSums {
 public:
  RowsWithSums(TensorOp& op, int64_t count, std::vector<Tensor> totals)
      : count_(count), totals_(std::move(totals)), columns_(totals_[0].columns()) {
    partial_ = op.scratch({kParts * threads(), static_cast<int64_t>(totals_.size()), columns_});
  }

  template <class F>
  void operator()(F f) const {
    const int64_t parts = partial_.shape[0], size = partial_.size() / parts;
    tiles(parts, [&](int64_t part) {
      float* sums = partial_.data + part * size;
      std::fill(sums, sums + size, 0.0f);
      for (int64_t r = count_ * part / parts; r < count_ * (part + 1) / parts; ++r) f(r, sums);
    });
    for (size_t t = 0; t < totals_.size(); ++t)
      for (int64_t i = 0; i < columns_; i += kStep) {
        V total = set(0);
        for (int64_t part = 0; part < parts; ++part) total += load(partial_.data + part * size + static_cast<int64_t>(t) * columns_ + i);
        store(totals_[t].data + i, total);
      }
  }

 private:
  static constexpr int64_t kParts = 4;  // per thread

  int64_t count_;
  std::vector<Tensor> totals_;
  int64_t columns_;
  Tensor partial_;
};

void add_to(float* sum, V v) { store(sum, load(sum) + v); }

void layer_norm(TensorOp& op) {
  Tensor x = op.input("x"), gamma = op.input("gamma"), beta = op.input("beta"), y = op.output("y", x.shape);
  Tensor mean = op.stash({x.rows()}), scale = op.stash({x.rows()});
  Tensor dy = op.cotangent("y"), dx = op.gradient("x"), dgamma = op.gradient("gamma"), dbeta = op.gradient("beta");
  const int64_t n = x.columns();
  const float count = static_cast<float>(n);
  const RowsWithSums rows_with_sums(op, x.rows(), {dgamma, dbeta});
  whole_vectors({n});
  op.saves({"x", "gamma"});
  op.forward = [=] {
    streamed(8 * x.size(), [&](auto stream) {
      rows(x.rows(), [&](int64_t r) {
        const float* in = x.data + r * n;
        const auto [m, s] = moments_of(in, n);
        mean.data[r] = m;
        scale.data[r] = s;
        for (int64_t i = 0; i < n; i += kStep)
          put<stream.value>(y.data + r * n + i, fma((load(in + i) - set(m)) * set(s), load(gamma.data + i), load(beta.data + i)));
      });
    });
  };
  op.backward = [=] {
    streamed(12 * x.size(), [&](auto stream) {
      rows_with_sums([&](int64_t r, float* sums) {
        const float *in = x.data + r * n, *d = dy.data + r * n;
        const V m = set(mean.data[r]), s = set(scale.data[r]);
        V level = set(0), along = set(0);
        for (int64_t i = 0; i < n; i += kStep) {
          V normal = (load(in + i) - m) * s, g = load(d + i), scaled = g * load(gamma.data + i);
          add_to(sums + i, g * normal);
          add_to(sums + n + i, g);
          level += scaled;
          along = fma(scaled, normal, along);
        }
        const V a = set(sum(level) / count), b = set(sum(along) / count);
        for (int64_t i = 0; i < n; i += kStep) {
          V normal = (load(in + i) - m) * s;
          put<stream.value>(dx.data + r * n + i, s * (load(d + i) * load(gamma.data + i) - a - normal * b));
        }
      });
    });
  };
}

void rms_norm(TensorOp& op) {
  Tensor x = op.input("x"), gamma = op.input("gamma"), y = op.output("y", x.shape), scale = op.stash({x.rows()});
  Tensor dy = op.cotangent("y"), dx = op.gradient("x"), dgamma = op.gradient("gamma");
  const int64_t n = x.columns();
  const float count = static_cast<float>(n);
  const RowsWithSums rows_with_sums(op, x.rows(), {dgamma});
  whole_vectors({n});
  op.saves({"x", "gamma"});
  op.forward = [=] {
    streamed(8 * x.size(), [&](auto stream) {
      rows(x.rows(), [&](int64_t r) {
        const float* in = x.data + r * n;
        V squares = sum_of(n, [&](int64_t i) { return load(in + i) * load(in + i); });
        const V s = set(scale.data[r] = 1 / std::sqrt(sum(squares) / count + kEps));
        for (int64_t i = 0; i < n; i += kStep) put<stream.value>(y.data + r * n + i, load(in + i) * s * load(gamma.data + i));
      });
    });
  };
  op.backward = [=] {
    streamed(12 * x.size(), [&](auto stream) {
      rows_with_sums([&](int64_t r, float* sums) {
        const float *in = x.data + r * n, *d = dy.data + r * n;
        const V s = set(scale.data[r]);
        V along = sum_of(n, [&](int64_t i) {
          V product = load(d + i) * load(in + i);
          add_to(sums + i, product * s);
          return product * load(gamma.data + i);
        });
        const V slope = set(sum(along) / count) * s * s;
        for (int64_t i = 0; i < n; i += kStep)
          put<stream.value>(dx.data + r * n + i, s * (load(d + i) * load(gamma.data + i) - slope * load(in + i)));
      });
    });
  };
}

// u (1 + tanh(g))/2 with g = a (u + b u^3).
void gelu_tanh_bias(TensorOp& op) {
  Tensor x = op.input("x"), b = op.input("b"), y = op.output("y", x.shape);
  Tensor dy = op.cotangent("y"), dx = op.gradient("x"), db = op.gradient("b");
  const int64_t n = x.columns();
  const RowsWithSums rows_with_sums(op, x.rows(), {db});
  constexpr float kA = 0.7978845608f, kAB = kA * 0.044715f;
  whole_vectors({n});
  op.saves({"x", "b"});
  op.forward = [=] {
    streamed(8 * x.size(), [&](auto stream) {
      rows(x.rows(), [&](int64_t r) {
        for (int64_t i = 0; i < n; i += kStep) {
          V u = load(x.data + r * n + i) + load(b.data + i), half = u * set(0.5f);
          put<stream.value>(y.data + r * n + i, fma(half, tanh_of(u * fma(u * u, set(kAB), set(kA))), half));
        }
      });
    });
  };
  op.backward = [=] {
    streamed(12 * x.size(), [&](auto stream) {
      rows_with_sums([&](int64_t r, float* sums) {
        for (int64_t i = 0; i < n; i += kStep) {
          V u = load(x.data + r * n + i) + load(b.data + i), square = u * u, half = set(0.5f);
          V t = tanh_of(u * fma(square, set(kAB), set(kA)));
          V slope = (set(1) - t * t) * u * fma(square, set(3 * kAB), set(kA));
          V out = load(dy.data + r * n + i) * fma(half, t + slope, half);
          add_to(sums + i, out);
          put<stream.value>(dx.data + r * n + i, out);
        }
      });
    });
  };
}

// Pairs (d, d+K) of a row turned by an angle of the step t; backward: turned back.
void rope(TensorOp& op) {
  Tensor x = op.input("x"), cos = op.input("cos"), sin = op.input("sin"), y = op.output("y", x.shape);
  Tensor dy = op.cotangent("y"), dx = op.gradient("x");
  const int64_t steps = x.shape[1], heads = x.shape[2], half = cos.columns();
  whole_vectors({half});
  op.saves({"cos", "sin"});
  auto turn = [=](const Tensor& to, const Tensor& from, float sign) {
    rows(x.shape[0] * steps, [&](int64_t r) {
      const float *c = cos.data + r % steps * half, *s = sin.data + r % steps * half;
      for (int64_t h = r * heads; h < (r + 1) * heads; ++h)
        for (int64_t d = 0; d < half; d += kStep) {
          const float* in = from.data + h * 2 * half + d;
          V a = load(in), b = load(in + half), along = load(c + d), across = load(s + d) * set(sign);
          store(to.data + h * 2 * half + d, a * along - b * across);
          store(to.data + h * 2 * half + half + d, fma(b, along, a * across));
        }
    });
  };
  op.forward = [=] { turn(y, x, 1); };
  op.backward = [=] { turn(dx, dy, -1); };
}

// Bags of rows of a table.
void embedding_sum(TensorOp& op) {
  Tensor table = op.input("table");
  const Data& bags = op.ids("ids");
  const int32_t* ids = bags.ints();
  const int64_t length = bags.shape[1], count = bags.shape[0], n = table.columns();
  Tensor y = op.output("y", {count, n}), dy = op.cotangent("y"), dtable = op.gradient("table");
  constexpr int64_t kWidth = 8;  // vectors in registers
  whole_vectors({n});
  if (n % (kWidth * kStep) != 0) throw Skip("not by hand at such rows");
  op.saves({"ids"});
  // The sum of the rows from(k), k = 0, 1, ... below n.
  auto gather = [=](float* to, const Tensor& rows_of, int64_t terms, auto from) {
    for (int64_t first = 0; first < n; first += kWidth * kStep) {
      V s[kWidth];
      for (V& v : s) v = set(0);
      for (int64_t k = 0; k < terms; ++k)
        for (int64_t j = 0; j < kWidth; ++j) s[j] += load(rows_of.data + from(k) * n + first + j * kStep);
      for (int64_t j = 0; j < kWidth; ++j) store(to + first + j * kStep, s[j]);
    }
  };
  op.forward = [=] {
    rows(count, [&](int64_t r) { gather(y.data + r * n, table, length, [&](int64_t l) { return ids[r * length + l]; }); });
  };
  // Each thread has a part of the table: which bags each of its rows is in, by counting, then their sum. Of rows of others, the last
  // one of the lists takes note: a branch would be mispredicted.
  op.backward = [=] {
    const int64_t parts = threads(), v = table.rows();
    tiles(parts, [&](int64_t part) {
      const int64_t begin = v * part / parts, size = v * (part + 1) / parts - begin;
      thread_local std::vector<int32_t> starts, bag;
      starts.assign(static_cast<size_t>(size) + 3, 0);
      bag.resize(static_cast<size_t>(count * length));
      auto row_of = [&](int64_t i) { return std::min(static_cast<size_t>(ids[i] - begin), static_cast<size_t>(size)); };
      for (int64_t i = 0; i < count * length; ++i) ++starts[row_of(i) + 2];
      for (size_t i = 1; i < starts.size(); ++i) starts[i] += starts[i - 1];
      for (int32_t b = 0; b < count; ++b)
        for (int64_t i = b * length; i < (b + 1) * length; ++i) bag[static_cast<size_t>(starts[row_of(i) + 1]++)] = b;
      for (int64_t row = 0; row < size; ++row) {
        const int32_t *at = &starts[static_cast<size_t>(row)], *list = bag.data() + at[0];
        gather(dtable.data + (begin + row) * n, dy, at[1] - at[0], [&](int64_t k) { return list[k]; });
      }
    });
  };
}

}  // namespace

Loaders row_loaders() {
  return {{"softmax", softmax},   {"cross_entropy", cross_entropy},   {"layer_norm", layer_norm},
          {"rms_norm", rms_norm}, {"gelu_tanh_bias", gelu_tanh_bias}, {"embedding_sum", embedding_sum},
          {"rope", rope}};
}

}  // namespace xhat::bench::hand

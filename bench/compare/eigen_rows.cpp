// Normalizations and losses: reductions along rows, or along the planes of an image's channels.
// And what else goes by rows or planes.
#include <cmath>

#include "bench/compare/eigen_op.h"

namespace xhat::bench::eigen {
namespace {

constexpr float kEps = 1e-5f;

void softmax(Op& op) {
  Tensor x = op.input("x"), y = op.output("y", x.shape);
  Tensor dy = op.cotangent("y"), dx = op.gradient("x");
  op.saves({"y"});
  op.forward = [=] {
    parallel(x.rows(), [&](Index i) {
      Part in = x.row(i), out = y.row(i);
      out = (in - in.maxCoeff()).exp();
      out *= 1 / out.sum();
    });
  };
  op.backward = [=] {
    parallel(x.rows(), [&](Index i) {
      Part out = y.row(i), d = dy.row(i);
      dx.row(i) = out * (d - (d * out).sum());
    });
  };
}

void cross_entropy(Op& op) {
  Tensor x = op.input("x"), y = op.output("y", {x.rows()}), logsumexp = op.stash({x.rows()});
  Tensor dy = op.cotangent("y"), dx = op.gradient("x");
  const int32_t* labels = op.ids("labels").ints();
  op.saves({"x", "labels"});
  op.forward = [=] {
    parallel(x.rows(), [&](Index i) {
      Part in = x.row(i);
      float most = in.maxCoeff();
      logsumexp.data[i] = std::log((in - most).exp().sum()) + most;
      y.data[i] = logsumexp.data[i] - in[labels[i]];
    });
  };
  op.backward = [=] {
    parallel(x.rows(), [&](Index i) {
      Part d = dx.row(i);
      d = dy.data[i] * (x.row(i) - logsumexp.data[i]).exp();
      d[labels[i]] -= dy.data[i];
    });
  };
}

void rms_norm(Op& op) {
  Tensor x = op.input("x"), gamma = op.input("gamma"), y = op.output("y", x.shape),
         scale = op.stash({x.rows()});
  Tensor dy = op.cotangent("y"), dx = op.gradient("x"), dgamma = op.gradient("gamma");
  op.saves({"x", "gamma"});
  op.forward = [=] {
    parallel(x.rows(), [&](Index i) {
      Part in = x.row(i);
      float s = scale.data[i] = 1 / std::sqrt(in.square().mean() + kEps);
      y.row(i) = in * s * gamma.flat();
    });
  };
  op.backward = [=] {
    by_rows_with_sums(x.rows(), {dgamma}, [&](Index i, ArrayXXf& sums) {
      Part in = x.row(i), d = dy.row(i);
      float s = scale.data[i];
      float along = s * s * s * (d * gamma.flat() * in).mean();
      dx.row(i) = d * gamma.flat() * s - in * along;
      sums.col(0) += d * in * s;
    });
  };
}

void layer_norm(Op& op) {
  Tensor x = op.input("x"), gamma = op.input("gamma"), beta = op.input("beta"), y = op.output("y", x.shape);
  Tensor mean = op.stash({x.rows()}), scale = op.stash({x.rows()});
  Tensor dy = op.cotangent("y"), dx = op.gradient("x"), dgamma = op.gradient("gamma"),
         dbeta = op.gradient("beta");
  op.saves({"x", "gamma"});
  op.forward = [=] {
    parallel(x.rows(), [&](Index i) {
      float m = mean.data[i] = x.row(i).mean();
      Temporary centred = x.row(i) - m;
      float s = scale.data[i] = 1 / std::sqrt(centred.square().mean() + kEps);
      y.row(i) = centred * s * gamma.flat() + beta.flat();
    });
  };
  op.backward = [=] {
    by_rows_with_sums(x.rows(), {dgamma, dbeta}, [&](Index i, ArrayXXf& sums) {
      Part d = dy.row(i);
      float s = scale.data[i];
      Temporary normal = (x.row(i) - mean.data[i]) * s;
      Temporary dnormal = d * gamma.flat();
      float level = dnormal.mean(), along = (dnormal * normal).mean();
      dx.row(i) = s * (dnormal - level - normal * along);
      sums.col(0) += d * normal;
      sums.col(1) += d;
    });
  };
}

// An [N,C,H,W] tensor's planes, one after another.
struct Planes {
  explicit Planes(const Tensor& x)
      : images(x.shape[0]), channels(x.shape[1]), plane(x.shape[2] * x.shape[3]) {}
  Part operator()(const Tensor& x, Index image, Index channel) const {
    return x.part((image * channels + channel) * plane, plane);
  }
  Index images, channels, plane;
};

// A channel is 400 kB: its passes after the first find it in the second-level cache.
void batch_norm_train(Op& op) {
  Tensor x = op.input("x"), gamma = op.input("gamma"), beta = op.input("beta"), y = op.output("y", x.shape);
  Tensor mean = op.stash(gamma.shape), scale = op.stash(gamma.shape);
  Tensor dy = op.cotangent("y"), dx = op.gradient("x"), dgamma = op.gradient("gamma"),
         dbeta = op.gradient("beta");
  op.saves({"x", "gamma"});
  Planes of(x);
  const float count = static_cast<float>(of.images * of.plane);
  op.forward = [=] {
    parallel(of.channels, [&](Index c) {
      float sum = 0, squares = 0;
      for (Index n = 0; n < of.images; ++n) sum += of(x, n, c).sum();
      float m = mean.data[c] = sum / count;
      for (Index n = 0; n < of.images; ++n) squares += (of(x, n, c) - m).square().sum();
      float s = scale.data[c] = 1 / std::sqrt(squares / count + kEps);
      for (Index n = 0; n < of.images; ++n)
        of(y, n, c) = (of(x, n, c) - m) * (s * gamma.data[c]) + beta.data[c];
    });
  };
  op.backward = [=] {
    parallel(of.channels, [&](Index c) {
      float m = mean.data[c], s = scale.data[c], sum = 0, along = 0;
      for (Index n = 0; n < of.images; ++n) {
        sum += of(dy, n, c).sum();
        along += (of(dy, n, c) * (of(x, n, c) - m)).sum();
      }
      dbeta.data[c] = sum;
      dgamma.data[c] = along * s;
      float level = sum / count, slope = along * s * s / count;
      for (Index n = 0; n < of.images; ++n)
        of(dx, n, c) = (gamma.data[c] * s) * (of(dy, n, c) - level - (of(x, n, c) - m) * slope);
    });
  };
}

// Groups of 8 channels: 8 planes, one after another.
void group_norm(Op& op) {
  constexpr Index size = 8;
  Tensor x = op.input("x"), gamma = op.input("gamma"), beta = op.input("beta"), y = op.output("y", x.shape);
  Planes of(x);
  const Index groups = of.channels / size, elements = size * of.plane;
  Tensor mean = op.stash({of.images, groups}), scale = op.stash({of.images, groups});
  Tensor dy = op.cotangent("y"), dx = op.gradient("x"), dgamma = op.gradient("gamma"),
         dbeta = op.gradient("beta");
  op.saves({"x", "gamma"});
  op.forward = [=] {
    parallel(of.images * groups, [&](Index i) {
      Part in = x.part(i * elements, elements);
      float m = mean.data[i] = in.mean();
      float s = scale.data[i] = 1 / std::sqrt((in - m).square().mean() + kEps);
      Index n = i / groups, first = i % groups * size;
      for (Index c = first; c < first + size; ++c)
        of(y, n, c) = (of(x, n, c) - m) * (s * gamma.data[c]) + beta.data[c];
    });
  };
  op.backward = [=] {
    by_rows_with_sums(of.images * groups, {dgamma, dbeta}, [&](Index i, ArrayXXf& sums) {
      Index n = i / groups, first = i % groups * size;
      float m = mean.data[i], s = scale.data[i], level = 0, along = 0;
      for (Index c = first; c < first + size; ++c) {
        float sum = of(dy, n, c).sum(), product = (of(dy, n, c) * (of(x, n, c) - m)).sum() * s;
        sums(c, 0) += product;
        sums(c, 1) += sum;
        level += gamma.data[c] * sum / static_cast<float>(elements);
        along += gamma.data[c] * product / static_cast<float>(elements);
      }
      for (Index c = first; c < first + size; ++c)
        of(dx, n, c) = s * (gamma.data[c] * of(dy, n, c) - level - (of(x, n, c) - m) * (s * along));
    });
  };
}

void normalize_bgr(Op& op) {
  Tensor x = op.input("x"), mean = op.input("mean"), scale = op.input("scale"), y = op.output("y", x.shape);
  Tensor dy = op.cotangent("y"), dx = op.gradient("x");
  op.saves({"scale"});
  Planes of(x);
  op.forward = [=] {
    parallel(of.images, [&](Index n) {
      for (Index c = 0; c < of.channels; ++c)
        of(y, n, c) = (of(x, n, of.channels - 1 - c) - mean.data[c]) * scale.data[c];
    });
  };
  op.backward = [=] {
    parallel(of.images, [&](Index n) {
      for (Index c = 0; c < of.channels; ++c) of(dx, n, of.channels - 1 - c) = of(dy, n, c) * scale.data[c];
    });
  };
}

void embedding_sum(Op& op) {
  Tensor table = op.input("table");
  const Data& bags = op.ids("ids");
  const int32_t* ids = bags.ints();
  const Index length = bags.shape[1], columns = table.columns();
  Tensor y = op.output("y", {bags.shape[0], columns}), dy = op.cotangent("y"), dtable = op.gradient("table");
  op.saves({"ids"});
  op.forward = [=] {
    parallel(y.rows(), [&](Index i) {
      Temporary sum = table.row(ids[i * length]);
      for (Index l = 1; l < length; ++l) sum += table.row(ids[i * length + l]);
      y.row(i) = sum;
    });
  };
  // Threads share out the columns, so that no two add to one element.
  op.backward = [=] {
    parallel(threads(), [&](Index t) {
      Index first = columns * t / threads(), count = columns * (t + 1) / threads() - first;
      for (Index v = 0; v < dtable.rows(); ++v) dtable.row(v).segment(first, count).setZero();
      for (Index at = 0; at < y.rows() * length; ++at)
        dtable.row(ids[at]).segment(first, count) += dy.row(at / length).segment(first, count);
    });
  };
}

}  // namespace

Loaders row_loaders() {
  return {{"softmax", softmax},
          {"cross_entropy", cross_entropy},
          {"rms_norm", rms_norm},
          {"layer_norm", layer_norm},
          {"batch_norm_train", batch_norm_train},
          {"group_norm", group_norm},
          {"normalize_bgr", normalize_bgr},
          {"embedding_sum", embedding_sum}};
}

}  // namespace xhat::bench::eigen

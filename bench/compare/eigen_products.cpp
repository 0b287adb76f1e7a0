// Matrix products. A product adds to what its result holds: a bias set there first costs no pass of its own.
#include "bench/compare/eigen_op.h"

namespace xhat::bench::eigen {
namespace {

void set_rows(const Tensor& to, const Tensor& bias) {
  parallel(to.rows(), [&](Index i) { to.row(i) = bias.flat(); });
}

void gelu(const Tensor& y, const Tensor& u) {
  by_blocks([](Part out, Part in) { out = 0.5f * in * (1 + gelu_tanh(in)); }, y, u);
}

void dense_gelu(Op& op) {
  Tensor x = op.input("x"), w = op.input("w"), b = op.input("b"), y = op.output("y", {x.rows(), w.columns()});
  Tensor u = op.stash(y.shape), du = op.scratch(y.shape);
  Tensor dy = op.cotangent("y"), dx = op.gradient("x"), dw = op.gradient("w"), db = op.gradient("b");
  op.saves({"x", "w"});
  op.infer = [=] {
    set_rows(y, b);
    y.matrix().noalias() += x.matrix() * w.matrix();
    gelu(y, y);
  };
  op.forward = [=] {
    set_rows(u, b);
    u.matrix().noalias() += x.matrix() * w.matrix();
    gelu(y, u);
  };
  op.backward = [=] {
    by_rows_with_sums(u.rows(), {db}, [&](Index i, ArrayXXf& sums) {
      Part in = u.row(i);
      Temporary t = gelu_tanh(in);
      du.row(i) = dy.row(i) * gelu_slope(in, t);
      sums.col(0) += du.row(i);
    });
    dx.matrix().noalias() = du.matrix() * w.matrix().transpose();
    dw.matrix().noalias() = x.matrix().transpose() * du.matrix();
  };
}

void mlp2(Op& op) {
  Tensor x = op.input("x"), w1 = op.input("w1"), b1 = op.input("b1"), w2 = op.input("w2"),
         b2 = op.input("b2");
  Tensor y = op.output("y", {x.rows(), w2.columns()});
  Tensor u = op.stash({x.rows(), w1.columns()}), g = op.scratch(u.shape), du = op.scratch(u.shape);
  Tensor dy = op.cotangent("y"), dx = op.gradient("x");
  Tensor dw1 = op.gradient("w1"), db1 = op.gradient("b1"), dw2 = op.gradient("w2"), db2 = op.gradient("b2");
  op.saves({"x", "w1", "w2"});
  op.forward = [=] {
    set_rows(u, b1);
    u.matrix().noalias() += x.matrix() * w1.matrix();
    gelu(g, u);
    set_rows(y, b2);
    y.matrix().noalias() += g.matrix() * w2.matrix();
  };
  // gelu(u) is made again from u, beside its slope, which needs the same tanh.
  op.backward = [=] {
    du.matrix().noalias() = dy.matrix() * w2.matrix().transpose();
    by_rows_with_sums(u.rows(), {db1}, [&](Index i, ArrayXXf& sums) {
      Part in = u.row(i), d = du.row(i);
      Temporary t = gelu_tanh(in);
      g.row(i) = 0.5f * in * (1 + t);
      d *= gelu_slope(in, t);
      sums.col(0) += d;
    });
    dw2.matrix().noalias() = g.matrix().transpose() * dy.matrix();
    db2.flat() = dy.matrix().colwise().sum().transpose().array();
    dx.matrix().noalias() = du.matrix() * w1.matrix().transpose();
    dw1.matrix().noalias() = x.matrix().transpose() * du.matrix();
  };
}

void matmul_chain(Op& op) {
  Tensor a = op.input("a"), b = op.input("b"), d = op.input("d");
  Tensor c = op.stash({a.rows(), b.rows()}), y = op.output("y", {a.rows(), d.rows()}),
         dc = op.scratch(c.shape);
  Tensor dy = op.cotangent("y"), da = op.gradient("a"), db = op.gradient("b"), dd = op.gradient("d");
  op.saves({"a", "b", "d"});
  op.forward = [=] {
    c.matrix().noalias() = a.matrix() * b.matrix().transpose();
    y.matrix().noalias() = c.matrix() * d.matrix().transpose();
  };
  op.backward = [=] {
    dc.matrix().noalias() = dy.matrix() * d.matrix();
    da.matrix().noalias() = dc.matrix() * b.matrix();
    db.matrix().noalias() = dc.matrix().transpose() * a.matrix();
    dd.matrix().noalias() = dy.matrix().transpose() * c.matrix();
  };
}

// Batches of 8x8: sizes known to the compiler, and Eigen's lazy product, not the one for large matrices.
void matmul_chain_8x8(Op& op) {
  using Small = Eigen::Matrix<float, 8, 8, Eigen::RowMajor>;
  auto at = [](const Tensor& t, Index i) { return Eigen::Map<Small>(t.data + i * 64); };
  Tensor a = op.input("a"), b = op.input("b"), d = op.input("d"), y = op.output("y", a.shape);
  Tensor dy = op.cotangent("y"), da = op.gradient("a"), db = op.gradient("b"), dd = op.gradient("d");
  op.saves({"a", "b", "d"});
  op.forward = [=] {
    parallel(a.shape[0], [&](Index i) {
      Small bt = at(b, i).transpose(), dt = at(d, i).transpose();
      Small c = at(a, i).lazyProduct(bt);
      at(y, i) = c.lazyProduct(dt);
    });
  };
  op.backward = [=] {
    parallel(a.shape[0], [&](Index i) {
      Small bt = at(b, i).transpose(), dyt = at(dy, i).transpose();
      Small c = at(a, i).lazyProduct(bt), dc = at(dy, i).lazyProduct(at(d, i));
      Small dct = dc.transpose();
      at(da, i) = dc.lazyProduct(at(b, i));
      at(db, i) = dct.lazyProduct(at(a, i));
      at(dd, i) = dyt.lazyProduct(c);
    });
  };
}

// Heads in parallel; a product inside runs on its head's thread.
void attention(Op& op) {
  constexpr float scale = 0.125f;  // 64^-1/2
  Tensor q = op.input("q"), k = op.input("k"), v = op.input("v"), y = op.output("y", q.shape);
  const int64_t heads = q.shape[0] * q.shape[1], length = q.shape[2];
  Tensor p = op.stash({heads, length, length}), ds = op.scratch(p.shape);
  Tensor dy = op.cotangent("y"), dq = op.gradient("q"), dk = op.gradient("k"), dv = op.gradient("v");
  op.saves({"q", "k", "v"});
  op.forward = [=] {
    parallel(heads, [&](Index h) {
      p.matrix(h).noalias() = scale * q.matrix(h) * k.matrix(h).transpose();
      for (Index i = h * length; i < (h + 1) * length; ++i) {
        Part row = p.row(i);
        row = (row - row.maxCoeff()).exp();
        row *= 1 / row.sum();
      }
      y.matrix(h).noalias() = p.matrix(h) * v.matrix(h);
    });
  };
  op.backward = [=] {
    parallel(heads, [&](Index h) {
      dv.matrix(h).noalias() = p.matrix(h).transpose() * dy.matrix(h);
      ds.matrix(h).noalias() = dy.matrix(h) * v.matrix(h).transpose();
      for (Index i = h * length; i < (h + 1) * length; ++i) {
        Part d = ds.row(i), row = p.row(i);
        float along = (d * row).sum();
        d = row * (d - along) * scale;
      }
      dq.matrix(h).noalias() = ds.matrix(h) * k.matrix(h);
      dk.matrix(h).noalias() = ds.matrix(h).transpose() * q.matrix(h);
    });
  };
}

}  // namespace

Loaders product_loaders() {
  return {{"dense_gelu", dense_gelu},
          {"mlp2", mlp2},
          {"matmul_chain_512", matmul_chain},
          {"matmul_chain_8x8_b1024", matmul_chain_8x8},
          {"attention", attention}};
}

}  // namespace xhat::bench::eigen

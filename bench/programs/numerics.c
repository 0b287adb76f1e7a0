// Programs of tests/audit/numerics.xh as plain C loops, at the sizes of docs/performance.md: least of 30 runs.
//   gcc -O3 -march=native -fno-math-errno bench/programs/numerics.c -o numerics -lm && ./numerics
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
static double now() {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}
#define RANDOM(x) \
  for (size_t q_ = 0; q_ < sizeof(x) / sizeof(double); q_++) ((double*)x)[q_] = rand() / (double)RAND_MAX - 0.5;
#define BEST(name, code)                           \
  {                                                \
    double best = 1e9;                             \
    for (int k_ = 0; k_ < 30; k_++) {              \
      double t_ = now();                           \
      code;                                        \
      t_ = now() - t_;                             \
      if (t_ < best) best = t_;                    \
    }                                              \
    printf("%-12s %10.1f us\n", name, best * 1e6); \
  }
static double u[200][200], v[200][200], p[200][200], q[200][200];
static void adi() {
  int N = 200;
  for (int t = 0; t < 10; t++) {
    for (int i = 1; i < N - 1; i++) {
      v[0][i] = 1;
      p[i][0] = 0;
      q[i][0] = 1;
      for (int j = 1; j < N - 1; j++) {
        p[i][j] = 0.3 / (1.6 - 0.3 * p[i][j - 1]);
        q[i][j] = (0.2 * u[j][i - 1] + 0.6 * u[j][i] + 0.2 * u[j][i + 1] + 0.3 * q[i][j - 1]) / (1.6 - 0.3 * p[i][j - 1]);
      }
      v[N - 1][i] = 1;
      for (int j = N - 2; j > 0; j--) v[j][i] = p[i][j] * v[j + 1][i] + q[i][j];
    }
    for (int i = 1; i < N - 1; i++) {
      u[i][0] = 1;
      p[i][0] = 0;
      q[i][0] = 1;
      for (int j = 1; j < N - 1; j++) {
        p[i][j] = 0.2 / (1.4 - 0.2 * p[i][j - 1]);
        q[i][j] = (0.3 * v[i - 1][j] + 0.4 * v[i][j] + 0.3 * v[i + 1][j] + 0.2 * q[i][j - 1]) / (1.4 - 0.2 * p[i][j - 1]);
      }
      u[i][N - 1] = 1;
      for (int j = N - 2; j > 0; j--) u[i][j] = p[i][j] * u[i][j + 1] + q[i][j];
    }
  }
}
static double L[500][500], b[500], x[500];
static void trisolv() {
  for (int i = 0; i < 500; i++) {
    double s = b[i];
    for (int j = 0; j < i; j++) s -= L[i][j] * x[j];
    x[i] = s / (L[i][i] * L[i][i] + 1);
  }
}
static double X[500][500], Y[500][500], Z[500][500], O[500][500];
static void deriche() {
  double k = .1, a2 = .2, b1 = .3, b2 = -.1, e = .5;
  for (int i = 0; i < 500; i++) {
    double x1 = 0, y1 = 0, y2 = 0;
    for (int j = 0; j < 500; j++) {
      Y[i][j] = k * X[i][j] + a2 * x1 + b1 * y1 + b2 * y2;
      x1 = X[i][j];
      y2 = y1;
      y1 = Y[i][j];
    }
    double p1 = 0, p2 = 0, q1 = 0;
    for (int j = 499; j >= 0; j--) {
      Z[i][j] = a2 * q1 + k * e * p1 + b1 * p1 + b2 * p2;
      q1 = X[i][j];
      p2 = p1;
      p1 = Z[i][j];
    }
  }
  for (int i = 0; i < 500; i++)
    for (int j = 0; j < 500; j++) O[i][j] = Y[i][j] + Z[i][j];
}
static double S[100][100], T[100][100];
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
static void intervals() {
  memset(T, 0, sizeof T);
  for (int i = 99; i >= 0; i--)
    for (int j = i + 1; j < 100; j++) {
      double m = LARGER(T[i][j], T[i][j - 1]);
      m = LARGER(m, T[i + 1 < 100 ? i + 1 : 99][j]);
      if (j - 1 > i) m = LARGER(m, T[i + 1][j - 1] + S[i][j]);
      for (int k = i + 1; k < j; k++) m = LARGER(m, T[i][k] + T[k + 1][j]);
      T[i][j] = m;
    }
}
static double A[100][100], bb[100], yy[100], xx[100];
static void ludcmp() {
  for (int i = 0; i < 100; i++) A[i][i] += 3;
  for (int i = 0; i < 100; i++) {
    for (int j = 0; j < i; j++) {
      double w = A[i][j];
      for (int k = 0; k < j; k++) w -= A[i][k] * A[k][j];
      A[i][j] = w / A[j][j];
    }
    for (int j = i; j < 100; j++) {
      double w = A[i][j];
      for (int k = 0; k < i; k++) w -= A[i][k] * A[k][j];
      A[i][j] = w;
    }
  }
  for (int i = 0; i < 100; i++) {
    double s = bb[i];
    for (int j = 0; j < i; j++) s -= A[i][j] * yy[j];
    yy[i] = s;
  }
  for (int i = 99; i >= 0; i--) {
    double s = yy[i];
    for (int j = i + 1; j < 100; j++) s -= A[i][j] * xx[j];
    xx[i] = s / A[i][i];
  }
}
static double ja[4000], jb[4000];
static void jacobi() {
  for (int t = 0; t < 100; t++) {
    for (int i = 1; i < 3999; i++) jb[i] = .3 * (ja[i - 1] + ja[i] + ja[i + 1]);
    for (int i = 1; i < 3999; i++) ja[i] = .33333 * (jb[i - 1] + jb[i] + jb[i + 1]);
  }
}
static double ha[40][40][40], hb[40][40][40];
static void heat() {
  for (int t = 0; t < 20; t++) {
    for (int i = 1; i < 39; i++)
      for (int j = 1; j < 39; j++)
        for (int k = 1; k < 39; k++)
          hb[i][j][k] = ha[i][j][k] + .125 * (ha[i + 1][j][k] - 2 * ha[i][j][k] + ha[i - 1][j][k]) +
                        .125 * (ha[i][j + 1][k] - 2 * ha[i][j][k] + ha[i][j - 1][k]) +
                        .125 * (ha[i][j][k + 1] - 2 * ha[i][j][k] + ha[i][j][k - 1]);
    for (int i = 1; i < 39; i++)
      for (int j = 1; j < 39; j++)
        for (int k = 1; k < 39; k++) ha[i][j][k] = .5 * hb[i][j][k] + .1 * hb[i + 1][j][k];
  }
}
static double zz[1000], F[2][2], H[2];
static double ll;
static void kalman() {
  double x0 = 0, x1 = 0, p00 = 1, p01 = 0, p10 = 0, p11 = 1;
  ll = 0;
  for (int t = 0; t < 1000; t++) {
    double a = .5 * (F[0][0] * x0 + F[0][1] * x1), b = .5 * (F[1][0] * x0 + F[1][1] * x1);
    double m00 = F[0][0] * p00 + F[0][1] * p10, m01 = F[0][0] * p01 + F[0][1] * p11, m10 = F[1][0] * p00 + F[1][1] * p10,
           m11 = F[1][0] * p01 + F[1][1] * p11;
    double q00 = .25 * (m00 * F[0][0] + m01 * F[0][1]) + .1, q01 = .25 * (m00 * F[1][0] + m01 * F[1][1]),
           q10 = .25 * (m10 * F[0][0] + m11 * F[0][1]), q11 = .25 * (m10 * F[1][0] + m11 * F[1][1]) + .1;
    double h0 = q00 * H[0] + q01 * H[1], h1 = q10 * H[0] + q11 * H[1];
    double s = H[0] * h0 + H[1] * h1 + .2, y = zz[t] - H[0] * a - H[1] * b, k0 = h0 / s, k1 = h1 / s;
    x0 = a + k0 * y;
    x1 = b + k1 * y;
    double g0 = H[0] * q00 + H[1] * q10, g1 = H[0] * q01 + H[1] * q11;
    p00 = q00 - k0 * g0;
    p01 = q01 - k0 * g1;
    p10 = q10 - k1 * g0;
    p11 = q11 - k1 * g1;
    ll -= .5 * (log(s) + y * y / s);
  }
}
static double bx[100][3], bv[100][3], ms[100], en[50];
static void nbody() {
  for (int t = 0; t < 50; t++) {
    for (int i = 0; i < 100; i++) {
      double a0 = 0, a1 = 0, a2 = 0;
      for (int j = 0; j < 100; j++) {
        double d0 = bx[j][0] - bx[i][0], d1 = bx[j][1] - bx[i][1], d2 = bx[j][2] - bx[i][2], r = d0 * d0 + d1 * d1 + d2 * d2 + .1,
               w = ms[j] * ms[j] / (r * sqrt(r));
        a0 += w * d0;
        a1 += w * d1;
        a2 += w * d2;
      }
      bv[i][0] += .05 * a0;
      bv[i][1] += .05 * a1;
      bv[i][2] += .05 * a2;
    }
    double e = 0;
    for (int i = 0; i < 100; i++)
      for (int c = 0; c < 3; c++) {
        bx[i][c] += .05 * bv[i][c];
        e += bv[i][c] * bv[i][c];
      }
    en[t] = .5 * e;
  }
}
static double cl[200][64], ca[50], cp[50], lp[200][64];
static int lab[50];
static void ctc() {
  for (int t = 0; t < 200; t++) {
    double s = 0;
    for (int v = 0; v < 64; v++) s += exp(cl[t][v]);
    s = log(s);
    for (int v = 0; v < 64; v++) lp[t][v] = cl[t][v] - s;
  }
  for (int i = 0; i < 50; i++) ca[i] = -30;
  ca[0] = lp[0][lab[0]];
  ca[1] = lp[0][lab[1]];
  for (int t = 1; t < 200; t++) {
    memcpy(cp, ca, sizeof ca);
    for (int s = 0; s < 50; s++) {
      double o = s >= 1 ? cp[s - 1] : -30, w = s >= 2 ? cp[s - 2] : -30, m = LARGER(cp[s], LARGER(o, w));
      ca[s] = m + log(exp(cp[s] - m) + exp(o - m) + exp(w - m)) + lp[t][lab[s]];
    }
  }
}
int main() {
  RANDOM(u)
  RANDOM(L) RANDOM(b) RANDOM(X) RANDOM(S) RANDOM(A) RANDOM(bb) RANDOM(ja) RANDOM(ha) RANDOM(zz) RANDOM(F) RANDOM(H) RANDOM(bx) RANDOM(bv)
      RANDOM(ms) RANDOM(cl) for (int i = 0; i < 50; i++) lab[i] = rand() % 64;
  BEST("adi", adi())
  BEST("trisolv", trisolv()) BEST("deriche", deriche()) BEST("intervals", intervals()) BEST("ludcmp", ludcmp()) BEST("jacobi_1d", jacobi())
      BEST("heat_3d", heat()) BEST("kalman", kalman()) BEST("nbody", nbody()) BEST("ctc", ctc())
          printf("%g\n", u[3][3] + x[4] + O[3][3] + T[0][99] + xx[3] + ja[3] + ha[3][3][3] + ll + en[3] + ca[3]);
}

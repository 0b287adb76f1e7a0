/* Calls of libraries with all dims open, and of the same ops with all but a batch given; the least of 30, on one thread. See run. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "layer_norm_given.h"
#include "layer_norm_open.h"
#include "matmul_given.h"
#include "matmul_open.h"
#include "softmax_given.h"
#include "softmax_open.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

#define LEAST(into, call)                                \
  for (int turn = 0; turn < 30; ++turn) {                \
    const double begin = now();                          \
    if (call) return printf("%s failed\n", #call), 1;    \
    const double us = now() - begin;                     \
    if (turn == 0 || us < into) into = us;               \
  }
#define COMPARE(name, open, given)                       \
  {                                                      \
    double with_open = 0, with_given = 0;                \
    LEAST(with_open, open)                               \
    LEAST(with_given, given)                             \
    printf("%-18s open %7.1f us, given %7.1f us, %.2f times\n", name, with_open, with_given, with_open / with_given); \
  }

int main(void) {
  enum { N = 1024, D = 256 };
  static float x[N * D], w[D * D], y[N * D], dx[N * D], stash[2][N * D];
  for (int i = 0; i < N * D; ++i) x[i] = (float)(i * 7919L % 1000) / 1000;
  for (int i = 0; i < D * D; ++i) w[i] = (float)(i * 104729L % 1000) / 1000;
  matmul_open_set_threads(1);
  const layer_norm_open_dims lo = {N, D};
  const layer_norm_given_dims lg = {N, D};
  const softmax_open_dims so = {N, D};
  const softmax_given_dims sg = {N, D};
  const matmul_open_dims mo = {D, D, D};
  const matmul_given_dims mg = {D, D, D};
  if (softmax_open_stash_bytes(&so) > sizeof stash[0] || softmax_given_stash_bytes(&sg) > sizeof stash[1]) return 1;
  COMPARE("layer_norm", layer_norm_open_infer(&lo, x, w, w, y), layer_norm_given_infer(&lg, x, w, w, y))
  COMPARE("softmax", softmax_open_forward(&so, x, y, stash[0]), softmax_given_forward(&sg, x, y, stash[1]))
  COMPARE("softmax, backward", softmax_open_backward(&so, y, x, dx, stash[0]), softmax_given_backward(&sg, y, x, dx, stash[1]))
  COMPARE("matmul", matmul_open_infer(&mo, x, w, y), matmul_given_infer(&mg, x, w, y))
  return 0;
}

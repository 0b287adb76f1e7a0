/* From C: statuses, messages, values. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "rows.h"
#include "scaled.h"

#define EXPECT(what) \
  if (!(what)) return printf("main.c:%d: %s; last message: %s\n", __LINE__, #what, rows_message()), 1

#define EXPECT_SCALED(what) \
  if (!(what)) return printf("main.c:%d: %s; last message: %s\n", __LINE__, #what, scaled_message()), 1

/* The same numbers dense, with gaps between rows, and with the last dimension as the slowest of memory. */
static int any_sizes(int64_t b, int64_t t, int64_t c) {
  static float x[9 * 20 * 40], y[9 * 20 * 40], gaps[9 * 20 * 44], turned[40 * 9 * 20], out[9 * 20 * 44], w[40];
  scaled_dims dims = {b, t, c};
  const int64_t rows[] = {t * (c + 3), c + 3, 1}, columns[] = {t, 1, b * t};
  for (int64_t i = 0; i < c; ++i) w[i] = 1 + (float)i / 8;
  for (int64_t r = 0; r < b * t; ++r)
    for (int64_t i = 0; i < c; ++i) x[r * c + i] = gaps[r * (c + 3) + i] = turned[i * b * t + r] = (float)((r * 7 + i * 5) % 11) / 11;
  for (int64_t i = 0; i < 9 * 20 * 44; ++i) out[i] = -1;
  EXPECT_SCALED(scaled_infer(&dims, x, NULL, w, y, NULL) == SCALED_OK);
  for (int64_t r = 0; r < b * t; ++r) {
    double sum = 1;
    for (int64_t i = 0; i < c; ++i) sum += x[r * c + i] * x[r * c + i];
    for (int64_t i = 0; i < c; ++i) EXPECT_SCALED(fabs(y[r * c + i] - w[i] * x[r * c + i] / sum) < 1e-5);
  }
  EXPECT_SCALED(scaled_infer(&dims, gaps, rows, w, out, rows) == SCALED_OK);
  for (int64_t r = 0; r < b * t; ++r) {
    for (int64_t i = 0; i < c; ++i) EXPECT_SCALED(fabsf(out[r * (c + 3) + i] - y[r * c + i]) < 1e-6f);
    for (int64_t i = c; i < c + 3; ++i) EXPECT_SCALED(out[r * (c + 3) + i] == -1); /* gaps stay as they are */
  }
  EXPECT_SCALED(scaled_infer(&dims, turned, columns, w, out, NULL) == SCALED_OK);
  for (int64_t i = 0; i < b * t * c; ++i) EXPECT_SCALED(fabsf(out[i] - y[i]) < 1e-6f);
  return 0;
}

static int strides(void) {
  static const int64_t sizes[][3] = {{0, 3, 4}, {2, 0, 5}, {3, 2, 0}, {1, 1, 1}, {1, 5, 2}, {2, 3, 7}, {4, 4, 16}, {3, 17, 33}, {9, 20, 40}};
  static float x[8], y[8], w[2];
  scaled_dims dims = {2, 2, 2};
  const int64_t negative[] = {4, 2, -1}, none[] = {4, 0, 1};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i)
    if (any_sizes(sizes[i][0], sizes[i][1], sizes[i][2])) return 1;
  EXPECT_SCALED(scaled_infer(&dims, x, negative, w, y, NULL) == SCALED_BAD_ARGUMENT && strstr(scaled_message(), "negative stride"));
  EXPECT_SCALED(scaled_infer(&dims, x, NULL, w, y, none) == SCALED_BAD_ARGUMENT && strstr(scaled_message(), "stride 0"));
  return 0;
}

int main(void) {
  static float x[33 * 70], y[33 * 70];
  rows_dims dims = {33, 70}, other = {33, 71}, negative = {-1, 70}, none = {0, 70};
  for (int i = 0; i < 33 * 70; ++i) x[i] = (float)(i % 13) - 6, y[i] = -1;

  EXPECT(rows_infer(NULL, x, y) == ROWS_BAD_ARGUMENT);
  EXPECT(rows_infer(&dims, NULL, y) == ROWS_BAD_ARGUMENT && strstr(rows_message(), "x is null"));
  EXPECT(rows_infer(&dims, x, x) == ROWS_BAD_ARGUMENT && strstr(rows_message(), "overlaps"));
  EXPECT(rows_infer(&dims, (float *)((char *)x + 1), y) == ROWS_BAD_ARGUMENT && strstr(rows_message(), "aligned"));
  EXPECT(rows_infer(&other, x, y) == ROWS_BAD_SIZE && strstr(rows_message(), "D = 70"));
  EXPECT(rows_infer(&negative, x, y) == ROWS_BAD_SIZE && strstr(rows_message(), "negative"));
  for (int i = 0; i < 33 * 70; ++i) EXPECT(y[i] == -1); /* nothing was written */
  EXPECT(rows_infer(&none, NULL, NULL) == ROWS_OK);
  EXPECT(rows_elements(&dims, "y") == 33 * 70 && rows_elements(&dims, "z") == -1);

  for (int threads = 0; threads < 3; ++threads) {
    EXPECT(rows_set_threads(threads) == ROWS_OK);
    EXPECT(rows_infer(&dims, x, y) == ROWS_OK);
    for (int n = 0; n < 33; ++n) {
      float sum = 0;
      for (int d = 0; d < 70; ++d) sum += y[n * 70 + d];
      EXPECT(fabsf(sum - 1) < 1e-5f);
    }
  }
  if (strides()) return 1;
  printf("%s\n", rows_cpu_level());
  return 0;
}

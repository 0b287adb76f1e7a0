/* From C: statuses, messages, values. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "rows.h"

#define EXPECT(what) \
  if (!(what)) return printf("main.c:%d: %s; last message: %s\n", __LINE__, #what, rows_message()), 1

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
  printf("%s\n", rows_cpu_level());
  return 0;
}

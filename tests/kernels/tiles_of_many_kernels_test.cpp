// Loops that only exist at certain sizes, in kernels of many shapes: windows, transposes, products, convolutions. All agree with the
// evaluator forward and backward.
#include <gtest/gtest.h>

#include "tests/helpers/agreement.h"

namespace xhat::tiles_of_many_kernels_test {
namespace {

using namespace xhat::testing;

// Sums of few terms are written out, or summed up a vector at a time; taps of weights' gradients lie side by side.
TEST(TilesOfManyKernels, SumsOfFewTerms) {
  const char* line = "op f(x: f32[N], w: f32[5]) -> (y) { y[i in 0..N] = sum(r: x[i+r-2 else 0.5]*w[r]) }";
  const char* backwards = "op f(x: f64[N,M], w: f64[3]) -> (y) { y[n,i in 0..M] = max(r in 0..3: x[n,i+1-r else 0]*w[2-r]) }";
  const char* depthwise = "op f(x: f32[N,C,H,W], w: f32[C,3,3]) -> (y) {\n"
                          " y[n,c, i in 0..H, j in 0..W] = sum(r,s: x[n,c,i+r-1,j+s-1 else 0] * w[c,r,s]) }";
  const char* weighed = "op f(x: f32[N,M]) -> (y) {\n w[n,i,r in 0..7] = exp(-(x[n,i+r-3 else 0] - x[n,i])^2)*sin(x[n,i+r-3 else 0.1])\n"
                        " y[n,i] = sum(r in 0..7: w[n,i,r]*x[n,i+r-3 else 0])/(1 + sum(r in 0..7: w[n,i,r]^2)) }";
  const char* conditions =
      "op f(x: f32[N,M]) -> (y) { y[n,i in 0..M] = sum(r in 0..4 if r <= i && x[n,i] > 0: x[n,i-r]*x[n,min(i+r,M-1)]) }";
  CompileOptions small_tiles;
  small_tiles.machine.serial_bytes = 0;
  small_tiles.machine.tile_bytes = 2048;
  for (int64_t n : {3, 40, 1001}) expect_agreement(line, {{"N", n}}, small_tiles);
  for (int64_t m : {2, 17, 70})
    for (const char* text : {backwards, weighed, conditions, depthwise})
      expect_agreement(text, {{"N", 3}, {"C", 2}, {"H", 5}, {"W", m}, {"M", m}}, m == 17 ? CompileOptions{} : small_tiles);
}

// Sums of columns that slide along the row, in long rows; as part of a map, as a result, in a max, and guarded.
TEST(TilesOfManyKernels, ColumnsOfSlidingWindows) {
  const char* blur = "op f(x: f32[N,H,W]) -> (y) { y[n,i in 0..H,j in 0..W] = sum(r in 0..3, s in 0..3: x[n,i+r-1,j+s-1 else 0])*0.125 }";
  const char* valid = "op f(x: f32[H+2,W+4]) -> (y) { y[i in 0..H,j in 0..W] = sum(r in 0..3, s in 0..5: x[i+r,j+s]^2) }";
  const char* top = "op f(x: f32[H,W]) -> (y) { y[i in 0..H,j in 0..W] = exp(max(r in 0..3, s in 0..2: x[i+r-1,j+s else -1])) }";
  const char* weights =
      "op f(x: f32[H,W], w: f32[3]) -> (y) { y[i in 0..H,j in 0..W] = sum(r in 0..3, s in 0..3: x[i+r-1,j+s-1 else 0]*w[r]) + 1 }";
  const char* no =
      "op f(x: f32[H,W], w: f32[3]) -> (y) { y[i in 0..H,j in 0..W] = sum(r in 0..3, s in 0..3: x[i+r-1,j+s-1 else 0]*w[s]) + 1 }";
  CompileOptions small_tiles;
  small_tiles.machine.serial_bytes = 0;
  for (const char* text : {blur, valid, top, weights, no})
    for (int64_t w : {256, 261}) {
      DimValues dims = {{"H", 4}, {"W", w}};
      if (text == blur) dims["N"] = 2;
      expect_agreement(text, dims, w == 261 ? small_tiles : CompileOptions{});
    }
}

// What lies along another axis than it is wanted is turned over in squares: sizes around one square's, whole and in parts.
TEST(TilesOfManyKernels, WhatLiesAcrossIsTurned) {
  const char* transpose = "op f(x: f32[N,M]) -> (y) { y[m,n] = x[n,m] }";
  const char* wide = "op f(x: f64[N,M]) -> (y) { y[m,n] = x[n,m]*x[n,m] }";
  const char* costly = "op f(x: f32[N,M]) -> (y) { y[m,n] = exp(x[n,m]) + tanh(x[n,m]) }";
  const char* mixed = "op f(x: f32[N,M], z: f32[M,N]) -> (y) { y[m,n] = x[n,m]*z[m,n] + x[n,m] }";
  const char* both = "op f(x: f32[N,N]) -> (y) { y[m,n] = x[n,m]*x[m,n] }";
  const char* shifted = "op f(x: f32[N,M]) -> (y) { y[m in 0..M,n in 0..N] = if n > 2 && m < M-1 then x[n-1,m+1] else 0 }";
  const char* two = "op f(x: f32[N,M]) -> (y, z) {\n y[m,n] = x[n,m] + 1\n z[m,n] = x[n,m]*2 }";
  const char* deep = "op f(x: f32[3,N,M]) -> (y) { y[m,c,n] = x[c,n,m] }";
  const char* bytes = "op f(x: u8[N,M] const) -> (y) { y[m,n] = f32(x[n,m])*0.5 }";
  CompileOptions small_tiles;
  small_tiles.machine.serial_bytes = 0;
  for (const char* text : {transpose, wide, costly, mixed, both, shifted, two, deep, bytes})
    for (DimValues dims : {DimValues{{"N", 1}, {"M", 20}}, {{"N", 16}, {"M", 16}}, {{"N", 5}, {"M", 33}}, {{"N", 70}, {"M", 131}}})
      expect_agreement(text, dims, dims["N"] == 70 ? small_tiles : CompileOptions{});
}

// Blocks of rows and columns at sizes that fill them, leave something over, or are smaller than one.
TEST(TilesOfManyKernels, ProductsOfAnySize) {
  const char* product = "op f(a: f32[M,K], b: f32[K,N]) -> (y) { y[m,n] = sum(k: a[m,k]*b[k,n]) }";
  const char* transposed = "op f(a: f32[M,K], b: f32[N,K]) -> (y) { y[m,n] = sum(k: a[m,k]*b[n,k]) }";
  const char* distance = "op f(a: f64[M,K], b: f64[N,K]) -> (y) { y[m,n] = sum(k: (a[m,k]-b[n,k])^2) }";
  const char* largest = "op f(a: f32[M,K], b: f32[N,K]) -> (y) { y[m,n] = max(k: a[m,k] + b[n,k]) }";
  const char* computed = "op f(a: f32[M,K], b: f32[N,K]) -> (y) { y[m,n] = sum(k: tanh(a[m,k])*sin(b[n,k]) + a[m,k]) }";
  const char* triangle = "op f(a: f32[M,K], b: f32[K,N]) -> (y) { y[m,n] = sum(k if k <= m: a[m,k]*b[k,n]) }";
  const char* batched = "op f(a: f32[B,M,K], b: f32[B,K,N]) -> (y) { y[c,m,n] = sum(k: a[c,m,k]*b[c,k,n]) }";
  CompileOptions small_tiles;
  small_tiles.machine.serial_bytes = 0;
  for (const char* text : {product, transposed, distance, largest, computed, triangle})
    for (DimValues dims : {DimValues{{"M", 4}, {"K", 8}, {"N", 8}}, {{"M", 3}, {"K", 9}, {"N", 7}},
                           {{"M", 29}, {"K", 11}, {"N", 50}}, {{"M", 70}, {"K", 33}, {"N", 96}}})
      for (const CompileOptions& options : {CompileOptions{}, small_tiles}) expect_agreement(text, dims, options);
  // Two sums over one domain, of which one is no product.
  expect_agreement("op f(a: f32[M,K], b: f32[K,N], c: f32[M,K,N]) -> (y, z) {\n y[m,n] = sum(k: a[m,k]*b[k,n])\n"
                   " z[m,n] = sum(k: c[m,k,n]*c[m,k,n]) }", {{"M", 29}, {"K", 11}, {"N", 50}});
  expect_agreement(batched, {{"B", 5}, {"M", 31}, {"K", 8}, {"N", 17}}, small_tiles);
}

// The windows of their gradients move with the element: as many taps are looked at as there are.
TEST(TilesOfManyKernels, ConvolutionsAndTheirGradients) {
  const char* conv = R"(op f(x: f32[N,C,H,W], w: f32[K,C,3,3], b: f32[K]) -> (y) {
    y[n,k,i in 0..H,j in 0..W] = max(0, b[k] + sum(c,r,s: x[n,c,i+r-1,j+s-1 else 0]*w[k,c,r,s])) })";
  const char* strided = R"(op f(x: f32[N,C,2*H,2*W], w: f32[K,C,3,3]) -> (y) {
    y[n,k,i in 0..H,j in 0..W] = sum(c,r,s: x[n,c,2*i+r-1,2*j+s-1 else 0]*w[k,c,r,s]) })";
  CompileOptions small_tiles;
  small_tiles.machine.serial_bytes = 0;
  for (const char* text : {conv, strided})
    for (DimValues dims : {DimValues{{"N", 2}, {"C", 3}, {"K", 5}, {"H", 6}, {"W", 9}},
                           {{"N", 1}, {"C", 9}, {"K", 8}, {"H", 7}, {"W", 20}},
                           {{"N", 1}, {"C", 2}, {"K", 29}, {"H", 3}, {"W", 57}}})
      for (const CompileOptions& options : {CompileOptions{}, small_tiles}) expect_agreement(text, dims, options);
}

// What the gradient of a stride reads depends on the element's quotient or remainder by the stride: products in phases.
TEST(TilesOfManyKernels, StridesArePhases) {
  const char* after_relu = R"(op f(x: f32[N,C,2*H,2*W], w: f32[K,C,3,3]) -> (y) {
    a[n,c,i,j] = max(0, x[n,c,i,j])
    y[n,k,i in 0..H,j in 0..W] = sum(c,r,s: a[n,c,2*i+r-1,2*j+s-1 else 0]*w[k,c,r,s]) })";
  const char* three = R"(op f(x: f64[C,3*W], w: f64[K,C,5]) -> (y) {
    y[k,j in 0..W] = sum(c,s: x[c,3*j+s-2 else 0]*w[k,c,s]) })";
  const char* patches = R"(op f(x: f32[C,4*H,4*W], w: f32[K,C,4,4]) -> (y) {
    y[k,i in 0..H,j in 0..W] = sum(c,r,s: x[c,4*i+r,4*j+s]*w[k,c,r,s]) })";
  const char* transposed = R"(op f(x: f32[C,W], w: f32[K,C,4]) -> (y) {
    y[k,j in 0..2*W] = sum(c, i in max(0,(j-1)/2)..min((j+1)/2+1, W): x[c,i]*w[k,c,clamp(j+1-2*i, 0, 3)]) })";
  CompileOptions small_tiles;
  small_tiles.machine.serial_bytes = 0;
  for (const char* text : {after_relu, three, patches, transposed}) {
    expect_agreement(text, {{"N", 2}, {"C", 9}, {"K", 8}, {"H", 3}, {"W", 20}});
    expect_agreement(text, {{"N", 1}, {"C", 33}, {"K", 12}, {"H", 5}, {"W", 9}}, small_tiles);
  }
}

}  // namespace
}  // namespace xhat::tiles_of_many_kernels_test

// Shapes of code that speed hangs on, counted in what is lowered and not timed: a scatter that lists what falls into its tile, a
// map walked in phases, windows whose rows are computed together from a padded plane. And their values, with buffers that are
// aligned to an element only, in tiles of several sizes, with the same bits for 1, 2 and 4 threads.
#include <gtest/gtest.h>

#include "ad/reverse/gradient.h"
#include "runtime/emit/emit_ops.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/lowered_code.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::lowered_code_test {
namespace {

using namespace xhat::testing;

// At least this often, and at most, in the code of the direction's only kernel.
struct Phrase {
  const char* text;
  int least, most;
  int lanes = 0;  // of f32 in the vectors that it is about, 8 or 16; 0: it holds for both
};

struct Case {
  const char* name;
  const char* text;
  DimValues dims;
  bool backward;
  std::vector<Phrase> phrases;
  int64_t tile_bytes = 4096;
};

constexpr const char* kBag = "op f(table: f32[V,D], ids: i32[B,L] const) -> (y) { y[b,d] = sum(l: table[abs(ids[b,l])%V,d]) }";
constexpr const char* kPool =
    "op f(x: f32[N,2*H,2*W]) -> (y) { y[n, i in 0..H, j in 0..W] = max(r in 0..2, s in 0..2: x[n,2*i+r,2*j+s]) }";
constexpr const char* kLeastOfTransposed =
    "op f(x: f32[N,C,H,W], w: f32[C,K,3,3]) -> (y) {\n"
    " t[n,k,i in 0..2*H,j in 0..2*W] = sum(c,r,s if (i+1-r)%2 == 0 && (j+1-s)%2 == 0: x[n,c,(i+1-r)/2,(j+1-s)/2 else 0] * w[c,k,r,s])\n"
    " y[n,j] = sum(i: min(k: t[n,k,i,j]))\n}";
constexpr const char* kDepthwise =
    "op f(x: f32[N,C,H,W], w: f32[C,3,3]) -> (y) {\n"
    " y[n,c, i in 0..H, j in 0..W] = sum(r,s: x[n,c,i+r-1,j+s-1 else 0] * w[c,r,s])\n}";

constexpr const char* kStridedConvolution =
    "op f(x: f32[N,C,H,W], w: f32[K,C,3,3]) -> (a, b) {\n"
    " y[n,k,i in 0..(H-1)/2,j in 0..(W-1)/2] = sum(c,r,s: x[n,c,2*i+r,2*j+s] * w[k,c,r,s])\n"
    " a[n,k] = max(i in 0..(H-1)/2,j in 0..(W-1)/2: y[n,k,i,j])\n"
    " b[n,k] = sum(i in 0..(H-1)/2,j in 0..(W-1)/2: y[n,k,i,j])\n}";

constexpr const char* kBilateral =
    "op f(x: f32[N,H,W]) -> (y) {\n"
    " w[n,i,j, r in 0..3, s in 0..3] = exp(-(x[n,i+r-1,j+s-1 else 0] - x[n,i,j])^2)\n"
    " y[n,i,j] = sum(r,s: w[n,i,j,r,s] * x[n,i+r-1,j+s-1 else 0]) / sum(r,s: w[n,i,j,r,s])\n}";

constexpr const char* kResidual =
    "op f(p: f64[N,3], q: f64[N,4], s: f64[N,1]) -> (e) {\n"
    " n[b] = sqrt(q[b,0]^2 + q[b,1]^2 + q[b,2]^2 + q[b,3]^2 + 1)\n w[b] = q[b,3] / n[b]\n"
    " x[b] = q[b,1]*p[b,2] - q[b,2]*p[b,1]\n y[b] = q[b,2]*p[b,0] - q[b,0]*p[b,2]\n"
    " e[b,i in 0..2] = s[b,0] * (if i == 0 then x[b] * sin(w[b]) else y[b] * exp(w[b])) / n[b]\n}";

constexpr const char* kPlanes =
    "op f(p: f32[N,3] const, t: f32[3,G,G,8]) -> (y) {\n"
    " u[n,a in 0..3] = clamp(2*p[n,a]+4,0,f32(G)-1.001)\n"
    " y[n,c] = sum(a in 0..3: let v = u[n,a] in let w = u[n,(a+1)%3] in let i = i64(floor(v)) in let j = i64(floor(w)) in\n"
    "   let f = v-floor(v) in let g = w-floor(w) in\n"
    "   (1-f)*(1-g)*t[a,clamp(i,0,G-1),clamp(j,0,G-1),c] + f*(1-g)*t[a,clamp(i+1,0,G-1),clamp(j,0,G-1),c]\n"
    "   + (1-f)*g*t[a,clamp(i,0,G-1),clamp(j+1,0,G-1),c] + f*g*t[a,clamp(i+1,0,G-1),clamp(j+1,0,G-1),c])\n}";

std::vector<Case> cases() {
  return {
      {"bag", kBag, {{"V", 70}, {"D", 37}, {"B", 19}, {"L", 7}}, true,
       {{"xhat_list", 1, 1}, {"allocate xh_acc", 2, 2}, {"[float32 * 32]", 2, 2}}},  // of a row, in registers
      {"bag_of_short_rows", kBag, {{"V", 300}, {"D", 3}, {"B", 19}, {"L", 7}}, true, {{"xhat_list", 1, 1}, {"allocate xh_acc", 0, 0}}},
      {"bag_of_planes", "op f(x: f32[V,E,D], w: f32[B,E] const, ids: i32[B] const) -> (y) { y[b,e,d] = x[abs(ids[b])%V,e,d] * w[b,e] }",
       {{"V", 90}, {"E", 3}, {"D", 150}, {"B", 90}}, true, {}},
      {"of_few", "op f(x: f32[V,D], ids: i32[63] const) -> (y) { y[b,d] = x[abs(ids[b])%V,d] }", {{"V", 70}, {"D", 37}}, true,
       {{"xhat_list", 0, 0}}},
      {"bag_in_one_tile", kBag, {{"V", 7}, {"D", 37}, {"B", 19}, {"L", 7}}, true, {{"xhat_list", 0, 0}}, 1 << 20},
      {"histogram", "op f(x: f32[V], ids: i32[N] const) -> (y) { y[n] = x[abs(ids[n])%V] }", {{"V", 300}, {"N", 501}}, true,
       {{"xhat_list", 1, 1}}},
      {"strided_places", "op f(x: f32[3*V,D], ids: i32[N,M] const) -> (y) { y[n,m,d] = x[3*(abs(ids[n,m])%V)+2,d] * f32(d) }",
       {{"V", 40}, {"D", 18}, {"N", 9}, {"M", 33}}, true, {}},
      // Rows of few results whose places in a table are computed of what the row reads: along rows where that costs less.
      {"rows_between_computed_places", kPlanes, {{"N", 70}, {"G", 9}}, false, {{"xh_read", 1, 9999, 16}, {"xh_read", 0, 0, 8}}},
      {"rows_at_computed_places", "op f(p: f32[N,3], t: f32[3,G,8]) -> (y) { y[n,c] = sum(a: t[a,clamp(i64(floor(4*p[n,a])),0,G-1),c]) }",
       {{"N", 70}, {"G", 9}}, false, {{"xh_read", 0, 0}}},
      // Reads that are turned for cheap sums cost more than vectors of 12 places: not along rows.
      {"borders_by_choices",
       "op f(x: f32[B,T,C], w: f32[7]) -> (y) {\n"
       " y[b,t in 0..T,c] = sum(r: w[r]*(let u = t+r-3 in if u < 0 then 2*x[b,0,c]-x[b,clamp(-u,0,T-1),c]\n"
       "   else if u >= T then 2*x[b,T-1,c]-x[b,clamp(2*T-2-u,0,T-1),c] else x[b,clamp(u,0,T-1),c]))\n}",
       {{"B", 3}, {"T", 101}, {"C", 12}}, false, {{"xh_read", 0, 0}}},
      // Most of a row whose places go round, turn or are chosen is read where it is.
      {"rows_that_go_round",
       "op f(x: f32[N,M], z: f32[N,M]) -> (y) { y[n in 0..N,m in 0..M] = x[n,(m+M-1)%M]*z[n,(m+M-1)%M] + x[n,(m+1)%M] }",
       {{"N", 9}, {"M", 67}}, false, {{".rebased, 0,", 1, 2}}},
      // The neighbours' gradients are one map, without a sum over them.
      {"neighbours_as_a_tensor", "op f(x: f32[N]) -> (y) {\n t[c in 0..3,n in 0..N] = x[(n+c-1)%N]\n y[n] = (t[2,n] - t[0,n])*t[1,n]\n}", {{"N", 67}},
       true, {{"for (", 0, 3}}},
      {"rows_that_turn", "op f(x: f32[N,M]) -> (y) { y[n in 0..N,m in 0..M] = exp(x[n,abs(m-2)]) + x[n,if m+1 < M then m+1 else 0] }",
       {{"N", 9}, {"M", 67}}, false, {{".rebased, 0,", 1, 2}}},
      // The minimum, its sum and the mask walk all places, in whole vectors, of what is made by odd and even ones.
      {"least_of_transposed", kLeastOfTransposed, {{"N", 3}, {"C", 3}, {"K", 9}, {"H", 16}, {"W", 16}}, false, {{", 1, 2)", 0, 0}}},
      // To an odd size the readers have an axis of their own.
      {"least_of_transposed_to_an_odd_size",
       "op f(x: f32[N,C,H,W], w: f32[C,K,3,3]) -> (y) {\n"
       " t[n,k,i in 0..2*H-1,j in 0..2*W-1] = sum(c,r,s if (i+1-r)%2 == 0 && (j+1-s)%2 == 0: x[n,c,(i+1-r)/2,(j+1-s)/2 else 0] * w[c,k,r,s])\n"
       " y[n,j] = sum(i: min(k: t[n,k,i,j]))\n}",
       {{"N", 3}, {"C", 3}, {"K", 9}, {"H", 16}, {"W", 16}}, false, {{", 1, 2)", 0, 0}, {"allocate xh_pad0", 0, 0}}},
      // Each row is folded up in registers: no lanes are read across rows, which would be a transposition.
      {"sums_of_rows", "op f(x: f32[N,D], y: f32[N,D]) -> (s) { s[n] = log(1 + sum(d: x[n,d]*y[n,d])^2) }", {{"N", 83}, {"D", 64}}, false,
       {{"allocate xh_half", 2, 3}, {", 16, 16)", 0, 0}, {", 8, 8)", 0, 0}}},
      {"sums_of_rows_of_heads", "op f(x: f32[N,3,D], w: f32[3,D]) -> (s) { s[n,h] = tanh(sum(d: x[n,h,d]*w[h,d])) }", {{"N", 83}, {"D", 37}},
       false, {{"allocate xh_half", 2, 3}, {", 16, 16)", 0, 0}, {", 8, 8)", 0, 0}}},
      {"first_of_rows", "op f(x: f32[N,D]) -> (p) { p[n] = argmax(d: x[n,d]) }", {{"N", 83}, {"D", 37}}, false,
       {{"allocate xh_few", 2, 2}, {", 16, 16)", 0, 0}, {", 8, 8)", 0, 0}}},
      {"pool", kPool, {{"N", 4}, {"H", 6}, {"W", 28}}, true, {{"allocate", 0, 0}, {"interleave_vectors", 2, 99}}},
      {"pool_in_few_columns", kPool, {{"N", 9}, {"H", 5}, {"W", 3}}, true, {}},
      {"pool_in_many", kPool, {{"N", 9}, {"H", 4}, {"W", 65}}, true, {{"allocate", 0, 0}}},
      {"gated", "op f(a: f32[N,D], b: f32[N,D]) -> (y) { y[n,d] = a[n,d] * (1 / (1 + exp(-a[n,d]))) * b[n,d] }", {{"N", 40}, {"D", 70}}, true,
       {{"allocate", 0, 0}}},  // the sigmoid that both gradients read stays in registers
      {"gated_and_summed", "op f(a: f32[N,D], b: f32[D]) -> (y) { y[n,d] = a[n,d] * (1 / (1 + exp(-a[n,d]))) * b[d] }", {{"N", 40}, {"D", 70}},
       true, {}},
      {"scaled_rows", "op f(x: f32[N,D], g: f32[D]) -> (y) { y[n,d] = x[n,d] / sqrt(mean(k: x[n,k]*x[n,k]) + 0.1) * g[d] }",
       {{"N", 40}, {"D", 128}}, true, {{"$x, 0, n_", 0, 0}, {"allocate xh_acc", 2, 2}, {"allocate xh_map", 0, 0}}},  // g's gradient is summed in the loop over the rows
      {"scaled_rows_with_ends", "op f(x: f32[N,D], g: f32[D]) -> (y) { y[n,d] = x[n,d] / sqrt(mean(k: x[n,k]*x[n,k]) + 0.1) * g[d] }",
       {{"N", 41}, {"D", 77}}, true, {{"$x, 0, n_", 0, 0}}},
      // Once, not once for each of few columns; and nothing is folded up element by element where the forward goes by rows.
      {"scaled_rows_of_seven", "op f(x: f32[N,D], g: f32[D]) -> (y) { y[n,d] = tanh(x[n,d] / sqrt(mean(k: x[n,k]*x[n,k]) + 0.1) * g[d]) }",
       {{"N", 40}, {"D", 7}}, true, {{".v_a0, 0, 7)", 0, 0}, {".v_a1, 0, 7)", 0, 0}}},
      {"tanh_of_rows_of_seven", "op f(x: f32[N,D], g: f32[D]) -> (y) { y[n,d] = tanh(x[n,d] / sqrt(mean(k: x[n,k]*x[n,k]) + 0.1) * g[d]) }",
       {{"N", 40}, {"D", 7}}, false, {{"x4(", 1, 9999}, {"[float32 * 1]", 0, 0}, {", 0, 3)", 0, 0}}},
      {"normalized_rows",
       "op f(x: f64[N,D], g: f64[D], h: f64[D]) -> (y) {\n"
       " m[n] = mean(d: x[n,d])\n y[n,d] = (x[n,d] - m[n]) / sqrt(mean(k: (x[n,k] - m[n])^2) + 0.1) * g[d] + h[d]\n}",
       {{"N", 40}, {"D", 100}}, true, {{"$x, 0, n_", 0, 0}}},
      {"map_with_a_bias", "op f(x: f32[N,D], b: f32[D]) -> (y) { y[n,d] = tanh(x[n,d] + b[d]) }", {{"N", 40}, {"D", 96}}, true,
       {{"$x, 0, n_", 0, 0}, {"allocate", 1, 1}}},
      {"map_with_a_bias_of_images", "op f(x: f32[N,H,W,C], b: f32[C]) -> (y) { y[n,h,w,c] = tanh(x[n,h,w,c] + b[c]) }",
       {{"N", 6}, {"H", 5}, {"W", 7}, {"C", 20}}, true, {}},
      {"two_biases", "op f(x: f32[N,D], b: f32[D], w: f32[N,D] const) -> (y) { y[n,d] = exp(x[n,d] + b[d]) * (w[n,d] + b[d]) }",
       {{"N", 40}, {"D", 96}}, true, {}},
      {"columns_of_rows_with_sums",  // which stay where they are: the map's elements need their row's sum
       "op f(x: f32[N,D]) -> (y, t) {\n s[n] = sum(d: x[n,d])\n y[n,d] = x[n,d] * s[n]\n t[d] = sum(n: tanh(y[n,d]))\n}",
       {{"N", 40}, {"D", 96}}, false, {{"$x, 0, n_", 1, 1}}},
      // What data say is brought inside, not each place, which would be a gather; not where a condition leaves out some places.
      {"moved_by_data", "op f(x: f32[M,T], d: i32[S,M]) -> (y) { y[s,t in 0..T-16] = sum(m: x[m,t+i64(d[s,m])]) }", {{"M", 8}, {"T", 401}, {"S", 5}},
       false, {{"xh_in2[ramp(", 1, 99}, {"min(ramp(", 0, 0}, {"max(ramp(", 0, 0}}},
      {"moved_by_numbers", "op f(x: f32[M,T], d: f32[S,M]) -> (y) { y[s,t in 0..T-16] = sum(m: x[m,t+i64(floor(sigmoid(d[s,m])*14))]) }",
       {{"M", 8}, {"T", 401}, {"S", 5}}, false, {{"xh_in2[ramp(", 1, 99}}},
      {"moved_under_a_condition", "op f(x: f32[T], d: i32[S]) -> (y) { y[s,t in 0..T] = if t+i64(d[s]) < T && 0 <= t+i64(d[s]) then x[t+i64(d[s])] else 0 }",
       {{"T", 401}, {"S", 5}}, false, {{"xh_in2[ramp(", 0, 0}}},
      // A copy of all between two places far apart is much more than what is read of it.
      {"places_far_apart", "op f(x: f32[N,T,D]) -> (y) { y[n,t in 0..T,d] = sum(k in 0..2: x[n,t-300*k,d else 0]) }", {{"N", 3}, {"T", 400}, {"D", 24}},
       false, {{"allocate xh_pad", 0, 0}}},
      {"nearest", "op f(x: f32[N,W]) -> (y) { y[n, i in 0..3*W] = x[n,i/3] * 2 }", {{"N", 50}, {"W", 40}}, false, {{"/3", 0, 0}}},
      {"depthwise", kDepthwise, {{"N", 3}, {"C", 4}, {"H", 14}, {"W", 56}}, true,
       {{"allocate xh_pad", 2, 2}, {" * 16 * 1 * 1]", 2, 2}, {".s1.p1", 2, 99}, {"xh_row", 0, 0}, {"xh_ends", 0, 0}}},  // whole rows
      {"depthwise_of_what_the_tile_has_made",  // from a copy with a border, too: no lane by itself
       "op f(x: f32[N,C,H,W], u: f32[E,C], w: f32[E,3,3]) -> (y) {\n"
       " t[n,e,i,j] = relu(sum(c: u[e,c] * x[n,c,i,j]))\n y[n,e, i in 0..H, j in 0..W] = sum(r,s: t[n,e,i+r-1,j+s-1 else 0] * w[e,r,s])\n}",
       {{"N", 2}, {"C", 3}, {"E", 20}, {"H", 14}, {"W", 28}}, false, {{"allocate xh_pad", 1, 1}, {"min(ramp(", 0, 0}}, 1 << 16},
      {"depthwise_of_what_leaves",
       "op f(x: f32[N,C,H,W], u: f32[E,C], w: f32[E,3,3]) -> (y, t) {\n"
       " t[n,e,i,j] = sum(c: u[e,c] * x[n,c,i,j])\n y[n,e, i in 0..H, j in 0..W] = sum(r,s: t[n,e,i+r-1,j+s-1 else 0] * w[e,r,s])\n}",
       {{"N", 2}, {"C", 3}, {"E", 20}, {"H", 14}, {"W", 28}}, false, {{"allocate xh_pad", 1, 1}, {"min(ramp(", 0, 0}}, 1 << 16},
      {"of_what_the_tile_has_made_beside_an_input",  // tiles of some e: places in one begin with the tile, in the other with the tensor
       "op f(x: f32[N,C,H,W], u: f32[E,C], z: f32[N,E,H,W]) -> (y) {\n"
       " t[n,e,i,j] = sum(c: u[e,c] * x[n,c,i,j])\n"
       " y[n,e, i in 0..H, j in 0..W] = sum(r in 0..3, s in 0..3: exp(t[n,e,i+r-1,j+s-1 else 0] + z[n,e,i+r-1,j+s-1 else 0]))\n}",
       {{"N", 2}, {"C", 3}, {"E", 20}, {"H", 14}, {"W", 28}}, false, {}, 1 << 14},
      {"depthwise_of_shuffled_channels",  // copied once for all channels
       "op f(x: f32[N,12,H,W], w: f32[12,3,3]) -> (y) {\n"
       " y[n, c in 0..12, i in 0..H, j in 0..W] = sum(r,s: x[n,c/4+3*(c%4),i+r-1,j+s-1 else 0] * w[c,r,s])\n}",
       {{"N", 2}, {"H", 14}, {"W", 28}}, false, {{"\nallocate xh_pad", 1, 1}}, 1 << 16},
      {"depthwise_uneven", kDepthwise, {{"N", 3}, {"C", 2}, {"H", 7}, {"W", 29}}, true, {}},
      {"bilateral", kBilateral, {{"N", 2}, {"H", 19}, {"W", 200}}, false,
       {{"allocate xh_shifted", 4, 8}, {"allocate xh_few", 0, 0}}, 1 << 16},
      {"bilateral_backward", kBilateral, {{"N", 2}, {"H", 19}, {"W", 200}}, true,  // dy / sum of weights: in a copy with a border
       {{"allocate xh_shifted", 4, 8}, {"allocate xh_few", 0, 0}, {"allocate xh_pad", 3, 3}}, 1 << 16},
      {"of_two_maps", 
       "op f(x: f32[H,W]) -> (y, z) {\n"
       " t[i,j] = sum(r in 0..3: exp(-(x[i+r-1,j else 0] - x[i,j])^2))\n y[i,j] = 1 / t[i,j]\n z[j,i] = sqrt(t[i,j])\n}",
       {{"H", 19}, {"W", 70}}, false, {}, 1 << 16},
      {"bilateral_in_few_columns", kBilateral, {{"N", 3}, {"H", 5}, {"W", 17}}, false, {}},
      {"one_sided", "op f(x: f32[N,W]) -> (y) { y[n,j] = sum(s in 0..3: exp(x[n,j+s else 2] - 0.5*x[n,j])) }",
       {{"N", 20}, {"W", 90}}, false, {{"allocate xh_shifted", 0, 0}}},
      {"at_one_place", "op f(x: f32[N,W], z: f32[N,W]) -> (y) { y[n,j] = sum(s in 0..3 if j + s < W: exp(x[n,j+s else 2]) * z[n,j]) }",
       {{"N", 20}, {"W", 90}}, false, {{"allocate xh_shifted", 0, 0}, {"allocate xh_pad", 1, 1}}},
      {"two_tensors",
       "op f(x: f32[H,W], z: f32[H,W]) -> (y) {\n"
       " y[i,j] = sum(r in 0..3: tanh(x[i+r-1,j else 1]*z[i+r-1,j else 2]) * x[i+r-1,j else 1] * tanh(x[i,j]*z[i,j]))\n}",
       {{"H", 70}, {"W", 40}}, false, {{"allocate xh_shifted", 0, 0}, {"allocate xh_pad", 2, 2}}, 1 << 20},
      {"beyond_the_other_axes", "op f(x: f32[K,M,N]) -> (y) { y[i in 0..N, j in 0..M] = prod(k in 0..3: 1 + x[i,j,k-1 else 0]) }",
       {{"K", 5}, {"M", 6}, {"N", 33}}, false, {}},
      {"two_places_in_one_copy",
       "op f(x: f32[N,M,K]) -> (y) {\n"
       " y[i in 0..N, j in 0..M] = prod(k in 0..3: pow(1.5 + x[i,j,2*k-1 else -0.5]^2, x[0,i-1,j else -0.5]))\n}",
       {{"N", 9}, {"M", 5}, {"K", 8}}, false, {}},
      {"box_blur", "op f(x: f32[N,H,W]) -> (y) { y[n, i in 0..H, j in 0..W] = sum(r in 0..3, s in 0..3: x[n,i+r-1,j+s-1 else 0]) }",
       {{"N", 3}, {"H", 11}, {"W", 300}}, true, {{"xh_inside", 1, 99}, {"min(ramp(", 0, 0}}, 1 << 14},  // no lane by itself
      {"windows_to_one_side",
       "op f(x: f32[N,H,W]) -> (y) { y[n, i in 0..H, j in 0..W] = sum(r in 0..2, s in 0..5: x[n,i-r,j+s-3 else 2]^2) }",
       {{"N", 3}, {"H", 9}, {"W", 269}}, false, {{"xh_inside", 1, 99}, {"min(ramp(", 0, 0}}, 1 << 14},
      {"windows_within", "op f(x: f32[N,H+2,W+3]) -> (y) { y[n, i in 0..H, j in 0..W] = sum(r in 0..3, s in 0..4: x[n,i+r,j+s]) }",
       {{"N", 3}, {"H", 9}, {"W", 269}}, true, {}, 1 << 14},
      {"windows_over_rows_of_two_lengths",
       "op f(x: f32[N,H,W], z: f32[H,W+4]) -> (y) {\n"
       "  y[n, i in 0..H, j in 0..W] = sum(r in 0..3, s in 0..3: x[n,i+r-1,j+s-1 else 0] * z[i+r-2,j+s+3 else 1])\n}",
       {{"N", 3}, {"H", 9}, {"W", 269}}, false, {{"xh_inside", 1, 99}, {"min(ramp(", 0, 0}}, 1 << 14},
      {"windows_outside",
       "op f(x: f32[N,H,W]) -> (y) { y[n, i in 0..H, j in 0..W] = sum(r in 0..3, s in 0..3: x[n,i+r,j+s+W else 2]) }",
       {{"N", 3}, {"H", 9}, {"W", 269}}, false, {}, 1 << 14},
      {"rows_a_page_apart", "op f(x: f32[N,K], w: f32[K,O]) -> (y) { y[n,o] = sum(k: x[n,k] * w[k,o]) }",
       {{"N", 40}, {"K", 1024}, {"O", 256}}, false, {{"allocate xh_part", 2, 2}}},
      {"rows_elsewhere", "op f(x: f32[N,K], w: f32[K,O]) -> (y) { y[n,o] = sum(k: x[n,k] * w[k,o]) }",
       {{"N", 40}, {"K", 1016}, {"O", 256}}, false, {{"allocate xh_part", 1, 1}}},
      // Columns of the last rows of a tile, which are no whole vector: lanes of one load under a mask, none by itself.
      {"columns_of_the_last_rows", "op f(x: f32[N,3], y: f32[N,3]) -> (a) { a[n] = sqrt(x[n,0]^2+exp(x[n,1]*y[n,2]))*tanh(x[n,2]+y[n,0]) }",
       {{"N", 117}}, false, {{", 3, 16) aligned", 0, 0}, {", 3, 8) aligned", 0, 0}, {"slice_vectors(", 6, 99}}},
      // Rows of up to eight are loaded in whole vectors, and taken apart in registers.
      {"rows_of_six_are_loaded_whole", "op f(x: f32[N,6]) -> (y) { y[n] = sqrt(sum(k: exp(x[n,k]))) }",
       {{"N", 117}}, false, {{".stride.1, 16)", 0, 0}, {".stride.1, 8)", 0, 0}, {"slice_vectors(", 6, 99}}},
      {"sums_of_the_batch_and_of_each", "op f(x: f32[N,C,H]) -> (y, t) {\n"
       " t[c] = sum(n,h: x[n,c,h]); s[n,c] = sum(h: x[n,c,h]^2); y[n,c,h] = x[n,c,h] * s[n,c]\n}",
       {{"N", 9}, {"C", 8}, {"H", 512}}, false, {{"produce xh_acc", 1, 1}}},
      {"few_rows_across", "op f(x: f32[N,8,8], w: f32[N,8,8]) -> (y) { y[n,i,j] = sum(k: x[n,i,k] * w[n,j,k]) }",
       {{"N", 40}}, false, {{"allocate xh_part", 1, 1}, {"allocate xh_square", 1, 1}}},
      {"rows_along_two_axes", "op f(x: f32[T,N,K], w: f32[O,K]) -> (y) { y[t,n,o] = sum(k: x[t,n,k] * w[o,k]) }",
       {{"T", 9}, {"N", 32}, {"K", 128}, {"O", 64}}, false, {{"allocate xh_part", 1, 1}, {"allocate xh_square", 1, 1}}},
      {"few_rows_along_the_inner_axis", "op f(x: f32[T,N,K], w: f32[O,K], m: f32[N]) -> (y) { y[t,n,o] = m[n] * sum(k: x[t,n,k] * w[o,k]) }",
       {{"T", 60}, {"N", 5}, {"K", 96}, {"O", 64}}, false, {{"allocate xh_part", 1, 1}, {"allocate xh_square", 1, 1}}},
      {"three_in_a_row",
       "op f(a: f32[N,M], t: f32[N,M], x: f32[N,K]) -> (y) {\n"
       " y[n,k in 0..K] = if (k+1)%2 == 0 && (k+1)/2 < M && x[n,2*((k+1)/2)-1 else 0] == t[n,(k+1)/2] then "
       "a[n,(k+1)/2] / t[n,(k+1)/2] else 0\n}",
       {{"N", 400}, {"M", 3}, {"K", 3}}, false, {}},
      {"pair_of_floats",  // a + (b - a) is not b
       "op f(a: f32[N,M], t: f32[N,M]) -> (y, l) {\n"
       " y[n,k in 0..3] = if (k+1)%2 == 0 then a[n,(k+1)/2] else 1e10 * t[n,k/2]\n l[n] = a[n,0] < t[n,0]\n}",
       {{"N", 400}, {"M", 3}}, false, {{"concat_vectors(", 1, 14}}},
      {"pair_of_floats_with_a_tail",  // whose second lane is 0/0
       "op f(a: f32[N,M], t: f32[N,M]) -> (y, l) {\n"
       " y[n,k in 0..3] = if (k+1)%2 == 0 then a[n,(k+1)/2] / t[n,(k+1)/2] else t[n,k/2]\n l[n] = a[n,0] < t[n,0]\n}",
       {{"N", 400}, {"M", 3}}, false, {{"concat_vectors(", 1, 14}}},
      {"divided_by_nothing",  // Halide refuses what it finds to be 1/0, though nobody asks for it
       "op f(x: f32[N]) -> (y) { y[n,i in 0..1] = let v = f32(i) in if v > 0.1 then rsqrt(v) + v^(-2) + 2.5 % v + 1/v else x[n] }",
       {{"N", 40}}, false, {}},
      {"a_border_beside_places_from_data",  // which may be anywhere, and are in no copy
       "op f(x: f32[N,M], ids: i32[N]) -> (y) {\n"
       " y[n] = x[n,min(M-1,max(0,ids[n]))] + sum(k in 0..n, j in 0..5: x[j,j else 0.5])\n}",
       {{"N", 5}, {"M", 2}}, false, {}},
      {"labels", "op f(x: f32[N,C], labels: i32[N] const) -> (y) { y[n,c] = if labels[n] == c then -x[n,c] else exp(x[n,c]) }",
       {{"N", 9}, {"C", 100}}, true, {{"int64", 0, 0}}},  // compared in 32 bits
      // Numbers of places, of 32 bits.
      {"numbers_of_places", "op f(x: f32[N,M]) -> (y) { y[i,j] = x[i,j] * (f32(j-i) + 0.5) + f32(j) }", {{"N", 40}, {"M", 77}}, false,
       {{"int64", 0, 0}, {"float32x", 1, 99}}},
      // A window of many terms: its sums in registers, of a masked input a copy with its border, and nothing asked for each term.
      {"a_wide_window_of_a_masked_input", "op f(x: f32[C,H,W], g: f32[C,H,W], k: f32[C,9,9]) -> (y) {\n"
       " y[h in 0..H, w in 0..W] = sum(c, i in max(0,h-4)..min(H,h+5), j in max(0,w-4)..min(W,w+5): (if g[c,i,j] > 0 then x[c,i,j] else 0) * k[c,h-i+4,w-j+4])\n}",
       {{"C", 3}, {"H", 20}, {"W", 128}}, false, {{"allocate xh_pad", 1, 1}, {"bitreverse", 0, 0}, {"allocate xh_acc", 1, 1}, {"produce xh_few", 1, 1}}, 1 << 20},
      // A range that ends where the result lies ends the loop.
      {"a_triangle_of_rows", "op f(x: f32[T,D], h: f32[T,D]) -> (y) { y[t in 0..T, d] = sum(s in 0..t+1: abs(h[t-s,d] - x[s,d])) }",
       {{"T", 90}, {"D", 24}}, false, {{"$x, 0, 90)", 0, 0}, {" + 1) {", 2, 9}}, 1 << 20},
      {"columns_backwards",  // out of a copy with a border: of places that descend LLVM is told the first one alone
       "op f(x: f32[M,N], v: f32[N]) -> (y) { y[i in 0..N, j in 0..M, k in 0..N+1] = sum(n: x[2-k,n else 0] * v[n]) }",
       {{"M", 6}, {"N", 3}}, false, {{", -", 0, 0}, {"allocate xh_pad", 1, 1}}},
      // Against the direction of memory, as relative positions are read: in vectors that are turned over, tails as well.
      {"map_backwards", "op f(x: f32[N,M], c: f32[2*M]) -> (y) { y[i,j] = exp(x[i,j] + c[M+3-j]) }", {{"N", 40}, {"M", 77}}, false,
       {{"ramp(", 3, 99}, {"shuffle(", 1, 9}, {", -1, ", 0, 0}}},
      {"sum_backwards", "op f(x: f32[N,M], h: f32[N,M]) -> (y) { y[i] = sum(k: x[i,k] * h[i,M-1-k]) }", {{"N", 40}, {"M", 300}}, true,
       {{"ramp(", 3, 99}, {", -1, ", 0, 0}}},
      {"maximum_backwards", "op f(x: f32[N,M], c: f32[M]) -> (y) { y[i] = max(k: x[i,k] - c[M-1-k]) }", {{"N", 40}, {"M", 77}}, false,
       {{"ramp(", 3, 99}, {", -1, ", 0, 0}}},
      {"product_backwards", "op f(a: f32[N,K], b: f32[K,M]) -> (y) { y[i, j in 0..M] = sum(k: a[i,K-1-k] * b[k,M-1-j]) }",
       {{"N", 60}, {"K", 50}, {"M", 70}}, false, {{"allocate xh_acc", 1, 4}, {", -1, ", 0, 0}}},
      {"columns_backwards_added_up", "op f(x: f32[N,M], c: f32[M]) -> (y) { y[i,j] = tanh(x[i,j] + c[M-1-j]) }", {{"N", 40}, {"M", 77}}, true,
       {{"ramp(", 3, 99}, {", -1, ", 0, 0}}},
      // Accumulators of a row, whose lanes go to as many planes of a tile's memory: LLVM must not know how far these are apart.
      {"planes_of_strided_convolution", kStridedConvolution, {{"N", 2}, {"C", 3}, {"K", 8}, {"H", 31}, {"W", 37}}, false,
       {{"ramp(0, 18, 8)", 0, 0}, {", 18, 8)", 0, 0}}},
      {"planes_of_wider_strided_convolution", kStridedConvolution, {{"N", 2}, {"C", 4}, {"K", 16}, {"H", 27}, {"W", 27}}, false,
       {{", 13, 16)", 0, 0}}},
      // Vectors along the columns, both phases of them in one block: no loop over these.
      {"gradient_of_a_strided_convolution",
       "op f(x: f32[N,K,H,W], w: f32[K,C,3,3]) -> (y) {\n y[n,c,l in 0..2*H,m in 0..2*W] =\n"
       " sum(k, i in l/2..min((l+1)/2+1,H), j in m/2..min((m+1)/2+1,W): x[n,k,i,j]*w[k,c,l+1-2*i,m+1-2*j])\n}",
       {{"N", 1}, {"C", 8}, {"K", 8}, {"H", 4}, {"W", 32}}, false, {{"v_a3p, 0, 2)", 0, 0}}, 1 << 20},
      {"every_second_term", "op f(x: f32[N,2*L]) -> (y) { y[n] = sum(i in 0..L: abs(x[n,2*i] - x[n,2*i+1])) }", {{"N", 9}, {"L", 130}}, false,
       {{"allocate xh_vec", 1, 1}}},  // vectors along the terms
      {"many_terms_of_short_rows",  // added up in registers: the last vector of a row overlaps the one before
       "op f(x: f32[N,H,W,C], w: f32[7,7,C]) -> (y) {\n"
       " y[n, i in 0..H, j in 0..W, c] = sum(r,s: x[n,i+r-3,j+s-3,c else 0] * w[r,s,c])\n}",
       {{"N", 2}, {"H", 9}, {"W", 11}, {"C", 21}}, false, {{"produce xh_few", 1, 1}, {"[float32 * 21", 0, 0}}, 1 << 16},
      {"a_result_read_again",  // at the end of a row under a mask
       "op f(x: f32[N,D]) -> (e, y) {\n"
       " m[n] = max(d: x[n,d])\n e[n,d] = exp(x[n,d] - m[n])\n y[n,d] = tanh(e[n,d] / sum(k: e[n,k]))\n}",
       {{"N", 40}, {"D", 47}}, false, {{"predicate (", 2, 99}, {", 0, 15)", 0, 0}}},
      {"sums_and_maxima_of_rows", "op f(x: f32[N,D]) -> (y, z) {\n y[n] = sum(d: x[n,d]^2)\n z[n] = max(d: x[n,d])\n}",
       {{"N", 40}, {"D", 47}}, false, {{", 16, 16)", 0, 0}}},  // no gathers fold them up
      {"waves_in_common",  // along 40 places, not along 5
       "op f(a: f32[N,A], l: f32[W], b: f32[N,A]) -> (c, d) {\n"
       " c[n,w] = sum(i: b[n,i] * cos(a[n,i] * l[w]))\n d[n,i] = sum(w: l[w] * cos(a[n,i] * l[w]))\n}",
       {{"N", 9}, {"A", 5}, {"W", 40}}, false, {{"[float32 * 40 * 5", 1, 9}, {"[float32 * 5 * 40", 0, 0}}},
      // Vectors along rows: what the results of a row share is computed once, and each stands in one statement.
      {"few_results_of_a_row", kResidual, {{"N", 83}}, true, {{"sqrt", 1, 1}, {"allocate xh_made", 8, 8}, {"allocate xh_read", 10, 10}}},
      {"few_results_of_a_row_by_place",
       "op f(x: f32[N,3], ids: i32[N] const, c: f32[K,3]) -> (y, z) {\n"
       " t[n] = exp(sum(i: (x[n,i] - c[abs(ids[n])%K,i])^2) / 10)\n"
       " y[n,i,j] = t[n] * x[n,i] * x[n,j] + (if i == j then tanh(t[n]) else 0)\n z[n,i] = t[n] * c[abs(ids[n])%K,i]\n}",
       {{"N", 83}, {"K", 7}}, false, {{"allocate xh_made", 12, 12}, {"allocate xh_read", 6, 7}}},
      {"many_results_of_a_row", "op f(x: f32[N,D]) -> (y) { y[n,d] = tanh(x[n,d]) * x[n,0] }", {{"N", 83}, {"D", 24}}, false,
       {{"xh_made", 0, 0}}},  // with nothing in common
      {"many_functions_of_a_row",  // LLVM would take seconds for so many in one piece of code
       "op f(x: f32[N,M]) -> (y) {\n w[n,i,r in 0..7] = exp(-(x[n,i+r-3 else 0] - x[n,i])^2)*sin(x[n,i+r-3 else 0.1])\n"
       " y[n,i] = sum(r in 0..7: w[n,i,r]*x[n,i+r-3 else 0])/(1 + sum(r in 0..7: w[n,i,r]^2)) }", {{"N", 3}, {"M", 17}}, false, {{"xh_made", 0, 0}}},
      {"few_cheap_results_of_a_row",  // turning would take longer
       "op f(a: f32[N,3], b: f32[N,3]) -> (c) { c[n, i in 0..3] = a[n,(i+1)%3]*b[n,(i+2)%3] - a[n,(i+2)%3]*b[n,(i+1)%3] }", {{"N", 83}}, false,
       {{"xh_made", 0, 0}}},
      {"softmax_of_three", "op f(x: f32[N,3]) -> (y) { e[n,k] = exp(x[n,k] - max(j: x[n,j]))\n y[n,i] = e[n,i] / sum(k: e[n,k]) }", {{"N", 83}}, false,
       {{"xh_made", 0, 0}}},  // across short rows
      {"few_halves_of_a_row", "op f(x: bf16[N,3] const, t: f32[N]) -> (y) { y[n,i] = f32(x[n,i]) * exp(sin(t[n]) * t[n]) }", {{"N", 83}}, false,
       {{"xh_made", 0, 0}}},
      {"few_long_rows",  // vectors run along them as ever
       "op f(x: f32[N,3,D]) -> (y) { y[n,i,d] = x[n,i,d] * exp(sin(x[n,0,d]) * x[n,1,d]) }", {{"N", 5}, {"D", 83}}, false, {{"xh_made", 0, 0}}},
      // Vectors across short rows: results are interleaved, inputs are taken apart.
      {"short_rows", "op f(x: f32[N,3], g: f32[3]) -> (y) { y[n,k] = exp(x[n,k] * g[k]) }", {{"N", 83}}, true,
       {{"interleave_vectors(", 1, 9}, {"slice_vectors(", 3, 99}}},
      {"short_rows_of_two_axes", "op f(x: f32[N,3], g: f32[N]) -> (y) { y[n,i in 0..2,k] = if i == 0 then sin(x[n,k]) else g[n]*cos(x[n,k]) }",
       {{"N", 83}}, false, {{"interleave_vectors(", 1, 9}, {"slice_vectors(", 3, 99}}},
      {"sums_in_short_rows",  // as many rows in registers as a vector has lanes
       "op f(x: f32[N,3,3,3], a: f32[3,3,4], b: f32[3,3,2], c: f32[N,4]) -> (y) { y[n,o,u] = sum(p,q,r: x[n,p,q,r]*a[p,q,o]*b[q,r,u]*c[n,o]) }",
       {{"N", 83}}, false, {{"[float32 * 2 * 4 * 16]", 1, 9, 16}, {"[ramp(112, 1, 16)]", 2, 99, 16}, {"[float32 * 2 * 4 * 8]", 1, 9, 8},
                            {"[ramp(56, 1, 8)]", 2, 99, 8}}, 1 << 20},
      {"few_terms_in_short_rows", "op f(x: f32[N,3], a: f32[3,3], c: f32[N,3]) -> (y) { y[n,o] = sum(p: x[n,p]*a[o,p]*c[n,o]) }", {{"N", 83}},
       false, {{"interleave_vectors(", 1, 9}, {"slice_vectors(", 3, 99}}, 1 << 20},
      // Sums of few results run along their terms, which are taken apart: along the results each term would wait for the sum before it.
      {"few_sums_of_many_rows", "op f(x: f32[C,N,3], z: f32[C,N,3]) -> (y) { y[c,a,b] = sum(n: x[c,n,a]*z[c,n,b]) }", {{"C", 2}, {"N", 8300}},
       false, {{"slice_vectors(", 3, 99}}, 1 << 20},
      {"sums_of_places_in_turn",  // no copy with a border
       "op f(x: f32[N,3], z: f32[N,3]) -> (y) { y[a in 0..3] = sum(n: x[n,(a+1)%3]*z[n,(a+2)%3] - x[n,(a+2)%3]*z[n,(a+1)%3]) }", {{"N", 83}},
       false, {{"slice_vectors(", 3, 99}, {"xh_pad", 0, 0}}, 1 << 20},
      {"short_rows_of_a_batch_of_few", "op f(x: f32[N,3], g: f32[3]) -> (y) { y[n,k] = exp(x[n,k] * g[k]) }", {{"N", 5}}, true, {}},
      {"scattered_rows_that_a_map_reads",  // in registers, as if they were the result
       "op f(x: f32[N,D], ids: i32[N] const, V: f32[W]) -> (y) { y[v in 0..W,d] = tanh(sum(n if i64(abs(ids[n])%W) == v: x[n,d])) }",
       {{"W", 300}, {"D", 37}, {"N", 190}}, false, {{"xhat_list", 1, 1}, {"[float32 * 32]", 1, 2}}},
      // The exponential that nine members need, before what three of them make of it.
      {"an_exponential_in_common",
       "op f(p: f32[B,T], o: f32[B,T], r: f32[B]) -> (l) {\n"
       " h[i,t] = exp(p[i,t]-o[i,t])\n l = mean(i,t: min(h[i,t]*r[i], clamp(h[i,t],0.8,1.2)*r[i]))\n}",
       {{"B", 31}, {"T", 64}}, true, {{"1.442695f", 1, 4}}, 1 << 20},
      // Of segments between offsets, the loop over places begins and ends where the data say: of terms, and of results.
      {"terms_of_segments", "op f(x: f32[S], w: f32[S], o: i32[R+1] const) -> (y) {\n"
       " y[r in 0..R] = sum(t if i64(o[r]) <= t && t < i64(o[r+1]): x[t]*w[t])\n}",
       {{"S", 403}, {"R", 20}}, false, {{"$x.rebased, 0", 1, 1}}},
      {"results_of_segments", "op f(x: f32[S], w: f32[S], o: i32[R+1] const) -> (y) {\n"
       " y[r in 0..R] = sum(t if i64(o[r]) <= t && t < i64(o[r+1]): x[t]*w[t])\n}",
       {{"S", 403}, {"R", 20}}, true, {{".v_a0.v_a0.rebased, 0", 1, 1}}},
      {"columns_of_segments", "op f(x: f32[S,A], o: i32[R+1] const) -> (y) { y[r in 0..R,a] = sum(t if i64(o[r]) <= t && t < i64(o[r+1]): x[t,a]) }",
       {{"S", 203}, {"R", 20}, {"A", 16}}, false, {{"$x.rebased, 0", 1, 1}}},
      {"places_of_segments", "op f(x: f32[S,A] const, w: f32[S], o: i32[R+1] const) -> (y) {\n"
       " y[r in 0..R,a] = sum(t if i64(o[r]) <= t && t < i64(o[r+1]): x[t,a]*w[t])\n}",
       {{"S", 203}, {"R", 20}, {"A", 21}}, true, {{".rebased, 0", 2, 9}}},
      // What two sums over segments share is no table of all pairs.
      {"exponentials_of_segments", "op f(x: f32[S], w: f32[S], m: f32[R], o: i32[R+1] const) -> (y, z) {\n"
       " y[r in 0..R] = sum(t if i64(o[r]) <= t && t < i64(o[r+1]): exp(x[t]-m[r]))\n"
       " z[r in 0..R] = sum(t if i64(o[r]) <= t && t < i64(o[r+1]): exp(x[t]-m[r])*w[t])\n}",
       {{"S", 403}, {"R", 20}}, false, {{"* 403", 0, 0}, {"403 *", 0, 0}}},
      // The columns of a gathered row are written out in one loop over rows: which column it is, is known.
      {"sums_of_gathered_columns", "op f(x: f32[V,3], ids: i32[N] const, w: f32[N]) -> (s) {\n"
       " s = sum(n,d: w[n]*x[clamp(ids[n],0,V-1),d]*x[clamp(ids[n],0,V-1),(d+1)%3])\n}",
       {{"V", 40}, {"N", 203}}, false, {{" % 3", 0, 0}}},
      // Where both are the same, the difference of two means is 0 and has the sign 0, however their terms are rounded.
      {"signs_of_differences_of_means", "op f(d: f32[R,S], t: f32[R,S+1]) -> (l) {\n m[r,i in 0..S] = 0.3*(t[r,i]+t[r,i+1])\n"
       " l[r] = sum(i,j: d[r,i]*d[r,j]*abs(m[r,i]-m[r,j]))\n}",
       {{"R", 7}, {"S", 17}}, true, {}},
      // Terms that are rare are asked for in blocks, and what is asked stands in front of the loop over a block.
      {"rows_of_the_largest", "op f(s: f32[N,K], m: f32[N], v: f32[K,D]) -> (o) { o[n,d] = sum(k if s[n,k] == m[n]: v[k,d]) }",
       {{"N", 37}, {"K", 39}, {"D", 21}}, false, {{"vector_reduce_or(", 1, 2}, {"if (uint1(xh_asked", 1, 1}}, 1 << 20},
      {"depthwise_narrow", kDepthwise, {{"N", 40}, {"C", 3}, {"H", 3}, {"W", 5}}, true, {}},
  };
}

class LoweredCode : public ::testing::TestWithParam<Case> {};

CompileOptions options(const Case& c, int threads) {
  CompileOptions o;
  o.threads = threads;
  o.machine.serial_bytes = 0;
  o.machine.tile_bytes = c.tile_bytes;
  return o;
}

TEST_P(LoweredCode, HasThePhrases) {
  const Case& c = GetParam();
  const CompileOptions o = options(c, 2);
  const Program derived = derive(parse_op(c.text), o).program;
  const Program direction = c.backward ? backward_program(derived) : infer_program(derived);
  const auto spec = only_spec(direction, c.dims, o.machine);
  // Lowered for either kind of processor, whichever this one is: nothing runs.
  for (const CpuLevel level : {CpuLevel::avx2, CpuLevel::avx512}) {
    const Halide::Target target = runtime::target_of(level);
    const int lanes = target.natural_vector_size<float>();
    ::testing::internal::CaptureStderr();
    const std::string code = lowered_code(spec, target);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(times_in(said, "Warning:"), 0) << "Halide warns whoever compiles: " << said;
    for (const Phrase& p : c.phrases) {
      if (p.lanes != 0 && p.lanes != lanes) continue;
      const int n = times_in(code, p.text);
      EXPECT_TRUE(p.least <= n && n <= p.most) << p.text << ": " << n << " times with " << lanes << " lanes in\n" << code;
    }
  }
}

TEST_P(LoweredCode, HasTheValues) {
  const Case& c = GetParam();
  const Program op = parse_op(c.text), derived = gradient(op);
  const Arrays data = random_data(derived, c.dims, 5), exact = evaluate_on(derived, data, c.dims);
  for (int64_t tile_bytes : {2048, 1 << 20}) {
    Case tiled = c;
    tiled.tile_bytes = tile_bytes;
    const CompiledOp compiled = compile(op, options(tiled, 1));
    const Arrays one = run_both(compiled, data, c.dims);
    EXPECT_EQ(difference(exact, one, 1e-5), "") << "tiles of " << tile_bytes;
    for (auto phase : {CompiledOp::Phase::forward, CompiledOp::Phase::backward})
      EXPECT_EQ(compiled.refused(phase, c.dims), std::vector<std::string>()) << "tiles of " << tile_bytes;
    for (int threads : {2, 4}) {
      const Arrays more = run_both(compile(op, options(tiled, threads)), data, c.dims);
      for (const auto& [name, array] : one) EXPECT_EQ(more.at(name).reals, array.reals) << name << ", " << threads << " threads";
    }
  }
}

// What one term of a minimum hands to the next stands at several places of it: nodes of the graph are counted, not of a tree.
TEST(StoredAsNarrow, ChoicesOfChoicesStayAGraph) {
  struct Nodes : Halide::Internal::IRGraphVisitor {
    int count = 0;
    using IRGraphVisitor::visit;
    void visit(const Halide::Internal::Select* op) override {
      ++count;
      IRGraphVisitor::visit(op);
    }
  } nodes;
  constexpr int kTerms = 12;
  const Halide::ImageParam x(Halide::BFloat(16), 1);
  Halide::Expr least = Halide::cast<float>(x(0));
  for (int k = 1; k < kTerms; ++k) {
    const Halide::Expr term = Halide::cast<float>(x(k));
    least = Halide::select(least != least, least, Halide::select(least < term, least, term));
  }
  runtime::ops::as_stored(Halide::BFloat(16), least).accept(&nodes);
  EXPECT_LE(nodes.count, 4 * kTerms);
}

INSTANTIATE_TEST_SUITE_P(Ops, LoweredCode, ::testing::ValuesIn(cases()), [](const auto& c) { return c.param.name; });

}  // namespace
}  // namespace xhat::lowered_code_test

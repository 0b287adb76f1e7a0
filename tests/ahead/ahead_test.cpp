// Libraries compiled ahead of time compute the bits that the engine computes in the process, at any size of the open dim, on
// every processor level that this machine has; and say what is wrong with a call before they write.
#include <gtest/gtest.h>

#include "tests/helpers/ahead_helper.h"

namespace xhat::ahead_test {
namespace {

using namespace xhat::testing;

TEST_F(Ahead, Rows) {
  same_bits(R"(op softmax(x: f32[N,D]) -> (y) {
    m[n] = max(d: x[n,d]); e[n,d] = exp(x[n,d] - m[n]); y[n,d] = e[n,d] / sum(k: e[n,k]) })",
            {{{"D", 70}}, kBatches}, small_tiles(options()));
}

TEST_F(Ahead, SizesFromAList) {
  AheadOptions o = best_level();
  o.sizes = {{"D", {8, 20}}};
  same_bits("op rows(x: f32[N,D]) -> (y) { y[n] = sum(d: x[n,d]^2) }", o,
            {{{"N", 1}, {"D", 8}}, {{"N", 33}, {"D", 8}}, {{"N", 1}, {"D", 20}}, {{"N", 33}, {"D", 20}}});
  o.sizes = {{"D", {8}}, {"N", {3, 5}}};
  same_bits("op fixed(x: f32[N,D]) -> (y) { y[n] = sum(d: x[n,d]^2) }", o, {{{"N", 3}, {"D", 8}}, {{"N", 5}, {"D", 8}}});
}

TEST_F(Ahead, WhatMustBeGivenIsSaid) {
  Program op = parse_op("op rows(x: f32[N,D,E]) -> (y) { y[n,e in 0..E/2] = sum(d: x[n,d,2*e]^2) }");
  auto message = [&](const std::map<std::string, std::vector<int64_t>>& sizes) {
    AheadOptions o = best_level();
    o.sizes = sizes;
    try {
      build_ahead(op, o, path("lib"));
    } catch (const Error& e) {
      return e.message();
    }
    return std::string("fine");
  };
  EXPECT_EQ(message({}).substr(0, 42), "op rows: the sizes N, D, E must be given, ");
  EXPECT_EQ(message({{"N", {2}}, {"D", {3}}}).substr(0, 35), "op rows: the size E must be given, ");
  EXPECT_EQ(message({{"D", {3}}, {"E", {4}}, {"F", {4}}}), "op rows: there is no dim F; it has N, D, E");
  EXPECT_FALSE(fs::exists(path("lib")) && !fs::is_empty(path("lib"))) << "nothing is left of what failed";
}

}  // namespace
}  // namespace xhat::ahead_test

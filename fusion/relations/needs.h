// Relations as text: which elements each result needs, and how often a producer's elements are computed if every tile of its consumer
// computes the elements that it needs.
//
//   C[i,j] = sum(k: A[i,k]*B[j,k])       E[i,j] <- A[i,0:8], B[0:8,0:8], D[j,0:8]
//   E[i,j] = sum(k: C[i,k]*D[j,k])       tiles of E, 1 x 1: 8 elements of C, each computed 8 times; 1 x 8: 8 elements, once
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "fusion/relations/relations.h"

namespace xhat::fusion {

// "A[i,0:8]", in the names of the axes of the result's definition; "x[i-1] if 0 < i"; "some of x[0:N]" if a condition excludes some
// elements; "t[?,d]" if data decide; "w[0:2*N:2]" for every second element.
std::string needed_text(const Program& p, const Relation& r);

// The elements of the inputs that an element of the result needs, through all definitions between.
struct Needs {
  TensorId result;
  std::string element;  // "E[i,j]"
  std::vector<Relation> relations;
};
// For every output.
std::vector<Needs> needs(const Program& p);

struct Granularity {
  std::vector<int64_t> tile;        // of the consumer, elements along each axis
  std::optional<int64_t> elements;  // elements of the producer that a tile needs; none: unknown, or nothing
  std::optional<double> computed;   // how often each of them is computed
};
struct ProducerTiles {
  TensorId consumer, producer;
  std::vector<Relation> relations;
  std::optional<std::string> obstacle;  // why the two cannot be one kernel; none: they can
  std::vector<Granularity> rows;
};
// For every definition and every definition that it reads, at tiles from one element to all. Needs sizes for all dims.
std::vector<ProducerTiles> producer_tiles(const Program& p, const DimValues& sizes);

}  // namespace xhat::fusion

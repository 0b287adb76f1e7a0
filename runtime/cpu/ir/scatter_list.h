// The updates of a scatter that hit a tile, as a list. A loop that asks every term whether it is in this tile takes a nanosecond for
// each that is not, and a mispredicted branch for each that is. So the places of all terms are computed in vectors, a function
// of ours lists those that are in the tile, and only these are added (20,480 rows of 128 into 10,000, one thread: 0.37 ms instead
// of 0.60):
//
//   for r: if place(r) in tile: acc[place(r)] += f(r)
//       =>   xhat_list(places, terms, 1, list);  for h < list[1]: r = list[2 + h], acc[…] += f(r)
//
// Where rows are scattered, the list is sorted by row, and a row is summed up in registers and written once:
//
//       =>   xhat_list(places, terms, rows, list);
//            for row < rows:  for h in list[row]..list[row + 1]: r = list[rows + 1 + h], acc += f(r);  result[row] = acc
#pragma once
#include <string>

#include "Halide.h"

namespace xhat::runtime {

// Names in generated code.
struct ScatterList {
  std::string places;  // a Func in memory: per term an int32, negative if it is not in the tile, else the row
  std::string list;    // one of list_room(terms, rows) int32
  std::string hits;    // the loop over the list
  Halide::Expr terms, rows;
  std::string row = "";  // the loop over rows, around that; empty: rows is 1
};

// Adds the pass to the pipeline.
void list_scattered(Halide::Pipeline& pipeline, const ScatterList& s);

}  // namespace xhat::runtime

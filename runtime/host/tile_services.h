// The functions that the code of a tile calls: memory for its temporaries, non-temporal copies, lists of scatter updates. Does not need
// Halide, so a kernel from disk needs none.
#pragma once
#include <cstddef>

namespace xhat::runtime {

// Kernels from disk find these functions by their position in this struct, to which the context of a call points
// (runtime/store/link_kernel.cpp).
struct TileServices {
  // Memory, 64-byte aligned. Every call asks for the same few sizes, so each thread keeps its blocks: no allocation in the steady state, and
  // 10 ns instead of 90.
  void* (*allocate)(void* context, size_t bytes);
  void (*release)(void* context, void* data);
  // Copies one chunk of consecutive elements to result + first, by non-temporal stores. The scratch is room for a line, the chunk, and room for
  // another line. begins, ends: the chunk is the first, the last one of its run.
  int (*stream)(void* context, void* result, int first, void* scratch, int elements, int element_bytes, bool begins, bool ends);
  // Sorts the i in 0..terms by places[i], a row below `rows`; i with negative places[i] are left out, and the i of a row ascend. The i of row r
  // are at list[rows + 1 + list[r]] up to list[rows + 1 + list[r + 1]] (exclusive). Writes at most list_room(terms, rows) ints.
  int (*list)(void* context, const int* places, int terms, int rows, int* list);
};
const TileServices& tile_services();

constexpr const char* kStreamSymbol = "xhat_stream";  // the name of `stream` in generated code
constexpr size_t kStreamLine = 64;                    // bytes
constexpr const char* kListSymbol = "xhat_list";      // the name of `list` in generated code
// Ints of a list: the beginnings of the rows, the listed i (twice, for sorting), and one vector that may be written beyond them.
template <class T>
T list_room(T terms, T rows) {
  return rows + 1 + 2 * terms + 16;
}

// The thread that ran a tile with non-temporal stores must call this before it reports the tile as done: such stores are not ordered with
// others.
void end_streaming();

}  // namespace xhat::runtime

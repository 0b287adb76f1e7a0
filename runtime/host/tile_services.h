// What the code of a tile calls: memory for its temporaries, and copies past the cache. No Halide in it, so that a kernel
// from disk needs none.
#pragma once
#include <cstddef>

namespace xhat::runtime {

// Compiled kernels on disk reach these through the context of a call, which points to this struct: by position
// (runtime/store/link_kernel.cpp).
struct TileServices {
  // 64-byte aligned. Every call asks for the same few sizes, so each thread keeps what it got: no allocation in the steady
  // state, and 10 ns instead of 90.
  void* (*allocate)(void* context, size_t bytes);
  void (*release)(void* context, void* data);
  // Copies one chunk of consecutive elements to result + first, by stores that don't fetch the lines that they overwrite. The
  // scratch has a line's room, the chunk, and a line again. begins, ends: the chunk is the first, the last one of its run.
  int (*stream)(void* context, void* result, int first, void* scratch, int elements, int element_bytes, bool begins, bool ends);
  // The i in 0..terms by places[i], which is below `rows`; those at one place rise, and where it is negative i is left out.
  // list[r], list[r + 1]: where those of place r begin and end, counted from list[rows + 1]. Writes up to list_room(terms, rows).
  int (*list)(void* context, const int* places, int terms, int rows, int* list);
};
const TileServices& tile_services();

constexpr const char* kStreamSymbol = "xhat_stream";  // what `stream` is called in generated code
constexpr size_t kStreamLine = 64;                    // bytes
constexpr const char* kListSymbol = "xhat_list";      // what `list` is called
// Where places begin, what is listed, twice where it is sorted, and a vector that is written whole.
template <class T>
T list_room(T terms, T rows) {
  return rows + 1 + 2 * terms + 16;
}

// To be called by the thread that ran a tile which streams, before it tells anyone: such stores are ordered with no others.
void end_streaming();

}  // namespace xhat::runtime

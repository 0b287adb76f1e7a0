// The functions that the generated source of a library compiled ahead of time (runtime/ahead/build/ahead_text.cpp) calls; users see the library's own
// header instead. They have C types, so that the generated source compiles quickly.
#pragma once
#include <cstdint>

extern "C" {

struct xhat_ahead_library {
  int64_t format;               // kAheadFormat
  const uint8_t* table;         // AheadTable
  int (*const* tiles)(void**);  // by level and code
  int64_t codes;                // number of tile functions per level
  void* opened;                 // for this code; null at the start
};

// Runs a side: 0 infer, 1 forward, 2 backward. dims: the values of the op's dims that are arguments. tensors: the side's inputs, then its outputs.
// strides: null, or for each of these its strides in elements, null for row-major without gaps. stash: for forward and backward. Returns a status.
int xhat_ahead_call(xhat_ahead_library* library, int side, const int64_t* dims, void* const* tensors, const int64_t* const* strides,
                    void* stash);
int xhat_ahead_stash_bytes(xhat_ahead_library* library, const int64_t* dims, int64_t* bytes);
int64_t xhat_ahead_elements(xhat_ahead_library* library, const int64_t* dims, const char* tensor);  // -1: error

// The same on a device of the table. stream: a CUstream or cl_command_queue. tensors: memory of the device, except the op's scalar inputs, which
// are host memory. Returns when everything is enqueued.
int xhat_ahead_device_call(xhat_ahead_library* library, int device, int side, const int64_t* dims, void* stream, void* const* tensors,
                           void* stash);
int xhat_ahead_device_stash_bytes(xhat_ahead_library* library, const int64_t* dims, int64_t* bytes);
int xhat_ahead_device_trust_data(xhat_ahead_library* library, int device, int on);
int xhat_ahead_device_release(xhat_ahead_library* library, int device, void* stream);

const char* xhat_ahead_message(void);  // of this thread's last failed call
int xhat_ahead_set_threads(int threads);
const char* xhat_ahead_level(xhat_ahead_library* library);

}  // extern "C"

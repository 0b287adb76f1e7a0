// A CUDA driver for tests on machines without one: libfake_cuda.so, which the environment variable XHAT_CUDA_LIBRARY names. Its
// devices' memory is the host's, which it knows by address; it runs no code, but notes every launch, and looks at its arguments as the
// PTX declares them. It refuses what CUDA refuses, in particular while a stream is being captured.
// FAKE_CUDA_DEVICES in the environment: how many devices it has.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace fake_cuda {

struct Launch {
  std::string entry;
  unsigned blocks[3], threads[3], shared_bytes;
  void* stream;
  std::vector<uint64_t> pointers;  // its arguments that are pointers
  bool captured;
};

// What tests see and set; reset() puts it back.
struct State {
  // To be set.
  int init_result = 0;   // of cuInit
  int devices = 2;
  int64_t memory = int64_t{1} << 30;  // bytes of a device
  int fail_launch = 0;   // result of the next launches; 0: they work

  // To be read.
  std::vector<Launch> launches;
  int64_t allocations = 0, modules = 0, waits = 0, copies = 0, sets = 0;
  int64_t questions = 0;              // whether a stream is being captured
  int64_t in_use = 0;                 // bytes
  int64_t loaded = 0;                 // modules, now
  std::vector<std::string> mistakes;  // arguments that lead nowhere, calls that a capture breaks on, double frees
};

// What a program that uses CUDA does itself.
struct Control {
  State* state;
  void (*reset)();
  void* (*primary)(int device);     // its context
  void* (*new_context)(int device);
  void (*make_current)(void* context);  // in this thread; null: none
  void* (*new_stream)(void* context);
  void (*capture)(void* stream, bool begin);
  uint64_t (*allocate)(void* context, int64_t bytes);  // as a caller's own; not counted
  uint64_t (*allocate_managed)(void* context, int64_t bytes);
  uint64_t (*allocate_pinned)(int64_t bytes);  // on the host, known to the driver
  void (*release)(uint64_t memory);
};

}  // namespace fake_cuda

extern "C" fake_cuda::Control* fake_cuda_control();

// Results written past the cache, or all through it.
#pragma once
#include <limits>

#include "runtime/call/compile.h"

namespace xhat::testing {

inline CompileOptions stream_options(bool past_the_cache, int64_t tile_bytes, int threads = 2) {
  CompileOptions o;
  o.threads = threads;
  o.machine.serial_bytes = 0;
  o.machine.tile_bytes = tile_bytes;
  o.machine.stream_bytes = past_the_cache ? 0 : std::numeric_limits<int64_t>::max();
  o.machine.stream_ps_per_byte = std::numeric_limits<int32_t>::max();
  return o;
}

}  // namespace xhat::testing

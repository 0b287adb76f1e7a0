// The file of kernels on disk: a shared object (for a GPU other bytes), followed by a record that describes it and a checksum of both, where
// the loader does not look. A wrong or damaged file is detected before it is loaded.
//
//   shared object | record, as JSON | magic, sizes, checksum
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/host/compiled_kernel.h"

namespace xhat::runtime {

struct KernelRecord {
  std::string fingerprint;           // runtime/store/fingerprint.h
  std::vector<NamedKernel> kernels;  // in the order of their functions (tile_symbol, runtime/store/link_kernel.h)
  size_t object_bytes = 0;           // set by read_record()
  bool operator==(const KernelRecord&) const = default;
};

// The bytes to append to a shared object: record, sizes, checksum.
std::string trailer(std::string_view object, const KernelRecord& record);

// None if the file is torn, damaged, or no file of kernels.
std::optional<KernelRecord> read_record(std::string_view file);

// A 128-bit hash as 32 hex digits, for file names.
std::string name_hash(std::string_view text);

}  // namespace xhat::runtime

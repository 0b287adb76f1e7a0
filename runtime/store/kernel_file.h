// The file of a kernel on disk: a shared object (of a GPU's kernel other bytes), and behind its end, where no loader looks, what it
// is and a checksum over all of it. All that could be wrong with a file is found before it is loaded.
//
//   shared object | record, as JSON | magic, sizes, checksum
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "runtime/host/compiled_kernel.h"

namespace xhat::runtime {

struct KernelRecord {
  std::string fingerprint;  // runtime/store/fingerprint.h
  std::string key;          // KernelSpec::key
  KernelArguments arguments;
  size_t object_bytes = 0;  // known when it is read
  bool operator==(const KernelRecord&) const = default;
};

// What goes behind a shared object.
std::string trailer(std::string_view object, const KernelRecord& record);

// None if the file is torn, damaged, or none of ours.
std::optional<KernelRecord> read_record(std::string_view file);

// 128 bits as 32 hex digits, to name a file by.
std::string name_hash(std::string_view text);

}  // namespace xhat::runtime

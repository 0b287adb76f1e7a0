// Non-temporal stores for code of Halide 21, which has none: LLVM needs a mark that Halide's IR cannot carry. So the lowered code prefetches
// (Call::prefetch) the address that it has just stored to, which no other code does, and in the object file
//
//     vmovups %zmm0, 64(%rdi,%rcx)        becomes        vmovntps %zmm0, 64(%rdi,%rcx)
//     prefetchnta    64(%rdi,%rcx)                       nopl           64(%rdi,%rcx)
//
// Both have the same length (Intel's Software Developer's Manual, volume 2: MOVUPS, MOVNTPS, PREFETCHh, NOP). Unchanged code is correct, and slow.
//
// Halide's prefetch is prefetchnta, which bypasses L2. A prefetch into all caches is written twice in the lowered code, and
//
//     prefetchnta 64(%rdi,%rcx); prefetchnta 64(%rdi,%rcx)        becomes        prefetcht0 64(%rdi,%rcx); nopl 64(%rdi,%rcx)
#pragma once
#include <string>

namespace xhat::runtime {

struct CodeChanges {
  int stores = 0, fetches = 0;
  bool operator==(const CodeChanges&) const = default;
};

// Changes an object file. The addresses of marked stores must be multiples of the size stored. Changes nothing unless the file is a 64-bit ELF
// object for x86-64. Throws Error if it cannot be read or written.
CodeChanges make_nontemporal(const std::string& object);
// The same in memory.
CodeChanges make_nontemporal_in(std::string& object);

}  // namespace xhat::runtime

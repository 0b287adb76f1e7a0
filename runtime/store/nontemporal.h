// Non-temporal stores for code by Halide 21, which has none: LLVM takes them from a mark that Halide's IR cannot carry. So the
// lowered code fetches (Call::prefetch) what it has just stored, which nobody else does, and in the object file
//
//     vmovups %zmm0, 64(%rdi,%rcx)        becomes        vmovntps %zmm0, 64(%rdi,%rcx)
//     prefetchnta    64(%rdi,%rcx)                       nopl           64(%rdi,%rcx)
//
// Both are of the same length (Intel's Software Developer's Manual, volume 2: MOVUPS, MOVNTPS, PREFETCHh, NOP). Where nobody
// does so, the code is right, and slow.
//
// Halide's prefetch is prefetchnta, which leaves out caches. Where it is to fetch ahead, it stands twice in the lowered code, and
//
//     prefetchnta 64(%rdi,%rcx); prefetchnta 64(%rdi,%rcx)        becomes        prefetcht0 64(%rdi,%rcx); nopl 64(%rdi,%rcx)
#pragma once
#include <string>

namespace xhat::runtime {

struct CodeChanges {
  int stores = 0, fetches = 0;
  bool operator==(const CodeChanges&) const = default;
};

// Changes an object file. The addresses of the stores must be multiples of what they store. Changes nothing unless the file is a
// 64-bit ELF object for x86-64. Throws Error if it cannot be read or written.
CodeChanges make_nontemporal(const std::string& object);
// The same in memory.
CodeChanges make_nontemporal_in(std::string& object);

}  // namespace xhat::runtime

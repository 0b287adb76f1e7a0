// Sums that a library could compute if what they multiply were tensors.
//
//   grad_w[i,o] = sum(n: x[n,i] * (dy[n,o] * (1 - y[n,o]^2)))
//     =>  u[n,o] = dy[n,o] * (1 - y[n,o]^2)         grad_w[i,o] = sum(n: x[n,i] * u[n,o])
//
// Exact but for one rounding of u where its type is f16 or bf16. Equal operands of several sums are one definition.
#pragma once
#include <vector>

#include "fusion/library/library_calls.h"

namespace xhat::fusion {

struct LibraryCandidate {
  size_t definition;  // of the program
  LibraryCall call;
  Id body;                           // with tensors for operands
  std::vector<Definition> operands;  // that must be computed before
};

struct LibraryCandidates {
  Program program;  // with the tensors of all operands; nothing defines these yet
  std::vector<LibraryCandidate> all;
};

LibraryCandidates library_candidates(const Program& p, const DimValues& sizes);

// The program in which the candidates that are chosen read tensors only.
Program with_operands(const LibraryCandidates& candidates, const std::vector<bool>& chosen);

}  // namespace xhat::fusion

// Sums that a library could compute if their operands were tensors: materializes these operands.
//
//   grad_w[i,o] = sum(n: x[n,i] * (dy[n,o] * (1 - y[n,o]^2)))
//     =>  u[n,o] = dy[n,o] * (1 - y[n,o]^2)         grad_w[i,o] = sum(n: x[n,i] * u[n,o])
//
// Exact, except for one rounding of u if its type is f16 or bf16. Equal operands of several sums are one definition.
#pragma once
#include <vector>

#include "fusion/library/library_calls.h"

namespace xhat::fusion {

struct LibraryCandidate {
  size_t definition;  // of the program
  LibraryCall call;
  Id body;                           // reads tensors in the place of the operands
  std::vector<Definition> operands;  // definitions to compute first
};

struct LibraryCandidates {
  Program program;  // declares the tensors of all operands, without definitions
  std::vector<LibraryCandidate> all;
};

LibraryCandidates library_candidates(const Program& p, const DimValues& sizes);

// The program in which the chosen candidates read only tensors, with the definitions of their operands.
Program with_operands(const LibraryCandidates& candidates, const std::vector<bool>& chosen);

}  // namespace xhat::fusion

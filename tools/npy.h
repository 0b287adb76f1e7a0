// NumPy's .npy files: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
//
//   NpyArray x = read_npy("x.npy");
//   write_npy("y.npy", {DType::f32, {2, 3}, bytes});
//
// Reads versions 1 to 3, either byte order, C and Fortran order; what comes back is row-major in the host's
// byte order. NumPy has no bf16: uint16 files are bf16's bits, both ways.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "expr/core/dtype.h"

namespace xhat {

struct Array;

struct NpyArray {
  DType type = DType::f32;
  std::vector<int64_t> shape;    // empty: 0-d, one element
  std::vector<std::byte> bytes;  // row-major, host byte order; bool is one byte, 0 or 1
};

// Throws Error naming the file, for one that cannot be read, is no .npy file, is cut short, or holds a dtype
// that the language does not have.
NpyArray read_npy(const std::string& path);
NpyArray parse_npy(std::span<const std::byte> file, const std::string& name);

// Version 1.0, C order. Throws Error if the file cannot be written; what was there before is then still there.
void write_npy(const std::string& path, const NpyArray& array);
std::vector<std::byte> format_npy(const NpyArray& array);

Array to_array(const NpyArray& array);
NpyArray to_npy(const Array& array);  // floats are rounded to the array's type

}  // namespace xhat

// Arrays of Python as views of their memory; nothing is copied. PyTorch's tensors come by DLPack's functions in C, NumPy's arrays and all
// that has the buffer protocol by that, the others (JAX's, CuPy's) by __dlpack__(), and numbers as scalars of the declared type.
#pragma once
#include <optional>
#include <string_view>

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "python/src/dlpack_exchange.h"

namespace xhat::python {

namespace nb = nanobind;

// What arrays of one Python type offer.
struct ArrayType {
  enum class Door : uint8_t { exchange, buffer, dlpack, number, none } door = Door::none;
  const ExchangeApi* api = nullptr;
  bool waits = false;  // block_until_ready(): JAX computes behind the caller's back
  bool masked = false;  // numpy.ma's: elements that do not count
};
const ArrayType& array_type(PyTypeObject* type);

// Where results are made: by the library of the arguments, in its own memory.
struct Library {
  const ExchangeApi* api = nullptr;  // DLPack's functions in C
  PyObject* names = nullptr;         // or a module that has from_dlpack(); both null: NumPy

  bool numpy() const { return !api && !names; }
  // An array of that shape with whatever its memory holds, and its view.
  nb::object empty(DType type, std::span<const int64_t> shape, TensorView& view) const;
};

// One argument, while its memory is looked at.
class ArrayView {
 public:
  ArrayView() = default;
  ArrayView(const ArrayView&) = delete;
  ArrayView& operator=(const ArrayView&) = delete;
  ArrayView(ArrayView&& other) noexcept { *this = std::move(other); }
  ArrayView& operator=(ArrayView&& other) noexcept;
  ~ArrayView() { release(); }

  // written: the call writes to it. declared: the type that is asked for, or any. The object must outlive the view. Throws Error.
  void look_at(PyObject* object, std::optional<DType> declared, bool written);
  TensorView view() const;  // of this very object: numbers lie in it
  void note_library(Library& library, PyObject* object) const;

 private:
  void release();
  void from_exchange(PyObject* object, const ExchangeApi& api, bool written);
  void from_buffer(PyObject* object, std::optional<DType> declared, bool written);
  void from_dlpack(PyObject* object, bool written, bool waits);
  void from_number(PyObject* object, DType declared);

  TensorView view_;
  const ArrayType* type_ = nullptr;
  bool has_buffer_ = false, number_ = false;
  Py_buffer buffer_ = {};
  DLManagedTensor* tensor_ = nullptr;
  ManagedTensor* managed_ = nullptr;
  alignas(8) char scalar_[8] = {};
};

}  // namespace xhat::python

#include "python/src/array_view.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

namespace xhat::python {
namespace {

constexpr char kExchangeName[] = "dlpack_exchange_api";

std::string type_name(PyObject* object) { return Py_TYPE(object)->tp_name; }

const ExchangeApi* exchange_of(PyTypeObject* type) {
  nb::object capsule = nb::getattr(nb::handle(reinterpret_cast<PyObject*>(type)), "__dlpack_c_exchange_api__", nb::none());
  if (!PyCapsule_IsValid(capsule.ptr(), kExchangeName)) return nullptr;
  auto* api = static_cast<ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), kExchangeName));
  while (api && api->version.major != 1) api = api->older;
  return api;
}

ArrayType facts_of(PyTypeObject* type) {
  ArrayType facts;
  nb::handle t(reinterpret_cast<PyObject*>(type));
  using Door = ArrayType::Door;
  facts.api = exchange_of(type);
  facts.waits = nb::hasattr(t, "block_until_ready");
  facts.masked = nb::hasattr(t, "filled") && nb::hasattr(t, "mask");
  if (facts.api)
    facts.door = Door::exchange;
  else if (PyType_IsSubtype(type, &PyFloat_Type) || PyType_IsSubtype(type, &PyLong_Type))
    facts.door = Door::number;
  // JAX's arrays have the buffer protocol too, but not of bf16.
  else if (nb::hasattr(t, "__dlpack__") && nb::hasattr(t, "__array_namespace__") && facts.waits)
    facts.door = Door::dlpack;
  else if (PyType_GetSlot(type, Py_bf_getbuffer))
    facts.door = Door::buffer;
  else if (nb::hasattr(t, "__dlpack__"))
    facts.door = Door::dlpack;
  else if (nb::hasattr(t, "__float__") || nb::hasattr(t, "__index__"))
    facts.door = Door::number;
  return facts;
}

// The dtype that a format of the buffer protocol says; elements are of the machine's own byte order.
std::optional<DType> dtype_of_format(const char* format, int64_t size) {
  std::string_view f = format ? format : "B";
  if (f.size() == 2 && (f[0] == '<' || f[0] == '=' || f[0] == '@')) f.remove_prefix(1);
  if (f.size() != 1) return {};
  switch (f[0]) {
    case 'd': return DType::f64;
    case 'f': return DType::f32;
    case 'e': return DType::f16;
    case '?': return DType::boolean;
    case 'B': return DType::u8;
    case 'H': return DType::bf16;  // its bits: NumPy has no bf16
    case 'i':
    case 'l':
    case 'q':
      if (size == 8) return DType::i64;
      return size == 4 ? std::optional(DType::i32) : std::nullopt;
    case 'I':
    case 'L': return size == 4 ? std::optional(DType::u32) : std::nullopt;
    default: return {};
  }
}

const char* numpy_name(DType type) {
  switch (type) {
    case DType::f64: return "float64";
    case DType::f32: return "float32";
    case DType::f16: return "float16";
    case DType::bf16: return "uint16";
    case DType::i64: return "int64";
    case DType::i32: return "int32";
    case DType::u32: return "uint32";
    case DType::u8: return "uint8";
    case DType::boolean: return "bool_";
  }
  throw Bug("unreachable dtype");
}

nb::object shape_tuple(std::span<const int64_t> shape) {
  nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (size_t d = 0; d < shape.size(); ++d) PyTuple_SetItem(tuple.ptr(), static_cast<Py_ssize_t>(d), PyLong_FromLongLong(shape[d]));
  return tuple;
}

// NumPy's, which are imported at the first call and stay.
struct NumPy {
  nb::object empty, types[9], bf16;
  NumPy() {
    nb::module_ numpy = nb::module_::import_("numpy");
    empty = numpy.attr("empty");
    for (int t = 0; t < 9; ++t) types[t] = numpy.attr("dtype")(numpy.attr(numpy_name(static_cast<DType>(t))));
    try {  // JAX's package of types
      bf16 = numpy.attr("dtype")(nb::module_::import_("ml_dtypes").attr("bfloat16"));
    } catch (nb::python_error& e) {
      if (!e.matches(PyExc_ImportError)) throw;
    }
  }
  static NumPy& get() {
    static NumPy* numpy = new NumPy;  // never destroyed: Python ends first
    return *numpy;
  }
};

struct Freed {
  void operator()(void* p) const { std::free(p); }
};

// Memory that another library takes over by from_dlpack().
struct Exported {
  explicit Exported(DLManagedTensor* t) : tensor(t) {}
  Exported(const Exported&) = delete;
  Exported& operator=(const Exported&) = delete;
  ~Exported() {
    if (tensor) tensor->deleter(tensor);
  }
  DLManagedTensor* tensor;  // null: taken
};

DLManagedTensor* aligned_memory(DType type, std::span<const int64_t> shape, TensorView& view) {
  view = TensorView(nullptr, type, shape, {});
  constexpr size_t kAlignment = 64;  // what XLA wants of memory that it is to use in place
  const size_t bytes = (static_cast<size_t>(view.bytes()) + kAlignment) / kAlignment * kAlignment;
  std::shared_ptr<void> memory(std::aligned_alloc(kAlignment, bytes), Freed());
  if (!memory) throw std::bad_alloc();
  view.data = memory.get();
  return to_dlpack(view, [memory] {});
}

}  // namespace

const ArrayType& array_type(PyTypeObject* type) {
  static auto* known = new std::unordered_map<PyTypeObject*, ArrayType>;
  static PyTypeObject* last = nullptr;
  static const ArrayType* of_last = nullptr;
  if (type == last) return *of_last;
  auto found = known->find(type);
  if (found == known->end()) {
    Py_INCREF(reinterpret_cast<PyObject*>(type));  // so that no other type comes to lie there
    found = known->emplace(type, facts_of(type)).first;
  }
  last = type;
  of_last = &found->second;
  return found->second;
}

nb::object Library::empty(DType type, std::span<const int64_t> shape, TensorView& view) const {
  if (api) {
    DLManagedTensor* like = to_dlpack(TensorView(nullptr, type, shape, {}));
    ManagedTensor* made = nullptr;
    std::string error;
    const int failed = api->allocate(&like->dl_tensor, &made, &error, [](void* context, const char*, const char* message) {
      *static_cast<std::string*>(context) = message;
    });
    like->deleter(like);
    if (failed || !made) throw Error("memory for a result could not be had: " + error);
    view = view_of(made->tensor);
    void* object = nullptr;
    if (api->object_of(made, &object)) throw nb::python_error();
    return nb::steal(static_cast<PyObject*>(object));
  }
  if (names) {
    DLManagedTensor* memory = aligned_memory(type, shape, view);
    nb::object holder = nb::cast(new Exported{memory}, nb::rv_policy::take_ownership);
    return nb::handle(names).attr("from_dlpack")(holder);
  }
  NumPy& numpy = NumPy::get();
  PyObject* arguments[] = {nullptr, shape_tuple(shape).release().ptr(), numpy.types[static_cast<int>(type)].ptr()};
  nb::object array = nb::steal(PyObject_Vectorcall(numpy.empty.ptr(), arguments + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
  Py_DECREF(arguments[1]);
  if (!array.is_valid()) throw nb::python_error();
  Py_buffer buffer;
  if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_SIMPLE)) throw nb::python_error();
  view = TensorView(buffer.buf, type, shape, {});
  PyBuffer_Release(&buffer);
  if (type == DType::bf16 && numpy.bf16.is_valid()) return array.attr("view")(numpy.bf16);
  return array;
}

ArrayView& ArrayView::operator=(ArrayView&& other) noexcept {
  release();
  view_ = other.view_;
  type_ = other.type_;
  has_buffer_ = std::exchange(other.has_buffer_, false);
  buffer_ = other.buffer_;
  number_ = other.number_;
  tensor_ = std::exchange(other.tensor_, nullptr);
  managed_ = std::exchange(other.managed_, nullptr);
  std::memcpy(scalar_, other.scalar_, sizeof(scalar_));
  return *this;
}

void ArrayView::release() {
  if (has_buffer_) PyBuffer_Release(&buffer_);
  if (tensor_ && tensor_->deleter) tensor_->deleter(tensor_);
  if (managed_ && managed_->deleter) managed_->deleter(managed_);
  has_buffer_ = false;
  tensor_ = nullptr;
  managed_ = nullptr;
}

TensorView ArrayView::view() const {
  if (!number_) return view_;
  TensorView v = view_;
  v.data = const_cast<char*>(scalar_);
  return v;
}

void ArrayView::note_library(Library& library, PyObject* object) const {
  if (!library.numpy()) return;
  if (type_->door == ArrayType::Door::exchange) library.api = type_->api;
  if (type_->door == ArrayType::Door::dlpack && nb::hasattr(nb::handle(object), "__array_namespace__")) {
    nb::object names = nb::handle(object).attr("__array_namespace__")();
    library.names = names.release().ptr();  // a module, which stays
  }
}

void ArrayView::look_at(PyObject* object, std::optional<DType> declared, bool written) {
  release();
  type_ = &array_type(Py_TYPE(object));
  number_ = false;
  auto as_declared = [&](const char* convert) {
    if (declared && view_.type != *declared)
      throw Error(fmt::format("its elements are {}, but {} is declared; convert it, as by x.{}", name_of(view_.type), name_of(*declared),
                              fmt::format(fmt::runtime(convert), numpy_name(*declared))));
  };
  if (type_->masked) throw Error("it has a mask, which would not be looked at; fill it, as by x.filled(0), or give x.data");
  switch (type_->door) {
    case ArrayType::Door::exchange: from_exchange(object, *type_->api, written); return as_declared("to(torch.{})");
    case ArrayType::Door::buffer: from_buffer(object, declared, written); return as_declared("astype(\"{}\")");
    case ArrayType::Door::dlpack: from_dlpack(object, written, type_->waits); return as_declared("astype(\"{}\")");
    case ArrayType::Door::number:
      if (written) throw Error(fmt::format("a {} cannot be written; give an array", type_name(object)));
      if (!declared) break;
      return from_number(object, *declared);
    case ArrayType::Door::none: break;
  }
  throw Error(
      fmt::format("a {} is no array: neither DLPack nor the buffer protocol shows its memory; numpy.asarray makes one", type_name(object)));
}

void ArrayView::from_exchange(PyObject* object, const ExchangeApi& api, bool written) {
  // What reads its memory alone would lose its gradient without a word.
  static const nb::handle requires_grad = nb::str("requires_grad").release();
  nb::object wanted = nb::steal(PyObject_GetAttr(object, requires_grad.ptr()));
  if (!wanted.is_valid())
    PyErr_Clear();
  else if (wanted.ptr() == Py_True && nb::cast<bool>(nb::module_::import_("torch").attr("is_grad_enabled")()))
    throw Error(written ? "it requires a gradient, so it cannot be written"
                        : "it requires a gradient, which a call does not pass on; use xhat.torch.custom_op, or give x.detach()");
  if (api.view_of) {
    DLTensor tensor;
    if (api.view_of(object, &tensor)) throw nb::python_error();
    view_ = view_of(tensor);
    return;
  }
  if (api.managed_of(object, &managed_)) throw nb::python_error();
  view_ = view_of(managed_->tensor);
}

void ArrayView::from_buffer(PyObject* object, std::optional<DType> declared, bool written) {
  nb::object shown = nb::borrow(object);
  if (PyObject_GetBuffer(object, &buffer_, PyBUF_STRIDED_RO | PyBUF_FORMAT)) {
    // The buffer protocol has no bf16; NumPy's arrays of it show their bits.
    nb::python_error why;
    const nb::object dtype = nb::getattr(shown, "dtype", nb::none());
    if (nb::cast<std::string>(nb::str(dtype)) != "bfloat16" || !nb::hasattr(shown, "view"))
      throw Error(fmt::format("its memory cannot be seen: {}", why.what()));
    shown = shown.attr("view")(NumPy::get().types[static_cast<int>(DType::bf16)]);
    if (PyObject_GetBuffer(shown.ptr(), &buffer_, PyBUF_STRIDED_RO | PyBUF_FORMAT)) throw nb::python_error();
  }
  has_buffer_ = true;
  const auto type = dtype_of_format(buffer_.format, buffer_.itemsize);
  if (!type || (*type == DType::bf16 && declared != DType::bf16))
    throw Error(fmt::format("its elements have the format '{}' of {} bytes, {}; convert it, as by x.astype(\"{}\")",
                            buffer_.format ? buffer_.format : "B", buffer_.itemsize,
                            declared ? fmt::format("but {} is declared", name_of(*declared)) : "which is no type of the language",
                            numpy_name(declared.value_or(DType::f32))));
  if (buffer_.ndim > kMaxRank) throw Error(fmt::format("it has {} dimensions; kernels take up to {}", buffer_.ndim, kMaxRank));
  if (written && buffer_.readonly) throw Error("it is read only; give an array that may be written");
  view_ = TensorView(buffer_.buf, *type, {}, {});
  view_.rank = buffer_.ndim;
  for (int i = 0; i < buffer_.ndim; ++i) {
    const auto d = static_cast<size_t>(i);
    if (buffer_.strides[i] % buffer_.itemsize)
      throw Error(fmt::format("dimension {} has a stride of {} bytes, which is no whole number of elements; copy the array", i,
                              buffer_.strides[i]));
    if (buffer_.strides[i] < 0) throw Error(fmt::format("it has a negative stride in dimension {}; numpy.ascontiguousarray copies it", i));
    view_.shape[d] = buffer_.shape[i];
    view_.strides[d] = buffer_.strides[i] / buffer_.itemsize;
  }
  view_.writable = !buffer_.readonly;
}

void ArrayView::from_dlpack(PyObject* object, bool written, bool waits) {
  nb::handle array(object);
  if (written) throw Error(fmt::format("a {} may be read only: results go to NumPy's arrays and to tensors of PyTorch", type_name(object)));
  if (waits) array.attr("block_until_ready")();
  nb::object capsule = array.attr("__dlpack__")();
  if (!PyCapsule_IsValid(capsule.ptr(), "dltensor")) throw Error(fmt::format("__dlpack__() of a {} gave no tensor", type_name(object)));
  tensor_ = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  view_ = view_of(tensor_->dl_tensor, false);
}

void ArrayView::from_number(PyObject* object, DType declared) {
  number_ = true;
  view_ = TensorView(nullptr, declared, {}, {});
  view_.writable = false;
  auto put = [&](auto value) { std::memcpy(scalar_, &value, sizeof(value)); };
  if (is_float(declared)) {
    nb::object number = nb::steal(PyNumber_Float(object));
    if (!number.is_valid()) throw nb::python_error();
    const double value = PyFloat_AsDouble(number.ptr());
    if (declared == DType::f64)
      put(value);
    else if (declared == DType::f32)
      put(static_cast<float>(value));
    else
      put(declared == DType::f16 ? f16_bits(value) : bf16_bits(value));
    return;
  }
  nb::object number = nb::steal(PyNumber_Index(object));
  if (!number.is_valid()) {
    PyErr_Clear();
    throw Error(fmt::format("a {} is no whole number, but {} is declared", type_name(object), name_of(declared)));
  }
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  auto put_whole = [&]<class T>(T, long long least, long long most) {
    if (overflow || value < least || value > most)
      throw Error(fmt::format("{} is outside of {}", nb::cast<std::string>(nb::str(number)), name_of(declared)));
    put(static_cast<T>(value));
  };
  switch (declared) {
    case DType::i64: return put_whole(int64_t{}, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
    case DType::i32: return put_whole(int32_t{}, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
    case DType::u32: return put_whole(uint32_t{}, 0, std::numeric_limits<uint32_t>::max());
    case DType::u8: return put_whole(uint8_t{}, 0, 255);
    case DType::boolean: return put_whole(uint8_t{}, 0, 1);
    default: throw Bug("a float among integers");
  }
}

void bind_exported(nb::module_& m) {
  nb::class_<Exported>(m, "_Memory")
      .def("__dlpack__",
           [](Exported& e, nb::kwargs) {
             if (!e.tensor) throw Error("this memory has been taken already");
             return nb::steal(PyCapsule_New(std::exchange(e.tensor, nullptr), "dltensor", [](PyObject* capsule) {
               if (!PyCapsule_IsValid(capsule, "dltensor")) return;
               auto* t = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
               t->deleter(t);
             }));
           })
      .def("__dlpack_device__", [](const Exported&) { return std::pair<int, int>(kDLCPU, 0); });
}

}  // namespace xhat::python

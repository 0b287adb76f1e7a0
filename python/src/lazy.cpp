// The submodule xhat._xhat.lazy: lazy arrays (docs/lazy.md). What stands around it in Python is python/xhat/lazy.py.
#include "runtime/lazy/lazy.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <fmt/format.h>

#include <memory>
#include <mutex>

#include "python/src/op.h"
#include "runtime/dlpack.h"
#include "runtime/lazy/state.h"

namespace xhat::python {
namespace {

using lazy::Array;
using Numbers = std::vector<int64_t>;

// Where Python calls from, outside of the package; "file.py:12".
std::string place_in_python() {
  nb::object frame = nb::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  for (; frame.is_valid() && !frame.is_none(); frame = frame.attr("f_back")) {
    const auto file = nb::cast<std::string>(frame.attr("f_code").attr("co_filename"));
    if (file.ends_with("/xhat/lazy.py")) continue;
    return fmt::format("{}:{}", file.substr(file.find_last_of('/') + 1), nb::cast<int>(frame.attr("f_lineno")));
  }
  return "python";
}

// An array of Python whose memory a lazy array names. Memory is let go in any thread, with or without the interpreter's lock, so what nobody
// needs is put aside and dropped by the next call.
struct Held {
  nb::object object;
  ArrayView view;
};
struct Dropped {
  std::mutex mutex;
  std::vector<Held*> list;
  static Dropped& get() {
    static auto* dropped = new Dropped;
    return *dropped;
  }
};

void drop_what_is_left() {
  std::vector<Held*> list;
  {
    std::lock_guard lock(Dropped::get().mutex);
    list.swap(Dropped::get().list);
  }
  for (Held* h : list) delete h;
}

std::shared_ptr<void> owner_of(Held* held) {
  return {held, [](void* p) {
            std::lock_guard lock(Dropped::get().mutex);
            Dropped::get().list.push_back(static_cast<Held*>(p));
          }};
}

// f(), whose errors begin with the line of Python in place of ours: "model.py:12: matmul: …".
template <class F>
auto at_callers_line(F f) {
  drop_what_is_left();
  try {
    return f();
  } catch (const Error& e) {
    std::string what = e.message();
    const size_t colon = what.find(": ");
    if (what.starts_with("lazy.cpp:") && colon != std::string::npos) what = what.substr(colon + 2);
    throw Error(place_in_python() + ": " + what);
  } catch (const std::bad_cast&) {
    throw Error(place_in_python() + ": an argument has the wrong type; sizes, axes and positions are whole numbers, or lists of them");
  }
}

DType type_named(const std::string& name) {
  const auto type = dtype_from_name(name);
  if (!type) throw Error(fmt::format("{} is no type; there are f64, f32, f16, bf16, i64, i32, u32, u8 and bool", name));
  return *type;
}

// An array of anything that stands beside one: a number of Python takes its operand's type, memory is not copied.
Array array_of(nb::handle object, const std::string& type = "") {
  if (object.is_none()) throw Error("None is no array");
  if (nb::isinstance<Array>(object)) return *nb::inst_ptr<Array>(object);
  if (PyBool_Check(object.ptr())) return Array(object.ptr() == Py_True);
  if (PyFloat_Check(object.ptr())) return Array(PyFloat_AsDouble(object.ptr()));
  if (PyLong_Check(object.ptr())) {
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
    if (overflow) throw Error(nb::cast<std::string>(nb::str(object)) + " does not fit into 64 bits");
    return Array(static_cast<int64_t>(value));
  }
  auto held = std::make_unique<Held>();
  held->object = nb::borrow(object);
  held->view.look_at(object.ptr(), type.empty() ? std::nullopt : std::optional(type_named(type)), false);
  const TensorView view = held->view.view();
  return lazy::array(view, owner_of(held.release()));
}

std::vector<Array> arrays_of(nb::handle objects) {
  std::vector<Array> list;
  for (nb::handle x : objects) list.push_back(array_of(x));
  return list;
}

lazy::Axes axes_of(nb::handle axis) {
  if (axis.is_none()) return {};
  if (nb::isinstance<nb::int_>(axis)) return nb::cast<int>(axis);
  return nb::cast<std::vector<int>>(axis);
}

// Computes without the interpreter's lock, which what frees memory may take.
void compute(const std::vector<Array>& arrays) {
  nb::gil_scoped_release unlocked;
  lazy::realize(std::span<const Array>(arrays));
}

nb::object to_numpy(const Array& x) {
  compute({x});
  TensorView memory;
  nb::object made = Library().empty(x.dtype(), x.shape(), memory);
  x.to(memory);
  return made;
}

nb::object item(const Array& x) {
  {
    nb::gil_scoped_release unlocked;
    x.item();
  }
  if (x.dtype() == DType::boolean) return nb::bool_(x.item() != 0);
  if (is_float(x.dtype())) return nb::float_(x.item());
  return nb::int_(x.vector<int64_t>()[0]);
}

// A part that numbers, slices and None say. What goes backwards is turned first.
Array part_of(const Array& x, const nb::tuple& subscripts) {
  std::vector<lazy::Slice> slices;
  std::vector<int> unsqueezed, flipped;
  Numbers strides;
  int kept = 0;
  auto number = [](nb::handle h) { return nb::cast<int64_t>(h); };
  const auto rank = static_cast<size_t>(x.rank());
  for (nb::handle s : subscripts) {
    if (s.is_none()) {
      unsqueezed.push_back(kept++);
      continue;
    }
    if (!PySlice_Check(s.ptr())) {
      slices.emplace_back(number(s));
      continue;
    }
    ++kept;
    if (slices.size() >= rank) throw Error(fmt::format("slice: more than {} subscripts for shape {}", rank, text(x.shape())));
    const int64_t extent = x.shape()[slices.size()];
    Py_ssize_t begin = 0, end = 0, step = 0;
    if (PySlice_Unpack(s.ptr(), &begin, &end, &step)) throw nb::python_error();
    const int64_t count = PySlice_AdjustIndices(extent, &begin, &end, step);
    if (step > 0) {
      slices.emplace_back(end >= extent && count > 0 ? lazy::Range{begin, 0, step, true}
                                                     : lazy::range(begin, begin + std::max<int64_t>(0, end - begin), step));
      continue;
    }
    flipped.push_back(static_cast<int>(slices.size()));
    const int64_t first = extent - 1 - begin;  // in the flipped array
    slices.emplace_back(lazy::range(count ? first : 0, count ? first + (count - 1) * -step + 1 : 0, -step));
  }
  Array y = flipped.empty() ? x : lazy::flip(x, flipped);
  y = y.sliced(slices);
  for (int d : unsqueezed) y = lazy::unsqueeze(y, d);
  return y;
}

// Do both stand for the same part of the same array? `x[i] += y` ends with a statement x[i] = x[i].
bool same_view(const lazy::detail::State& a, const lazy::detail::State& b) {
  if (&a == &b) return true;
  return a.base && b.base && same_view(*a.base, *b.base) && a.step.kind == b.step.kind && a.step.from == b.step.from &&
         a.step.shape == b.step.shape && a.step.params == b.step.params;
}

template <class F>
void bind_sign(nb::class_<Array>& c, const char* name, const char* reflected, F f) {
  auto bind = [&](const char* called, bool turned) {
    auto sign = [f, turned](const Array& a, nb::handle b) -> nb::object {
      return at_callers_line([&] {
        if (b.is_none() || PyUnicode_Check(b.ptr())) return nb::borrow(Py_NotImplemented);
        const Array other = array_of(b);
        return nb::cast(turned ? f(other, a) : f(a, other));
      });
    };
    c.def(called, sign, nb::arg("other").none());
  };
  bind(name, false);
  if (reflected) bind(reflected, true);
}

void bind_array(nb::module_& m) {
  nb::class_<Array> c(m, "Array", "An array that computes nothing until it is asked; docs/lazy.md.");
  using Operand = lazy::Operand;
#define XHAT_SIGN(name, reflected, sign) \
  bind_sign(c, name, reflected, [](const Array& a, const Array& b) { return Operand(a) sign Operand(b); });
  XHAT_SIGN("__add__", "__radd__", +)
  XHAT_SIGN("__sub__", "__rsub__", -)
  XHAT_SIGN("__mul__", "__rmul__", *)
  XHAT_SIGN("__mod__", "__rmod__", %)
  XHAT_SIGN("__eq__", nullptr, ==)
  XHAT_SIGN("__ne__", nullptr, !=)
  XHAT_SIGN("__lt__", nullptr, <)
  XHAT_SIGN("__le__", nullptr, <=)
  XHAT_SIGN("__gt__", nullptr, >)
  XHAT_SIGN("__ge__", nullptr, >=)
  XHAT_SIGN("__and__", "__rand__", &&)
  XHAT_SIGN("__or__", "__ror__", ||)
#undef XHAT_SIGN
  bind_sign(c, "__pow__", "__rpow__", [](const Array& a, const Array& b) { return lazy::pow(a, b); });
  bind_sign(c, "__matmul__", "__rmatmul__", [](const Array& a, const Array& b) { return lazy::matmul(a, b); });
  // In Python, / of whole numbers is no floor.
  bind_sign(c, "__truediv__", "__rtruediv__", [](const Array& a, const Array& b) {
    if (!is_float(a.dtype()) && !is_float(b.dtype()))
      throw Error(fmt::format("/ of {} and {}: write a // b, which floors, or cast one of them, as by cast(a, f32)", name_of(a.dtype()),
                              name_of(b.dtype())));
    return Operand(a) / Operand(b);
  });
  bind_sign(c, "__floordiv__", "__rfloordiv__", [](const Array& a, const Array& b) {
    const Array quotient = Operand(a) / Operand(b);
    return is_float(quotient.dtype()) ? lazy::floor(quotient) : quotient;
  });
  c.def("__neg__", [](const Array& a) { return -Operand(a); });
  c.def("__invert__", [](const Array& a) { return at_callers_line([&] { return !Operand(a); }); });
  c.def_prop_ro("shape", [](const Array& a) { return nb::tuple(nb::cast(a.shape().vector())); })
      .def_prop_ro("dtype", [](const Array& a) { return std::string(name_of(a.dtype())); })
      .def_prop_ro("is_realized", &Array::is_realized)
      .def("_realize",
           [](const Array& a) {
             at_callers_line([&] {
               compute({a});
               return 0;
             });
           })
      .def(
          "item", [](const Array& a) { return at_callers_line([&] { return item(a); }); },
          "The value of an array of one element, as a number of Python; realizes.")
      .def(
          "numpy", [](const Array& a) { return at_callers_line([&] { return to_numpy(a); }); },
          "A NumPy array of its own with the values; realizes.")
      .def(
          "to",
          [](const Array& a, nb::object out) {
            at_callers_line([&] {
              ArrayView view;
              view.look_at(out.ptr(), a.dtype(), true);
              compute({a});
              a.to(view.view());
              return 0;
            });
            return out;
          },
          nb::arg("out"), "Writes the values to an array of the caller's; realizes.")
      .def("__dlpack__",
           [](const Array& a, nb::kwargs) {
             return at_callers_line([&] {
               compute({a});
               DLManagedTensor* t = to_dlpack(a.view(), [a] {});
               return nb::steal(PyCapsule_New(t, "dltensor", [](PyObject* capsule) {
                 if (!PyCapsule_IsValid(capsule, "dltensor")) return;
                 auto* left = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
                 left->deleter(left);
               }));
             });
           })
      .def("__dlpack_device__", [](const Array&) { return std::pair<int, int>(kDLCPU, 0); })
      .def("_assign",
           [](const Array& a, nb::handle value) {
             at_callers_line([&] {
               a.assign(array_of(value));
               return 0;
             });
           })
      .def("_part", [](const Array& a, const nb::tuple& subscripts) { return at_callers_line([&] { return part_of(a, subscripts); }); })
      .def("_same_view", [](const Array& a, const Array& b) { return same_view(*a.state(), *b.state()); })
      .def("contiguous", &Array::contiguous, "The same value, which is computed by a program of its own and kept.")
      .def("detach", &Array::detach, "The same value, of which nothing is differentiated.")
      .def(
          "describe", [](const Array& a, bool values) { return at_callers_line([&] { return a.describe(values); }); },
          nb::arg("values") = false, "Shape, type, and what realizing would take; with the values, which realizes.");
}

lazy::Pairs pairs_of(nb::handle object) {
  lazy::Pairs list;
  for (nb::handle pair : object) list.emplace_back(nb::cast<int64_t>(pair[0]), nb::cast<int64_t>(pair[1]));
  return list;
}

void bind_functions(nb::module_& m) {
  using Reduction = Array (*)(const Array&, const lazy::Axes&, bool, const lazy::Location&);
  // Of one array and what follows.
  auto def = [&m](const char* name, auto f) {
    m.def(name, [f](nb::handle x, nb::args rest) { return at_callers_line([&] { return f(array_of(x), rest); }); });
  };
  auto reduction = [&](const char* name, auto f) {
    def(name, [f](const Array& x, const nb::args& a) { return f(x, axes_of(a[0]), nb::cast<bool>(a[1]), lazy::Location::current()); });
  };
  reduction("sum", lazy::sum), reduction("prod", lazy::prod), reduction("mean", lazy::mean), reduction("any", lazy::any);
  reduction("argmax", lazy::argmax), reduction("argmin", lazy::argmin), reduction("all", lazy::all);
  reduction("max", static_cast<Reduction>(lazy::max)), reduction("min", static_cast<Reduction>(lazy::min));
  auto numbers = [](nb::handle h) { return nb::cast<Numbers>(h); };
  def("reshape", [=](const Array& x, const nb::args& a) { return lazy::reshape(x, numbers(a[0])); });
  def("expand", [=](const Array& x, const nb::args& a) { return lazy::expand(x, numbers(a[0])); });
  def("permute", [](const Array& x, const nb::args& a) { return lazy::permute(x, nb::cast<std::vector<int>>(a[0])); });
  def("transpose", [](const Array& x, const nb::args& a) { return lazy::transpose(x, nb::cast<int>(a[0]), nb::cast<int>(a[1])); });
  def("stride", [=](const Array& x, const nb::args& a) { return lazy::stride(x, numbers(a[0])); });
  def("flip", [](const Array& x, const nb::args& a) { return lazy::flip(x, axes_of(a[0])); });
  def("pad", [](const Array& x, const nb::args& a) { return lazy::pad(x, pairs_of(a[0]), array_of(a[1])); });
  def("shrink", [](const Array& x, const nb::args& a) { return lazy::shrink(x, pairs_of(a[0])); });
  def("squeeze",
      [](const Array& x, const nb::args& a) { return a[0].is_none() ? lazy::squeeze(x) : lazy::squeeze(x, nb::cast<int>(a[0])); });
  def("unsqueeze", [](const Array& x, const nb::args& a) { return lazy::unsqueeze(x, nb::cast<int>(a[0])); });
  def("cast", [](const Array& x, const nb::args& a) { return lazy::cast(x, type_named(nb::cast<std::string>(a[0]))); });
  def("take", [](const Array& x, const nb::args& a) { return lazy::take(x, array_of(a[0]), nb::cast<int>(a[1])); });
  def("gather", [](const Array& x, const nb::args& a) { return lazy::gather(x, array_of(a[0]), nb::cast<int>(a[1])); });
  def("softmax", [](const Array& x, const nb::args& a) { return lazy::softmax(x, nb::cast<int>(a[0])); });
  def("log_softmax", [](const Array& x, const nb::args& a) { return lazy::log_softmax(x, nb::cast<int>(a[0])); });
  def("split", [=](const Array& x, const nb::args& a) {
    return nb::isinstance<nb::int_>(a[0]) ? lazy::split(x, nb::cast<int64_t>(a[0]), nb::cast<int>(a[1]))
                                          : lazy::split(x, numbers(a[0]), nb::cast<int>(a[1]));
  });
  def("conv", [=](const Array& x, const nb::args& a) {
    return lazy::conv(x, array_of(a[0]), {numbers(a[1]), numbers(a[2]), numbers(a[3]), nb::cast<int64_t>(a[4])});
  });
  def("pool", [=](const Array& x, const nb::args& a) {
    const auto kind = nb::cast<std::string>(a[1]);
    using lazy::Pool;
    const std::pair<const char*, Pool> kinds[] = {{"max", Pool::max}, {"min", Pool::min}, {"sum", Pool::sum}, {"mean", Pool::mean}};
    for (const auto& [name, which] : kinds)
      if (kind == name) return lazy::pool(x, numbers(a[0]), which, {numbers(a[2]), numbers(a[3]), numbers(a[4])});
    throw Error(fmt::format("pool: kind is max, min, sum or mean, not '{}'", kind));
  });
  def("random",
      [=](const Array& seed, const nb::args& a) { return lazy::random(seed, numbers(a[0]), type_named(nb::cast<std::string>(a[1]))); });
  def("random_normal", [=](const Array& seed, const nb::args& a) {
    return lazy::random_normal(seed, numbers(a[0]), type_named(nb::cast<std::string>(a[1])));
  });
  def("random_int",
      [=](const Array& seed, const nb::args& a) { return lazy::random_int(seed, numbers(a[0]), array_of(a[1]), array_of(a[2])); });

  m.def(
      "array", [](nb::handle x, const char* type) { return at_callers_line([&] { return array_of(x, type); }); }, nb::arg(),
      nb::arg().none());
  m.def("full", [](const Numbers& shape, double value, const std::string& type) {
    return at_callers_line([&] { return lazy::full(shape, value, type_named(type)); });
  });
  m.def("arange", [](double begin, double end, double step, const std::string& type) {
    return at_callers_line([&] { return lazy::arange(begin, end, step, type_named(type)); });
  });
  m.def("function", [](const std::string& name, nb::handle operands) {
    return at_callers_line([&] {
      const std::vector<Array> list = arrays_of(operands);
      return name == "pow" && list.size() == 2 ? lazy::pow(list[0], list[1]) : lazy::function(name.c_str(), list);
    });
  });
  m.def("where", [](nb::handle c, nb::handle a, nb::handle b) {
    return at_callers_line([&] { return lazy::where(array_of(c), array_of(a), array_of(b)); });
  });
  m.def("concat", [](nb::handle parts, int axis) { return at_callers_line([&] { return lazy::concat(arrays_of(parts), axis); }); });
  m.def("einsum",
        [](const std::string& s, nb::handle operands) { return at_callers_line([&] { return lazy::einsum(s, arrays_of(operands)); }); });
  m.def("realize", [](nb::handle arrays) {
    at_callers_line([&] {
      compute(arrays_of(arrays));
      return 0;
    });
  });
  m.def("apply", [](const PyOp& op, nb::handle arguments) {
    return at_callers_line([&] { return lazy::apply_all(op.program(), arrays_of(arguments)); });
  });
  m.def("grad", [](const Array& loss, nb::handle wrt) { return at_callers_line([&] { return lazy::grad(loss, arrays_of(wrt)); }); });
  m.def("viz", [](nb::handle arrays) { return at_callers_line([&] { return lazy::viz(arrays_of(arrays)); }); });
  m.def("counts", [] {
    const lazy::Counts n = lazy::counts();
    nb::dict d;
    d["realizes"] = n.realizes, d["kernels"] = n.kernels, d["copies"] = n.copies, d["compiles"] = n.compiles;
    d["plans"] = n.plans, d["bytes"] = n.bytes, d["nodes"] = n.nodes, d["nanoseconds"] = n.nanoseconds;
    return d;
  });
  m.def("set_option", [](const std::string& name, nb::handle value) {
    if (name == "fast_math")
      lazy::options().fast_math = nb::cast<bool>(value);
    else if (name == "threads")
      lazy::options().compile.threads = nb::cast<int>(value);
    else if (name == "nodes_per_program")
      lazy::options().nodes_per_program = nb::cast<size_t>(value);
    else
      throw Error(fmt::format("there is no option '{}'; there are fast_math, threads, nodes_per_program", name));
  });
}

}  // namespace

void bind_lazy(nb::module_& m) {
  nb::module_ lazy = m.def_submodule("lazy");
  bind_array(lazy);
  bind_functions(lazy);
}

}  // namespace xhat::python

// The extension xhat._xhat: ops, their errors, the subcommands that report.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "expr/eval/nonfinite.h"
#include "python/src/op.h"

namespace xhat::python {

void bind_exported(nb::module_& m);
void bind_extents(nb::module_& m);
void bind_lazy(nb::module_& m);
void bind_xla(nb::module_& m);

namespace {

std::string message_of(const Error& e) {
  const std::string text = e.what();
  return text.starts_with("error: ") ? text.substr(7) : text;
}

std::shared_ptr<PyOp> make(const std::string& text, const std::string& file, const std::string& name, const nb::dict& options) {
  tool::Command c;
  c.op = name;
  set_options(c, options);
  Module module = parse(text, file);
  if (module.ops.empty()) throw Error(file + ": it holds no op");
  const Program* found = name.empty() ? module.ops.back().get() : module.find(name);
  if (!found) {
    std::string known;
    for (const auto& op : module.ops) known += (known.empty() ? "" : ", ") + op->name;
    throw Error(file + ": there is no op '" + name + "'; there are " + known);
  }
  return std::make_shared<PyOp>(tool::Source{file, text, *found}, std::move(c));
}

std::vector<std::string> names(const Program& p, const std::vector<TensorId>& tensors) {
  std::vector<std::string> list;
  for (TensorId t : tensors) list.push_back(p.tensors[t].name);
  return list;
}

std::vector<std::string> dtypes(const Program& p, const std::vector<TensorId>& tensors) {
  std::vector<std::string> list;
  for (TensorId t : tensors) list.emplace_back(name_of(p.tensors[t].type));
  return list;
}

}  // namespace
}  // namespace xhat::python

NB_MODULE(_xhat, m) {
  using namespace xhat::python;
  using xhat::Program;
  using Product = PyOp::Product;
  nb::set_leak_warnings(false);  // what PyTorch and JAX have registered stays to the end of the process
  // Python's own classes, so that they are found by who unpickles them; the order of translators is from last to first.
  static PyObject* error = PyErr_NewExceptionWithDoc(
      "xhat.Error", "What is wrong with an op, its data or a call: where, what is known, what to do.", PyExc_ValueError, nullptr);
  static PyObject* non_finite = PyErr_NewExceptionWithDoc(
      "xhat.NonFinite", "A run with check_values gave a NaN or an infinity; says where it comes from.", error, nullptr);
  m.attr("__version__") = XHAT_VERSION;
  m.attr("Error") = nb::handle(error);
  m.attr("NonFinite") = nb::handle(non_finite);
  nb::register_exception_translator([](const std::exception_ptr& e, void*) {
    try {
      std::rethrow_exception(e);
    } catch (const xhat::NonFinite& x) {
      PyErr_SetString(non_finite, message_of(x).c_str());
    } catch (const xhat::Error& x) {
      PyErr_SetString(error, message_of(x).c_str());
    } catch (const xhat::tool::UsageError& x) {
      PyErr_SetString(error, x.what());
    }
  });

  bind_exported(m);
  bind_extents(m);
  bind_lazy(m);
  bind_xla(m);
  nb::class_<Kept>(m, "Kept", "What forward() keeps for backward(): the stash, and of the arrays of the call those that are read again.")
      .def_prop_ro("bytes", &Kept::bytes, "Bytes of the stash: what is kept beyond arrays of the caller.")
      .def_ro("names", &Kept::names, "Inputs and outputs that backward() reads; they are kept alive.");

  nb::class_<PyOp>(m, "Op", "An op or a program. Call it with arrays; see docs/python.md.")
      .def("__call__", &PyOp::call, "The outputs: one array, or a tuple. Arrays by position or by name, dims by name, out=... for memory.")
      .def("forward", &PyOp::forward, "(outputs, kept): what __call__ gives, and what backward() needs.")
      .def("backward", &PyOp::backward, nb::arg("kept"), nb::arg("args"), nb::arg("kwargs"),
           "The gradients, in the order of the inputs: one array, or a tuple. Takes a cotangent for each float output; "
           "of a loss, one scalar, it is 1 where none is given.")
      .def("with_options", &PyOp::with_options, "The same op with other options; those that are not named stay.")
      .def_prop_ro(
          "vjp", [](const PyOp& op) { return op.product(Product::vjp); }, "The op (inputs, cotangents) -> (outputs, gradients).")
      .def_prop_ro(
          "jvp", [](const PyOp& op) { return op.product(Product::jvp); }, "The op (inputs, tangents) -> (outputs, their tangents).")
      .def_prop_ro(
          "hvp", [](const PyOp& op) { return op.product(Product::hvp); }, "The op (inputs, cotangents, directions) -> (Hessian products).")
      .def_prop_ro(
          "jacobian", [](const PyOp& op) { return op.product(Product::jacobian); }, "The op inputs -> (outputs, jac_<output>_<input>).")
      .def_prop_ro(
          "hessian", [](const PyOp& op) { return op.product(Product::hessian); },
          "Of an op with one float output, a scalar: the op inputs -> (outputs, gradients, hess_<input>_<other>).")
      .def("vmap", &PyOp::vmap, "The op for each element of a new first axis of the inputs named; of all, if none is.")
      .def("only", &PyOp::only, nb::arg("outputs"), "The op with these outputs only, and what they need.")
      .def("_state", &PyOp::state)
      .def("_identity", &PyOp::identity)
      .def("_directions", &PyOp::directions)
      .def("_tool", &PyOp::tool)
      .def_prop_ro("name", [](const PyOp& op) { return op.program().name; })
      .def_prop_ro(
          "text", [](const PyOp& op) { return print(op.program()); }, "In the language, canonical.")
      .def_prop_ro("inputs", [](const PyOp& op) { return names(op.program(), op.program().inputs); })
      .def_prop_ro("outputs", [](const PyOp& op) { return names(op.program(), op.program().outputs); })
      .def_prop_ro("input_dtypes", [](const PyOp& op) { return dtypes(op.program(), op.program().inputs); })
      .def_prop_ro("output_dtypes", [](const PyOp& op) { return dtypes(op.program(), op.program().outputs); })
      .def_prop_ro("dims",
                   [](const PyOp& op) {
                     std::vector<std::string> list;
                     for (const auto& d : op.program().dims) list.push_back(op.program().arena->name(d.dim));
                     return list;
                   })
      .def_prop_ro("gradients", &PyOp::gradients, "Names of what backward() gives.")
      .def_prop_ro("cotangents", &PyOp::cotangents, "Names of what backward() takes: one for each float output.")
      .def_prop_ro("differentiable", &PyOp::differentiable, "The inputs that gradients are of.")
      .def("__repr__", [](const PyOp& op) {
        const std::string text = print(op.program());
        return "<xhat." + text.substr(0, text.find(" {")) + ">";
      });
  m.def("make", &make, nb::arg("text"), nb::arg("file"), nb::arg("name"), nb::arg("options"));
}

#include "python/src/op.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "ad/common/differentiation.h"
#include "ad/forward/jvp.h"
#include "ad/forward/transform.h"
#include "expr/eval/nonfinite.h"
#include "expr/index/dims.h"
#include "expr/text/import.h"
#include "fusion/plan/plan.h"

namespace xhat::python {
namespace {

constexpr size_t kSeenShapes = 16;  // of a variant: shapes of results by shapes of arguments

std::vector<Parameter> parameters(const Program& p, const std::vector<TensorId>& tensors) {
  std::vector<Parameter> list;
  for (TensorId t : tensors) list.push_back({p.tensors[t].name, p.tensors[t].type, t});
  return list;
}

std::string_view text_of(PyObject* name) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(name, &size);
  if (!text) throw nb::python_error();
  return {text, static_cast<size_t>(size)};
}

std::string list_of(const std::vector<Parameter>& list) {
  std::vector<std::string> names;
  for (const Parameter& p : list) names.push_back(p.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

int64_t whole(PyObject* value, std::string_view name) {
  nb::object number = nb::steal(PyNumber_Index(value));
  if (!number.is_valid()) {
    PyErr_Clear();
    throw Error(fmt::format("{} = {}: a dim is a whole number", name, nb::cast<std::string>(nb::repr(nb::handle(value)))));
  }
  const int64_t result = PyLong_AsLongLong(number.ptr());
  if (result == -1 && PyErr_Occurred()) throw nb::python_error();
  return result;
}

DimValues sizes(const nb::dict& dims) {
  DimValues values;
  for (auto [name, value] : dims) values[nb::cast<std::string>(name)] = whole(value.ptr(), nb::cast<std::string>(name));
  return values;
}

}  // namespace

Variant::Variant(const Program& op, const CompileOptions& options)
    : compiled(compile(op, options)), given(options.dims), program_(own_copy(compiled.program())) {
  inputs = parameters(op, op.inputs);
  outputs = parameters(op, op.outputs);
  if (!options.differentiate) return;
  cotangents = parameters(program_, program_.cotangents);
  gradients = parameters(program_, program_.gradients);
}

std::shared_ptr<const Variant::ShapeList> Variant::shapes_of(const std::vector<Parameter>& results, std::span<const TensorView> views,
                                                             size_t which) {
  auto fits = [&](const Seen& s) {
    size_t at = 0;
    for (const TensorView& v : views)
      for (int64_t extent : v.extents())
        if (at == s.extents.size() || s.extents[at++] != extent) return false;
    return at == s.extents.size();
  };
  for (const Seen& s : seen_[which])
    if (fits(s)) return s.shapes;
  Seen made;
  for (const TensorView& v : views) made.extents.insert(made.extents.end(), v.extents().begin(), v.extents().end());
  made.shapes = std::make_shared<const ShapeList>(shapes_now(results, views));
  if (seen_[which].size() < kSeenShapes) return seen_[which].emplace_back(std::move(made)).shapes;
  return (seen_[which][next_++ % kSeenShapes] = std::move(made)).shapes;
}

Variant::ShapeList Variant::shapes_now(const std::vector<Parameter>& results, std::span<const TensorView> views) const {
  Shapes shapes;
  for (size_t i = 0; i < views.size(); ++i) {
    const auto extents = views[i].extents();
    const Parameter& input = inputs[i];
    if (extents.size() != program_.tensors[input.tensor].shape.size())
      throw Error(fmt::format("op {}: {} has {} dimension(s), but {} are declared", program_.name, input.name, extents.size(),
                              program_.tensors[input.tensor].shape.size()));
    shapes[input.name].assign(extents.begin(), extents.end());
  }
  const DimValues dims = solve_dims(program_, shapes, given);
  ShapeList list;
  for (const Parameter& r : results) list.push_back(shape_of(program_, r.tensor, dims));
  return list;
}

// One call: what was given, by position and by name; views of it.
struct PyOp::Call {
  explicit Call(PyOp& o) : op(o) {}

  PyOp& op;
  std::vector<PyObject*> given;
  DimValues dims;
  PyObject* out = nullptr;
  std::vector<ArrayView> arrays;
  std::vector<Argument> arguments;
  std::vector<TensorView> views;  // of inputs
  Library library;
  std::vector<nb::object> results;

  // parameters: those that positions and names mean; needed: all of them.
  void take(const nb::args& args, const nb::kwargs& kwargs, const std::vector<Parameter>& parameters, bool with_dims) {
    given.assign(parameters.size(), nullptr);
    const size_t count = args.size();
    if (count > parameters.size())
      throw Error(
          fmt::format("op {} takes {} arrays ({}), but {} are given", op.program().name, parameters.size(), list_of(parameters), count));
    for (size_t i = 0; i < count; ++i) given[i] = PyTuple_GetItem(args.ptr(), static_cast<Py_ssize_t>(i));
    PyObject *key = nullptr, *value = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(kwargs.ptr(), &at, &key, &value);) {
      const std::string_view name = text_of(key);
      auto p = std::ranges::find(parameters, name, &Parameter::name);
      if (p != parameters.end()) {
        PyObject*& place = given[static_cast<size_t>(p - parameters.begin())];
        if (place) throw Error(fmt::format("op {}: {} is given twice, by position and by name", op.program().name, name));
        place = value;
      } else if (with_dims && std::ranges::find(op.dims_, name) != op.dims_.end()) {
        dims[std::string(name)] = whole(value, name);
      } else if (name == "out") {
        if (value != Py_None) out = value;
      } else {
        throw Error(fmt::format("op {} has no '{}'; arrays: {}{}; and out", op.program().name, name, list_of(parameters),
                                with_dims && !op.dims_.empty() ? fmt::format("; dims: {}", fmt::join(op.dims_, ", ")) : ""));
      }
    }
    for (size_t i = 0; i < given.size(); ++i)
      if (!given[i]) throw Error(fmt::format("op {}: '{}' is missing", op.program().name, parameters[i].name));
  }

  void look(const Parameter& p, PyObject* object, bool written) {
    ArrayView& a = arrays.emplace_back();
    try {
      a.look_at(object, p.type, written);
    } catch (const Error& e) {
      throw Error(fmt::format("op {}: {}: {}", op.program().name, p.name, e.message()));
    }
    arguments.push_back({p.name, a.view()});
  }

  void look_at_inputs(const std::vector<Parameter>& parameters, size_t more) {
    arrays.reserve(parameters.size() + more);  // numbers lie in them: they stay where they are
    for (size_t i = 0; i < parameters.size(); ++i) {
      look(parameters[i], given[i], false);
      arrays[i].note_library(library, given[i]);
      views.push_back(arguments.back().view);
    }
  }

  // Memory for the results: the caller's, or new.
  void place(const std::vector<Parameter>& parameters, const std::shared_ptr<const Variant::ShapeList>& shapes) {
    if (out) {
      const bool several = PyTuple_Check(out) || PyList_Check(out);
      nb::object list = several ? nb::borrow(out) : nb::object(nb::make_tuple(nb::handle(out)));
      if (nb::len(list) != parameters.size())
        throw Error(fmt::format("op {}: out has {} arrays, but there are {} results: {}", op.program().name, nb::len(list),
                                parameters.size(), list_of(parameters)));
      for (size_t i = 0; i < parameters.size(); ++i) {
        results.push_back(nb::steal(PySequence_GetItem(list.ptr(), static_cast<Py_ssize_t>(i))));
        look(parameters[i], results.back().ptr(), true);
      }
      return;
    }
    for (size_t i = 0; i < parameters.size(); ++i) {
      TensorView v;
      results.push_back(library.empty(parameters[i].type, (*shapes)[i], v));
      arguments.push_back({parameters[i].name, v});
    }
  }

  nb::object answer() {
    if (results.size() == 1) return std::move(results[0]);
    nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(results.size())));
    for (size_t i = 0; i < results.size(); ++i) PyTuple_SetItem(tuple.ptr(), static_cast<Py_ssize_t>(i), results[i].release().ptr());
    return tuple;
  }
};

PyOp::PyOp(tool::Source source, tool::Command options) : source_(std::move(source)), options_(std::move(options)) {
  inputs_ = parameters(source_.op, source_.op.inputs);
  for (const Dim& d : source_.op.dims) dims_.push_back(source_.op.arena->name(d.dim));
  tool::compile_options(options_);  // complains of what options cannot mean
}

std::shared_ptr<Variant> PyOp::variant(const DimValues& dims, bool differentiate) {
  if (dims.empty() && plain_[differentiate]) return plain_[differentiate];
  std::shared_ptr<Variant>& v = variants_[{dims, differentiate}];
  if (!v) {
    CompileOptions o = tool::compile_options(options_);
    o.differentiate = differentiate;
    for (const auto& [name, value] : dims) o.dims[name] = value;
    v = std::make_shared<Variant>(source_.op, o);
  }
  if (dims.empty()) plain_[differentiate] = v;
  return v;
}

std::shared_ptr<Variant> PyOp::variant_of(const nb::dict& dims, bool differentiate) {
  try {
    return variant(sizes(dims), differentiate);
  } catch (const Error& e) {
    rethrow(e);
  }
}

void PyOp::rethrow(const Error& e) const {
  std::string text = tool::located(e, source_);
  if (text.starts_with("error: ")) text.erase(0, std::string_view("error: ").size());
  if (dynamic_cast<const NonFinite*>(&e)) throw NonFinite(text);
  throw Error(text);
}

auto PyOp::ready(Call& c, const nb::args& args, const nb::kwargs& kwargs, bool differentiate) -> std::shared_ptr<Variant> {
  c.take(args, kwargs, inputs_, true);
  std::shared_ptr<Variant> v = variant(c.dims, differentiate);
  c.look_at_inputs(inputs_, v->outputs.size());
  c.place(v->outputs, c.out ? nullptr : v->shapes_of(v->outputs, c.views, 0));
  return v;
}

nb::object PyOp::call(const nb::args& args, const nb::kwargs& kwargs) {
  Call c(*this);
  try {
    const std::shared_ptr<Variant> v = ready(c, args, kwargs, false);
    nb::gil_scoped_release others_may_run;
    v->compiled.infer(c.arguments);
  } catch (const Error& e) {
    rethrow(e);
  }
  return c.answer();
}

nb::object PyOp::forward(const nb::args& args, const nb::kwargs& kwargs) {
  Call c(*this);
  auto kept = std::make_unique<Kept>();
  try {
    const std::shared_ptr<Variant> v = ready(c, args, kwargs, true);
    {
      nb::gil_scoped_release others_may_run;
      v->compiled.forward(c.arguments, kept->stash);
      kept->names = v->compiled.kept(kept->stash);
    }
    kept->variant = v;
    kept->inputs = c.views;
    kept->library = c.library;
    for (const std::string& name : kept->names) {
      auto input = std::ranges::find(v->inputs, name, &Parameter::name);
      const bool is_input = input != v->inputs.end();
      const auto at = is_input ? input - v->inputs.begin() : std::ranges::find(v->outputs, name, &Parameter::name) - v->outputs.begin();
      kept->objects.push_back(is_input ? nb::borrow(c.given[static_cast<size_t>(at)]) : c.results[static_cast<size_t>(at)]);
    }
  } catch (const Error& e) {
    rethrow(e);
  }
  return nb::make_tuple(c.answer(), nb::cast(kept.release(), nb::rv_policy::take_ownership));
}

nb::object PyOp::backward(Kept& kept, const nb::args& args, const nb::kwargs& kwargs) {
  Call c(*this);
  try {
    Variant& v = *kept.variant;
    if (std::ranges::none_of(variants_, [&](const auto& known) { return known.second == kept.variant; }))
      throw Error(fmt::format("op {}: this was kept by a forward of another op", program().name));
    // That of a scalar loss is 1 where none is given (CompiledOp::backward).
    static const std::vector<Parameter> none;
    const bool loss = args.size() == 0 && v.cotangents.size() == 1 && !kwargs.contains(v.cotangents[0].name.c_str()) &&
                      v.compiled.program().tensors[v.cotangents[0].tensor].shape.empty();
    const std::vector<Parameter>& cotangents = loss ? none : v.cotangents;
    c.take(args, kwargs, cotangents, false);
    c.library = kept.library;
    c.look_at_inputs(cotangents, kept.names.size() + v.gradients.size());
    for (size_t i = 0; i < kept.names.size(); ++i) {
      auto input = std::ranges::find(v.inputs, kept.names[i], &Parameter::name);
      const Parameter& p = input != v.inputs.end() ? *input : *std::ranges::find(v.outputs, kept.names[i], &Parameter::name);
      c.look(p, kept.objects[i].ptr(), false);
    }
    c.place(v.gradients, c.out ? nullptr : v.shapes_of(v.gradients, kept.inputs, 1));
    nb::gil_scoped_release others_may_run;
    v.compiled.backward(c.arguments, kept.stash);
  } catch (const Error& e) {
    rethrow(e);
  }
  return c.answer();
}

std::shared_ptr<PyOp> PyOp::derived(Program program, tool::Command options) const {
  tool::Source source = source_;
  source.op = std::move(program);
  auto op = std::make_shared<PyOp>(std::move(source), std::move(options));
  op->derived_ = true;
  return op;
}

std::shared_ptr<PyOp> PyOp::product(Product which) const {
  std::shared_ptr<PyOp>& made = products_[which];  // the same at each use: op.jvp.forward and op.jvp.backward are of one op
  if (!made) made = new_product(which);
  return made;
}

std::shared_ptr<PyOp> PyOp::new_product(Product which) const {
  tool::Command options = options_;
  options.wrt.clear();
  options.keep.reset();
  options.drop.reset();
  const std::vector<std::string>& wrt = options_.wrt;
  try {
    switch (which) {
      case Product::vjp: return derived(vjp(source_.op, {wrt}), options);
      case Product::jvp: return derived(jvp(source_.op, {wrt}), options);
      case Product::jacobian: return derived(jacobian(source_.op, {wrt}), options);
      case Product::hessian: return derived(hessian(source_.op, {wrt}), options);
      case Product::hvp: return derived(hvp(source_.op, {.wrt = wrt, .along = wrt}), options);
    }
  } catch (const Error& e) {
    rethrow(e);
  }
  throw Bug("unreachable product");
}

std::vector<std::shared_ptr<PyOp>> PyOp::directions(const nb::dict& dims) const {
  tool::Command options = options_;
  options.wrt.clear();
  options.keep.reset();
  options.drop.reset();
  if (source_.op.steps) throw Error("the directions of a program with loops that stay are no ops: call its forward and backward");
  try {
    const Derivation d = derive(source_.op, tool::compile_options(options_), sizes(dims));
    std::vector<std::shared_ptr<PyOp>> list;
    for (Program p : {infer_program(d.program), forward_program(d.program), backward_program(d.program)})
      list.push_back(derived(std::move(p), options));
    return list;
  } catch (const Error& e) {
    rethrow(e);
  }
}

std::shared_ptr<PyOp> PyOp::vmap(const nb::args& inputs) const {
  VmapOptions o;
  for (nb::handle name : inputs) o.inputs.push_back(nb::cast<std::string>(name));
  tool::Command options = options_;
  try {
    return derived(xhat::vmap(source_.op, o), options);
  } catch (const Error& e) {
    rethrow(e);
  }
}

std::shared_ptr<PyOp> PyOp::only(const std::vector<std::string>& outputs) const {
  Program p = source_.op;
  p.outputs.clear();
  for (const std::string& name : outputs) {
    const auto t = source_.op.find(name);
    if (!t || std::ranges::find(source_.op.outputs, *t) == source_.op.outputs.end())
      throw Error(fmt::format("op {} has no output {}", p.name, name));
    p.outputs.push_back(*t);
  }
  return derived(p.steps ? p : without_dead(p), options_);
}

nb::tuple PyOp::state() const {
  const tool::Command& c = options_;
  nb::dict options;
  options["stash"] = c.stash;
  options["stash_dtype"] = c.stash_dtype;
  options["fuse"] = c.fuse;
  if (c.keep) options["keep"] = *c.keep;
  if (c.drop) options["drop"] = *c.drop;
  options["wrt"] = fmt::format("{}", fmt::join(c.wrt, ","));
  options["threads"] = c.threads;
  options["prices"] = c.prices;
  options["tuned"] = c.tuned;
  options["check_values"] = c.check_values;
  return nb::make_tuple(derived_ ? print(source_.op) : source_.text, source_.file, source_.op.name, options);
}

std::string PyOp::identity() const {
  const tool::Command& c = options_;
  const std::vector<std::string> options = {c.stash,
                                            c.stash_dtype,
                                            c.fuse,
                                            c.keep.value_or("-"),
                                            c.drop.value_or("-"),
                                            std::to_string(c.threads),
                                            c.prices,
                                            c.tuned,
                                            fmt::format("{}", fmt::join(c.wrt, ",")),
                                            std::to_string(c.check_values)};
  return fmt::format("{}\n#\n{}\n#\n{}", source_.text, print(source_.op), fmt::join(options, ";"));
}

std::vector<std::string> PyOp::gradients() {
  std::vector<std::string> list;
  for (const Parameter& p : variant({}, true)->gradients) list.push_back(p.name);
  return list;
}

std::vector<std::string> PyOp::cotangents() {
  std::vector<std::string> list;
  for (const Parameter& p : variant({}, true)->cotangents) list.push_back(p.name);
  return list;
}

std::vector<std::string> PyOp::differentiable() const {
  try {
    return names_of(source_.op, asked_for(source_.op, options_.wrt));
  } catch (const Error& e) {
    rethrow(e);
  }
}

std::shared_ptr<PyOp> PyOp::with_options(const nb::kwargs& options) const {
  tool::Command c = options_;
  set_options(c, options);
  auto op = std::make_shared<PyOp>(source_, std::move(c));
  op->derived_ = derived_;
  return op;
}

std::pair<int, std::string> PyOp::tool(const std::string& name, const nb::dict& dims, const nb::dict& options) const {
  tool::Command c = options_;
  c.name = name;
  for (auto [key, value] : dims) {
    const auto dim = nb::cast<std::string>(key);
    c.dims.push_back(fmt::format("{}={}", dim, whole(value.ptr(), dim)));
  }
  std::ostringstream answer;
  c.answer = &answer;
  for (auto [key, value] : options) {
    const auto option = nb::cast<std::string>(key);
    if (option == "json")
      c.json = nb::cast<bool>(value);
    else if (option == "pareto")
      c.pareto = nb::cast<bool>(value);
    else if (option == "relations")
      c.relations = nb::cast<bool>(value);
    else if (option == "no_run")
      c.no_run = nb::cast<bool>(value);
    else if (option == "seed")
      c.seed = nb::cast<uint64_t>(value);
    else
      throw Error("there is no option " + option);
  }
  c.out = "-";
  tool::Source source = source_;  // its own copy: others may derive of this one meanwhile
  source.op = own_copy(source.op);
  nb::gil_scoped_release others_may_run;
  try {
    const int status = name == "explain" ? tool::explain_command(c, source)
                       : name == "check" ? tool::check_command(c, source)
                                         : tool::viz_command(c, source);
    return {status, answer.str()};
  } catch (const Error& e) {
    rethrow(e);
  }
}

}  // namespace xhat::python

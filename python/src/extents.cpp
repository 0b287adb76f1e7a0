// Extents as expressions of Python, for frameworks that ask for shapes before there are any numbers: dims may be their symbols.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <fmt/format.h>

#include "expr/index/dims.h"
#include "python/src/op.h"

namespace xhat::python {
namespace {

// Throws Error for what no extent is made of.
std::string python_text(const Arena& a, Id id) {
  const Node& n = a[id];
  auto arg = [&](size_t i) { return python_text(a, n.arg(i)); };
  switch (n.op) {
    case Op::constant: return std::to_string(n.integer);
    case Op::dim: return a.name(id);
    case Op::cast: return arg(0);
    case Op::neg: return "(-" + arg(0) + ")";
    case Op::add: return fmt::format("({} + {})", arg(0), arg(1));
    case Op::sub: return fmt::format("({} - {})", arg(0), arg(1));
    case Op::mul: return fmt::format("({} * {})", arg(0), arg(1));
    case Op::div: return fmt::format("({} // {})", arg(0), arg(1));  // both floor
    case Op::mod: return fmt::format("({} % {})", arg(0), arg(1));
    case Op::minimum: return fmt::format("min({}, {})", arg(0), arg(1));
    case Op::maximum: return fmt::format("max({}, {})", arg(0), arg(1));
    default: throw Error(fmt::format("an extent uses '{}', which is not known before there are sizes", info(n.op).text));
  }
}

using Texts = std::vector<std::string>;

std::vector<Texts> shapes(const PyOp& op, bool outputs) {
  const Program& p = op.program();
  std::vector<Texts> list;
  for (TensorId t : outputs ? p.outputs : p.inputs) {
    Texts& shape = list.emplace_back();
    for (Id extent : p.tensors[t].shape) shape.push_back(python_text(*p.arena, extent));
  }
  return list;
}

// How dims follow from the shapes of inputs, in order: (name, expression over `shapes`, the inputs' shapes, and earlier dims). A dim
// that nothing tells is missing.
std::vector<std::pair<std::string, std::string>> dims_from_shapes(const PyOp& op) {
  const Program& p = op.program();
  const Arena& a = *p.arena;
  std::vector<std::pair<std::string, std::string>> found;
  auto known = [&](Id dim) { return std::ranges::any_of(found, [&](const auto& f) { return f.first == a.name(dim); }); };
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    const auto& shape = p.tensors[p.inputs[i]].shape;
    for (size_t d = 0; d < shape.size(); ++d) {
      const auto f = linear_form(a, shape[d]);
      if (!f || f->dim == kNone || known(f->dim)) continue;
      const std::string extent = fmt::format("shapes[{}][{}]", i, d);
      found.emplace_back(a.name(f->dim),
                         f->factor == 1 && f->offset == 0 ? extent : fmt::format("({} - {}) // {}", extent, f->offset, f->factor));
    }
  }
  for (const Dim& d : p.dims)
    if (d.definition != kNone && !known(d.dim)) found.emplace_back(a.name(d.dim), python_text(a, d.definition));
  return found;
}

}  // namespace

void bind_extents(nb::module_& m) {
  // Names of the language: functions of the op table, and reductions.
  m.def("functions", [] {
    Texts names = {"pow"};
    for (int i = 0; i < kOpCount; ++i)
      if (const OpInfo& row = info(static_cast<Op>(i)); row.syntax == Syntax::function) names.emplace_back(row.text);
    return names;
  });
  m.def("reductions", [] {
    Texts names = {"mean"};
    for (int i = 0; i < kOpCount; ++i)
      if (is_reduction(static_cast<Op>(i))) names.emplace_back(info(static_cast<Op>(i)).text);
    return names;
  });
  m.def("shapes", &shapes, nb::arg("op"), nb::arg("outputs"));
  m.def("dims_from_shapes", &dims_from_shapes, nb::arg("op"));
}

}  // namespace xhat::python

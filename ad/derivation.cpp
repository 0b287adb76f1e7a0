#include "ad/derivation.h"

#include <algorithm>
#include <string_view>

#include "ad/guards.h"

namespace xhat {

TensorId Differentiation::define(const std::string& name, DType type, std::span<const AxisRange> axes, Id body) {
  std::vector<Id> shape;
  for (const AxisRange& r : axes) shape.push_back(r.end);
  TensorId t = program.add_tensor(name, type, shape);
  Definition made;
  made.targets = {t};
  made.axes.assign(axes.begin(), axes.end());
  made.body = body;
  made.direction = Direction::backward;
  backward.push_back(made);
  return t;
}

Id Differentiation::total(TensorId t) {
  Id sum = kNone;
  for (Id term : adjoint(t).terms) sum = sum == kNone ? term : arena().add(sum, term);
  return sum;
}

namespace {

Id name_axis(const Program& p, Id extent, const std::vector<Id>& used) {
  Arena& a = *p.arena;
  std::vector<std::string> names;
  if (a[extent].op == Op::dim) {
    std::string lower = a.name(extent);
    std::ranges::transform(lower, lower.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
    names.push_back(lower);
  }
  for (char c : std::string_view("ijklmpqruv")) names.emplace_back(1, c);
  auto taken = [&](const std::string& name) {
    return contains(used, a.axis(name)) || p.find(name) ||
           std::ranges::any_of(p.dims, [&](const Dim& d) { return a.name(d.dim) == name; });
  };
  for (const std::string& name : names)
    if (!taken(name)) return a.axis(name);
  return a.fresh_axis(a.axis("i"), used);
}

}  // namespace

const std::vector<Id>& target_axes(Differentiation& d, TensorId t, std::span<const Id> wanted,
                                   std::span<const Id> avoid) {
  TensorAdjoint& adjoint = d.adjoint(t);
  size_t rank = d.program.tensor(t).shape.size();
  if (adjoint.axes.size() == rank) return adjoint.axes;
  std::vector<Id> used(wanted.begin(), wanted.end());
  used.insert(used.end(), avoid.begin(), avoid.end());
  for (size_t i = 0; i < rank; ++i) {
    Id axis = i < wanted.size() ? wanted[i] : kNone;
    if (axis == kNone) axis = name_axis(d.program, d.program.tensor(t).shape[i], used);
    used.push_back(axis);
    adjoint.axes.push_back(axis);
  }
  return adjoint.axes;
}

}  // namespace xhat

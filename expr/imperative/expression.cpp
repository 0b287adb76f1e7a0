// Names, scopes and shapes. Values are in expression_value.cpp, views in mapping.cpp.
#include "expr/imperative/expression.h"

#include <fmt/format.h>

#include <algorithm>

#include "expr/core/conditions.h"
#include "expr/core/syntax.h"
#include "expr/index/affine.h"

namespace xhat::imperative {

using ast::Kind;
using ast::Ref;

bool Expression::is_op(const ast::Node& n) const {
  if (n.kind != Kind::call) return false;
  const auto op = c_.scope.ops.find(n.text);
  return op != c_.scope.ops.end() && !is_function_of_numbers(*op->second);
}

bool Expression::is_of_positions(Ref ref) const {
  const ast::Node& n = node(ref);
  if (n.kind == Kind::number || n.kind == Kind::boolean) return true;
  if (n.kind == Kind::name)
    return c_.state.numbers.contains(n.text) || c_.scope.dims.contains(n.text) ||
           std::ranges::any_of(c_.state.loops, [&](const LoopVariable& l) { return l.name == n.text && !l.bounds_read; });
  return (n.kind == Kind::unary || n.kind == Kind::binary) && std::ranges::all_of(n.args, [&](Ref r) { return is_of_positions(r); });
}

bool Expression::known(const std::string& name) const {
  return c_.state.names.contains(name) || c_.state.numbers.contains(name) || c_.scope.dims.contains(name) || lets_.contains(name) ||
         std::ranges::any_of(axes_, [&](const BoundAxis& x) { return x.name == name; }) ||
         std::ranges::any_of(c_.state.loops, [&](const LoopVariable& l) { return l.name == name; });
}

void Expression::unknown(const ast::Node& n) const {
  std::vector<std::string> names;
  for (const auto& [name, binding] : c_.state.names) names.push_back(name);
  for (const auto& [name, dim] : c_.scope.dims) names.push_back(name);
  for (const BoundAxis& x : axes_) names.push_back(x.name);
  for (const LoopVariable& l : c_.state.loops) names.push_back(l.name);
  for (const auto& [name, value] : c_.state.numbers) names.push_back(name);
  std::string hint = did_you_mean(ast::Stranger::name, n.text, names);
  if (hint.empty() && c_.assigned.contains(n.text)) hint = "; a name without var ends with the iteration or branch that it is assigned in";
  throw Error(fmt::format("{} is not a tensor, dim, axis or loop variable in scope{}", n.text, hint), n.pos);
}

void Expression::open_axis(const std::string& name, AxisRange range, Pos pos, const char* what) {
  auto fail = [&](const std::string& taken) {
    throw Error(fmt::format("{} {} has the name of {}; take a new name", what, name, taken), pos);
  };
  if (auto it = c_.state.names.find(name); it != c_.state.names.end()) fail("the tensor of " + place(it->second.pos));
  if (c_.scope.dims.contains(name)) fail("a dim");
  if (lets_.contains(name)) fail("a let around it");
  for (const LoopVariable& l : c_.state.loops)
    if (l.name == name) fail("a loop variable");
  if (c_.state.numbers.contains(name)) fail("a loop variable");
  for (const BoundAxis& x : axes_)
    if (x.name == name) fail("the axis of " + place(x.pos) + ", which is in scope");
  axes_.push_back({name, range, pos});
}

void Expression::bind(const std::string& name, Id end, Pos pos) { open_axis(name, {a_.axis(name), a_.integer(0), end}, pos, "axis"); }

std::vector<AxisRange> Expression::bound_ranges() {
  std::vector<AxisRange> ranges;
  for (BoundAxis& axis : axes_) {
    infer(axis);
    ranges.push_back(axis.range);
  }
  return ranges;
}

void Expression::infer(BoundAxis& axis) {
  if (axis.range.end != kNone) return;
  const bool plain = std::ranges::any_of(axis.evidence, [](const Evidence& e) { return !e.with_else; });
  const Evidence* first = nullptr;
  for (const Evidence& e : axis.evidence) {
    if (plain && e.with_else) continue;
    if (!first) {
      first = &e;
      continue;
    }
    if (c_.scope.same_extent(first->extent, e.extent)) continue;
    throw Error(fmt::format("axis {} runs to {} in {}, but to {} in {} ({}); write its range, as in {} in 0..{}", axis.name,
                            text_of(c_.scope, e.extent), text(e.read), text_of(c_.scope, first->extent), text(first->read),
                            place(node(first->read).pos), axis.name, text_of(c_.scope, first->extent)),
                node(e.read).pos);
  }
  if (!first)
    throw Error(fmt::format("axis {} has no range: it stands alone in no index; write one, as in {} in 0..N", axis.name, axis.name),
                axis.pos);
  axis.range.begin = a_.integer(0);
  axis.range.end = first->extent;
}

// The index is an axis alone: evidence of its range.
void Expression::note(Ref index, Id extent, Ref read, bool with_else) {
  const ast::Node& n = node(index);
  if (n.kind != Kind::name) return;
  for (size_t i = axes_.size(); i-- > 0;)
    if (axes_[i].name == n.text) {
      if (axes_[i].range.end == kNone) axes_[i].evidence.push_back({extent, read, with_else});
      return;
    }
}

Shape Expression::shape(Ref ref) {
  if (auto it = shapes_.find(ref); it != shapes_.end()) return it->second;
  // Chains of signs are as long as the user likes.
  std::vector<Ref> spine;
  for (Ref at = ref; node(at).kind == Kind::binary && !shapes_.contains(at); at = node(at).args[0]) spine.push_back(at);
  while (spine.size() > 1) {
    const ast::Node& n = node(spine.back());
    shapes_[spine.back()] = broadcast(n.args, n.pos);
    spine.pop_back();
  }
  return shapes_[ref] = shape_of(ref, node(ref));
}

Shape Expression::shape_of(Ref ref, const ast::Node& n) {
  switch (n.kind) {
    case Kind::number:
    case Kind::boolean: return {};
    case Kind::name: return name_shape(n);
    case Kind::unary:
    case Kind::binary: return broadcast(n.args, n.pos);
    case Kind::choose: {
      // Slices in a branch are inside where its condition holds.
      if (is_of_positions(n.args[0])) {
        const Id holds = condition(n.args[0], "the condition of if");
        for (size_t k : {1, 2}) {
          c_.state.conditions.push_back(k == 1 ? holds : negation(a_, holds));
          shape(n.args[k]);
          c_.state.conditions.pop_back();
        }
      }
      return broadcast(n.args, n.pos);
    }
    case Kind::let: {
      if (known(n.text)) throw Error(fmt::format("let {} has the name of something in scope; take a new name", n.text), n.pos);
      shape(n.args[0]);
      lets_[n.text] = n.args[0];
      Shape s = shape(n.args[1]);
      lets_.erase(n.text);
      return s;
    }
    case Kind::read: return read_shape(ref, n);
    case Kind::index: return read_shape(ref, n);
    case Kind::method: return method_shape(ref, n);
    case Kind::call: return call_shape(ref, n);
    case Kind::reduce: return reduction_shape(ref, n);
    case Kind::filled: {
      Shape s;
      for (size_t i = 1; i < n.args.size(); ++i) {
        Id extent = number(n.args[i], true, "an extent");
        if (!a_[extent].free_axes().empty() || reads_data(a_, extent))
          throw Error(fmt::format("an extent may use integers and dims only, and {} is neither; shapes do not depend on data", text(n.args[i])),
                      node(n.args[i]).pos);
        c_.scope.require_extent(extent, fmt::format("dimension {} of {}", i - 1, text(ref)), node(n.args[i]).pos);
        s.push_back(extent);
      }
      if (n.args[0] != ast::kAbsent && !shape(n.args[0]).empty())
        throw Error("full takes a scalar, and this is a tensor", node(n.args[0]).pos);
      return s;
    }
    case Kind::slice: throw Error("a slice stands inside index brackets only", n.pos);
    case Kind::range: throw Error("a new axis stands on the left of an assignment only", n.pos);
  }
  throw Bug("unknown kind of syntax node");
}

Shape Expression::name_shape(const ast::Node& n) {
  if (auto it = lets_.find(n.text); it != lets_.end()) return shape(it->second);
  if (auto it = c_.state.names.find(n.text); it != c_.state.names.end()) return it->second.view.shape();
  if (known(n.text)) return {};
  if (new_dims_) {
    c_.scope.declare_dim(n.text, n.pos);
    return {};
  }
  unknown(n);
}

// Shapes are aligned at their last dimensions; an extent of 1 stretches.
Shape Expression::broadcast(std::span<const Ref> parts, Pos pos) {
  Shape result;  // last dimension first
  for (Ref r : parts) {
    const Shape s = shape(r);
    for (size_t i = 0; i < s.size(); ++i) {
      const Id extent = s[s.size() - 1 - i];
      if (i == result.size())
        result.push_back(extent);
      else if (is_constant(a_, result[i], 1))
        result[i] = extent;
      else if (!is_constant(a_, extent, 1) && !c_.scope.same_extent(result[i], extent)) {
        Shape others(result.rbegin(), result.rend());
        throw Error(fmt::format("shape {} of {} does not broadcast with {}: {} against {}, counted from the last dimension {}",
                                shape_text(c_.scope, s), text(r), shape_text(c_.scope, others), text_of(c_.scope, extent),
                                text_of(c_.scope, result[i]), i + 1),
                    pos);
      }
    }
  }
  return {result.rbegin(), result.rend()};
}

Shape Expression::reduction_shape(Ref ref, const ast::Node& n) {
  const size_t outer = axes_.size();
  for (const ast::Axis& axis : n.axes) {
    AxisRange range{a_.axis(axis.name), kNone, kNone};
    if (axis.end != ast::kAbsent) {
      range.begin = number(axis.begin, true, "the end of a range");
      range.end = number(axis.end, true, "the end of a range");
      if (reads_data(a_, range.begin) || reads_data(a_, range.end))
        throw Error("a range may use axes, dims and integers, and this one reads a tensor; use a condition, as in sum(k if k < n[i]: …)",
                    node(axis.end).pos);
    }
    open_axis(axis.name, range, axis.pos, "axis");
  }
  if (n.condition != ast::kAbsent && !shape(n.condition).empty())
    throw Error("the condition of a reduction is a scalar, and this is a tensor; index it", node(n.condition).pos);
  Shape body = shape(n.args[0]);
  std::vector<AxisRange>& ranges = reduced_[ref];
  for (size_t i = outer; i < axes_.size(); ++i) {
    infer(axes_[i]);
    ranges.push_back(axes_[i].range);
  }
  axes_.resize(outer);
  return body;
}

Ref Expression::base_of(Ref, const ast::Node& n) const {
  return n.kind == Kind::index || n.kind == Kind::method ? n.args[0] : ast::kAbsent;
}

Shape Expression::read_shape(Ref ref, const ast::Node& n) {
  const size_t first = n.kind == Kind::index ? 1 : 0;
  if (first == 0 && !lets_.contains(n.text) && !c_.state.names.contains(n.text)) {
    if (known(n.text)) throw Error(fmt::format("{} is not a tensor, so it takes no indices", n.text), n.pos);
    unknown(n);
  }
  const Shape base = first == 1 ? shape(n.args[0]) : name_shape(n);
  const std::string of = first == 1 ? text(n.args[0]) : n.text;
  if (n.args.size() - first > base.size())
    throw Error(fmt::format("{} has {} dimension{}, and {} {} given; write at most one for each", of, base.size(),
                            base.size() == 1 ? "" : "s", n.args.size() - first, n.args.size() - first == 1 ? "index is" : "indices are"),
                n.pos);
  Shape result;
  for (size_t i = first; i < n.args.size(); ++i) {
    const ast::Node& arg = node(n.args[i]);
    if (arg.kind == Kind::slice) {
      Id index = kNone;
      result.push_back(slice(n.args[i], base[i - first], 0, index, of).end);
    } else if (arg.kind != Kind::range) {
      if (!shape(n.args[i]).empty())
        throw Error(fmt::format("an index is a scalar, and {} is a tensor; {}", text(n.args[i]),
                                arg.kind == Kind::binary && std::string_view("< <= > >= == != && ||").find(arg.text) != std::string_view::npos
                                    ? "what depends on a condition is written if c then a else b"
                                    : "index it, or name an axis"),
                    arg.pos);
      note(n.args[i], base[i - first], ref, n.otherwise != ast::kAbsent);
    }
  }
  result.insert(result.end(), base.begin() + static_cast<std::ptrdiff_t>(n.args.size() - first), base.end());
  if (n.otherwise != ast::kAbsent) {
    if (!result.empty()) throw Error("else belongs to an element: write one index for each dimension", node(n.otherwise).pos);
    if (!shape(n.otherwise).empty()) throw Error("the value outside is a scalar, and this is a tensor", node(n.otherwise).pos);
  }
  return result;
}

Shape Expression::method_shape(Ref ref, const ast::Node& n) {
  Shape s;
  for (const AxisRange& r : mapping(ref, n).axes) s.push_back(r.end);
  return s;
}

Shape Expression::call_shape(Ref ref, const ast::Node& n) {
  if (auto it = calls_.find(ref); it != calls_.end()) return it->second.shape;
  auto takes = [&](size_t count, const char* form) {
    if (n.args.size() != count) throw Error(fmt::format("{} takes {} operands, as in {}", n.text, count, form), n.pos);
  };
  if (is_op(n)) {
    throw Error(fmt::format("{} is called where an axis is in scope; call it in a statement of its own, as in y = {}(x)", n.text, n.text),
                n.pos);
  }
  if (n.text == "clone") {
    takes(1, "clone(a)");
    return shape(n.args[0]);
  }
  if (n.text == "flip") {
    takes(2, "flip(axis, a)");
    dimension(n.args[0], shape(n.args[1]).size(), "flip");
    return shape(n.args[1]);
  }
  if (n.text == "roll") {
    takes(3, "roll(axis, n, a)");
    dimension(n.args[0], shape(n.args[2]).size(), "roll");
    return shape(n.args[2]);
  }
  if (n.text == "concat") {
    if (n.args.size() < 2) throw Error("concat takes an axis and tensors, as in concat(0, a, b)", n.pos);
    Shape result = shape(n.args[1]);
    const size_t along = dimension(n.args[0], result.size(), "concat");
    for (size_t i = 2; i < n.args.size(); ++i) {
      const Shape s = shape(n.args[i]);
      bool fits = s.size() == result.size();
      for (size_t d = 0; fits && d < s.size(); ++d) fits = d == along || c_.scope.same_extent(s[d], result[d]);
      if (!fits)
        throw Error(fmt::format("concat joins shapes that are equal but for dimension {}, and {} does not fit {}", along,
                                shape_text(c_.scope, s), shape_text(c_.scope, result)),
                    node(n.args[i]).pos);
      result[along] = c_.tidy(a_.add(result[along], s[along]));
    }
    return result;
  }
  if (!dtype_from_name(n.text) && !function_named(n.text) && !c_.scope.ops.contains(n.text)) {
    std::vector<std::string> names = {"clone", "concat", "flip", "roll", "zeros", "full", "f32", "f64", "i64", "i32"};
    for (auto i = static_cast<size_t>(Op::neg); i <= static_cast<size_t>(Op::random); ++i)
      names.emplace_back(info(static_cast<Op>(i)).text);
    for (const auto& [name, program] : c_.scope.ops) names.push_back(name);
    throw Error(fmt::format("there is no function {}{}", n.text, did_you_mean(ast::Stranger::function, n.text, names)), n.pos);
  }
  return broadcast(n.args, n.pos);
}

}  // namespace xhat::imperative

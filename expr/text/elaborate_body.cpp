// One right side: a walk over the surface tree with its own stack, because chains are as long as the user likes.
//
// Axes get their ranges when their reduction (or the definition) is complete: until then every read that has an axis
// alone as an index leaves evidence with the axis. Bounds are checked afterwards, on nodes (elaborate_bounds.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <iterator>

#include "expr/text/elaborate_walk.h"

namespace xhat {

using ast::Kind;
using ast::Ref;

namespace {

bool binds(const Node& n, Id axis) {
  return is_reduction(n.op) && std::ranges::any_of(reduce_axes(n), [&](const AxisRange& r) { return r.axis == axis; });
}

bool binds_below(const Arena& a, Id root, Id axis) {
  return std::ranges::any_of(reachable(a, root), [&](Id id) { return binds(a[id], axis); });
}

// root with the axis `to` wherever `from` is free. In a reduction over `from` it is nowhere free: that was complete before this
// `from` was opened.
Id with_free_axis(Arena& a, Id root, Id from, Id to) {
  Replacements done{{from, to}};
  std::vector<Id> args;
  for (Id id : reachable(a, root)) {
    if (id == from) continue;
    args.clear();
    for (Id x : a[id].args()) args.push_back(done.at(x));
    done[id] = binds(a[id], from) ? id : a.with_args(id, args);
  }
  return done.at(root);
}

}  // namespace

std::vector<Value> Walk::pop(size_t count) {
  std::vector<Value> top(values_.end() - static_cast<std::ptrdiff_t>(count), values_.end());
  values_.resize(values_.size() - count);
  return top;
}

Value Walk::walk(Ref root) {
  size_t base = values_.size();
  std::vector<Frame> stack = {{root}};
  while (!stack.empty()) {
    Ref at = stack.back().ref;
    if (at == ast::kAbsent) throw Bug("a surface node lacks a part");
    Ref child = step(stack.back(), s_.file.nodes[at]);
    if (child == ast::kAbsent)
      stack.pop_back();
    else
      stack.push_back({child});
  }
  if (values_.size() != base + 1) throw Bug("elaboration lost a value");
  return pop_one();
}

Ref Walk::step(Frame& f, const ast::Node& n) {
  switch (n.kind) {
    case Kind::number: values_.push_back(literal_value(a_, n)); return ast::kAbsent;
    case Kind::boolean: values_.push_back(typed_value(a_.boolean(n.text == "true"))); return ast::kAbsent;
    case Kind::name: values_.push_back(name_value(f.ref, n)); return ast::kAbsent;
    case Kind::read:
    case Kind::unary:
    case Kind::binary:
    case Kind::call: return step_children(f, n);
    case Kind::choose: return step_choose(f, n);
    case Kind::let: return step_let(f, n);
    case Kind::reduce: return step_reduce(f, n);
    case Kind::slice:
    case Kind::index:
    case Kind::method:
    case Kind::filled:
    case Kind::range: throw Bug("a view of a program stands in an op");
  }
  throw Bug("unreachable surface node");
}

Ref Walk::step_children(Frame& f, const ast::Node& n) {
  if (n.kind == Kind::call && request_.calls && request_.calls->contains(f.ref)) {
    values_.push_back(tensor_value(request_.calls->at(f.ref), f.ref, n));
    return ast::kAbsent;
  }
  if (n.kind == Kind::call && f.stage == 0) check_callable(n);
  if (f.stage < n.args.size()) return n.args[f.stage++];
  if (n.kind == Kind::read && f.stage == n.args.size() && n.otherwise != ast::kAbsent) {
    ++f.stage;
    return n.otherwise;
  }
  if (n.kind == Kind::read)
    values_.push_back(read_value(f.ref, n));
  else if (n.kind == Kind::call)
    values_.push_back(call_value(f.ref, n));
  else
    values_.push_back(operation_value(n));
  return ast::kAbsent;
}

Ref Walk::step_choose(Frame& f, const ast::Node& n) {
  switch (f.stage++) {
    case 0: return n.args[0];
    case 1:
      f.saved_conditions = conditions_;
      for (Id c : conjuncts(a_, as_condition(a_, values_.back(), s_.file.nodes[n.args[0]].pos, "the condition of if")))
        conditions_ = result_.conditions.push(conditions_, c);
      return n.args[1];
    case 2:
      conditions_ = f.saved_conditions;
      for (Id c : negated_conjuncts(a_, values_[values_.size() - 2].typed)) conditions_ = result_.conditions.push(conditions_, c);
      return n.args[2];
    default: break;
  }
  conditions_ = f.saved_conditions;
  std::vector<Value> v = pop(3);
  values_.push_back(choose_value(a_, v[0], v[1], v[2], n.pos));
  return ast::kAbsent;
}

Ref Walk::step_let(Frame& f, const ast::Node& n) {
  switch (f.stage++) {
    case 0: check_new(n.text, n.pos, "let"); return n.args[0];
    case 1: lets_[n.text] = pop_one(); return n.args[1];
    default: break;
  }
  lets_.erase(n.text);
  return ast::kAbsent;
}

// Stages: begin, end and binding of each axis; the condition; the body.
Ref Walk::step_reduce(Frame& f, const ast::Node& n) {
  size_t count = n.axes.size();
  for (;;) {
    size_t stage = f.stage++;
    if (stage < 3 * count) {
      const ast::Axis& axis = n.axes[stage / 3];
      bool written = axis.end != ast::kAbsent;
      if (stage % 3 == 0 && written) return axis.begin;
      if (stage % 3 == 1 && written) return axis.end;
      if (stage % 3 != 2) continue;
      std::vector<Value> range = written ? pop(2) : std::vector<Value>{};
      open_axis(axis, written ? range_end(range[0], axis.begin) : kNone, written ? range_end(range[1], axis.end) : kNone);
    } else if (stage == 3 * count) {
      f.saved_conditions = conditions_;
      if (n.condition != ast::kAbsent) return n.condition;
    } else if (stage == 3 * count + 1) {
      if (n.condition != ast::kAbsent) {
        Id condition = as_condition(a_, values_.back(), s_.file.nodes[n.condition].pos, "the condition of a reduction");
        for (Id c : conjuncts(a_, condition)) conditions_ = result_.conditions.push(conditions_, c);
      }
      return n.args[0];
    } else {
      conditions_ = f.saved_conditions;
      values_.push_back(finish_reduce(n));
      return ast::kAbsent;
    }
  }
}

Value Walk::finish_reduce(const ast::Node& n) {
  Value body = pop_one();
  Id condition = n.condition == ast::kAbsent ? kNone : pop_one().typed;
  std::vector<AxisRange> axes(n.axes.size());
  for (size_t i = n.axes.size(); i-- > 0;) axes[i] = close_axis();
  if (!lets_.empty()) rename_shadowing(axes, condition, body);
  return reduce_value(a_, n.text, axes, condition, body, n.pos);
}

// A let carries what it names into reductions over axes of the same name. The outer one is renamed, so that what has a name stays
// one node:
//   let m = sum(k: x[k]) in sum(k: x[k] * m)   =>   sum(k_1: x[k_1] * sum(k: x[k]))
void Walk::rename_shadowing(std::vector<AxisRange>& axes, Id& condition, Value& body) {
  std::vector<Id*> parts;
  for (Id* part : {&condition, &body.typed, &body.as_int, &body.as_float})
    if (*part != kNone) parts.push_back(part);
  for (size_t i = 0; i < axes.size(); ++i) {
    const Id axis = axes[i].axis;
    if (std::ranges::none_of(parts, [&](Id* part) { return binds_below(a_, *part, axis); })) continue;
    const Id fresh = unused_axis(a_.name(axis), axes, parts);
    for (Id* part : parts) *part = with_free_axis(a_, *part, axis, fresh);
    for (size_t k = i + 1; k < axes.size(); ++k)
      for (Id* end : {&axes[k].begin, &axes[k].end}) *end = with_free_axis(a_, *end, axis, fresh);
    axes[i].axis = fresh;
  }
}

Id Walk::unused_axis(const std::string& wanted, const std::vector<AxisRange>& axes, const std::vector<Id*>& parts) {
  std::vector<Id> roots;
  for (Id* part : parts) roots.push_back(*part);
  std::vector<Id> taken = all_axes(a_, roots);
  for (const AxisRange& r : axes) taken.push_back(r.axis);
  for (const OpenAxis& open : axes_) taken.push_back(open.range.axis);
  for (int i = 1;; ++i) {
    std::string name = fmt::format("{}_{}", wanted, i);
    if (s_.declared.contains(name) || s_.dims.contains(name)) continue;
    if (Id axis = a_.axis(name); std::ranges::find(taken, axis) == taken.end()) return axis;
  }
}

Id Walk::range_end(const Value& v, Ref ref) {
  Pos pos = s_.file.nodes[ref].pos;
  Id id = a_.to(DType::i64, as_index(a_, v, pos, "the end of a range"));
  if (!tensors_read(a_, id).empty())
    throw Error(
        "a range may use axes, dims and integers, and this one reads a tensor; use a condition, as in sum(k "
        "if k < n[i]: …)",
        pos);
  return id;
}

void Walk::check_new(const std::string& name, Pos pos, const char* what) const {
  auto fail = [&](const std::string& taken) {
    throw Error(fmt::format("{} {} has the name of {}; take a new name", what, name, taken), pos);
  };
  if (auto it = s_.declared.find(name); it != s_.declared.end()) fail("the tensor of " + place(it->second));
  if (s_.dims.contains(name)) fail("a dim");
  if (lets_.contains(name)) fail("a let around it");
  for (const OpenAxis& axis : axes_)
    if (axis.name == name) fail("the axis of " + place(axis.pos) + ", which is in scope");
}

void Walk::open_axis(const ast::Axis& axis, Id begin, Id end) {
  check_new(axis.name, axis.pos, "axis");
  axes_.push_back({axis.name, {a_.axis(axis.name), begin, end}, axis.pos, {}, end != kNone});
}

AxisRange Walk::close_axis() {
  infer(axes_.back());
  AxisRange range = axes_.back().range;
  axes_.pop_back();
  return range;
}

// Whether an axis that has this extent in `read`, whatever that says, has it everywhere.
bool Walk::agrees(const OpenAxis& axis, Id extent, Ref read) const {
  if (axis.given) return s_.same_extent(axis.range.end, extent);
  return std::ranges::all_of(axis.evidence, [&](const Evidence& e) { return e.read == read || s_.same_extent(e.extent, extent); });
}

// z[n,d] where another axis, or two indices in the other order, give all axes one extent each: of all of these, those whose axes are
// named most like the dims that they run over.
std::vector<Walk::Better> Walk::better_indices(const OpenAxis& axis, const Evidence& e, Id wanted) const {
  const ast::Node& read = s_.file.nodes[e.read];
  auto known = s_.tensors.find(read.text);
  if (known == s_.tensors.end() || !agrees(axis, wanted, e.read)) return {};
  const std::vector<Id>& shape = s_.program.tensors[known->second].shape;
  std::vector<std::string> indices;
  for (Ref r : read.args) indices.push_back(ast::print(s_.file, r));
  const size_t rank = std::min(indices.size(), shape.size());
  auto named_alike = [&](const std::vector<std::string>& of) {
    int count = 0;
    for (size_t at = 0; at < rank; ++at)
      count += std::ranges::equal(of[at], text_of(s_, shape[at]), {}, [](unsigned char c) { return std::tolower(c); },
                                  [](unsigned char c) { return std::tolower(c); });
    return count;
  };
  std::vector<Better> found;
  auto found_one = [&](const std::vector<std::string>& better) {
    found.push_back({named_alike(better) - named_alike(indices), fmt::format("{}[{}]", read.text, fmt::join(better, ","))});
  };
  const size_t d = static_cast<size_t>(std::ranges::find(indices, axis.name) - indices.begin());
  if (d >= rank) return {};
  for (const OpenAxis& other : axes_) {
    if (other.name == axis.name || std::ranges::count(indices, other.name) || (other.evidence.empty() && other.range.end == kNone))
      continue;
    if (!agrees(other, shape[d], e.read)) continue;
    std::vector<std::string> better = indices;
    better[d] = other.name;
    found_one(better);
  }
  if (!found.empty()) {  // of several that are as good, none
    std::ranges::stable_sort(found, std::greater{}, &Better::gain);
    if (found.size() > 1 && found[0].gain == found[1].gain) found.clear();
  }
  for (size_t at = 0; at < rank; ++at) {
    auto other = std::ranges::find(axes_, indices[at], &OpenAxis::name);
    if (at == d || other == axes_.end() || !s_.same_extent(shape[at], wanted) || !agrees(*other, shape[d], e.read)) continue;
    std::vector<std::string> better = indices;
    std::swap(better[d], better[at]);
    found_one(better);
  }
  return found;
}

// The extent of the dimensions where the axis stands alone; reads with else count only if there are no others.
void Walk::infer(OpenAxis& axis) {
  if (axis.range.end != kNone) return;
  bool plain = std::ranges::any_of(axis.evidence, [](const Evidence& e) { return !e.with_else; });
  const Evidence* first = nullptr;
  for (const Evidence& e : axis.evidence) {
    if (plain && e.with_else) continue;
    if (!first) {
      first = &e;
      continue;
    }
    if (s_.same_extent(first->extent, e.extent)) continue;
    Pos before = s_.file.nodes[first->read].pos;
    auto once = [&](const Evidence& x) {
      return std::ranges::count_if(s_.file.nodes[x.read].args, [&](Ref r) { return s_.file.nodes[r].text == axis.name; }) == 1;
    };
    std::string advice;
    std::vector<Better> better;
    if (once(e) && once(*first)) {
      better = better_indices(axis, e, first->extent);
      std::ranges::move(better_indices(axis, *first, e.extent), std::back_inserter(better));
    }
    if (auto best = std::ranges::max_element(better, {}, &Better::gain); best != better.end())
      advice = fmt::format("; did you mean {}?", best->text);
    else
      advice = fmt::format("; write its range, as in {} in 0..{}", axis.name, text_of(s_, first->extent));
    throw Error(
        fmt::format("axis {} runs to {} in {}, but to {} in {} ({}){}", axis.name, text_of(s_, e.extent), ast::print(s_.file, e.read),
                    text_of(s_, first->extent), ast::print(s_.file, first->read), place(before), advice),
        s_.file.nodes[e.read].pos);
  }
  if (!first)
    throw Error(fmt::format("axis {} has no range: it stands alone in no index; write one, as in {} in 0..N", axis.name, axis.name),
                axis.pos);
  axis.range.begin = a_.integer(0);
  axis.range.end = first->extent;
}

void Walk::open_left_axes() {
  if (!request_.axes) return;
  for (const ast::Axis& axis : *request_.axes) {
    for (const OpenAxis& other : axes_)
      if (other.name == axis.name)
        throw Error(fmt::format("axis {} stands twice on the left; every left axis is a new one", axis.name), axis.pos);
    if (axis.end == ast::kAbsent) {
      open_axis(axis, kNone, kNone);
      continue;
    }
    Id begin = extent(axis.begin, false, "the range of a left axis");
    Id end = extent(axis.end, false, "the range of a left axis");
    if (!is_constant(a_, begin, 0))
      throw Error(fmt::format("left axis {} begins at {}; the left side is the whole tensor, so its axes begin at 0", axis.name,
                              text_of(s_, begin)),
                  s_.file.nodes[axis.begin].pos);
    s_.require_extent(end, "axis " + axis.name, s_.file.nodes[axis.end].pos);
    open_axis(axis, begin, end);
  }
}

Id Walk::extent(Ref ref, bool new_dims, const char* what) {
  only_dims_ = true;
  new_dims_ = new_dims;
  std::vector<OpenAxis> hidden;
  hidden.swap(axes_);
  Value v = walk(ref);
  axes_.swap(hidden);
  only_dims_ = new_dims_ = false;
  Pos pos = s_.file.nodes[ref].pos;
  Id id = a_.to(DType::i64, as_index(a_, v, pos, what));
  if (!a_[id].free_axes().empty()) throw Error(fmt::format("{} may use integers and dims only", what), pos);
  return id;
}

BodyResult Walk::run() {
  if (request_.whole)
    for (const AxisRange& r : *request_.whole) axes_.push_back({a_.name(r.axis), r, {}, {}});
  open_left_axes();
  Value v = walk(request_.body);
  Pos pos = s_.file.nodes[request_.body].pos;
  result_.body = v.untyped() ? materialise(a_, v, request_.untyped_as.value_or(DType::f32), pos) : v.typed;
  for (OpenAxis& axis : axes_) {
    infer(axis);
    result_.axes.push_back(axis.range);
  }
  return std::move(result_);
}

BodyResult elaborate_body(OpScope& scope, const BodyRequest& request) { return Walk(scope, request).run(); }

Id elaborate_extent(OpScope& scope, ast::Ref ref, bool new_dims, const char* what) {
  BodyRequest request;
  return Walk(scope, request).extent(ref, new_dims, what);
}

}  // namespace xhat

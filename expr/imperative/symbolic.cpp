// Statements: declarations, assignments, writes.
#include "expr/imperative/symbolic.h"

#include <fmt/format.h>

#include <algorithm>

#include "expr/core/conditions.h"

namespace xhat::imperative {

using ast::Kind;
using ast::Statement;

void Symbolic::run(const std::vector<Statement>& statements) {
  for (const Statement& s : statements) statement(s);
}

void Symbolic::statement(const Statement& s) {
  switch (s.kind) {
    case Statement::Kind::dim: {
      if (c_.state.depth > 0) throw Error("a dim is defined outside of loops and branches", s.pos);
      return;  // before all others
    }
    case Statement::Kind::variable: return variable(s);
    case Statement::Kind::assign: return assign(s);
    case Statement::Kind::call: return call(s);
    case Statement::Kind::loop: return loop(s);
    case Statement::Kind::repeat: return repeat(s);
    case Statement::Kind::branch: return branch(s);
    case Statement::Kind::definition: break;
  }
  throw Bug("a definition of an op stands in a program");
}

void Symbolic::check_new_name(const ast::Name& name, const char* what) {
  auto fail = [&](const std::string& taken) {
    throw Error(fmt::format("{} {} has the name of {}; take a new name", what, name.text, taken), name.pos);
  };
  if (auto it = c_.state.names.find(name.text); it != c_.state.names.end()) fail("the tensor of " + place(it->second.pos));
  if (c_.scope.dims.contains(name.text)) fail("a dim");
  if (c_.state.numbers.contains(name.text)) fail("a loop variable");
  for (const LoopVariable& l : c_.state.loops)
    if (l.name == name.text) fail("a loop variable");
}

// e.tensor, which notes what a scalar is decided to hold. (An untyped variable is f32 everywhere: an iteration hands it on as that.)
TensorId Symbolic::scalar_or_tensor(Expression& e, ast::Ref body, std::optional<DType> type, const std::string& name, bool variable) {
  const std::optional<Value> decided = e.decided(body);
  const TensorId t = e.tensor(body, type, name);
  if (decided && !(variable && decided->untyped())) c_.decided.emplace(t, *decided);
  if (!decided && !type && !variable && e.is_number(body)) c_.chosen.insert(t);
  return t;
}

void Symbolic::variable(const Statement& s) {
  const ast::Name& name = s.targets[0];
  check_new_name(name, "variable");
  Expression e(c_);
  e.run_calls(s.body);
  Binding b;
  b.variable = true;
  b.depth = c_.state.depth;
  b.pos = name.pos;
  if (std::optional<View> v = e.view(s.body)) {
    b.view = *v;
  } else {
    const Shape shape = e.shape(s.body);
    const TensorId t = scalar_or_tensor(e, s.body, std::nullopt, name.text, true);
    b.view = c_.whole(c_.new_storage(name.text, c_.program.tensors[t].type, shape, t));
  }
  c_.state.names[name.text] = std::move(b);
}

// The binding that an assignment changes; null for a new local name.
Binding* Symbolic::assignable(const ast::Name& name) {
  auto it = c_.state.names.find(name.text);
  if (it == c_.state.names.end()) {
    check_new_name(name, "name");
    return nullptr;
  }
  Binding& b = it->second;
  if (c_.state.storages[b.view.storage].loop_variable)
    throw Error(fmt::format("{} is a loop variable, and is not assigned", name.text), name.pos);
  if (!b.variable && b.depth < c_.state.depth)
    throw Error(fmt::format("{} is assigned in a loop or branch, and {} has no var; what goes from one iteration to the next, or out of a "
                            "branch, is declared as in var {} = …",
                            name.text, c_.state.storages[b.view.storage].parameter ? "a parameter" : "its declaration at " + place(b.pos),
                            name.text),
                name.pos);
  return &b;
}

void Symbolic::bind_value(const ast::Name& name, const Binding* old, DType type, const Shape& shape, TensorId value) {
  Binding b;
  if (old)
    b = *old;
  else
    b.depth = c_.state.depth, b.pos = name.pos;
  b.view = c_.whole(c_.new_storage(name.text, type, shape, value));
  c_.state.names[name.text] = std::move(b);
}

void Symbolic::rebind(const ast::Name& name, const Binding* old, Expression& e, ast::Ref body) {
  const Shape shape = e.shape(body);
  std::optional<DType> type;
  if (old) {
    const Shape was = old->view.shape();
    bool same = was.size() == shape.size();
    for (size_t d = 0; same && d < was.size(); ++d) same = c_.scope.same_extent(was[d], shape[d]);
    if (!same)
      throw Error(fmt::format("{} has the shape {}, and is assigned {}; a name keeps its shape{}", name.text, shape_text(c_.scope, was),
                              shape_text(c_.scope, shape), shape.empty() ? fmt::format(". {}[…] = e writes all elements", name.text) : ""),
                  node(body).pos);
    type = c_.state.storages[old->view.storage].type;
  }
  const TensorId t = scalar_or_tensor(e, body, type, name.text, old && old->variable);
  bind_value(name, old, c_.program.tensors[t].type, shape, t);
}

bool Symbolic::is_new_axis(const ast::Node& n, const Expression& e) const {
  return n.kind == Kind::range || (n.kind == Kind::name && !e.known(n.text));
}

void Symbolic::assign(const Statement& s) {
  const ast::Node& place = node(s.place);
  if (s.sign == "=" && place.kind == Kind::name) {
    const ast::Name name{place.text, place.pos};
    const Binding* old = assignable(name);
    Expression e(c_);
    e.run_calls(s.body);
    const Binding kept = old ? *old : Binding{};
    return rebind(name, old ? &kept : nullptr, e, s.body);
  }
  if (s.sign == "=" && place.kind == Kind::read && place.otherwise == ast::kAbsent) {
    const Expression e(c_);
    const bool axes = std::ranges::all_of(place.args, [&](ast::Ref r) { return is_new_axis(node(r), e); });
    auto it = c_.state.names.find(place.text);
    if (it == c_.state.names.end() || (axes && place.args.size() == it->second.view.axes.size())) {
      if (!axes && !c_.scope.dims.contains(place.text)) {
        if (c_.words.contains(place.text) && !e.known(place.text))
          for (ast::Ref r : place.args)
            if (!is_new_axis(node(r), e))
              throw Error(
                  fmt::format("{} is not a tensor in scope, so that {} writes into nothing; declare it, as in var {} = zeros f32[…]",
                              place.text, ast::print(c_.file, s.place), place.text),
                  place.pos);
      }
      const Binding* old = assignable({place.text, place.pos});
      const Binding kept = old ? *old : Binding{};
      return define(s, old ? &kept : nullptr);
    }
  }
  write(s);
}

// name[new axes] = e: a new storage.
void Symbolic::define(const Statement& s, const Binding* old) {
  const ast::Node& place = node(s.place);
  Expression e(c_);
  e.run_calls(s.body);
  for (size_t d = 0; d < place.args.size(); ++d) {
    const ast::Node& n = node(place.args[d]);
    Id end = old ? old->view.axes[d].end : kNone;
    if (n.kind == Kind::range) {
      const Id begin = e.number(n.args[0], true, "the range of a left axis");
      const Id written = e.number(n.args[1], true, "the range of a left axis");
      if (!is_constant(a_, begin, 0))
        throw Error(fmt::format("left axis {} begins at {}; such axes begin at 0", n.text, text_of(c_.scope, begin)), n.pos);
      if (old && !c_.scope.same_extent(written, end))
        throw Error(
            fmt::format("{} runs to {}, and dimension {} of {} has extent {}; {}[new axes] = e is a value for all of it. write a view of "
                        "the part, as in {}[0:{}] = e",
                        n.text, text_of(c_.scope, written), d, place.text, text_of(c_.scope, end), place.text, place.text,
                        text_of(c_.scope, written)),
            n.pos);
      if (c_.varies(written))
        c_.require_inside(written, a_.add(written, a_.integer(1)), "the end of axis " + n.text, "the numbers from 0 on", n.pos);
      else
        c_.scope.require_extent(written, "axis " + n.text, n.pos);
      end = written;
    }
    e.bind(n.text, end, n.pos);
  }
  if (const Shape shape = e.shape(s.body); !shape.empty())
    throw Error(fmt::format("the right side of {} is an element, and {} has the shape {}; index it", ast::print(c_.file, s.place),
                            ast::print(c_.file, s.body), shape_text(c_.scope, shape)),
                node(s.body).pos);
  const std::vector<AxisRange> axes = e.bound_ranges();
  std::optional<DType> type;
  if (old) type = c_.state.storages[old->view.storage].type;
  const Id body = e.body(s.body, axes, {}, type, place.text);
  const TensorId t = c_.define(place.text, axes, c_.guarded(body), s.pos);
  Shape shape;
  for (const AxisRange& r : axes) shape.push_back(r.end);
  bind_value({place.text, place.pos}, old, c_.program.tensors[t].type, shape, t);
}

void Symbolic::check_written(const View& v, const std::string& name, Pos pos, bool maybe) {
  for (const View& other : v.others) check_written(other, name, pos, true);
  const Storage& s = c_.state.storages[v.storage];
  if (s.loop_variable) throw Error(fmt::format("{} is a loop variable, and is not assigned", name), pos);
  if (s.parameter && maybe)
    throw Error(
        fmt::format("{} may still name the parameter {} here, by which branch was taken or how often a loop ran, and parameters are never "
                    "written; clone it, as in var {} = clone({})",
                    name, s.name, name, s.name),
        pos);
  if (s.parameter)
    throw Error(
        name == s.name
            ? fmt::format("{} is a parameter, which is never written; clone it, as in var y = clone({}), or declare it inout", name, name)
            : fmt::format(
                  "{} is a view of the parameter {}, which is never written; clone it, as in var {} = clone({}), or declare {} inout", name,
                  s.name, name, s.name, s.name),
        pos);
  const auto [mine, mine_by] = may_be(v.storage);
  for (size_t from : mine)
    if (c_.state.storages[from].parameter) throw Ambiguous{mine_by};
  for (const auto& [other, binding] : c_.state.names)
    for (size_t seen : storages_of(binding.view)) {
      if (mine.contains(seen)) throw Ambiguous{mine_by};
      if (const auto [theirs, by] = may_be(seen); theirs.contains(v.storage)) throw Ambiguous{by};
    }
}

Symbolic::MayBe Symbolic::may_be(size_t storage) const {
  MayBe found;
  std::vector<size_t> stack = {storage};
  while (!stack.empty()) {
    const Storage& at = c_.state.storages[stack.back()];
    stack.pop_back();
    found.by.insert(at.maybe_by.begin(), at.maybe_by.end());
    for (size_t next : at.maybe)
      if (found.storages.insert(next).second) stack.push_back(next);
  }
  return found;
}

std::set<LoopName> Symbolic::unsure(const View& v, const View& old) const {
  const std::vector<size_t> before = storages_of(old);
  std::set<LoopName> by;
  for (size_t storage : storages_of(v)) {
    if (std::ranges::count(before, storage)) continue;
    MayBe its = may_be(storage);
    if (std::ranges::any_of(before, [&](size_t b) { return its.storages.contains(b); })) by.merge(its.by);
  }
  return by;
}

std::vector<size_t> storages_of(const View& v) {
  std::vector<size_t> found = {v.storage};
  for (const View& other : v.others) found.push_back(other.storage);
  return found;
}

ast::Ref Symbolic::root(ast::Ref ref) const {
  while (node(ref).kind == Kind::index || node(ref).kind == Kind::method) ref = node(ref).args[0];
  return ref;
}

// place sign e, where place is a view of a storage, whose elements change.
void Symbolic::write(const Statement& s) {
  const ast::Node& place = node(s.place);
  Expression e(c_);
  e.run_calls(s.body);
  const ast::Node& base = node(root(s.place));
  auto it = c_.state.names.find(base.text);
  if (it == c_.state.names.end()) {
    if (e.known(base.text)) throw Error(fmt::format("{} is no tensor, and is not assigned", base.text), base.pos);
    throw Error(fmt::format("{} is not a tensor in scope; declare it, as in var {} = zeros f32[…]", base.text, base.text), base.pos);
  }
  check_written(it->second.view, base.text, place.pos);
  const bool bracketed = place.kind == Kind::read || place.kind == Kind::index;
  const size_t first = place.kind == Kind::index ? 1 : 0;
  std::vector<std::pair<size_t, Id>> to_check;
  if (bracketed) {
    const Shape shape = place.kind == Kind::index ? e.shape(place.args[0]) : it->second.view.shape();
    for (size_t d = 0; d + first < place.args.size() && d < shape.size(); ++d) {
      const ast::Node& n = node(place.args[d + first]);
      if (!is_new_axis(n, e)) continue;
      Id end = shape[d];
      if (n.kind == Kind::range) {
        if (const Id begin = e.number(n.args[0], false, "the range of a left axis"); !is_constant(a_, begin, 0))
          throw Error(fmt::format("left axis {} begins at {}; such axes begin at 0", n.text, text_of(c_.scope, begin)), n.pos);
        end = e.number(n.args[1], false, "the range of a left axis");
        c_.require_inside(end, a_.add(shape[d], a_.integer(1)), "the end of " + n.text, fmt::format("dimension {} of {}", d, base.text),
                          n.pos);
      }
      e.bind(n.text, end, n.pos);
    }
  }
  std::vector<AxisRange> axes = e.bound_ranges();
  const std::optional<View> v = e.view(s.place);
  if (!v) throw Error(fmt::format("{} is no place; the left side is a name or a view of one", ast::print(c_.file, s.place)), place.pos);
  const Shape shape = v->shape();
  const Shape given = e.shape(s.body);
  bool fits = given.size() <= shape.size();
  for (size_t i = 0; fits && i < given.size(); ++i) {
    const Id extent = given[given.size() - 1 - i];
    fits = is_constant(a_, extent, 1) || c_.scope.same_extent(extent, shape[shape.size() - 1 - i]);
  }
  if (!fits)
    throw Error(fmt::format("{} has the shape {}, and {} has {}, which does not broadcast to it", ast::print(c_.file, s.place),
                            shape_text(c_.scope, shape), ast::print(c_.file, s.body), shape_text(c_.scope, given)),
                node(s.body).pos);
  std::vector<Id> p;
  for (const AxisRange& r : v->axes) p.push_back(r.axis);
  axes.insert(axes.end(), v->axes.begin(), v->axes.end());
  const Storage storage = c_.state.storages[v->storage];
  Id body = kNone;
  if (s.sign == "=") {
    body = e.body(s.body, axes, p, storage.type, base.text);
  } else {
    body = e.updated(s.place, s.sign[0], s.body, axes, p, storage.type, base.text);
  }
  // Each thing that the name may stand for is written where it does.
  Id none = kNone;
  for (size_t k = 0; k <= v->others.size(); ++k) {
    Id here = none;
    if (k < v->others.size()) {
      here = none == kNone ? v->unless[k] : a_.select(none, v->unless[k], a_.boolean(false));
      const Id not_here = negation(a_, v->unless[k]);
      none = none == kNone ? not_here : a_.select(none, not_here, a_.boolean(false));
    }
    if (here != kNone) c_.state.guards.push_back(here), c_.state.conditions.push_back(here);
    put(k < v->others.size() ? v->others[k] : *v, axes, body, base.text, s.pos);
    if (here != kNone) c_.state.guards.pop_back(), c_.state.conditions.pop_back();
  }
}

void Symbolic::put(const View& v, const std::vector<AxisRange>& axes, Id body, const std::string& name, Pos pos) {
  Storage& s = c_.state.storages[v.storage];
  for (const AxisRange& r : axes) {
    const bool stands = std::ranges::any_of(
        v.indices, [&](Id index) { return std::ranges::find(a_[index].free_axes(), r.axis) != a_[index].free_axes().end(); });
    if (!stands && !is_constant(a_, r.end, 1))
      throw Error(
          fmt::format(
              "a write through this view of {} would give an element several values, since .expand repeats it; write what it is a view of",
              name),
          pos);
  }
  for (size_t d = 0; d < v.indices.size(); ++d) {
    const bool moves =
        std::ranges::any_of(axes, [&](const AxisRange& r) { return std::ranges::count(a_[v.indices[d]].free_axes(), r.axis) > 0; });
    if (moves && reads_data(a_, v.indices[d]))
      throw Error(fmt::format("an index of {} depends on data and on an axis, and could name an element twice; use a loop", name), pos);
    if (moves)
      c_.require_inside(v.indices[d], s.shape[d], fmt::format("the index {} of a write", text_of(c_.scope, v.indices[d])),
                        fmt::format("dimension {} of {}, which has extent {}", d, name, text_of(c_.scope, s.shape[d])), pos, axes);
  }
  bool plain = axes.size() == s.shape.size();
  for (size_t d = 0; plain && d < axes.size(); ++d) plain = v.indices[d] == axes[d].axis && c_.scope.same_extent(axes[d].end, s.shape[d]);
  if (plain && c_.state.guards.empty()) {
    std::vector<AxisRange> all = axes;
    for (size_t d = 0; d < all.size(); ++d) all[d].end = s.shape[d];
    const TensorId t = c_.define(s.name, all, body, pos);
    c_.state.storages[v.storage].value = t;
    return;
  }
  // A reduction is a tensor of its own, which is computed once.
  bool reduces = std::ranges::any_of(reachable(a_, body), [&](Id x) { return is_reduction(a_[x].op); });
  for (const AxisRange& r : axes) reduces = reduces && a_[r.end].free_axes().empty();
  if (reduces) {
    const TensorId t = c_.define(s.name, axes, c_.guarded(body), pos);
    std::vector<Id> indices;
    for (const AxisRange& r : axes) indices.push_back(r.axis);
    body = a_.read(t, c_.program.tensors[t].type, indices);
  }
  Write w;
  w.base = s.value;
  w.axes = axes;
  w.indices = v.indices;
  w.body = body;
  w.guard = c_.guard();
  w.pos = pos;
  w.result = c_.new_tensor(s.name, s.type, s.shape);
  c_.state.storages[v.storage].value = w.result;
  c_.items->emplace_back().is = std::move(w);
}

void Symbolic::call(const Statement& s) {
  Expression e(c_);
  std::vector<const Binding*> old;
  std::vector<Binding> kept;
  for (const ast::Name& name : s.targets) {
    const Binding* b = assignable(name);
    kept.push_back(b ? *b : Binding{});
    old.push_back(b);
  }
  const std::vector<Expression::Result> results = e.call(s.body, s.targets.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const Shape& shape = results[i].shape;
    const DType given = c_.program.tensors[results[i].tensor].type;
    if (old[i]) {
      const Shape was = kept[i].view.shape();
      bool same = was.size() == shape.size() && given == c_.state.storages[kept[i].view.storage].type;
      for (size_t d = 0; same && d < was.size(); ++d) same = c_.scope.same_extent(was[d], shape[d]);
      if (!same)
        throw Error(fmt::format("{} is assigned a result of another type or shape, {}{}; a name keeps both", s.targets[i].text,
                                name_of(given), shape_text(c_.scope, shape)),
                    s.targets[i].pos);
    }
    bind_value(s.targets[i], old[i] ? &kept[i] : nullptr, given, shape, results[i].tensor);
  }
}

}  // namespace xhat::imperative

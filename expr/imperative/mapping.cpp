// Views: indices, slices, and the methods that only rename elements.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "expr/core/conditions.h"
#include "expr/imperative/expression.h"
#include "expr/index/affine.h"
#include "expr/index/dims.h"
#include "expr/index/simplify_index.h"

namespace xhat::imperative {

using ast::Kind;
using ast::Ref;

int64_t Expression::constant(Ref ref, const char* what) {
  const Id id = number(ref, false, what);
  if (a_[id].op != Op::constant)
    throw Error(fmt::format("{} is an integer that is known when the program is read, and {} is not; indices may be computed, as in x[k*i]", what,
                            text(ref)), node(ref).pos);
  return a_[id].integer;
}

// A dimension; negative ones count from the last.
size_t Expression::dimension(Ref ref, size_t rank, const char* what) {
  const int64_t given = constant(ref, "a dimension");
  const auto count = static_cast<int64_t>(rank);
  if (given < -count || given >= count)
    throw Error(fmt::format("{} of dimension {}, and there {} {}", what, given, rank == 1 ? "is" : "are", rank), node(ref).pos);
  return static_cast<size_t>(given < 0 ? given + count : given);
}

// Is an index i - w, of a position i and data w, known not to be negative, by `if i >= w`? (It may wrap, but not to what counts from the end.)
bool Expression::difference_is_known(Id index, std::span<const Id> known) const {
  const Node& n = a_[index];
  if (n.op != Op::sub || reads_data(a_, n.arg(0))) return false;
  for (Id condition : known)
    for (Id part : conjuncts(a_, condition)) {
      const Node& c = a_[part];
      if ((c.op == Op::le || c.op == Op::lt) && c.arg(0) == n.arg(1) && c.arg(1) == n.arg(0)) return true;
    }
  return false;
}

// An index of a view. Those of constants and of the run count from the end when negative; those with axes are positions.
Id Expression::index(Ref ref, Id extent, size_t d, const std::string& of) {
  const Pos pos = node(ref).pos;
  auto value = [&](bool decided_names) {
    const bool before = std::exchange(decided_names_, decided_names);
    const Id index = c_.tidy(integer(ref, "an index"));
    decided_names_ = before;
    return index;
  };
  Id id = value(true);
  auto from_end = [&](Id x) { return c_.tidy(a_.add(extent, x)); };
  auto require = [&](Id x) {
    c_.require_inside(x, extent, "index " + text_of(c_.scope, x),
                      fmt::format("dimension {} of {}, which has extent {}", d, of, text_of(c_.scope, extent)), pos);
  };
  if (a_[id].op == Op::constant) {
    const int64_t given = a_[id].integer;
    if (a_[extent].op == Op::constant && (given < -a_[extent].integer || given >= a_[extent].integer))
      throw Error(
          fmt::format(
              "index {} is out of range: dimension {} of {} has extent {}; indices are {} to {}, and negative ones count from the end",
              given, d, of, a_[extent].integer, -a_[extent].integer, a_[extent].integer - 1),
          pos);
    if (given < 0) id = from_end(id);
    require(id);
    return id;
  }
  auto of_the_run = [&](Id x) {
    for (Id axis : a_[x].free_axes())
      if (std::ranges::any_of(axes_, [&](const BoundAxis& b) { return b.range.axis == axis; })) return x;
    return a_.select(a_.binary(Op::lt, x, a_.integer(0)), a_.add(x, extent), x);
  };
  const std::vector<AxisRange> loops = c_.loop_ranges();
  std::vector<AxisRange> around = loops;
  for (const BoundAxis& b : axes_)
    if (b.range.end != kNone) around.push_back(b.range);
  std::vector<Id> known;
  for (Id c : c_.state.conditions) known.push_back(c);
  if (reads_data(a_, id)) {
    const Id negative = a_.binary(Op::lt, id, a_.integer(0));
    return difference_is_known(id, known) || c_.excluded(loops, known, negative) ? id : of_the_run(id);
  }
  auto inside = [&](Id x, std::span<const Id> holds) {
    return c_.implied(around, holds, a_.binary(Op::le, a_.integer(0), x)) && c_.implied(around, holds, a_.binary(Op::lt, x, extent));
  };
  // What a name holds stands for the name where that is inside; else the run looks at it. Without names, positions are checked where they are read,
  // and what is of loop variables and sizes stands where it is inside, else is counted from the end where that is.
  const Id written = c_.decided.empty() ? id : value(false);
  const bool named = written != id && reads_data(a_, written);
  const bool position =
      std::ranges::any_of(a_[id].free_axes(), [&](Id x) { return std::ranges::find(loops, x, &AxisRange::axis) == loops.end(); });
  if ((named || !position) && inside(id, known)) return id;
  if (named) {
    std::vector<Id> with_needs = c_.needs();
    with_needs.insert(with_needs.end(), known.begin(), known.end());
    if (inside(id, with_needs)) return id;
  }
  if (position) return named ? of_the_run(written) : id;
  const Id negative = a_.binary(Op::lt, id, a_.integer(0));
  if (!c_.excluded(loops, known, negative)) {
    const Id wrapped = c_.implied(loops, known, negative) ? from_end(id) : a_.select(negative, from_end(id), id);
    if (inside(wrapped, known)) return wrapped;
    if (loops.empty() || a_[id].free_axes().empty()) id = c_.implied(loops, known, negative) ? wrapped : id;
  }
  if (named) return of_the_run(written);
  require(id);
  return id;
}

Id Expression::slice_end(Ref ref, Id extent, const std::string& of) {
  Id id = number(ref, false, "a bound of a slice");
  const Pos pos = node(ref).pos;
  if (reads_data(a_, id))
    throw Error(fmt::format("a bound of a slice is known before the run, and {} reads a tensor; shapes do not depend on data: add an index to "
                            "it, as in x[k+i], or ask with a condition",
                            text(ref)),
                pos);
  if (a_[id].op == Op::constant) {
    const int64_t given = a_[id].integer;
    if (a_[extent].op == Op::constant && (given < -a_[extent].integer || given > a_[extent].integer))
      throw Error(fmt::format("the bound {} of the slice lies beyond {}, which has extent {} here", given, of, a_[extent].integer), pos);
    if (given < 0) id = c_.tidy(a_.add(extent, id));
  }
  c_.require_inside(id, a_.add(extent, a_.integer(1)), fmt::format("the bound {} of a slice", text(ref)),
                    fmt::format("{}, which has extent {} here", of, text_of(c_.scope, extent)), pos);
  return id;
}

// begin:end:step, the k-th dimension of the view.
AxisRange Expression::slice(Ref ref, Id extent, size_t k, Id& index, const std::string& of) {
  const ast::Node& n = node(ref);
  int64_t step = 1;
  if (n.args[2] != ast::kAbsent) {
    step = constant(n.args[2], "the step of a slice");
    if (step <= 0)
      throw Error(fmt::format("the step of a slice is {}; steps are 1 or more, and flip(axis, a) turns a dimension around", step),
                  node(n.args[2]).pos);
  }
  const Id begin = n.args[0] == ast::kAbsent ? a_.integer(0) : slice_end(n.args[0], extent, of);
  const Id end = n.args[1] == ast::kAbsent ? extent : slice_end(n.args[1], extent, of);
  Id length = c_.tidy(a_.sub(end, begin));
  if (a_[length].op == Op::constant && a_[length].integer < 0)
    throw Error(fmt::format("the slice {} ends before it begins; the smaller bound comes first, and flip(axis, a) turns a dimension around",
                            text(ref)),
                n.pos);
  if (a_[length].free_axes().empty())
    c_.scope.require_extent(length, fmt::format("the slice {} of {}", text(ref), of), n.pos);
  else
    c_.require_inside(length, a_.add(extent, a_.integer(1)), fmt::format("the length of the slice {}", text(ref)), of, n.pos);
  if (step > 1) length = c_.tidy(a_.div(c_.tidy(a_.add(length, a_.integer(step - 1))), a_.integer(step)));
  const Id axis = c_.element_axis(k);
  index = c_.tidy(a_.add(begin, step == 1 ? axis : a_.mul(a_.integer(step), axis)));
  return {axis, a_.integer(0), length};
}

Mapping Expression::brackets(Ref ref, const Shape& base, size_t first) {
  const ast::Node& n = node(ref);
  const std::string of = first == 1 ? text(n.args[0]) : n.text;
  Mapping m;
  for (size_t d = 0; d < base.size(); ++d) {
    const size_t arg = d + first;
    const size_t k = m.axes.size();
    if (arg >= n.args.size()) {
      m.axes.push_back({c_.element_axis(k), a_.integer(0), base[d]});
      m.indices.push_back(m.axes.back().axis);
    } else if (node(n.args[arg]).kind == Kind::slice) {
      Id at = kNone;
      m.axes.push_back(slice(n.args[arg], base[d], k, at, of));
      m.indices.push_back(at);
    } else if (node(n.args[arg]).kind == Kind::range) {
      m.indices.push_back(a_.axis(node(n.args[arg]).text));
    } else if (n.otherwise != ast::kAbsent) {
      m.indices.push_back(integer(n.args[arg], "an index"));
    } else {
      m.indices.push_back(index(n.args[arg], base[d], d, of));
    }
  }
  return m;
}

Mapping Expression::mapping(Ref ref, const ast::Node& n) {
  if (n.kind == Kind::method) return method(n, shape(n.args[0]));
  if (n.kind == Kind::index) return brackets(ref, shape(n.args[0]), 1);
  return brackets(ref, name_shape(n), 0);
}

namespace {

Id product(Arena& a, std::span<const Id> extents) {
  Id all = a.integer(1);
  for (Id e : extents) all = is_constant(a, all, 1) ? e : a.mul(all, e);
  return all;
}

}  // namespace

// Dimensions that are as they were stay so, and between them groups with equally many elements are numbered through.
Mapping Expression::method(const ast::Node& n, const Shape& base) {
  Mapping m;
  auto identity = [&] {
    m.axes = c_.element_axes(base);
    for (const AxisRange& r : m.axes) m.indices.push_back(r.axis);
  };
  auto takes = [&](size_t count, const char* form) {
    if (n.args.size() != count + 1) throw Error(fmt::format(".{} is written {}", n.text, form), n.pos);
  };
  auto numbered = [&] {  // axes by their places
    Replacements to;
    for (size_t k = 0; k < m.axes.size(); ++k) {
      to[m.axes[k].axis] = c_.element_axis(k);
      m.axes[k].axis = c_.element_axis(k);
    }
    for (Id& index : m.indices) index = substitute(a_, index, to);
  };
  if (n.text == "transpose") {
    takes(2, ".transpose(i,j)");
    identity();
    std::swap(m.axes[dimension(n.args[1], base.size(), ".transpose")], m.axes[dimension(n.args[2], base.size(), ".transpose")]);
    numbered();
  } else if (n.text == "squeeze") {
    takes(1, ".squeeze(i)");
    const size_t d = dimension(n.args[1], base.size(), ".squeeze");
    if (!c_.scope.same_extent(base[d], a_.integer(1)))
      throw Error(fmt::format(".squeeze takes away a dimension with extent 1, and dimension {} has {}", d, text_of(c_.scope, base[d])),
                  n.pos);
    identity();
    m.indices[d] = a_.integer(0);
    m.axes.erase(m.axes.begin() + static_cast<std::ptrdiff_t>(d));
    numbered();
  } else if (n.text == "unsqueeze") {
    takes(1, ".unsqueeze(i)");
    const size_t d = dimension(n.args[1], base.size() + 1, ".unsqueeze");
    identity();
    m.axes.insert(m.axes.begin() + static_cast<std::ptrdiff_t>(d), {c_.element_axis(base.size()), a_.integer(0), a_.integer(1)});
    numbered();
  } else if (n.text == "diagonal") {
    takes(0, ".diagonal()");
    if (base.size() < 2) throw Error(".diagonal takes two dimensions or more", n.pos);
    identity();
    const Id extent = base[0] == base[1] ? base[0] : c_.tidy(a_.binary(Op::minimum, base[0], base[1]));
    m.indices[1] = m.indices[0];
    m.axes.push_back({m.axes[0].axis, a_.integer(0), extent});
    m.axes.erase(m.axes.begin(), m.axes.begin() + 2);
    numbered();
  } else {
    Shape to;
    for (size_t i = 1; i < n.args.size(); ++i) {
      to.push_back(number(n.args[i], true, "an extent"));
      if (!a_[to.back()].free_axes().empty() || reads_data(a_, to.back()))
        throw Error(fmt::format("an extent may use integers and dims only, and {} is neither; shapes do not depend on data", text(n.args[i])),
                    node(n.args[i]).pos);
    }
    if (n.text == "expand") {
      if (to.size() < base.size())
        throw Error(fmt::format(".expand to {} of {}, which has more dimensions", shape_text(c_.scope, to), shape_text(c_.scope, base)),
                    n.pos);
      const size_t more = to.size() - base.size();
      for (size_t k = 0; k < to.size(); ++k)
        if (k >= more && is_constant(a_, to[k], -1)) to[k] = base[k - more];
      m.axes = c_.element_axes(to);
      for (size_t d = 0; d < base.size(); ++d) {
        const bool same = c_.scope.same_extent(base[d], to[d + more]);
        if (!same && !is_constant(a_, base[d], 1))
          throw Error(fmt::format(".expand stretches extents of 1, and {} does not become {}", shape_text(c_.scope, base),
                                  shape_text(c_.scope, to)),
                      n.pos);
        m.indices.push_back(same ? m.axes[d + more].axis : a_.integer(0));
      }
    } else {
      reshape(n, base, to, m);
    }
  }
  return m;
}

void Expression::reshape(const ast::Node& n, const Shape& base, Shape& to, Mapping& m) {
  auto wrong = [&] {
    throw Error(fmt::format(".reshape from {} to {}: the numbers of elements differ; one extent may be -1, which stands for what is left",
                            shape_text(c_.scope, base), shape_text(c_.scope, to)),
                n.pos);
  };
  if (std::ranges::count_if(to, [&](Id extent) { return is_constant(a_, extent, -1); }) > 1)
    throw Error(fmt::format(".reshape to {}: -1 is what the other extents leave, and stands once", shape_text(c_.scope, to)), n.pos);
  for (size_t k = 0; k < to.size(); ++k) {
    if (!is_constant(a_, to[k], -1)) continue;
    // What all have in common is left out: [N,4] to [N,2,-1] is 2, whatever N is.
    Shape all = base, others = to;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(k));
    std::erase_if(others, [&](Id extent) {
      auto it = std::ranges::find_if(all, [&](Id x) { return c_.scope.same_extent(x, extent); });
      if (it == all.end()) return false;
      all.erase(it);
      return true;
    });
    const Id left = c_.tidy(product(a_, all)), by = c_.tidy(product(a_, others));
    to[k] = is_constant(a_, by, 1) ? left : c_.tidy(a_.div(left, by));
  }
  m.axes = c_.element_axes(to);
  m.indices.resize(base.size(), a_.integer(0));
  size_t i = 0, j = 0;
  while (i < base.size() || j < to.size()) {
    size_t i_end = i, j_end = j;
    if (i < base.size() && j < to.size() && c_.scope.same_extent(base[i], to[j])) {
      m.indices[i++] = m.axes[j++].axis;
      continue;
    }
    // The least group of equally many elements; all the rest if there is none.
    bool found = false;
    for (size_t total = 1; !found && total <= base.size() - i + to.size() - j; ++total)
      for (size_t x = 0; !found && x <= std::min(total, base.size() - i); ++x) {
        const size_t y = total - x;
        if (y > to.size() - j) continue;
        const Id left = c_.tidy(product(a_, {base.data() + i, x})), right = c_.tidy(product(a_, {to.data() + j, y}));
        found = c_.scope.same_extent(left, right);
        if (found) i_end = i + x, j_end = j + y;
      }
    if (!found) {
      i_end = base.size(), j_end = to.size();
      const Id left = c_.tidy(product(a_, {base.data() + i, i_end - i})), right = c_.tidy(product(a_, {to.data() + j, j_end - j}));
      if (a_[left].op == Op::constant && a_[right].op == Op::constant) wrong();
      c_.scope.require(
          a_.eq(c_.scope.expanded(left), c_.scope.expanded(right)),
          fmt::format(".reshape from {} to {} keeps the number of elements", shape_text(c_.scope, base), shape_text(c_.scope, to)), n.pos);
    }
    Id flat = a_.integer(0);
    for (size_t k = j; k < j_end; ++k) {
      const Id stride = product(a_, {to.data() + k + 1, j_end - k - 1});
      const Id term = is_constant(a_, stride, 1) ? m.axes[k].axis : a_.mul(m.axes[k].axis, c_.tidy(stride));
      flat = is_constant(a_, flat, 0) ? term : a_.add(flat, term);
    }
    for (size_t k = i; k < i_end; ++k) {
      const Id stride = c_.tidy(product(a_, {base.data() + k + 1, i_end - k - 1}));
      Id index = is_constant(a_, stride, 1) ? flat : a_.div(flat, stride);
      if (k > i) index = a_.binary(Op::mod, index, base[k]);
      m.indices[k] = is_constant(a_, base[k], 1) ? a_.integer(0) : fusion::simplified_index(a_, index, m.axes);
    }
    i = i_end, j = j_end;
  }
}

std::optional<View> Expression::view(Ref ref) {
  const ast::Node& n = node(ref);
  std::optional<View> base;
  if (n.kind == Kind::name || n.kind == Kind::read) {
    auto it = c_.state.names.find(n.text);
    if (it == c_.state.names.end() || lets_.contains(n.text) || n.otherwise != ast::kAbsent) return std::nullopt;
    base = it->second.view;
    if (n.kind == Kind::name) return base;
  } else if (n.kind == Kind::index || n.kind == Kind::method) {
    if (n.otherwise != ast::kAbsent) return std::nullopt;
    base = view(n.args[0]);
  }
  if (!base) return std::nullopt;
  shape(ref);
  const Mapping m = mapping(ref, n);
  return composed(*base, m);
}

View Expression::composed(const View& base, const Mapping& m) {
  Replacements to;
  for (size_t k = 0; k < m.indices.size(); ++k) to[base.axes[k].axis] = m.indices[k];
  View v{base.storage, m.axes, {}, base.unless, {}};
  for (Id index : base.indices) {
    Id made = c_.tidy(substitute(a_, index, to));
    if (!reads_data(a_, made)) made = fusion::simplified_index(a_, made, v.axes);
    v.indices.push_back(made);
  }
  for (const View& other : base.others) v.others.push_back(composed(other, m));
  return v;
}

}  // namespace xhat::imperative

#include "expr/eval/memory.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "expr/core/error.h"
#include "expr/core/scalar.h"

namespace xhat::memory {
namespace {

size_t dimension_of(const View& v, int64_t i) {
  const auto rank = static_cast<int64_t>(v.rank());
  if (i < -rank || i >= rank) throw Error(fmt::format("there is no dimension {} of a tensor with {} dimensions", i, rank));
  return static_cast<size_t>(i < 0 ? i + rank : i);
}

}  // namespace

View fresh(DType type, std::vector<int64_t> shape) { return of(zeros(type, std::move(shape))); }

View of(Array a) {
  View v;
  v.shape = a.shape;
  v.places.resize(a.size());
  std::iota(v.places.begin(), v.places.end(), size_t{0});
  v.memory = std::make_shared<Array>(std::move(a));
  return v;
}

View scalar_view(DType type, double value) { return of(scalar_of(type, value)); }
View integer_view(int64_t value) {
  Array a = zeros(DType::i64, {});
  a.integers[0] = value;
  return of(std::move(a));
}
View boolean_view(bool value) { return of(scalar_of(DType::boolean, value)); }

View weak_view(double value) {
  View made = scalar_view(DType::f64, value);
  made.weak = true;
  return made;
}

View literal(const std::string& text, bool integers) {
  if (integers && text.find_first_of(".eEn") == std::string::npos) return integer_view(std::stoll(text));
  if (text == "inf") return weak_view(std::numeric_limits<double>::infinity());
  if (text == "nan") return weak_view(std::numeric_limits<double>::quiet_NaN());
  return weak_view(std::stod(text));
}

int64_t integer_of(const View& v) {
  if (!v.is_scalar()) throw Error("an index or a bound must be a scalar, not a tensor of shape " + shape_text(v.shape));
  return v.memory->real() ? static_cast<int64_t>(v.memory->reals[v.places[0]]) : v.memory->integers[v.places[0]];
}

Array array_of(const View& v) {
  Array a = zeros(v.type(), v.shape);
  for (size_t i = 0; i < v.places.size(); ++i) {
    if (a.real())
      a.reals[i] = v.memory->reals[v.places[i]];
    else
      a.integers[i] = v.memory->integers[v.places[i]];
  }
  return a;
}

View to_type(const View& v, DType type) {
  View made = v;
  made.weak = false;
  if (v.type() == type) return made;
  made = fresh(type, v.shape);
  for (size_t i = 0; i < v.places.size(); ++i) {
    const size_t at = v.places[i];
    if (made.memory->real())
      made.memory->reals[i] = v.memory->real() ? v.memory->reals[at] : static_cast<double>(v.memory->integers[at]);
    else
      made.memory->integers[i] = v.memory->real() ? integer_from(type, v.memory->reals[at]) : integer_from(type, v.memory->integers[at]);
  }
  return made;
}

void to_common_type(View& a, View& b) {
  if (a.type() == b.type()) return;
  if (a.weak && !b.weak) return void(a = to_type(a, b.type()));
  if (b.weak && !a.weak) return void(b = to_type(b, a.type()));
  const auto common = promote(a.type(), b.type());
  if (!common) throw Error(fmt::format("{} beside {} needs a cast", name_of(a.type()), name_of(b.type())));
  const bool weak = a.weak && b.weak;
  a = to_type(a, *common);
  b = to_type(b, *common);
  a.weak = b.weak = weak;
}

namespace {

// The view of that shape whose element at a position is v's at from(position).
View gathered(const View& v, std::vector<int64_t> shape, const std::function<std::vector<int64_t>(const std::vector<int64_t>&)>& from) {
  View r = v;
  r.shape = std::move(shape);
  r.places.resize(static_cast<size_t>(element_count(r.shape)));
  for (size_t i = 0; i < r.places.size(); ++i) {
    const std::vector<int64_t> at = from(position_of(i, r.shape));
    int64_t place = 0;
    for (size_t d = 0; d < at.size(); ++d) place = place * v.shape[d] + at[d];
    r.places[i] = v.places[static_cast<size_t>(place)];
  }
  return r;
}

}  // namespace

View selected(const View& v, size_t d, int64_t index) {
  if (d >= v.rank()) throw Error(fmt::format("{} indices, but {} dimensions", d + 1, v.rank()));
  const int64_t at = index < 0 ? index + v.shape[d] : index;
  if (at < 0 || at >= v.shape[d])
    throw Error(fmt::format("index {} is outside of dimension {}, which has extent {}", index, d, v.shape[d]));
  std::vector<int64_t> shape = v.shape;
  const auto place = static_cast<std::ptrdiff_t>(d);
  shape.erase(shape.begin() + place);
  return gathered(v, shape, [&](std::vector<int64_t> p) { return p.insert(p.begin() + place, at), p; });
}

View sliced(const View& v, size_t d, std::optional<int64_t> begin, std::optional<int64_t> end, int64_t step) {
  if (d >= v.rank()) throw Error(fmt::format("{} indices, but {} dimensions", d + 1, v.rank()));
  if (step < 1) throw Error("the step of a slice must be positive");
  const int64_t extent = v.shape[d];
  auto bound = [&](std::optional<int64_t> b, int64_t otherwise) {
    const int64_t at = !b ? otherwise : *b < 0 ? *b + extent : *b;
    if (at < 0 || at > extent)
      throw Error(fmt::format("a slice's bound {} is outside of dimension {}, which has extent {}", *b, d, extent));
    return at;
  };
  const int64_t first = bound(begin, 0), last = bound(end, extent);
  std::vector<int64_t> shape = v.shape;
  shape[d] = std::max<int64_t>(0, (last - first + step - 1) / step);
  return gathered(v, shape, [&](std::vector<int64_t> p) { return p[d] = first + p[d] * step, p; });
}

View transposed(const View& v, int64_t i, int64_t j) {
  const size_t a = dimension_of(v, i), b = dimension_of(v, j);
  std::vector<int64_t> shape = v.shape;
  std::swap(shape[a], shape[b]);
  return gathered(v, shape, [&](std::vector<int64_t> p) { return std::swap(p[a], p[b]), p; });
}

Op infix(const std::string& sign) {
  for (int i = 0; i < kOpCount; ++i)
    if (const auto op = static_cast<Op>(i); info(op).syntax == Syntax::infix && info(op).text == sign) return op;
  throw Bug("there is no operator " + sign);
}

View element(const View& v, size_t position) {
  View one = v;
  one.shape.clear();
  one.places = {v.places[position]};
  return one;
}

View squeezed(const View& v, int64_t i) {
  const size_t d = dimension_of(v, i);
  if (v.shape[d] != 1) throw Error(fmt::format("dimension {} has extent {}, not 1", i, v.shape[d]));
  return selected(v, d, 0);
}

View unsqueezed(const View& v, int64_t i) {
  const auto rank = static_cast<int64_t>(v.rank());
  if (i < -rank - 1 || i > rank) throw Error(fmt::format("there is no place {} for a dimension among {}", i, rank));
  View r = v;
  r.shape.insert(r.shape.begin() + (i < 0 ? i + rank + 1 : i), 1);
  return r;
}

View expanded(const View& v, std::vector<int64_t> shape) {
  auto refuse = [&] { throw Error("a tensor of shape " + shape_text(v.shape) + " does not expand to " + shape_text(shape)); };
  if (shape.size() < v.rank()) refuse();
  const size_t more = shape.size() - v.rank();
  for (size_t d = 0; d < v.rank(); ++d)
    if (shape[more + d] == -1) shape[more + d] = v.shape[d];
  for (size_t d = 0; d < v.rank(); ++d)
    if (v.shape[d] != shape[more + d] && v.shape[d] != 1) refuse();
  return gathered(v, shape, [&](std::vector<int64_t> p) {
    p.erase(p.begin(), p.begin() + static_cast<std::ptrdiff_t>(more));
    for (size_t d = 0; d < p.size(); ++d)
      if (v.shape[d] == 1) p[d] = 0;
    return p;
  });
}

View diagonal(const View& v) {
  if (v.rank() < 2) throw Error("a diagonal needs two dimensions");
  std::vector<int64_t> shape(v.shape.begin() + 2, v.shape.end());
  shape.push_back(std::min(v.shape[0], v.shape[1]));
  return gathered(v, shape, [&](std::vector<int64_t> p) {
    p.insert(p.begin(), 2, p.back());
    p.pop_back();
    return p;
  });
}

View reshaped(const View& v, std::vector<int64_t> shape) {
  for (int64_t& extent : shape)
    if (extent == -1) {
      const int64_t others = -element_count(shape);
      extent = others == 0 ? 0 : static_cast<int64_t>(v.elements()) / others;
    }
  if (element_count(shape) != v.elements()) throw Error(fmt::format("{} elements do not reshape to {}", v.elements(), shape_text(shape)));
  View r = v;
  r.shape = shape;
  return r;
}

std::vector<int64_t> broadcast_shape(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  std::vector<int64_t> shape(std::max(a.size(), b.size()));
  for (size_t k = 0; k < shape.size(); ++k) {
    const int64_t x = k < a.size() ? a[a.size() - 1 - k] : 1, y = k < b.size() ? b[b.size() - 1 - k] : 1;
    if (x != y && x != 1 && y != 1) throw Error("shapes " + shape_text(a) + " and " + shape_text(b) + " do not go together");
    shape[shape.size() - 1 - k] = x == 1 ? y : x;
  }
  return shape;
}

View apply(Op op, std::vector<View> operands) {
  const ScalarOp& f = scalar(op);
  for (size_t k = 1; k < operands.size(); ++k) to_common_type(operands[0], operands[k]);
  for (size_t k = 1; k < operands.size(); ++k) to_common_type(operands[0], operands[k]);  // what the later ones settled
  std::vector<int64_t> shape;
  for (const View& v : operands) shape = broadcast_shape(shape, v.shape);
  bool weak = true;
  for (const View& v : operands) weak &= v.weak;
  const TypeRule rule = info(op).type;
  const bool tests = rule == TypeRule::compare || rule == TypeRule::classify || rule == TypeRule::logic;
  const bool real = operands[0].memory->real();
  if (rule == TypeRule::same_float && !real) throw Error(std::string(info(op).text) + " takes floats");
  if (rule == TypeRule::whole && !is_integer(operands[0].type())) throw Error(std::string(info(op).text) + " takes integers");
  View made = fresh(tests ? DType::boolean : op == Op::random ? DType::f32 : operands[0].type(), shape);
  made.weak = weak && !tests;
  for (View& v : operands) v = expanded(v, shape);
  for (size_t i = 0; i < made.memory->size(); ++i) {
    double reals[3] = {};
    int64_t integers[3] = {};
    for (size_t k = 0; k < operands.size(); ++k) {
      if (operands[k].memory->real())
        reals[k] = operands[k].memory->reals[operands[k].places[i]];
      else
        integers[k] = operands[k].memory->integers[operands[k].places[i]];
    }
    if (made.memory->real())
      made.memory->reals[i] = real ? f.reals.at(reals) : f.draws.at(integers);
    else if (real)
      made.memory->integers[i] = f.tests.at(reals);
    else
      made.memory->integers[i] = tests ? f.integers.at(integers) : integer_from(made.type(), f.integers.at(integers));
  }
  return made;
}

View at_each_point(DType type, const std::vector<View>& operands, const std::function<View(const std::vector<View>&)>& function) {
  std::vector<int64_t> shape;
  for (const View& v : operands) shape = broadcast_shape(shape, v.shape);
  const View made = fresh(type, shape);
  for (size_t i = 0; i < made.places.size(); ++i) {
    std::vector<View> numbers;
    for (const View& v : operands) numbers.push_back(element(expanded(v, shape), i));
    write(element(made, i), function(numbers));
  }
  return made;
}

View choose(const View& condition, const View& then_in, const View& otherwise_in) {
  View then = then_in, otherwise = otherwise_in;
  to_common_type(then, otherwise);
  const std::vector<int64_t> shape = broadcast_shape(condition.shape, broadcast_shape(then.shape, otherwise.shape));
  View made = of(array_of(expanded(otherwise, shape)));
  made.weak = then.weak && otherwise.weak;
  then = expanded(then, shape);
  const View c = expanded(condition, shape);
  for (size_t i = 0; i < c.places.size(); ++i) {
    if (!c.memory->integers[c.places[i]]) continue;
    if (made.memory->real())
      made.memory->reals[i] = then.memory->reals[then.places[i]];
    else
      made.memory->integers[i] = then.memory->integers[then.places[i]];
  }
  return made;
}

namespace {

View extreme(const std::string& reduction, const std::vector<View>& values, int64_t first) {
  if (values.empty()) throw Error(reduction + " over nothing");
  auto number = [](const View& v) { return v.memory->at(v.places[0]); };
  size_t best = 0;
  for (size_t i = 1; i < values.size() && !std::isnan(number(values[best])); ++i) {
    const double here = number(values[i]), there = number(values[best]);
    if (std::isnan(here) || (reduction == "argmax" ? here > there : here < there)) best = i;
  }
  return integer_view(first + static_cast<int64_t>(best));
}

}  // namespace

View reduced(const std::string& reduction, const std::vector<View>& values, int64_t first, std::optional<DType> of_none) {
  if (reduction == "argmax" || reduction == "argmin") return extreme(reduction, values, first);
  const bool mean = reduction == "mean";
  const Op op = *reduction_named(mean ? "sum" : reduction);
  const Op step = op == Op::prod  ? Op::mul
                  : op == Op::max ? Op::maximum
                  : op == Op::min ? Op::minimum
                  : op == Op::any ? Op::lor
                  : op == Op::all ? Op::land
                                  : Op::add;
  DType type = values.empty() ? (op == Op::any || op == Op::all ? DType::boolean : DType::f64) : values[0].type();
  if (of_none && is_integer(*of_none) && (op == Op::sum || op == Op::prod)) type = *of_none;
  if (is_integer(type) && (op == Op::sum || op == Op::prod)) type = DType::i64;
  View total = is_float(type) ? scalar_view(type, identity_of(op)) : to_type(integer_view(identity_of(op, type)), type);
  for (const View& v : values) total = apply(step, {total, to_type(v, type)});
  total.weak = values.empty() ? is_float(type) : values[0].weak;
  if (!mean) return total;
  View count = scalar_view(type, static_cast<double>(values.size()));
  count.weak = true;
  return apply(Op::div, {total, count});
}

View concatenated(size_t d, const std::vector<View>& parts) {
  std::vector<int64_t> shape = parts[0].shape;
  shape.at(d) = 0;
  for (const View& p : parts) shape[d] += p.shape.at(d);
  View made = fresh(parts[0].type(), shape);
  int64_t begin = 0;
  for (const View& p : parts) {
    write(sliced(made, d, begin, begin + p.shape[d], 1), p);
    begin += p.shape[d];
  }
  return made;
}

View flipped(const View& v, size_t d) {
  return gathered(v, v.shape, [&](std::vector<int64_t> p) { return p[d] = v.shape[d] - 1 - p[d], p; });
}

View rolled(const View& v, size_t d, int64_t by) {
  const int64_t extent = v.shape.at(d);
  return gathered(v, v.shape, [&](std::vector<int64_t> p) { return p[d] = ((p[d] - by) % extent + extent) % extent, p; });
}

void write(const View& to, const View& from) {
  if (!from.weak && is_float(from.type()) != is_float(to.type()))
    throw Error(fmt::format("{} goes into {}: cast it", name_of(from.type()), name_of(to.type())));
  const Array values = array_of(expanded(to_type(from, to.type()), to.shape));
  for (size_t i = 0; i < to.places.size(); ++i) {
    if (values.real())
      to.memory->reals[to.places[i]] = values.reals[i];
    else
      to.memory->integers[to.places[i]] = values.integers[i];
  }
}

}  // namespace xhat::memory

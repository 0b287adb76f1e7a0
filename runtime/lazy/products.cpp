// Products of arrays (einsum, matmul, conv), windows, and ops of the language as nodes.
#include <fmt/format.h>

#include <map>
#include <mutex>

#include "expr/index/dims.h"
#include "runtime/lazy/functions.h"
#include "runtime/lazy/kept.h"
#include "runtime/lazy/state.h"

namespace xhat::lazy {

using namespace detail;

namespace {

using Letters = std::vector<int64_t>;

// sum over the letters that the result lacks of the product of the operands.
NodePtr contraction(NodeList operands, const Letters& result, const std::vector<Letters>& letters, const Site& site) {
  std::optional<DType> type;
  for (const NodePtr& n : operands) {
    const auto both = type ? promote(*type, n->type) : n->type;
    if (!both) fail(site, fmt::format("operands of type {} and {}; cast one", name_of(*type), name_of(n->type)));
    type = both;
  }
  if (*type == DType::boolean || is_integer(*type)) type = DType::i64;  // as sums of integers are
  std::map<int64_t, int64_t> extents;
  for (size_t o = 0; o < operands.size(); ++o)
    for (size_t d = 0; d < letters[o].size(); ++d) {
      int64_t& extent = extents.try_emplace(letters[o][d], 1).first->second;
      const int64_t here = operands[o]->shape[d];
      if (extent != 1 && here != 1 && extent != here) {
        std::string shapes;
        for (const NodePtr& n : operands) shapes += (shapes.empty() ? "" : " and ") + text(n->shape);
        fail(site, fmt::format("shapes {} do not fit: {} and {} must be equal", shapes, extent, here));
      }
      if (here != 1) extent = here;
    }
  Shape shape;
  Params params = {static_cast<int64_t>(result.size())};
  for (int64_t l : result) {
    if (!extents.contains(l)) fail(site, "the result has a letter that no operand has");
    shape.push_back(extents[l]);
    params.push_back(l);
  }
  for (const Letters& of : letters) {
    params.push_back(static_cast<int64_t>(of.size()));
    params.append(of);
  }
  for (NodePtr& n : operands) n = cast_node(n, *type);
  return make(Kind::contract, *type, shape, std::move(operands), std::move(params));
}

struct Subscripts {
  std::vector<std::string> operands;
  std::optional<std::string> result;
};

Subscripts read_subscripts(const std::string& all) {
  Subscripts s;
  std::string current;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == ' ') continue;
    if (all[i] == ',')
      s.operands.push_back(std::exchange(current, ""));
    else if (all[i] == '-' && i + 1 < all.size() && all[i + 1] == '>') {
      s.operands.push_back(std::exchange(current, ""));
      s.result = "";
      ++i;
    } else {
      current += all[i];
    }
  }
  if (s.result)
    s.result = current;
  else
    s.operands.push_back(current);
  return s;
}

// Letters of one operand; "..." stands for its other dimensions, which are numbered from the last: -1, -2, …
Letters letters_of(const std::string& written, size_t rank, const std::string& all, const Site& site) {
  const size_t dots = written.find("...");
  const size_t named = dots == written.npos ? written.size() : written.size() - 3;
  if (named > rank || (dots == written.npos && named != rank))
    fail(site, fmt::format("'{}' of \"{}\" names {} dimensions of an operand that has {}", written, all, named, rank));
  Letters letters;
  for (size_t i = 0; i < written.size(); ++i) {
    if (i == dots) {
      for (size_t k = rank - named; k > 0; --k) letters.push_back(-static_cast<int64_t>(k));
      i += 2;
    } else if (std::isalpha(static_cast<unsigned char>(written[i]))) {
      letters.push_back(written[i]);
    } else {
      fail(site, fmt::format("'{}' in \"{}\" is no letter", written[i], all));
    }
  }
  return letters;
}

int64_t of_dimension(const std::vector<int64_t>& given, size_t d, const Site& site, size_t rank) {
  if (given.size() != 1 && given.size() != rank) fail(site, fmt::format("{} numbers for {} spatial dimensions", given.size(), rank));
  return given.size() == 1 ? given[0] : given[d];
}

int64_t positions(int64_t extent, int64_t size, int64_t stride, int64_t padding, int64_t dilation, const Site& site,
                  const std::string& what) {
  if (size < 1 || stride < 1 || dilation < 1 || padding < 0) fail(site, "sizes, strides and dilations are at least 1, padding at least 0");
  const int64_t room = extent + 2 * padding - dilation * (size - 1) - 1;
  if (room < 0) fail(site, what + ": the window is larger than the padded array");
  return room / stride + 1;
}

// One copy of each op that is applied, so that the same op is the same in the structure of a graph. Passes and copies share arenas, in
// which equal bodies have equal ids.
std::shared_ptr<const Program> interned(const Program& program) {
  static auto* mutex = new std::mutex;
  static auto* known = new std::multimap<const Arena*, std::shared_ptr<const Program>>;
  auto same_region = [](const Region& p, const Region& q) {
    return std::ranges::equal(p.definitions, q.definitions, [](const Definition& a, const Definition& b) {
      return a.targets == b.targets && a.body == b.body && a.callee == b.callee && a.axes == b.axes;
    });
  };
  auto same = [&](const Program& other) {
    return other.inputs == program.inputs && other.outputs == program.outputs && other.steps == program.steps &&
           other.custom_gradient == program.custom_gradient && other.gradients == program.gradients &&
           same_region(other.forward, program.forward) && same_region(other.backward, program.backward);
  };
  std::lock_guard lock(*mutex);
  for (auto [it, end] = known->equal_range(program.arena.get()); it != end; ++it)
    if (same(*it->second)) return it->second;
  return known->emplace(program.arena.get(), std::make_shared<const Program>(program))->second;
}

}  // namespace

Array einsum(const std::string& subscripts, const std::vector<Array>& operands, const Location& at) {
  const Site site{"einsum", at};
  const Subscripts s = read_subscripts(subscripts);
  if (s.operands.size() != operands.size())
    fail(site, fmt::format("\"{}\" has {} operands, and {} were given", subscripts, s.operands.size(), operands.size()));
  NodeList nodes;
  std::vector<Letters> letters;
  std::map<int64_t, int> uses;
  size_t dots = 0;
  for (size_t o = 0; o < operands.size(); ++o) {
    nodes.push_back(node_of(operands[o]));
    letters.push_back(letters_of(s.operands[o], nodes[o]->shape.size(), subscripts, site));
    for (int64_t l : letters[o]) ++uses[l];
    dots = std::max(dots, static_cast<size_t>(std::ranges::count_if(letters[o], [](int64_t l) { return l < 0; })));
  }
  Letters result;
  if (s.result) {
    const bool has_dots = s.result->find("...") != std::string::npos;
    result = letters_of(*s.result, has_dots ? s.result->size() - 3 + dots : s.result->size(), subscripts, site);
  } else {
    for (auto [l, count] : uses)
      if (l < 0 || count == 1) result.push_back(l);
  }
  return of_node(contraction(std::move(nodes), result, letters, site));
}

Array matmul(const Array& a, const Array& b, const Location& at) {
  const Site site{"matmul", at};
  const NodePtr &x = node_of(a), &y = node_of(b);
  const size_t m = x->shape.size(), n = y->shape.size();
  if (m == 0 || n == 0) fail(site, fmt::format("shapes {} and {}: a single number has no rows", text(x->shape), text(y->shape)));
  const int64_t inner = y->shape[n == 1 ? 0 : n - 2];
  if (x->shape[m - 1] != inner)
    fail(site, fmt::format("shapes {} and {} do not fit: {} columns and {} rows", text(x->shape), text(y->shape), x->shape[m - 1], inner));
  const int64_t row = 'i', sum = 'k', column = 'j';
  Letters of_x, of_y, result;
  for (size_t d = m; d-- > 2;) of_x.push_back(-static_cast<int64_t>(d - 1));
  for (size_t d = n; d-- > 2;) of_y.push_back(-static_cast<int64_t>(d - 1));
  result = of_x.size() > of_y.size() ? of_x : of_y;
  if (m > 1) of_x.push_back(row), result.push_back(row);
  of_x.push_back(sum);
  of_y.push_back(sum);
  if (n > 1) of_y.push_back(column), result.push_back(column);
  return of_node(contraction({x, y}, result, {of_x, of_y}, site));
}

Array conv(const Array& array, const Array& weights, const ConvOptions& options, const Location& at) {
  const Site site{"conv", at};
  NodePtr x = node_of(array), w = node_of(weights);
  const Shape &xs = x->shape, &ws = w->shape;
  const std::string shapes = fmt::format("shapes {} and {}", text(xs), text(ws));
  if (xs.size() < 3 || xs.size() != ws.size())
    fail(site, shapes + ": wanted are x[n, channels, ...] and w[out, channels / groups, ...] of one rank");
  const int64_t groups = options.groups;
  if (groups < 1 || xs[1] != ws[1] * groups || ws[0] % groups != 0)
    fail(site, fmt::format("{}: {} channels in {} groups, and weights for {} channels", shapes, xs[1], groups, ws[1]));
  Shape shape = {xs[0], ws[0]};
  Params params = {groups};
  const size_t spatial = xs.size() - 2;
  for (size_t d = 0; d < spatial; ++d) {
    const int64_t stride = of_dimension(options.stride, d, site, spatial), padding = of_dimension(options.padding, d, site, spatial),
                  dilation = of_dimension(options.dilation, d, site, spatial);
    shape.push_back(positions(xs[d + 2], ws[d + 2], stride, padding, dilation, site, shapes));
    params.append(std::initializer_list<int64_t>{stride, padding, dilation});
  }
  const auto type = promote(x->type, w->type);
  if (!type || !is_float(*type))
    fail(site, fmt::format("operands of type {} and {}; floats are needed", name_of(x->type), name_of(w->type)));
  return of_node(make(Kind::conv, *type, shape, {cast_node(x, *type), cast_node(w, *type)}, params));
}

Array pool(const Array& array, const std::vector<int64_t>& size, Pool kind, const PoolOptions& options, const Location& at) {
  const Site site{"pool", at};
  NodePtr x = node_of(array);
  if (size.empty() || size.size() > x->shape.size())
    fail(site, fmt::format("a window of {} dimensions for shape {}", size.size(), text(x->shape)));
  if ((kind == Pool::mean || kind == Pool::sum) && !is_float(x->type)) x = cast_node(x, kind == Pool::mean ? DType::f32 : DType::i64);
  Shape shape = x->shape;
  Params params;
  double elements = 1;
  const size_t first = shape.size() - size.size();
  for (size_t d = 0; d < size.size(); ++d) {
    const int64_t stride = options.stride.empty() ? size[d] : of_dimension(options.stride, d, site, size.size());
    const int64_t padding = of_dimension(options.padding, d, site, size.size()),
                  dilation = of_dimension(options.dilation, d, site, size.size());
    shape[first + d] = positions(shape[first + d], size[d], stride, padding, dilation, site, "shape " + text(x->shape));
    params.append(std::initializer_list<int64_t>{size[d], stride, padding, dilation});
    elements *= static_cast<double>(size[d]);
  }
  NodePtr n = make(Kind::window, x->type, shape, {x}, params);
  n->op = kind == Pool::max ? Op::max : kind == Pool::min ? Op::min : Op::sum;
  if (kind == Pool::mean) n = elementwise(Op::div, {n, constant(x->type, elements)}, site);
  return of_node(n);
}

std::vector<Array> apply_all(const Program& program, const std::vector<Array>& arguments, const Location& at) {
  const Site site{program.name.c_str(), at};
  if (program.inputs.size() != arguments.size())
    fail(site, fmt::format("the op has {} parameters, and {} arrays were given", program.inputs.size(), arguments.size()));
  Shapes shapes;
  NodeList nodes;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Tensor& t = program.tensor(program.inputs[i]);
    NodePtr n = node_of(arguments[i]);
    if (n->weak) n = cast_node(n, t.type);
    if (n->type != t.type || n->shape.size() != t.shape.size())
      fail(site, fmt::format("{} is {} of {} dimensions, and was given {}{}", t.name, name_of(t.type), t.shape.size(), name_of(n->type),
                             text(n->shape)));
    shapes[t.name] = n->shape.vector();
    nodes.push_back(std::move(n));
  }
  DimValues dims;
  try {
    dims = solve_dims(program, shapes);
  } catch (const Error& e) {
    fail(site, e.message());
  }
  const auto shared = interned(program);
  std::vector<Array> results;
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const TensorId t = program.outputs[i];
    NodePtr n = make(Kind::call, program.tensor(t).type, shape_of(program, t, dims), nodes, {static_cast<int64_t>(i)});
    n->program = shared;
    results.push_back(of_node(n));
  }
  return results;
}

Array apply(const Program& program, const std::vector<Array>& arguments, const Location& at) {
  std::vector<Array> results = apply_all(program, arguments, at);
  if (results.size() != 1) fail({program.name.c_str(), at}, fmt::format("the op has {} outputs; apply_all() gives them", results.size()));
  return results[0];
}

std::vector<Array> grad(const Array& loss, std::span<const Array> wrt, const Location& at) {
  const Site site{"grad", at};
  const NodePtr& n = node_of(loss);
  if (n->shape.elements() != 1 || !is_float(n->type))
    fail(site,
         fmt::format("a derivative is of one float number, and this is {}{}; sum() makes one of many", name_of(n->type), text(n->shape)));
  std::vector<Array> results;
  for (const Array& x : wrt) {
    const NodePtr& by = node_of(x);
    if (!is_float(by->type)) fail(site, fmt::format("there is no derivative by {}{}", name_of(by->type), text(by->shape)));
    n->is_loss = true;
    NodePtr g = make(Kind::grad, by->type, by->shape, {n, by});
    remember_derivative(g);
    results.push_back(of_node(std::move(g)));
  }
  return results;
}

}  // namespace xhat::lazy

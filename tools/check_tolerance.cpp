#include "tools/check_tolerance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "expr/core/steps.h"
#include "expr/index/steps_blocks.h"

namespace xhat::tool {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double coarsest_epsilon(const Program& p, Id root, const std::map<TensorId, double>& of_tensors) {
  const Arena& a = *p.arena;
  double coarsest = 0;
  std::vector<Id> stack = {root};
  std::map<Id, bool> seen;
  while (!stack.empty()) {
    const Id id = stack.back();
    stack.pop_back();
    const Node& n = a[id];
    if (!is_float(n.type) || seen.contains(id)) continue;
    seen[id] = true;
    if (is_read(n.op)) {
      if (auto t = of_tensors.find(n.symbol); t != of_tensors.end()) coarsest = std::max(coarsest, t->second);
    } else if (n.op != Op::constant) {
      coarsest = std::max(coarsest, epsilon_of(n.type));
    }
    for (Id x : n.args()) stack.push_back(x);
  }
  return coarsest;
}

}  // namespace

double epsilon_of(DType t) {
  switch (t) {
    case DType::f64: return 0x1p-52;
    case DType::f32: return 0x1p-23;
    case DType::f16: return 0x1p-10;
    case DType::bf16: return 0x1p-7;
    case DType::i64:
    case DType::i32:
    case DType::u32:
    case DType::u8:
    case DType::boolean: return 0;
  }
  throw Bug("unknown dtype");
}

double tolerance(double epsilon, int64_t length) {
  const double computed = std::min(epsilon, epsilon_of(DType::f32));
  return kOperations * computed * std::sqrt(static_cast<double>(length)) + (epsilon > computed ? kStored * epsilon : 0);
}

std::map<TensorId, double> coarsest_epsilons(const Program& p) {
  std::map<TensorId, double> coarsest;
  if (p.steps) {  // a loop carries the error of any step to all results
    double all = 0;
    for (const Tensor& t : p.tensors) all = std::max(all, epsilon_of(t.type));
    for_each_block(*p.steps, [&](const Block& b) {
      for (const auto& [t, epsilon] : coarsest_epsilons(b.with_gradient ? *b.with_gradient : *b.op)) all = std::max(all, epsilon);
    });
    for (const auto* list : {&p.outputs, &p.gradients})
      for (TensorId t : *list) coarsest[t] = is_float(p.tensors[t].type) ? all : 0;
    return coarsest;
  }
  for (const Definition& d : p.definitions()) {
    if (d.is_call()) throw Bug("check looks at types once calls are expanded");
    coarsest[d.target()] = std::max(epsilon_of(p.tensor(d.target()).type), coarsest_epsilon(p, d.body, coarsest));
  }
  return coarsest;
}

namespace {
int64_t terms_of(const Arena& a, Id reduction, const DimValues& dims) {
  int64_t length = 1;
  for (const AxisRange& r : reduce_axes(a[reduction]))
    if (a[r.begin].free_axes().empty() && a[r.end].free_axes().empty() && tensors_read(a, r.end).empty() && tensors_read(a, r.begin).empty())
      length *= std::max<int64_t>(1, evaluate_extent(a, r.end, dims) - evaluate_extent(a, r.begin, dims));
  return length;
}
}  // namespace

Visits visits(const Program& p, const DimValues& dims) {
  const Arena& a = *p.arena;
  Visits found;
  for (const Definition& d : p.definitions()) {
    if (d.is_call()) continue;
    // What is within a reduction is there for each of its terms.
    std::map<Id, double> times = {{d.body, static_cast<double>(element_count(shape_of(p, d.target(), dims)))}};
    const std::vector<Id> nodes = reachable(a, d.body);
    double own = 0;
    for (size_t i = nodes.size(); i-- > 0;) {
      double inside = times[nodes[i]];
      own += inside;
      if (is_reduction(a[nodes[i]].op)) inside *= static_cast<double>(terms_of(a, nodes[i], dims));
      for (Id x : a[nodes[i]].args()) times[x] = std::max(times[x], inside);
    }
    found.all += own;
    if (own > found.most) found.most = own, found.of = p.tensors[d.target()].name;
  }
  return found;
}

int64_t longest_reduction(const Program& p, const DimValues& dims) {
  const Arena& a = *p.arena;
  int64_t longest = 1;
  if (p.steps) {  // and every run adds its own
    int64_t runs = 0;
    for (const BlockAt& at : blocks_at(p, dims)) {
      longest = std::max(longest, longest_reduction(at.block->with_gradient ? *at.block->with_gradient : *at.block->op, at.dims));
      runs += at.runs;
    }
    return longest * std::max<int64_t>(1, runs);
  }
  for (const Definition& d : p.definitions())
    for (Id id : reachable(a, d.body)) {
      if (!is_reduction(a[id].op)) continue;
      const int64_t length = terms_of(a, id, dims);
      longest = std::max(longest, length);
    }
  return longest;
}

bool worse(const Worst& a, const Worst& b) { return a.passed == b.passed ? a.error > b.error : !a.passed; }

Worst compare(const Array& got, const Array& wanted, double tolerance, double slack) {
  Worst w;
  if (got.shape != wanted.shape || got.type != wanted.type) throw Bug("check compares arrays of two shapes");
  const double typical = rms(wanted);
  for (size_t i = 0; i < wanted.size(); ++i) {
    double x = got.at(i), y = wanted.at(i);
    double scale = std::max(std::fabs(y), typical), off = std::fabs(x - y);
    double error = 0;
    bool good = x == y || (std::isnan(x) && std::isnan(y));
    if (!good) {
      error = off / scale;
      if (!std::isfinite(error)) error = kInfinity;
      good = off <= tolerance * scale + slack;
    }
    if (Worst here{good, error, i, x, y}; worse(here, w)) w = here;
  }
  return w;
}

Precision precision(const Array& got, const Array& plain, const Array& exact, double tolerance, double slack) {
  Precision p{compare(got, exact, tolerance, slack), compare(plain, exact, kInfinity).error};
  p.ours.passed |= p.ours.error <= kBesidePlain * p.plain;
  return p;
}

}  // namespace xhat::tool

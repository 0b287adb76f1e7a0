#include "tests/helpers/runtime_check.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "ad/check/gradcheck.h"
#include "ad/forward/jvp.h"
#include "ad/reverse/gradient.h"
#include "expr/core/steps.h"
#include "expr/index/without_points.h"
#include "runtime/cpu/kernel_cache.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/random_program.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::testing {
namespace {

using Policy = StashOptions::Policy;

// Relative to an array's largest element, or to 1. In f64 sums that cancel may lose some digits: there is no wider type to say how
// many. What is computed in a narrow type is rounded a few times on its way.
constexpr double kWide = 1e-9, kSingle = 1e-4;
constexpr double kNarrow = 16;  // epsilons
// The evaluator's own rounding says how sensitive the op is; kernels round elsewhere, as much.
constexpr double kSensitivity = 8;

struct Case {
  const Program& op;
  Program plain;  // forward and gradients as derived, before any pass
  DimValues dims;
  uint64_t seed;
  Arrays data;  // inputs and cotangents
};

std::string derivative_failure(const Case& c) {
  GradcheckReport report = gradcheck(c.op, c.data, c.dims, {.seed = c.seed, .directions = 1, .elements = 3});
  return report.passed ? "" : "derivatives: " + report.text();
}

std::string pass_failure(const Case& c, const Program& derived) {
  std::string d = difference(evaluate_on(c.plain, c.data, c.dims), evaluate_on(derived, c.data, c.dims), kWide);
  return d.empty() ? "" : "passes: " + d + "\n" + print(derived);
}

// By the coarsest type that the program computes in.
double tolerance_of(const Program& p) {
  double coarsest = kWide;
  if (p.steps)
    for_each_block(*p.steps,
                   [&](const Block& b) { coarsest = std::max(coarsest, tolerance_of(b.with_gradient ? *b.with_gradient : *b.op)); });
  for (const Definition& d : p.definitions()) {
    if (d.is_call()) continue;
    for (Id id : reachable(*p.arena, d.body)) {
      const Node& n = (*p.arena)[id];
      if (n.op == Op::constant) continue;
      if (n.type == DType::f32) coarsest = std::max(coarsest, kSingle);
      if (n.type == DType::f16) coarsest = std::max(coarsest, kNarrow * 0x1p-10);
      if (n.type == DType::bf16) coarsest = std::max(coarsest, kNarrow * 0x1p-7);
    }
  }
  return coarsest;
}

// Where `got` is not what the evaluator makes of p, in the declared types. Elements on whose way a narrow type overflows have no value to
// compare: kernels keep more of an intermediate value, and may come to another infinity, to NaN or to a number.
std::string difference_from_evaluator(const Program& p, const Arrays& data, const DimValues& dims, const Arrays& got) {
  const Arrays exact = evaluate_on(p, data, dims);
  Arrays wanted = evaluate_on(p, data, dims, Rounding::declared);
  for (auto [name, array] : got) {
    double rounding = 0, largest = 0;
    for (size_t i = 0; i < array.size(); ++i) {
      const double w = wanted.at(name).at(i), e = exact.at(name).at(i), off = std::fabs(w - e);
      if (!std::isfinite(w) && std::isfinite(e)) wanted.at(name).reals[i] = array.reals[i] = e;
      if (std::isfinite(off)) rounding = std::max(rounding, off);
      if (std::isfinite(w)) largest = std::max(largest, std::fabs(w));
    }
    const double tolerance = array.real() ? tolerance_of(p) + kSensitivity * rounding / (1 + largest) : 0;
    if (std::string d = difference({{name, wanted.at(name)}}, {{name, array}}, tolerance); !d.empty()) return d;
  }
  return "";
}

std::string kernel_failure(const Case& c, const CompileOptions& options) {
  CompiledOp kernels = compile(c.op, options);
  std::string check = "infer: ", d = difference_from_evaluator(c.plain, c.data, c.dims, run_infer(kernels, c.data, c.dims));
  if (d.empty()) {
    check = "backward: ";
    d = difference_from_evaluator(c.plain, c.data, c.dims, run_both(kernels, c.data, c.dims));
  }
  return d.empty() ? "" : check + d + "\n" + print(kernels.program());
}

std::string product_failure(const Case& c, const Program& product, CompileOptions options) {
  Arrays data = c.data;
  for (TensorId t : product.inputs)
    if (const Tensor& x = product.tensor(t); !data.contains(x.name))
      data[x.name] = random_normals(x.type, shape_of(product, t, c.dims), c.seed + data.size());
  options.differentiate = false;
  CompiledOp kernels = compile(product, options);
  std::string d = difference_from_evaluator(product, data, c.dims, run_infer(kernels, data, c.dims));
  return d.empty() ? "" : product.name + ": " + d + "\n" + print(kernels.program());
}

// While it lives, kernels are compiled for that level.
class Level {
 public:
  explicit Level(CpuLevel level) { setenv("XHAT_CPU_LEVEL", std::string(name_of(level)).c_str(), 1); }
  ~Level() { unsetenv("XHAT_CPU_LEVEL"); }
};

bool has(CpuLevel level) {
  switch (level) {
    case CpuLevel::sse41: return true;
    case CpuLevel::avx2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    case CpuLevel::avx512:
      return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  }
  throw Bug("unknown level");
}

}  // namespace

uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x7FB5D329728EA185u;
  x = (x ^ (x >> 27)) * 0x81DADEF4BC2DD44Du;
  return x ^ (x >> 33);
}

std::vector<CheckConfig> check_configs(uint64_t hash, bool every) {
  std::vector<CpuLevel> levels;
  for (CpuLevel level : {CpuLevel::sse41, CpuLevel::avx2, CpuLevel::avx512})
    if (has(level)) levels.push_back(level);
  const uint64_t bits = mixed(hash);
  std::vector<CheckConfig> all;
  for (Policy policy : {Policy::none, Policy::largest, Policy::cost, Policy::budget})
    for (FusePolicy fuse : {FusePolicy::full, FusePolicy::relay, FusePolicy::off}) {
      CheckConfig c;
      c.fuse = fuse, c.level = levels[(bits / 64 + all.size()) % levels.size()];
      c.stash.policy = policy;
      c.products = (bits / 16 + all.size()) % 4 == 0;
      all.push_back(c);
    }
  return every ? all : std::vector{all[bits % all.size()]};
}

std::string check_failure(const Program& op, const DimValues& dims, uint64_t seed, const CheckConfig& config) {
  try {
    const Program derived = gradient(op);
    Case c{op, readable_at(derived, dims), dims, seed, {}};
    try {
      c.data = random_inputs(derived, dims, seed);
    } catch (const Error& e) {
      return fmt::format("{}: {}", kNoData, e.what());
    }
    c.data.merge(random_cotangents(c.plain, dims, seed));
    if (!c.plain.gradients.empty())
      if (std::string f = derivative_failure(c); !f.empty()) return f;
    Level level(config.level);
    CompileOptions options;
    options.stash = config.stash;
    options.fusion.policy = config.fuse;
    options.threads = 1;
    options.target = config.target;
    options.machine = config.machine;
    options.cache = std::make_shared<runtime::KernelCache>();
    for (const std::string& name : free_dims(op)) options.dims[name] = dims.at(name);
    if (!op.steps)
      if (std::string f = pass_failure(c, readable_at(derive(op, options, dims).program, dims)); !f.empty()) return f;
    if (std::string f = kernel_failure(c, options); !f.empty()) return f;
    if (!config.products || c.plain.gradients.empty()) return "";
    if (std::string f = product_failure(c, readable_at(jvp(op), dims), options); !f.empty()) return f;
    return op.steps ? "" : product_failure(c, readable_at(hvp(op), dims), options);
  } catch (const std::exception& e) {
    const std::string what = e.what();
    if (config.stash.policy == Policy::budget && what.find("budget cannot be met") != std::string::npos) return "";
    return fmt::format("exception_{}: {}", failure_kind(what), what);
  }
}

std::string check_command(const std::string& file, const DimValues& dims, uint64_t seed, const CheckConfig& config) {
  std::string sizes;
  for (const auto& [name, value] : dims) sizes += fmt::format("{}{}={}", sizes.empty() ? " --dims " : ",", name, value);
  const char* policies[] = {"none", "largest", "cost", "budget=0"};
  const char* fusions[] = {"full", "relay", "off"};
  return fmt::format("XHAT_CPU_LEVEL={} xhat check {}{} --seed {} --stash {} --fuse {}{}", name_of(config.level), file, sizes, seed,
                     policies[static_cast<int>(config.stash.policy)], fusions[static_cast<int>(config.fuse)],
                     config.target == Target::cpu ? "" : " --target " + std::string(name_of(config.target)));
}

}  // namespace xhat::testing

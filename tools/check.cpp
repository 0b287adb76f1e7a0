// xhat check: everything that can be compared, on seeded data, in one table.
//
//   gradient, inner product, jvp, hvp   the derived (or stated) derivatives against finite differences and each
//                                       other, in f64: ad/gradcheck.h
//   passes     the program after all passes against the one before, both evaluated in f64
//   kernels    what the compiled kernels deliver against the evaluator, in the declared types
#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>

#include <fmt/format.h>

#include "ad/gradcheck.h"
#include "ad/jvp.h"
#include "expr/size_limits.h"
#include "runtime/explain.h"
#include "tools/commands.h"
#include "tools/data.h"
#include "tools/memory.h"

namespace xhat::tool {
namespace {

constexpr double kEvaluations = 3;  // of the program, that are in memory at a time
constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Errors of one element's arithmetic, in units of its type's epsilon: a few dozen operations, functions to 4
// ulp.
constexpr double kOperations = 64;
// The evaluator's own rounding in the declared types says how sensitive the op is; kernels round elsewhere,
// as much.
constexpr double kSensitivity = 8;

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

// Elements that the largest reduction adds up, with ranges that depend on axes counted as nothing.
int64_t longest_reduction(const Program& p, const DimValues& dims) {
  const Arena& a = *p.arena;
  int64_t longest = 1;
  for (const Definition& d : p.body.definitions)
    for (Id id : reachable(a, d.body)) {
      if (!is_reduction(a[id].op)) continue;
      int64_t length = 1;
      for (const AxisRange& r : reduce_axes(a[id]))
        if (a[r.begin].free_axes().empty() && a[r.end].free_axes().empty() &&
            tensors_read(a, r.end).empty() && tensors_read(a, r.begin).empty())
          length *= std::max<int64_t>(1, evaluate_extent(a, r.end, dims) - evaluate_extent(a, r.begin, dims));
      longest = std::max(longest, length);
    }
  return longest;
}

struct Worst {
  bool passed = true;
  double error = 0;  // in units of the tolerance's scale
  size_t element = 0;
  double got = 0, wanted = 0;
};

// |got - wanted| <= tolerance * max(|wanted|, typical) + slack of the element.
Worst compare(const Array& got, const Array& wanted, double tolerance, const Array* exact) {
  Worst w;
  if (got.shape != wanted.shape || got.type != wanted.type) throw Bug("check compares arrays of two shapes");
  double squares = 0;
  size_t finite = 0;
  for (size_t i = 0; i < wanted.size(); ++i)
    if (std::isfinite(wanted.at(i))) {
      squares += wanted.at(i) * wanted.at(i);
      ++finite;
    }
  double typical = finite ? std::sqrt(squares / static_cast<double>(finite)) : 0;
  double sensitivity = 0;
  for (size_t i = 0; exact && i < wanted.size(); ++i)
    if (double off = std::fabs(wanted.at(i) - exact->at(i)); std::isfinite(off))
      sensitivity = std::max(sensitivity, off);
  for (size_t i = 0; i < wanted.size(); ++i) {
    double x = got.at(i), y = wanted.at(i);
    double scale = std::max(std::fabs(y), typical), off = std::fabs(x - y);
    double error = 0;
    bool good = x == y || (std::isnan(x) && std::isnan(y));
    if (!good) {
      error = off / scale;
      if (!std::isfinite(error)) error = kInfinity;
      good = off <= tolerance * scale + kSensitivity * sensitivity;
    }
    if (good == w.passed ? error > w.error : !good) w = {w.passed && good, error, i, x, y};
  }
  return w;
}

class Check {
 public:
  Check(const Command& c, const Program& op) : c_(c), op_(op), options_(compile_options(c)) {}

  int run() {
    dims_ = solve_dims(op_, {}, sample_dims(op_, c_.seed, dims_of(c_)));
    options_.dims = dims_of(c_);
    plain_ = gradient(op_, {options_.wrt});
    check_kernel_sizes(plain_, dims_);
    // Every value of the evaluator has 8 bytes; two programs are compared, and results kept of a third.
    check_memory(c_, op_, dims_, kEvaluations * bytes_of_all(plain_, dims_, 8));
    data_ = random_inputs(plain_, dims_, c_.seed);
    for (auto& [name, value] : scalars_of(c_, op_)) data_[name] = value;
    all_ = data_;
    for (auto& [name, array] : random_cotangents(plain_, dims_, c_.seed)) all_[name] = array;
    check_gradients();
    Derivation derivation = derive(op_, options_, dims_);
    check_passes(derivation.program);
    check_kernels();
    if (!plain_.gradients.empty()) check_products();
    report();
    return passed_ ? kFine : kCheckFailed;
  }

 private:
  const Command& c_;
  const Program& op_;
  CompileOptions options_;
  Program plain_;  // forward and gradients as derived, before any pass
  DimValues dims_;
  Arrays data_, all_;  // inputs; inputs and cotangents
  bool passed_ = true;
  bool only_wrong_ = false;  // gets a row
  bool has_jvp_ = true;  // not: a gradient was stated that no jvp follows from
  std::vector<std::string> notes_;
  std::vector<std::vector<std::string>> rows_ = {
      {"check", "tensor", "dtype", "compared", "worst error", "tolerance", "", "at", "got", "expected"}};

  void row(const std::string& check, const std::string& tensor, const std::string& dtype,
           const std::string& compared, double error, double tolerance, bool good, const std::string& at,
           double got, double wanted) {
    passed_ &= good;
    if (good && only_wrong_) return;
    bool show = error > 0 || !good;
    rows_.push_back({check, tensor, dtype, compared, fmt::format("{:.1e}", error),
                     fmt::format("{:.1e}", tolerance), good ? "ok" : "WRONG", show ? at : "",
                     show ? fmt::format("{:.9g}", got) : "", show ? fmt::format("{:.9g}", wanted) : ""});
  }

  void row(const std::string& check, const std::string& tensor, const Array& got, const Array& wanted,
           double tolerance, const Array* exact) {
    Worst w = compare(got, wanted, tolerance, exact);
    row(check, tensor, std::string(name_of(wanted.type)), fmt::format("{} elements", wanted.size()), w.error,
        tolerance, w.passed, wanted.size() ? shape_text(position_of(w.element, wanted.shape)) : "", w.got,
        w.wanted);
  }

  void check_gradients() {
    GradcheckOptions o;
    o.seed = c_.seed;
    o.wrt = options_.wrt;
    GradcheckReport report = gradcheck(op_, data_, dims_, o);
    for (const DerivativeComparison& g : report.comparisons) {
      std::string compared = fmt::format("{} elements, {} directions", g.elements, g.directions);
      if (g.kind == DerivativeComparison::Kind::inner_product) compared = "all elements, 1 direction";
      if (g.kinks) compared += fmt::format(", {} at kinks", g.kinks);
      row(std::string(name_of(g.kind)), g.name, "f64", compared, g.error, g.tolerance, g.passed,
          g.direction      ? "a direction"
          : g.note.empty() ? shape_text(g.position)
                           : "see below",
          g.derived, g.measured);
      if (g.note.empty()) continue;
      notes_.push_back(g.name + ": " + g.note);
      has_jvp_ = false;
    }
  }

  std::vector<std::string> results(const Program& p) const {
    std::vector<std::string> names;
    for (const auto* list : {&p.outputs, &p.gradients})
      for (TensorId t : *list) names.push_back(p.tensors[t].name);
    return names;
  }

  double tolerance(DType type, int64_t length) const {
    return kOperations * epsilon_of(type) * std::sqrt(static_cast<double>(length));
  }

  // In f64, whatever is declared: what is wrong here is an algebraic mistake, no rounding.
  void check_passes(const Program& derived) {
    EvaluateOptions exact;
    exact.rounding = Rounding::exact;
    Arrays before = evaluate(plain_, all_, dims_, exact), after = evaluate(derived, all_, dims_, exact);
    // Sums that cancel lose digits: a thousand times more than where nothing does.
    double most = 1000 * tolerance(DType::f64, longest_reduction(derived, dims_));
    for (const std::string& name : results(plain_)) {
      Array got = after.at(name), wanted = before.at(name);
      bool real = wanted.real();
      Worst w = compare(got, wanted, real ? most : 0, nullptr);
      row("passes", name, real ? "f64" : std::string(name_of(wanted.type)),
          fmt::format("{} elements", wanted.size()), w.error, real ? most : 0, w.passed,
          wanted.size() ? shape_text(position_of(w.element, wanted.shape)) : "", w.got, w.wanted);
    }
  }

  // Kernels run twice, between guard pages at either end of their memory (runtime/guarded_memory.h).
  template <class Run>
  void at_both_edges(Run run) {
    for (runtime::Edge edge : {runtime::Edge::front, runtime::Edge::back}) {
      const runtime::GuardedEngine guard(edge);
      only_wrong_ = edge == runtime::Edge::front;
      run();
    }
  }

  void check_kernels() {
    CompiledOp compiled = compile(op_, options_);
    EvaluateOptions exact;
    exact.rounding = Rounding::exact;
    Arrays wanted = evaluate(plain_, all_, dims_), precise = evaluate(plain_, all_, dims_, exact);
    at_both_edges([&] { run_kernels(compiled, wanted, precise); });
  }

  void run_kernels(const CompiledOp& compiled, const Arrays& wanted, const Arrays& precise) {
    const Program& p = compiled.program(dims_);
    int64_t length = longest_reduction(p, dims_);

    Buffers forward, gradients, cotangents;
    for (const auto& [name, array] : data_) forward.emplace(name, Buffer(array));
    auto fresh = [&](Buffers& into, TensorId t) {
      into[p.tensors[t].name] = Buffer(p.tensors[t].type, shape_of(p, t, dims_));
    };
    auto compare_all = [&](const std::string& check, const Buffers& buffers,
                           const std::vector<TensorId>& tensors, double rounded = 0) {
      for (TensorId t : tensors) {
        const std::string& name = p.tensors[t].name;
        row(check, name, buffers.at(name).array(), wanted.at(name),
            tolerance(p.tensors[t].type, length) + rounded, &precise.at(name));
      }
    };
    for (TensorId t : p.outputs) fresh(forward, t);
    compiled.infer(arguments_of(forward));
    compare_all("infer", forward, p.outputs);
    for (TensorId t : p.outputs) fresh(forward, t);
    Stash stash = compiled.forward(arguments_of(forward));
    compare_all("forward", forward, p.outputs);
    if (p.gradients.empty()) return;

    for (TensorId t : p.cotangents) cotangents.emplace(p.tensors[t].name, Buffer(all_.at(p.tensors[t].name)));
    for (TensorId t : p.gradients) fresh(gradients, t);
    std::vector<Argument> arguments = arguments_of(cotangents);
    for (const Argument& a : arguments_of(gradients)) arguments.push_back(a);
    std::vector<std::string> kept = compiled.kept(stash);  // outlives the arguments
    for (const std::string& name : kept) arguments.push_back({name, forward.at(name).view()});
    compiled.backward(arguments, stash);
    // What was stored narrow is off by half of that type's epsilon; a gradient has a few such factors.
    compare_all("backward", gradients, p.gradients,
                options_.stash.store_as ? 8 * epsilon_of(*options_.stash.store_as) : 0);
  }

  void check_products() {
    std::vector<std::string> moving;
    for (TensorId t : plain_.gradient_of) moving.push_back(plain_.tensors[t].name);
    try {
      if (has_jvp_) check_product("jvp", jvp(op_, {moving}), op_.outputs.size(), moving.size());
      check_product("hvp", hvp(op_, {.wrt = moving, .along = moving}), 0, moving.size());
    } catch (const Error& e) {  // the op's own kernels are there: no mistake of the op
      notes_.push_back(std::string("not checked: ") + e.message());
    }
  }

  // The kernels of a product with the derivatives: its outputs from the first one on. The last inputs are tangents.
  void check_product(const std::string& check, const Program& product, size_t first, size_t tangents) {
    CompileOptions options = options_;
    options.differentiate = false;
    CompiledOp compiled = compile(product, options);
    const Program& p = compiled.program(dims_);
    Arrays data;
    for (size_t i = 0; i < p.inputs.size(); ++i) {
      const Tensor& t = p.tensors[p.inputs[i]];
      bool tangent = i + tangents >= p.inputs.size();
      data[t.name] =
          tangent ? random_normals(t.type, shape_of(p, p.inputs[i], dims_), c_.seed + i) : all_.at(t.name);
    }
    EvaluateOptions exact;
    exact.rounding = Rounding::exact;
    Arrays wanted = evaluate(product, data, dims_), precise = evaluate(product, data, dims_, exact);
    int64_t length = longest_reduction(p, dims_);
    at_both_edges([&] {
      Buffers buffers;
      for (const auto& [name, array] : data) buffers.emplace(name, Buffer(array));
      for (TensorId t : p.outputs)
        buffers[p.tensors[t].name] = Buffer(p.tensors[t].type, shape_of(p, t, dims_));
      compiled.infer(arguments_of(buffers));
      for (size_t i = first; i < p.outputs.size(); ++i) {
        const Tensor& t = p.tensors[p.outputs[i]];
        row(check + " kernels", t.name, buffers.at(t.name).array(), wanted.at(t.name),
            tolerance(t.type, length), &precise.at(t.name));
      }
    });
  }

  void report() const {
    std::cout << fmt::format("op {}{}{}, seed {}\n\n", op_.name, dims_.empty() ? "" : ", ", dims_text(dims_),
                             c_.seed);
    for (const std::string& read : open_reads(op_))
      std::cout << fmt::format("not proved for all sizes, but inside at these: {}\n", read);
    std::cout << table_text(rows_, {4, 5, 8, 9}, "  ");
    for (const std::string& note : notes_) std::cout << "\n" << note << "\n";
    std::cout
        << "\ngradient, jvp, hvp: derived against finite differences of the forward (hvp: of the gradient), "
           "in f64\n"
           "inner product: <grad, v> by reverse mode against <dy, J v> by forward mode, in f64\n"
           "passes: the program after all passes against the one before, both evaluated in f64\n";
    std::cout << "infer, forward, backward, jvp and hvp kernels: against the evaluator\n"
          << fmt::format(
                 "errors are relative to the element or the tensor's typical (rms) one; tolerances are {:g} "
                 "epsilon of the type\ntimes the root of the longest reduction; kernels may be off by {:g} "
                 "times the evaluator's own rounding besides\n",
                 kOperations, kSensitivity);
    std::cout << (passed_ ? "passed\n" : "FAILED\n");
  }
};

}  // namespace

int check_command(const Command& c, const Source& source) { return Check(c, source.op).run(); }

}  // namespace xhat::tool

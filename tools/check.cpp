// xhat check: everything that can be compared, on seeded data, in one table.
//
//   gradient, inner product, jvp, hvp   the derived (or stated) derivatives against finite differences and each
//                                       other, in f64: ad/check/gradcheck.h
//   program    what an imperative program was made into against an interpreter that overwrites memory, both in f64
//   passes     the program after all passes against the one before, both evaluated in f64
//   kernels    what the compiled kernels deliver against the evaluator, in the declared types
//   precision  how far gradients by kernels and by the formula as derived, in the same types, are off what it gives in f64
#include <algorithm>
#include <cmath>
#include <memory>
#include <ostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "ad/check/gradcheck.h"
#include "ad/check/perturbed.h"
#include "ad/check/harder_ranges.h"
#include "ad/forward/jvp.h"
#include "expr/eval/interpret.h"
#include "expr/index/size_limits.h"
#include "expr/index/without_points.h"
#include "runtime/explain/explain.h"
#include "tools/check_tolerance.h"
#include "tools/commands.h"
#include "tools/data.h"
#include "tools/memory.h"
#include "tools/progress.h"

namespace xhat::tool {
namespace {

constexpr double kEvaluations = 3;  // of the program, that are in memory at a time

class Check {
 public:
  Check(const Command& c, const Source& source) : c_(c), source_(source), op_(source.op), options_(compile_options(c)) {}

  int run() {
    for (const auto& [name, path] : pairs_of(c_.in, "--in")) given_[name] = read_array(op_, input_named(op_, name, "--in"), path, name);
    dims_ = solve_dims(op_, {}, sample_dims(op_, c_.seed, dims_of_given()));
    for (const auto& [name, array] : given_)
      if (const auto want = shape_of(op_, *op_.find(name), dims_); array.shape != want)
        throw Error(fmt::format("op {}: {} has shape {}, but {} with {}", op_.name, name, shape_text(array.shape), shape_text(want),
                                dims_text(dims_)),
                    op_.tensors[*op_.find(name)].pos);
    options_.dims = dims_of(c_);
    options_.on_compile = [this](size_t ready, size_t all) { progress_.show(fmt::format("kernel {} of {}", ready, all), true); };
    const Program derived = gradient(op_, {options_.wrt});
    plain_ = readable_at(derived, dims_);
    check_kernel_sizes(plain_, dims_);
    // Every value of the evaluator has 8 bytes; two programs are compared, and results kept of a third.
    check_memory(c_, op_, dims_, kEvaluations * bytes_of_all(plain_, dims_, 8));
    say_if_long();
    data_ = random_inputs(derived, dims_, c_.seed);
    for (const auto& [name, array] : given_) data_[name] = to_array(array);
    for (auto& [name, value] : scalars_of(c_, op_)) data_[name] = value;
    all_ = data_;
    for (auto& [name, array] : random_cotangents(plain_, dims_, c_.seed)) all_[name] = array;
    check_program();
    progress_.show("derivatives against finite differences", true);
    check_gradients();
    progress_.show("passes", true);
    // Passes are of blocks, and their kernels are checked with all that is around them.
    if (!op_.steps) check_passes(readable_at(derive(op_, options_, dims_).program, dims_));
    check_kernels();
    if (!plain_.gradients.empty()) check_products();
    progress_.show("");
    if (c_.json)
      *c_.answer << json().dump(2) << "\n";
    else
      report();
    return passed_ ? kFine : kCheckFailed;
  }

 private:
  const Command& c_;
  const Source& source_;
  const Program& op_;
  CompileOptions options_;
  Program plain_;  // forward and gradients as derived, before any pass
  DimValues dims_;
  Arrays data_, all_;  // inputs; inputs and cotangents
  std::map<std::string, NpyArray> given_;  // by --in
  Progress progress_{"check"};
  bool passed_ = true;
  bool has_jvp_ = true;  // not: a gradient was stated that no jvp follows from
  std::vector<std::string> notes_;
  std::vector<std::vector<std::string>> rows_ = {
      {"check", "tensor", "dtype", "compared", "worst error", "tolerance", "", "at", "got", "expected"}};
  std::vector<std::vector<std::string>> precision_;  // rows that come behind those of the kernels

  std::vector<std::string> row_of(const std::string& check, const std::string& tensor, const std::string& dtype,
                                  const std::string& compared, double error, double tolerance, bool good, const std::string& at, double got,
                                  double wanted) {
    passed_ &= good;
    bool show = error > 0 || !good;
    return {check,
            tensor,
            dtype,
            compared,
            fmt::format("{:.1e}", error),
            fmt::format("{:.1e}", tolerance),
            good ? "ok" : "WRONG",
            show ? at : "",
            show ? fmt::format("{:.9g}", got) : "",
            show ? fmt::format("{:.9g}", wanted) : ""};
  }

  template <class... A>
  void row(const std::string& check, const std::string& tensor, const std::string& dtype, const A&... rest) {
    rows_.push_back(row_of(check, tensor, dtype, rest...));
  }

  void row(const std::string& check, const std::string& tensor, const Array& wanted, double tolerance,
           const Worst& w, const std::string& compared, const std::string& where = "") {
    row(check, tensor, std::string(name_of(wanted.type)), compared, w.error, tolerance, w.passed,
        wanted.size() ? shape_text(position_of(w.element, wanted.shape)) + where : "", w.got, w.wanted);
  }

  // Sizes that are given, and those that the shapes of given arrays say at once.
  DimValues dims_of_given() const {
    DimValues dims = dims_of(c_);
    for (const auto& [name, array] : given_) {
      const std::vector<Id>& shape = op_.tensors[*op_.find(name)].shape;
      for (size_t d = 0; d < shape.size() && d < array.shape.size(); ++d)
        if ((*op_.arena)[shape[d]].op == Op::dim) dims.try_emplace(op_.arena->name(shape[d]), array.shape[d]);
    }
    return dims;
  }

  // Finite differences evaluate the program some hundred times.
  void say_if_long() {
    constexpr double kMany = 5e7;  // a second or so
    const Visits v = visits(plain_, dims_);
    if (v.all < kMany) return;
    progress_.show(fmt::format("an evaluation takes {:.1g} operations{}, {:.1g} of them for {}, and finite differences take some hundred "
                               "evaluations. smaller sizes (--dims) take less time",
                               v.all, dims_.empty() ? "" : " with " + dims_text(dims_), v.most, v.of));
  }

  static bool is_number(size_t column) { return column == 4 || column == 5 || column >= 8; }  // errors, tolerances, values

  nlohmann::ordered_json json() const {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (size_t i = 1; i < rows_.size(); ++i) {
      nlohmann::ordered_json row;
      for (size_t k = 0; k < rows_[i].size(); ++k)
        row[rows_[0][k].empty() ? "passed" : rows_[0][k]] = rows_[0][k].empty() ? nlohmann::ordered_json(rows_[i][k] == "ok")
                                                            : is_number(k) && !rows_[i][k].empty()
                                                                ? nlohmann::ordered_json(std::stod(rows_[i][k]))
                                                                : nlohmann::ordered_json(rows_[i][k]);
      rows.push_back(std::move(row));
    }
    return {{"op", op_.name},  {"dims", dims_.empty() ? nlohmann::ordered_json::object() : nlohmann::ordered_json(dims_)},
            {"seed", c_.seed}, {"passed", passed_},
            {"checks", rows},  {"notes", notes_}};
  }

  void check_gradients() {
    GradcheckOptions o;
    o.seed = c_.seed;
    o.wrt = options_.wrt;
    GradcheckReport report = gradcheck(op_, data_, dims_, o);
    if (moves_what_is_stopped(op_))
      notes_.push_back("stop_gradient in a loop or branch: derivatives are compared with each other, not with finite differences");
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

  // Values of a program that mutates, by what it means as it is written.
  void check_program() {
    if (!c_.derive.empty()) return;
    const std::shared_ptr<const ast::File> file = ast::parse(source_.text, source_.file);
    const auto prog = std::ranges::find_if(file->ops, [&](const ast::Op& o) { return o.name == op_.name; });
    if (prog == file->ops.end() || prog->kind != ast::Op::Kind::prog) return;
    progress_.show("values as the program is written", true);
    const Arrays wanted = interpret(*file, *prog, data_, dims_), got = evaluate(op_, data_, dims_, kExact);
    const double most = 1000 * tolerance(epsilon_of(DType::f64), longest_reduction(op_, dims_));  // as for passes
    std::vector<std::string> names;  // in the order of the op's outputs
    for (const ast::Name& name : prog->body.outputs) names.push_back(name.text);
    for (const ast::Parameter& p : prog->body.parameters)
      if (p.inout) names.push_back(p.name);
    for (size_t i = 0; i < names.size(); ++i) {
      const std::string& name = op_.tensors[op_.outputs.at(i)].name;  // of a parameter marked inout, another one
      Array meant = wanted.at(names[i]);
      // The interpreter takes one side of a choice only, and a literal there has no type of its own.
      if (const DType made = got.at(name).type; meant.real() == is_float(made)) meant.type = made;
      const double allowed = meant.real() ? most : 0;
      row("program", name, meant, allowed, compare(got.at(name), meant, allowed, 0), fmt::format("{} elements", meant.size()));
    }
  }

  std::vector<std::string> results(const Program& p) const {
    std::vector<std::string> names;
    for (const auto* list : {&p.outputs, &p.gradients})
      for (TensorId t : *list) names.push_back(p.tensors[t].name);
    return names;
  }

  // In f64, whatever is declared: what is wrong here is an algebraic mistake, no rounding.
  void check_passes(const Program& derived) {
    Arrays before = evaluate(plain_, all_, dims_, kExact), after = evaluate(derived, all_, dims_, kExact);
    // Sums that cancel lose digits: a thousand times more than where nothing does.
    double most = 1000 * tolerance(epsilon_of(DType::f64), longest_reduction(derived, dims_));
    const std::map<std::string, double> of_plain = roundings(plain_, before), of_derived = roundings(derived, after);
    for (const std::string& name : results(plain_)) {
      Array got = after.at(name), wanted = before.at(name);
      bool real = wanted.real();
      Worst w = compare(got, wanted, real ? most : 0, real ? kSensitivity * (of_plain.at(name) + of_derived.at(name)) : 0);
      row("passes", name, real ? "f64" : std::string(name_of(wanted.type)),
          fmt::format("{} elements", wanted.size()), w.error, real ? most : 0, w.passed,
          wanted.size() ? shape_text(position_of(w.element, wanted.shape)) : "", w.got, w.wanted);
    }
  }

  // What roundings in f64 amount to, by result.
  std::map<std::string, double> roundings(const Program& p, const Arrays& exact) const {
    HarderData d;
    d.data = all_;
    d.wanted = d.exact = exact;
    note_moves(p, dims_, c_.seed, [](const std::string&) { return epsilon_of(DType::f64); }, d);
    return d.moves;
  }

  // Each of two runs has its memory between guard pages, once at either end of it (runtime/host/guarded_memory.h).
  template <class Run>
  static void at_both_edges(Run run) {
    for (runtime::Edge edge : {runtime::Edge::front, runtime::Edge::back}) {
      const runtime::GuardedEngine guard(edge);
      run();
    }
  }

  // One data set that kernels are compared on, and what the evaluator makes of it.
  struct Draw {
    std::string name;  // of its range; empty: normals
    Arrays data;       // inputs and cotangents
    Arrays wanted;
    Arrays exact;                         // the same in f64; of normals only
    std::map<std::string, double> slack;  // by result: what roundings amount to, as meant and after the passes
    bool gradients = true;                // are compared, too
    bool usual_size = false;              // the data are as large as normals
    std::map<std::string, double> plain_slack = {};  // as meant alone; of normals only
  };

  // p: as it is meant; run: after the passes.
  Draw normals(const Program& p, const Program& run, const Arrays& data) const {
    HarderData d;
    d.data = data;
    d.wanted = evaluate(p, data, dims_);
    d.exact = evaluate(p, data, dims_, kExact);
    const std::map<std::string, double> unit = epsilons(p);
    auto unit_of = [&](const std::string& name) {
      auto known = unit.find(name);
      return known == unit.end() ? 0 : known->second;
    };
    note_moves(p, dims_, c_.seed, unit_of, d);
    const std::map<std::string, double> plain = d.moves;
    if (!p.steps) raise_moves(run, dims_, c_.seed, unit_of, d);
    Draw draw{"", std::move(d.data), std::move(d.wanted), std::move(d.exact), std::move(d.moves)};
    for (auto& [name, slack] : draw.slack) slack *= kSensitivity;
    for (const auto& [name, most] : plain) draw.plain_slack[name] = kSensitivity * most;
    return draw;
  }

  std::map<std::string, double> epsilons(const Program& p) const {
    std::map<std::string, double> by_name;
    for (auto [t, epsilon] : coarsest_epsilons(p)) by_name[p.tensors[t].name] = epsilon;
    return by_name;
  }

  // Normals, then what is harder.
  std::vector<Draw> draws(const Program& derived) {
    std::vector<Draw> list = {normals(plain_, derived, all_)};
    if (op_.steps) {
      notes_.push_back("loops multiply what rounding does to large, tiny or equal numbers: kernels are compared on normals only");
      return list;
    }
    Arrays cotangents;
    for (TensorId t : plain_.cotangents) cotangents[plain_.tensors[t].name] = all_.at(plain_.tensors[t].name);
    std::map<std::string, double> unit = epsilons(plain_);
    for (Range range : kHarderRanges) {
      auto hard = harder_data({&plain_, &derived}, data_, cotangents, dims_, range, c_.seed,
                              [&](const std::string& name) { return unit[name]; });
      if (!hard) continue;
      Draw draw{std::string(name_of(range)), hard->data, hard->wanted, {}, hard->moves, hard->finite};
      draw.usual_size = hard->decades == 0;
      if (hard->decades > 0) draw.name += fmt::format(" (10^{})", hard->decades);
      for (auto& [name, slack] : draw.slack) slack *= kSensitivity;
      list.push_back(std::move(draw));
    }
    return list;
  }

  void check_kernels() {
    CompiledOp compiled = compile(op_, options_);
    const Program& p = compiled.program(dims_);
    const int64_t length = longest_reduction(p, dims_);
    const std::map<std::string, double> epsilon = epsilons(plain_);
    // What was stored narrow is off by half of that type's epsilon; a gradient has a few such factors.
    const double stored = options_.stash.store_as ? 8 * epsilon_of(*options_.stash.store_as) : 0;

    struct Result {
      std::string check, tensor;
      double tolerance;
      Worst worst;
      std::string draw;  // of the worst
      int draws = 0;
    };
    std::vector<Result> all;
    auto add = [&](const std::string& check, const std::vector<TensorId>& tensors, double more) {
      for (TensorId t : tensors) {
        auto known = epsilon.find(p.tensors[t].name);
        const double unit = known == epsilon.end() ? 0 : known->second;  // else it is a parameter
        all.push_back({check, p.tensors[t].name, tolerance(unit, length) + more, {}, "", 0});
      }
    };
    add("infer", p.outputs, 0);
    add("forward", p.outputs, 0);
    add("backward", p.gradients, stored);
    const std::vector<Draw> list = draws(p);
    for (const Draw& draw : list) {
      progress_.show(fmt::format("kernels, data {} of {}", &draw - list.data() + 1, list.size()), true);
      bool again = false;
      at_both_edges([&] {
        std::map<std::string, Buffers> got = run_all(compiled, draw);
        for (Result& r : all) {
          if (!got.contains(r.check)) continue;
          auto slack = draw.slack.find(r.tensor);
          double allowed = slack == draw.slack.end() ? 0 : slack->second;
          // Results may be exactly 0 where all is equal, as differences of terms that are as large as those of normals.
          if (draw.usual_size) allowed += r.tolerance * rms(list[0].wanted.at(r.tensor));
          Worst w = compare(got.at(r.check).at(r.tensor).array(), draw.wanted.at(r.tensor), r.tolerance, allowed);
          if (r.draws == 0 || worse(w, r.worst)) r.worst = w, r.draw = draw.name;
          r.draws += !again;
        }
        if (&draw == list.data() && !again && got.contains("backward")) beside_plain(got.at("backward"), draw, epsilon, length, stored);
        again = true;
      });
    }
    for (const Result& r : all) {
      const Array& shape = list[0].wanted.at(r.tensor);
      row(r.check, r.tensor, shape, r.tolerance, r.worst, fmt::format("{} elements, {} draws", shape.size(), r.draws),
          r.draw.empty() ? "" : ", " + r.draw);
    }
    rows_.insert(rows_.end(), precision_.begin(), precision_.end());
  }

  // Of what is computed in f64 throughout, f64 says nothing.
  void beside_plain(Buffers& got, const Draw& draw, const std::map<std::string, double>& epsilon, int64_t length, double stored) {
    for (TensorId t : plain_.gradients) {
      const std::string& name = plain_.tensors[t].name;
      const Array& plain = draw.wanted.at(name);
      auto unit = epsilon.find(name);
      if (!plain.real() || unit == epsilon.end() || unit->second <= epsilon_of(DType::f64)) continue;
      auto slack = draw.plain_slack.find(name);
      const double allowed = tolerance(unit->second, length) + stored;
      Precision p = precision(got.at(name).array(), plain, draw.exact.at(name), allowed, slack == draw.plain_slack.end() ? 0 : slack->second);
      precision_.push_back(row_of("precision", name, std::string(name_of(plain.type)), fmt::format("plain: off by {:.1e}", p.plain),
                                  p.ours.error, std::max(allowed, kBesidePlain * p.plain), p.ours.passed,
                                  plain.size() ? shape_text(position_of(p.ours.element, plain.shape)) : "", p.ours.got, p.ours.wanted));
    }
  }

  // What infer, forward and backward deliver, by these names.
  std::map<std::string, Buffers> run_all(CompiledOp& compiled, const Draw& draw) const {
    const Program& p = compiled.program(dims_);
    std::map<std::string, Buffers> got;
    auto fresh = [&](Buffers& into, TensorId t) {
      into[p.tensors[t].name] = Buffer(p.tensors[t].type, shape_of(p, t, dims_));
    };
    for (const char* check : {"infer", "forward"}) {
      for (TensorId t : p.inputs) got[check].emplace(p.tensors[t].name, Buffer(draw.data.at(p.tensors[t].name)));
      for (TensorId t : p.outputs) fresh(got[check], t);
    }
    compiled.infer(arguments_of(got["infer"]));
    Stash stash = compiled.forward(arguments_of(got["forward"]));
    if (p.gradients.empty() || !draw.gradients) return got;
    Buffers cotangents;
    for (TensorId t : p.cotangents)
      cotangents.emplace(p.tensors[t].name, Buffer(draw.data.at(p.tensors[t].name)));
    for (TensorId t : p.gradients) fresh(got["backward"], t);
    std::vector<Argument> arguments = arguments_of(cotangents);
    for (const Argument& a : arguments_of(got["backward"])) arguments.push_back(a);
    std::vector<std::string> kept = compiled.kept(stash);  // outlives the arguments
    for (const std::string& name : kept) arguments.push_back({name, got["forward"].at(name).view()});
    compiled.backward(arguments, stash);
    return got;
  }

  void check_products() {
    progress_.show("products with the derivatives", true);
    std::vector<std::string> moving;
    for (TensorId t : plain_.gradient_of) moving.push_back(plain_.tensors[t].name);
    try {
      if (has_jvp_) check_product("jvp", readable_at(jvp(op_, {moving}), dims_), op_.outputs.size(), moving.size());
      if (op_.steps)
        notes_.push_back("second derivatives of a program with loops or branches are not there yet: no hvp is checked");
      else
        check_product("hvp", readable_at(hvp(op_, {.wrt = moving, .along = moving}), dims_), 0, moving.size());
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
    const Draw draw = normals(product, p, data);
    const std::map<std::string, double> epsilon = epsilons(product);
    const int64_t length = longest_reduction(p, dims_);
    std::map<std::string, Worst> worst;
    at_both_edges([&] {
      Buffers buffers;
      for (const auto& [name, array] : data) buffers.emplace(name, Buffer(array));
      for (TensorId t : p.outputs)
        buffers[p.tensors[t].name] = Buffer(p.tensors[t].type, shape_of(p, t, dims_));
      compiled.infer(arguments_of(buffers));
      for (size_t i = first; i < p.outputs.size(); ++i) {
        const std::string& name = p.tensors[p.outputs[i]].name;
        Worst w = compare(buffers.at(name).array(), draw.wanted.at(name), tolerance(epsilon.at(name), length), draw.slack.at(name));
        auto [known, first_run] = worst.try_emplace(name, w);
        if (!first_run && worse(w, known->second)) known->second = w;
      }
    });
    for (size_t i = first; i < p.outputs.size(); ++i) {
      const std::string& name = p.tensors[p.outputs[i]].name;
      const Array& wanted = draw.wanted.at(name);
      row(check + " kernels", name, wanted, tolerance(epsilon.at(name), length), worst.at(name), fmt::format("{} elements", wanted.size()));
    }
  }

  void report() const {
    *c_.answer << fmt::format("op {}{}{}, seed {}\n\n", op_.name, dims_.empty() ? "" : ", ", dims_text(dims_),
                             c_.seed);
    for (const std::string& read : open_reads(op_))
      *c_.answer << fmt::format("not proved for all sizes, but inside at these: {}\n", read);
    *c_.answer << table_text(rows_, {4, 5, 8, 9}, "  ");
    for (const std::string& note : notes_) *c_.answer << "\n" << note << "\n";
    *c_.answer
        << "\ngradient, jvp, hvp: derived against finite differences of the forward (hvp: of the gradient), "
           "in f64\n"
           "inner product: <grad, v> by reverse mode against <dy, J v> by forward mode, in f64\n"
           "program: what it was made into against an interpreter that overwrites memory, both in f64\n"
           "passes: the program after all passes against the one before, both evaluated in f64\n";
    *c_.answer << "infer, forward, backward, jvp and hvp kernels: against the evaluator; the first three also on data "
                 "that are\nlarge, tiny, alternate in magnitude, have zeros, are equal, are whole, as far as all "
                 "results are finite then\n"
              << fmt::format(
                     "errors are relative to the element or the tensor's typical (rms) one; tolerances are {:g} "
                     "epsilon of the coarsest type\nthat the values are computed in, times the root of the longest "
                     "reduction, and {:g} epsilon of f16 or bf16\nwhere these are stored; kernels may be off by {:g} "
                     "times the evaluator's own rounding besides\n",
                     kOperations, kStored, kSensitivity);
    if (!precision_.empty())
      *c_.answer << fmt::format(
          "precision: a gradient by kernels and by the derived formula, operation by operation (plain), in the declared types, "
          "against\nthat formula in f64; wrong beyond {:g} times plain's error and the tolerance\n",
          kBesidePlain);
    *c_.answer << (passed_ ? "passed\n" : "FAILED\n");
  }
};

}  // namespace

int check_command(const Command& c, const Source& source) { return Check(c, source).run(); }

}  // namespace xhat::tool

#include "runtime/cpu/assumptions.h"
#include "runtime/cpu/ir/late_functions.h"
#include "runtime/cpu/ir/statements.h"

#include <algorithm>
#include <array>
#include <optional>
#include <sstream>
#include <utility>
#include <string_view>

namespace xhat::runtime {
namespace {

using namespace Halide::Internal;
using Halide::Expr;

// Of arguments as the executor makes them, whatever their sizes: their types, strides and memory.
constexpr std::array<std::string_view, 11> kOfArguments = {
    "halide_error_buffer_argument_is_null", "halide_error_bad_type",
    "halide_error_bad_dimensions", "halide_error_buffer_extents_negative",
    "halide_error_buffer_allocation_too_large", "halide_error_buffer_extents_too_large",
    "halide_error_constraint_violated", "halide_error_device_dirty_with_no_device_support",
    "halide_error_host_is_null", "halide_error_host_and_device_dirty",
    "halide_error_constraints_make_required_region_smaller"};

using Value = std::optional<int64_t>;  // none: not known

// The value of an integer expression in one call.
class Evaluation {
 public:
  explicit Evaluation(const SampleCall& call) : call_(call) {}

  std::map<std::string, Value> names;  // of lets and loops around

  Value of(const Expr& e) {
    if (auto n = as_const_int(e)) return *n;
    if (auto n = as_const_uint(e)) return static_cast<int64_t>(*n);
    if (const auto* x = e.as<Variable>()) return variable(x->name);
    if (const auto* x = e.as<Cast>()) return cast(x);
    if (const auto* x = e.as<Let>()) return let(x);
    if (const auto* x = e.as<Select>()) {
      Value c = of(x->condition);
      return !c ? c : *c ? of(x->true_value) : of(x->false_value);
    }
    if (const auto* x = e.as<And>()) return both(x->a, x->b, 0);
    if (const auto* x = e.as<Or>()) return both(x->a, x->b, 1);
    if (const auto* x = e.as<Not>()) {
      Value v = of(x->a);
      return v ? Value(*v == 0) : v;
    }
    if (const auto* x = e.as<Call>()) return call(x);
    return binary(e);
  }

 private:
  Value variable(const std::string& name) const {
    if (auto it = names.find(name); it != names.end()) return it->second;
    if (auto it = call_.scalars.find(name); it != call_.scalars.end()) return it->second;
    return {};
  }

  Value cast(const Cast* x) {
    Value v = of(x->value);
    if (!v || !(x->type.is_int_or_uint() || x->type.is_bool())) return {};
    return x->type.can_represent(*v) ? v : Value();
  }

  Value let(const Let* x) {
    const Value value = of(x->value), hidden = std::exchange(names[x->name], value);
    const Value result = of(x->body);
    names[x->name] = hidden;
    return result;
  }

  // decides: the value of one side that makes the other one unimportant.
  Value both(const Expr& a, const Expr& b, int64_t decides) {
    const Value x = of(a), y = of(b);
    if (x == decides || y == decides) return decides;
    return x && y ? Value(1 - decides) : Value();
  }

  template <class F>
  Value apply(const Expr& a, const Expr& b, F f) {
    const Value x = of(a), y = of(b);
    return x && y ? Value(f(*x, *y)) : Value();
  }

  Value binary(const Expr& e) {
    using I = int64_t;
    if (!(e.type().is_int_or_uint() || e.type().is_bool()) || e.type().is_vector()) return {};
    if (const auto* x = e.as<Add>()) return apply(x->a, x->b, [](I a, I b) { return a + b; });
    if (const auto* x = e.as<Sub>()) return apply(x->a, x->b, [](I a, I b) { return a - b; });
    if (const auto* x = e.as<Mul>()) return apply(x->a, x->b, [](I a, I b) { return a * b; });
    if (const auto* x = e.as<Div>()) return apply(x->a, x->b, [](I a, I b) { return div_imp(a, b); });
    if (const auto* x = e.as<Mod>()) return apply(x->a, x->b, [](I a, I b) { return mod_imp(a, b); });
    if (const auto* x = e.as<Min>()) return apply(x->a, x->b, [](I a, I b) { return std::min(a, b); });
    if (const auto* x = e.as<Max>()) return apply(x->a, x->b, [](I a, I b) { return std::max(a, b); });
    if (const auto* x = e.as<EQ>()) return apply(x->a, x->b, [](I a, I b) { return I{a == b}; });
    if (const auto* x = e.as<NE>()) return apply(x->a, x->b, [](I a, I b) { return I{a != b}; });
    if (const auto* x = e.as<LT>()) return apply(x->a, x->b, [](I a, I b) { return I{a < b}; });
    if (const auto* x = e.as<LE>()) return apply(x->a, x->b, [](I a, I b) { return I{a <= b}; });
    if (const auto* x = e.as<GT>()) return apply(x->a, x->b, [](I a, I b) { return I{a > b}; });
    if (const auto* x = e.as<GE>()) return apply(x->a, x->b, [](I a, I b) { return I{a >= b}; });
    return {};
  }

  Value call(const Call* x) {
    if (is_hint(x)) return of(x->args[0]);
    if (x->is_intrinsic(Call::abs)) {
      Value v = of(x->args[0]);
      return v ? Value(std::abs(*v)) : v;
    }
    if (x->name == "llvm.bitreverse.i32" && is_const_zero(x->args[0])) return 0;  // emit.cpp
    if (x->name == "_halide_buffer_get_min" || x->name == "_halide_buffer_is_bounds_query") return 0;
    if (x->name == "_halide_buffer_get_extent") {
      const auto* buffer = x->args[0].as<Variable>();
      const Value dimension = of(x->args[1]);
      if (!buffer || !dimension) return {};
      const auto it = call_.extents.find(buffer->name.substr(0, buffer->name.rfind(".buffer")));
      return it == call_.extents.end() ? Value() : it->second.at(static_cast<size_t>(*dimension));
    }
    const Expr plain = x->is_intrinsic() ? lower_intrinsic(x) : Expr();
    return plain.defined() && !plain.same_as(x) ? of(plain) : Value();
  }

  const SampleCall& call_;
};

struct Assumptions : IRMutator {
  using IRMutator::visit;
  std::vector<SampleCall> calls;
  std::vector<Evaluation> at;  // the first and the last step of the loops around, of each call

  bool unknown_is_broken;

  Assumptions(std::vector<SampleCall> c, bool unknown) : calls(std::move(c)), unknown_is_broken(unknown) {
    for (const SampleCall& call : calls)
      for (int end = 0; end < 2; ++end) at.emplace_back(call);
  }

  template <class Value, class Inside>
  auto with_name(const std::string& name, Value value, Inside inside) {
    std::vector<std::optional<int64_t>> hidden;
    for (size_t i = 0; i < at.size(); ++i) hidden.push_back(std::exchange(at[i].names[name], value(at[i], i)));
    auto result = inside();
    for (size_t i = 0; i < at.size(); ++i) at[i].names[name] = hidden[i];
    return result;
  }

  Stmt visit(const LetStmt* op) override {
    return with_name(op->name, [&](Evaluation& e, size_t) { return e.of(op->value); }, [&] { return IRMutator::visit(op); });
  }

  Stmt visit(const For* op) override {
    auto ends = [&](Evaluation& e, size_t i) -> std::optional<int64_t> {
      const auto first = e.of(op->min), extent = e.of(op->extent);
      if (!first || !extent) return {};
      return i % 2 == 0 || *extent < 1 ? *first : *first + *extent - 1;
    };
    return with_name(op->name, ends, [&] { return IRMutator::visit(op); });
  }

  Stmt visit(const AssertStmt* op) override {
    Expr message = op->message;
    while (const auto* let = message.as<Let>()) message = let->body;
    const auto* error = message.as<Call>();
    const bool of_arguments = error && std::ranges::find(kOfArguments, std::string_view(error->name)) != kOfArguments.end();
    if (is_const_one(op->condition) || (of_arguments && !is_const_zero(op->condition))) return Evaluate::make(0);
    // Where data decide which element of an input is read, nobody knows it here: that it is inside was proved, or is checked before the call.
    const bool by_data = error && error->name == "halide_error_access_out_of_bounds";
    for (Evaluation& e : at) {
      const auto holds = e.of(op->condition);
      if (holds ? *holds == 1 : by_data || !unknown_is_broken) continue;
      std::ostringstream what;
      what << op->condition << " is " << (holds ? "not so" : "not known") << ": " << op->message;
      throw Halide::CompileError(what.str());
    }
    return Evaluate::make(0);
  }
};

}  // namespace

void refuse_broken_assumptions(Halide::Pipeline& pipeline, std::vector<SampleCall> calls, bool unknown_is_broken) {
  pipeline.add_custom_lowering_pass(new Assumptions(std::move(calls), unknown_is_broken));
}

void add_to(Halide::Module& module, const Halide::Module& added) {
  for (const Halide::Internal::LoweredFunc& f : added.functions()) module.append(f);
  for (const Halide::Buffer<void>& b : added.buffers()) module.append(b);
  module.set_any_strict_float(module.any_strict_float() || added.any_strict_float());
}

Halide::Module lowered_with_assertions(Halide::Pipeline& pipeline, const std::vector<Halide::Argument>& arguments, const std::string& name,
                                       const Halide::Target& target) {
  return with_late_functions(pipeline.compile_to_module(arguments, name, target.without_feature(Halide::Target::NoAsserts)), name, target);
}

}  // namespace xhat::runtime

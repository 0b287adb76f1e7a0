#include "runtime/cpu/ir/late_functions.h"

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "runtime/cpu/ir/statements.h"
#include "runtime/cpu/lower.h"
#include "runtime/emit/vector_math.h"

namespace xhat::runtime {
namespace {

using namespace Halide::Internal;
using Halide::Type;

constexpr int kMostInLine = 6000;  // operations of vector math
const std::string kRoom = "late.room.", kLane = "late.lane";

std::string room(size_t argument) { return kRoom + std::to_string(argument); }

// What is named, of vectors that lie in rooms, in place of the first of them.
Stmt in_place(const std::string& name, const std::vector<Expr>& x) {
  const Type t = x[0].type();
  const std::string lane = unique_name(kLane);
  const Expr index = t.is_vector() ? int_variable(lane) : 0;
  std::vector<Expr> elements;
  for (size_t i = 0; i < x.size(); ++i) elements.push_back(loaded(x[i].type().element_of(), room(i), index));
  const Stmt replaced = stored_at(room(0), common_subexpression_elimination(vmath::late(name, elements)), index);
  return t.is_vector() ? vectorize_loops(vectorized(lane, t.lanes(), replaced), {}) : replaced;
}

// The same with variables, instead of in memory.
struct StoredValue : IRMutator {
  std::map<std::string, Expr> of;  // by room
  Expr value;

  using IRMutator::visit;
  Expr visit(const Load* op) override {
    const auto at = of.find(op->name);
    return at == of.end() ? IRMutator::visit(op) : at->second;
  }
  Stmt visit(const Store* op) override {
    value = mutate(op->value);
    return op;
  }
};
Expr in_line(const std::string& name, const std::vector<Expr>& x) {
  StoredValue found;
  for (size_t i = 0; i < x.size(); ++i) found.of[room(i)] = variable(x[i].type(), unique_name("late.of"));
  found.mutate(in_place(name, x));
  Expr made = found.value;
  for (size_t i = 0; i < x.size(); ++i) made = Let::make(found.of[room(i)].as<Variable>()->name, x[i], made);
  return made;
}

struct LateFunctions : IRMutator {
  // Of a function's name and its arguments: what is called; undefined where it is written in line.
  std::function<Expr(const std::string&, const std::vector<Expr>&)> called;

  using IRMutator::visit;
  Expr visit(const Call* op) override {
    const Expr mutated = IRMutator::visit(op);
    const Call* call = mutated.as<Call>();
    if (!call) return mutated;
    if (vmath::is_late(call)) {
      const std::string name = vmath::name_of_late(call);
      const Expr result = called ? called(name, call->args) : Expr();
      return result.defined() ? result : mutate(in_line(name, call->args));
    }
    if (!call->is_intrinsic(Call::if_then_else) || call->args.size() != 3 || !call->args[0].type().is_vector()) return mutated;
    const int lanes = call->type.lanes();
    const std::string condition = unique_name("rare"), usual = unique_name("usual");
    const Expr rare = Variable::make(call->args[0].type(), condition), value = Variable::make(call->type, usual);
    const Expr any_is =
        Call::make(Halide::Bool(), "llvm.expect.i1", {VectorReduce::make(VectorReduce::Or, rare, 1), const_false()}, Call::PureExtern);
    const Expr any = Broadcast::make(any_is, lanes);
    const Expr branch =
        Call::make(call->type, Call::if_then_else, {any, Select::make(rare, call->args[1], value), value}, Call::PureIntrinsic);
    return Let::make(condition, call->args[0], Let::make(usual, call->args[2], branch));
  }
};

// Operations of vector math in line.
struct Length : IRVisitor {
  int length = 0;
  std::map<std::pair<std::string, int>, int> of;  // by name and bits

  using IRVisitor::visit;
  void visit(const Call* op) override {
    if (vmath::is_late(op)) {
      const auto [at, isnew] = of.try_emplace({op->name, op->type.bits()});
      if (isnew) at->second = vmath::operations(in_line(vmath::name_of_late(op), op->args));
      length += at->second;
    }
    IRVisitor::visit(op);
  }
};

// Functions of one module that are called with addresses of vectors, one for each name and type.
class Functions {
 public:
  Functions(Halide::Module& module, std::string name) : module_(module), name_(std::move(name)) {}

  Stmt with_calls(const Stmt& s) {
    Length of_code;
    s.accept(&of_code);
    const bool all = of_code.length > kMostInLine;
    LateFunctions late;
    late.called = [&](const std::string& name, const std::vector<Expr>& x) {
      return all || name.starts_with(vmath::kRare) ? call(name, x) : Expr();
    };
    return late.mutate(s);
  }

 private:
  Halide::Module& module_;
  std::string name_;
  std::map<std::pair<std::string, Type>, std::string> made_;

  Expr call(const std::string& of, const std::vector<Expr>& x) {
    const Type t = x[0].type(), pointer = Halide::type_of<void*>();
    const auto [at, isnew] = made_.try_emplace({of, t}, name_ + "_late_" + std::to_string(made_.size()));
    if (isnew) define(at->second, in_place(of, x), x.size());
    std::vector<Expr> rooms;
    for (size_t i = 0; i < x.size(); ++i) rooms.push_back(variable(pointer, room(i)));
    const std::string status = unique_name("late.status");
    // The status, which is 0, is where the result begins: so it is read after the call.
    Expr index = int_variable(status);
    if (t.is_vector()) index = Ramp::make(index, 1, t.lanes());
    const Expr result = Load::make(t, room(0), index, {}, {}, const_true(t.lanes()), {});
    Expr made = Let::make(status, Call::make(Halide::Int(32), at->second, rooms, Call::Extern), result);
    for (size_t i = 0; i < x.size(); ++i) made = Let::make(room(i), Call::make(pointer, Call::make_struct, {x[i]}, Call::Intrinsic), made);
    return made;
  }

  void define(const std::string& name, const Stmt& s, size_t arguments) {
    const Stmt body = with_calls(s);
    std::vector<LoweredArgument> rooms;
    for (size_t i = 0; i < arguments; ++i)
      rooms.emplace_back(room(i), Halide::Argument::InputScalar, Halide::type_of<void*>(), 0, Halide::ArgumentEstimates{});
    const bool fma = module_.target().has_feature(Halide::Target::FMA);
    module_.append(LoweredFunc(name, rooms, fma ? body : without_fma(body), Halide::LinkageType::External, Halide::NameMangling::C));
  }
};

}  // namespace

Halide::Module with_late_functions(const Halide::Module& lowered, const std::string& name) {
  Halide::Module made(lowered.name(), lowered.target());
  Functions functions(made, name);
  for (LoweredFunc f : lowered.functions()) {
    f.body = functions.with_calls(f.body);
    made.append(f);
  }
  for (const Halide::Buffer<void>& b : lowered.buffers()) made.append(b);
  made.set_any_strict_float(lowered.any_strict_float());
  return made;
}

void write_out_late_functions(Halide::Pipeline& pipeline) { pipeline.add_custom_lowering_pass(new LateFunctions); }

}  // namespace xhat::runtime

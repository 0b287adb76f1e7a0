#include "runtime/cpu/ir/late_functions.h"

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "runtime/cpu/ir/statements.h"
#include "runtime/cpu/ir/without_fma.h"
#include "runtime/emit/vector_math.h"

namespace xhat::runtime {
namespace {

using namespace Halide::Internal;
using Halide::Type;

constexpr int kMostInLine = 6000;  // operations of vector math
const std::string kRoom = "late.room.", kLane = "late.lane";

bool has_fma(const Halide::Target& target) { return target.has_feature(Halide::Target::FMA); }
std::string room(size_t argument) { return kRoom + std::to_string(argument); }

// A key of the code: the function, and those arguments that are constants.
std::string with_constants(std::string name, const std::vector<Expr>& x) {
  for (const Expr& of : x)
    if (const auto constant = as_const_float(of))
      name += fmt::format(" {:a}", *constant);
    else
      name += " .";
  return name;
}

// The code of a function as a statement: it loads the arguments, each a vector at an address of its own (its room), and stores the result over the
// first of them.
Stmt in_place(const std::string& name, const std::vector<Expr>& x, bool fma) {
  const Type t = x[0].type();
  const std::string lane = unique_name(kLane);
  const Expr index = t.is_vector() ? int_variable(lane) : 0;
  std::vector<Expr> elements;
  for (size_t i = 0; i < x.size(); ++i) {
    const Type element = x[i].type().element_of();
    const auto constant = as_const_float(x[i]);  // an order, by which the code is made
    elements.push_back(constant ? make_const(element, *constant) : loaded(element, room(i), index));
  }
  const Stmt replaced = stored_at(room(0), strictify_float(common_subexpression_elimination(vmath::late(name, elements))), index);
  const Stmt made = t.is_vector() ? vectorize_loops(vectorized(lane, t.lanes(), replaced), {}) : replaced;
  return fma ? made : without_fma(made);
}

// Finds what such a statement stores, with variables in place of loads.
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
// The code of a function as an expression of variables with these names.
Expr body_of(const std::string& name, const std::vector<Expr>& x, const std::vector<std::string>& names, bool fma) {
  StoredValue found;
  for (size_t i = 0; i < x.size(); ++i) found.of[room(i)] = variable(x[i].type(), names[i]);
  found.mutate(in_place(name, x, fma));
  return found.value;
}

struct Count : IRVisitor {
  int late = 0;

  using IRVisitor::visit;
  void visit(const Call* op) override {
    late += vmath::is_late(op);
    IRVisitor::visit(op);
  }
};
bool has_late(const Expr& x) {
  Count count;
  x.accept(&count);
  return count.late > 0;
}

using Bound = std::vector<std::pair<std::string, Expr>>;  // names and values, in order

Stmt under(const Bound& lets, Stmt s) {
  for (auto it = lets.rbegin(); it != lets.rend(); ++it) s = LetStmt::make(it->first, it->second, s);
  return s;
}

// Replaces calls of late functions. Results of calls and of branches are bound by LetStmts before the statement that uses them: Halide rewrites
// expressions while it generates code (of 16-bit floats, of single lanes) and would take a load out of the let that binds its memory.
struct LateFunctions : IRMutator {
  explicit LateFunctions(bool fma) : fma(fma) {}
  const bool fma;  // of the processor
  // Of a function's name and its arguments: what is called; undefined where it is written in line.
  std::function<Expr(const std::string&, const std::vector<Expr>&)> called;

  using IRMutator::visit;
  Stmt visit(const Store* op) override {
    if (!has_late(op->value) && !has_late(op->index)) return op;
    return with_bound([&] {
      const Expr value = mutate(op->value), index = mutate(op->index), predicate = mutate(op->predicate);
      return Store::make(op->name, value, index, op->param, predicate, op->alignment);
    });
  }
  Stmt visit(const LetStmt* op) override {
    const Stmt body = mutate(op->body);
    if (!has_late(op->value)) return LetStmt::make(op->name, op->value, body);
    return with_bound([&] { return LetStmt::make(op->name, mutate(op->value), body); });
  }

  Expr visit(const Variable* op) override {
    const auto at = names_.find(op->name);
    return at == names_.end() ? Expr(op) : variable(op->type, at->second);
  }
  Expr visit(const Let* op) override {
    const Expr value = mutate(op->value);
    const std::string name = unique_name(op->name);
    const auto at = names_.find(op->name);
    const std::string outer = at == names_.end() ? std::string() : at->second;
    names_[op->name] = name;
    const Expr made = let(name, value, [&] { return mutate(op->body); });
    if (outer.empty())
      names_.erase(op->name);
    else
      names_[op->name] = outer;
    return made;
  }
  Expr visit(const Call* op) override {
    if (vmath::is_late(op)) return of_late(vmath::name_of_late(op), mutate(op->args));
    if (!op->is_intrinsic(Call::if_then_else)) return IRMutator::visit(op);
    const bool rare = op->args.size() == 3 && op->args[0].type().is_vector() && !op->args[0].as<Broadcast>();
    const Expr condition = mutate(op->args[0]);
    if (rare) return branch(op, condition);
    std::vector<Expr> args{condition};
    const bool hoists = std::exchange(hoists_, false);
    for (size_t i = 1; i < op->args.size(); ++i) args.push_back(mutate(op->args[i]));
    hoists_ = hoists;
    return named(Call::make(op->type, Call::if_then_else, args, op->call_type), "either");
  }

 private:
  bool hoists_ = false;  // lets go before the statement; else they stay in the expression, as in a branch
  Bound before_;
  std::map<std::string, std::string> names_;  // of lets, whose names may occur again in copies of an expression

  Stmt with_bound(const std::function<Stmt()>& made) {
    hoists_ = true;
    const Stmt s = made();
    hoists_ = false;
    return under(std::exchange(before_, {}), s);
  }
  Expr let(const std::string& name, const Expr& value, const std::function<Expr()>& body) {
    if (!hoists_) return Let::make(name, value, body());
    before_.emplace_back(name, value);
    return body();
  }
  Expr named(const Expr& value, const std::string& like) {
    const std::string name = unique_name(like);
    return let(name, value, [&] { return variable(value.type(), name); });
  }

  Expr of_late(const std::string& function, const std::vector<Expr>& x) {
    if (const Expr result = called ? called(function, x) : Expr(); result.defined()) return named(result, "late");
    std::vector<std::string> names;
    for (size_t i = 0; i < x.size(); ++i) names.push_back(unique_name("late.of"));
    std::function<Expr(size_t)> from = [&](size_t i) {
      return i == x.size() ? mutate(body_of(function, x, names, fma)) : let(names[i], x[i], [&] { return from(i + 1); });
    };
    return from(0);
  }
  Expr branch(const Call* op, const Expr& condition) {
    const Expr usual_value = mutate(op->args[2]);
    const std::string rare_name = unique_name("rare"), usual_name = unique_name("usual");
    return let(rare_name, condition, [&] {
      return let(usual_name, usual_value, [&] {
        const Expr rare = variable(condition.type(), rare_name), usual = variable(op->type, usual_name);
        const bool hoists = std::exchange(hoists_, false);
        const std::string taken_name = unique_name("taken");
        const Expr taken = Let::make(taken_name, mutate(op->args[1]), Select::make(rare, variable(op->type, taken_name), usual));
        hoists_ = hoists;
        const Expr any_is =
            Call::make(Halide::Bool(), "llvm.expect.i1", {VectorReduce::make(VectorReduce::Or, rare, 1), const_false()}, Call::PureExtern);
        const Expr any = Broadcast::make(any_is, op->type.lanes());
        return named(Call::make(op->type, Call::if_then_else, {any, taken, usual}, Call::PureIntrinsic), "either");
      });
    });
  }
};

// Counts the operations that late functions have if all are written in line.
struct Length : IRVisitor {
  int length = 0;
  std::map<std::pair<std::string, int>, int> of;  // by with_constants() and bits

  using IRVisitor::visit;
  void visit(const Call* op) override {
    if (vmath::is_late(op)) {
      const auto [at, isnew] = of.try_emplace({with_constants(op->name, op->args), op->type.bits()});
      if (isnew)
        at->second = vmath::operations(body_of(vmath::name_of_late(op), op->args, std::vector<std::string>(op->args.size(), "x"), true));
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
    if (of_code.length == 0) return s;
    const bool all = of_code.length > kMostInLine;
    LateFunctions late(has_fma(module_.target()));
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
    const auto [at, isnew] = made_.try_emplace({with_constants(of, x), t}, name_ + "_late_" + std::to_string(made_.size()));
    if (isnew) define(at->second, in_place(of, x, has_fma(module_.target())), x.size());
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
    module_.append(LoweredFunc(name, rooms, body, Halide::LinkageType::External, Halide::NameMangling::C));
  }
};

}  // namespace

Halide::Module with_late_functions(const Halide::Module& lowered, const std::string& name, const Halide::Target& target) {
  Halide::Module made(lowered.name(), target);
  Functions functions(made, name);
  for (LoweredFunc f : lowered.functions()) {
    f.body = functions.with_calls(f.body);
    made.append(f);
  }
  for (const Halide::Buffer<void>& b : lowered.buffers()) made.append(b);
  made.set_any_strict_float(lowered.any_strict_float());
  return made;
}

void write_out_late_functions(Halide::Pipeline& pipeline, const Halide::Target& target) {
  pipeline.add_custom_lowering_pass(new LateFunctions(has_fma(target)));
}

}  // namespace xhat::runtime

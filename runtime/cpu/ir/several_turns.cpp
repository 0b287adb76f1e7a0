#include "runtime/cpu/ir/several_turns.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "runtime/cpu/ir/statements.h"

namespace xhat::runtime {
namespace {

constexpr std::string_view kMark = "_turns";

// Is there a variable in it whose name has this part?
struct Mentions : hi::IRVisitor {
  using IRVisitor::visit;
  std::string_view part;
  bool found = false;
  explicit Mentions(std::string_view name) : part(name) {}
  void visit(const hi::Variable* op) override { found = found || op->name.find(part) != std::string::npos; }
};

// How many turns the loop's name asks for. 1: the loop stays as it is. Halide appends to the name where it takes turns out of a loop, except for the
// first ones, of which there are few.
int turns_of(const hi::For& op) {
  const std::string& loop = op.name;
  const size_t at = loop.rfind(kMark);
  int turns = 1;
  if (at == std::string::npos) return 1;
  const char* end = loop.data() + loop.size();
  const auto read = std::from_chars(loop.data() + at + kMark.size(), end, turns);
  if (read.ec != std::errc() || read.ptr != end) return 1;
  Mentions first_ones(".prologue");
  op.extent.accept(&first_ones);
  return first_ones.found ? 1 : turns;
}

// One copy of a turn. Its lets have names of their own, as later passes take two lets of one name for one value. Its indices are simplified, so that
// those of neighbouring copies differ by a constant: LLVM then computes one address for a store and for the prefetch that marks it (nontemporal.h).
struct Copy : hi::IRMutator {
  using IRMutator::visit;
  std::string suffix;
  std::set<std::string> inside;
  explicit Copy(int turn) : suffix(".t" + std::to_string(turn)) {}

  template <class T>
  auto let(const T* op) {
    const Expr value = mutate(op->value);
    const bool fresh = inside.insert(op->name).second;
    const auto body = mutate(op->body);
    if (fresh) inside.erase(op->name);
    return T::make(op->name + suffix, value, body);
  }

  Expr visit(const hi::Variable* op) override { return inside.contains(op->name) ? variable(op->type, op->name + suffix) : op; }
  Expr visit(const hi::Let* op) override { return let<hi::Let>(op); }
  Stmt visit(const hi::LetStmt* op) override { return let<hi::LetStmt>(op); }
  Expr visit(const hi::Load* op) override {
    return hi::Load::make(op->type, op->name, hi::simplify(mutate(op->index)), op->image, op->param, mutate(op->predicate), op->alignment);
  }
  Stmt visit(const hi::Store* op) override {
    return hi::Store::make(op->name, mutate(op->value), hi::simplify(mutate(op->index)), op->param, mutate(op->predicate), op->alignment);
  }
};

// Operations on vectors in a turn's code.
struct Operations : hi::IRMutator {
  using IRMutator::mutate;
  int count = 0;
  Expr mutate(const Expr& e) override {
    const bool given = e.as<hi::Variable>() || e.as<hi::Broadcast>() || e.as<hi::Ramp>() || e.as<hi::Let>();
    if (e.type().is_vector() && !given) ++count;
    return IRMutator::mutate(e);
  }
};

// Processors look ahead about as far as this by themselves, so that more turns beside each other add code and no speed: a sine, 140 operations, is as
// fast one vector at a time as four, and compiled in half the time.
constexpr int kLookAhead = 150;
int worth_writing_out(const Stmt& turn, int turns) {
  Operations all;
  all.mutate(turn);
  return std::clamp(kLookAhead / std::max(all.count, 1), 1, turns);
}

struct Turns : hi::IRMutator {
  using IRMutator::visit;
  Stmt visit(const hi::For* op) override {
    const Stmt body = mutate(op->body);
    auto loop = [&](const std::string& name, const Expr& first, const Expr& count, const Stmt& in) {
      return hi::For::make(name, first, count, op->for_type, op->partition_policy, op->device_api, in);
    };
    const int asked = turns_of(*op), turns = asked > 1 ? worth_writing_out(body, asked) : 1;
    if (turns <= 1 || op->for_type != hi::ForType::Serial) return loop(op->name, op->min, op->extent, body);
    const Expr whole = hi::simplify(op->extent / turns), rest = hi::simplify(op->extent % turns);
    if (is_const_zero(whole)) return loop(op->name, op->min, op->extent, body);
    const std::string name = op->name + ".all";
    std::vector<Stmt> copies;
    for (int t = 0; t < turns; ++t)
      copies.push_back(Copy(t).mutate(hi::substitute(op->name, hi::simplify(op->min + int_variable(name) * turns + t), body)));
    const Stmt main = loop(name, 0, whole, hi::Block::make(copies));
    return is_const_zero(rest) ? main : hi::Block::make(main, loop(op->name, hi::simplify(op->min + whole * turns), rest, body));
  }
};

}  // namespace

std::string suffix_of_turns(int at_a_time) { return std::string(kMark) + std::to_string(at_a_time); }
void write_out_turns(Halide::Pipeline& pipeline) { pipeline.add_custom_lowering_pass(new Turns); }

}  // namespace xhat::runtime

#include "runtime/cpu/ir/prefetch_next.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/cpu/ir/lowered_ir.h"

namespace xhat::runtime {
namespace {

using namespace Halide::Internal;
using Halide::Expr;

constexpr size_t kMaxReads = 8;         // more would fill the loop with addresses
constexpr int64_t kMaxBytes = 16 << 10;  // a third of a first cache: rows as long as that are fetched well by themselves

// A loop as seen from outside of the step: without the names that are let inside.
struct Around {
  std::string name;
  Expr begin, extent;
};

struct Read {
  std::string buffer;
  Halide::Type type;
  int lanes;
  Expr first;                 // index of its first element
  std::vector<Around> loops;  // around it in the step: one at least, the outermost first
};

// Loads of inputs in vectors, in loops.
struct StepReads : IRVisitor {
  using IRVisitor::visit;
  const std::set<std::string>& inputs;
  std::vector<Read> dense;
  Lets lets;
  std::vector<Around> loops;
  explicit StepReads(const std::set<std::string>& of) : inputs(of) {}

  void visit(const LetStmt* op) override { in_let(op); }
  void visit(const Let* op) override { in_let(op); }
  void visit(const For* op) override {
    loops.push_back({op->name, written_out(op->min, lets), written_out(op->extent, lets)});
    op->body.accept(this);
    loops.pop_back();
  }
  void visit(const Load* op) override {
    IRVisitor::visit(op);
    if (!inputs.contains(op->name)) return;
    if (const auto* ramp = op->index.as<Ramp>(); !loops.empty() && ramp && is_const_one(ramp->stride))
      dense.push_back({op->name, op->type.element_of(), op->type.lanes(), written_out(ramp->base, lets), loops});
  }
  template <class L>
  void in_let(const L* op) {
    op->value.accept(this);
    lets.emplace_back(op->name, op->value);
    op->body.accept(this);
    lets.pop_back();
  }
};

// How much is computed at the loop's turns together, about: of loops over the same row, which computes most?
struct Work : IRVisitor {
  using IRVisitor::visit;
  double nodes = 0, turns = 1;
  void visit(const For* op) override {
    const double outer = turns;
    if (const auto n = as_const_int(op->extent)) turns *= static_cast<double>(*n);
    op->body.accept(this);
    turns = outer;
  }
  void visit(const Call* op) override { count(op); }
  void visit(const Add* op) override { count(op); }
  void visit(const Mul* op) override { count(op); }
  void visit(const Div* op) override { count(op); }
  void visit(const Select* op) override { count(op); }
  template <class N>
  void count(const N* op) {
    if (op->type.is_vector()) nodes += turns;
    IRVisitor::visit(op);
  }
};
double work_of(const For* loop) {
  Work work;
  loop->accept(&work);
  return work.nodes;
}

// The loops of a step, one after another, and what each reads.
struct Step {
  struct Loop {
    const For* code;
    std::vector<Read> reads;
  };
  StepReads all;  // and what is read between the loops
  std::vector<Loop> loops;
  explicit Step(const std::set<std::string>& inputs) : all(inputs) {}

  void look(const Stmt& s) {
    if (!s.defined()) return;
    if (const auto* block = s.as<Block>()) {
      look(block->first);
      look(block->rest);
    } else if (const auto* let = s.as<LetStmt>()) {
      // Names are let once in a pipeline: these hold to the end.
      all.lets.emplace_back(let->name, let->value);
      look(let->body);
    } else if (const auto* made = s.as<ProducerConsumer>()) {
      look(made->body);
    } else if (const auto* allocated = s.as<Allocate>()) {
      look(allocated->body);
    } else if (const auto* either = s.as<IfThenElse>(); either && either->else_case.defined() && either->then_case.as<For>()) {
      look(either->then_case);  // one loop in two versions (stream_stores.h); the first is the fast one
    } else if (const auto* loop = s.as<For>()) {
      const size_t before = all.dense.size();
      loop->accept(&all);
      loops.push_back({loop, {all.dense.begin() + static_cast<ptrdiff_t>(before), all.dense.end()}});
    } else {
      s.accept(&all);
    }
  }
};

Expr moved(const Expr& e, const std::string& by) { return graph_substitute(by, Variable::make(Halide::Int(32), by) + 1, e); }

// Elements that a read covers at all turns of its loops; none if that is not known here.
std::optional<int64_t> elements(const Read& r) {
  int64_t n = r.lanes;
  for (const Around& l : r.loops) {
    const auto extent = as_const_int(l.extent);
    if (!extent) return {};
    n *= *extent;
  }
  return n;
}

// What the next step reads of an input and this one does not, where each reads it for the first time.
std::vector<Read> new_lines(const std::vector<Read>& reads, const std::string& buffer, const std::string& loop, bool rows) {
  std::vector<Read> news;
  bool again = false;
  int64_t bytes = 0;
  for (const Read& r : reads) {
    Loads data;
    r.first.accept(&data);
    if (r.buffer != buffer || !data.names.empty()) continue;
    const Expr next = moved(r.first, loop);
    auto reads_it = [&](const Read& other) { return other.buffer == buffer && is_const_zero(simplify(next - other.first)); };
    auto beside = [&](const Read& other) { return other.loops.back().name == r.loops.back().name && reads_it(other); };
    if (std::ranges::any_of(reads, beside)) {
      again = true;
    } else if (std::ranges::none_of(news, reads_it)) {
      news.push_back(r);
      news.back().first = next;
      bytes += elements(r).value_or(kMaxBytes) * r.type.bytes();
    }
  }
  if (!again && (!rows || bytes > kMaxBytes)) return {};
  return news;
}

// Lines to ask for, and the loop to do it in: of those behind the loops that wait for this step's, the one that computes most, for
// there memory has most time.
struct FetchPlan {
  std::vector<Read> lines;
  const For* into = nullptr;
};
FetchPlan plan_of(const Step& step, const std::string& loop, bool rows) {
  FetchPlan plan;
  size_t behind = 0;
  std::set<std::string> seen;
  for (size_t i = 0; i + 1 < step.loops.size(); ++i)
    for (const Read& r : step.loops[i].reads) {
      if (!seen.insert(r.buffer).second) continue;
      const std::vector<Read> lines = new_lines(step.loops[i].reads, r.buffer, loop, rows);
      plan.lines.insert(plan.lines.end(), lines.begin(), lines.end());
      if (!lines.empty()) behind = i + 1;
    }
  if (plan.lines.empty() || plan.lines.size() > kMaxReads) return {};
  double most = 0;
  for (size_t i = behind; i < step.loops.size(); ++i)
    if (const double work = work_of(step.loops[i].code); !plan.into || work >= most) plan.into = step.loops[i].code, most = work;
  return plan;
}

// A turn's share of a read's lines: of the steps of the outermost loop around it that has more than one.
Stmt share_of(const Read& r, const For& last, const std::string& name) {
  auto variable = [](const std::string& n) { return Variable::make(Halide::Int(32), n); };
  const std::vector<Expr> line = {Variable::make(Halide::Handle(), r.buffer), r.first, 1, 1};
  const Stmt fetch = Evaluate::make(Call::make(r.type, Call::prefetch, line, Call::Intrinsic));
  Stmt stmt = Block::make(fetch, fetch);  // twice: nontemporal.h
  size_t outer = 0;
  while (outer + 1 < r.loops.size() && is_const_one(r.loops[outer].extent)) ++outer;
  for (size_t i = r.loops.size(); i-- > 0;) {
    const Around& l = r.loops[i];
    const std::string own = name + "." + std::to_string(i);
    Expr at = l.begin + variable(own), count = l.extent;
    if (i < outer) at = l.begin;
    if (i == outer) {
      const Expr each = (l.extent + last.extent - 1) / last.extent, begin = (variable(last.name) - last.min) * each;
      at = at + begin;
      count = Halide::min(l.extent - begin, each);
    }
    stmt = graph_substitute(l.name, simplify(at), stmt);
    if (i >= outer) stmt = For::make(own, 0, simplify(count), ForType::Serial, Halide::Partition::Never, Halide::DeviceAPI::None, stmt);
  }
  return stmt;
}

struct Ahead : IRMutator {
  using IRMutator::visit;
  Ahead(std::set<std::string> of, bool whole_rows) : inputs(std::move(of)), rows(whole_rows) {}
  const std::set<std::string> inputs;
  const bool rows;  // those too that no window reads
  const For* into = nullptr;
  Stmt asked;

  Stmt visit(const For* loop) override {
    if (loop == into)
      return For::make(loop->name, loop->min, loop->extent, loop->for_type, loop->partition_policy, loop->device_api,
                       Block::make(asked, loop->body));
    if (into) return loop;
    Step step(inputs);
    step.look(loop->body);
    if (step.loops.empty() || loop->for_type != ForType::Serial || is_const_one(loop->extent)) return IRMutator::visit(loop);
    const FetchPlan plan = plan_of(step, loop->name, rows);
    if (!plan.into || is_const_one(plan.into->extent)) return IRMutator::visit(loop);
    asked = {};
    for (size_t i = 0; i < plan.lines.size(); ++i) {
      const Stmt share = share_of(plan.lines[i], *plan.into, plan.into->name + ".ahead" + std::to_string(i));
      asked = asked.defined() ? Block::make(asked, share) : share;
    }
    into = plan.into;
    Stmt body = mutate(loop->body);
    into = nullptr;
    return For::make(loop->name, loop->min, loop->extent, loop->for_type, loop->partition_policy, loop->device_api, body);
  }
};

}  // namespace

void prefetch_next(Halide::Pipeline& pipeline, const std::set<std::string>& inputs, Halide::Target::Processor tuned_for) {
  pipeline.add_custom_lowering_pass(new Ahead(inputs, tuned_for != Halide::Target::Processor::ZnVer4));
}

}  // namespace xhat::runtime

#include "runtime/prefetch_next.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/lowered_ir.h"

namespace xhat::runtime {
namespace {

using namespace Halide::Internal;
using Halide::Expr;

constexpr size_t kMostReads = 8;  // more would fill the loop with addresses

// A loop as seen from outside of the step: without the names that are let inside.
struct Around {
  std::string name;
  Expr begin, extent;
};

struct Read {
  std::string buffer;
  Halide::Type type;
  Expr first;                 // index of its first element
  std::vector<Around> loops;  // around it in the step: one at least, the outermost first
};

// Loads of inputs, and those of them in vectors, in loops.
struct Reads : IRVisitor {
  using IRVisitor::visit;
  const std::set<std::string>& inputs;
  std::set<std::string> loaded;
  std::vector<Read> dense;
  Lets lets;
  std::vector<Around> loops;
  explicit Reads(const std::set<std::string>& of) : inputs(of) {}

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
    loaded.insert(op->name);
    if (const auto* ramp = op->index.as<Ramp>(); !loops.empty() && ramp && is_const_one(ramp->stride))
      dense.push_back({op->name, op->type.element_of(), written_out(ramp->base, lets), loops});
  }
  template <class L>
  void in_let(const L* op) {
    op->value.accept(this);
    lets.emplace_back(op->name, op->value);
    op->body.accept(this);
    lets.pop_back();
  }
};

// The last loop of a step, and what it reads before and in that.
struct Step {
  Reads before, within;
  const For* last = nullptr;
  explicit Step(const std::set<std::string>& inputs) : before(inputs), within(inputs) {}

  void look(const Stmt& s) {
    if (const auto* block = s.as<Block>()) {
      look(block->first);
      look(block->rest);
    } else if (const auto* let = s.as<LetStmt>()) {
      // Names are let once in a pipeline: these hold to the end.
      before.lets.emplace_back(let->name, let->value);
      look(let->body);
    } else if (const auto* made = s.as<ProducerConsumer>()) {
      look(made->body);
    } else if (const auto* allocated = s.as<Allocate>()) {
      look(allocated->body);
    } else if (const auto* either = s.as<IfThenElse>(); either && either->else_case.defined() && either->then_case.as<For>()) {
      look(either->then_case);  // one loop in two versions (stream_stores.h); the first is the fast one
    } else if (const auto* loop = s.as<For>()) {
      if (last) last->accept(&before);
      last = loop;
    } else if (s.defined()) {
      s.accept(&before);
    }
  }
};

Expr moved(const Expr& e, const std::string& by) { return graph_substitute(by, Variable::make(Halide::Int(32), by) + 1, e); }

// Of the inputs of which the next step reads again some of what this one reads: what else it reads.
std::vector<Read> new_lines(const Step& step, const std::string& loop) {
  std::vector<Read> news;
  std::set<std::string> again;
  for (const Read& r : step.before.dense) {
    Loads data;
    r.first.accept(&data);
    if (!data.names.empty() || step.within.loaded.contains(r.buffer)) continue;
    const Expr next = moved(r.first, loop);
    auto reads_it = [&](const Read& other) { return other.buffer == r.buffer && is_const_zero(simplify(next - other.first)); };
    auto beside = [&](const Read& other) { return other.loops.back().name == r.loops.back().name && reads_it(other); };
    if (std::ranges::any_of(step.before.dense, beside)) {
      again.insert(r.buffer);
    } else if (std::ranges::none_of(news, reads_it)) {
      news.push_back(r);
      news.back().first = next;
    }
  }
  std::erase_if(news, [&](const Read& r) { return !again.contains(r.buffer); });
  return news;
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
  explicit Ahead(std::set<std::string> of) : inputs(std::move(of)) {}
  const std::set<std::string> inputs;
  const For* into = nullptr;
  Stmt asked;

  Stmt visit(const For* loop) override {
    if (loop == into)
      return For::make(loop->name, loop->min, loop->extent, loop->for_type, loop->partition_policy, loop->device_api,
                       Block::make(asked, loop->body));
    if (into) return loop;
    Step step(inputs);
    step.look(loop->body);
    if (!step.last || loop->for_type != ForType::Serial || is_const_one(loop->extent)) return IRMutator::visit(loop);
    step.last->accept(&step.within);
    const std::vector<Read> reads = new_lines(step, loop->name);
    if (reads.empty() || reads.size() > kMostReads || is_const_one(step.last->extent)) return IRMutator::visit(loop);
    asked = {};
    for (size_t i = 0; i < reads.size(); ++i) {
      const Stmt share = share_of(reads[i], *step.last, step.last->name + ".ahead" + std::to_string(i));
      asked = asked.defined() ? Block::make(asked, share) : share;
    }
    into = step.last;
    Stmt body = mutate(loop->body);
    into = nullptr;
    return For::make(loop->name, loop->min, loop->extent, loop->for_type, loop->partition_policy, loop->device_api, body);
  }
};

}  // namespace

void prefetch_next(Halide::Pipeline& pipeline, const std::set<std::string>& inputs) {
  pipeline.add_custom_lowering_pass(new Ahead(inputs));
}

}  // namespace xhat::runtime

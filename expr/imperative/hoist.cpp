#include "expr/imperative/hoist.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <fmt/format.h>

#include "expr/core/machine_model.h"
#include "expr/index/affine.h"
#include "expr/index/linear.h"

namespace xhat::imperative {
namespace {

// When a value is known.
enum class When : uint8_t {
  once,    // before the loop, and it is the same in all iterations
  before,  // before the loop, but each iteration has one of its own
  now,     // in the iteration
};

// Of a block, values that are computed once: each is one more tensor for kernels to write and to read.
constexpr std::ptrdiff_t kMostParts = 16;
constexpr size_t kMostDefinitions = 64;

// What of one block can be computed before the loop.
class BlockHoist {
 public:
  // `around`: the loops that the block stands in, this one last.
  BlockHoist(Program& p, const Loop& loop, std::span<const AxisRange> around, const std::unordered_set<TensorId>& inside)
      : p_(p), a_(*p.arena), loop_(loop), around_(around), inside_(inside) {}

  // The block that computes it, and `block` without it, which may have no results left. None: there is nothing.
  std::optional<Block> run(Block& block) {
    const Program& op = *block.op;
    for (size_t k = 0; k < block.operands.size(); ++k) {
      operand_of_[op.inputs[k]] = k;
      when_[op.inputs[k]] = when(block.operands[k]);
    }
    for (const Definition& d : op.forward.definitions) {
      for (TensorId t : d.targets) when_[t] = d.is_call() || !reads_inside(op, d, d.body) ? When::now : when(d.body);
      if (!d.is_call()) definition_of_[d.target()] = &d;
    }
    for (const Definition& d : op.forward.definitions)
      if (!d.is_call() && when_.at(d.target()) == When::once && is_float(a_[d.body].type) && moved_.size() < kMostDefinitions &&
          is_worth_it(d.body))
        moved_.insert(d.target());
    needed_ = {op.outputs.begin(), op.outputs.end()};
    for (size_t k = op.forward.definitions.size(); k-- > 0;) {
      const Definition& d = op.forward.definitions[k];
      if (d.is_call()) {
        needed_.insert(d.arguments.begin(), d.arguments.end());
      } else if (needed_.contains(d.target()) && !moved_.contains(d.target())) {
        find(op, d);
      }
    }
    std::erase_if(moved_, [&](TensorId t) { return !needed_.contains(t); });
    if (parts_.empty() && moved_.empty()) return {};
    return split(block);
  }

 private:
  // An expression of the block that is computed before the loop, and the definition that it stands in.
  struct Part {
    Id id;
    const Definition* in;
    When when;
  };

  Program& p_;
  Arena& a_;
  const Loop& loop_;
  std::span<const AxisRange> around_;
  const std::unordered_set<TensorId>& inside_;  // what the loop makes
  std::unordered_map<TensorId, When> when_;     // inputs and definitions of the op
  std::unordered_map<Id, When> node_when_;
  std::unordered_map<TensorId, size_t> operand_of_;
  std::unordered_map<TensorId, const Definition*> definition_of_;
  std::set<TensorId> moved_;   // definitions that are computed before the loop as a whole
  std::set<TensorId> needed_;  // what the loop's block still reads or returns
  std::vector<Part> parts_;
  std::unordered_map<TensorId, int64_t> cost_;  // of an element of a definition, with what it reads

  // ---- what is known when ----

  // A row that might not be there is not asked for before the loop: there may be no iteration.
  When when(const Operand& o) const {
    if (o.scalar != kNone) return varies(o.scalar) || made_inside(o.scalar) ? When::now : When::once;
    if (inside_.contains(o.value)) return When::now;
    When all = When::once;
    for (size_t k = 0; k < o.row.size(); ++k) {
      if (o.row[k] == kNone) continue;
      if (!tensors_read(a_, o.row[k]).empty()) return When::now;
      const std::span<const AxisRange> known = around_.first(around_.size() - !varies(o.row[k]));
      if (prove_bounds(a_, {known, {}, o.row[k], p_.tensors[o.value].shape[k]}).verdict != BoundsAnswer::Verdict::proved) return When::now;
      if (!varies(o.row[k])) continue;
      if (!iterations_are_plain() || a_[o.row[k]].free_axes().size() != 1) return When::now;
      all = When::before;
    }
    return all;
  }

  bool varies(Id id) const { return a_[id].depends_on(loop_.variable); }
  bool made_inside(Id id) const {
    return std::ranges::any_of(tensors_read(a_, id), [&](TensorId t) { return inside_.contains(t); });
  }

  // Iterations that can be rows of a tensor: their number is known, and outside of loops.
  bool iterations_are_plain() const {
    if (loop_.condition || loop_.stride != 1) return false;
    return std::ranges::all_of(std::array{loop_.begin, loop_.end},
                               [&](Id bound) { return a_[bound].free_axes().empty() && tensors_read(a_, bound).empty(); });
  }

  When when(Id root) {
    if (const auto known = node_when_.find(root); known != node_when_.end()) return known->second;
    for (Id id : reachable(a_, root)) {
      const Node& n = a_[id];
      When all = n.op == Op::random ? When::now : is_read(n.op) ? when_.at(n.symbol) : When::once;
      for (Id x : n.args()) all = std::max(all, node_when_.at(x));
      node_when_[id] = all;
    }
    return node_when_.at(root);
  }

  // ---- what is worth it ----

  // A sum over two tensors at least.
  bool is_product(Id id) const { return a_[id].op == Op::sum && tensors_read(a_, id).size() >= 2; }

  // Is it dearer to compute in each iteration than to read?
  bool is_worth_it(Id root) {
    if (tensors_read(a_, root).empty() || cost(root) <= kCheap_ps) return false;
    return !a_[root].free_axes().empty() || std::ranges::any_of(reachable(a_, root), [&](Id id) { return is_reduction(a_[id].op); });
  }

  // Per element, in picoseconds; a reduction is dear, whatever it is of.
  int64_t cost(Id root) {
    int64_t all = 0;
    for (Id id : reachable(a_, root)) {
      const Node& n = a_[id];
      if (is_reduction(n.op)) all += 2 * kCheap_ps;
      if (is_float(n.type)) all += cost_ps(a_, n);
      if (const auto d = definition_of_.find(n.symbol); is_read(n.op) && d != definition_of_.end()) {
        const auto [it, fresh] = cost_.try_emplace(n.symbol, 0);
        if (fresh) cost_[n.symbol] = cost(d->second->body);
        all += cost_.at(n.symbol);
      }
    }
    return all;
  }

  // Is there a tensor as large as the expression at all its points? It has a tensor of its own before the loop.
  bool is_no_larger(const Program& op, const Definition& d, Id root) const {
    const std::span<const Id> axes = a_[root].free_axes();
    if (has_tensor(op.outputs, d.target()) && std::ranges::all_of(axes, [&](Id x) { return has_axis(d.axes, x); })) return true;
    return std::ranges::any_of(reachable(a_, root), [&](Id id) {
      if (!is_read(a_[id].op)) return false;
      const std::span<const Id> indices = read_indices(a_[id]);
      return std::ranges::all_of(axes, [&](Id x) { return std::ranges::count(indices, x) > 0; });
    });
  }

  // The definition's axes and those of the reductions in it, outer first.
  std::vector<AxisRange> scope(const Definition& d) const {
    std::vector<AxisRange> all = d.axes;
    std::vector<Id> ids = reachable(a_, d.body);
    for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
      if (!is_reduction(a_[*id].op)) continue;
      for (const AxisRange& r : reduce_axes(a_[*id]))
        if (!has_axis(all, r.axis)) all.push_back(r);
    }
    return all;
  }

  static bool has_axis(const std::vector<AxisRange>& ranges, Id axis) {
    return std::ranges::find(ranges, axis, &AxisRange::axis) != ranges.end();
  }

  // The largest parts of the definition that are known before the loop and are worth it.
  void find(const Program& op, const Definition& d) {
    const std::vector<AxisRange> ranges = scope(d);
    std::set<Id> met;
    std::vector<Id> open = {d.body};
    while (!open.empty()) {
      const Id id = open.back();
      open.pop_back();
      if (!met.insert(id).second) continue;
      const When known = when(id);
      if (known != When::now && is_part(op, d, ranges, id, known)) {
        if (std::ranges::count(parts_, id, &Part::id) == 0) parts_.push_back({id, &d, known});
      } else {
        if (is_read(a_[id].op)) needed_.insert(a_[id].symbol);
        for (Id x : a_[id].args()) open.push_back(x);
      }
    }
  }

  bool is_part(const Program& op, const Definition& d, const std::vector<AxisRange>& ranges, Id id, When known) {
    const Node& n = a_[id];
    if (!is_float(n.type)) return false;
    if (known == When::once && n.op == Op::read && moved_.contains(n.symbol)) return false;  // it is there
    const bool product = std::ranges::any_of(reachable(a_, id), [&](Id x) { return is_product(x); });
    if (!product && (known != When::once || std::ranges::count(parts_, When::once, &Part::when) >= kMostParts)) return false;
    if (!product && (!is_worth_it(id) || !is_no_larger(op, d, id))) return false;
    for (Id axis : n.free_axes()) {
      const auto r = std::ranges::find(ranges, axis, &AxisRange::axis);
      if (r == ranges.end() || !range_is_plain(a_, *r) || !tensors_read(a_, r->end).empty()) return false;
      if (known == When::before && !has_axis(d.axes, axis)) return false;
    }
    return reads_inside(op, d, id);
  }

  // Whatever stands around it: before the loop it is computed at all points.
  bool reads_inside(const Program& op, const Definition& d, Id root) const {
    const std::vector<AxisRange> axes = scope(d);
    for (Id id : reachable(a_, root)) {
      if (a_[id].op != Op::read) continue;
      for (size_t k = 0; k < a_[id].arg_count; ++k)
        if (prove_bounds(a_, {axes, {}, a_[id].arg(k), op.tensors[a_[id].symbol].shape[k]}).verdict != BoundsAnswer::Verdict::proved)
          return false;
    }
    return true;
  }

  // ---- the two blocks ----

  // The block before the loop, as it grows.
  struct Before {
    Program op;
    Block block;
    std::map<TensorId, TensorId> tensors;  // by tensor of the block in the loop
  };

  std::optional<Block> split(Block& block) {
    const Program& op = *block.op;
    Before before;
    before.op.name = op.name.ends_with("_before") ? op.name : op.name + "_before";
    before.op.arena = p_.arena;
    before.op.dims = p_.dims;
    before.op.file = op.file;
    before.op.text = op.text;

    Program rest = op;
    std::ranges::stable_sort(parts_, std::less<>(), &Part::in);
    Replacements reads;  // in `rest`, by part
    for (const Part& at : parts_) {
      const Id part = at.id;
      std::vector<AxisRange> axes = scope(*at.in);
      std::erase_if(axes, [&](const AxisRange& r) { return !a_[part].depends_on(r.axis); });
      std::vector<Id> shape, places;
      for (const AxisRange& r : axes) shape.push_back(r.end), places.push_back(r.axis);
      const std::string name = op.tensors[at.in->target()].name + (at.when == When::once ? "_once" : "_all");
      const TensorId input = rest.add_tensor(name, a_[part].type, shape);
      rest.tensors[input].role = Role::input;
      rest.inputs.push_back(input);
      reads[part] = a_.read(input, a_[part].type, places);
      const Id body = in_before(before, op, block, part);
      const TensorId made = define(before, name, a_[part].type, at.when, std::move(axes), body, at.in->pos);
      if (part == at.in->body && places.size() == at.in->axes.size()) before.tensors[at.in->target()] = made;
      before.op.outputs.push_back(made);
      before.block.results.push_back(p_.add_tensor(name, a_[part].type, before.op.tensors[made].shape));
      block.operands.push_back({before.block.results.back(), at.when == When::once ? Row{} : Row{row()}, kNone});
    }
    for (Definition& d : rest.forward.definitions)
      if (!d.is_call()) d.body = with_reads(d.body, reads);
    move_definitions(before, rest, block);
    before.op = without_unused_dims(std::move(before.op));
    before.block.op = std::make_shared<const Program>(std::move(before.op));
    drop_unused(rest, block);
    block.op = std::make_shared<const Program>(without_unused_dims(std::move(rest)));
    return std::move(before.block);
  }

  // Parts are read under the reductions whose axes they have: substitute() would rename those.
  Id with_reads(Id root, const Replacements& reads) const {
    std::unordered_map<Id, Id> done;
    for (Id id : reachable(a_, root)) {
      std::vector<Id> args;
      for (Id x : a_[id].args()) args.push_back(done.at(x));
      const auto read = reads.find(id);
      done[id] = read == reads.end() ? a_.with_args(id, args) : read->second;
    }
    return done.at(root);
  }

  // Iteration k of the loop is row k.
  bool from_zero() const { return is_constant(a_, loop_.begin, 0); }
  Id row() const { return from_zero() ? loop_.variable : tidy_index(a_, a_.sub(loop_.variable, loop_.begin)); }
  Id variable() const { return from_zero() ? loop_.variable : a_.add(loop_.begin, loop_.variable); }
  Id trips() const { return from_zero() ? loop_.end : tidy_index(a_, a_.sub(loop_.end, loop_.begin)); }

  TensorId define(Before& before, const std::string& name, DType type, When known, std::vector<AxisRange> axes, Id body, Pos pos) const {
    if (known == When::before) axes.insert(axes.begin(), {loop_.variable, a_.integer(0), trips()});
    std::vector<Id> shape;
    for (const AxisRange& r : axes) shape.push_back(r.end);
    const TensorId made = before.op.add_tensor(name, type, shape);
    Definition d{{made}, std::move(axes), body, pos, nullptr, {}};
    d.sometimes_unread = true;
    before.op.forward.definitions.push_back(std::move(d));
    return made;
  }

  // The expression as the block before the loop has it, with the definitions that it reads.
  Id in_before(Before& before, const Program& op, const Block& block, Id root) const {
    return rewrite(a_, root, [&](Id x) {
      const Node n = a_[x];
      if (!is_read(n.op)) return x;
      std::vector<Id> at(read_indices(n).begin(), read_indices(n).end());
      TensorId t = 0;
      if (const auto input = operand_of_.find(n.symbol); input != operand_of_.end()) {
        const Operand& o = block.operands[input->second];
        t = input_of(before, op, o, n.symbol);
        if (when_.at(n.symbol) == When::before) {
          Row all = o.row;
          for (Id& index : all)
            if (index != kNone) index = substitute(a_, index, {{loop_.variable, variable()}});
          at = in_value(all, at);
        }
      } else {
        t = definition_in(before, op, block, n.symbol);
        if (when_.at(n.symbol) == When::before) at.insert(at.begin(), loop_.variable);
      }
      return n.op == Op::read ? a_.read(t, n.type, at) : a_.read_or(t, n.type, at, n.args().back());
    });
  }

  TensorId input_of(Before& before, const Program& op, const Operand& o, TensorId input) const {
    const auto [it, fresh] = before.tensors.try_emplace(input, 0);
    if (!fresh) return it->second;
    const bool whole = when_.at(input) == When::before;  // with the rows of all iterations
    const Tensor& like = whole ? p_.tensors[o.value] : op.tensors[input];
    const TensorId made = before.op.add_tensor(op.tensors[input].name, like.type, like.shape);
    before.op.tensors[made].role = Role::input;
    before.op.inputs.push_back(made);
    before.block.operands.push_back(whole ? Operand{o.value, {}, kNone} : o);
    return it->second = made;
  }

  TensorId definition_in(Before& before, const Program& op, const Block& block, TensorId t) const {
    if (const auto done = before.tensors.find(t); done != before.tensors.end()) return done->second;
    const Definition& d = *definition_of_.at(t);
    const When known = when_.at(t);
    const Id body = in_before(before, op, block, d.body);
    const TensorId made = define(before, op.tensors[t].name, op.tensors[t].type, known, d.axes, body, d.pos);
    before.tensors[t] = made;
    return made;
  }

  // Definitions that are computed before the loop are inputs of the block, where it reads them, and values of the program, where it returned them.
  void move_definitions(Before& before, Program& rest, Block& block) const {
    const Program& op = *block.op;
    for (TensorId t : moved_) {
      const TensorId made = definition_in(before, op, block, t);
      TensorId value = kNoTensor;
      for (size_t k = rest.outputs.size(); k-- > 0;) {
        if (rest.outputs[k] != t) continue;
        before.op.outputs.push_back(made);
        before.block.results.push_back(value = block.results[k]);
        rest.outputs.erase(rest.outputs.begin() + static_cast<std::ptrdiff_t>(k));
        block.results.erase(block.results.begin() + static_cast<std::ptrdiff_t>(k));
      }
      if (value == kNoTensor) {
        value = p_.add_tensor(op.tensors[t].name, op.tensors[t].type, op.tensors[t].shape);
        before.op.outputs.push_back(made);
        before.block.results.push_back(value);
      }
      rest.tensors[t].role = Role::input;
      rest.inputs.push_back(t);
      block.operands.push_back({value, {}, kNone});
    }
    std::erase_if(rest.forward.definitions,
                  [&](const Definition& d) { return !d.is_call() && (moved_.contains(d.target()) || !needed_.contains(d.target())); });
  }

  // Inputs that nothing reads any more.
  void drop_unused(Program& op, Block& block) const {
    std::set<TensorId> read;
    for (const Definition& d : op.forward.definitions) {
      read.insert(d.arguments.begin(), d.arguments.end());
      if (!d.is_call())
        for (TensorId t : tensors_read(a_, d.body)) read.insert(t);
    }
    for (size_t k = op.inputs.size(); k-- > 0;) {
      const auto known = when_.find(op.inputs[k]);
      if (read.contains(op.inputs[k]) || known == when_.end() || known->second == When::now) continue;
      op.inputs.erase(op.inputs.begin() + static_cast<std::ptrdiff_t>(k));
      block.operands.erase(block.operands.begin() + static_cast<std::ptrdiff_t>(k));
    }
    // Tensors without a use go, and all are numbered anew.
    std::map<TensorId, TensorId> to;
    std::vector<Tensor> tensors;
    auto keep = [&](TensorId t) {
      to[t] = static_cast<TensorId>(tensors.size());
      tensors.push_back(op.tensors[t]);
    };
    for (TensorId t : op.inputs) keep(t);
    for (const Definition& d : op.forward.definitions)
      for (TensorId t : d.targets) keep(t);
    auto renumber = [&](std::vector<TensorId>& list) {
      for (TensorId& t : list) t = to.at(t);
    };
    for (Definition& d : op.forward.definitions) {
      renumber(d.targets);
      renumber(d.arguments);
      if (d.is_call()) continue;
      d.body = rewrite(a_, d.body, [&](Id x) {
        const Node n = a_[x];
        if (!is_read(n.op)) return x;
        const std::vector<Id> args(read_indices(n).begin(), read_indices(n).end());
        return n.op == Op::read ? a_.read(to.at(n.symbol), n.type, args) : a_.read_or(to.at(n.symbol), n.type, args, n.args().back());
      });
    }
    renumber(op.inputs);
    renumber(op.outputs);
    op.tensors = std::move(tensors);
  }

  Program without_unused_dims(Program op) const {
    std::vector<Id> roots;
    for (const Tensor& t : op.tensors) roots.insert(roots.end(), t.shape.begin(), t.shape.end());
    for (const Definition& d : op.forward.definitions) {
      for (const AxisRange& r : d.axes) roots.insert(roots.end(), {r.begin, r.end});
      if (!d.is_call()) roots.push_back(d.body);
    }
    for (const Precondition& c : op.preconditions) roots.push_back(c.condition);
    std::set<Id> used;
    for (Id id : reachable(a_, roots)) used.insert(id);
    for (size_t k = op.dims.size(); k-- > 0;) {
      const Dim& d = op.dims[k];
      if (!used.contains(d.dim)) {
        op.dims.erase(op.dims.begin() + static_cast<std::ptrdiff_t>(k));
      } else if (d.definition != kNone) {
        for (Id id : reachable(a_, d.definition)) used.insert(id);
      }
    }
    return op;
  }
};

class Hoist {
 public:
  explicit Hoist(Program& p) : p_(p) {}

  Steps list(const Steps& steps) {
    Steps made;
    for (const Step& s : steps) {
      if (auto* branch = std::get_if<Branch>(&s.is)) {
        Branch b = *branch;
        b.then = list(branch->then);
        b.otherwise = list(branch->otherwise);
        made.push_back({std::move(b)});
      } else if (auto* loop = std::get_if<Loop>(&s.is)) {
        Loop l = *loop;
        around_.push_back({l.variable, l.begin, l.end});
        l.test = list(loop->test);
        l.body = list(loop->body);
        before(l, made);
        around_.pop_back();
        made.push_back({std::move(l)});
      } else {
        made.push_back(s);
      }
    }
    return made;
  }

 private:
  Program& p_;
  std::vector<AxisRange> around_;  // the loops that a step stands in, outer first

  void before(Loop& l, Steps& made) {
    std::unordered_set<TensorId> inside = made_within(l);
    std::erase_if(l.body, [&](Step& s) {
      auto* block = std::get_if<Block>(&s.is);
      if (!block || block->op->arena != p_.arena) return false;
      std::optional<Block> first = BlockHoist(p_, l, around_, inside).run(*block);
      if (!first) return false;
      for (TensorId t : first->results) inside.erase(t);
      made.push_back({std::move(*first)});
      return block->results.empty();
    });
  }
};

}  // namespace

Program hoist(Program p) {
  const std::shared_ptr<const Steps> steps = p.steps;
  p.steps = std::make_shared<const Steps>(Hoist(p).list(*steps));
  return p;
}

}  // namespace xhat::imperative

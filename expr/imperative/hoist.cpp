#include "expr/imperative/hoist.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "expr/index/affine.h"
#include "expr/index/linear.h"

namespace xhat::imperative {
namespace {

// The products of one block that can be computed before the loop.
class BlockHoist {
 public:
  BlockHoist(Program& p, const Loop& loop, const std::unordered_set<TensorId>& inside)
      : p_(p), a_(*p.arena), loop_(loop), inside_(inside) {}

  // The block that computes them, and `block` without them. None: there are none.
  std::optional<Block> run(Block& block) {
    for (size_t k = 0; k < block.operands.size(); ++k)
      if (is_early(block.operands[k])) early_[block.op->inputs[k]] = k;
    if (early_.empty()) return {};
    std::map<Id, Definition> found;  // the product, and the definition that it stands in
    for (const Definition& d : block.op->forward.definitions)
      if (!d.is_call()) find(*block.op, d, found);
    if (found.empty()) return {};
    return split(block, found);
  }

 private:
  Program& p_;
  Arena& a_;
  const Loop& loop_;
  const std::unordered_set<TensorId>& inside_;  // what the loop makes
  std::map<TensorId, size_t> early_;            // inputs of the op that are there before the loop, and their operands

  // From outside, and if it is a row, one that all iterations find.
  bool is_early(const Operand& o) const {
    if (o.scalar != kNone || inside_.contains(o.value)) return false;
    const AxisRange range{loop_.variable, loop_.begin, loop_.end};
    for (size_t k = 0; k < o.row.size(); ++k) {
      if (o.row[k] == kNone) continue;
      for (Id axis : a_[o.row[k]].free_axes())
        if (axis != loop_.variable) return false;
      if (!tensors_read(a_, o.row[k]).empty()) return false;
      if (prove_bounds(a_, {{&range, 1}, {}, o.row[k], p_.tensors[o.value].shape[k]}).verdict != BoundsAnswer::Verdict::proved)
        return false;
    }
    return true;
  }

  // The largest parts of the definition that have a product in them and are made of what is there before the loop.
  void find(const Program& op, const Definition& d, std::map<Id, Definition>& found) const {
    std::set<Id> met;
    std::vector<Id> open = {d.body};
    while (!open.empty()) {
      const Id id = open.back();
      open.pop_back();
      if (!met.insert(id).second) continue;
      if (is_early(op, d, id)) {
        found.emplace(id, d);
      } else {
        for (Id x : a_[id].args()) open.push_back(x);
      }
    }
  }

  bool is_early(const Program& op, const Definition& d, Id id) const {
    const Node& n = a_[id];
    if (!is_float(n.type)) return false;
    bool product = false;
    for (Id x : reachable(a_, id)) {
      const Node& below = a_[x];
      if (below.op == Op::random || (is_read(below.op) && !early_.contains(below.symbol))) return false;
      product = product || is_product(x);
    }
    if (!product) return false;
    for (Id axis : n.free_axes()) {
      const auto r = std::ranges::find(d.axes, axis, &AxisRange::axis);
      if (r == d.axes.end() || !range_is_plain(a_, *r) || !tensors_read(a_, r->end).empty()) return false;
    }
    return reads_inside(op, d, id);
  }

  // A sum over two tensors at least.
  bool is_product(Id id) const { return a_[id].op == Op::sum && tensors_read(a_, id).size() >= 2; }

  // Whatever stands around the product: before the loop it is computed at all points.
  bool reads_inside(const Program& op, const Definition& d, Id product) const {
    std::vector<AxisRange> axes = d.axes;
    const std::vector<Id> below = reachable(a_, product);
    for (auto id = below.rbegin(); id != below.rend(); ++id)
      if (is_reduction(a_[*id].op)) {
        const std::vector<AxisRange> own = reduce_axes(a_[*id]);
        axes.insert(axes.end(), own.begin(), own.end());
      }
    for (Id id : below) {
      if (a_[id].op != Op::read) continue;
      for (size_t k = 0; k < a_[id].arg_count; ++k)
        if (prove_bounds(a_, {axes, {}, a_[id].arg(k), op.tensors[a_[id].symbol].shape[k]}).verdict != BoundsAnswer::Verdict::proved)
          return false;
    }
    return true;
  }

  std::vector<AxisRange> ranges(const Definition& d, Id product) const {
    std::vector<AxisRange> own;
    for (const AxisRange& r : d.axes)
      if (std::ranges::count(a_[product].free_axes(), r.axis)) own.push_back(r);
    return own;
  }

  std::optional<Block> split(Block& block, const std::map<Id, Definition>& found) {
    const Program& op = *block.op;
    Program before;
    before.name = op.name + "_before";
    before.arena = p_.arena;
    before.dims = p_.dims;
    before.file = op.file;
    before.text = op.text;
    Block first;
    std::map<TensorId, TensorId> whole;  // inputs of `before`, by input of the op
    auto whole_of = [&](TensorId input) {
      auto [it, fresh] = whole.try_emplace(input, 0);
      if (!fresh) return it->second;
      const Operand& o = block.operands[early_.at(input)];
      const Tensor& value = p_.tensors[o.value];
      it->second = before.add_tensor(op.tensors[input].name, value.type, value.shape);
      before.tensors[it->second].role = Role::input;
      before.inputs.push_back(it->second);
      first.operands.push_back({o.value, {}, kNone});
      return it->second;
    };
    // Iteration k of the loop is row k.
    const bool from_zero = is_constant(a_, loop_.begin, 0);
    const Id trips = from_zero ? loop_.end : tidy_index(a_, a_.sub(loop_.end, loop_.begin));
    const Id variable = from_zero ? loop_.variable : a_.add(loop_.begin, loop_.variable);
    const Id row = from_zero ? loop_.variable : tidy_index(a_, a_.sub(loop_.variable, loop_.begin));

    Program rest = op;
    Replacements reads;  // in `rest`, by product
    for (const auto& [product, d] : found) {
      const Id body = rewrite(a_, product, [&](Id x) {
        const Node n = a_[x];
        if (!is_read(n.op)) return x;
        Row at = block.operands[early_.at(n.symbol)].row;
        for (Id& index : at)
          if (index != kNone) index = substitute(a_, index, {{loop_.variable, variable}});
        const std::vector<Id> args = in_value(at, read_indices(n));
        const TensorId t = whole_of(n.symbol);
        return n.op == Op::read ? a_.read(t, n.type, args) : a_.read_or(t, n.type, args, n.args().back());
      });
      std::vector<AxisRange> axes = ranges(d, product);
      std::vector<Id> shape, places;
      for (const AxisRange& r : axes) shape.push_back(r.end), places.push_back(r.axis);
      const std::string name = op.tensors[d.target()].name + "_all";
      const TensorId input = rest.add_tensor(name, a_[product].type, shape);
      rest.tensors[input].role = Role::input;
      rest.inputs.push_back(input);
      reads[product] = a_.read(input, a_[product].type, places);
      axes.insert(axes.begin(), {loop_.variable, a_.integer(0), trips});
      shape.insert(shape.begin(), trips);
      const TensorId made = before.add_tensor(name, a_[product].type, shape);
      before.outputs.push_back(made);
      before.forward.definitions.push_back({{made}, axes, body, d.pos, nullptr, {}});
      first.results.push_back(p_.add_tensor(name, a_[product].type, shape));
      block.operands.push_back({first.results.back(), {row}, kNone});
    }
    for (Definition& d : rest.forward.definitions)
      if (!d.is_call()) d.body = substitute(a_, d.body, reads);
    before = without_unused_dims(std::move(before));
    first.op = std::make_shared<const Program>(std::move(before));
    drop_unused(rest, block);
    block.op = std::make_shared<const Program>(without_unused_dims(std::move(rest)));
    return first;
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
      if (read.contains(op.inputs[k]) || !early_.contains(op.inputs[k])) continue;
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
        l.test = list(loop->test);
        l.body = list(loop->body);
        if (!l.condition && l.stride == 1 && has_plain_bounds(l)) before(l, made);
        made.push_back({std::move(l)});
      } else {
        made.push_back(s);
      }
    }
    return made;
  }

 private:
  Program& p_;

  bool has_plain_bounds(const Loop& l) const {
    const Arena& a = *p_.arena;
    for (Id bound : {l.begin, l.end})
      if (!a[bound].free_axes().empty() || !tensors_read(a, bound).empty()) return false;
    return true;
  }

  void before(Loop& l, Steps& made) {
    const std::unordered_set<TensorId> inside = made_within(l);
    for (Step& s : l.body)
      if (auto* block = std::get_if<Block>(&s.is); block && block->op->arena == p_.arena)
        if (std::optional<Block> first = BlockHoist(p_, l, inside).run(*block)) made.push_back({std::move(*first)});
  }
};

}  // namespace

Program hoist_products(Program p) {
  const std::shared_ptr<const Steps> steps = p.steps;
  p.steps = std::make_shared<const Steps>(Hoist(p).list(*steps));
  return p;
}

}  // namespace xhat::imperative

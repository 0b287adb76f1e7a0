#include "expr/imperative/block.h"

#include <fmt/format.h>

#include <algorithm>

#include "expr/index/hull.h"

namespace xhat::imperative {

namespace {

class BlockMaker {
 public:
  BlockMaker(Context& c, const std::vector<Definition>& definitions, const std::vector<AxisRange>& loops, const std::set<Id>& variables)
      : c_(c), a_(c.arena()), definitions_(definitions), loops_(loops), variables_(variables) {}

  Block run(const std::vector<TensorId>& results, const std::string& name) {
    p_.name = name;
    p_.arena = c_.program.arena;
    p_.file = c_.program.file;
    p_.text = c_.program.text;
    for (const Dim& d : c_.program.dims) taken_.insert(a_.name(d.dim));
    std::vector<Id> roots;
    for (const Definition& d : definitions_) {
      for (TensorId t : d.targets) own_.insert(t);
      for (const AxisRange& r : d.axes) roots.push_back(r.axis);
      if (!d.is_call()) roots.push_back(d.body);
    }
    for (Id axis : all_axes(a_, roots)) taken_.insert(a_.name(axis));
    // Inputs come first, in the order in which they are read.
    std::vector<Definition> rewritten;
    for (const Definition& d : definitions_) rewritten.push_back(definition(d));
    for (size_t k = 0; k < inputs_.size(); ++k) {
      p_.tensors.push_back(inputs_[k]);
      p_.inputs.push_back(static_cast<TensorId>(k));
    }
    // Own tensors behind them; reads of both were given numbers apart.
    std::map<TensorId, TensorId> to;
    for (size_t k = 0; k < inputs_.size(); ++k) to[kInputs + static_cast<TensorId>(k)] = static_cast<TensorId>(k);
    for (const Definition& d : definitions_)
      for (TensorId t : d.targets) {
        Tensor made = c_.program.tensors[t];
        made.name = unused(made.name);
        for (Id& extent : made.shape) extent = c_.scope.expanded(extent);
        to[t] = static_cast<TensorId>(p_.tensors.size());
        p_.tensors.push_back(std::move(made));
      }
    for (Definition& d : rewritten) {
      for (TensorId& t : d.targets) t = to.at(t);
      for (TensorId& t : d.arguments) t = to.at(t);
      if (!d.is_call())
        d.body = rewrite(a_, d.body, [&](Id x) {
          const Node n = a_[x];
          if (!is_read(n.op)) return x;
          const std::vector<Id> args(n.args().begin(), n.args().end());
          const TensorId t = to.at(n.symbol);
          return n.op == Op::read ? a_.read(t, n.type, args) : a_.read_or(t, n.type, std::span(args).first(args.size() - 1), args.back());
        });
      p_.forward.definitions.push_back(std::move(d));
    }
    for (TensorId t : results) {
      p_.outputs.push_back(to.at(t));
      block_.results.push_back(t);
    }
    dims();
    verify(p_);
    block_.op = std::make_shared<const Program>(std::move(p_));
    return std::move(block_);
  }

 private:
  static constexpr TensorId kInputs = 1u << 30;  // inputs, until they have numbers

  std::string unused(const std::string& wanted) {
    std::string name = wanted;
    for (int i = 1; !taken_.insert(name).second; ++i) name = fmt::format("{}_{}", wanted, i);
    return name;
  }

  TensorId input(Operand operand, Tensor like) {
    for (size_t k = 0; k < block_.operands.size(); ++k) {
      const Operand& o = block_.operands[k];
      if (o.scalar == operand.scalar && o.row == operand.row && (o.scalar != kNone || o.value == operand.value))
        return kInputs + static_cast<TensorId>(k);
    }
    like.name = unused(like.name);
    like.role = Role::input;
    for (Id& extent : like.shape) extent = c_.scope.expanded(extent);
    inputs_.push_back(std::move(like));
    block_.operands.push_back(std::move(operand));
    return kInputs + static_cast<TensorId>(block_.operands.size() - 1);
  }

  bool is_variable(Id x) const { return variables_.contains(x); }

  // Indices of loop variables and sizes only, up to the last one with a loop variable, where they are inside.
  Row row_of(const Node& read) {
    Row row;
    size_t size = 0;
    const Shape& shape = c_.program.tensors[read.symbol].shape;
    const std::vector<Id> needs = c_.needs();
    for (size_t d = 0; d < read_indices(read).size(); ++d) {
      const Id index = read.arg(d);
      const std::span<const Id> free = a_[index].free_axes();
      const bool fixed = !reads_data(a_, index) && std::ranges::all_of(free, [&](Id x) { return is_variable(x); }) &&
                         c_.implied(loops_, needs, a_.binary(Op::le, a_.integer(0), index)) &&
                         c_.implied(loops_, needs, a_.binary(Op::lt, index, shape[d]));
      row.push_back(fixed ? index : kNone);
      if (fixed && !free.empty()) size = d + 1;
    }
    row.resize(size);
    return row;
  }

  // Ranges of all axes that a range in the definition may use; of one that stands in several reductions with different ranges: none.
  Ranges ranges_around(const Definition& d, Id body) const {
    Ranges all;
    std::set<Id> several;
    auto add = [&](const AxisRange& r) {
      auto [it, fresh] = all.try_emplace(r.axis, r);
      if (!fresh && it->second != r) several.insert(r.axis);
    };
    for (const AxisRange& r : loops_) add(r);
    for (const AxisRange& r : d.axes) add(r);
    for (Id x : reachable(a_, body))
      if (is_reduction(a_[x].op))
        for (const AxisRange& r : reduce_axes(a_[x])) add(r);
    for (Id axis : several) all.erase(axis);
    auto known = [&](Id end) { return std::ranges::all_of(a_[end].free_axes(), [&](Id axis) { return all.contains(axis); }); };
    while (std::erase_if(all, [&](const auto& entry) { return !known(entry.second.begin) || !known(entry.second.end); }) > 0) {
    }
    return all;
  }

  // sum(k in 0..t: ..) with the loop's t becomes sum(k in 0..T-1 if k < t: ..): ranges depend on sizes only.
  Id with_fixed_ranges(const Definition& d, Id body) {
    auto varies = [&](Id y) { return std::ranges::any_of(a_[y].free_axes(), [&](Id axis) { return is_variable(axis); }); };
    std::optional<Ranges> around;
    return rewrite(a_, body, [&](Id x) {
      const Node n = a_[x];
      if (!is_reduction(n.op)) return x;
      std::vector<AxisRange> ranges = reduce_axes(n);
      Id condition = reduce_condition(n);
      for (AxisRange& r : ranges) {
        const AxisRange was = r;
        if (!varies(was.begin) && !varies(was.end)) continue;
        if (!around) around = ranges_around(d, body);
        std::optional<AxisRange> box;
        const std::vector<Id> ends = {was.begin, was.end};
        if (std::ranges::all_of(all_axes(a_, ends), [&](Id axis) { return around->contains(axis); })) box = Hull(a_, *around).box(was);
        if (!box)
          throw Error(
              fmt::format("not yet: a reduction in a loop that stays whose range is {}..{}, of which no bounds are known before the run",
                          text_of(c_.scope, was.begin), text_of(c_.scope, was.end)),
              d.pos);
        r = *box;
        auto also = [&](Id part) { condition = is_true(a_, condition) ? part : a_.select(part, condition, a_.boolean(false)); };
        if (r.begin != was.begin) also(a_.binary(Op::le, was.begin, r.axis));
        if (r.end != was.end) also(a_.binary(Op::lt, r.axis, was.end));
      }
      return a_.reduce(n.op, ranges, condition, reduce_body(n));
    });
  }

  Definition definition(const Definition& d) {
    Definition made = d;
    for (AxisRange& r : made.axes) r = {r.axis, c_.scope.expanded(r.begin), c_.scope.expanded(r.end)};
    if (d.is_call()) {
      for (TensorId& t : made.arguments)
        if (!own_.contains(t)) t = input({t, {}, kNone}, c_.program.tensors[t]);
      return made;
    }
    const Id body = with_fixed_ranges(d, c_.scope.expanded(d.body));
    // Rows before the variables themselves are replaced.
    std::unordered_map<Id, Id> done;
    std::vector<Id> args;
    for (Id id : reachable(a_, body)) {
      const Node n = a_[id];
      args.clear();
      for (Id x : n.args()) args.push_back(done.at(x));
      if (is_variable(id)) {
        done[id] = id;  // below, once it is known where it stands in rows only
        continue;
      }
      if (!is_read(n.op) || own_.contains(n.symbol)) {
        done[id] = a_.with_args(id, args);
        continue;
      }
      Tensor like = c_.program.tensors[n.symbol];
      Operand operand;
      operand.value = n.symbol;
      operand.row = row_of(n);
      like.shape = of_row(like.shape, operand.row);
      const std::vector<Id> rest = of_row(std::span<const Id>(args).first(read_indices(n).size()), operand.row);
      const TensorId t = input(std::move(operand), std::move(like));
      done[id] = n.op == Op::read ? a_.read(t, n.type, rest) : a_.read_or(t, n.type, rest, args.back());
    }
    made.body = done.at(body);
    Replacements scalars;
    for (Id id : a_[made.body].free_axes())
      if (is_variable(id)) {
        Tensor t;
        t.name = a_.name(id) + "_now";
        t.type = DType::i64;
        Operand operand;
        operand.scalar = id;
        scalars[id] = a_.read(input(std::move(operand), std::move(t)), DType::i64, {});
      }
    if (!scalars.empty()) made.body = substitute(a_, made.body, scalars);
    return made;
  }

  // Those that stand in a shape or body; what no parameter says is handed by name.
  void dims() {
    std::vector<Id> roots;
    for (const Tensor& t : p_.tensors) roots.insert(roots.end(), t.shape.begin(), t.shape.end());
    for (const Definition& d : p_.forward.definitions) {
      for (const AxisRange& r : d.axes) roots.push_back(r.end);
      if (!d.is_call()) roots.push_back(d.body);
    }
    const std::vector<Id> below = reachable(a_, roots);
    for (const Dim& d : c_.program.dims)
      if (std::ranges::binary_search(below, d.dim)) p_.dims.push_back({d.dim, kNone, d.pos});
  }

  Context& c_;
  Arena& a_;
  const std::vector<Definition>& definitions_;
  const std::vector<AxisRange>& loops_;
  const std::set<Id>& variables_;
  Program p_;
  Block block_;
  std::vector<Tensor> inputs_;
  std::set<TensorId> own_;
  std::set<std::string> taken_;
};

}  // namespace

Block make_block(Context& c, const std::vector<Definition>& definitions, const std::vector<TensorId>& results,
                 const std::vector<AxisRange>& loops, const std::set<Id>& variables, const std::string& name) {
  return BlockMaker(c, definitions, loops, variables).run(results, name);
}

}  // namespace xhat::imperative

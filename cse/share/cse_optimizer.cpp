#include "cse/share/cse_optimizer.h"

#include <algorithm>

#include "cse/algebra/reduction_algebra.h"
#include "cse/share/optimizer.h"
#include "expr/core/watch.h"

namespace xhat {
namespace {

constexpr int kMaxRounds = 3;  // of reading outputs

}  // namespace

void Optimizer::in_definition(Definition& d, Wanted& wanted, const Step& step) {
  const Node n = a_[d.body];
  if (!is_float(n.type)) return;
  std::vector<AxisRange> scope = d.axes;
  auto here = [&](const Product& p) { return step(p, scope); };
  if (!is_reduction(n.op)) {
    Product before = tree_.form(d.body), after = sharing_.everywhere(before, wanted, here);
    if (!(after == before)) d.body = tree_.to_expression(after, n.type);
  } else if (n.op == Op::sum) {
    for (const AxisRange& r : reduce_axes(n)) scope.push_back(r);
    sharing_.known = conjuncts(a_, reduce_condition(n));
    std::ranges::copy(ranges_as_conditions(a_, reduce_axes(n)), std::back_inserter(sharing_.known));
    Product before = tree_.form(reduce_body(n)), after = sharing_.everywhere(before, wanted, here);
    sharing_.known.clear();
    Id condition = sharing_.in_condition(reduce_condition(n), wanted, here);
    Id inside = after == before ? reduce_body(n) : tree_.to_expression(after, n.type);
    d.body = a_.reduce(n.op, reduce_axes(n), condition, inside);
  }
}

bool Optimizer::with_digits(Definition& d, const std::function<void(Definition&)>& change) {
  auto inside = [&](Id body) { return is_reduction(a_[body].op) ? reduce_body(a_[body]) : body; };
  for (bool each : {false, true}) {
    Definition changed = d;
    sharing_.with_all_digits = each;
    change(changed);
    if (changed.body == d.body) return false;
    if (!accuracy_.keeps(inside(d.body), inside(changed.body))) continue;
    d = std::move(changed);
    return true;
  }
  return false;
}

// values: per tensor, the forms it comes in.
bool Optimizer::fold_everywhere(const std::vector<std::vector<StoredValue>>& values) {
  bool changed = false;
  std::vector<StoredValue> all;
  for (const auto& forms : values) all.insert(all.end(), forms.begin(), forms.end());
  std::unordered_map<uint64_t, std::vector<size_t>> asking;  // for a factor of that shape
  for (size_t i = 0; i < values.size(); ++i)
    for (uint64_t shape : sharing_.wanted(values[i]).shapes)
      if (auto& list = asking[shape]; list.empty() || list.back() != i) list.push_back(i);
  Wanted wanted = sharing_.wanted(all);
  for (Definition& d : p_.backward.definitions) {
    if (deciding_.contains(d.target())) continue;
    auto read_instead = [&](Definition& now) {
      in_definition(now, wanted, [&](const Product& p, std::span<const AxisRange> scope) {
        Product folded = p;
        std::set<size_t> open;
        auto ask = [&](size_t from) {
          for (const Factor& f : folded.factors)
            if (auto it = asking.find(tree_.shape(f.atom)); it != asking.end())
              for (size_t i : it->second)
                if (i >= from) open.insert(i);
        };
        for (ask(0); !open.empty();) {
          const size_t i = *open.begin();
          open.erase(open.begin());
          Product next = sharing_.fold(p_, folded, values[i], scope);
          if (next == folded) continue;
          folded = std::move(next);
          ask(i + 1);
        }
        return folded;
      });
    };
    changed |= with_digits(d, read_instead);
    // A sum reads maps that it would compute again and again; with them written out it may be found to read something else.
    if (a_[d.body].op != Op::sum) continue;
    Definition open = d;
    open.body = inline_reads(a_, d.body, values_, d.axes);
    if (open.body == d.body) continue;
    auto cost_of = [&](const Definition& of) { return evaluation_cost_ps(a_, reduce_body(a_[of.body])); };
    auto read_if_cheaper = [&](Definition& now) {
      read_instead(now);
      if (cost_of(now) > cost_of(d)) now = open;
    };
    if (!with_digits(open, read_if_cheaper)) continue;
    d = std::move(open);
    changed = true;
  }
  return changed;
}

Program Optimizer::reuse(const std::vector<TensorId>& stored) {
  collect_forward({});
  std::vector<std::vector<StoredValue>> values;
  std::vector<StoredBranches> branches;
  for (const Forward& f : forward_) {
    TensorId t = f.definition.target();
    if (!f.map || !has_tensor(stored, t)) continue;
    values.push_back(forms_of(t, f.pattern.free, f.form));
    if (auto found = stored_branches(tree_, t, f.pattern.free, f.form)) branches.push_back(std::move(*found));
  }
  if (!branches.empty()) reuse_selects(branches);
  // What is left of s*(1-s) once its inner s is read may pay only then.
  for (int round = 0; round < kMaxRounds && fold_everywhere(values); ++round) {
  }
  return p_;
}

std::vector<TensorId> Optimizer::reuse_maps(const std::vector<TensorId>& kept) {
  collect_forward(kept);
  std::vector<TensorId> reused;
  for (const Forward& f : std::vector<Forward>(forward_)) {
    const TensorId t = f.definition.target();
    if (!f.map || has_tensor(kept, t) || !backward_reads(p_, t) || deciding_.contains(t)) continue;
    if (fold_everywhere({forms_of(t, f.pattern.free, f.form)})) reused.push_back(t);
  }
  return reused;
}

void Optimizer::reuse_selects(const std::vector<StoredBranches>& branches) {
  for (Definition& d : p_.backward.definitions) {
    const Node n = a_[d.body];
    bool sum = n.op == Op::sum;
    if (deciding_.contains(d.target()) || (is_reduction(n.op) && !sum)) continue;
    std::vector<AxisRange> scope = d.axes;
    if (sum)
      for (const AxisRange& r : reduce_axes(n)) scope.push_back(r);
    with_digits(d, [&](Definition& now) {
      Id body = reuse_branches(p_, tree_, sharing_, branches, dropped_, sum ? reduce_body(n) : d.body, scope);
      now.body = sum ? a_.reduce(Op::sum, reduce_axes(n), reduce_condition(n), body) : body;
    });
  }
}

Program Optimizer::reuse_backward() {
  std::map<TensorId, std::set<TensorId>> below;  // all that a backward definition depends on
  for (const Definition& d : p_.backward.definitions) {
    std::set<TensorId>& all = below[d.target()];
    for (TensorId t : tensors_read(a_, d.body)) {
      all.insert(t);
      if (auto it = below.find(t); it != below.end()) all.insert(it->second.begin(), it->second.end());
    }
  }
  std::unordered_map<uint64_t, std::set<size_t>> having;  // definitions, by the shapes of their factors
  auto look_into = [&](size_t at) {
    each_product_of(p_.backward.definitions[at], [&](const Product& p) {
      for (const Factor& f : p.factors) having[tree_.shape(f.atom)].insert(at);
    });
  };
  for (size_t i = 0; i < p_.backward.definitions.size(); ++i) look_into(i);
  for (size_t i = 0; i < p_.backward.definitions.size(); ++i) {
    const Definition source = p_.backward.definitions[i];
    if (is_reduction(a_[source.body].op) || !is_float(a_[source.body].type) || has_tensor(p_.gradients, source.target())) continue;
    Pattern pattern = pattern_of(a_, source);
    auto forms = forms_of(source.target(), pattern.free, tree_.form(pattern.body));
    if (forms.empty()) continue;
    forms.resize(1);  // the value itself
    Wanted wanted = sharing_.wanted(forms);
    std::set<size_t> holding;
    for (uint64_t shape : wanted.shapes)
      if (auto it = having.find(shape); it != having.end()) holding.insert(it->second.begin(), it->second.end());
    for (size_t at : holding) {
      Definition& d = p_.backward.definitions[at];
      if (d.target() == source.target()) continue;
      if (deciding_.contains(d.target())) continue;
      if (below[source.target()].contains(d.target())) continue;
      bool changed = with_digits(d, [&](Definition& now) {
        in_definition(now, wanted, [&](const Product& p, std::span<const AxisRange> scope) { return sharing_.fold(p_, p, forms, scope); });
      });
      if (changed) look_into(at);
      if (changed && has_tensor(tensors_read(a_, d.body), source.target())) below[d.target()].insert(source.target());
    }
  }
  return ordered(p_);
}

Program reuse_stored(const Program& p, const std::vector<TensorId>& stored, const std::vector<TensorId>& dropped) {
  return simplify_reductions(Optimizer(p, dropped).reuse(stored), stored);
}

Program reuse_backward(const Program& p) { return Optimizer(ordered(p)).reuse_backward(); }

Shared share_largest(const Program& p, const std::vector<TensorId>& stored, const std::vector<TensorId>& dropped, bool save_reads) {
  Optimizer optimizer(p, dropped, save_reads);
  Program now = simplify_reductions(optimizer.reuse(stored), stored, optimizer.tree());
  optimizer.turn_to(now);
  std::vector<TensorId> kept = stored;
  std::set<Id> refused;
  std::vector<TensorId> taken = optimizer.next_shares(kept, refused);
  for (int i = 0; !taken.empty() && i < most_rounds_of_shares; ++i) {
    std::set<TensorId> read;
    for (const Definition& d : optimizer.program().backward.definitions)
      for (TensorId t : tensors_read(*p.arena, d.body)) read.insert(t);
    std::erase_if(taken, [&](TensorId t) { return !read.contains(t); });  // matched, but no cheaper anywhere
    if (!taken.empty()) {
      kept.insert(kept.end(), taken.begin(), taken.end());
      now = simplify_reductions(optimizer.program(), kept, optimizer.tree());
    }
    optimizer.turn_to(now);
    step_done("share", now);
    taken = optimizer.next_shares(kept, refused);
  }
  if (!taken.empty()) optimizer.turn_to(now);  // one round too many
  if (const auto maps = optimizer.reuse_maps(kept); !maps.empty()) {
    kept.insert(kept.end(), maps.begin(), maps.end());
    now = simplify_reductions(optimizer.program(), kept, optimizer.tree());
    step_done("share", now);
  }
  return {now, taken.empty() && optimizer.complete(), optimizer.compared()};
}

}  // namespace xhat

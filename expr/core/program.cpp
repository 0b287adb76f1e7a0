#include "expr/core/program.h"

#include <algorithm>
#include <ranges>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "expr/core/uses.h"

namespace xhat {

std::optional<TensorId> Program::find(std::string_view tensor_name) const {
  for (TensorId t = 0; t < tensors.size(); ++t)
    if (tensors[t].name == tensor_name) return t;
  return std::nullopt;
}

const Definition* Region::definition_of(TensorId t) const {
  for (const Definition& d : definitions)
    if (std::ranges::find(d.targets, t) != d.targets.end()) return &d;
  return nullptr;
}

const Definition* Program::definition_of(TensorId t) const {
  const Definition* d = forward.definition_of(t);
  return d ? d : backward.definition_of(t);
}

TensorId Program::add_tensor(std::string wanted_name, DType type, std::vector<Id> shape) {
  // Axes and dims share the name space in the text, so a tensor may not be called like one of them.
  auto taken = [&](const std::string& n) {
    if (find(n)) return true;
    return std::ranges::any_of(dims, [&](const Dim& d) { return arena->name(d.dim) == n; });
  };
  std::string chosen = wanted_name;
  for (int i = 1; taken(chosen); ++i) chosen = wanted_name + "_" + std::to_string(i);
  Tensor t;
  t.name = std::move(chosen);
  t.type = type;
  t.shape = std::move(shape);
  tensors.push_back(std::move(t));
  return static_cast<TensorId>(tensors.size() - 1);
}

std::vector<TensorId> tensors_read(const Arena& a, Id root) {
  std::vector<TensorId> found;
  for (Id id : reachable(a, root))
    if (is_read(a[id].op)) found.push_back(a[id].symbol);
  std::ranges::sort(found);
  found.erase(std::ranges::unique(found).begin(), found.end());
  return found;
}

std::vector<TensorId> stashes(const Program& p) {
  std::set<TensorId> read;
  for (const Definition& d : p.backward.definitions)
    for (TensorId t : tensors_read(*p.arena, d)) read.insert(t);
  std::vector<TensorId> kept;
  for (const Definition& d : p.forward.definitions)
    for (TensorId t : d.targets)
      if (read.contains(t) && std::ranges::find(p.outputs, t) == p.outputs.end()) kept.push_back(t);
  return kept;
}

namespace {

std::vector<Definition> ordered(const Program& p, const std::vector<Definition>& all) {
  std::unordered_map<TensorId, size_t> definer;
  for (size_t i = 0; i < all.size(); ++i)
    for (TensorId t : all[i].targets) definer[t] = i;

  // Depth first from the first definition on, so that the given order is kept where it is right already.
  enum class Mark : uint8_t { white, grey, black };
  std::vector<Mark> mark(all.size(), Mark::white);
  std::vector<size_t> order;
  std::vector<std::vector<size_t>> below(all.size());
  for (size_t i = 0; i < all.size(); ++i)
    for (TensorId t : tensors_read(*p.arena, all[i]))
      if (auto it = definer.find(t); it != definer.end()) below[i].push_back(it->second);
  auto visit = [&](size_t start) {
    std::vector<std::pair<size_t, size_t>> stack = {{start, 0}};
    mark[start] = Mark::grey;
    while (!stack.empty()) {
      auto& [node, next] = stack.back();
      if (next == below[node].size()) {
        mark[node] = Mark::black;
        order.push_back(node);
        stack.pop_back();
        continue;
      }
      size_t child = below[node][next++];
      if (mark[child] == Mark::grey) {
        std::string names;
        bool in_cycle = false;
        for (auto& [n, unused] : stack) {
          in_cycle |= n == child;
          if (in_cycle) names += p.tensors[all[n].target()].name + " -> ";
        }
        throw Error("definitions form a cycle: " + names + p.tensors[all[child].target()].name +
                        ". each reads the next; break the cycle",
                    all[child].pos);
      }
      if (mark[child] == Mark::white) {
        mark[child] = Mark::grey;
        stack.push_back({child, 0});
      }
    }
  };
  for (size_t i = 0; i < all.size(); ++i)
    if (mark[i] == Mark::white) visit(i);

  std::vector<Definition> result;
  for (size_t i : order) result.push_back(all[i]);
  return result;
}

}  // namespace

Program ordered(const Program& p) {
  Program result = p;
  map_regions(result, [&](const Region& r) { return ordered(p, r.definitions); });
  return result;
}

Program without_dead(const Program& p) {
  std::unordered_set<TensorId> live(p.outputs.begin(), p.outputs.end());
  live.insert(p.gradients.begin(), p.gradients.end());
  Program result = p;
  auto is_live = [&](TensorId t) { return live.contains(t); };
  for (const Definition& d : p.definitions() | std::views::reverse)
    if (std::ranges::any_of(d.targets, is_live))
      for (TensorId t : tensors_read(*p.arena, d)) live.insert(t);
  for (Region* r : {&result.forward, &result.backward})
    std::erase_if(r->definitions, [&](const Definition& d) { return std::ranges::none_of(d.targets, is_live); });
  return result;
}

namespace {

// Compares two programs node by node; pairs found equal are remembered, so shared nodes are compared once.
struct Comparison {
  const Program& p;
  const Program& q;
  std::unordered_map<Id, Id> same = {};

  bool node(Id x, Id y) {
    if (x == kNone || y == kNone) return x == y;
    std::vector<std::pair<Id, Id>> stack = {{x, y}};
    while (!stack.empty()) {
      auto [i, j] = stack.back();
      stack.pop_back();
      auto [it, fresh] = same.emplace(i, j);
      if (!fresh) {
        if (it->second != j) return false;
        continue;
      }
      const Node& a = (*p.arena)[i];
      const Node& b = (*q.arena)[j];
      if (a.op != b.op || a.type != b.type || a.arg_count != b.arg_count) return false;
      if (a.op == Op::constant && a.integer != b.integer) return false;
      if ((a.op == Op::axis || a.op == Op::dim) && p.arena->name(i) != q.arena->name(j)) return false;
      if (is_read(a.op) && p.tensors[a.symbol].name != q.tensors[b.symbol].name) return false;
      for (size_t k = 0; k < a.arg_count; ++k) stack.push_back({a.arg(k), b.arg(k)});
    }
    return true;
  }

  bool axes(const std::vector<AxisRange>& x, const std::vector<AxisRange>& y) {
    return std::ranges::equal(x, y, [&](const AxisRange& a, const AxisRange& b) {
      return node(a.axis, b.axis) && node(a.begin, b.begin) && node(a.end, b.end);
    });
  }

  bool tensor(TensorId x, TensorId y) {
    if (x == kNoTensor || y == kNoTensor) return x == y;
    const Tensor& a = p.tensors[x];
    const Tensor& b = q.tensors[y];
    return a.name == b.name && a.type == b.type && a.role == b.role && a.constant == b.constant &&
           std::ranges::equal(a.shape, b.shape, [&](Id i, Id j) { return node(i, j); });
  }

  bool tensors(const std::vector<TensorId>& x, const std::vector<TensorId>& y) {
    return std::ranges::equal(x, y, [&](TensorId i, TensorId j) { return tensor(i, j); });
  }

  bool callee(const std::shared_ptr<const Program>& x, const std::shared_ptr<const Program>& y) {
    return (!x && !y) || (x && y && equal(*x, *y));
  }

  bool definition(const Definition& x, const Definition& y) {
    return tensors(x.targets, y.targets) && axes(x.axes, y.axes) && node(x.body, y.body) && callee(x.callee, y.callee) &&
           tensors(x.arguments, y.arguments);
  }

  bool region(const Region& x, const Region& y) {
    return std::ranges::equal(x.definitions, y.definitions, [&](const Definition& d, const Definition& e) { return definition(d, e); });
  }

  bool dim(const Dim& x, const Dim& y) { return node(x.dim, y.dim) && node(x.definition, y.definition); }
};

}  // namespace

bool equal(const Program& a, const Program& b) {
  Comparison c{a, b};
  return a.name == b.name && c.tensors(a.inputs, b.inputs) && c.tensors(a.outputs, b.outputs) && c.tensors(a.cotangents, b.cotangents) &&
         c.tensors(a.gradients, b.gradients) && c.tensors(a.gradient_of, b.gradient_of) &&
         std::ranges::equal(a.dims, b.dims, [&](const Dim& x, const Dim& y) { return c.dim(x, y); }) && c.region(a.forward, b.forward) &&
         c.region(a.backward, b.backward) && c.callee(a.custom_gradient, b.custom_gradient);
}

}  // namespace xhat

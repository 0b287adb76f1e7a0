#include "fusion/plan/kernel_key.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

namespace xhat {
namespace {

struct Writer {
  const Program& p;
  const DimValues& sizes;
  std::string text = {};
  std::unordered_map<TensorId, size_t> tensors = {};
  std::unordered_map<Id, size_t> nodes = {};  // of the definition at hand

  void tensor(TensorId t) {
    auto [it, fresh] = tensors.emplace(t, tensors.size());
    text += fmt::format("t{}", it->second);
    if (!fresh) return;
    text += fmt::format(".{}[", static_cast<int>(p.tensors[t].type));
    for (int64_t n : shape_of(p, t, sizes)) text += fmt::format("{},", n);
    text += "]";
  }

  size_t expression(Id root) {
    const Arena& a = *p.arena;
    for (Id id : reachable(a, root)) {
      if (!nodes.emplace(id, nodes.size()).second) continue;
      const Node& n = a[id];
      text += fmt::format("\n{}.{}", static_cast<int>(n.op), static_cast<int>(n.type));
      if (n.op == Op::constant && is_float(n.type)) text += fmt::format("={:a}", n.value);
      else if (n.op == Op::constant) text += fmt::format("={}", n.integer);
      else if (n.op == Op::dim) text += fmt::format("={}", sizes.at(a.name(id)));
      else if (is_read(n.op)) text += "=", tensor(n.symbol);
      for (Id x : n.args()) text += x == kNone ? " -" : fmt::format(" {}", nodes.at(x));
    }
    return nodes.at(root);
  }
};

std::string hash(const std::string& text) {  // FNV-1a
  uint64_t h = 14695981039346656037u;
  for (unsigned char c : text) h = (h ^ c) * 1099511628211u;
  return fmt::format("{:016x}", h);
}

}  // namespace

std::string kernel_key(const Program& p, const Kernel& k, const DimValues& sizes) {
  Writer w{p, sizes};
  for (const KernelAxis& axis : k.axes) w.text += fmt::format("{}{};", axis.extent, axis.of < 0 ? "" : fmt::format("@{}", axis.of));
  for (const Member& m : k.members) {
    const Definition& d = p.forward.definitions[m.definition];
    w.nodes.clear();
    w.tensor(d.target());
    w.text += std::ranges::find(k.results, d.target()) != k.results.end() ? "!" : "";
    for (size_t i = 0; i < d.axes.size(); ++i) {
      size_t begin = w.expression(d.axes[i].begin), end = w.expression(d.axes[i].end), axis = w.expression(d.axes[i].axis);
      w.text += fmt::format(" [{}:{}..{}@{}]", axis, begin, end, m.left[i]);
    }
    size_t body = w.expression(d.body);
    w.text += fmt::format(" ={}", body);
    for (int c : m.reduced) w.text += fmt::format(" /{}", c);
    w.text += "\n";
  }
  return hash(w.text);
}

}  // namespace xhat

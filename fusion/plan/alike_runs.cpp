#include "fusion/plan/alike_runs.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

namespace xhat::fusion {
namespace {

// Writes a definition as numbers, its nodes in the order in which they are met.
class Writer {
 public:
  Writer(const Arena& a, std::vector<TensorId>& tensors) : a_(a), tensors_(tensors) {}

  std::vector<uint64_t> text;

  uint64_t tensor(TensorId t) {
    const auto at = std::ranges::find(tensors_, t);
    const auto place = static_cast<uint64_t>(at - tensors_.begin());
    if (at == tensors_.end()) tensors_.push_back(t);
    return place;
  }

  // Operands first, each node once.
  void expression(Id root) {
    std::vector<std::pair<Id, bool>> open = {{root, false}};
    while (!open.empty()) {
      const auto [id, complete] = open.back();
      open.pop_back();
      if (nodes_.contains(id)) continue;
      const Node n = a_[id];
      if (complete) {
        write(id, n);
        continue;
      }
      open.emplace_back(id, true);
      for (size_t i = n.arg_count; i-- > 0;)
        if (n.arg(i) != kNone) open.emplace_back(n.arg(i), false);
    }
    text.push_back(nodes_.at(root));
  }

  void place_of(Id node) { text.push_back(nodes_.at(node)); }
  const std::unordered_map<Id, uint64_t>& nodes() const { return nodes_; }

 private:
  void write(Id id, const Node& n) {
    nodes_.emplace(id, nodes_.size());
    text.insert(text.end(), {static_cast<uint64_t>(n.op), static_cast<uint64_t>(n.type), n.arg_count});
    if (n.op == Op::constant)
      text.push_back(is_float(n.type) ? std::bit_cast<uint64_t>(n.value) : static_cast<uint64_t>(n.integer));
    else if (is_read(n.op))
      text.push_back(tensor(n.symbol));
    else if (n.op != Op::axis)
      text.push_back(n.symbol);
    for (Id x : n.args()) text.push_back(x == kNone ? UINT64_MAX : nodes_.at(x));
  }

  const Arena& a_;
  std::vector<TensorId>& tensors_;
  std::unordered_map<Id, uint64_t> nodes_;
};

}  // namespace

uint32_t AlikeRuns::number_of(std::vector<uint64_t> text) {
  return numbers_.try_emplace(std::move(text), static_cast<uint32_t>(numbers_.size())).first->second;
}

AlikeRuns::AlikeRuns(const Program& p, const Uses& uses, const std::function<int64_t(Id)>& extent, std::span<const TensorId> apart) {
  const Arena& a = *p.arena;
  for (const Tensor& t : p.tensors) {
    std::vector<uint64_t> text = {static_cast<uint64_t>(t.type)};
    for (Id e : t.shape) text.push_back(static_cast<uint64_t>(extent(e)));
    sizes_.push_back(number_of(std::move(text)));
  }
  const auto& definitions = p.forward.definitions;
  for (const Definition& d : definitions) {
    Own own;
    Writer w(a, own.tensors);
    w.text.push_back(std::ranges::find(apart, d.target()) == apart.end() ? 0 : d.target() + 1);
    w.tensor(d.target());
    for (const AxisRange& r : d.axes)
      for (Id e : {r.axis, r.begin, r.end}) w.expression(e);
    w.expression(d.body);
    std::vector<Id> reads;  // the planner takes them in the order of their nodes
    for (const auto& [id, place] : w.nodes())
      if (is_read(a[id].op)) reads.push_back(id);
    std::ranges::sort(reads);
    for (Id read : reads) w.place_of(read);
    own.structure = number_of(std::move(w.text));
    for (const Definition* reader : uses.readers(d.target())) own.readers.push_back(static_cast<size_t>(reader - definitions.data()));
    std::ranges::sort(own.readers);
    own.output = has_tensor(p.outputs, d.target());
    definitions_.push_back(std::move(own));
  }
}

std::vector<uint32_t> AlikeRuns::key(std::span<const size_t> run) const {
  std::vector<TensorId> met;  // in the order of their numbers
  for (size_t i : run) met.insert(met.end(), definitions_[i].tensors.begin(), definitions_[i].tensors.end());
  std::ranges::sort(met);
  met.erase(std::ranges::unique(met).begin(), met.end());
  std::vector<uint32_t> key = {static_cast<uint32_t>(run.size()), static_cast<uint32_t>(met.size())};
  for (TensorId t : met) key.push_back(sizes_[t]);
  for (size_t i : run) {
    const Own& d = definitions_[i];
    const bool leaves = d.output || std::ranges::any_of(d.readers, [&](size_t reader) { return !std::ranges::binary_search(run, reader); });
    key.insert(key.end(), {d.structure, static_cast<uint32_t>(leaves)});
    for (TensorId t : d.tensors) key.push_back(static_cast<uint32_t>(std::ranges::lower_bound(met, t) - met.begin()));
  }
  return key;
}

}  // namespace xhat::fusion

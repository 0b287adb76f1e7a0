// Operations of a finished kernel, and whether memory is what it waits for.
//
// What several members compute at the same point of the tile and is dear is computed once (runtime/kernel/kernel_share.cpp), so it
// counts once: members are compared with their axes renamed to the classes that these are.
#include <algorithm>
#include <bit>
#include <map>
#include <ranges>
#include <set>

#include "cse/normalize/auto_inliner.h"
#include "fusion/plan/kernel_draft.h"

namespace xhat::fusion {
namespace {

bool is_arithmetic(const Node& n) {
  if (!is_float(n.type) || is_read(n.op)) return false;
  switch (n.op) {
    case Op::constant:
    case Op::axis:
    case Op::dim:
    case Op::select:
    case Op::cast:
    case Op::stop_gradient: return false;
    default: return true;
  }
}

// hypot(a, b) is two products, a sum and a root.
int64_t operations(Op op) { return op == Op::hypot ? 4 : 1; }

constexpr int64_t kLine = 64;  // bytes

// Numbers for expressions over classes of axes; equal expressions, equal numbers.
class Numbers {
 public:
  // args: the numbers of its operands.
  int64_t of(const Node& n, const std::vector<int64_t>& args) {
    int64_t constant = n.op != Op::constant ? 0 : is_float(n.type) ? std::bit_cast<int64_t>(n.value) : n.integer;
    std::vector<int64_t> key = {static_cast<int64_t>(n.op), static_cast<int64_t>(n.type), n.symbol, constant};
    key.insert(key.end(), args.begin(), args.end());
    return number(std::move(key));
  }
  int64_t of_class(int c) { return number({c}); }

 private:
  int64_t number(std::vector<int64_t> key) { return known_.try_emplace(std::move(key), static_cast<int64_t>(known_.size())).first->second; }
  std::map<std::vector<int64_t>, int64_t> known_;
};

}  // namespace

// Does it write rows that do not all begin with a line of the cache, and walk them as rows, since not everything that it touches has
// the same axes? Past the cache these go through scratch.
bool Planner::rows_off_lines(const Draft& draft, const Kernel& k) const {
  return std::ranges::any_of(k.results, [&](TensorId t) {
    const std::vector<int>& axes = draft.dims.at(t);
    const bool all = std::ranges::all_of(draft.dims, [&](const auto& other) { return other.second == axes; });
    if (axes.size() < 2 || all) return false;
    int64_t row = static_cast<int64_t>(byte_size(p_.tensors[t].type));  // of all dimensions that are whole in the tile: h, w of an image
    for (size_t i = axes.size(); i-- > 0 && (i + 1 == axes.size() || !draft.walked(axes[i]));) row *= extent(p_.tensors[t].shape[i]);
    return row % kLine != 0;
  });
}

void Planner::count_flops(const Draft& draft, Kernel& k) const {
  const Arena& a = *p_.arena;
  Numbers numbers;
  std::set<int64_t> computed;  // dear ones
  int64_t work_ps = 0;
  for (const Member& m : k.members) {
    const Definition& d = p_.forward.definitions[m.definition];
    const Shape& s = shape(m);
    auto position = [&](Id axis) -> std::optional<size_t> {
      for (size_t i = 0; i < s.axes.size(); ++i)
        if (s.axes[i].axis == axis) return i;
      return std::nullopt;
    };
    auto class_of = [&](size_t i) { return i < s.left ? m.left[i] : m.reduced[i - s.left]; };
    auto in_a_tile = [&](Id axis) {
      auto i = position(axis);
      return i && !draft.shared[static_cast<size_t>(class_of(*i))];
    };
    std::unordered_map<Id, int64_t> number;
    const std::vector<Id> nodes = reachable(a, d.body);
    for (Id id : nodes) {
      std::vector<int64_t> args;
      for (Id x : a[id].args()) args.push_back(x == kNone ? -1 : number.at(x));
      auto own = a[id].op == Op::axis ? position(id) : std::nullopt;
      number[id] = own ? numbers.of_class(class_of(*own)) : numbers.of(a[id], args);
    }
    std::set<Id> needed = {d.body};
    for (Id id : nodes | std::views::reverse) {  // users before operands
      const Node& n = a[id];
      if (!needed.contains(id)) continue;
      bool vector = std::ranges::any_of(n.free_axes(), in_a_tile) || n.free_axes().size() == s.axes.size();
      bool dear = !is_reduction(n.op) && !is_read(n.op) && is_float(n.type) && vector && costs_at_least(a, id, kSharedInTile_ps);
      if (dear && !computed.insert(number.at(id)).second) continue;
      needed.insert(n.args().begin(), n.args().end());
      if (!is_arithmetic(n)) continue;
      int64_t v = 1;
      for (Id axis : n.free_axes())
        if (auto i = position(axis)) v *= s.extents[*i];
      if (is_reduction(n.op))
        for (size_t i = s.left; i < s.axes.size(); ++i) v *= s.extents[i];
      if (id == d.body)  // a scatter adds each value to one place only
        for (size_t i : s.scatter_targets) v /= std::max<int64_t>(1, s.extents[i]);
      auto of_pairs = [&](const Shape::Segments& of) {
        auto has = [&](size_t i) { return n.depends_on(s.axes[i].axis); };
        return id == d.body || (has(of.places) && std::ranges::any_of(of.by, has));
      };
      if (std::ranges::any_of(s.segments, of_pairs)) v = static_cast<int64_t>(static_cast<double>(v) * share_of_pairs(s));
      k.flops += v * operations(n.op);
      work_ps += v * cost_ps(a, n);
    }
  }
  const int64_t beyond = k.bytes_unavoidable / (rows_off_lines(draft, k) ? machine_.off_lines_factor : 1);
  k.streams = machine_.fills_the_cache(beyond) && work_ps <= k.bytes_unavoidable * machine_.stream_ps_per_byte;
}

}  // namespace xhat::fusion

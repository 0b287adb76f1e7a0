#include "expr/core/expr.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "expr/core/error.h"
#include "expr/core/node_table.h"

namespace xhat {
namespace {

// In the order of the enum: first what is written here, then ops.def.
const std::vector<OpInfo>& table() {
  static const std::vector<OpInfo> rows = {
      {"constant", "constant", Syntax::special, 0, TypeRule::any, Parity::none, 0, {}},
      {"axis", "axis", Syntax::special, 0, TypeRule::any, Parity::none, 0, {}},
      {"dim", "dim", Syntax::special, 0, TypeRule::any, Parity::none, 0, {}},
      {"read", "read", Syntax::special, -1, TypeRule::any, Parity::none, 60, {}},
      {"read_or", "read_or", Syntax::special, -1, TypeRule::any, Parity::none, 120, {}},
      {"select", "if", Syntax::special, 3, TypeRule::any, Parity::none, 30, {}},
      {"cast", "cast", Syntax::special, 1, TypeRule::any, Parity::none, 30, {}},
      {"sum", "sum", Syntax::special, -1, TypeRule::any, Parity::none, 30, {}},
      {"prod", "prod", Syntax::special, -1, TypeRule::any, Parity::none, 30, {}},
      {"max", "max", Syntax::special, -1, TypeRule::any, Parity::none, 40, {}},
      {"min", "min", Syntax::special, -1, TypeRule::any, Parity::none, 40, {}},
      {"any", "any", Syntax::special, -1, TypeRule::any, Parity::none, 10, {}},
      {"all", "all", Syntax::special, -1, TypeRule::any, Parity::none, 10, {}},
      {"argmax", "argmax", Syntax::special, -1, TypeRule::any, Parity::none, 60, {}},
      {"argmin", "argmin", Syntax::special, -1, TypeRule::any, Parity::none, 60, {}},
#define XHAT_OP(id, text, syntax, arity, type, parity, cost, ...) \
  {#id, text, Syntax::syntax, arity, TypeRule::type, Parity::parity, cost, {__VA_ARGS__}},
#include "expr/core/ops.def"
  };
  return rows;
}

using NameIndex = std::map<std::string_view, Op, std::less<>>;

Node plain(Op op, DType type, uint32_t symbol = 0) {
  Node n{};
  n.op = op;
  n.type = type;
  n.symbol = symbol;
  return n;
}

uint64_t mix(uint64_t h, uint64_t v) {
  h ^= v + 0x9e3779b97f4a7c15ULL + (h << 6) + (h >> 2);
  return h * 0xff51afd7ed558ccdULL;
}

uint64_t hash_of(const Node& n, std::span<const Id> args) {
  uint64_t h = mix(static_cast<uint64_t>(n.op) * 256 + static_cast<uint64_t>(n.type), n.symbol);
  h = mix(h, static_cast<uint64_t>(n.integer));
  for (Id a : args) h = mix(h, a);
  return h;
}

bool same_node(const Node& a, const Node& b, std::span<const Id> args) {
  return a.op == b.op && a.type == b.type && a.symbol == b.symbol && a.integer == b.integer && std::ranges::equal(a.args(), args);
}

DType result_type(const Arena& a, Op op, std::span<const Id> args) {
  const OpInfo& row = info(op);
  auto fail = [&](const char* want) -> DType {
    throw Bug(std::string(row.id) + " wants " + want + ", got " + std::string(name_of(a[args[0]].type)));
  };
  if (static_cast<int>(args.size()) != row.arity) throw Bug(std::string(row.id) + ": wrong number of operands");
  DType first = a[args[0]].type;
  bool uniform = std::ranges::all_of(args, [&](Id x) { return a[x].type == first; });
  switch (row.type) {
    case TypeRule::same_float: return uniform && is_float(first) ? first : fail("floats of one type");
    case TypeRule::same: return uniform && first != DType::boolean ? first : fail("numbers of one type");
    case TypeRule::same_or_bool: return first;
    case TypeRule::whole: return uniform && is_integer(first) ? first : fail("integers of one type");
    case TypeRule::compare: return uniform ? DType::boolean : fail("operands of one type");
    case TypeRule::logic: return uniform && first == DType::boolean ? first : fail("bools");
    case TypeRule::classify: return is_float(first) ? DType::boolean : fail("a float");
    case TypeRule::any: return DType::f32;  // random
  }
  throw Bug("unreachable type rule");
}

}  // namespace

const OpInfo& info(Op op) { return table()[static_cast<size_t>(op)]; }

const Op* function_named(std::string_view name) {
  static const NameIndex index = [] {
    NameIndex m;
    for (size_t i = 0; i < table().size(); ++i)
      if (table()[i].syntax == Syntax::function) m[table()[i].text] = static_cast<Op>(i);
    m["pow"] = Op::pow;
    return m;
  }();
  auto it = index.find(name);
  return it == index.end() ? nullptr : &it->second;
}

std::optional<int> whole_power(const Arena& a, const Node& n) {
  if (n.op != Op::pow || !is_float(n.type) || a[n.arg(1)].op != Op::constant) return {};
  double k = a[n.arg(1)].value;
  if (k != std::floor(k) || std::abs(k) > 64) return {};
  return static_cast<int>(k);
}

std::optional<int> quarter_power(const Arena& a, const Node& n) {
  if (n.op != Op::pow || !is_float(n.type) || a[n.arg(1)].op != Op::constant) return {};
  const double quarters = 4 * a[n.arg(1)].value;
  if (quarters != std::floor(quarters) || std::abs(quarters) >= 16 || std::fmod(quarters, 4) == 0) return {};
  return static_cast<int>(quarters);
}

int64_t cost_ps(const Arena& a, const Node& n, const std::function<int64_t(Op)>& price) {
  auto k = whole_power(a, n), quarters = quarter_power(a, n);
  if (!k && !quarters) return price(n.op);
  if (quarters) {
    const int magnitude = std::abs(*quarters);
    const int roots = magnitude % 2 == 1 ? 2 : 1, products = magnitude / 4 + (magnitude % 4 == 3);
    return roots * price(Op::sqrt) + products * price(Op::mul) + (*quarters < 0 ? (magnitude > 4 ? 2 : 1) * price(Op::div) : 0);
  }
  auto magnitude = static_cast<unsigned>(std::abs(*k));
  int products = std::max(0, static_cast<int>(std::bit_width(magnitude)) + std::popcount(magnitude) - 2);
  return products * price(Op::mul) + (*k < 0 ? price(Op::div) : 0);
}

const Op* reduction_named(std::string_view name) {
  static const NameIndex index = [] {
    NameIndex m;
    for (auto i = static_cast<size_t>(Op::sum); i <= static_cast<size_t>(Op::argmin); ++i) m[table()[i].text] = static_cast<Op>(i);
    return m;
  }();
  auto it = index.find(name);
  return it == index.end() ? nullptr : &it->second;
}

Arena::Arena() = default;

uint32_t Arena::symbol(std::string_view name) {
  auto it = symbols_.find(name);
  if (it != symbols_.end()) return it->second;
  auto id = static_cast<uint32_t>(names_.size());
  names_.emplace_back(name);
  symbols_.emplace(std::string(name), id);
  return id;
}

// Blocks never grow once made, so spans into them stay valid.
const Id* Arena::store(std::span<const Id> ids) {
  constexpr size_t kBlock = 4096;
  if (ids.empty()) return nullptr;
  if (pool_.empty() || pool_.back().capacity() - pool_.back().size() < ids.size()) {
    pool_.emplace_back();
    pool_.back().reserve(std::max(kBlock, ids.size()));
  }
  auto& block = pool_.back();
  size_t at = block.size();
  block.insert(block.end(), ids.begin(), ids.end());
  return block.data() + at;
}

Id Arena::intern(Node node, std::span<const Id> args) {
  uint64_t h = hash_of(node, args);
  auto [first, last] = index_.equal_range(h);
  for (auto it = first; it != last; ++it)
    if (same_node(nodes_[it->second], node, args)) return it->second;

  std::vector<Id> axes;
  for (Id a : args) {
    if (axes.empty())
      axes.assign(nodes_[a].free_axes().begin(), nodes_[a].free_axes().end());
    else if (nodes_[a].axes_count && !std::ranges::equal(axes, nodes_[a].free_axes())) {
      std::vector<Id> merged;
      std::ranges::set_union(axes, nodes_[a].free_axes(), std::back_inserter(merged));
      axes = std::move(merged);
    }
  }
  if (is_reduction(node.op))
    for (size_t i = 2; i < args.size(); i += 3) std::erase(axes, args[i]);
  auto id = static_cast<Id>(nodes_.size());
  if (node.op == Op::axis) axes = {id};
  node.arg_data = store(args);
  node.arg_count = static_cast<uint32_t>(args.size());
  // Most nodes have the axes of their first operand: share the list.
  bool shared = !args.empty() && std::ranges::equal(axes, nodes_[args[0]].free_axes());
  node.axes_data = shared ? nodes_[args[0]].axes_data : store(axes);
  node.axes_count = static_cast<uint32_t>(axes.size());
  nodes_.push_back(node);
  index_.emplace(h, id);
  return id;
}

Id Arena::constant(DType type, double value) {
  if (!is_float(type)) return integer(static_cast<int64_t>(value), type);
  Node n = plain(Op::constant, type);
  // One NaN: inf - inf has its sign set on x86, and nodes are compared by their bits.
  n.value = std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
  return intern(n, {});
}

Id Arena::integer(int64_t value, DType type) {
  if (is_float(type)) return constant(type, static_cast<double>(value));
  Node n = plain(Op::constant, type);
  n.integer = wrap_to(type, value);
  return intern(n, {});
}

Id Arena::boolean(bool value) { return integer(value, DType::boolean); }
Id Arena::axis(std::string_view name) { return intern(plain(Op::axis, DType::i64, symbol(name)), {}); }
Id Arena::dim(std::string_view name) { return intern(plain(Op::dim, DType::i64, symbol(name)), {}); }

Id Arena::read(TensorId tensor, DType type, std::span<const Id> indices) { return intern(plain(Op::read, type, tensor), indices); }

Id Arena::read_or(TensorId tensor, DType type, std::span<const Id> indices, Id otherwise) {
  std::vector<Id> args(indices.begin(), indices.end());
  args.push_back(otherwise);
  if (nodes_[otherwise].type != type) throw Bug("read_or: the value outside has another type");
  return intern(plain(Op::read_or, type, tensor), args);
}

Id Arena::select(Id condition, Id then, Id otherwise) {
  if (nodes_[condition].type != DType::boolean) throw Bug("select: the condition is not bool");
  if (nodes_[then].type != nodes_[otherwise].type) throw Bug("select: branches of two types");
  return intern(plain(Op::select, nodes_[then].type), {{condition, then, otherwise}});
}

Id Arena::cast(DType type, Id value) { return intern(plain(Op::cast, type), {{value}}); }

Id Arena::reduce(Op op, std::span<const AxisRange> axes, Id condition, Id body) {
  std::vector<Id> args = {body, condition == kNone ? boolean(true) : condition};
  for (const AxisRange& r : axes) args.insert(args.end(), {r.axis, r.begin, r.end});
  DType type = op == Op::argmax || op == Op::argmin ? DType::i64 : nodes_[body].type;
  return intern(plain(op, type), args);
}

Id Arena::apply(Op op, std::span<const Id> args) { return intern(plain(op, result_type(*this, op, args)), args); }

Id Arena::with_args(Id node, std::span<const Id> args) {
  const Node& old = nodes_[node];
  if (std::ranges::equal(old.args(), args)) return node;
  if (is_reduction(old.op)) {
    Node n = plain(old.op, old.type);
    if (old.op != Op::argmax && old.op != Op::argmin) n.type = nodes_[args[0]].type;
    return intern(n, args);
  }
  switch (old.op) {
    case Op::constant:
    case Op::axis:
    case Op::dim: throw Bug("a leaf has no operands");
    case Op::read:
    case Op::read_or:
    case Op::cast: {
      Node n = plain(old.op, old.type, old.symbol);
      return intern(n, args);
    }
    case Op::select: return select(args[0], args[1], args[2]);
    default: return apply(old.op, args);
  }
}

Id Arena::fresh_axis(Id base, std::span<const Id> avoid) {
  std::string stem = name(base);
  // Strip an earlier suffix, so that k, k_1, k_2 and not k_1_1.
  if (auto at = stem.rfind('_');
      at != std::string::npos && at > 0 && at + 1 < stem.size() && stem.find_first_not_of("0123456789", at + 1) == std::string::npos)
    stem.resize(at);
  for (int i = 0;; ++i) {
    Id candidate = axis(i == 0 ? stem : stem + "_" + std::to_string(i));
    if (std::ranges::find(avoid, candidate) == avoid.end()) return candidate;
  }
}

std::vector<AxisRange> reduce_axes(const Node& n) {
  std::vector<AxisRange> axes;
  for (size_t i = 2; i < n.arg_count; i += 3) axes.push_back({n.arg(i), n.arg(i + 1), n.arg(i + 2)});
  return axes;
}

bool is_constant(const Arena& a, Id id, double value) {
  const Node& n = a[id];
  if (n.op != Op::constant || n.type == DType::boolean) return false;
  return is_float(n.type) ? n.value == value : static_cast<double>(n.integer) == value;
}

bool is_true(const Arena& a, Id id) { return a[id].op == Op::constant && a[id].type == DType::boolean && a[id].integer != 0; }

namespace {

// A bit per id: which have been met. One block per thread, all zero between questions, so that a question costs no more than
// the nodes it meets.
class Met {
 public:
  explicit Met(size_t ids) : words_(block()) {
    if (words_.size() * 64 < ids) words_.resize(ids / 64 + 1);
  }
  bool insert(Id id) {  // was it new?
    uint64_t& word = words_[id / 64];
    const uint64_t bit = uint64_t{1} << (id % 64);
    if (word & bit) return false;
    word |= bit;
    return true;
  }
  // What was met, in order; none of it is left.
  void take(std::vector<Id>& found) {
    auto [low, high] = std::ranges::minmax(found);
    constexpr size_t kWordsPerId = 4;  // beyond, sorting is quicker than looking at all words between
    if ((high - low) / 64 > kWordsPerId * found.size()) {
      for (Id id : found) words_[id / 64] = 0;
      std::ranges::sort(found);
      return;
    }
    size_t n = 0;
    for (size_t w = low / 64; w <= high / 64; ++w)
      for (uint64_t& word = words_[w]; word; word &= word - 1)
        found[n++] = static_cast<Id>(w * 64 + static_cast<size_t>(std::countr_zero(word)));
  }

 private:
  static std::vector<uint64_t>& block() {
    static thread_local std::vector<uint64_t> words;
    return words;
  }
  std::vector<uint64_t>& words_;
};

}  // namespace

std::vector<Id> operands_of(const Arena& a, Id root, Op op) {
  if (a[root].op != op) return {root};
  std::vector<Id> all = operands_of(a, a[root].arg(0), op), more = operands_of(a, a[root].arg(1), op);
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<Id> reachable(const Arena& a, std::span<const Id> roots) {
  if (roots.size() == 1 && roots[0] != kNone && a[roots[0]].arg_count == 0) return {roots[0]};  // half of all questions
  Met met(a.size());
  std::vector<Id> found;  // those before `open` have had their operands looked at
  for (Id r : roots)
    if (r != kNone && met.insert(r)) found.push_back(r);
  for (size_t open = 0; open < found.size(); ++open)
    for (Id x : a[found[open]].args())
      if (met.insert(x)) found.push_back(x);
  if (!found.empty()) met.take(found);
  return found;
}

bool bounds_a_range(const Arena& a, Id root, Id axis) {
  auto depends = [&](Id e) { return a[e].depends_on(axis); };
  return std::ranges::any_of(reachable(a, root), [&](Id id) {
    if (!is_reduction(a[id].op)) return false;
    const std::vector<AxisRange> ranges = reduce_axes(a[id]);
    return std::ranges::any_of(ranges, [&](const AxisRange& r) { return depends(r.begin) || depends(r.end); });
  });
}

std::vector<Id> all_axes(const Arena& a, std::span<const Id> roots) {
  std::vector<Id> axes;
  for (Id id : reachable(a, roots))
    if (a[id].op == Op::axis) axes.push_back(id);
  return axes;
}

Id substitute(Arena& a, Id root, const Replacements& replace, std::span<const Id> avoid) {
  // Bound names that must give way: those in avoid and those free in a replacement.
  std::vector<Id> taken(avoid.begin(), avoid.end());
  for (auto [from, to] : replace) taken.insert(taken.end(), a[to].free_axes().begin(), a[to].free_axes().end());
  std::ranges::sort(taken);

  if (a[root].arg_count == 0) {
    auto it = replace.find(root);
    return it == replace.end() ? root : it->second;
  }
  NodeTable<Id> done(reachable(a, root));
  const std::vector<Id>& ids = done.ids();
  // What is read at its own axes, as most maps are, stays.
  bool same = std::ranges::all_of(replace, [](const auto& r) { return r.first == r.second; });
  if (same && std::ranges::none_of(ids, [&](Id id) { return is_reduction(a[id].op); })) return root;
  for (Id id : ids) done[id] = kNone;
  std::vector<Id> used = taken;
  for (Id id : ids)
    if (a[id].op == Op::axis) used.push_back(id);
  auto renamed = [&](Id axis) {
    used.push_back(a.fresh_axis(axis, used));
    return used.back();
  };
  // An axis that is free in root as well keeps its name outside of the reductions that bind it: in `i < 3 && any(i: x[i])`.
  std::unordered_map<Id, Replacements> inside;
  for (Id id : ids) {
    const Node& n = a[id];
    if (!is_reduction(n.op)) continue;
    for (size_t i = 2; i < n.arg_count; i += 3) {
      Id axis = n.arg(i);
      if (done[axis] != kNone || !std::ranges::binary_search(taken, axis)) continue;
      if (std::ranges::find(a[root].free_axes(), axis) != a[root].free_axes().end())
        inside.try_emplace(id, replace).first->second[axis] = renamed(axis);
      else
        done[axis] = renamed(axis);
    }
  }
  std::vector<Id> args;
  for (Id id : ids) {
    if (auto it = replace.find(id); it != replace.end()) {
      done[id] = it->second;
      continue;
    }
    if (done[id] != kNone) continue;  // a renamed axis
    if (auto own = inside.find(id); own != inside.end()) {
      args.clear();
      const std::vector<Id> before(a[id].args().begin(), a[id].args().end());
      for (Id x : before) args.push_back(substitute(a, x, own->second, taken));
      done[id] = a.with_args(id, args);
      continue;
    }
    args.clear();
    for (Id x : a[id].args()) args.push_back(done[x]);
    done[id] = a.with_args(id, args);
  }
  return done[root];
}

}  // namespace xhat

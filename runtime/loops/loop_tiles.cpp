#include "runtime/loops/loop_tiles.h"

#include <algorithm>
#include <tuple>

#include "expr/core/array.h"
#include "runtime/loops/loop_adjoints.h"
#include "runtime/loops/nest.h"
#include "runtime/loops/nest_vectors.h"

namespace xhat::runtime {
namespace {

// Of a tile's values. Two threads, infer and backward: 100,000 predators and preys, 200 steps of f32, 16 KB 4.7 and 26.8 ms, 6 KB 4.6 and 20.5;
// 4000 Lorenz systems, 500 steps of f64, 12 KB 5.3 and 11.5 ms, 3 KB 4.6 and 10.0.
// Counted is what one iteration touches: of 1024 tridiagonal systems (f64, 64 rows, of all systems side by side), 8 in a tile take 0.83 ms and
// 2.3 backward, 32 and 64 take 0.76 and 2.0.
constexpr int64_t kTileBytes = 4 << 10;
constexpr int64_t kLine = 64;              // bytes that memory moves at least
constexpr int64_t kVectorBytes = 64;       // one vector of points, where other axes have none
constexpr int64_t kLeastTiles = 16;        // so that threads share the work evenly
constexpr int64_t kMostParts = 16 << 20;   // bytes of gradients that tiles leave in parts
constexpr int64_t kSharedBytes = 4 << 10;  // of what a loop carries without the dimension: each tile computes it again

using Role = LoopBlock::Role;

// The directions of a block, by number.
namespace side {
enum : int { check, exact, infer, forward, backward, count };
}
template <class B>
auto direction_of(B& block, int number) -> decltype(&block.infer) {
  switch (number) {
    case side::check: return block.check ? &*block.check : nullptr;
    case side::exact: return block.exact ? &*block.exact : nullptr;
    case side::infer: return &block.infer;
    case side::forward: return block.forward ? &*block.forward : nullptr;
    default: return block.backward ? &*block.backward : nullptr;
  }
}

// What a tile computes of a sum over all points is a part, and so is what is made of parts linearly: added up over the tiles, it is what it
// would be for all points at once.
enum class Part : uint8_t { zero, whole, part, neither };

class Parts {
 public:
  explicit Parts(const Arena& a) : a_(a) {}
  std::set<uint32_t> tensors;  // of a spec: each tile has a part of them

  Part of(Id id) {
    auto [it, fresh] = known_.emplace(id, Part::whole);
    if (!fresh) return it->second;
    const Part found = find(a_[id]);
    return known_[id] = found;
  }

 private:
  const Arena& a_;
  std::unordered_map<Id, Part> known_;

  Part find(const Node& n) {
    if (is_read(n.op)) return tensors.contains(n.symbol) ? Part::part : Part::whole;
    if (n.op == Op::constant) return n.type != DType::i64 && n.type != DType::boolean && n.value == 0 ? Part::zero : Part::whole;
    std::vector<Part> x;
    for (Id arg : n.args()) x.push_back(of(arg));
    switch (n.op) {
      case Op::neg:
      case Op::cast: return x[0];
      case Op::add:
      case Op::sub: return either(x[0], x[1]);
      case Op::select: return is_whole(x[0]) ? either(x[1], x[2]) : Part::neither;
      case Op::mul:
        if (x[0] == Part::part) return is_whole(x[1]) ? Part::part : Part::neither;
        if (x[1] == Part::part) return is_whole(x[0]) ? Part::part : Part::neither;
        break;
      case Op::div:
        if (x[0] == Part::part) return is_whole(x[1]) ? Part::part : Part::neither;
        break;
      default: break;
    }
    return std::ranges::all_of(x, is_whole) ? Part::whole : Part::neither;
  }
  static bool is_whole(Part x) { return x == Part::whole || x == Part::zero; }
  static Part either(Part x, Part y) {
    if (x == Part::zero) return y;
    return y == Part::zero || x == y ? x : Part::neither;
  }
};

// Dimensions of values and of blocks' tensors, and blocks' axes, in classes of those that walk together.
class Classes {
 public:
  Classes(const Program& p, const Loop& loop, const LoopBlocks& blocks, bool differentiated,
          const std::vector<std::vector<int64_t>>& shapes)
      : p_(p),
        loop_(loop),
        blocks_(blocks),
        directions_(differentiated ? side::count : side::forward),
        shapes_(shapes),
        memory_(p, loop, in_place_of(blocks)),
        adjoints_(adjoint_memory(p, loop, blocks)) {
    step(loop);
    for (TensorId t : std::set<TensorId>(values_)) same_memory(t, memory_.place(t)), same_memory(t, adjoints_.place(t));
  }

  std::vector<LoopTiles> found() {
    std::vector<LoopTiles> all;
    std::set<size_t> tried;
    for (const Carried& c : loop_.carried)
      for (size_t d = 0; d < shapes_[c.result].size(); ++d) {
        const size_t at = root(number(of_value(c.result, d)));
        if (!tried.insert(at).second || cannot_[at]) continue;
        LoopTiles tiles = along(at);
        for (const bool vectors : {true, false}) {
          const int64_t other = std::exchange(tiles.tile, tile_of(tiles, vectors));
          if (tiles.tile > 0 && tiles.tile != other && tiles.count() > 1 && parts_bytes(tiles) <= kMostParts) all.push_back(tiles);
        }
      }
    return all;
  }

 private:
  // A dimension d of a value, of a block's tensor in a direction, of what it keeps (direction side::count); or an axis.
  struct Key {
    const Block* block = nullptr;
    int direction = 0;
    uint32_t tensor = 0;
    size_t d = 0;
    bool operator<(const Key& o) const { return std::tie(block, direction, tensor, d) < std::tie(o.block, o.direction, o.tensor, o.d); }
  };
  static constexpr uint32_t kAxis = UINT32_MAX;
  static Key of_value(TensorId t, size_t d) { return {nullptr, 0, t, d}; }

  const Program& p_;
  const Loop& loop_;
  const LoopBlocks& blocks_;
  const int directions_;
  const std::vector<std::vector<int64_t>>& shapes_;
  const LoopMemory memory_, adjoints_;
  const std::map<TensorId, int64_t> touched_ = touched();
  std::map<Key, size_t> numbers_;
  std::vector<size_t> parent_;
  std::vector<bool> cannot_;
  std::set<TensorId> values_;

  size_t number(const Key& key) {
    auto [it, fresh] = numbers_.emplace(key, parent_.size());
    if (fresh) parent_.push_back(it->second), cannot_.push_back(false);
    if (fresh && !key.block) values_.insert(key.tensor);
    return it->second;
  }
  size_t root(size_t n) {
    while (parent_[n] != n) n = parent_[n] = parent_[parent_[n]];
    return n;
  }
  void join(const Key& x, const Key& y) {
    const size_t a = root(number(x)), b = root(number(y));
    if (a == b) return;
    parent_[b] = a;
    cannot_[a] = cannot_[a] || cannot_[b];
  }
  void forbid(const Key& x) { cannot_[root(number(x))] = true; }

  void same(TensorId x, TensorId y) {
    for (size_t d = 0; d < shapes_[x].size(); ++d) join(of_value(x, d), of_value(y, d));
  }
  void same_memory(TensorId x, TensorId y) {
    if (shapes_[x] == shapes_[y]) return same(x, y);
    for (TensorId t : {x, y})
      for (size_t d = 0; d < shapes_[t].size(); ++d) forbid(of_value(t, d));
  }

  // What steps compute by themselves reads certain elements.
  void look_up(Id expression) {
    if (expression == kNone) return;
    for (TensorId t : tensors_read(*p_.arena, expression))
      for (size_t d = 0; d < shapes_[t].size(); ++d) forbid(of_value(t, d));
  }

  void list(const Steps& steps) {
    for (const Step& s : steps) std::visit([&](const auto& x) { step(x); }, s.is);
  }
  void step(const Loop& l) {
    for (const Carried& c : l.carried) {
      if (&l != &loop_) same(c.initial, c.entering);
      same(c.entering, c.leaving), same(c.leaving, c.result);
    }
    look_up(l.begin), look_up(l.end);
    list(l.test), list(l.body);
  }
  void step(const Branch& b) {
    for (const Branch::Merge& m : b.merges) same(m.then, m.otherwise), same(m.then, m.result);
    list(b.then), list(b.otherwise);
  }
  void step(const Update& u) {
    same(u.base, u.result);
    size_t next = 0;
    for (size_t d = 0; d < shapes_[u.base].size(); ++d)
      is_whole(u.row, d) ? join(of_value(u.base, d), of_value(u.value, next++)) : forbid(of_value(u.base, d));
    for (Id index : u.row) look_up(index);
  }
  void step(const Block& b) {
    for (const Operand& o : b.operands) {
      look_up(o.scalar);
      for (Id index : o.row) look_up(index);
      for (size_t d = 0; o.scalar == kNone && d < o.row.size(); ++d)
        if (!is_whole(o.row, d)) forbid(of_value(o.value, d));
    }
    const LoopBlock& block = blocks_.at(&b);
    for (int n = 0; n < directions_; ++n)
      if (const LoopBlock::Direction* d = direction_of(block, n)) direction(b, n, *d);
  }

  void direction(const Block& b, int n, const LoopBlock::Direction& d) {
    for (uint32_t t = 0; t < d.spec.tensors.size(); ++t) {
      const auto role = d.roles.find(d.spec.tensors[t].original);
      if (role != d.roles.end()) stands_for(b, n, t, d.spec.tensors[t].shape.size(), role->second);
    }
    for (const SpecMember& m : d.spec.members) member(b, n, d.spec, m);
  }
  void stands_for(const Block& b, int n, uint32_t t, size_t dimensions, const Role& role) {
    auto at = [&](size_t d) { return Key{&b, n, t, d}; };
    switch (role.is) {
      case Role::Is::operand:
      case Role::Is::gradient: {
        const Operand& o = b.operands[role.number];
        if (o.scalar != kNone) return;
        size_t next = 0;
        for (size_t d = 0; d < shapes_[o.value].size(); ++d)
          if (is_whole(o.row, d)) join(at(next++), of_value(o.value, d));
        return;
      }
      case Role::Is::result:
      case Role::Is::cotangent:
        for (size_t d = 0; d < dimensions; ++d) join(at(d), of_value(b.results[role.number], d));
        return;
      case Role::Is::kept:
        for (size_t d = 0; d < dimensions; ++d) join(at(d), {&b, side::count, static_cast<uint32_t>(role.number), d});
        return;
      case Role::Is::temporary: return;
    }
  }

  void member(const Block& b, int n, const KernelSpec& spec, const SpecMember& m) {
    for (size_t k = 0; k < m.left.size(); ++k) join({&b, n, m.tensor, k}, {&b, n, kAxis, m.left[k]});
    for (const auto& [to, index] : m.scatter) forbid({&b, n, kAxis, to});
    for (Id x : m.reduced) number({&b, n, kAxis, x});
    uses(b, n, spec, m);
  }

  // Are sums over the class's axes only of what may be left in parts? What a check finds in any tile is an error.
  bool sums_allow(size_t at) {
    for (const auto& [b, block] : blocks_)
      for (int n = side::infer; n < directions_; ++n)
        if (const LoopBlock::Direction* d = direction_of(block, n); d && !sums_allow(at, *b, n, *d)) return false;
    return true;
  }
  bool sums_allow(size_t at, const Block& b, int n, const LoopBlock::Direction& d) {
    auto cut = [&](Id x) { return root(number({&b, n, kAxis, x})) == at; };
    Parts parts(*d.spec.arena);
    auto role = [&](uint32_t t) {
      const auto it = d.roles.find(d.spec.tensors[t].original);
      return it == d.roles.end() ? Role::Is::temporary : it->second.is;
    };
    for (uint32_t t = 0; t < d.spec.tensors.size(); ++t) {
      bool whole = role(t) != Role::Is::cotangent;
      for (size_t k = 0; k < d.spec.tensors[t].shape.size(); ++k) whole |= root(number({&b, n, t, k})) == at;
      if (!whole) parts.tensors.insert(t);
    }
    for (const SpecMember& m : d.spec.members) {
      const bool sums = std::ranges::any_of(m.reduced, cut), points = std::ranges::any_of(m.left, cut);
      if (sums && (n != side::backward || m.op != Op::sum || points)) return false;
      Part of_body = parts.of(m.body);
      for (const auto& [to, index] : m.scatter)
        if (parts.of(index) != Part::whole) return false;
      if (parts.of(m.condition) != Part::whole || of_body == Part::neither) return false;
      if (of_body == Part::part && (sums || points || (m.op != Op::constant && m.op != Op::sum))) return false;
      if (of_body == Part::part || sums) parts.tensors.insert(m.tensor);
    }
    return true;
  }

  // An axis may only be an index by itself.
  void uses(const Block& b, int n, const KernelSpec& spec, const SpecMember& m) {
    const Arena& a = *spec.arena;
    std::vector<Id> stack = {m.body, m.condition};
    for (const auto& [to, index] : m.scatter) stack.push_back(index);
    std::set<Id> seen;
    while (!stack.empty()) {
      const Id id = stack.back();
      stack.pop_back();
      if (id == kNone || !seen.insert(id).second) continue;
      const Node& node = a[id];
      if (node.op == Op::axis) forbid({&b, n, kAxis, id});
      if (!is_read(node.op)) {
        stack.insert(stack.end(), node.args().begin(), node.args().end());
        continue;
      }
      const auto indices = read_indices(node);
      for (size_t k = 0; k < indices.size(); ++k) {
        if (a[indices[k]].op == Op::axis) {
          join({&b, n, node.symbol, k}, {&b, n, kAxis, indices[k]});
        } else {
          forbid({&b, n, node.symbol, k});
          stack.push_back(indices[k]);
        }
      }
      for (size_t k = indices.size(); k < node.args().size(); ++k) stack.push_back(node.arg(k));
    }
  }

  LoopTiles along(size_t at) {
    if (!sums_allow(at)) return {};
    LoopTiles made;
    for (const auto& [key, n] : numbers_) {
      if (root(n) != at) continue;
      int64_t extent = made.extent;
      if (!key.block) {
        if (!made.dimension.emplace(key.tensor, key.d).second) return {};  // a diagonal
        extent = shapes_[key.tensor][key.d];
      } else if (key.direction == side::count) {
        const LoopBlock::Kept& kept = blocks_.at(key.block).kept[key.tensor];
        if (!made.kept.emplace(std::pair(key.block, key.tensor), key.d).second) return {};
        extent = kept.shape[key.d];
      } else {
        LoopTiles::Cut& cut = made.cuts[{key.block, key.direction}];
        const KernelSpec& spec = direction_of(blocks_.at(key.block), key.direction)->spec;
        if (key.tensor == kAxis)
          cut.axes.insert(static_cast<Id>(key.d)), extent = spec.axes.at(static_cast<Id>(key.d)).extent;
        else
          cut.dimensions.insert({key.tensor, key.d}), extent = spec.tensors[key.tensor].shape[key.d];
      }
      if (made.extent == 0) made.extent = extent;
      if (extent != made.extent) return {};
    }
    return made;
  }

  int64_t size_of(TensorId t) const { return static_cast<int64_t>(byte_size(p_.tensors[t].type)); }
  int64_t bytes_of(TensorId t) const { return element_count(shapes_[t]) * size_of(t); }

  // Of gradients of what is the same for all tiles: each has its own.
  int64_t parts_bytes(const LoopTiles& made) const {
    int64_t each = 0;
    for (TensorId t : memory_.outside())
      if (directions_ == side::count && is_float(p_.tensors[t].type) && !made.dimension.contains(t)) each += bytes_of(t);
    return each * made.count();
  }

  // Bytes of each value's memory that an iteration touches: of what is read and written by rows, a row, or all of it where an inner loop goes
  // through them.
  std::map<TensorId, int64_t> touched() const {
    std::map<TensorId, int64_t> all;
    auto add = [&](TensorId value, const Row& row, bool again, int64_t bytes) {
      if (again && !row.empty()) bytes = bytes_of(value);
      const size_t rank = shapes_[value].size();
      if (rank > 0 && !is_whole(row, rank - 1)) bytes = bytes / size_of(value) * std::min(kLine, shapes_[value].back() * size_of(value));
      int64_t& most = all[memory_.place(value)];
      most = std::max(most, bytes);
    };
    for_each_list(loop_.body, [&](const Steps& list) {
      const bool again = &list != &loop_.body;
      for (const Step& s : list) {
        if (const Update* u = std::get_if<Update>(&s.is)) add(u->base, u->row, again, bytes_of(u->value));
        const Block* b = std::get_if<Block>(&s.is);
        if (!b) continue;
        const LoopBlock::Direction& d = blocks_.at(b).infer;
        for (TensorId t : b->results) add(t, {}, again, bytes_of(t));
        for (uint32_t t = 0; t < d.spec.tensors.size(); ++t) {
          const auto role = d.roles.find(d.spec.tensors[t].original);
          if (role == d.roles.end() || role->second.is != Role::Is::operand) continue;
          const Operand& o = b->operands[role->second.number];
          if (o.scalar == kNone) add(o.value, o.row, again, read_bytes(d.spec, t, again));
        }
      }
    });
    return all;
  }
  // Of the tensor, at most, what one read of it sees at all points; of a row that it sees an element of, a line.
  static int64_t read_bytes(const KernelSpec& spec, uint32_t t, bool all_of_it) {
    const SpecTensor& tensor = spec.tensors[t];
    const auto size = static_cast<int64_t>(byte_size(tensor.type));
    int64_t most = 0;
    for (const SpecMember& m : spec.members)
      for (Id read : reads_of(*spec.arena, m)) {
        const Node& n = (*spec.arena)[read];
        if (n.symbol != t) continue;
        int64_t bytes = size;
        for (size_t d = tensor.shape.size(); d-- > 0;) {
          const bool whole = all_of_it || !(*spec.arena)[read_indices(n)[d]].free_axes().empty();
          if (whole) bytes *= tensor.shape[d];
          if (!whole && d + 1 == tensor.shape.size()) bytes = std::min(kLine, size * tensor.shape[d]);
        }
        most = std::max(most, bytes);
      }
    return most;
  }

  // As many elements as fit, in equal tiles if they can be, but at least so many. 0: it is not worth it.
  int64_t tile_of(const LoopTiles& made, bool vectors) {
    int64_t each = 0, widest = 1, shared = 0;
    std::set<TensorId> places;
    for (const auto& [t, d] : made.dimension) {
      widest = std::max(widest, size_of(t));
      const auto here = touched_.find(memory_.place(t));
      if (made.extent > 0 && here != touched_.end() && places.insert(here->first).second) each += here->second / made.extent;
    }
    for (const Carried& c : loop_.carried)
      if (!made.dimension.contains(c.result)) shared += bytes_of(c.result);
    if (each == 0 || shared > kSharedBytes) return 0;
    const int64_t least = vectors ? kVectorBytes / widest : 1;
    const int64_t most = std::max(least, std::min(kTileBytes / each, made.extent / kLeastTiles) / least * least);
    for (int64_t n = most; 2 * n > most && n > 0; n -= least)
      if (made.extent % n == 0) return n;
    return most;
  }
};

}  // namespace

std::vector<LoopTiles> tiles_of(const Program& p, const Loop& loop, const LoopBlocks& blocks, bool differentiated,
                                const std::vector<std::vector<int64_t>>& shapes) {
  return Classes(p, loop, blocks, differentiated, shapes).found();
}

LoopBlocks restricted(LoopBlocks blocks, const LoopTiles& tiles, int64_t elements) {
  for (const auto& [key, cut] : tiles.cuts) {
    KernelSpec& spec = direction_of(blocks.at(key.first), key.second)->spec;
    for (Id x : cut.axes) spec.axes.at(x).extent = spec.axes.at(x).tile = elements;
    for (auto [t, d] : cut.dimensions) spec.tensors[t].shape[d] = elements;
  }
  for (const auto& [key, d] : tiles.kept) blocks.at(key.first).kept[key.second].shape[d] = elements;
  return blocks;
}

std::vector<std::vector<int64_t>> restricted(std::vector<std::vector<int64_t>> shapes, const LoopTiles& tiles, int64_t elements) {
  for (const auto& [t, d] : tiles.dimension) shapes[t][d] = elements;
  return shapes;
}

}  // namespace xhat::runtime

#include "runtime/loops/tiled_loop.h"

#include <cstring>
#include <exception>

#include "expr/core/array.h"
#include "runtime/host/thread_pool.h"
#include "runtime/loops/nest.h"

namespace xhat::runtime {

TiledLoop::TiledLoop(const Program& p, const Loop& loop, const DimValues& dims, const std::vector<std::vector<int64_t>>& shapes,
                     const LoopBlocks& blocks, std::optional<LoopTiles> tiles, DiskCache* disk)
    : p_(p), loop_(loop), shapes_(shapes), tiles_(std::move(tiles)) {
  auto of = [&](int64_t elements, std::vector<std::vector<int64_t>>& own) {
    own = restricted(shapes, *tiles_, elements);
    return std::make_unique<CompiledLoop>(p, loop, dims, own, shapes, restricted(blocks, *tiles_, elements), disk);
  };
  main_ = tiles_ ? of(tiles_->tile, main_shapes_) : std::make_unique<CompiledLoop>(p, loop, dims, shapes, shapes, blocks, disk);
  if (tiles_ && tiles_->rest() > 0) rest_ = of(tiles_->rest(), rest_shapes_);
}

void TiledLoop::leave_forward_to_kernels() {
  main_->leave_forward_to_kernels();
  if (rest_) rest_->leave_forward_to_kernels();
}

std::vector<CompiledLoop::Tape> TiledLoop::tapes(const AxisValues& around) {
  std::vector<CompiledLoop::Tape> all = main_->tapes(around);
  if (!tiles_) return all;
  const std::vector<CompiledLoop::Tape> last = rest_ ? rest_->tapes(around) : all;
  for (size_t k = 0; k < all.size(); ++k) all[k].elements = all[k].elements * (tiles_->count() - 1) + last[k].elements;
  return all;
}

// A run of all tiles.
struct TiledLoop::Call {
  using Is = LoopArgument::Is;
  TiledLoop& loop;
  const LoopTiles& tiles;
  const LoopPhase phase;
  const Memory& memory;
  std::map<std::pair<Is, size_t>, char*> given;
  // Of what is the same for all tiles and written by each: the first has the caller's, the others have a part of this.
  struct Shared {
    char* parts;
    TensorId value;
    int64_t bytes;
  };
  std::map<std::pair<Is, size_t>, Shared> shared;
  std::map<std::pair<int, std::pair<const CompiledLoop*, size_t>>, void*> own;  // memory of a worker, by argument of the code
  std::vector<std::vector<int32_t>> status;
  std::vector<CompiledLoop::Tape> tapes, last_tapes;

  const CompiledLoop& code(int64_t tile) const { return loop.rest_ && tile + 1 == tiles.count() ? *loop.rest_ : *loop.main_; }

  TensorId value_of(const LoopArgument& a) const {
    return a.is == Is::outside || a.is == Is::outside_adjoint ? loop.outside()[a.number] : loop.loop_.carried[a.number].result;
  }
  int64_t bytes_of(TensorId t) const { return element_count(loop.shapes_[t]) * static_cast<int64_t>(byte_size(loop.p_.tensors[t].type)); }

  void prepare(int workers, const AxisValues& around) {
    for (const CompiledLoop* c : {loop.main_.get(), loop.rest_.get()}) {
      if (!c) continue;
      const std::vector<LoopArgument>& list = c->arguments(phase);
      for (size_t k = 0; k < list.size(); ++k) {
        if (list[k].is == Is::memory)
          for (int w = 0; w < workers; ++w) own[{w, {c, k}}] = memory(list[k]);
        else if (list[k].is != Is::variable && !given.contains({list[k].is, list[k].number}))
          give(list[k]);
      }
    }
    tapes = loop.main_->tapes(around), last_tapes = loop.rest_ ? loop.rest_->tapes(around) : tapes;
    status.assign(static_cast<size_t>(tiles.count()), std::vector<int32_t>(1 + tapes.size()));
    if (phase != LoopPhase::backward) return;
    for (size_t i = 0; i < status.size(); ++i)
      for (size_t k = 0; k < tapes.size(); ++k)
        status[i][k + 1] = static_cast<int32_t>((i + 1 == status.size() ? last_tapes : tapes)[k].elements);
  }

  void give(const LoopArgument& a) {
    const std::pair key(a.is, a.number);
    char* const whole = given[key] = static_cast<char*>(memory(a));
    if (a.is != Is::carried && a.is != Is::adjoint && a.is != Is::outside_adjoint) return;
    const TensorId t = value_of(a);
    if (tiles.dimension.contains(t)) return;
    const int64_t bytes = bytes_of(t), others = tiles.count() - 1;
    LoopArgument room;
    room.bytes = bytes * others;
    char* const parts = static_cast<char*>(memory(room));
    shared[key] = {parts, t, bytes};
    if (a.is != Is::carried) std::memset(parts, 0, static_cast<size_t>(room.bytes));
    for (int64_t i = 0; a.is == Is::carried && i < others; ++i) std::memcpy(parts + i * bytes, whole, static_cast<size_t>(bytes));
  }

  void* at(const LoopArgument& a, int64_t tile) {
    if (a.is == Is::status) return status[static_cast<size_t>(tile)].data();
    char* const whole = given.at({a.is, a.number});
    if (a.is == Is::tape) return whole + tile * tapes[a.number].elements * tapes[a.number].element_bytes;
    if (const auto it = shared.find({a.is, a.number}); it != shared.end())
      return tile == 0 ? whole : it->second.parts + (tile - 1) * it->second.bytes;
    const TensorId t = value_of(a);
    const auto d = tiles.dimension.find(t);
    if (d == tiles.dimension.end()) return whole;
    return whole + tile * tiles.tile * strides_of(loop.shapes_[t])[d->second] * static_cast<int64_t>(byte_size(loop.p_.tensors[t].type));
  }

  // What tiles left in parts.
  void add_up() {
    for (const auto& [key, s] : shared) {
      if (key.first == Is::carried) continue;
      auto add = [&, whole = given.at(key)]<class T>(T) {
        for (int64_t i = 0; i + 1 < tiles.count(); ++i)
          for (int64_t k = 0; k < s.bytes / static_cast<int64_t>(sizeof(T)); ++k)
            reinterpret_cast<T*>(whole)[k] += reinterpret_cast<const T*>(s.parts + i * s.bytes)[k];
      };
      loop.p_.tensors[s.value].type == DType::f64 ? add(double{}) : add(float{});
    }
  }
};

void TiledLoop::run(LoopPhase phase, const Memory& memory, const Variable& variable, int threads) {
  if (!tiles_) return main_->run(phase, memory, variable);
  AxisValues around;
  for (Id x : variables()) around[x] = variable(x);
  const std::shared_ptr<ThreadPool> pool = shared_pool(threads);
  Call call{*this, *tiles_, phase, memory, {}, {}, {}, {}, {}, {}};
  call.prepare(pool->threads(), around);
  std::vector<std::exception_ptr> failed(call.status.size());
  auto task = [&](int worker, int64_t tile) {
    const CompiledLoop& code = call.code(tile);
    const std::vector<LoopArgument>& list = code.arguments(phase);
    try {
      code.run(
          phase,
          [&](const LoopArgument& a) {
            return a.is == LoopArgument::Is::memory ? call.own.at({worker, {&code, static_cast<size_t>(&a - list.data())}})
                                                    : call.at(a, tile);
          },
          [&](Id x) { return around.at(x); });
    } catch (...) {
      failed[static_cast<size_t>(tile)] = std::current_exception();
    }
  };
  pool->run(tiles_->count(), task);
  for (const std::exception_ptr& e : failed)
    if (e) std::rethrow_exception(e);
  call.add_up();
  auto* const all = reinterpret_cast<int32_t*>(call.given.at({LoopArgument::Is::status, 0}));
  for (const std::vector<int32_t>& s : call.status) all[0] |= s[0];
}

}  // namespace xhat::runtime

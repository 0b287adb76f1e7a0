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
  // Where an argument lies: for the first tile, for the second, and how far from tile to tile after that, in bytes.
  struct Place {
    char *first = nullptr, *second = nullptr;
    int64_t step = 0;
    char* at(int64_t tile) const { return tile == 0 ? first : second + (tile - 1) * step; }
  };
  // What every tile adds to: the first adds to the caller's.
  struct Parts {
    TensorId value;
    Place place;
  };
  struct Code {
    const CompiledLoop* loop = nullptr;
    std::vector<Place> places;               // by argument
    std::vector<std::vector<void*>> memory;  // by worker and argument, where it is memory
  };

  TiledLoop& of;
  const LoopTiles& tiles;
  const LoopPhase phase;
  const Memory& memory;
  std::map<std::pair<Is, size_t>, Place> known;
  std::vector<Parts> parts;
  Code whole, rest;
  std::vector<CompiledLoop::Tape> tapes;
  std::vector<int32_t> status;  // of all tiles
  size_t status_each = 0;

  void prepare(int workers, const AxisValues& around) {
    tapes = of.main_->tapes(around);
    const std::vector<CompiledLoop::Tape> last = of.rest_ ? of.rest_->tapes(around) : tapes;
    const auto count = static_cast<size_t>(tiles.count());
    status_each = 1 + tapes.size();
    status.assign(count * status_each, 0);
    for (size_t i = 0; phase == LoopPhase::backward && i < count; ++i)
      for (size_t k = 0; k < tapes.size(); ++k)
        status[i * status_each + k + 1] = static_cast<int32_t>((i + 1 == count ? last : tapes)[k].elements);
    whole.loop = of.main_.get(), rest.loop = of.rest_.get();
    for (Code* c : {&whole, &rest}) {
      if (!c->loop) continue;
      c->memory.resize(static_cast<size_t>(workers));
      for (const LoopArgument& a : c->loop->arguments(phase)) {
        for (std::vector<void*>& own : c->memory) own.push_back(a.is == Is::memory ? memory(a) : nullptr);
        c->places.push_back(a.is == Is::memory || a.is == Is::variable ? Place() : place_of(a));
      }
    }
  }

  Place place_of(const LoopArgument& a) {
    const std::pair key(a.is, a.number);
    if (const auto it = known.find(key); it != known.end()) return it->second;
    return known[key] = found(a);
  }
  Place found(const LoopArgument& a) {
    auto from_tile_to_tile = [](char* first, int64_t step) { return Place{first, first + step, step}; };
    if (a.is == Is::status)
      return from_tile_to_tile(reinterpret_cast<char*>(status.data()), static_cast<int64_t>(status_each * sizeof(int32_t)));
    auto* const given = static_cast<char*>(memory(a));
    if (a.is == Is::tape) return from_tile_to_tile(given, tapes[a.number].elements * tapes[a.number].element_bytes);
    const bool outside = a.is == Is::outside || a.is == Is::outside_adjoint;
    const TensorId t = outside ? of.outside()[a.number] : of.loop_.carried[a.number].result;
    const auto element = static_cast<int64_t>(byte_size(of.p_.tensors[t].type));
    if (const auto d = tiles.dimension.find(t); d != tiles.dimension.end())
      return from_tile_to_tile(given, tiles.tile * strides_of(of.shapes_[t])[d->second] * element);
    if (a.is == Is::outside || (a.is == Is::carried && phase == LoopPhase::backward)) return {given, given, 0};
    // The same for all tiles, but each writes it: they have their own.
    const int64_t bytes = element_count(of.shapes_[t]) * element, others = tiles.count() - 1;
    LoopArgument room;
    room.bytes = bytes * others;
    const Place own{given, static_cast<char*>(memory(room)), bytes};
    if (a.is == Is::carried) {
      for (int64_t i = 1; i <= others; ++i) std::memcpy(own.at(i), given, static_cast<size_t>(bytes));
    } else {
      std::memset(own.second, 0, static_cast<size_t>(room.bytes));
      parts.push_back({t, own});
    }
    return own;
  }

  void run(int worker, int64_t tile, const Variable& variable) const {
    const Code& c = rest.loop && tile + 1 == tiles.count() ? rest : whole;
    const LoopArgument* const first = c.loop->arguments(phase).data();
    c.loop->run(
        phase,
        [&](const LoopArgument& a) -> void* {
          const auto k = static_cast<size_t>(&a - first);
          return a.is == Is::memory ? c.memory[static_cast<size_t>(worker)][k] : c.places[k].at(tile);
        },
        variable);
  }

  void add_up() const {
    for (const Parts& p : parts) {
      auto add = [&]<class T>(T) {
        for (int64_t i = 1; i < tiles.count(); ++i)
          for (int64_t k = 0; k < p.place.step / static_cast<int64_t>(sizeof(T)); ++k)
            reinterpret_cast<T*>(p.place.first)[k] += reinterpret_cast<const T*>(p.place.at(i))[k];
      };
      of.p_.tensors[p.value].type == DType::f64 ? add(double{}) : add(float{});
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
  std::vector<std::exception_ptr> failed(static_cast<size_t>(tiles_->count()));
  auto task = [&](int worker, int64_t tile) {
    try {
      call.run(worker, tile, [&](Id x) { return around.at(x); });
    } catch (...) {
      failed[static_cast<size_t>(tile)] = std::current_exception();
    }
  };
  pool->run(tiles_->count(), task);
  for (const std::exception_ptr& e : failed)
    if (e) std::rethrow_exception(e);
  call.add_up();
  LoopArgument callers;
  callers.is = LoopArgument::Is::status;
  auto* const found = static_cast<int32_t*>(memory(callers));
  for (size_t i = 0; i < call.status.size(); i += call.status_each) found[0] |= call.status[i];
}

}  // namespace xhat::runtime

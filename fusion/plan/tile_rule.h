// How much of an axis one tile takes, as a rule: what the planner decided, for any number of elements. Ahead-of-time
// libraries choose their tiles by it when they run (runtime/host/tile_walk.h), so that sums are cut as the planner cuts them.
#pragma once
#include <algorithm>
#include <cstdint>

namespace xhat {

struct TileRule {
  enum class Kind : uint8_t {
    whole,  // all of it
    fixed,  // `most` elements
    split,  // into `least_tiles` pieces
    fit     // as many as fit, in equal pieces
  };
  Kind kind = Kind::whole;
  int64_t most = 1;         // elements that fit, by bytes
  int64_t least_tiles = 1;  // of this axis and all slower ones
  // Where an operand is brought in for every tile: at least so many elements, if that leaves `column_tiles`-fold 8 tiles; or as
  // many as fit the cache, if that leaves `column_tiles`-fold least_tiles.
  int64_t at_least = 0;
  int64_t at_least_cached = 0;
  int64_t column_tiles = 1;
  int64_t phases = 1;      // a multiple of these, if more than 1
  bool lines = false;      // whole cache lines, of the fastest axis
};

// full: elements of the axis, >= 1; slower: the product of the extents of all slower axes of the loop.
inline int64_t tile_by(const TileRule& r, int64_t full, int64_t slower) {
  switch (r.kind) {
    case TileRule::Kind::whole: return full;
    case TileRule::Kind::fixed: return r.most;
    case TileRule::Kind::split: return std::max<int64_t>(1, (full + r.least_tiles - 1) / r.least_tiles);
    case TileRule::Kind::fit: break;
  }
  // Enough tiles for the threads to share, whatever the cache could hold.
  int64_t fit = std::min(r.most, std::max<int64_t>(1, full * slower / r.least_tiles));
  fit = std::max(fit, std::min(r.at_least, full * slower / 8));
  fit = std::max(fit, std::min(r.at_least_cached, full * slower * r.column_tiles / r.least_tiles));
  if (fit >= full) return full;
  int64_t pieces = (full + fit - 1) / fit;
  int64_t tile = (full + pieces - 1) / pieces;
  if (tile > 1) tile = (tile + r.phases - 1) / r.phases * r.phases;
  if (!r.lines || tile <= 8) return tile;
  const int64_t line = tile > 64 ? 64 : 16;
  return std::min(full, (tile + line - 1) / line * line);
}

}  // namespace xhat

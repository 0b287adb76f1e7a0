// Tiles of a finished kernel; kernel_tiles.cpp counts the bytes that it moves.
#include <algorithm>
#include <set>
#include <utility>

#include "fusion/plan/kernel_draft.h"

namespace xhat::fusion {
namespace {

// Columns of a recurrence in a tile: four vectors of 16, in as many cycles as one takes. A running product of 256 x 64 in tiles of 4: 41 us.
constexpr int64_t kColumnsBeside = 64;

constexpr int64_t kMinRows = 3, kMinColumns = 8;  // of a product's block
constexpr int64_t kShortRow = 8;                  // results of a row that are computed in vectors across rows
constexpr int64_t kLineBytes = 64;                // of a cache line
constexpr int64_t kAskedShare = 4;                // of a tile's bytes: what it takes to ask segments for their places in it

}  // namespace

std::optional<Shape::Product> Planner::product_of(const Shape& s) const {
  auto plain = product_of(s, false);
  if (s.phase_axes.empty()) return plain;
  // Columns that lie closer in memory are worth the phases. Without them a condition that they decide is one of each product.
  auto apart = product_of(s, true);
  return apart && (!plain || s.phases_decide || apart->columns > plain->columns) ? apart : plain;
}

std::optional<Shape::Product> Planner::product_of(const Shape& s, bool in_phases) const {
  if (!s.is_reduction || !s.scatter_targets.empty() || !s.segments.empty()) return std::nullopt;
  auto steps = [&](size_t x) { return in_phases ? s.extents[x] / s.phases[x] : s.extents[x]; };
  auto reads = [&](size_t x, size_t y) {
    auto on = [&](const std::vector<Id>& axes, size_t i) { return std::ranges::binary_search(axes, s.axes[i].axis); };
    return std::ranges::any_of(in_phases ? s.phase_axes : s.read_axes, [&](const auto& axes) { return on(axes, x) && on(axes, y); });
  };
  auto depends = [&](size_t read, size_t i) { return std::ranges::binary_search(s.read_axes[read], s.axes[i].axis); };
  // Both side by side, or neither: m[v,i,k] += b[i,k] has twelve columns where i is 3 and k is 4. Of x[i+r,j+s] the kernel makes no loop
  // over r and s.
  auto one_loop = [&](size_t x) {
    for (size_t r = 0; r < s.reads.size(); ++r) {
      if (!depends(r, x) && !depends(r, x + 1)) continue;
      const auto& forms = s.forms[r];
      bool beside = false;
      for (size_t d = 0; d + 1 < forms.size(); ++d)
        beside |= forms[d].bare() && forms[d].axis == x && forms[d + 1].bare() && forms[d + 1].axis == x + 1;
      if (!beside) return false;
    }
    return true;
  };
  // Of x[n,c,i+r,j+s] the columns c are packed again for each r and s.
  auto packed_again = [&](size_t v) {
    for (size_t r = 0; r < s.reads.size(); ++r) {
      auto bare = [&](size_t i) { return std::ranges::any_of(s.forms[r], [&](const Shape::Form& f) { return f.bare() && f.axis == i; }); };
      for (size_t x = 0; bare(v) && x < s.left; ++x)
        if (depends(r, x) && !bare(x)) return true;
    }
    return false;
  };
  auto lies_along = [&](size_t r, size_t v) { return !s.forms[r].empty() && s.forms[r].back().bare() && s.forms[r].back().axis == v; };
  // Of dy[n,k,r+2*i,s+2*j] columns k are packed one element at a time. What is computed of several such is computed in vectors there, though,
  // and would be a number at a time as rows.
  auto gathered = [&](size_t v) {
    size_t reads_of = 0, one_by_one = 0;
    for (size_t r = 0; r < s.reads.size(); ++r) {
      if (!depends(r, v)) continue;
      ++reads_of;
      one_by_one += !lies_along(r, v) && !s.in_runs[r];
    }
    return reads_of == 1 && one_by_one == 1;
  };
  int64_t terms = 1;
  for (size_t x = s.left; x < s.axes.size(); ++x) terms *= steps(x);
  // Of y[n,k] a tile that has all columns n has few k: it touches every line of y, as the others do, and stores one number at a time; of
  // x[n,p] it reads all, as they do. A block makes up for it if the sum is long, and n lies side by side, or x in the cache. Else tiles of some
  // n with all k are one run (200003 x 3 by 3 x 3: 0.18 ms in place of 1.4).
  auto torn = [&](size_t v) {
    int64_t behind = 1;
    for (size_t x = v + 1; x < s.left; ++x) behind *= s.extents[x];
    if (!machine_.tiles_in_order || v + 1 == s.left || behind > kShortRow) return false;
    for (size_t r = 0; r < s.reads.size(); ++r)  // of windows a block is read once for all of its terms
      if (depends(r, v) && std::ranges::any_of(s.forms[r], [](const auto& form) { return !form.bare(); })) return false;
    auto read_again = [&](size_t r) {
      return depends(r, v) && !lies_along(r, v) && bytes((*p_.arena)[s.reads[r]].symbol) > machine_.l2_bytes;
    };
    bool again = terms < kMinColumns;
    for (size_t r = 0; r < s.reads.size(); ++r) again |= read_again(r);
    return again;
  };
  std::vector<size_t> tried;
  for (const auto& [again, one_by_one] : {std::pair(false, false), {false, true}, {true, false}, {true, true}})
    for (size_t v = s.left; v-- > 0;)
      if (packed_again(v) == again && gathered(v) == one_by_one) tried.push_back(v);
  std::optional<Shape::Product> last;
  for (size_t v : tried) {
    if (!reads(v, v)) continue;
    size_t beside = 0;
    int64_t columns = steps(v);
    for (; !in_phases && columns < kMinColumns && v > beside && one_loop(v - beside - 1); ++beside) columns *= steps(v - beside - 1);
    if (columns < kMinColumns) continue;
    std::optional<size_t> best;
    for (size_t y = 0; y < s.left; ++y)
      if ((y > v || y < v - beside) && steps(y) >= kMinRows && reads(y, y) && !reads(y, v) && (!best || steps(y) > steps(*best))) best = y;
    // The innermost of rows that are one loop: a tile takes some of the outermost and all of those within.
    size_t rows_beside = 0;
    while (best && *best + 1 < s.left && *best + 1 < v - beside && steps(*best + 1) >= kMinRows && one_loop(*best)) ++*best;
    while (best && *best > rows_beside && (*best - rows_beside - 1 > v) == (*best > v) && one_loop(*best - rows_beside - 1)) ++rows_beside;
    if (!best) continue;
    const Shape::Product found{*best, v, in_phases, beside, rows_beside, torn(v)};
    if (!found.torn) return found;
    if (!last) last = found;
  }
  return last;
}

// Bytes of a product's operand along its columns that one tile takes.
int64_t Planner::packed_in_tile(const Draft& d, const Member& m) const {
  const Shape& s = shape(m);
  const auto& p = s.product;
  if (!p || p->torn) return 0;
  auto class_of = [&](size_t i) { return i < s.left ? m.left[i] : m.reduced[i - s.left]; };
  int64_t bytes = 0;
  for (size_t r = 0; r < s.reads.size(); ++r) {
    const auto& axes = p->in_phases ? s.phase_axes[r] : s.read_axes[r];
    int64_t elements = 1;
    bool columns = false;
    for (size_t i = 0; i < s.axes.size(); ++i) {
      if (!std::ranges::binary_search(axes, s.axes[i].axis)) continue;
      elements *= in_tile(d, class_of(i), true);
      columns |= i == p->columns;
    }
    if (columns) bytes += elements * static_cast<int64_t>(byte_size((*p_.arena)[s.reads[r]].type));
  }
  return bytes;
}

// What a product's tiles multiply beyond the ranges of its sums, where these depend on its rows: of u in 0..t+1 a tile that has all t takes
// the square, twice the triangle. In bytes that could be moved meanwhile.
int64_t Planner::multiplied_in_vain(const Draft& d, const Member& m, int64_t tiles) const {
  const Shape& s = shape(m);
  if (!s.product || s.plain_ranges) return 0;
  std::unordered_map<Id, int64_t> points;
  double all = static_cast<double>(tiles), beyond = 0;
  for (size_t i = 0; i < s.axes.size(); ++i) {
    const int64_t elements = points[s.axes[i].axis] = in_tile(d, i < s.left ? m.left[i] : m.reduced[i - s.left], true);
    all *= static_cast<double>(elements);
    if (i < s.left) continue;
    // The range of one row in the middle; over all rows it begins and ends this much further out, half of it on the average.
    const int64_t wanders = reach(s.axes[i].begin, points) + reach(s.axes[i].end, points) - 2;
    beyond += static_cast<double>(wanders) / 2 / static_cast<double>(elements);
  }
  const auto size = static_cast<double>(byte_size(p_.tensors[p_.forward.definitions[m.definition].target()].type));
  return static_cast<int64_t>(all * beyond * machine_.multiply_bytes * size / 4);
}

// What a sum's vectors compute for nobody where tiles cut the axis that they run along into less than a vector: the same instructions for
// fewer results. In bytes that could be moved meanwhile. A sum whose terms lie side by side has vectors of terms.
int64_t Planner::idle_lanes(const Draft& d, const Member& m, int64_t tiles) const {
  constexpr int64_t kVectorBytes = 64;
  const Arena& a = *p_.arena;
  const Shape& s = shape(m);
  if (!s.is_reduction || s.left == 0 || !s.scatter_targets.empty()) return 0;
  const int64_t size = static_cast<int64_t>(byte_size(p_.tensors[p_.forward.definitions[m.definition].target()].type));
  const size_t along = s.left - 1;
  const int64_t lanes = std::min(s.extents[along], kVectorBytes / size), taken = in_tile(d, m.left[along], true);
  if (taken >= lanes) return 0;
  auto strides = [&](size_t i, Id read) {
    const auto indices = read_indices(a[read]);
    auto has = [&](Id e) { return a[e].depends_on(s.axes[i].axis); };
    return std::ranges::any_of(indices.first(indices.empty() ? 0 : indices.size() - 1), has);
  };
  for (size_t i = s.left; i < s.axes.size(); ++i)
    if (std::ranges::none_of(s.reads, [&](Id read) { return strides(i, read); })) return 0;
  double points = static_cast<double>(tiles) * share_of_pairs(s);
  for (size_t i = 0; i < s.axes.size(); ++i)
    points *= static_cast<double>(in_tile(d, i < s.left ? m.left[i] : m.reduced[i - s.left], true));
  const double idle = static_cast<double>(lanes) / static_cast<double>(taken) - 1;
  return static_cast<int64_t>(points * idle * machine_.multiply_bytes * static_cast<double>(size) / 4);
}

// Columns of one tile of a product, as many as make whole vectors and divide all of them; 0: all. A tile packs the operand
// along its columns once, for all its rows: with fewer columns a tile can have more rows, and less is packed twice. Rows that
// lie across (a[k,y]) are packed as well, from beyond L2, before anything is multiplied: then tiles are twice as wide (512 x
// 1024 x 1024, one thread: 110 and 126 Gflop/s). Where there are few rows they are cut less, and columns more: each tile of rows packs all
// of the other operand, however few it has.
// rows: what all other axes of the loop make together.
int64_t Planner::columns_in_tile(const Draft& d, const std::vector<Member>& members, int columns, int64_t rows) const {
  constexpr int64_t kMinTiles = 2, kRowsWorthPacking = 64, kTiles = 8, kNarrowest = 32;
  const bool across = std::ranges::any_of(members, [&](const Member& m) {
    const Shape& s = shape(m);
    return s.product && std::ranges::any_of(s.reads, [&](Id read) {
             const auto indices = read_indices((*p_.arena)[read]);
             return !indices.empty() && indices.back() == s.axes[s.product->rows].axis;
           });
  });
  const KernelAxis& axis = d.axes[static_cast<size_t>(columns)];
  int64_t fewest = across ? 256 : 128;
  while (fewest > kNarrowest && axis.extent / fewest * rows < kRowsWorthPacking * kTiles) fewest /= 2;
  const int64_t most = 2 * fewest;
  if (axis.phases > 1) return 0;
  for (const Member& m : members) {  // what runtime/kernel/kernel_phases.cpp cannot split
    if (!shape(m).scatter_targets.empty() || std::ranges::count(m.left, columns) > 1) return 0;
    if (std::ranges::find(m.reduced, columns) != m.reduced.end()) return 0;
  }
  for (int64_t n = fewest; n <= most; n += 16)
    if (axis.extent % n == 0 && axis.extent / n >= kMinTiles) return n;
  return 0;
}

// May the sums over a class be carried from tile to tile, all of which one thread takes in order? If there are products among them,
// which as partial results would be as large as what a tile is made of; and where other axes leave enough tiles for all threads.
bool Planner::may_carry(const Draft& d, const std::vector<Member>& members, const std::vector<int>& order, int c) const {
  if (!machine_.tiles_in_order || reduced_by_all(d, c)) return false;
  int64_t others = 1;
  for (int o : order) others *= o == c ? 1 : std::max<int64_t>(1, d.axes[static_cast<size_t>(o)].extent);
  if (others < machine_.least_tiles) return false;
  bool products = false;
  for (const Member& m : members) {
    if (std::ranges::find(m.reduced, c) == m.reduced.end()) continue;
    const Definition& definition = p_.forward.definitions[m.definition];
    const DType type = p_.tensors[definition.target()].type;
    const bool sum = (*p_.arena)[definition.body].op == Op::sum && (type == DType::f32 || type == DType::f64);
    const bool once = std::ranges::count_if(m.reduced, [&](int r) { return std::ranges::find(order, r) != order.end(); }) == 1;
    // Its results are whole in the tile, as a block and its vectors want it: the other axes have one element there.
    auto cut = [&](int l) { return std::ranges::find(order, l) != order.end(); };
    const auto& p = shape(m).product;
    const bool whole = p ? !cut(m.left[p->rows]) && !cut(m.left[p->columns]) : m.left.empty() || !cut(m.left.back());
    if (!sum || !once || !whole || !shape(m).scatter_targets.empty()) return false;
    products |= p.has_value();
  }
  return products;
}

// Decides the outer loop: which shared classes are tiled, in which order, and how much of each one tile takes.
void Planner::order_and_tile(const Draft& draft, Kernel& k, std::optional<int> first) const {
  k.axes = draft.axes;
  Draft d = draft;
  // Slowest-varying first, as the largest tensors are laid out.
  std::vector<TensorId> tensors;
  for (auto& [t, classes] : d.dims) tensors.push_back(t);
  // Those that are read at computed places come last: they don't say how the tile lies in them.
  auto computed = [&](TensorId t) { return std::ranges::find(d.dims.at(t), -1) != d.dims.at(t).end(); };
  std::ranges::stable_sort(tensors, [&](TensorId x, TensorId y) { return computed(x) != computed(y) ? computed(y) : bytes(x) > bytes(y); });
  std::vector<int> order;
  for (TensorId t : tensors)
    for (int c : d.dims[t])
      if (c >= 0 && d.walked(c) && std::ranges::find(order, d.walked_by(c)) == order.end()) order.push_back(d.walked_by(c));
  for (size_t c = 0; c < d.axes.size(); ++c)
    if (d.shared[c] && std::ranges::find(order, static_cast<int>(c)) == order.end()) order.push_back(static_cast<int>(c));

  // Of g[i,j,k] = dy[k,i,j] both k and j lie side by side in memory, of x[i,j] + x[j,i] both i and j: tiles take some i, and runs of both.
  auto is_large = [&](TensorId t) { return 2 * bytes(t) >= bytes(tensors[0]); };
  auto side_by_side = [&](int c) {
    auto walks = [&](int last) { return last >= 0 && d.walked(last) && d.walked_by(last) == c; };
    const bool as_it_lies = std::ranges::any_of(tensors, [&](TensorId t) {
      const std::vector<int>& classes = d.dims.at(t);
      return !classes.empty() && is_large(t) && walks(classes.back());
    });
    return as_it_lies || std::ranges::any_of(d.members, [&](const Member& m) {
             const Shape& s = shape(m);
             for (size_t r = 0; r < s.reads.size(); ++r) {
               if (s.is_reduction || s.forms[r].empty() || !s.forms[r].back().bare() || !is_large((*p_.arena)[s.reads[r]].symbol)) continue;
               if (walks(m.left[s.forms[r].back().axis])) return true;
             }
             return false;
           });
  };
  // A scatter's tiles had better take some columns of all terms than some places of few. But not of rows within a cache line, as coordinates
  // are: each tile would look at all terms for a few bytes of lines that the others bring in, too.
  const bool scatters = std::ranges::any_of(d.members, [&](const Member& m) { return !shape(m).scatter_targets.empty(); });
  auto in_short_row = [&](int c) {
    return std::ranges::any_of(d.members, [&](const Member& m) {
      if (shape(m).scatter_targets.empty() || m.left.empty() || d.walked_by(m.left.back()) != c) return false;
      const DType type = p_.tensors[p_.forward.definitions[m.definition].target()].type;
      return d.axes[static_cast<size_t>(m.left.back())].extent * static_cast<int64_t>(byte_size(type)) <= kLineBytes;
    });
  };
  std::ranges::stable_partition(order, [&](int c) { return scatters ? !in_short_row(c) : !side_by_side(c); });
  if (first) std::ranges::stable_partition(order, [&](int c) { return c == *first; });

  // A product's columns are whole in the tile, and its rows the next to vary.
  auto product = std::ranges::find_if(k.members, [&](const Member& m) { return shape(m).product && !shape(m).product->torn; });
  int rows = -1, columns = -1;
  if (product != k.members.end()) {
    const Shape& s = shape(*product);
    rows = product->left[s.product->rows];
    columns = product->left[s.product->columns];
    for (size_t i = 0; i < s.left && s.product->in_phases; ++i) d.axes[static_cast<size_t>(product->left[i])].phases = s.phases[i];
  }
  if (columns >= 0) {
    std::vector<int> last;
    const auto& p = *shape(*product).product;
    for (size_t i = p.rows_beside; i > 0; --i) last.push_back(product->left[p.rows - i]);
    last.push_back(rows);
    for (size_t i = p.beside; i > 0; --i) last.push_back(product->left[p.columns - i]);
    last.push_back(columns);
    for (int c : last)
      if (auto at = std::ranges::find(order, c); at != order.end()) std::rotate(at, at + 1, order.end());
  }

  // The steps of a window whose places are summed over, dw[k,r] = sum(i: dy[k,i]*x[i+r]): each tile of them would read all of x again.
  auto steps_of_window = [&](int c) {
    bool any = false;
    for (const Member& m : d.members) {
      const auto at = std::ranges::find(m.left, c);
      if (at == m.left.end()) continue;
      const Shape& s = shape(m);
      const auto i = static_cast<size_t>(at - m.left.begin());
      auto longer_sum = [&](Id index) {
        const auto has = [&](size_t x) { return (*p_.arena)[index].depends_on(s.axes[x].axis); };
        for (size_t x = s.left; x < s.axes.size() && has(i); ++x)
          if (has(x) && s.extents[x] >= 2 * s.extents[i]) return true;
        return false;
      };
      for (size_t r = 0; r < s.reads.size(); ++r) {
        if (!std::ranges::binary_search(s.read_axes[r], s.axes[i].axis)) continue;
        if (std::ranges::none_of(read_indices((*p_.arena)[s.reads[r]]), longer_sum)) return false;
        any = true;
      }
    }
    return any;
  };
  std::ranges::stable_partition(order, [&](int c) { return !steps_of_window(c); });

  // An axis that everybody reduces is tiled only if it is the slowest one (or nothing else is there) and the partial
  // results it leaves are few beside what is read; else it is walked whole inside the tile.
  int64_t read = 0, left = 0;
  for (TensorId t : tensors) (d.producer.contains(t) ? left : read) += bytes(t);
  for (size_t i = 0; i < order.size();) {
    int c = order[i];
    int64_t steps = d.axes[static_cast<size_t>(c)].extent;
    bool only = std::ranges::all_of(order, [&](int o) { return reduced_by_all(d, o); });
    auto few_of = [&](int64_t partials) {
      return 10.0 * static_cast<double>(left) * static_cast<double>(partials) <= static_cast<double>(read);
    };
    bool few = options_.cut_small || few_of(steps) || few_of(machine_.least_tiles);
    if (reduced_by_all(d, c) && !((i == 0 || only) && few)) {
      d.shared[static_cast<size_t>(c)] = false;
      order.erase(order.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }

  if (auto carried = std::ranges::find_if(order, [&](int c) { return may_carry(d, k.members, order, c); }); carried != order.end()) {
    if (*carried == columns) columns = -1;
    std::rotate(carried, carried + 1, order.end());
    k.sequential = 1;
  }
  const auto in_parallel = std::span(order).first(order.size() - k.sequential);

  int64_t total = 0;
  for (TensorId t : tensors) total += bytes(t);
  // Partial results cost a row per tile, written and read again: fewer, larger tiles.
  bool partial = std::ranges::any_of(d.members, [&](const Member& m) {
    return std::ranges::any_of(m.reduced, [&](int c) { return std::ranges::find(in_parallel, c) != in_parallel.end(); });
  });
  const bool tuned = k.choice.tile_bytes > 0;
  const bool products = product != k.members.end();
  const bool large = machine_.fills_the_cache(total) && !partial && !products;
  const int64_t factor = (partial ? machine_.partial_tile_factor : 1) * (products ? machine_.product_tile_factor : 1) *
                         (large ? machine_.long_tile_factor : 1);
  const int64_t wanted = tuned ? k.choice.tile_bytes : machine_.tile_bytes * factor;
  // Tiles of places that segments have ask all segments: as a scatter's, that is no more than a part of what a tile takes.
  const int64_t asked = asked_bytes(d);
  const bool asks = !scatters && asked > wanted / kAskedShare;
  const int64_t least_tiles = k.choice.least_tiles > 0 ? k.choice.least_tiles : machine_.least_tiles;
  auto take = [](KernelAxis& axis, const TileRule& rule, int64_t slower = 1) {
    axis.rule = rule;
    axis.tile = tile_by(rule, std::max<int64_t>(1, axis.extent), slower);
  };
  for (int c : order) take(d.axes[static_cast<size_t>(c)], {.kind = TileRule::Kind::fixed});
  double work_ps = 0;
  for (const Member& m : d.members) work_ps += shape(m).work_ps;
  if (total <= machine_.serial_bytes && work_ps <= machine_.serial_ps && !tuned) {
    for (int c : order) take(d.axes[static_cast<size_t>(c)], {});
  } else if (scatters || asks) {
    int64_t tiles = partial || k.choice.least_tiles > 0 ? least_tiles : machine_.scatter_tiles.value_or(least_tiles);
    if (asks) tiles = std::max(tiles, std::min(total / wanted, total / (asked * kAskedShare)));
    for (size_t i = 0; i < order.size(); ++i) {
      auto kind = i > 0 ? TileRule::Kind::whole : TileRule::Kind::split;
      take(d.axes[static_cast<size_t>(order[i])], {.kind = kind, .least_tiles = tiles});
    }
  } else {
    int64_t column_tiles = 1;
    int64_t tiles = 1;  // of the slower axes
    // Do steps of the next slower axis touch mostly the same? A tile that is one row of a picture reads the rows around it as well, and one of
    // many rows little more: rows are not cut while a few fit the cache.
    auto windows_overlap = [&](size_t i) {
      if (i == 0 || products) return false;
      KernelAxis &axis = d.axes[static_cast<size_t>(order[i])], &next = d.axes[static_cast<size_t>(order[i - 1])];
      const KernelAxis was = axis, was_next = next;
      axis.tile = std::max<int64_t>(1, axis.extent);
      const int64_t one = footprint(d, true);
      next.tile = 2;
      const int64_t step = footprint(d, true) - one;
      axis = was, next = was_next;
      return 2 * step < one && one <= machine_.cache_bytes;
    };
    for (int c : order) tiles *= std::max<int64_t>(1, d.axes[static_cast<size_t>(c)].extent);
    for (size_t i = order.size(); i-- > 0;) {
      KernelAxis& axis = d.axes[static_cast<size_t>(order[i])];
      int64_t full = std::max<int64_t>(1, axis.extent);
      tiles /= full;
      axis.tile = 1;
      int64_t one = footprint(d, true);
      if (order[i] == columns) {
        take(axis, {});
        if (int64_t n = columns_in_tile(d, k.members, order[i], tiles)) {
          take(axis, {.kind = TileRule::Kind::fixed, .most = n});
          axis.phases = n;
          column_tiles = full / n;
        }
        continue;
      }
      axis.tile = 2;
      int64_t step = std::max<int64_t>(1, footprint(d, true) - one);
      TileRule rule{.kind = TileRule::Kind::fit, .least_tiles = least_tiles, .phases = axis.phases};
      // What every tile touches anyway may fill half of it, however large: the fewer tiles, the fewer times.
      // No thread waits for a tile that is taken in order.
      const int64_t room = i < in_parallel.size() || tuned ? wanted : std::max(wanted, machine_.cache_bytes);
      rule.most = std::max<int64_t>(1, std::max(room - (one - step), wanted / 2) / step);
      if (windows_overlap(i)) rule.most = std::max(rule.most, machine_.cache_bytes / step);
      // What every tile looks at anyway, the other operand of a product, is brought in for many rows at once.
      if (one - step > wanted / 2) rule.at_least = 64;
      // Fewer rows than a block has share little of what is read along the columns.
      if (order[i] == rows) rule.at_least = std::max<int64_t>(rule.at_least, 8);
      if (column_tiles > 1) {
        rule.at_least_cached = machine_.cache_bytes / step;
        rule.column_tiles = column_tiles;
      }
      // Beside a recurrence lie vectors that do not wait for each other.
      auto goes_beside = [&](const Member& m) {
        return shape(m).in_order && m.left.back() == order[i] && *shape(m).in_order + 1 < m.left.size();
      };
      if (i + 1 == order.size() && std::ranges::any_of(k.members, goes_beside)) {
        rule.at_least_cached = kColumnsBeside;
        rule.column_tiles = std::max<int64_t>(1, least_tiles / 2);
      }
      // Contiguous vectors: whole cache lines, so that no two tiles write one line.
      rule.lines = i + 1 == order.size();
      take(axis, rule, tiles);
      rule.phases = 1;
      if (tile_by(rule, full, tiles) < full) break;
    }
  }
  k.axes = d.axes;
  for (KernelAxis& axis : k.axes)
    if (axis.of >= 0) axis.tile = axis.each * k.axes[static_cast<size_t>(axis.of)].tile;
  k.shared = order;
  for (const Member& m : k.members) k.combines_partials |= std::ranges::any_of(m.reduced, [&](int c) { return k.leaves_partials(c); });
}

}  // namespace xhat::fusion

// Which sums are computed in rectangles of results (gpu_contract.cpp), how large these are, and into how many parts their terms are split.
#include <algorithm>
#include <bit>
#include <cmath>

#include "runtime/gpu/gpu_lowering.h"
#include "runtime/kernel/kernel_access.h"

namespace xhat::runtime {

namespace {

constexpr int kMaxPerSide = 8;     // rows or columns of a thread
constexpr int kMinRows = 4;        // of a tile; with fewer there is little to gain
constexpr int kAccumulators = 64;  // of a thread; half of its registers
constexpr int64_t kSharedOfBlock = 48 << 10;
constexpr double kClock = 1.7;     // cycles of a multiprocessor, per ns
constexpr int64_t kMinTerms = 8, kTermsOfPart = 128;

}  // namespace

// If the groups are sums, and maps of what these come to at the same point: the reads of the sums.
std::optional<std::vector<Id>> GpuLowering::sums_and_maps(const std::vector<std::vector<size_t>>& groups) const {
  const Arena& a = *spec_.arena;
  const SpecMember& f = spec_.members[groups[0][0]];
  bool maps = false;
  std::vector<Id> reads;
  for (const auto& group : groups)
    for (size_t g : group) {
      const SpecMember& m = spec_.members[g];
      if (m.left != f.left || !m.scatter.empty() || m.op == Op::argmax || m.op == Op::argmin) return std::nullopt;
      if (maps && m.op != Op::constant) return std::nullopt;
      maps = m.op == Op::constant;
      for (Id id : reachable(a, roots(m))) {
        const Node& n = a[id];
        if (!is_read(n.op)) continue;
        for (const auto& h : groups)
          for (size_t i : h)
            if (spec_.members[i].tensor == n.symbol && (!maps || n.op != Op::read || !std::ranges::equal(read_indices(n), m.left)))
              return std::nullopt;
        if (!maps) reads.push_back(id);
      }
    }
  return reads;
}

bool GpuLowering::depends(Id value, const Side& side) const {
  return std::ranges::any_of(side, [&](Id x) { return (*spec_.arena)[value].depends_on(x); });
}

// Rows and columns that a rectangle of the sums' results may have: axes of which some reads depend on one side only; the one before the last as
// rows, if it can be. First single axes, then each with all that the same reads depend on.
std::vector<std::pair<GpuLowering::Side, GpuLowering::Side>> GpuLowering::sides(const std::vector<std::vector<size_t>>& groups,
                                                                                const Points& points, int64_t least_rows) const {
  const SpecMember& f = spec_.members[groups[0][0]];
  const auto reads = sums_and_maps(groups);
  if (!reads) return {};
  auto who_depends = [&](Id x) {
    std::vector<Id> found;
    std::ranges::copy_if(*reads, std::back_inserter(found), [&](Id id) { return depends(id, {x}); });
    return found;
  };
  const bool whole = std::ranges::none_of(points.origins, [](const Expr& e) { return e.defined(); });
  auto joined = [&](Id x) {
    Side all;
    for (Id y : f.left) {
      if (y != x && (!whole || who_depends(y) != who_depends(x))) continue;
      if (points.along({y}).open()) all.clear();  // only the slowest may be of any size
      all.push_back(y);
    }
    return std::ranges::find(all, x) == all.end() ? Side{x} : all;
  };
  auto shares = [&](const Side& row, const Side& column) {
    return std::ranges::any_of(*reads, [&](Id id) { return depends(id, column) && !depends(id, row); });
  };
  std::vector<std::pair<Side, Side>> found;
  for (const bool join : {false, true}) {
    auto side_of = [&](Id x) { return join ? joined(x) : Side{x}; };
    auto first = [&]() -> std::optional<std::pair<Side, Side>> {
      for (size_t c = f.left.size(); c-- > 0;)
        for (size_t r = f.left.size(); r-- > 0;) {
          const Side row = side_of(f.left[r]), column = side_of(f.left[c]);
          if (r != c && row != column && points.along(row).like() >= least_rows && points.along(column).like() >= kSide &&
              shares(row, column) && shares(column, row))
            return std::pair{row, column};
        }
      return {};
    };
    if (auto pair = first(); pair && (found.empty() || found[0] != *pair)) found.push_back(*pair);
  }
  return found;
}

std::optional<GpuLowering::Rectangle> GpuLowering::rectangle(const std::vector<std::vector<size_t>>& groups, const Points& points,
                                                             bool in_tile, int threads, const Span& span) const {
  auto candidates = sides(groups, points, in_tile ? kMinRows : kSide);
  if (candidates.empty() && !in_tile) candidates = sides(groups, points, kMinRows);
  if (candidates.empty() || threads < kSide * kSide) return std::nullopt;
  int64_t results = 0;
  auto is_sum = [&](const std::vector<size_t>& group) { return spec_.members[group[0]].op != Op::constant; };
  for (const auto& group : groups) {
    const SpecMember& m = spec_.members[group[0]];
    if (!is_sum(group)) continue;
    if (span(m.reduced).total().like() < kMinTerms) return std::nullopt;
    results += static_cast<int64_t>(group.size());
  }
  if (results == 0) return std::nullopt;
  const bool alone = !in_tile && std::ranges::count_if(groups, is_sum) == 1;  // else nothing is split
  std::optional<Rectangle> best;
  int64_t terms = 0;            // of the longest sum, in whole chunks
  std::vector<Staging> staged;  // of each group, one after the other in the same memory
  auto consider = [&](const Rectangle& r) {
    const int64_t blocks = rectangles(r, points).total().like();
    double work = 0;
    for (const Staging& s : staged) work = std::max(work, s.work_of_row * r.height() + s.work_of_column * r.width());
    const double cycles = in_tile ? static_cast<double>(blocks) * cycles_of(r, results, terms, 1, work) : cycles_of(r, results, terms, blocks, work);
    if (best && cycles / kClock >= best->ns) return;
    best = r;
    best->ns = cycles / kClock;
  };
  for (const auto& [row, column] : candidates) {
    const int64_t rows = points.along(row).like(), columns = points.along(column).like();
    auto most = [&](int64_t n, int side) {
      return static_cast<int>(std::min<uint64_t>(kMaxPerSide, std::bit_ceil(static_cast<uint64_t>(ceil_div(n, side)))));
    };
    staged.clear();
    terms = 0;
    for (const auto& group : groups) {
      if (!is_sum(group)) continue;
      const Points all = span(spec_.members[group[0]].reduced);
      staged.push_back(staging(group, row, column, all));
      const Id term = staged_axis(group, row, column, all);
      int64_t in_chunks = 1;
      for (size_t i = 0; i < all.axes.size(); ++i)
        in_chunks *= all.axes[i] == term ? ceil_div(all.counts[i].like(), kChunk) * kChunk : all.counts[i].like();
      terms = std::max(terms, in_chunks);
    }
    auto fits = [&](const Rectangle& r) {
      if (r.rows * r.columns > 1 && r.rows * r.columns * results > kAccumulators) return false;
      return std::ranges::all_of(staged, [&](const Staging& s) {
        return scratch_ + s.bytes_of_row * (r.height() + pad_of(true)) + s.bytes_of_column * (r.width() + pad_of(false)) <= kSharedOfBlock;
      });
    };
    Rectangle r;
    r.row = row;
    r.column = column;
    for (r.down = static_cast<int>(std::min<uint64_t>(kSide, std::bit_floor(static_cast<uint64_t>(rows)))); r.down >= kMinRows; r.down /= 2) {
      r.across = threads / r.down;
      if (r.across > 2 * columns) break;
      for (r.rows = most(rows, r.down); r.rows > 0; r.rows /= 2)
        for (r.columns = most(columns, r.across); r.columns > 0; r.columns /= 2) {
          r.split = {};
          if (!fits(r)) continue;
          consider(r);
          for (int64_t parts = 2; alone && terms / parts >= kTermsOfPart; parts *= 2) {
            r.split = split(*std::ranges::find_if(groups, is_sum), parts);
            if (!r.split.some()) break;
            consider(r);
          }
        }
    }
  }
  return best;
}

// What a chunk of the group's terms takes for each row, and for each column.
GpuLowering::Staging GpuLowering::staging(const std::vector<size_t>& group, const Side& row, const Side& column, const Points& terms) const {
  constexpr double kOfElement = 6, kOfAxis = 5, kOfIndex = 2;  // instructions: to load and store it, of its place's axes, of an index
  const Arena& a = *spec_.arena;
  Staging all;
  const Id term = staged_axis(group, row, column, terms);
  if (term == kNone) return all;
  for (Id id : staged_operands(group, row, column, term)) {
    const bool of_rows = depends(id, row);
    double work = kOfElement + kOfAxis * static_cast<double>((of_rows ? row : column).size() - 1);
    for (Id x : reachable(a, id)) work += is_read(a[x].op) ? kOfIndex * static_cast<double>(read_indices(a[x]).size()) : !a[x].free_axes().empty();
    (of_rows ? all.bytes_of_row : all.bytes_of_column) += std::max<int64_t>(4, static_cast<int64_t>(byte_size(a[id].type))) * kChunk;
    (of_rows ? all.work_of_row : all.work_of_column) += work * kChunk;
  }
  return all;
}

// Cycles of a large GPU for that many rectangles, each by a block of 8 warps on a multiprocessor that issues for 4 at once; of one block for
// one rectangle, too. work: of all of its threads, to stage a chunk. Only their ratios matter.
double GpuLowering::cycles_of(const Rectangle& r, int64_t results, int64_t terms, int64_t blocks, double work) {
  constexpr double kIssues = 4, kWarps = 8, kOfTerm = 4, kWaits = 1000, kLaunch = 5000, kBytes = 1500;
  const auto parts = static_cast<double>(r.split.parts), n = static_cast<double>(blocks);
  const double chunks = static_cast<double>(terms) / parts / kChunk;
  const auto reads = static_cast<double>(ceil_div(r.rows, kRowsAtOnce) + ceil_div(r.columns, kColumnsAtOnce));
  const auto moved = static_cast<double>(ceil_div(r.rows, 2) + ceil_div(r.columns, 2));  // pairs: shared memory serves one warp at a time
  const double multiplied = static_cast<double>(r.rows * r.columns) * static_cast<double>(results) + reads + kOfTerm;
  const double issued = kChunk * std::max(multiplied, kIssues * moved) + work / static_cast<double>(r.down * r.across);
  const double at_once = std::max(1.0, std::ceil(n * parts / static_cast<double>(kMultiprocessors)));
  // A multiprocessor issues for all blocks that it runs; one alone waits for its loads.
  const double chunk = std::max(kWarps / kIssues * issued * at_once, kWaits + kWarps / kIssues * issued);
  const double added_up =
      r.split.some() ? kLaunch + n * r.height() * r.width() * static_cast<double>(results) * 8 * parts / kBytes : 0;
  return chunks * chunk + added_up;
}

// The points that are rectangles: along the first axis of each side.
Points GpuLowering::rectangles(const Rectangle& r, Points points) {
  auto along = [&](const Side& side, int size) {
    const Count all = points.along(side).over(size);
    for (size_t i = 0; i < points.axes.size(); ++i)
      if (std::ranges::find(side, points.axes[i]) != side.end()) points.counts[i] = points.axes[i] == side.front() ? all : 1;
  };
  along(r.row, r.height());
  along(r.column, r.width());
  return points;
}

}  // namespace xhat::runtime

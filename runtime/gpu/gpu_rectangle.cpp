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

// Axes of the sums' results of which some reads depend on one only: row and column; the one before the last as rows, if it can be.
std::optional<std::pair<Id, Id>> GpuLowering::reuse(const std::vector<std::vector<size_t>>& groups, const Points& points,
                                                    int64_t least_rows) const {
  const Arena& a = *spec_.arena;
  const SpecMember& f = spec_.members[groups[0][0]];
  const auto reads = sums_and_maps(groups);
  if (!reads) return std::nullopt;
  auto depends = [&](Id id, Id x) { return std::ranges::binary_search(a[id].free_axes(), x); };
  auto shares = [&](Id row, Id column) {
    return std::ranges::any_of(*reads, [&](Id id) { return depends(id, column) && !depends(id, row); });
  };
  for (size_t c = f.left.size(); c-- > 0;)
    for (size_t r = f.left.size(); r-- > 0;)
      if (r != c && points.counts[r].like() >= least_rows && points.counts[c].like() >= kSide && shares(f.left[r], f.left[c]) &&
          shares(f.left[c], f.left[r]))
        return std::pair{f.left[r], f.left[c]};
  return std::nullopt;
}

std::optional<GpuLowering::Rectangle> GpuLowering::rectangle(const std::vector<std::vector<size_t>>& groups, const Points& points,
                                                             bool in_tile, int threads, const Span& span) const {
  const int64_t least_rows = in_tile ? kMinRows : kSide;
  auto axes = reuse(groups, points, least_rows);
  if (!axes || threads < kSide * kSide) return std::nullopt;
  int64_t terms = 0, results = 0;
  auto is_sum = [&](const std::vector<size_t>& group) { return spec_.members[group[0]].op != Op::constant; };
  for (const auto& group : groups) {
    const SpecMember& m = spec_.members[group[0]];
    if (!is_sum(group)) continue;
    terms = std::max(terms, span(m.reduced).total().like());
    results += static_cast<int64_t>(group.size());
  }
  if (terms < kMinTerms || results == 0) return std::nullopt;
  auto count = [&](Id x) { return points.counts[static_cast<size_t>(std::ranges::find(points.axes, x) - points.axes.begin())].like(); };
  auto most = [&](Id x, int side) {
    return static_cast<int>(std::min<uint64_t>(kMaxPerSide, std::bit_ceil(static_cast<uint64_t>(ceil_div(count(x), side)))));
  };
  std::vector<std::pair<int64_t, int64_t>> staged;  // of each group, one after the other in the same memory
  for (const auto& group : groups)
    if (is_sum(group)) staged.push_back(staged_bytes(group, axes->first, axes->second, span(spec_.members[group[0]].reduced)));
  auto fits = [&](const Rectangle& r) {
    if (r.rows * r.columns > 1 && r.rows * r.columns * results > kAccumulators) return false;
    return std::ranges::all_of(staged, [&](const auto& bytes) {
      return scratch_ + bytes.first * r.size_of(r.row) + bytes.second * r.size_of(r.column) <= kSharedOfBlock;
    });
  };
  const bool alone = !in_tile && std::ranges::count_if(groups, is_sum) == 1;  // else nothing is split
  std::optional<Rectangle> best;
  double least = 0;
  auto consider = [&](const Rectangle& r) {
    const int64_t blocks = rectangles(r, points).total().like();
    const double cycles = in_tile ? static_cast<double>(blocks) * cycles_of(r, results, terms, 1) : cycles_of(r, results, terms, blocks);
    if (best && cycles >= least) return;
    best = r;
    least = cycles;
  };
  Rectangle r;
  r.row = axes->first;
  r.column = axes->second;
  for (r.down = static_cast<int>(std::min<uint64_t>(kSide, std::bit_floor(static_cast<uint64_t>(count(r.row))))); r.down >= kMinRows;
       r.down /= 2) {
    r.across = threads / r.down;
    if (r.across > 2 * count(r.column)) break;
    for (r.rows = most(r.row, r.down); r.rows > 0; r.rows /= 2)
      for (r.columns = most(r.column, r.across); r.columns > 0; r.columns /= 2) {
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
  return best;
}

// Of shared memory for a chunk of the group's terms: for each row, and for each column.
std::pair<int64_t, int64_t> GpuLowering::staged_bytes(const std::vector<size_t>& group, Id row, Id column, const Points& terms) const {
  const Arena& a = *spec_.arena;
  std::pair<int64_t, int64_t> bytes = {0, 0};
  const Id term = staged_axis(group, row, column, terms);
  if (term == kNone) return bytes;
  for (Id id : staged_operands(group, row, column, term)) {
    int64_t& side = std::ranges::binary_search(a[id].free_axes(), row) ? bytes.first : bytes.second;
    side += std::max<int64_t>(4, static_cast<int64_t>(byte_size(a[id].type))) * (kChunk + 1);
  }
  return bytes;
}

// Cycles of a large GPU for that many rectangles, each by a block of 8 warps on a multiprocessor that issues for 4 at once; of one block for
// one rectangle, too. Only their ratios matter.
double GpuLowering::cycles_of(const Rectangle& r, int64_t results, int64_t terms, int64_t blocks) {
  constexpr double kIssues = 4, kWarps = 8, kOfTerm = 4, kWaits = 700, kLaunch = 5000, kBytes = 1500;
  const auto parts = static_cast<double>(r.split.parts), n = static_cast<double>(blocks);
  const double chunks = static_cast<double>(terms) / parts / kChunk;
  const double issued = kChunk * (static_cast<double>(r.rows * r.columns) * static_cast<double>(results) + r.rows + r.columns + kOfTerm);
  const double at_once = std::max(1.0, std::ceil(n * parts / static_cast<double>(kMultiprocessors)));
  // A multiprocessor issues for all blocks that it runs; one alone waits for its loads.
  const double chunk = std::max(kWarps / kIssues * issued * at_once, kWaits + kWarps / kIssues * issued);
  const double added_up =
      r.split.some() ? kLaunch + n * r.size_of(r.row) * r.size_of(r.column) * static_cast<double>(results) * 8 * parts / kBytes : 0;
  return chunks * chunk + added_up;
}

// The points that are rectangles.
Points GpuLowering::rectangles(const Rectangle& r, Points points) {
  for (size_t i = 0; i < points.axes.size(); ++i)
    if (points.axes[i] == r.row || points.axes[i] == r.column) points.counts[i] = points.counts[i].over(r.size_of(points.axes[i]));
  return points;
}

}  // namespace xhat::runtime

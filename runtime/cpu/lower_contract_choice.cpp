// Which sums are computed in blocks of rows and columns (lower_contract.cpp), and which rows, columns and blocks these are.
#include <algorithm>
#include <cmath>
#include <limits>

#include "expr/core/conditions.h"
#include "runtime/cpu/lowering.h"

namespace xhat::runtime {
namespace {

constexpr int64_t kMinContractRows = 3;   // of y, for anything to be gained: the colours of an image
constexpr int64_t kMinContractTerms = 8;  // of the sum

int64_t blocks_in(int64_t extent, int64_t size) { return (extent + size - 1) / size; }

}  // namespace

// Zen 4 takes 512 bits in two passes: vectors of half the length cost nothing but instructions, and fit more rows.
bool Lowering::halves_cost_half() const { return target_.processor_tune == Halide::Target::Processor::ZnVer4; }

// Vectors and rows of a block that fit the registers and leave least over. Weights: four vectors were a tenth slower in
// kernels written by hand; that one is slower still is an estimate.
void Lowering::choose_block(Contraction& c, DType type) const {
  bool wide_file = target_.has_feature(Halide::Target::AVX512) || target_.has_feature(Halide::Target::AVX512_Skylake) ||
                   target_.has_feature(Halide::Target::AVX512_Cannonlake);
  int registers = wide_file ? 32 : 16;
  int64_t columns = axis(c.v).extent, rows = axis(c.y).in_tile();
  constexpr std::pair<int, double> kVectors[] = {{3, 1.0}, {2, 1.0}, {4, 0.9}, {1, 0.7}};
  auto rows_beside = [&](int vectors) { return (registers - 1 - vectors) / (vectors * phases(c)); };
  const int wanted = spec_.vectors;  // if a block can have them
  const bool chosen = wanted > 0 && wanted <= 4 && int64_t{4} * wanted <= columns && rows_beside(wanted) > 0;
  double best = 0;
  auto consider = [&](int width, int vectors, double speed) {
    if (int64_t{vectors} * width > columns || (chosen && vectors != wanted)) return;
    int64_t most = rows_beside(vectors);
    if (most < 1) return;
    int64_t size = std::min(most, blocks_in(rows, blocks_in(rows, most)));
    double used = static_cast<double>(columns) / static_cast<double>(blocks_in(columns, vectors * width) * vectors * width) *
                  static_cast<double>(rows) / static_cast<double>(blocks_in(rows, size) * size) *
                  std::min(1.0, static_cast<double>(size * vectors * phases(c)) / 10) * speed;
    if (used <= best) return;
    best = used;
    c.width = width;
    c.vectors = vectors;
    c.rows = static_cast<int>(size);
  };
  for (int width = natural(type); width >= 4 && best == 0; width /= 2)
    for (auto [vectors, speed] : kVectors) consider(width, vectors, speed);
  constexpr std::pair<int, double> kHalves[] = {{5, 0.95}, {6, 0.95}, {7, 0.95}};
  if (wide_file && halves_cost_half())
    for (auto [vectors, speed] : kHalves) consider(natural(type) / 2, vectors, speed);
}

// The remainder of an axis of which v is the quotient.
Id Lowering::phase_of(const SpecMember& m, Id v) const {
  constexpr int64_t kMaxPhases = 4;
  const Id phase = spec_.remainder_of(m, v);
  return phase != kNone && constant(phase) && axis(phase).extent <= kMaxPhases ? phase : kNone;
}

std::optional<Lowering::Contraction> Lowering::contraction(const SpecMember& m) const {
  const Arena& a = *spec_.arena;
  if (!vectors_ || m.op == Op::constant || m.op == Op::argmax || m.op == Op::argmin || !m.scatter.empty()) return {};
  if (m.reduced.empty() || !is_float(accumulated(m))) return {};
  if (spec_.terms(m) < kMinContractTerms || in_segments(m, m.left) || in_segments(m, m.reduced)) return {};
  std::vector<Id> reads;
  for (Id id : reachable(a, std::vector<Id>{m.body, m.condition}))
    if (is_read(a[id].op) && !a[id].free_axes().empty()) reads.push_back(id);
  auto depends = [&](Id x) { return std::ranges::any_of(reads, [&](Id r) { return a[r].depends_on(x); }); };
  // Rows that are only compared with places share few terms: each is asked for by itself (ask_before_row).
  std::vector<Id> shared = {m.body};
  for (Id part : conjuncts(*spec_.arena, m.condition))
    if (!compares_place_with_data(a, part)) shared.push_back(part);
  shared = reachable(a, shared);
  auto shares = [&](Id x) {
    return std::ranges::any_of(reads, [&](Id r) { return a[r].depends_on(x) && std::ranges::binary_search(shared, r); });
  };
  auto separate = [&](Id x, Id y) { return std::ranges::none_of(reads, [&](Id r) { return a[r].depends_on(x) && a[r].depends_on(y); }); };
  std::optional<Contraction> best;
  double least = price_along_terms(m);
  for (size_t i = m.left.size(); i-- > 0;) {
    const Id v = m.left[i];
    if (!constant(v) || axis(v).extent < 8 || !depends(v)) continue;
    for (Id y : m.left) {
      if (y == v || axis(y).kind() == AxisKind::point || axis(y).extent < kMinContractRows || !shares(y) || !separate(v, y)) continue;
      Contraction c{v, y, phase_of(m, v)};
      choose_block(c, widest(m));
      if (c.width == 0) continue;
      const double price = price_of(m, c);
      // Of equals, the last columns: their results are next to each other. And the last of equally many rows: those of a block share lines.
      const bool longer = best && v == best->v && price == least && axis(y).in_tile() >= axis(best->y).in_tile();
      if (price < least || longer) {
        best = c;
        least = price;
      }
    }
  }
  return best;
}

double Lowering::load_price(int64_t bytes) {
  constexpr int64_t kL1 = 32 << 10, kL2 = 512 << 10;
  return bytes <= kL1 ? 1 : bytes <= kL2 ? 2 : 6;
}

// Measured on Zen 4, where one vector of 16 is loaded from L1 in the time of one multiplication, or one number that fills a vector.
double Lowering::price_of(const SpecMember& m, const Contraction& c) const {
  constexpr double kCopied = 2, kTurned = 6, kUnaligned = 1.5;  // vectors
  const Arena& a = *spec_.arena;
  constexpr double kGathered = 0.4, kNumber = 0.9, kStored = 2, kBroughtTogether = 1, kScalar = 3, kBlocked = 1.25;  // numbers
  const double lanes = natural(widest(m)), rows = c.rows * phases(c);
  const auto filled = [](int64_t extent, int64_t block) {
    return static_cast<double>(extent) / static_cast<double>(blocks_in(extent, block) * block);
  };
  const bool halves = halves_cost_half() && 2 * c.width == natural(widest(m));
  const double width = halves ? lanes : c.width;
  const double used = filled(axis(c.v).extent, int64_t{c.width} * c.vectors) * filled(axis(c.y).in_tile(), c.rows) * width / lanes;
  auto beside_each_other = [&](Id part, Id along) {
    return std::ranges::all_of(reachable(a, part), [&](Id id) {
      return !is_read(a[id].op) || !a[id].depends_on(along) || step_along(*spec_.arena, read_indices(a[id]).back(), along) == 1;
    });
  };
  double loads = 0, copies = 0;
  for (Id part : parts_along(m, c.v, c.y)) {
    const bool turned = turned_panel(m, part, c.v).along != kNone, gathered = !turned && !beside_each_other(part, c.v);
    if (worth_packing_columns(m, c, part)) {
      copies += (turned ? kTurned : gathered ? kGathered * lanes : kCopied) / static_cast<double>(readers_of(m, part));
      loads += load_price(spec_.terms(m) * c.width * c.vectors * static_cast<int64_t>(byte_size(a[part].type))) / rows;
    } else {
      loads += (is_window(m, c, part) ? kUnaligned : turned || gathered ? lanes : 1) / rows;
    }
  }
  for (Id part : parts_along(m, c.y, c.v)) {
    loads += kNumber * (halves ? 2 : 1) / c.vectors;
    if (worth_packing_rows(c, part, spec_.terms(m))) {
      copies += kBlocked * lanes / static_cast<double>(readers_of(m, part));
      continue;
    }
    if (is_read(a[part].op)) continue;
    // It is computed before, in vectors if the sum's last axis has them.
    const Id last = m.reduced.back();
    const double loaded = (beside_each_other(part, last) ? kCopied : kGathered * lanes) + load_price(bytes_in_tile(part));
    const double vector = axis(last).in_tile() >= natural(widest(m)) ? loaded : kScalar * lanes;
    copies += vector / static_cast<double>(readers_of(m, part));
  }
  // Results along the columns are stored one by one where others lie between them; those of all phases of a block are brought together.
  const bool apart = c.v != m.left.back(), in_phases = c.phase != kNone && c.phase == m.left.back();
  const double stores = apart ? (in_phases ? kBroughtTogether : kStored) * lanes / static_cast<double>(spec_.terms(m)) : 0;
  return std::max(1.0, loads) / used + copies + stores;
}

double Lowering::price_along_terms(const SpecMember& m) const {
  constexpr double kFold = 8, kTail = 25;  // vectors, by sum
  const std::vector<size_t> alone = {static_cast<size_t>(&m - spec_.members.data())};
  const Id v = vector_axis(alone);
  const double none = std::numeric_limits<double>::infinity();
  if (v == kNone || std::ranges::find(m.reduced, v) == m.reduced.end() || one_in_row(v)) return none;
  if (constant(v) && axis(v).extent < shortest_row(m)) return none;
  const double lanes = width_of_sum(m, v), shorter = natural(widest(m)) / lanes;  // vectors than the longest
  const double all = static_cast<double>(spec_.terms(m)) / lanes;
  const double along = static_cast<double>(axis(v).in_tile()) / lanes, used = constant(v) ? along / std::ceil(along) : 1;
  const double halves = shorter > 1 && halves_cost_half() ? 2 : 1;
  return (std::max(1.0, sums_in_registers(alone, v).loads) / used + kFold / all + (constant(v) ? 0 : kTail / along)) * shorter / halves;
}

}  // namespace xhat::runtime

#include "fusion/library/library_operands.h"

#include <algorithm>
#include <set>

namespace xhat::fusion {
namespace {

constexpr size_t kMaxFactors = 5;  // of a sum's body; every way to split them in two is tried
constexpr int64_t kMaxCalls = 64;  // calls for one product: one call does one axis of a batch

class Finder {
 public:
  Finder(LibraryCandidates& found, const DimValues& sizes) : p_(found.program), a_(*p_.arena), found_(found), sizes_(sizes) {}

  void look_at(size_t definition) {
    const Definition d = p_.forward.definitions[definition];
    if (d.is_call() || a_[d.body].op != Op::sum) return;
    if (auto call = library_call(p_, d, sizes_); call && worth_a_call(*call)) {
      found_.all.push_back({definition, *call, d.body, {}});
      return;
    }
    const Node root = a_[d.body];
    const Factors f = factors_of(a_, reduce_body(root));
    if (f.factors.size() < 2 || f.factors.size() > kMaxFactors) return;
    // Every split is tried and undone; then the one with the smallest operands is made.
    std::optional<size_t> best;
    int64_t least = 0;
    const size_t tensors = p_.tensors.size();
    const auto made = made_;
    for (size_t set = 0; set + 1 < size_t{1} << (f.factors.size() - 1); ++set) {
      auto c = candidate(definition, f, set);
      int64_t bytes = 0;
      if (c)
        for (const Definition& o : c->operands) bytes += elements(o.target());
      p_.tensors.resize(tensors);
      made_ = made;
      if (!c || (best && bytes >= least)) continue;
      best = set;
      least = bytes;
    }
    if (best) found_.all.push_back(*candidate(definition, f, *best));
  }

 private:
  Program& p_;
  Arena& a_;
  LibraryCandidates& found_;
  const DimValues& sizes_;
  std::map<std::pair<Id, std::vector<int64_t>>, Definition> made_;  // operands made so far, by body and shape

  // The first factor belongs to one operand; the bits of `set` say which of the others belong to it too.
  std::optional<LibraryCandidate> candidate(size_t definition, const Factors& f, size_t set) {
    Definition d = p_.forward.definitions[definition];
    const Node root = a_[d.body];
    std::array<Id, 2> sides = {f.factors[0], kNone};
    for (size_t i = 1; i < f.factors.size(); ++i) {
      Id& side = sides[set >> (i - 1) & 1 ? 0 : 1];
      side = side == kNone ? f.factors[i] : a_.mul(side, f.factors[i]);
    }
    LibraryCandidate c{definition, {}, kNone, {}};
    for (Id& side : sides)
      if (!make_read(side, c)) return std::nullopt;
    const Id product = a_.mul(sides[0], sides[1]);
    const Id body = f.alpha == 1 ? product : a_.mul(a_.constant(a_[product].type, f.alpha), product);
    d.body = c.body = a_.reduce(Op::sum, reduce_axes(root), reduce_condition(root), body);
    auto call = library_call(p_, d, sizes_);
    if (!call || !worth_a_call(*call)) return std::nullopt;
    c.call = *call;
    return c;
  }

  int64_t elements(TensorId t) const {
    int64_t n = 1;
    for (int64_t e : shape_of(p_, t, sizes_)) n *= e;
    return n;
  }

  static bool worth_a_call(const LibraryCall& call) {
    const auto* m = std::get_if<MatrixProduct>(&call);
    if (!m) return true;
    int64_t calls = 1;
    for (size_t i = 0; i + 1 < m->batch.size(); ++i) calls *= m->batch[i];
    return m->rows > 1 && m->columns > 1 && calls <= kMaxCalls;
  }

  // A factor that is no read becomes a read of a new tensor, over the indices that all its reads share.
  bool make_read(Id& side, LibraryCandidate& c) {
    Id inner = side;
    if (a_[inner].op == Op::cast) inner = a_[inner].arg(0);
    if (is_read(a_[inner].op)) return true;
    struct Index {
      Id index, extent;
    };
    std::vector<Index> indices;
    std::vector<Id> reads;
    for (Id id : reachable(a_, side)) {
      if (a_[id].op == Op::read_or || is_reduction(a_[id].op)) return false;
      if (a_[id].op == Op::read) reads.push_back(id);
    }
    // The new tensor has the order of dimensions of the largest tensor read.
    std::ranges::stable_sort(reads, std::greater<>(), [&](Id r) { return elements(a_[r].symbol); });
    std::set<Id> axes;
    for (Id r : reads) {
      const Node& n = a_[r];
      auto at = read_indices(n);
      for (size_t i = 0; i < at.size(); ++i) {
        if (a_[at[i]].axes_count == 0) continue;
        for (Id x : reachable(a_, at[i]))
          if (is_read(a_[x].op)) return false;
        const Id extent = p_.tensors[n.symbol].shape[i];
        auto known = std::ranges::find(indices, at[i], &Index::index);
        if (known != indices.end()) {
          if (evaluate_extent(a_, known->extent, sizes_) != evaluate_extent(a_, extent, sizes_)) return false;
          continue;
        }
        for (Id x : a_[at[i]].free_axes())
          if (!axes.insert(x).second) return false;  // one axis in two indices
        indices.push_back({at[i], extent});
      }
    }
    if (indices.empty()) return false;
    Replacements by_axes;
    Definition d;
    std::vector<Id> shape, places;
    std::vector<int64_t> numbers;
    for (size_t i = 0; i < indices.size(); ++i) {
      const Id axis = a_.axis("u" + std::to_string(i));
      by_axes[indices[i].index] = axis;
      d.axes.push_back({axis, a_.integer(0), indices[i].extent});
      shape.push_back(indices[i].extent);
      numbers.push_back(evaluate_extent(a_, indices[i].extent, sizes_));
      places.push_back(indices[i].index);
    }
    d.body = substitute(a_, side, by_axes);
    for (Id x : a_[d.body].free_axes())
      if (std::ranges::find(d.axes, x, &AxisRange::axis) == d.axes.end()) return false;
    auto [it, fresh] = made_.try_emplace({d.body, numbers}, d);
    if (fresh) it->second.targets = {p_.add_tensor("operand", a_[d.body].type, shape)};
    const TensorId t = it->second.target();
    c.operands.push_back(it->second);
    side = a_.read(t, p_.tensors[t].type, places);
    return true;
  }
};

}  // namespace

LibraryCandidates library_candidates(const Program& p, const DimValues& sizes) {
  LibraryCandidates found{p, {}};
  Finder finder(found, sizes);
  for (size_t i = 0; i < p.forward.definitions.size(); ++i) finder.look_at(i);
  return found;
}

Program with_operands(const LibraryCandidates& candidates, const std::vector<bool>& chosen) {
  Program p = candidates.program;
  p.forward.definitions.clear();
  std::set<TensorId> made;
  for (size_t i = 0; i < candidates.program.forward.definitions.size(); ++i) {
    Definition d = candidates.program.forward.definitions[i];
    for (size_t c = 0; c < candidates.all.size(); ++c) {
      const LibraryCandidate& candidate = candidates.all[c];
      if (!chosen[c] || candidate.definition != i) continue;
      for (const Definition& o : candidate.operands)
        if (made.insert(o.target()).second) p.forward.definitions.push_back(o);
      d.body = candidate.body;
    }
    p.forward.definitions.push_back(std::move(d));
  }
  return p;
}

}  // namespace xhat::fusion

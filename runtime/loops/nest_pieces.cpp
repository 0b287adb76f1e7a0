#include "runtime/loops/nest_pieces.h"

#include <algorithm>
#include <set>

#include "expr/index/loop_bounds.h"
#include "expr/rules/simplify.h"

namespace xhat::runtime {
namespace {

constexpr int64_t kLeastExtent = 8;  // of an axis that is worth code of its own

struct Range {
  int64_t begin, end;
};

class Pieces {
 public:
  Pieces(KernelSpec& spec, const SpecMember& m) : spec_(spec), a_(*spec.arena), m_(m) {}

  std::vector<Piece> run() {
    std::vector<Range> rest;
    for (Id x : m_.left) rest.push_back({0, spec_.axes.at(x).extent});
    std::vector<Range> main;
    bool any = false;
    for (size_t k = 0; k < m_.left.size(); ++k) {
      main.push_back(m_.scatter.empty() ? longest(m_.left[k], rest[k]) : rest[k]);
      any |= main[k].end - main[k].begin < rest[k].end;
    }
    if (!any) return {{m_, std::vector<int64_t>(m_.left.size())}};
    std::vector<Piece> made;
    for (size_t k = 0; k < main.size(); ++k) {
      for (Range edge : {Range{rest[k].begin, main[k].begin}, Range{main[k].end, rest[k].end}}) {
        if (edge.begin >= edge.end) continue;
        std::vector<Range> slab = rest;
        slab[k] = edge;
        made.push_back(piece(slab));
      }
      rest[k] = main[k];
    }
    made.push_back(piece(rest));
    return made;
  }

 private:
  KernelSpec& spec_;
  Arena& a_;
  const SpecMember& m_;

  // The longest part of the axis in which no condition on it alone changes, if it is most of the axis.
  Range longest(Id axis, Range all) {
    if (all.end < kLeastExtent) return all;
    std::set<int64_t> places = {all.begin, all.end};
    auto bound = [&](Id condition) {
      LoopBounds found;
      if (a_[condition].axes_count != 1 || !is_free_in(a_, axis, condition) || !bound_by(a_, condition, axis, &found)) return;
      for (const auto* list : {&found.begins, &found.ends})
        for (Id b : *list)
          if (const Node n = a_[simplify(a_, b)]; n.op == Op::constant && n.integer > all.begin && n.integer < all.end)
            places.insert(n.integer);
    };
    for (Id id : nodes()) {
      const Node n = a_[id];
      if (n.op == Op::lt || n.op == Op::le || n.op == Op::eq) bound(id);
      if (!is_read(n.op)) continue;
      for (size_t d = 0; d < read_indices(n).size(); ++d) {
        const Id index = n.arg(d);
        const int64_t extent = spec_.tensors[n.symbol].shape[d];
        if (a_[index].type != DType::i64 || !is_free_in(a_, axis, index)) continue;
        if (const auto [low, high] = spec_.interval(index); low >= 0 && high < extent) continue;
        bound(a_.binary(Op::le, a_.integer(0), index));
        bound(a_.binary(Op::lt, index, a_.integer(extent)));
      }
    }
    Range best = {0, 0};
    for (auto it = places.begin(); std::next(it) != places.end(); ++it)
      if (*std::next(it) - *it > best.end - best.begin) best = {*it, *std::next(it)};
    return 2 * (best.end - best.begin) > all.end ? best : all;
  }

  std::vector<Id> nodes() const {
    std::set<Id> found;
    for (Id root : {m_.body, m_.condition})
      for (Id id : reachable(a_, root)) found.insert(id);
    return {found.begin(), found.end()};
  }

  Piece piece(const std::vector<Range>& ranges) {
    Piece made{m_, {}};
    Replacements to;
    for (size_t k = 0; k < ranges.size(); ++k) {
      const Id x = m_.left[k];
      const Id own = a_.axis(a_.name(x) + "_" + std::to_string(ranges[k].begin) + "_" + std::to_string(ranges[k].end));
      SpecAxis axis = spec_.axes.at(x);
      axis.extent = axis.tile = ranges[k].end - ranges[k].begin;
      spec_.axes[own] = axis;
      made.member.left[k] = own;
      made.first.push_back(ranges[k].begin);
      to[x] = ranges[k].begin == 0 ? own : a_.add(own, a_.integer(ranges[k].begin));
    }
    made.member.body = decided(substitute(a_, m_.body, to));
    made.member.condition = decided(substitute(a_, m_.condition, to));
    return made;
  }

  // With the comparisons that ranges of axes decide.
  Id decided(Id root) {
    return simplify(a_, rewrite(a_, with_collected_indices(a_, root), [&](Id id) {
                      const Node n = a_[id];
                      if ((n.op != Op::lt && n.op != Op::le && n.op != Op::eq) || a_[n.arg(0)].type != DType::i64) return id;
                      const auto [low, high] = spec_.interval(n.arg(0));
                      const auto [from, to] = spec_.interval(n.arg(1));
                      if (low == -KernelSpec::kFar || high == KernelSpec::kFar || from == -KernelSpec::kFar || to == KernelSpec::kFar)
                        return id;
                      if (n.op == Op::lt && high < from) return a_.boolean(true);
                      if (n.op == Op::lt && low >= to) return a_.boolean(false);
                      if (n.op == Op::le && high <= from) return a_.boolean(true);
                      if (n.op == Op::le && low > to) return a_.boolean(false);
                      if (n.op == Op::eq && (high < from || low > to)) return a_.boolean(false);
                      return id;
                    }));
  }
};

}  // namespace

std::vector<Piece> pieces_of(KernelSpec& spec, const SpecMember& m) { return Pieces(spec, m).run(); }

}  // namespace xhat::runtime

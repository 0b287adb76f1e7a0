#include "runtime/loops/nest_pieces.h"

#include <algorithm>
#include <optional>
#include <set>

#include "expr/core/conditions.h"
#include "expr/index/loop_bounds.h"
#include "expr/rules/simplify.h"
#include "runtime/loops/nest_vectors.h"

namespace xhat::runtime {
namespace {

constexpr int64_t kLeastExtent = 8;  // of an axis along which vectors run that is worth code of its own
constexpr size_t kMostPieces = 16;   // of one definition, whose code they multiply

struct Range {
  int64_t begin, end;
};
int64_t length(const Range& r) { return r.end - r.begin; }

class Pieces {
 public:
  Pieces(KernelSpec& spec, const SpecMember& m) : spec_(spec), a_(*spec.arena), m_(m) {}

  std::vector<Piece> run() {
    std::vector<Range> all;
    for (Id x : m_.left) all.push_back({0, spec_.axes.at(x).extent});
    if (m_.scatter.empty()) {
      const Id vectors = vector_axis(spec_, m_);
      size_t pieces = 1;
      for (size_t k = 0; k < all.size(); ++k) {
        const std::set<int64_t> places = changes(m_.left[k], all[k]);
        std::vector<Range> between;
        for (auto it = places.begin(); std::next(it) != places.end(); ++it) between.push_back({*it, *std::next(it)});
        // Along a short axis no vector is full, so that a piece for each choice is better, and vectors along another axis.
        const bool along = m_.left[k] == vectors && all[k].end >= kLeastExtent;
        const bool edges = along || pieces * between.size() > kMostPieces;
        if (edges) between = longest(between);
        pieces *= edges ? 1 : between.size();
        parts_.push_back({between, edges});
      }
    }
    if (std::ranges::all_of(parts_, [](const Parts& p) { return p.between.size() <= 1; }))
      return {{m_, std::vector<int64_t>(m_.left.size())}};
    std::vector<Piece> made;
    cut(all, 0, made);
    return made;
  }

 private:
  KernelSpec& spec_;
  Arena& a_;
  const SpecMember& m_;

  struct Parts {
    std::vector<Range> between;
    bool edges;  // one, and what is beside it, which is not cut along axes inside
  };
  std::vector<Parts> parts_ = {};  // by left axis

  void cut(std::vector<Range>& ranges, size_t k, std::vector<Piece>& made) {
    if (k == ranges.size()) return made.push_back(piece(ranges));
    const auto& [between, edges] = parts_[k];
    const Range all = ranges[k];
    const int64_t most = std::ranges::max(between, {}, length).begin;
    for (const Range& part : between) {
      ranges[k] = part;
      cut(ranges, edges && part.begin != most ? ranges.size() : k + 1, made);
    }
    ranges[k] = all;
  }

  // The longest of the parts and what is on either side of it, if it is most of the axis; else the whole axis.
  static std::vector<Range> longest(const std::vector<Range>& parts) {
    if (parts.empty()) return parts;
    const Range all = {parts.front().begin, parts.back().end};
    const Range best = std::ranges::max(parts, {}, length);
    if (all.end < kLeastExtent || 2 * length(best) <= all.end) return {all};
    std::vector<Range> made = {{all.begin, best.begin}, best, {best.end, all.end}};
    std::erase_if(made, [](const Range& r) { return r.begin == r.end; });
    return made;
  }

  // Where conditions on the axis alone change, with both ends.
  std::set<int64_t> changes(Id axis, Range all) {
    std::set<int64_t> places = {all.begin, all.end};
    auto bound = [&](Id condition) {
      LoopBounds found;
      if (a_[condition].axes_count != 1 || !a_[condition].depends_on(axis) || !bound_by(a_, condition, axis, &found)) return;
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
        if (a_[index].type != DType::i64 || !a_[index].depends_on(axis)) continue;
        if (const auto [low, high] = spec_.interval(index); low >= 0 && high < extent) continue;
        bound(a_.binary(Op::le, a_.integer(0), index));
        bound(a_.binary(Op::lt, index, a_.integer(extent)));
      }
    }
    return places;
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

constexpr int64_t kFewPlaces = 16;  // vectors over fewer take no longer than a term by itself
constexpr size_t kMostTerms = 32;   // that code is made for

// A body as a sum of terms, each with the conditions under which it is there.
class Terms {
 public:
  struct Term {
    std::vector<Id> conditions;
    Id body;
  };

  explicit Terms(Arena& a) : a_(a) {}

  std::vector<Term> of(Id body, std::vector<Id> conditions) {
    all_.clear();
    collect(body, std::move(conditions), false);
    return std::move(all_);
  }

 private:
  Arena& a_;
  std::vector<Term> all_;

  void collect(Id body, std::vector<Id> conditions, bool negative) {
    const Node n = a_[body];
    if ((n.op == Op::constant && n.value == 0) || all_.size() > kMostTerms) return;
    if (n.op == Op::add || n.op == Op::sub) {
      collect(n.arg(0), conditions, negative);
      collect(n.arg(1), std::move(conditions), n.op == Op::sub ? !negative : negative);
    } else if (n.op == Op::neg) {
      collect(n.arg(0), std::move(conditions), !negative);
    } else if (n.op == Op::select) {
      std::vector<Id> otherwise = conditions;
      otherwise.push_back(negation(a_, n.arg(0)));
      for (Id c : conjuncts_of(a_, n.arg(0))) conditions.push_back(c);
      collect(n.arg(1), std::move(conditions), negative);
      collect(n.arg(2), std::move(otherwise), negative);
    } else {
      all_.push_back({std::move(conditions), negative ? a_.unary(Op::neg, body) : body});
    }
  }
};

}  // namespace

Id condition_of(Arena& a, const std::vector<Id>& conjuncts) {
  Id all = a.boolean(true);
  for (Id c : conjuncts) all = is_true(a, all) ? c : a.land(all, c);
  return all;
}

bool is_own_element(const KernelSpec& spec, const SpecMember& piece, const std::vector<int64_t>& first, const Node& read) {
  Arena& a = *spec.arena;
  const auto at = read_indices(read);
  if (at.size() != piece.left.size()) return false;
  for (size_t k = 0; k < at.size(); ++k) {
    const Id x = piece.left[k];
    const bool one = spec.axes.at(x).extent == 1 && a[at[k]].op == Op::constant;
    if (at[k] != (one ? a.integer(first[k]) : first[k] == 0 ? x : a.add(x, a.integer(first[k])))) return false;
  }
  return true;
}

bool is_one_place(Arena& a, const SpecMember& m, Id axis) {
  return std::ranges::any_of(conjuncts_of(a, m.condition), [&](Id c) { return place_by(a, c, axis) != kNone; });
}

// Of what is added to a tensor, term by term: those that are for one place along an axis (`if i == place then …`) by themselves, and the sum
// of the others. Choices with nothing on the other side are conditions of the member. Not of reductions: {m}.
static std::vector<SpecMember> terms_of(const KernelSpec& spec, const SpecMember& m) {
  Arena& a = *spec.arena;
  if (!m.reduced.empty() || !m.scatter.empty()) return {m};
  auto with = [&](const std::vector<Id>& conditions, Id body) {
    SpecMember made = m;
    made.condition = condition_of(a, conditions);
    made.body = body;
    return made;
  };
  std::vector<SpecMember> made;
  SpecMember rest = m;
  std::vector<Id> conditions = conjuncts_of(a, m.condition);
  while (a[rest.body].op == Op::select && a[a[rest.body].arg(2)].op == Op::constant && a[a[rest.body].arg(2)].value == 0) {
    for (Id c : conjuncts_of(a, a[rest.body].arg(0))) conditions.push_back(c);
    rest.body = a[rest.body].arg(1);
  }
  rest.condition = condition_of(a, conditions);
  auto is_for_one = [&](const SpecMember& term) {
    return std::ranges::any_of(m.left, [&](Id x) { return spec.axes.at(x).extent >= kFewPlaces && is_one_place(a, term, x); });
  };
  if (is_for_one(rest)) return {rest};
  const std::vector<Terms::Term> terms = Terms(a).of(m.body, conjuncts_of(a, m.condition));
  if (terms.size() > kMostTerms) return {rest};
  Id others = kNone;
  for (const Terms::Term& t : terms) {
    if (SpecMember term = with(t.conditions, t.body); is_for_one(term)) {
      made.push_back(std::move(term));
      continue;
    }
    const Id body = t.conditions.empty() ? t.body : a.select(condition_of(a, t.conditions), t.body, a.constant(a[t.body].type, 0));
    others = others == kNone ? body : a.add(others, body);
  }
  if (made.empty()) return {rest};
  if (others != kNone) made.push_back(with({}, others));
  return made;
}

std::vector<Piece> pieces_of(KernelSpec& spec, const SpecMember& m, bool added) {
  std::vector<Piece> pieces = Pieces(spec, m).run();
  if (!added) return pieces;
  std::vector<Piece> terms;
  for (const Piece& p : pieces)
    for (SpecMember& term : terms_of(spec, p.member)) terms.push_back({std::move(term), p.first});
  return terms;
}

namespace {

class WhereTermsGo {
 public:
  WhereTermsGo(KernelSpec& spec, const std::function<bool(uint32_t)>& added) : spec_(spec), a_(*spec.arena), added_(added) {}

  void run() {
    for (size_t from = 0; from < spec_.members.size();) {
      const SpecMember sum = spec_.members[from];
      const std::optional<size_t> reader = only_reader(sum);
      std::vector<SpecMember> made;
      if (!reader || !through(sum, spec_.members[*reader], made)) {
        ++from;
        continue;
      }
      const auto at = spec_.members.begin() + static_cast<std::ptrdiff_t>(*reader);
      spec_.members.insert(spec_.members.erase(at), made.begin(), made.end());
      spec_.members.erase(spec_.members.begin() + static_cast<std::ptrdiff_t>(from));
      drop(sum.tensor);
    }
  }

 private:
  KernelSpec& spec_;
  Arena& a_;
  const std::function<bool(uint32_t)>& added_;

  bool reads(Id id, uint32_t tensor) const {
    return std::ranges::any_of(reachable(a_, id), [&](Id x) { return is_read(a_[x].op) && a_[x].symbol == tensor; });
  }

  // That adds to a tensor, at each of its points, what it finds there.
  std::optional<size_t> only_reader(const SpecMember& sum) const {
    const SpecTensor& t = spec_.tensors[sum.tensor];
    if (sum.scatter.empty() || sum.op != Op::sum || t.use != SpecTensor::Use::temporary) return {};
    std::optional<size_t> found;
    size_t writers = 0;
    for (size_t k = 0; k < spec_.members.size(); ++k) {
      const SpecMember& m = spec_.members[k];
      writers += m.tensor == sum.tensor;
      for (Id id : reads_of(a_, m)) {
        if (a_[id].symbol != sum.tensor) continue;
        if (found || !m.reduced.empty() || !m.scatter.empty() || !added_(m.tensor) || t.type != spec_.tensors[m.tensor].type) return {};
        found = k;
      }
    }
    return writers == 1 ? found : std::nullopt;
  }

  // The axis of the sum at each of the reader's, or an own one. None: it reads other elements, or there are more terms than places.
  std::vector<Id> axes_of(const SpecMember& sum, const SpecMember& reader) {
    std::vector<Id> at;
    for (Id id : reads_of(a_, reader))
      if (a_[id].symbol == sum.tensor) at.assign(read_indices(a_[id]).begin(), read_indices(a_[id]).end());
    std::vector<Id> made;
    size_t met = 0;
    int64_t terms = 1, places = 1;
    for (Id x : reader.left) {
      const auto d = std::ranges::find(at, x) - at.begin();
      const bool own = d == std::ssize(at);
      const int64_t extent = spec_.axes.at(x).extent;
      if (!own && (std::ranges::count(at, x) != 1 || spec_.axes.at(sum.left[d]).extent != extent)) return {};
      met += !own;
      Id axis = own ? x : sum.left[d];
      if (own && (std::ranges::count(sum.left, x) > 0 || std::ranges::count(sum.reduced, x) > 0)) {
        axis = a_.axis(a_.name(x) + "_beside");
        spec_.axes[axis] = spec_.axes.at(x);
      }
      made.push_back(axis);
      places *= extent;
      if (std::ranges::none_of(sum.scatter, [&](const auto& s) { return s.first == axis; })) terms *= extent;
    }
    for (Id x : sum.reduced) terms *= spec_.axes.at(x).extent;
    return met == at.size() && terms <= places ? made : std::vector<Id>();
  }

  // In place of the reader. False: it does more with the sum than to multiply it.
  bool through(const SpecMember& sum, const SpecMember& reader, std::vector<SpecMember>& made) {
    const std::vector<Id> axes = axes_of(sum, reader);
    if (axes.empty()) return false;
    Replacements to;
    std::vector<Id> found;
    for (size_t k = 0; k < reader.left.size(); ++k) {
      const auto at = std::ranges::find_if(sum.scatter, [&](const auto& s) { return s.first == axes[k]; });
      to[reader.left[k]] = at == sum.scatter.end() ? axes[k] : a_.to(DType::i64, at->second);
      if (at != sum.scatter.end()) found.push_back(reader.left[k]);
    }
    const std::vector<Terms::Term> terms = Terms(a_).of(reader.body, conjuncts_of(a_, reader.condition));
    if (terms.size() > kMostTerms) return false;
    Id others = kNone;
    for (const Terms::Term& t : terms) {
      const Id all = condition_of(a_, t.conditions);
      if (reads(all, sum.tensor)) return false;
      if (!reads(t.body, sum.tensor)) {
        const Id body = t.conditions.empty() ? t.body : a_.select(all, t.body, a_.constant(a_[t.body].type, 0));
        others = others == kNone ? body : a_.add(others, body);
        continue;
      }
      // It is asked before the place is known to be inside.
      const bool by_place = std::ranges::any_of(found, [&](Id x) { return a_[all].depends_on(x); });
      if (by_place && std::ranges::any_of(reachable(a_, all), [&](Id x) { return is_read(a_[x].op); })) return false;
      const Id body = multiplied(t.body, sum, to);
      if (body == kNone) return false;
      SpecMember term = sum;
      term.tensor = reader.tensor;
      term.left = axes;
      term.body = body;
      std::vector<Id> conditions = conjuncts_of(a_, sum.condition);
      for (Id c : t.conditions) conditions.push_back(substitute(a_, c, to));
      std::erase_if(conditions, [&](Id c) { return is_true(a_, c); });
      term.condition = condition_of(a_, conditions);
      made.push_back(std::move(term));
    }
    if (others == kNone) return true;
    SpecMember rest = reader;
    rest.body = others;
    rest.condition = a_.boolean(true);
    made.push_back(std::move(rest));
    return true;
  }

  // The product, with the term in place of the sum. kNone: it is none.
  Id multiplied(Id body, const SpecMember& sum, const Replacements& to) {
    const Node n = a_[body];
    if (is_read(n.op) && n.symbol == sum.tensor) return a_[sum.body].type == n.type ? sum.body : kNone;
    if (n.op == Op::neg) {
      const Id inside = multiplied(n.arg(0), sum, to);
      return inside == kNone ? kNone : a_.unary(Op::neg, inside);
    }
    if (n.op != Op::mul && n.op != Op::div) return kNone;
    const bool left = reads(n.arg(0), sum.tensor);
    if (left == reads(n.arg(1), sum.tensor) || (n.op == Op::div && !left)) return kNone;
    const Id inside = multiplied(n.arg(left ? 0 : 1), sum, to);
    if (inside == kNone) return kNone;
    const Id other = substitute(a_, n.arg(left ? 1 : 0), to);
    return left ? a_.binary(n.op, inside, other) : a_.binary(n.op, other, inside);
  }

  // Nobody reads or writes the tensor any more.
  void drop(uint32_t tensor) {
    spec_.tensors.erase(spec_.tensors.begin() + tensor);
    auto number = [&](uint32_t t) { return t > tensor ? t - 1 : t; };
    auto renumbered = [&](Id root) {
      return rewrite(a_, root, [&](Id x) {
        const Node n = a_[x];
        if (!is_read(n.op) || n.symbol < tensor) return x;
        const std::vector<Id> args(n.args().begin(), n.args().end());
        if (n.op == Op::read) return a_.read(number(n.symbol), n.type, args);
        return a_.read_or(number(n.symbol), n.type, std::span(args).first(args.size() - 1), args.back());
      });
    };
    for (SpecMember& m : spec_.members) {
      m.tensor = number(m.tensor);
      m.body = renumbered(m.body);
      m.condition = renumbered(m.condition);
      for (auto& [axis, index] : m.scatter) index = renumbered(index);
    }
    for (auto& [result, input] : spec_.over) result = number(result), input = number(input);
  }
};

}  // namespace

void add_where_terms_go(KernelSpec& spec, const std::function<bool(uint32_t)>& added) { WhereTermsGo(spec, added).run(); }

}  // namespace xhat::runtime

#include "cse/algebra/turned_reads.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ad/common/guards.h"
#include "cse/match/bodies.h"
#include "cse/match/tensor_expr_tree.h"

namespace xhat {
namespace {

constexpr int kDeepest = 8;  // definitions that read definitions

// Two dimensions of a tensor, the first one first.
struct Exchange {
  TensorId tensor;
  size_t first, second;
  auto operator<=>(const Exchange&) const = default;
};

// What is read instead, whether with the sign changed, and the price of computing it.
struct Turned {
  TensorId tensor;
  bool negative;
  int64_t again_ps;
};

class Turner {
 public:
  Turner(const Program& p, const TurnPrices& prices) : p_(p), a_(*p_.arena), prices_(prices), deciding_(feeds_control(p)) {}

  std::optional<Program> run() {
    if (std::ranges::none_of(p_.backward.definitions, [&](const Definition& d) { return !across(d).empty(); })) return {};
    while (some_stay()) decided_.clear(), spent_.clear();
    std::vector<Definition> all;
    bool changed = false;
    for (Definition d : p_.backward.definitions) {
      const Id body = in_rows(d.body, places(d), 0, &all);
      changed = changed || body != d.body;
      d.body = body;
      all.push_back(d);
    }
    if (!changed) return {};
    p_.backward.definitions = std::move(all);
    return without_dead(ordered(p_));
  }

 private:
  using Places = std::map<Id, size_t>;

  // Where the axes stand around the body: a definition's own, then those that it sums over.
  Places places(const Definition& d) const {
    Places place;
    for (const AxisRange& r : d.axes) place.emplace(r.axis, place.size());
    if (is_reduction(a_[d.body].op))
      for (const AxisRange& r : reduce_axes(a_[d.body])) place.emplace(r.axis, place.size());
    return place;
  }

  using Pair = std::pair<Id, Id>;  // of axes, the one first that stands first around the body
  struct Across {
    Id read;
    Exchange exchange;
    Pair axes;
    bool can;  // be turned, as far as this definition goes
  };

  std::vector<Across> across(Id body, const Places& place) const {
    std::vector<Across> found;
    const std::vector<Id> all = reachable(a_, body);
    std::set<Id> deciding;
    for (Id id : all)
      if (!is_float(a_[id].type))
        for (Id x : reachable(a_, id)) deciding.insert(x);
    for (Id id : all) {
      const Node n = a_[id];
      if (!is_read(n.op)) continue;
      const auto indices = read_indices(n);
      for (size_t i = 0; i + 1 < indices.size(); ++i)
        for (size_t k = i + 1; k < indices.size(); ++k)
          for (Id x : a_[indices[i]].free_axes())
            for (Id y : a_[indices[k]].free_axes()) {
              const auto of_x = place.find(x), of_y = place.find(y);
              if (x == y || of_x == place.end() || of_y == place.end() || of_x->second < of_y->second) continue;
              const bool plain = n.op == Op::read && indices[i] == x && indices[k] == y && is_float(n.type);
              found.push_back({id, {n.symbol, i, k}, {y, x}, plain && !deciding.contains(id)});
            }
    }
    return found;
  }
  std::vector<Across> across(const Definition& d) const { return across(d.body, places(d)); }

  // Notes what stays because of a definition that has to read across. Is there anything new?
  bool some_stay() {
    const size_t before = stays_.size();
    for (const Definition& d : p_.backward.definitions) {
      const std::vector<Across> all = across(d);
      std::set<Pair> forced;
      for (const Across& r : all)
        if (!r.can || deciding_.contains(d.target()) || !turned(r.exchange, 0, nullptr)) forced.insert(r.axes);
      for (const Across& r : all)
        if (forced.contains(r.axes)) stays_.insert(r.exchange);
    }
    return stays_.size() > before;
  }

  Id in_rows(Id body, const Places& place, int depth, std::vector<Definition>* made) {
    std::map<Id, Id> to;
    for (const Across& r : across(body, place)) {
      if (!r.can || to.contains(r.read)) continue;
      const auto instead = turned(r.exchange, depth, made);
      if (!instead) continue;
      const Node n = a_[r.read];
      std::vector<Id> indices(n.args().begin(), n.args().end());
      std::swap(indices[r.exchange.first], indices[r.exchange.second]);
      const Id value = a_.read(instead->tensor, n.type, indices);
      to[r.read] = instead->negative ? a_.unary(Op::neg, value) : value;
    }
    if (to.empty()) return body;
    return rewrite(a_, body, [&](Id id) {
      const auto at = to.find(id);
      return at == to.end() ? id : at->second;
    });
  }

  // Can the exchange be, and how? made: where a new definition goes; null where that is only asked.
  std::optional<Turned> turned(const Exchange& e, int depth, std::vector<Definition>* made) {
    if (stays_.contains(e) || depth > kDeepest) return {};
    auto known = decided_.find(e);
    if (known == decided_.end()) {
      const Definition* d = p_.definition_of(e.tensor);
      const std::optional<Turned> found = d && d->targets.size() == 1 ? decided(*d, e, depth) : std::nullopt;
      known = decided_.emplace(e, found).first;
    }
    if (known->second && made && known->second->tensor == kToMake) known->second->tensor = computed_turned(e, depth, *made);
    return known->second;
  }

  std::optional<Turned> decided(const Definition& d, const Exchange& e, int depth) {
    const AxisRange x = d.axes[e.first], y = d.axes[e.second];
    if (x.begin != y.begin || x.end != y.end || !a_[x.begin].free_axes().empty() || !a_[x.end].free_axes().empty()) return {};
    const Id other = exchanged(d, e);
    if (!deciding_.contains(e.tensor)) {
      const int sign = ratio(in_rows(d.body, places(d), depth + 1, nullptr), in_rows(other, places(d), depth + 1, nullptr));
      if (sign != 0) return Turned{e.tensor, sign < 0, 0};
    }
    // One that is read across somewhere is in memory anyway.
    if (!prices_ || !p_.backward.definition_of(e.tensor) ||
        std::ranges::any_of(stays_, [&](const Exchange& s) { return s.tensor == e.tensor; }))
      return {};
    auto [again_ps, keep_ps] = prices_(d);
    keep_ps -= spent_[e.tensor];
    if (again_ps > keep_ps) return {};
    for (const Across& r : across(other, places(d))) {
      const auto inside = r.can ? turned(r.exchange, depth + 1, nullptr) : std::nullopt;
      if (!inside) return {};
      again_ps += inside->again_ps;
    }
    if (again_ps > keep_ps) return {};
    spent_[e.tensor] += again_ps;
    return Turned{kToMake, false, again_ps};
  }

  Id exchanged(const Definition& d, const Exchange& e) {
    const Id x = d.axes[e.first].axis, y = d.axes[e.second].axis;
    return substitute(a_, d.body, {{x, y}, {y, x}});
  }

  TensorId computed_turned(const Exchange& e, int depth, std::vector<Definition>& made) {
    Definition d = *p_.definition_of(e.tensor);
    d.body = in_rows(exchanged(d, e), places(d), depth + 1, &made);
    const Tensor of = p_.tensors[e.tensor];
    d.targets = {p_.add_tensor(of.name + "_turned", of.type, of.shape)};
    made.push_back(d);
    return d.targets[0];
  }

  // 1 or -1 if y is x times that, else 0.
  int ratio(Id x, Id y) {
    const Node m = a_[x], n = a_[y];
    const bool reduction = is_reduction(m.op);
    if (m.op != n.op && (reduction || is_reduction(n.op))) return 0;
    if (reduction) {
      const bool same_places = reduce_axes(m) == reduce_axes(n) && comparable(reduce_condition(m)) == comparable(reduce_condition(n));
      if (!same_places) return 0;
    }
    auto form = [&](Id id, const Node& root) { return tree_.form(comparable(reduction ? reduce_body(root) : id)); };
    const Product p = form(x, m), q = form(y, n);
    if (p.factors != q.factors) return 0;
    if (p.coefficient == q.coefficient) return 1;
    return p.coefficient == -q.coefficient && (!reduction || m.op == Op::sum) ? -1 : 0;
  }

  // i != j and j != i in one order; where i == j, all else is of one of them: s[i,i] for s[j,j].
  Id comparable(Id root) {
    return rewrite(a_, root, [&](Id id) {
      const Node n = a_[id];
      if (n.op == Op::select) {
        std::vector<Id> asked = conjuncts(a_, n.arg(0));
        const Replacements yes = made_equal(asked, Op::eq), no = asked.size() == 1 ? made_equal(asked, Op::ne) : Replacements{};
        for (Id& c : asked)
          if (a_[c].op != Op::eq) c = substitute(a_, c, yes);
        std::ranges::sort(asked);
        return a_.select(yes.empty() ? n.arg(0) : conjunction(a_, asked), substitute(a_, n.arg(1), yes), substitute(a_, n.arg(2), no));
      }
      const bool other = n.type == DType::boolean && commutes(n) && n.arg(1) < n.arg(0);
      return other ? a_.with_args(id, std::vector<Id>{n.arg(1), n.arg(0)}) : id;
    });
  }

  // One axis for the other, of comparisons of two.
  Replacements made_equal(const std::vector<Id>& conditions, Op op) const {
    Replacements one;
    for (Id c : conditions)
      if (const Node n = a_[c]; n.op == op && a_[n.arg(0)].op == Op::axis && a_[n.arg(1)].op == Op::axis) one[n.arg(1)] = n.arg(0);
    return one;
  }

  static constexpr TensorId kToMake = static_cast<TensorId>(-1);
  Program p_;
  Arena& a_;
  const TurnPrices& prices_;
  const std::set<TensorId> deciding_;
  TensorExprTree tree_{a_};
  std::set<Exchange> stays_;
  std::map<Exchange, std::optional<Turned>> decided_;
  std::map<TensorId, int64_t> spent_;  // on computing a tensor turned, in all ways: once in memory, it could be read in all of them
};

}  // namespace

std::optional<Program> with_turned_reads(const Program& p, const TurnPrices& prices) { return Turner(p, prices).run(); }

}  // namespace xhat

#include "cse/algebra/collected_maps.h"

#include <algorithm>
#include <map>
#include <ranges>
#include <set>

#include "cse/algebra/accuracy.h"
#include "cse/match/bodies.h"

namespace xhat {
namespace {

constexpr size_t kMostTerms = 16;  // of a sum that is opened
constexpr size_t kLargest = 200;   // nodes of a body that is looked into
constexpr int kMostRounds = 8;     // sums of a body that are opened, one by one

class Collector {
 public:
  explicit Collector(const Program& p) : p_(p), a_(*p_.arena), tree_(a_), accuracy_(p_, tree_) {}

  Program run() {
    RememberBounds remember(a_);
    for (const Definition& d : p_.definitions())
      if (!d.is_call() && (a_[d.body].op == Op::max || a_[d.body].op == Op::min)) extremes_.insert(d.target());
    const std::set<TensorId> deciding = feeds_control(p_);
    Program made = p_;
    for (Definition& d : made.backward.definitions) {
      if (d.is_call() || deciding.contains(d.target()) || !is_float(a_[d.body].type)) continue;
      const Node root = a_[d.body];
      if (root.op == Op::sum)
        d.body = a_.reduce(Op::sum, reduce_axes(root), reduce_condition(root), collected(reduce_body(root)));
      else if (!is_reduction(root.op))
        d.body = collected(d.body);
    }
    return made;
  }

 private:
  Id collected(Id body) {
    for (int round = 0; round < kMostRounds; ++round) {
      const Id before = body;
      for (Id sum : sums_in(body)) {
        const Id open = opened(sum);
        if (open == kNone || open == sum) continue;
        const Id after = rewrite(a_, body, [&](Id id) { return id == sum ? open : id; });
        if (cost(after) >= cost(body) || !accuracy_.keeps(body, after)) continue;
        body = after;
        break;
      }
      if (body == before) break;
    }
    return body;
  }

  static bool adds(Op op) { return op == Op::add || op == Op::sub; }

  // The outer ones first. Not in what decides or says where to read.
  std::vector<Id> sums_in(Id body) const {
    std::vector<Id> found;
    const std::vector<Id> all = reachable(a_, body);
    if (all.size() > kLargest) return found;
    std::set<Id> values = {body}, parts;
    for (Id id : all | std::views::reverse) {
      const Node n = a_[id];
      if (!values.contains(id) || !is_float(n.type) || is_read(n.op) || is_reduction(n.op) || jumps(n.op)) continue;
      values.insert(n.args().begin(), n.args().end());
      if (!adds(n.op)) continue;
      if (!parts.contains(id)) found.push_back(id);
      parts.insert(n.args().begin(), n.args().end());
    }
    return found;
  }

  // What all points compute, before what is the same along some axis.
  std::pair<int64_t, int64_t> cost(Id body) const {
    const size_t axes = a_[body].axes_count;
    std::pair<int64_t, int64_t> all{0, 0};
    for (Id id : reachable(a_, body)) {
      const Node& n = a_[id];
      if (is_read(n.op) || !(is_float(n.type) || n.type == DType::boolean) || n.axes_count == 0) continue;
      (n.axes_count == axes ? all.first : all.second) += cost_ps(a_, n);
    }
    return all;
  }

  // What an extreme is subtracted from is computed as the extreme was (whole_differences.h).
  bool is_extreme(const Product& t) const {
    return std::ranges::any_of(t.factors, [&](const Factor& f) {
      const Node& n = a_[f.atom];
      return n.op == Op::maximum || n.op == Op::minimum || n.op == Op::clamp || rounds_to_whole(n.op) ||
             (is_read(n.op) && extremes_.contains(n.symbol));
    });
  }

  bool may_open(const std::vector<Product>& terms) const {
    auto number = [](const Product& t) { return t.is_number(); };
    auto exact = [&](const Product& t) {
      const Op op = t.factors.empty() ? Op::constant : a_[t.factors[0].atom].op;
      return t.factors.size() == 1 && t.factors[0].halves == 2 && (is_read(op) || op == Op::cast || op == Op::select);
    };
    return std::ranges::any_of(terms, number) || std::ranges::none_of(terms, exact);
  }

  // False: there are too many.
  bool open_into(std::vector<Product>& all, const Product& t, bool& changed) {
    for (const Factor& f : t.factors) {
      const std::vector<Product>* inner = f.halves == 2 ? tree_.terms(f.atom) : nullptr;
      if (!inner || !may_open(*inner)) continue;
      changed = true;
      Product rest = t;
      std::erase(rest.factors, f);
      for (const Product& part : std::vector<Product>(*inner))
        if (!open_into(all, tree_.multiply(rest, part), changed)) return false;
      return true;
    }
    all.push_back(t);
    return all.size() <= kMostTerms;
  }

  Id opened(Id sum) {
    const DType type = a_[sum].type;
    const Product form = tree_.form(sum);
    for (const Factor& f : form.factors) {
      const std::vector<Product>* terms = f.halves == 2 ? tree_.terms(f.atom) : nullptr;
      if (!terms) continue;
      if (std::ranges::any_of(*terms, [&](const Product& t) { return is_extreme(t); })) return kNone;
      bool changed = false, few = true;
      std::vector<Product> all;
      for (const Product& t : std::vector<Product>(*terms)) few = few && open_into(all, t, changed);
      if (!changed || !few) continue;
      std::map<std::vector<Factor>, std::vector<Product>> by_point;
      const size_t axes = a_[sum].axes_count;
      for (const Product& t : all) {
        std::vector<Factor> at_each;
        Product along{t.coefficient, {}};
        for (const Factor& g : t.factors) (a_[g.atom].axes_count == axes ? at_each : along.factors).push_back(g);
        by_point[at_each].push_back(std::move(along));
      }
      std::vector<Product> collected;
      for (auto& [factors, before] : by_point) collected.push_back(tree_.multiply(tree_.add(type, before), {1, factors}));
      Product rest = form;
      std::erase(rest.factors, f);
      return tree_.to_expression(tree_.multiply(rest, tree_.add(type, collected)), type);
    }
    return kNone;
  }

  const Program p_;
  Arena& a_;
  TensorExprTree tree_;
  Accuracy accuracy_;
  std::set<TensorId> extremes_;
};

}  // namespace

Program with_collected_maps(const Program& p) { return Collector(p).run(); }

}  // namespace xhat

#include "expr/rules/simplify.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "expr/core/scalar.h"
#include "expr/rules/rules.h"

namespace xhat {
namespace {

// A rule's result may match another rule; no chain of them is this long, and what were not stable would end here.
constexpr int kStepsPerNode = 32;
constexpr int kRounds = 8;
const char* const kFold = "fold";

// A constant's value when floats are doubles throughout, and when every node is rounded to its type (evaluate.h).
struct Readings {
  double exact;
  double declared;
};

Readings readings(const Node& n) { return {n.value, round_to(n.type, n.value)}; }

bool same_bits(double a, double b) { return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

// The constant that is `exact` in the one reading and `declared` in the other, if there is one.
Id float_constant(Arena& a, DType type, double exact, double declared) {
  return same_bits(round_to(type, exact), round_to(type, declared)) ? a.constant(type, exact) : kNone;
}

Id folded_cast(Arena& a, DType to, const Node& from) {
  if (!is_float(from.type)) {
    if (!is_float(to)) return a.integer(integer_from(to, from.integer), to);
    double value = static_cast<double>(from.integer);
    bool holds = real_from(to, from.integer) == value && std::fabs(value) <= 0x1p53;
    return holds ? a.constant(to, value) : kNone;
  }
  Readings v = readings(from);
  if (is_float(to)) return float_constant(a, to, v.exact, v.declared);
  int64_t exact = integer_from(to, v.exact);
  return exact == integer_from(to, v.declared) ? a.integer(exact, to) : kNone;
}

// What constants make, where both readings agree on a constant; else the node stays.
Id folded(Arena& a, Id id) {
  const Node& n = a[id];
  if (n.arg_count == 0 || n.op < Op::neg || n.op == Op::random) {
    if (n.op != Op::cast) return kNone;
  }
  if (!std::ranges::all_of(n.args(), [&](Id x) { return a[x].op == Op::constant; })) return kNone;
  if (n.op == Op::cast) return folded_cast(a, n.type, a[n.arg(0)]);
  const ScalarOp& row = scalar(n.op);
  if (!is_float(a[n.arg(0)].type)) {
    std::vector<int64_t> v;
    for (Id x : n.args()) v.push_back(a[x].integer);
    return row.integers ? a.integer(row.integers.at(v.data()), n.type) : kNone;
  }
  std::vector<double> exact, declared;
  for (Id x : n.args()) {
    Readings r = readings(a[x]);
    exact.push_back(r.exact);
    declared.push_back(r.declared);
  }
  if (is_float(n.type)) return row.reals ? float_constant(a, n.type, row.reals.at(exact.data()), row.reals.at(declared.data())) : kNone;
  if (!row.tests) return kNone;
  int64_t value = row.tests.at(exact.data());
  return value == row.tests.at(declared.data()) ? a.integer(value, n.type) : kNone;
}

void check_names(const std::set<std::string>& names) {
  std::vector<std::string> known = simplification_rules();
  for (const std::string& name : names)
    if (std::ranges::find(known, name) == known.end())
      throw Error("there is no simplification rule " + name + "; see expr/rules/rules.def");
}

class Simplifier {
 public:
  Simplifier(Arena& arena, const SimplifyOptions& options) : a_(arena) {
    check_names(options.without);
    check_names(options.only);
    auto on = [&](const std::string& name) {
      return !options.without.contains(name) && (options.only.empty() || options.only.contains(name));
    };
    fold_ = on(kFold);
    add(rules(), on);
  }

  // seen_as: what rows take a node for; branches_agree: the value of an `if`, where both branches have the same.
  Simplifier(Arena& arena, const std::vector<Rule>& all, SeenAs seen_as = {}, SeenAs branches_agree = {})
      : a_(arena), fold_(false), seen_as_(std::move(seen_as)), branches_agree_(std::move(branches_agree)) {
    add(all, [](const std::string&) { return true; });
  }

  Program run(Program p) {
    for (Definition& d : p.definitions())
      if (!d.is_call()) d.body = run(d.body);
    return p;
  }
  void fold_constants() { fold_ = true; }

  Id run(Id root) {
    for (int round = 0; round < kRounds; ++round) {
      Id before = root;
      root = once(root);
      if (root == before) break;
    }
    return root;
  }

 private:
  template <class On>
  void add(const std::vector<Rule>& all, On on) {
    by_root_.resize(static_cast<size_t>(Op::random) + 1);
    for (const Rule& rule : all)
      if (on(rule.name)) by_root_[static_cast<size_t>(rule.root)].push_back(&rule);
  }

  // Bottom-up. done_ lives on: definitions share parts.
  Id once(Id root) {
    std::vector<Id> args;
    for (Id id : reachable(a_, root)) {
      if (done_.contains(id)) continue;
      args.clear();
      for (Id x : a_[id].args()) args.push_back(done_.at(x));
      Id now = a_.with_args(id, args);
      for (int step = 0; step < kStepsPerNode; ++step) {
        Id next = applied(now);
        if (next == kNone || next == now) break;
        now = next;
      }
      done_[id] = now;
    }
    return done_.at(root);
  }

  Id applied(Id id) {
    if (fold_)
      if (Id constant = folded(a_, id); constant != kNone) return constant;
    for (const Rule* rule : by_root_[static_cast<size_t>(a_[id].op)])
      if (auto binding = match(a_, *rule, id, seen_as_)) return instantiate(a_, rule->replacement, *binding, a_[id].type);
    return branches_agree_ && a_[id].op == Op::select ? branches_agree_(id) : kNone;
  }

  Arena& a_;
  bool fold_ = true;
  std::vector<std::vector<const Rule*>> by_root_;
  std::unordered_map<Id, Id> done_;
  SeenAs seen_as_, branches_agree_;
};

// recognize: rows see the value of a map in a read of it, and an `if` whose branches are one function goes.
class Recognizer {
 public:
  explicit Recognizer(Program p)
      : p_(std::move(p)),
        a_(*p_.arena),
        rows_(
            a_, spellings(), [this](Id id) { return seen_as(id); }, [this](Id id) { return without_choice(id); }) {
    rows_.fold_constants();
  }

  Program run() {
    for (Definition& d : p_.definitions()) {
      if (d.is_call()) continue;
      d.body = rows_.run(d.body);
      const bool sums = std::ranges::any_of(reachable(a_, d.body), [&](Id id) { return is_reduction(a_[id].op); });
      if (is_float(a_[d.body].type) && !sums) maps_[d.target()] = {&d, {}};
    }
    return p_;
  }

 private:
  Id seen_as(Id id) {
    const Node n = a_[id];
    if (n.op != Op::read) return id;
    auto map = maps_.find(n.symbol);
    if (map == maps_.end()) return id;
    auto [known, fresh] = map->second.seen.emplace(id, kNone);
    if (!fresh) return known->second;
    Replacements at;
    for (size_t i = 0; i < n.arg_count; ++i) at[map->second.definition->axes[i].axis] = a_.to(DType::i64, n.arg(i));
    return known->second = substitute(a_, map->second.definition->body, at);
  }

  // With the bodies of `left` definitions at most in place of their names; 0 are left where there are more.
  Id written_out(Id root, size_t& left) {
    return rewrite(a_, root, [&](Id id) {
      Id value = left == 0 ? id : seen_as(id);
      if (value == id || --left == 0) return id;
      return written_out(value, left);
    });
  }

  // if c then f(a) else g(a), where rows make one formula of both: 1/(1 + exp(-a)) and exp(a)/(1 + exp(a)). The row same_either_way
  // does the rest. Not through abs(a) as a or -a: its derivative at 0 is 0.
  Id without_choice(Id id) {
    constexpr size_t kLargest = 100;     // nodes of a branch; formulas of one function have some twenty
    constexpr size_t kDefinitions = 20;  // whose names stand in them
    const Node n = a_[id];
    if (!is_float(n.type) || n.arg(1) == n.arg(2)) return kNone;
    Id values[2];
    for (size_t i : {0, 1}) {
      size_t left = kDefinitions;
      values[i] = reachable(a_, n.arg(i + 1)).size() > kLargest ? kNone : written_out(n.arg(i + 1), left);
      if (values[i] == kNone || left == 0 || reachable(a_, values[i]).size() > kLargest) return kNone;
      values[i] = rows_.run(values[i]);
    }
    return values[0] == values[1] ? a_.select(n.arg(0), values[0], values[0]) : kNone;
  }

  struct Map {
    const Definition* definition;
    std::unordered_map<Id, Id> seen;  // by read
  };

  Program p_;
  Arena& a_;
  std::unordered_map<TensorId, Map> maps_;
  Simplifier rows_;
};

}  // namespace

Id simplify(Arena& a, Id root, const SimplifyOptions& options) { return Simplifier(a, options).run(root); }

Program simplify(const Program& p, const SimplifyOptions& options) { return Simplifier(*p.arena, options).run(p); }

Program recognize(const Program& p) { return Recognizer(p).run(); }

Program recognize_derived(const Program& p) { return Simplifier(*p.arena, idioms()).run(p); }

Program in_closed_form(const Program& p) {
  Program found = p;
  for (const Rule& row : closed_forms()) {
    const std::vector<Rule> only = {row};
    found = Simplifier(*found.arena, only).run(found);
  }
  return found;
}

std::vector<std::string> simplification_rules() {
  std::vector<std::string> names = {kFold};
  for (const Rule& rule : rules()) names.push_back(rule.name);
  return names;
}

}  // namespace xhat

#include "expr/rules/rewriter.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "expr/core/scalar.h"

namespace xhat {
namespace {

// A rule's result may match another rule; no chain of them is this long, and what were not stable would end here.
constexpr int kStepsPerNode = 32;
constexpr int kRounds = 8;

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

std::vector<const Rule*> pointers_to(const std::vector<Rule>& rows) {
  std::vector<const Rule*> all;
  for (const Rule& row : rows) all.push_back(&row);
  return all;
}

}  // namespace

Rewriter::Rewriter(Arena& arena, const std::vector<const Rule*>& rows, SeenAs seen_as)
    : a_(arena), by_root_(static_cast<size_t>(Op::random) + 1), seen_as_(std::move(seen_as)) {
  for (const Rule* row : rows) by_root_[static_cast<size_t>(row->root)].push_back(row);
}

Rewriter::Rewriter(Arena& arena, const std::vector<Rule>& rows, SeenAs seen_as) : Rewriter(arena, pointers_to(rows), std::move(seen_as)) {}

Id Rewriter::run(Id root) {
  for (int round = 0; round < kRounds; ++round) {
    Id before = root;
    root = once(root);
    if (root == before) break;
  }
  return root;
}

// Bottom-up. done_ lives on: definitions share parts.
Id Rewriter::once(Id root) {
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
    if (watcher_) watcher_(id, now);
  }
  return done_.at(root);
}

Id Rewriter::applied(Id id) {
  if (fold_)
    if (Id constant = folded(a_, id); constant != kNone) return constant;
  auto first_of = [&](const std::vector<Step>& steps) {
    for (const Step& step : steps)
      if (Id made = step(id); made != kNone && made != id) return made;
    return kNone;
  };
  if (Id made = first_of(first_); made != kNone) return made;
  for (const Rule* row : by_root_[static_cast<size_t>(a_[id].op)])
    if (auto binding = match(a_, *row, id, seen_as_)) return instantiate(a_, row->replacement, *binding, a_[id].type);
  return first_of(last_);
}

}  // namespace xhat

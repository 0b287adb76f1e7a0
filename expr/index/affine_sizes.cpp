// Questions about bounds at sizes that are numbers.
#include <algorithm>
#include <random>
#include <set>

#include "expr/core/conditions.h"
#include "expr/index/affine.h"
#include "expr/index/affine_split.h"

namespace xhat {
namespace {

using affine::OwnQuestion;
using Verdict = BoundsAnswer::Verdict;
using Sizes = std::map<std::string, int64_t>;

// "i = 1: index 5" becomes "i = 1 with N = 2: index 5".
std::string with_sizes(const std::string& example, const Sizes& sizes) {
  if (sizes.empty()) return example;
  std::string text;
  for (const auto& [name, value] : sizes) text += (text.empty() ? "with " : ", ") + name + " = " + std::to_string(value);
  const size_t index = example.rfind("index ");
  if (index == std::string::npos) return example + " " + text;
  const std::string axes = example.substr(0, index);
  return (axes.ends_with(": ") ? axes.substr(0, axes.size() - 2) + " " : axes) + text + ": " + example.substr(index);
}

std::set<Id> dims_of(const Arena& a, const BoundsQuestion& q) {
  std::vector<Id> roots(q.conditions.begin(), q.conditions.end());
  roots.insert(roots.end(), {q.index, q.extent});
  for (const AxisRange& r : q.axes) roots.insert(roots.end(), {r.begin, r.end});
  std::set<Id> dims;
  for (Id id : reachable(a, roots))
    if (a[id].op == Op::dim) dims.insert(id);
  return dims;
}

// Equal sizes for all dims first, then different ones, always the same.
std::vector<Sizes> sizes_to_try(const Arena& a, const BoundsQuestion& q) {
  constexpr int64_t kSizes[] = {1, 2, 3, 4, 7, 64, 1000};
  constexpr size_t kMixed = 24;
  std::mt19937_64 random(1);
  std::vector<Sizes> tries;
  for (size_t i = 0; i < std::size(kSizes) + kMixed; ++i) {
    Sizes& sizes = tries.emplace_back();
    for (Id dim : dims_of(a, q)) sizes[a.name(dim)] = kSizes[i < std::size(kSizes) ? i : random() % std::size(kSizes)];
  }
  return tries;
}

Id conjunction(Arena& a, std::span<const Id> parts) {
  Id all = a.boolean(true);
  for (Id x : parts) all = is_true(a, all) ? x : a.land(all, x);
  return all;
}

}  // namespace

BoundsAnswer prove_bounds_at(Arena& a, const BoundsQuestion& q, const Sizes& dims) {
  Replacements values;
  Sizes used;
  for (Id dim : dims_of(a, q))
    if (auto it = dims.find(a.name(dim)); it != dims.end()) {
      values[dim] = a.integer(it->second);
      used.insert(*it);
    }
  auto at = [&](Id e) { return values.empty() ? e : substitute(a, e, values); };
  OwnQuestion here{{}, {}, at(q.index), at(q.extent)};
  for (const AxisRange& r : q.axes) here.axes.push_back({r.axis, at(r.begin), at(r.end)});
  for (Id c : q.conditions) here.conditions.push_back(at(c));
  BoundsAnswer answer = prove_bounds(a, here.view());
  answer.example = with_sizes(answer.example, used);
  return answer;
}

BoundsAnswer try_sizes(Arena& a, const BoundsQuestion& q) {
  BoundsAnswer first{Verdict::unknown, {}, {}};
  for (const Sizes& sizes : sizes_to_try(a, q)) {
    BoundsAnswer answer = prove_bounds_at(a, q, sizes);
    if (answer.verdict == Verdict::unknown) return {Verdict::unknown, {}, {}};
    if (answer.verdict == Verdict::proved) {
      BoundsQuestion nowhere = q;  // nothing is inside an extent of 0: proved if nothing is iterated
      nowhere.index = nowhere.extent = a.integer(0);
      if (prove_bounds_at(a, nowhere, sizes).verdict != Verdict::proved) return {Verdict::unknown, {}, {}};
    } else if (first.verdict == Verdict::unknown) {
      first = {Verdict::violated, {}, answer.example};
    }
  }
  return first;
}

std::optional<std::string> affine::violation_at_some_sizes(Arena& a, const BoundsQuestion& q) {
  for (const Sizes& sizes : sizes_to_try(a, q)) {
    BoundsAnswer answer = prove_bounds_at(a, q, sizes);
    if (answer.verdict == Verdict::violated) return answer.example;
  }
  return std::nullopt;
}

Id open_question(Arena& a, const BoundsQuestion& q) {
  const Id index = a.to(DType::i64, q.index);
  const Id inside = a.land(a.binary(Op::le, a.integer(0), index), a.binary(Op::lt, index, q.extent));
  const Id where = conjunction(a, q.conditions);
  if (q.axes.empty()) return is_true(a, where) ? inside : a.select(where, inside, a.boolean(true));
  return a.reduce(Op::all, q.axes, is_true(a, where) ? kNone : where, inside);
}

bool out_of_reach(const Arena& a, Id index) {
  auto moves = [&](Id x) { return !a[x].free_axes().empty(); };
  return std::ranges::any_of(reachable(a, index), [&](Id id) {
    const Node& n = a[id];
    if (is_read(n.op) || !moves(id)) return false;
    switch (n.op) {
      case Op::mul: return moves(n.arg(0)) && moves(n.arg(1));
      case Op::div:
      case Op::mod: return moves(n.arg(1));
      case Op::axis:
      case Op::add:
      case Op::sub:
      case Op::neg:
      case Op::minimum:
      case Op::maximum:
      case Op::clamp:
      case Op::abs:
      case Op::relu:
      case Op::sign:
      case Op::select:
      case Op::stop_gradient:
      case Op::eq:
      case Op::ne:
      case Op::lt:
      case Op::le:
      case Op::land:
      case Op::lor:
      case Op::lnot: return false;
      case Op::cast: return is_float(a[n.arg(0)].type);
      default: return true;
    }
  });
}

bool is_open_question(const Arena& a, Id condition) { return a[condition].op == Op::all; }

BoundsAnswer answer_at(const Arena& from, Id open_question, const Sizes& dims) {
  Arena a;
  std::unordered_map<Id, Id> memo;
  const Node n = a[import(a, from, open_question, {}, memo)];
  const std::vector<AxisRange> axes = reduce_axes(n);
  const std::vector<Id> known = is_true(a, reduce_condition(n)) ? std::vector<Id>() : conjuncts(a, reduce_condition(n));
  const Node below = a[a[reduce_body(n)].arg(1)];  // index < extent
  return prove_bounds_at(a, {axes, known, below.arg(0), below.arg(1)}, dims);
}

}  // namespace xhat

// Windows that lie over the same elements become one: sums over a few taps each (a bilateral filter's numerator, its
// denominator, and what its backward gathers from the same neighbours) walk the same axes and say the same thing in the same
// words, so that they are summed up in one loop, which computes once what they share.
#include <algorithm>
#include <map>

#include "expr/rules/simplify.h"
#include "runtime/kernel/kernel_spec.h"

namespace xhat::runtime {
namespace {

bool few(const KernelSpec& spec, const SpecMember& m) {
  return !m.reduced.empty() && m.scatter.empty() && spec.terms(m) <= kFewTerms && m.op != Op::argmax && m.op != Op::argmin;
}

// Axes that this member alone walks, and walks whole.
bool of_its_own(const KernelSpec& spec, const SpecMember& m) {
  return std::ranges::all_of(m.reduced, [&](Id x) {
    return spec.axes.at(x).shared < 0 && std::ranges::none_of(spec.members, [&](const SpecMember& other) {
             return &other != &m && (std::ranges::find(other.left, x) != other.left.end() ||
                                     std::ranges::find(other.reduced, x) != other.reduced.end());
           });
  });
}

// What is read outside where a condition has it inside may be read with any `else`.
struct Words {
  KernelSpec& spec;
  std::map<std::vector<Id>, Id> with_else = {};  // a tensor and its indices: how others read it, or kNone

  Arena& arena() { return *spec.arena; }

  std::vector<Id> place(const Node& n) {
    std::vector<Id> key = {static_cast<Id>(n.symbol)};
    key.insert(key.end(), read_indices(n).begin(), read_indices(n).end());
    return key;
  }

  // x[i] for x[i else 0] where i is inside anyway; (a-b)*(a-b) for (b-a)*(b-a).
  Id plain(Id written) {
    const Id root = with_collected_indices(arena(), written);
    std::unordered_map<Id, Id> done;
    std::vector<Id> args;
    for (Id id : reachable(arena(), root)) {
      const Node n = arena()[id];
      args.clear();
      for (Id x : n.args()) args.push_back(done.at(x));
      if (n.op == Op::read_or && spec.inside(arena()[arena().with_args(id, args)])) {
        done[id] = arena().read(n.symbol, n.type, std::span(args).first(args.size() - 1));
        continue;
      }
      if (n.op == Op::mul && args[0] == args[1] && arena()[args[0]].op == Op::sub) {
        Id a = arena()[args[0]].arg(0), b = arena()[args[0]].arg(1);
        if (b < a) args[0] = args[1] = arena().sub(b, a);
      }
      done[id] = arena().with_args(id, args);
    }
    return done.at(root);
  }

  void note(const SpecMember& m) {
    for (Id id : reachable(arena(), m.body)) {
      const Node& n = arena()[id];
      if (n.op != Op::read_or) continue;
      auto [it, fresh] = with_else.emplace(place(n), id);
      if (!fresh && it->second != id) it->second = kNone;
    }
  }

  Id as_others(Id root) {
    Replacements replace;
    for (Id id : reachable(arena(), root)) {
      const Node& n = arena()[id];
      if (n.op != Op::read || spec.inside(n)) continue;
      auto it = with_else.find(place(n));
      if (it != with_else.end() && it->second != kNone) replace[id] = it->second;
    }
    return replace.empty() ? root : substitute(arena(), root, replace);
  }
};

}  // namespace

void join_windows(KernelSpec& spec) {
  std::map<size_t, std::vector<size_t>> groups;  // by the first of them
  for (size_t i = 0; i < spec.members.size(); ++i) {
    SpecMember& m = spec.members[i];
    if (!few(spec, m) || !of_its_own(spec, m)) continue;
    auto alike = [&](size_t g) {
      const SpecMember& f = spec.members[g];
      return f.left == m.left && std::ranges::equal(f.reduced, m.reduced, {}, [&](Id x) { return spec.axes.at(x).extent; },
                                                    [&](Id x) { return spec.axes.at(x).extent; });
    };
    auto at = std::ranges::find_if(groups, [&](const auto& group) { return alike(group.first); });
    (at == groups.end() ? groups[i] : at->second).push_back(i);
  }
  for (const auto& [first, group] : groups) {
    if (group.size() < 2) continue;
    Arena& a = *spec.arena;
    Words words{spec};
    for (size_t i : group) {
      SpecMember& m = spec.members[i];
      Replacements axes;
      for (size_t r = 0; r < m.reduced.size(); ++r) axes[m.reduced[r]] = spec.members[first].reduced[r];
      m.reduced = spec.members[first].reduced;
      m.body = words.plain(substitute(a, m.body, axes));
      m.condition = substitute(a, m.condition, axes);
      words.note(m);
    }
    for (size_t i : group) {
      SpecMember& m = spec.members[i];
      if (!is_true(a, m.condition)) m.body = words.plain(words.as_others(m.body));
    }
  }
}

}  // namespace xhat::runtime

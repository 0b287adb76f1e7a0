// Walking an axis in phases: the gradient of a convolution of stride 2 reads w[.., h%2 + 1 - 2*t] and dy[.., h/2 + t, ..].
// With h as two axes, quotient u and phase p, h = 2*u + p, w depends on the phase alone and the sum is a product of matrices
// for each phase: what the planner (Planner::product) counts on where it gives an axis phases.
//
// Only members that read by its quotient or remainder walk it so, where the tile has all of it. Others walk it whole, with vectors along it, and
// read what is made in phases through a view: v[h] = t[h/2,h%2], which is where it lies. So do those that walk another axis, of fewer places
// (fusion/plan/whole_phases.h).
//
// And in blocks: if j < H then a[j] else if j < 2*H then b[j-H] else …, over 4*H, computes all of it in every lane. With
// j = H*u + p and u written out, each block computes its own.
#include <algorithm>
#include <numeric>
#include <set>

#include "expr/index/affine_poly.h"
#include "expr/index/linear.h"
#include "runtime/host/tensor_view.h"
#include "runtime/kernel/kernel_spec.h"

namespace xhat::runtime {
namespace {

using affine::Poly;

bool reduces(const SpecMember& m, Id axis) { return std::ranges::find(m.reduced, axis) != m.reduced.end(); }

// Whether it is a quotient or a remainder of what depends on the axis.
bool divides(const Arena& a, Id id, Id axis) {
  const Node& n = a[id];
  return (n.op == Op::div || n.op == Op::mod) && n.type == DType::i64 && a[n.arg(0)].depends_on(axis);
}

class PhaseSplit {
 public:
  // views: members that do not need the phases walk the axis whole. tied: an axis of the kernel that is the quotient.
  PhaseSplit(KernelSpec& spec, Id axis, int64_t phases, bool write_out, bool views, Id tied = kNone)
      : spec_(spec), a_(*spec.arena), axis_(axis), phases_(phases) {
    quotient_ = tied != kNone ? tied : a_.axis(a_.name(axis) + "q");
    phase_ = a_.axis(a_.name(axis) + "p");
    replaced_[axis] = Poly::monomial({quotient_}, phases) + Poly::atom(phase_);
    SpecAxis whole = spec.axes.at(axis), q = whole, p = whole;
    q.extent /= phases;
    p.extent = p.tile = phases;
    p.planned.clear();
    p.sized = false;
    if (tied != kNone) {
      spec.axes[phase_] = p;
      return;
    }
    if (views && whole.kind() == AxisKind::untiled) find_whole();
    q.divisor *= phases;
    q.unrolled = write_out;
    if (whole.kind() == AxisKind::point) {
      p.tile = 1;
    } else {
      q.tile = whole.kind() == AxisKind::untiled ? q.extent : whole.tile / phases;
      p.shared = -1;
    }
    spec.axes[quotient_] = q;
    spec.axes[phase_] = p;
  }

  void run() {
    for (const SpecMember& m : spec_.members)
      for (size_t i = 0; i < m.left.size(); ++i)
        if (m.left[i] == axis_ && !whole_.contains(m.tensor)) made_[m.tensor] = i;
    add_views();
    for (SpecMember& m : spec_.members) {
      if (whole_.contains(m.tensor)) continue;
      m.body = rebuilt(m.body);
      m.condition = rebuilt(m.condition);
      if (auto at = std::ranges::find(m.left, axis_); at != m.left.end()) {
        *at = phase_;
        m.left.insert(at, quotient_);
      }
      if (auto at = std::ranges::find(m.reduced, axis_); at != m.reduced.end()) {
        *at = phase_;
        m.reduced.insert(at, quotient_);
      }
    }
    for (auto [tensor, i] : made_) split(spec_.tensors[tensor], i);
    auto at = std::ranges::find(spec_.shared, axis_);
    if (at != spec_.shared.end()) {
      *at = quotient_;
      if (spec_.axes.at(phase_).shared >= 0) spec_.shared.insert(at + 1, phase_);
    }
    for (size_t i = 0; i < spec_.shared.size(); ++i) spec_.axes.at(spec_.shared[i]).shared = static_cast<int>(i);
    if (whole_.empty()) spec_.axes.erase(axis_);
  }

 private:
  // Members that do not need the phases, if some do.
  void find_whole() {
    bool some = false;
    std::set<uint32_t> in_two;  // tensors that are made by quotient and remainder
    for (const SpecMember& m : spec_.members) {
      const bool made = std::ranges::find(m.left, axis_) != m.left.end(), walks = made || reduces(m, axis_);
      const std::vector<Id> all = reachable(a_, std::vector<Id>{m.body, m.condition});
      const bool in_phases = std::ranges::any_of(all, [&](Id id) { return divides(a_, id, axis_); });
      some |= walks && in_phases;
      if (made && in_phases) in_two.insert(m.tensor);
      // Others have an axis of their own, of fewer places.
      const bool reads = !walks && std::ranges::any_of(all, [&](Id id) { return is_read(a_[id].op) && in_two.contains(a_[id].symbol); });
      if ((walks && !in_phases) || reads) whole_.insert(m.tensor);
    }
    if (!some) whole_.clear();
  }

  // For members that walk the axis whole, what is made in phases.
  void add_views() {
    if (whole_.empty()) return;
    for (size_t i = 0; i < spec_.members.size(); ++i) {
      const SpecMember made = spec_.members[i];
      if (!made_.contains(made.tensor)) continue;
      auto reads = [&](const SpecMember& m) {
        return whole_.contains(m.tensor) && std::ranges::any_of(reachable(a_, std::vector<Id>{m.body, m.condition}), [&](Id id) {
                 return is_read(a_[id].op) && a_[id].symbol == made.tensor;
               });
      };
      if (std::ranges::none_of(spec_.members, reads)) continue;
      SpecMember view;
      view.tensor = static_cast<uint32_t>(spec_.tensors.size());
      view.left = made.left;
      view.condition = a_.boolean(true);
      SpecTensor t = spec_.tensors[made.tensor];
      t.original = kInternal;
      t.dense = true;
      t.rows = false;
      std::vector<Id> indices = made.left;
      const size_t at = made_.at(made.tensor);
      indices[at] = a_.binary(Op::mod, axis_, a_.integer(phases_));
      indices.insert(indices.begin() + static_cast<std::ptrdiff_t>(at), a_.binary(Op::div, axis_, a_.integer(phases_)));
      view.body = a_.read(made.tensor, t.type, indices);
      spec_.tensors.push_back(t);
      for (SpecMember& m : spec_.members) {
        if (!whole_.contains(m.tensor)) continue;
        for (Id* root : {&m.body, &m.condition})
          *root = rewrite(a_, *root, [&](Id id) {
            const Node n = a_[id];
            if (!is_read(n.op) || n.symbol != made.tensor) return id;
            const std::vector<Id> args(n.args().begin(), n.args().end());
            if (n.op == Op::read) return a_.read(view.tensor, n.type, args);
            return a_.read_or(view.tensor, n.type, std::span(args).first(args.size() - 1), args.back());
          });
      }
      whole_.insert(view.tensor);
      spec_.members.insert(spec_.members.begin() + static_cast<std::ptrdiff_t>(++i), view);
    }
  }

  void split(SpecTensor& t, size_t i) const {
    auto insert = [&](auto& list, auto quotient, auto phase) {
      list[i] = phase;
      list.insert(list.begin() + static_cast<std::ptrdiff_t>(i), quotient);
    };
    insert(t.shape, t.shape[i] / phases_, phases_);
    insert(t.steps, t.steps[i] * phases_, t.steps[i]);
    insert(t.groups, t.groups[i], t.groups[i]);
  }

  Poly poly(Id id) {
    if (auto it = replaced_.find(id); it != replaced_.end()) return it->second;
    Poly p = affine::polynomial_through_divisions(a_, id, [&](Id x) {
      auto it = replaced_.find(x);
      return it == replaced_.end() ? Poly::atom(with_rebuilt_args(x)) : it->second;
    });
    return replaced_[id] = known(p);
  }

  // Quotients that can only be one number are that number: p/2 for p in 0..2.
  Poly known(const Poly& p) const {
    Poly r;
    for (const auto& [m, c] : p.terms) {
      auto [low, high] = m.size() == 1 ? spec_.interval(m[0]) : std::pair<int64_t, int64_t>{0, 1};
      r = r + (low == high ? Poly::constant(c * low) : Poly::monomial(m, c));
    }
    return r;
  }

  Id rebuilt(Id root) {
    for (Id id : reachable(a_, root)) {
      if (done_.contains(id)) continue;
      done_[id] = a_[id].type == DType::i64 && !is_read(a_[id].op) ? affine::expression(a_, poly(id)) : with_rebuilt_args(id);
    }
    return done_.at(root);
  }

  Id with_rebuilt_args(Id id) {
    const Node n = a_[id];
    std::vector<Id> args;
    for (Id x : n.args()) args.push_back(rebuilt(x));
    if (n.arg_count == 0) return id;
    if (auto c = comparison_of_quotients(n)) return *c;
    if (is_read(n.op))
      if (auto it = made_.find(n.symbol); it != made_.end()) {
        // A tensor of this kernel has the phases as a dimension.
        Poly at = poly(n.arg(it->second)), q = known(affine::floor_div(a_, at, phases_));
        auto place = args.begin() + static_cast<std::ptrdiff_t>(it->second);
        *place = affine::expression(a_, at - Poly::constant(phases_) * q);
        args.insert(place, affine::expression(a_, q));
        if (n.op == Op::read) return a_.read(n.symbol, n.type, args);
        return a_.read_or(n.symbol, n.type, std::span(args).first(args.size() - 1), args.back());
      }
    return without_common_parts(a_, a_.with_args(id, args));
  }

  // P*u + p < P*k for 0 <= p < P is u < k.
  std::optional<Id> comparison_of_quotients(const Node& n) {
    if ((n.op != Op::lt && n.op != Op::le) || a_[n.arg(0)].type != DType::i64) return {};
    Poly least = poly(n.arg(1)) - poly(n.arg(0)) - Poly::constant(n.op == Op::lt);  // it holds where this is not negative
    if (least.coefficient(phase_) == 0) return {};
    Poly quotient = known(affine::floor_div(a_, least, phases_));
    Id value = affine::expression(a_, quotient);
    if (a_[value].depends_on(phase_)) return {};
    return a_.binary(Op::le, a_.integer(0), value);
  }

  KernelSpec& spec_;
  Arena& a_;
  Id axis_, quotient_, phase_;
  int64_t phases_;
  std::set<uint32_t> whole_;         // tensors whose members walk the axis whole
  std::map<uint32_t, size_t> made_;  // tensors that members make, and the dimension that the axis is
  std::unordered_map<Id, Poly> replaced_;
  std::unordered_map<Id, Id> done_;
};

// Members that have the axis in a way that cannot be split: scattered over, in a window of another's, as the place of an extreme.
bool in_the_way(const KernelSpec& spec, Id axis) {
  return std::ranges::any_of(spec.members, [&](const SpecMember& m) {
    if (reduces(m, axis) && (m.op == Op::argmax || m.op == Op::argmin || spec.axes.at(axis).kind() != AxisKind::untiled)) return true;
    return !m.scatter.empty() || std::ranges::count(m.left, axis) > 1 || spec.tensors[m.tensor].shape.size() >= kMaxRank;
  });
}

// x/8 < 3 as x < 24, 3 <= x/8 as 24 <= x: quotients beside numbers.
Id with_places_compared(Arena& a, Id root) {
  return rewrite(a, root, [&](Id id) {
    const Node n = a[id];
    if ((n.op != Op::lt && n.op != Op::le) || a[n.arg(0)].type != DType::i64) return id;
    Linear above = linear(a, n.arg(1));  // at least 0
    add_scaled(above, linear(a, n.arg(0)), -1);
    if (n.op == Op::lt) --above.constant;
    if (above.terms.size() != 1) return id;
    const auto [quotient, times] = *above.terms.begin();
    const Node q = a[quotient];
    if (q.op != Op::div || (times != 1 && times != -1) || a[q.arg(1)].op != Op::constant || a[q.arg(1)].integer < 1) return id;
    const int64_t by = a[q.arg(1)].integer;
    return times == 1 ? a.binary(Op::le, a.integer(-above.constant * by), q.arg(0))
                      : a.binary(Op::lt, q.arg(0), a.integer((above.constant + 1) * by));
  });
}

// Where conditions change along an axis.
struct Breaks {
  int64_t common = 0;      // divisor
  bool elsewhere = false;  // a condition on the axis that holds for other than a range
};

std::map<Id, Breaks> breaks_of(const KernelSpec& spec) {
  Arena& a = *spec.arena;
  std::map<Id, Breaks> found;
  for (const SpecMember& m : spec.members) {
    for (Id id : reachable(a, std::vector<Id>{m.body, m.condition})) {
      const Node n = a[id];
      bool order = n.op == Op::lt || n.op == Op::le;
      if ((!order && n.op != Op::eq && n.op != Op::ne) || a[n.arg(0)].type != DType::i64) continue;
      Poly d =
          affine::polynomial_through_divisions(a, n.arg(1), Poly::atom) - affine::polynomial_through_divisions(a, n.arg(0), Poly::atom);
      std::vector<Id> free(n.free_axes().begin(), n.free_axes().end());
      for (Id x : free) {
        Breaks& b = found[x];
        int64_t k = d.coefficient(x);
        bool plain = order && free.size() == 1 && (k == 1 || k == -1) && d.without(x).as_constant();
        if (!plain) {
          b.elsewhere = true;
          continue;
        }
        // d > 0 or d >= 0, for d = c - x or x - c
        int64_t strict = n.op == Op::lt, c = d.constant_term();
        b.common = std::gcd(b.common, k < 0 ? c + 1 - strict : strict - c);
      }
    }
  }
  return found;
}

}  // namespace

void split_blocks(KernelSpec& spec) {
  constexpr int64_t kMaxBlocks = 8, kShortest = 16;
  for (SpecMember& m : spec.members) {
    m.body = with_places_compared(*spec.arena, m.body);
    m.condition = with_places_compared(*spec.arena, m.condition);
  }
  try {
    for (auto [axis, b] : breaks_of(spec)) {
      const SpecAxis& x = spec.axes.at(axis);
      int64_t length = std::gcd(b.common, x.extent);
      auto summed = [&](const SpecMember& m) { return reduces(m, axis); };
      bool blocks = !b.elsewhere && length >= kShortest && x.extent / length >= 2 && x.extent / length <= kMaxBlocks;
      if (!blocks || x.kind() != AxisKind::untiled || in_the_way(spec, axis) || std::ranges::any_of(spec.members, summed)) continue;
      KernelSpec split = spec;
      PhaseSplit(split, axis, length, true, false).run();
      spec = std::move(split);
    }
  } catch (const affine::GaveUp&) {
  }
}

void tie_axis(KernelSpec& spec, Id axis, Id quotient, int64_t each) { PhaseSplit(spec, axis, each, false, false, quotient).run(); }

namespace {

void split_in_phases(KernelSpec& spec, Id axis, int64_t phases, bool views) {
  const SpecAxis& x = spec.axes.at(axis);
  bool even = x.extent % phases == 0 && (x.kind() != AxisKind::tiled || x.tile % phases == 0);
  if (!even || in_the_way(spec, axis)) return;
  KernelSpec split = spec;
  try {
    PhaseSplit(split, axis, phases, false, views).run();
    spec = std::move(split);
  } catch (const affine::GaveUp&) {  // an index of astronomic size: it stays one axis
  }
}

}  // namespace

void split_phases(KernelSpec& spec, Id axis, int64_t phases) { split_in_phases(spec, axis, phases, true); }
void split_phases_for_gpu(KernelSpec& spec, Id axis, int64_t phases) {
  const bool some = std::ranges::any_of(spec.members, [&](const SpecMember& m) {
    return std::ranges::any_of(reachable(*spec.arena, std::vector<Id>{m.body, m.condition}), [&](Id id) { return divides(*spec.arena, id, axis); });
  });
  if (some) split_in_phases(spec, axis, phases, false);
}

}  // namespace xhat::runtime

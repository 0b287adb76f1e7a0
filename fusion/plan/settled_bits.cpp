#include "fusion/plan/settled_bits.h"

#include <algorithm>
#include <ranges>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "cse/match/tensor_expr_tree.h"

namespace xhat {
namespace {

bool is_narrow(DType t) { return t == DType::f16 || t == DType::bf16; }

bool is_extreme(Op op) { return op == Op::max || op == Op::min || op == Op::argmax || op == Op::argmin; }

class Settler {
 public:
  explicit Settler(const Program& p) : p_(p), a_(*p_.arena) {}

  Program run() {
    for (const Definition& d : p_.definitions())
      if (!d.is_call() && (is_extreme(a_[d.body].op) || chooses_extreme(d.body))) extremes_.insert(d.target());
    for (const Definition& d : p_.definitions())
      if (!d.is_call()) find_deciders(d);
    for (const Definition& d : p_.definitions() | std::views::reverse)
      if (!d.is_call() && settled_.contains(d.target())) settle_definition(d);
    for (Definition& d : p_.definitions())
      if (!d.is_call()) d.body = marked(d.body);
    return std::move(p_);
  }

 private:
  void find_deciders(const Definition& d) {
    for (Id id : reachable(a_, d.body)) {
      const Node n = a_[id];
      if (n.arg_count == 0 || is_read(n.op)) continue;
      if (is_extreme(n.op)) {
        compared_for_equality(n.arg(0));
        continue;
      }
      if (!is_float(a_[n.arg(0)].type)) continue;
      if (n.op == Op::eq || n.op == Op::ne || (rounds(n) && !is_narrow(a_[n.arg(0)].type)))
        for (Id x : n.args()) compared_for_equality(x);
      else if (decides(n))
        for (Id x : n.args()) each_rounded(x);
      else if ((n.op == Op::add || n.op == Op::sub) && may_cancel(n))
        each_rounded(id);  // itself too: x*w - max(x*w) by an fma would be what the maximum lost by rounding
    }
  }

  // To an integer. Of a float.
  static bool rounds(const Node& n) { return (jumps(n.op) && n.op != Op::sign) || (n.op == Op::cast && is_integer(n.type)); }

  // The value jumps where the operand changes by its last bit.
  static bool decides(const Node& n) { return rounds(n) || n.op == Op::sign || (!is_float(n.type) && n.op != Op::select); }

  static bool is_choice(Op op) { return op == Op::maximum || op == Op::minimum || op == Op::clamp || op == Op::select || op == Op::neg; }

  // Does `is` hold for the value, or for one that it is found from through nodes for which `through` holds?
  template <class Through, class Is>
  bool found_from(Id root, Through through, Is is) const {
    std::vector<Id> found = {root};
    std::unordered_set<Id> seen = {root};
    for (size_t i = 0; i < found.size(); ++i) {
      if (is(found[i])) return true;
      const Node& n = a_[found[i]];
      if (!through(n.op)) continue;
      for (uint32_t k = n.op == Op::select ? 1 : 0; k < n.arg_count; ++k)
        if (seen.insert(n.arg(k)).second) found.push_back(n.arg(k));
    }
    return false;
  }

  // An extreme, or a choice among several of which one is an extreme: if m > -inf then m else 0.
  bool chooses_extreme(Id id) const {
    return found_from(id, is_choice, [&](Id x) { return is_read(a_[x].op) && extremes_.contains(a_[x].symbol); });
  }

  // Is the product a choice of the value's, or what the value is rounded from? x*w of max(x*w, b), or of floor(x*w).
  bool is_made_of(Id value, Id product) const {
    auto through = [](Op op) { return is_choice(op) || rounds_to_whole(op) || op == Op::cast; };
    return a_[product].op == Op::mul && found_from(value, through, [&](Id x) { return x == product; });
  }

  // Of add and sub: what is left of an operand where the other is about as large, and the difference is known to lie on one side of 0.
  bool may_cancel(const Node& n) const {
    const Id l = n.arg(0), r = n.arg(1);
    return chooses_extreme(l) || chooses_extreme(r) || is_made_of(l, r) || is_made_of(r, l);
  }

  void each_rounded(Id root) {
    for (Id id : reachable(a_, root)) rounded_.insert(id);
  }

  void compared_for_equality(Id root) {
    for (Id id : reachable(a_, root)) {
      rounded_.insert(id);
      if (stored_alike_.insert(id).second && is_read(a_[id].op)) settled_.insert(a_[id].symbol);
    }
  }

  void settle_definition(const Definition& d) {
    const Node n = a_[d.body];
    if (!is_reduction(n.op)) compared_for_equality(d.body);
    if (n.op == Op::prod) compared_for_equality(reduce_body(n));
  }

  Id mark(Id id) { return a_[id].op == Op::constant ? id : a_.unary(Op::stop_gradient, id); }

  // Is it in memory as it is here? Of an input it is.
  bool is_stored(const Node& n) const {
    return n.op == Op::constant || n.op == Op::cast || (n.op == Op::read && p_.tensors[n.symbol].role != Role::defined);
  }

  Id marked(Id root) {
    std::vector<Id> args;
    for (Id id : reachable(a_, root)) {
      if (done_.contains(id)) continue;
      const Node n = a_[id];
      args.clear();
      for (Id x : n.args()) args.push_back(done_.at(x));
      if (is_float(n.type) && rounded_.contains(id)) {
        if (n.op == Op::add || n.op == Op::sub)
          for (size_t i = 0; i < args.size(); ++i)
            if (a_[args[i]].op == Op::mul) args[i] = mark(args[i]);
        if (n.op == Op::div) args[1] = mark(args[1]);
      }
      Id made = a_.with_args(id, args);
      if (is_narrow(n.type) && stored_alike_.contains(id) && !is_stored(n)) made = mark(made);
      done_[id] = made;
    }
    return done_.at(root);
  }

  Program p_;
  Arena& a_;
  std::set<TensorId> extremes_;
  std::unordered_set<Id> rounded_;       // each operation of these by itself
  std::unordered_set<Id> stored_alike_;  // of these: with f16 and bf16 rounded as if they were stored
  std::set<TensorId> settled_;           // whose definitions are to be settled
  std::unordered_map<Id, Id> done_;
};

}  // namespace

Program settle_bits(const Program& p) { return Settler(p).run(); }

}  // namespace xhat

#include <algorithm>

#include <fmt/format.h>

#include "expr/core/conditions.h"
#include "expr/core/uses.h"
#include "expr/imperative/forms.h"
#include "expr/imperative/image.h"

namespace xhat::imperative {
namespace {

// One write, and what stands behind it.
class Newest {
 public:
  Newest(Context& c, const Write& w) : c_(c), a_(c.arena()), w_(w), around_(c.loop_ranges()) {}

  void read_by(Item& item) {
    if (auto* d = std::get_if<Definition>(&item.is)) {
      if (!d->is_call()) d->body = moved(d->body, within(d->axes));
    } else if (auto* w = std::get_if<Write>(&item.is)) {
      std::vector<Id> conditions;
      if (w->guard != kNone) conditions = conjuncts(a_, w->guard);
      w->body = moved(w->body, {within(w->axes).axes, conditions});
    }
  }

  // Does anything that was seen still need the value before the write?
  bool is_still_read() const { return still_read_; }

 private:
  struct Where {
    std::vector<AxisRange> axes;
    std::vector<Id> conditions;
  };
  Where within(const std::vector<AxisRange>& axes) const {
    Where all{around_, {}};
    all.axes.insert(all.axes.end(), axes.begin(), axes.end());
    return all;
  }

  Id moved(Id x, const Where& where) {
    const std::vector<TensorId> read = tensors_read(a_, x);
    if (std::ranges::find(read, w_.base) == read.end()) return x;
    if (const Id put = where_it_was_put(x, where); put != kNone) return put;
    const Node n = a_[x];
    std::vector<Id> args(n.args().begin(), n.args().end());
    if (n.op == Op::select) {
      Where then = where, otherwise = where;
      for (Id part : conjuncts(a_, args[0])) then.conditions.push_back(part);
      for (Id part : negated_conjuncts(a_, args[0])) otherwise.conditions.push_back(part);
      const Id sides[] = {moved(args[0], where), moved(args[1], then), moved(args[2], otherwise)};
      return a_.with_args(x, sides);
    }
    if (is_reduction(n.op)) {
      Where inner = where;
      for (const AxisRange& r : reduce_axes(n)) inner.axes.push_back(r);
      args[1] = moved(args[1], inner);
      for (Id part : conjuncts(a_, reduce_condition(n))) inner.conditions.push_back(part);
      args[0] = moved(args[0], inner);
      return a_.with_args(x, args);
    }
    for (Id& arg : args) arg = moved(arg, where);
    if (n.op == Op::read && n.symbol == w_.base && !is_written(args, where)) return a_.read(w_.result, n.type, args);
    still_read_ |= is_read(n.op) && n.symbol == w_.base;
    return a_.with_args(x, args);
  }

  // The element that holds x, if the write computed just that; kNone: it is not known to.
  Id where_it_was_put(Id x, const Where& where) {
    const Node& body = a_[w_.body];
    if (is_read(body.op) || body.arg_count == 0 || a_[x].type != c_.program.tensors[w_.result].type) return kNone;
    Replacements at;
    if (!matches(w_.body, x, at) || at.size() != w_.axes.size()) return kNone;
    std::vector<Id> place;
    for (Id index : w_.indices) place.push_back(c_.tidy(substitute(a_, index, at)));
    if (std::ranges::any_of(place, [&](Id index) { return reads_data(a_, index); })) return kNone;
    const Id before = a_.read(w_.base, a_[x].type, place);
    return value_at(c_, w_, place, where.axes, where.conditions, before) == x ? a_.read(w_.result, a_[x].type, place) : kNone;
  }

  // Is x the pattern with something in place of the write's axes?
  bool matches(Id pattern, Id x, Replacements& at) const {
    if (std::ranges::find(w_.axes, pattern, &AxisRange::axis) != w_.axes.end()) return at.emplace(pattern, x).first->second == x;
    if (std::ranges::none_of(w_.axes, [&](const AxisRange& r) { return a_[pattern].depends_on(r.axis); })) return pattern == x;
    const Node p = a_[pattern], n = a_[x];
    if (is_reduction(p.op) || p.op != n.op || p.arg_count != n.arg_count) return false;
    const std::vector<Id> args(n.args().begin(), n.args().end());
    if (a_.with_args(pattern, args) != x) return false;
    for (size_t k = 0; k < args.size(); ++k)
      if (!matches(p.arg(k), args[k], at)) return false;
    return true;
  }

  // May the write reach this place? An index that data decide is anywhere.
  bool is_written(std::vector<Id> place, const Where& where) {
    const Tensor& base = c_.program.tensors[w_.base];
    std::vector<AxisRange> axes = where.axes;
    bool known = false;
    for (size_t k = 0; k < place.size(); ++k) {
      known |= !reads_data(a_, place[k]);
      if (!reads_data(a_, place[k])) continue;
      place[k] = a_.axis(fmt::format("index {}", k));  // no axis of a program has such a name
      axes.push_back({place[k], a_.integer(0), base.shape[k]});
    }
    if (!known) return true;
    const Id before = a_.read(w_.base, base.type, place);
    return value_at(c_, w_, place, axes, where.conditions, before) != before;
  }

  Context& c_;
  Arena& a_;
  const Write& w_;
  bool still_read_ = false;
  const std::vector<AxisRange> around_;
};

}  // namespace

void read_newest(Context& c, Items& items) {
  if (c.state.loops.empty()) return;
  for (size_t k = 0; k + 1 < items.size(); ++k) {
    const auto* written = std::get_if<Write>(&items[k].is);
    if (!written || !is_invertible(c, *written)) continue;
    const Write w = *written;
    Newest newest(c, w);
    Items changed(items.begin() + static_cast<std::ptrdiff_t>(k) + 1, items.end());
    for (Item& item : changed) newest.read_by(item);
    if (newest.is_still_read()) continue;
    std::ranges::move(changed, items.begin() + static_cast<std::ptrdiff_t>(k) + 1);
  }
}

}  // namespace xhat::imperative

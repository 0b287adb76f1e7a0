#include "expr/imperative/written.h"

#include <algorithm>
#include <map>

#include "expr/index/linear.h"

namespace xhat::imperative {

namespace {

class Written {
 public:
  explicit Written(Context& c) : c_(c), a_(c.arena()) {}

  void run(Items& items) {
    for (Item& item : items) {
      if (auto* d = std::get_if<Definition>(&item.is)) {
        if (!d->is_call()) d->body = resolved(d->body);
      } else {
        auto& w = std::get<Write>(item.is);
        w.body = resolved(w.body);
        if (w.guard != kNone) w.guard = resolved(w.guard);
        for (Id& index : w.indices) index = resolved(index);
        writes_[w.result] = &w;
      }
    }
    Items all;
    for (Item& item : items) {
      if (const auto* w = std::get_if<Write>(&item.is))
        if (auto it = named_.find(w->result); it != named_.end()) all.emplace_back().is = std::move(it->second);
      all.push_back(std::move(item));
    }
    items = std::move(all);
  }

 private:
  enum class Meets { yes, no, unknown };

  // Does the write reach the place? `to` becomes where on its axes.
  Meets meets(const Write& w, std::span<const Id> place, Replacements& to) {
    Meets all = w.guard == kNone ? Meets::yes : Meets::unknown;
    const Shape& shape = c_.program.tensors[w.result].shape;
    for (size_t d = 0; d < place.size(); ++d) {
      const Id index = w.indices[d];
      auto r = std::ranges::find(w.axes, index, &AxisRange::axis);
      if (r != w.axes.end() && !to.contains(index) && is_constant(a_, r->begin, 0) && c_.scope.same_extent(r->end, shape[d])) {
        to[index] = place[d];
        continue;
      }
      const bool moves = std::ranges::any_of(w.axes, [&](const AxisRange& x) { return a_[index].depends_on(x.axis); });
      if (moves || reads_data(a_, index) || reads_data(a_, place[d])) {
        all = Meets::unknown;
        continue;
      }
      const Linear apart = linear(a_, a_.sub(place[d], index));
      if (!apart.terms.empty())
        all = Meets::unknown;
      else if (apart.constant != 0)
        return Meets::no;
    }
    return all;
  }

  // A number, or an element at a place that says where it is.
  bool is_plain(Id x) const {
    const Node& n = a_[x];
    return n.op == Op::constant || (n.op == Op::read && std::ranges::none_of(n.args(), [&](Id i) { return reads_data(a_, i); }));
  }

  Id resolved(Id body) {
    return rewrite(a_, body, [&](Id x) { return a_[x].op == Op::read ? element(x) : x; });
  }

  Id element(Id x) {
    for (;;) {
      const Node n = a_[x];
      if (n.op != Op::read) return x;
      auto it = writes_.find(n.symbol);
      if (it == writes_.end()) return x;
      Write& w = *it->second;
      const std::vector<Id> place(read_indices(n).begin(), read_indices(n).end());
      Replacements to;
      switch (meets(w, place, to)) {
        case Meets::unknown: return x;
        case Meets::no: x = a_.read(w.base, n.type, place); continue;
        case Meets::yes: break;
      }
      if (!is_plain(w.body)) {
        if (!w.axes.empty()) return x;
        name(w);
      }
      x = to.empty() ? w.body : substitute(a_, w.body, to);
    }
  }

  void name(Write& w) {
    Definition d;
    d.targets = {c_.new_tensor(c_.program.tensors[w.result].name, a_[w.body].type, {})};
    d.body = w.body;
    d.pos = w.pos;
    w.body = a_.read(d.target(), a_[w.body].type, {});
    named_[w.result] = std::move(d);
  }

  Context& c_;
  Arena& a_;
  std::map<TensorId, Write*> writes_;     // by their results
  std::map<TensorId, Definition> named_;   // what writes write, by their results
};

}  // namespace

void read_what_was_written(Context& c, Items& items) { Written(c).run(items); }

}  // namespace xhat::imperative

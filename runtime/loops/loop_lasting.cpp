// An access is a row of a place, in some iterations of the loops around it. A write is after a read if, of the loops that both stand in, the
// outermost one in which their iterations differ is further on, or none differs and the write stands behind the read. For each of these cases
// the difference of the two rows' indices is bounded, variable by variable from the innermost (Fourier and Motzkin's elimination of one form):
// if it is never zero in some dimension, the two never meet.
#include "runtime/loops/loop_lasting.h"

#include <algorithm>
#include <map>
#include <optional>

#include "expr/index/linear.h"

namespace xhat::runtime {
namespace {

struct Access {
  TensorId place;
  const Row* row;
  std::vector<const Loop*> around;  // outermost first
  size_t order;                     // in which it stands in the text
};

// Variables of the read, and of a write after it, have values of their own.
enum class Of : uint8_t { read, write };
struct Form {
  std::map<std::pair<Id, Of>, int64_t> terms;
  int64_t constant = 0;
  void add(const Form& f, int64_t scale) {
    constant += scale * f.constant;
    for (const auto& [term, k] : f.terms)
      if ((terms[term] += scale * k) == 0) terms.erase(term);
  }
};

class Accesses {
 public:
  Accesses(const Program& p, const DimValues& dims, const LoopBlocks& blocks, const LoopMemory& memory)
      : p_(p), dims_(dims), blocks_(blocks), memory_(memory) {}

  void walk(const Loop& loop) {
    for (const Carried& c : loop.carried) moved(c.entering, c.leaving), moved(c.result, c.entering);
    read_in(loop.begin), read_in(loop.end);
    around_.push_back(&loop);
    list(loop.test), list(loop.body);
    around_.pop_back();
  }

  bool is_lasting(TensorId place) const {
    return !changing_.contains(place) && std::ranges::none_of(reads_, [&](const Access& r) {
      return r.place == place && std::ranges::any_of(writes_, [&](const Access& w) { return w.place == place && may_meet(r, w); });
    });
  }

 private:
  const Program& p_;
  const DimValues& dims_;
  const LoopBlocks& blocks_;
  const LoopMemory& memory_;
  std::vector<const Loop*> around_;
  size_t order_ = 0;
  std::vector<Access> reads_, writes_;
  std::set<TensorId> changing_;  // places that are written whole, or read by what says where rows are

  void moved(TensorId to, TensorId from) {
    if (memory_.place(to) != memory_.place(from)) changing_.insert(memory_.place(to));
  }
  void read_in(Id expression) {
    if (expression == kNone) return;
    for (TensorId t : tensors_read(*p_.arena, expression)) changing_.insert(memory_.place(t));
  }
  Access access(TensorId t, const Row& row) {
    for (Id index : row) read_in(index);
    return {memory_.place(t), &row, around_, ++order_};
  }

  void list(const Steps& steps) {
    for (const Step& s : steps) std::visit([&](const auto& x) { step(x); }, s.is);
  }
  void step(const Block& b) {
    const LoopBlock& block = blocks_.at(&b);
    for (size_t k = 0; k < b.operands.size(); ++k) {
      const Operand& o = b.operands[k];
      read_in(o.scalar);
      if (o.scalar != kNone) continue;
      const Access a = access(o.value, o.row);
      if (block.backward_reads(LoopBlock::Role::Is::operand, k)) reads_.push_back(a);
    }
    for (TensorId t : b.results) changing_.insert(memory_.place(t));
  }
  void step(const Update& u) {
    moved(u.result, u.base);
    writes_.push_back(access(u.result, u.row));
  }
  void step(const Loop& l) {
    for (const Carried& c : l.carried) moved(c.entering, c.initial);
    walk(l);
  }
  void step(const Branch& b) {
    for (const Branch::Merge& m : b.merges) moved(m.result, m.then), moved(m.result, m.otherwise);
    changing_.insert(memory_.place(b.condition));
    list(b.then), list(b.otherwise);
  }

  bool may_meet(const Access& r, const Access& w) const {
    size_t common = 0;
    while (common < std::min(r.around.size(), w.around.size()) && r.around[common] == w.around[common]) ++common;
    for (size_t later = 0; later < common; ++later)
      if (!are_apart(r, w, later)) return true;
    return w.order > r.order && !are_apart(r, w, common);
  }

  // In iterations that are the same in the first `later` loops, and in the next one, if both stand in it, further on for the write.
  bool are_apart(const Access& r, const Access& w, size_t later) const {
    for (size_t d = 0; d < std::min(r.row->size(), w.row->size()); ++d) {
      if (is_whole(*r.row, d) || is_whole(*w.row, d)) continue;
      const auto at = form(*p_.arena, (*w.row)[d], Of::write, w, later), was = form(*p_.arena, (*r.row)[d], Of::read, r, later);
      if (!at || !was) continue;
      Form difference = *at, opposite = *was;
      difference.add(*was, -1), opposite.add(*at, -1);
      const auto least = least_of(difference, r, w, later), most = least_of(opposite, r, w, later);
      if ((least && *least > 0) || (most && *most > 0)) return true;
    }
    return false;
  }

  // None: it depends on data, or is not linear.
  std::optional<Form> form(const Arena& a, Id index, Of of, const Access& access, size_t later) const {
    const Linear l = linear(a, index);
    Form f;
    f.constant = l.constant;
    for (const auto& [node, k] : l.terms) {
      const Node& n = a[node];
      if (n.op == Op::dim) {
        f.constant += k * dims_.at(a.name(node));
      } else if (n.op == Op::axis) {
        const auto in = std::ranges::find(access.around, node, &Loop::variable);
        const bool same = in == access.around.end() || static_cast<size_t>(in - access.around.begin()) < later;
        f.terms[{node, same ? Of::read : of}] += k;
      } else {
        return {};
      }
    }
    return f;
  }

  // What it is at least while the variables run over their ranges; none: nothing is known.
  std::optional<int64_t> least_of(Form f, const Access& r, const Access& w, size_t later) const {
    for (size_t k = w.around.size(); k-- > later;)
      if (!bound(f, w, k, Of::write, r, later)) return {};
    for (size_t k = r.around.size(); k-- > 0;)
      if (!bound(f, r, k, Of::read, r, later)) return {};
    return f.terms.empty() ? std::optional(f.constant) : std::nullopt;
  }
  // Puts the bound of the variable of the k-th loop around in its place.
  bool bound(Form& f, const Access& of, size_t k, Of whose, const Access& r, size_t later) const {
    const Loop& l = *of.around[k];
    const auto found = f.terms.find({l.variable, whose});
    if (found == f.terms.end()) return true;
    const int64_t factor = found->second;
    f.terms.erase(found);
    std::optional<Form> end;
    if (factor < 0) {
      end = form(*p_.arena, l.end, whose, of, later);
      if (end) end->constant -= 1;
    } else if (whose == Of::write && k == later && k < r.around.size() && r.around[k] == &l) {
      end = Form{{{{l.variable, Of::read}, 1}}, l.stride};
    } else {
      end = form(*p_.arena, l.begin, whose, of, later);
    }
    if (end) f.add(*end, factor);
    return end.has_value();
  }
};

}  // namespace

std::set<TensorId> lasting_places(const Program& p, const Loop& loop, const DimValues& dims, const LoopBlocks& blocks, const LoopMemory& memory,
                                const std::set<TensorId>& read_back) {
  Accesses all(p, dims, blocks, memory);
  all.walk(loop);
  std::set<TensorId> found;
  for (TensorId t : read_back)
    if (all.is_lasting(t)) found.insert(t);
  return found;
}

}  // namespace xhat::runtime

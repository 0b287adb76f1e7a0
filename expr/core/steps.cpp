#include "expr/core/steps.h"

#include <algorithm>

namespace xhat {
namespace {

// What a step reads itself or within.
class Finder {
 public:
  explicit Finder(const Program& p) : p_(p) {}

  std::vector<TensorId> reads_of(const Step& step) {
    found_.clear();
    std::visit([&](const auto& s) { note(s); }, step.is);
    return std::move(found_);
  }

 private:
  void read(TensorId t) { found_.push_back(t); }
  void read_in(Id expression) {
    if (expression == kNone) return;
    for (TensorId t : tensors_read(*p_.arena, expression)) read(t);
  }
  void read_in(const std::vector<Id>& list) {
    for (Id x : list) read_in(x);
  }

  void note(const Block& b) {
    for (const Operand& o : b.operands) {
      read_in(o.scalar);
      read_in(o.row);
      if (o.scalar == kNone) read(o.value);
    }
  }
  void note(const Update& u) {
    read(u.base);
    read(u.value);
    read_in(u.row);
  }
  void note(const Loop& l) {
    for (Id bound : {l.begin, l.end}) read_in(bound);
    for (const Carried& c : l.carried) {
      read(c.initial);
      read(c.leaving);
    }
    if (l.condition) read(*l.condition);
    within(l.test);
    within(l.body);
  }
  void note(const Branch& b) {
    read(b.condition);
    within(b.then);
    within(b.otherwise);
    for (const Branch::Merge& m : b.merges) {
      read(m.then);
      read(m.otherwise);
    }
  }
  void within(const Steps& steps) {
    for (const Step& s : steps) std::visit([&](const auto& x) { note(x); }, s.is);
  }

  const Program& p_;
  std::vector<TensorId> found_;
};

// What the steps of a loop look at, other than by writing a part of it or handing it on, and what is handed on as what.
class Looks {
 public:
  explicit Looks(const Program& p) : p_(p) {}

  void list(const Steps& steps) {
    for (const Step& s : steps) std::visit([&](const auto& x) { note(x); }, s.is);
  }
  bool only_written(TensorId t) const {
    std::vector<TensorId> open = {t};
    std::unordered_set<TensorId> met = {t};
    while (!open.empty()) {
      const TensorId at = open.back();
      open.pop_back();
      if (looked_at_.contains(at)) return false;
      for (auto [from, to] : handed_)
        if (from == at && met.insert(to).second) open.push_back(to);
    }
    return true;
  }
  void hand(TensorId from, TensorId to) { handed_.emplace_back(from, to); }

 private:
  void look(TensorId t) { looked_at_.insert(t); }
  void look_in(const std::vector<Id>& ids) {
    for (Id id : ids)
      if (id != kNone)
        for (TensorId t : tensors_read(*p_.arena, id)) look(t);
  }
  void note(const Block& b) {
    for (const Operand& o : b.operands) {
      look_in({o.scalar});
      look_in(o.row);
      if (o.scalar == kNone) look(o.value);
    }
  }
  void note(const Update& u) {
    look_in(u.row);
    look(u.value);
    hand(u.base, u.result);
  }
  void note(const Loop& l) {
    look_in({l.begin, l.end});
    if (l.condition) look(*l.condition);
    for (const Carried& c : l.carried) {
      hand(c.initial, c.entering);
      hand(c.leaving, c.entering);
      hand(c.leaving, c.result);
      hand(c.initial, c.result);
    }
    list(l.test);
    list(l.body);
  }
  void note(const Branch& b) {
    look(b.condition);
    list(b.then);
    list(b.otherwise);
    for (const Branch::Merge& m : b.merges) {
      hand(m.then, m.result);
      hand(m.otherwise, m.result);
    }
  }

  const Program& p_;
  std::unordered_set<TensorId> looked_at_;
  std::vector<std::pair<TensorId, TensorId>> handed_;
};

std::vector<bool> writes_alone(const Program& p, const Loop& loop) {
  Looks looks(p);
  looks.list(loop.test);
  looks.list(loop.body);
  for (const Carried& c : loop.carried) looks.hand(c.leaving, c.entering);
  std::vector<bool> alone;
  for (const Carried& c : loop.carried) alone.push_back(looks.only_written(c.entering));
  return alone;
}

}  // namespace

Row in_value(const Row& row, std::span<const Id> element) {
  Row all;
  size_t next = 0;
  for (Id index : row) all.push_back(index == kNone ? element[next++] : index);
  all.insert(all.end(), element.begin() + static_cast<std::ptrdiff_t>(next), element.end());
  return all;
}

bool is_step_index(const Arena& a, Id index) {
  return std::ranges::all_of(reachable(a, index), [&](Id x) {
    const Node& n = a[x];
    return !is_float(n.type) && !is_reduction(n.op) && n.op != Op::random;
  });
}

std::vector<TensorId> made_by(const Step& step) {
  if (auto* b = std::get_if<Block>(&step.is)) return b->results;
  if (auto* u = std::get_if<Update>(&step.is)) return {u->result};
  std::vector<TensorId> made;
  if (auto* l = std::get_if<Loop>(&step.is))
    for (const Carried& c : l->carried) made.push_back(c.result);
  if (auto* b = std::get_if<Branch>(&step.is))
    for (const Branch::Merge& m : b->merges) made.push_back(m.result);
  return made;
}

std::unordered_set<TensorId> made_within(const Loop& loop) {
  std::unordered_set<TensorId> made;
  for (const Carried& c : loop.carried) made.insert(c.entering);
  for (const Steps* inner : {&loop.test, &loop.body})
    for_each_list(*inner, [&](const Steps& list) {
      for (const Step& s : list) {
        for (TensorId t : made_by(s)) made.insert(t);
        if (auto* l = std::get_if<Loop>(&s.is))
          for (const Carried& c : l->carried) made.insert(c.entering);
      }
    });
  return made;
}

void for_each_list(const Steps& steps, const std::function<void(const Steps&)>& f) {
  f(steps);
  for (const Step& s : steps) {
    if (auto* loop = std::get_if<Loop>(&s.is)) {
      for_each_list(loop->test, f);
      for_each_list(loop->body, f);
    }
    if (auto* branch = std::get_if<Branch>(&s.is)) {
      for_each_list(branch->then, f);
      for_each_list(branch->otherwise, f);
    }
  }
}

void for_each_block(const Steps& steps, const std::function<void(const Block&)>& f) {
  for_each_list(steps, [&](const Steps& list) {
    for (const Step& s : list)
      if (auto* block = std::get_if<Block>(&s.is)) f(*block);
  });
}

void for_each_expression(Steps& steps, const std::function<void(Id&)>& f) {
  auto call = [&](Id& id) {
    if (id != kNone) f(id);
  };
  for (Step& s : steps) {
    if (auto* block = std::get_if<Block>(&s.is))
      for (Operand& o : block->operands) {
        for (Id& id : o.row) call(id);
        call(o.scalar);
      }
    if (auto* update = std::get_if<Update>(&s.is))
      for (Id& id : update->row) call(id);
    if (auto* loop = std::get_if<Loop>(&s.is)) {
      for (Id* id : {&loop->variable, &loop->begin, &loop->end}) call(*id);
      for_each_expression(loop->test, f);
      for_each_expression(loop->body, f);
    }
    if (auto* branch = std::get_if<Branch>(&s.is)) {
      for_each_expression(branch->then, f);
      for_each_expression(branch->otherwise, f);
    }
  }
}

Steps map_blocks(const Steps& steps, const std::function<Block(const Block&)>& f) {
  Steps mapped = steps;
  for (Step& s : mapped) {
    if (auto* block = std::get_if<Block>(&s.is)) *block = f(*block);
    if (auto* loop = std::get_if<Loop>(&s.is)) {
      loop->test = map_blocks(loop->test, f);
      loop->body = map_blocks(loop->body, f);
    }
    if (auto* branch = std::get_if<Branch>(&s.is)) {
      branch->then = map_blocks(branch->then, f);
      branch->otherwise = map_blocks(branch->otherwise, f);
    }
  }
  return mapped;
}

Lifetimes::Lifetimes(const Program& p) : updated_(p.tensors.size(), false) {
  note(p, *p.steps, {}, p.outputs);
  // Memory is shared by what an Update makes of its base, and by the values of a loop or a branch that stand for each other.
  auto share = [&](TensorId a, TensorId b) {
    const bool changed = updated_[a] != updated_[b];
    if (changed) updated_[a] = updated_[b] = true;
    return changed;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for_each_list(*p.steps, [&](const Steps& list) {
      for (const Step& s : list) {
        if (auto* u = std::get_if<Update>(&s.is)) {
          changed |= !updated_[u->base] || !updated_[u->result];
          updated_[u->base] = updated_[u->result] = true;
        }
        if (auto* l = std::get_if<Loop>(&s.is))
          for (const Carried& c : l->carried) {
            changed |= share(c.entering, c.initial);
            changed |= share(c.entering, c.leaving);
            changed |= share(c.result, c.leaving);
          }
        if (auto* b = std::get_if<Branch>(&s.is))
          for (const Branch::Merge& m : b->merges) {
            changed |= share(m.result, m.then);
            changed |= share(m.result, m.otherwise);
          }
      }
    });
  }
}

bool Lifetimes::ends_at(const Steps& list, size_t step, TensorId t) const {
  return std::ranges::find(last_used(list, step), t) != last_used(list, step).end();
}

// made: what belongs to the list from its start. left: what is read after its last step.
void Lifetimes::note(const Program& p, const Steps& list, std::vector<TensorId> made, const std::vector<TensorId>& left) {
  std::unordered_map<TensorId, size_t> last;
  for (TensorId t : made) last.emplace(t, 0);
  Finder finder(p);
  for (size_t i = 0; i < list.size(); ++i) {
    for (TensorId t : finder.reads_of(list[i]))
      if (auto it = last.find(t); it != last.end()) it->second = i;
    for (TensorId t : made_by(list[i])) last[t] = i;
    if (auto* loop = std::get_if<Loop>(&list[i].is)) {
      std::vector<TensorId> entering, leaving;
      for (const Carried& c : loop->carried) entering.push_back(c.entering), leaving.push_back(c.leaving);
      // What the test makes stays for the body, and entering values are read by both.
      auto& within = within_[loop];
      within.insert(leaving.begin(), leaving.end());
      for (const Steps* inner : {&loop->test, &loop->body})
        for (const Step& s : *inner)
          for (TensorId t : finder.reads_of(s)) within.insert(t);
      made_within_[loop] = xhat::made_within(*loop);
      only_written_[loop] = writes_alone(p, *loop);
      std::vector<TensorId> kept = entering;
      if (loop->condition) kept.push_back(*loop->condition);
      for (const Step& s : loop->test) std::ranges::copy(made_by(s), std::back_inserter(kept));
      note(p, loop->test, {}, kept);
      note(p, loop->body, kept, leaving);
    }
    if (auto* branch = std::get_if<Branch>(&list[i].is)) {
      std::vector<TensorId> then, otherwise;
      for (const Branch::Merge& m : branch->merges) then.push_back(m.then), otherwise.push_back(m.otherwise);
      note(p, branch->then, {}, then);
      note(p, branch->otherwise, {}, otherwise);
    }
  }
  for (TensorId t : left) last.erase(t);
  auto& dies = lists_[&list];
  dies.assign(list.size(), {});
  for (auto [t, i] : last)
    if (i < list.size()) dies[i].push_back(t);
  for (auto& d : dies) std::ranges::sort(d);
}

}  // namespace xhat

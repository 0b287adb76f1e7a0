#include "runtime/lazy/kept.h"

#include <algorithm>
#include <atomic>
#include <unordered_set>

#include "runtime/lazy/graph.h"
#include "runtime/lazy/movement.h"
#include "runtime/lazy/needs.h"
#include "runtime/lazy/plans.h"
#include "runtime/lazy/state.h"

namespace xhat::lazy::detail {
namespace {

// What was kept so often in a row for nothing is not kept any more, until it is asked for again.
constexpr int kMostUnused = 4;

std::atomic<int64_t> living_kept = 0;

struct Derivatives {
  std::mutex mutex;
  std::vector<std::weak_ptr<Node>> made;
  size_t limit = 64;  // at which those are dropped that are gone
};
Derivatives& derivatives() {
  static auto* held = new Derivatives;
  return *held;
}

bool is_derivative(const Node& n) { return n.kind == Kind::grad && n.args.size() == 2; }

// Those that are not computed yet.
std::vector<NodePtr> living_derivatives() {
  Derivatives& d = derivatives();
  std::lock_guard lock(d.mutex);
  std::vector<NodePtr> living;
  for (const auto& weak : d.made)
    if (NodePtr n = weak.lock(); n && is_derivative(*n)) living.push_back(std::move(n));
  return living;
}

// What movement of memory is movement of.
Node* base_of(Node* n) {
  while (is_movement(n->kind)) n = n->args[0].get();
  return n;
}

// Can a derivative by this leaf be carried back to what it is movement of?
bool has_way_back(const Node* n) {
  for (; is_movement(n->kind); n = n->args[0].get()) {
    if (n->kind == Kind::reshape) continue;
    if (n->kind != Kind::slice) return false;
    for (size_t d = 0; d < n->shape.size(); ++d)
      if (slice_step(n->params, d, n->args[0]->shape[d]).step != 1) return false;
  }
  return n->realized();
}

// From a derivative by such a leaf to that by its base: outside of a slice it is zero.
NodePtr taken_back(const Node* n, NodePtr derivative) {
  for (; is_movement(n->kind); n = n->args[0].get()) {
    const Shape& whole = n->args[0]->shape;
    if (n->kind == Kind::reshape) {
      derivative = make(Kind::reshape, n->type, whole, {derivative});
      continue;
    }
    Params around;
    for (size_t d = 0; d < whole.size(); ++d) {
      const int64_t begin = slice_step(n->params, d, whole[d]).begin;
      around.append(std::initializer_list<int64_t>{begin, whole[d] - begin - n->shape[d]});
    }
    derivative = make(Kind::pad, n->type, whole, {derivative, constant(n->type, 0)}, around);
  }
  return derivative;
}

bool is_terminal(const Node& n) { return n.realized() && !n.origin; }

}  // namespace

Kept::Kept() { ++living_kept; }
Kept::~Kept() {
  --living_kept;
  if (!used) ++asked->unused;
}

void remember_derivative(const NodePtr& grad) {
  Derivatives& d = derivatives();
  std::lock_guard lock(d.mutex);
  d.made.push_back(grad);
  if (d.made.size() < d.limit) return;
  std::erase_if(d.made, [](const std::weak_ptr<Node>& n) { return n.expired(); });
  d.limit = 2 * d.made.size() + 64;
}

void learn(std::span<Node* const> again, uint64_t marked) {
  for (const Node* n : again) {
    if (!n->made || n->kept) continue;
    Asked& asked = *n->made->asked;
    asked.roots[n->made_as] = 1;
    for (size_t i = 0; i < asked.leaves.size(); ++i)
      if (const NodePtr leaf = n->made->leaves[i].lock()) asked.leaves[i] |= leaf->need_mark == marked && leaf->need;
  }
}

Wants wants_of(const Walk& w, Asked& asked) {
  if (asked.unused >= kMostUnused) {
    std::ranges::fill(asked.roots, 0);
    asked.unused = 0;
  }
  Wants wants{asked.roots, asked.leaves};
  const uint64_t epoch_here = next_epoch();
  for (const Item& item : w.graph.items) item.node->seen_mark = epoch_here;
  auto is_here = [&](const Node* n) { return n->seen_mark == epoch_here; };
  for (const NodePtr& g : living_derivatives()) {
    Node* loss = g->args[0].get();
    if (loss->realized()) continue;
    Node* by = g->args[1].get();
    // What is derived in this program needs nothing kept; what is by a value that the program computes cannot be had from its backward.
    if (is_here(g.get()) || (is_here(by) && by->leaf_mark != w.leaf_epoch)) continue;
    uint64_t epoch = 0;
    try {
      epoch = mark_dependents(loss, {&by, 1}, {});
    } catch (const Error&) {
      continue;  // it is refused when its turn comes
    }
    auto depends = [&](const Node* n) { return n->need_mark == epoch && n->need; };
    std::vector<uint32_t> leaves;
    bool all = true;
    for (uint32_t i = 0; i < w.leaves.size(); ++i)
      if (depends(w.leaves[i])) leaves.push_back(i), all &= has_way_back(w.leaves[i]);
    if (leaves.empty() || !all) continue;
    std::unordered_set<Node*> seen;
    std::vector<Node*> stack = {loss};
    while (!stack.empty()) {
      Node* n = stack.back();
      stack.pop_back();
      if (!depends(n) || !seen.insert(n).second) continue;
      const auto root = std::ranges::find(w.roots, n);
      if (root != w.roots.end()) {
        wants.roots[static_cast<size_t>(root - w.roots.begin())] = 1;
        for (uint32_t i : leaves) wants.leaves[i] = 1;
      } else if (!n->realized()) {
        for (const NodePtr& a : n->args) stack.push_back(a.get());
      }
    }
  }
  for (size_t r = 0; r < wants.roots.size(); ++r) wants.roots[r] &= is_float(w.roots[r]->type) && !is_pending(*w.roots[r]);
  for (size_t i = 0; i < wants.leaves.size(); ++i) wants.leaves[i] &= is_float(w.leaves[i]->type) && has_way_back(w.leaves[i]);
  auto any = [](const std::vector<char>& v) { return std::ranges::find(v, 1) != v.end(); };
  if (!any(wants.roots) || !any(wants.leaves)) return {};
  return wants;
}

std::shared_ptr<const MadeHow> how_made(const Walk& w, const Plan& plan) {
  auto made = std::make_shared<MadeHow>();
  made->asked = plan.asked;
  made->leaves.reserve(w.leaves.size());
  for (Node* n : w.leaves) made->leaves.push_back(n->weak_from_this());
  return made;
}

std::shared_ptr<Kept> what_was_kept(const Walk& w, const Plan& plan, std::span<const std::shared_ptr<Storage>> memory) {
  if (!plan.later) return nullptr;
  const Later& later = *plan.later;
  auto kept = std::make_shared<Kept>();
  kept->backward = later.backward;
  kept->asked = plan.asked;
  int generation = 0;
  for (Node* n : w.leaves) {
    kept->leaves.push_back(n->weak_from_this());
    generation = std::max(generation, n->generation);
  }
  NodeList inputs;
  for (uint32_t i : plan.leaves) inputs.push_back(w.leaves[i]->shared_from_this());
  for (uint32_t i : plan.numbers) inputs.push_back(w.numbers[i]->shared_from_this());
  for (uint32_t i : later.by) kept->by.push_back(inputs[i]);
  std::vector<Node*> results;  // per result: a root that it is
  for (uint32_t output : later.results)
    results.push_back(w.roots[static_cast<size_t>(std::ranges::find(plan.outputs, output) - plan.outputs.begin())]);
  for (const Node* n : results) kept->types.push_back(n->type), kept->shapes.push_back(n->shape);
  NodeList values;
  for (size_t k = 0; k < memory.size(); ++k) {
    values.push_back(leaf(memory[k]));
    Node& n = *values[k];
    n.origin = make(Kind::call, n.type, n.shape, inputs, {static_cast<int64_t>(later.results.size() + k)});
    n.origin->program = later.forward;
    n.generation = generation + 1;
  }
  for (const Later::Argument& a : later.arguments) {
    Kept::Input& input = kept->inputs.emplace_back();
    switch (a.from) {
      case Later::From::input: input.node = inputs[a.number]; break;
      case Later::From::stash: input.node = values[a.number]; break;
      case Later::From::result: input.result = results[a.number]->weak_from_this(); break;
      case Later::From::cotangent: input.cotangent = static_cast<int>(a.number); break;
    }
  }
  return kept;
}

void attach(const std::shared_ptr<Kept>& kept, const std::shared_ptr<const MadeHow>& made, const Walk& w, const Plan& plan, size_t root) {
  Node& n = *w.roots[root];
  if (!n.origin) return;
  n.made = made;
  n.made_as = static_cast<uint32_t>(root);
  if (!kept) return;
  const auto at = std::ranges::find(plan.later->results, plan.outputs[root]) - plan.later->results.begin();
  if (at == std::ssize(plan.later->results)) return;
  n.kept = kept;
  n.kept_as = static_cast<uint32_t>(at);
  for (size_t i = 0; i < kept->inputs.size(); ++i)
    if (const Later::Argument& a = plan.later->arguments[i]; a.from == Later::From::result && a.number == n.kept_as)
      kept->inputs[i].memory = n.storage;
}

std::vector<std::string> wanted_of_loops(Node& call) {
  const Program& p = *call.program;
  std::vector<char> wanted(p.inputs.size(), 0);
  for (const NodePtr& g : living_derivatives()) {
    Node *loss = g->args[0].get(), *by = g->args[1].get();
    uint64_t epoch = 0;
    try {
      epoch = mark_dependents(loss, {&by, 1}, {});
    } catch (const Error&) {
      continue;  // it is refused when its turn comes
    }
    auto depends = [&](const Node& n) { return n.need_mark == epoch && n.need; };
    if (!depends(call)) continue;
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] |= depends(*call.args[i]);
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < wanted.size(); ++i)
    if (const xhat::Tensor& t = p.tensor(p.inputs[i]); wanted[i] && is_float(t.type) && !t.constant) names.push_back(t.name);
  return names;
}

void attach_loops(const Node& call, std::span<Node* const> results, std::span<const std::shared_ptr<Storage>> memory,
                  std::shared_ptr<Ran> ran) {
  const Program& p = *call.program;
  auto kept = std::make_shared<Kept>();
  kept->loops = true;
  kept->backward = call.program;
  kept->asked = std::make_shared<Asked>();
  kept->ran = std::move(ran);
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    const NodePtr& operand = call.args[i];
    kept->inputs.emplace_back().node = operand;
    kept->leaves.push_back(operand);
    if (const xhat::Tensor& t = p.tensor(p.inputs[i]); !is_float(t.type) || t.constant) continue;
    kept->by.push_back(operand);
    kept->by_input.push_back(static_cast<int64_t>(i));
  }
  for (size_t o = 0; o < p.outputs.size(); ++o) {
    Kept::Input& input = kept->inputs.emplace_back();
    input.memory = memory[o];
    if (results[o]) input.result = results[o]->weak_from_this();
  }
  for (size_t o = 0; o < p.outputs.size(); ++o) {
    const DType type = p.tensor(p.outputs[o]).type;
    if (!is_float(type)) continue;
    const auto number = static_cast<uint32_t>(kept->types.size());
    kept->inputs.emplace_back().cotangent = static_cast<int>(number);
    kept->types.push_back(type);
    kept->shapes.push_back(Shape(memory[o]->view.extents()));
    if (results[o] && results[o]->origin) results[o]->kept = kept, results[o]->kept_as = number;
  }
}

class ThroughKept::Builder {
 public:
  Builder(Node* loss, std::vector<Node*> by) : loss_(loss), by_(by.begin(), by.end()) {
    epoch_ = mark_dependents(loss, by, {});
    collect(loss);
  }

  std::unordered_map<Node*, NodePtr> run() {
    for (size_t i = 0; i < active_.size() && !given_up_; ++i) {
      Kept* k = active_[i]->kept.get();
      if (std::ranges::find(kept_, k) != kept_.end()) continue;
      kept_.push_back(k);
      for (const NodePtr& leaf : k->by) {
        if (!depends(leaf.get()) || by_.contains(leaf.get())) continue;
        Node* base = k->loops ? leaf.get() : base_of(leaf.get());
        if (by_.contains(base)) continue;
        if (!k->loops || (base->realized() && is_usable(base)))
          activate(base);
        else if (std::ranges::find(entries_, base) == entries_.end())
          entries_.push_back(base), collect(base);
      }
    }
    if (given_up_ || through_.empty()) return {};
    std::unordered_map<Node*, NodePtr> found;
    for (Node* b : by_)
      if (NodePtr all = total(b)) found.emplace(b, std::move(all));
    return found;
  }

 private:
  bool depends(const Node* n) const { return n->need_mark == epoch_ && n->need; }

  void activate(Node* n) {
    if (std::ranges::find(active_, n) == active_.end()) active_.push_back(n);
  }

  // From the loss, or from what loops were called with, down to what it is by, or to results of programs that kept something.
  void collect(Node* from) {
    std::unordered_set<Node*>& reached = reached_[from];
    std::unordered_set<Node*> seen;
    std::vector<Node*> stack = {from};
    while (!stack.empty() && !given_up_) {
      Node* n = stack.back();
      stack.pop_back();
      if (!depends(n) || !seen.insert(n).second) continue;
      if (by_.contains(n)) {
        reached.insert(n);
      } else if (n->realized() && is_usable(n)) {
        reached.insert(n);
        if (std::ranges::find(through_, n) == through_.end()) through_.push_back(n);
        activate(n);
      } else {
        const Node& as = n->realized() && n->origin ? *n->origin : *n;
        // A derivative looks through realized values itself; loops are to run first.
        given_up_ |= as.kind == Kind::grad || has_loops(as);
        for (const NodePtr& a : as.args) stack.push_back(a.get());
      }
    }
  }

  bool is_usable(Node* n) {
    if (!n->kept) return false;
    const auto [at, fresh] = usable_.try_emplace(n, false);
    if (!fresh) return at->second;
    const Kept& k = *n->kept;
    std::vector<Node*> leaves;
    for (const auto& weak : k.leaves)
      if (const NodePtr leaf = weak.lock()) leaves.push_back(leaf.get());
    auto is_there = [](const Kept::Input& i) {
      if (i.cotangent >= 0) return true;
      if (i.node) return !base_of(i.node.get())->expired;
      const NodePtr result = i.result.lock();
      return !result || !result->expired;
    };
    bool fits = std::ranges::all_of(k.inputs, is_there);
    for (Node* leaf : leaves) {
      if (!fits || k.loops || !depends(leaf)) continue;
      const bool has = std::ranges::any_of(k.by, [&](const NodePtr& b) { return b.get() == leaf; });
      Node* base = base_of(leaf);
      fits = has && (by_.contains(leaf) || by_.contains(base) || (base->realized() && is_usable(base)));
    }
    fits = fits && !has_inside(*n, leaves);
    return usable_[n] = fits;
  }

  // Is a derivative wanted by a value inside of the program that computed n?
  bool has_inside(const Node& n, const std::vector<Node*>& leaves) const {
    std::unordered_set<const Node*> seen(leaves.begin(), leaves.end());
    std::vector<Node*> stack;
    auto push = [&](const Node& of) {
      for (const NodePtr& a : of.args) stack.push_back(a.get());
    };
    push(*n.origin);
    while (!stack.empty()) {
      Node* next = stack.back();
      stack.pop_back();
      if (!seen.insert(next).second) continue;
      if (by_.contains(next)) return true;
      push(next->realized() && next->origin ? *next->origin : *next);
    }
    return false;
  }

  // The derivative of the loss by memory; null: it does not depend on it.
  NodePtr total(Node* n) {
    if (auto it = totals_.find(n); it != totals_.end()) return it->second;
    NodePtr all;
    auto add = [&](NodePtr part) { all = all ? elementwise(Op::add, {all, part}, {"grad", Location::current()}) : std::move(part); };
    if (n == loss_) {
      add(constant(n->type, 1, n->shape));
    } else if (reached_[loss_].contains(n)) {
      add(direct(loss_->shared_from_this(), n));
    }
    for (Node* entry : entries_)
      if (reached_[entry].contains(n))
        if (NodePtr product = carried_to(entry)) add(direct(product, n));
    for (Kept* k : kept_)
      for (size_t o = 0; o < k->by.size(); ++o)
        if (k->by[o].get() == n || (!k->loops && !by_.contains(k->by[o].get()) && base_of(k->by[o].get()) == n))
          add(k->by[o].get() == n ? call(*k, o) : taken_back(k->by[o].get(), call(*k, o)));
    return totals_[n] = all;
  }

  // By n on ways that end at nothing that kept something.
  NodePtr direct(const NodePtr& loss, Node* n) {
    NodeList args = {loss, n->shared_from_this()};
    for (Node* t : through_)
      if (t != n) args.push_back(t->shared_from_this());
    return make(Kind::grad, n->type, n->shape, args);
  }

  // A number whose derivative is that of the loss on the ways through what loops were called with; null: none.
  NodePtr carried_to(Node* entry) {
    if (auto it = products_.find(entry); it != products_.end()) return it->second;
    NodePtr all;
    const Site site{"grad", Location::current()};
    for (Kept* k : kept_)
      for (size_t o = 0; o < k->by.size(); ++o)
        if (k->loops && k->by[o].get() == entry) {
          NodePtr part = call(*k, o);
          all = all ? elementwise(Op::add, {all, part}, site) : std::move(part);
        }
    if (all) {
      all = elementwise(Op::mul, {entry->shared_from_this(), elementwise(Op::stop_gradient, {all}, site)}, site);
      if (const auto rank = static_cast<int64_t>(all->shape.size()); rank > 0) {
        Params over;
        for (int64_t d = 0; d < rank; ++d) over.push_back(d);
        all = make(Kind::reduce, entry->type, {}, {all}, over);
        all->op = Op::sum;
      }
    }
    return products_[entry] = all;
  }

  NodePtr call(Kept& k, size_t output) {
    auto [it, fresh] = arguments_.try_emplace(&k);
    if (fresh) {
      NodeList args;
      for (const Kept::Input& i : k.inputs) args.push_back(argument(k, i));
      it = arguments_.insert_or_assign(&k, std::move(args)).first;  // others may have come meanwhile
      k.used = true;
      k.asked->unused = 0;
    }
    NodePtr n = make(Kind::call, k.by[output]->type, k.by[output]->shape, it->second, {static_cast<int64_t>(output)});
    n->program = k.backward;
    if (!k.loops) return n;
    n->params = {k.by_input[output], 1};
    n->kept = k.shared_from_this();
    return n;
  }

  NodePtr argument(Kept& k, const Kept::Input& input) {
    if (input.node) return input.node;
    if (input.cotangent < 0) {
      NodePtr result = input.result.lock();
      return result ? result : leaf(input.memory);
    }
    NodePtr all;
    for (Node* n : active_) {
      if (n->kept.get() != &k || static_cast<int>(n->kept_as) != input.cotangent) continue;
      NodePtr part = total(n);
      if (part) all = all ? elementwise(Op::add, {all, part}, {"grad", Location::current()}) : part;
    }
    const auto c = static_cast<size_t>(input.cotangent);
    return all ? all : constant(k.types[c], 0, k.shapes[c]);
  }

  Node* loss_;
  const std::unordered_set<Node*> by_;
  uint64_t epoch_ = 0;
  bool given_up_ = false;
  std::vector<Node*> through_;  // where direct parts end
  std::vector<Node*> entries_;  // what loops were called with, where further direct parts begin
  std::unordered_map<Node*, std::unordered_set<Node*>> reached_;  // by the direct part from the loss, or an entry
  std::unordered_map<Node*, NodePtr> products_;                   // per entry
  std::vector<Node*> active_;                                     // results whose cotangents go into calls
  std::vector<Kept*> kept_;
  std::unordered_map<Node*, bool> usable_;
  std::unordered_map<Node*, NodePtr> totals_;
  std::unordered_map<const Kept*, NodeList> arguments_;
};

void ThroughKept::operator()(Node& g) {
  if (living_kept == 0 || !is_derivative(g)) return;
  Node *loss = g.args[0].get(), *by = g.args[1].get();
  Node* alone = is_terminal(*by) ? nullptr : by;
  auto group = std::ranges::find_if(groups_, [&](const Group& o) { return o.loss == loss && o.alone == alone; });
  if (group == groups_.end()) {
    std::vector<Node*> all = {by};
    if (!alone)
      for (const NodePtr& other : living_derivatives())
        if (Node* b = other->args[1].get(); other->args[0].get() == loss && is_terminal(*b) && std::ranges::find(all, b) == all.end())
          all.push_back(b);
    groups_.push_back({loss, alone, Builder(loss, all).run()});
    group = groups_.end() - 1;
  }
  const auto found = group->totals.find(by);
  if (found == group->totals.end()) return;
  const Node& all = *found->second;
  g.kind = all.kind;
  g.op = all.op;
  g.args = all.args;
  g.params = all.params;
  g.value = all.value;
  g.program = all.program;
  g.kept = all.kept;
}

}  // namespace xhat::lazy::detail

// Finding and replacing a forward value inside backward bodies; the steps of cse_optimizer.
#pragma once
#include <functional>
#include <set>
#include <unordered_map>

#include "cse/share/stored_forms.h"

namespace xhat {

// A product inside a forward body, with the axes in scope there.
struct ForwardPart {
  Product form;
  std::vector<AxisRange> scope;
  std::vector<Id> names;  // the axes' own names, parallel to scope
  TensorId definition;
  uint32_t number;  // the same for the same product
};

// A product inside a backward body, with the axes in scope there; its factors by what can stand for them.
struct BackwardPart {
  Product form;
  std::vector<AxisRange> scope;
  std::vector<std::pair<uint64_t, size_t>> by_shape;
  std::vector<TensorId> definitions = {};  // that have it
  uint32_t number = 0;                     // the same for the same product
  std::span<const std::pair<uint64_t, size_t>> of_shape(uint64_t shape) const;
};

// A common sub-product: a part of `of`.
struct Share {
  const ForwardPart* of = nullptr;
  Product form;
  double score = 0;
};

// What a search is for, by shape: expressions without it are passed over.
struct Wanted {
  std::vector<uint64_t> shapes;               // of one factor that every occurrence has
  bool guards = false;                        // is a form wanted that holds under a condition?
  std::unordered_map<Id, bool> below = {};    // does anything inside the node have one of them?
  std::unordered_map<Id, bool> reached = {};  // does the node, as a product of its own, or anything that it is made of?
};

class Sharing {
 public:
  // same_bits: is a read of a stored value the same as this expression to the bit? dropped: inputs and outputs
  // that are gone after the forward, if it does not keep a copy. kept: would this tensor be kept for the backward to read?
  // keeps_digits: is `after` as accurate as `before`; nonnegative: can the value not be negative (accuracy.h)?
  using KeepsDigits = std::function<bool(const Product& before, const Product& after)>;
  Sharing(TensorExprTree& tree, std::function<bool(Id read, Id value)> same_bits, std::function<bool(TensorId)> kept,
          KeepsDigits keeps_digits, std::function<bool(Id)> nonnegative, std::set<TensorId> dropped)
      : tree_(tree),
        a_(tree.arena()),
        same_bits_(std::move(same_bits)),
        kept_(std::move(kept)),
        keeps_digits_(std::move(keeps_digits)),
        nonnegative_(std::move(nonnegative)),
        dropped_(std::move(dropped)) {}

  // The product with occurrences of the value (all forms are of one tensor) read instead, if that is
  // cheaper; and, if asked, where it loses no digits.
  Product fold(const Program& p, const Product& target, const std::vector<StoredValue>& forms, std::span<const AxisRange> scope);
  bool with_all_digits = false;
  // What is known to hold where the product stands that is folded: of the sum around it, and of the choices in which it is.
  std::vector<Id> known;
  BackwardPart backward_part(const Product& form, std::span<const AxisRange> scope);
  // The best common sub-product, if any is worth storing.
  std::optional<Share> common(const ForwardPart& part, const BackwardPart& target);
  // No sub-product of the part has a higher score. roots: may the exponents be odd halves?
  double highest_score(const ForwardPart& part, bool roots);
  // Nor what it has in common with this target; negative if that is not worth storing in any case.
  double highest_score(const ForwardPart& part, const BackwardPart& target);

  Wanted wanted(const std::vector<StoredValue>& forms);

  // Applies f to every product of the expression, top-down (f's result is descended into). f keeps products without what is
  // wanted.
  using Step = std::function<Product(const Product&)>;
  Product everywhere(const Product& root, Wanted& wanted, const Step& f);
  // The condition with operands of comparisons replaced where f leaves nothing of them but a read.
  Id in_condition(Id condition, Wanted& wanted, const Step& f);
  // Every product of the expression or condition, in the same order. False: but for some that are nested too deeply.
  using Look = std::function<void(const Product&)>;
  bool each_product(const Product& root, const Look& look);
  bool each_product_in_condition(Id condition, const Look& look);

 private:
  std::optional<Product> fold_once(const Program& p, const Product& target, const StoredValue& v, std::span<const AxisRange> scope,
                                   bool any_price);
  int64_t spared_reads_ps(Id value, size_t rank) const;
  int64_t saved_ps(const Program& p, TensorId chosen, const Product& before, const Product& after);
  bool is_known(Id condition, const Binding& binding);
  Product instance(const Product& pattern, const Binding& binding);
  const Product& instance(Id atom, const Binding& binding);
  double score_of(const ForwardPart& part, int64_t cost_ps);
  Unifier& unifier(std::span<const AxisRange> axes);
  int64_t cost_ps(Id value);
  Product replacement(const Program& p, const StoredValue& v, const Binding& binding);
  std::vector<Factor> required(const StoredValue& v) const;
  bool holds(const Product& p, Wanted& wanted, int depth);
  bool holds_below(Id node, Wanted& wanted, int depth);
  bool holds_reached(Id node, Wanted& wanted);
  Product walk(const Product& root, Wanted& wanted, const Step& f, int depth);
  Id walk_atom(Id atom, Wanted& wanted, const Step& f, int depth);
  Id walk_condition(Id condition, Wanted& wanted, const Step& f, int depth);
  struct Seen {
    std::set<Id> atoms;    // looked into
    std::set<Id> reached;  // by conditions, with all that they are made of
  };
  bool look_at(const Product& root, const Look& look, Seen& seen, int depth);
  bool look_at_condition(Id condition, const Look& look, Seen& seen, int depth);
  template <class F, class C>
  void each_inside(Id atom, F&& f, C&& on_condition);
  Id stored_instead(Id x, Wanted& wanted, const Step& f, int depth);

  TensorExprTree& tree_;
  Arena& a_;
  std::function<bool(Id, Id)> same_bits_;
  std::function<bool(TensorId)> kept_;
  KeepsDigits keeps_digits_;
  std::function<bool(Id)> nonnegative_;
  std::set<TensorId> dropped_;
  std::map<std::vector<Id>, std::map<Id, Id>> memo_;  // by what is known
  std::unordered_map<Id, Id> in_conditions_;  // what stands for a node inside a condition
  // What has been found out before, for as long as the arena grows: every round asks for most of it again.
  std::map<std::set<Id>, Unifier> unifiers_;
  std::map<Binding, std::unordered_map<Id, Product>> instances_;
  std::unordered_map<Id, int64_t> costs_;
};

}  // namespace xhat

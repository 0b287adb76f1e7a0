// The work behind cse_optimizer.h: forward and backward of one program in normal form, and what has been found out about their products.
// What stands where, and what is shared next: share_search.cpp. Reading it instead of computing it again: cse_optimizer.cpp.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "cse/algebra/accuracy.h"
#include "cse/match/bodies.h"
#include "cse/normalize/auto_inliner.h"
#include "cse/share/sharing.h"
#include "cse/share/stored_branches.h"

namespace xhat {

class Optimizer {
 public:
  explicit Optimizer(const Program& p, const std::vector<TensorId>& dropped = {}, bool save_reads = false)
      : p_(p),
        a_(*p.arena),
        tree_(a_),
        sharing_(
            tree_, [this](Id read, Id value) { return same_bits(read, value); }, [this](TensorId t) { return kept_for_backward(t); },
            [this](const Product& before, const Product& after) { return keeps_digits(before, after); },
            [this](Id value) { return accuracy_.nonnegative(value); }, {dropped.begin(), dropped.end()}),
        accuracy_(p_, tree_),
        deciding_(feeds_control(p)),
        dropped_(dropped.begin(), dropped.end()),
        save_reads_(save_reads) {}

  Program reuse(const std::vector<TensorId>& stored);
  Program reuse_backward();
  // Maps of the forward that sums of the backward read, as they would compute them again and again: others read them too, where that is
  // cheaper. Those that are.
  std::vector<TensorId> reuse_maps(const std::vector<TensorId>& kept);
  // The largest value to share, and those next to it that are between other definitions: each is a forward definition now, which the
  // backward reads where that is cheaper. None: there is nothing left to share.
  std::vector<TensorId> next_shares(const std::vector<TensorId>& kept, std::set<Id>& refused);
  bool complete() const { return complete_; }
  int64_t compared() const { return compared_; }
  const Program& program() const { return p_; }
  TensorExprTree& tree() { return tree_; }
  // Another program over the same arena: what is known of expressions stays.
  void turn_to(const Program& p) {
    p_ = p;
    deciding_ = feeds_control(p);
    accuracy_.forget();
  }

 private:
  struct Forward {
    Definition definition;
    Pattern pattern;
    Product form;
    bool map;
  };
  void collect_forward(const std::vector<TensorId>& kept);
  void collect_parts(const Forward& f);
  std::vector<BackwardPart> backward_products();
  // Of a map, or of a sum and its condition. False: but for some that are nested too deeply.
  bool each_product_of(const Definition& d, const Sharing::Look& look);
  uint32_t number_of(const Product& p, const std::vector<AxisRange>& scope);
  std::optional<Share> common(const ForwardPart& part, const BackwardPart& target) {
    auto [known, fresh] = common_.try_emplace({part.number, target.number});
    if (fresh) {
      ++compared_;
      known->second = sharing_.common(part, target);
    }
    std::optional<Share> share = known->second;
    if (share) share->of = &part;
    return share;
  }
  Id key_of(const Share& share) { return tree_.to_expression(share.form, a_[share.form.factors[0].atom].type); }
  void reuse_selects(const std::vector<StoredBranches>& branches);
  bool fold_everywhere(const std::vector<std::vector<StoredValue>>& values);
  using Step = std::function<Product(const Product&, std::span<const AxisRange>)>;
  void in_definition(Definition& d, Wanted& wanted, const Step& step);
  // The definition changed, if that loses no digits; then, where each of the changes inside loses none.
  bool with_digits(Definition& d, const std::function<void(Definition&)>& change);
  // Is the tensor defined as this very expression, at the indices read? Equal as reals is not enough.
  bool same_bits(Id read, Id value) {
    const Node n = a_[read];
    const Definition* d = p_.definition_of(n.symbol);
    if (!d || n.op != Op::read) return false;
    Replacements at;
    for (size_t i = 0; i < d->axes.size(); ++i) at[d->axes[i].axis] = a_.to(DType::i64, n.arg(i));
    return substitute(a_, d->body, at) == value;
  }
  bool keeps_digits(const Product& before, const Product& after) {
    if (before == after) return true;
    const Product& typed = before.is_number() ? after : before;
    DType type = a_[typed.factors[0].atom].type;
    return accuracy_.keeps(tree_.to_expression(before, type), tree_.to_expression(after, type));
  }
  // Would the backward's read of it be why it is kept?
  bool kept_for_backward(TensorId t) const {
    bool inside = p_.tensors[t].role == Role::defined && !has_tensor(p_.outputs, t);
    return save_reads_ || inside || dropped_.contains(t);
  }
  std::vector<StoredValue> forms_of(TensorId tensor, const std::vector<AxisRange>& free, const Product& form) {
    return stored_forms(tree_, p_.tensors[tensor].type, tensor, free, form);
  }
  std::pair<Product, Id> as_written(const Share& best);
  TensorId define(const Share& best, std::vector<StoredValue>& forms);
  std::optional<TensorId> defined_already(const Share& best, std::vector<StoredValue>& forms);

  Program p_;
  Arena& a_;
  TensorExprTree tree_;
  Sharing sharing_;
  Accuracy accuracy_;
  std::set<TensorId> deciding_;  // stay as they are
  std::set<TensorId> dropped_;
  bool save_reads_;
  bool complete_ = true;  // no limit was met
  int64_t compared_ = 0;
  std::vector<Forward> forward_;
  std::map<TensorId, PointValue> values_;     // of the forward's maps that are not kept
  std::unordered_map<Id, Forward> patterns_;  // by body
  std::vector<ForwardPart> parts_;
  std::set<uint32_t> met_;  // among parts_
  // Products by identity, and what two of them, of the forward and of the backward, have in common: every round asks for most of it again.
  std::map<std::vector<Id>, uint32_t> numbers_;
  std::map<std::pair<uint32_t, uint32_t>, std::optional<Share>> common_;
};

}  // namespace xhat

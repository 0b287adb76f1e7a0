// A definition's body, made ready for differentiation in either mode: every bound axis has one range, and what
// both modes ask of a reduction (the extreme and its ties, the product of the others) is formed here.
#pragma once
#include <map>
#include <string>
#include <unordered_set>

#include "ad/common/contribution.h"
#include "ad/common/differentiation.h"

namespace xhat {

// Does any float value in the body depend on an active tensor?
bool is_active(Differentiation& d, const Definition& definition);

class Body {
 public:
  Body(Differentiation& d, const Definition& definition);

  Id root() const { return root_; }
  bool is_active(Id node) const { return active_.contains(node); }
  const std::string& name() const { return name_; }
  std::vector<Id> own_axes() const;

  // ---- axes ----
  Scope scope;
  std::vector<Id> used;  // names not to be given to new axes
  Id fresh(Id base);
  // Bound axes inside value that are called like one of axes get other names.
  Id clear_of(Id value, std::span<const Id> axes);
  // Can these axes be those of a tensor? (They start at 0, and their ends are sizes.)
  bool rectangular(std::span<const Id> axes) const;

  // ---- forward values ----
  // The forward value of a node, at a point of these axes. The definition's tensor holds its whole body's.
  Id value_of(Id node, std::span<const Id> axes);
  // A definition of its own, or one there is already, and the read that stands for it.
  Id as_tensor(const std::string& name, std::span<const Id> axes, Id value);

  // The extreme and how many elements attain it, both computed once per point of the reduction's own axes, where
  // the shields hold (named: as tensors, if that can be).
  struct Extreme {
    Id value;
    Id ties;
  };
  Extreme extreme_of(Id reduction, const Literals& shields, bool named = true);
  // Are all of its reads in bounds at every point of the axes in scope, whatever conditions stand around it?
  bool inside_anywhere(Id node);
  // The product of what stands before l and of what stands behind it, prod(l' in 0..l: body(l')) * prod(l' in l+1..N: body(l')): right with any
  // number of zeros, and of all l together linear in N, since both are running products. Of few, prod(l' if l' != l: body(l')).
  Id product_of_others(const Node& n);

 private:
  Id product_but_one(const Node& n);
  Id product_beside(const Node& n, const std::vector<AxisRange>& axes, size_t at, bool before);

  Differentiation& d_;
  Arena& a_;
  const Definition& definition_;
  std::string name_;  // of the definition's tensor
  Id root_ = kNone;
  std::unordered_set<Id> active_;
  std::map<std::pair<Id, Id>, Extreme> extremes_;
  std::map<Id, std::vector<Id>> other_names_;  // of bound axes, given by clear_of
};

}  // namespace xhat

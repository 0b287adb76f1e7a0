// The sums that a backward may read instead of making its own; the lookup of reduction_algebra.
#pragma once
#include <string>
#include <unordered_map>

#include "cse/match/bodies.h"

namespace xhat {

// outside * sum(bound: body): nothing outside depends on the bound axes.
struct Nested {
  Product body;
  std::vector<AxisRange> bound;
  Product outside = {1, {}};
};

// tensor[free] = coefficient * outside * sum(bound if condition: body)
struct KnownSum {
  TensorId tensor;
  Pattern pattern;
  double coefficient;
  Product body, outside;
  Nested flat;  // with the sums in it opened, sum(d: a*sum(j: b)) is sum(d, j: a*b); as body if there are none
};

struct Sum {
  std::vector<AxisRange> bound;
  Id condition;
  std::vector<AxisRange> scope;  // outer axes
  DType type;
  std::string name;
  std::vector<AxisRange> all_axes() const {
    std::vector<AxisRange> all = scope;
    all.insert(all.end(), bound.begin(), bound.end());
    return all;
  }
};

class KnownSums {
 public:
  KnownSums(const Program& p, TensorExprTree& tree) : p_(p), tree_(tree), a_(tree.arena()) {}

  void remember(const Definition& d);
  // The one remembered last, if it is this tensor's: it is another's from now on, and so many times as large.
  void rename_last(TensorId from, TensorId to, double times);
  // sum(body) as a read of a sum that is known.
  std::optional<Product> known(const Product& body, const Sum& s);
  // Sums over one axis of the factors that have it, also of a known sum that is read: sum(n, d: a[d]*b[n,d]) has sum(n: b[n,d]) in it, and is zero
  // where that is.
  std::vector<std::pair<Product, Sum>> inner_sums(const Product& body, const Sum& s);
  // Bodies of known sums over the same axes that have a factor of this one, with reads of these sums.
  std::vector<std::pair<Product, Product>> alike(const Product& body, const Sum& s);
  // The same sum with an output in it for part of what it is made of: what is to be summed, and over what.
  std::optional<std::pair<Product, Sum>> regrouped(const Product& body, const Sum& s);
  // The same sum with a known one in it, over some of its axes: sum(n, h: r[n]*a[n,c,h]) is sum(n: r[n]*s[n,c]) where
  // s[n,c] is sum(h: a[n,c,h]).
  std::optional<std::pair<Product, Sum>> in_parts(const Product& body, const Sum& s);

 private:
  struct Apart {
    std::vector<AxisRange> gone, stay;
  };
  Binding with_ranges(const KnownSum& k, std::span<const AxisRange> pattern_bound, Binding found, std::span<const AxisRange> bound);
  std::optional<Apart> without_bound(const KnownSum& k, const Binding& found, const std::vector<AxisRange>& bound);
  uint64_t shape_of(const Product& p) { return tree_.shape({1, p.factors}); }
  using Places = std::vector<size_t>;  // in sums_, ascending
  using ByShape = std::unordered_map<uint64_t, Places>;
  std::span<const size_t> of_shape_of(const ByShape& places, const Product& body);
  // The sums that have a factor of the shape of one of these.
  Places with_a_factor_of(const Product& body);
  Nested opened(const Product& body, const std::vector<AxisRange>& bound, const std::string& mark);
  std::optional<std::vector<Id>> indices_of(const KnownSum& k, std::span<const AxisRange> pattern_bound, const Binding& found,
                                            std::span<const AxisRange> bound, const Sum& s);
  std::optional<Product> matched(const KnownSum& k, const Nested& pattern, const Nested& target, const Sum& s);
  std::optional<Product> over(const Product& value, const Product& outside);
  std::optional<std::pair<Product, Sum>> regrouped_by(const KnownSum& k, const Binding& found, const Nested& flat, const Product& outer,
                                                      const Sum& s);

  const Program& p_;
  TensorExprTree& tree_;
  Arena& a_;
  std::vector<KnownSum> sums_;
  // Who can match, so that a lookup does not grow with the number of sums.
  ByShape by_shape_, by_flat_shape_, by_factor_;
  std::unordered_map<TensorId, size_t> by_tensor_;
};

}  // namespace xhat

// The two hashes of TensorExprTree, each in linear time: key, for an order that does not depend on names, and shape, equal
// where one expression can be an instance of the other (unify.h).
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "cse/match/tensor_expr_tree.h"

namespace xhat {
namespace {

uint64_t mix(uint64_t h, uint64_t v) {
  h ^= v + 0x9e3779b97f4a7c15ULL + (h << 6) + (h >> 2);
  return h * 0xff51afd7ed558ccdULL;
}

}  // namespace

bool commutes(const Node& n) {
  return n.op == Op::maximum || n.op == Op::minimum || n.op == Op::eq || n.op == Op::ne || n.op == Op::land ||
         n.op == Op::lor || (n.type == DType::i64 && n.op == Op::mul);
}

uint64_t TensorExprTree::key(const Product& p) {
  uint64_t sum = 0;
  for (const Factor& f : p.factors) sum += mix(key(f.atom), static_cast<uint64_t>(f.halves));
  return mix(sum, std::bit_cast<uint64_t>(std::abs(p.coefficient)));
}

// Recursion is shallow: form() asks for the keys of operands first.
uint64_t TensorExprTree::key(Id atom) {
  if (auto it = keys_.find(atom); it != keys_.end()) return it->second;
  const Node n = a_[atom];
  uint64_t h = mix(static_cast<uint64_t>(n.op), static_cast<uint64_t>(n.type));
  if (const auto* inner = terms(atom)) {
    uint64_t sum = 0;
    for (const Product& t : *inner) sum += key(t);
    h = mix(sum, inner->size());
  } else if (const Product* product = factors(atom)) {
    h = mix(h, key(*product));
  } else if (n.op == Op::constant) {
    h = mix(h, static_cast<uint64_t>(n.integer));
  } else if (is_read(n.op)) {
    h = mix(h, n.symbol);
  } else {
    if (n.op == Op::dim) h = mix(h, n.symbol);
    uint64_t operands = 0;  // in any order
    for (Id x : n.args()) {
      auto known = forms_.find(x);
      operands += known == forms_.end()
                      ? mix(static_cast<uint64_t>(a_[x].op), a_[x].symbol * (a_[x].op != Op::axis))
                      : key(known->second);
    }
    h = mix(h, operands);
  }
  keys_[atom] = h;
  return h;
}

// Coefficients count as f32: what is equal up to rounding is so in f32 as well, but for one pair in a million.
uint64_t TensorExprTree::shape(const Product& p) {
  uint64_t sum = 0;
  for (const Factor& f : p.factors) sum += mix(shape(f.atom), static_cast<uint64_t>(f.halves));
  constexpr double kLargest = std::numeric_limits<float>::max();
  bool rounds = std::abs(p.coefficient) <= kLargest;  // false for nan
  return mix(sum, rounds ? std::bit_cast<uint32_t>(static_cast<float>(p.coefficient)) : 0);
}

// Recursion is shallow, as for keys.
uint64_t TensorExprTree::shape(Id node) {
  if (auto it = shapes_.find(node); it != shapes_.end()) return it->second;
  const Node n = a_[node];
  uint64_t h = mix(static_cast<uint64_t>(n.op), static_cast<uint64_t>(n.type));
  if (const auto* inner = terms(node)) {
    uint64_t sum = 0;
    for (const Product& t : *inner) sum += shape(t);
    h = mix(static_cast<uint64_t>(n.type), sum);
  } else if (const Product* product = factors(node)) {
    h = mix(h, shape(*product));
  } else if (is_read(n.op)) {
    h = mix(h, n.symbol);
  } else if (is_reduction(n.op) || n.arg_count == 0) {
    h = is_integer(n.type) && !is_reduction(n.op) ? mix(0, static_cast<uint64_t>(n.type)) : mix(h, node);
  } else if (is_integer(n.type)) {
    h = mix(0, static_cast<uint64_t>(n.type));  // an index: solved for its axes
  } else if (n.type != DType::boolean) {        // what a comparison compares has no form
    uint64_t operands = 0;
    for (Id x : n.args()) {
      uint64_t operand = is_float(a_[x].type) ? shape(known_form(x)) : shape(x);
      operands = commutes(n) ? operands + operand : mix(operands, operand);
    }
    h = mix(h, operands);
  }
  shapes_[node] = h;
  return h;
}

std::vector<Id> TensorExprTree::free_axes(const Product& p) const {
  std::vector<Id> axes;
  for (const Factor& f : p.factors) axes.insert(axes.end(), a_[f.atom].free_axes().begin(), a_[f.atom].free_axes().end());
  std::ranges::sort(axes);
  axes.erase(std::ranges::unique(axes).begin(), axes.end());
  return axes;
}

}  // namespace xhat

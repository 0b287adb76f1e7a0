// One expression of a kernel on its way to Halide: shared by emit.cpp and emit_padding.cpp. Includes Halide; for these files only.
#pragma once
#include <algorithm>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/emit/emit.h"

namespace xhat::runtime {

using Halide::Expr;

struct Walk {
  const Emitter& e;
  const Emitter::Axes& axes;
  std::unordered_map<Id, Expr> values = {};   // of the node's own type
  std::unordered_map<Id, Expr> indices = {};  // integers as int32, for indexing
  std::vector<Id> held = {};                  // conditions without which nobody looks at the value

  const Arena& arena() const { return *e.spec.arena; }

  Expr axis(Id id) const;
  bool fits_index(Id id) const;
  Expr in_32_bits(Id id);  // of an i64
  Expr index(Id root);
  Expr narrowed(Id id);
  Expr index_inside(Id id);
  Expr moved_inside(Id id, int64_t extent);
  Expr read(Id id, const Node& n);
  const std::vector<Bend>* border_of(const Node& read) const;  // null: it has none
  Expr bent(const Bend& bend, const Expr& place, int64_t length) const;
  Expr in_its_run(Id index_id);
  bool is_within(Id index, int64_t extent) const;
  bool surely_inside(const Node& read, size_t dimension) const;
  Expr clamp_to(std::vector<Expr>& args, const std::vector<Expr>& extents) const;
  Expr chosen(const Expr& inside, const Expr& loaded, const Expr& otherwise) const;
  Expr not_to_cut_by(const Expr& condition) const;
  Expr choice(Id condition);
  bool is_product(Id id) const;
  Expr sum_of_product(const Node& n);
  Expr selected(const Node& n, const Expr& x, const Expr& y) {
    return std::ranges::find(held, n.arg(0)) != held.end() ? x : Halide::select(choice(n.arg(0)), x, y);
  }
  Expr make(Id id, const Node& n);
  std::vector<Id> needed(Id root) const;
  Expr value(Id root);

  // Reads with a border around what they read: emit_padding.cpp.
  Id cut_along(const Node& read, size_t dimension) const;
  bool worth_padding(const Node& n, bool computed = false) const;
  Expr padded(const Node& n);
  template <class Value>
  Expr copied(Halide::Func& f, std::span<const Node> reads, Value value);
  bool whole_rows(std::span<const Node> reads) const;
  std::pair<int, int> beyond_the_row(uint32_t tensor) const;
  bool no_window_along(uint32_t tensor, size_t dimension, Id index) const;
  Expr load_inside(const Node& n, const std::vector<Expr>& place);
  std::vector<Id> reads_at_one_place(Id root) const;
  bool uses_axes_itself(Id root) const;
  Expr computed_once(Id root, const std::vector<Id>& ids);
};

}  // namespace xhat::runtime

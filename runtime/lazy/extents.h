// Extents of a graph as symbols, so that one program serves other sizes of the same structure.
//
// Each dimension of memory begins as an unknown of its own. What the structure demands to be equal becomes one: the extents of operands
// that meet element by element, letters of a product. Extents of 0 and 1, and numbers that the program writes, are numbers. What follows
// from others (a padded extent) is an expression. Where two expressions meet that are not the same, their unknowns become numbers, which
// is always right: those sizes are then one program each.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "expr/core/program.h"

namespace xhat::lazy::detail {

class Extents {
 public:
  using Term = uint32_t;

  Term number(int64_t value);
  Term unknown(int64_t value, bool solvable);  // solvable: an extent of memory. A number, if value is 0 or 1
  Term offset(Term a, int64_t by);
  Term add(Term a, Term b);
  Term multiply(Term a, Term b);
  Term divide(Term a, int64_t by);  // rounded down
  Term broadcast(Term a, Term b);   // one of them 1, or both equal
  void equate(Term a, Term b);
  void fix(Term a);  // all its unknowns become numbers
  int64_t value(Term a) const { return terms_[a].value; }
  bool is_one(Term a) const { return value(a) == 1; }
  bool same(Term a, Term b) { return find(a) == find(b); }

  // To be called when all is equated: unknowns that no memory gives become numbers.
  void settle();
  // The extent in a program; dims are added to it as they come up.
  Id in(Program& p, Term a);
  const std::map<std::string, int64_t>& dims() const { return dims_; }

 private:
  enum class What : uint8_t { number, unknown, add, multiply, divide };
  struct Entry {
    What what;
    int64_t value;
    Term a = 0, b = 0;
    int64_t constant = 0;
    bool solvable = false;
    Term parent = 0;  // unknown: what it was found equal to, or itself
    Id id = kNone;
  };
  Term entry(Entry e);
  Term find(Term a);
  bool contains(Term root, Term unknown);
  bool is_number(Term a) { return terms_[find(a)].what == What::number; }

  std::vector<Entry> terms_;
  std::map<std::string, int64_t> dims_;
};

}  // namespace xhat::lazy::detail

// The description of an op in a library compiled ahead of time: a table of numbers and names, beside the code of tiles. xhat build
// (runtime/ahead/build/ahead.h) writes it, and the library's calls (runtime/ahead/support/run.cpp) read it.
#pragma once
#include <string>
#include <vector>

#include "expr/core/expr.h"
#include "runtime/device/device_table.h"
#include "runtime/host/bytes.h"
#include "runtime/host/cpu_level.h"
#include "runtime/host/variant.h"
#include "runtime/host/walk_archive.h"

namespace xhat::runtime {

constexpr int64_t kAheadFormat =
    5;  // version of the table and of the functions that generated sources call; increment it with any change of them

// A node of an integer expression over dims. A formula is a list of nodes, children first; the last one is its value.
struct FormulaNode {
  Op op = Op::constant;
  int64_t number = 0;  // a constant's value; a dim's position
  std::vector<int64_t> args;
};
using Formula = std::vector<FormulaNode>;
// Division and remainder round down, and are 0 for a divisor of 0. Throws Bug for an op that does not occur in sizes.
int64_t evaluate(const Formula& f, const std::vector<int64_t>& dims);

struct AheadDim {
  std::string name;
  Formula definition;  // empty: the dim is an argument of every call. Such dims come first
};

struct AheadCondition {
  Formula holds;
  std::string reason;
};

struct AheadTensor {
  std::string name;
  DType type = DType::f32;
  std::vector<Formula> shape;
};

struct AheadCheck {
  int64_t tensor = 0;  // a bool of the check's program, whose tensors are numbered after the op's
  std::string text;    // the error if it is true
};

// A side of the op: infer, forward or backward.
struct AheadSide {
  std::vector<int64_t> inputs, outputs;  // tensors in the order of the call's arguments, without stashed ones
  std::vector<AheadCondition> fails;     // the side cannot run at sizes where one of these holds
  std::vector<AheadCheck> checks;
  int64_t check_tensors = 0;           // number of tensors of the check's program; 0: there is none
  std::vector<AheadVariant> variants;  // numbers of the walk, then of the check's walk if there is one
};

struct AheadTable {
  std::string op;
  std::vector<AheadDim> dims;
  std::vector<AheadCondition> preconditions;
  std::vector<AheadTensor> tensors;
  std::vector<int64_t> stash;    // tensors
  std::vector<int64_t> strided;  // tensors that calls may give with strides
  std::vector<AheadSide> sides;
  std::vector<CpuLevel> levels;
  std::vector<uint8_t> streams;  // per code: does it use non-temporal stores?
  std::string known_sizes;       // for messages
  std::vector<AheadDevice> devices;
};

// A: ByteWriter or ByteReader.
template <class A>
void transfer_table(A& a, AheadTable& table) {
  auto each = [&](auto& list, auto&& f) {
    a.resize(list);
    for (auto& x : list) f(x);
  };
  auto number = [&](auto& x) { a.number(x); };
  auto formula = [&](Formula& f) {
    each(f, [&](FormulaNode& n) {
      a.number(n.op);
      a.number(n.number);
      each(n.args, number);
    });
  };
  auto condition = [&](AheadCondition& c) {
    formula(c.holds);
    a.text(c.reason);
  };
  a.text(table.op);
  each(table.dims, [&](AheadDim& d) {
    a.text(d.name);
    formula(d.definition);
  });
  each(table.preconditions, condition);
  each(table.tensors, [&](AheadTensor& t) {
    a.text(t.name);
    a.number(t.type);
    each(t.shape, formula);
  });
  each(table.stash, number);
  each(table.strided, number);
  each(table.sides, [&](AheadSide& side) {
    each(side.inputs, number);
    each(side.outputs, number);
    each(side.fails, condition);
    each(side.checks, [&](AheadCheck& c) {
      a.number(c.tensor);
      a.text(c.text);
    });
    a.number(side.check_tensors);
    transfer_variants(a, side.variants);
  });
  each(table.levels, number);
  each(table.streams, number);
  a.text(table.known_sizes);
  each(table.devices, [&](AheadDevice& d) { transfer_device(a, d); });
}

}  // namespace xhat::runtime

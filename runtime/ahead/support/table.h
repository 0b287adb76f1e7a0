// What a library that was compiled ahead of time knows of its op: a table of numbers and names, and the tiles' code beside it.
// xhat build writes it (runtime/ahead/build/ahead.h), the library's calls read it (runtime/ahead/support/run.cpp).
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

constexpr int64_t kAheadFormat = 4;  // of tables, and of what generated sources call; a change of either counts it up

// An integer expression over dims: nodes, children first. The last one of a formula is its value.
struct FormulaNode {
  Op op = Op::constant;
  int64_t number = 0;  // a constant's value; a dim's position
  std::vector<int64_t> args;
};
using Formula = std::vector<FormulaNode>;
// Throws Bug for an op that no size has. Division and remainder floor; by 0 they are 0.
int64_t evaluate(const Formula& f, const std::vector<int64_t>& dims);

struct AheadDim {
  std::string name;
  Formula definition;  // empty: an argument of every call. The arguments come first
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
  int64_t tensor = 0;  // of the check's program, behind those of the op: a bool
  std::string text;    // what is wrong if it is true
};

// infer, forward, backward
struct AheadSide {
  std::vector<int64_t> inputs, outputs;  // tensors, as the call takes them; stashed ones not among them
  std::vector<AheadCondition> fails;     // where `holds` is true, it cannot run at these sizes
  std::vector<AheadCheck> checks;
  int64_t check_tensors = 0;  // of the check's program; 0: there is none
  std::vector<AheadVariant> variants;  // of the walk, then of the check's walk if there is one
};

struct AheadTable {
  std::string op;
  std::vector<AheadDim> dims;
  std::vector<AheadCondition> preconditions;
  std::vector<AheadTensor> tensors;
  std::vector<int64_t> stash;  // tensors
  std::vector<AheadSide> sides;
  std::vector<CpuLevel> levels;
  std::vector<uint8_t> streams;  // by code: are results written past the cache?
  std::string known_sizes;    // for messages
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

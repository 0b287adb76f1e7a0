// The program: inputs, a forward and a backward region of definitions, outputs. The one value that all passes take and
// return. A pass is a pure function Program -> Program; the arena is shared by the programs a pass derives.
#pragma once
#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "expr/core/error.h"
#include "expr/core/expr.h"

namespace xhat {

enum class Role : uint8_t {
  input,      // a parameter of the op
  cotangent,  // dL/d(output), a parameter of the backward
  defined     // has a definition (an output, a gradient, a stash or a temporary)
};

struct Tensor {
  std::string name;
  DType type = DType::f32;
  std::vector<Id> shape;  // i64 expressions of dims; empty: a scalar
  Role role = Role::defined;
  bool constant = false;  // a parameter marked const: never differentiated
  bool mostly_zero = false;  // nearly all of its elements are 0 or false (mostly_zero.h); no part of the text
  Pos pos;
};

struct Program;
struct Step;  // expr/core/steps.h

// target[axes] = body, for all axes in their ranges (left axes start at 0 and end at the tensor's shape), or a call
// (targets) = callee(arguments), kept until ad so that custom gradients survive (expr/index/expand_calls removes it).
struct Definition {
  std::vector<TensorId> targets;  // one, unless a call
  std::vector<AxisRange> axes;
  Id body = kNone;
  Pos pos;
  std::shared_ptr<const Program> callee;
  std::vector<TensorId> arguments;
  // Made by the rules of differentiation, and not written by somebody: algebra of real numbers may rewrite it, as it may the backward
  // region. No part of the text: what is read back counts as written.
  bool derived = false;
  // Made before a loop, where nobody knows which elements its iterations read: an element's gradient is 0 where its cotangent is, even if the
  // derivative is infinite there. No part of the text.
  bool sometimes_unread = false;
  TensorId target() const { return targets[0]; }
  bool is_call() const { return callee != nullptr; }
};

// An ordered list of definitions: each stands after those of the region that it reads. Regions with loops and branches come
// with imperative programs; passes take a region's list, not the program, where they can.
struct Region {
  std::vector<Definition> definitions;
  const Definition* definition_of(TensorId t) const;
};

// The definitions of two regions as one range, the first region's before the second's.
template <class D>  // Definition or const Definition
struct Definitions {
  struct Iterator {
    using value_type = Definition;
    using difference_type = std::ptrdiff_t;
    D* first = nullptr;
    D* second = nullptr;
    size_t firsts = 0, at = 0;
    D& operator*() const { return at < firsts ? first[at] : second[at - firsts]; }
    Iterator& operator++() { return ++at, *this; }
    Iterator& operator--() { return --at, *this; }
    Iterator operator++(int) { return std::exchange(*this, {first, second, firsts, at + 1}); }
    Iterator operator--(int) { return std::exchange(*this, {first, second, firsts, at - 1}); }
    bool operator==(const Iterator& other) const { return at == other.at; }
  };
  D *first, *second;
  size_t firsts, count;
  Definitions(auto& x, auto& y)
      : first(x.definitions.data()), second(y.definitions.data()), firsts(x.definitions.size()), count(firsts + y.definitions.size()) {}
  Iterator begin() const { return {first, second, firsts, 0}; }
  Iterator end() const { return {first, second, firsts, count}; }
  size_t size() const { return count; }
};

struct Dim {
  Id dim;                 // the node
  Id definition = kNone;  // of `dim OH = …`; kNone: solved from parameters, or given from outside
  Pos pos;
};

// Must hold of the dims, else the op cannot run: checked when the dims are known, and named in the error.
struct Precondition {
  Id condition;        // bool over dims
  std::string reason;  // "x[n,0] reads element 0 of x's dimension 1 (C)"
  Pos pos;
};

struct Program {
  std::string name;
  std::shared_ptr<Arena> arena;
  std::vector<Tensor> tensors;   // append only
  std::vector<TensorId> inputs;  // in order of the parameter list
  std::vector<TensorId> outputs;
  std::vector<TensorId> cotangents;  // one per float output, in order; empty before grad
  std::vector<TensorId> gradients;   // grad_<input> per input asked for; empty before grad
  // The inputs that gradients belong to, parallel to gradients. kNoTensor: of none; the backward hands it on for who runs it
  // (ad/reverse/deferred_gradients.h).
  std::vector<TensorId> gradient_of;
  std::vector<Dim> dims;  // in order of first appearance
  std::vector<Precondition> preconditions;
  Region forward, backward;  // forward never reads backward
  // What runs instead of the forward region, of a program with loops or branches that stay (expr/core/steps.h); null: an op.
  std::shared_ptr<const std::vector<Step>> steps;
  std::shared_ptr<const Program> custom_gradient;  // `grad NAME(inputs, outputs?, cotangents) -> (gradients)`
  std::string file;                                // for messages; may be empty
  std::shared_ptr<const std::string> text;

  const Tensor& tensor(TensorId t) const { return tensors[t]; }
  std::optional<TensorId> find(std::string_view tensor_name) const;
  Definitions<const Definition> definitions() const { return {forward, backward}; }
  Definitions<Definition> definitions() { return {forward, backward}; }
  // Looks at all definitions; who asks for many tensors makes Uses (expr/core/uses.h).
  const Definition* definition_of(TensorId t) const;
  // A new tensor; the name gets a suffix if it is taken.
  TensorId add_tensor(std::string wanted_name, DType type, std::vector<Id> shape);
};

// The definitions of each region become f(region), those of the forward first.
void map_regions(Program& p, auto f) {
  for (Region* r : {&p.forward, &p.backward}) r->definitions = f(std::as_const(*r));
}

// Forward definitions that the backward reads and that are not outputs: what the forward keeps beyond them.
std::vector<TensorId> stashes(const Program& p);
inline bool has_tensor(std::span<const TensorId> list, TensorId t) { return std::ranges::find(list, t) != list.end(); }

// Tensors read by an expression, ascending.
std::vector<TensorId> tensors_read(const Arena& a, Id root);

// Same text, same meaning: equal up to arenas, ids and positions.
bool equal(const Program& a, const Program& b);

// Checks the numbered invariants listed in verify.cpp; throws Bug citing the number.
void verify(const Program& p);

// Orders definitions so that every one stands after what it reads; drops what neither outputs nor gradients need.
// Throws Error on a cycle, naming its members.
Program ordered(const Program& p);
Program without_dead(const Program& p);

// A file: several ops, which may call earlier or later ones. All share one arena.
struct Module {
  std::vector<std::shared_ptr<const Program>> ops;
  const Program* find(std::string_view name) const;
};

// Front door. Throws Error, located. parse() is text -> AST -> elaborate.
Module parse(const std::string& text, const std::string& file = "");
Program parse_op(const std::string& text, const std::string& op_name = "");  // default: the last op
// The text of a program, canonical: parse_op(print(p)) equals p. Backward definitions follow in a `backward` block.
std::string print(const Program& p);
std::string print(const Program& p, Id expression);  // one expression; free axes by name
std::string print(const Program& p, const Definition& d);

}  // namespace xhat

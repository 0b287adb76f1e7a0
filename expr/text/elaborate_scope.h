// What is in scope while one op is elaborated, and how its expressions, definitions and calls are built.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "expr/core/conditions.h"
#include "expr/core/program.h"
#include "expr/text/ast.h"
#include "expr/text/elaborate.h"
#include "expr/text/elaborate_number.h"
#include "expr/text/strangers.h"

namespace xhat {

// Interned lists that grow at the end: equal lists have equal numbers, so "the same conditions" is one comparison.
class Chains {
 public:
  static constexpr uint32_t kEmpty = 0;
  uint32_t push(uint32_t chain, uint32_t item);
  std::vector<uint32_t> items(uint32_t chain) const;  // oldest first

 private:
  std::vector<std::pair<uint32_t, uint32_t>> links_ = {{0, 0}};
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> index_;
};

struct OpScope {
  const ast::File& file;
  Arena& arena;
  Program& program;
  const std::map<std::string, std::shared_ptr<const Program>>& ops;  // that may be called
  std::unordered_map<std::string, TensorId> tensors = {};            // elaborated so far
  std::map<std::string, Pos> declared = {};  // names of all tensors of the op, and where they stand
  std::map<std::string, Id> dims = {};
  Replacements dim_definitions = {};          // of `dim OH = …`, down to the dims that are given
  std::map<std::vector<Id>, int> asked = {};  // bounds questions that were answered with yes
  std::map<std::pair<Id, Id>, bool> equal_extents = {};

  Id declare_dim(const std::string& name, Pos pos);
  Id expanded(Id expression);  // dims with a definition replaced by it
  bool same_extent(Id x, Id y);
  void declare_tensor(const std::string& name, Pos pos);
  TensorId add_tensor(const std::string& name, DType type, std::vector<Id> shape, Role role, Pos pos);
  std::string unused_name(const std::string& wanted) const;
  // Records that the extent must not be negative.
  void require_extent(Id extent, const std::string& what, Pos pos);
  void require(Id condition, const std::string& reason, Pos pos);
};

std::string text_of(const OpScope& s, Id expression);  // for messages
std::string names_of(const Program& p, std::span<const TensorId> tensors);  // "x, w", for messages
// ". did you mean X?" or nothing.
std::string did_you_mean(const std::string& name, const std::vector<std::string>& known);
// The same; before it, what is written here for a name of another language.
std::string did_you_mean(ast::Stranger kind, const std::string& name, const std::vector<std::string>& known);
// The op that is called, with as many arguments as it takes; errors else.
const std::shared_ptr<const Program>& callee_of(const OpScope& s, const ast::Node& call);

// A call of a function of numbers: what stands in the op, for these arguments. Axes of its reductions are none of `avoid`.
Value number_of_op(OpScope& s, const ast::Node& call, const std::vector<Value>& args, std::span<const Id> avoid);

// A read in the text: its place, and the conditions around it there.
struct Occurrence {
  ast::Ref ref;
  uint32_t conditions;
};

struct BodyResult {
  Id body = kNone;
  std::vector<AxisRange> axes;
  std::unordered_map<Id, std::vector<Occurrence>> reads;
  Chains conditions;
};

// A definition's right side with its left axes. `whole`: tensors are named without indices, and broadcast over axes.
struct BodyRequest {
  const std::vector<ast::Axis>* axes = nullptr;
  ast::Ref body = ast::kAbsent;
  const std::vector<AxisRange>* whole = nullptr;
  const std::unordered_map<ast::Ref, TensorId>* calls =
      nullptr;                           // whole: op calls that have their tensor already
  std::optional<DType> untyped_as = {};  // default f32
  std::string target = {};               // what is defined, if that has a name
};
BodyResult elaborate_body(OpScope& scope, const BodyRequest& request);

// An expression of dims alone (extents, dim definitions). new_dims: unknown names become dims.
Id elaborate_extent(OpScope& scope, ast::Ref ref, bool new_dims, const char* what);
bool is_affine(const Arena& a, Id extent);

// Throws where a read can fall outside; records preconditions.
void check_bounds(OpScope& scope, BodyResult& result);

// (targets) = callee(arguments); also makes helper definitions for arguments that are expressions.
void elaborate_call(OpScope& scope, const ast::Statement& statement, Region& into);

// The same where the arguments are tensors already; adds the targets to the program.
Definition call_definition(OpScope& scope, const std::shared_ptr<const Program>& callee, std::vector<TensorId> arguments,
                           const ast::Node& call, const std::vector<ast::Name>& targets);

// The callee's dims, where its arguments have these shapes; throws where they do not fit.
Replacements dims_of_call(OpScope& scope, const Program& callee, const std::vector<std::vector<Id>>& shapes, const ast::Node& call);

// What the callee requires, in our dims: proved, required of ours, or an error.
void inherit_precondition(OpScope& scope, const Program& callee, const Precondition& p, Id condition, Pos pos);

void collect_below(const ast::File& file, ast::Ref root, std::vector<ast::Ref>& found);  // ascending

void collect_below(const ast::File& file, const std::vector<ast::Statement>& statements, std::vector<ast::Ref>& found);

// Is there a read that may depend on what stands left of root in `a && root`? Then elaboration makes a select of it.
bool reads_behind(const ast::File& file, ast::Ref root);

struct OpAst {
  const ast::Op* op = nullptr;
  const ast::Op* gradient = nullptr;  // `grad NAME(…)`
};
Program elaborate_op(const ast::File& file, const std::shared_ptr<Arena>& arena, const OpAst& op,
                     const std::map<std::string, std::shared_ptr<const Program>>& ops);
// A `prog`; it stands in a later room, expr/imperative/functionalize.cpp.
Program elaborate_prog(const ast::File& file, const std::shared_ptr<Arena>& arena, const ast::Op& prog,
                       const std::map<std::string, std::shared_ptr<const Program>>& ops);

}  // namespace xhat

// The surface tree: what the parser reads, what the C++ DSL builds, what the printer writes. Elaboration
// (expr/text/elaborate) gives it types, ranges and proofs and turns it into Programs; reify turns a Program back into it.
//
// Nodes live in one vector, children before parents, so that walks are loops and a chain x+x+… has no depth limit.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "expr/core/dtype.h"
#include "expr/core/error.h"

namespace xhat::ast {

using Ref = uint32_t;
constexpr Ref kAbsent = UINT32_MAX;

enum class Kind : uint8_t {
  number,   // text as written: "1", "1e-5", "inf", "nan"
  boolean,  // text "true" or "false"
  name,     // axis, dim, let-bound name, scalar tensor, or (call statements) whole tensor
  read,     // text[args else otherwise]; `otherwise` absent without else
  unary,    // text is "-" or "!"
  binary,   // text is the sign
  choose,   // if args[0] then args[1] else args[2]
  let,      // let text = args[0] in args[1]
  call,     // text(args): a function of ops.def, a cast by dtype name, or (call statements) an op
  reduce,   // text(axes if condition: args[0]); text in sum prod max min any all argmax argmin mean
  // Of programs only. There a read may have slices among its args, and fewer args than dimensions: it is a view
  slice,   // args[0]:args[1]:args[2] inside index brackets; each may be absent
  index,   // args[0][the other args]: the brackets behind anything but a name
  method,  // args[0].text(the other args); text in transpose squeeze unsqueeze diagonal and, in brackets, reshape expand
  filled,  // zeros text[the other args], or full(args[0]) text[the other args] where args[0] is there; text is a type
  range    // text in args[0]..args[1]: a new axis in the brackets on the left of an assignment
};

struct Axis {
  std::string name;
  Ref begin = kAbsent;  // both absent: inferred
  Ref end = kAbsent;
  Pos pos;
};

struct Node {
  Kind kind;
  Pos pos;
  std::string text;
  std::vector<Ref> args;
  std::vector<Axis> axes;   // reduce
  Ref condition = kAbsent;  // reduce
  Ref otherwise = kAbsent;  // read
};

struct Name {
  std::string text;
  Pos pos;
};

struct Statement {
  enum class Kind : uint8_t {
    definition,  // of ops: targets[0][axes] = body
    call,        // (targets) = body; in an op also with one target
    dim,         // dim targets[0] = body
    // Of programs. A place is a name, a read, an index or a method (a view); which of the names in its brackets are new axes, the
    // scope decides
    variable,  // var targets[0] = body
    assign,    // place sign body; sign in = += -= *= /=
    loop,      // for targets[0] in begin..end { statements }
    repeat,    // while body max end { statements }
    branch     // if body { statements } else { otherwise }; `else if` is a branch alone in otherwise
  } kind = Kind::definition;
  std::vector<Name> targets;  // one, except in a call
  std::vector<Axis> axes;     // definition
  Ref body = kAbsent;         // call: a Kind::call node whose arguments are whole-tensor expressions
  Pos pos;
  Pos end;  // just after it; unknown where no text was parsed
  Ref place = kAbsent;
  std::string sign = {};
  Ref first = kAbsent;  // loop: begin
  Ref last = kAbsent;   // loop: end; repeat: the most iterations
  std::vector<Statement> statements = {}, otherwise = {};
  bool has_otherwise = false;
  Pos otherwise_pos = {};  // of `else`
};

struct Parameter {
  std::string name;
  DType type = DType::f32;
  std::vector<Ref> extents;
  bool constant = false;
  bool typed = true;   // false: a parameter of a grad that is a name only
  bool inout = false;  // of a program, which writes it
  Pos pos;
};

struct Block {  // (parameters) -> (outputs) { statements }
  std::vector<Parameter> parameters;
  std::vector<Name> outputs;
  std::vector<Statement> statements;
  Pos pos;
  Pos end;
};

struct Op {
  enum class Kind : uint8_t { op, grad, prog } kind = Kind::op;
  std::string name;
  Block body;                     // `grad f(x, w, y, dy)`: parameters are names only, types follow from op f
  std::optional<Block> backward;  // op …{…} backward (cotangents) -> (gradients) {…}: a program after ad
  Pos pos;
};

struct Comment {
  int line = 0;
  bool own_line = false;  // nothing but the comment on its line
  std::string text;       // with the '#'
};

struct File {
  std::vector<Node> nodes;
  std::vector<Op> ops;
  std::vector<Comment> comments;  // by line
  std::string name;
  std::shared_ptr<const std::string> text;

  Ref add(Node n) {
    nodes.push_back(std::move(n));
    return static_cast<Ref>(nodes.size() - 1);
  }
};

// Text to tree. Throws Error (located in the text).
std::shared_ptr<File> parse(const std::string& text, const std::string& file = "");
// Tree to canonical text: two-space indent, one statement a line, spaces around binary signs except inside indices,
// fewest parentheses. With keep_comments (fmt): comments stay beside their statements.
std::string print(const File& file, bool keep_comments = false);
// One expression.
std::string print(const File& file, Ref expression);

}  // namespace xhat::ast

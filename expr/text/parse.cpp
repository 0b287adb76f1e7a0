// Ops and statements by recursive descent, one function per rule; expressions are expr/text/parse_expression.
//
//   file      := (op | grad | prog)*
//   op        := op NAME block [backward block]          grad := grad NAME block
//   block     := ( parameters ) -> ( outputs ) { statements }
//   parameter := NAME : dtype [ [extents] ] [const]      in a grad: NAME alone will do
//   statement := dim NAME = e | NAME [ [axes] ] = e | ( names ) = CALL(arguments)
//   prog      := prog NAME block                         a parameter may be `inout`
//   statement := var NAME [ [axes] ] = e | place (= | += | -= | *= | /=) e | ( names ) = CALL(arguments) | dim NAME = e
//              | for NAME in e..e { statements } | while e max e { statements } | if e { statements } [else ({ statements } | if ...)]
#include <algorithm>
#include <set>

#include "expr/core/syntax.h"
#include "expr/text/cursor.h"
#include "expr/text/parse_expression.h"
#include "expr/text/strangers.h"

namespace xhat::ast {
namespace {

class Parser {
 public:
  Parser(const Tokens& tokens, File& file) : cursor_(tokens), file_(file) {}

  void run() {
    cursor_.skip_line_ends();
    while (cursor_.peek().kind != TokenKind::end) {
      file_.ops.push_back(op());
      cursor_.skip_line_ends();
    }
    if (file_.ops.empty()) cursor_.fail("there is no op here; write op NAME(parameters) -> (outputs) { definitions }");
  }

 private:
  Op op() {
    Op result;
    if (!cursor_.is_name("op") && !cursor_.is_name("grad") && !cursor_.is_name("prog")) {
      const bool word = cursor_.peek().kind == TokenKind::name;
      cursor_.expected("op, prog or grad", word ? "as in op f(x: f32[N]) -> (y) { y[i] = x[i] }" : "");
    }
    const std::string word(cursor_.take().text);
    bool grad = word == "grad";
    result.kind = grad ? Op::Kind::grad : word == "prog" ? Op::Kind::prog : Op::Kind::op;
    cursor_.views = result.kind == Op::Kind::prog;
    Name name = cursor_.expect_name(grad ? "the name of the op after grad" : "a name after " + word);
    if (is_function_name(name.text) || is_reduction_name(name.text)) {
      throw Error(name.text + " is built in; " + (grad ? "only ops of the file have a grad" : "give the " + word + " another name"),
                  name.pos);
    }
    result.name = name.text;
    result.pos = name.pos;
    result.body = block(grad);
    if (result.kind == Op::Kind::op) backward(result);
    if (result.kind == Op::Kind::prog) end_of_statement("the program");
    return result;
  }

  void backward(Op& result) {
    Cursor before = cursor_;
    cursor_.skip_line_ends();
    if (!cursor_.is_name("backward")) {
      cursor_ = before;
      end_of_statement("the op");
      return;
    }
    cursor_.take();
    result.backward = block(false);
    end_of_statement("the backward block");
  }

  Block block(bool grad) {
    Block result;
    result.pos = cursor_.peek().pos;
    Token open = cursor_.expect_sign("(");
    if (!cursor_.is_sign(")")) {
      do {
        result.parameters.push_back(parameter(grad));
      } while (cursor_.accept_sign(","));
    }
    close(open, ")", ", or ", after_parameter());
    cursor_.skip_line_ends();
    cursor_.expect_sign("->", "an op's head is op NAME(parameters) -> (outputs)");
    open = cursor_.expect_sign("(", "outputs stand in parentheses, as in -> (y)");
    // What a program writes of its parameters is an output by itself.
    const bool writes = std::ranges::any_of(result.parameters, &Parameter::inout);
    if (!writes && cursor_.is_sign(")")) cursor_.expected("the name of an output", "an op has at least one");
    if (!cursor_.is_sign(")")) result.outputs = names("the name of an output", "types and shapes of outputs follow from their definitions");
    close(open, ")", ", or ");
    cursor_.skip_line_ends();
    open = cursor_.expect_sign("{", "definitions stand in { }");
    result.end = statements(result.statements, open);
    return result;
  }

  // Up to and including the closing brace, whose place it returns.
  Pos statements(std::vector<Statement>& result, const Token& open) {
    for (;;) {
      cursor_.skip_line_ends();
      if (cursor_.is_sign("}") || cursor_.peek().kind == TokenKind::end) break;
      Statement next = statement(open, result);
      result.push_back(std::move(next));
    }
    if (!cursor_.is_sign("}")) cursor_.expected("} to close the { at " + place(open.pos));
    return cursor_.take().pos;
  }

  void close(const Token& open, const std::string& partner, const std::string& before = "", const std::string& hint = "") {
    if (cursor_.accept_sign(partner)) return;
    cursor_.expected(before + partner + " to close the " + std::string(open.text) + " at " + place(open.pos), hint);
  }
  std::string after_parameter() const {
    if (cursor_.is_sign("(") || cursor_.is_sign("<")) return "extents stand in brackets, as in x: f32[N,C]";
    return cursor_.is_sign("=") ? "parameters have no default; whoever calls gives every value" : "";
  }

  std::vector<Name> names(const std::string& what, const std::string& on_colon) {
    std::vector<Name> result;
    do {
      result.push_back(cursor_.expect_name(what));
      if (cursor_.is_sign(":") || cursor_.is_sign("[")) cursor_.fail("only names stand here; " + on_colon);
    } while (cursor_.accept_sign(","));
    return result;
  }

  Parameter parameter(bool grad) {
    Name name = cursor_.expect_name("the name of a parameter");
    Parameter result;
    result.name = name.text;
    result.pos = name.pos;
    if (grad && !cursor_.is_sign(":")) {
      result.typed = false;
      return result;
    }
    cursor_.expect_sign(":", "a parameter is " + name.text + ": f32[N,C], a scalar one " + name.text + ": f32");
    if (cursor_.is_name("inout")) {
      if (!cursor_.views) cursor_.fail("inout belongs to imperative programs (prog); an op never writes its parameters");
      cursor_.take();
      result.inout = true;
    }
    std::optional<DType> type;
    if (cursor_.peek().kind == TokenKind::name) type = dtype_from_name(cursor_.peek().text);
    if (!type) {
      const std::string known = stranger(Stranger::type, cursor_.peek().text);
      cursor_.expected("a type", known.empty() ? "types are f64 f32 f16 bf16 i64 i32 u32 u8 bool" : known.substr(2));
    }
    cursor_.take();
    result.type = *type;
    if (cursor_.is_sign("[")) result.extents = extents(name.text);
    if (cursor_.is_name("const")) {
      cursor_.take();
      result.constant = true;
    }
    return result;
  }

  std::vector<Ref> extents(const std::string& name) {
    std::vector<Ref> result;
    Token open = cursor_.take();
    if (cursor_.is_sign("]")) cursor_.fail("an extent is missing; a scalar is written without brackets, " + name + ": f32");
    do {
      result.push_back(parse_expression(cursor_, file_));
    } while (cursor_.accept_sign(","));
    close(open, "]", ", or ");
    return result;
  }

  // What it is written for besides goes to `before`.
  Statement statement(const Token& open, std::vector<Statement>& before) {
    bool name_follows = cursor_.peek_after().kind == TokenKind::name;
    Statement result;
    if (name_follows && (cursor_.is_name("op") || cursor_.is_name("grad") || cursor_.is_name("prog"))) {
      cursor_.expected("} to close the { at " + place(open.pos), "ops do not stand inside each other");
    }
    if (cursor_.views && is_control()) return control();
    if (name_follows && cursor_.is_name("dim")) {
      result = dim();
    } else if (cursor_.is_sign("(")) {
      result = several_targets();
    } else if (cursor_.views) {
      result = name_follows && cursor_.is_name("var") ? variable(before) : assignment();
    } else {
      result = definition();
    }
    result.end = cursor_.after_last();
    end_of_statement("the statement");
    return result;
  }

  // for, while or if: statements with blocks of their own.
  bool is_control() const {
    if (cursor_.is_word("if")) return true;
    if (cursor_.is_name("for")) return cursor_.peek_after().kind == TokenKind::name || cursor_.is_sign_after("(");
    return cursor_.is_name("while") && !cursor_.is_sign_after("=") && !cursor_.is_sign_after("[") && !cursor_.is_sign_after(".");
  }

  Statement control() {
    if (cursor_.depth == kMaxNesting) cursor_.fail("blocks nest more than 256 levels deep");
    ++cursor_.depth;
    Statement result = cursor_.is_word("if") ? branch() : cursor_.is_name("for") ? loop() : repeat();
    --cursor_.depth;
    return result;
  }

  // { statements }, and what may follow the closing brace on its line.
  void body(Statement& result, std::vector<Statement>& into, const std::string& after) {
    if (!cursor_.is_sign("{")) cursor_.expected("{ after " + after, hint_of_block());
    const Token open = cursor_.take();
    result.end = statements(into, open);
  }

  // What stands where a block should begin, as other languages write it.
  std::string hint_of_block() const {
    if (cursor_.peek().kind == TokenKind::line_end) return "it stands on the same line";
    for (Stranger kind : {Stranger::block, Stranger::sign})
      if (const std::string known = stranger_sign(cursor_.peek().text, kind); !known.empty()) return known.substr(2);
    return "";
  }

  // A word that begins statements elsewhere, unless it is the name of a place here.
  void refuse_stranger() const {
    if (cursor_.peek().kind == TokenKind::sign)
      if (const std::string known = stranger_sign(with_next()); !known.empty()) cursor_.expected("a statement", known.substr(2));
    const std::string known = stranger(Stranger::statement, cursor_.peek().text);
    if (known.empty()) return;
    for (const char* goes_on : {"=", "==", "[", ".", "+", "-", "*", "/"})
      if (cursor_.is_sign_after(goes_on)) return;
    cursor_.fail("there is no statement " + std::string(cursor_.peek().text) + known);
  }
  // Signs of several characters of which the language has the parts only.
  std::string with_next() const {
    const bool sign = cursor_.peek_after().kind == TokenKind::sign;
    return std::string(cursor_.peek().text) + (sign ? std::string(cursor_.peek_after().text) : "");
  }

  Statement loop() {
    Statement result;
    result.kind = Statement::Kind::loop;
    result.pos = cursor_.take().pos;
    result.targets = {cursor_.expect_name("the loop variable", "as in for i in 0..N { }")};
    if (!cursor_.is_word("in")) cursor_.expected("in after for " + result.targets[0].text, "as in for i in 0..N { }");
    cursor_.take();
    result.first = parse_expression(cursor_, file_);
    if (!cursor_.is_sign("..")) {
      const Node& first = file_.nodes[result.first];
      const std::string hint = first.kind == Kind::call ? stranger(Stranger::function, first.text) : "";
      cursor_.expected(".. and the end of the range", "as in for i in 0..N { }" + hint);
    }
    cursor_.take();
    result.last = parse_expression(cursor_, file_);
    body(result, result.statements, "the range of the loop");
    return result;
  }

  Statement repeat() {
    Statement result;
    result.kind = Statement::Kind::repeat;
    result.pos = cursor_.take().pos;
    result.body = parse_expression(cursor_, file_);
    if (!cursor_.is_name("max")) cursor_.expected("max and the most iterations", "as in while x > 0 max 50 { }");
    cursor_.take();
    result.last = parse_expression(cursor_, file_);
    body(result, result.statements, "the most iterations of the loop");
    return result;
  }

  Statement branch() {
    Statement result;
    result.kind = Statement::Kind::branch;
    result.pos = cursor_.take().pos;
    result.body = parse_expression(cursor_, file_);
    if (cursor_.is_word("then")) cursor_.fail("if c then a else b stands inside an expression; the statement is if c { } else { }");
    body(result, result.statements, "the condition");
    if (cursor_.is_word("else")) {
      result.otherwise_pos = cursor_.take().pos;
      result.has_otherwise = true;
      if (cursor_.is_word("if")) {
        result.otherwise.push_back(control());
        result.end = result.otherwise[0].end;
        return result;
      }
      body(result, result.otherwise, "else");
    }
    return result;
  }

  Statement variable(std::vector<Statement>& before) {
    Statement result;
    result.kind = Statement::Kind::variable;
    result.pos = cursor_.take().pos;
    if (cursor_.is_sign_after("[")) return by_elements(result, before);
    result.targets = {cursor_.expect_name("the name of a variable after var", "as in var x = zeros f32[N]")};
    if (!cursor_.is_sign("="))
      cursor_.expected("= after var " + result.targets[0].text, "a variable begins with a value, as in var x = zeros f32[N]");
    cursor_.take();
    result.body = parse_expression(cursor_, file_);
    return result;
  }

  // var x[i,j in 0..N] = e: the value under a name that nothing else has, x_0[i,j in 0..N] = e, and var x = x_0.
  Statement by_elements(Statement result, std::vector<Statement>& before) {
    const Name name{std::string(cursor_.peek().text), cursor_.peek().pos};
    Statement value;
    value.kind = Statement::Kind::assign;
    value.pos = result.pos;
    value.sign = "=";
    value.place = parse_place(cursor_, file_);
    if (file_.nodes[value.place].kind != Kind::read) cursor_.fail("a variable is declared by var x = e or var x[i,j] = e");
    if (!cursor_.is_sign("=")) cursor_.expected("= after var " + print(file_, value.place), "as in var " + name.text + "[i,j] = e");
    cursor_.take();
    value.body = parse_expression(cursor_, file_);
    value.end = cursor_.after_last();
    std::string own;
    for (int number = 0; own.empty() || cursor_.has_name(own) || made_.contains(own); ++number)
      own = name.text + "_" + std::to_string(number);
    made_.insert(own);
    file_.nodes[value.place].text = own;
    before.push_back(std::move(value));
    result.targets = {name};
    result.body = file_.add({Kind::name, name.pos, own, {}, {}});
    return result;
  }

  Statement assignment() {
    Statement result;
    result.kind = Statement::Kind::assign;
    result.pos = cursor_.peek().pos;
    refuse_stranger();
    result.place = parse_place(cursor_, file_);
    for (const char* sign : {"+", "-", "*", "/"})
      if (cursor_.is_sign(sign) && cursor_.is_sign_after("=")) result.sign = cursor_.take().text;
    if (!cursor_.is_sign("=")) {
      if (cursor_.is_sign("==")) cursor_.expected("=", "== compares, = assigns");
      for (const char* sign : {"+", "-"})
        if (cursor_.is_sign(sign) && cursor_.is_sign_after(sign))
          cursor_.expected("= after " + print(file_, result.place), "write " + print(file_, result.place) + " " + sign + "= 1");
      if (const std::string known = stranger_sign(with_next(), Stranger::place); !known.empty())
        cursor_.expected("= after " + print(file_, result.place), known.substr(2));
      cursor_.expected("= or [ after " + print(file_, result.place), "statements are x = e, x[...] = e, x += e, var x = e, for, while, if");
    }
    result.sign += cursor_.take().text;
    result.body = parse_expression(cursor_, file_);
    return result;
  }

  Statement dim() {
    Statement result;
    cursor_.take();
    result.kind = Statement::Kind::dim;
    result.targets = {cursor_.expect_name("the name of a dim")};
    result.pos = result.targets[0].pos;
    cursor_.expect_sign("=", "as in dim OH = H/2");
    result.body = parse_expression(cursor_, file_);
    return result;
  }

  Statement several_targets() {
    Statement result;
    Token open = cursor_.take();
    result.kind = Statement::Kind::call;
    result.targets = names("the name of a result", "write (a, b) = f(x)");
    close(open, ")", ", or ");
    result.pos = result.targets[0].pos;
    cursor_.expect_sign("=");
    Pos body = cursor_.peek().pos;
    if (cursor_.is_sign("(")) {
      cursor_.fail("names in parentheses take the results of an op's call, as in (a, b) = f(x); values are assigned one by one");
    }
    result.body = parse_expression(cursor_, file_);
    if (!is_op_call(result.body)) {
      throw Error("names in parentheses take the results of an op's call, as in (a, b) = f(x); this is none", body);
    }
    return result;
  }

  Statement definition() {
    Statement result;
    if (cursor_.is_word("if")) refuse_program_word();
    if (cursor_.is_word("let"))
      cursor_.fail("a definition begins with its name, as in y[i] = ...; let stands in an expression, as in let a = x[i] in a * a");
    result.targets = {cursor_.expect_name("a definition", "as in y[i,j] = x[j,i]")};
    result.pos = result.targets[0].pos;
    bool brackets = cursor_.is_sign("[");
    if (brackets) result.axes = left_axes();
    expect_equals(result.targets[0]);
    result.body = parse_expression(cursor_, file_);
    if (!brackets && is_op_call(result.body)) result.kind = Statement::Kind::call;
    return result;
  }

  // A call that neither the table of functions nor the types know: of an op of the file.
  bool is_op_call(Ref body) const {
    const Node& node = file_.nodes[body];
    return node.kind == Kind::call && !is_function_name(node.text);
  }

  std::vector<Axis> left_axes() {
    std::vector<Axis> result;
    Token open = cursor_.take();
    do {
      if (cursor_.peek().kind != TokenKind::name && cursor_.peek().kind != TokenKind::word) {
        cursor_.expected("the name of an axis",
                         "the left side has new, distinct axes only, as in y[i,j] = ...; an index stands on the right");
      }
      result.push_back(parse_axis(cursor_, file_, "the name of an axis"));
    } while (cursor_.accept_sign(","));
    if (!cursor_.is_sign("]") && infix_level(cursor_.peek().text) != level_open) {
      cursor_.expected(", or ]", "the left side has new, distinct axes only, as in y[i,j] = ...");
    }
    close(open, "]", ", or ");
    return result;
  }

  void expect_equals(const Name& target) {
    if (cursor_.accept_sign("=")) return;
    if (cursor_.is_sign("==")) cursor_.expected("=", "== compares, = defines");
    if (infix_level(cursor_.peek().text) != level_open && cursor_.is_sign_after("=")) {
      cursor_.fail(std::string(cursor_.peek().text) + "= belongs to imperative programs (prog); an op defines each name once");
    }
    if (cursor_.is_sign(".")) cursor_.fail("views such as .transpose belong to imperative programs (prog)");
    if (target.text == "var" || target.text == "for" || target.text == "while") refuse_program_word(target);
    if (target.text == "return")
      throw Error("there is no return: what an op gives is named behind its parameters, as in -> (y)", target.pos);
    if (cursor_.is_sign("(")) cursor_.fail("elements are written in brackets: " + target.text + "[i,j] = ...");
    cursor_.expected("= or [ after " + target.text, "a definition is NAME[axes] = expression");
  }
  [[noreturn]] void refuse_program_word() const {
    cursor_.fail("if as a statement belongs to imperative programs (prog); here it stands inside an expression");
  }
  [[noreturn]] static void refuse_program_word(const Name& word) {
    throw Error(word.text + " belongs to imperative programs (prog); an op holds definitions only", word.pos);
  }

  void end_of_statement(const std::string& what) {
    TokenKind kind = cursor_.peek().kind;
    if (kind == TokenKind::line_end || kind == TokenKind::end || cursor_.is_sign("}")) return;
    std::string hint;
    if (kind == TokenKind::name && what != "the statement")
      hint = "a newline or ; ends it";
    else if (kind == TokenKind::name || kind == TokenKind::number)
      hint = "a newline or ; ends it; is a sign missing?";
    if (const std::string known = stranger_sign(cursor_.peek().text); !known.empty()) hint = known.substr(2);
    if (const std::string known = stranger(Stranger::statement, cursor_.peek().text); !known.empty()) hint = known.substr(2);
    if (cursor_.is_sign("=")) hint = "equality is written ==";
    if (cursor_.is_sign("..")) hint = "a range stands after in, as in y[i in 0..N]";
    if (cursor_.is_sign(")") || cursor_.is_sign("]")) hint = "it closes nothing";
    if (cursor_.is_sign("{")) hint = "indices stand in brackets, as in x[i,j]";
    cursor_.expected("the end of " + what, hint);
  }

  Cursor cursor_;
  File& file_;
  std::set<std::string> made_;  // names of our own
};

}  // namespace

std::shared_ptr<File> parse(const std::string& text, const std::string& name) {
  auto file = std::make_shared<File>();
  file->name = name;
  file->text = std::make_shared<const std::string>(text);
  try {
    Tokens tokens = lex(*file->text);
    file->comments = std::move(tokens.comments);
    Parser(tokens, *file).run();
  } catch (const Error& error) {
    throw error.located(name, text);
  }
  return file;
}

}  // namespace xhat::ast

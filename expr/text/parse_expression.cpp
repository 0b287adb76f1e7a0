// Expressions by operator precedence, with a stack of what is still open: a sign that waits for its right
// operand, an `if` that waits for its `then`, `else` or last branch, a `let` that waits for its value or body. So
// chains of any kind (x+x+…, - - -x, 2^2^…, else if …, let … in let …) take no recursion; only brackets do, and
// those are counted.
#include "expr/text/parse_expression.h"

#include <utility>

#include "expr/core/syntax.h"
#include "expr/text/strangers.h"

namespace xhat::ast {
namespace {

struct Open {
  enum class State : uint8_t { unary, binary, condition, then, otherwise, let_value, let_body } state;
  Level level;       // unary, binary
  std::string text;  // the sign, or the name that let binds
  Pos pos;
  Ref first = kAbsent;   // left operand, condition, or let value
  Ref second = kAbsent;  // then
};
using State = Open::State;

// An open bracket: counted, and closed by its partner.
class Bracket {
 public:
  explicit Bracket(Cursor& cursor) : cursor_(cursor), open_(cursor.peek()) {
    if (cursor.depth == kMaxNesting) {
      cursor.fail(
          "brackets nest more than 256 levels deep; give inner parts names with let or definitions of their "
          "own");
    }
    ++cursor.depth;
    cursor.take();
  }
  ~Bracket() { --cursor_.depth; }
  Bracket(const Bracket&) = delete;
  Bracket& operator=(const Bracket&) = delete;

  void close(std::string before = "", const std::string& hint = "") {
    std::string partner = open_.text == "(" ? ")" : "]";
    if (!cursor_.is_sign(partner)) {
      cursor_.expected(before + partner + " to close the " + std::string(open_.text) + " at " + place(open_.pos), hint);
    }
    cursor_.take();
  }

 private:
  Cursor& cursor_;
  Token open_;
};

class ExpressionParser {
 public:
  ExpressionParser(Cursor& cursor, File& file) : cursor_(cursor), file_(file) {}

  Ref run() {
    for (;;) {
      take_prefixes();
      Ref value = primary();
      if (!take_infix(value) && !take_branch(value)) return finish(value);
    }
  }

 private:
  void take_prefixes() {
    for (;;) {
      if (cursor_.is_sign("-") || cursor_.is_sign("!")) {
        Token sign = cursor_.take();
        open_.push_back({State::unary, level_unary, std::string(sign.text), sign.pos});
      } else if (cursor_.is_word("if")) {
        open_.push_back({State::condition, level_open, "if", cursor_.take().pos});
      } else if (cursor_.is_word("let")) {
        Pos pos = cursor_.take().pos;
        Name name = cursor_.expect_name("a name after let", "as in let a = x[i] in a * a");
        cursor_.expect_sign("=", "as in let a = x[i] in a * a");
        open_.push_back({State::let_value, level_open, name.text, pos});
      } else {
        return;
      }
    }
  }

  // A sign: what binds more strongly on its left is complete.
  bool take_infix(Ref value) {
    if (cursor_.peek().kind != TokenKind::sign) return false;
    Level level = infix_level(cursor_.peek().text);
    if (level == level_open) return false;
    bool keeps_equals = level == level_power || level == level_compare;
    while (!open_.empty() && (open_.back().level > level || (open_.back().level == level && !keeps_equals))) {
      value = close_last(value);
    }
    if (level == level_compare && !open_.empty() && open_.back().level == level_compare) {
      cursor_.fail("comparisons do not chain: this " + std::string(cursor_.peek().text) + " follows the " + open_.back().text + " at " +
                   place(open_.back().pos) + "; write a < b && b < c, or parentheses");
    }
    Token sign = cursor_.take();
    open_.push_back({State::binary, level, std::string(sign.text), sign.pos, value});
    return true;
  }

  // then, else, in: the next part of the innermost `if` or `let` that is open.
  bool take_branch(Ref value) {
    if (cursor_.peek().kind != TokenKind::word) return false;
    size_t at = open_.size();
    while (at > 0 && !waits(open_[at - 1].state)) --at;
    if (at == 0) return false;
    Open& waiting = open_[at - 1];
    if (cursor_.peek().text != word_awaited(waiting.state)) return false;
    cursor_.take();
    while (open_.size() > at) value = close_last(value);
    if (waiting.state == State::then) {
      waiting.second = value;
      waiting.state = State::otherwise;
    } else {
      waiting.first = value;
      waiting.state = waiting.state == State::condition ? State::then : State::let_body;
    }
    return true;
  }

  static bool waits(State state) { return state == State::condition || state == State::then || state == State::let_value; }
  static std::string_view word_awaited(State state) {
    if (state == State::condition) return "then";
    return state == State::then ? "else" : "in";
  }

  Ref finish(Ref value) {
    while (!open_.empty()) {
      const Open& last = open_.back();
      if (waits(last.state)) {
        std::string of = last.state == State::let_value ? "let " + last.text : "if";
        std::string hint = last.state == State::then ? "every if has an else" : "";
        if (cursor_.peek().kind == TokenKind::line_end) {
          hint += (hint.empty() ? "" : "; ") + std::string("a line goes on inside ( ) or [ ], and beside a sign");
        }
        if (const std::string known = stranger_sign(cursor_.peek().text); !known.empty()) hint = known.substr(2);
        cursor_.expected(std::string(word_awaited(last.state)) + " for the " + of + " at " + place(last.pos), hint);
      }
      value = close_last(value);
    }
    return value;
  }

  // The last open part, completed by its last operand.
  Ref close_last(Ref value) {
    Open open = std::move(open_.back());
    open_.pop_back();
    Node node{Kind::unary, open.pos, std::move(open.text), {}, {}};
    switch (open.state) {
      case State::unary: node.args = {value}; break;
      case State::binary:
        node.kind = Kind::binary;
        node.args = {open.first, value};
        break;
      case State::otherwise:
        node.kind = Kind::choose;
        node.text.clear();
        node.args = {open.first, open.second, value};
        break;
      case State::let_body:
        node.kind = Kind::let;
        node.args = {open.first, value};
        break;
      case State::condition:
      case State::then:
      case State::let_value: throw Bug("an if or let was closed before its end");
    }
    return file_.add(std::move(node));
  }

  Ref primary() {
    const Token token = cursor_.peek();
    Node node{Kind::number, token.pos, std::string(token.text), {}, {}};
    if (token.kind == TokenKind::number || cursor_.is_word("inf") || cursor_.is_word("nan")) {
      cursor_.take();
      return suffixed(file_.add(std::move(node)), "a number");
    }
    if (cursor_.is_word("true") || cursor_.is_word("false")) {
      cursor_.take();
      node.kind = Kind::boolean;
      return suffixed(file_.add(std::move(node)), "a truth value");
    }
    if (cursor_.is_sign("(")) {
      Bracket bracket(cursor_);
      Ref inner = parse_expression(cursor_, file_);
      bracket.close();
      return suffixed(inner, "an expression in parentheses");
    }
    if (token.kind != TokenKind::name) no_operand();
    cursor_.take();
    if (cursor_.views && is_filled(token.text)) return suffixed(filled(std::move(node)), "a tensor");
    if (cursor_.is_sign("[")) return suffixed(read(std::move(node)), "an element");
    if (cursor_.is_sign("{") && is_reduction_name(token.text)) needs_axes(token);
    if (!cursor_.is_sign("(")) {
      node.kind = Kind::name;
      return suffixed(file_.add(std::move(node)), token.text);
    }
    bool reduction = is_reduction_name(token.text);
    if (reduction && cursor_.peek().has_colon) return suffixed(reduce(std::move(node)), "a reduction's result");
    if (reduction && !is_function_name(token.text)) needs_axes(token);
    return suffixed(call(std::move(node)), "a call's result");
  }
  [[noreturn]] static void needs_axes(const Token& reduction) {
    const std::string name(reduction.text);
    throw Error(name + " needs its axes and a colon before the body, as in " + name + "(i: x[i])", reduction.pos);
  }

  [[noreturn]] void no_operand() {
    std::string hint;
    const Token& token = cursor_.peek();
    if (token.kind == TokenKind::line_end && token.text != ";") hint = "a line goes on inside ( ) or [ ], and beside a sign";
    if (!open_.empty() && open_.back().pos.line == token.pos.line && open_.back().pos.column + 1 == token.pos.column) {
      if (const std::string known = stranger_sign(std::string(open_.back().text) + std::string(token.text)); !known.empty())
        hint = known.substr(2);
    }
    if (const std::string known = stranger_sign(token.text, Stranger::operand); !known.empty()) hint = known.substr(2);
    if (hint.empty() && !open_.empty() && token.text == "=") hint = "signs are == != < <= > >=";
    cursor_.expected("an expression", hint);
  }

  // In an op only names can be indexed; views belong to programs.
  Ref suffixed(Ref value, std::string_view what) {
    if (cursor_.views) return views(value, what);
    if (cursor_.is_sign("[")) {
      const bool element = file_.nodes[value].kind == Kind::read;
      cursor_.fail(
          std::string(what) + " cannot be indexed; " +
          (element ? "all indices stand in one pair of brackets, as in x[i,j]" : "give it a definition of its own and index its name"));
    }
    if (cursor_.is_sign("(")) cursor_.fail(std::string(what) + " cannot be called; a product is written a * b");
    if (cursor_.is_sign(".")) {
      refuse_module(what, cursor_.peek().pos);
      const std::string after(cursor_.peek_after().text);
      if (cursor_.peek_after().kind == TokenKind::sign)
        cursor_.fail("signs and functions have no point: they are of elements, as in y[i] = a[i] * exp(b[i])");
      refuse_method(after, Stranger::function, cursor_.peek().pos);
      cursor_.fail("views such as .transpose belong to imperative programs (prog); here axes are named, as in y[j,i] = x[i,j]");
    }
    return value;
  }

  static void refuse_module(std::string_view name, Pos pos) {
    if (const std::string hint = stranger(Stranger::module, name); !hint.empty()) throw Error("there are no modules" + hint, pos);
  }
  // x.exp() or x.sum(1), or a module that is not known: all begin with the function here.
  static void refuse_method(const std::string& name, Stranger kind, Pos pos) {
    const std::string hint = is_reduction_name(name)  ? "; a reduction names its axes, as in " + name + "(i: x[i])"
                             : is_function_name(name) ? "; a function stands before its operand, as in " + name + "(a)"
                                                      : stranger(kind, name);
    if (!hint.empty()) throw Error("there is no ." + name + hint, pos);
  }

  Ref views(Ref value, std::string_view what) {
    for (;;) {
      const Pos pos = cursor_.peek().pos;
      if (cursor_.is_sign("[")) {
        Node node{Kind::index, pos, {}, {value}, {}};
        value = read(std::move(node));
      } else if (cursor_.is_sign(".")) {
        value = method(value, what);
      } else if (cursor_.is_sign("(")) {
        if (left_ && file_.nodes[value].kind == Kind::name)
          cursor_.fail("a call is no statement and no place; its result is assigned, as in y = " + file_.nodes[value].text +
                       "(x); an element is " + file_.nodes[value].text + "[i]");
        cursor_.fail(std::string(what) + " cannot be called; a product is written a * b");
      } else {
        return value;
      }
    }
  }

  // .transpose(0,1) or .reshape[N,4]
  Ref method(Ref value, std::string_view of) {
    const Pos point = cursor_.take().pos;
    Node node{Kind::method, cursor_.peek().pos, {}, {value}, {}};
    node.text = cursor_.expect_name("the name of a view after the point", kMethodsHint).text;
    const bool extents = node.text == "reshape" || node.text == "expand";
    if (!extents && node.text != "transpose" && node.text != "squeeze" && node.text != "unsqueeze" && node.text != "diagonal") {
      refuse_module(of, point);
      refuse_method(node.text, Stranger::view, node.pos);
      throw Error("there is no view ." + node.text + "; " + kMethodsHint, node.pos);
    }
    if (!cursor_.is_sign(extents ? "[" : "(")) cursor_.expected(std::string(extents ? "[" : "(") + " after ." + node.text, kMethodsHint);
    Bracket bracket(cursor_);
    if (!cursor_.is_sign(extents ? "]" : ")")) expressions(node);
    bracket.close(", or ");
    return file_.add(std::move(node));
  }
  static constexpr const char* kMethodsHint = "views are .transpose(i,j) .reshape[...] .squeeze(i) .unsqueeze(i) .expand[...] .diagonal()";

  void expressions(Node& node) {
    do {
      node.args.push_back(parse_expression(cursor_, file_));
    } while (cursor_.accept_sign(","));
  }

  // zeros f32[N,C] or full(...) f32[N,C]: the type, which stands nowhere else behind a name, tells it from a name or a call.
  bool is_filled(std::string_view name) const {
    if (name == "zeros") return cursor_.peek().kind == TokenKind::name && dtype_from_name(cursor_.peek().text);
    return name == "full" && cursor_.is_sign("(");
  }
  Ref filled(Node node) {
    node.kind = Kind::filled;
    node.args = {kAbsent};
    if (node.text == "full") {
      Bracket bracket(cursor_);
      node.args[0] = parse_expression(cursor_, file_);
      bracket.close();
    }
    std::optional<DType> type;
    if (cursor_.peek().kind == TokenKind::name) type = dtype_from_name(cursor_.peek().text);
    if (!type) cursor_.expected("a type", "as in full(1) f32[N,C]; types are f64 f32 f16 bf16 i64 i32 u32 u8 bool");
    node.text = cursor_.take().text;
    if (cursor_.is_sign("(")) cursor_.expected("[ before the extents", "as in zeros f32[N,C]; of a scalar there are none");
    if (cursor_.is_sign("[")) {
      Bracket bracket(cursor_);
      expressions(node);
      bracket.close(", or ");
    }
    return file_.add(std::move(node));
  }

 public:
  Ref left_side() {
    Node node{Kind::name, cursor_.peek().pos, {}, {}, {}};
    node.text = cursor_.expect_name("a statement", "as in x = e, x[0] = e, var x = e, for, while, if").text;
    left_ = true;
    if (!cursor_.is_sign("[")) return views(file_.add(std::move(node)), "a name");
    return views(read(std::move(node)), "an element");
  }

 private:
  // An index, a slice or, on the left, a new axis with its range.
  Ref bracket_entry() {
    const Pos pos = cursor_.peek().pos;
    if (left_ && cursor_.peek().kind == TokenKind::name && cursor_.peek_after().kind == TokenKind::word &&
        cursor_.peek_after().text == "in") {
      Axis axis = parse_axis(cursor_, file_, "the name of an axis");
      return file_.add({Kind::range, axis.pos, axis.name, {axis.begin, axis.end}, {}});
    }
    if (const std::string known = stranger(Stranger::index, cursor_.peek().text); cursor_.views && !known.empty())
      cursor_.expected("an index", known.substr(2));
    Node node{Kind::slice, pos, {}, {kAbsent, kAbsent, kAbsent}, {}};
    if (!cursor_.is_sign(":")) node.args[0] = parse_expression(cursor_, file_);
    if (cursor_.views && cursor_.is_sign("..")) cursor_.expected(", or ]", "a slice is written a[0:2]");
    if (!cursor_.is_sign(":")) return node.args[0];
    if (!cursor_.views) slice();
    for (size_t part = 1; part < 3 && cursor_.accept_sign(":"); ++part)
      if (!cursor_.is_sign(":") && !cursor_.is_sign(",") && !cursor_.is_sign("]")) node.args[part] = parse_expression(cursor_, file_);
    return file_.add(std::move(node));
  }

  Ref read(Node node) {
    if (node.kind != Kind::index) node.kind = Kind::read;
    Bracket bracket(cursor_);
    if (cursor_.is_sign("]")) {
      cursor_.fail("an index is missing: write one index for each dimension, or " + node.text + " for a scalar");
    }
    do {
      node.args.push_back(bracket_entry());
    } while (cursor_.accept_sign(","));
    if (cursor_.is_word("else")) {
      cursor_.take();
      node.otherwise = parse_expression(cursor_, file_);
      bracket.close("", cursor_.is_sign(",") ? "else stands behind all indices, as in " + node.text + "[i-1, j else 0]" : "");
    } else {
      bracket.close(", or ");
    }
    return file_.add(std::move(node));
  }
  [[noreturn]] void slice() { cursor_.fail("slices such as x[:,c] belong to imperative programs (prog); name an axis"); }

  Ref call(Node node) {
    node.kind = Kind::call;
    Bracket bracket(cursor_);
    if (!cursor_.is_sign(")")) {
      do {
        node.args.push_back(parse_expression(cursor_, file_));
      } while (cursor_.accept_sign(","));
    }
    bracket.close(", or ", no_argument(node.text));
    return file_.add(std::move(node));
  }

  // What f(a, axis=1) and f(i: a[i]) are here.
  std::string no_argument(const std::string& function) const {
    if (!cursor_.is_sign("=") && !cursor_.is_sign(":")) return "";
    if (is_reduction_name(function)) return "a reduction names its axes, as in " + function + "(i: x[i])";
    if (const std::string known = stranger(Stranger::function, function); !known.empty()) return known.substr(2);
    if (cursor_.is_sign("=")) return "arguments have no names: they stand in their order";
    if (is_reduction_name(small_letters(function))) return "did you mean " + small_letters(function) + "?";
    return function + " is no reduction; those are sum, prod, mean, max, min, argmax, argmin, any and all";
  }

  Ref reduce(Node node) {
    node.kind = Kind::reduce;
    Bracket bracket(cursor_);
    do {
      node.axes.push_back(parse_axis(cursor_, file_, "the name of an axis to reduce over"));
    } while (cursor_.accept_sign(","));
    if (cursor_.is_word("if")) {
      cursor_.take();
      node.condition = parse_expression(cursor_, file_);
      if (!cursor_.is_sign(":")) cursor_.expected(": after the condition of " + node.text);
    }
    if (!cursor_.is_sign(":"))
      cursor_.expected(", or if or : after the axes of " + node.text, "as in " + node.text + "(k in 0..N if k < m: x[k])");
    cursor_.take();
    node.args = {parse_expression(cursor_, file_)};
    bracket.close();
    return file_.add(std::move(node));
  }

  Cursor& cursor_;
  File& file_;
  std::vector<Open> open_;
  bool left_ = false;  // in the brackets of a place
};

}  // namespace

Ref parse_expression(Cursor& cursor, File& file) { return ExpressionParser(cursor, file).run(); }

Ref parse_place(Cursor& cursor, File& file) { return ExpressionParser(cursor, file).left_side(); }

Axis parse_axis(Cursor& cursor, File& file, const std::string& what) {
  Name name = cursor.expect_name(what);
  Axis axis{name.text, kAbsent, kAbsent, name.pos};
  if (cursor.is_word("in")) {
    cursor.take();
    axis.begin = parse_expression(cursor, file);
    if (!cursor.is_sign("..")) cursor.expected(".. and the end of the range of " + axis.name, "as in " + axis.name + " in 0..N");
    cursor.take();
    axis.end = parse_expression(cursor, file);
  }
  return axis;
}

}  // namespace xhat::ast

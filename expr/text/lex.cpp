#include "expr/text/lex.h"

#include <algorithm>
#include <array>

#include "expr/core/dtype.h"
#include "expr/core/syntax.h"
#include "expr/text/strangers.h"

namespace xhat::ast {
namespace {

constexpr std::string_view kReserved[] = {"if", "then", "else", "let", "in", "inf", "nan", "true", "false"};
constexpr std::string_view kReductions[] = {"sum", "prod",   "max",    "min", "any",
                                            "all", "argmax", "argmin", "mean"};

// The names of the table's functions. pow stands there as the sign ^.
enum class Syntax { function, infix, prefix };
struct SyntaxRow {
  std::string_view text;
  Syntax syntax;
};
constexpr SyntaxRow kTable[] = {
#define XHAT_OP(id, text, syntax, ...) {text, Syntax::syntax},
#include "expr/core/ops.def"
};

// Longest first.
constexpr std::string_view kSigns[] = {"->", "..", "==", "!=", "<=", ">=", "&&", "||", "(",
                                       ")",  "[",  "]",  "{",  "}",  ",",  ":",  "+",  "-",
                                       "*",  "/",  "%",  "^",  "<",  ">",  "=",  "!",  "."};

struct InfixRow {
  std::string_view sign;
  Level level;
};
constexpr InfixRow kInfix[] = {
    {"||", level_or},     {"&&", level_and},     {"==", level_compare}, {"!=", level_compare},
    {"<", level_compare}, {"<=", level_compare}, {">", level_compare},  {">=", level_compare},
    {"+", level_sum},     {"-", level_sum},      {"*", level_product},  {"/", level_product},
    {"%", level_product}, {"^", level_power},
};

// ASCII only, whatever the locale.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_char(char c) { return is_letter(c) || is_digit(c); }

template <class Range>
bool contains(const Range& range, std::string_view name) {
  return std::find(std::begin(range), std::end(range), name) != std::end(range);
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {
    if (text.starts_with("\xEF\xBB\xBF")) line_begin_ = at_ = 3;  // a byte order mark
  }

  Tokens run() {
    while (at_ < text_.size() && result_.problem.empty()) step();
    if (result_.problem.empty()) add_end(TokenKind::end, text_.substr(text_.size()));
    return std::move(result_);
  }

 private:
  char look(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  Pos here() const { return {line_, static_cast<int>(at_ - line_begin_) + 1}; }

  void step() {
    char c = look();
    if (c == ' ' || c == '\t' || c == '\r') {
      ++at_;
    } else if (c == '\n') {
      newline();
    } else if (c == ';') {
      add_end(TokenKind::line_end, text_.substr(at_, 1));
      ++at_;
    } else if (c == '#') {
      comment();
    } else if (is_letter(c)) {
      size_t size = 1;
      while (is_name_char(look(size))) ++size;
      add(is_reserved(text_.substr(at_, size)) ? TokenKind::word : TokenKind::name, size);
    } else if (is_digit(c)) {
      number();
    } else {
      sign();
    }
  }

  void newline() {
    if ((open_.empty() || look_at(open_.back()) == "{") && !wants_more()) add_end(TokenKind::line_end, text_.substr(at_, 1));
    ++at_;
    ++line_;
    line_begin_ = at_;
    line_has_tokens_ = false;
  }

  // Behind a sign or word that something must follow, a line goes on.
  bool wants_more() const {
    if (result_.list.empty()) return false;
    const Token& last = result_.list.back();
    if (last.kind == TokenKind::word) return joins(last.text);
    return last.kind == TokenKind::sign && (last.text == "=" || last.text == "!" || infix_level(last.text) != level_open);
  }
  static bool joins(std::string_view word) { return word == "then" || word == "else" || word == "in"; }

  void comment() {
    size_t end = std::min(text_.find('\n', at_), text_.size());
    std::string_view text = text_.substr(at_, end - at_);
    text = text.substr(0, text.find_last_not_of(" \t\r") + 1);
    result_.comments.push_back({line_, !line_has_tokens_, std::string(text)});
    at_ = end;
  }

  void number() {
    size_t size = 1;
    while (is_digit(look(size))) ++size;
    if (look(size) == '.' && is_digit(look(size + 1))) {
      size += 2;
      while (is_digit(look(size))) ++size;
    }
    if (look(size) == 'e' || look(size) == 'E') {
      size_t digits = size + 1 + (look(size + 1) == '+' || look(size + 1) == '-');
      if (is_digit(look(digits))) {
        size = digits;
        while (is_digit(look(size))) ++size;
      }
    }
    std::string text(text_.substr(at_, size));
    if (is_letter(look(size))) {
      size_t end = size;
      while (is_name_char(look(end))) ++end;
      std::string rest(text_.substr(at_ + size, end - size));
      const bool suffix = rest.size() == 1 && std::string_view("fFlLuU").find(rest[0]) != std::string_view::npos;
      return bad(text + rest + " is neither a number nor a name; " + (suffix ? "numbers have no suffix, and " : "") +
                 "a product is written " + text + "*" + rest);
    }
    if (look(size) == '.' && look(size + 1) != '.') {
      return bad("digits are missing after the point of " + text + ".; write " + text + ".0");
    }
    add(TokenKind::number, size);
  }

  void sign() {
    std::string_view rest = text_.substr(at_);
    for (std::string_view s : kSigns) {
      if (!rest.starts_with(s)) continue;
      if (s == "." && is_digit(look(1))) return bad("digits are missing before the point; write 0.5 for .5");
      add(TokenKind::sign, s.size());
      track_brackets();
      return;
    }
    if (rest[0] == '&') return bad("& is no sign of the language; 'and' is written &&, of bits bit_and(a, b)");
    if (rest[0] == '|') return bad("| is no sign of the language; 'or' is written ||, of bits bit_or(a, b), the absolute value abs(a)");
    size_t size = 1;
    while (size < rest.size() && (static_cast<unsigned char>(rest[size]) & 0xC0) == 0x80) ++size;  // UTF-8
    unsigned char c = static_cast<unsigned char>(rest[0]);
    bool printable = c > ' ' && c != 0x7F && (c < 0x80 || size > 1);
    std::string shown =
        printable ? "character " + std::string(rest.substr(0, size)) : "byte " + std::to_string(c);
    const std::string known = stranger_sign(rest);
    if (!known.empty()) return bad("unexpected " + shown + known);
    bad("unexpected " + shown + "; names are made of letters, digits and _");
  }

  // Which ( holds a top-level colon, and whether newlines count.
  void track_brackets() {
    std::string_view s = result_.list.back().text;
    if (s == "(" || s == "[" || s == "{") {
      open_.push_back(result_.list.size() - 1);
    } else if (s == ":" && !open_.empty() && look_at(open_.back()) == "(") {
      result_.list[open_.back()].has_colon = true;
    } else if (s == ")" || s == "]") {
      if (!open_.empty() && look_at(open_.back()) != "{") open_.pop_back();
    } else if (s == "}") {
      // Whatever was left open inside the block ends with it; the parser will say what is missing.
      while (!open_.empty() && look_at(open_.back()) != "{") open_.pop_back();
      if (!open_.empty()) open_.pop_back();
    }
  }
  std::string_view look_at(size_t token) const { return result_.list[token].text; }

  void add(TokenKind kind, size_t size) {
    const std::string_view text = text_.substr(at_, size);
    const bool infix = kind == TokenKind::sign && infix_level(text) != level_open;
    if (infix || (kind == TokenKind::word && joins(text)))  // no statement begins with it: the line before goes on
      while (!result_.list.empty() && result_.list.back().kind == TokenKind::line_end && result_.list.back().text == "\n")
        result_.list.pop_back();
    result_.list.push_back({kind, text, here()});
    at_ += size;
    after_token_ = here();
    line_has_tokens_ = true;
  }
  void add_end(TokenKind kind, std::string_view text) {
    result_.list.push_back({kind, text, after_token_.known() ? after_token_ : Pos{1, 1}});
  }
  void bad(std::string problem) {
    result_.list.push_back({TokenKind::bad, text_.substr(at_, 1), here()});
    result_.problem = std::move(problem);
  }

  std::string_view text_;
  size_t at_ = 0;
  size_t line_begin_ = 0;
  int line_ = 1;
  bool line_has_tokens_ = false;
  Pos after_token_;
  std::vector<size_t> open_;  // brackets not closed yet, as indices of tokens
  Tokens result_;
};

}  // namespace

Tokens lex(std::string_view text) { return Lexer(text).run(); }

Level infix_level(std::string_view sign) {
  for (const InfixRow& row : kInfix) {
    if (row.sign == sign) return row.level;
  }
  return level_open;
}

bool is_reduction_name(std::string_view name) { return contains(kReductions, name); }

bool is_function_name(std::string_view name) {
  for (const SyntaxRow& row : kTable) {
    if (row.syntax == Syntax::function && row.text == name) return true;
  }
  return name == "pow" || dtype_from_name(name).has_value();
}

bool is_reserved(std::string_view name) { return contains(kReserved, name); }

bool is_valid_name(std::string_view name) {
  return !name.empty() && is_letter(name[0]) && std::all_of(name.begin(), name.end(), is_name_char) &&
         !is_reserved(name);
}

}  // namespace xhat::ast

// A place in a list of tokens, and the errors that name what was expected there.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>

#include "expr/text/lex.h"
#include "expr/text/strangers.h"

namespace xhat::ast {

// Brackets of an expression nest this deep, since the parser recurses into them (and nothing else). Deep
// enough for anything a person writes; 256 levels take about 150 KB of stack.
constexpr int kMaxNesting = 256;

class Cursor {
 public:
  explicit Cursor(const Tokens& tokens) : tokens_(&tokens) { refuse_bad(); }

  const Token& peek() const { return tokens_->list[at_]; }
  const Token& peek_after() const { return tokens_->list[std::min(at_ + 1, tokens_->list.size() - 1)]; }
  bool is_sign(std::string_view text) const { return peek().kind == TokenKind::sign && peek().text == text; }
  bool is_word(std::string_view text) const { return peek().kind == TokenKind::word && peek().text == text; }
  bool is_name(std::string_view text) const { return peek().kind == TokenKind::name && peek().text == text; }
  bool is_sign_after(std::string_view text) const {
    return peek_after().kind == TokenKind::sign && peek_after().text == text;
  }

  // Does it stand anywhere in the text?
  bool has_name(std::string_view text) const {
    return std::ranges::any_of(tokens_->list, [&](const Token& t) { return t.kind == TokenKind::name && t.text == text; });
  }

  Token take() {
    Token token = peek();
    if (token.kind != TokenKind::line_end) {
      after_last_ = {token.pos.line, token.pos.column + static_cast<int>(token.text.size())};
    }
    if (at_ + 1 < tokens_->list.size()) ++at_;
    refuse_bad();
    return token;
  }
  bool accept_sign(std::string_view text) {
    if (!is_sign(text)) return false;
    take();
    return true;
  }
  void skip_line_ends() {
    while (peek().kind == TokenKind::line_end) take();
  }

  Token expect_sign(std::string_view text, const std::string& hint = "") {
    if (!is_sign(text)) expected(std::string(text), hint);
    return take();
  }
  Name expect_name(const std::string& what, const std::string& hint = "") {
    if (peek().kind == TokenKind::word) {
      fail("expected " + what + ", found " + found() + ", which is a reserved word; choose another name");
    }
    if (peek().kind != TokenKind::name) expected(what, hint);
    Token token = take();
    return {std::string(token.text), token.pos};
  }

  [[noreturn]] void fail(const std::string& message) const { throw Error(message, peek().pos); }
  // Without a hint: what a sign of another language is here.
  [[noreturn]] void expected(const std::string& what, std::string hint = "") const {
    if (const std::string known = stranger_sign(peek().text); hint.empty() && !known.empty()) hint = known.substr(2);
    fail("expected " + what + ", found " + found() + (hint.empty() ? "" : "; " + hint));
  }
  std::string found() const {
    if (peek().kind == TokenKind::end) return "the end of the file";
    if (peek().kind == TokenKind::line_end) return peek().text == ";" ? ";" : "the end of the line";
    return std::string(peek().text);
  }

  // Just after the last token taken.
  Pos after_last() const { return after_last_; }

  int depth = 0;  // brackets open in the expression being parsed
  bool views = false;  // in a program: slices, methods and brackets behind anything

 private:
  void refuse_bad() const {
    if (peek().kind == TokenKind::bad) fail(tokens_->problem);
  }
  const Tokens* tokens_;
  size_t at_ = 0;
  Pos after_last_;
};

}  // namespace xhat::ast

// Text to tokens. A newline is a token (it ends a statement) except inside ( ) and [ ], behind a sign or word that something must follow
// (x +, then, else), and before a sign between two operands, then, else and in.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "expr/text/ast.h"

namespace xhat::ast {

enum class TokenKind : uint8_t {
  name,
  number,  // digits, .digits, exponent: `0..H` is three tokens
  word,    // reserved everywhere: if then else let in inf nan true false
  sign,
  line_end,  // a newline or ;
  end,
  bad  // not of the language; Tokens::problem says why. The last token then
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text;   // a part of the text that was lexed, which must outlive the tokens
  Pos pos;                 // line_end, end: just after the token before
  bool has_colon = false;  // "(": a ":" follows that stands in no inner bracket, as in a reduction
};

struct Tokens {
  std::vector<Token> list;
  std::vector<Comment> comments;
  std::string problem;
};

Tokens lex(std::string_view text);

}  // namespace xhat::ast

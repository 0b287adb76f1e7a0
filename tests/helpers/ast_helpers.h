// Texts and comparisons that the tests of the syntax share.
#pragma once
#include <memory>
#include <string>

#include "expr/text/ast.h"

namespace xhat::ast {

// op f(x: f32[N]) -> (y) { y = EXPRESSION }, and its body.
std::shared_ptr<File> parse_body(const std::string& expression);
Ref body_of(const File& file);
// Every operation in parentheses, so that a test shows how the text was understood.
std::string grouped(const File& file, Ref ref);
std::string grouped(const std::string& expression);
void expect_same_tree(const File& a, const File& b);
void expect_round_trip(const std::string& text);
std::string repeated(const std::string& text, size_t times);
// The examples of the language's definition.
extern const char* const kContract;

}  // namespace xhat::ast

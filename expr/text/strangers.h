// What users of other languages write, and what it is here (strangers.def).
#pragma once
#include <string>
#include <string_view>

namespace xhat::ast {

enum class Stranger : uint8_t { function, name, sign, module, type, view, statement, place, block, operand, index };

// "; write ..." for a text that is known as one of that kind, else nothing. Of functions and types also in other letters.
std::string stranger(Stranger kind, std::string_view text);
// Without capitals and underscores: GELU and gelu, LeakyReLU and leaky_relu are the same.
std::string small_letters(std::string_view name);
// Of the longest known one that the text begins with.
std::string stranger_sign(std::string_view text, Stranger kind = Stranger::sign);

}  // namespace xhat::ast

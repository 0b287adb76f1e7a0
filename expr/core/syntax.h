// What the parser and the printer agree about: how strongly signs bind, and which names are built in.
#pragma once
#include <string_view>

namespace xhat::ast {

// Rising: an operand that binds less than its place asks for stands in parentheses.
enum Level : int {
  level_open,  // if then else, let in: as far to the right as possible
  level_or,
  level_and,
  level_compare,  // does not chain
  level_sum,
  level_product,
  level_unary,
  level_power,  // right-associative; its right operand may be unary: 2^-1
  level_primary
};

// The level of an infix sign, level_open if it is none.
Level infix_level(std::string_view sign);

bool is_reduction_name(std::string_view name);  // sum prod max min any all argmax argmin mean
bool is_function_name(std::string_view name);   // the functions of ops.def, pow, and casts by dtype name
bool is_reserved(std::string_view name);        // if then else let in inf nan true false
// Letters, digits and _, not starting with a digit, not reserved.
bool is_valid_name(std::string_view name);

}  // namespace xhat::ast

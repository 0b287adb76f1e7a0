// From the tree of an op or a program that was written in C++ to a Program; its errors name the caller's line. Private to expr/dsl.
#pragma once
#include <vector>

#include "expr/dsl/dsl.h"

namespace xhat::dsl {

// Where the caller wrote what a tree is made of.
struct Places {
  Where whole;
  std::vector<Where> statements;  // of the op or program itself, in order; those inside of a loop or branch follow it
  std::vector<Where> gradient;    // of the gradient that it states
};

// The op of that name. An Error shows the statement in the printed text, and begins with the place of it: what is printed is what the caller
// wrote, in other words.
Program elaborated(const ast::File& tree, const std::string& name, const Places& places);
// The same of the printed text.
Program read_back(const std::string& text, const std::string& name, const Places& places);

}  // namespace xhat::dsl

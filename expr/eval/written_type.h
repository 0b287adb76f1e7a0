// The type that an expression of a program has whichever side of its choices a run takes. The interpreter evaluates the side that is
// taken only, where `0` in `if c then i64(1) else 0` says nothing of its type.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "expr/text/ast.h"

namespace xhat::memory {

struct TypesOfNames {
  std::function<std::optional<DType>(const std::string&)> variable;  // of a name that is no axis of a reduction in the expression
  std::function<std::optional<DType>(const std::string&)> called;    // of the first result of an op
};

// None: what it is made of are literals and dims, which take the type of what they stand beside, or it is not known.
std::optional<DType> written_type(const ast::File& file, ast::Ref expression, const TypesOfNames& types);

// A reduction is in it.
bool reduces(const ast::File& file, ast::Ref expression);

}  // namespace xhat::memory

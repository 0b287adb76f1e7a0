// Items with other tensors and other axes in them.
#pragma once
#include <map>

#include "expr/imperative/form.h"

namespace xhat::imperative {

// Reads of these tensors become reads of those, everywhere.
void rename_tensors(Arena& a, Items& items, const std::map<TensorId, TensorId>& to);
Id with_tensors(Arena& a, Id root, const std::map<TensorId, TensorId>& to);
// Every expression of the items, and every tensor that they read as a whole, replaced.
void replace_all(Items& items, const std::function<Id(Id)>& expression, const std::function<TensorId(TensorId)>& tensor);

}  // namespace xhat::imperative

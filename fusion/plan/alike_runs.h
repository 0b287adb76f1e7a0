// Which runs of definitions are alike, so that what is found out about one holds for the other: the layers of a network differ in the names
// of their tensors only.
#pragma once
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "expr/core/uses.h"

namespace xhat::fusion {

class AlikeRuns {
 public:
  // extent: of an expression of dims. apart: definitions of these tensors are not like others.
  AlikeRuns(const Program& p, const Uses& uses, const std::function<int64_t(Id)>& extent, std::span<const TensorId> apart);
  // Equal for runs (ascending places of definitions) that are equal but for the names of tensors and axes. Which of two tensors comes first,
  // whether a tensor has the same size, and whether others read what is made is part of it.
  std::vector<uint32_t> key(std::span<const size_t> run) const;

 private:
  struct Own {
    uint32_t structure = 0;         // the same number for definitions that differ only in their tensors
    std::vector<TensorId> tensors;  // the target, then those read, in the order in which they are met
    std::vector<size_t> readers;    // definitions that read the target, ascending
    bool output = false;
  };
  uint32_t number_of(std::vector<uint64_t> text);

  std::map<std::vector<uint64_t>, uint32_t> numbers_;
  std::vector<Own> definitions_;
  std::vector<uint32_t> sizes_;  // by tensor: the same number for the same type and extents
};

}  // namespace xhat::fusion

// What a kernel's members read and write, and where.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "expr/index/data_ends.h"
#include "runtime/kernel/kernel_spec.h"

namespace xhat::runtime {

struct Access {
  uint32_t tensor;
  std::vector<Id> indices;
  bool may_miss;  // a read_or: its indices may lie outside
};

std::vector<Id> roots(const SpecMember& m);
std::vector<Access> accesses(const KernelSpec& spec, const SpecMember& m);
// Who indexes a dimension of a tensor: (tensor, dimension) -> index expressions.
std::map<std::pair<uint32_t, size_t>, std::set<Id>> indices_of(const KernelSpec& spec);
// Axes used otherwise than as a bare index of a read: in arithmetic, conditions, or as a value.
std::set<Id> used_as_values(const KernelSpec& spec);
// Does the kernel have nothing to compute, since all that it makes are empty tensors?
bool writes_nothing(const KernelSpec& spec);

// A place that data move along axes, x[t+i64(shift[s])]: what axes give, and the rest, which does not depend on these; each with its factors.
struct Moved {
  std::vector<std::pair<Id, int64_t>> by_axes, rest;
  int64_t constant = 0, least = 0, most = 0;  // the least and most of axes and constant together
};
std::optional<Moved> moved_by_data(const KernelSpec& spec, Id index);
// Of plain reads, each with the dimension: those that are moved by data, and read wherever their axes are. Then whatever data say is inside for all
// places of the axes: it is what is to be clamped, and not each place, which would make gathers of vectors along memory.
std::set<std::pair<Id, size_t>> moved_reads(const KernelSpec& spec);

}  // namespace xhat::runtime

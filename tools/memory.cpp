#include "tools/memory.h"

#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include "expr/index/dims.h"
#include "runtime/explain/explain.h"

namespace xhat::tool {
namespace {

// The number in a file of the system's; below 0: there is none ("max": no limit).
double number_in(const char* path) {
  std::ifstream in(path);
  double number = -1;
  return in >> number ? number : -1;
}

double elements_of(const Program& p, TensorId t, const DimValues& dims) {
  double n = 1;
  for (int64_t extent : shape_of(p, t, dims)) n *= static_cast<double>(extent);
  return n;
}

}  // namespace

double bytes_of(const Program& p, const std::vector<TensorId>& tensors, const DimValues& dims, double each) {
  double bytes = 0;
  for (TensorId t : tensors) bytes += elements_of(p, t, dims) * (each > 0 ? each : static_cast<double>(byte_size(p.tensors[t].type)));
  return bytes;
}

double bytes_of_all(const Program& p, const DimValues& dims, double each) {
  std::vector<TensorId> all;
  for (auto* list : {&p.inputs, &p.cotangents}) all.insert(all.end(), list->begin(), list->end());
  for (const Definition& d : p.definitions()) all.insert(all.end(), d.targets.begin(), d.targets.end());
  return bytes_of(p, all, dims, each);
}

double available_bytes() {
  std::ifstream in("/proc/meminfo");
  double available = 0;
  for (std::string name; in >> name;)
    if (name == "MemAvailable:" && in >> available) break;
  available *= 1024;  // it is in KiB
  const double most = number_in("/sys/fs/cgroup/memory.max"), taken = number_in("/sys/fs/cgroup/memory.current");
  if (most >= 0 && taken >= 0) available = std::min(available, std::max(1.0, most - taken));
  return available;
}

void check_memory(const Command& c, const Program& op, const DimValues& dims, double bytes) {
  const double available = available_bytes();
  if (c.ignore_memory || available <= 0 || bytes <= available) return;
  throw Error(fmt::format("op {}: {} needs about {} of memory{}, and {} can be had. take smaller sizes, or say --ignore-memory", op.name,
                          c.name, bytes_text(bytes), dims.empty() ? "" : " with " + dims_text(dims), bytes_text(available)));
}

}  // namespace xhat::tool

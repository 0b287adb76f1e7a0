#include "runtime/ahead/build/registered_ops.h"

#include <algorithm>

#include <fmt/format.h>

#include "expr/core/error.h"

namespace xhat {
namespace {

std::vector<RegisteredOp>& ops() {
  static std::vector<RegisteredOp> all;  // a local static, because sources are initialized in no fixed order
  return all;
}

}  // namespace

bool register_op(const RegisteredOp& op) {
  ops().push_back(op);
  return true;
}

const std::vector<RegisteredOp>& registered_ops() { return ops(); }

Program registered_op(const std::string& name) {
  std::vector<std::string> known;
  const RegisteredOp* found = nullptr;
  for (const RegisteredOp& op : ops()) {
    known.push_back(op.name);
    if (!name.empty() && op.name != name) continue;
    if (found && !name.empty())
      throw Error(
          fmt::format("op {} is there twice: {}:{} and {}:{}; give one another name", name, found->file, found->line, op.file, op.line));
    found = &op;
  }
  std::ranges::sort(known);
  if (known.empty()) throw Error("the sources hold no op; XHAT_OP(name) { ... return op.build(); } makes one");
  if (!found) throw Error(fmt::format("there is no op '{}'; there are {}", name, fmt::join(known, ", ")));
  if (name.empty() && known.size() > 1)
    throw Error(fmt::format("there are several ops: {}; say which one: --op {}", fmt::join(known, ", "), known[0]));
  try {
    return found->make();
  } catch (const Error& e) {
    throw Error(fmt::format("{}:{}: op {}: {}", found->file, found->line, found->name, e.message()));
  }
}

}  // namespace xhat

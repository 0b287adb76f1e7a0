// Halide's statements by short names, for the files that write loops.
#pragma once
#include <string>

#include "Halide.h"

namespace xhat::runtime {

namespace hi = Halide::Internal;
using Halide::Expr;
using hi::Stmt;

constexpr int64_t kStackBytes = 4096;  // of a value that lies on the stack, at most

inline Expr variable(Halide::Type t, const std::string& name) { return hi::Variable::make(t, name); }
inline Expr int_variable(const std::string& name) { return variable(Halide::Int(32), name); }
// of: what Halide knows of a buffer that is the caller's.
inline Expr loaded(Halide::Type type, const std::string& buffer, const Expr& index, const Halide::Parameter& of = {}) {
  return hi::Load::make(type, buffer, index, {}, of, hi::const_true(), {});
}
inline Stmt stored_at(const std::string& buffer, const Expr& value, const Expr& index, const Halide::Parameter& of = {}) {
  return hi::Store::make(buffer, value, index, of, hi::const_true(), {});
}
inline Stmt serial(const std::string& name, const Expr& first, const Expr& count, const Stmt& body) {
  return hi::For::make(name, first, count, hi::ForType::Serial, Halide::Partition::Never, Halide::DeviceAPI::None, body);
}
inline Stmt vectorized(const std::string& name, int lanes, const Stmt& body) {
  return hi::For::make(name, 0, lanes, hi::ForType::Vectorized, Halide::Partition::Never, Halide::DeviceAPI::None, body);
}
// Room for so many elements while the body runs.
inline Stmt on_stack(const std::string& name, Halide::Type type, int64_t elements, const Stmt& body) {
  const int room = static_cast<int>(elements > 0 ? elements : 1);
  return hi::Allocate::make(name, type, Halide::MemoryType::Stack, {room}, hi::const_true(), body);
}
// Does it only tell Halide's loops something of its argument, which is its value?
inline bool is_hint(const hi::Call* x) {
  return x->is_intrinsic({hi::Call::likely, hi::Call::likely_if_innermost, hi::Call::unsafe_promise_clamped, hi::Call::promise_clamped});
}

// What stands in the place of all that Halide made of a pipeline without work.
struct Replaced : hi::IRMutator {
  Stmt with;
  Stmt mutate(const Stmt&) override { return with; }
};

}  // namespace xhat::runtime

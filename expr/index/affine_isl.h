// isl's C objects as values. isl counts references, so a copy is cheap; functions that "take" get a copy
// (give()). A null result means an error or that the budget of operations is spent: GaveUp either way.
#pragma once
#include <isl/aff.h>
#include <isl/constraint.h>
#include <isl/ctx.h>
#include <isl/id.h>
#include <isl/ilp.h>
#include <isl/options.h>
#include <isl/point.h>
#include <isl/set.h>
#include <isl/space.h>
#include <isl/stride_info.h>
#include <isl/val.h>

#include "expr/index/affine_poly.h"

namespace xhat::affine {

template <class T, T* (*Copy)(T*), T* (*Free)(T*)>
class Handle {
 public:
  explicit Handle(T* p) : p_(p) {
    if (!p) throw GaveUp{};
  }
  Handle(const Handle& o) : p_(Copy(o.p_)) {}
  Handle(Handle&& o) noexcept : p_(o.p_) { o.p_ = nullptr; }
  Handle& operator=(Handle o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Handle() { Free(p_); }
  T* get() const { return p_; }
  T* give() const { return Copy(p_); }

 private:
  T* p_;
};

using Set = Handle<isl_set, isl_set_copy, isl_set_free>;
using PwAff = Handle<isl_pw_aff, isl_pw_aff_copy, isl_pw_aff_free>;
using Aff = Handle<isl_aff, isl_aff_copy, isl_aff_free>;
using Val = Handle<isl_val, isl_val_copy, isl_val_free>;
using Name = Handle<isl_id, isl_id_copy, isl_id_free>;
using Space = Handle<isl_space, isl_space_copy, isl_space_free>;
using Point = Handle<isl_point, isl_point_copy, isl_point_free>;

inline bool yes(isl_bool b) {
  if (b == isl_bool_error) throw GaveUp{};
  return b == isl_bool_true;
}
inline int count(isl_size n) {
  if (n < 0) throw GaveUp{};
  return n;
}

Set operator&(const Set& a, const Set& b);
inline Set operator|(const Set& a, const Set& b) { return Set(isl_set_union(a.give(), b.give())); }
inline Set operator-(const Set& a, const Set& b) { return Set(isl_set_subtract(a.give(), b.give())); }
inline Set complement(const Set& a) { return Set(isl_set_complement(a.give())); }
inline Set coalesced(const Set& a) { return Set(isl_set_coalesce(a.give())); }
inline bool is_empty(const Set& a) { return yes(isl_set_is_empty(a.get())); }
inline bool is_subset(const Set& a, const Set& b) { return yes(isl_set_is_subset(a.get(), b.get())); }

inline PwAff operator+(const PwAff& a, const PwAff& b) { return PwAff(isl_pw_aff_add(a.give(), b.give())); }

inline int64_t to_int64(const Val& v) {
  // isl_val_get_num_si is a long; anything larger is no index of ours.
  if (!yes(isl_val_is_int(v.get())) || isl_val_cmp_si(v.get(), INT64_MAX / 4) > 0 ||
      isl_val_cmp_si(v.get(), INT64_MIN / 4) < 0)
    throw GaveUp{};
  return isl_val_get_num_si(v.get());
}

// One question's isl context. `operations` bounds the work (isl counts its inner steps), so that nothing
// hangs.
class Context {
 public:
  explicit Context(unsigned long operations) : ctx_(isl_ctx_alloc()) {
    if (!ctx_) throw std::bad_alloc();
    isl_options_set_on_error(ctx_, ISL_ON_ERROR_CONTINUE);
    isl_ctx_set_max_operations(ctx_, operations);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { isl_ctx_free(ctx_); }
  isl_ctx* get() const { return ctx_; }

 private:
  isl_ctx* ctx_;
};

}  // namespace xhat::affine

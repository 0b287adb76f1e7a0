// Products of matrices that need only a part of their results or terms, so said that kernels need not compute the rest.
//
//   s[i,j] = sum(d: q[i,d]*k[j,d])   m[i] = max(j in 0..i+1: s[i,j])    =>   s[i,j] = sum(d if j <= i: q[i,d]*k[j,d])
//   o[i,d] = sum(j in max(0,i-63)..i+1: p[i,j]*v[j,d])                  =>   o[i,d] = sum(j in 0..i+1 if i-63 <= j: p[i,j]*v[j,d])
//   s[i,j] = sum(k: d[k,i]*d[k,j])      =>   h[i,j] = sum(k if j <= i: d[k,i]*d[k,j])   s[i,j] = if j <= i then h[i,j] else h[j,i]
//   s[i,j] = sum(k if j <= i: d[k,i]*d[k,j])   t[i,j] = sum(k if i <= j: d[k,j]*d[k,i])   =>   t[i,j] is s[j,i]
//
// In the second line v's rows are read by many i: counted from the beginning of a window they would be others for each.
//
// Needs: a program of one direction in normal form, sizes for all dims. Keeps: every value and every bit that is read; the order of terms is
// the kernel's. Only under policy full, and for kernels that leave out blocks without terms (runtime/cpu/lower_bands.cpp).
#pragma once
#include "fusion/plan/plan.h"

namespace xhat {

Program products_in_triangles(const Program& p, const DimValues& sizes, const PlanRequest& request);

}  // namespace xhat

// Tensors of short rows, points in space or colours, are read in planes where much is computed of them: vectors run along the points.
//
//   f[i,d] = sum(j: w[i,j]*x[j,d]), d in 0..3     =>     x_planes[d,j] = x[j,d]
//   g[j,d] = sum(i: w[i,j]*x[i,d])                       f[i,d] = sum(j: w[i,j]*x_planes[d,j])
//                                                        g_planes[d,j] = sum(i: w[i,j]*x_planes[d,i])
//                                                        g[j,d] = g_planes[d,j]
//
// A row shorter than a vector leaves lanes idle along d, and strides along j. Only where a definition has many times as many points as the
// tensors have elements, so that the copies are little. Not for a product that takes short rows as one long row, since all that goes along them
// goes along the axis before them, too: sum(j: w[i,j]*z[j,k,d]), over j and d or for each k and d.
//
// Needs: a program of one direction in normal form, sizes for all dims. Keeps: every value. Does nothing under a policy other than full.
#pragma once
#include "fusion/plan/plan.h"

namespace xhat {

Program short_rows_as_planes(const Program& p, const DimValues& sizes, const PlanRequest& request);

}  // namespace xhat

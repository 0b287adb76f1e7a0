// At how many places a map is read for one element of a definition, also where it is read through views:
//
//     v[i,j] = m[2*i+j]                 y reads m at two places, m[2*i] and m[2*i+1], though v reads it at one
//     y[i] = v[i,0] + v[i,1]
#pragma once
#include "expr/core/uses.h"

namespace xhat {

// What is read at so many places is dear if it costs anything: more are not counted.
constexpr int64_t kMostPlacesRead = 16;

struct PlacesRead {
  int64_t all = 0;       // over all definitions that read it
  bool several = false;  // a definition reads it at several places
};

// Through maps that are views: an element of another tensor or a choice of some, and not read at several places themselves. (Through a
// comparison, such as the mask of a maximum's ties, it costs more to keep the value than is gained.) Stops counting the places of a definition at kMostPlacesRead.
PlacesRead places_read(Arena& a, const Uses& uses, TensorId map);

}  // namespace xhat

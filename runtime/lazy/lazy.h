// Lazy arrays: values that are computed when they are asked for, together and fused, with gradients.
//
//   #include "xhat/lazy.h"
//   using namespace xhat::lazy;
//
//   Array x = array(view), w = array(view2);     // names the caller's memory, no copy; array({1.f, 2.f}) owns
//   Array y = relu(matmul(x, w) + b);            // nothing runs
//   Array loss = mean(square(y - t));
//   auto [gw, gb] = grad(loss, {w, b});          // lazy too
//   realize(loss, gw, gb);                       // one plan, shared kernels, each value once
//   w.assign(w - 0.1f * gw); w.realize();        // in place; views of w see it
//
// Errors are xhat::Error. Threads: graphs may be built and realized in several threads at once, which share nothing but realized arrays;
// realize() runs one call at a time, and one Array object (with its copies and views) belongs to one thread at a time.
#pragma once
#include "runtime/lazy/array.h"
#include "runtime/lazy/functions.h"
#include "runtime/lazy/options.h"
#include "runtime/lazy/viz.h"

// So that a program needs to open this namespace only.
namespace xhat::lazy {
using xhat::CompileOptions;
using xhat::DType;
using xhat::Error;
using xhat::parse_op;
using xhat::Program;
using xhat::TensorView;
using xhat::VizOptions;
}  // namespace xhat::lazy

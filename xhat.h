// xhat: write a tensor op once; get its gradient, what is worth keeping for it, and fused kernels.
//
//   #include <cstdio>
//   #include <xhat/xhat.h>
//   using namespace xhat::dsl;  // the only namespace a program needs
//
//   int main() {
//     Op op("scaled_tanh");                                   // the op, point by point ...
//     Dim N("N");
//     Axis i("i");
//     Tensor x = op.input("x", f32, {N}), scale = op.input("scale", f32), y("y");
//     y(i) = scale * tanh(x(i));
//     op.output(y);
//
//     CompiledOp run = compile(op.build());                   // ... differentiated, planned, compiled ...
//     float xs[3] = {-1, 0, 1}, dys[3] = {1, 1, 1}, s = 2;
//     float ys[3], dxs[3], ds;
//     TensorView vx(xs, {3}), vs(&s, {}), vy(ys, {3});
//     Stash stash = run.forward({{"x", vx}, {"scale", vs}, {"y", vy}});   // ... and run on your own memory
//     run.backward({{"dy", TensorView(dys, {3})}, {"grad_x", TensorView(dxs, {3})}, {"grad_scale", TensorView(&ds, {})}}, stash);
//     std::printf("y(1) = %g, dy/dx(0) = %g\n", ys[2], dxs[1]);           // y(1) = 1.52319, dy/dx(0) = 2
//   }
//
// An op may as well come from a text: compile(parse_op("op f(x: f32[N]) -> (y) { y[i] = tanh(x[i]) }")).
// TensorView also takes std::vector, std::span and std::array, whose lengths it checks. Elements of f16 and bf16 are float16 and bfloat16.
// Arrays that compute when they are asked, without ops: <xhat/lazy.h>.
// Errors are xhat::Error and say what to do. Eigen's matrices and tensors: <xhat/eigen.h>; std::mdspan: <xhat/mdspan.h>. Lessons: examples/.
#pragma once
#include "ad/check/gradcheck.h"
#include "ad/check/random_inputs.h"
#include "ad/forward/jvp.h"
#include "ad/forward/transform.h"
#include "ad/reverse/gradient.h"
#include "expr/core/program.h"
#include "expr/dsl/dsl.h"
#include "expr/dsl/formulas.h"
#include "expr/dsl/prog.h"
#include "expr/eval/evaluate.h"
#include "expr/eval/nonfinite.h"
#include "runtime/ahead/build/registered_ops.h"
#include "runtime/call/compile.h"
#include "runtime/explain/explain.h"
#include "runtime/explain/tuning.h"
#include "runtime/viz/viz.h"

// What a program that writes ops needs beside the language itself. In xhat, Op, Tensor and Dim are the
// engine's own and would clash with those of the language, so nobody should have to open that namespace.
namespace xhat::dsl {

// Texts.
using xhat::equal;
using xhat::Module;
using xhat::parse;
using xhat::parse_op;
using xhat::print;

// Compiling and running.
using xhat::Argument;
using xhat::bfloat16;
using xhat::CallCounts;
using xhat::compile;
using xhat::CompiledOp;
using xhat::CompileOptions;
using xhat::DimValues;
using xhat::DType;
using xhat::Error;
using xhat::float16;
using xhat::FusePolicy;
using xhat::FusionOptions;
using xhat::MachineModel;
using xhat::Stash;
using xhat::StashOptions;
using xhat::TensorView;

// On a GPU: options.target = Target::cuda, tensors that lie there, and a stream (docs/gpu.md).
using xhat::CallOptions;
using xhat::device_view;
using xhat::synchronize;
using xhat::Target;

// Choices that were measured by `xhat tune`: options.choices = choices_of(read_tuning("tuned.json")).
using xhat::choices_of;
using xhat::read_tuning;

// Looking.
using xhat::explain;
using xhat::Explanation;
using xhat::to_text;

// Deriving: gradient() is what compile() does by itself; vjp, jvp, hvp, jacobian, hessian and vmap give ops of their own, which are compiled with
// differentiate = false and run by infer().
using xhat::gradient;
using xhat::hessian;
using xhat::hvp;
using xhat::jacobian;
using xhat::jvp;
using xhat::vjp;
using xhat::vmap;

// Checking: the evaluator, which says what an op means, and finite differences.
using xhat::Array;
using xhat::array_of;
using xhat::Arrays;
using xhat::check_gradient;
using xhat::evaluate;
using xhat::EvaluateOptions;
using xhat::gradcheck;
using xhat::GradcheckOptions;
using xhat::GradcheckReport;
using xhat::random_cotangents;
using xhat::random_inputs;
using xhat::Rounding;
using xhat::sample_dims;
using xhat::scalar_of;

}  // namespace xhat::dsl

#include "runtime/gpu/device_code.h"
#include "runtime/cpu/ir/statements.h"
#include "runtime/emit/vector_math.h"

#include <cstring>
#include <map>

#include "expr/core/error.h"

namespace xhat::runtime {

using Halide::Expr;
using Halide::Float;
using Halide::Type;
using Halide::UInt;
using namespace Halide::Internal;

Halide::DeviceAPI api_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cuda: return Halide::DeviceAPI::CUDA;
    case DeviceKind::opencl: return Halide::DeviceAPI::OpenCL;
    case DeviceKind::vulkan: return Halide::DeviceAPI::Vulkan;
  }
  return Halide::DeviceAPI::None;
}

namespace {

// What the CPU's compiler calls an intrinsic, by device: null where it has none of that name.
struct Builtin {
  const char *llvm, *cuda, *opencl, *vulkan;
};
constexpr Builtin kBuiltins[] = {
    {"llvm.fma.f32", "llvm.fma.f32", "fma", nullptr},
    {"llvm.fma.f64", "llvm.fma.f64", "fma", nullptr},
    {"llvm.floor.f32", "floor_f32", "floor", "floor_f32"},
    {"llvm.floor.f64", "floor_f64", "floor", nullptr},
    {"llvm.ceil.f32", "ceil_f32", "ceil", "ceil_f32"},
    {"llvm.ceil.f64", "ceil_f64", "ceil", nullptr},
    {"llvm.roundeven.f32", "llvm.rint.f32", "rint", nullptr},
    {"llvm.roundeven.f64", "llvm.rint.f64", "rint", nullptr},
    {"sin", "sin_f64", "sin", nullptr},
    {"cos", "cos_f64", "cos", nullptr},
    {"tan", "tan_f64", "tan", nullptr},
    {"pow", "pow_f64", "pow", nullptr},
    {"erf", "__nv_erf", "erf", nullptr},
    {"fmod", "__nv_fmod", "fmod", nullptr},
    {"remainder", "__nv_remainder", "remainder", nullptr},
};

const char* name_on(const Builtin& b, DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cuda: return b.cuda;
    case DeviceKind::opencl: return b.opencl;
    case DeviceKind::vulkan: return b.vulkan;
  }
  return nullptr;
}

// Halves as integers, however deep they are.
struct AsBits : IRMutator {
  using IRMutator::visit;
  Expr visit(const Reinterpret* op) override {
    Expr value = mutate(op->value);
    return op->type.is_float() && op->type.bits() == 16 ? value : Halide::reinterpret(op->type, value);
  }
};

// Halide's conversions of halves walk what they convert as a tree, which never ends where each value is used twice. So they convert a name,
// in whose place the value comes afterwards.
template <class Convert>
Expr converted(const Expr& x, Convert convert) {
  const std::string name = "xh_converted";
  return graph_substitute(name, x, convert(Variable::make(x.type(), name)));
}

bool is_half(const Type& t) { return t.is_float() && t.bits() == 16; }
Type held(const Type& t) { return is_half(t) ? t.with_code(halide_type_uint) : t; }

}  // namespace

struct ForDevice::Rewriter : IRGraphMutator {
  using IRGraphMutator::visit;
  DeviceKind kind;
  Place place;
  Rewriter(DeviceKind k, Place p) : kind(k), place(std::move(p)) {}

  // What is one fma has been decided (emit.h). LLVM, for PTX, and NVIDIA's assembler contract every other product that they find under a
  // sum (v21), but not where either is rounded by name. A product with -1 is exact, so that nothing changes where it is contracted.
  Expr rounded(const char* operation, const Expr& a, const Expr& b) const {
    const std::string name = std::string("llvm.nvvm.") + operation + (a.type().bits() == 64 ? ".rn.d" : ".rn.f");
    return Call::make(a.type(), name, {a, b}, Call::PureExtern);
  }
  static Expr negated(const Expr& x) { return Call::make(x.type(), Call::strict_mul, {x, make_const(x.type(), -1)}, Call::PureIntrinsic); }
  bool rounds_by_name(const Type& t) const { return kind == DeviceKind::cuda && t.is_float(); }

  template <class Node>
  Expr strict(const Node* op, Call::IntrinsicOp intrinsic) {
    Expr a = mutate(op->a), b = mutate(op->b);
    if (a.type().is_float()) return Call::make(op->type, intrinsic, {a, b}, Call::PureIntrinsic);
    return Node::make(a, b);
  }
  Expr visit(const Add* op) override {
    return rounds_by_name(op->type) ? rounded("add", mutate(op->a), mutate(op->b)) : strict(op, Call::strict_add);
  }
  Expr visit(const Sub* op) override {
    return rounds_by_name(op->type) ? rounded("add", mutate(op->a), negated(mutate(op->b))) : strict(op, Call::strict_sub);
  }
  Expr visit(const Mul* op) override {
    if (!rounds_by_name(op->type)) return strict(op, Call::strict_mul);
    if (is_const(op->a, -1)) return negated(mutate(op->b));
    if (is_const(op->b, -1)) return negated(mutate(op->a));
    return rounded("mul", mutate(op->a), mutate(op->b));
  }
  Expr visit(const Div* op) override { return strict(op, Call::strict_div); }
  Expr visit(const Min* op) override { return strict(op, Call::strict_min); }
  Expr visit(const Max* op) override { return strict(op, Call::strict_max); }
  Expr visit(const LT* op) override { return strict(op, Call::strict_lt); }
  Expr visit(const LE* op) override { return strict(op, Call::strict_le); }
  Expr visit(const GT* op) override { return mutate(LT::make(op->b, op->a)); }
  Expr visit(const GE* op) override { return mutate(LE::make(op->b, op->a)); }
  Expr visit(const EQ* op) override { return strict(op, Call::strict_eq); }
  Expr visit(const NE* op) override {
    if (!op->a.type().is_float()) return IRGraphMutator::visit(op);
    if (equal(op->a, op->b)) return is_nan(mutate(op->a));
    return !mutate(EQ::make(op->a, op->b));
  }

  static Expr is_nan(const Expr& x) {
    Type bits = UInt(x.type().bits());
    uint64_t all = bits.bits() == 32 ? 0x7fffffffu : 0x7fffffffffffffffu, infinite = bits.bits() == 32 ? 0x7f800000u : 0x7ff0000000000000u;
    return (Halide::reinterpret(bits, x) & make_const(bits, static_cast<int64_t>(all))) > make_const(bits, static_cast<int64_t>(infinite));
  }

  Expr visit(const FloatImm* op) override {
    // Halide writes doubles as floats in OpenCL C (v21), which loses digits, and makes vectors of floats of them.
    if (kind == DeviceKind::opencl && op->type.bits() == 64) {
      uint64_t bits;
      std::memcpy(&bits, &op->value, sizeof bits);
      return Halide::reinterpret(op->type, make_const(UInt(64), bits));
    }
    if (!is_half(op->type)) return op;
    return make_const(UInt(16), op->type.is_bfloat() ? Halide::bfloat16_t(op->value).to_bits() : Halide::float16_t(op->value).to_bits());
  }
  Expr visit(const Cast* op) override {
    Type to = op->type, from = op->value.type();
    Expr v = mutate(op->value);
    if (is_half(from)) {
      Expr wide = converted(v, from.is_bfloat() ? bfloat16_to_float32 : float16_to_float32);
      return to == wide.type() ? wide : Halide::cast(held(to), wide);
    }
    if (is_half(to)) {
      if (v.type() != Float(32)) v = Halide::cast<float>(v);
      auto bits = to.is_bfloat() ? float32_to_bfloat16 : float32_to_float16;
      return converted(v, [&](const Expr& x) { return AsBits().mutate(bits(x)); });
    }
    return Cast::make(to, v);
  }
  Expr visit(const Select* op) override { return Select::make(mutate(op->condition), mutate(op->true_value), mutate(op->false_value)); }

  Expr visit(const Call* op) override {
    std::vector<Expr> args;
    if (is_hint(op)) return mutate(op->args[0]);
    if (vmath::is_late(op)) return mutate(vmath::late(vmath::name_of_late(op), op->args));
    for (const Expr& x : op->args) args.push_back(mutate(x));
    if (op->call_type == Call::Image) {
      ElementPlace at = place(op->name, args);
      return Load::make(held(op->type), at.buffer, at.index, {}, {}, const_true(), {});
    }
    // A branch for a few threads costs all of their warp; in f64 what stands in it calls a library.
    if (op->is_intrinsic(Call::if_then_else) && op->type.bits() == 32) return Select::make(args[0], args[1], args[2]);
    if (op->call_type == Call::PureExtern) {
      // Both stand where Halide's simplifier must not look; it never sees these.
      if (op->name.starts_with("llvm.bitreverse")) return make_zero(op->type);
      if (op->name.starts_with("llvm.copysign")) return args[0];
      for (const Builtin& b : kBuiltins)
        if (op->name == b.llvm) return builtin(b, op->type, args);
    }
    return Call::make(op->type, op->name, args, op->call_type, op->func, op->value_index, op->image, op->param);
  }

  static bool rounds(const Expr& constant) {
    const auto* f = constant.as<FloatImm>();
    return f && f->value >= 0x1p23 && f->value < 0x1p24;
  }

  Expr builtin(const Builtin& b, const Type& type, const std::vector<Expr>& x) {
    if (const char* name = name_on(b, kind)) return Call::make(type, name, x, Call::PureExtern);
    std::string called = b.llvm;
    if (type.bits() == 32 && called.starts_with("llvm.fma") && rounds(x[2])) {
      // a*b + 1.5*2^23 leaves the nearest integer in the low bits. SPIR-V's compilers take the number off again where it is
      // taken off, and nothing was rounded: so it is put together from the integer.
      Expr product = Call::make(type, Call::strict_mul, {x[0], x[1]}, Call::PureIntrinsic);
      Expr nearest = Halide::cast<int32_t>(Call::make(type, Call::round, {product}, Call::PureIntrinsic));
      return Halide::reinterpret(type, Halide::reinterpret(Halide::Int(32), x[2]) + nearest);
    }
    if (type.bits() == 32 && called.starts_with("llvm.fma"))
      return Call::make(type, Call::strict_add, {Call::make(type, Call::strict_mul, {x[0], x[1]}, Call::PureIntrinsic), x[2]},
                        Call::PureIntrinsic);
    if (type.bits() == 32 && called.starts_with("llvm.roundeven")) return Call::make(type, Call::round, x, Call::PureIntrinsic);
    throw Error("target vulkan: " + called + " of f64 has no code there; use f32, or --target cpu");
  }
};

ForDevice::ForDevice(DeviceKind kind, Place place) : rewriter_(std::make_unique<Rewriter>(kind, std::move(place))) {}
ForDevice::~ForDevice() = default;

Expr ForDevice::operator()(const Expr& e) const { return common_subexpression_elimination(rewriter_->mutate(e)); }

namespace {

struct VectorMasks : IRMutator {
  using IRMutator::visit;
  Expr visit(const Call* op) override {
    if (op->type.is_vector() && op->is_intrinsic({Call::strict_lt, Call::strict_le, Call::strict_eq})) {
      Expr a = mutate(op->args[0]), b = mutate(op->args[1]);
      if (op->is_intrinsic(Call::strict_lt)) return LT::make(a, b);
      return op->is_intrinsic(Call::strict_le) ? LE::make(a, b) : EQ::make(a, b);
    }
    return IRMutator::visit(op);
  }
};

}  // namespace

Stmt with_vector_masks(const Stmt& s) { return VectorMasks().mutate(s); }

}  // namespace xhat::runtime

#include "python/src/xla_call.h"

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include <fmt/format.h>

#ifdef XHAT_JAX
#include "xla/ffi/api/ffi.h"
#endif

namespace xhat::python {
namespace {

std::shared_mutex calls_mutex;
std::unordered_map<std::string, XlaCall>& calls() {
  static auto* known = new std::unordered_map<std::string, XlaCall>;  // XLA's threads may outlive what is destroyed at the end
  return *known;
}

}  // namespace

XlaCall::XlaCall(std::shared_ptr<Variant> variant, bool gradient) : variant_(std::move(variant)), gradient_(gradient) {}

void XlaCall::run(std::span<const TensorView> arguments, std::span<const TensorView> results) const {
  std::vector<Argument> list;
  for (size_t i = 0; i < variant_->inputs.size(); ++i) list.push_back({variant_->inputs[i].name, arguments[i]});
  if (!gradient_) {
    for (size_t i = 0; i < results.size(); ++i) list.push_back({variant_->outputs[i].name, results[i]});
    variant_->compiled.infer(list);
    return;
  }
  // Where the stash is no list of tensors, the forward runs again.
  Variant& v = *variant_;
  std::vector<std::unique_ptr<char[]>> memory;
  const Variant::ShapeList shapes = v.shapes_now(v.outputs, arguments.first(v.inputs.size()));
  for (size_t i = 0; i < v.outputs.size(); ++i) {
    TensorView view(nullptr, v.outputs[i].type, shapes[i], {});
    memory.push_back(std::make_unique<char[]>(static_cast<size_t>(view.bytes())));
    view.data = memory.back().get();
    list.push_back({v.outputs[i].name, view});
  }
  const Stash stash = v.compiled.forward(list);
  for (size_t i = 0; i < v.cotangents.size(); ++i) list.push_back({v.cotangents[i].name, arguments[v.inputs.size() + i]});
  for (size_t i = 0; i < results.size(); ++i) list.push_back({v.gradients[i].name, results[i]});
  v.compiled.backward(list, stash);
}

void register_call(const std::string& key, XlaCall call) {
  std::unique_lock lock(calls_mutex);
  calls().emplace(key, std::move(call));
}

#ifdef XHAT_JAX
namespace {

namespace ffi = xla::ffi;

TensorView view_of(const ffi::AnyBuffer& b, DType type, bool writable) {
  const auto dims = b.dimensions();
  TensorView v(b.untyped_data(), type, std::span<const int64_t>(dims.begin(), dims.size()), {});
  v.writable = writable;
  return v;
}

// XLA's name of an element type; ours are the declared ones.
ffi::DataType data_type(DType type) {
  switch (type) {
    case DType::f64: return ffi::DataType::F64;
    case DType::f32: return ffi::DataType::F32;
    case DType::f16: return ffi::DataType::F16;
    case DType::bf16: return ffi::DataType::BF16;
    case DType::i64: return ffi::DataType::S64;
    case DType::i32: return ffi::DataType::S32;
    case DType::u32: return ffi::DataType::U32;
    case DType::u8: return ffi::DataType::U8;
    case DType::boolean: return ffi::DataType::PRED;
  }
  throw Bug("unreachable dtype");
}

ffi::Error run_call(std::string_view key, ffi::RemainingArgs arguments, ffi::RemainingRets results) {
  const XlaCall* call = nullptr;
  {
    std::shared_lock lock(calls_mutex);
    auto found = calls().find(std::string(key));
    if (found != calls().end()) call = &found->second;  // it stays where it is, whatever comes beside it
  }
  if (!call)
    return ffi::Error::InvalidArgument(
        fmt::format("there is no op {} in this process; make it by xhat.jax.op before what was compiled with it runs", key));
  if (arguments.size() != call->arguments() || results.size() != call->results().size())
    return ffi::Error::InvalidArgument(fmt::format("op {}: another number of arrays than the op has", key));
  std::vector<TensorView> given, made;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto buffer = arguments.get<ffi::AnyBuffer>(i);
    if (!buffer || buffer->element_type() != data_type(call->argument(i).type))
      return ffi::Error::InvalidArgument(fmt::format("op {}: {} must be {}", key, call->argument(i).name, name_of(call->argument(i).type)));
    given.push_back(view_of(*buffer, call->argument(i).type, false));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    auto buffer = results.get<ffi::AnyBuffer>(i);
    if (!buffer || (*buffer)->element_type() != data_type(call->results()[i].type))
      return ffi::Error::InvalidArgument(
          fmt::format("op {}: {} must be {}", key, call->results()[i].name, name_of(call->results()[i].type)));
    made.push_back(view_of(**buffer, call->results()[i].type, true));
  }
  try {
    call->run(given, made);
  } catch (const Error& e) {
    return ffi::Error::InvalidArgument(e.what());
  } catch (const std::exception& e) {
    return ffi::Error::Internal(e.what());
  }
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER(handler, run_call, ffi::Ffi::Bind().Attr<std::string_view>("key").RemainingArgs().RemainingRets());

}  // namespace
#endif

void bind_xla(nb::module_& m) {
  m.def("register_call", [](const std::string& key, PyOp& op, const nb::dict& dims, bool gradient) {
    register_call(key, XlaCall(op.variant_of(dims, gradient), gradient));
  });
#ifdef XHAT_JAX
  m.attr("xla_handler") = nb::steal(PyCapsule_New(reinterpret_cast<void*>(+handler), "xla._CUSTOM_CALL_TARGET", nullptr));
#endif
}

}  // namespace xhat::python

#include "runtime/gpu/gpu_kernel.h"

#include <algorithm>
#include <cctype>
#include <future>
#include <unordered_map>

#include <fmt/format.h>

#include "expr/core/error.h"
#include "runtime/cpu/lower.h"
#include "runtime/device/device_table.h"
#include "runtime/device/vulkan_driver.h"
#include "runtime/host/bytes.h"

namespace xhat::runtime {
namespace {

using Halide::Expr;
using namespace Halide::Internal;

// The launches that stand in a lowered pipeline, as calls of halide_cuda_run or halide_opencl_run:
//   (state, entry, blocks x 3, threads x 3, shared bytes, struct of sizes, struct of arguments, struct of flags)
// Its arguments are buffers by name, and numbers in structs of their own; the last one is null. What is known by then of the
// launches that were written down is filled in.
struct FindLaunches : IRVisitor {
  using IRVisitor::visit;
  const GpuKernel& kernel;
  std::vector<DeviceLaunch>& launches;
  size_t found = 0;
  FindLaunches(const GpuKernel& k, std::vector<DeviceLaunch>& written) : kernel(k), launches(written) {}

  static int64_t number(const Expr& e) {
    if (auto n = as_const_int(Halide::Internal::simplify(e))) return *n;
    throw Bug("a launch takes a number that nobody knows");
  }
  static const std::vector<Expr>& members(const Expr& e) {
    const Call* c = e.as<Call>();
    if (!c || !c->is_intrinsic(Call::make_struct)) throw Bug("a launch takes something else than a struct");
    return c->args;
  }

  LaunchArg argument(const Expr& e) const {
    const auto& names = kernel.arguments;
    const Call* inside = e.as<Call>();
    const Variable* v = inside ? members(e).at(0).as<Variable>() : e.as<Variable>();
    std::string name = v ? v->name.substr(0, v->name.rfind(".buffer")) : "";
    auto it = std::ranges::find(names, name, &Halide::Argument::name);
    if (it == names.end()) throw Bug("a launch takes an unknown argument " + name);
    auto n = static_cast<uint32_t>(it - names.begin()), values = static_cast<uint32_t>(kernel.values.size());
    if (n < values) return {false, n, static_cast<uint32_t>(it->type.bytes())};
    return {true, n - values, 0};
  }

  void visit(const Call* op) override {
    IRVisitor::visit(op);
    if (op->name != "halide_cuda_run" && op->name != "halide_opencl_run") return;
    if (found == launches.size()) throw Bug("there are more launches than were written down");
    DeviceLaunch& l = launches[found++];
    if (l.threads != number(op->args.at(5))) throw Bug("Halide made launches of another order or shape than were written down");
    l.entry = op->args.at(1).as<StringImm>()->value;
    l.shared_bytes = number(op->args.at(8));
    const auto& args = members(op->args.at(10));
    for (size_t i = 0; i + 1 < args.size(); ++i) l.args.push_back(argument(args[i]));
  }
};

// Halide numbers entries, and OpenCL's variables _0, _1, …, for as long as a process runs. Ours are called after their place, so that
// equal kernels are equal texts.
void name_after_place(DeviceKernel& kernel) {
  std::vector<std::pair<std::string, std::string>> names;
  for (size_t i = 0; i < kernel.launches.size(); ++i) names.emplace_back(kernel.launches[i].entry, fmt::format("xhat_launch_{}", i));
  // A name may begin with another one.
  std::ranges::sort(names, std::ranges::greater{}, [](const auto& n) { return n.first.size(); });
  for (const auto& [given, name] : names)
    for (size_t at = 0; (at = kernel.text.find(given, at)) != std::string::npos; at += name.size())
      kernel.text.replace(at, given.size(), name);
  for (size_t i = 0; i < kernel.launches.size(); ++i) kernel.launches[i].entry = fmt::format("xhat_launch_{}", i);

  auto in_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$'; };  // not .s0, of a vector
  std::unordered_map<std::string, size_t> place;
  std::string text;
  for (size_t at = 0, end = 0; at < kernel.text.size(); at = end) {
    end = at + 1;
    if (!in_name(kernel.text[at])) {
      text += kernel.text[at];
      continue;
    }
    while (end < kernel.text.size() && in_name(kernel.text[end])) ++end;
    std::string name = kernel.text.substr(at, end - at);
    bool numbered =
        name.size() > 1 && name[0] == '_' && std::all_of(name.begin() + 1, name.end(), [](unsigned char c) { return std::isdigit(c); });
    text += numbered ? fmt::format("_{}", place.try_emplace(name, place.size()).first->second) : name;
  }
  kernel.text = std::move(text);
}

// What is one fma has been decided (emit.h): the same expression has the same bits in every kernel. Halide lets OpenCL C contract a*b + c as
// the driver likes (v21). NVIDIA's assembler contracts what names no rounding: here what LLVM made of NVIDIA's functions of f64, as our
// own operations name theirs (device_code.cpp).
void keep_roundings(DeviceKernel& kernel) {
  auto replace = [&](std::string_view what, std::string_view by) {
    for (size_t at = 0; (at = kernel.text.find(what, at)) != std::string::npos; at += by.size()) kernel.text.replace(at, what.size(), by);
  };
  replace("#pragma OPENCL FP_CONTRACT ON", "#pragma OPENCL FP_CONTRACT OFF");
  for (const std::string operation : {"\tadd.", "\tsub.", "\tmul."})
    for (const char* type : {"f32 ", "f64 "}) replace(operation + type, operation + "rn." + type);
}

// A: ByteWriter or ByteReader.
template <class A>
void transfer_code(A& a, DeviceCode& code) {
  transfer_device_kernel(a, code.kernel);
  a.resize(code.values);
  for (uint32_t& v : code.values) a.number(v);
  a.resize(code.buffers);
  for (GpuBuffer& b : code.buffers) {
    a.number(b.tensor);
    a.number(b.partial);
    transfer_amount(a, b.bytes);
  }
}

DeviceCode described(const GpuKernel& lowered) { return {{{}, lowered.zeros, lowered.launches}, lowered.values, lowered.buffers}; }

DeviceCode compile(Target target, GpuKernel lowered) {
  DeviceCode made = described(lowered);
  Halide::Module module = lowered.pipeline.compile_to_module(lowered.arguments, "xhat_kernel", halide_target(target));
  for (const auto& b : module.buffers()) {
    if (b.name().find("gpu_source_kernels") == std::string::npos) continue;
    made.kernel.text.assign(reinterpret_cast<const char*>(b.data()), b.size_in_bytes());
    while (target != Target::vulkan && made.kernel.text.ends_with('\0')) made.kernel.text.pop_back();
  }
  if (target == Target::vulkan) return made;
  FindLaunches launches(lowered, made.kernel.launches);
  for (const auto& f : module.functions()) f.body.accept(&launches);
  if (launches.found != made.kernel.launches.size()) throw Bug("launches were lost on the way through Halide");
  name_after_place(made.kernel);
  keep_roundings(made.kernel);
  return made;
}

}  // namespace

Halide::Target halide_target(Target target) {
  Halide::Target t = Halide::get_host_target();
  switch (target) {
    case Target::cpu: return cpu_target();
    case Target::cuda:
      // The newest that Halide 21 knows how to name is 86; drivers take the code for everything newer.
      t.set_features({Halide::Target::CUDA, Halide::Target::CUDACapability80});
      break;
    case Target::opencl: t.set_features({Halide::Target::OpenCL, Halide::Target::CLDoubles}); break;
    case Target::vulkan: return vulkan_target();
  }
  return t;
}

DeviceKind kind_of(Target target) {
  switch (target) {
    case Target::cuda: return DeviceKind::cuda;
    case Target::opencl: return DeviceKind::opencl;
    case Target::vulkan: return DeviceKind::vulkan;
    case Target::cpu: break;
  }
  throw Bug("the CPU is no device");
}

std::vector<SizeValue> values_of(const DeviceCode& code, const KernelSpec& spec) {
  std::vector<SizeValue> values;
  for (uint32_t t : code.values) values.push_back(size_value(spec.tensors[t].type, spec.tensors[t].value));
  return values;
}

GpuClass class_of(Target target, const KernelSpec& given, const std::vector<DType>& stored) {
  GpuClass c = {target, with_class_representatives_for_gpu(given), stored, fmt::format("{};", name_of(target))};
  const KernelSpec& spec = c.spec;
  std::string& key = c.key;
  for (Id x : spec.shared) key += fmt::format("{}={}/{},", spec.arena->name(x), spec.axes.at(x).extent, spec.axes.at(x).tile);
  for (const auto& [id, x] : spec.axes)
    if (x.count != kNoCount) key += fmt::format("{}:{}*{},", x.count, x.extent, x.multiple);
  for (const SpecTensor& t : spec.tensors)
    if (t.original != kInternal) key += fmt::format("{}", static_cast<int>(stored[t.original]));
  key += spec.key();
  return c;
}

DeviceCode device_code(const GpuClass& c) { return compile(c.target, gpu_lower(c.spec, kind_of(c.target), c.stored)); }

DeviceCode launches_of(const GpuClass& c) { return described(gpu_lower(c.spec, kind_of(c.target), c.stored)); }

CompiledGpuKernel::CompiledGpuKernel(const GpuClass& c, DiskCache* disk) {
  if (c.target == Target::vulkan) disk = nullptr;  // its code is inside of Halide's pipeline
  if (auto bytes = disk ? disk->load_bytes(c.key) : std::nullopt) {
    ByteReader reader(reinterpret_cast<const uint8_t*>(bytes->data()));
    transfer_code(reader, code_);
    return;
  }
  try {
    GpuKernel lowered = gpu_lower(c.spec, kind_of(c.target), c.stored);
    if (c.target != Target::vulkan) {
      code_ = compile(c.target, std::move(lowered));
      if (disk) {
        ByteWriter writer;
        transfer_code(writer, code_);
        disk->store_bytes(c.key, {writer.bytes.begin(), writer.bytes.end()});
      }
      return;
    }
    code_ = described(lowered);
    loaded_[&vulkan_driver()] =
        vulkan_kernel(lowered.pipeline.compile_to_callable(lowered.arguments, halide_target(c.target)), c.spec.name);
  } catch (const Halide::Error& refused) {
    throw Bug("Halide refused kernel " + c.spec.name + ": " + refused.what());
  }
}

const LoadedKernel& CompiledGpuKernel::on(const DeviceQueue& queue) const {
  std::lock_guard lock(mutex_);
  std::unique_ptr<LoadedKernel>& loaded = loaded_[queue.driver];
  if (!loaded) {
    refuse_in_capture(queue, "load a kernel");
    loaded = queue.driver->load(code_.kernel);
  }
  return *loaded;
}

std::shared_ptr<const CompiledGpuKernel> compiled_for(const GpuClass& c, DiskCache* disk) {
  using Entry = std::shared_future<std::shared_ptr<const CompiledGpuKernel>>;
  static std::mutex mutex;
  static auto& known = *new std::map<std::string, Entry>;  // stays: when static things end, drivers may have ended before
  std::promise<std::shared_ptr<const CompiledGpuKernel>> promise;
  Entry entry;
  bool mine = false;
  {
    std::lock_guard lock(mutex);
    auto [it, fresh] = known.try_emplace(c.key);
    if (fresh) it->second = promise.get_future().share();
    entry = it->second;
    mine = fresh;
  }
  if (!mine) return entry.get();
  try {
    promise.set_value(std::make_shared<const CompiledGpuKernel>(c, disk));
  } catch (...) {
    promise.set_exception(std::current_exception());
  }
  return entry.get();
}

}  // namespace xhat::runtime

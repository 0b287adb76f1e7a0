#include "runtime/ahead/support/library.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <stdexcept>

namespace xhat::runtime {
namespace {

constexpr int64_t kMax = INT32_MAX - (1 << 16);  // kernels index with 32 bits, and compute places beyond the end (Walk::narrowed)

thread_local std::string message;

AheadStatus status_of(DeviceFailure why) {
  switch (why) {
    case DeviceFailure::no_driver:
    case DeviceFailure::no_device: return AheadStatus::no_device;
    case DeviceFailure::no_memory: return AheadStatus::no_memory;
    case DeviceFailure::bad_pointer: return AheadStatus::bad_pointer;
    case DeviceFailure::bad_stream:
    case DeviceFailure::failed: return AheadStatus::device_failed;
  }
  return AheadStatus::device_failed;
}

}  // namespace

void fail(const AheadTable& t, AheadStatus status, const std::string& what) { throw Failure{status, t.op + ": " + what}; }

Opened& open(xhat_ahead_library* library) {
  static std::mutex mutex;
  std::atomic_ref<void*> opened(library->opened);
  if (void* o = opened.load(std::memory_order_acquire)) return *static_cast<Opened*>(o);
  std::lock_guard lock(mutex);
  if (void* o = opened.load(std::memory_order_acquire)) return *static_cast<Opened*>(o);
  if (library->format != kAheadFormat)
    throw Failure{AheadStatus::internal,
                  "libraries built by different versions of xhat are linked together; build them anew with one of them"};
  auto made = std::make_unique<Opened>();
  ByteReader reader(library->table);
  transfer_table(reader, made->table);
  for (const AheadDim& d : made->table.dims) made->arguments += d.definition.empty();
  opened.store(made.get(), std::memory_order_release);
  return *made.release();
}

const AheadSide& side_of(const AheadTable& t, int number) {
  if (static_cast<size_t>(number) >= t.sides.size()) fail(t, AheadStatus::bad_argument, "it was compiled without a backward");
  return t.sides[static_cast<size_t>(number)];
}

std::string sizes_text(const AheadTable& t, const std::vector<int64_t>& dims) {
  std::string text;
  for (size_t i = 0; i < dims.size(); ++i) text += (i ? ", " : "") + t.dims[i].name + " = " + std::to_string(dims[i]);
  return text;
}

std::vector<int64_t> dims_of(const Opened& o, const int64_t* given) {
  const AheadTable& t = o.table;
  std::vector<int64_t> dims;
  if (o.arguments > 0 && !given) fail(t, AheadStatus::bad_argument, "dims is null");
  for (const AheadDim& d : t.dims) {
    int64_t value = d.definition.empty() ? given[dims.size()] : evaluate(d.definition, dims);
    if (value < 0) fail(t, AheadStatus::bad_size, "dim " + d.name + " = " + std::to_string(value) + " is negative; sizes are 0 or more");
    dims.push_back(value);
  }
  for (const AheadCondition& c : t.preconditions)
    if (!evaluate(c.holds, dims)) fail(t, AheadStatus::bad_size, c.reason + "; it cannot run with " + sizes_text(t, dims));
  return dims;
}

std::vector<int64_t> shape_of(const AheadTable& t, int64_t tensor, const std::vector<int64_t>& dims) {
  const AheadTensor& x = t.tensors[static_cast<size_t>(tensor)];
  std::vector<int64_t> shape;
  double elements = 1;
  for (const Formula& f : x.shape) {
    shape.push_back(evaluate(f, dims));
    elements *= static_cast<double>(shape.back());
    if (shape.back() < 0)
      fail(t, AheadStatus::bad_size,
           "dimension " + std::to_string(shape.size() - 1) + " of " + x.name + " would be negative with " + sizes_text(t, dims));
  }
  if (elements > static_cast<double>(kMax))
    fail(t, AheadStatus::bad_size,
         x.name + " would have more than 2^31-2^16 elements with " + sizes_text(t, dims) + "; split it into pieces");
  return shape;
}

void check_elements(const AheadTable& t, const std::vector<int64_t>& shape, const std::vector<int64_t>& dims) {
  double elements = 1;
  for (int64_t n : shape) elements *= static_cast<double>(n);
  if (elements > static_cast<double>(kMax))
    fail(t, AheadStatus::bad_size, "an intermediate result would have more than 2^31-2^16 elements with " + sizes_text(t, dims));
}

int64_t bytes_of(const AheadTable& t, int64_t tensor, const std::vector<int64_t>& dims) {
  auto bytes = static_cast<int64_t>(byte_size(t.tensors[static_cast<size_t>(tensor)].type));
  for (int64_t e : shape_of(t, tensor, dims)) bytes *= e;
  return bytes;
}

AheadNumbers numbers_for(const AheadTable& t, const std::vector<AheadVariant>& variants, const std::vector<int64_t>& dims,
                         const std::string& known_sizes, std::string_view device, AheadLayout layout) {
  auto found = std::ranges::find_if(variants, [&](const AheadVariant& v) { return v.serves(dims, layout); });
  if (found != variants.end()) return numbers_at(*found, dims);
  const std::string on = device.empty() ? "" : " on " + std::string(device), option = device.empty() ? "--dims" : "--gpu-dims";
  fail(t, AheadStatus::bad_size,
       "it was not compiled for " + sizes_text(t, dims) + on + ", but for " + known_sizes + "; build it with " + option +
           " for these sizes too");
}

void check_sizes(const AheadTable& t, const AheadSide& side, const std::vector<int64_t>& dims) {
  for (const AheadCondition& c : side.fails)
    if (evaluate(c.holds, dims)) fail(t, AheadStatus::bad_size, c.reason + " with " + sizes_text(t, dims));
}

int guarded(const std::function<void()>& call) {
  auto failed = [](AheadStatus status, const std::string& what) {
    message = what;
    return static_cast<int>(status);
  };
  try {
    call();
    return static_cast<int>(AheadStatus::ok);
  } catch (const Failure& e) {
    return failed(e.status, e.message);
  } catch (const std::bad_alloc&) {
    return failed(AheadStatus::no_memory, "out of memory");
  } catch (const DeviceError& e) {
    return failed(status_of(e.why()), e.message());
  } catch (const Error& e) {  // memory is exhausted (scratch.h)
    return failed(AheadStatus::no_memory, e.message());
  } catch (const std::exception& e) {
    return failed(AheadStatus::internal, e.what());
  }
}

const char* last_message() { return message.c_str(); }

}  // namespace xhat::runtime

using namespace xhat::runtime;

extern "C" {

int64_t xhat_ahead_elements(xhat_ahead_library* library, const int64_t* dims, const char* tensor) {
  int64_t elements = -1;
  guarded([&] {
    const Opened& o = open(library);
    std::vector<int64_t> sizes = dims_of(o, dims);
    for (const AheadSide& side : o.table.sides)
      for (const auto* list : {&side.inputs, &side.outputs})
        for (int64_t t : *list)
          if (tensor && o.table.tensors[static_cast<size_t>(t)].name == tensor) {
            int64_t n = 1;
            for (int64_t e : shape_of(o.table, t, sizes)) n *= e;
            elements = n;
            return;
          }
    fail(o.table, AheadStatus::bad_argument, "it has no array " + std::string(tensor ? tensor : "(null)"));
  });
  return elements;
}

const char* xhat_ahead_message() { return last_message(); }

}  // extern "C"

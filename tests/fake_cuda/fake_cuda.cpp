#include "fake_cuda.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>

namespace {

using namespace fake_cuda;

enum Result : int {
  kOk = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kNoDevice = 100, kBadPtx = 218, kInvalidContext = 201, kNotFound = 500,
  kInvalidHandle = 400, kCaptureUnsupported = 900, kCaptureImplicit = 906
};

struct Context {
  int device;
};
struct Stream {
  Context* context;
  bool capturing = false;
  struct Copy {
    void* to;
    std::string bytes;
  };
  std::vector<Copy> to_host;  // done when somebody waits
};
struct Allocation {
  int64_t bytes;
  Context* context;  // none: the host's, pinned
  bool managed;
  bool counted;  // by State::in_use
};
struct Function {
  std::string entry;
  std::vector<bool> is_pointer;  // by argument
};
struct Module {
  std::map<std::string, Function> functions;
};

std::recursive_mutex mutex;
State state;
bool initialized = false;
std::deque<std::unique_ptr<Context>> contexts;  // the first ones: primary, by device
std::map<void*, std::unique_ptr<Stream>> streams;
std::map<Context*, Stream> default_streams;
// Lives to the end of the program, with what tests never gave back: that is no leak of the program's.
std::map<uint64_t, Allocation>& memory = *new std::map<uint64_t, Allocation>;
std::set<Module*> modules;
thread_local std::vector<Context*> current;
thread_local int capture_mode = 0;  // 2: relaxed

Context* primary(int device) {
  while (static_cast<int>(contexts.size()) <= device)
    contexts.push_back(std::make_unique<Context>(Context{static_cast<int>(contexts.size())}));
  return contexts[static_cast<size_t>(device)].get();
}
Context* now() { return current.empty() ? nullptr : current.back(); }

Stream* stream_at(void* handle) {
  if (reinterpret_cast<uintptr_t>(handle) <= 2) {
    Stream& s = default_streams[now()];
    s.context = now();
    return now() ? &s : nullptr;
  }
  auto it = streams.find(handle);
  return it == streams.end() ? nullptr : it->second.get();
}

Result mistake(Result r, const std::string& what) {
  state.mistakes.push_back(what);
  return r;
}
bool any_capture() {
  return std::any_of(streams.begin(), streams.end(), [](auto& s) { return s.second->capturing; });
}
// In CUDA's default mode these break any capture of the process.
Result outside_capture(const char* call) {
  if (capture_mode == 2) return kOk;
  return any_capture() ? mistake(kCaptureUnsupported, std::string(call) + " during a capture") : kOk;
}
// The default stream waits for others, and others for it; so it may not be used while one of them is captured.
Result usable(void* stream, const char* call) {
  bool implicit = reinterpret_cast<uintptr_t>(stream) <= 1;
  if (!implicit || !any_capture()) return kOk;
  return mistake(kCaptureImplicit, std::string(call) + " on the default stream during a capture");
}

std::map<uint64_t, Allocation>::iterator holder(uint64_t pointer) {
  auto it = memory.upper_bound(pointer);
  if (it == memory.begin()) return memory.end();
  --it;
  return pointer < it->first + static_cast<uint64_t>(it->second.bytes) ? it : memory.end();
}

uint64_t take(Context* context, int64_t bytes, bool managed, bool counted = false) {
  auto p = reinterpret_cast<uint64_t>(std::aligned_alloc(256, static_cast<size_t>((bytes + 255) / 256 * 256)));
  memory[p] = {bytes, context, managed, counted};
  return p;
}

// `.visible .entry NAME(` and a line for every parameter; Halide's text has `.ptr` where it is a pointer.
void read_ptx(const std::string& text, Module& m) {
  const std::string word = ".entry ";
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    size_t open = text.find('(', at), close = text.find(')', at);
    if (open == std::string::npos || close == std::string::npos) return;
    Function f;
    f.entry = text.substr(at + word.size(), open - at - word.size());
    for (size_t p = text.find(".param", open); p < close; p = text.find(".param", p + 1))
      f.is_pointer.push_back(text.compare(p, std::strlen(".param .u64 .ptr"), ".param .u64 .ptr") == 0);
    m.functions[f.entry] = f;
  }
}

void reset() {
  std::lock_guard lock(mutex);
  int64_t in_use = state.in_use, loaded = state.loaded;
  state = State();
  state.in_use = in_use;
  state.loaded = loaded;
  for (auto& [handle, s] : streams) s->capturing = false;
}

Control control = {
    &state,
    reset,
    [](int device) -> void* { return primary(device); },
    [](int device) -> void* {
      std::lock_guard lock(mutex);
      primary(state.devices);  // the primary ones come first
      return contexts.emplace_back(std::make_unique<Context>(Context{device})).get();
    },
    [](void* context) {
      current.clear();
      if (context) current.push_back(static_cast<Context*>(context));
    },
    [](void* context) -> void* {
      std::lock_guard lock(mutex);
      auto s = std::make_unique<Stream>(Stream{static_cast<Context*>(context), false, {}});
      void* handle = s.get();
      streams[handle] = std::move(s);
      return handle;
    },
    [](void* stream, bool begin) {
      std::lock_guard lock(mutex);
      streams.at(stream)->capturing = begin;
    },
    [](void* context, int64_t bytes) {
      std::lock_guard lock(mutex);
      return take(static_cast<Context*>(context), bytes, false);
    },
    [](void* context, int64_t bytes) {
      std::lock_guard lock(mutex);
      return take(static_cast<Context*>(context), bytes, true);
    },
    [](int64_t bytes) {
      std::lock_guard lock(mutex);
      return take(nullptr, bytes, false);
    },
    [](uint64_t pointer) {
      std::lock_guard lock(mutex);
      memory.erase(pointer);
      std::free(reinterpret_cast<void*>(pointer));
    },
};

}  // namespace

extern "C" {

Control* fake_cuda_control() { return &control; }

Result cuInit(unsigned) {
  if (const char* devices = std::getenv("FAKE_CUDA_DEVICES")) state.devices = std::atoi(devices);
  if (state.init_result) return static_cast<Result>(state.init_result);
  initialized = true;
  return kOk;
}
Result cuGetErrorName(Result r, const char** name) {
  switch (r) {
    case kOutOfMemory: *name = "CUDA_ERROR_OUT_OF_MEMORY"; return kOk;
    case kNoDevice: *name = "CUDA_ERROR_NO_DEVICE"; return kOk;
    case kInvalidHandle: *name = "CUDA_ERROR_INVALID_HANDLE"; return kOk;
    case kBadPtx: *name = "CUDA_ERROR_INVALID_PTX"; return kOk;
    case kInvalidContext: *name = "CUDA_ERROR_INVALID_CONTEXT"; return kOk;
    case kCaptureImplicit: *name = "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"; return kOk;
    case kCaptureUnsupported: *name = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"; return kOk;
    default: *name = nullptr; return kInvalidValue;
  }
}
Result cuGetErrorString(Result, const char** text) {
  *text = "as the fake driver says";
  return kOk;
}
Result cuDeviceGetCount(int* n) {
  *n = state.devices;
  return initialized ? kOk : kNotInitialized;
}
Result cuDeviceGet(int* device, int n) {
  *device = n;
  return n < state.devices ? kOk : kInvalidValue;
}
Result cuDeviceGetName(char* name, int bytes, int) {
  std::strncpy(name, "Fake GPU", static_cast<size_t>(bytes));
  return kOk;
}
Result cuDevicePrimaryCtxRetain(void** context, int device) {
  std::lock_guard lock(mutex);
  *context = primary(device);
  return kOk;
}
Result cuCtxGetCurrent(void** context) {
  *context = now();
  return initialized ? kOk : kNotInitialized;
}
Result cuCtxPushCurrent_v2(void* context) {
  current.push_back(static_cast<Context*>(context));
  return kOk;
}
Result cuCtxPopCurrent_v2(void** context) {
  *context = now();
  if (current.empty()) return kInvalidContext;
  current.pop_back();
  return kOk;
}
Result cuCtxGetDevice(int* device) {
  if (!now()) return kInvalidContext;
  *device = now()->device;
  return kOk;
}
Result cuStreamGetCtx(void* stream, void** context) {
  std::lock_guard lock(mutex);
  Stream* s = stream_at(stream);
  if (!s) return kInvalidHandle;
  *context = s->context;
  return kOk;
}
Result cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode);
  return kOk;
}
Result cuStreamIsCapturing(void* stream, int* status) {
  std::lock_guard lock(mutex);
  Stream* s = stream_at(stream);
  if (!s) return kInvalidHandle;
  if (Result r = usable(stream, "cuStreamIsCapturing")) return r;
  *status = s->capturing;
  ++state.questions;
  return kOk;
}
Result cuStreamSynchronize(void* stream) {
  std::lock_guard lock(mutex);
  Stream* s = stream_at(stream);
  if (!s) return kInvalidHandle;
  if (Result r = usable(stream, "cuStreamSynchronize")) return r;
  if (s->capturing) return mistake(kCaptureUnsupported, "cuStreamSynchronize during a capture");
  ++state.waits;
  for (auto& c : s->to_host) std::memcpy(c.to, c.bytes.data(), c.bytes.size());
  s->to_host.clear();
  return kOk;
}
Result cuMemAlloc_v2(uint64_t* pointer, size_t bytes) {
  std::lock_guard lock(mutex);
  if (Result r = outside_capture("cuMemAlloc")) return r;
  if (!now()) return kInvalidContext;
  if (bytes == 0) return kInvalidValue;
  if (state.in_use + static_cast<int64_t>(bytes) > state.memory) return kOutOfMemory;
  *pointer = take(now(), static_cast<int64_t>(bytes), false, true);
  state.in_use += static_cast<int64_t>(bytes);
  ++state.allocations;
  return kOk;
}
Result cuMemFree_v2(uint64_t pointer) {
  std::lock_guard lock(mutex);
  auto it = memory.find(pointer);
  if (it == memory.end()) return mistake(kInvalidValue, "cuMemFree of what was not allocated");
  if (Result r = outside_capture("cuMemFree")) return r;
  if (it->second.counted) state.in_use -= it->second.bytes;
  std::free(reinterpret_cast<void*>(pointer));
  memory.erase(it);
  return kOk;
}
static Result check_range(uint64_t pointer, size_t bytes, const char* call) {
  auto it = holder(pointer);
  bool inside = it != memory.end() && pointer + bytes <= it->first + static_cast<uint64_t>(it->second.bytes);
  return inside ? kOk : mistake(kInvalidValue, std::string(call) + " beyond memory");
}
Result cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
  std::lock_guard lock(mutex);
  Stream* s = stream_at(stream);
  if (!s) return kInvalidHandle;
  if (Result r = usable(stream, "cuMemcpyHtoDAsync")) return r;
  if (s->capturing) return mistake(kCaptureUnsupported, "a copy of the host's memory during a capture");
  if (Result r = check_range(to, bytes, "cuMemcpyHtoDAsync")) return r;
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  ++state.copies;
  return kOk;
}
Result cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void* stream) {
  std::lock_guard lock(mutex);
  if (!stream_at(stream)) return kInvalidHandle;
  if (Result r = usable(stream, "cuMemsetD8Async")) return r;
  if (Result r = check_range(to, bytes, "cuMemsetD8Async")) return r;
  std::memset(reinterpret_cast<void*>(to), value, bytes);
  ++state.sets;
  return kOk;
}
Result cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* stream) {
  std::lock_guard lock(mutex);
  Stream* s = stream_at(stream);
  if (!s) return kInvalidHandle;
  if (Result r = usable(stream, "cuMemcpyDtoHAsync")) return r;
  if (s->capturing) return mistake(kCaptureUnsupported, "a copy of the host's memory during a capture");
  if (Result r = check_range(from, bytes, "cuMemcpyDtoHAsync")) return r;
  s->to_host.push_back({to, std::string(reinterpret_cast<const char*>(from), bytes)});
  ++state.copies;
  return kOk;
}
Result cuPointerGetAttribute(void* value, int attribute, uint64_t pointer) {
  std::lock_guard lock(mutex);
  auto it = holder(pointer);
  if (it == memory.end()) return kInvalidValue;
  switch (attribute) {
    case 1: std::memcpy(value, &it->second.context, sizeof(void*)); return kOk;
    case 2: *static_cast<unsigned*>(value) = it->second.context ? 2 : 1; return kOk;
    case 8: *static_cast<unsigned*>(value) = it->second.managed; return kOk;
    case 9: *static_cast<int*>(value) = it->second.context->device; return kOk;
    default: return kInvalidValue;
  }
}
Result cuModuleLoadDataEx(void** module, const void* text, unsigned options, int* names, void** values) {
  std::lock_guard lock(mutex);
  if (Result r = outside_capture("cuModuleLoadDataEx")) return r;
  if (!now()) return kInvalidContext;
  for (unsigned i = 0; i < options; ++i)
    if (names[i] == 0 && !values[i]) return kInvalidValue;  // no code does with no register
  auto m = std::make_unique<Module>();
  read_ptx(static_cast<const char*>(text), *m);
  if (m->functions.empty()) {
    for (unsigned i = 0; i < options; ++i)
      if (names[i] == 5) std::strcpy(static_cast<char*>(values[i]), "no entry in this text");
    return kBadPtx;
  }
  ++state.modules;
  ++state.loaded;
  *module = m.get();
  modules.insert(m.release());
  return kOk;
}
Result cuModuleUnload(void* module) {
  std::lock_guard lock(mutex);
  if (!modules.erase(static_cast<Module*>(module))) return mistake(kInvalidHandle, "cuModuleUnload of what was not loaded");
  delete static_cast<Module*>(module);
  --state.loaded;
  return kOk;
}
Result cuModuleGetFunction(void** function, void* module, const char* name) {
  std::lock_guard lock(mutex);
  auto& all = static_cast<Module*>(module)->functions;
  auto it = all.find(name);
  if (it == all.end()) return kNotFound;
  *function = &it->second;
  return kOk;
}
Result cuLaunchKernel(void* function, unsigned bx, unsigned by, unsigned bz, unsigned tx, unsigned ty, unsigned tz, unsigned shared,
                      void* stream, void** args, void**) {
  std::lock_guard lock(mutex);
  Stream* s = stream_at(stream);
  if (!s) return kInvalidHandle;
  if (Result r = usable(stream, "cuLaunchKernel")) return r;
  if (s->context != now()) return mistake(kInvalidContext, "a launch on a stream of another context");
  if (state.fail_launch) return static_cast<Result>(state.fail_launch);
  auto& f = *static_cast<Function*>(function);
  Launch l = {f.entry, {bx, by, bz}, {tx, ty, tz}, shared, stream, {}, s->capturing};
  for (size_t i = 0; i < f.is_pointer.size(); ++i) {
    if (!f.is_pointer[i]) continue;
    uint64_t p = *static_cast<uint64_t*>(args[i]);
    l.pointers.push_back(p);
    auto it = holder(p);
    if (it == memory.end()) return mistake(kInvalidValue, f.entry + " takes a pointer that leads nowhere");
    if (!it->second.managed && it->second.context != now())
      return mistake(kInvalidContext, f.entry + " takes memory of another context");
  }
  state.launches.push_back(l);
  return kOk;
}

}  // extern "C"

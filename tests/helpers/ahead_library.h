// A library that was compiled ahead of time, loaded into a test's process: for tests that compare it with the engine. Header only.
#pragma once
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <optional>

#include <fmt/format.h>

#include "runtime/device/drivers/driver.h"
#include "runtime/host/cpu_level.h"
#include "tests/helpers/environment.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::testing {

inline std::vector<CpuLevel> levels_here() {
  std::vector<CpuLevel> levels = {CpuLevel::sse41};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) levels.push_back(CpuLevel::avx2);
  if (levels.size() == 2 && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
    levels.push_back(CpuLevel::avx512);
  return levels;
}

// Linked as a shared object, so that one process can hold many libraries, and one at several levels.
class Loaded {
 public:
  // device: "" for the CPU's functions, or "opencl", "cuda".
  Loaded(const std::string& folder, const std::string& name, const Program& p, int copy, const std::string& device = "")
      : p_(p), device_(!device.empty()) {
    const std::string functions = name + (device_ ? "_" + device : "");
    std::string shim = fmt::format(R"(
#include "tests/helpers/ahead_shim.h"
#include "{0}.h"
extern "C" {{
int side(int s, const int64_t* d, void* const* a) {{
  if (s == 0) return call({1}_infer, d, a);
  return s == 1 ? call({1}_forward, d, a) : call({1}_backward, d, a);
}}
size_t stash_bytes(const int64_t* d) {{ return {1}_stash_bytes(reinterpret_cast<const {0}_dims*>(d)); }}
const char* message() {{ return {0}_message(); }}
const char* level() {{ return {0}_cpu_level(); }}
{2}}}
)",
                                   name, functions, device_ ? "int release(void* s) { return " + functions + "_release(s); }\n" : "");
    std::ofstream(folder + "/shim.cpp") << shim;
    std::string object = fmt::format("{}/{}_{}.so", folder, functions, copy);
    std::string command = fmt::format("c++ -std=c++20 -O0 -fPIC -shared -I{} -I{} {}/shim.cpp {}/lib{}.a -lpthread -o {} 2>&1",
                                      XHAT_SOURCE_DIR, folder, folder, folder, name, object);
    if (std::system(command.c_str()) != 0) throw Error("the library does not link");
    handle_ = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle_) throw Error(dlerror());
    find(side_, "side");
    find(stash_bytes_, "stash_bytes");
    find(message_, "message");
    find(level_, "level");
    if (device_) find(release_, "release");
  }

  std::string level() const { return level_(); }
  std::string message() const { return message_(); }
  size_t stash_bytes(const std::vector<int64_t>& dims) const { return stash_bytes_(dims.data()); }
  int side(int s, const std::vector<int64_t>& dims, const std::vector<void*>& arguments) const {
    return side_(s, dims.data(), arguments.data());
  }
  int release(void* stream) const { return release_(stream); }
  // Another function of the library.
  template <class F>
  F* function(const std::string& name) const {
    F* f = nullptr;
    find(f, name.c_str());
    return f;
  }

  std::vector<int64_t> dims_of(const DimValues& sizes) const {
    std::vector<int64_t> dims;
    for (const Dim& d : p_.dims)
      if (d.definition == kNone) dims.push_back(sizes.at(std::string(p_.arena->name(d.dim))));
    return dims;
  }

  // Outputs of infer, of forward, and gradients.
  Arrays run(const Arrays& data, const DimValues& sizes) const {
    const std::vector<int64_t> dims = dims_of(sizes);
    std::vector<Line> stash(stash_bytes(dims) / 16 + 1);
    return sides(data, sizes, [&](int s, const std::vector<Bound>& bound) {
      std::vector<void*> arguments;
      for (const Bound& b : bound) arguments.push_back(b.view.data);
      if (s > 0) arguments.push_back(stash.data());
      return side(s, dims, arguments);
    });
  }

  // The same on a device: arrays are copied there and back.
  Arrays run_on(runtime::DeviceDriver& driver, runtime::DeviceStream stream, const Arrays& data, const DimValues& sizes) const {
    const std::vector<int64_t> dims = dims_of(sizes);
    runtime::DeviceMemory stash = driver.allocate(static_cast<int64_t>(stash_bytes(dims)));
    Arrays results = sides(data, sizes, [&](int s, const std::vector<Bound>& bound) {
      std::vector<void*> arguments = {stream};
      std::vector<runtime::DeviceMemory> memory;
      for (const Bound& b : bound) {
        if (b.by_value) {
          arguments.push_back(b.view.data);
          memory.push_back(0);
          continue;
        }
        memory.push_back(driver.allocate(b.view.bytes()));
        if (b.view.bytes() > 0) driver.upload(stream, memory.back(), b.view.data, b.view.bytes());
        arguments.push_back(reinterpret_cast<void*>(memory.back()));
      }
      if (s > 0) arguments.push_back(reinterpret_cast<void*>(stash));
      int status = side(s, dims, arguments);
      for (size_t i = 0; i < bound.size(); ++i) {
        if (bound[i].written && bound[i].view.bytes() > 0) driver.download(stream, bound[i].view.data, memory[i], bound[i].view.bytes());
        if (memory[i]) driver.release(memory[i]);
      }
      return status;
    });
    driver.release(stash);
    return results;
  }

 private:
  struct Bound {
    TensorView view;
    bool written, by_value;  // by_value: on a device
  };

  // run: with what a side takes, in order.
  template <class F>
  Arrays sides(const Arrays& data, const DimValues& sizes, F&& run) const {
    Arrays results;
    for (int s = 0; s < 3; ++s) {
      Program direction = s == 0 ? infer_program(p_) : s == 1 ? forward_program(p_) : backward_program(p_);
      Arrays given = data;
      for (const auto& [name, array] : results) given.insert_or_assign(name, array);
      Call call(direction, sizes);
      std::vector<TensorId> kept = stashes(p_), inputs, outputs;
      for (TensorId t : direction.inputs)
        if (std::ranges::find(kept, t) == kept.end()) inputs.push_back(t);
      for (TensorId t : direction.outputs)
        if (std::ranges::find(kept, t) == kept.end()) outputs.push_back(t);
      call.give(inputs, given);
      call.expect(outputs);
      std::vector<Bound> bound;
      for (const Argument& a : call.arguments({inputs, outputs})) {
        const bool written = bound.size() >= inputs.size();
        const bool parameter = !written && std::ranges::find(p_.inputs, inputs[bound.size()]) != p_.inputs.end();
        bound.push_back({a.view, written, parameter && a.view.rank == 0});
      }
      int status = run(s, bound);
      EXPECT_EQ(status, 0) << message();
      for (auto& [name, array] : call.arrays({outputs})) results.insert_or_assign(s == 0 ? "infer " + name : name, std::move(array));
    }
    return results;
  }

  template <class F>
  void find(F& f, const char* name) const {
    f = reinterpret_cast<F>(dlsym(handle_, name));
    if (!f) throw Error(dlerror());
  }
  struct alignas(16) Line {
    char bytes[16];
  };
  const Program& p_;
  bool device_;
  void* handle_ = nullptr;  // stays: threads of the library's pool do
  int (*side_)(int, const int64_t*, void* const*) = nullptr;
  size_t (*stash_bytes_)(const int64_t*) = nullptr;
  const char* (*message_)() = nullptr;
  const char* (*level_)() = nullptr;
  int (*release_)(void*) = nullptr;
};

// Empty if all bits agree.
inline std::string bits_differ(const Arrays& a, const Arrays& b) {
  for (const auto& [name, x] : a) {
    const Array& y = b.at(name);
    if (x.shape != y.shape || x.integers != y.integers) return name;
    for (size_t i = 0; i < x.reals.size(); ++i) {
      bool same = std::memcmp(&x.reals[i], &y.reals[i], sizeof(double)) == 0 || (x.reals[i] != x.reals[i] && y.reals[i] != y.reals[i]);
      if (!same) return fmt::format("{} at {}: {} and {}", name, i, x.reals[i], y.reals[i]);
    }
  }
  return "";
}

}  // namespace xhat::testing

// The program's side of the protocol of bench/compare/run.py, for engines in C++: commands on stdin, one a line, each
// answered by one line of JSON on stdout (run.py lists them). An engine is a function that loads an op:
//
//     LoadedOp load(const std::string& op, const std::string& folder);
//     int main() { return serve("1.0", [] {}, load); }
//
// The engines in Python return new arrays from every call, out of an allocator that keeps its memory and asks for huge
// pages. Ours write into memory that is allocated once per op, on huge pages and touched before any timing: so would a
// C++ program use these libraries.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/touched_buffer.h"
#include "expr/core/dtype.h"
#include "expr/core/error.h"

namespace xhat::bench {

using nlohmann::json;

// A dense row-major tensor with memory of its own.
class Data {
 public:
  Data(DType type, std::vector<int64_t> shape);
  explicit Data(const std::string& npy_file);
  void write(const std::string& npy_file) const;

  DType type;
  std::vector<int64_t> shape;
  int64_t elements() const;
  size_t bytes() const;
  std::byte* raw() const { return buffer_->data(); }
  float* floats() const { return reinterpret_cast<float*>(raw()); }
  const int32_t* ints() const { return reinterpret_cast<const int32_t*>(raw()); }

 private:
  std::unique_ptr<TouchedBuffer> buffer_;
};

// Copies what they hold now, and puts it back when called.
std::function<void()> restarter(std::vector<const Data*> data);

struct LoadedOp {
  json described = json::object();  // the answer to load: compile_s, kernels, saved
  std::function<void()> infer;
  std::function<void()> forward, backward;  // empty where no gradient is asked for
  std::map<std::string, const Data*> outputs, gradients;
  std::function<void()> restart;  // of an op in place: its inputs as they were loaded
  std::shared_ptr<void> owner;  // of what the calls and pointers above refer to
};

// Thrown by load: why this engine leaves the op out.
class Skip : public Error {
 public:
  using Error::Error;
};

int threads();  // COMPARE_THREADS, else 2
double now();   // seconds

// `start` is what the first op of a process would pay for, such as setting a compiler up. Returns what main returns.
int serve(const std::string& version, const std::function<void()>& start,
          const std::function<LoadedOp(const std::string& op, const std::string& folder)>& load);

}  // namespace xhat::bench

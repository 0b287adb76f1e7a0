// An op of a file of ops/ with data of its own: compiled for one thread, run on memory that is allocated once.
//
//   Problem lse("lse.xh");
//   lse.input("x", {n}, x);                  // parameters, in any order
//   lse.infer();      lse.data("y")[0]       // results, after a call
//   lse.gradient();   lse.data("grad_x")     // of all that cotangents weigh: 1 each, if nothing else was said
#pragma once
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/touched_buffer.h"
#include "expr/core/program.h"
#include "runtime/call/compile.h"

namespace xhat::gradbench {

// The text of ops/FILE.
std::string op_text(const std::string& file);

struct ProblemOptions {
  bool differentiate = true;  // false: the program holds its derivatives already
  DimValues dims = {};        // that no parameter gives
};

class Problem {
 public:
  explicit Problem(const Program& program, const ProblemOptions& options = {});
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  void input(const std::string& name, std::vector<int64_t> shape, const std::vector<double>& values);
  void input(const std::string& name, std::vector<int64_t> shape, const std::vector<int32_t>& values);
  void input(const std::string& name, double value) { input(name, {}, std::vector<double>{value}); }
  void whole_number(const std::string& name, int64_t value);
  // Memory of the caller's for a parameter, a result, a cotangent or a gradient.
  void place(const std::string& name, TensorView view) { given_[name] = view; }

  // To other memory of the same shape and strides, from the next call on; of a gradient.
  void move(const std::string& name, void* data);

  // The first calls of each allocate and compile.
  void infer();
  void gradient();
  void forward();  // the two halves of gradient()
  void backward();

  double* data(const std::string& name);
  double value(const std::string& name) { return data(name)[0]; }
  std::vector<double> values(const std::string& name);

 private:
  template <class T>
  void fill(const std::string& name, std::vector<int64_t> shape, const std::vector<T>& values);
  TensorView new_view(const std::string& name, DType type, std::vector<int64_t> shape, double value);
  void gather(bool backward);

  CompiledOp op_;  // of the process: compiled once, whatever the sizes
  std::map<std::string, TensorView> given_;
  std::deque<bench::TouchedBuffer> buffers_;
  DimValues dims_;
  std::vector<Argument> outer_, inner_;
  std::optional<Stash> stash_;
};

}  // namespace xhat::gradbench

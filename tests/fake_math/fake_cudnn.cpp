#include <vector>

#include "tests/fake_math/fake_math.h"

using namespace fake_math;
using xhat::DType;

namespace {

State state;
enum Status : int { kOk = 0, kNotInitialized = 1001, kBadParameter = 2000, kNotSupported = 3000 };

struct Tensor {
  DType type;
  std::vector<int> dims, steps;
};
struct Convolution {
  std::vector<int> pads, strides, dilations;
  int mode, compute, groups = 1, math = 0;
};
struct Algorithm {
  int number, status;
  float time;
  size_t memory;
  int determinism, math, reserved[3];
};

constexpr int kDeterministicAlgorithm = 1;
constexpr size_t kMemory = 4096;

bool type_of(int cudnn, DType& type) {
  switch (cudnn) {
    case 0: type = DType::f32; return true;
    case 1: type = DType::f64; return true;
    case 2: type = DType::f16; return true;
    case 9: type = DType::bf16; return true;
    default: return false;
  }
}

Tensor& tensor(void* t) { return *static_cast<Tensor*>(t); }

// Does the library take these sizes: every dimension of the output as it computes it?
bool fit(const Tensor& x, const Tensor& w, const Tensor& y, const Convolution& c) {
  const size_t rank = x.dims.size();
  if (rank < 4 || w.dims.size() != rank || y.dims.size() != rank || c.pads.size() + 2 != rank) return false;
  if (x.type != w.type || x.type != y.type || x.dims[0] != y.dims[0] || w.dims[0] != y.dims[1]) return false;
  if (x.dims[1] != w.dims[1] * c.groups || w.dims[0] % c.groups != 0) return false;
  for (size_t i = 2; i < rank; ++i) {
    const int reach = x.dims[i] + 2 * c.pads[i - 2] - ((w.dims[i] - 1) * c.dilations[i - 2] + 1);
    if (reach < 0 || y.dims[i] != 1 + reach / c.strides[i - 2]) return false;
  }
  return true;
}

int choose(void* handle, const Tensor& x, const Tensor& w, const Tensor& y, const Convolution& c, int wanted, int* count,
           Algorithm* found) {
  if (handle != &state) return kNotInitialized;
  if (!fit(x, w, y, c)) return kBadParameter;
  if (state.nothing_fits) return kNotSupported;
  state.math = c.math;
  // The fastest of all gives other bits every time; the next one wants too much memory.
  const Algorithm all[] = {{0, 0, 1, 0, 0, c.math, {}},
                           {3, 0, 2, size_t{1} << 40, 1, c.math, {}},
                           {kDeterministicAlgorithm, 0, 3, kMemory, 1, c.math, {}}};
  *count = std::min(wanted, 3);
  for (int i = 0; i < *count; ++i) found[i] = all[i];
  return kOk;
}

// Calls f for each term: offsets in x, w and y.
template <class F>
void for_each_term(const Tensor& x, const Tensor& w, const Tensor& y, const Convolution& c, F&& f) {
  std::vector<int64_t> w_steps(w.dims.size(), 1);
  for (size_t i = w.dims.size(); i-- > 1;) w_steps[i - 1] = w_steps[i] * w.dims[i];
  auto space = [&](auto&& self, size_t d, int64_t at_x, int64_t at_w, int64_t at_y) -> void {
    if (d == x.dims.size()) return f(at_x, at_w, at_y);
    for (int64_t o = 0; o < y.dims[d]; ++o)
      for (int64_t r = 0; r < w.dims[d]; ++r) {
        const int64_t h = o * c.strides[d - 2] + r * c.dilations[d - 2] - c.pads[d - 2];
        if (h < 0 || h >= x.dims[d]) continue;
        const int64_t tap = c.mode == 1 ? r : w.dims[d] - 1 - r;  // cross-correlation, else the filter is flipped
        self(self, d + 1, at_x + h * x.steps[d], at_w + tap * w_steps[d], at_y + o * y.steps[d]);
      }
  };
  const int64_t filters = w.dims[0] / c.groups;
  for (int64_t n = 0; n < x.dims[0]; ++n)
    for (int64_t k = 0; k < w.dims[0]; ++k)
      for (int64_t ch = 0; ch < w.dims[1]; ++ch)
        space(space, 2, n * x.steps[0] + (k / filters * w.dims[1] + ch) * x.steps[1], k * w_steps[0] + ch * w_steps[1],
              n * y.steps[0] + k * y.steps[1]);
}

// result: 0: x, 1: w, 2: y.
int convolve(void* handle, const void* alpha, const Tensor& x, const Tensor& w, const Tensor& y, const Convolution& c, int algorithm,
             void* workspace, size_t bytes, const void* beta, const void* const* data, size_t result, void* made) {
  if (handle != &state) return kNotInitialized;
  if (state.fail) return state.fail;
  const bool wide = x.type == DType::f64;
  auto number = [&](const void* p) { return wide ? *static_cast<const double*>(p) : static_cast<double>(*static_cast<const float*>(p)); };
  if (!fit(x, w, y, c) || algorithm != kDeterministicAlgorithm || !workspace || bytes < kMemory || number(beta) != 0) return kBadParameter;
  ++state.calls;
  const Tensor* all[] = {&x, &w, &y};
  int64_t elements = 1;
  for (int d : all[result]->dims) elements *= d;
  std::vector<double> sums(static_cast<size_t>(elements), 0.0);
  for_each_term(x, w, y, c, [&](int64_t at_x, int64_t at_w, int64_t at_y) {
    const int64_t at[] = {at_x, at_w, at_y};
    double product = 1;
    for (size_t i = 0; i < 3; ++i)
      if (i != result) product *= load(data[i], x.type, at[i]);
    sums[static_cast<size_t>(at[result])] += product;  // all of ours lie without gaps
  });
  for (int64_t i = 0; i < elements; ++i) save(made, x.type, i, number(alpha) * sums[static_cast<size_t>(i)]);
  return kOk;
}

}  // namespace

extern "C" {

State* fake_cudnn_state() { return &state; }
const char* cudnnGetErrorString(int) { return "CUDNN_STATUS_EXECUTION_FAILED"; }

int cudnnCreate(void** handle) {
  ++state.handles;
  *handle = &state;
  return kOk;
}
int cudnnSetStream(void* handle, void* stream) {
  if (handle != &state) return kNotInitialized;
  state.stream = stream;
  return kOk;
}

int cudnnCreateTensorDescriptor(void** t) {
  *t = new Tensor;
  return kOk;
}
int cudnnDestroyTensorDescriptor(void* t) {
  delete &tensor(t);
  return kOk;
}
int cudnnSetTensorNdDescriptor(void* t, int type, int rank, const int* dims, const int* steps) {
  if (rank < 4 || rank > 5 || !type_of(type, tensor(t).type)) return kBadParameter;
  tensor(t).dims.assign(dims, dims + rank);
  tensor(t).steps.assign(steps, steps + rank);
  for (int i = 0; i < rank; ++i)
    if (dims[i] < 1 || steps[i] < 1) return kBadParameter;
  return kOk;
}
int cudnnCreateFilterDescriptor(void** t) { return cudnnCreateTensorDescriptor(t); }
int cudnnDestroyFilterDescriptor(void* t) { return cudnnDestroyTensorDescriptor(t); }
int cudnnSetFilterNdDescriptor(void* t, int type, int format, int rank, const int* dims) {
  if (format != 0 || !type_of(type, tensor(t).type)) return kBadParameter;
  tensor(t).dims.assign(dims, dims + rank);
  return kOk;
}

int cudnnCreateConvolutionDescriptor(void** c) {
  *c = new Convolution;
  return kOk;
}
int cudnnDestroyConvolutionDescriptor(void* c) {
  delete static_cast<Convolution*>(c);
  return kOk;
}
int cudnnSetConvolutionNdDescriptor(void* c, int n, const int* pads, const int* strides, const int* dilations, int mode, int compute) {
  auto& made = *static_cast<Convolution*>(c);
  made.pads.assign(pads, pads + n);
  made.strides.assign(strides, strides + n);
  made.dilations.assign(dilations, dilations + n);
  made.mode = mode;
  made.compute = compute;
  return kOk;
}
int cudnnSetConvolutionGroupCount(void* c, int groups) {
  static_cast<Convolution*>(c)->groups = groups;
  return kOk;
}
int cudnnSetConvolutionMathType(void* c, int math) {
  static_cast<Convolution*>(c)->math = math;
  return kOk;
}

int cudnnGetConvolutionForwardAlgorithm_v7(void* h, void* x, void* w, void* c, void* y, int wanted, int* count, Algorithm* found) {
  return choose(h, tensor(x), tensor(w), tensor(y), *static_cast<Convolution*>(c), wanted, count, found);
}
int cudnnGetConvolutionBackwardDataAlgorithm_v7(void* h, void* w, void* y, void* c, void* x, int wanted, int* count, Algorithm* found) {
  return choose(h, tensor(x), tensor(w), tensor(y), *static_cast<Convolution*>(c), wanted, count, found);
}
int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void* h, void* x, void* y, void* c, void* w, int wanted, int* count, Algorithm* found) {
  return choose(h, tensor(x), tensor(w), tensor(y), *static_cast<Convolution*>(c), wanted, count, found);
}

int cudnnConvolutionForward(void* h, const void* alpha, void* dx, const void* x, void* dw, const void* w, void* c, int algorithm,
        void* scratch, size_t bytes, const void* beta, void* dy, void* y) {
  const void* data[] = {x, w, nullptr};
  return convolve(h, alpha, tensor(dx), tensor(dw), tensor(dy), *static_cast<Convolution*>(c), algorithm, scratch, bytes, beta, data, 2, y);
}
int cudnnConvolutionBackwardData(void* h, const void* alpha, void* dw, const void* w, void* dy, const void* y, void* c, int algorithm,
        void* scratch, size_t bytes, const void* beta, void* dx, void* x) {
  const void* data[] = {nullptr, w, y};
  return convolve(h, alpha, tensor(dx), tensor(dw), tensor(dy), *static_cast<Convolution*>(c), algorithm, scratch, bytes, beta, data, 0, x);
}
int cudnnConvolutionBackwardFilter(void* h, const void* alpha, void* dx, const void* x, void* dy, const void* y, void* c, int algorithm,
        void* scratch, size_t bytes, const void* beta, void* dw, void* w) {
  const void* data[] = {x, nullptr, y};
  return convolve(h, alpha, tensor(dx), tensor(dw), tensor(dy), *static_cast<Convolution*>(c), algorithm, scratch, bytes, beta, data, 1, w);
}
}

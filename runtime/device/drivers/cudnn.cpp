// Convolutions by cuDNN, versions 8 and 9: declared here, found in libcudnn.so. Its heuristics rank the algorithms, once per LibraryCall. The first
// deterministic one without TF32 and with at most kMaxScratch of memory is used.
#include <algorithm>
#include <array>
#include <climits>

#include "runtime/device/drivers/cuda_math.h"

namespace xhat::runtime {
namespace {

using Descriptor = void*;
enum Mode : int { kFlipped = 0, kAsWritten = 1 };           // cudnnConvolutionMode_t
enum MathType : int { kOrdinary = 0, kTensorCores = 1, kFma = 3 };  // cudnnMathType_t; ordinary: TF32 for f32
constexpr int kChannelsFirst = 0;                           // cudnnTensorFormat_t
constexpr int kDeterministic = 1;
constexpr int64_t kMaxScratch = int64_t{1} << 30;  // bytes; algorithms that need more are hardly faster
constexpr int kMaxAlgorithms = 10;

struct DnnType {
  DType type;
  int data, compute;  // cudnnDataType_t
};
constexpr DnnType kDnnTypes[] = {{DType::f32, 0, 0}, {DType::f64, 1, 1}, {DType::f16, 2, 0}, {DType::bf16, 9, 0}};

// cudnnConvolutionFwdAlgoPerf_t, and the equal structs of the other two kinds.
struct Algorithm {
  int number;
  int status;
  float time;
  size_t memory;
  int determinism;
  MathType math;
  int reserved[3];
};

// The two operands read and the one written, in the order of operands_of.
using Choose = int(Handle, Descriptor, Descriptor, Descriptor, Descriptor, int, int*, Algorithm*);
using Convolve = int(Handle, const void*, Descriptor, const void*, Descriptor, const void*, Descriptor, int, void*, size_t, const void*,
                     Descriptor, void*);

#define XHAT_CUDNN_FUNCTIONS(F)                                                                                           \
  F(create, "cudnnCreate", (Handle*))                                                                                     \
  F(set_stream, "cudnnSetStream", (Handle, DeviceStream))                                                                 \
  F(new_tensor, "cudnnCreateTensorDescriptor", (Descriptor*))                                                             \
  F(set_tensor, "cudnnSetTensorNdDescriptor", (Descriptor, int, int, const int*, const int*))                             \
  F(drop_tensor, "cudnnDestroyTensorDescriptor", (Descriptor))                                                            \
  F(new_filter, "cudnnCreateFilterDescriptor", (Descriptor*))                                                             \
  F(set_filter, "cudnnSetFilterNdDescriptor", (Descriptor, int, int, int, const int*))                                    \
  F(drop_filter, "cudnnDestroyFilterDescriptor", (Descriptor))                                                            \
  F(new_convolution, "cudnnCreateConvolutionDescriptor", (Descriptor*))                                                   \
  F(set_convolution, "cudnnSetConvolutionNdDescriptor", (Descriptor, int, const int*, const int*, const int*, Mode, int)) \
  F(set_groups, "cudnnSetConvolutionGroupCount", (Descriptor, int))                                                       \
  F(set_math, "cudnnSetConvolutionMathType", (Descriptor, MathType))                                                      \
  F(drop_convolution, "cudnnDestroyConvolutionDescriptor", (Descriptor))

// Indexed by Convolution::Kind.
constexpr const char* kChoose[] = {"cudnnGetConvolutionForwardAlgorithm_v7", "cudnnGetConvolutionBackwardDataAlgorithm_v7",
                                   "cudnnGetConvolutionBackwardFilterAlgorithm_v7"};
constexpr const char* kConvolve[] = {"cudnnConvolutionForward", "cudnnConvolutionBackwardData", "cudnnConvolutionBackwardFilter"};

struct Cudnn {
#define XHAT_DECLARE(member, name, parameters) int(*member) parameters = nullptr;
  XHAT_CUDNN_FUNCTIONS(XHAT_DECLARE)
#undef XHAT_DECLARE
  std::array<Choose*, 3> choose = {};
  std::array<Convolve*, 3> convolve = {};
  const char* (*status_text)(int) = nullptr;
  DriverLibrary library{"XHAT_CUDNN_LIBRARY", first_installed(kCudnnLibraries)};
  Cudnn() {
    library.find(status_text, "cudnnGetErrorString");
#define XHAT_FIND(member, name, parameters) library.find(member, name);
    XHAT_CUDNN_FUNCTIONS(XHAT_FIND)
#undef XHAT_FIND
    for (size_t i = 0; i < choose.size(); ++i) {
      library.find(choose[i], kChoose[i]);
      library.find(convolve[i], kConvolve[i]);
    }
  }
  void ok(int status, const std::string& what) const {
    if (status != 0) throw library_failure("cuDNN", status, status_text ? status_text(status) : "", what);
  }
};

const Cudnn& cudnn() {
  static const Cudnn loaded;
  return loaded;
}

class Prepared : public MathCall {
 public:
  Prepared(DeviceDriver& driver, LibraryHandle& handle, const Convolution& c) : driver_(driver), handle_(handle), c_(c) {}
  ~Prepared() override {
    for (Descriptor t : {input_, output_})
      if (t) cudnn().drop_tensor(t);
    if (filter_) cudnn().drop_filter(filter_);
    if (convolution_) cudnn().drop_convolution(convolution_);
  }

  // Makes the descriptors and chooses an algorithm. Can cuDNN do this convolution?
  bool settle() {
    const Cudnn& api = cudnn();
    const DnnType& type = *std::ranges::find(kDnnTypes, c_.input.type, &DnnType::type);
    std::vector<int> input = {number(c_.images), number(c_.groups * c_.channels)}, output = {input[0], number(c_.groups * c_.filters)};
    std::vector<int> filter = {output[1], number(c_.channels)}, input_steps = two(c_.input), output_steps = two(c_.output);
    std::vector<int> pads, strides, dilations;
    auto add = [&](const Convolution::Space& s, int64_t input_step, int64_t output_step) {
      input.push_back(number(s.input));
      output.push_back(number(s.output));
      filter.push_back(number(s.filter));
      input_steps.push_back(number(input_step));
      output_steps.push_back(number(output_step));
      pads.push_back(number(s.pad));
      strides.push_back(number(s.stride));
      dilations.push_back(number(s.dilation));
    };
    // cuDNN has images of two and of three dimensions, so one dimension gets a second of extent 1.
    if (c_.space.size() == 1) add({}, c_.input.steps[2] * c_.space[0].input, c_.output.steps[2] * c_.space[0].output);
    for (size_t i = 0; i < c_.space.size(); ++i) add(c_.space[i], c_.input.steps[2 + i], c_.output.steps[2 + i]);
    const int rank = static_cast<int>(input.size());
    // A dimension of extent 1 gets the step that it would have if it were larger.
    if (input[1] == 1) input_steps[1] = input_steps[2] * input[2];
    if (output[1] == 1) output_steps[1] = output_steps[2] * output[2];
    if (input[0] == 1) input_steps[0] = input_steps[1] * input[1];
    if (output[0] == 1) output_steps[0] = output_steps[1] * output[1];
    bool fits = api.new_tensor(&input_) == 0 && api.new_tensor(&output_) == 0;
    fits = fits && api.new_filter(&filter_) == 0 && api.new_convolution(&convolution_) == 0;
    fits = fits && api.set_tensor(input_, type.data, rank, input.data(), input_steps.data()) == 0;
    fits = fits && api.set_tensor(output_, type.data, rank, output.data(), output_steps.data()) == 0;
    fits = fits && api.set_filter(filter_, type.data, kChannelsFirst, rank, filter.data()) == 0;
    fits = fits && api.set_convolution(convolution_, rank - 2, pads.data(), strides.data(), dilations.data(),
                                       c_.space[0].flipped ? kFlipped : kAsWritten, type.compute) == 0;
    fits = fits && api.set_groups(convolution_, number(c_.groups)) == 0;
    const bool narrow = byte_size(c_.input.type) == 2;
    fits = fits && api.set_math(convolution_, narrow ? kTensorCores : kFma) == 0;
    if (!fits) return false;
    Algorithm found[kMaxAlgorithms] = {};
    int count = 0;
    auto [x, y, z] = descriptors();
    std::lock_guard lock(handle_.mutex);
    if (api.choose[kind()](handle_.handle, x, y, convolution_, z, kMaxAlgorithms, &count, found) != 0) return false;
    for (int i = 0; i < std::min(count, kMaxAlgorithms); ++i) {
      const Algorithm& a = found[i];
      if (a.status != 0 || a.determinism != kDeterministic || a.memory > static_cast<size_t>(kMaxScratch)) continue;
      if (!narrow && a.math != kFma && a.math != kOrdinary) continue;
      algorithm_ = a.number;
      scratch_bytes_ = static_cast<int64_t>(a.memory);
      // f16 and bf16 take the algorithm's math type; for f32 kFma stays, which forbids TF32.
      return !narrow || api.set_math(convolution_, a.math) == 0;
    }
    return false;
  }

  int64_t scratch_bytes() const override { return scratch_bytes_; }

  void run(DeviceStream stream, DeviceMemory a, DeviceMemory b, DeviceMemory c, DeviceMemory scratch) const override {
    const Cudnn& api = cudnn();
    const double wide_alpha = c_.alpha, wide_zero = 0;
    const auto alpha = static_cast<float>(c_.alpha), zero = 0.0F;
    const bool wide = c_.input.type == DType::f64;
    auto number_of = [wide](const double& d, const float& f) { return wide ? static_cast<const void*>(&d) : &f; };
    auto [x, y, z] = descriptors();
    auto p = [](DeviceMemory m) { return reinterpret_cast<void*>(m); };
    driver_.in_context([&] {
      std::lock_guard lock(handle_.mutex);
      api.ok(api.set_stream(handle_.handle, stream), "taking a stream");
      const int status =
          api.convolve[kind()](handle_.handle, number_of(wide_alpha, alpha), x, p(a), y, p(b), convolution_, algorithm_, p(scratch),
                               static_cast<size_t>(scratch_bytes_), number_of(wide_zero, zero), z, p(c));
      api.ok(status, to_text(LibraryCall(c_)));
    });
  }

 private:
  DeviceDriver& driver_;
  LibraryHandle& handle_;
  Convolution c_;
  Descriptor input_ = nullptr, filter_ = nullptr, output_ = nullptr, convolution_ = nullptr;
  int algorithm_ = 0;
  int64_t scratch_bytes_ = 0;

  size_t kind() const { return static_cast<size_t>(c_.kind); }
  static int number(int64_t n) { return static_cast<int>(std::min<int64_t>(n, INT_MAX)); }
  static std::vector<int> two(const LibrarySide& s) { return {number(s.steps[0]), number(s.steps[1])}; }
  std::array<Descriptor, 3> descriptors() const {
    switch (c_.kind) {
      case Convolution::Kind::forward: return {input_, filter_, output_};
      case Convolution::Kind::data: return {filter_, output_, input_};
      case Convolution::Kind::filter: return {input_, output_, filter_};
    }
    return {};
  }
};

LibraryHandle& cudnn_handle(DeviceDriver& driver) {
  static auto& handles = *new LibraryHandles;  // never destroyed: contexts may be destroyed before static objects
  return handles.of(driver, [] {
    Handle made = nullptr;
    cudnn().ok(cudnn().create(&made), "starting");
    return made;
  });
}

}  // namespace

std::string cudnn_problem() { return cudnn().library.problem(); }

std::unique_ptr<MathCall> cudnn_call(DeviceDriver& driver, const Convolution& c) {
  auto known = std::ranges::find(kDnnTypes, c.input.type, &DnnType::type);
  if (!cudnn_problem().empty() || known == std::end(kDnnTypes)) return nullptr;
  auto call = std::make_unique<Prepared>(driver, cudnn_handle(driver), c);
  bool fits = false;
  driver.in_context([&] { fits = call->settle(); });
  return fits ? std::move(call) : nullptr;
}

}  // namespace xhat::runtime

// Matrix products by cuBLAS, of CUDA 11 or later: declared here, found in libcublas.so.
//
// cuBLAS has column-major matrices. A row-major c[i,j] is the transpose of one, so C^T = B^T * A^T is computed. An operand that is contiguous along
// the other axis is passed as transposed.
#include <algorithm>
#include <climits>

#include "runtime/device/drivers/cuda_math.h"

namespace xhat::runtime {
namespace {

enum Operation : int { kPlain = 0, kTransposed = 1 };
enum ComputeType : int { kCompute32 = 68, kCompute64 = 70 };
constexpr int kDefaultAlgorithm = -1;
constexpr int kNoReducedPrecision = 16;  // CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION; TF32 is off unless it is asked for
constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // NVIDIA's recommendation for Hopper; earlier GPUs need 4 MB

struct BlasType {
  DType type;
  int cuda;  // cudaDataType
};
constexpr BlasType kBlasTypes[] = {{DType::f32, 0}, {DType::f64, 1}, {DType::f16, 2}, {DType::bf16, 14}};

#define XHAT_CUBLAS_FUNCTIONS(F)                                                                                                      \
  F(create, "cublasCreate_v2", (Handle*))                                                                                             \
  F(set_stream, "cublasSetStream_v2", (Handle, DeviceStream))                                                                         \
  F(set_workspace, "cublasSetWorkspace_v2", (Handle, void*, size_t))                                                                  \
  F(set_math, "cublasSetMathMode", (Handle, int))                                                                                     \
  F(multiply, "cublasGemmStridedBatchedEx",                                                                                           \
    (Handle, Operation, Operation, int, int, int, const void*, const void*, int, int, long long, const void*, int, int, long long,    \
     const void*, void*, int, int, long long, int, ComputeType, int))

struct Cublas {
#define XHAT_DECLARE(member, name, parameters) int(*member) parameters = nullptr;
  XHAT_CUBLAS_FUNCTIONS(XHAT_DECLARE)
#undef XHAT_DECLARE
  const char* (*status_text)(int) = nullptr;
  DriverLibrary library{"XHAT_CUBLAS_LIBRARY", first_installed(kCublasLibraries)};
  Cublas() {
    library.find(status_text, "cublasGetStatusString");
#define XHAT_FIND(member, name, parameters) library.find(member, name);
    XHAT_CUBLAS_FUNCTIONS(XHAT_FIND)
#undef XHAT_FIND
  }
  void ok(int status, const std::string& what) const {
    if (status != 0) throw library_failure("cuBLAS", status, status_text ? status_text(status) : "", what);
  }
};

const Cublas& cublas() {
  static const Cublas loaded;
  return loaded;
}

// A matrix for cuBLAS, contiguous along the axis that it calls rows.
struct Matrix {
  Operation operation;
  int leading;  // elements between two columns
};
// first: the axis that becomes the rows.
Matrix matrix(int64_t first, int64_t first_step, int64_t second, int64_t second_step) {
  auto wide = [](int64_t step, int64_t extent, int64_t least) { return static_cast<int>(std::max(extent == 1 ? least : step, least)); };
  const bool plain = (first == 1 || first_step == 1) && (second == 1 || second_step >= first);
  return plain ? Matrix{kPlain, wide(second_step, second, first)} : Matrix{kTransposed, wide(first_step, first, second)};
}

class BlasProduct : public MathCall {
 public:
  BlasProduct(DeviceDriver& driver, LibraryHandle& handle, const MatrixProduct& m) : driver_(driver), handle_(handle), m_(m) {
    by_columns_ = matrix(m.rows, m.c.steps[0], m.columns, m.c.steps[1]).operation == kPlain;
  }

  int64_t scratch_bytes() const override { return static_cast<int64_t>(kWorkspaceBytes); }

  void run(DeviceStream stream, DeviceMemory a, DeviceMemory b, DeviceMemory c, DeviceMemory scratch) const override {
    const Cublas& api = cublas();
    driver_.in_context([&] {
      std::lock_guard lock(handle_.mutex);
      api.ok(api.set_stream(handle_.handle, stream), "taking a stream");
      api.ok(api.set_workspace(handle_.handle, pointer(scratch, 0, DType::u8), kWorkspaceBytes), "taking memory for scratch");
      // One call per point of the batch without its last axis.
      int64_t calls = 1;
      for (size_t i = 0; i + 1 < m_.batch.size(); ++i) calls *= m_.batch[i];
      for (int64_t call = 0; call < calls; ++call) {
        int64_t at_a = m_.a.offset, at_b = m_.b.offset, at_c = m_.c.offset, rest = call;
        for (size_t i = m_.batch.size(); i-- > 1;) {
          const int64_t at = rest % m_.batch[i - 1];
          rest /= m_.batch[i - 1];
          at_a += at * m_.a.steps[1 + i];
          at_b += at * m_.b.steps[1 + i];
          at_c += at * m_.c.steps[1 + i];
        }
        one(pointer(a, at_a, m_.a.type), pointer(b, at_b, m_.b.type), pointer(c, at_c, m_.c.type));
      }
    });
  }

 private:
  DeviceDriver& driver_;
  LibraryHandle& handle_;
  MatrixProduct m_;
  bool by_columns_;

  static void* pointer(DeviceMemory memory, int64_t offset, DType type) {
    return reinterpret_cast<void*>(memory + static_cast<uint64_t>(offset) * byte_size(type));
  }
  static int cuda_type(const LibrarySide& s) { return std::ranges::find(kBlasTypes, s.type, &BlasType::type)->cuda; }

  struct Operand {
    const void* data;
    const LibrarySide* side;
    Matrix matrix;
    long long step;  // elements between two matrices of the batch
  };

  // Computes c = alpha * a * b, or c^T = alpha * b^T * a^T if c is row-major.
  void one(const void* a, const void* b, void* c) const {
    auto operand = [&](const void* data, const LibrarySide& s, int64_t down, int64_t across) {
      const Matrix m = by_columns_ ? matrix(down, s.steps[0], across, s.steps[1]) : matrix(across, s.steps[1], down, s.steps[0]);
      return Operand{data, &s, m, m_.batch.empty() ? 0 : static_cast<long long>(s.steps.back())};
    };
    Operand x = operand(a, m_.a, m_.rows, m_.terms), y = operand(b, m_.b, m_.terms, m_.columns);
    const Operand z = operand(c, m_.c, m_.rows, m_.columns);
    auto rows = static_cast<int>(m_.rows), columns = static_cast<int>(m_.columns);
    if (!by_columns_) {
      std::swap(x, y);
      std::swap(rows, columns);
    }
    const double wide_alpha = m_.alpha, wide_zero = 0;
    const auto alpha = static_cast<float>(m_.alpha), zero = 0.0F;
    const bool wide = m_.c.type == DType::f64;
    auto number = [wide](const double& d, const float& f) { return wide ? static_cast<const void*>(&d) : &f; };
    const int terms = static_cast<int>(m_.terms), count = m_.batch.empty() ? 1 : static_cast<int>(m_.batch.back());
    const int status = cublas().multiply(
        handle_.handle, x.matrix.operation, y.matrix.operation, rows, columns, terms, number(wide_alpha, alpha), x.data, cuda_type(*x.side),
        x.matrix.leading, x.step, y.data, cuda_type(*y.side), y.matrix.leading, y.step, number(wide_zero, zero), c, cuda_type(*z.side),
        z.matrix.leading, z.step, count, wide ? kCompute64 : kCompute32, kDefaultAlgorithm);
    cublas().ok(status, to_text(LibraryCall(m_)));
  }
};

LibraryHandle& cublas_handle(DeviceDriver& driver) {
  static auto& handles = *new LibraryHandles;  // never destroyed: contexts may be destroyed before static objects
  return handles.of(driver, [] {
    Handle made = nullptr;
    cublas().ok(cublas().create(&made), "starting");
    cublas().ok(cublas().set_math(made, kNoReducedPrecision), "asking for sums in f32");
    return made;
  });
}

}  // namespace

std::string cublas_problem() { return cublas().library.problem(); }

std::unique_ptr<MathCall> cublas_call(DeviceDriver& driver, const MatrixProduct& m) {
  auto known = [](DType t) { return std::ranges::find(kBlasTypes, t, &BlasType::type) != std::end(kBlasTypes); };
  if (!cublas_problem().empty() || !known(m.a.type) || !known(m.c.type)) return nullptr;
  const int64_t longest = std::max({m.rows, m.columns, m.terms, m.batch.empty() ? 1 : m.batch.back()});
  if (longest > INT_MAX) return nullptr;
  return std::make_unique<BlasProduct>(driver, cublas_handle(driver), m);
}

}  // namespace xhat::runtime

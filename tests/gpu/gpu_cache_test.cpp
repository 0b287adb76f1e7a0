// A GPU's kernels on disk (runtime/gpu/gpu_kernel.cpp): text, launches and buffers are as they were; what is damaged is made anew.
#include "tests/helpers/disk_cache_helper.h"

#include "fusion/plan/plan.h"
#include "runtime/call/gpu_direction.h"
#include "runtime/call/machine.h"
#include "tests/helpers/need_device.h"

namespace xhat::gpu_cache_test {
namespace {

using namespace xhat::testing;
using runtime::CompiledGpuKernel;
using runtime::DeviceCode;
using runtime::DiskCache;
using runtime::KernelSpec;

class GpuKernelsOnDisk : public KernelsOnDisk {
 protected:
  // Sums across blocks: partial results, a second launch, a number that follows from N.
  GpuKernelsOnDisk() : program_(infer_program(derive(parse_op("op f(x: f32[N,D]) -> (y) { y = sum(n,d: x[n,d]^2) }"), {}).program)) {}

  KernelSpec spec(int64_t n) const {
    const DimValues sizes = {{"N", n}, {"D", 64}};
    auto specs = runtime::gpu_specs(program_, plan_kernels(program_, sizes, {.machine = for_gpu({})}), sizes, Target::cuda);
    EXPECT_EQ(specs.size(), 1u);
    return specs[0];
  }
  // As a process does that has compiled nothing.
  DeviceCode code(Target target, DiskCache* disk, int64_t n = 4096) const {
    return CompiledGpuKernel(runtime::class_of(target, spec(n), runtime::stored_types(program_)), disk).code();
  }
  static void expect_same(const DeviceCode& a, const DeviceCode& b) {
    EXPECT_TRUE(a.kernel == b.kernel);
    EXPECT_EQ(a.values, b.values);
    ASSERT_EQ(a.buffers.size(), b.buffers.size());
    for (size_t i = 0; i < a.buffers.size(); ++i) {
      EXPECT_EQ(a.buffers[i].tensor, b.buffers[i].tensor);
      EXPECT_EQ(a.buffers[i].partial, b.buffers[i].partial);
      EXPECT_TRUE(a.buffers[i].bytes == b.buffers[i].bytes);
    }
  }
  static void put(const fs::path& file, const std::string& bytes) {
    fs::remove(file);
    std::ofstream(file, std::ios::binary) << bytes;
    fs::permissions(file, fs::perms(0600));
  }

  const Program program_;
};

TEST_F(GpuKernelsOnDisk, AreWhatWasCompiled) {
  Environment no_linker("PATH", "/nowhere");  // nor need of one
  for (Target target : {Target::cuda, Target::opencl}) {
    fs::remove_all(cache_);
    DiskCache disk(cache_);
    DeviceCode made = code(target, &disk);
    expect_same(made, code(target, nullptr));
    ASSERT_EQ(made.kernel.launches.size(), 2u);
    const auto before = inodes();
    ASSERT_EQ(before.size(), 1u);
    EXPECT_EQ(status(before.begin()->first).st_mode & 07777, 0600u);
    expect_same(made, code(target, &disk));
    expect_same(made, code(target, &disk, 4100));  // the same code
    EXPECT_EQ(inodes(), before);
  }
}

TEST_F(GpuKernelsOnDisk, AreReadAndNotCompiled) {
  DiskCache disk(cache_);
  DeviceCode made = code(Target::cuda, &disk);
  const fs::path file = files().at(0);
  const std::string good = content(file);
  const runtime::KernelRecord right = record(file);
  std::string other = good.substr(0, right.object_bytes);
  const size_t at = other.find(".visible .entry");
  ASSERT_NE(at, std::string::npos);
  other[at] = '/';
  put(file, other + runtime::trailer(other, right));
  EXPECT_NE(code(Target::cuda, &disk).kernel.text, made.kernel.text);
  for (size_t byte : {size_t{0}, at, good.size() - 1}) {
    std::string bad = good;
    bad[byte] = static_cast<char>(~bad[byte]);
    put(file, bad);
    expect_same(made, code(Target::cuda, &disk));
    EXPECT_EQ(content(file), good);  // made anew
  }
}

TEST_F(GpuKernelsOnDisk, MakeRoomForEachOther) {
  auto fill = [&](int64_t limit) {
    fs::remove_all(cache_);
    DiskCache disk(cache_, limit);
    for (Target target : {Target::cuda, Target::opencl}) code(target, &disk);
    int64_t bytes = 0;
    for (const fs::path& file : files()) bytes += static_cast<int64_t>(fs::file_size(file));
    return bytes;
  };
  const int64_t both = fill(1 << 20);
  EXPECT_EQ(files().size(), 2u);
  EXPECT_LT(fill(both - 1), both);
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(GpuKernelsOnDisk, ServeTheNextProcess) {
  XHAT_NEED_DEVICE(Target::opencl);
  Environment here("XHAT_CACHE_DIR", cache_);
  Result first = softmax("first", "", "--target opencl");
  ASSERT_EQ(first.status, 0) << first.err;
  const auto before = inodes();
  EXPECT_GE(before.size(), 2u);
  for (const auto& [file, inode] : before) EXPECT_EQ(file.extension(), ".gpu");
  Result second = softmax("second", "", "--target opencl");
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_EQ(inodes(), before);
  EXPECT_EQ(results("second"), results("first"));
}

}  // namespace
}  // namespace xhat::gpu_cache_test

// Files of kernels that are not what they should be: seen before they are loaded, and made anew.
#include <unistd.h>

#include <fmt/format.h>

#include "runtime/host/thread_pool.h"
#include "runtime/store/fingerprint.h"
#include "tests/helpers/disk_cache_helper.h"

namespace xhat::kernel_file_test {
namespace {

using namespace xhat::testing;
using runtime::KernelRecord;
using KernelFiles = KernelsOnDisk;

TEST_F(KernelFiles, AnyDamagedByteIsSeen) {
  const std::string good = content(filled());
  ASSERT_TRUE(runtime::read_record(good));
  std::string bad = good;
  size_t taken = 0;
  for (size_t i = 0; i < bad.size(); ++i) {
    bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
    taken += runtime::read_record(bad).has_value();
    bad[i] = good[i];
  }
  for (size_t size = 0; size < good.size(); ++size) taken += runtime::read_record(good.substr(0, size)).has_value();
  for (const std::string& more : {std::string("x"), std::string(4096, '\0'), good}) taken += runtime::read_record(good + more).has_value();
  EXPECT_EQ(taken, 0u);
}

TEST_F(KernelFiles, WhatIsDamagedIsMadeAnew) {
  const fs::path file = filled();
  const std::string good = content(file), key = record(file).kernels.at(0).key;
  auto put = [&](const std::string& bytes) {
    fs::remove(file);
    std::ofstream(file, std::ios::binary) << bytes;
    fs::permissions(file, fs::perms(0600));
  };
  for (size_t at : {size_t{0}, size_t{100}, good.size() / 2, good.size() - 100, good.size() - 1}) {
    SCOPED_TRACE(at);
    std::string bad = good;
    bad[at] = static_cast<char>(~bad[at]);
    put(bad);
    expect_made_anew(file, key);
    put(good.substr(0, at));
    expect_made_anew(file, key);
  }
}

TEST_F(KernelFiles, WhatIsOfAnotherBuildOrKernelIsMadeAnew) {
  const fs::path file = filled();
  const KernelRecord right = record(file);
  std::string object = content(file);
  object.resize(object.size() - runtime::trailer(object, right).size());
  ASSERT_EQ(object + runtime::trailer(object, right), content(file));
  auto put = [&](const KernelRecord& r) {
    fs::remove(file);
    std::ofstream(file, std::ios::binary) << object + runtime::trailer(object, r);
    fs::permissions(file, fs::perms(0600));
  };
  KernelRecord slower = right;
  slower.kernels[0].arguments.refused = "its code is scalar: \"why\"";
  put(slower);
  const auto loaded = load(right.kernels[0].key);
  ASSERT_NE(loaded, nullptr);
  EXPECT_EQ(loaded->arguments.refused, slower.kernels[0].arguments.refused) << "what is not as planned says so in later processes, too";
  put(right);
  EXPECT_NE(load(right.kernels[0].key), nullptr);
  KernelRecord other = right;
  other.fingerprint.back() ^= 1;
  put(other);
  expect_made_anew(file, right.kernels[0].key);
  other = right;
  other.kernels[0].key += " ";
  put(other);
  expect_made_anew(file, right.kernels[0].key);
}

// What xhat itself tells LLVM is in its sources already; a process that has compiled a kernel finds those of one that has not.
TEST_F(KernelFiles, WhatLlvmIsToldByItsUserIsInTheFingerprint) {
  auto told = [](const char* options) {
    Environment set(runtime::kLlvmVariable, options);
    return runtime::code_fingerprint();
  };
  EXPECT_EQ(told(runtime::kLlvmOptions), told(""));
  EXPECT_NE(told("-some-option"), told(""));
}

TEST_F(KernelFiles, KernelsCompiledTogetherAreOneFile) {
  // One more than there are threads to compile them.
  const int threads = runtime::threads_or_all();
  std::string inputs, outputs, body;
  DimValues dims;
  for (int i = 0; i <= threads; ++i) {
    inputs += fmt::format("{}x{}: f32[N{}]", i ? ", " : "", i, i);
    outputs += fmt::format("{}y{}", i ? ", " : "", i);
    body += fmt::format("y{0}[i] = exp(x{0}[i]) + {1}; ", i, i + 2);
    dims[fmt::format("N{}", i)] = i + 3;
  }
  const auto op = parse_op("op f(" + inputs + ") -> (" + outputs + ") { " + body + "}");
  auto results = [&] {
    CompileOptions options;
    options.cache = std::make_shared<runtime::KernelCache>(std::make_shared<runtime::DiskCache>(cache_));
    return run_infer(compile(op, options), random_data(op, dims, 3), dims);
  };
  const Arrays first = results();
  std::map<ino_t, std::vector<fs::path>> names;
  for (const fs::path& file : files()) names[status(file).st_ino].push_back(file);
  ASSERT_EQ(files().size(), static_cast<size_t>(threads) + 1);
  ASSERT_EQ(names.size(), static_cast<size_t>(threads));
  const auto pair = std::ranges::find(names, size_t{2}, [](const auto& n) { return n.second.size(); });
  ASSERT_NE(pair, names.end());
  const fs::path a = pair->second[0], b = pair->second[1];
  const KernelRecord both = record(a);
  ASSERT_EQ(both.kernels.size(), 2u);
  for (const auto& kernel : both.kernels) EXPECT_NE(load(kernel.key), nullptr);
  fs::remove(a);
  EXPECT_EQ(difference(first, results(), 0), "");
  ASSERT_TRUE(fs::exists(a));
  EXPECT_NE(status(a).st_ino, status(b).st_ino) << "what was kept is not compiled again";
  EXPECT_EQ(record(a).kernels.size(), 1u);
  EXPECT_EQ(record(b), both);
  EXPECT_EQ(difference(first, results(), 0), "");
}

TEST_F(KernelFiles, WhatOthersCanWriteIsMadeAnew) {
  const fs::path file = filled();
  const std::string key = record(file).kernels.at(0).key, good = content(file);
  for (int rights : {0620, 0602, 0666}) {
    ASSERT_EQ(chmod(file.c_str(), static_cast<mode_t>(rights)), 0);
    expect_made_anew(file, key);
  }
  if (geteuid() == 0) {
    ASSERT_EQ(chown(file.c_str(), 1, 1), 0);
    expect_made_anew(file, key);
  }
  fs::rename(file, folder_ / "elsewhere");
  fs::create_symlink(folder_ / "elsewhere", file);
  expect_made_anew(file, key);
  fs::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);  // opening one waits for a writer
  expect_made_anew(file, key);

  ASSERT_EQ(chmod(cache_.c_str(), 0777), 0);
  EXPECT_EQ(load(key), nullptr);
  expect_one_warning("it is no folder that only its owner, who runs this, can write to");
  EXPECT_EQ(files().size(), 1u);
}

}  // namespace
}  // namespace xhat::kernel_file_test

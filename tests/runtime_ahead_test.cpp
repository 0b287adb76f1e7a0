// Libraries compiled ahead of time compute the bits that the engine computes in the process, at any size of the open dim, on
// every processor level that this machine has; and say what is wrong with a call before they write.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include <fmt/format.h>

#include "ad/gradient.h"
#include "runtime/ahead.h"
#include "runtime/kernel_cache.h"
#include "tests/golden.h"
#include "tests/runtime_helper.h"
#include "tests/tool_helper.h"

namespace xhat {
namespace {

using namespace xhat::testing;

std::vector<CpuLevel> levels_here() {
  std::vector<CpuLevel> levels = {CpuLevel::sse41};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) levels.push_back(CpuLevel::avx2);
  if (levels.size() == 2 && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
    levels.push_back(CpuLevel::avx512);
  return levels;
}

class Environment {
 public:
  Environment(const char* name, std::string_view value) : name_(name) { setenv(name, std::string(value).c_str(), 1); }
  ~Environment() { unsetenv(name_); }

 private:
  const char* name_;
};

// A library in this process. Linked as a shared object, so that one process can hold many, and one at several levels.
class Loaded {
 public:
  Loaded(const std::string& folder, const std::string& name, const Program& p, int copy) : p_(p) {
    std::string shim = "#include \"tests/ahead_shim.h\"\n#include \"" + name + ".h\"\nextern \"C\" int side(int s, const int64_t* d, void* const* a) {\n";
    int number = 0;
    for (const char* side : {"infer", "forward", "backward"}) shim += fmt::format("  if (s == {}) return call({}_{}, d, a);\n", number++, name, side);
    shim += fmt::format("  return -1;\n}}\nextern \"C\" size_t stash_bytes(const int64_t* d) {{ return {0}_stash_bytes(reinterpret_cast<const {0}_dims*>(d)); }}\n", name);
    shim += fmt::format("extern \"C\" const char* message() {{ return {}_message(); }}\n", name);
    shim += fmt::format("extern \"C\" const char* level() {{ return {}_cpu_level(); }}\n", name);
    std::ofstream(folder + "/shim.cpp") << shim;
    std::string object = fmt::format("{}/{}_{}.so", folder, name, copy);
    std::string command = fmt::format("c++ -std=c++20 -O0 -fPIC -shared -I{} -I{} {}/shim.cpp {}/lib{}.a -lpthread -o {} 2>&1", XHAT_SOURCE_DIR,
                                      folder, folder, folder, name, object);
    if (std::system(command.c_str()) != 0) throw Error("the library does not link");
    handle_ = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle_) throw Error(dlerror());
    find(side_, "side");
    find(stash_bytes_, "stash_bytes");
    find(message_, "message");
    find(level_, "level");
  }

  std::string level() const { return level_(); }
  std::string message() const { return message_(); }
  size_t stash_bytes(const std::vector<int64_t>& dims) const { return stash_bytes_(dims.data()); }
  int side(int s, const std::vector<int64_t>& dims, const std::vector<void*>& arguments) const { return side_(s, dims.data(), arguments.data()); }

  // Outputs of infer, of forward, and gradients.
  Arrays run(const Arrays& data, const DimValues& sizes) const {
    std::vector<int64_t> dims;
    for (const Dim& d : p_.dims)
      if (d.definition == kNone) dims.push_back(sizes.at(std::string(p_.arena->name(d.dim))));
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
      std::vector<void*> arguments;
      for (const Argument& a : call.arguments({inputs, outputs})) arguments.push_back(a.view.data);
      if (s == 1) stash_.assign(stash_bytes(dims) / 16 + 1, {});
      if (s > 0) arguments.push_back(stash_.data());
      int status = side(s, dims, arguments);
      EXPECT_EQ(status, 0) << message();
      for (auto& [name, array] : call.arrays({outputs})) results.insert_or_assign(s == 0 ? "infer " + name : name, std::move(array));
    }
    return results;
  }

 private:
  template <class F>
  void find(F& f, const char* name) {
    f = reinterpret_cast<F>(dlsym(handle_, name));
    if (!f) throw Error(dlerror());
  }
  struct alignas(16) Line {
    char bytes[16];
  };
  const Program& p_;
  void* handle_ = nullptr;  // stays: threads of the library's pool do
  mutable std::vector<Line> stash_;
  int (*side_)(int, const int64_t*, void* const*) = nullptr;
  size_t (*stash_bytes_)(const int64_t*) = nullptr;
  const char* (*message_)() = nullptr;
  const char* (*level_)() = nullptr;
};

// Empty if all bits agree.
std::string bits_differ(const Arrays& a, const Arrays& b) {
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

class Ahead : public Tool {
 protected:
  AheadOptions options() const {
    AheadOptions o;
    o.compile.threads = 2;
    o.levels = levels_here();
    o.support = XHAT_BUILD_DIR "/libxhat_ahead.a";
    return o;
  }

  struct Sizes {
    DimValues given;              // what the library is made for
    std::vector<int64_t> ns = {};  // of N, which stays open
    std::vector<DimValues> calls() const {
      std::vector<DimValues> all;
      for (int64_t n : ns) {
        all.push_back(given);
        all.back()["N"] = n;
      }
      return all;
    }
  };

  // The bits of the engine, on each of the levels.
  void same_bits(const std::string& text, const AheadOptions& o, const std::vector<DimValues>& calls) {
    SCOPED_TRACE(text);
    Program op = parse_op(text), all = gradient(op);
    build_ahead(op, o, path("lib"));
    CompileOptions options = o.compile;
    Program derived = derive(op, options).program;
    int copy = 0;
    for (CpuLevel level : o.levels) {
      Environment forced("XHAT_CPU_LEVEL", name_of(level));
      Loaded library(path("lib"), op.name, derived, copy++);
      EXPECT_EQ(library.level(), name_of(level));
      options.cache = std::make_shared<runtime::KernelCache>();
      CompiledOp compiled = compile(op, options);
      for (const DimValues& dims : calls) {
        DimValues solved = solve_dims(derived, {}, dims);
        Arrays data = random_data(all, solved, 3);
        Arrays expected = run_both(compiled, data, solved);
        for (auto& [name, array] : run_infer(compiled, data, solved)) expected["infer " + name] = array;
        EXPECT_EQ(bits_differ(expected, library.run(data, solved)), "") << name_of(level) << " " << dims_text(dims);
      }
    }
  }
  void same_bits(const std::string& text, const Sizes& sizes, AheadOptions o) {
    for (const auto& [name, value] : sizes.given) o.sizes[name] = {value};
    same_bits(text, o, sizes.calls());
  }

  // As the evaluator has it.
  void same_values(const std::string& text, const Sizes& sizes, AheadOptions o) {
    SCOPED_TRACE(text);
    for (const auto& [name, value] : sizes.given) o.sizes[name] = {value};
    Program op = parse_op(text), all = gradient(op);
    AheadLibrary made = build_ahead(op, o, path("lib"));
    EXPECT_EQ(made.open, "N");
    Program derived = derive(op, o.compile).program;
    Loaded library(path("lib"), op.name, derived, 0);
    for (const DimValues& dims : sizes.calls()) {
      DimValues solved = solve_dims(derived, {}, dims);
      Arrays data = random_data(all, solved, 3), results = library.run(data, solved), expected = evaluate_on(all, data, solved);
      std::erase_if(results, [](const auto& r) { return r.first.starts_with("infer "); });
      EXPECT_EQ(difference(expected, results, 2e-4), "") << dims_text(dims);
    }
  }

  AheadOptions best_level() const {
    AheadOptions o = options();
    o.levels = {o.levels.back()};
    return o;
  }
  // Several tiles soon.
  static AheadOptions small_tiles(AheadOptions o) {
    o.compile.fusion.serial_bytes = 4 << 10;
    o.compile.fusion.tile_bytes = 2 << 10;
    return o;
  }
};

const std::vector<int64_t> kBatches = {0, 1, 2, 7, 32, 33, 100, 257};
const char kBatchNorm[] = R"(op bn(x: f32[N,C,H,W], g: f32[C], b: f32[C], eps: f32 const) -> (y) {
  mu[c] = mean(n,h,w: x[n,c,h,w]); v[c] = mean(n,h,w: (x[n,c,h,w] - mu[c])^2)
  y[n,c,h,w] = (x[n,c,h,w] - mu[c]) / sqrt(v[c] + abs(eps)) * g[c] + b[c]
})";
const char kCrossEntropy[] = R"(op loss(x: f32[N,C], label: i32[N] const) -> (loss) {
  m[n] = max(c: x[n,c]); z[n] = log(sum(c: exp(x[n,c] - m[n]))) + m[n]
  loss = mean(n: z[n] - x[n,label[n]])
})";

const char kBag[] = "op bag(t: f32[V,D], ids: i32[N,L] const) -> (y, total) { y[n,d] = sum(l: t[ids[n,l],d]); total = sum(n,d: y[n,d]^2) }";
const char kNorm[] = "op norm(x: f32[N], eps: f32) -> (y, total) { total = sum(i: x[i]^2) + eps; y[i] = x[i] / sqrt(abs(total)) }";

TEST_F(Ahead, ReductionsAcrossTheBatch) { same_bits(kBatchNorm, {{{"C", 5}, {"H", 3}, {"W", 7}}, kBatches}, small_tiles(options())); }

TEST_F(Ahead, DefaultTilesOfLargeBatches) { same_bits(kBatchNorm, {{{"C", 16}, {"H", 14}, {"W", 14}}, {1, 31, 32, 256}}, best_level()); }

TEST_F(Ahead, Rows) {
  same_bits(R"(op softmax(x: f32[N,D]) -> (y) {
    m[n] = max(d: x[n,d]); e[n,d] = exp(x[n,d] - m[n]); y[n,d] = e[n,d] / sum(k: e[n,k]) })",
            {{{"D", 70}}, kBatches}, small_tiles(options()));
}

TEST_F(Ahead, GathersAndAScalarResult) { same_bits(kCrossEntropy, {{{"C", 37}}, {1, 7, 33, 257}}, small_tiles(best_level())); }

TEST_F(Ahead, Products) {
  same_bits("op dense(x: f32[N,I], w: f32[I,O], b: f32[O]) -> (y) { y[n,o] = tanh(sum(i: x[n,i]*w[i,o]) + b[o]) }",
            {{{"I", 40}, {"O", 48}}, {0, 1, 2, 7, 33, 64, 65, 257}}, small_tiles(best_level()));
}

TEST_F(Ahead, Convolutions) {
  same_bits(R"(op conv(x: f32[N,C,H,W], w: f32[K,C,3,3], b: f32[K]) -> (y) {
    dim OH = H / 2
    y[n,k, i in 0..OH, j in 0..W] = max(0, b[k] + sum(c,r,s: x[n,c,2*i+r-1,j+s-1 else 0] * w[k,c,r,s])) })",
            {{{"C", 3}, {"K", 8}, {"H", 10}, {"W", 18}}, {1, 7, 33}}, small_tiles(best_level()));
}

TEST_F(Ahead, OtherTypes) {
  same_bits(R"(op types(x: f16[N,D], g: bf16[D], k: i64 const, mask: bool[N] const, a: f64[D]) -> (y, z, best) {
    y[n,d] = if mask[n] then x[n,d] * g[d] else x[n,d]
    z[d] = sum(n: a[d] * x[n,d]) + f64(k)
    best[n] = argmax(d: x[n,d]) })",
            {{{"D", 12}}, {1, 7, 300}}, small_tiles(options()));
}

// The engine has other code for each of such sizes, as long as they are small; a library cuts them, and so adds up in another order.
TEST_F(Ahead, SizesThatCodeWouldKnow) {
  same_values(kNorm, {{}, {0, 1, 2, 3, 63, 64, 65, 1000, 4097, 30011}}, best_level());
  same_values(kBag, {{{"V", 50}, {"D", 24}, {"L", 3}}, {1, 2, 7, 32, 33, 100, 257, 2000}}, best_level());
}

TEST_F(Ahead, ScattersAndPartialSums) {
  AheadOptions cut = small_tiles(best_level());
  cut.compile.fusion.cut_small = true;
  cut.compile.fusion.policy = FusePolicy::off;
  same_bits(kBag, {{{"V", 50}, {"D", 24}, {"L", 3}}, {1, 7, 32, 33, 100, 257}}, cut);
  same_bits(kNorm, {{}, {1, 63, 64, 65, 1000, 4097, 123457}}, cut);
}

TEST_F(Ahead, SizesFromAList) {
  AheadOptions o = best_level();
  o.sizes = {{"D", {8, 20}}};
  same_bits("op rows(x: f32[N,D]) -> (y) { y[n] = sum(d: x[n,d]^2) }", o,
            {{{"N", 1}, {"D", 8}}, {{"N", 33}, {"D", 8}}, {{"N", 1}, {"D", 20}}, {{"N", 33}, {"D", 20}}});
  o.sizes = {{"D", {8}}, {"N", {3, 5}}};
  same_bits("op fixed(x: f32[N,D]) -> (y) { y[n] = sum(d: x[n,d]^2) }", o, {{{"N", 3}, {"D", 8}}, {{"N", 5}, {"D", 8}}});
}

TEST_F(Ahead, WhatMustBeGivenIsSaid) {
  Program op = parse_op("op rows(x: f32[N,D,E]) -> (y) { y[n,e] = sum(d: x[n,d,e]^2) }");
  auto message = [&](const std::map<std::string, std::vector<int64_t>>& sizes) {
    AheadOptions o = best_level();
    o.sizes = sizes;
    try {
      build_ahead(op, o, path("lib"));
    } catch (const Error& e) {
      return e.message();
    }
    return std::string("fine");
  };
  EXPECT_EQ(message({}).substr(0, 58), "op rows: the sizes N, D, E are not given; all but one must");
  EXPECT_EQ(message({{"N", {2}}, {"D", {3}}}).substr(0, 35), "op rows: the size E must be given, ");
  EXPECT_EQ(message({{"D", {3}}, {"E", {4}}, {"F", {4}}}), "op rows: there is no dim F; it has N, D, E");
  EXPECT_FALSE(fs::exists(path("lib")) && !fs::is_empty(path("lib"))) << "nothing is left of what failed";
}

}  // namespace
}  // namespace xhat

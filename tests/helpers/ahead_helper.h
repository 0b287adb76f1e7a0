// For tests that compare a library compiled ahead of time with the engine, at any size of the open dim.
#pragma once
#include "ad/reverse/gradient.h"
#include "runtime/ahead/build/ahead.h"
#include "runtime/cpu/kernel_cache.h"
#include "tests/helpers/ahead_library.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/tool_helper.h"

namespace xhat::testing {

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
    DimValues given;               // what the library is made for
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
    for (CpuLevel level : o.levels) {
      Environment forced("XHAT_CPU_LEVEL", name_of(level));
      Loaded library(path("lib"), op.name, derived, copies_++);
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

  AheadOptions best_level() const {
    AheadOptions o = options();
    o.levels = {o.levels.back()};
    return o;
  }
  // Several tiles soon.
  static AheadOptions small_tiles(AheadOptions o) {
    o.compile.machine.serial_bytes = 4 << 10;
    o.compile.machine.tile_bytes = 2 << 10;
    return o;
  }

 private:
  int copies_ = 0;  // libraries loaded: each has a path of its own
};

inline const std::vector<int64_t> kBatches = {0, 1, 2, 7, 32, 33, 100, 257};

}  // namespace xhat::testing

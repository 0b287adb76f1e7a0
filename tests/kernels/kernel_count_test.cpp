// How many kernels the planner makes of programs that others have counted too: tests/kernel_counts/*.xh. What an op is held
// to stands above it:
//
//   #: C43b at N=200 infer=2/3 flops=2       its name in the list, sizes, and per direction: kernels there are / wanted at most
//   #: layer_norm at N=4096,D=1024 infer=1/1 backward=1/1 bytes=1.1
//
//   infer, forward, backward, both   both: forward and backward together. The first number is what there is, exactly;
//                    XHAT_UPDATE_GOLDEN=1 rewrites it. It may be larger than the second only where the line says "missed"
//   wrt=w,b          gradients asked for; all if left out
//   with=sgd_1       plus the kernels of another op of the folder, at its own sizes
//   bytes=1.1        moved at most so many times what is unavoidable, in every direction named
//   elements=200     moved at most, in all directions named, 4 bytes each
//   flops=2          at most so many times the operations of the program as written, each definition once; 1.1 if left out
//   missed REASON    up to the end of the line
//
// A kernel with a finishing step, and what follows in it, counts as one. Every op also runs on small sizes in many tiles, and must
// agree with the evaluator.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

#include "ad/reverse/gradient.h"
#include "cse/normalize/lift_reductions.h"
#include "tests/helpers/golden.h"
#include "tests/helpers/op_of_text.h"
#include "tests/helpers/runtime_helper.h"

namespace xhat::kernel_count_test {
namespace {

using namespace xhat::testing;
namespace fs = std::filesystem;

struct Expected {
  std::string id;
  DimValues sizes;
  std::map<std::string, std::pair<int, int>> kernels;  // per direction: there are, wanted
  std::vector<std::string> wrt;
  std::string with, missed;
  double bytes = std::numeric_limits<double>::infinity();
  int64_t elements = std::numeric_limits<int64_t>::max();
  double flops = 1.1;
  size_t line = 0;
};

struct Row {
  fs::path file;
  std::string op;
  std::vector<Expected> expected;
  bool has_backward() const {
    return std::ranges::any_of(expected, [](const Expected& e) { return e.kernels.size() > e.kernels.count("infer"); });
  }
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.op; }

fs::path folder() { return fs::path(XHAT_SOURCE_DIR) / "tests/kernel_counts"; }

std::string text_of(const fs::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::stringstream in(text);
  for (std::string part; std::getline(in, part, by);) parts.push_back(part);
  return parts;
}

Expected read_expected(const std::string& line, size_t number) {
  Expected e;
  e.line = number;
  std::stringstream words(line);
  words >> e.id;
  for (std::string word; words >> word;) {
    if (word == "missed") {
      std::getline(words, e.missed);
      break;
    }
    if (word == "at") {
      words >> word;
      for (const std::string& dim : split(word, ',')) e.sizes[dim.substr(0, dim.find('='))] = std::stoll(dim.substr(dim.find('=') + 1));
      continue;
    }
    std::string key = word.substr(0, word.find('=')), value = word.substr(word.find('=') + 1);
    if (key == "wrt") e.wrt = split(value, ',');
    else if (key == "with") e.with = value;
    else if (key == "bytes") e.bytes = std::stod(value);
    else if (key == "elements") e.elements = std::stoll(value);
    else if (key == "flops") e.flops = std::stod(value);
    else if (key == "infer" || key == "forward" || key == "backward" || key == "both")
      e.kernels[key] = {std::stoi(value), std::stoi(value.substr(value.find('/') + 1))};
    else throw Error("kernel_counts: what is '" + word + "'?");
  }
  return e;
}

std::vector<Row> read_rows() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder())) files.push_back(entry.path());
  std::ranges::sort(files);
  std::vector<Row> rows;
  for (const fs::path& file : files) {
    std::vector<Expected> pending;
    size_t number = 0;
    for (const std::string& line : split(text_of(file), '\n')) {
      ++number;
      if (line.starts_with("#: ")) pending.push_back(read_expected(line.substr(3), number));
      if (!line.starts_with("op ")) continue;
      rows.push_back({file, line.substr(3, line.find('(') - 3), std::move(pending)});
      pending.clear();
    }
  }
  return rows;
}

const std::vector<Row>& rows() {
  static const std::vector<Row> all = read_rows();
  return all;
}

bool updating() {
  const char* text = std::getenv("XHAT_UPDATE_GOLDEN");
  return text && std::string(text) == "1";
}

// Puts the numbers there are into the row's line.
void rewrite(const fs::path& file, const Expected& e, const std::map<std::string, int>& counts) {
  std::vector<std::string> lines = split(text_of(file), '\n');
  std::string& line = lines.at(e.line - 1);
  for (auto [direction, n] : counts) {
    size_t at = line.find(" " + direction + "=") + direction.size() + 2;
    size_t slash = line.find('/', at);
    line.replace(at, slash - at, std::to_string(n));
  }
  std::ofstream out(file);
  for (const std::string& l : lines) out << l << "\n";
}

// Operations of a direction as it was written: gradients derived, every definition computed once, nothing inlined.
int64_t flops_as_written(const Derivation& d, const std::string& direction, const DimValues& sizes) {
  PlanRequest off;
  off.options.policy = FusePolicy::off;
  const Program* written = nullptr;
  for (const PassStep& step : d.steps)
    if (step.name == "gather" || step.name == "calls") written = &step.program;
  Program p = lift_reductions(ordered(*written));
  return plan_kernels(direction == "backward" ? backward_program(p) : infer_program(p), sizes, off).flops;
}

CompiledOp compiled(const Row& row, const Expected& e, CompileOptions options = {}) {
  options.wrt = e.wrt;
  options.differentiate = row.has_backward();
  options.threads = 1;
  options.machine.stream_bytes = kStreamBytes;  // whatever this machine's last cache holds
  return compile(op_of_text(text_of(row.file), row.op), options);
}

std::string kernels_text(const KernelPlan& plan) {
  std::string text;
  for (const Kernel& k : plan.kernels)
    text += "  " + k.name + (k.combines_partials ? " (with a second step)" : k.epilogue ? " (in the second step)" : "") + ": " + k.reason + "\n";
  return text;
}

// At the sizes at which there are most.
int with_kernels(const std::string& op) {
  if (op.empty()) return 0;
  auto row = std::ranges::find(rows(), op, &Row::op);
  int most = 0;
  for (const Expected& e : row->expected) most = std::max(most, compiled(*row, e).plan(CompiledOp::Phase::infer, e.sizes).sweeps());
  return most;
}

class KernelCounts : public ::testing::TestWithParam<Row> {};

TEST_P(KernelCounts, AreWhatTheTableSays) {
  using Phase = CompiledOp::Phase;
  const Row& row = GetParam();
  ASSERT_FALSE(row.expected.empty()) << row.op << " is held to nothing";
  for (const Expected& e : row.expected) {
    SCOPED_TRACE(row.file.string() + ":" + std::to_string(e.line) + ": " + e.id);
    CompiledOp op = compiled(row, e);
    std::map<std::string, int> found;
    bool missed = false;
    int64_t moved = 0;
    for (const auto& [direction, counts] : e.kernels) {
      const Phase phase = direction == "infer" ? Phase::infer : direction == "forward" ? Phase::forward : Phase::backward;
      KernelPlan plan = op.plan(phase, e.sizes);
      int n = plan.sweeps();
      std::string text = kernels_text(plan);
      if (direction == "both") {
        KernelPlan forward = op.plan(Phase::forward, e.sizes);
        text = kernels_text(forward) + text;
        n += forward.sweeps() + with_kernels(e.with);
        moved += forward.bytes_moved;
      }
      found[direction] = n;
      moved += plan.bytes_moved;
      missed |= n > counts.second;
      EXPECT_TRUE(updating() || n == counts.first) << direction << " has " << n << " kernels\n" << text;
      const auto unavoidable = static_cast<double>(plan.bytes_unavoidable);
      EXPECT_LE(static_cast<double>(plan.bytes_moved) / std::max(1.0, unavoidable), e.bytes) << direction;
      if (direction == "both") continue;
      const auto written = static_cast<double>(flops_as_written(op.derivation(), direction, e.sizes));
      EXPECT_LE(static_cast<double>(plan.flops) / std::max(1.0, written), e.flops) << direction;
    }
    EXPECT_LE(moved / 4, e.elements);
    EXPECT_EQ(missed, !e.missed.empty());
    if (updating()) rewrite(row.file, e, found);
  }
}

TEST_P(KernelCounts, ComputeTheValues) {
  const Row& row = GetParam();
  if (row.expected.empty()) return;
  Program p = op_of_text(text_of(row.file), row.op);
  DimValues dims = sample_dims(p, 3);
  CompileOptions many_tiles;
  many_tiles.machine.serial_bytes = 16;
  many_tiles.machine.tile_bytes = 256;
  for (const std::string& dim : free_dims(p)) many_tiles.dims[dim] = dims.at(dim);
  CompiledOp op = compiled(row, row.expected[0], many_tiles);
  Program derived = row.has_backward() ? gradient(p, {row.expected[0].wrt}) : p;
  Arrays data = random_data(derived, dims, 5);
  Arrays wanted = evaluate_on(derived, data, dims);
  EXPECT_EQ(difference(wanted, row.has_backward() ? run_both(op, data, dims) : run_infer(op, data, dims), 2e-4), "")
      << dims_text(dims);
}

INSTANTIATE_TEST_SUITE_P(Rows, KernelCounts, ::testing::ValuesIn(rows()), [](const auto& row) { return row.param.op; });

}  // namespace
}  // namespace xhat::kernel_count_test

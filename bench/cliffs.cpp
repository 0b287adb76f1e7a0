// A zoo of ops, each direction in turn as planned, without fusion, and as the plain C loops that `xhat explain --c` writes: no op should be
// off a cliff.
//
//     build/bench/cliffs [--rounds N] [--threads N] [--list] [NAME...]
//
// NAME: an op of bench/cliff_ops, or a file there without .xh; none: all. Rows come worst first: how many times as fast as the better of the
// other two the planned kernels are. Results of the loops are compared with those of the kernels; a row where they differ says so.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "ad/check/random_inputs.h"
#include "bench/compiled_c.h"
#include "bench/touched_buffer.h"
#include "runtime/explain/c_loops.h"
#include "runtime/explain/explain.h"

namespace {

using namespace xhat;

constexpr double kAlike = 1.05;     // times within 5% of each other are equal: least times of two runs differ by that much
constexpr double kSampleMs = 2;     // shorter calls are timed several at a time
constexpr double kOpSeconds = 1.5;  // all rounds of an op together, or three rounds

struct Zoo {
  std::string file, text, op;
  DimValues dims;
};

std::vector<Zoo> zoo(const std::set<std::string>& wanted) {
  std::vector<Zoo> ops;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(XHAT_SOURCE_DIR "/bench/cliff_ops"))
    if (entry.path().extension() == ".xh") files.push_back(entry.path());
  std::ranges::sort(files);
  for (const auto& path : files) {
    std::ifstream in(path);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    std::istringstream lines(text);
    DimValues dims;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("# bench: ")) {
        dims.clear();
        std::istringstream sizes(line.substr(9));
        for (std::string size; std::getline(sizes, size, ',');)
          dims[size.substr(0, size.find('='))] = std::stoll(size.substr(size.find('=') + 1));
      }
      if (!line.starts_with("op ")) continue;
      const std::string name = line.substr(3, line.find('(') - 3);
      if (wanted.empty() || wanted.contains(name) || wanted.contains(path.stem())) ops.push_back({path.stem(), text, name, dims});
    }
  }
  return ops;
}

void put(const Array& a, std::byte* to) {
  auto fill = [&](auto zero, auto&& value) {
    auto* p = reinterpret_cast<decltype(zero)*>(to);
    for (size_t i = 0; i < a.size(); ++i) p[i] = static_cast<decltype(zero)>(value(i));
  };
  auto real = [&](size_t i) { return a.reals[i]; };
  auto whole = [&](size_t i) { return a.integers[i]; };
  switch (a.type) {
    case DType::f64: return fill(double{}, real);
    case DType::f32: return fill(float{}, real);
    case DType::f16: return fill(uint16_t{}, [&](size_t i) { return f16_bits(a.reals[i]); });
    case DType::bf16: return fill(uint16_t{}, [&](size_t i) { return bf16_bits(a.reals[i]); });
    case DType::i64: return fill(int64_t{}, whole);
    case DType::i32: return fill(int32_t{}, whole);
    case DType::u32: return fill(uint32_t{}, whole);
    case DType::u8:
    case DType::boolean: return fill(uint8_t{}, whole);
  }
}

double value_at(const TensorView& v, int64_t i) {
  switch (v.type) {
    case DType::f64: return static_cast<const double*>(v.data)[i];
    case DType::f32: return static_cast<const float*>(v.data)[i];
    case DType::f16: return f16_value(static_cast<const uint16_t*>(v.data)[i]);
    case DType::bf16: return bf16_value(static_cast<const uint16_t*>(v.data)[i]);
    case DType::i64: return static_cast<double>(static_cast<const int64_t*>(v.data)[i]);
    case DType::i32: return static_cast<const int32_t*>(v.data)[i];
    case DType::u32: return static_cast<const uint32_t*>(v.data)[i];
    case DType::u8:
    case DType::boolean: return static_cast<const uint8_t*>(v.data)[i];
  }
  throw Bug("unreachable dtype");
}

// Tensors by name.
class Memory {
 public:
  TensorView get(const Program& p, TensorId t, const DimValues& dims, const Arrays* from = nullptr) {
    const Tensor& tensor = p.tensor(t);
    auto it = views_.find(tensor.name);
    if (it != views_.end()) return it->second;
    TensorView v(nullptr, tensor.type, shape_of(p, t, dims), {});
    v.data = buffers_.emplace_back(static_cast<size_t>(v.bytes())).data();
    if (from) put(from->at(tensor.name), static_cast<std::byte*>(v.data));
    return views_[tensor.name] = v;
  }

 private:
  std::vector<bench::TouchedBuffer> buffers_;
  std::map<std::string, TensorView> views_;
};

// Largest difference over the largest magnitude.
double apart(const TensorView& a, const TensorView& b) {
  double most = 0, size = 1e-30;
  for (int64_t i = 0; i < a.elements(); ++i) {
    const double x = value_at(a, i), y = value_at(b, i);
    if (std::isfinite(x) && std::isfinite(y))
      most = std::max(most, std::fabs(x - y)), size = std::max(size, std::fabs(x));
    else if (std::isfinite(x) != std::isfinite(y))
      return INFINITY;
  }
  return most / size;
}

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

struct Way {
  std::function<void()> call;
  int calls = 1;
  double least = INFINITY;  // ms
  void warm() {
    call();
    auto start = Clock::now();
    call();
    least = since(start);
    calls = std::clamp(static_cast<int>(kSampleMs / std::max(least, 1e-3)), 1, 500);
  }
  void sample() {
    auto start = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    least = std::min(least, since(start) / calls);
  }
};

struct Row {
  std::string file, op, direction;
  double planned = 0, unfused = 0, loops = 0, difference = 0;
  double speed() const { return std::min(unfused, loops) / planned; }
};

class Measured {
 public:
  Measured(const Zoo& z, int threads, int rounds) : z_(z), op_(parse_op(z.text, z.op)), dims_(solve_dims(op_, {}, z.dims)) {
    CompileOptions full, off;
    full.threads = off.threads = threads;
    full.dims = off.dims = z.dims;
    off.fusion.policy = FusePolicy::off;
    const Program derived = derive(op_, full, dims_).program;
    const Program forward = forward_program(derived), backward = backward_program(derived);
    const bench::CompiledC c(c_with_prelude(c_function(forward, "forward", dims_) + c_entry(forward, "forward") +
                                            c_function(backward, "backward", dims_) + c_entry(backward, "backward")));
    if (!c.entry("forward")) throw Error("the loops of " + z.op + " do not compile: " + c.messages);

    RandomOptions as_it_comes;
    as_it_comes.finite = false;
    Arrays data = random_inputs(derived, dims_, 1, as_it_comes);
    for (auto& [name, array] : random_cotangents(derived, dims_, 2)) data[name] = array;
    std::vector<void*> outer = list(forward, &data), inner = list(backward, &data);
    Kernels planned(op_, full, derived, dims_, &loops_), unfused(op_, off, derived, dims_, &loops_);

    std::vector<Way> ways = {planned.forward(), unfused.forward(), {[&] { c.entry("forward")(outer.data()); }}};
    const bool gradients = !derived.gradients.empty();
    if (gradients)
      for (Way w : {planned.backward(), unfused.backward(), Way{[&] { c.entry("backward")(inner.data()); }}}) ways.push_back(w);
    double round = 0;
    for (Way& w : ways) w.warm(), round += w.least * w.calls;
    if (rounds == 0) rounds = std::clamp(static_cast<int>(1e3 * kOpSeconds / round), 3, 30);
    for (int i = 0; i < rounds; ++i)
      for (Way& w : ways) w.sample();
    // Where no kernel has two definitions, both run the same code.
    using Phase = CompiledOp::Phase;
    for (size_t k = 0; k < ways.size(); k += 3)
      if (alike(planned.op.plan(k == 0 ? Phase::forward : Phase::backward, dims_)))
        ways[k].least = ways[k + 1].least = std::min(ways[k].least, ways[k + 1].least);
    rows.push_back({z.file, z.op, "forward", ways[0].least, ways[1].least, ways[2].least, difference(derived, derived.outputs, planned)});
    if (gradients)
      rows.push_back(
          {z.file, z.op, "backward", ways[3].least, ways[4].least, ways[5].least, difference(derived, derived.gradients, planned)});
  }

  std::vector<Row> rows;

 private:
  struct Kernels {
    Kernels(const Program& program, const CompileOptions& options, const Program& derived, const DimValues& dims, Memory* inputs)
        : op(compile(program, options)) {
      for (TensorId t : derived.inputs) outer.push_back({derived.tensor(t).name, inputs->get(derived, t, dims)});
      for (TensorId t : derived.outputs) outer.push_back({derived.tensor(t).name, own.get(derived, t, dims)});
      inner = outer;
      for (TensorId t : derived.cotangents) inner.push_back({derived.tensor(t).name, inputs->get(derived, t, dims)});
      for (TensorId t : derived.gradients) inner.push_back({derived.tensor(t).name, own.get(derived, t, dims)});
      stash = op.forward(outer);
    }
    Way forward() {
      return {[this] { op.forward(outer, stash); }};
    }
    Way backward() {
      return {[this] { op.backward(inner, stash); }};
    }
    CompiledOp op;
    Memory own;
    std::vector<Argument> outer, inner;
    Stash stash;
  };

  static bool alike(const KernelPlan& plan) {
    return std::ranges::all_of(plan.kernels, [](const Kernel& k) { return k.members.size() == 1 && !k.horizontal; });
  }

  std::vector<void*> list(const Program& direction, const Arrays* data) {
    std::vector<void*> tensors;
    for (TensorId t : direction.inputs) {
      const bool given = data->contains(direction.tensor(t).name);
      tensors.push_back(loops_.get(direction, t, dims_, given ? data : nullptr).data);
    }
    for (TensorId t : direction.outputs) tensors.push_back(loops_.get(direction, t, dims_).data);
    return tensors;
  }

  double difference(const Program& derived, const std::vector<TensorId>& tensors, Kernels& planned) {
    double most = 0;
    for (TensorId t : tensors) most = std::max(most, apart(loops_.get(derived, t, dims_), planned.own.get(derived, t, dims_)));
    return most;
  }

  Zoo z_;
  Program op_;
  DimValues dims_;
  Memory loops_;  // also all that is given, for all three
};

void print(std::vector<Row> rows) {
  std::ranges::sort(rows, {}, &Row::speed);
  std::vector<std::vector<std::string>> table = {{"times", "planned ms", "unfused", "C loops", "op", "direction", "file", ""}};
  double sum = 0, sum_loops = 0;
  size_t below = 0;
  for (const Row& r : rows) {
    sum += std::log(r.speed());
    sum_loops += std::log(r.loops / r.planned);
    below += r.speed() < 1 / kAlike;
    table.push_back({fmt::format("{:.2f}", r.speed()), fmt::format("{:.3f}", r.planned), fmt::format("{:.3f}", r.unfused),
                     fmt::format("{:.3f}", r.loops), r.op, r.direction, r.file,
                     r.difference > 1e-2 ? fmt::format("results differ by {:.1e}", r.difference) : ""});
  }
  std::cout << table_text(table, {0, 1, 2, 3}, "  ");
  const auto n = static_cast<double>(rows.size());
  std::cout << fmt::format(
      "\n{} directions of ops; planned is {:.2f} times as fast as plain C loops, {:.2f} times as the better of the two (geometric means);\n"
      "{} are slower than the better by more than 5%, {} by more than twice\n",
      rows.size(), std::exp(sum_loops / n), std::exp(sum / n), below,
      std::ranges::count_if(rows, [](const Row& r) { return r.speed() < 0.5; }));
}

}  // namespace

int main(int argc, char** argv) {
  // Threads of OpenMP that wait must not take the time of the others.
  setenv("OMP_WAIT_POLICY", "passive", 1);
  std::set<std::string> wanted;
  int rounds = 0, threads = 2;
  bool listed = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--list")
      listed = true;
    else if (word == "--rounds" && i + 1 < argc)
      rounds = std::stoi(argv[++i]);
    else if (word == "--threads" && i + 1 < argc)
      threads = std::stoi(argv[++i]);
    else if (word.starts_with("-"))
      return std::cerr << "usage: cliffs [--rounds N] [--threads N] [--list] [NAME...]\n", 2;
    else
      wanted.insert(word);
  }
  setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 1);
  const std::vector<Zoo> ops = zoo(wanted);
  if (ops.empty()) return std::cerr << "cliffs: no op of bench/cliff_ops has such a name; --list names them\n", 2;
  std::vector<Row> rows;
  int status = 0;
  for (const Zoo& z : ops) {
    if (listed) {
      std::cout << z.file << " " << z.op << " " << dims_text(z.dims) << "\n";
      continue;
    }
    try {
      for (const Row& r : Measured(z, threads, rounds).rows) {
        rows.push_back(r);
        std::cerr << fmt::format("{:5.2f} {} {}\n", r.speed(), r.op, r.direction);
      }
    } catch (const std::exception& e) {
      std::cerr << z.op << ": " << e.what() << "\n";
      status = 1;
    }
  }
  if (!rows.empty()) print(rows);
  return status;
}

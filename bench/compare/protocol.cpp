#include "bench/compare/protocol.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>
#include <sstream>

#include "tools/npy.h"

namespace xhat::bench {

namespace {

constexpr double kLongCall = 0.5;   // seconds: a call this long needs no uncounted one before it
constexpr double kMaxCalls = 1000;  // in a sample

int calls(double seconds, double min_ms) {
  double ms = std::max(seconds * 1e3, 1e-6);
  return ms >= min_ms ? 1 : static_cast<int>(std::min(kMaxCalls, std::ceil(min_ms / ms)));
}

// An op between load and drop.
class Timed {
 public:
  // The first call warms up, the second says how many calls make a sample.
  explicit Timed(LoadedOp op) : op_(std::move(op)) {
    op_.infer();
    double start = now();
    op_.infer();
    infer_s_ = now() - start;
    if (!op_.backward) return;
    op_.forward(), op_.backward();
    start = now();
    op_.forward(), op_.backward();
    train_s_ = now() - start;
  }

  const json& described() const { return op_.described; }

  json sample(double min_ms) {
    int n = calls(infer_s_, min_ms);
    if (infer_s_ < kLongCall) op_.infer();
    double start = now();
    for (int i = 0; i < n; ++i) op_.infer();
    json sample = {{"infer", (now() - start) / n * 1e3}};
    if (!op_.backward) return sample;

    n = calls(train_s_, min_ms);
    if (train_s_ < kLongCall) op_.forward(), op_.backward();
    double forward_s = 0, backward_s = 0;
    for (int i = 0; i < n; ++i) {
      double a = now();
      op_.forward();
      double b = now();
      op_.backward();
      forward_s += b - a;
      backward_s += now() - b;
    }
    sample["fwd"] = forward_s / n * 1e3;
    sample["bwd"] = backward_s / n * 1e3;
    sample["total"] = (forward_s + backward_s) / n * 1e3;
    return sample;
  }

  // Outputs as infer makes them, gradients as forward and backward do.
  void check(const std::string& prefix) {
    if (op_.restart) op_.restart();
    op_.infer();
    for (const auto& [name, data] : op_.outputs) data->write(prefix + ".y." + name + ".npy");
    if (!op_.backward) return;
    op_.forward(), op_.backward();
    for (const auto& [name, data] : op_.gradients) data->write(prefix + ".g." + name + ".npy");
  }

 private:
  LoadedOp op_;
  double infer_s_ = 0, train_s_ = 0;  // of one call
};

// One JSON object a line. What is no number in JSON becomes null, what is no UTF-8 a replacement character.
void reply(FILE* to, const json& object) {
  std::string line = object.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
  std::fwrite(line.data(), 1, line.size(), to);
  std::fflush(to);
}

}  // namespace

Data::Data(DType t, std::vector<int64_t> s) : type(t), shape(std::move(s)) {
  buffer_ = std::make_unique<TouchedBuffer>(bytes());
}

Data::Data(const std::string& npy_file) {
  NpyArray array = read_npy(npy_file);
  type = array.type;
  shape = array.shape;
  buffer_ = std::make_unique<TouchedBuffer>(bytes());
  std::memcpy(raw(), array.bytes.data(), bytes());
}

void Data::write(const std::string& npy_file) const {
  write_npy(npy_file, {type, shape, {raw(), raw() + bytes()}});
}

int64_t Data::elements() const {
  int64_t n = 1;
  for (int64_t extent : shape) n *= extent;
  return n;
}

size_t Data::bytes() const { return static_cast<size_t>(elements()) * byte_size(type); }

std::function<void()> restarter(std::vector<const Data*> data) {
  std::vector<std::vector<std::byte>> copies;
  for (const Data* d : data) copies.emplace_back(d->raw(), d->raw() + d->bytes());
  return [data = std::move(data), copies = std::move(copies)] {
    for (size_t i = 0; i < data.size(); ++i) std::ranges::copy(copies[i], data[i]->raw());
  };
}

int threads() {
  const char* set = std::getenv("COMPARE_THREADS");
  return std::max(1, set ? std::atoi(set) : 2);
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int serve(const std::string& version, const std::function<void()>& start,
          const std::function<LoadedOp(const std::string& op, const std::string& folder)>& load) {
  // Whatever else prints to stdout goes to stderr: one stray line would end the whole run.
  std::fflush(stdout);
  FILE* replies = fdopen(dup(STDOUT_FILENO), "w");
  if (!replies || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    std::perror("cannot set stdout aside");
    return 1;
  }
  json hello = {{"version", version}};
  try {
    double before = now();
    start();
    hello["startup_s"] = now() - before;
  } catch (const std::exception& e) {
    hello["error"] = e.what();
  }
  reply(replies, hello);

  std::optional<Timed> loaded;
  auto answer = [&](const std::string& line) -> json {
    std::istringstream words(line);
    std::string command, a, b;
    words >> command >> a >> b;
    if (command == "load" || command == "drop") loaded.reset();
    if (command == "load") return loaded.emplace(load(a, b)).described();
    if (command == "drop") return json::object();
    if (command != "check" && command != "time") throw Error("unknown command " + command);
    if (!loaded) throw Error("no op is loaded");
    if (command == "time") return loaded->sample(std::strtod(a.c_str(), nullptr));
    loaded->check(a + "/" + b);
    return json::object();
  };
  for (std::string line; std::getline(std::cin, line);) {
    try {
      reply(replies, answer(line));
    } catch (const Skip& why) {
      reply(replies, {{"skip", why.what()}});
    } catch (const std::exception& e) {
      reply(replies, {{"error", e.what()}});
    }
  }
  return 0;
}

}  // namespace xhat::bench

#include "runtime/explain/tuning.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "expr/core/error.h"
#include "runtime/host/thread_pool.h"
#include "runtime/store/whole_file.h"

namespace xhat {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Machine& m) {
  return fmt::format("{}, {}, {} threads, caches of {} bytes", m.cpu, m.vectors, m.threads, fmt::join(m.cache_bytes, ", "));
}

Json json_of(const Machine& m) {
  return {{"cpu", m.cpu}, {"vectors", m.vectors}, {"threads", m.threads}, {"cache_bytes", m.cache_bytes}};
}

Json json_of(const KernelChoice& c) {
  Json j = Json::object();
  if (c.tile_bytes) j["tile_bytes"] = c.tile_bytes;
  if (c.least_tiles) j["least_tiles"] = c.least_tiles;
  if (c.vectors) j["vectors"] = c.vectors;
  return j;
}

// A value of the file, and its path in it: "ops[0].kernels[2].choice".
class Place {
 public:
  Place(const std::string& file, const Json& value, std::string where) : file_(file), value_(value), where_(std::move(where)) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(fmt::format("{}: {} {}. a file of choices is written by xhat tune", file_, where_.empty() ? "it" : where_, what));
  }
  Place operator[](const char* key) const {
    if (!value_.is_object()) fail("is no object");
    if (!value_.contains(key)) fail(fmt::format("has no \"{}\"", key));
    return {file_, value_.at(key), where_.empty() ? key : where_ + "." + key};
  }
  bool has(const char* key) const { return value_.is_object() && value_.contains(key); }
  std::vector<Place> items() const {
    if (!value_.is_array()) fail("is no array");
    std::vector<Place> all;
    for (size_t i = 0; i < value_.size(); ++i) all.emplace_back(file_, value_[i], fmt::format("{}[{}]", where_, i));
    return all;
  }
  std::vector<std::pair<std::string, Place>> members() const {
    if (!value_.is_object()) fail("is no object");
    std::vector<std::pair<std::string, Place>> all;
    for (const auto& [key, value] : value_.items()) all.emplace_back(key, Place(file_, value, where_ + "." + key));
    return all;
  }
  std::string text() const {
    if (!value_.is_string()) fail("is no string");
    return value_.get<std::string>();
  }
  int64_t integer(int64_t least, int64_t most) const {
    bool good = value_.is_number_integer() && value_.get<int64_t>() >= least && value_.get<int64_t>() <= most;
    if (!good) fail(fmt::format("is no integer from {} to {}", least, most));
    return value_.get<int64_t>();
  }
  double number() const {
    if (!value_.is_number()) fail("is no number");
    return value_.get<double>();
  }

 private:
  const std::string& file_;
  const Json& value_;
  std::string where_;
};

constexpr int kMaxThreads = 1 << 16, kMaxVectors = 64;
constexpr int64_t kMaxBytes = int64_t{1} << 40, kMaxTiles = 1 << 30;

KernelChoice choice_of(const Place& j) {
  KernelChoice c;
  for (const auto& [key, value] : j.members()) {
    if (key == "tile_bytes") c.tile_bytes = value.integer(1, kMaxBytes);
    else if (key == "least_tiles") c.least_tiles = value.integer(1, kMaxTiles);
    else if (key == "vectors") c.vectors = static_cast<int>(value.integer(1, kMaxVectors));
    else value.fail("is no choice that is known");
  }
  return c;
}

TunedOp op_of(const Place& j) {
  TunedOp op;
  op.op = j["op"].text();
  for (const auto& [name, size] : j["dims"].members()) op.dims[name] = size.integer(0, std::numeric_limits<int64_t>::max());
  op.threads = static_cast<int>(j["threads"].integer(1, kMaxThreads));
  for (const Place& k : j["kernels"].items())
    op.kernels.push_back({k["key"].text(), k["kernel"].text(), k["direction"].text(), choice_of(k["choice"]),
                          k["default_ms"].number(), k["tuned_ms"].number()});
  return op;
}

Machine machine_of(const Place& j) {
  Machine m{j["cpu"].text(), j["vectors"].text(), static_cast<int>(j["threads"].integer(1, kMaxThreads)), {}};
  for (const Place& c : j["cache_bytes"].items()) m.cache_bytes.push_back(c.integer(0, kMaxBytes));
  return m;
}

[[noreturn]] void no_json(const std::string& path, const std::string& text, size_t byte) {
  const std::string before = text.substr(0, byte > 0 ? byte - 1 : 0);  // `byte` counts from 1
  auto line = std::ranges::count(before, '\n') + 1;
  size_t start = before.rfind('\n'), column = before.size() - (start == std::string::npos ? 0 : start + 1) + 1;
  throw Error(fmt::format("{}:{}:{}: it is no JSON from here on; write the file again with xhat tune", path, line, column));
}

}  // namespace

Tuning read_tuning(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(fmt::format("{}: it cannot be opened: {}", path, std::strerror(errno)));
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) throw Error(path + ": it cannot be read");
  Json json;
  try {
    json = Json::parse(text);
  } catch (const nlohmann::json::parse_error& e) {
    no_json(path, text, e.byte);
  }
  Place root(path, json, "");
  const std::string again = "tune again, to another file or with this one out of the way";
  if (std::string made_by = root["xhat"].text(); made_by != XHAT_VERSION)
    throw Error(fmt::format("{}: it was made by xhat {}, and this is {}; {}", path, made_by, XHAT_VERSION, again));
  Tuning t;
  t.machine = machine_of(root["machine"]);
  if (Machine here = this_machine(); t.machine != here)
    throw Error(fmt::format("{}: it was measured on another machine ({}), and this is {}; {}", path, text_of(t.machine),
                            text_of(here), again));
  for (const Place& op : root["ops"].items()) t.ops.push_back(op_of(op));
  return t;
}

void write_tuning(const std::string& path, const Tuning& tuning) {
  Json ops = Json::array();
  for (const TunedOp& op : tuning.ops) {
    Json kernels = Json::array();
    for (const TunedKernel& k : op.kernels)
      kernels.push_back({{"key", k.key},
                         {"kernel", k.name},
                         {"direction", k.direction},
                         {"choice", json_of(k.choice)},
                         {"default_ms", k.default_ms},
                         {"tuned_ms", k.tuned_ms}});
    ops.push_back({{"op", op.op},
                   {"dims", op.dims.empty() ? Json::object() : Json(op.dims)},
                   {"threads", op.threads},
                   {"kernels", kernels}});
  }
  Json json = {{"xhat", XHAT_VERSION}, {"machine", json_of(tuning.machine)}, {"ops", ops}};
  namespace fs = std::filesystem;
  auto fail = [&](const std::string& why) { throw Error(fmt::format("{}: it cannot be written: {}", path, why)); };
  std::error_code failed;
  if (fs::path folder = fs::path(path).parent_path(); !folder.empty()) fs::create_directories(folder, failed);
  if (failed) fail(failed.message());
  if (!runtime::replace_file(path, json.dump(2) + "\n")) fail(std::strerror(errno));
}

void merge(Tuning& tuning, const TunedOp& found) {
  auto same = [&](const TunedOp& o) { return o.op == found.op && o.dims == found.dims && o.threads == found.threads; };
  auto at = std::ranges::find_if(tuning.ops, same);
  if (at == tuning.ops.end()) {
    tuning.ops.push_back(found);
    return;
  }
  for (const TunedKernel& k : found.kernels) {
    auto old = std::ranges::find(at->kernels, k.key, &TunedKernel::key);
    if (old == at->kernels.end()) at->kernels.push_back(k);
    else *old = k;
  }
}

KernelChoices choices_of(const Tuning& tuning, int threads) {
  threads = runtime::threads_or_all(threads);
  KernelChoices choices;
  for (const TunedOp& op : tuning.ops)
    for (const TunedKernel& k : op.kernels)
      if (op.threads == threads && k.choice != KernelChoice{}) choices[k.key] = k.choice;
  return choices;
}

}  // namespace xhat

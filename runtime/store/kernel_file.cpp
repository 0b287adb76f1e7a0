#include "runtime/store/kernel_file.h"

#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace xhat::runtime {
namespace {

using Json = nlohmann::json;

constexpr char kMagic[] = "xhat kernel 2\n\n";  // the number is the version of the layout

struct Tail {
  char magic[16];
  uint64_t object_bytes, record_bytes, checksum;
};
static_assert(sizeof kMagic == sizeof Tail::magic && sizeof(Tail) == 40);

// Every step is invertible, so a change of one word always changes the result.
uint64_t hash(std::string_view bytes, uint64_t h) {
  auto mix = [&](uint64_t word) {
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
  };
  mix(bytes.size());
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), 8);
    mix(word);
  }
  uint64_t rest = 0;
  std::memcpy(&rest, bytes.data(), bytes.size());
  mix(rest);
  return h;
}

Tail tail_of(std::string_view object, std::string_view record) {
  Tail tail = {};
  std::memcpy(tail.magic, kMagic, sizeof kMagic);
  tail.object_bytes = object.size();
  tail.record_bytes = record.size();
  tail.checksum = hash(record, hash(object, 0));
  return tail;
}

}  // namespace

std::string trailer(std::string_view object, const KernelRecord& record) {
  Json kernels = Json::array();
  for (const auto& [key, arguments] : record.kernels) {
    Json scalars = Json::array();
    for (const auto& s : arguments.scalars) scalars.push_back({s.axis, s.count});
    kernels.push_back({{"key", key},
                       {"scalars", scalars},
                       {"inputs", arguments.inputs},
                       {"results", arguments.results},
                       {"streams", arguments.streams},
                       {"refused", arguments.refused}});
  }
  std::string text = Json{{"fingerprint", record.fingerprint}, {"kernels", kernels}}.dump();
  Tail tail = tail_of(object, text);
  return text + std::string(reinterpret_cast<const char*>(&tail), sizeof tail);
}

std::optional<KernelRecord> read_record(std::string_view file) {
  Tail found;
  if (file.size() < sizeof found) return {};
  std::memcpy(&found, file.data() + file.size() - sizeof found, sizeof found);
  file.remove_suffix(sizeof found);
  if (found.record_bytes > file.size()) return {};
  std::string_view object = file.substr(0, file.size() - found.record_bytes), text = file.substr(object.size());
  Tail right = tail_of(object, text);
  if (std::memcmp(&found, &right, sizeof found) != 0) return {};
  try {
    Json json = Json::parse(text);
    KernelRecord r{json.at("fingerprint"), {}, object.size()};
    for (const Json& k : json.at("kernels")) {
      NamedKernel& named =
          r.kernels.emplace_back(k.at("key"), KernelArguments{{}, k.at("inputs"), k.at("results"), k.at("streams"), k.at("refused")});
      for (const Json& s : k.at("scalars")) named.arguments.scalars.push_back({s.at(0), s.at(1)});
    }
    return r;
  } catch (const Json::exception&) {  // another writer made it, with a correct checksum
    return {};
  }
}

std::string name_hash(std::string_view text) { return fmt::format("{:016x}{:016x}", hash(text, 1), hash(text, 2)); }

}  // namespace xhat::runtime

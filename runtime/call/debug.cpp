#include "runtime/call/debug.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "expr/core/error.h"

namespace xhat::runtime {

namespace {

struct Word {
  const char* text;
  bool Debug::*on;
};
// The first are the levels of DEBUG: each of them, and those before it.
constexpr size_t kLevels = 7;
const Word kWords[] = {{"devices", &Debug::devices},   {"kernels", &Debug::kernels}, {"schedule", &Debug::schedule},
                       {"loops", &Debug::loops},       {"source", &Debug::source},   {"passes", &Debug::passes},
                       {"assembly", &Debug::assembly}, {"time", &Debug::time},       {"check", &Debug::check},
                       {"compiles", &Debug::compiles}};

// The name of a kernel with many results may be longer than file systems take (255 bytes on most): then what it begins with, its hash, its kind.
std::string short_enough(const std::string& name) {
  constexpr size_t kLongest = 160, kKept = 120;
  if (name.size() <= kLongest) return name;
  const std::filesystem::path path(name);
  const std::string kind = path.extension() == ".txt" ? path.stem().extension().string() + ".txt" : path.extension().string();
  return fmt::format("{}_{:016x}{}", name.substr(0, kKept), std::hash<std::string>()(name), kind);
}

}  // namespace

Debug debug_options() {
  Debug d;
  if (const std::string level = std::getenv("DEBUG") ? std::getenv("DEBUG") : ""; level.size() == 1 && level >= "0" && level <= "7")
    for (size_t i = 0; i < std::min(kLevels, static_cast<size_t>(level[0] - '0')); ++i) d.*kWords[i].on = true;
  const char* text = std::getenv("XHAT");
  std::stringstream in(text ? text : "");
  for (std::string item; std::getline(in, item, ',');) {
    std::string key = item.substr(0, item.find('=')), value = item.find('=') == std::string::npos ? "" : item.substr(item.find('=') + 1);
    const Word* word = std::ranges::find(kWords, key, &Word::text);
    if (word != std::end(kWords))
      d.*word->on = true;
    else if (key == "dump")
      d.dump = value;
    else if (key == "limit")
      d.limit = std::atoi(value.c_str());
    else
      throw Error("XHAT: unknown word '" + key +
                  "'; known are dump=DIR, time, check, compiles, limit=N, devices, kernels, schedule, loops, source, passes, assembly");
  }
  return d;
}

void write_dump(const Debug& debug, const std::string& name, const std::string& text) {
  std::error_code failed;
  std::filesystem::create_directories(debug.dump, failed);
  const std::filesystem::path path = std::filesystem::path(debug.dump) / short_enough(name);
  std::ofstream out(path);
  out << text;
  out.close();
  if (!out) throw Error("XHAT=dump: " + path.string() + " cannot be written");
}

void show_text(const std::string& text) { fprintf(stderr, "xhat: %s\n", text.c_str()); }

}  // namespace xhat::runtime

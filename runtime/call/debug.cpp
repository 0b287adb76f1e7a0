#include "runtime/call/debug.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "expr/core/error.h"

namespace xhat::runtime {

Debug debug_options() {
  Debug d;
  const char* text = std::getenv("XHAT");
  std::stringstream in(text ? text : "");
  for (std::string item; std::getline(in, item, ',');) {
    std::string key = item.substr(0, item.find('=')), value = item.find('=') == std::string::npos ? "" : item.substr(item.find('=') + 1);
    if (key == "dump")
      d.dump = value;
    else if (key == "time")
      d.time = true;
    else if (key == "check")
      d.check = true;
    else if (key == "limit")
      d.limit = std::atoi(value.c_str());
    else
      throw Error("XHAT: unknown word '" + key + "'; known are dump=DIR, time, check, limit=N");
  }
  return d;
}

void write_dump(const Debug& debug, const std::string& name, const std::string& text) {
  std::error_code failed;
  std::filesystem::create_directories(debug.dump, failed);
  const std::filesystem::path path = std::filesystem::path(debug.dump) / name;
  std::ofstream out(path);
  out << text;
  out.close();
  if (!out) throw Error("XHAT=dump: " + path.string() + " cannot be written");
}

}  // namespace xhat::runtime

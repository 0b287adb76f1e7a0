// The ops of tests/audit/*.xh with the sizes and seeds that their lines `# check: N=3,M=17 seed=4` say. Header only.
#pragma once
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "expr/index/dims.h"
#include "tests/helpers/golden.h"

namespace xhat::testing {

struct AuditCase {
  std::filesystem::path file;
  std::string op;
  DimValues dims;
  uint64_t seed = 1;
  std::string name() const {
    std::string n = file.stem().string() + "_" + op;
    for (const auto& [dim, value] : dims) n += "_" + dim + std::to_string(value);
    return n;
  }
};
inline void PrintTo(const AuditCase& c, std::ostream* out) { *out << c.file << " " << c.op; }

// "N=3,M=17 seed=4"
inline AuditCase read_case(const std::filesystem::path& file, const std::string& line) {
  AuditCase c{file, "", {}};
  std::string spaced = line;
  std::ranges::replace(spaced, ',', ' ');
  std::istringstream words(spaced);
  for (std::string word; words >> word;) {
    const size_t at = word.find('=');
    if (at == std::string::npos) throw std::runtime_error(file.string() + ": no value in '# check:" + line + "'");
    const int64_t value = std::stoll(word.substr(at + 1));
    if (std::string key = word.substr(0, at); key == "seed")
      c.seed = static_cast<uint64_t>(value);
    else
      c.dims[key] = value;
  }
  return c;
}

// Every `parts`-th case, from the part-th on: ctest runs the parts side by side.
inline std::vector<AuditCase> audit_cases(size_t part, size_t parts) {
  const std::string check = "# check:";
  std::vector<AuditCase> all, waiting;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(golden_folder().parent_path() / "audit"))
    if (entry.path().extension() == ".xh") files.push_back(entry.path());
  std::ranges::sort(files);
  for (const auto& file : files) {
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with(check)) waiting.push_back(read_case(file, line.substr(check.size())));
      for (const std::string word : {"op ", "prog "}) {
        if (!line.starts_with(word)) continue;
        for (AuditCase& c : waiting) {
          c.op = line.substr(word.size(), line.find('(') - word.size());
          all.push_back(c);
        }
        waiting.clear();
      }
    }
  }
  std::vector<AuditCase> mine;
  for (size_t i = part; i < all.size(); i += parts) mine.push_back(all[i]);
  return mine;
}

}  // namespace xhat::testing

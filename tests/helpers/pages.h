// Files of the repository, as text.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace xhat::testing {

inline const std::filesystem::path kRoot = std::filesystem::path(XHAT_SOURCE_DIR);

inline std::string read(const std::filesystem::path& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in) << path << " cannot be read";
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace xhat::testing

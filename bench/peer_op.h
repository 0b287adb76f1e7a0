// The ops of bench/peer_ops, by name.
#pragma once
#include <fstream>
#include <sstream>
#include <string>

#include "expr/core/error.h"

namespace xhat::bench {

// The text of bench/peer_ops/OP.xh. Throws Error if there is none.
inline std::string peer_op(const std::string& op) {
  const std::string path = std::string(XHAT_SOURCE_DIR "/bench/peer_ops/") + op + ".xh";
  std::ifstream file(path);
  if (!file) throw Error("cannot read " + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace xhat::bench

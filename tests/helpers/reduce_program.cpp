// A reducer over the surface tree: whatever can be dropped or replaced by a part of itself is tried, largest first, and
// kept if the program still parses and fails in the same way.
#include <algorithm>

#include "expr/text/ast.h"
#include "tests/helpers/random_program.h"

namespace xhat::testing {
namespace {

// Tries are what costs: each runs the whole failing test.
constexpr int kTries = 1500;

std::string first_word(const std::string& message) { return message.substr(0, message.find_first_of(" :\n")); }

class Reducer {
 public:
  Reducer(const std::string& text, const std::function<std::string(const std::string&)>& fails)
      : fails_(fails), file_(*ast::parse(text)), wanted_(first_word(fails(text))) {}

  std::string run() {
    while (one_pass() && tries_ < kTries) {}
    return ast::print(file_);
  }

 private:
  bool keeps_failing(const ast::File& candidate) {
    if (++tries_ > kTries) return false;
    std::string text;
    try {
      text = ast::print(candidate);
      if (text.size() >= ast::print(file_).size()) return false;
      text = ast::print(*ast::parse(text));
    } catch (const std::exception&) {
      return false;
    }
    if (first_word(fails_(text)) != wanted_) return false;
    file_ = *ast::parse(text);
    return true;
  }

  template <class Part>
  bool erase_one(std::vector<Part> ast::Block::*list, bool keep_one) {
    for (size_t o = 0; o < file_.ops.size(); ++o)
      for (size_t k = (file_.ops[o].body.*list).size(); k-- > 0;) {
        ast::File candidate = file_;
        auto& parts = candidate.ops[o].body.*list;
        if (keep_one && parts.size() == 1) continue;
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(k));
        if (keeps_failing(candidate)) return true;
      }
    return false;
  }

  bool erase_op() {
    for (size_t o = 0; o + 1 < file_.ops.size(); ++o) {
      ast::File candidate = file_;
      candidate.ops.erase(candidate.ops.begin() + static_cast<std::ptrdiff_t>(o));
      if (keeps_failing(candidate)) return true;
    }
    return false;
  }

  bool shrink_node() {
    for (size_t i = file_.nodes.size(); i-- > 0;) {
      const ast::Node node = file_.nodes[i];
      if (node.condition != ast::kAbsent) {
        ast::File candidate = file_;
        candidate.nodes[i].condition = ast::kAbsent;
        if (keeps_failing(candidate)) return true;
      }
      for (ast::Ref part : node.args) {
        ast::File candidate = file_;
        candidate.nodes[i] = file_.nodes[part];
        if (keeps_failing(candidate)) return true;
      }
      if (node.kind != ast::Kind::number && !node.args.empty()) {
        ast::File candidate = file_;
        candidate.nodes[i] = ast::Node{ast::Kind::number, {}, "1", {}, {}};
        if (keeps_failing(candidate)) return true;
      }
    }
    return false;
  }

  bool one_pass() {
    return erase_one(&ast::Block::outputs, true) || erase_one(&ast::Block::statements, false) ||
           erase_one(&ast::Block::parameters, false) || erase_op() || shrink_node();
  }

  const std::function<std::string(const std::string&)>& fails_;
  ast::File file_;
  std::string wanted_;
  int tries_ = 0;
};

}  // namespace

std::string failure_kind(const std::string& message) {
  for (const char* part : {"invariant 3", "invariant 5", "invariant 7", "invariant", "refused", "normal form", " reads ",
                           "wants", "unordered", "over nothing"})
    if (message.find(part) != std::string::npos) {
      std::string word = part;
      std::ranges::replace(word, ' ', '_');
      return word;
    }
  return "other";
}

std::string reduced(const std::string& text, const std::function<std::string(const std::string&)>& fails) {
  return Reducer(text, fails).run();
}

std::string failing_programs(int part, int parts, int count, const std::function<std::string(uint64_t)>& program,
                             const std::function<std::string(const std::string&, uint64_t)>& failure) {
  constexpr int kEnough = 3;
  std::string report;
  int failures = 0;
  for (int i = part; i < count && failures < kEnough; i += parts) {
    uint64_t seed = property_seed() + static_cast<uint64_t>(i);
    std::string text = program(seed);
    std::string wrong = failure(text, seed);
    if (wrong.empty()) continue;
    std::string smaller = reduced(text, [&](const std::string& candidate) { return failure(candidate, seed); });
    report += "seed " + std::to_string(seed) + "\n" + wrong + "\n--- reduced ---\n" + smaller + failure(smaller, seed) + "\n";
    ++failures;
  }
  return report;
}

}  // namespace xhat::testing

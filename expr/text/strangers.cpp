#include "expr/text/strangers.h"

#include <cctype>

namespace xhat::ast {
namespace {

struct Row {
  Stranger kind;
  std::string_view text;
  const char* hint;
};
constexpr Row kRows[] = {
#define XHAT_STRANGER(kind, text, hint) {Stranger::kind, text, hint},
#include "expr/text/strangers.def"
};

}  // namespace

std::string small_letters(std::string_view name) {
  std::string found;
  for (char c : name)
    if (c != '_') found += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return found;
}

std::string stranger(Stranger kind, std::string_view text) {
  for (const Row& row : kRows)
    if (row.kind == kind && row.text == text) return std::string("; ") + row.hint;
  if (kind != Stranger::function && kind != Stranger::type) return "";
  for (const Row& row : kRows)
    if (row.kind == kind && small_letters(row.text) == small_letters(text)) return std::string("; ") + row.hint;
  return "";
}

std::string stranger_sign(std::string_view text, Stranger kind) {
  const Row* best = nullptr;
  for (const Row& row : kRows) {
    if (row.kind != kind || !text.starts_with(row.text)) continue;
    const bool word = std::isalpha(static_cast<unsigned char>(row.text[0])) != 0;
    if (word && text.size() != row.text.size()) continue;
    if (!best || row.text.size() > best->text.size()) best = &row;
  }
  return best ? std::string("; ") + best->hint : "";
}

}  // namespace xhat::ast

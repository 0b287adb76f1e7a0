// Renders errors: the place, the message, the source line and a caret under the column.
#include "expr/core/error.h"

#include <algorithm>
#include <string_view>

namespace xhat {
namespace {

// Line `number` (1-based) of the text, without its end.
std::string_view line_of(std::string_view text, int number) {
  size_t begin = 0;
  for (int i = 1; i < number; ++i) {
    size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) return {};
    begin = end + 1;
  }
  std::string_view line = text.substr(begin, text.find('\n', begin) - begin);
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (number == 1 && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);  // byte order mark: no column
  return line;
}

// Tabs stay tabs, so that the caret stands right however wide the terminal makes them.
std::string caret_under(std::string_view line, int column) {
  std::string caret;
  for (int i = 0; i + 1 < column; ++i) {
    caret += static_cast<size_t>(i) < line.size() && line[static_cast<size_t>(i)] == '\t' ? '\t' : ' ';
  }
  return caret + '^';
}

// Of a line that is longer than any terminal, what stands around the column. By how much the column moves to the left.
int cropped(std::string& line, int column) {
  constexpr int kWidest = 200, kAround = 80;
  const int length = static_cast<int>(line.size());
  const bool plain = std::ranges::all_of(line, [](char c) { return c >= ' '; });  // else columns are no bytes
  if (length <= kWidest || !plain) return 0;
  const int begin = std::clamp(column - 1 - kAround, 0, length - 2 * kAround);
  const bool more = begin + 2 * kAround < length;
  line = (begin > 0 ? "..." : "") + line.substr(static_cast<size_t>(begin), 2 * kAround) + (more ? "..." : "");
  return begin > 0 ? begin - 3 : 0;
}

std::string render(const std::string& message, Pos pos, const std::string& file, const std::string& text) {
  if (!pos.known()) return "error: " + message;
  std::string place = std::to_string(pos.line) + ":" + std::to_string(pos.column);
  if (!file.empty()) place = file + ":" + place;
  std::string line(line_of(text, pos.line));
  const int left = cropped(line, pos.column);
  return place + ": error: " + message + "\n" + line + "\n" + caret_under(line, pos.column - left);
}

}  // namespace

std::string place(Pos pos) { return pos.known() ? std::to_string(pos.line) + ":" + std::to_string(pos.column) : "before"; }

Error::Error(const std::string& message, Pos pos) : Error("error: " + message, message, pos) {}

Error::Error(const std::string& rendered, const std::string& message, Pos pos)
    : std::runtime_error(rendered), message_(message), pos_(pos) {}

Error Error::located(const std::string& file, const std::string& text) const {
  return Error(render(message_, pos_, file, text), message_, pos_);
}

}  // namespace xhat

// An explanation as text: aligned columns, units, reasons.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "runtime/explain/explain.h"

namespace xhat {
namespace {

using Rows = std::vector<std::vector<std::string>>;
using Verdict = StashCandidate::Verdict;

// A value with three digits, in the unit that leaves one to three of them before the point.
std::string scaled(double value, double step, std::initializer_list<const char*> units) {
  auto unit = units.begin();
  while (std::fabs(value) >= 999.5 && unit + 1 != units.end()) {
    value /= step;
    ++unit;
  }
  if (unit == units.begin()) return fmt::format("{:.0f} {}", value, *unit);
  return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, *unit);
}

// Columns that UTF-8 text takes: a combining mark, as in x̂, takes none.
size_t width_of(std::string_view text) {
  size_t width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    auto byte = static_cast<unsigned char>(text[i]);
    bool combining = byte == 0xCC ||
                     (byte == 0xCD && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xB0);
    width += (byte & 0xC0) != 0x80 && !combining;
  }
  return width;
}

std::string indented(const std::string& text, const std::string& indent) {
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find('\n', begin), text.size());
    out += indent + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return out;
}

std::string list(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }

std::string shape_of(const std::vector<std::string>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

// Cuts a long expression: the table only has to identify it, and the forward's text has all of it.
std::string shortened(const std::string& expression) {
  constexpr size_t kMax = 56;
  std::string line = expression;
  std::ranges::replace(line, '\n', ' ');
  return line.size() <= kMax ? line : line.substr(0, kMax - 3) + "...";
}

const char* word(Verdict v) {
  switch (v) {
    case Verdict::kept: return "keep";
    case Verdict::recomputed: return "recompute";
    case Verdict::free: return "free";
  }
  throw Bug("unreachable verdict");
}

std::string stash_text(const Explanation& e) {
  int64_t total = 0;
  for (const ExplainedStash& s : e.stash) total += s.bytes;
  std::string out =
      fmt::format("stash: {}", e.stash.empty() ? "nothing"
                                               : fmt::format("{} tensor{}, {}", e.stash.size(),
                                                             e.stash.size() == 1 ? "" : "s",
                                                             bytes_text(static_cast<double>(total))));
  out += e.kept_by_caller.empty() ? "; the backward reads nothing of the caller's\n"
                                  : "; of the caller's the backward reads " + list(e.kept_by_caller) + "\n";
  if (!e.stash.empty()) {
    Rows rows = {{"kept", "shape", "bytes", "is", "because"}};
    for (const ExplainedStash& s : e.stash)
      rows.push_back({s.name, shape_of(s.shape), bytes_text(static_cast<double>(s.bytes)),
                      shortened(s.expression), s.reason});
    out += table_text(rows, {2}, "  ");
  }
  if (!e.values.empty()) {
    out += "\nwhat the backward needs of the forward\n";
    Rows rows = {{"value", "shape", "bytes", "uses", "to keep", "to recompute", "verdict", "because"}};
    for (const ExplainedValue& v : e.values)
      rows.push_back(
          {v.name, shape_of(v.shape), bytes_text(static_cast<double>(v.bytes)), std::to_string(v.uses),
           std::isfinite(v.keep_ns) ? time_text(v.keep_ns) : "never",
           std::isfinite(v.recompute_ns) ? time_text(v.recompute_ns) : "never", word(v.verdict), v.reason});
    out += table_text(rows, {2, 3, 4, 5}, "  ");
    out += fmt::format("  cost {}, lower bound {}: {}\n", time_text(e.cost_ns), time_text(e.lower_bound_ns),
                       e.optimal ? "no choice is cheaper" : "a cheaper choice may exist");
  }
  return out;
}

std::string checks_text(const std::string& title, const ExplainedDirection& d) {
  if (d.checks.empty()) return "";
  Rows rows = {{"checked before the " + title, "in", "by one pass over", "bytes"}};
  for (const ExplainedCheck& c : d.checks)
    rows.push_back({c.checked, c.definition, c.reads.empty() ? "sizes" : list(c.reads), bytes_text(static_cast<double>(c.bytes))});
  return table_text(rows, {3}, "  ");
}

std::string kernels_text(const std::string& title, const ExplainedDirection& d) {
  std::string out = fmt::format("{}: {} kernel{}, {} reduction{}\n", title, d.kernel_count,
                                d.kernel_count == 1 ? "" : "s", d.reductions, d.reductions == 1 ? "" : "s");
  if (d.kernels.empty()) return out;
  Rows rows = {{"kernel", "moved", "unavoidable", "work", "computes", ""}};
  auto row = [](std::string name, int64_t moved, int64_t unavoidable, int64_t flops, std::string computes,
                std::string why) {
    return std::vector<std::string>{std::move(name),
                                    bytes_text(static_cast<double>(moved)),
                                    bytes_text(static_cast<double>(unavoidable)),
                                    flops_text(static_cast<double>(flops)),
                                    std::move(computes),
                                    std::move(why)};
  };
  for (const ExplainedKernel& k : d.kernels) {
    std::string tuned = choice_text(k.choice), why = k.reason.empty() ? "" : "(apart: " + k.reason + ")";
    if (!k.library.empty()) why = "(by a library: " + k.library + ")";
    if (!tuned.empty()) why += (why.empty() ? "(tuned: " : " (tuned: ") + tuned + ")";
    rows.push_back(row(k.finish ? "+ finish" : k.name, k.bytes_moved, k.bytes_unavoidable, k.flops,
                       list(k.computes), why));
  }
  rows.push_back(row("all", d.bytes_moved, d.bytes_unavoidable, d.flops, "", ""));
  out += table_text(rows, {1, 2, 3}, "  ");
  out += checks_text(title, d);
  if (!d.ops.empty()) out += "  groups of classic graph compilers\n" + indented(d.ops, "    ");
  return out;
}

}  // namespace

std::string sizes_text(const DimValues& sizes, const DimValues& nominal) {
  if (sizes.empty()) return "";
  std::string out = "figures are for " + dims_text(sizes);
  std::vector<std::string> names;
  for (const auto& [name, value] : nominal) names.push_back(name);
  if (!names.empty())
    out += fmt::format(" (nominal: {}; --dims sets {})", list(names), names.size() == 1 ? "it" : "them");
  return out + "\n\n";
}

std::string bytes_text(double bytes) { return scaled(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB"}); }
std::string flops_text(double flops) {
  return scaled(flops, 1000, {"flop", "kflop", "Mflop", "Gflop", "Tflop"});
}
std::string time_text(double ns) { return scaled(ns, 1000, {"ns", "us", "ms", "s"}); }

std::string choice_text(const KernelChoice& c) {
  std::vector<std::string> words;
  auto counted = [](int64_t n, const std::string& what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); };
  if (c.tile_bytes >= KernelChoice::kOneTile) words.emplace_back("one tile");
  else if (c.tile_bytes) words.push_back("tiles of " + bytes_text(static_cast<double>(c.tile_bytes)));
  if (c.least_tiles > 1) words.push_back("at least " + counted(c.least_tiles, "tile"));
  if (c.vectors) words.push_back(counted(c.vectors, "vector") + " a step");
  return list(words);
}

std::string table_text(const std::vector<std::vector<std::string>>& rows,
                       const std::vector<size_t>& right_aligned, const std::string& indent) {
  std::vector<size_t> widths;
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      if (widths.size() <= i) widths.push_back(0);
      widths[i] = std::max(widths[i], width_of(row[i]));
    }
  std::string out;
  for (const auto& row : rows) {
    std::string line = indent;
    for (size_t i = 0; i < row.size(); ++i) {
      std::string space(widths[i] - width_of(row[i]), ' ');
      bool right = std::ranges::find(right_aligned, i) != right_aligned.end();
      line += right ? space + row[i] : row[i] + space;
      line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string to_text(const ExplainedFront& front) {
  std::string out = "op " + front.op + "\n" + sizes_text(front.sizes, front.nominal);
  Rows rows = {{"stash", "cost", "lower bound", "keeps"}};
  bool proved = true;
  for (const ParetoPoint& p : front.points) {
    rows.push_back({bytes_text(static_cast<double>(p.bytes)), time_text(p.cost_ns), time_text(p.lower_bound_ns),
                    p.kept.empty() ? "nothing" : list(p.kept)});
    proved = proved && p.optimal;
  }
  out += table_text(rows, {0, 1, 2}, "  ");
  return out + (proved ? "  no choice keeps as little and costs less\n"
                       : "  where the bound is below the cost, a cheaper choice may exist\n");
}

std::string to_text(const Explanation& e) {
  std::string out = e.text + "\n" + sizes_text(e.sizes, e.nominal);
  for (const std::string& read : e.open_reads) out += "not proved for all sizes, but inside at these: " + read + "\n";
  if (!e.open_reads.empty()) out += "\n";
  if (e.infer_only) return out + "infer\n" + indented(e.infer.text, "  ") + "\n" + kernels_text("infer", e.infer);
  out += "forward\n" + indented(e.forward.text, "  ");
  out += "\nbackward\n" +
         (e.backward.text.empty() ? "  nothing: no input has a gradient\n" : indented(e.backward.text, "  "));
  out += "\n" + stash_text(e);
  out += "\n" + kernels_text("forward", e.forward);
  out += "\n" + kernels_text("backward", e.backward);
  return out;
}

}  // namespace xhat

#include "fusion/relay/relay_text.h"

#include <algorithm>

#include <fmt/format.h>

namespace xhat::fusion {
namespace {

using Form = DataflowOp::Form;

bool is_op(const ForwardGraph& graph, size_t n) { return graph.op(n).form == Form::call; }

std::string kind_text(const ForwardGraph& graph, size_t n) {
  switch (graph.op(n).form) {
    case Form::parameter: return "parameter";
    case Form::constant: return "constant";
    case Form::tuple_get: return "field";
    case Form::stop: return "stop";
    case Form::control: return "control";
    case Form::call:
    case Form::tuple: break;
  }
  return std::string(name_of(graph.nodes[n].kind));
}

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, " ")); }

}  // namespace

std::string to_text(const RelayOptions& o) {
  const std::string arguments = o.max_arguments == 0 ? "any number of" : fmt::format("at most {}", o.max_arguments);
  return fmt::format("level {}, groups of at most {} ops, kernels of {} arguments, tensors of constants are {}", o.opt_level,
                     o.max_fuse_depth, arguments, o.link_constants ? "inside of kernels" : "arguments");
}

std::string table_text(const ForwardGraph& graph, const std::vector<PostDominator>& tree, const std::vector<RelayGroup>& groups) {
  std::vector<std::vector<std::string>> rows = {{"", "op", "kind", "used by", "post-dominator", "group"}};
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    std::vector<std::string> users;
    for (const ForwardEdge& e : graph.nodes[n].users) users.push_back(graph.op(e.to).name);
    if (graph.nodes[n].external && is_op(graph, n)) users.emplace_back("(a result)");
    std::string up = "-", group = "-";
    if (tree[n].parent) up = fmt::format("{} ({})", graph.op(*tree[n].parent).name, name_of(tree[n].kind));
    for (const RelayGroup& g : groups)
      if (g.is_kernel && std::ranges::find(g.members, n) != g.members.end()) group = to_text(graph, {g});
    rows.push_back({std::to_string(n), graph.op(n).name, kind_text(graph, n), users.empty() ? "-" : joined(users), up, group});
  }
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:{}}  ", row[i], widths[i]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string to_text(const ForwardGraph& graph, const std::vector<PostDominator>& tree) {
  std::string text;
  auto show = [&](auto&& self, size_t n, size_t depth) -> void {
    text += std::string(2 * depth, ' ') + graph.op(n).name;
    if (tree[n].parent) text += fmt::format(" ({})", name_of(tree[n].kind));
    text += "\n";
    for (size_t m = 0; m < graph.nodes.size(); ++m)
      if (tree[m].parent == n) self(self, m, depth + 1);
  };
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    if (!tree[n].parent && graph.op(n).form != Form::parameter) show(show, n, 0);
  return text;
}

std::vector<std::vector<RelayGroup>> relay_phases(const ForwardGraph& graph, const RelayOptions& options) {
  std::vector<std::vector<RelayGroup>> groups;
  for (int phases = 0; phases <= kRelayPhases; ++phases) {
    RelayOptions some = options;
    some.phases = phases;
    groups.push_back(relay_groups(graph, some));
  }
  return groups;
}

}  // namespace xhat::fusion

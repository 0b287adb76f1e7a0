// What the derived backward of an op costs, beside PyTorch's and JAX's: what is kept for it, its sums, its passes
// over memory, its flops.
//
//     build/bench/stash_table [OP...]
//     build/bench/stash_table --show OP     xhat's backwards of that op, as text
//     build/bench/stash_table --least N M   fails if never more in fewer than N ops, or fewer somewhere in fewer than M
//
// Ops and sizes: bench/stash_ops. The peers' figures come from bench/stash_table_peers.json, which
// bench/stash_table_peers.py writes. What is counted, and how, is one piece of code for all: backward_graph.h.
//
// xhat plans within the bytes of the peer that keeps the least (StashOptions::Policy::budget), so that its sums and
// passes are not bought with memory; where no plan keeps so little, the one that keeps least. The column `default`
// has what it keeps at its own prices (Policy::cost), which may keep a tensor to save time.
#include <algorithm>
#include <array>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/backward_graph.h"
#include "expr/index/dims.h"
#include "runtime/call/compile.h"
#include "runtime/explain/explain.h"

namespace {

using namespace xhat;
using bench::BackwardCounts;
using bench::BackwardGraph;
using bench::GraphNode;
using nlohmann::json;

// Picoseconds per byte: an element of f32 is worth 40 ns, more than any scalar function costs to compute again.
constexpr int64_t kDearMemory = 10'000;
const std::string kFolder = XHAT_SOURCE_DIR "/bench/";
const std::vector<std::string> kPeers = {"torch", "min-cut", "jax"};

struct Figures {
  int64_t kept = 0;      // bytes beyond inputs that stay and outputs
  bool output = false;   // the backward needs an output, which stays with the caller
  BackwardCounts counts;
};

struct Case {
  std::string name;
  Program program;
  DimValues dims;
  std::vector<std::string> drop;
  int64_t elements = 1;  // |x|: of the first input
  int64_t bytes = 4;
};

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw Error("cannot read " + path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

int64_t elements_of(const Program& p, TensorId t, const DimValues& dims) {
  int64_t n = 1;
  for (int64_t e : shape_of(p, t, dims)) n *= e;
  return n;
}

// xhat's backward: every definition is a map, or one reduction of a map.
BackwardGraph graph_of(const Program& p, const DimValues& dims) {
  const Arena& a = *p.arena;
  BackwardGraph g;
  std::map<TensorId, size_t> tensors;
  std::map<Id, size_t> values;
  auto put = [&](GraphNode node) {
    g.nodes.push_back(std::move(node));
    return g.nodes.size() - 1;
  };
  for (TensorId t : p.inputs) tensors[t] = put({GraphNode::Kind::leaf, elements_of(p, t, dims)});
  for (const Definition& d : p.definitions()) {
    std::map<Id, int64_t> extents;
    auto bind = [&](const AxisRange& r) {
      extents[r.axis] = evaluate_extent(a, r.end, dims) - evaluate_extent(a, r.begin, dims);
    };
    for (const AxisRange& r : d.axes) bind(r);
    if (is_reduction(a[d.body].op))
      for (const AxisRange& r : reduce_axes(a[d.body])) bind(r);
    for (Id id : reachable(a, d.body)) {
      const Node& n = a[id];
      if (values.contains(id)) continue;
      GraphNode node{is_reduction(n.op) ? GraphNode::Kind::sum : GraphNode::Kind::map, 1};
      for (Id x : n.free_axes()) node.elements *= extents.at(x);
      int64_t steps = 1;
      if (is_reduction(n.op))
        for (const AxisRange& r : reduce_axes(n)) steps *= extents.at(r.axis);
      bool leaf = is_read(n.op) || n.op == xhat::Op::constant || n.op == xhat::Op::axis || n.op == xhat::Op::dim;
      bool choice = n.op == xhat::Op::select || n.op == xhat::Op::cast || n.op == xhat::Op::stop_gradient;
      if (!leaf && !choice && is_float(n.type)) node.flops = node.elements * steps;
      if (is_read(n.op)) node.operands.push_back(tensors.at(n.symbol));
      for (Id x : n.args()) node.operands.push_back(values.at(x));
      values[id] = put(std::move(node));
    }
    tensors[d.target()] = values.at(d.body);
  }
  for (TensorId t : p.outputs) g.results.push_back(tensors.at(t));
  return g;
}

Program planned(const Case& c, bool dropped, std::optional<int64_t> budget) {
  CompileOptions options;
  options.stash.nominal = c.dims;
  if (dropped) options.stash.dropped = c.drop;
  if (!budget) return derive(c.program, options).program;
  options.stash.policy = StashOptions::Policy::budget;
  options.stash.budget = *budget;
  try {
    return derive(c.program, options).program;
  } catch (const Error&) {
    options.stash.policy = StashOptions::Policy::cost;
    options.machine.memory_ps_per_byte = kDearMemory;
    return derive(c.program, options).program;
  }
}

Figures figures_of(const Case& c, const Program& planned) {
  Program backward = backward_program(planned);
  Figures f;
  for (TensorId t : stashes(planned))
    f.kept += static_cast<int64_t>(byte_size(planned.tensor(t).type)) * elements_of(planned, t, c.dims);
  for (TensorId t : backward.inputs) f.output |= std::ranges::count(planned.outputs, t) > 0;
  f.counts = bench::BackwardCounter(graph_of(backward, c.dims), c.elements).count();
  return f;
}

Figures figures_of(const Case& c, const json& peer, bool dropped) {
  BackwardGraph g;
  for (const json& leaf : peer["leaves"]) g.nodes.push_back({GraphNode::Kind::leaf, leaf[2]});
  for (const json& node : peer["nodes"])
    g.nodes.push_back({node[1] == "sum" ? GraphNode::Kind::sum : GraphNode::Kind::map, node[2], node[3],
                       node[4].get<std::vector<size_t>>()});
  g.results = peer["results"].get<std::vector<size_t>>();
  Figures f;
  for (const json& kept : peer["kept"]) {
    bool gone = kept[1] == "input" && dropped && std::ranges::count(c.drop, kept[0].get<std::string>());
    if (kept[1] == "saved" || gone) f.kept += kept[2].get<int64_t>();
    f.output |= kept[1] == "output";
  }
  f.counts = bench::BackwardCounter(g, c.elements).count();
  return f;
}

std::map<std::string, Figures> peers_of(const Case& c, const json& measured, bool dropped) {
  std::map<std::string, Figures> peers;
  for (const std::string& peer : kPeers) peers[peer] = figures_of(c, measured["ops"][c.name][peer], dropped);
  return peers;
}

int64_t least_kept(const std::map<std::string, Figures>& peers) {
  int64_t least = INT64_MAX;
  for (const auto& [peer, f] : peers) least = std::min(least, f.kept);
  return least;
}

std::string in_units(const Case& c, int64_t bytes) {
  double units = static_cast<double>(bytes) / static_cast<double>(c.bytes);
  return bytes == 0 ? "0" : fmt::format("{:.{}f}", units, units < 0.095 ? 3 : 2);
}

// Against the best peer in each column.
struct Verdict {
  std::vector<std::string> fewer, more;
};

Verdict compare(const Figures& mine, const std::map<std::string, Figures>& peers) {
  Verdict v;
  auto column = [&](const std::string& name, auto&& value) {
    auto best = value(peers.begin()->second);
    for (const auto& [peer, f] : peers) best = std::min(best, value(f));
    if (value(mine) < best) v.fewer.push_back(name);
    if (value(mine) > best) v.more.push_back(name);
  };
  column("kept", [](const Figures& f) { return f.kept; });
  column("sums", [](const Figures& f) { return f.counts.sums; });
  column("passes", [](const Figures& f) { return f.counts.passes; });
  return v;
}

// xhat's choice within the bytes of the peer that keeps least; where a peer makes fewer passes, the largest stash if that
// keeps to the bytes and makes as few.
Figures best_within(const Case& c, bool dropped, const std::map<std::string, Figures>& peers) {
  int64_t budget = least_kept(peers);
  Figures mine = figures_of(c, planned(c, dropped, budget));
  if (compare(mine, peers).more.empty()) return mine;
  CompileOptions options;
  options.stash.nominal = c.dims;
  if (dropped) options.stash.dropped = c.drop;
  options.stash.policy = StashOptions::Policy::largest;
  Figures largest = figures_of(c, derive(c.program, options).program);
  return compare(largest, peers).more.empty() ? largest : mine;
}

std::vector<Case> read_cases(const std::vector<std::string>& wanted) {
  std::vector<Case> cases;
  for (const json& entry : json::parse(read_file(kFolder + "stash_ops/ops.json"))) {
    std::string name = entry["op"];
    if (!wanted.empty() && std::ranges::count(wanted, name) == 0) continue;
    Case c{name, parse_op(read_file(kFolder + "stash_ops/" + name + ".xh")), entry["dims"], entry["drop"]};
    c.elements = elements_of(c.program, c.program.inputs[0], c.dims);
    c.bytes = 4 * c.elements;
    cases.push_back(std::move(c));
  }
  return cases;
}

template <class Words>
std::string joined(const Words& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

// No worse in any column, and better in one.
bool beats(const Figures& a, const Figures& b) {
  auto all = [](const Figures& f) { return std::array<int64_t, 3>{f.kept, f.counts.sums, f.counts.passes}; };
  auto x = all(a), y = all(b);
  return x != y && std::ranges::equal(x, y, std::ranges::less_equal());
}

// In how many ops xhat has never more than the best peer, and in how many of these fewer somewhere.
struct Score {
  long never_more = 0, fewer = 0;
};

Score print_table(const std::vector<Case>& cases, const json& measured) {
  std::map<std::string, std::set<std::string>> fewer, more, better;  // by op; better: peers
  for (bool dropped : {false, true}) {
    std::vector<std::vector<std::string>> rows = {{"op", "bytes", "default"}};
    for (const char* column : {"kept", "sums", "passes", "flops"}) {
      rows[0].push_back(std::string(column) + ": xhat");
      rows[0].insert(rows[0].end(), kPeers.begin(), kPeers.end());
    }
    rows[0].push_back("fewer");
    rows[0].push_back("more");
    for (const Case& c : cases) {
      std::map<std::string, Figures> peers = peers_of(c, measured, dropped);
      Figures mine = best_within(c, dropped, peers);
      Figures usual = figures_of(c, planned(c, dropped, {}));
      std::vector<std::string> row = {c.name, std::to_string(mine.kept), in_units(c, usual.kept)};
      auto column = [&](auto&& text) {
        row.push_back(text(mine));
        for (const std::string& peer : kPeers) row.push_back(text(peers[peer]));
      };
      column([&](const Figures& f) { return in_units(c, f.kept) + (f.output ? "+y" : ""); });
      column([](const Figures& f) { return std::to_string(f.counts.sums); });
      column([](const Figures& f) { return std::to_string(f.counts.passes); });
      column([&](const Figures& f) {
        return fmt::format("{:.1f}", static_cast<double>(f.counts.flops) / static_cast<double>(c.elements));
      });
      Verdict v = compare(mine, peers);
      row.push_back(joined(v.fewer));
      row.push_back(joined(v.more));
      fewer[c.name].insert(v.fewer.begin(), v.fewer.end());
      more[c.name].insert(v.more.begin(), v.more.end());
      for (const auto& [peer, f] : peers)
        if (beats(f, mine)) better[c.name].insert(peer);
      rows.push_back(std::move(row));
    }
    std::vector<size_t> right;
    for (size_t i = 1; i + 2 < rows[0].size(); ++i) right.push_back(i);
    std::cout << (dropped ? "x is dropped after the forward\n" : "x stays with the caller\n")
              << table_text(rows, right, "  ") << "\n";
  }
  std::vector<std::string> worse;
  long best = 0, beaten = 0;
  for (const Case& c : cases) {
    best += more[c.name].empty() && !fewer[c.name].empty();
    beaten += !better[c.name].empty();
    if (more[c.name].empty()) continue;
    std::string peers = better[c.name].empty() ? "who is better there is worse elsewhere" : "better: " + joined(better[c.name]);
    worse.push_back(c.name + " (" + joined(more[c.name]) + "; " + peers + ")");
  }
  std::cout << fmt::format(
      "peers: torch {}, jax {}, measured {}. kept: in |x|, the bytes of the first input; +y: reads the output too. flops: per "
      "element of x.\n"
      "Of {} ops, in both modes, against the best peer of each column by itself: never more in {}, and fewer somewhere in {} "
      "of these.\n"
      "A peer that is better in one column and no worse in the others: in {} ops.\n",
      measured["versions"]["torch"].get<std::string>(), measured["versions"]["jax"].get<std::string>(),
      measured["date"].get<std::string>(), cases.size(), cases.size() - worse.size(), best, beaten);
  for (const std::string& w : worse) std::cout << "More than the best peer: " << w << "\n";
  return {static_cast<long>(cases.size() - worse.size()), best};
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<std::string> words(argv + 1, argv + argc);
    bool show = !words.empty() && words[0] == "--show";
    if (show) words.erase(words.begin());
    Score least;
    if (words.size() == 3 && words[0] == "--least") {
      least = {std::stol(words[1]), std::stol(words[2])};
      words.clear();
    }
    std::vector<Case> cases = read_cases(words);
    json measured = json::parse(read_file(kFolder + "stash_table_peers.json"));
    if (!show) {
      Score score = print_table(cases, measured);
      return score.never_more < least.never_more || score.fewer < least.fewer;
    }
    for (const Case& c : cases)
      for (bool dropped : {false, true})
        std::cout << (dropped ? "# x dropped\n" : "# x stays\n")
                  << print(planned(c, dropped, least_kept(peers_of(c, measured, dropped)))) << "\n";
    return 0;
  } catch (const std::exception& e) {
    std::cerr << "stash_table: " << e.what() << "\n";
    return 1;
  }
}

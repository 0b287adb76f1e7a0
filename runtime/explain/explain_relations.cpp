#include "runtime/explain/explain_relations.h"

#include <algorithm>

#include <fmt/format.h>

#include "expr/index/expand_calls.h"
#include "cse/normalize/lift_reductions.h"
#include "fusion/plan/plan.h"
#include "fusion/relations/needs.h"
#include "runtime/explain/explain.h"

namespace xhat {
namespace {

void add_new(std::vector<std::string>& list, std::string text) {
  if (std::ranges::find(list, text) == list.end()) list.push_back(std::move(text));
}

// Without entries that another entry covers: "x[i] if c" and "some of x[i]" beside "x[i]".
std::vector<std::string> without_covered(const std::vector<std::string>& list) {
  std::vector<std::string> kept;
  for (const std::string& text : list) {
    bool covered = std::ranges::any_of(list, [&](const std::string& other) {
      return text.starts_with(other + " if ") || text == "some of " + other || text.starts_with("some of " + other + " if ");
    });
    if (!covered) kept.push_back(text);
  }
  return kept;
}

ExplainedRelations::Direction direction(const Program& p, const std::string& name, const DimValues& sizes) {
  ExplainedRelations::Direction d{name, {}, {}};
  for (const fusion::Needs& n : fusion::needs(p)) {
    ExplainedNeed& made = d.needs.emplace_back(ExplainedNeed{n.element, {}});
    for (const fusion::Relation& r : n.relations) add_new(made.needed, fusion::needed_text(p, r));
    made.needed = without_covered(made.needed);
  }
  for (const fusion::ProducerTiles& t : fusion::producer_tiles(p, sizes)) {
    ExplainedProducer& made = d.producers.emplace_back();
    made.consumer = p.tensors[t.consumer].name;
    made.producer = p.tensors[t.producer].name;
    made.obstacle = t.obstacle.value_or("");
    for (const fusion::Relation& r : t.relations) add_new(made.needed, fusion::needed_text(p, r));
    made.needed = without_covered(made.needed);
    for (const fusion::Granularity& g : t.rows) made.tiles.push_back({g.tile, g.elements, g.computed});
  }
  return d;
}

std::string times_text(double times) {
  if (times < 1.005) return "once";
  return times < 10 ? fmt::format("{:.2f} times", times) : fmt::format("{:.0f} times", times);
}

}  // namespace

ExplainedRelations explain_relations(const Program& op, const CompileOptions& options, const DimValues& given) {
  Explanation e = explain(op, options, given);
  ExplainedRelations r{op.name, e.text, e.sizes, e.nominal, {}};
  const Program written = without_dead(lift_reductions(ordered(expand_calls(op))));
  r.directions.push_back(direction(written, "forward", e.sizes));
  if (!options.differentiate) return r;
  const Program backward = backward_program(derive(op, options).program);
  if (!backward.outputs.empty()) r.directions.push_back(direction(backward, "backward", e.sizes));
  return r;
}

std::string to_text(const ExplainedRelations& r) {
  std::string out = r.text + "\n" + sizes_text(r.sizes, r.nominal);
  for (size_t i = 0; i < r.directions.size(); ++i) {
    const ExplainedRelations::Direction& d = r.directions[i];
    out += fmt::format("{}{}: what an element of a result needs\n", i ? "\n" : "", d.name);
    for (const ExplainedNeed& n : d.needs)
      out += fmt::format("  {} <- {}\n", n.element, n.needed.empty() ? "nothing" : fmt::format("{}", fmt::join(n.needed, ", ")));
    if (d.producers.empty()) continue;
    out += fmt::format("\n{}: tiles of a consumer, and how often each element of a producer is computed if they share a kernel\n", d.name);
    for (const ExplainedProducer& p : d.producers) {
      out += fmt::format("  {} needs {}{}\n", p.consumer, fmt::join(p.needed, ", "),
                         p.obstacle.empty() ? "" : "; not just these two in a kernel: " + p.obstacle);
      std::vector<std::vector<std::string>> rows = {{"tile of " + p.consumer, "needs of " + p.producer, "computed"}};
      for (const ExplainedTile& t : p.tiles)
        rows.push_back({t.tile.empty() ? "the one element" : fmt::format("{}", fmt::join(t.tile, " x ")),
                        t.elements ? fmt::format("{} element{}", *t.elements, *t.elements == 1 ? "" : "s") : "?",
                        t.computed ? times_text(*t.computed) : "?"});
      out += table_text(rows, {1, 2}, "    ");
    }
  }
  return out;
}

}  // namespace xhat

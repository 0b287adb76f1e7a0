// xhat explain: runtime/explain/explain.h as text or as JSON.
#include "runtime/explain/explain.h"

#include <algorithm>
#include <cmath>
#include <ostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/call/machine.h"
#include "runtime/explain/c_loops.h"
#include "runtime/explain/explain_relations.h"
#include "runtime/explain/explain_why.h"
#include "tools/commands.h"

namespace xhat::tool {
namespace {

using Json = nlohmann::ordered_json;

Json tensors(const std::vector<ExplainedTensor>& list) {
  Json out = Json::array();
  for (const ExplainedTensor& t : list)
    out.push_back({{"name", t.name}, {"dtype", std::string(name_of(t.type))}, {"shape", t.shape}});
  return out;
}

Json direction(const ExplainedDirection& d) {
  Json kernels = Json::array();
  for (const ExplainedKernel& k : d.kernels) {
    Json j = {{"name", k.name},
              {"computes", k.computes},
              {"bytes_moved", k.bytes_moved},
              {"bytes_unavoidable", k.bytes_unavoidable},
              {"flops", k.flops}};
    if (k.finish) j["finish"] = true;
    if (!k.reason.empty()) j["apart_because"] = k.reason;
    if (!k.library.empty()) j["library"] = k.library;
    if (!k.finish) j["key"] = k.key;
    if (std::string tuned = choice_text(k.choice); !tuned.empty()) j["tuned"] = tuned;
    kernels.push_back(std::move(j));
  }
  Json out = {{"text", d.text},
              {"kernels", kernels},
              {"kernel_count", d.kernel_count},
              {"bytes_moved", d.bytes_moved},
              {"bytes_unavoidable", d.bytes_unavoidable},
              {"flops", d.flops},
              {"reductions", d.reductions}};
  if (!d.checks.empty()) {
    Json checks = Json::array();
    for (const ExplainedCheck& c : d.checks)
      checks.push_back({{"checked", c.checked}, {"definition", c.definition}, {"reads", c.reads}, {"bytes", c.bytes}});
    out["checks"] = checks;
  }
  if (!d.ops.empty()) out["ops"] = d.ops;
  return out;
}

Json price(double ns) { return std::isfinite(ns) ? Json(ns) : Json(); }

const char* word(StashCandidate::Verdict v) {
  switch (v) {
    case StashCandidate::Verdict::kept: return "keep";
    case StashCandidate::Verdict::recomputed: return "recompute";
    case StashCandidate::Verdict::free: return "free";
  }
  throw Bug("unreachable verdict");
}

// Prices in nanoseconds; null: never.
Json json_of(const ExplainedValue& v) {
  return {{"name", v.name},
          {"expression", v.expression},
          {"shape", v.shape},
          {"bytes", v.bytes},
          {"uses", v.uses},
          {"price_to_keep", price(v.keep_ns)},
          {"price", price(v.recompute_ns)},
          {"verdict", word(v.verdict)},
          {"reason", v.reason}};
}

Json json_of(const ExplainedFront& front) {
  Json points = Json::array();
  for (const ParetoPoint& p : front.points)
    points.push_back({{"stash_bytes", p.bytes},
                      {"cost", p.cost_ns},
                      {"lower_bound", p.lower_bound_ns},
                      {"optimal", p.optimal},
                      {"kept", p.kept}});
  Json out = {{"op", front.op},
              {"pareto", points},
              {"dims", front.sizes.empty() ? Json::object() : Json(front.sizes)}};
  if (!front.nominal.empty()) out["nominal"] = front.nominal;
  return out;
}

Json json_of(const ExplainedRelations& r) {
  Json out = {{"op", r.op}, {"dims", r.sizes.empty() ? Json::object() : Json(r.sizes)}};
  if (!r.nominal.empty()) out["nominal"] = r.nominal;
  for (const ExplainedRelations::Direction& d : r.directions) {
    Json needs = Json::array(), producers = Json::array();
    for (const ExplainedNeed& n : d.needs) needs.push_back({{"element", n.element}, {"needs", n.needed}});
    for (const ExplainedProducer& p : d.producers) {
      Json tiles = Json::array();
      for (const ExplainedTile& t : p.tiles)
        tiles.push_back({{"tile", t.tile},
                         {"elements", t.elements ? Json(*t.elements) : Json()},
                         {"computed", t.computed ? Json(*t.computed) : Json()}});
      producers.push_back({{"consumer", p.consumer}, {"producer", p.producer}, {"needs", p.needed}, {"tiles", tiles}});
      if (!p.obstacle.empty()) producers.back()["obstacle"] = p.obstacle;
    }
    out[d.name] = {{"results", needs}, {"producers", producers}};
  }
  return out;
}

Json json_of(const Explanation& e) {
  Json stash = Json::array(), recomputed = Json::array(), candidates = Json::array();
  for (const ExplainedStash& s : e.stash)
    stash.push_back({{"name", s.name},
                     {"expression", s.expression},
                     {"shape", s.shape},
                     {"bytes", s.bytes},
                     {"reason", s.reason}});
  for (const ExplainedValue& v : e.values) candidates.push_back(json_of(v));
  for (const ExplainedValue& v : e.values)
    if (v.verdict == StashCandidate::Verdict::recomputed)
      recomputed.push_back({{"name", v.name},
                            {"expression", v.expression},
                            {"price", v.recompute_ns},
                            {"price_to_keep", price(v.keep_ns)},
                            {"reason", v.reason}});
  Json out = {
      {"op", e.op},
      {"inputs", tensors(e.inputs)},
      {"outputs", tensors(e.outputs)},
      {"gradients", tensors(e.gradients)},
      {"stash", stash},
      {"stash_bytes", e.stash_bytes()},
      {"recomputed", recomputed},
      {"candidates", candidates},
      {"kept_by_caller", e.kept_by_caller},
      {"certificate", {{"cost", e.cost_ns}, {"lower_bound", e.lower_bound_ns}, {"optimal", e.optimal}}},
      {"forward", direction(e.forward)},
      {"backward", direction(e.backward)},
      {"infer", direction(e.infer)},
      {"dims", e.sizes.empty() ? Json::object() : Json(e.sizes)}};
  if (!e.nominal.empty()) out["nominal"] = e.nominal;
  if (!e.open_reads.empty()) out["not_proved_for_all_sizes"] = e.open_reads;
  return out;
}

// Is it the value `name` of the op as written, or what the passes call a part of it (mean_sum, y_part_1), or its gradient?
bool belongs(const std::string& value, const std::string& name) {
  const std::string own = value.starts_with("grad_") ? value.substr(5) : value;
  return own == name || (own.starts_with(name) && own[name.size()] == '_');
}

std::string about(const Explanation& e, const Program& op, const std::string& name) {
  std::vector<std::string> known;
  std::string text;
  for (const Definition& d : op.definitions())
    for (TensorId t : d.targets) {
      known.push_back(op.tensors[t].name);
      if (op.tensors[t].name == name) text += print(op, d) + "\n";
    }
  if (text.empty()) throw UsageError(fmt::format("--definition {}: op {} defines {}", name, op.name, fmt::join(known, ", ")));
  std::vector<std::vector<std::string>> rows = {{"value", "shape", "bytes", "uses", "verdict", "because"}};
  for (const ExplainedValue& v : e.values)
    if (belongs(v.name, name))
      rows.push_back({v.name, fmt::format("[{}]", fmt::join(v.shape, ",")), bytes_text(static_cast<double>(v.bytes)),
                      fmt::format("{}", v.uses), word(v.verdict), v.reason});
  if (rows.size() > 1) text += "\nwhat the backward needs of it\n" + table_text(rows, {2, 3}, "  ");
  for (const auto& [direction, d] : {std::pair{"forward", &e.forward}, std::pair{"backward", &e.backward}}) {
    std::string found;
    for (size_t at = 0; at < d->text.size();) {  // its definitions there
      const size_t end = std::min(d->text.find('\n', at), d->text.size());
      const std::string line = d->text.substr(at, end - at);
      const size_t begin = line.find_first_not_of(' '), stop = line.find_first_of("[ ", begin);
      if (begin != std::string::npos && stop != std::string::npos && belongs(line.substr(begin, stop - begin), name)) found += line + "\n";
      at = end + 1;
    }
    for (const ExplainedKernel& k : d->kernels)
      if (std::ranges::any_of(k.computes, [&](const std::string& c) { return belongs(c, name); }))
        found += fmt::format("  in kernel {}, which computes {}: moves {}, {} cannot be avoided\n", k.name, fmt::join(k.computes, ", "),
                             bytes_text(static_cast<double>(k.bytes_moved)), bytes_text(static_cast<double>(k.bytes_unavoidable)));
    if (!found.empty()) text += fmt::format("\n{}\n{}", direction, found);
  }
  return text;
}

}  // namespace

int explain_command(const Command& c, const Source& source) {
  CompileOptions options = compile_options(c);
  if (options.target == Target::cpu) options.machine = for_this_machine(options.machine);  // what would run here
  if (c.pareto) {
    ExplainedFront front = explain_pareto(source.op, options, dims_of(c));
    *c.answer << (c.json ? json_of(front).dump(2) + "\n" : to_text(front));
    return kFine;
  }
  if (!c.why.empty()) {
    *c.answer << explain_why(source.op, options, dims_of(c), c.why);
    return kFine;
  }
  if (c.relations) {
    ExplainedRelations r = explain_relations(source.op, options, dims_of(c));
    *c.answer << (c.json ? json_of(r).dump(2) + "\n" : to_text(r));
    return kFine;
  }
  if (c.c) {
    std::cout << explain_c(source.op, options, dims_of(c));
    return kFine;
  }
  Explanation e = explain(source.op, options, dims_of(c));
  if (!c.definition.empty())
    *c.answer << about(e, source.op, c.definition);
  else if (c.json)
    *c.answer << json_of(e).dump(2) << "\n";
  else
    *c.answer << to_text(e);
  return kFine;
}

}  // namespace xhat::tool

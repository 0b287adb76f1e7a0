#include "runtime/viz/viz.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "expr/core/array.h"
#include "expr/core/uses.h"
#include "fusion/plan/plan_text.h"
#include "fusion/relations/needs.h"
#include "runtime/call/gpu_direction.h"
#include "runtime/call/machine.h"
#include "runtime/cpu/kernel_compile.h"
#include "runtime/explain/explain.h"
#include "runtime/explain/planned.h"
#include "runtime/kernel/kernel_access.h"
#include "runtime/kernel/spec_text.h"
#include "runtime/viz/viz_page.h"

namespace xhat {
namespace {

using Json = nlohmann::ordered_json;
using runtime::KernelSpec;

// A page of a program of 1,000 definitions shall stay below 3 MB; the libraries in it have 0.4.
constexpr size_t kLongestText = 40'000;       // bytes of one text
constexpr size_t kAllTexts = 800'000;         // of all texts together, each counted once
constexpr size_t kLongestLine = 700;          // bytes of a definition, in passes
constexpr size_t kAllDefinitions = 300'000;   // bytes of all nodes' texts: of more, the longest are cut further
constexpr size_t kLongestExpression = 160;    // of a value that may be kept
constexpr size_t kLongestDefinition = 4'000;  // bytes of a node's text
constexpr size_t kMostRelations = 400;        // definitions of a direction, for relations by isl; beyond, reads stand as written
// Candidates for the stash. The exact front takes 0.1 s with 10, and minutes with 70; beyond, the choices of the policies stand for it.
constexpr size_t kMostForPareto = 24;

std::string shortened(std::string text, size_t longest) { return text.size() <= longest ? text : text.substr(0, longest) + " …"; }

// Lines and listings that many parts of the page have stand once in the data.
class Texts {
 public:
  // The number of the text; null where the page has no room for it any more.
  Json add(std::string text) {
    if (text.size() > kLongestText) text = text.substr(0, kLongestText) + "\n… (the rest is left out)";
    auto it = known_.find(text);
    if (it != known_.end()) return it->second;
    if (bytes_ + text.size() > kAllTexts) {
      ++left_out_;
      return nullptr;
    }
    bytes_ += text.size();
    known_.emplace(text, all_.size());
    all_.push_back(std::move(text));
    return all_.size() - 1;
  }
  Json lines(const std::string& text) {
    Json numbers = Json::array();
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) numbers.push_back(add(shortened(std::move(line), kLongestLine)));
    return numbers;
  }
  const std::vector<std::string>& all() const { return all_; }
  size_t left_out() const { return left_out_; }

 private:
  std::vector<std::string> all_;
  std::unordered_map<std::string, size_t> known_;
  size_t bytes_ = 0, left_out_ = 0;
};

class Collector {
 public:
  Collector(const Program& op, CompileOptions options, const DimValues& given, const VizOptions& viz_options)
      : op_(op), options_(std::move(options)), viz_(viz_options) {
    if (options_.target == Target::cpu) options_.machine = for_this_machine(options_.machine);
    ExplainedParts parts;
    e_ = explain(op, options_, given, parts);
    given_ = given;
    d_ = std::move(parts.derivation);
    forward_ = std::move(parts.forward);
    backward_ = std::move(parts.backward);
  }

  std::string run() {
    Json& j = data_;
    j["op"] = e_.op;
    j["written"] = texts_.lines(e_.text);
    j["target"] = name_of(options_.target);
    j["dims"] = e_.sizes.empty() ? Json::object() : Json(e_.sizes);
    j["nominal"] = e_.nominal.empty() ? Json::object() : Json(e_.nominal);
    j["roof"] = {{"ps_per_byte", ps_per_byte()}, {"ps_per_flop", ps_per_flop()}};
    j["differentiated"] = options_.differentiate;
    j["nodes"] = Json::array();
    j["patterns"] = Json::array();
    j["kernels"] = Json::array();
    direction(forward_, "forward", e_.forward);
    if (options_.differentiate) direction(backward_, "backward", e_.backward);
    cut_definitions();
    stash();
    passes();
    pareto();
    j["timeline"] = Json::array();
    for (const VizEvent& v : viz_.timeline)
      j["timeline"].push_back({{"direction", v.direction}, {"kernel", v.kernel}, {"start", v.start_ns}, {"ns", v.ns}});
    j["timeline_of"] = viz_.timeline_of;
    j["texts"] = texts_.all();
    j["left_out"] = texts_.left_out();
    return j.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

 private:
  const Program& op_;
  CompileOptions options_;
  const VizOptions& viz_;
  DimValues given_;
  Explanation e_;
  Derivation d_;
  PlannedDirection forward_, backward_;
  Json data_ = Json::object();
  Texts texts_;
  std::map<std::string, size_t> patterns_;
  std::map<std::string, size_t> node_of_;  // by name with direction: "f:y", "b:grad_x", "i:x"

  // Two threads of the reference machine move 28 GB/s, where one reads a byte in kReadByte_ps (expr/core/machine_model.h). The kernel planner's
  // price of a multiplication and an addition is in bytes that memory moves meanwhile.
  double ps_per_byte() const {
    return 1000.0 / 28 * static_cast<double>(options_.machine.read_ps_per_byte) / static_cast<double>(kReadByte_ps);
  }
  double ps_per_flop() const { return options_.machine.multiply_bytes / 2 * ps_per_byte(); }

  size_t node(const Program& p, TensorId t, const std::string& key, const std::string& kind) {
    auto [it, added] = node_of_.emplace(key, data_["nodes"].size());
    if (!added) return it->second;
    Json shape = Json::array();
    for (Id extent : p.tensors[t].shape) shape.push_back(print(p, extent));
    data_["nodes"].push_back({{"id", it->second},
                              {"name", p.tensors[t].name},
                              {"kind", kind},
                              {"dtype", std::string(name_of(p.tensors[t].type))},
                              {"shape", shape},
                              {"bytes", bytes_of(p, t, e_.sizes)}});
    return it->second;
  }

  // A parameter of a direction: of the op, or of the backward a cotangent, or a value of the forward.
  size_t parameter(const Program& p, TensorId t) {
    const std::string& name = p.tensors[t].name;
    if (auto it = node_of_.find("f:" + name); it != node_of_.end()) return it->second;
    const bool cotangent = std::ranges::find(d_.program.cotangents, t) != d_.program.cotangents.end();
    return node(p, t, "i:" + name, cotangent ? "cotangent" : "input");
  }

  using Needed = std::map<std::pair<TensorId, TensorId>, std::vector<std::string>>;  // by consumer and producer
  static Needed relations_of(const Program& p) {
    Needed needed;
    if (p.forward.definitions.size() > kMostRelations) return needed;
    for (const Definition& d : p.forward.definitions)
      for (const fusion::Relation& r : fusion::direct_relations(p, d)) {
        auto& list = needed[{d.target(), r.input}];
        std::string text = fusion::needed_text(p, r);
        if (std::ranges::find(list, text) == list.end()) list.push_back(std::move(text));
      }
    return needed;
  }

  // The reads of t in the definition, as they are written.
  static std::vector<std::string> reads_of(const Program& p, const Definition& d, TensorId t) {
    std::vector<std::string> list;
    for (Id id : reachable(*p.arena, d.body))
      if (const Node& n = (*p.arena)[id]; is_read(n.op) && n.symbol == t) {
        std::string text = shortened(print(p, id), 200);
        if (list.size() < 8 && std::ranges::find(list, text) == list.end()) list.push_back(std::move(text));
      }
    return list;
  }

  void direction(const PlannedDirection& planned, const std::string& name, const ExplainedDirection& explained) {
    const Program& p = planned.program;
    if (p.outputs.empty()) return;
    for (TensorId t : p.inputs) parameter(p, t);
    const Needed needed = relations_of(p);
    const std::string prefix = name == "forward" ? "f:" : "b:";
    const std::vector<TensorId> kept = stashes(d_.program);
    const size_t first_kernel = data_["kernels"].size();
    for (const Definition& d : p.forward.definitions) {
      const TensorId t = d.target();
      const std::string& target = p.tensors[t].name;
      const bool stashed = name == "forward" && t < d_.program.tensors.size() && std::ranges::find(kept, t) != kept.end();
      const bool result = std::ranges::find(p.outputs, t) != p.outputs.end();
      const size_t id = node(p, t, prefix + target, stashed ? "stash" : result ? (name == "forward" ? "output" : "gradient") : "value");
      Json& n = data_["nodes"][id];
      n["direction"] = name;
      n["text"] = shortened(print(p, d), kLongestDefinition);
      if (d.pos.known()) n["line"] = d.pos.line;
      std::map<size_t, std::vector<size_t>> by_pattern;
      for (TensorId from : tensors_read(*p.arena, d)) {
        auto local = node_of_.find(prefix + p.tensors[from].name);
        const size_t source = local != node_of_.end() ? local->second : parameter(p, from);
        auto it = needed.find({t, from});
        by_pattern[pattern(it != needed.end() ? it->second : reads_of(p, d, from), p.tensors[from].name)].push_back(source);
      }
      Json reads = Json::array();
      for (auto& [number, sources] : by_pattern) {
        reads.push_back({number});
        std::ranges::sort(sources);
        for (size_t i = 0; i < sources.size(); ++i) reads.back().push_back(i ? sources[i] - sources[i - 1] : sources[i]);
      }
      data_["nodes"][id]["element"] = element_of(p, d);
      data_["nodes"][id]["reads"] = reads;  // lists: a pattern's number, a producer, and how far it is to each next one
    }
    kernels(planned, name, prefix);
    // Bytes and work as explain has them, where the two lists have the same kernels.
    data_[name] = {{"bytes_moved", explained.bytes_moved},
                   {"bytes_unavoidable", explained.bytes_unavoidable},
                   {"flops", explained.flops},
                   {"kernel_count", explained.kernel_count},
                   {"reductions", explained.reductions},
                   {"first_kernel", first_kernel},
                   {"text", texts_.lines(explained.text)}};
  }

  // The number of a text of a relation, in which "@" stands for the producer's name: there are few, and 100,000 reads of 1,000 definitions.
  size_t pattern(std::vector<std::string> needs, const std::string& name) {
    std::string text;
    for (std::string& need : needs) {
      if (const size_t at = need.find(name); at != std::string::npos) need.replace(at, name.size(), "@");
      text += (text.empty() ? "" : ", ") + need;
    }
    auto [it, added] = patterns_.emplace(std::move(text), patterns_.size());
    if (added) data_["patterns"].push_back(it->first);
    return it->second;
  }

  // The longest definitions are cut until there is room for all.
  void cut_definitions() {
    for (size_t longest = kLongestDefinition;; longest /= 2) {
      size_t all = 0;
      for (const Json& n : data_["nodes"])
        if (n.contains("text")) all += std::min(longest, n["text"].get_ref<const std::string&>().size());
      if (all > kAllDefinitions && longest > 100) continue;
      for (Json& n : data_["nodes"])
        if (n.contains("text")) n["text"] = shortened(n["text"], longest);
      return;
    }
  }

  static std::string element_of(const Program& p, const Definition& d) {
    std::string text = p.tensors[d.target()].name;
    for (size_t k = 0; k < d.axes.size(); ++k) text += (k ? "," : "[") + p.arena->name(d.axes[k].axis);
    return d.axes.empty() ? text : text + "]";
  }

  void kernels(const PlannedDirection& planned, const std::string& name, const std::string& prefix) {
    const Program& p = planned.program;
    std::vector<KernelSpec> specs;
    const bool on_gpu = options_.target != Target::cpu;
    const std::vector<bool> dense(p.tensors.size(), true);
    for (size_t i = 0; i < planned.plan.kernels.size(); ++i) {
      const Kernel& k = planned.plan.kernels[i];
      const size_t number = data_["kernels"].size();
      Json computes = Json::array(), axes = Json::array();
      for (const Member& m : k.members) {
        const size_t id = node_of_.at(prefix + p.tensors[p.forward.definitions[m.definition].target()].name);
        data_["nodes"][id]["kernel"] = number;
        computes.push_back(id);
      }
      for (TensorId t : k.results) data_["nodes"][node_of_.at(prefix + p.tensors[t].name)]["stored"] = true;
      for (size_t a = 0; a < k.axes.size(); ++a)
        axes.push_back({{"name", k.axes[a].name},
                        {"extent", k.axes[a].extent},
                        {"tile", k.axes[a].tile},
                        {"grid", std::ranges::find(k.shared, static_cast<int>(a)) != k.shared.end()}});
      KernelPlan alone;
      alone.kernels = {k};
      Json made = {{"name", k.name},
                   {"direction", name},
                   {"computes", computes},
                   {"axes", axes},
                   {"bytes_moved", k.bytes_moved},
                   {"bytes_unavoidable", k.bytes_unavoidable},
                   {"flops", k.flops},
                   {"reason", k.reason},
                   {"schedule", texts_.add(to_text(p, alone))}};
      for (const auto& [flag, holds] : {std::pair("finish", k.epilogue), std::pair("combines", k.combines_partials),
                                        std::pair("streams", k.streams), std::pair("joined", k.horizontal)})
        if (holds) made[flag] = true;
      if (planned.calls[i]) made["library"] = to_text(*planned.calls[i]);
      if (static_cast<int>(i) < viz_.listed_kernels && !on_gpu) {
        const KernelSpec spec = runtime::make_spec(p, k, e_.sizes, dense);
        made["loops"] = texts_.add(to_text(spec));
        if (!runtime::writes_nothing(spec))
          made["source"] = texts_.add(runtime::listings_of(runtime::with_class_representatives(spec)).statements);
      }
      data_["kernels"].push_back(std::move(made));
    }
    if (!on_gpu || viz_.listed_kernels == 0) return;
    specs = runtime::gpu_specs(p, planned.plan, e_.sizes, options_.target);
    for (size_t i = 0; i < specs.size() && static_cast<int>(i) < viz_.listed_kernels; ++i)
      data_["kernels"][data_["kernels"].size() - planned.plan.kernels.size() + i]["loops"] = texts_.add(to_text(specs[i]));
  }

  void stash() {
    auto price = [](double ns) { return std::isfinite(ns) ? Json(ns) : Json(); };
    Json values = Json::array(), kept = Json::array();
    for (const ExplainedValue& v : e_.values) {
      using Verdict = StashCandidate::Verdict;
      Json made = {{"name", v.name},
                   {"expression", shortened(v.expression, kLongestExpression)},
                   {"shape", v.shape},
                   {"bytes", v.bytes},
                   {"uses", v.uses},
                   {"keep_ns", price(v.keep_ns)},
                   {"recompute_ns", price(v.recompute_ns)},
                   {"verdict", v.verdict == Verdict::kept   ? "keep"
                               : v.verdict == Verdict::free ? "free"
                                                            : "recompute"},
                   {"reason", v.reason}};
      if (auto it = node_of_.find("f:" + v.name); it != node_of_.end())
        made["node"] = it->second;
      else if (it = node_of_.find("i:" + v.name); it != node_of_.end())
        made["node"] = it->second;
      values.push_back(std::move(made));
    }
    for (const ExplainedStash& s : e_.stash) kept.push_back({{"name", s.name}, {"bytes", s.bytes}, {"reason", s.reason}});
    data_["stash"] = {{"values", values},          {"kept", kept},
                      {"bytes", e_.stash_bytes()}, {"by_caller", e_.kept_by_caller},
                      {"cost_ns", e_.cost_ns},     {"lower_bound_ns", e_.lower_bound_ns},
                      {"optimal", e_.optimal}};
  }

  void passes() {
    Json list = Json::array();
    for (const PassStep& s : d_.steps) {
      list.push_back({{"name", s.name}, {"ms", s.ms}, {"lines", texts_.lines(print(s.program))}});
    }
    data_["passes"] = list;
  }

  void pareto() {
    data_["pareto"] = Json::array();
    if (!options_.differentiate) return;
    auto add = [&](int64_t bytes, double ns, bool optimal, const std::vector<std::string>& kept, const char* policy) {
      data_["pareto"].push_back({{"bytes", bytes}, {"cost_ns", ns}, {"optimal", optimal}, {"kept", kept}, {"policy", policy}});
    };
    if (e_.values.size() <= kMostForPareto) {
      for (const ParetoPoint& p : explain_pareto(op_, options_, given_).points) add(p.bytes, p.cost_ns, p.optimal, p.kept, "");
      return;
    }
    // The chosen one, and the two ends that cost no search.
    std::vector<std::string> kept;
    for (const ExplainedStash& s : e_.stash) kept.push_back(s.name);
    add(e_.stash_bytes(), e_.cost_ns, e_.optimal, kept, "chosen");
    using Policy = StashOptions::Policy;
    for (const auto& [policy, name] : {std::pair(Policy::none, "none"), std::pair(Policy::cost, "cost")}) {
      CompileOptions other = options_;
      if (other.stash.policy == policy) continue;
      other.stash.policy = policy;
      const Derivation d = derive(op_, other, e_.sizes);
      kept.clear();
      for (TensorId t : stashes(d.program)) kept.push_back(d.program.tensors[t].name);
      add(d.stash.stash_bytes, d.stash.cost_ns, d.stash.optimal, kept, name);
    }
  }
};

}  // namespace

std::string viz_data(const Program& op, const CompileOptions& options, const DimValues& given, const VizOptions& viz_options) {
  return Collector(op, options, given, viz_options).run();
}

std::string viz(const Program& op, const CompileOptions& options, const DimValues& given, const VizOptions& viz_options) {
  std::string page = viz_page(), data = viz_data(op, options, given, viz_options);
  auto put = [&](const std::string& mark, const std::string& text) {
    const size_t at = page.find(mark);
    if (at == std::string::npos) throw Bug("the page has no place for " + mark);
    page.replace(at, mark.size(), text);
  };
  // "</script>" in a text would end the data.
  std::string safe;
  safe.reserve(data.size());
  for (char c : data) c == '<' ? safe += "\\u003c" : safe += c;
  put("{{title}}", op.name);
  put("{{data}}", safe);
  return page;
}

}  // namespace xhat

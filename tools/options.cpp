#include "tools/options.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "ad/forward/jvp.h"
#include "ad/forward/transform.h"
#include "expr/text/ast.h"
#include "expr/text/warnings.h"
#include "runtime/explain/tuning.h"
#include "runtime/host/thread_pool.h"

namespace xhat::tool {
namespace {

const char kPricesHelp[] =
    "JSON with any of these prices, in picoseconds (default: the fixed reference table):\n"
    "{\"read_ps_per_byte\": 60, \"write_ps_per_byte\": 120, \"pass_ps\": 1000000, \"memory_ps_per_byte\": "
    "0,\n"
    " \"ops\": {\"exp\": 160}, \"machine\": \"a name\"}; xhat calibrate measures and writes them";

void declare_planning(CLI::App& sub, Command& c) {
  sub.add_option("--op", c.op, "the op to take (default: the file's only or last one)");
  sub.add_option("--derive", c.derive,
                 "take what is made of the op, one after the other: vjp, jvp, hvp, jacobian, hessian, vmap (or vmap=x+w: of these inputs)")
      ->delimiter(',')
      ->allow_extra_args(false);
  sub.add_option("--stash", c.stash, "what the forward keeps: cost, largest, none or budget=BYTES")
      ->capture_default_str()
      ->type_name("{cost,largest,none,budget=}");
  sub.add_option(
         "--stash-dtype", c.stash_dtype,
         "bf16 or f16: wider floats that are kept are stored so, except for what comparisons depend on")
      ->check(CLI::IsMember({"bf16", "f16"}));
  sub.add_option("--fuse", c.fuse, "full: by cost; relay: the groups of classic graph compilers; off: one kernel per definition")
      ->capture_default_str()
      ->type_name("{full,relay,off}");
  sub.add_option("--opaque", c.opaque, "with --fuse relay: ops that are called, and definitions, that nothing is fused with: softmax,h")
      ->delimiter(',')
      ->allow_extra_args(false);
  sub.add_option("--relay", c.relay, "with --fuse relay, its limits: level=0 (1), depth=8 (256 ops in a group), arguments=31 (0: any number)")
      ->delimiter(',')
      ->allow_extra_args(false);
  auto* keep = sub.add_option("--keep", c.keep, "exactly these inputs and outputs stay with the caller: x,y");
  sub.add_option("--drop", c.drop, "all inputs and outputs but these stay with the caller: x,y")
      ->excludes(keep);
  sub.add_option("--wrt", c.wrt, "gradients wanted: x,w (default: of every float input that is not const)")
      ->delimiter(',')
      ->allow_extra_args(false);
  sub.add_option("--prices", c.prices, kPricesHelp)->type_name("FILE");
  sub.add_option("--dims", c.dims, "sizes: N=32,C=64")->delimiter(',')->allow_extra_args(false);
  sub.add_option("--threads", c.threads, "threads to run on (default: one per core)");
  sub.add_option("--target", c.target, "where to run: cpu, cuda, opencl or vulkan (run, check, bench, explain)")
      ->capture_default_str()
      ->type_name("{cpu,cuda,opencl,vulkan}");
  sub.add_option("--libraries", c.libraries, "on cuda, products by cuBLAS, convolutions by cuDNN: auto: where that seems faster; on, off")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "on", "off"}));
  sub.add_option("--set", c.sets, "values of scalar parameters: eps=1e-5 k=3");
}

void declare_tuned(CLI::App& sub, Command& c) {
  sub.add_option("--tuned", c.tuned, "choices that xhat tune found, for the kernels that they were measured for")->type_name("FILE");
}

CLI::App* subcommand(CLI::App& app, Command& c, const std::string& name, const std::string& what,
                     const std::string& example) {
  CLI::App* sub = app.add_subcommand(name, what);
  sub->footer("Example: " + example);
  sub->add_option("FILE", c.file, "the op, a .xh file");
  sub->callback([&c, name] { c.name = name; });
  return sub;
}

int64_t integer(const std::string& text, const std::string& what) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size())
    throw UsageError(fmt::format("{} wants an integer, not '{}'", what, text));
  return value;
}

std::vector<std::string> names(const std::string& list) {
  std::vector<std::string> result;
  std::stringstream in(list);
  for (std::string item; std::getline(in, item, ',');)
    if (!item.empty()) result.push_back(item);
  return result;
}

int64_t price_of(const std::string& path, const std::string& key, const nlohmann::json& value, int64_t most) {
  if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() > most)
    throw UsageError(
        fmt::format("{}: the price {} must be an integer from 0 to {} picoseconds", path, key, most));
  return value.get<int64_t>();
}

void read_op_prices(const std::string& path, const nlohmann::json& table, MachineModel& machine) {
  if (!table.is_object()) throw UsageError(path + ": ops is an object of prices. " + kPricesHelp);
  for (const auto& [name, value] : table.items()) {
    int op = 0;
    while (op < kOpCount && info(static_cast<Op>(op)).id != name) ++op;
    if (op == kOpCount)
      throw UsageError(fmt::format("{}: there is no op '{}' (the names of expr/core/ops.def)", path, name));
    machine.op_ps[static_cast<Op>(op)] = price_of(path, name, value, 1'000'000);
  }
}

MachineModel read_prices(const std::string& path) {
  MachineModel machine;
  const std::map<std::string, int64_t*> known = {{"read_ps_per_byte", &machine.read_ps_per_byte},
                                                 {"write_ps_per_byte", &machine.write_ps_per_byte},
                                                 {"pass_ps", &machine.pass_ps},
                                                 {"memory_ps_per_byte", &machine.memory_ps_per_byte}};
  nlohmann::json table;
  try {
    table = nlohmann::json::parse(read_text(path));
  } catch (const nlohmann::json::parse_error& e) {
    throw UsageError(
        fmt::format("{}: it is no JSON; it goes wrong at byte {}. {}", path, e.byte, kPricesHelp));
  }
  if (!table.is_object()) throw UsageError(path + ": a price table is one JSON object. " + kPricesHelp);
  for (const auto& [key, value] : table.items()) {
    if (key == "machine") continue;  // for people
    if (key == "ops") {
      read_op_prices(path, value, machine);
      continue;
    }
    auto it = known.find(key);
    if (it == known.end())
      throw UsageError(fmt::format("{}: there is no price '{}'. {}", path, key, kPricesHelp));
    // Beyond a microsecond per byte, or a second per pass, the sums would not fit 64 bits.
    *it->second = price_of(path, key, value, key == "pass_ps" ? 1'000'000'000'000 : 1'000'000);
  }
  return machine;
}

// Options that take several NAME=FILE also swallow a FILE that stands behind them.
void give_back_file(Command& c) {
  for (auto* list : {&c.in, &c.dy, &c.jvp, &c.hvp, &c.sets})
    if (c.file.empty() && !list->empty() && list->back().find('=') == std::string::npos) {
      c.file = list->back();
      list->pop_back();
    }
  if (c.file.empty()) throw UsageError(c.name + " wants a FILE; xhat " + c.name + " --help says more");
}

}  // namespace

void declare(CLI::App& app, Command& c) {
  app.require_subcommand(1);
  app.footer(
      "Exit status: 0 everything asked for held, 1 a check failed, 2 bad input or usage.\n"
      "xhat SUBCOMMAND --help shows the options and an example.");
  auto* explain =
      subcommand(app, c, "explain", "Shows the forward, its gradients, the stash with reasons, the kernels",
                 "xhat explain softmax.xh --dims N=4096,D=1024 --stash largest");
  declare_planning(*explain, c);
  declare_tuned(*explain, c);
  explain->add_option("--definition", c.definition, "of this one only: its text, what is kept or computed again of it, its kernels")
      ->type_name("NAME");
  explain->add_flag("--json", c.json, "one JSON object instead of text");
  explain->add_flag("--pareto", c.pareto,
                    "what a budget for the stash buys: the best choice for each, bytes against time");
  explain->add_flag("--relations", c.relations,
                    "which elements of the inputs each result needs, and what tiles of a consumer compute again of a producer")
      ->excludes("--pareto");
  explain
      ->add_option("--why", c.why,
                   "one value of the forward that the backward needs: who reads it, what keeping and recomputing it cost, and what would change "
                   "the verdict")
      ->excludes("--pareto", "--relations", "--json");
  explain->add_flag("--infer-only", c.infer_only, "what runs where nothing is differentiated (again)")
      ->excludes("--pareto", "--relations", "--why", "--definition");
  explain->add_flag("--c", c.c, "both directions as plain C loops, for g++ -O3 -march=native -fopenmp -x c++")
      ->excludes("--pareto", "--relations", "--json", "--definition", "--infer-only");

  auto ignore_memory = [&](CLI::App* sub) {
    sub->add_flag("--ignore-memory", c.ignore_memory, "also sizes that this machine seems to have no memory for");
  };
  auto* check = subcommand(app, c, "check",
                           "Checks derivatives against finite differences, kernels against the evaluator",
                           "xhat check softmax.xh --dims N=5,D=7");
  declare_planning(*check, c);
  declare_tuned(*check, c);
  check->add_option("--in", c.in, "data for some inputs, in place of random ones: x=x.npy")->type_name("NAME=FILE ...");
  check->add_flag("--json", c.json, "one JSON object instead of text");
  check->add_option("--seed", c.seed, "of the data")->capture_default_str();
  ignore_memory(check);

  auto* run = subcommand(app, c, "run", "Runs an op on .npy files; its derivatives, too: --dy, --jvp, --hvp",
                         "xhat run softmax.xh --in x=x.npy --dy y=dy.npy --out results");
  declare_planning(*run, c);
  declare_tuned(*run, c);
  ignore_memory(run);
  run->add_option("--in", c.in, "inputs: x=x.npy w=w.npy; of a scalar float, a number: s=0.5")->type_name("NAME=FILE ...");
  run->add_option("--dy", c.dy, "a cotangent per float output: y=dy.npy, or one number for all of it: loss=1")->type_name("NAME=FILE ...");
  run->add_flag("--grad", c.grad, "gradients without --dy, of an op whose only float output is a scalar: its cotangent is 1");
  run->add_option("--jvp", c.jvp, "tangents of inputs, for jvp_<output>.npy: x=tx.npy or x=1; of others: zero")->type_name("NAME=FILE ...");
  run->add_option("--hvp", c.hvp, "directions, for hvp_<input>.npy; with --dy, unless the output is one scalar: x=v.npy or x=1")
      ->type_name("NAME=FILE ...");
  run->add_flag("--check-values", c.check_values,
                "a NaN or an infinity among the results is a failure (exit status 1), and its origin is named: definition, position, operands");
  run->add_option("--out", c.out,
                  "folder for <output>.npy, grad_<input>.npy, jvp_<output>.npy, hvp_<input>.npy")
      ->required();

  auto* bench =
      subcommand(app, c, "bench", "Times forward, backward and compilation, also without stash and fusion",
                 "xhat bench softmax.xh --dims N=8192,D=1024 --threads 2 --json");
  declare_planning(*bench, c);
  declare_tuned(*bench, c);
  ignore_memory(bench);
  bench->add_flag("--json", c.json, "one JSON object instead of text");
  bench->add_flag("--infer-only", c.infer_only, "infer alone, of what is not differentiated (again)");
  bench->add_option("--seed", c.seed, "of the data")->capture_default_str();
  bench->add_option("--limit", c.limit, "seconds of a call without stash or without fusion, after which it is stopped")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  bench->add_option("--repeats", c.repeats, "samples of each time (default: what fits 3 seconds, 5 to 200)")->check(CLI::Range(1, 1000000));

  auto* tune = subcommand(app, c, "tune", "Searches tiles and vectors by measuring; keeps what is faster in a file for --tuned",
                          "xhat tune softmax.xh --dims N=8192,D=1024 -o tuned.json");
  declare_planning(*tune, c);
  ignore_memory(tune);
  tune->add_option("-o", c.out, "the file (default: tuned.json in $XDG_CACHE_HOME/xhat or ~/.cache/xhat); what it has of others stays");
  tune->add_option("--seconds", c.seconds, "how long to search, beside the first compilation")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  tune->add_option("--seed", c.seed, "of the data")->capture_default_str();

  auto* calibrate = app.add_subcommand("calibrate", "Measures this machine: the prices that --prices reads");
  calibrate->footer("Example: xhat calibrate -o here.json && xhat explain softmax.xh --prices here.json");
  calibrate->callback([&c] { c.name = "calibrate"; });
  calibrate->add_option("-o", c.out, "the file to write (default: to standard output)");

  auto* manual = app.add_subcommand("manual", "Prints the manual page, or completion for bash or zsh");
  manual->footer("Example: xhat manual bash > ~/.local/share/bash-completion/completions/xhat");
  manual->callback([&c] { c.name = "manual"; });
  manual->add_option("PAGE", c.page, "man, bash or zsh")->required()->check(CLI::IsMember({"man", "bash", "zsh"}));

  subcommand(app, c, "fmt", "Prints the file in canonical form; comments stay",
             "xhat fmt softmax.xh > tidy.xh");
  declare_build(*subcommand(app, c, "build", "Compiles ahead of time, to a static library with a C and a C++ header",
                            "xhat build batch_norm.xh --dims C=64,H=56,W=56 -o lib"),
                c);
  auto* viz = subcommand(app, c, "viz", "One page to look at: the graph, the stash, kernels with loops and source, every pass, a run's timeline",
                         "xhat viz softmax.xh --dims N=4096,D=1024 -o softmax.html");
  declare_planning(*viz, c);
  declare_tuned(*viz, c);
  ignore_memory(viz);
  viz->add_option("-o", c.out, "the page (default: <op>.html); -: to standard output");
  viz->add_option("--seed", c.seed, "of the data that it runs on, if --dims gives all sizes")->capture_default_str();
  viz->add_option("--listed", c.listed, "kernels of a direction whose loops and source are on the page")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000000));
  viz->add_flag("--no-run", c.no_run, "no timeline: the op does not run");
  viz->add_flag("--json", c.json, "what the page shows as one JSON object, to standard output");
}

void declare_build(CLI::App& build, Command& c) {
  declare_planning(build, c);
  declare_tuned(build, c);
  build.get_option("--dims")->description(
      "sizes that the code is made for: C=64,H=56; of several, C=64,C=128. dims that are left out stay open: the code serves any value");
  build.get_option("--threads")->description("compilers at a time (default: one per core)");
  build.get_option("--target")->description("processors and GPUs to make code for: cpu, or cpu,cuda, or cpu,opencl");
  build.add_option("--gpu-dims", c.gpu_dims,
                   "sizes that a GPU's code is made for, where they are not those of --dims: N=32,N=64 (default: the same dim stays open)")
      ->delimiter(',')
      ->allow_extra_args(false);
  build.add_option("--stash-dims", c.stash_dims,
                   "sizes that forward's stash is chosen for: N=4096 (default: the largest of those given, 64 for a dim that stays open)")
      ->delimiter(',')
      ->allow_extra_args(false);
  build.add_option("--strided", c.strided, "arrays that calls may give with strides, with gaps or transposed: x,y,grad_x")
      ->delimiter(',')
      ->allow_extra_args(false);
  build.add_option("-o", c.out, "folder for lib<op>.a, <op>.h and <op>.hpp");
  build.add_option("--levels", c.levels, "processors to make code for; the best that is there is used: sse41,avx2,avx512")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  build.add_option("--name", c.library, "of the library and its functions (default: the op's)");
  build.add_flag("--infer-only", c.infer_only, "no forward and backward");
  build.add_option("--support", c.support, "libxhat_ahead.a (default: the one that came with this program)");
}

void settle(Command& c) {
  auto not_yet = [](const std::string& what) { throw UsageError("not yet: " + what); };
  const bool gpu = c.name != "build" && target_of(c.target) != Target::cpu;
  if (gpu && c.name != "run" && c.name != "check" && c.name != "bench" && c.name != "explain" && c.name != "viz")
    not_yet("xhat " + c.name + " for target " + c.target + "; run, check, bench, explain and viz take it");
  if (c.name != "calibrate" && c.name != "manual") give_back_file(c);
  try {
    runtime::check_threads(c.threads);
  } catch (const Error& e) {
    throw UsageError("--threads: " + e.message());
  }
}

std::vector<std::pair<std::string, std::string>> pairs_of(const std::vector<std::string>& items,
                                                          const std::string& option) {
  std::vector<std::pair<std::string, std::string>> result;
  std::set<std::string> seen;
  for (const std::string& item : items) {
    size_t at = item.find('=');
    if (at == 0 || at == std::string::npos)
      throw UsageError(fmt::format("{} wants NAME=VALUE, not '{}'", option, item));
    std::string name = item.substr(0, at);
    if (!seen.insert(name).second) throw UsageError(fmt::format("{} gives {} twice", option, name));
    result.emplace_back(name, item.substr(at + 1));
  }
  return result;
}

DimValues dims_of(const Command& c) {
  DimValues dims;
  for (const auto& [name, value] : pairs_of(c.dims, "--dims")) dims[name] = integer(value, "--dims " + name);
  return dims;
}

Target target_of(const std::string& name) {
  for (Target t : {Target::cpu, Target::cuda, Target::opencl, Target::vulkan})
    if (name == name_of(t)) return t;
  throw UsageError("there is no target '" + name + "'; there are cpu, cuda, opencl, vulkan");
}

namespace {

std::map<std::string, std::vector<int64_t>> sizes_in(const std::vector<std::string>& items, const std::string& option) {
  std::map<std::string, std::vector<int64_t>> sizes;
  for (const std::string& item : items)
    for (const auto& [name, value] : pairs_of({item}, option)) {
      int64_t size = integer(value, option + " " + name);
      auto& list = sizes[name];
      if (std::ranges::find(list, size) == list.end()) list.push_back(size);
    }
  return sizes;
}

}  // namespace

std::map<std::string, std::vector<int64_t>> sizes_of(const Command& c) { return sizes_in(c.dims, "--dims"); }
DimValues stash_sizes_of(const Command& c) {
  DimValues sizes;
  for (const auto& [name, value] : pairs_of(c.stash_dims, "--stash-dims")) sizes[name] = integer(value, "--stash-dims " + name);
  return sizes;
}
std::map<std::string, std::vector<int64_t>> gpu_sizes_of(const Command& c) { return sizes_in(c.gpu_dims, "--gpu-dims"); }

std::vector<Target> gpus_of(const Command& c) {
  std::vector<Target> gpus;
  bool cpu = false;
  for (const std::string& name : names(c.target)) {
    Target target = target_of(name);
    if (target == Target::cpu) cpu = true;
    else if (target == Target::vulkan) throw UsageError("not yet: xhat build for target vulkan; cuda and opencl go with the CPU");
    else if (std::ranges::find(gpus, target) == gpus.end()) gpus.push_back(target);
  }
  if (!cpu) throw UsageError("a library always has code for the CPU, too: --target cpu," + c.target);
  if (gpus.empty() && !c.gpu_dims.empty()) throw UsageError("--gpu-dims go with a GPU: --target cpu,cuda");
  return gpus;
}

namespace {

fusion::RelayOptions relay_options(const Command& c) {
  fusion::RelayOptions o;
  o.opaque = c.opaque;
  for (const auto& [name, text] : pairs_of(c.relay, "--relay")) {
    const int64_t value = integer(text, "--relay " + name);
    if (value < 0 || value > INT32_MAX) throw UsageError(fmt::format("--relay {} is 0 or more, not {}", name, text));
    if (name == "level") o.opt_level = static_cast<int>(value);
    else if (name == "depth") o.max_fuse_depth = static_cast<size_t>(value);
    else if (name == "arguments") o.max_arguments = static_cast<size_t>(value);
    else throw UsageError("--relay knows level, depth and arguments, not '" + name + "'");
  }
  return o;
}

}  // namespace

CompileOptions compile_options(const Command& c) {
  CompileOptions o;
  o.target = c.name == "build" ? Target::cpu : target_of(c.target);
  o.libraries = c.libraries == "on" ? LibraryUse::on : c.libraries == "off" ? LibraryUse::off : LibraryUse::automatic;
  using Policy = StashOptions::Policy;
  if (c.stash == "cost")
    o.stash.policy = Policy::cost;
  else if (c.stash == "largest")
    o.stash.policy = Policy::largest;
  else if (c.stash == "none")
    o.stash.policy = Policy::none;
  else if (c.stash.starts_with("budget=")) {
    o.stash.policy = Policy::budget;
    o.stash.budget = integer(c.stash.substr(7), "--stash budget");
    if (o.stash.budget < 0) throw UsageError("--stash budget wants 0 or more bytes");
  } else {
    throw UsageError("--stash is cost, largest, none or budget=BYTES, not '" + c.stash + "'");
  }
  if (!c.stash_dtype.empty()) o.stash.store_as = c.stash_dtype == "bf16" ? DType::bf16 : DType::f16;
  if (c.fuse == "off")
    o.fusion.policy = FusePolicy::off;
  else if (c.fuse == "relay")
    o.fusion.policy = FusePolicy::relay;
  else if (c.fuse != "full")
    throw UsageError("--fuse is full, relay or off, not '" + c.fuse + "'");
  if (c.fuse != "relay" && (!c.opaque.empty() || !c.relay.empty())) throw UsageError("--opaque and --relay go with --fuse relay");
  o.fusion.relay = relay_options(c);
  if (c.keep) o.stash.kept_by_caller = names(*c.keep);
  if (c.drop) o.stash.dropped = names(*c.drop);
  if (!c.prices.empty()) o.machine = read_prices(c.prices);
  if (!c.tuned.empty()) try {
      o.choices = choices_of(read_tuning(c.tuned), c.threads);
    } catch (const Error& e) {
      throw UsageError(e.message());
    }
  o.wrt = c.wrt;
  o.differentiate = !c.infer_only;
  o.threads = c.threads;
  o.check_values = c.check_values;
  return o;
}

std::string read_text(const std::string& path) {
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) throw UsageError(path + ": it is a folder; give a file");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw UsageError(path + ": it cannot be opened: " + std::strerror(errno));
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) throw UsageError(path + ": it cannot be read");
  return text;
}

namespace {

Program derived(const Program& op, const std::string& what) {
  if (what == "vjp") return vjp(op);
  if (what == "jvp") return jvp(op);
  if (what == "hvp") return hvp(op);
  if (what == "jacobian") return jacobian(op);
  if (what == "hessian") return hessian(op);
  if (what == "vmap") return vmap(op);
  if (!what.starts_with("vmap=")) throw UsageError("--derive is vjp, jvp, hvp, jacobian, hessian, vmap or vmap=x+w, not '" + what + "'");
  VmapOptions o;
  std::stringstream in(what.substr(what.find('=') + 1));
  for (std::string item; std::getline(in, item, '+');) o.inputs.push_back(item);
  return vmap(op, o);
}

}  // namespace

Source load(const Command& c) {
  Source s{c.file, read_text(c.file), {}};
  Module module = parse(s.text, s.file);
  if (module.ops.empty()) throw UsageError(c.file + ": the file holds no op");
  const Program* found = c.op.empty() ? module.ops.back().get() : module.find(c.op);
  if (!found) {
    std::vector<std::string> known;
    for (const auto& op : module.ops) known.push_back(op->name);
    throw UsageError(
        fmt::format("{}: there is no op '{}'; there are {}", c.file, c.op, fmt::join(known, ", ")));
  }
  s.op = *found;
  for (const Warning& w : warnings_of(*ast::parse(s.text, s.file), s.op)) std::cerr << located(w, s.file, s.text) << "\n";
  for (const std::string& what : c.derive) try {
      s.op = derived(s.op, what);
    } catch (const Error& e) {
      throw Error(e.message(), e.pos()).located(s.file, s.text);
    }
  return s;
}

}  // namespace xhat::tool

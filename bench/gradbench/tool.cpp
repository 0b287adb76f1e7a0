// xhat as a tool of GradBench: reads its messages from stdin, one line of JSON each, and answers each by one on stdout.
//
//     build/bench/gradbench_tool
//
// README.md says what evals ask for. A first run, which allocates and compiles, is timed apart, as "prepare".
#include <chrono>
#include <iostream>

#include "bench/gradbench/evals.h"
#include "expr/core/error.h"

namespace {

using namespace xhat;
using gradbench::Call;
using gradbench::json;
using Clock = std::chrono::steady_clock;

int64_t since(Clock::time_point start) { return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count(); }

json timing(const char* name, int64_t nanoseconds) { return {{"name", name}, {"nanoseconds", nanoseconds}}; }

json evaluate(const gradbench::Module& functions, const json& message) {
  const std::string name = message.at("function");
  auto function = functions.find(name);
  if (function == functions.end()) return {{"success", false}, {"error", "there is no function " + name + " in this module"}};
  const json& input = message.at("input");
  const int64_t least_runs = input.is_object() ? input.value("min_runs", 1) : 1;
  const double least_seconds = input.is_object() ? input.value("min_seconds", 0.0) : 0;
  json timings = json::array();

  auto start = Clock::now();
  const Call call = function->second(input);
  call.run();
  timings.push_back(timing("prepare", since(start)));

  int64_t runs = 0;
  for (int64_t spent = 0; runs < std::max<int64_t>(least_runs, 1) || static_cast<double>(spent) * 1e-9 < least_seconds; ++runs) {
    start = Clock::now();
    call.run();
    const int64_t ns = since(start);
    spent += ns;
    timings.push_back(timing("evaluate", ns));
  }
  return {{"success", true}, {"output", call.output()}, {"timings", timings}};
}

json answer(const std::map<std::string, gradbench::Module>& modules, const json& message) {
  const std::string kind = message.at("kind");
  if (kind == "start") return {{"tool", "xhat"}};
  if (kind != "define" && kind != "evaluate") return json::object();
  const std::string name = message.at("module");
  auto found = modules.find(name);
  if (found == modules.end()) return {{"success", false}, {"error", "there is no module " + name}};
  return kind == "define" ? json{{"success", true}} : evaluate(found->second, message);
}

}  // namespace

int main() {
  std::map<std::string, gradbench::Module> modules = gradbench::dense_modules();
  modules.merge(gradbench::geometry_modules());
  modules.merge(gradbench::descent_modules());
  for (std::string line; std::getline(std::cin, line);) {
    json response = json::object();
    try {
      const json message = json::parse(line);
      response["id"] = message.at("id");
      response.update(answer(modules, message));
    } catch (const std::exception& e) {
      response.update({{"success", false}, {"error", e.what()}});
    }
    std::cout << response.dump() << std::endl;
  }
}

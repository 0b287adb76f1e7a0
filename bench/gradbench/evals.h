// What GradBench asks a tool for: functions of modules.
#pragma once
#include <functional>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

namespace xhat::gradbench {

using nlohmann::json;

// One function on one input: `run` is what is timed, as often as it is asked for; `output` says afterwards what came out.
struct Call {
  std::function<void()> run;
  std::function<json()> output;
};
using Function = std::function<Call(const json& input)>;
using Module = std::map<std::string, Function>;

// By name.
std::map<std::string, Module> dense_modules();     // lse, llsq, gmm, kmeans, ode, lstm
std::map<std::string, Module> geometry_modules();  // ba, ht
std::map<std::string, Module> descent_modules();   // particle, saddle

// Rows of numbers, and back.
std::vector<double> flat(const json& rows);
json rows_of(const std::vector<double>& values, size_t columns);

}  // namespace xhat::gradbench

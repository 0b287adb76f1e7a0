// Shared by the writers of a library's texts: ahead_text.cpp (C header, source), ahead_text_cpp.cpp (C++ header) and ahead_text_device.cpp (the
// parts of both for devices). For these only.
#pragma once
#include <fmt/format.h>

#include "runtime/ahead/build/ahead_text.h"

namespace xhat::runtime {

std::string word(std::string name);  // the name, changed if C or C++ reserve it
std::string upper(std::string text);

// An argument of a side.
struct Parameter {
  std::string name, type, what;
  TensorId tensor = 0;
  bool written = false, value = false;  // value: passed by value
  bool strided = false;                 // its strides follow it
};

struct TextSide {
  const char* name;
  const char* what;
  std::vector<Parameter> parameters;
  bool keeps() const { return std::string(name) != "infer"; }
  bool forward() const { return std::string(name) == "forward"; }
};

// Joins f(parameter) of all parameters by commas: `const float *x, float eps`.
template <class F>
std::string list(const std::vector<Parameter>& parameters, F&& f) {
  std::vector<std::string> parts;
  for (const Parameter& p : parameters) parts.push_back(f(p));
  return fmt::format("{}", fmt::join(parts, ", "));
}
inline std::string join(const std::string& a, const std::string& b) { return a.empty() ? b : b.empty() ? a : a + ", " + b; }

class Text {
 public:
  Text(const Program& p, const AheadPlans& plans, const std::string& name);
  std::string header() const;
  std::string cpp_header() const;
  std::string source() const;

 private:
  Parameter parameter(TensorId i, bool written) const;
  std::string shapes(const TextSide& side) const;
  std::string c_signature(const TextSide& side) const;
  std::string source_stash_bytes(const std::string& target) const;  // target "": the CPU
  std::string cpp_size_checks(const TextSide& side) const;
  std::string source_call(const TextSide& side, const std::string& signature, const std::string& call, bool strides) const;
  // The parameter and the argument for dims of functions that depend on sizes.
  std::string dims_parameter(const char* comma) const { return dims_.empty() ? "" : fmt::format("const {}_dims *dims{}", name_, comma); }
  std::string dims_argument() const { return dims_.empty() ? "nullptr" : "reinterpret_cast<const int64_t*>(dims)"; }

  // ahead_text_device.cpp
  TextSide on_device(const TextSide& side) const;
  std::string device_signature(const TextSide& side, const AheadDevice& d) const;
  std::string device_header(const AheadDevice& d) const;
  std::string device_cpp_header(const AheadDevice& d) const;
  std::string device_source(size_t number) const;

  const Program& p_;
  const AheadPlans& plans_;
  const AheadTable& t_;
  const std::string& name_;
  std::vector<TextSide> sides_;
  std::vector<std::string> dims_;
};

}  // namespace xhat::runtime

#include "tools/data.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>

#include <fmt/format.h>

#include "ad/common/differentiation.h"

namespace xhat::tool {
namespace {

constexpr size_t kAlignment = 64;  // a cache line, and a vector of AVX-512

double real(const std::string& text, bool& good) {
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  good = !text.empty() && *end == '\0';
  return value;
}

Array value_of(const Tensor& t, const std::string& text) {
  bool good = false;
  if (is_float(t.type)) {
    Array a = rounded(scalar_of(t.type, real(text, good)));
    if (good) return a;
  } else if (t.type == DType::boolean) {
    good = text == "true" || text == "false" || text == "0" || text == "1";
    if (good) return scalar_of(t.type, text == "true" || text == "1");
  } else {
    Array a = zeros(t.type, {});
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), a.integers[0]);
    good = !text.empty() && error == std::errc() && end == text.data() + text.size();
    if (good && wrap_to(t.type, a.integers[0]) == a.integers[0]) return a;
  }
  throw UsageError(fmt::format("--set {}: '{}' is no value of type {}", t.name, text, name_of(t.type)));
}

}  // namespace

void Buffer::Free::operator()(std::byte* p) const { std::free(p); }

Buffer::Buffer(DType type, std::vector<int64_t> shape) : type_(type), shape_(std::move(shape)) {
  bytes_ = static_cast<size_t>(element_count(shape_)) * byte_size(type_);
  if (auto edge = runtime::GuardedEngine::edge()) {
    guarded_ = std::make_unique<runtime::GuardedTensor>(bytes_, *edge, "one of the op's tensors");
    return;
  }
  size_t rounded = std::max(kAlignment, (bytes_ + kAlignment - 1) / kAlignment * kAlignment);
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
  if (!data_) throw std::bad_alloc();
  std::memset(data_.get(), 0, rounded);
}

Buffer::Buffer(const Array& values) : Buffer(to_npy(values)) {}

Buffer::Buffer(const NpyArray& values) : Buffer(values.type, values.shape) {
  if (bytes_ > 0) std::memcpy(data(), values.bytes.data(), bytes_);
}

NpyArray Buffer::npy() const { return {type_, shape_, {data(), data() + bytes_}}; }
Array Buffer::array() const { return to_array(npy()); }

std::vector<Argument> arguments_of(const Buffers& buffers) {
  std::vector<Argument> list;
  for (const auto& [name, buffer] : buffers) list.push_back({name, buffer.view()});
  return list;
}

NpyArray read_array(const Program& op, TensorId t, const std::string& path, const std::string& what) {
  NpyArray a;
  try {
    a = read_npy(path);
  } catch (const Error& e) {
    throw UsageError(e.message());
  }
  const Tensor& tensor = op.tensors[t];
  if (a.type != tensor.type)  // shown with the tensor's declaration
    throw Error(fmt::format("op {}: {} is declared {}, but {} holds {}; convert the array, or declare it so", op.name, what,
                            name_of(tensor.type), path, name_of(a.type)),
                tensor.pos);
  return a;
}

TensorId input_named(const Program& op, const std::string& name, const std::string& option) {
  auto t = op.find(name);
  if (t && std::ranges::find(op.inputs, *t) != op.inputs.end()) return *t;
  throw UsageError(
      fmt::format("{} {}: op {} has no input of that name; it has {}", option, name, op.name, fmt::join(names_of(op, op.inputs), ", ")));
}

std::optional<double> number_for(const std::string& text) {
  bool good = false;
  const double value = real(text, good);
  std::error_code unknown;
  if (!good || std::filesystem::exists(text, unknown)) return {};
  return value;
}

NpyArray filled(DType type, const std::vector<int64_t>& shape, double value) {
  Array a = zeros(type, shape);
  std::ranges::fill(a.reals, value);
  return to_npy(rounded(std::move(a)));
}

Arrays scalars_of(const Command& c, const Program& op) {
  Arrays values;
  for (const auto& [name, text] : pairs_of(c.sets, "--set")) {
    auto t = op.find(name);
    if (!t || std::ranges::find(op.inputs, *t) == op.inputs.end() || !op.tensors[*t].shape.empty()) {
      std::vector<std::string> known;
      for (TensorId i : op.inputs)
        if (op.tensors[i].shape.empty()) known.push_back(op.tensors[i].name);
      throw UsageError(fmt::format("--set {}: op {} has no scalar parameter of that name; it has {}", name,
                                   op.name,
                                   known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))));
    }
    values[name] = value_of(op.tensors[*t], text);
  }
  return values;
}

}  // namespace xhat::tool

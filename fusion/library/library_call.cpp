#include "fusion/library/library_call.h"

namespace xhat {
namespace {

std::string number(int64_t n) { return std::to_string(n); }

}  // namespace

const LibrarySide& result_of(const LibraryCall& call) {
  if (const auto* m = std::get_if<MatrixProduct>(&call)) return m->c;
  const auto& c = std::get<Convolution>(call);
  switch (c.kind) {
    case Convolution::Kind::forward: return c.output;
    case Convolution::Kind::data: return c.input;
    case Convolution::Kind::filter: return c.filter;
  }
  return c.output;
}

std::array<const LibrarySide*, 2> operands_of(const LibraryCall& call) {
  if (const auto* m = std::get_if<MatrixProduct>(&call)) return {&m->a, &m->b};
  const auto& c = std::get<Convolution>(call);
  switch (c.kind) {
    case Convolution::Kind::forward: return {&c.input, &c.filter};
    case Convolution::Kind::data: return {&c.filter, &c.output};
    case Convolution::Kind::filter: return {&c.input, &c.output};
  }
  return {};
}

int64_t flops_of(const LibraryCall& call) {
  int64_t n = 2;
  if (const auto* m = std::get_if<MatrixProduct>(&call)) {
    n *= m->rows * m->columns * m->terms;
    for (int64_t b : m->batch) n *= b;
    return n;
  }
  const auto& c = std::get<Convolution>(call);
  n *= c.images * c.groups * c.channels * c.filters;
  for (const auto& s : c.space) n *= s.output * s.filter;
  return n;
}

std::string to_text(const LibraryCall& call) {
  if (const auto* m = std::get_if<MatrixProduct>(&call)) {
    std::string text = "product " + number(m->rows) + " x " + number(m->columns) + " x " + number(m->terms);
    for (int64_t b : m->batch) text += ", " + number(b) + " times";
    return text;
  }
  const auto& c = std::get<Convolution>(call);
  constexpr const char* kKinds[] = {"convolution", "convolution by data", "convolution by filter"};
  std::string text = kKinds[static_cast<size_t>(c.kind)];
  text += " of " + number(c.images) + " images, " + number(c.channels * c.groups) + " -> " + number(c.filters * c.groups) + " channels";
  if (c.groups > 1) text += " in " + number(c.groups) + " groups";
  for (const auto& s : c.space) {
    text += ", " + number(s.input) + " by " + number(s.filter);
    if (s.pad > 0) text += " pad " + number(s.pad);
    if (s.stride > 1) text += " stride " + number(s.stride);
    if (s.dilation > 1) text += " dilation " + number(s.dilation);
    if (s.flipped) text += " flipped";
  }
  return text;
}

}  // namespace xhat

#include "runtime/explain/c_expression.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "runtime/explain/c_operations.h"

namespace xhat {
namespace {

// Functions that cost this much and more leave the loops that they do not depend on: picoseconds, as a division of ops.def.
constexpr int kWorthNaming = 60;

bool has_read(const Arena& a, Id id) { return !tensors_read(a, id).empty(); }

}  // namespace

const char* c_type(DType t) {
  switch (t) {
    case DType::f64: return "double";
    case DType::f32: return "float";
    case DType::f16: return "_Float16";
    case DType::bf16: return "bf16";
    case DType::i64: return "int64_t";
    case DType::i32: return "int32_t";
    case DType::u32: return "uint32_t";
    case DType::u8: return "uint8_t";
    case DType::boolean: return "bool";
  }
  throw Bug("unreachable dtype");
}

const char* c_arithmetic(DType t) { return t == DType::f16 || t == DType::bf16 ? "float" : c_type(t); }

// --- Names -------------------------------------------------------------------------------------------------

namespace {
std::string legal(const std::string& name) {
  static const std::set<std::string> taken = {
      "alignas",  "and",      "asm",       "auto",     "bool",     "break",    "case",     "catch",     "char",      "class",
      "const",    "continue", "default",   "delete",   "do",       "double",   "else",     "enum",      "export",    "extern",
      "false",    "float",    "for",       "friend",   "goto",     "if",       "inline",   "int",       "long",      "mutable",
      "new",      "not",      "or",        "private",  "public",   "register", "return",   "short",     "signed",    "sizeof",
      "static",   "struct",   "switch",    "this",     "throw",    "true",     "try",      "typedef",   "union",     "using",
      "virtual",  "void",     "while",     "xor",      "typeof",   "std",      "bf16",     "power",     "sigmoid",   "softplus",
      "maximum",  "minimum",  "clamped",   "larger",   "smaller",  "unsigned", "operator", "namespace", "template",  "typename",
      "INFINITY", "NAN",      "protected", "volatile", "explicit", "main",     "linux",    "unix",      "magnitude", "rectified", "erfinv", "digamma",
      "polygamma", "sinc", "logaddexp", "scaled_bessel", "shift_left", "shift_right"};
  return taken.contains(name) || name.starts_with("_") ? name + "_" : name;
}
}  // namespace

CWriter::CWriter(const Program& p, const DimValues& sizes) : p_(p), a_(*p.arena), sizes_(sizes) {
  for (const Dim& d : p.dims) taken_.insert(a_.name(d.dim));
  for (const Tensor& t : p.tensors) taken_.insert(legal(t.name));
  std::vector<Id> bodies;
  for (const Definition& d : p.definitions()) {
    bodies.push_back(d.body);
    for (const AxisRange& r : d.axes) taken_.insert(axis_name(r.axis));
  }
  for (Id axis : all_axes(a_, bodies)) taken_.insert(axis_name(axis));
}

std::string CWriter::axis_name(Id axis) const { return legal(a_.name(axis)); }
std::string CWriter::tensor_name(TensorId t) const { return legal(p_.tensor(t).name); }

std::string CWriter::fresh(const std::string& stem) {
  std::string name;
  do name = fmt::format("{}_{}", stem, ++names_);
  while (taken_.contains(name));
  return name;
}

// --- Blocks ------------------------------------------------------------------------------------------------

void CWriter::indented(Block& b, size_t depth, const std::string& text) {
  b.code += (text.empty() ? "" : std::string(2 * depth, ' ') + text) + "\n";
}

void CWriter::open(const std::string& head, std::set<Id> axes, bool conditional, bool parallel) {
  Block b;
  if (parallel) indented(b, blocks_.size(), "#pragma omp parallel for");
  indented(b, blocks_.size(), head.empty() ? "{" : head + " {");
  b.axes = std::move(axes);
  b.conditional = conditional;
  blocks_.push_back(std::move(b));
}

void CWriter::close(const std::string& tail) {
  Block b = std::move(blocks_.back());
  blocks_.pop_back();
  blocks_.back().code += b.code;
  line(tail);
}

int64_t CWriter::extent_of(const AxisRange& r) const {
  if (!a_[r.begin].free_axes().empty() || !a_[r.end].free_axes().empty()) return 0;
  return evaluate_extent(a_, r.end, sizes_) - evaluate_extent(a_, r.begin, sizes_);
}
bool CWriter::known_positive(const AxisRange& r) const { return extent_of(r) > 0; }

void CWriter::open_loop(const AxisRange& range, const LoopBounds& bounds, bool parallel) {
  auto joined = [&](Id first, const std::vector<Id>& more, const char* f) {
    std::string text = argument(first);
    for (Id id : more)
      if (id != first) text = fmt::format("{}<int64_t>({}, {})", f, text, argument(id));
    return text;
  };
  std::vector<Id> begins = bounds.begins;
  const bool zero = is_constant(a_, range.begin, 0) && !begins.empty() && never_negative(begins[0]);
  const Id first = zero ? begins[0] : range.begin;
  const std::string begin = joined(first, begins, "maximum"), name = axis_name(range.axis);
  std::string end = joined(range.end, bounds.ends, "minimum");
  if (end.find_first_of("(<[?") != std::string::npos) {
    std::string held = fresh(name + "_end");
    line(fmt::format("const int64_t {} = {};", held, end));
    end = held;
  }
  begins_[range.axis] = range.begin;
  ends_.erase(range.axis);
  if (a_[range.end].free_axes().empty()) ends_[range.axis] = evaluate_extent(a_, range.end, sizes_);
  const bool sure = bounds.begins.empty() && bounds.ends.empty() && known_positive(range);
  open(fmt::format("for (int64_t {0} = {1}; {0} < {2}; ++{0})", name, begin, end), {range.axis}, !sure, parallel);
}

size_t CWriter::open_loops(const std::vector<AxisRange>& axes, std::vector<Id> conditions) {
  size_t opened = 0;
  std::set<Id> left;  // axes whose loops are not open yet
  for (const AxisRange& r : axes) left.insert(r.axis);
  auto waits = [&](Id id) { return std::ranges::any_of(a_[id].free_axes(), [&](Id x) { return left.contains(x); }); };
  // A condition that reads may be valid only where those before it hold.
  auto take = [&](auto&& accept) {
    std::vector<Id> rest;
    for (Id c : conditions)
      if (!(rest.empty() || !has_read(a_, c)) || !accept(c)) rest.push_back(c);
    conditions = rest;
  };
  auto guard = [&] {
    take([&](Id c) {
      if (waits(c)) return false;
      open(fmt::format("if ({})", argument(c)), {}, true);
      return static_cast<bool>(++opened);
    });
  };
  guard();
  for (const AxisRange& r : axes) {
    left.erase(r.axis);
    LoopBounds bounds;
    take([&](Id c) { return !waits(c) && bound_by(a_, c, r.axis, &bounds); });
    open_loop(r, bounds);
    ++opened;
    guard();
  }
  return opened;
}

// --- Values ------------------------------------------------------------------------------------------------

void CWriter::count_uses(Id root) {
  uses_.clear();
  for (Id id : reachable(a_, root))
    for (Id x : a_[id].args()) ++uses_[x];
}

size_t CWriter::home_of(Id id) const {
  size_t b = blocks_.size() - 1;
  auto binds = [&](const Block& block) { return std::ranges::any_of(block.axes, [&](Id x) { return a_[id].depends_on(x); }); };
  while (b > 0 && !blocks_[b].conditional && !binds(blocks_[b])) --b;
  return b;
}

bool CWriter::wants_name(Id id) const {
  const Node& n = a_[id];
  if (is_reduction(n.op)) return true;
  if (n.op == Op::constant || n.op == Op::axis || n.op == Op::dim) return false;
  auto it = uses_.find(id);
  if (it != uses_.end() && it->second > 1 && (is_float(n.type) || has_read(a_, id))) return true;
  return is_float(n.type) && cost_ps(a_, n) >= kWorthNaming && home_of(id) + 1 < blocks_.size();
}

CText CWriter::value(Id id) {
  for (size_t b = blocks_.size(); b-- > 0;)
    if (auto it = blocks_[b].named.find(id); it != blocks_[b].named.end()) return it->second;
  if (!wants_name(id)) return written(id);
  const size_t home = home_of(id);
  std::vector<Block> inner(std::make_move_iterator(blocks_.begin() + static_cast<ptrdiff_t>(home) + 1),
                           std::make_move_iterator(blocks_.end()));
  blocks_.resize(home + 1);
  CText t = written(id);
  const bool is_name = t.text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string::npos;
  if (!is_name) {
    std::string name = fresh("t");
    line(fmt::format("const {} {} = {};", c_arithmetic(a_[id].type), name, t.text));
    t = {name};
  }
  blocks_.back().named[id] = t;
  std::ranges::move(inner, std::back_inserter(blocks_));
  return t;
}

std::string CWriter::argument(Id id, int precedence) {
  CText t = value(id);
  return t.precedence <= precedence ? "(" + t.text + ")" : t.text;
}

CText CWriter::apart(Id id, std::string* code) {
  Block b;
  b.conditional = true;
  blocks_.push_back(std::move(b));
  CText t = value(id);
  *code = std::move(blocks_.back().code);
  blocks_.pop_back();
  return t;
}

CText CWriter::written(Id id) {
  const Node& n = a_[id];
  switch (n.op) {
    case Op::constant: return literal(n);
    case Op::axis: return {axis_name(id)};
    case Op::dim: return {legal(a_.name(id))};
    case Op::read:
    case Op::read_or: return read(id);
    case Op::select: return select(id);
    case Op::cast: return cast(id);
    case Op::stop_gradient: return value(n.arg(0));
    default: return is_reduction(n.op) ? reduction(id) : operation(id);
  }
}

CText CWriter::literal(const Node& n) const {
  if (n.type == DType::boolean) return {n.integer ? "true" : "false"};
  if (!is_float(n.type)) {
    if (n.integer == INT64_MIN) return {"INT64_MIN"};
    return {std::to_string(n.integer), n.integer < 0 ? kUnary : 20};
  }
  const double v = n.type == DType::f64 ? n.value : round_to(n.type, n.value);
  if (std::isnan(v)) return {n.type == DType::f64 ? "double(NAN)" : "NAN"};
  if (std::isinf(v)) return {std::string(v < 0 ? "-" : "") + (n.type == DType::f64 ? "double(INFINITY)" : "INFINITY"), v < 0 ? kUnary : 20};
  std::string text = n.type == DType::f64 ? fmt::format("{}", v) : fmt::format("{}", static_cast<float>(v));
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return {n.type == DType::f64 ? text : text + "f", std::signbit(v) ? kUnary : 20};
}

std::string CWriter::place(TensorId t, const std::vector<std::string>& indices) const {
  const Tensor& tensor = p_.tensor(t);
  std::string at;
  for (size_t k = 0; k < indices.size(); ++k) {
    if (k == 0)
      at = indices[k];
    else {
      const bool sum = at.find(' ') != std::string::npos;
      at = fmt::format("{}{}{} * {} + {}", sum ? "(" : "", at, sum ? ")" : "", evaluate_extent(a_, tensor.shape[k], sizes_), indices[k]);
    }
  }
  return fmt::format("{}[{}]", tensor_name(t), at.empty() ? "0" : at);
}

CText CWriter::read(Id id) {
  const Node& n = a_[id];
  std::vector<std::string> indices;
  std::string inside;
  for (size_t k = 0; k < read_indices(n).size(); ++k) {
    const Id index = n.arg(k);
    std::string text = argument(index, kEqual);
    if (n.op == Op::read_or) {
      if (has_read(a_, index)) {
        std::string name = fresh("at");
        line(fmt::format("const int64_t {} = {};", name, text));
        text = name;
      }
      const int64_t extent = evaluate_extent(a_, p_.tensor(n.symbol).shape[k], sizes_);
      if (!never_negative(index)) inside += fmt::format("{}0 <= {}", inside.empty() ? "" : " && ", text);
      auto it = ends_.find(index);
      if (it == ends_.end() || it->second > extent) inside += fmt::format("{}{} < {}", inside.empty() ? "" : " && ", text, extent);
    }
    indices.push_back(text);
  }
  std::string at = place(n.symbol, indices);
  if (n.type == DType::f16 || n.type == DType::bf16) at = "float(" + at + ")";
  if (n.op == Op::read || inside.empty()) return {at};
  std::string code;
  CText otherwise = apart(n.args().back(), &code);
  if (code.empty()) return {fmt::format("{} ? {} : {}", inside, at, otherwise.text), kTernary};
  const std::string name = fresh("t");
  line(fmt::format("{} {};", c_arithmetic(n.type), name));
  line(fmt::format("if ({}) {{ {} = {}; }} else {{", inside, name, at));
  blocks_.back().code += code;
  line(fmt::format("  {} = {}; }}", name, otherwise.text));
  return {name};
}

CText CWriter::select(Id id) {
  const Node& n = a_[id];
  const std::string condition = argument(n.arg(0), kTernary);
  std::string then_code, else_code;
  CText then = apart(n.arg(1), &then_code), otherwise = apart(n.arg(2), &else_code);
  const char* type = c_arithmetic(n.type);
  if (then_code.empty() && else_code.empty())
    return {fmt::format("{} ? {}({}) : {}({})", condition, type, then.text, type, otherwise.text), kTernary};
  const std::string name = fresh("t");
  line(fmt::format("{} {};", type, name));
  line(fmt::format("if ({}) {{", condition));
  blocks_.back().code += then_code;
  line(fmt::format("  {} = {};", name, then.text));
  line("} else {");
  blocks_.back().code += else_code;
  line(fmt::format("  {} = {};", name, otherwise.text));
  line("}");
  return {name};
}

CText CWriter::cast(Id id) {
  const Node& n = a_[id];
  const DType from = a_[n.arg(0)].type;
  if (n.type == DType::boolean) return {argument(n.arg(0), kEqual) + " != 0", kEqual};
  if (is_integer(n.type) && is_float(from)) return {fmt::format("to_integer<{}>({})", c_type(n.type), argument(n.arg(0)))};
  const bool narrow = n.type == DType::f16 || n.type == DType::bf16;
  std::string text = fmt::format("{}({})", c_type(n.type), argument(n.arg(0)));
  return {narrow ? "float(" + text + ")" : text};
}

bool CWriter::never_negative(Id id) const {
  const Node& n = a_[id];
  if (n.op == Op::constant) return is_integer(n.type) && n.integer >= 0;
  if (n.op == Op::dim) return true;
  if (n.op == Op::axis) {
    auto it = begins_.find(id);
    return it != begins_.end() && never_negative(it->second);
  }
  if (n.op == Op::maximum) return never_negative(n.arg(0)) || never_negative(n.arg(1));
  if (n.op == Op::cast) return is_integer(a_[n.arg(0)].type) && never_negative(n.arg(0));
  if (n.op == Op::add || n.op == Op::mul || n.op == Op::div || n.op == Op::mod || n.op == Op::minimum)
    return never_negative(n.arg(0)) && never_negative(n.arg(1));
  return false;
}

CText CWriter::operation(Id id) {
  const Node& n = a_[id];
  const bool floats = is_float(a_[n.arg(0)].type);
  const COperation& row = c_operation(n.op);
  if (n.op == Op::pow && floats)
    if (auto k = whole_power(a_, n)) return {fmt::format("power<{}, {}>({})", *k, c_arithmetic(n.type), argument(n.arg(0)))};
  // Index arithmetic is small and seldom negative: C's own operators.
  bool plain = floats || !row.integer || a_[n.arg(0)].type == DType::boolean;
  const bool quotient = n.op == Op::div || n.op == Op::mod;
  if (!plain && n.type == DType::i64 && !has_read(a_, id) && n.op != Op::pow && n.op != Op::abs)
    plain = !quotient || (never_negative(n.arg(0)) && a_[n.arg(1)].op == Op::constant && a_[n.arg(1)].integer > 0);
  const std::string pattern = plain ? (quotient && !floats && n.op == Op::mod ? "{0} % {1}" : row.real) : row.integer;
  const int precedence = !plain ? 20 : n.op == Op::mod && !floats ? int{kProduct} : row.precedence;
  // The left operand may have the same precedence.
  std::array<std::string, 3> x;
  const bool infix = pattern.starts_with("{0} ");
  for (size_t k = 0; k < n.arg_count; ++k) x[k] = argument(n.arg(k), precedence == 20 ? 0 : infix && k == 0 ? precedence - 1 : precedence);
  return {fmt::format(fmt::runtime(pattern), x[0], x[1], x[2], fmt::arg("T", c_arithmetic(a_[n.arg(0)].type))), precedence};
}

// --- Reductions --------------------------------------------------------------------------------------------

DType CWriter::accumulator(const Node& n) const {
  const DType type = a_[reduce_body(n)].type;
  return n.op == Op::sum || n.op == Op::prod ? accumulator_of(type) : n.op == Op::any || n.op == Op::all ? DType::boolean : type;
}

std::string CWriter::start_of(const Node& n) const {
  const DType type = accumulator(n);
  const bool extreme = n.op == Op::max || n.op == Op::min;
  if (type == DType::boolean) return n.op == Op::all ? "true" : "false";
  if (!is_float(type)) {
    if (!extreme) return n.op == Op::prod ? "1" : "0";
    const bool low = n.op == Op::max;
    switch (type) {
      case DType::i64: return low ? "INT64_MIN" : "INT64_MAX";
      case DType::i32: return low ? "INT32_MIN" : "INT32_MAX";
      default: return low ? "0" : type == DType::u8 ? "255" : "UINT32_MAX";
    }
  }
  return n.op == Op::prod ? "1" : n.op == Op::max ? "-INFINITY" : n.op == Op::min ? "INFINITY" : "0";
}

std::string CWriter::step_of(const Node& n, const std::string& sum, const CText& term) const {
  const char* type = c_arithmetic(accumulator(n));
  const bool floats = is_float(accumulator(n));
  switch (n.op) {
    case Op::sum:
      return floats ? fmt::format("{} += {};", sum, term.text) : fmt::format("{0} = wrap_add<{1}>({0}, {2});", sum, type, term.text);
    case Op::prod:
      return floats ? fmt::format("{} *= {};", sum, term.text) : fmt::format("{0} = wrap_mul<{1}>({0}, {2});", sum, type, term.text);
    case Op::max: return fmt::format("{0} = maximum<{1}>({0}, {2});", sum, type, term.text);
    case Op::min: return fmt::format("{0} = minimum<{1}>({0}, {2});", sum, type, term.text);
    case Op::any: return fmt::format("{} |= {};", sum, term.precedence <= kOr ? "(" + term.text + ")" : term.text);
    case Op::all: return fmt::format("{} &= {};", sum, term.precedence <= kOr ? "(" + term.text + ")" : term.text);
    default: throw Bug("step_of() of something else than a reduction");
  }
}

CText CWriter::reduction(Id id) {
  const Node& n = a_[id];
  const std::vector<AxisRange> axes = reduce_axes(n);
  const bool place = n.op == Op::argmax || n.op == Op::argmin;
  const std::string sum = fresh(std::string(info(n.op).text)), best = place ? fresh("best") : "";
  const char* type = c_arithmetic(a_[reduce_body(n)].type);
  if (place) {
    line(fmt::format("int64_t {} = -1;", sum));
    line(fmt::format("{} {} = 0;", type, best));
  } else {
    line(fmt::format("{} {} = {};", c_arithmetic(accumulator(n)), sum, start_of(n)));
  }
  const size_t opened = open_loops(axes, conjuncts_of(a_, reduce_condition(n)));
  CText term = value(reduce_body(n));
  if (place) {
    const std::string held = fresh("t");
    line(fmt::format("const {} {} = {};", type, held, term.text));
    line(fmt::format("if ({0} < 0 || {1}<{2}>({3}, {4})) {4} = {3}, {0} = {5};", sum, n.op == Op::argmax ? "larger" : "smaller", type, held,
                     best, axis_name(axes[0].axis)));
  } else {
    line(step_of(n, sum, term));
  }
  for (size_t k = 0; k < opened; ++k) close();
  return {sum};
}

}  // namespace xhat

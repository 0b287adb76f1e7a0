#include "runtime/ahead_text.h"

#include <algorithm>
#include <cctype>
#include <set>

#include <fmt/format.h>

namespace xhat::runtime {
namespace {

// Also what the generated functions call their own.
const std::set<std::string, std::less<>> kTaken = {
    "alignas", "alignof", "and", "asm", "auto", "bool", "break", "case", "catch", "char", "class", "const", "constexpr", "continue",
    "default", "delete", "do", "double", "else", "enum", "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if",
    "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "not", "nullptr", "operator", "or", "private", "protected",
    "public", "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "template", "this", "throw",
    "true", "try", "typedef", "typename", "union", "unsigned", "using", "virtual", "void", "volatile", "while", "xor", "linux", "unix",
    "I", "dims", "stash", "library", "tensors", "erased", "check", "check_size", "array", "std"};

std::string word(std::string name) { return kTaken.contains(name) ? name + "_" : name; }

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

const char* c_type(DType t) {
  switch (t) {
    case DType::f64: return "double";
    case DType::f32: return "float";
    case DType::f16:
    case DType::bf16: return "uint16_t";
    case DType::i64: return "int64_t";
    case DType::i32: return "int32_t";
    case DType::u32: return "uint32_t";
    case DType::u8:
    case DType::boolean: return "uint8_t";
  }
  return "";
}

// An argument of a side.
struct Parameter {
  std::string name, type, what;
  TensorId tensor = 0;
  bool written = false, value = false;  // value: passed by value
};

struct Side {
  const char* name;
  const char* what;
  std::vector<Parameter> parameters;
};

// Side by side: `const float *x, float eps`, and so on.
template <class F>
std::string list(const std::vector<Parameter>& parameters, F&& f) {
  std::vector<std::string> parts;
  for (const Parameter& p : parameters) parts.push_back(f(p));
  return fmt::format("{}", fmt::join(parts, ", "));
}

class Text {
 public:
  Text(const Program& p, const AheadPlans& plans, const std::string& name) : p_(p), plans_(plans), t_(plans.table), name_(name) {
    static constexpr const char* kSides[][2] = {{"infer", "The outputs, from the inputs."},
                                                {"forward", "The outputs, and the stash that backward will read."},
                                                {"backward", "The gradients. Those that nobody wants may be null."}};
    for (size_t s = 0; s < t_.sides.size(); ++s) {
      Side side{kSides[s][0], kSides[s][1], {}};
      for (int64_t i : t_.sides[s].inputs) side.parameters.push_back(parameter(static_cast<TensorId>(i), false));
      for (int64_t i : t_.sides[s].outputs) side.parameters.push_back(parameter(static_cast<TensorId>(i), true));
      sides_.push_back(std::move(side));
    }
    for (const AheadDim& d : t_.dims)
      if (d.definition.empty()) dims_.push_back(d.name);
  }

  std::string header() const;
  std::string cpp_header() const;
  std::string source() const;

 private:
  Parameter parameter(TensorId i, bool written) const {
    const Tensor& t = p_.tensors[i];
    Parameter made{word(t.name), c_type(t.type), "", i, written, !written && t.shape.empty()};
    std::vector<std::string> extents;
    for (Id e : t.shape) extents.push_back(print(p_, e));
    made.what = t.shape.empty() ? std::string(name_of(t.type)) : fmt::format("{}[{}]", name_of(t.type), fmt::join(extents, ", "));
    return made;
  }
  std::string shapes(const Side& side) const {
    size_t width = 0;
    for (const Parameter& p : side.parameters) width = std::max(width, p.name.size());
    std::string text;
    for (const Parameter& p : side.parameters) text += fmt::format(" *   {:{}}  {}{}\n", p.name, width, p.what, p.written ? ", written" : "");
    return text;
  }
  bool keeps(const Side& side) const { return std::string(side.name) != "infer"; }
  std::string c_signature(const Side& side) const {
    std::string parameters = list(side.parameters, [](const Parameter& p) {
      return fmt::format("{}{} {}{}", p.written || p.value ? "" : "const ", p.type, p.value ? "" : "*", p.name);
    });
    if (!dims_.empty()) parameters = fmt::format("const {}_dims *dims{}{}", name_, parameters.empty() ? "" : ", ", parameters);
    if (keeps(side)) parameters += side.name == std::string("forward") ? ", void *stash" : ", const void *stash";
    return fmt::format("int {}_{}({})", name_, side.name, parameters.empty() ? "void" : parameters);
  }
  // The dims that functions about sizes take.
  std::string dims_parameter(const char* comma) const { return dims_.empty() ? "" : fmt::format("const {}_dims *dims{}", name_, comma); }
  std::string dims_argument() const { return dims_.empty() ? "nullptr" : "reinterpret_cast<const int64_t*>(dims)"; }

  const Program& p_;
  const AheadPlans& plans_;
  const AheadTable& t_;
  const std::string& name_;
  std::vector<Side> sides_;
  std::vector<std::string> dims_;
};

std::string Text::header() const {
  std::string up = upper(name_), requirements, levels;
  for (const AheadCondition& c : t_.preconditions) requirements += fmt::format(" *            - {}\n", c.reason);
  for (CpuLevel l : t_.levels) levels += fmt::format("{}{}", levels.empty() ? "" : ", ", name_of(l));
  bool with_stash = sides_.size() > 1;
  std::string s = fmt::format(R"(/* The op {0}, compiled ahead of time by xhat {1}. Generated: changes are lost.
 *
 * Arrays     Dense and row-major: the last dimension is the fastest. Aligned to their elements; 64 bytes are faster. A bool is a
 *            byte, 0 or 1; f16 and bf16 are given as their bits. Arrays without elements may be null. Scalars that are read are
 *            passed by value.
 * Aliasing   What is written overlaps nothing else of the same call. What is read may overlap.
 * Sizes      Compiled for {2}. All others are refused.
{3} * Errors     A status is returned; {0}_message() says what is wrong, for the last call of this thread that failed. Arguments, sizes
 *            and indices in the data are checked before anything is written.
 * Threads    Any number of threads may call at once; the calls share one pool of threads ({0}_set_threads), as do all such
 *            libraries of a program.
 * Processor  Code for {4}: the best that runs here is chosen at the first call. XHAT_CPU_LEVEL in the environment asks for one.
 *            Levels may differ in the last bits of results; a level gives the same bits on all processors and for any number of
 *            threads.
 * Linking    lib{0}.a, the C++ standard library and threads, as in: cc main.c lib{0}.a -lstdc++ -lm -lpthread
 */
#ifndef XHAT_OP_{5}_H
#define XHAT_OP_{5}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

)",
                              name_, XHAT_VERSION, t_.known_sizes.empty() ? "fixed sizes" : t_.known_sizes,
                              requirements.empty() ? "" : " *            The op also needs:\n" + requirements, levels, up);
  if (!dims_.empty()) {
    s += fmt::format("typedef struct {}_dims {{\n", name_);
    for (const std::string& d : dims_) s += fmt::format("  int64_t {};\n", word(d));
    s += fmt::format("}} {}_dims;\n\n", name_);
  }
  s += fmt::format(R"(enum {{
  {0}_OK = 0,
  {0}_BAD_ARGUMENT = 1, /* a null or misaligned pointer, memory that overlaps, a stash of another call */
  {0}_BAD_SIZE = 2,     /* sizes that the op cannot have, or that it was not compiled for */
  {0}_BAD_DATA = 3,     /* an index in the data is out of range */
  {0}_NO_MEMORY = 4,
  {0}_BAD_CPU = 5,      /* no code for this processor, or for what XHAT_CPU_LEVEL asks for */
  {0}_INTERNAL = 6
}};

)",
                   up);
  for (const Side& side : sides_) s += fmt::format("/* {}\n *\n{} */\n{};\n\n", side.what, shapes(side), c_signature(side));
  if (with_stash)
    s += fmt::format(R"(/* Bytes of the stash: one block of memory of the caller's, aligned to 16 bytes (64 are faster), that forward writes and backward
 * reads, any number of times. 0 if the sizes are wrong. */
size_t {0}_stash_bytes({1});

)",
                     name_, dims_.empty() ? "void" : dims_parameter(""));
  s += fmt::format(R"(/* Elements of the array of that name at these sizes; -1 if the sizes are wrong or there is none. */
int64_t {0}_elements({1}const char *tensor);

/* What was wrong with the last call of this thread that failed. Valid until the next one fails. */
const char *{0}_message(void);

/* Threads that calls run on; 0: one per core, which is so at the start. Waits for nobody. */
int {0}_set_threads(int threads);

/* The processor level that is used: {2}. Empty if there is none. */
const char *{0}_cpu_level(void);

#ifdef __cplusplus
}}
#endif

#endif
)",
                   name_, dims_parameter(", "), levels);
  return s;
}

// What all C++ headers share; the first one that is included has it.
constexpr const char* kShared = R"(#ifndef XHAT_OPS_SHARED
#define XHAT_OPS_SHARED
namespace xhat_ops {

class error : public std::runtime_error {
 public:
  error(int status, const std::string& message) : std::runtime_error(message), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

// Memory of an array: of a std::vector, std::span or std::array, of an Eigen matrix, array, map or tensor in row-major order, or of
// a pointer and a number of elements. array<const T> is read.
template <class T>
class array {
 public:
  array(std::nullptr_t) {}  // a gradient that nobody wants
  array(T* data, std::size_t size) : data_(data), size_(static_cast<std::int64_t>(size)) {}
  template <class A>
    requires(!std::is_same_v<std::remove_cvref_t<A>, array> && requires(A& a) {
      { a.data() } -> std::convertible_to<T*>;
      { a.size() } -> std::convertible_to<std::int64_t>;
    })
  array(A&& a) : data_(a.data()), size_(static_cast<std::int64_t>(a.size())) {
    using X = std::remove_cvref_t<A>;
    if constexpr (requires { X::IsRowMajor; X::IsVectorAtCompileTime; }) {  // Eigen's matrices and arrays
      static_assert(X::IsRowMajor || X::IsVectorAtCompileTime, "arrays are row-major: say Eigen::RowMajor");
      if constexpr (requires { a.outerStride(); })
        if (size_ > 0 && (a.innerStride() != 1 || (a.outerSize() > 1 && a.outerStride() != a.innerSize())))
          throw error(1, "an Eigen map or block has gaps; arrays are dense: copy it into a matrix first");
    } else if constexpr (requires { X::Layout; }) {  // Eigen's tensors
      static_assert(int(X::Layout) == 1, "arrays are row-major: say Eigen::RowMajor");
    }
  }
  T* data() const { return data_; }
  std::int64_t size() const { return size_; }

 private:
  T* data_ = nullptr;
  std::int64_t size_ = -1;  // -1: none
};

}  // namespace xhat_ops
#endif
)";

std::string Text::cpp_header() const {
  std::string up = upper(name_), d = dims_.empty() ? "" : "&dims";
  std::string s = fmt::format(R"(// The op {0} for C++20, compiled ahead of time by xhat {1}. Generated: changes are lost. What {0}.h says holds; here
// arrays know their number of elements, which is checked, and what goes wrong is thrown as xhat_ops::error.
#ifndef XHAT_OP_{2}_HPP
#define XHAT_OP_{2}_HPP

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "{0}.h"

{3}
namespace xhat_ops::{4} {{

)",
                              name_, XHAT_VERSION, up, kShared, word(name_));
  if (!dims_.empty()) s += fmt::format("using dims_type = ::{}_dims;\n\n", name_);
  s += fmt::format(R"(inline void check(int status) {{
  if (status != {1}_OK) throw error(status, ::{0}_message());
}}

inline void check_size({2}const char* tensor, std::int64_t size) {{
  std::int64_t wanted = ::{0}_elements({3}tensor);
  if (wanted < 0) throw error({1}_BAD_SIZE, ::{0}_message());
  if (size >= 0 && size != wanted)
    throw error({1}_BAD_ARGUMENT, std::string("{0}: ") + tensor + " has " + std::to_string(size) + " elements, but needs " + std::to_string(wanted));
}}

)",
                   name_, up, dims_.empty() ? "" : "const dims_type& dims, ", dims_.empty() ? "" : "&dims, ");
  if (sides_.size() > 1)
    s += fmt::format(R"(// What forward keeps for backward. May be used again, for other sizes too.
class stash_type {{
 public:
  void* reserve(std::size_t bytes) {{
    if (bytes == 0) throw error({1}_BAD_SIZE, ::{0}_message());
    if (bytes > bytes_) {{
      block_.reset(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
      bytes_ = block_ ? bytes : 0;
      if (!block_) throw error({1}_NO_MEMORY, "{0}: out of memory: " + std::to_string(bytes) + " bytes for the stash");
    }}
    return block_.get();
  }}
  const void* data() const {{ return block_.get(); }}
  std::size_t bytes() const {{ return bytes_; }}

 private:
  struct Free {{
    void operator()(void* p) const {{ std::free(p); }}
  }};
  std::unique_ptr<void, Free> block_;
  std::size_t bytes_ = 0;
}};

)",
                     name_, up);
  for (const Side& side : sides_) {
    std::string parameters = list(side.parameters, [](const Parameter& p) {
      if (p.value) return fmt::format("{} {}", p.type, p.name);
      return fmt::format("array<{}{}> {}", p.written ? "" : "const ", p.type, p.name);
    });
    std::string arguments = list(side.parameters, [](const Parameter& p) { return p.value ? p.name : p.name + ".data()"; });
    auto join = [](std::string a, const std::string& b) { return a.empty() ? b : b.empty() ? a : a + ", " + b; };
    std::string first = dims_.empty() ? "" : "const dims_type& dims";
    bool forward = std::string(side.name) == "forward";
    std::string stash = !keeps(side) ? "" : forward ? "stash_type& stash" : "const stash_type& stash";
    s += fmt::format("// {}\n//\n", side.what);
    for (const Parameter& p : side.parameters) s += fmt::format("//   {}: {}{}\n", p.name, p.what, p.written ? ", written" : "");
    s += fmt::format("inline void {}({}) {{\n", side.name, join(first, join(parameters, stash)));
    for (const Parameter& p : side.parameters)
      if (!p.value) s += fmt::format("  check_size({}\"{}\", {}.size());\n", dims_.empty() ? "" : "dims, ", p_.tensors[p.tensor].name, p.name);
    std::string block = !keeps(side) ? "" : forward ? fmt::format("stash.reserve(::{}_stash_bytes({}))", name_, d) : "stash.data()";
    s += fmt::format("  check(::{}_{}({}));\n}}\n\n", name_, side.name, join(d, join(arguments, block)));
  }
  return s + fmt::format("}}  // namespace xhat_ops::{}\n\n#endif\n", word(name_));
}

std::string Text::source() const {
  ByteWriter writer;
  AheadTable table = t_;
  transfer_table(writer, table);
  std::string bytes;
  for (size_t i = 0; i < writer.bytes.size(); ++i) bytes += fmt::format("{}{}", writer.bytes[i], i % 32 == 31 ? ",\n" : ",");
  std::string declared, tiles;
  for (CpuLevel level : t_.levels)
    for (size_t c = 0; c < plans_.kernels.size(); ++c) {
      std::string symbol = tile_symbol(name_, level, c) + "_argv";
      declared += fmt::format("int {}(void**);\n", symbol);
      tiles += symbol + ", ";
    }
  std::string s = fmt::format(R"(// Generated by xhat build.
#include "{0}.h"

extern "C" {{
struct xhat_ahead_library {{
  int64_t format;
  const uint8_t* table;
  int (*const* tiles)(void**);
  int64_t codes;
  void* opened;
}};
int xhat_ahead_call(xhat_ahead_library*, int, const int64_t*, void* const*, void*);
int xhat_ahead_stash_bytes(xhat_ahead_library*, const int64_t*, int64_t*);
int64_t xhat_ahead_elements(xhat_ahead_library*, const int64_t*, const char*);
const char* xhat_ahead_message(void);
int xhat_ahead_set_threads(int);
const char* xhat_ahead_level(xhat_ahead_library*);
{1}}}

namespace {{
const uint8_t table[] = {{
{2}}};
int (*const tiles[])(void**) = {{{3}nullptr}};
xhat_ahead_library library = {{{4}, table, tiles, {5}, nullptr}};
template <class T>
void* erased(T* p) {{
  return const_cast<void*>(static_cast<const void*>(p));
}}
}}  // namespace

extern "C" {{
)",
                              name_, declared, bytes, tiles, kAheadFormat, plans_.kernels.size());
  for (size_t i = 0; i < sides_.size(); ++i) {
    const Side& side = sides_[i];
    std::string arguments;
    for (const Parameter& p : side.parameters) arguments += fmt::format("erased({}{}), ", p.value ? "&" : "", p.name);
    s += fmt::format("{} {{\n  void* tensors[] = {{{}nullptr}};\n", c_signature(side), arguments);
    s += fmt::format("  return xhat_ahead_call(&library, {}, {}, tensors, {});\n}}\n", i, dims_argument(), keeps(side) ? "const_cast<void*>(stash)" : "nullptr");
  }
  if (sides_.size() > 1)
    s += fmt::format("size_t {}_stash_bytes({}) {{\n  int64_t bytes = 0;\n  return xhat_ahead_stash_bytes(&library, {}, &bytes) == 0 ? static_cast<size_t>(bytes) : 0;\n}}\n",
                     name_, dims_parameter(""), dims_argument());
  s += fmt::format(R"(int64_t {0}_elements({1}const char* tensor) {{ return xhat_ahead_elements(&library, {2}, tensor); }}
const char* {0}_message(void) {{ return xhat_ahead_message(); }}
int {0}_set_threads(int threads) {{ return xhat_ahead_set_threads(threads); }}
const char* {0}_cpu_level(void) {{ return xhat_ahead_level(&library); }}
}}
)",
                   name_, dims_parameter(", "), dims_argument());
  return s;
}

}  // namespace

std::string tile_symbol(const std::string& name, CpuLevel level, size_t code) {
  return fmt::format("xhat_{}_{}_{}", name, name_of(level), code);
}

AheadTexts ahead_texts(const Program& p, const AheadPlans& plans, const std::string& name) {
  Text t(p, plans, name);
  return {t.header(), t.cpp_header(), t.source()};
}

}  // namespace xhat::runtime

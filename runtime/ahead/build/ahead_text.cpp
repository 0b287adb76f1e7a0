#include "runtime/ahead/build/ahead_text.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "runtime/ahead/build/ahead_text_parts.h"

namespace xhat::runtime {
namespace {

// Keywords of C and C++, and names that the generated functions use.
const std::set<std::string, std::less<>> kTaken = {
    "alignas",    "alignof",   "and",         "asm",      "auto",    "bool",     "break",  "case",    "catch",     "char",     "class",
    "const",      "constexpr", "continue",    "default",  "delete",  "do",       "double", "else",    "enum",      "explicit", "export",
    "extern",     "false",     "float",       "for",      "friend",  "goto",     "if",     "inline",  "int",       "long",     "mutable",
    "namespace",  "new",       "noexcept",    "not",      "nullptr", "operator", "or",     "private", "protected", "public",   "register",
    "restrict",   "return",    "short",       "signed",   "sizeof",  "static",   "struct", "switch",  "template",  "this",     "throw",
    "true",       "try",       "typedef",     "typename", "union",   "unsigned", "using",  "virtual", "void",      "volatile", "while",
    "xor",        "linux",     "unix",        "I",        "dims",    "stash",    "stream", "library", "tensors",   "erased",   "check",
    "check_size", "array",     "device_span", "cuda",     "opencl",  "std"};

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

}  // namespace

std::string word(std::string name) { return kTaken.contains(name) ? name + "_" : name; }

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

Text::Text(const Program& p, const AheadPlans& plans, const std::string& name) : p_(p), plans_(plans), t_(plans.table), name_(name) {
  static constexpr const char* kSides[][2] = {{"infer", "The outputs, from the inputs."},
                                              {"forward", "The outputs, and the stash that backward will read."},
                                              {"backward", "The gradients. Those that nobody wants may be null."}};
  for (size_t s = 0; s < t_.sides.size(); ++s) {
    TextSide side{kSides[s][0], kSides[s][1], {}};
    for (int64_t i : t_.sides[s].inputs) side.parameters.push_back(parameter(static_cast<TensorId>(i), false));
    for (int64_t i : t_.sides[s].outputs) side.parameters.push_back(parameter(static_cast<TensorId>(i), true));
    sides_.push_back(std::move(side));
  }
  for (const AheadDim& d : t_.dims)
    if (d.definition.empty()) dims_.push_back(d.name);
}

Parameter Text::parameter(TensorId i, bool written) const {
  const Tensor& t = p_.tensors[i];
  const bool strided = std::ranges::find(t_.strided, static_cast<int64_t>(i)) != t_.strided.end();
  Parameter made{word(t.name), c_type(t.type), "", i, written, !written && t.shape.empty(), strided};
  std::vector<std::string> extents;
  for (Id e : t.shape) extents.push_back(print(p_, e));
  made.what = t.shape.empty() ? std::string(name_of(t.type)) : fmt::format("{}[{}]", name_of(t.type), fmt::join(extents, ", "));
  return made;
}

std::string Text::shapes(const TextSide& side) const {
  size_t width = 0;
  for (const Parameter& p : side.parameters) width = std::max(width, p.name.size());
  std::string text;
  for (const Parameter& p : side.parameters) text += fmt::format(" *   {:{}}  {}{}\n", p.name, width, p.what, p.written ? ", written" : "");
  return text;
}

std::string Text::c_signature(const TextSide& side) const {
  std::string parameters = list(side.parameters, [](const Parameter& p) {
    const std::string strides = p.strided ? fmt::format(", const int64_t *{}_strides", p.name) : "";
    return fmt::format("{}{} {}{}{}", p.written || p.value ? "" : "const ", p.type, p.value ? "" : "*", p.name, strides);
  });
  if (!dims_.empty()) parameters = fmt::format("const {}_dims *dims{}{}", name_, parameters.empty() ? "" : ", ", parameters);
  if (side.keeps()) parameters += side.forward() ? ", void *stash" : ", const void *stash";
  return fmt::format("int {}_{}({})", name_, side.name, parameters.empty() ? "void" : parameters);
}

namespace {

constexpr const char* kDeviceStatuses = R"(,
  {0}_NO_DEVICE = 7,    /* no driver, or no device */
  {0}_BAD_POINTER = 8,  /* memory of the host, of another device or of another context */
  {0}_DEVICE_FAILED = 9 /* what the driver says; a stream that is being captured before a first call */)";

constexpr const char* kStrides =
    R"( * Strides    Where an array is followed by its strides, it may have gaps or be transposed: a number for each dimension, in elements,
 *            the slowest first; null means dense. Rows without gaps (a last stride of 1) are faster.
)";

}  // namespace

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
{6} * Aliasing   What is written overlaps nothing else of the same call. What is read may overlap.
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
                              requirements.empty() ? "" : " *            The op also needs:\n" + requirements, levels, up,
                              t_.strided.empty() ? "" : kStrides);
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
  {0}_INTERNAL = 6{1}
}};

)",
                   up, t_.devices.empty() ? "" : fmt::format(kDeviceStatuses, up));
  for (const TextSide& side : sides_) s += fmt::format("/* {}\n *\n{} */\n{};\n\n", side.what, shapes(side), c_signature(side));
  if (with_stash)
    s += fmt::format(
        R"(/* Bytes of the stash: one block of memory of the caller's, aligned to 16 bytes (64 are faster), that forward writes and backward
 * reads, any number of times. 0 if the sizes are wrong.{2} */
size_t {0}_stash_bytes({1});

)",
        name_, dims_.empty() ? "void" : dims_parameter(""),
        plans_.stash_sizes.empty()
            ? ""
            : fmt::format(" What is kept was chosen as for\n * {}, whatever the sizes of the call.", plans_.stash_sizes));
  s += fmt::format(R"(/* Elements of the array of that name at these sizes; -1 if the sizes are wrong or there is none. */
int64_t {0}_elements({1}const char *tensor);

/* What was wrong with the last call of this thread that failed. Valid until the next one fails. */
const char *{0}_message(void);

/* Threads that calls run on; 0: one per core, which is so at the start. Waits for nobody. */
int {0}_set_threads(int threads);

/* The processor level that is used: {2}. Empty if there is none. */
const char *{0}_cpu_level(void);

)",
                   name_, dims_parameter(", "), levels);
  for (const AheadDevice& d : t_.devices) s += device_header(d);
  return s + "#ifdef __cplusplus\n}\n#endif\n\n#endif\n";
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
int xhat_ahead_call(xhat_ahead_library*, int, const int64_t*, void* const*, const int64_t* const*, void*);
int xhat_ahead_stash_bytes(xhat_ahead_library*, const int64_t*, int64_t*);
int64_t xhat_ahead_elements(xhat_ahead_library*, const int64_t*, const char*);
int xhat_ahead_device_call(xhat_ahead_library*, int, int, const int64_t*, void*, void* const*, void*);
int xhat_ahead_device_stash_bytes(xhat_ahead_library*, const int64_t*, int64_t*);
int xhat_ahead_device_trust_data(xhat_ahead_library*, int, int);
int xhat_ahead_device_release(xhat_ahead_library*, int, void*);
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
  for (size_t i = 0; i < sides_.size(); ++i)
    s += source_call(sides_[i], c_signature(sides_[i]), fmt::format("xhat_ahead_call(&library, {}, {}", i, dims_argument()), true);
  if (sides_.size() > 1) s += source_stash_bytes("");
  s += fmt::format(R"(int64_t {0}_elements({1}const char* tensor) {{ return xhat_ahead_elements(&library, {2}, tensor); }}
const char* {0}_message(void) {{ return xhat_ahead_message(); }}
int {0}_set_threads(int threads) {{ return xhat_ahead_set_threads(threads); }}
const char* {0}_cpu_level(void) {{ return xhat_ahead_level(&library); }}
)",
                   name_, dims_parameter(", "), dims_argument());
  for (size_t i = 0; i < t_.devices.size(); ++i) s += device_source(i);
  return s + "}\n";
}

std::string Text::source_stash_bytes(const std::string& target) const {
  return fmt::format(R"(size_t {0}{1}_stash_bytes({2}) {{
  int64_t bytes = 0;
  return xhat_ahead{3}_stash_bytes(&library, {4}, &bytes) == 0 ? static_cast<size_t>(bytes) : 0;
}}
)",
                     name_, target.empty() ? "" : "_" + target, dims_parameter(""), target.empty() ? "" : "_device", dims_argument());
}

// call: the text of the call up to the argument before the tensors.
// strides: does the function that is called take any?
std::string Text::source_call(const TextSide& side, const std::string& signature, const std::string& call, bool strides) const {
  std::string arguments, given;
  for (const Parameter& p : side.parameters) {
    arguments += fmt::format("erased({}{}), ", p.value ? "&" : "", p.name);
    given += p.strided ? p.name + "_strides, " : "nullptr, ";
  }
  const bool some = std::ranges::any_of(side.parameters, [](const Parameter& p) { return p.strided; });
  std::string text = fmt::format("{} {{\n  void* tensors[] = {{{}nullptr}};\n", signature, arguments);
  if (some) text += fmt::format("  const int64_t* strides[] = {{{}nullptr}};\n", given);
  return text + fmt::format("  return {}, tensors, {}{});\n}}\n", call,
                            !strides ? ""
                            : some   ? "strides, "
                                     : "nullptr, ",
                            side.keeps() ? "const_cast<void*>(stash)" : "nullptr");
}

std::string tile_symbol(const std::string& name, CpuLevel level, size_t code) {
  return fmt::format("xhat_{}_{}_{}", name, name_of(level), code);
}

AheadTexts ahead_texts(const Program& p, const AheadPlans& plans, const std::string& name) {
  Text t(p, plans, name);
  return {t.header(), t.cpp_header(), t.source()};
}

}  // namespace xhat::runtime

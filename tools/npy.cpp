#include "tools/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "expr/core/array.h"
#include "expr/core/error.h"
#include "runtime/store/whole_file.h"

namespace xhat {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kAlignment = 64;  // of the data in the file, as NumPy writes it

struct Format {
  DType type;
  std::string_view code;  // NumPy's kind and size
};
constexpr std::array<Format, 9> kFormats = {{{DType::f64, "f8"},
                                             {DType::f32, "f4"},
                                             {DType::f16, "f2"},
                                             {DType::bf16, "u2"},
                                             {DType::i64, "i8"},
                                             {DType::i32, "i4"},
                                             {DType::u32, "u4"},
                                             {DType::u8, "u1"},
                                             {DType::boolean, "b1"}}};

constexpr bool kLittleHost = std::endian::native == std::endian::little;

struct Header {
  std::string descr;
  bool fortran = false;
  std::vector<int64_t> shape;
};

// The header is a Python dict of three known keys: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4),
// }
class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Header read() {
    Header h;
    bool descr = false, order = false, shape = false;
    auto once = [&](bool& seen, const std::string& key) {
      if (std::exchange(seen, true)) fail("its header says '" + key + "' twice");
    };
    expect('{');
    while (!accept('}')) {
      std::string key = quoted();
      expect(':');
      if (key == "descr") {
        if (peek() != '\'' && peek() != '"') fail("it holds records with fields; save a plain array");
        h.descr = quoted();
        once(descr, key);
      } else if (key == "fortran_order") {
        h.fortran = truth();
        once(order, key);
      } else if (key == "shape") {
        h.shape = tuple();
        once(shape, key);
      } else {
        fail("its header has an unknown key '" + key + "'");
      }
      if (!accept(',') && peek() != '}') fail("its header is damaged");
    }
    if (!descr || !order || !shape) fail("its header lacks descr, fortran_order or shape");
    peek();
    if (at_ < text_.size()) fail("its header is damaged: something follows its closing '}'");
    return h;
  }

  [[noreturn]] void fail(const std::string& what) const { throw Error(file_ + ": " + what); }

 private:
  std::string_view text_;
  const std::string& file_;
  size_t at_ = 0;

  char peek() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(std::string("its header is damaged: no '") + c + "' where one must be");
  }
  std::string quoted() {
    char quote = peek();
    if (quote != '\'' && quote != '"') fail("its header is damaged: a text in quotes must stand there");
    size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("its header is damaged: a quote is not closed");
    std::string s(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return s;
  }
  bool truth() {
    peek();
    for (bool value : {true, false}) {
      std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    fail("its header is damaged: fortran_order is neither True nor False");
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> numbers;
    expect('(');
    while (!accept(')')) {
      if (!std::isdigit(static_cast<unsigned char>(peek())))
        fail("its header is damaged: the shape has no numbers");
      int64_t n = 0;
      for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])); ++at_)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, text_[at_] - '0', &n))
          fail("its shape is too large");
      accept('L');  // as Python 2 wrote them
      numbers.push_back(n);
      if (!accept(',') && peek() != ')') fail("its header is damaged: no ',' in the shape");
    }
    return numbers;
  }
};

DType type_of(const std::string& descr, const HeaderReader& reader, bool& swapped) {
  char order = descr.empty() ? '?' : descr[0];
  std::string_view code = std::string_view(descr).substr(descr.empty() ? 0 : 1);
  swapped = (order == '<' && !kLittleHost) || (order == '>' && kLittleHost);
  if (order == '<' || order == '>' || order == '=' || order == '|')
    for (const Format& f : kFormats)
      if (f.code == code) return f.type;
  reader.fail("it holds the dtype '" + descr +
              "', which is none of float64 float32 float16 uint16 (for bf16) int64 int32 uint32 uint8 bool; "
              "convert it");
}

void swap_bytes(std::vector<std::byte>& bytes, size_t width) {
  for (size_t i = 0; i + width <= bytes.size(); i += width)
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                 bytes.begin() + static_cast<std::ptrdiff_t>(i + width));
}

// From the first index running fastest to the last one.
std::vector<std::byte> to_row_major(const std::vector<std::byte>& in, std::span<const int64_t> shape,
                                    size_t width) {
  std::vector<std::byte> out(in.size());
  std::vector<int64_t> strides(shape.size(), 1), index(shape.size(), 0);
  for (size_t d = 1; d < shape.size(); ++d) strides[d] = strides[d - 1] * shape[d - 1];
  int64_t from = 0;
  for (size_t to = 0; to < out.size(); to += width) {
    std::memcpy(out.data() + to, in.data() + static_cast<size_t>(from) * width, width);
    for (size_t d = shape.size(); d-- > 0;) {
      from += strides[d];
      if (++index[d] < shape[d]) break;
      from -= strides[d] * shape[d];
      index[d] = 0;
    }
  }
  return out;
}

}  // namespace

NpyArray parse_npy(std::span<const std::byte> file, const std::string& name) {
  HeaderReader nothing("", name);
  auto byte_at = [&](size_t i) { return static_cast<size_t>(file[i]); };
  if (file.size() < 10 || std::memcmp(file.data(), kMagic.data(), kMagic.size()) != 0)
    nothing.fail("it is no .npy file; save one with numpy.save");
  size_t version = byte_at(6);
  if (version < 1 || version > 3 || byte_at(7) != 0)
    nothing.fail("it has the .npy version " + std::to_string(version) + "." + std::to_string(byte_at(7)) +
                 ", not 1.0, 2.0 or 3.0");
  size_t start = version == 1 ? 10 : 12;
  if (file.size() < start) nothing.fail("it is cut short in its header");
  size_t length = byte_at(8) | byte_at(9) << 8;
  if (version > 1) length |= byte_at(10) << 16 | byte_at(11) << 24;
  if (file.size() - start < length) nothing.fail("it is cut short in its header");

  HeaderReader reader({reinterpret_cast<const char*>(file.data()) + start, length}, name);
  Header header = reader.read();
  bool swapped = false;
  NpyArray a;
  a.type = type_of(header.descr, reader, swapped);
  a.shape = header.shape;

  // Also unsigned overflow: a damaged shape must not pass by wrapping round.
  std::span<const std::byte> data = file.subspan(start + length);
  size_t width = byte_size(a.type);
  auto needed = static_cast<size_t>(element_count(a.shape));
  if (needed > std::numeric_limits<size_t>::max() / width || data.size() != needed * width)
    reader.fail("its shape " + shape_text(a.shape) + " needs " + std::to_string(needed) + " values of " +
                std::to_string(width) + " bytes, but it holds " + std::to_string(data.size()) +
                " bytes of data");
  a.bytes.assign(data.begin(), data.end());
  if (swapped) swap_bytes(a.bytes, width);
  if (header.fortran && a.shape.size() > 1) a.bytes = to_row_major(a.bytes, a.shape, width);
  if (a.type == DType::boolean)
    for (std::byte& b : a.bytes) b = b == std::byte{0} ? std::byte{0} : std::byte{1};
  return a;
}

NpyArray read_npy(const std::string& path) {
  // O_NONBLOCK: to open a pipe must not wait for somebody who writes to it.
  runtime::File file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat s;
  if (file < 0 || fstat(file, &s) != 0) throw Error(path + ": it cannot be opened: " + std::strerror(errno));
  if (S_ISDIR(s.st_mode)) throw Error(path + ": it is a folder; give a .npy file");
  if (!S_ISREG(s.st_mode)) throw Error(path + ": it is no regular file, but a pipe or a device; save the array to a .npy file");
  std::string content;
  errno = 0;
  if (!runtime::read_all(file, content))
    throw Error(path + ": it cannot be read: " + (errno ? std::strerror(errno) : "it became shorter meanwhile"));
  return parse_npy(std::as_bytes(std::span(content)), path);
}

std::vector<std::byte> format_npy(const NpyArray& array) {
  size_t width = byte_size(array.type);
  if (array.bytes.size() != static_cast<size_t>(element_count(array.shape)) * width)
    throw Bug("write_npy: the bytes do not match the shape " + shape_text(array.shape));
  auto format = std::ranges::find(kFormats, array.type, &Format::type);
  std::string header = "{'descr': '";
  header += width == 1 ? '|' : kLittleHost ? '<' : '>';
  header += std::string(format->code) + "', 'fortran_order': False, 'shape': (";
  for (size_t d = 0; d < array.shape.size(); ++d) header += (d ? ", " : "") + std::to_string(array.shape[d]);
  header += array.shape.size() == 1 ? ",), }" : "), }";
  size_t start = kMagic.size() + 4;
  header.append(kAlignment - 1 - (start + header.size()) % kAlignment, ' ');
  header += '\n';
  if (header.size() > 0xffff) throw Bug("write_npy: the header does not fit version 1");

  std::string head(kMagic);
  head += '\x01';
  head += '\x00';
  head += static_cast<char>(header.size() & 0xff);
  head += static_cast<char>(header.size() >> 8);
  head += header;
  std::vector<std::byte> file(head.size() + array.bytes.size());
  std::memcpy(file.data(), head.data(), head.size());
  if (!array.bytes.empty()) std::memcpy(file.data() + head.size(), array.bytes.data(), array.bytes.size());
  return file;
}

void write_npy(const std::string& path, const NpyArray& array) {
  std::vector<std::byte> file = format_npy(array);
  if (!runtime::replace_file(path, {reinterpret_cast<const char*>(file.data()), file.size()}))
    throw Error(path + ": it cannot be written: " + std::strerror(errno));
}

// --- To and from the evaluator's arrays --------------------------------------------------------------------

namespace {

template <class T, class Out, class F>
void unpack(const NpyArray& in, std::vector<Out>& out, F f) {
  out.resize(in.bytes.size() / sizeof(T));
  for (size_t i = 0; i < out.size(); ++i) {
    T v;
    std::memcpy(&v, in.bytes.data() + i * sizeof(T), sizeof(T));
    out[i] = static_cast<Out>(f(v));
  }
}

template <class T, class In, class F>
void pack(const std::vector<In>& in, NpyArray& out, F f) {
  out.bytes.resize(in.size() * sizeof(T));
  for (size_t i = 0; i < in.size(); ++i) {
    T v = static_cast<T>(f(in[i]));
    std::memcpy(out.bytes.data() + i * sizeof(T), &v, sizeof(T));
  }
}

constexpr auto kAsIs = [](auto v) { return v; };

}  // namespace

Array to_array(const NpyArray& in) {
  Array a;
  a.type = in.type;
  a.shape = in.shape;
  switch (in.type) {
    case DType::f64: unpack<double>(in, a.reals, kAsIs); break;
    case DType::f32: unpack<float>(in, a.reals, kAsIs); break;
    case DType::f16: unpack<uint16_t>(in, a.reals, f16_value); break;
    case DType::bf16: unpack<uint16_t>(in, a.reals, bf16_value); break;
    case DType::i64: unpack<int64_t>(in, a.integers, kAsIs); break;
    case DType::i32: unpack<int32_t>(in, a.integers, kAsIs); break;
    case DType::u32: unpack<uint32_t>(in, a.integers, kAsIs); break;
    case DType::u8:
    case DType::boolean: unpack<uint8_t>(in, a.integers, kAsIs); break;
  }
  return a;
}

NpyArray to_npy(const Array& in) {
  NpyArray a{in.type, in.shape, {}};
  switch (in.type) {
    case DType::f64: pack<double>(in.reals, a, kAsIs); break;
    case DType::f32: pack<float>(in.reals, a, kAsIs); break;
    case DType::f16: pack<uint16_t>(in.reals, a, f16_bits); break;
    case DType::bf16: pack<uint16_t>(in.reals, a, bf16_bits); break;
    case DType::i64: pack<int64_t>(in.integers, a, kAsIs); break;
    case DType::i32: pack<int32_t>(in.integers, a, kAsIs); break;
    case DType::u32: pack<uint32_t>(in.integers, a, kAsIs); break;
    case DType::u8: pack<uint8_t>(in.integers, a, kAsIs); break;
    case DType::boolean: pack<uint8_t>(in.integers, a, [](int64_t v) { return v != 0; }); break;
  }
  return a;
}

}  // namespace xhat

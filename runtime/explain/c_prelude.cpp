// The text that stands above all functions.
#include <algorithm>
#include <cctype>

#include "expr/core/special.h"
#include "runtime/explain/c_loops.h"

namespace xhat {
namespace {

// The preprocessor has made one line of each function: a line per statement again.
std::string laid_out(const std::string& text) {
  std::string out;
  int parentheses = 0;
  std::string indent;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool list = c == '{' && out.ends_with("= ");  // a list's braces count as parentheses
    parentheses += c == '(' || list || (c == '[') ? 1 : c == ')' || c == ']' || (c == '}' && parentheses > 0) ? -1 : 0;
    const bool ends = parentheses == 0 && (c == ';' || c == '{' || (c == '}' && !text.substr(i).starts_with("};")));
    if (parentheses == 0 && c == '{') indent += "  ";
    if (ends && c == '}' && !indent.empty()) {
      indent.resize(indent.size() - 2);
      if (out.ends_with("  ")) out.resize(out.size() - 2);
    }
    out += c;
    if (!ends) continue;
    out += "\n" + indent;
    while (i + 1 < text.size() && text[i + 1] == ' ') ++i;
  }
  return out;
}

bool calls_special(const std::string& code) {
  constexpr const char* kNames[] = {"sinc(", "logaddexp(", "erfinv(", "digamma(", "polygamma(", "scaled_bessel("};
  auto in_a_name = [&](size_t at) { return at > 0 && (std::isalnum(static_cast<unsigned char>(code[at - 1])) || code[at - 1] == '_'); };
  return std::ranges::any_of(kNames, [&](const char* name) {
    for (size_t at = code.find(name); at != std::string::npos; at = code.find(name, at + 1))
      if (!in_a_name(at)) return true;
    return false;
  });
}

}  // namespace

std::string c_with_prelude(const std::string& code) {
  const std::string prelude = c_prelude();
  return calls_special(code) ? prelude + "namespace {\n\n" + laid_out(special::source()) + "\n}  // namespace\n" + code : prelude + code;
}

std::string c_prelude() {
  return R"(#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstring>

// What is not C's: quotients round down and x / 0 is 0, integers wrap, extremes pass NaN on, casts saturate.
namespace {

struct bf16 {
  uint16_t bits;
  bf16() = default;
  bf16(float v) {
    uint32_t b;
    std::memcpy(&b, &v, 4);
    bits = uint16_t(v != v ? (b >> 16) | 0x40 : (b + 0x7fff + (b >> 16 & 1)) >> 16);
  }
  operator float() const {
    uint32_t b = uint32_t(bits) << 16;
    float v;
    std::memcpy(&v, &b, 4);
    return v;
  }
};

template <class T> inline T maximum(T a, T b) { return a != a || a > b ? a : b; }
template <class T> inline T minimum(T a, T b) { return a != a || a < b ? a : b; }
template <class T> inline T clamped(T a, T low, T high) { return minimum<T>(maximum<T>(a, low), high); }
template <class T> inline bool larger(T a, T than) { return a != a ? than == than : a > than; }
template <class T> inline bool smaller(T a, T than) { return a != a ? than == than : a < than; }
template <class T> inline T wrap_add(T a, T b) { return T(uint64_t(a) + uint64_t(b)); }
template <class T> inline T wrap_sub(T a, T b) { return T(uint64_t(a) - uint64_t(b)); }
template <class T> inline T wrap_mul(T a, T b) { return T(uint64_t(a) * uint64_t(b)); }
template <class T> inline T floor_mod(T a, T b) {
  if (b == 0 || b == T(-1)) return 0;
  T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
template <class T> inline T floor_div(T a, T b) {
  if (b == 0) return 0;
  if (b == T(-1)) return wrap_sub<T>(0, a);
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
template <class T> inline T real_mod(T a, T b) { return T(double(a) - double(b) * std::floor(double(a) / double(b))); }
template <int k, class T> inline T power(T a) {
  if constexpr (k < 0) return T(1) / power<-k, T>(a);
  else if constexpr (k == 0) return a == a ? T(1) : a;
  else if constexpr (k == 1) return a;
  else if constexpr (k % 2) return a * power<k - 1, T>(a);
  else return power<k / 2, T>(a * a);
}
template <class T> inline T real_power(T a, T b) { return a != a || b != b ? T(NAN) : std::pow(a, b); }
template <class T> inline T integer_power(T a, T k) {
  if (k < 0) return a == 1 ? 1 : a == T(-1) ? (k % 2 ? T(-1) : T(1)) : T(0);
  T r = 1;
  for (; k > 0; k /= 2, a = wrap_mul<T>(a, a)) if (k % 2) r = wrap_mul<T>(r, a);
  return r;
}
template <class T> inline T sigmoid(T a) { return T(1) / (T(1) + std::exp(-a)); }
template <class T> inline T softplus(T a) { return maximum<T>(a, T(0)) + std::log1p(std::exp(-std::fabs(a))); }
template <class T> inline T rectified(T a) { return a <= T(0) ? T(0) : a; }
template <class T> inline T sign_of(T a) { return a != a || a == T(0) ? a : T((a > T(0)) - (a < T(0))); }
template <class T> inline T magnitude(T a) { return a < T(0) ? T(-a) : a; }
template <class T> inline T shift_left(T a, T count) { return count < 0 || count >= T(8 * sizeof(T)) ? T(0) : T(uint64_t(a) << count); }
template <class T> inline T shift_right(T a, T count) {
  const bool out = count < 0 || count >= T(8 * sizeof(T));
  return out ? T(a < 0 ? -1 : 0) : T(a >> count);
}
template <class T> inline T to_integer(double v) {
  if (v != v) return 0;
  const double most = sizeof(T) == 8 ? 0x1p63 : T(-1) < T(0) ? 0x1p31 : double(T(-1)) + 1;
  if (v >= most) return sizeof(T) == 8 ? T(INT64_MAX) : T(most - 1);
  if (v <= (T(-1) < T(0) ? -most : 0)) return T(-1) < T(0) ? (sizeof(T) == 8 ? T(INT64_MIN) : T(-most)) : T(0);
  return T(v);
}
inline float random_at(int64_t seed, int64_t i) {  // Philox4x32-10
  uint32_t c0 = uint32_t(i), c1 = uint32_t(uint64_t(i) >> 32), c2 = 0, c3 = 0, k0 = uint32_t(seed), k1 = uint32_t(uint64_t(seed) >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const uint64_t p0 = uint64_t(0xD2511F53u) * c0, p1 = uint64_t(0xCD9E8D57u) * c2;
    const uint32_t n0 = uint32_t(p1 >> 32) ^ c1 ^ k0, n2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
    c0 = n0, c1 = uint32_t(p1), c2 = n2, c3 = uint32_t(p0);
  }
  return float(c0 >> 8) / 16777216.0f;
}

}  // namespace
)";
}

}  // namespace xhat

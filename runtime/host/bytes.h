// Serializes tables to bytes and back: integers as zigzag varints, texts with their length, doubles as their 8 bytes.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace xhat::runtime {

class ByteWriter {
 public:
  std::vector<uint8_t> bytes;
  template <class T>
  void number(const T& value) {
    auto v = static_cast<int64_t>(value);
    auto u = (static_cast<uint64_t>(v) << 1) ^ static_cast<uint64_t>(v >> 63);
    for (; u >= 0x80; u >>= 7) bytes.push_back(static_cast<uint8_t>(u | 0x80));
    bytes.push_back(static_cast<uint8_t>(u));
  }
  void text(const std::string& s) {
    number(s.size());
    bytes.insert(bytes.end(), s.begin(), s.end());
  }
  void real(double v) {
    uint8_t raw[sizeof v];
    std::memcpy(raw, &v, sizeof v);
    bytes.insert(bytes.end(), raw, raw + sizeof v);
  }
  template <class T>
  void resize(std::vector<T>& list) {
    number(list.size());
  }
};

class ByteReader {
 public:
  explicit ByteReader(const uint8_t* at) : at_(at) {}
  template <class T>
  void number(T& v) {
    uint64_t u = 0;
    for (int shift = 0;; shift += 7) {
      uint8_t b = *at_++;
      u |= static_cast<uint64_t>(b & 0x7f) << shift;
      if (b < 0x80) break;
    }
    v = static_cast<T>(static_cast<int64_t>((u >> 1) ^ (~(u & 1) + 1)));
  }
  void text(std::string& s) {
    size_t n = 0;
    number(n);
    s.assign(reinterpret_cast<const char*>(at_), n);
    at_ += n;
  }
  void real(double& v) {
    std::memcpy(&v, at_, sizeof v);
    at_ += sizeof v;
  }
  template <class T>
  void resize(std::vector<T>& list) {
    size_t n = 0;
    number(n);
    list.resize(n);
  }

 private:
  const uint8_t* at_;
};

}  // namespace xhat::runtime

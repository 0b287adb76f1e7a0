#include "runtime/store/nontemporal.h"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>

#include "expr/core/error.h"

namespace xhat::runtime {
namespace {

constexpr uint8_t kPrefetch = 0x18, kNop = 0x1f, kStore = 0x11, kAlignedStore = 0x29, kNonTemporal = 0x2b;  // second bytes of opcodes 0f ..
constexpr uint8_t kAllCaches = 1 << 3;  // bit of a prefetch's ModRM: T0 instead of NTA

// The memory operand of an instruction.
struct Operand {
  int mod = 0, base = 0, index = 0, scale = 0;
  int64_t offset = 0;
  size_t bytes = 0;  // length of ModRM, SIB and displacement
  bool operator==(const Operand& o) const { return base == o.base && index == o.index && scale == o.scale && offset == o.offset; }
};

// Decodes a memory operand. x, b: the prefix bits for registers 8 to 15. unit: bytes per unit of a one-byte displacement. None if the operand is
// a register or relative to the instruction pointer, or if the code ends.
std::optional<Operand> operand_at(std::span<const uint8_t> code, int x, int b, int unit) {
  if (code.empty() || code[0] >> 6 == 3) return {};
  Operand o{code[0] >> 6, (code[0] & 7) | b << 3, -1, 0, 0, 1};
  if ((code[0] & 7) == 4) {
    if (code.size() < 2) return {};
    o.base = (code[1] & 7) | b << 3;
    o.index = ((code[1] >> 3) & 7) | x << 3;
    o.scale = code[1] >> 6;
    o.bytes = 2;
  }
  if (o.mod == 0 && (o.base & 7) == 5) return {};
  const size_t wide = o.mod == 1 ? 1 : o.mod == 2 ? 4 : 0;
  if (code.size() < o.bytes + wide) return {};
  if (wide == 1) o.offset = static_cast<int8_t>(code[o.bytes]) * unit;
  if (wide == 4) {
    int32_t offset = 0;
    std::memcpy(&offset, &code[o.bytes], 4);
    o.offset = offset;
  }
  o.bytes += wide;
  return o;
}

struct StoreCode {
  size_t opcode;  // position of the opcode byte
  Operand to;
};

// Decodes `code` if it is exactly one store of a whole f32 or f64 vector. Cases by prefix: EVEX, VEX of three and of two bytes, SSE.
std::optional<StoreCode> store_of(std::span<const uint8_t> code) {
  size_t at = 0;
  int x = 0, b = 0, unit = 1;
  auto byte = [&](size_t i) { return i < code.size() ? code[i] : uint8_t{0}; };
  if (byte(0) == 0x62) {
    const bool moves = (byte(1) & 0xf) == 1 && (byte(2) & 0x7e) == 0x7c && (byte(3) & 0x9f) == 0x08;  // no mask, no broadcast
    if (!moves || (byte(2) >> 7) != (byte(2) & 1)) return {};                                          // ps, or pd with W
    x = !(byte(1) & 0x40), b = !(byte(1) & 0x20);
    unit = 16 << ((byte(3) >> 5) & 3);
    at = 4;
  } else if (byte(0) == 0xc4) {
    if ((byte(1) & 0x1f) != 1 || (byte(2) & 0x7a) != 0x78) return {};
    x = !(byte(1) & 0x40), b = !(byte(1) & 0x20);
    at = 3;
  } else if (byte(0) == 0xc5) {
    if ((byte(1) & 0x7a) != 0x78) return {};
    at = 2;
  } else {
    if (byte(at) == 0x66) ++at;
    if ((byte(at) & 0xf0) == 0x40) x = (byte(at) >> 1) & 1, b = byte(at) & 1, ++at;
    if (byte(at++) != 0x0f) return {};
  }
  if (byte(at) != kStore && byte(at) != kAlignedStore) return {};
  auto to = operand_at(code.subspan(at + 1), x, b, unit);
  if (!to || at + 1 + to->bytes != code.size()) return {};
  return StoreCode{at, *to};
}

// If the prefetch at code[begin] follows a store to the same address: turns the two into a non-temporal store and a nop.
bool change_store(std::span<uint8_t> code, size_t begin, size_t fetch, const Operand& of) {
  constexpr size_t kLongest = 15;  // bytes of an instruction
  for (size_t length = 3; length <= std::min(kLongest, begin); ++length) {
    const auto store = store_of(code.subspan(begin - length, length));
    if (!store || !(store->to == of)) continue;
    code[begin - length + store->opcode] = kNonTemporal;
    code[fetch] = kNop;
    return true;
  }
  return false;
}

// If the prefetch code[begin, end) is followed by an equal one: turns the two into a prefetch to all caches and a nop.
bool change_fetch(std::span<uint8_t> code, size_t begin, size_t end, size_t fetch) {
  const size_t length = end - begin;
  if (end + length > code.size() || !std::ranges::equal(code.subspan(begin, length), code.subspan(end, length))) return false;
  code[fetch + 1] |= kAllCaches;
  code[fetch + length] = kNop;
  return true;
}

void change(std::span<uint8_t> code, CodeChanges& changes) {
  for (size_t i = 1; i + 2 < code.size(); ++i) {
    if (code[i] != 0x0f || code[i + 1] != kPrefetch || (code[i + 2] & 0x38) != 0) continue;
    for (bool rex : {true, false}) {
      if (rex && (code[i - 1] & 0xf0) != 0x40) continue;
      const size_t begin = rex ? i - 1 : i;
      const auto of = operand_at(code.subspan(i + 2), rex ? (code[begin] >> 1) & 1 : 0, rex ? code[begin] & 1 : 0, 1);
      if (!of) continue;
      const bool stored = change_store(code, begin, i + 1, *of);
      changes.stores += stored;
      if (stored) break;
      const bool fetched = change_fetch(code, begin, i + 2 + of->bytes, i + 1);
      changes.fetches += fetched;
      if (fetched) break;
    }
  }
}

}  // namespace

CodeChanges make_nontemporal_in(std::string& object) {
  Elf64_Ehdr header;
  if (object.size() < sizeof header) return {};
  std::memcpy(&header, object.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64) return {};
  CodeChanges changes;
  for (size_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    const size_t at = header.e_shoff + i * header.e_shentsize;
    if (at + sizeof section > object.size()) break;
    std::memcpy(&section, object.data() + at, sizeof section);
    const bool code = section.sh_type == SHT_PROGBITS && (section.sh_flags & SHF_EXECINSTR);
    if (!code || section.sh_offset > object.size() || section.sh_size > object.size() - section.sh_offset) continue;
    change({reinterpret_cast<uint8_t*>(object.data()) + section.sh_offset, section.sh_size}, changes);
  }
  return changes;
}

CodeChanges make_nontemporal(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string object{std::istreambuf_iterator<char>(in), {}};
  if (!in.good() && !in.eof()) throw Error("cannot read " + path);
  const CodeChanges changes = make_nontemporal_in(object);
  if (changes == CodeChanges{}) return changes;
  std::ofstream out(path, std::ios::binary);
  out << object;
  if (!out.flush()) throw Error("cannot write " + path);
  return changes;
}

}  // namespace xhat::runtime

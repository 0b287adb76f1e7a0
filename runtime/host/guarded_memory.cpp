// Each block is a mapping of its own, with a protected (closed) page at either end:
//
//   | closed | … pattern … | data | room, of the engine's guarded_blocks: pattern | closed |      Edge::back
//   | closed | data | … pattern … | closed |                                             Edge::front
#include "runtime/host/guarded_memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <mutex>

namespace xhat::runtime {
namespace {

constexpr size_t kPage = 4096;
constexpr uint8_t kPattern = 0xa5;  // around data

struct Guarded {
  uint8_t* pages = nullptr;  // null: a free entry of the list
  size_t mapped = 0;
  uint8_t* data = nullptr;
  size_t bytes = 0;
  char name[64] = {};
};

// The list has a fixed length, because a signal handler reads it.
constexpr size_t kMax = 4096;  // blocks at a time; a test of all examples has some hundred
std::array<Guarded, kMax> guarded_blocks;
std::mutex list_mutex;

// The distance of an address from a block.
struct Distance {
  const char* side;
  long long bytes;
  Distance(const Guarded& g, const uint8_t* at)
      : side(at < g.data ? "before" : "behind"), bytes(at < g.data ? g.data - at : at - (g.data + g.bytes) + 1) {}
};

void say(const char* text, size_t length) {
  if (write(STDERR_FILENO, text, length) < 0) return;  // the message cannot be written
}

// Reports the block whose protected page a kernel has touched. Then the signal is raised again, and ends the process.
void explain_access(int signal_number, siginfo_t* info, void*) {
  signal(signal_number, SIG_DFL);
  const auto* at = static_cast<const uint8_t*>(info->si_addr);
  for (const Guarded& g : guarded_blocks) {
    if (!g.pages || at < g.pages || at >= g.pages + g.mapped) continue;
    char text[256];
    const Distance d(g, at);
    const int length = std::snprintf(text, sizeof text, "xhat: access to memory %lld bytes %s %s, which has %zu bytes\n", d.bytes, d.side,
                                     g.name, g.bytes);
    say(text, static_cast<size_t>(std::max(length, 0)));
    return;
  }
}

void watch() {
  struct sigaction now = {};
  if (sigaction(SIGSEGV, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return;  // a sanitizer has a handler that reports more
  struct sigaction ours = {};
  ours.sa_sigaction = explain_access;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &ours, nullptr);
}

void poison(void* data, size_t bytes) {
  constexpr std::array<uint16_t, 32> kLine = [] {
    std::array<uint16_t, 32> line{};
    line.fill(kPoison);
    return line;
  }();
  auto* to = static_cast<uint8_t*>(data);
  for (size_t i = 0; i < bytes; i += sizeof kLine) std::memcpy(to + i, kLine.data(), std::min(sizeof kLine, bytes - i));
}

// room: bytes that may be read, from the beginning of the data on.
void* take(size_t bytes, size_t room, Edge edge, const char* name) {
  static std::once_flag once;
  std::call_once(once, watch);
  const size_t inside = (std::max<size_t>(room, 1) + kPage - 1) / kPage * kPage, all = inside + 2 * kPage;
  void* pages = mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  auto* first = static_cast<uint8_t*>(pages) + kPage;
  std::lock_guard lock(list_mutex);
  auto place = std::ranges::find(guarded_blocks, nullptr, &Guarded::pages);
  if (place == guarded_blocks.end() || mprotect(first, inside, PROT_READ | PROT_WRITE) != 0) {
    munmap(pages, all);
    return nullptr;
  }
  uint8_t* data = edge == Edge::front ? first : first + inside - room;
  std::memset(first, kPattern, inside);
  poison(data, bytes);
  Guarded g{nullptr, all, data, bytes, {}};
  std::snprintf(g.name, sizeof g.name, "%s", name);
  *place = g;
  place->pages = static_cast<uint8_t*>(pages);
  return data;
}

void give(void* data) {
  std::unique_lock lock(list_mutex);
  auto place = std::ranges::find(guarded_blocks, data, &Guarded::data);
  const Guarded g = *place;
  *place = {};
  lock.unlock();
  auto check = [&](const uint8_t* begin, const uint8_t* end) {
    const uint8_t* at = std::find_if(begin, end, [](uint8_t b) { return b != kPattern; });
    if (at == end) return;
    const Distance d(g, at);
    std::fprintf(stderr, "xhat: memory %lld bytes %s %s, which has %zu bytes, was written\n", d.bytes, d.side, g.name, g.bytes);
    std::abort();
  };
  check(g.pages + kPage, g.data);
  check(g.data + g.bytes, g.pages + g.mapped - kPage);
  munmap(g.pages, g.mapped);
}

template <Edge edge>
constexpr MemorySource kSource = {[](size_t bytes, size_t room) { return take(bytes, room, edge, "a block of the engine's"); }, give};

}  // namespace

GuardedTensor::GuardedTensor(size_t bytes, Edge edge, const std::string& name) : data_(take(bytes, bytes, edge, name.c_str())) {
  if (!data_) throw Error("out of memory: " + std::to_string(bytes) + " bytes between guard pages for " + name);
}

GuardedTensor::~GuardedTensor() { give(data_); }

GuardedEngine::GuardedEngine(Edge edge) { memory_source = edge == Edge::front ? &kSource<Edge::front> : &kSource<Edge::back>; }

GuardedEngine::~GuardedEngine() { memory_source = nullptr; }

std::optional<Edge> GuardedEngine::edge() {
  const MemorySource* source = memory_source;
  if (!source) return {};
  return source == &kSource<Edge::front> ? Edge::front : Edge::back;
}

}  // namespace xhat::runtime

// What this machine can do at most, measured: bandwidth by size of the working set, fused multiply-adds, exponentials.
//
//     build/bench/roofline [THREADS] [--quick]      prints one JSON object
//     build/bench/roofline [THREADS] --serve        one for each line "at BYTES BYTES ..." that it reads: what the machine can do now
//
// Bandwidth counts the bytes that the program asks for: read and write move one array, copy 2, triad (a = b + q*c) 3, update
// (a = q*a + q) 2. A plain store to a line that is not in cache reads it first; a non-temporal one (_nt) does not. The sweep
// over sizes shows where the caches end; an op is held against the working set that it has.
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/compare/simd.h"

namespace {

using nlohmann::json;
using namespace xhat::bench;  // V, kLanes, load, store, stream, fma, ...

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Sweep {
  const char* name;
  int moved;    // bytes asked for, in arrays
  int touched;  // arrays
  void (*run)(float* a, const float* b, const float* c, size_t n);
};

volatile float sink;  // what the compiler must not see through

void read_only(float*, const float* b, const float*, size_t n) {
  V s0 = set(0), s1 = s0, s2 = s0, s3 = s0;  // four sums: one would wait for its own additions
  for (size_t i = 0; i < n; i += 4 * kLanes) {
    s0 += load(b + i);
    s1 += load(b + i + kLanes);
    s2 += load(b + i + 2 * kLanes);
    s3 += load(b + i + 3 * kLanes);
  }
  alignas(64) float lanes[kLanes];
  store(lanes, (s0 + s1) + (s2 + s3));
  sink = lanes[0];
}

template <void (*put)(float*, V)>
void write(float* a, const float*, const float*, size_t n) {
  for (size_t i = 0; i < n; i += kLanes) put(a + i, set(0.5f));
}

template <void (*put)(float*, V)>
void copy(float* a, const float* b, const float*, size_t n) {
  for (size_t i = 0; i < n; i += kLanes) put(a + i, load(b + i));
}

template <void (*put)(float*, V)>
void triad(float* a, const float* b, const float* c, size_t n) {
  for (size_t i = 0; i < n; i += kLanes) put(a + i, fma(set(0.5f), load(c + i), load(b + i)));
}

void update(float* a, const float*, const float*, size_t n) {
  for (size_t i = 0; i < n; i += kLanes) store(a + i, fma(set(0.5f), load(a + i), set(0.5f)));
}

constexpr std::array<Sweep, 8> kSweeps = {{{"read", 1, 1, read_only},
                                           {"write", 1, 1, write<store>},
                                           {"write_nt", 1, 1, write<stream>},
                                           {"copy", 2, 2, copy<store>},
                                           {"copy_nt", 2, 2, copy<stream>},
                                           {"triad", 3, 3, triad<store>},
                                           {"triad_nt", 3, 3, triad<stream>},
                                           {"update", 2, 1, update}}};

struct Arrays {
  explicit Arrays(size_t bytes_each) : bytes(bytes_each) {
    for (float*& p : array) {
      void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) {
        std::perror("roofline: mmap");
        std::exit(1);
      }
      madvise(memory, bytes, MADV_HUGEPAGE);
      p = static_cast<float*>(memory);
      std::fill_n(p, bytes / sizeof(float), 1.0f);
    }
  }
  size_t bytes;
  std::array<float*, 3> array{};
};

constexpr double kBytesPerSample = 64e6;      // a millisecond or more: longer than starting threads takes
constexpr double kBytesBesideEngines = 200e6;  // some milliseconds: a sample of them takes as long

// GB/s, the best of some repetitions. Every thread owns one contiguous slice of each array.
double bandwidth(const Sweep& sweep, const Arrays& arrays, size_t elements, int threads, int repetitions, double bytes_per_sample) {
  size_t slice = elements / threads / (4 * kLanes) * (4 * kLanes);
  double moved = sizeof(float) * static_cast<double>(slice) * threads * sweep.moved;
  long passes = std::max(1L, static_cast<long>(bytes_per_sample / moved));
  double best = 0;
  for (int r = -1; r < repetitions; ++r) {  // the first brings the data in
    double start = now();
#pragma omp parallel num_threads(threads)
    {
      size_t at = slice * omp_get_thread_num();
      for (long j = 0; j < passes; ++j)
        sweep.run(arrays.array[0] + at, arrays.array[1] + at, arrays.array[2] + at, slice);
      fence();
    }
    if (r >= 0) best = std::max(best, moved * static_cast<double>(passes) / (now() - start) * 1e-9);
  }
  return best;
}

json bandwidths(const Arrays& arrays, size_t touched_bytes, int threads, int repetitions, double bytes_per_sample = kBytesPerSample) {
  json gbps;
  for (const Sweep& s : kSweeps) {
    size_t elements = std::min(touched_bytes / s.touched, arrays.bytes) / sizeof(float);
    gbps[s.name] = bandwidth(s, arrays, elements, threads, repetitions, bytes_per_sample);
  }
  return gbps;
}

// The best rate of `work`, which every thread does once per repetition, in 1e9 of its units.
double rate(int threads, int repetitions, double units, void (*work)()) {
  double best = 0;
  for (int r = 0; r < repetitions; ++r) {
    double start = now();
#pragma omp parallel num_threads(threads)
    work();
    best = std::max(best, units * threads / (now() - start) * 1e-9);
  }
  return best;
}

constexpr long kFmaSteps = 8'000'000;
constexpr int kChains = 12;  // independent: hides a latency of 4 cycles on two ports, and 12 registers are there

void multiply_add() {
  const V m = set(0.999999f), p = set(1e-7f);
  V a = p, b = p, c = p, d = p, e = p, f = p, g = p, h = p, i = p, j = p, k = p, l = p;
  for (long step = 0; step < kFmaSteps; ++step) {
    a = fma(a, m, p), b = fma(b, m, p), c = fma(c, m, p), d = fma(d, m, p), e = fma(e, m, p), f = fma(f, m, p);
    g = fma(g, m, p), h = fma(h, m, p), i = fma(i, m, p), j = fma(j, m, p), k = fma(k, m, p), l = fma(l, m, p);
    // Each chain starts equal; without this the compiler would compute one of them.
    asm volatile("" : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f));
    asm volatile("" : "+v"(g), "+v"(h), "+v"(i), "+v"(j), "+v"(k), "+v"(l));
  }
  alignas(64) float lanes[kLanes];
  store(lanes, (((a + b) + (c + d)) + ((e + f) + (g + h))) + ((i + j) + (k + l)));
  sink = lanes[0];
}

constexpr size_t kExpElements = 4096;  // two arrays of it stay in the first cache
constexpr int kExpPasses = 4000;

void exponentials() {
  alignas(64) float x[kExpElements], y[kExpElements];
  for (size_t i = 0; i < kExpElements; ++i) x[i] = static_cast<float>(i) * 1e-3f - 2;
  for (int pass = 0; pass < kExpPasses; ++pass) {
    for (size_t i = 0; i < kExpElements; i += 4 * kLanes)  // four at a time: one would wait for its own steps
      for (size_t j = i; j < i + 4 * kLanes; j += kLanes) store(y + j, exp(load(x + j)));
    asm volatile("" ::: "memory");
  }
  sink = y[17];
}

// Milliseconds of the first touch of 64 MiB: what a result in fresh memory costs.
double first_touch(int advice, int threads) {
  constexpr size_t kBytes = size_t{64} << 20, kPage = 4096;
  double best = 1e9;
  for (int r = 0; r < 5; ++r) {
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 0;
    madvise(memory, kBytes, advice);
    double start = now();
#pragma omp parallel for num_threads(threads)
    for (size_t at = 0; at < kBytes; at += kPage) static_cast<char*>(memory)[at] = 1;
    best = std::min(best, (now() - start) * 1e3);
    munmap(memory, kBytes);
  }
  return best;
}

// One sample of everything that an op can be bound by, at the working sets of it.
json now_at(const Arrays& arrays, std::istream& sizes, int threads) {
  json answer = {{"at", json::array()},
                 {"fma_gflops", rate(threads, 1, 2.0 * kLanes * kChains * kFmaSteps, multiply_add)},
                 {"exp_per_ns", rate(threads, 1, 1.0 * kExpElements * kExpPasses, exponentials)}};
  for (size_t touched = 0; sizes >> touched;) {
    json row = bandwidths(arrays, touched, threads, 1, kBytesBesideEngines);
    row["bytes"] = touched;
    answer["at"].push_back(row);
  }
  return answer;
}

int serve(const Arrays& arrays, int threads) {
  std::printf("{}\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string at;
    words >> at;
    std::printf("%s\n", now_at(arrays, words, threads).dump().c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int threads = 2;
  bool quick = false, serving = false;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--quick") quick = true;
    else if (std::string(argv[i]) == "--serve") quick = serving = true;
    else threads = std::max(1, std::atoi(argv[i]));
  }
  const Arrays arrays(quick ? size_t{1} << 28 : size_t{1} << 29);  // far beyond cache
  if (serving) return serve(arrays, threads);
  const int repetitions = quick ? 3 : 7;
  json result = {{"isa", kIsa}, {"threads", threads}};
  for (auto [name, n] : {std::pair{"one", 1}, std::pair{"all", threads}}) {
    result["fma_gflops"][name] = rate(n, 5, 2.0 * kLanes * kChains * kFmaSteps, multiply_add);
    result["exp_per_ns"][name] = rate(n, 5, 1.0 * kExpElements * kExpPasses, exponentials);
    result["memory_gbps"][name] = bandwidths(arrays, 3 * arrays.bytes, n, repetitions);
  }
  result["first_touch_64MiB_ms"] = {{"small_pages_ms", first_touch(MADV_NOHUGEPAGE, threads)},
                                    {"huge_pages_ms", first_touch(MADV_HUGEPAGE, threads)}};
  for (size_t touched = size_t{1} << 18; touched <= 2 * arrays.bytes; touched *= 2) {
    json row = bandwidths(arrays, touched, threads, repetitions);
    row["mib"] = static_cast<double>(touched) / (1 << 20);
    result["sweep"].push_back(row);
  }
  std::printf("%s\n", result.dump(1).c_str());
  return 0;
}

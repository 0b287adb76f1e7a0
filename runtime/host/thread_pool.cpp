#include "runtime/host/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <unordered_map>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "expr/core/error.h"

namespace xhat::runtime {
namespace {

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// How long a worker spins for the next batch before it sleeps.
constexpr auto kSpin = std::chrono::microseconds(200);

constexpr int kMaxThreadsPerCore = 4, kMaxThreads = 64;

}  // namespace

void check_threads(int wanted) {
  const int here = threads_or_all(), most = std::max(kMaxThreads, kMaxThreadsPerCore * here);
  if (wanted < 0) throw Error(std::to_string(wanted) + " threads: it is 0, which is one per core, or a positive number");
  if (wanted > most)
    throw Error(std::to_string(wanted) + " threads: this machine runs " + std::to_string(here) + " at a time; " + std::to_string(most) +
                " are the most that are started");
}

int threads_or_all(int wanted) { return wanted > 0 ? wanted : std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

std::vector<std::thread> start_threads(int count, const std::function<void(int)>& work) {
  static std::atomic<bool> said = false;
  std::vector<std::thread> started;
  try {
    for (int i = 1; i <= count; ++i) started.emplace_back(work, i);
  } catch (const std::exception& refused) {  // std::system_error, or no memory for its stack
    if (!said.exchange(true))
      std::fprintf(stderr, "xhat: the system grants %zu of %d threads (%s); the work is done by these\n", started.size() + 1, count + 1,
                   refused.what());
  }
  return started;
}

void run_jobs(size_t count, int threads, const std::function<void(size_t)>& job) {
  std::vector<std::exception_ptr> failed(count);
  std::atomic<size_t> next = 0;
  auto work = [&](int) {
    for (size_t i; (i = next.fetch_add(1)) < count;) try {
        job(i);
      } catch (...) {
        failed[i] = std::current_exception();
        next = count;
      }
  };
  const size_t others = std::min(count, static_cast<size_t>(std::max(1, threads))) - (count > 0);
  std::vector<std::thread> started = start_threads(static_cast<int>(others), work);
  work(0);
  for (std::thread& t : started) t.join();
  for (const std::exception_ptr& e : failed)
    if (e) std::rethrow_exception(e);
}

ThreadPool::ThreadPool(int threads) {
  workers_ = start_threads(threads - 1, [this](int i) { work(i); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(sleep_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& t : workers_) t.join();
}

std::shared_ptr<ThreadPool> shared_pool(int threads) {
  static std::mutex mutex;
  static std::unordered_map<int, std::weak_ptr<ThreadPool>> pools;
  threads = threads_or_all(threads);
  std::lock_guard lock(mutex);
  auto pool = pools[threads].lock();
  if (!pool) pools[threads] = pool = std::make_shared<ThreadPool>(threads);
  return pool;
}

void ThreadPool::drain(int worker) {
  for (int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) task_(context_, worker, i);
}

// open_ and active_ are a handshake: a worker increments active_, then reads open_; the caller closes open_, then reads active_. Under
// sequential consistency at least one of them sees the other's write. open_ and sleepers_ work in the same way, so no worker goes to sleep
// after a batch has been opened.
void ThreadPool::run(int64_t count, Task task, void* context) {
  if (workers_.empty() || count <= 1) {
    for (int64_t i = 0; i < count; ++i) task(context, 0, i);
    return;
  }
  std::lock_guard turn(turn_);
  task_ = task;
  context_ = context;
  count_ = count;
  next_.store(0, std::memory_order_relaxed);
  open_ = ++batches_;
  if (sleepers_ > 0) {
    std::lock_guard lock(sleep_);
    wake_.notify_all();
  }
  drain(0);
  open_ = 0;
  while (active_ != 0) pause();
}

void ThreadPool::work(int worker) {
  uint64_t seen = 0;
  auto fresh = [&] {
    uint64_t batch = open_;
    return batch != 0 && batch != seen;
  };
  for (;;) {
    auto deadline = std::chrono::steady_clock::now() + kSpin;
    while (!fresh() && !stop_) {
      for (int i = 0; i < 64 && !fresh(); ++i) pause();
      if (std::chrono::steady_clock::now() < deadline) continue;
      std::unique_lock lock(sleep_);
      ++sleepers_;
      wake_.wait(lock, [&] { return stop_ || fresh(); });
      --sleepers_;
    }
    if (stop_) return;
    ++active_;
    uint64_t batch = open_;
    if (batch != 0) drain(worker);
    --active_;
    if (batch != 0) seen = batch;
  }
}

}  // namespace xhat::runtime

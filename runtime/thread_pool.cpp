#include "runtime/thread_pool.h"

#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace xhat::runtime {
namespace {

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// How long a worker looks for the next batch before it sleeps.
constexpr auto kSpin = std::chrono::microseconds(200);

}  // namespace

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(sleep_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& t : workers_) t.join();
}

void ThreadPool::drain(int worker) {
  for (int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) task_(context_, worker, i);
}

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
  busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  {
    // Under the lock, so that no worker decides to sleep between our bump and our notice.
    std::lock_guard lock(sleep_);
    batch_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  drain(0);
  while (busy_.load(std::memory_order_acquire) != 0) pause();
}

void ThreadPool::work(int worker) {
  uint64_t seen = 0;
  for (;;) {
    auto deadline = std::chrono::steady_clock::now() + kSpin;
    while (batch_.load(std::memory_order_acquire) == seen && !stop_) {
      for (int i = 0; i < 64 && batch_.load(std::memory_order_acquire) == seen; ++i) pause();
      if (std::chrono::steady_clock::now() < deadline) continue;
      std::unique_lock lock(sleep_);
      wake_.wait(lock, [&] { return stop_ || batch_.load(std::memory_order_acquire) != seen; });
    }
    if (stop_) return;
    seen = batch_.load(std::memory_order_acquire);
    drain(worker);
    busy_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace xhat::runtime

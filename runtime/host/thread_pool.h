// Runs independent tasks on a few threads. Workers spin for a while before they sleep: kernels follow each other within microseconds, and
// waking a sleeping thread costs 5 to 50 us. The caller never waits for a worker that has not started; the threads that are ready do the
// work.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace xhat::runtime {

// `wanted`, if it is positive, else the number of threads that the machine runs at a time.
int threads_or_all(int wanted = 0);

// More threads than a machine runs at a time only wait for each other; a few times as many are good for trying that nothing depends on
// their number. Throws Error for a negative number and for more.
void check_threads(int wanted);

// Starts threads that run work(1), …, work(count), or the first of them if the system grants fewer (ulimit -u, a container's limit). The
// first time in a process that it grants fewer, one line on stderr says so; the caller must do with the threads returned.
std::vector<std::thread> start_threads(int count, const std::function<void(int)>& work);

// Calls job(i) for every i in [0, count), on the caller's thread and on at most threads - 1 others. Jobs may throw: then no more are
// started, and when the running ones have ended, the exception of the smallest i is rethrown.
void run_jobs(size_t count, int threads, const std::function<void(size_t)>& job);

class ThreadPool {
 public:
  // The pool has fewer threads if the system does not grant so many.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls task(context, worker, i) for every i in [0, count), in no fixed order, also on the caller's thread.
  // worker < threads(). Tasks must not throw. Calls from several threads take turns.
  using Task = void (*)(void* context, int worker, int64_t i);
  void run(int64_t count, Task task, void* context);

  template <class F>
  void run(int64_t count, F& f) {
    run(count, [](void* c, int worker, int64_t i) { (*static_cast<F*>(c))(worker, i); }, &f);
  }

 private:
  void work(int worker);
  void drain(int worker);

  std::vector<std::thread> workers_;
  std::mutex turn_;  // one batch at a time
  std::mutex sleep_;
  std::condition_variable wake_;
  uint64_t batches_ = 0;
  std::atomic<uint64_t> open_{0};   // the batch that may be joined; 0: none
  std::atomic<int> active_{0};      // workers that are reading the open batch; its task must not change while there are any
  std::atomic<int> sleepers_{0};
  std::atomic<int64_t> next_{0};
  std::atomic<bool> stop_{false};
  int64_t count_ = 0;
  Task task_ = nullptr;
  void* context_ = nullptr;
};

// One pool per number of threads, shared by all ops of the process.
std::shared_ptr<ThreadPool> shared_pool(int threads);

}  // namespace xhat::runtime

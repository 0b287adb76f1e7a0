// Memory for nodes and handles: blocks of one size, kept per thread for the next step of a loop, which asks for as many again.
#pragma once
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace xhat::lazy::detail {

template <size_t kBytes>
class BlockPool {
 public:
  static void* take() {
    if (BlockPool* p = mine(); p && p->first_) {
      Free* block = p->first_;
      p->first_ = block->next;
      --p->count_;
      return block;
    }
    return ::operator new(kBytes);
  }
  static void give(void* block) {
    BlockPool* p = mine();
    if (!p || p->count_ >= kKept) return ::operator delete(block);
    p->first_ = new (block) Free{p->first_};
    ++p->count_;
  }
  ~BlockPool() {
    ended() = true;
    while (first_) ::operator delete(std::exchange(first_, first_->next));
  }

 private:
  struct Free {
    Free* next;
  };
  static constexpr size_t kKept = 4096;
  // Arrays of static storage duration may be gone after the thread's pool.
  static bool& ended() {
    thread_local bool over = false;
    return over;
  }
  static BlockPool* mine() {
    if (ended()) return nullptr;
    thread_local BlockPool pool;
    return &pool;
  }
  Free* first_ = nullptr;
  size_t count_ = 0;
};

// For std::allocate_shared.
template <class T>
struct PooledAllocator {
  using value_type = T;
  PooledAllocator() = default;
  template <class U>
  PooledAllocator(const PooledAllocator<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(n == 1 ? BlockPool<sizeof(T)>::take() : ::operator new(n * sizeof(T))); }
  void deallocate(T* p, size_t n) {
    if (n == 1)
      BlockPool<sizeof(T)>::give(p);
    else
      ::operator delete(p);
  }
  bool operator==(const PooledAllocator&) const { return true; }
};

template <class T, class... Arguments>
std::shared_ptr<T> pooled(Arguments&&... arguments) {
  return std::allocate_shared<T>(PooledAllocator<T>(), std::forward<Arguments>(arguments)...);
}

}  // namespace xhat::lazy::detail

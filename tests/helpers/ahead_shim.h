// Included by a source that a test generates for a library that was compiled ahead of time: calls its functions with arguments in
// an array, so that one test can call libraries of any op. A value passed by value is read from its place; of a device's functions
// the stream is the first of the arguments.
#pragma once
#include <cstdint>
#include <type_traits>
#include <utility>

template <class T>
T given(void* p) {
  if constexpr (std::is_pointer_v<T>) return static_cast<T>(p);
  else return *static_cast<std::remove_cv_t<T>*>(p);
}

template <class D, class... A, std::size_t... I>
int spread(int (*f)(const D*, A...), const int64_t* dims, void* const* arguments, std::index_sequence<I...>) {
  return f(reinterpret_cast<const D*>(dims), given<A>(arguments[I])...);
}

template <class D, class... A>
int call(int (*f)(const D*, A...), const int64_t* dims, void* const* arguments) {
  return spread(f, dims, arguments, std::index_sequence_for<A...>());
}

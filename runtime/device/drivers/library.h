// A driver's library, loaded at run time, and its functions by name.
#pragma once
#include <string>

namespace xhat::runtime {

class DriverLibrary {
 public:
  // Loads the file that the environment variable names, else `file`. It stays loaded until the process ends.
  DriverLibrary(const char* variable, const char* file);
  template <class F>
  void find(F*& function, const char* name) {
    function = reinterpret_cast<F*>(address(name));
  }
  const std::string& problem() const { return problem_; }  // empty, or: the library was not found, or a function was missing

 private:
  void* address(const char* name);
  void* handle_ = nullptr;
  std::string problem_;
};

}  // namespace xhat::runtime

// A driver's library, loaded at run time: its functions by name.
#pragma once
#include <string>

namespace xhat::runtime {

class DriverLibrary {
 public:
  // Looks for `file`, or for what the environment variable says instead. It stays for as long as the process runs.
  DriverLibrary(const char* variable, const char* file);
  template <class F>
  void find(F*& function, const char* name) {
    function = reinterpret_cast<F*>(address(name));
  }
  const std::string& problem() const { return problem_; }  // not empty: it was not found, or a function was missing

 private:
  void* address(const char* name);
  void* handle_ = nullptr;
  std::string problem_;
};

}  // namespace xhat::runtime

// A file of C++, compiled by the system's compiler and loaded: for what `xhat explain --c` writes.
#pragma once
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace xhat::bench {

class CompiledC {
 public:
  explicit CompiledC(const std::string& code, const std::string& options = "-O3") {
    std::string folder = (std::filesystem::temp_directory_path() / "xhat_c_XXXXXX").string();
    if (!mkdtemp(folder.data())) throw std::runtime_error("no folder for a C file: " + folder);
    const std::string source = folder + "/loops.cpp", library = folder + "/loops.so";
    std::ofstream(source) << code;
    const std::string command =
        "c++ -march=native -fopenmp -shared -fPIC -Wno-psabi " + options + " " + source + " -o " + library + " 2>&1";
    FILE* pipe = popen(command.c_str(), "r");
    char line[400];
    while (pipe && fgets(line, sizeof line, pipe)) messages += line;
    // OpenMP's threads live on in the library's code, so it stays loaded.
    if (pipe && pclose(pipe) == 0) library_ = dlopen(library.c_str(), RTLD_NOW);
    std::filesystem::remove_all(folder);
  }

  // NAME_call of runtime/explain/c_loops.h; null if there is none, and messages says why.
  using Entry = void (*)(void* const*);
  Entry entry(const std::string& name) const {
    return library_ ? reinterpret_cast<Entry>(dlsym(library_, (name + "_call").c_str())) : nullptr;
  }
  std::string messages;

 private:
  void* library_ = nullptr;
};

}  // namespace xhat::bench

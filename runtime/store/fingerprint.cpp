#include "runtime/store/fingerprint.h"

#include <link.h>
#include <sys/auxv.h>
#include <sys/stat.h>

#include <cstdlib>
#include <string_view>
#include <utility>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <HalideRuntime.h>  // for its version only
#include <fmt/format.h>

#include "source_hash.h"  // generated: cmake/fingerprint.cmake

namespace xhat::runtime {
namespace {

// Identifies a file by size and time, which change when it is replaced.
std::string library_version() {
  struct stat file;
  if (stat(loaded_library("libHalide").c_str(), &file) != 0) return "linked in";
  return fmt::format("{} bytes of {}.{:09}", file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
}

// Model and extensions, as the processor and the operating system report them. /proc/cpuinfo has the same, but reading it takes milliseconds on
// machines with many cores.
std::string processor() {
#if defined(__x86_64__)
  std::string words;
  auto leaf = [&](unsigned number, unsigned part, bool model_only = false) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(number, part, &a, &b, &c, &d)) return;
    if (model_only) words += fmt::format("{:x}:{:x},{:x},{:x};", number, a, c, d);  // b differs from core to core
    else words += fmt::format("{:x}.{:x}:{:x},{:x},{:x},{:x};", number, part, a, b, c, d);
  };
  leaf(0, 0);  // vendor
  leaf(1, 0, true);
  leaf(7, 0);
  leaf(7, 1);
  leaf(0x80000001u, 0, true);
  leaf(0x24, 0);  // AVX10
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) && (c & bit_OSXSAVE)) {  // which registers the operating system saves
    unsigned low = 0, high = 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    words += fmt::format("xcr0:{:x}{:08x}", high, low);
  }
  return words;
#else
  return fmt::format("{:x},{:x}", getauxval(AT_HWCAP), getauxval(AT_HWCAP2));
#endif
}

}  // namespace

std::string loaded_library(const std::string& beginning) {
  std::pair<const std::string&, std::string> wanted(beginning, "");
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& [name, found] = *static_cast<decltype(wanted)*>(data);
        std::string_view path = info->dlpi_name;
        if (!path.substr(path.rfind('/') + 1).starts_with(name)) return 0;
        found = path;
        return 1;
      },
      &wanted);
  return wanted.second;
}

std::string code_fingerprint() {
  const char* options = std::getenv(kLlvmVariable);  // the user's options for Halide's compiler
  if (options && std::string_view(options) == kLlvmOptions) options = nullptr;
  return fmt::format("xhat {} {}; Halide {}.{}.{} {} {}; {}", XHAT_VERSION, XHAT_SOURCE_HASH, HALIDE_VERSION_MAJOR,
                     HALIDE_VERSION_MINOR, HALIDE_VERSION_PATCH, library_version(), options ? options : "",
                     processor());
}

}  // namespace xhat::runtime

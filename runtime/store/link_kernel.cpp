#include "runtime/store/link_kernel.h"

#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <sstream>
#include <vector>

#include <fmt/format.h>

#include "runtime/host/tile_services.h"
#include "runtime/store/child.h"
#include "runtime/store/fingerprint.h"
#include "runtime/store/nontemporal.h"
#include "runtime/store/whole_file.h"

namespace xhat::runtime {
namespace {

// In the order of TileServices' members.
constexpr const char* kServices[] = {"halide_malloc", "halide_free", kStreamSymbol, kListSymbol};
static_assert(sizeof(TileServices) == std::size(kServices) * sizeof(void*));

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
void jump_through_context(std::string& code, size_t i) {  // jmp *8*i(%rdi)
  for (size_t byte : {size_t{0xff}, size_t{0x67}, 8 * i}) code += static_cast<char>(byte);
}
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
void jump_through_context(std::string& code, size_t i) {  // ldr x16, [x0, 8*i]; br x16
  for (uint32_t word : {0xf9400010u | static_cast<uint32_t>(i) << 10, 0xd61f0200u})
    for (int b = 0; b < 32; b += 8) code += static_cast<char>(word >> b);
}
#else
constexpr Elf64_Half kMachine = EM_NONE;
void jump_through_context(std::string&, size_t) {}
#endif

template <class T>
std::string bytes_of(const T* items, size_t count) {
  return {reinterpret_cast<const char*>(items), count * sizeof(T)};
}

class LoadedTile : public TileCode {
 public:
  LoadedTile(void* library, int (*code)(void**), bool streams) : library_(library), code_(code), streams_(streams) {}
  ~LoadedTile() override { dlclose(library_); }
  LoadedTile(const LoadedTile&) = delete;
  LoadedTile& operator=(const LoadedTile&) = delete;

  int call(size_t, const void* const* argv) const override {
    const TileServices* context = &tile_services();
    auto args = const_cast<void**>(argv);  // argv[0] is for the context
    args[0] = &context;
    int status = code_(args);
    if (streams_) end_streaming();
    return status;
  }

 private:
  void* library_;
  int (*code_)(void**);
  bool streams_;
};

}  // namespace

std::string services_object() {
  if (kMachine == EM_NONE) return "";
  enum : Elf64_Half { kNull, kText, kNoStack, kSymbols, kNames, kSections };
  std::string code, names(1, '\0');
  auto name = [&](const char* text) {
    auto at = static_cast<Elf64_Word>(names.size());
    names.append(text, std::strlen(text) + 1);
    return at;
  };
  std::vector<Elf64_Sym> symbols(1);
  for (size_t i = 0; i < std::size(kServices); ++i) {
    Elf64_Sym s = {};
    s.st_name = name(kServices[i]);
    s.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    s.st_other = STV_HIDDEN;  // no other halide_malloc of the process may replace it
    s.st_shndx = kText;
    s.st_value = code.size();
    jump_through_context(code, i);
    s.st_size = code.size() - s.st_value;
    symbols.push_back(s);
    code.resize((code.size() + 15) / 16 * 16);
  }
  std::string file(sizeof(Elf64_Ehdr), '\0');
  std::vector<Elf64_Shdr> sections(kSections);
  auto section = [&](Elf64_Half at, const char* called, Elf64_Word type, Elf64_Xword flags, const std::string& content) {
    file.resize((file.size() + 15) / 16 * 16);
    Elf64_Shdr& s = sections[at];
    s.sh_name = name(called);
    s.sh_type = type;
    s.sh_flags = flags;
    s.sh_addralign = 16;
    s.sh_offset = file.size();
    s.sh_size = content.size();
    file += content;
  };
  section(kText, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, code);
  section(kNoStack, ".note.GNU-stack", SHT_PROGBITS, 0, "");
  section(kSymbols, ".symtab", SHT_SYMTAB, 0, bytes_of(symbols.data(), symbols.size()));
  sections[kSymbols].sh_entsize = sizeof(Elf64_Sym);
  sections[kSymbols].sh_link = kNames;
  sections[kSymbols].sh_info = 1;  // index of the first global symbol
  section(kNames, ".strtab", SHT_STRTAB, 0, names);  // contains its own name, which was added before
  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_REL;
  header.e_machine = kMachine;
  header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = kSections;
  header.e_shstrndx = kNames;
  file.resize((file.size() + 15) / 16 * 16);
  header.e_shoff = file.size();
  std::memcpy(file.data(), &header, sizeof header);
  return file + bytes_of(sections.data(), sections.size());
}

std::optional<Linker> find_linker() {
  const char* path = std::getenv("PATH");
  for (auto [name, compiler] : {std::pair("ld", false), std::pair("ld.lld", false), std::pair("cc", true)}) {
    std::stringstream folders(path ? path : "");
    for (std::string folder; std::getline(folders, folder, ':');) {
      std::string program = folder + "/" + name;
      if (folder.starts_with("/") && access(program.c_str(), X_OK) == 0) return Linker{program, compiler};
    }
  }
  return {};
}

static std::atomic<bool> hung = false;
bool linker_hangs() { return hung; }

static double link_seconds() {
  constexpr double kDefault = 30;  // seconds. Linking takes some 10 ms, on a machine that swaps or compiles other code some seconds
  const char* given = std::getenv("XHAT_LINK_SECONDS");
  const double seconds = given ? std::strtod(given, nullptr) : 0;
  return seconds > 0 ? seconds : kDefault;
}

// Links; libraries: with those that this process has loaded of C and mathematics. So the machine needs no development packages, and symbols get
// the versions that xhat itself uses.
static std::string link_with(const Linker& linker, const std::string& folder, const std::vector<std::string>& objects,
                             const std::string& shared, bool libraries) {
  std::vector<std::string> command = {linker.program, "-shared", "-o", shared};
  if (linker.compiler) command.push_back("-nostdlib");
  command.insert(command.end(), objects.begin(), objects.end());
  auto tell = [&](std::initializer_list<const char*> words) {
    for (const char* word : words) {
      if (linker.compiler) command.push_back("-Xlinker");
      command.push_back(word);
    }
  };
  tell({"--as-needed"});
  if (libraries)
    for (const char* name : {"libm.so", "libc.so"})
      if (std::string path = loaded_library(name); !path.empty()) command.push_back(path);
  tell({"-z", "defs", "-z", "now", "-z", "noexecstack", "-z", "noseparate-code", "-z", "max-page-size=4096", "-s",
        "--hash-style=gnu", "--build-id=none"});

  const double seconds = link_seconds();
  const std::string late = fmt::format("{} has not ended within {:g} s (XHAT_LINK_SECONDS) and was stopped", linker.program, seconds);
  if (hung) return late;
  // If the exit status is unknown, loading the result shows whether it succeeded.
  ChildEnd end = run_child(command, folder + "/log", "", seconds);
  if (end.failed) return linker.program + ": " + std::strerror(end.failed);
  if (end.stopped) {
    hung = true;
    return late;
  }
  if (end.fine()) return "";
  std::string line = end.said.substr(0, end.said.find('\n'));
  return linker.program + " failed" + (line.empty() ? "" : ": " + line);
}

std::string link_shared(const Linker& linker, const std::string& folder, const std::vector<std::string>& objects,
                        const std::string& shared) {
  // Most kernels call no library, and two thirds of a link's time go into reading the names that libraries define.
  // Where the exit status is unknown, a failed link is one that left no file.
  if (link_with(linker, folder, objects, shared, false).empty() && access(shared.c_str(), F_OK) == 0) return "";
  return link_with(linker, folder, objects, shared, true);
}

std::string link_kernels(const Linker& linker, const WorkFolder& work, const std::vector<NamedKernel>& kernels,
                         const std::function<void(const std::string& path)>& emit, const std::string& shared) {
  // A file in memory, because LLVM ends the process if the disk is full.
  File object(memfd_create("xhat kernel", MFD_CLOEXEC));
  if (object < 0) return std::strerror(errno);
  emit("/proc/self/fd/" + std::to_string(static_cast<int>(object)));
  const std::string kernel = work.file("kernel.o"), services = work.file("services.o");
  std::string content;
  if (!read_all(object, content)) return std::strerror(errno);
  if (std::ranges::any_of(kernels, [](const NamedKernel& k) { return k.arguments.streams; })) make_nontemporal_in(content);
  if (!write_all(kernel, content) || !write_all(services, services_object())) return std::strerror(errno);
  return link_shared(linker, work.path(), {kernel, services}, shared);
}

std::string tile_symbol(size_t i) { return i == 0 ? kTileSymbol : fmt::format("{}_{}", kTileSymbol, i); }

std::unique_ptr<TileCode> load_tile(const std::string& shared, size_t i, bool streams, std::string* why) {
  void* library = dlopen(shared.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* code = library ? dlsym(library, (tile_symbol(i) + "_argv").c_str()) : nullptr;
  if (code) return std::make_unique<LoadedTile>(library, reinterpret_cast<int (*)(void**)>(code), streams);
  if (why) *why = dlerror();
  if (library) dlclose(library);
  return nullptr;
}

}  // namespace xhat::runtime

#include <algorithm>

#include "runtime/ahead/build/ahead_text_parts.h"

namespace xhat::runtime {
namespace {

// The words for a device in the generated comments.
struct DeviceWords {
  Target target;
  const char *device, *stream, *memory;
  bool handles;  // memory is a handle, not a pointer to elements
};
constexpr DeviceWords kDeviceWords[] = {
    {Target::cuda, "NVIDIA's GPUs",
     "A CUstream or cudaStream_t; null: the default stream of the context that is current, or else of device 0.",
     "Device pointers, of the stream's context. Aligned to 16 bytes, where their number of bytes can be divided by that.", false},
    {Target::opencl, "OpenCL", "A cl_command_queue that runs in order.", "Each a cl_mem, of the queue's context.", true},
};

constexpr const char* kData = R"( * Data       Indices in the data are looked at before anything is written, and for that the call waits,
 *            unless {0}_{1}_trust_data says that they are in range.
)";

bool checks_data(const AheadDevice& d) {
  return std::ranges::any_of(d.checks, [](const auto& plans) { return !plans.empty(); });
}

const DeviceWords& words_of(const AheadDevice& d) { return *std::ranges::find(kDeviceWords, d.target, &DeviceWords::target); }

}  // namespace

// Scalar inputs of the op are passed by value. Computed scalars, such as a loss and its gradient, are device memory.
TextSide Text::on_device(const TextSide& side) const {
  TextSide made = side;
  for (Parameter& p : made.parameters) p.value = p.value && std::ranges::find(p_.inputs, p.tensor) != p_.inputs.end();
  return made;
}

std::string Text::device_signature(const TextSide& side, const AheadDevice& d) const {
  const bool handles = words_of(d).handles;
  std::string parameters = list(side.parameters, [&](const Parameter& p) {
    if (p.value) return fmt::format("{} {}", p.type, p.name);
    return fmt::format("{}{} *{}", p.written ? "" : "const ", handles ? "void" : p.type, p.name);
  });
  std::string stash = !side.keeps() ? "" : side.forward() ? "void *stash" : "const void *stash";
  std::string all = join(join(dims_parameter(""), "void *stream"), join(parameters, stash));
  return fmt::format("int {}_{}_{}({})", name_, name_of(d.target), side.name, all);
}

std::string Text::device_header(const AheadDevice& d) const {
  const DeviceWords& w = words_of(d);
  const std::string_view target = name_of(d.target);
  std::string s = fmt::format(R"(/* The same on {2}, where it was compiled for {3}.
 *
 * Driver     Looked for at the first call; without one the status is {4}_NO_DEVICE. What stands above works all the same.
 * Arrays     {5} So is the stash.
 *            Scalars that are read are passed by value, but for those that are computed.
 * Stream     {6}
 *            A call returns when its kernels are enqueued there, and what runs on the stream afterwards sees the results.
 *            Memory may be freed when the stream has come so far.
 * Memory     The first call of a function at some sizes on a stream loads code, and allocates what it needs beside your memory, anew
 *            where that is more than before; it stays with the stream until {0}_{1}_release.
{7} * Threads    Any number of threads may call, on the same stream too.
)",
                              name_, target, w.device, d.known_sizes.empty() ? "fixed sizes" : d.known_sizes, upper(name_), w.memory,
                              w.stream, checks_data(d) ? fmt::format(kData, name_, target) : "");
  if (d.target == Target::cuda)
    s += R"( * Graphs     A stream may be captured while calls are made that were made once before on it, with the same sizes. The graph
 *            uses the memory that these calls have on that stream: launch it there, or when none of them is at work.
)";
  s += " */\n";
  for (const TextSide& side : sides_) s += device_signature(on_device(side), d) + ";\n";
  s += "\n";
  if (sides_.size() > 1)
    s += fmt::format(R"(/* Bytes of the stash: one block of the device's memory, aligned to 512 bytes. 0 if the sizes are wrong. */
size_t {0}_{1}_stash_bytes({2});

)",
                     name_, target, dims_.empty() ? "void" : dims_parameter(""));
  if (checks_data(d))
    s += fmt::format(R"(/* on: from now on nobody looks at the indices in the data, and no call waits; one out of range reads or writes
 * other memory then. 0: they are looked at, as at the start. */
int {0}_{1}_trust_data(int on);

)",
                     name_, target);
  return s + fmt::format(R"(/* Frees what calls on this stream have allocated; call it before the stream is destroyed. */
int {0}_{1}_release(void *stream);

)",
                         name_, target);
}

std::string Text::device_cpp_header(const AheadDevice& d) const {
  const DeviceWords& w = words_of(d);
  const std::string_view target = name_of(d.target);
  const std::string first = dims_.empty() ? "" : "const dims_type& dims", pass = dims_.empty() ? "" : "&dims";
  std::string s = fmt::format("namespace {} {{\n\n", target);
  for (const TextSide& cpu : sides_) {
    TextSide side = on_device(cpu);
    std::string parameters = list(side.parameters, [&](const Parameter& p) {
      if (p.value) return fmt::format("{} {}", p.type, p.name);
      if (w.handles) return fmt::format("{}void* {}", p.written ? "" : "const ", p.name);
      return fmt::format("device_span<{}{}> {}", p.written ? "" : "const ", p.type, p.name);
    });
    std::string arguments = list(side.parameters, [&](const Parameter& p) { return p.value || w.handles ? p.name : p.name + ".data()"; });
    std::string stash = !side.keeps() ? "" : side.forward() ? "void* stash" : "const void* stash";
    s += fmt::format("inline void {}({}) {{\n", side.name, join(join(first, "void* stream"), join(parameters, stash)));
    if (!w.handles) s += cpp_size_checks(side);
    s += fmt::format("  check(::{}_{}_{}({}));\n}}\n\n", name_, target, side.name,
                     join(join(pass, "stream"), join(arguments, side.keeps() ? "stash" : "")));
  }
  if (sides_.size() > 1)
    s += fmt::format(R"(inline std::size_t stash_bytes({}) {{
  std::size_t bytes = ::{}_{}_stash_bytes({});
  if (bytes == 0) throw error({}_BAD_SIZE, ::{}_message());
  return bytes;
}}

)",
                     first, name_, target, pass, upper(name_), name_);
  if (checks_data(d)) s += fmt::format("inline void trust_data(bool on) {{ check(::{}_{}_trust_data(on)); }}\n\n", name_, target);
  s += fmt::format("inline void release(void* stream) {{ check(::{}_{}_release(stream)); }}\n\n", name_, target);
  return s + fmt::format("}}  // namespace {}\n\n", target);
}

std::string Text::device_source(size_t number) const {
  const AheadDevice& d = t_.devices[number];
  const std::string_view target = name_of(d.target);
  std::string s;
  for (size_t i = 0; i < sides_.size(); ++i) {
    TextSide side = on_device(sides_[i]);
    std::string call = fmt::format("xhat_ahead_device_call(&library, {}, {}, {}, stream", number, i, dims_argument());
    s += source_call(side, device_signature(side, d), call, false);
  }
  if (sides_.size() > 1) s += source_stash_bytes(std::string(target));
  if (checks_data(d))
    s += fmt::format("int {}_{}_trust_data(int on) {{ return xhat_ahead_device_trust_data(&library, {}, on); }}\n", name_, target, number);
  return s + fmt::format(R"(int {}_{}_release(void* stream) {{
  return xhat_ahead_device_release(&library, {}, stream);
}}
)",
                         name_, target, number);
}

}  // namespace xhat::runtime

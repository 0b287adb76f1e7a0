// Part of every library compiled ahead of time: checks a call for the CPU, chooses the plan for its sizes, runs it.
//
// A stash is one block: a head that names the library and the sizes, then the stashed tensors, each at a multiple of 64 bytes.
#include "runtime/ahead/support/run.h"

#include <algorithm>
#include <cstdlib>

#include "runtime/ahead/support/known_plans.h"
#include "runtime/ahead/support/library.h"
#include "runtime/ahead/support/machine.h"
#include "runtime/host/scratch.h"
#include "runtime/host/tile_services.h"

namespace xhat::runtime {
namespace {

class AheadTile : public TileCode {
 public:
  AheadTile(int (*code)(void**), bool streams) : code_(code), streams_(streams) {}
  int call(size_t, const void* const* argv) const override {
    const void* context = nullptr;
    auto args = const_cast<const void**>(argv);  // argv[0] is for the context
    args[0] = &context;
    int status = code_(const_cast<void**>(args));
    if (streams_) end_streaming();
    return status;
  }

 private:
  int (*code_)(void**);
  bool streams_;
};

// --- a side at some sizes ----------------------------------------------------------------------------------

struct Plans {
  std::unique_ptr<TileWalk> walk, checks;
  std::vector<std::vector<int64_t>> shapes;  // per tensor
};

}  // namespace

struct CpuCalls {
  size_t level = 0;
  std::vector<AheadTile> tiles;
  std::vector<const TileCode*> codes;
  KnownPlans<Plans> plans;
};

namespace {

// Throws Failure if the library has no code for this processor.
CpuCalls& cpu_of(Opened& o, const xhat_ahead_library& library) {
  std::lock_guard lock(o.mutex);
  if (o.cpu) return *o.cpu;
  auto made = std::make_shared<CpuCalls>();
  made->level = choose_level(o.table.levels);
  for (size_t c = 0; c < o.table.streams.size(); ++c)
    made->tiles.emplace_back(library.tiles[made->level * static_cast<size_t>(library.codes) + c], o.table.streams[c] != 0);
  for (const AheadTile& tile : made->tiles) made->codes.push_back(&tile);
  o.cpu = made;
  return *made;
}

std::shared_ptr<Plans> make_plans(const AheadTable& t, const CpuCalls& cpu, const AheadSide& side, const std::vector<int64_t>& dims,
                                  AheadLayout layout) {
  const AheadNumbers at = numbers_for(t, side.variants, dims, t.known_sizes, {}, layout);
  SlotReader reader(at.numbers, at.reals);
  auto walk = [&] {
    WalkPlan plan;
    transfer_plan(reader, plan);
    for (const WalkTemporary& temporary : plan.temporaries) check_elements(t, temporary.shape, dims);
    for (WalkKernel& k : plan.kernels) {
      std::vector<int64_t> tiles = tiles_by_rule(k);
      for (size_t i = 0; i < tiles.size(); ++i) k.shared[i].tile = tiles[i];
    }
    return std::make_unique<TileWalk>(std::move(plan), cpu.codes);
  };
  auto made = std::make_shared<Plans>();
  for (size_t i = 0; i < t.tensors.size(); ++i) made->shapes.push_back(shape_of(t, static_cast<int64_t>(i), dims));
  made->walk = walk();
  if (side.check_tensors > 0) made->checks = walk();
  return made;
}

// --- the stash ---------------------------------------------------------------------------------------------

constexpr int64_t kLineBytes = 64;
int64_t rounded(int64_t bytes) { return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes; }

struct StashHead {
  uint64_t mark;
  const void* library;
  uint64_t sizes;  // hash of the dims
};
constexpr uint64_t kStashMark = 0x6873617453746168;

uint64_t hash_of(const std::vector<int64_t>& dims) {  // FNV-1a over 64-bit words
  uint64_t h = 14695981039346656037u;
  for (int64_t d : dims) h = (h ^ static_cast<uint64_t>(d)) * 1099511628211u;
  return h;
}

int64_t stash_bytes(const AheadTable& t, const std::vector<int64_t>& dims) {
  int64_t bytes = kLineBytes;
  for (int64_t s : t.stash) bytes += rounded(bytes_of(t, s, dims));
  return bytes;
}

// --- a call ------------------------------------------------------------------------------------------------

class Call {
 public:
  Call(xhat_ahead_library* library, int number, const int64_t* dims)
      : library_(library),
        o_(open(library)),
        cpu_(cpu_of(o_, *library)),
        t_(o_.table),
        number_(number),
        side_(side_of(t_, number)),
        dims_(dims_of(o_, dims)) {}

  void run(void* const* tensors, const int64_t* const* strides, void* stash) {
    const AheadLayout layout = layout_of(strides);
    plans_ = cpu_.plans.find(side_.variants, dims_, layout, [&] { return make_plans(t_, cpu_, side_, dims_, layout); });
    views_.assign(std::max(t_.tensors.size(), static_cast<size_t>(side_.check_tensors)), TensorView());
    check_sizes(t_, side_, dims_);
    size_t at = 0;
    auto next = [&](int64_t i, bool written) {
      bind(i, tensors[at], strides && layout != AheadLayout::dense ? strides[at] : nullptr, written);
      ++at;
    };
    for (int64_t i : side_.inputs) next(i, false);
    for (int64_t i : side_.outputs) next(i, true);
    if (number_ != kInfer) bind_stash(stash);
    check_overlap(stash);
    std::shared_ptr<ThreadPool> threads = thread_pool();
    check_data(*threads);
    if (number_ == kForward) *static_cast<StashHead*>(stash) = {kStashMark, library_, hash_of(dims_)};
    plans_->walk->run(*threads, std::span(views_).first(t_.tensors.size()));
  }

 private:
  // The strides of an array that has gaps; none for one that is dense. Throws Failure for strides that no array has.
  std::vector<int64_t> gaps(int64_t tensor, const int64_t* strides) const {
    const std::vector<int64_t> shape = shape_of(t_, tensor, dims_);
    const std::string& name = t_.tensors[static_cast<size_t>(tensor)].name;
    std::vector<int64_t> found(strides, strides + shape.size());
    const bool written = std::ranges::find(side_.outputs, tensor) != side_.outputs.end();
    if (std::ranges::find(shape, 0) != shape.end()) return {};
    double reach = 1;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (found[d] < 0) fail(t_, AheadStatus::bad_argument, name + " has a negative stride in dimension " + std::to_string(d));
      if (written && found[d] == 0 && shape[d] > 1)
        fail(t_, AheadStatus::bad_argument, name + " is written, but has stride 0 in dimension " + std::to_string(d));
      reach += static_cast<double>(shape[d] - 1) * static_cast<double>(found[d]);
    }
    if (reach > static_cast<double>(INT32_MAX))
      fail(t_, AheadStatus::bad_argument, name + " spans more than 2^31-1 elements; split it into pieces");
    const TensorView v(nullptr, t_.tensors[static_cast<size_t>(tensor)].type, shape, found);
    if (v.dense()) return {};
    for (size_t d = 0; d < shape.size(); ++d)
      if (shape[d] == 1) found[d] = 1;  // it does not matter
    return found;
  }

  AheadLayout layout_of(const int64_t* const* strides) {
    AheadLayout layout = AheadLayout::dense;
    size_t at = 0;
    for (const auto* list : {&side_.inputs, &side_.outputs})
      for (int64_t i : *list) {
        const int64_t* given = strides ? strides[at] : nullptr;
        ++at;
        if (!given) continue;
        const std::vector<int64_t> steps = gaps(i, given);
        if (!steps.empty()) layout = std::max(layout, steps.back() == 1 ? AheadLayout::rows : AheadLayout::any);
      }
    return layout;
  }

  TensorView view_of(int64_t tensor, void* data) const {
    auto i = static_cast<size_t>(tensor);
    return TensorView(data, t_.tensors[i].type, plans_->shapes[i], {});
  }

  void bind(int64_t tensor, void* data, const int64_t* strides, bool written) {
    TensorView v = view_of(tensor, data);
    if (strides && data)
      if (const std::vector<int64_t> steps = gaps(tensor, strides); !steps.empty()) std::ranges::copy(steps, v.strides.begin());
    const std::string& name = t_.tensors[static_cast<size_t>(tensor)].name;
    if (!data && v.elements() > 0) {
      // A gradient that the caller does not want (null) is computed into memory of ours.
      if (!written || number_ != kBackward)
        fail(t_, AheadStatus::bad_argument, name + " is null; it has " + std::to_string(v.elements()) + " elements");
      unwanted_.push_back(allocate(v.bytes()));
      v.data = unwanted_.back().get();
    }
    if (reinterpret_cast<uintptr_t>(v.data) % byte_size(v.type) != 0)
      fail(t_, AheadStatus::bad_argument, name + " is not aligned to its element size, " + std::to_string(byte_size(v.type)) + " bytes");
    views_[static_cast<size_t>(tensor)] = v;
  }

  void bind_stash(void* stash) {
    if (!stash) fail(t_, AheadStatus::bad_argument, "the stash is null; it takes " + std::to_string(stash_bytes(t_, dims_)) + " bytes");
    if (reinterpret_cast<uintptr_t>(stash) % 16 != 0) fail(t_, AheadStatus::bad_argument, "the stash is not aligned to 16 bytes");
    if (number_ == kBackward) {
      const auto& head = *static_cast<const StashHead*>(stash);
      if (head.mark != kStashMark || head.library != library_)
        fail(t_, AheadStatus::bad_argument, "the stash was not written by the forward of this op; call forward first, with the same block");
      if (head.sizes != hash_of(dims_))
        fail(t_, AheadStatus::bad_argument, "the stash was written for other sizes than " + sizes_text(t_, dims_));
    }
    auto* at = static_cast<char*>(stash) + kLineBytes;
    for (int64_t s : t_.stash) {
      TensorView v = view_of(s, at);
      views_[static_cast<size_t>(s)] = v;
      at += rounded(v.bytes());
    }
    stash_end_ = at;
  }

  void check_overlap(const void* stash) const {
    auto clash = [&](int64_t out, const TensorView& with, const std::string& other) {
      const TensorView& v = views_[static_cast<size_t>(out)];
      if (v.elements() > 0 && with.elements() > 0 && overlap(v, with))
        fail(t_, AheadStatus::bad_argument,
             t_.tensors[static_cast<size_t>(out)].name + " overlaps " + other + " in memory; outputs need memory of their own");
    };
    TensorView kept;
    if (number_ != kInfer) {
      const int64_t bytes = stash_end_ - static_cast<const char*>(stash);
      kept = TensorView(const_cast<void*>(stash), DType::u8, std::span(&bytes, 1), {});
    }
    for (int64_t out : side_.outputs) {
      for (const auto* list : {&side_.inputs, &side_.outputs})
        for (int64_t i : *list)
          if (i != out) clash(out, views_[static_cast<size_t>(i)], t_.tensors[static_cast<size_t>(i)].name);
      if (number_ != kInfer) clash(out, kept, "the stash");
    }
    if (number_ == kForward)
      for (int64_t i : side_.inputs) {
        const TensorView& v = views_[static_cast<size_t>(i)];
        if (v.elements() > 0 && v.begin() < stash_end_ && static_cast<const char*>(stash) < v.end())
          fail(t_, AheadStatus::bad_argument, "the stash overlaps " + t_.tensors[static_cast<size_t>(i)].name + " in memory");
      }
  }

  // Checks indices in the data, before anything is written.
  void check_data(ThreadPool& threads) {
    if (!plans_->checks) return;
    std::vector<TensorView> views = views_;
    std::vector<uint8_t> failed(side_.checks.size(), 0);
    for (size_t i = 0; i < failed.size(); ++i)
      views[static_cast<size_t>(side_.checks[i].tensor)] = TensorView(&failed[i], DType::boolean, {}, {});
    plans_->checks->run(threads, views);
    for (size_t i = 0; i < failed.size(); ++i)
      if (failed[i]) fail(t_, AheadStatus::bad_data, side_.checks[i].text + "; sizes are " + sizes_text(t_, dims_));
  }

  xhat_ahead_library* library_;
  Opened& o_;
  CpuCalls& cpu_;
  const AheadTable& t_;
  int number_;
  const AheadSide& side_;
  std::vector<int64_t> dims_;
  std::shared_ptr<const Plans> plans_;
  std::vector<TensorView> views_;
  std::vector<OwnedMemory> unwanted_;
  const char* stash_end_ = nullptr;
};

}  // namespace

}  // namespace xhat::runtime

using namespace xhat::runtime;

extern "C" {

int xhat_ahead_call(xhat_ahead_library* library, int side, const int64_t* dims, void* const* tensors, const int64_t* const* strides,
                    void* stash) {
  return guarded([&] { Call(library, side, dims).run(tensors, strides, stash); });
}

int xhat_ahead_stash_bytes(xhat_ahead_library* library, const int64_t* dims, int64_t* bytes) {
  return guarded([&] {
    const Opened& o = open(library);
    *bytes = stash_bytes(o.table, dims_of(o, dims));
  });
}

int xhat_ahead_set_threads(int threads) {
  return guarded([&] { set_threads(threads); });
}

const char* xhat_ahead_level(xhat_ahead_library* library) {
  const char* name = "";
  guarded([&] {
    Opened& o = open(library);
    name = name_of(o.table.levels[cpu_of(o, *library).level]).data();
  });
  return name;
}

// The services that compiled tiles call. They are weak, because a program may have several equivalent definitions (of another such library, of
// Halide).
__attribute__((weak)) void* halide_malloc(void*, size_t size) { return tile_services().allocate(nullptr, size); }
__attribute__((weak)) void halide_free(void*, void* data) { tile_services().release(nullptr, data); }
__attribute__((weak)) int xhat_stream(void*, void* result, int first, void* scratch, int elements, int bytes, bool begins, bool ends) {
  return tile_services().stream(nullptr, result, first, scratch, elements, bytes, begins, ends);
}
__attribute__((weak)) int xhat_list(void*, const int* places, int terms, int rows, int* list) {
  return tile_services().list(nullptr, places, terms, rows, list);
}

}  // extern "C"

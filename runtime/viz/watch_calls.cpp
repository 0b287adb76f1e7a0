#include "runtime/call/watch_calls.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>

#include "runtime/call/debug.h"
#include "runtime/viz/viz.h"

namespace xhat::runtime {
namespace {

// A process that makes an op for each of many sizes, or in a loop, shall not fill a disk.
constexpr int kMostPages = 100;
std::atomic<int> pages = 0;

using Clock = std::chrono::steady_clock;
// Kernels of the call that this thread makes, by when they ended.
thread_local std::vector<std::pair<VizEvent, Clock::time_point>> running;

}  // namespace

const std::string& viz_folder() {
  static const std::string folder = [] {
    const char* text = std::getenv("XHAT_VIZ");
    const std::string value = text ? text : "";
    return value == "0" ? "" : value == "1" ? "xhat_viz" : value;
  }();
  return folder;
}

struct WatchedOp::Impl {
  Program op;
  CompileOptions options;
  std::mutex mutex;
  std::set<std::pair<std::string, DimValues>> seen;
  std::map<DimValues, std::vector<VizEvent>> timelines;
  int number = 0;  // of the op among those of the process; 0: none yet
};

WatchedOp::WatchedOp(Program op, CompileOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->op = std::move(op);
  impl_->options = std::move(options);
  impl_->options.on_kernel = {};
}
WatchedOp::~WatchedOp() = default;

void WatchedOp::kernel(const Kernel& kernel, double ns) { running.push_back({{"", kernel.name, 0, ns}, Clock::now()}); }

void WatchedOp::ran(const std::string& direction, const DimValues& dims) {
  auto events = std::move(running);
  running.clear();
  std::lock_guard lock(impl_->mutex);
  if (!impl_->seen.emplace(direction, dims).second) return;
  if (impl_->number == 0 && (impl_->number = ++pages) > kMostPages) return;
  if (impl_->number > kMostPages) return;
  std::vector<VizEvent>& timeline = impl_->timelines[dims];
  double start = 0;
  for (const VizEvent& e : timeline) start = std::max(start, e.start_ns + e.ns);
  const Clock::time_point first = events.empty() ? Clock::now() : events[0].second;
  for (auto& [event, end] : events) {
    event.direction = direction == "infer" && impl_->options.differentiate ? "infer" : direction == "infer" ? "forward" : direction;
    event.start_ns = start + events[0].first.ns + std::chrono::duration<double, std::nano>(end - first).count() - event.ns;
    timeline.push_back(event);
  }
  VizOptions options;
  options.timeline = timeline;
  options.timeline_of = "The first call of each direction in the process that wrote this page, one after the other.";
  options.listed_kernels = 4;
  const std::string name = impl_->op.name + "." + std::to_string(impl_->number) +
                           (impl_->timelines.size() > 1 ? "." + std::to_string(impl_->timelines.size()) : "") + ".html";
  try {
    std::filesystem::create_directories(viz_folder());
    const std::filesystem::path path = std::filesystem::path(viz_folder()) / name;
    std::ofstream file(path, std::ios::binary);
    file << viz(impl_->op, impl_->options, dims, options);
    file.close();
    show_text(file ? "XHAT_VIZ: " + path.string() : "XHAT_VIZ: " + path.string() + " cannot be written");
  } catch (const std::exception& e) {
    show_text("XHAT_VIZ: " + name + ": " + e.what());
  }
}

}  // namespace xhat::runtime

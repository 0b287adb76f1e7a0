#include "runtime/explain/explain_why.h"

#include <cmath>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cse/stash/stash_reason.h"
#include "expr/text/import.h"
#include "runtime/call/passes.h"
#include "runtime/explain/explain_steps.h"

namespace xhat {
namespace {

using Verdict = StashCandidate::Verdict;

std::string_view text_of(Verdict v) {
  switch (v) {
    case Verdict::kept: return "kept";
    case Verdict::recomputed: return "recomputed";
    case Verdict::free: return "free";
  }
  return "";
}

std::string names(const std::vector<std::string>& list) { return list.empty() ? "nothing" : fmt::format("{}", fmt::join(list, ", ")); }

class Why {
 public:
  Why(const Program& op, const CompileOptions& options, const DimValues& given, std::string name)
      : options_(options), passes_(op, options), name_(std::move(name)) {
    sizes_ = choose_sizes(op, options.stash, given);
    for (const Dim& d : op.dims)
      if (const std::string& dim = op.arena->name(d.dim); d.definition == kNone && !given.contains(dim)) nominal_[dim] = sizes_.at(dim);
  }

  std::string run() {
    const StashReason r = reason_at(sizes_);
    const StashCandidate& c = r.candidate;
    std::string shape;
    for (Id e : c.shape) shape += (shape.empty() ? "" : ",") + print(passes_.halfway(), e);
    text_ = sizes_text(sizes_, nominal_);
    text_ += fmt::format("{} [{}]: {}, because {}\n", c.name, shape, text_of(c.verdict), reason(c));
    if (!c.expression.empty()) line("is", c.expression);
    line("read by", names(r.read_by));
    if (!r.made_of.empty()) line("made of", names(r.made_of));
    line("to keep", fmt::format("{}, {}", bytes_text(static_cast<double>(c.bytes)), price(c.keep_ns)));
    line("to recompute", c.expression.empty()         ? "never: it is an input"
                         : std::isinf(c.recompute_ns) ? "never"
                                                      : time_text(c.recompute_ns) + " by itself");
    line("the choice", fmt::format("{} for all that the backward needs of the forward", time_text(r.cost_ns)));
    changes(r);
    return text_;
  }

 private:
  StashReason reason_at(const DimValues& sizes) const {
    return stash_reason(own_copy(passes_.halfway()), options_.stash, options_.machine, sizes, name_);
  }
  void line(std::string_view what, const std::string& is) { text_ += fmt::format("  {:<17}{}\n", what, is); }
  static std::string price(double ns) { return std::isinf(ns) ? "never" : time_text(ns); }
  static std::string reason(const StashCandidate& c) { return c.verdict == Verdict::free ? "it stays with the caller" : c.reason; }

  void changes(const StashReason& r) {
    const StashCandidate& c = r.candidate;
    if (c.verdict == Verdict::free) return line("otherwise", fmt::format("--drop {} counts what keeping it would cost", c.name));
    if (std::isinf(r.other_ns)) return line("otherwise", "no choice is possible in which it is " + other(c.verdict));
    const double more = r.other_ns - r.cost_ns;
    line("otherwise", fmt::format("{} more, if it were {}", time_text(std::max(0.0, more)), other(c.verdict)));
    if (goes_by_price()) {
      // A verdict holds while its own price is below what the other choice would cost more.
      if (c.verdict == Verdict::recomputed)
        line("would be kept", std::isinf(c.keep_ns)
                                  ? "never"
                                  : fmt::format("if keeping it cost less than {}, or recomputing it more than {}",
                                                time_text(std::max(0.0, c.keep_ns - more)), time_text(c.recompute_ns + more)));
      else if (c.verdict == Verdict::kept)
        line("would go", fmt::format("if keeping it cost more than {}", time_text(c.keep_ns + more)));
      for (const auto& [dim, unused] : sizes_) sizes_that_change(dim, c.verdict);
    }
  }

  static std::string other(Verdict v) { return v == Verdict::recomputed ? "kept" : "recomputed"; }
  bool goes_by_price() const { return options_.stash.policy == StashOptions::Policy::cost; }

  // The nearest sizes of one dim, by powers of two, at which the verdict is another one.
  void sizes_that_change(const std::string& dim, Verdict now) {
    constexpr int kDoublings = 12;
    for (const bool larger : {false, true})
      for (int k = 1; k <= kDoublings; ++k) {
        DimValues sizes = sizes_;
        int64_t& size = sizes[dim];
        size = larger ? size << k : size >> k;
        if (size < 1) break;
        const auto verdict = verdict_at(sizes);
        if (!verdict) break;
        if (*verdict == now) continue;
        line(fmt::format("{} = {}", dim, size), std::string(text_of(*verdict)));
        break;
      }
  }

  std::optional<Verdict> verdict_at(const DimValues& sizes) const {
    try {
      return reason_at(sizes).candidate.verdict;
    } catch (const Error&) {
      return std::nullopt;  // sizes that the op refuses, or at which the backward does not need it
    }
  }

  const CompileOptions& options_;
  const runtime::Passes passes_;
  const std::string name_;
  DimValues sizes_, nominal_;
  std::string text_;
};

}  // namespace

std::string explain_why(const Program& op, const CompileOptions& options, const DimValues& given, const std::string& name) {
  return Why(op, options, given, name).run();
}

}  // namespace xhat

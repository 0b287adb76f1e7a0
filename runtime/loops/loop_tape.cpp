#include "runtime/loops/loop_tape.h"

#include <algorithm>

#include "expr/core/array.h"
#include "expr/index/dims.h"
#include "runtime/loops/loop_lasting.h"

namespace xhat::runtime {

namespace {
using Is = LoopBlock::Role::Is;
constexpr double kUnknownTurns = 16;  // of a loop in a loop, where sizes do not say

bool has_values(const Arena& a, Id e, const AxisValues& at) {
  return std::ranges::all_of(a[e].free_axes(), [&](Id axis) { return at.contains(axis); });
}
}  // namespace

LoopTape::LoopTape(const Program& p, const Loop& loop, const DimValues& dims, const LoopBlocks& blocks, const LoopMemory& memory)
    : p_(p), loop_(loop), dims_(dims), blocks_(blocks), memory_(memory) {
  for (const Steps* steps : {&loop.test, &loop.body})
    for_each_block(*steps, [&](const Block& block) {
      for (size_t k = 0; k < block.results.size(); ++k)
        if (std::vector<Changed> found = changed_by(p, block, blocks.at(&block), memory, k); !found.empty())
          changed_[{&block, k}] = std::move(found);
      keep_what_can_be_found(block);
    });
  // What says where a row went is needed where the row is.
  for (size_t before = 1, now = 0; now != before; now = read_back_.size()) {
    before = read_back_.size();
    find_read_back(loop.body);
    if (loop.condition) find_read_back(loop.test);
  }
  const std::set<TensorId> all = lasting_places(p, loop, dims, blocks, memory, read_back_);
  std::map<TensorId, Traffic> by_place;
  AxisValues at;
  note(loop, 1, at, by_place);
  for (const auto& [place, traffic] : by_place)
    if (read_back_.contains(place) && !looked_up_.contains(place) && !all.contains(place) && traffic.read < traffic.written)
      as_read_.insert(place);
  for (TensorId place : as_read_) read_back_.erase(place);
  for (size_t k = 0; k < loop.carried.size(); ++k)
    if (const TensorId place = memory.place(loop.carried[k].result); read_back_.contains(place) && !memory.is_outside(place))
      left_.emplace(place, k);
  for (const auto& [place, k] : left_)
    if (all.contains(place) && !looked_up_.contains(place)) lasting_.insert(place);
}

// The block's results that lie where something is that says where elements of this one are.
std::vector<size_t> LoopTape::named_by(const Block& b, size_t result) const {
  std::set<TensorId> read;
  for (const Changed& c : changed(b, result))
    for (Id x : c.all_places())
      for (TensorId t : tensors_read(*p_.arena, x))
        if (std::ranges::count(b.results, t) == 0) read.insert(memory_.place(t));
  std::vector<size_t> found;
  for (size_t k = 0; k < b.results.size(); ++k)
    if (read.contains(memory_.place(b.results[k]))) found.push_back(k);
  return found;
}

bool LoopTape::reads_as_it_was(const Block& b, size_t result) const {
  const LoopBlock& block = blocks_.at(&b);
  return std::ranges::any_of(block.in_place, [&](const std::pair<size_t, size_t>& i) {
    return i.first == result && block.backward_reads(Is::operand, i.second) &&
           memory_.place(b.operands[i.second].value) == memory_.place(b.results[result]);
  });
}

bool LoopTape::is_undone_first(const Block& b, size_t result) const {
  if (reads_as_it_was(b, result) || is_computed(b, result)) return true;
  for (size_t k = 0; k < b.results.size(); ++k)
    if (const std::vector<size_t> by = named_by(b, k); reads_as_it_was(b, k) && std::ranges::count(by, result) > 0) return true;
  return false;
}

// A result that says where others are is undone before them. So it says where it is itself by something else, and is not read by the block's
// backward as the block left it, where that reads the others as they were.
void LoopTape::keep_what_can_be_found(const Block& b) {
  for (size_t k = 0; k < b.results.size(); ++k) {
    auto fails = [&](size_t by) {
      return by == k || !named_by(b, by).empty() || (reads_as_it_was(b, k) && blocks_.at(&b).backward_reads(Is::result, by));
    };
    const std::vector<size_t> by = named_by(b, k);
    const bool too_late = is_computed(b, k) && (!by.empty() || blocks_.at(&b).backward_reads(Is::result, k));
    if (too_late || std::ranges::any_of(by, fails)) changed_.erase({&b, k});
  }
}

bool LoopTape::is_computed(const Block& b, size_t result) const {
  return std::ranges::any_of(changed(b, result), [](const Changed& c) { return !c.members.empty(); });
}

std::vector<size_t> LoopTape::results_in_order(const Block& b) const {
  std::vector<size_t> order;
  for (bool named : {true, false})
    for (size_t k = 0; k < b.results.size(); ++k)
      if (named_by(b, k).empty() != named) order.push_back(k);
  return order;
}

void LoopTape::look_up(Id expression) {
  if (expression == kNone) return;
  for (TensorId t : tensors_read(*p_.arena, expression)) read_back_.insert(memory_.place(t)), looked_up_.insert(memory_.place(t));
}

void LoopTape::find_read_back(const Steps& steps) {
  for (const Step& s : steps) {
    if (auto* b = std::get_if<Block>(&s.is))
      for (size_t k = 0; k < b->results.size(); ++k)
        for (const Changed& c : is_read_back(b->results[k]) ? changed(*b, k) : std::vector<Changed>())
          for (Id x : c.all_places()) look_up(x);
    if (auto* b = std::get_if<Block>(&s.is); b && blocks_.at(b).backward) {
      const LoopBlock& block = blocks_.at(b);
      for (size_t k = 0; k < b->operands.size(); ++k) {
        const Operand& o = b->operands[k];
        if (o.scalar == kNone && block.backward_reads(Is::operand, k) && !memory_.is_copied(*b, k))
          read_back_.insert(memory_.place(o.value));
        look_up(o.scalar);
        for (Id x : o.row) look_up(x);
      }
      for (size_t k = 0; k < b->results.size(); ++k)
        if (block.backward_reads(Is::result, k)) read_back_.insert(memory_.place(b->results[k]));
    }
    if (auto* u = std::get_if<Update>(&s.is); u && (is_float(p_.tensors[u->base].type) || is_read_back(u->result)))
      for (Id x : u->row) look_up(x);
    if (auto* l = std::get_if<Loop>(&s.is)) find_read_back(l->test), find_read_back(l->body);
    if (auto* b = std::get_if<Branch>(&s.is)) find_read_back(b->then), find_read_back(b->otherwise);
  }
}

std::vector<size_t> LoopTape::operands_as_read(const Block& b) const {
  std::vector<size_t> found;
  for (size_t k = 0; k < b.operands.size(); ++k)
    if (b.operands[k].scalar == kNone && is_kept_as_read(b.operands[k].value) && !memory_.is_copied(b, k) &&
        blocks_.at(&b).backward_reads(Is::operand, k))
      found.push_back(k);
  return found;
}

std::vector<size_t> LoopTape::results_as_read(const Block& b) const {
  std::vector<size_t> found;
  for (size_t k = 0; k < b.results.size(); ++k)
    if (is_kept_as_read(b.results[k]) && blocks_.at(&b).backward_reads(Is::result, k)) found.push_back(k);
  return found;
}

const std::vector<Changed>& LoopTape::changed(const Block& b, size_t result) const {
  static const std::vector<Changed> all_of_it;
  const auto it = changed_.find({&b, result});
  return it == changed_.end() ? all_of_it : it->second;
}

double LoopTape::elements(const Block& b) const {
  double sum = 0;
  for (size_t k = 0; k < b.results.size(); ++k)
    if (is_restored(b.results[k])) sum += changed_elements_.at({&b, k});
  for (size_t k : operands_as_read(b)) sum += row_elements(b.operands[k].value, b.operands[k].row);
  for (size_t k : results_as_read(b)) sum += elements(b.results[k]);
  return sum;
}

double LoopTape::elements(TensorId t) const { return static_cast<double>(element_count(shape_of(p_, t, dims_))); }

double LoopTape::row_elements(TensorId t, const Row& row) const {
  return static_cast<double>(element_count(of_row(shape_of(p_, t, dims_), row)));
}

double LoopTape::changed_elements(const Block& b, size_t result, const AxisValues& at) {
  const double all = elements(b.results[result]);
  double sum = changed(b, result).empty() ? all : 0;
  for (const Changed& c : changed(b, result)) {
    const bool known =
        std::ranges::all_of(c.box, [&](const Reach& r) { return has_values(*p_.arena, r.begin, at) && has_values(*p_.arena, r.end, at); });
    sum += known ? static_cast<double>(elements_in(*p_.arena, c.box, dims_, at)) : all;
  }
  // Parts that are together as much as the whole.
  if (changed(b, result).size() > 1 && sum >= all) changed_.erase({&b, result});
  return std::min(all, sum);
}

// Its variable is in the middle, if sizes say where that is.
double LoopTape::turns(const Loop& l, AxisValues& at) const {
  at.erase(l.variable);
  for (Id bound : {l.begin, l.end})
    if (!tensors_read(*p_.arena, bound).empty() || !has_values(*p_.arena, bound, at)) return kUnknownTurns;
  const int64_t begin = evaluate_extent(*p_.arena, l.begin, dims_, at), end = evaluate_extent(*p_.arena, l.end, dims_, at);
  const int64_t count = std::max<int64_t>(0, (end - begin + l.stride - 1) / l.stride);
  at[l.variable] = begin + count / 2 * l.stride;
  return l.condition ? std::min(kUnknownTurns, static_cast<double>(count)) : static_cast<double>(count);
}

void LoopTape::note_moved(TensorId to, TensorId from, double runs, std::map<TensorId, Traffic>& by_place) const {
  if (memory_.place(to) != memory_.place(from)) by_place[memory_.place(to)].written += runs * elements(to);
}

void LoopTape::note(const Loop& l, double runs, AxisValues& at, std::map<TensorId, Traffic>& by_place) {
  runs *= turns(l, at);
  for (const Carried& c : l.carried) note_moved(c.entering, c.leaving, runs, by_place);
  note(l.test, runs, at, by_place), note(l.body, runs, at, by_place);
}

void LoopTape::note(const Steps& steps, double runs, AxisValues& at, std::map<TensorId, Traffic>& by_place) {
  auto written = [&](TensorId t, double n) { by_place[memory_.place(t)].written += runs * n; };
  for (const Step& s : steps) {
    if (auto* b = std::get_if<Block>(&s.is)) {
      const LoopBlock& block = blocks_.at(b);
      for (size_t k = 0; k < b->operands.size(); ++k)
        if (const Operand& o = b->operands[k]; o.scalar == kNone && block.backward_reads(Is::operand, k) && !memory_.is_copied(*b, k))
          by_place[memory_.place(o.value)].read += runs * row_elements(o.value, o.row);
      for (size_t k = 0; k < b->results.size(); ++k) {
        if (block.backward_reads(Is::result, k)) by_place[memory_.place(b->results[k])].read += runs * elements(b->results[k]);
        written(b->results[k], changed_elements_[{b, k}] = changed_elements(*b, k, at));
      }
    }
    if (auto* u = std::get_if<Update>(&s.is))
      written(u->result, memory_.place(u->base) == memory_.place(u->result) ? row_elements(u->base, u->row) : elements(u->result));
    if (auto* l = std::get_if<Loop>(&s.is)) {
      for (const Carried& c : l->carried)
        note_moved(c.entering, c.initial, runs, by_place), note_moved(c.result, c.entering, runs, by_place);
      note(*l, runs, at, by_place);
    }
    if (auto* b = std::get_if<Branch>(&s.is)) {
      for (const Branch::Merge& m : b->merges)
        note_moved(m.result, m.then, runs, by_place), note_moved(m.result, m.otherwise, runs, by_place);
      note(b->then, runs, at, by_place), note(b->otherwise, runs, at, by_place);
    }
  }
}

}  // namespace xhat::runtime

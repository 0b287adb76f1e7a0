// Serializes a WalkPlan to a row of numbers, and back. Two plans whose `structure` and `code` numbers are equal have the same arguments and
// loops. A `size` may depend on the sizes of the call; a `choice` was made by the planner.
#pragma once
#include "runtime/host/tile_walk.h"

namespace xhat::runtime {

enum class SlotKind : uint8_t { structure, code, size, choice };

struct Slots {
  std::vector<int64_t> numbers;
  std::vector<SlotKind> kinds;
  std::vector<double> reals;
  std::vector<bool> narrow;  // per real: the kernel reads it as f32
};

class SlotWriter {
 public:
  Slots slots;
  template <class T>
  void number(const T& value, SlotKind kind) {
    slots.numbers.push_back(static_cast<int64_t>(value));
    slots.kinds.push_back(kind);
  }
  void real(double value, bool narrow) {
    slots.reals.push_back(value);
    slots.narrow.push_back(narrow);
  }
  template <class T>
  void resize(std::vector<T>& list) {
    number(list.size(), SlotKind::structure);
  }
};

class SlotReader {
 public:
  SlotReader(const std::vector<int64_t>& numbers, const std::vector<double>& reals) : numbers_(numbers), reals_(reals) {}
  template <class T>
  void number(T& value, SlotKind) {
    value = static_cast<T>(numbers_[next_++]);
  }
  void real(double& value, bool) { value = reals_[next_real_++]; }
  template <class T>
  void resize(std::vector<T>& list) {
    list.resize(static_cast<size_t>(numbers_[next_++]));
  }

 private:
  const std::vector<int64_t>& numbers_;
  const std::vector<double>& reals_;
  size_t next_ = 0, next_real_ = 0;
};

// A: SlotWriter or SlotReader.
template <class A>
void transfer_plan(A& a, WalkPlan& plan) {
  constexpr auto kStructure = SlotKind::structure, kSize = SlotKind::size, kChoice = SlotKind::choice;
  auto dimensions = [&](auto& dims) {
    a.resize(dims);
    for (auto& d : dims) {
      a.number(d.extent, kSize);
      a.number(d.step, kSize);
      a.number(d.of, kStructure);
    }
  };
  auto positions = [&](auto& list) {
    a.resize(list);
    for (auto& at : list) a.number(at, kStructure);
  };
  a.number(plan.tensors, kStructure);
  a.resize(plan.temporaries);
  for (auto& t : plan.temporaries) {
    a.number(t.tensor, kStructure);
    a.number(t.type, kStructure);
    a.resize(t.shape);
    for (auto& n : t.shape) a.number(n, kSize);
  }
  a.resize(plan.kernels);
  for (auto& k : plan.kernels) {
    a.number(k.code, SlotKind::code);
    a.number(k.epilogue, kStructure);
    a.number(k.horizontal, kStructure);
    a.resize(k.planned);
    for (auto& p : k.planned) {
      a.number(p.extent, kSize);
      a.number(p.rule.kind, kStructure);
      a.number(p.rule.most, kChoice);
      a.number(p.rule.least_tiles, kChoice);
      a.number(p.rule.at_least, kChoice);
      a.number(p.rule.at_least_cached, kChoice);
      a.number(p.rule.column_tiles, kChoice);
      a.number(p.rule.phases, kStructure);
      a.number(p.rule.lines, kStructure);
    }
    a.number(k.sequential, kStructure);
    a.resize(k.shared);
    for (auto& x : k.shared) {
      a.number(x.extent, kSize);
      a.number(x.kind, kStructure);
      positions(x.planned);
      a.number(x.divisor, kStructure);
    }
    a.resize(k.scalars);
    for (auto& s : k.scalars) {
      a.number(s.shared, kStructure);
      a.number(s.count, kStructure);
      a.number(s.value, kSize);
    }
    a.resize(k.inputs);
    for (auto& i : k.inputs) {
      a.number(i.tensor, kStructure);
      a.number(i.type, kStructure);
      if (i.tensor < 0) a.real(i.value, i.type == DType::f32);
      dimensions(i.dims);
    }
    a.resize(k.results);
    for (auto& r : k.results) {
      a.number(r.tensor, kStructure);
      a.number(r.type, kStructure);
      a.number(r.final_type, kStructure);
      a.number(r.op, kStructure);
      a.number(r.dense, kStructure);
      dimensions(r.dims);
      positions(r.left);
      a.resize(r.moves);
      for (auto& [at, dimension] : r.moves) {
        a.number(at, kStructure);
        a.number(dimension, kStructure);
      }
      positions(r.reduced);
    }
  }
}

}  // namespace xhat::runtime

#include "expr/eval/evaluate_machine.h"

#include <algorithm>
#include "expr/core/exact_ops.h"

namespace xhat::evaluation {
namespace {

// Registers of all lanes should stay in the L2 cache, and one dispatch (about 10 ns) should serve many lanes.
constexpr size_t kRegisterLanes = size_t{1} << 17;
constexpr size_t kMaxLanes = 256;
constexpr size_t kMinLanes = 16;

std::vector<int64_t> strides_of(std::span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

}  // namespace

Machine::Machine(const Program& p, const Definition& d, const Code& code,
                 std::span<const Array* const> arrays, Array& target, const EvaluateOptions& options)
    : p_(p), d_(d), code_(code), arrays_(arrays), target_(target), declared_(options.rounding == Rounding::declared),
      noise_(options.noise) {
  size_t wide = 1 + static_cast<size_t>(std::ranges::count_if(code.registers, &Register::lanes));
  block_ = std::clamp(kRegisterLanes / wide, kMinLanes, kMaxLanes);
  size_t real_size = 0, integer_size = 0;
  for (const Register& r : code.registers) {
    size_t& size = is_float(r.type) ? real_size : integer_size;
    offset_.push_back(size);
    size += r.lanes ? block_ : 1;
  }
  reals_.resize(real_size);
  integers_.resize(integer_size);
  poison_.resize(code.registers.size());
  extremes_.resize(code.reductions.size());
  strides_.resize(arrays.size());
  for (const Loop& loop : code.loops)
    for (const Instruction& i : loop.body)
      if (is_read(i.op) && arrays[i.index]) strides_[i.index] = strides_of(arrays[i.index]->shape);
  target_strides_ = strides_of(target.shape);
  for (const Preset& preset : code.presets) {
    DType type = code.registers[preset.out].type;
    if (is_float(type))
      *real(preset.out) = declared_ ? round_to(type, preset.real) : preset.real;
    else
      *integer(preset.out) = preset.integer;
  }
}

void Machine::run() {
  for (const Instruction& i : code_.loops[0].body) execute(i);
  if (code_.last_loop)
    enter(code_.loops[0].inner, nullptr);
  else
    store();
}

// --- Loops -------------------------------------------------------------------------------------------------

void Machine::enter(uint32_t id, const Reduction* reduction) {
  const Loop& loop = code_.loops[id];
  int64_t begin = *integer(loop.begin), end = *integer(loop.end);
  if (loop.masked) {  // from the first start to the last end; active() leaves out the lanes not in their range
    for (size_t i = 1; i < lanes_; ++i) {
      begin = std::min(begin, integers_of(loop.begin)[i]);
      end = std::max(end, integers_of(loop.end)[i]);
    }
  }
  if (only_ && !reduction)
    for (size_t k = 0; k < code_.axis_loops.size(); ++k)
      if (code_.axis_loops[k] == id) {
        begin = (*only_)[k];
        end = begin + 1;
      }
  if (!loop.lanes) {
    for (int64_t v = begin; v < end; ++v) {
      *integer(loop.axis) = v;
      block(loop, reduction);
    }
    return;
  }
  size_t outer = lanes_;
  for (int64_t v = begin; v < end; v += static_cast<int64_t>(block_)) {
    lanes_ = static_cast<size_t>(std::min(end - v, static_cast<int64_t>(block_)));
    int64_t* axis = integer(loop.axis);
    for (size_t i = 0; i < lanes_; ++i) axis[i] = v + static_cast<int64_t>(i);
    block(loop, reduction);
  }
  lanes_ = outer;
}

void Machine::block(const Loop& loop, const Reduction* reduction) {
  for (const Instruction& i : loop.body) execute(i);
  if (loop.inner != kNone)
    enter(loop.inner, reduction);
  else if (reduction)
    accumulate(*reduction);
  else
    store();
}

// --- Instructions ------------------------------------------------------------------------------------------

void Machine::execute(const Instruction& i) {
  size_t n = lanes_of(i.out);
  if (poisoned_) poison_[i.out].any = false;
  switch (i.kind) {
    case Instruction::Kind::reals:
    case Instruction::Kind::tests:
    case Instruction::Kind::integers:
    case Instruction::Kind::draws: elementwise(i, n); break;
    case Instruction::Kind::select: select(i, n); break;
    case Instruction::Kind::cast: cast(i, n); break;
    case Instruction::Kind::read:
    case Instruction::Kind::read_or: read(i, n); return;
    case Instruction::Kind::reduce: reduce(i, n); return;
  }
  if (poisoned_ && i.kind != Instruction::Kind::select)
    for (uint32_t k = 0; k < i.count; ++k) inherit(i.out, code_.operands[i.first + k], n);
}

void Machine::elementwise(const Instruction& i, size_t n) {
  const Reg* x = code_.operands.data() + i.first;
  if (i.kind == Instruction::Kind::reals || i.kind == Instruction::Kind::tests) {
    Lanes<double> operands[3] = {};
    for (uint32_t k = 0; k < i.count; ++k) operands[k] = reals_of(x[k]);
    if (i.kind == Instruction::Kind::tests) return i.scalar->tests.lanes(n, integer(i.out), operands);
    i.scalar->reals.lanes(n, real(i.out), operands);
  } else {
    Lanes<int64_t> operands[3] = {};
    for (uint32_t k = 0; k < i.count; ++k) operands[k] = integers_of(x[k]);
    if (i.kind == Instruction::Kind::draws)
      i.scalar->draws.lanes(n, real(i.out), operands);
    else
      i.scalar->integers.lanes(n, integer(i.out), operands);
  }
  settle(i.type, i.out, n);
  if (noise_ != 0 && i.kind == Instruction::Kind::reals) move(i, n);
}

void Machine::move(const Instruction& i, size_t n) {
  if (is_exact(i.op)) return;
  const Reg* x = code_.operands.data() + i.first;
  double* v = real(i.out);
  for (size_t k = 0; k < n; ++k) v[k] *= 1 + noise_ * chance_of(i.op, reals_of(x[0])[k], i.count > 1 ? reals_of(x[1])[k] : 0);
}

// Rounds or wraps to the declared type.
void Machine::settle(DType type, Reg out, size_t n) {
  if (type == DType::f64 || type == DType::i64 || type == DType::boolean) return;
  if (!is_float(type)) {
    int64_t* v = integer(out);
    for (size_t k = 0; k < n; ++k) v[k] = wrap_to(type, v[k]);
  } else if (declared_) {
    double* v = real(out);
    if (type == DType::f32)
      for (size_t k = 0; k < n; ++k) v[k] = static_cast<double>(static_cast<float>(v[k]));
    else
      for (size_t k = 0; k < n; ++k) v[k] = round_to(type, v[k]);
  }
}

void Machine::select(const Instruction& i, size_t n) {
  const Reg* x = code_.operands.data() + i.first;
  Lanes<int64_t> condition = integers_of(x[0]);
  auto choose = [&](auto* out, auto then, auto otherwise) {
    for (size_t k = 0; k < n; ++k) out[k] = condition[k] ? then[k] : otherwise[k];
  };
  if (is_float(i.type))
    choose(real(i.out), reals_of(x[1]), reals_of(x[2]));
  else
    choose(integer(i.out), integers_of(x[1]), integers_of(x[2]));
  if (!poisoned_) return;
  inherit(i.out, x[0], n);
  for (size_t k = 0; k < n; ++k)
    if (uint32_t failure = poison_at(condition[k] ? x[1] : x[2], k)) mark(i.out, k, failure);
}

void Machine::cast(const Instruction& i, size_t n) {
  Reg x = code_.operands[i.first];
  bool from_real = is_float(code_.registers[x].type);
  if (is_float(i.type)) {
    double* out = real(i.out);
    if (from_real) {
      for (size_t k = 0; k < n; ++k) out[k] = reals_of(x)[k];
      settle(i.type, i.out, n);
    } else if (declared_) {
      for (size_t k = 0; k < n; ++k) out[k] = real_from(i.type, integers_of(x)[k]);
    } else {
      for (size_t k = 0; k < n; ++k) out[k] = static_cast<double>(integers_of(x)[k]);
    }
  } else {
    int64_t* out = integer(i.out);
    if (from_real)
      for (size_t k = 0; k < n; ++k) out[k] = integer_from(i.type, reals_of(x)[k]);
    else
      for (size_t k = 0; k < n; ++k) out[k] = integer_from(i.type, integers_of(x)[k]);
  }
}

// --- Reads -------------------------------------------------------------------------------------------------

void Machine::read(const Instruction& i, size_t n) {
  if (!arrays_[i.index]) throw Bug("evaluate: " + p_.tensor(i.index).name + " is read before it is computed");
  outside_.clear();
  if (!read_straight(i, n))
    for (size_t k = 0; k < n; ++k) read_lane(i, k);

  const Reg* x = code_.operands.data() + i.first;
  uint32_t rank = i.count - (i.kind == Instruction::Kind::read_or);
  if (i.kind == Instruction::Kind::read_or) {
    if (is_float(i.type))
      for (uint32_t k : outside_) real(i.out)[k] = reals_of(x[rank])[k];
    else
      for (uint32_t k : outside_) integer(i.out)[k] = integers_of(x[rank])[k];
  }
  if (!poisoned_) return;
  for (uint32_t d = 0; d < rank; ++d) inherit(i.out, x[d], n);
  if (i.kind == Instruction::Kind::read_or)
    for (uint32_t k : outside_)
      if (uint32_t failure = poison_at(x[rank], k)) mark(i.out, k, failure);
}

// The common case: every index is the same for all lanes or counts along with them, and all lanes are inside.
bool Machine::read_straight(const Instruction& i, size_t n) {
  const Array& a = *arrays_[i.index];
  const std::vector<int64_t>& strides = strides_[i.index];
  const Reg* x = code_.operands.data() + i.first;
  int64_t start = 0, step = 0;
  for (size_t d = 0; d < strides.size(); ++d) {
    const Register& r = code_.registers[x[d]];
    int64_t first = *integer(x[d]), last = first;
    if (r.lanes) {
      if (!r.counts) return false;
      last += static_cast<int64_t>(n) - 1;
      step += strides[d];
    }
    if (first < 0 || last >= a.shape[d]) return false;
    start += first * strides[d];
  }
  auto copy = [&](auto* out, const auto* in) {
    if (step == 1)
      std::copy_n(in, n, out);
    else
      for (size_t k = 0; k < n; ++k) out[k] = in[static_cast<int64_t>(k) * step];
  };
  if (a.real())
    copy(real(i.out), a.reals.data() + start);
  else
    copy(integer(i.out), a.integers.data() + start);
  return true;
}

void Machine::read_lane(const Instruction& i, size_t lane) {
  const Array& a = *arrays_[i.index];
  const std::vector<int64_t>& strides = strides_[i.index];
  const Reg* x = code_.operands.data() + i.first;
  int64_t offset = 0;
  for (size_t d = 0; d < strides.size(); ++d) {
    int64_t index = integers_of(x[d])[lane];
    if (index < 0 || index >= a.shape[d]) {
      if (is_float(i.type))
        real(i.out)[lane] = 0;
      else
        integer(i.out)[lane] = 0;
      outside_.push_back(static_cast<uint32_t>(lane));
      if (i.kind == Instruction::Kind::read) mark(i.out, lane, failed(i, d, lane));
      return;
    }
    offset += index * strides[d];
  }
  if (a.real())
    real(i.out)[lane] = a.reals[static_cast<size_t>(offset)];
  else
    integer(i.out)[lane] = a.integers[static_cast<size_t>(offset)];
}

// --- Poison and errors -------------------------------------------------------------------------------------

void Machine::mark(Reg out, size_t lane, uint32_t failure) {
  Poison& p = poison_[out];
  if (!p.any) {
    // Everybody else's mark is stale or absent: no register was cleared while nothing was poisoned.
    p.marks.assign(code_.registers[out].lanes ? block_ : 1, 0);
    p.any = poisoned_ = true;
  }
  if (!p.marks[lane]) p.marks[lane] = failure;
}

uint32_t Machine::poison_at(Reg r, size_t lane) const {
  return poison_[r].any ? poison_[r].marks[lane * stride(r)] : 0;
}

void Machine::inherit(Reg out, Reg operand, size_t n) {
  if (!poison_[operand].any) return;
  for (size_t k = 0; k < n; ++k)
    if (uint32_t failure = poison_at(operand, k)) mark(out, k, failure);
}

uint32_t Machine::failed(const Instruction& i, size_t dimension, size_t lane) {
  if (!only_) return 1;  // details are gathered when the point is run again
  Failure f{&i, dimension, {}, {}};
  if (is_read(i.op))
    for (size_t d = 0; d < strides_[i.index].size(); ++d)
      f.indices.push_back(integers_of(code_.operands[i.first + d])[lane]);
  for (uint32_t k = 0; k < i.place_count; ++k)
    f.axes.push_back(integers_of(code_.places[i.first_place + k].second)[lane]);
  failures_.push_back(std::move(f));
  return static_cast<uint32_t>(failures_.size());
}

void Machine::store() {
  size_t n = lanes_of(code_.result), count = 1;
  int64_t start = 0, step = 0;
  for (size_t k = 0; k < d_.axes.size(); ++k) {
    const Loop& loop = code_.loops[code_.axis_loops[k]];
    start += *integer(loop.axis) * target_strides_[k];
    if (loop.lanes) {
      step = target_strides_[k];
      count = lanes_;
    }
  }
  if (poisoned_ && poison_[code_.result].any)
    for (size_t k = 0; k < n; ++k)
      if (uint32_t failure = poison_at(code_.result, k)) {
        if (only_) fail(failures_[failure - 1]);
        run_again(k);
      }
  auto copy = [&](auto* out, auto in) {
    for (size_t k = 0; k < count; ++k) out[static_cast<int64_t>(k) * step] = in[k];
  };
  if (target_.real())
    copy(target_.reals.data() + start, reals_of(code_.result));
  else
    copy(target_.integers.data() + start, integers_of(code_.result));
}

void Machine::run_again(size_t lane) {
  std::vector<int64_t> point;
  for (uint32_t loop : code_.axis_loops) point.push_back(integers_of(code_.loops[loop].axis)[lane]);
  Machine again(p_, d_, code_, arrays_, target_, {declared_ ? Rounding::declared : Rounding::exact, false, noise_});
  again.only_ = &point;
  again.run();
  throw Bug("evaluate: a failure at " + p_.tensor(d_.target()).name + shape_text(point) +
            " did not happen again");
}

void Machine::fail(const Failure& f) const {
  const Instruction& i = *f.instruction;
  std::string at;  // the axes bound by reductions; the definition's own stand in the target's position
  for (uint32_t k = 0; k < i.place_count; ++k) {
    Id axis = code_.places[i.first_place + k].first;
    if (std::ranges::any_of(d_.axes, [&](const AxisRange& r) { return r.axis == axis; })) continue;
    at += (at.empty() ? " (at " : ", ") + p_.arena->name(axis) + " = " + std::to_string(f.axes[k]);
  }
  if (!at.empty()) at += ")";
  std::string text = "op " + p_.name + ": " + p_.tensor(d_.target()).name;
  if (!d_.axes.empty()) text += shape_text(*only_);
  if (is_reduction(i.op)) {
    text += " needs " + std::string(info(i.op).text) + " over nothing" + at +
            ", which has no answer; make sure that at least one element takes part";
  } else {
    const std::string& name = p_.tensor(i.index).name;
    const Array& a = *arrays_[i.index];
    text += " reads " + name + shape_text(f.indices) + at + ", but " + name + " has shape " +
            shape_text(a.shape) + ": index " + std::to_string(f.indices[f.dimension]) +
            " is outside its dimension " + std::to_string(f.dimension) + "; " +
            (a.shape[f.dimension] == 0 ? "it has no elements"
                                       : "indices run from 0 to " + std::to_string(a.shape[f.dimension] - 1));
  }
  Error e(text, d_.pos);
  if (p_.text && d_.pos.known()) throw e.located(p_.file, *p_.text);
  throw e;
}

}  // namespace xhat::evaluation

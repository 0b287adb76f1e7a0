// A stash from within: the memory for what a forward keeps, at the sizes of its call.
#pragma once
#include "expr/core/array.h"
#include "runtime/call/callers_memory.h"
#include "runtime/call/op_plans.h"
#include "runtime/device/device_buffer.h"
#include "runtime/host/scratch.h"

namespace xhat {

namespace runtime {
class StepsTape;
}

struct Stash::Impl {
  std::shared_ptr<runtime::StepsTape> tape;  // of a program with loops or branches, instead of all that follows
  DimValues dims;
  std::shared_ptr<runtime::OpPlan> plan;  // that says what is kept; null: no forward has run with it yet
  std::vector<runtime::Scratch> memory;
  std::vector<std::unique_ptr<runtime::DeviceBuffer>> on_device;  // in its place, if the op runs on a GPU
  std::vector<TensorView> views;                                  // parallel to the plan's stash, as the memory is
  runtime::CallersMemory caller;                                  // of the forward that filled it
  Arrays inputs;                                                  // that the forward ran on, if values are checked

  // For these sizes, whatever it was for before; memory that is large enough is used again. How much had to be allocated.
  int64_t resize(std::shared_ptr<runtime::OpPlan> for_plan, const DimValues& sizes, const runtime::DeviceQueue& queue);
  // Do the op's inputs have the shapes that it is for? given: by tensor.
  bool is_for(const Program& op, const std::vector<TensorView>& given) const;
  // Is all of it where the queue can use it?
  bool in_place(const runtime::DeviceQueue& queue) const;
};

}  // namespace xhat

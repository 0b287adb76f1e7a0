#include "runtime/loops/compiled_loop.h"

#include <chrono>
#include <sstream>

#include "runtime/cpu/ir/late_functions.h"
#include "runtime/cpu/kernel_compile.h"
#include "runtime/cpu/lower.h"
#include "runtime/loops/loop_code.h"
#include "runtime/store/link_kernel.h"

namespace xhat::runtime {

namespace {
const Halide::Target& loop_target() {
  static const Halide::Target target = object_target();
  return target;
}
}  // namespace

struct CompiledLoop::Function {
  LoopFunction made;
  bool may_fail = false;
  std::unique_ptr<TileCode> code;
  bool tried = false;
};

CompiledLoop::CompiledLoop(const Program& p, const Loop& loop, const DimValues& dims, const std::vector<std::vector<int64_t>>& shapes,
                           const std::vector<std::vector<int64_t>>& callers_shapes, LoopBlocks blocks, DiskCache* disk)
    : blocks_(std::make_unique<LoopBlocks>(std::move(blocks))),
      code_(std::make_unique<LoopCode>(p, loop, dims, shapes, callers_shapes, *blocks_, loop_target())),
      disk_(disk) {}
CompiledLoop::~CompiledLoop() = default;

bool CompiledLoop::has(LoopPhase phase) const { return code_->is_possible() && (phase == LoopPhase::infer || !infers_only_); }
const std::vector<Id>& CompiledLoop::variables() const { return code_->variables(); }
const std::vector<TensorId>& CompiledLoop::outside() const { return code_->memory().outside(); }
std::vector<size_t> CompiledLoop::left() const { return code_->left(); }

namespace {
struct FindsErrors : Halide::Internal::IRVisitor {
  using IRVisitor::visit;
  bool found = false;
  void visit(const Halide::Internal::Store* op) override {
    found |= op->name == "xh_status" && Halide::Internal::is_const_zero(op->index);
    IRVisitor::visit(op);
  }
};
}  // namespace

CompiledLoop::Function& CompiledLoop::function(LoopPhase phase) {
  auto& f = functions_[static_cast<size_t>(phase)];
  if (f) return *f;
  f = std::make_unique<Function>();
  f->made = code_->function(phase);
  FindsErrors errors;
  f->made.body.accept(&errors);
  f->may_fail = errors.found;
  return *f;
}

bool CompiledLoop::may_fail(LoopPhase phase) {
  std::lock_guard lock(mutex_);
  return function(phase).may_fail;
}

bool CompiledLoop::knows_tapes() const { return code_->knows_tapes(); }

std::vector<CompiledLoop::Tape> CompiledLoop::tapes(const AxisValues& around) {
  std::lock_guard lock(mutex_);
  function(LoopPhase::forward);
  std::vector<int64_t> at;
  for (Id x : code_->variables()) at.push_back(around.at(x));
  std::vector<Tape>& made = tapes_[at];
  if (!made.empty()) return made;
  const LoopTapes t = code_->tapes(around);
  for (size_t k = 0; k < t.types.size(); ++k) made.push_back({t.elements[k], t.types[k].bytes()});
  return made;
}

std::string CompiledLoop::listing(LoopPhase phase) {
  std::lock_guard lock(mutex_);
  std::ostringstream text;
  text << function(phase).made.body;
  return text.str();
}

bool CompiledLoop::ready(LoopPhase phase) {
  std::lock_guard lock(mutex_);
  Function& f = function(phase);
  if (f.tried) return f.code != nullptr;
  const auto start = std::chrono::steady_clock::now();
  f.tried = true;
  namespace hi = Halide::Internal;
  std::vector<hi::LoweredArgument> arguments;
  auto scalar = [&](const std::string& name, Halide::Type type) {
    arguments.emplace_back(name, Halide::Argument::InputScalar, type, 0, Halide::ArgumentEstimates{});
  };
  scalar("__user_context", Halide::type_of<const void*>());
  std::ostringstream key;
  key << "loop\n";
  for (size_t k = 0; k < f.made.names.size(); ++k) {
    scalar(f.made.names[k], f.made.arguments[k].is == LoopArgument::Is::variable ? Halide::Int(64) : Halide::type_of<void*>());
    key << f.made.names[k] << ' ';
  }
  key << '\n' << f.made.body;
  f.code = compile_function(key.str(), disk_, [&](const std::string& path) {
    Halide::Module module(kTileSymbol, loop_target());
    module.append(hi::LoweredFunc(kTileSymbol, arguments, f.made.body, Halide::LinkageType::ExternalPlusArgv, Halide::NameMangling::C));
    module.set_any_strict_float(true);
    with_late_functions(module, kTileSymbol, loop_target()).compile({{Halide::OutputFileType::object, path}});
  });
  compile_ms_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return f.code != nullptr;
}

const std::vector<LoopArgument>& CompiledLoop::arguments(LoopPhase phase) const {
  return functions_[static_cast<size_t>(phase)]->made.arguments;
}

void CompiledLoop::run(LoopPhase phase, const std::function<void*(const LoopArgument&)>& memory,
                       const std::function<int64_t(Id)>& variable) const {
  const Function& f = *functions_[static_cast<size_t>(phase)];
  const size_t n = f.made.arguments.size();
  struct Slots {
    std::vector<void*> pointers;
    std::vector<int64_t> numbers;
    std::vector<const void*> argv;
  };
  thread_local Slots s;
  s.pointers.resize(n), s.numbers.resize(n), s.argv.assign(n + 1, nullptr);
  for (size_t k = 0; k < n; ++k) {
    const LoopArgument& a = f.made.arguments[k];
    if (a.is == LoopArgument::Is::variable)
      s.numbers[k] = variable(code_->variables()[a.number]), s.argv[k + 1] = &s.numbers[k];
    else
      s.pointers[k] = memory(a), s.argv[k + 1] = &s.pointers[k];
  }
  if (f.code->call(n + 1, s.argv.data()) != 0) throw Bug("a compiled loop failed");
}

}  // namespace xhat::runtime

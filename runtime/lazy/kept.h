// Derivatives that are asked for after what they are of was realized.
//
// A program whose results will be differentiated keeps what its backward needs, as the planner of stashes decides (runtime/lazy/later.h).
// Its backward is a program as well, so a derivative that reaches such a result is a call of it:
//
//   y = f(x, w)   y.realize()              computes y, and t, which is kept
//   g = grad(sum(y * y), {w})              becomes  f_backward(w, t, dy)  with  dy = grad(sum(y * y), {y})
//
// A program whose loops stay runs by itself, forward and backward; the part behind it and the part before it are derivatives of their own:
//
//   y = loops(h), h = f(x, w)              g becomes  grad(sum(h * dh), {w})  with  dh = loops_undone(h, y, dy),  of which dh is a constant
//
// It will be differentiated, if an array asks for it that is alive, or if that happened after the same structure had run before.
#pragma once
#include <atomic>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/call/compile.h"
#include "runtime/lazy/node.h"

namespace xhat::lazy::detail {

struct Walk;
struct Plan;

// What was asked for after programs of one structure had run: derivatives of which roots, by which leaves.
struct Asked {
  std::vector<char> roots, leaves;
  std::atomic<int> unused = 0;  // times in a row that what was kept for them was not used
};

// How a root was computed.
struct MadeHow {
  std::shared_ptr<Asked> asked;
  std::vector<std::weak_ptr<Node>> leaves;  // of the program
};

// A run of a program whose loops stay, from which it can be undone.
struct Ran {
  CompiledOp op;
  std::vector<std::string> wrt;
  Stash stash;
};

// What one run of a program kept.
struct Kept : std::enable_shared_from_this<Kept> {
  struct Input {                      // of the backward: one of
    NodePtr node;                     // a leaf of the program, or a value that it kept
    std::weak_ptr<Node> result;       // a result, while somebody has it;
    std::shared_ptr<Storage> memory;  // else what it lay in
    int cotangent = -1;               // the cotangent of the results with this number (Node::kept_as)
  };
  Kept();
  ~Kept();
  Kept(const Kept&) = delete;

  std::shared_ptr<const Program> backward;
  std::vector<Input> inputs;
  std::vector<NodePtr> by;                  // per output of the backward: the leaf that it is the gradient by
  std::vector<std::weak_ptr<Node>> leaves;  // of the program
  std::vector<DType> types;                 // per cotangent
  std::vector<Shape> shapes;
  std::shared_ptr<Asked> asked;
  bool used = false;
  // Of a program whose loops stay: `backward` is the program itself, and `by` are those of its inputs that may have gradients.
  bool loops = false;
  std::vector<int64_t> by_input;
  std::shared_ptr<Ran> ran;  // null: nobody asked for gradients when it ran
};

// A derivative that somebody made.
void remember_derivative(const NodePtr& grad);
// For a derivative, these realized values are computed once more: next time their programs shall keep something. marked: what
// mark_dependents() returned.
void learn(std::span<Node* const> again, uint64_t marked);

// Roots of a walk that will be differentiated, and leaves by which; empty: none.
struct Wants {
  std::vector<char> roots, leaves;
  bool operator==(const Wants&) const = default;
};
Wants wants_of(const Walk& w, Asked& asked);

// Notes on one run of a plan, before its roots become leaves: how they are found again, and what it kept in `memory`, one storage per value.
// None where nothing was kept.
std::shared_ptr<const MadeHow> how_made(const Walk& w, const Plan& plan);
std::shared_ptr<Kept> what_was_kept(const Walk& w, const Plan& plan, std::span<const std::shared_ptr<Storage>> memory);
// The same of a call whose loops stay, of which result i, if somebody has it, is results[i], and lies in memory[i].
void attach_loops(const Node& call, std::span<Node* const> results, std::span<const std::shared_ptr<Storage>> memory,
                  std::shared_ptr<Ran> ran);
// Inputs of a call by which, through it, somebody will ask for gradients.
std::vector<std::string> wanted_of_loops(Node& call);
// To a root that is a leaf by now.
void attach(const std::shared_ptr<Kept>& kept, const std::shared_ptr<const MadeHow>& made, const Walk& w, const Plan& plan, size_t root);

// Makes of derivatives calls of backwards.
class ThroughKept {
 public:
  // g: a derivative that is not there yet. If what it goes through kept something, it becomes what the backwards give. Under engine_mutex().
  void operator()(Node& g);

 private:
  // Derivatives of one loss that are made together, so that they share the calls.
  struct Group {
    Node* loss;
    Node* alone;  // the one that it is by; null: memory that was computed from nothing, all of it
    std::unordered_map<Node*, NodePtr> totals;
  };
  class Builder;
  std::vector<Group> groups_;
};

}  // namespace xhat::lazy::detail

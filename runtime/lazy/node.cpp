#include "runtime/lazy/node.h"

#include <fmt/format.h>

#include <atomic>
#include <cmath>

namespace xhat::lazy {

std::string text(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ",")); }

namespace detail {
namespace {

std::atomic<int64_t> living = 0;
thread_local std::vector<NodePtr>* releasing = nullptr;

void release(NodeList& held, NodePtr& one) {
  for (NodePtr& n : held)
    if (n) releasing->push_back(std::move(n));
  if (one) releasing->push_back(std::move(one));
}

}  // namespace

uint64_t next_serial() {
  static std::atomic<uint64_t> last = 0;
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

Node::Node() { ++living; }
int64_t living_nodes() { return living; }

Node::Node(const Node& o)
    : std::enable_shared_from_this<Node>(),
      kind(o.kind),
      op(o.op),
      type(o.type),
      weak(o.weak),
      is_loss(o.is_loss),
      expired(o.expired),
      forgotten(o.forgotten),
      generation(o.generation),
      shape(o.shape),
      args(o.args),
      params(o.params),
      value(o.value),
      integer(o.integer),
      storage(o.storage),
      variable(o.variable),
      views(o.views),
      origin(o.origin),
      program(o.program) {
  ++living;
}

// A chain of 100,000 nodes must not be released by 100,000 calls inside of each other.
Node::~Node() {
  --living;
  if (releasing) {
    release(args, origin);
    return;
  }
  std::vector<NodePtr> queue;
  releasing = &queue;
  release(args, origin);
  while (!queue.empty()) {
    const NodePtr next = std::move(queue.back());
    queue.pop_back();
  }
  releasing = nullptr;
}

std::string file_and_line(const Location& at) {
  const std::string_view file = at.file_name();
  const size_t slash = file.find_last_of('/');
  return fmt::format("{}:{}", slash == file.npos ? file : file.substr(slash + 1), at.line());
}

void fail(const Site& site, const std::string& what) { throw Error(fmt::format("{}: {}: {}", file_and_line(site.at), site.call, what)); }

NodePtr make(Kind kind, DType type, const Shape& shape, NodeList args, Params params) {
  auto n = pooled<Node>();
  n->kind = kind;
  n->type = type;
  n->shape = shape;
  n->args = std::move(args);
  n->params = std::move(params);
  return n;
}

NodePtr constant(DType type, double value, const Shape& shape) {
  if (!is_float(type)) return constant_integer(type, static_cast<int64_t>(value), shape);
  NodePtr n = make(Kind::constant, type, shape, {});
  n->value = round_to(type, value);
  return n;
}

NodePtr constant_integer(DType type, int64_t value, const Shape& shape) {
  if (is_float(type)) return constant(type, static_cast<double>(value), shape);
  NodePtr n = make(Kind::constant, type, shape, {});
  n->integer = type == DType::boolean ? value != 0 : wrap_to(type, value);
  return n;
}

NodePtr iota(const Shape& shape) { return make(Kind::iota, DType::i64, shape, {}); }

NodePtr leaf(std::shared_ptr<Storage> storage) {
  NodePtr n = make(Kind::leaf, storage->view.type, Shape(storage->view.extents()), {});
  n->storage = std::move(storage);
  return n;
}

bool is_number(const NodePtr& n, double value) {
  if (n->kind != Kind::constant) return false;
  return is_float(n->type) ? n->value == value : static_cast<double>(n->integer) == value;
}

}  // namespace detail
}  // namespace xhat::lazy

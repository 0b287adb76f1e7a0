// Program -> surface tree: called ops first, then the op, its custom gradient, its backward block.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "expr/text/elaborate.h"
#include "expr/text/reify_expression.h"

namespace xhat {
namespace {

class OpReifier {
 public:
  OpReifier(const Program& p, ast::File& file) : p_(p), f_(file) {}

  ast::Op op() {
    ast::Op result;
    result.name = p_.name;
    for (TensorId t : p_.inputs) result.body.parameters.push_back(parameter(t, true));
    result.body.outputs = names(p_.outputs);
    dims(result.body);
    definitions(result.body, p_.forward);
    if (p_.gradients.empty() && p_.cotangents.empty() && p_.backward.definitions.empty()) return result;
    result.backward.emplace();
    for (TensorId t : p_.cotangents) result.backward->parameters.push_back(parameter(t, true));
    result.backward->outputs = names(p_.gradients);
    definitions(*result.backward, p_.backward);
    return result;
  }

  // Its inputs are named only: types and shapes, and dims, are those of the op.
  ast::Op gradient(const Program& of) {
    ast::Op result;
    result.kind = ast::Op::Kind::grad;
    result.name = p_.name;
    for (TensorId t : p_.inputs) result.body.parameters.push_back(parameter(t, false));
    result.body.outputs = names(p_.outputs);
    for (const Dim& d : of.dims) known_.insert(d.dim);
    dims(result.body);
    definitions(result.body, p_.forward);
    return result;
  }

  ast::Statement statement(const Definition& d) {
    ast::Statement s;
    for (TensorId t : d.targets) s.targets.push_back({p_.tensors[t].name, {}});
    if (d.is_call()) {
      s.kind = ast::Statement::Kind::call;
      ast::Node call{};
      call.kind = ast::Kind::call;
      call.text = d.callee->name;
      for (TensorId t : d.arguments) {
        ast::Node argument{};
        argument.kind = ast::Kind::name;
        argument.text = p_.tensors[t].name;
        call.args.push_back(f_.add(std::move(argument)));
      }
      s.body = f_.add(std::move(call));
      return s;
    }
    s.axes = reify_left_axes(p_, f_, d.axes, d.body);
    s.body = reify_expression(p_, f_, d.body, d.axes, true);
    return s;
  }

 private:
  ast::Parameter parameter(TensorId t, bool typed) {
    const Tensor& tensor = p_.tensors[t];
    ast::Parameter result;
    result.name = tensor.name;
    result.type = tensor.type;
    result.constant = tensor.constant;
    result.typed = typed;
    if (typed)
      for (Id extent : tensor.shape) result.extents.push_back(reify_expression(p_, f_, extent, {}, false));
    return result;
  }

  std::vector<ast::Name> names(const std::vector<TensorId>& tensors) const {
    std::vector<ast::Name> result;
    for (TensorId t : tensors) result.push_back({p_.tensors[t].name, {}});
    return result;
  }

  void dims(ast::Block& block) {
    for (const Dim& d : p_.dims) {
      if (d.definition == kNone || known_.contains(d.dim)) continue;
      ast::Statement s;
      s.kind = ast::Statement::Kind::dim;
      s.targets = {{p_.arena->name(d.dim), {}}};
      s.body = reify_expression(p_, f_, d.definition, {}, false);
      block.statements.push_back(std::move(s));
    }
  }

  void definitions(ast::Block& block, const Region& region) {
    for (const Definition& d : region.definitions) block.statements.push_back(statement(d));
  }

  const Program& p_;
  ast::File& f_;
  std::set<Id> known_;
};

void add_op(const Program& p, ast::File& file) {
  file.ops.push_back(OpReifier(p, file).op());
  if (p.custom_gradient) file.ops.push_back(OpReifier(*p.custom_gradient, file).gradient(p));
}

// Programs that p calls, directly or not, callees first, each name once. Nesting is as deep as ops call each other.
void add_callees(const Program& p, ast::File& file, std::set<std::string>& done) {
  auto add_all = [&](const Program& caller) {
    for (const Definition& d : caller.definitions()) {
      if (!d.is_call() || !done.insert(d.callee->name).second) continue;
      add_callees(*d.callee, file, done);
      add_op(*d.callee, file);
    }
  };
  add_all(p);
  if (p.custom_gradient) add_all(*p.custom_gradient);
}

}  // namespace

std::shared_ptr<ast::File> reify(const Program& p) {
  auto file = std::make_shared<ast::File>();
  std::set<std::string> done = {p.name};
  add_callees(p, *file, done);
  add_op(p, *file);
  return file;
}

ast::Statement reify_statement(const Program& p, ast::File& file, const Definition& d) {
  return OpReifier(p, file).statement(d);
}

}  // namespace xhat

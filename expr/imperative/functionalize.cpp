#include "expr/imperative/functionalize.h"

#include <fmt/format.h>

#include <algorithm>

#include "expr/imperative/finish.h"
#include "expr/imperative/hoist.h"
#include "expr/imperative/symbolic.h"

namespace xhat {

namespace imperative {
namespace {

class Functionalizer {
 public:
  Functionalizer(const ast::File& file, const std::shared_ptr<Arena>& arena, const ast::Op& prog,
                 const std::map<std::string, std::shared_ptr<const Program>>& ops, const std::set<LoopName>& handed_on, bool all_loops)
      : c_(file, arena, ops), prog_(prog) {
    c_.handed_on = handed_on;
    c_.all_loops = all_loops;
    c_.program.arena = arena;
    c_.program.file = file.name;
    c_.program.text = file.text;
    c_.program.name = prog.name;
  }

  // `items`: takes the text of what runs before its last stage.
  Program run(std::string* items_text) {
    words(prog_.body.statements);
    for (const ast::Parameter& p : prog_.body.parameters) c_.words.insert(p.name);
    for (const ast::Name& o : prog_.body.outputs) c_.words.insert(o.text);
    choose_prefix();
    Items items;
    c_.items = &items;
    parameters();
    dims();
    dims_of_extents(prog_.body.statements);
    Symbolic(c_).run(prog_.body.statements);
    const std::vector<Output> results = outputs();
    if (items_text) *items_text = dump(c_.program, items);
    return is_straight(items) ? as_op(c_, std::move(items), results) : hoist(as_steps(c_, std::move(items), results));
  }

 private:
  void words(const std::vector<ast::Statement>& statements) {
    std::vector<ast::Ref> below;
    collect_below(c_.file, statements, below);
    for (ast::Ref r : below) {
      const ast::Node& n = c_.file.nodes[r];
      c_.words.insert(n.text);
      for (const ast::Axis& axis : n.axes) c_.words.insert(axis.name);
    }
    targets(statements);
  }
  void targets(const std::vector<ast::Statement>& statements) {
    for (const ast::Statement& s : statements) {
      for (const ast::Name& t : s.targets) c_.words.insert(t.text), c_.assigned.insert(t.text);
      if (s.kind == ast::Statement::Kind::assign) c_.assigned.insert(c_.file.nodes[s.place].text);
      targets(s.statements);
      targets(s.otherwise);
    }
  }
  // i0, i1, ... unless the program has such a name.
  void choose_prefix() {
    for (c_.axis_prefix = "i";; c_.axis_prefix += "i") {
      const std::string& prefix = c_.axis_prefix;
      const bool taken = std::ranges::any_of(c_.words, [&](const std::string& w) {
        return w.starts_with(prefix) && w.size() > prefix.size() &&
               std::all_of(w.begin() + static_cast<std::ptrdiff_t>(prefix.size()), w.end(), [](char x) { return x >= '0' && x <= '9'; });
      });
      if (!taken) return;
    }
  }

  void parameters() {
    for (const ast::Parameter& p : prog_.body.parameters) c_.scope.declare_tensor(p.name, p.pos);
    for (const ast::Parameter& p : prog_.body.parameters) {
      Shape shape;
      for (ast::Ref extent : p.extents) {
        const Id id = elaborate_extent(c_.scope, extent, true, "an extent");
        c_.scope.require_extent(id, fmt::format("dimension {} of {}", shape.size(), p.name), c_.file.nodes[extent].pos);
        shape.push_back(id);
      }
      const TensorId t = c_.new_tensor(p.name, p.type, shape);
      c_.program.tensors[t].role = Role::input;
      c_.program.tensors[t].constant = p.constant;
      c_.program.tensors[t].pos = p.pos;
      c_.program.inputs.push_back(t);
      if (c_.state.names.contains(p.name)) throw Error(fmt::format("parameter {} stands twice", p.name), p.pos);
      Binding b;
      b.pos = p.pos;
      const size_t storage = c_.new_storage(p.name, p.type, shape, t);
      c_.state.storages[storage].parameter = !p.inout;
      c_.state.storages[storage].inout = p.inout;
      if (p.inout) inout_.push_back({p.name, storage, p.pos});
      b.view = c_.whole(storage);
      b.variable = p.inout;
      c_.state.names[p.name] = std::move(b);
    }
  }

  void dims() {
    for (const ast::Statement& s : prog_.body.statements) {
      if (s.kind != ast::Statement::Kind::dim) continue;
      const ast::Name& name = s.targets[0];
      if (c_.scope.dims.contains(name.text))
        throw Error(fmt::format("dim {} stands already in a parameter or another definition; take a new name", name.text), name.pos);
      if (c_.state.names.contains(name.text))
        throw Error(fmt::format("dim {} has the name of a parameter; take a new name", name.text), name.pos);
      const Id definition = elaborate_extent(c_.scope, s.body, true, "a dim");
      const Id expanded = c_.scope.expanded(definition);
      const Id dim = c_.scope.declare_dim(name.text, name.pos);
      c_.program.dims.back().definition = definition;
      c_.scope.dim_definitions[dim] = expanded;
      c_.scope.require_extent(expanded, "dim " + name.text, name.pos);
    }
  }

  // A name in a range, a bound of a loop or an extent that is nothing else is a dim from outside, also where it stands before that place.
  void dims_of_extents(const std::vector<ast::Statement>& statements) {
    std::vector<ast::Ref> all, sizes;
    collect_below(c_.file, statements, all);
    std::set<std::string> others = c_.assigned;
    bounds(statements, sizes, others);
    for (ast::Ref r : all) {
      const ast::Node& n = c_.file.nodes[r];
      if (n.kind == ast::Kind::let || n.kind == ast::Kind::range) others.insert(n.text);
      for (const ast::Axis& axis : n.axes) {
        others.insert(axis.name);
        sizes.insert(sizes.end(), {axis.begin, axis.end});
      }
      const bool extents = n.kind == ast::Kind::filled || (n.kind == ast::Kind::method && (n.text == "reshape" || n.text == "expand"));
      if (extents) sizes.insert(sizes.end(), n.args.begin() + 1, n.args.end());
      if (n.kind == ast::Kind::range) sizes.insert(sizes.end(), n.args.begin(), n.args.end());
    }
    for (size_t k = 0; k < sizes.size(); ++k) {
      if (sizes[k] == ast::kAbsent) continue;
      const ast::Node& n = c_.file.nodes[sizes[k]];
      if (n.kind == ast::Kind::binary || n.kind == ast::Kind::unary) sizes.insert(sizes.end(), n.args.begin(), n.args.end());
      if (n.kind != ast::Kind::name || others.contains(n.text) || c_.state.names.contains(n.text) || c_.scope.dims.contains(n.text))
        continue;
      c_.scope.declare_dim(n.text, n.pos);
    }
  }
  // Of loops; and what stands in the brackets on the left of an assignment, which may be new axes.
  void bounds(const std::vector<ast::Statement>& statements, std::vector<ast::Ref>& sizes, std::set<std::string>& others) const {
    for (const ast::Statement& s : statements) {
      if (s.kind == ast::Statement::Kind::loop) sizes.insert(sizes.end(), {s.first, s.last});
      if (s.place != ast::kAbsent)
        for (ast::Ref r : c_.file.nodes[s.place].args)
          if (r != ast::kAbsent && c_.file.nodes[r].kind == ast::Kind::name) others.insert(c_.file.nodes[r].text);
      bounds(s.statements, sizes, others);
      bounds(s.otherwise, sizes, others);
    }
  }

  // A tensor of its own for each output.
  TensorId delivered(const View& v, const std::string& name, Pos pos, std::set<TensorId>& taken) {
    const std::optional<TensorId> value = c_.whole_value(v);
    const bool input = value && std::ranges::find(c_.program.inputs, *value) != c_.program.inputs.end();
    if (value && !input && taken.insert(*value).second) return *value;
    std::vector<Id> positions;
    for (const AxisRange& r : v.axes) positions.push_back(r.axis);
    const TensorId t = c_.define(name, v.axes, c_.element(v, positions), pos);
    taken.insert(t);
    return t;
  }

  std::vector<Output> outputs() {
    std::vector<Output> found;
    std::set<TensorId> taken;
    std::set<std::string> names;
    for (const ast::Name& o : prog_.body.outputs) {
      auto it = c_.state.names.find(o.text);
      if (it == c_.state.names.end()) {
        std::vector<std::string> known;
        for (const auto& [name, binding] : c_.state.names) known.push_back(name);
        throw Error(fmt::format("output {} is not assigned outside of loops and branches{}", o.text,
                                c_.assigned.contains(o.text) ? fmt::format("; declare it before them, as in var {} = …", o.text)
                                                             : did_you_mean(o.text, known)),
                    o.pos);
      }
      if (!names.insert(o.text).second) throw Error(fmt::format("output {} is listed twice", o.text), o.pos);
      const bool parameter = std::ranges::any_of(prog_.body.parameters, [&](const ast::Parameter& p) { return p.name == o.text; });
      if (parameter) {
        const bool inout = std::ranges::any_of(inout_, [&](const Inout& x) { return x.name == o.text; });
        throw Error(inout ? fmt::format("{} is inout, and so an output already, called {}_out; list others", o.text, o.text)
                          : fmt::format("{} is a parameter; an output has a name of its own, as in y = {}", o.text, o.text),
                    o.pos);
      }
      found.push_back({o.text, delivered(it->second.view, o.text, o.pos, taken), o.pos});
    }
    for (const Inout& x : inout_) {
      std::string name = x.name + "_out";
      while (c_.words.contains(name) || c_.scope.dims.contains(name)) name += "_";
      found.push_back({name, delivered(c_.whole(x.storage), name, x.pos, taken), x.pos});
    }
    return found;
  }

  struct Inout {
    std::string name;
    size_t storage;
    Pos pos;
  };
  Context c_;
  const ast::Op& prog_;
  std::vector<Inout> inout_;
};

using Ops = std::map<std::string, std::shared_ptr<const Program>>;

Program made(const ast::File& file, const std::shared_ptr<Arena>& arena, const ast::Op& prog, const Ops& ops, bool all_loops = false,
             std::string* items_text = nullptr) {
  std::set<LoopName> handed_on;
  for (;;) {
    try {
      return Functionalizer(file, arena, prog, ops, handed_on, all_loops).run(items_text);
    } catch (const Ambiguous& a) {
      const size_t before = handed_on.size();
      handed_on.insert(a.names.begin(), a.names.end());
      if (handed_on.size() == before) throw Bug("what a name stands for is handed on, and is not known");
    }
  }
}

}  // namespace

std::vector<Stage> stages(const std::string& text, const std::string& name) {
  const Module module = parse(text);
  const auto file = ast::parse(text);
  Ops ops;
  const ast::Op* prog = nullptr;
  for (const ast::Op& op : file->ops)
    if (op.kind == ast::Op::Kind::prog && (name.empty() || op.name == name)) prog = &op;
  if (!prog) throw Error("the text holds no program " + name);
  for (const auto& op : module.ops)
    if (op->name != prog->name) ops[op->name] = op;
  std::vector<Stage> found = {{"values", ""}, {"without loops", ""}, {"result", ""}};
  made(*file, module.ops[0]->arena, *prog, ops, true, &found[0].text);
  found[2].text = print(made(*file, module.ops[0]->arena, *prog, ops, false, &found[1].text));
  return found;
}

}  // namespace imperative

Program elaborate_prog(const ast::File& file, const std::shared_ptr<Arena>& arena, const ast::Op& prog,
                       const std::map<std::string, std::shared_ptr<const Program>>& ops) {
  return imperative::made(file, arena, prog, ops);
}

}  // namespace xhat

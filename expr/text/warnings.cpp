#include "expr/text/warnings.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "expr/index/affine.h"
#include "expr/text/elaborate_scope.h"

namespace xhat {
namespace {

class Warnings {
 public:
  Warnings(const ast::File& file, const Program& p) : file_(file), p_(p) {}

  std::vector<Warning> run() {
    for (const ast::Op& op : file_.ops)
      if (op.name == p_.name && op.kind != ast::Op::Kind::grad) names(op);
    if (!p_.steps) zero_casts();
    std::ranges::stable_sort(found_, {}, [](const Warning& w) { return std::pair(w.pos.line, w.pos.column); });
    return std::move(found_);
  }

 private:
  using Names = std::set<std::string>;

  void add_names(const std::vector<ast::Ref>& below, Names& into) const {
    for (ast::Ref r : below)
      if (file_.nodes[r].kind == ast::Kind::name || file_.nodes[r].kind == ast::Kind::read) into.insert(file_.nodes[r].text);
  }
  Names read_by(const std::vector<ast::Statement>& statements) const {
    std::vector<ast::Ref> below;
    collect_below(file_, statements, below);
    Names names;
    add_names(below, names);
    return names;
  }

  void names(const ast::Op& op) {
    Names read = read_by(op.body.statements);
    for (const ast::Op& grad : file_.ops)
      if (grad.kind == ast::Op::Kind::grad && grad.name == op.name) read.merge(read_by(grad.body.statements));
    if (op.backward) read.merge(read_by(op.backward->statements));
    for (const ast::Name& output : op.body.outputs) read.insert(output.text);
    for (const ast::Parameter& p : op.body.parameters)
      if (!read.contains(p.name) && !p.inout) found_.push_back({fmt::format("input {} is never read", p.name), p.pos});
    if (op.kind == ast::Op::Kind::op) dead(op);
    if (op.kind == ast::Op::Kind::prog) {
      Names taken, inout;
      for (const ast::Parameter& p : op.body.parameters) {
        (p.inout ? inout : taken).insert(p.name);
        std::vector<ast::Ref> below;
        for (ast::Ref extent : p.extents) collect_below(file_, extent, below);
        add_names(below, taken);
      }
      targets(op.body.statements, taken);
      if (!inout.empty()) rebound(op.body.statements, inout, taken);
    }
  }

  void targets(const std::vector<ast::Statement>& statements, Names& into) const {
    for (const ast::Statement& s : statements) {
      for (const ast::Name& t : s.targets) into.insert(t.text);
      if (s.place != ast::kAbsent && file_.nodes[s.place].kind == ast::Kind::name) into.insert(file_.nodes[s.place].text);
      targets(s.statements, into);
      targets(s.otherwise, into);
    }
  }
  // `u = e` and `u[i,j] = e` with new axes of an inout u, whose storage then stays as it is. taken: names that are no new axes.
  void rebound(const std::vector<ast::Statement>& statements, const Names& inout, const Names& taken) {
    auto is_axis = [&](ast::Ref r) {
      const ast::Node& n = file_.nodes[r];
      return n.kind == ast::Kind::range || (n.kind == ast::Kind::name && !taken.contains(n.text));
    };
    for (const ast::Statement& s : statements) {
      rebound(s.statements, inout, taken);
      rebound(s.otherwise, inout, taken);
      if (s.kind != ast::Statement::Kind::assign || s.sign != "=") continue;
      const ast::Node& place = file_.nodes[s.place];
      const bool whole = place.kind == ast::Kind::name || (place.kind == ast::Kind::read && std::ranges::all_of(place.args, is_axis));
      if (!whole || !inout.contains(place.text)) continue;
      found_.push_back({fmt::format("{0} is bound to new storage here, and {0}_out is what the old one holds; to write that, "
                                    "assign to the view {0}[:]",
                                    place.text),
                        s.pos});
    }
  }

  // Definitions that no output needs, however indirectly. Only the last of a chain is named: the others are needed by it.
  void dead(const ast::Op& op) {
    std::map<std::string, Names> needs;  // by what is defined
    for (const ast::Statement& s : op.body.statements)
      for (const ast::Name& target : s.targets) needs[target.text] = read_by({s});
    Names alive, used;
    std::vector<std::string> work;
    for (const ast::Name& output : op.body.outputs) work.push_back(output.text);
    if (op.backward)
      for (const std::string& name : read_by(op.backward->statements)) work.push_back(name);
    while (!work.empty()) {
      const std::string name = work.back();
      work.pop_back();
      if (!alive.insert(name).second) continue;
      if (auto it = needs.find(name); it != needs.end()) work.insert(work.end(), it->second.begin(), it->second.end());
    }
    for (const auto& [name, reads] : needs) used.insert(reads.begin(), reads.end());
    for (const ast::Statement& s : op.body.statements) {
      if (s.kind == ast::Statement::Kind::dim) continue;
      const bool needed =
          std::ranges::any_of(s.targets, [&](const ast::Name& t) { return alive.contains(t.text) || used.contains(t.text); });
      if (!needed) found_.push_back({fmt::format("no output needs {}; it is not computed", s.targets[0].text), s.pos});
    }
  }

  // The ranges of all axes of the definition; none where two reductions have an axis of one name with different ranges.
  std::optional<std::vector<AxisRange>> ranges_of(const Definition& d) const {
    const Arena& a = *p_.arena;
    std::vector<AxisRange> all = d.axes;
    const std::vector<Id> below = reachable(a, d.body);
    for (auto it = below.rbegin(); it != below.rend(); ++it) {  // parents, which are further out, first
      if (!is_reduction(a[*it].op)) continue;
      for (const AxisRange& r : reduce_axes(a[*it])) {
        auto known = std::ranges::find(all, r.axis, &AxisRange::axis);
        if (known == all.end())
          all.push_back(r);
        else if (known->begin != r.begin || known->end != r.end)
          return {};
      }
    }
    return all;
  }

  void zero_casts() {
    Arena& a = *p_.arena;
    for (const Definition& d : p_.forward.definitions) {
      if (d.is_call()) continue;
      for (Id id : reachable(a, d.body)) {
        if (a[id].op != Op::cast || !is_float(a[id].type)) continue;
        const Id quotient = a[id].args()[0];
        if (a[quotient].op != Op::div || !is_integer(a[quotient].type)) continue;
        const Id above = a[quotient].args()[0], below = a[quotient].args()[1];
        const auto ranges = ranges_of(d);
        if (!ranges || a[above].free_axes().empty() || !tensors_read(a, quotient).empty()) continue;
        std::vector<AxisRange> axes = *ranges;
        if (prove_bounds(a, {axes, {}, a.to(DType::i64, above), a.to(DType::i64, below)}).verdict != BoundsAnswer::Verdict::proved)
          continue;
        const std::string type(name_of(a[id].type)), x = print(p_, above), y = print(p_, below);
        found_.push_back(
            {fmt::format("{}({}/{}) is always 0, since integers divide with floor; write {}({})/{}", type, x, y, type, x, y), d.pos});
      }
    }
  }

  const ast::File& file_;
  const Program& p_;
  std::vector<Warning> found_;
};

}  // namespace

std::vector<Warning> warnings_of(const ast::File& file, const Program& op) { return Warnings(file, op).run(); }

std::string located(const Warning& w, const std::string& file, const std::string& text) {
  std::string said = Error(w.message, w.pos).located(file, text).what();
  const size_t at = said.find("error: ");
  return said.replace(at, 5, "warning");
}

}  // namespace xhat

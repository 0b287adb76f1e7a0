#include "expr/rules/pattern.h"

#include <cctype>
#include <cstdlib>
#include <memory>
#include <utility>

#include "expr/core/error.h"
#include "expr/text/ast.h"

namespace xhat {
namespace {

using PatternKind = PatternNode::Kind;

bool is_type_letter(const std::string& name) { return name.size() == 1 && name[0] >= 'A' && name[0] <= 'Z'; }

Op infix_named(const std::string& sign) {
  for (int op = static_cast<int>(Op::neg); op <= static_cast<int>(Op::random); ++op)
    if (const OpInfo& row = info(static_cast<Op>(op)); row.syntax == Syntax::infix && row.text == sign)
      return static_cast<Op>(op);
  throw Bug("a pattern: no operator " + sign);
}

// Text -> tree -> pattern: a row is read by the parser that reads programs.
class Reader {
 public:
  explicit Reader(const std::string& text) : file_(ast::parse("op rule() -> (y) {\n  y = " + text + "\n}\n")) {
    add(file_->ops[0].body.statements[0].body);
  }
  RulePattern take() { return std::move(made_); }

 private:
  int push(PatternNode n) {
    made_.push_back(std::move(n));
    return static_cast<int>(made_.size()) - 1;
  }

  std::vector<int> all(const std::vector<ast::Ref>& refs) {
    std::vector<int> made;
    for (ast::Ref r : refs) made.push_back(add(r));
    return made;
  }

  // Recursive: rows are short.
  int add(ast::Ref ref) {
    const ast::Node& n = file_->nodes[ref];
    switch (n.kind) {
      case ast::Kind::number: return push({PatternKind::number, 0, std::strtod(n.text.c_str(), nullptr)});
      case ast::Kind::boolean: return push({PatternKind::boolean, 0, n.text == "true" ? 1.0 : 0.0});
      case ast::Kind::name:
        if (n.text.size() != 1) throw Bug("a pattern: variables are single letters, not " + n.text);
        return push({PatternKind::variable, n.text[0]});
      case ast::Kind::unary: return unary(n);
      case ast::Kind::binary: return binary(n);
      case ast::Kind::choose: return push({PatternKind::choose, 0, 0, Op::select, all(n.args)});
      case ast::Kind::call:
        if (is_type_letter(n.text)) return push({PatternKind::cast, n.text[0], 0, Op::cast, all(n.args)});
        if (const Op* op = function_named(n.text)) return push({PatternKind::apply, 0, 0, *op, all(n.args)});
        throw Bug("a pattern: no function " + n.text);
      case ast::Kind::read:
      case ast::Kind::let:
      case ast::Kind::reduce:
      case ast::Kind::slice:
      case ast::Kind::index:
      case ast::Kind::method:
      case ast::Kind::filled:
      case ast::Kind::range: break;
    }
    throw Bug("a pattern has no reads, lets or reductions");
  }

  int unary(const ast::Node& n) {
    const ast::Node& operand = file_->nodes[n.args[0]];
    if (n.text == "-" && operand.kind == ast::Kind::number)
      return push({PatternKind::number, 0, -std::strtod(operand.text.c_str(), nullptr)});
    return push({PatternKind::apply, 0, 0, n.text == "-" ? Op::neg : Op::lnot, all(n.args)});
  }

  // a > b is b < a, as it is in programs.
  int binary(const ast::Node& n) {
    const bool turned = n.text == ">" || n.text == ">=";
    std::vector<int> args = all(n.args);
    if (turned) std::swap(args[0], args[1]);
    return push({PatternKind::apply, 0, 0, infix_named(turned ? "<" + n.text.substr(1) : n.text), std::move(args)});
  }

  std::shared_ptr<ast::File> file_;
  RulePattern made_;
};

std::span<const PatternNode> part(std::span<const PatternNode> pattern, int root) { return pattern.first(static_cast<size_t>(root) + 1); }

// The type that a part has by itself; numbers have none.
std::optional<DType> own_type(const Arena& a, std::span<const PatternNode> pattern, const RuleBinding& binding) {
  const PatternNode& n = pattern.back();
  switch (n.kind) {
    case PatternKind::variable: return a[binding.of(n.letter)].type;
    case PatternKind::number: return std::nullopt;
    case PatternKind::boolean: return DType::boolean;
    case PatternKind::cast: return binding.type(n.letter);
    case PatternKind::choose: break;
    case PatternKind::apply:
      if (TypeRule rule = info(n.op).type;
          rule == TypeRule::compare || rule == TypeRule::logic || rule == TypeRule::classify)
        return DType::boolean;
      break;
  }
  for (size_t i = n.kind == PatternKind::choose ? 1 : 0; i < n.args.size(); ++i)
    if (auto type = own_type(a, part(pattern, n.args[i]), binding)) return type;
  return std::nullopt;
}

}  // namespace

RulePattern read_pattern(const std::string& text) { return Reader(text).take(); }

Id instantiate(Arena& a, std::span<const PatternNode> pattern, const RuleBinding& binding, DType wanted, MakeNode make) {
  const PatternNode& n = pattern.back();
  switch (n.kind) {
    case PatternKind::variable: return binding.of(n.letter);
    case PatternKind::number:
      if (!is_float(wanted) && round_to(wanted, n.number) != n.number) throw Bug("a rule's number does not fit its type");
      return a.constant(wanted, n.number);
    case PatternKind::boolean: return a.boolean(n.number != 0);
    case PatternKind::cast: return a.cast(*binding.type(n.letter), instantiate(a, part(pattern, n.args[0]), binding, wanted, make));
    case PatternKind::choose:
    case PatternKind::apply: break;
  }
  DType operand = wanted;
  size_t first = n.kind == PatternKind::choose ? 1 : 0;
  for (size_t i = n.args.size(); i-- > first;)
    if (auto type = own_type(a, part(pattern, n.args[i]), binding)) operand = *type;
  std::vector<Id> args;
  for (size_t i = 0; i < n.args.size(); ++i)
    args.push_back(instantiate(a, part(pattern, n.args[i]), binding, i < first ? DType::boolean : operand, make));
  return n.kind == PatternKind::choose ? a.select(args[0], args[1], args[2]) : make(a, n.op, args);
}

}  // namespace xhat

#include "expr/eval/written_type.h"

#include <algorithm>
#include <map>

#include "expr/core/expr.h"
#include "expr/eval/memory.h"

namespace xhat::memory {
namespace {

using Type = std::optional<DType>;

class WrittenTypes {
  using Kind = ast::Kind;

 public:
  WrittenTypes(const ast::File& file, const TypesOfNames& types) : file_(file), types_(types) {}

  Type of(ast::Ref r) {
    const ast::Node& n = file_.nodes[r];
    switch (n.kind) {
      case Kind::boolean: return DType::boolean;
      case Kind::name:
      case Kind::read: return named(n.text);
      case Kind::index:
      case Kind::method:
      case Kind::unary: return of(n.args[0]);
      case Kind::binary: return by_rule(info(n.text[0] == '>' ? Op::lt : infix(n.text)).type, n, 0);
      case Kind::choose: return together(n, 1);
      case Kind::let: {
        const auto outer = bound_.find(n.text) == bound_.end() ? std::nullopt : std::optional(bound_[n.text]);
        bound_[n.text] = of(n.args[0]);
        const Type made = of(n.args[1]);
        outer ? void(bound_[n.text] = *outer) : void(bound_.erase(n.text));
        return made;
      }
      case Kind::call: return called(n);
      case Kind::reduce: return reduced(n);
      case Kind::filled: return dtype_from_name(n.text);
      case Kind::number:
      case Kind::slice:
      case Kind::range: break;
    }
    return {};
  }

 private:
  const ast::File& file_;
  const TypesOfNames& types_;
  std::map<std::string, Type> bound_;  // by `let`, and axes of reductions

  Type named(const std::string& name) {
    const auto it = bound_.find(name);
    return it == bound_.end() ? types_.variable(name) : it->second;
  }

  // The type that arguments meet in, from the first one on. Literals take that of the others.
  Type together(const ast::Node& n, size_t first) {
    Type met;
    for (size_t k = first; k < n.args.size(); ++k)
      if (const Type one = of(n.args[k])) met = met ? promote(*met, *one) : one;
    return met;
  }
  Type by_rule(TypeRule rule, const ast::Node& n, size_t first) {
    const bool tests = rule == TypeRule::compare || rule == TypeRule::logic || rule == TypeRule::classify;
    return tests ? DType::boolean : together(n, first);
  }

  Type called(const ast::Node& n) {
    if (const auto type = dtype_from_name(n.text)) return type;
    if (n.text == "clone") return of(n.args[0]);
    if (n.text == "concat") return together(n, 1);
    if (n.text == "flip" || n.text == "roll") return of(n.args.back());
    if (const Op* op = function_named(n.text)) return *op == Op::random ? DType::f32 : by_rule(info(*op).type, n, 0);
    return types_.called(n.text);
  }

  Type reduced(const ast::Node& n) {
    if (n.text == "argmax" || n.text == "argmin") return DType::i64;
    if (n.text == "any" || n.text == "all") return DType::boolean;
    const std::map<std::string, Type> outer = bound_;
    for (const ast::Axis& a : n.axes) bound_[a.name] = DType::i64;
    const Type term = of(n.args[0]);
    bound_ = outer;
    return term && is_integer(*term) && (n.text == "sum" || n.text == "prod") ? DType::i64 : term;
  }
};

}  // namespace

bool reduces(const ast::File& file, ast::Ref r) {
  const ast::Node& n = file.nodes[r];
  return n.kind == ast::Kind::reduce || std::ranges::any_of(n.args, [&](ast::Ref x) { return x != ast::kAbsent && reduces(file, x); });
}

std::optional<DType> written_type(const ast::File& file, ast::Ref expression, const TypesOfNames& types) {
  return WrittenTypes(file, types).of(expression);
}

}  // namespace xhat::memory

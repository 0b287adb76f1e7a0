#include "cse/share/stored_forms.h"

#include <cmath>
#include <optional>

namespace xhat {
namespace {

using Recipe = StoredValue::Recipe;

// The little arithmetic that recipes need; they outlive the search for forms.
struct Arithmetic {
  TensorExprTree* tree;
  DType type;

  Product apply(Op op, const Product& x) const {
    Arena& a = tree->arena();
    return tree->form(a.unary(op, tree->to_expression(x, type)));
  }
  // 1/p of a p like 1/3 is a little beside the number meant.
  Product pow(const Product& base, double exponent) const {
    Arena& a = tree->arena();
    if (double near = std::round(exponent); negligible(exponent - near, near)) exponent = near;
    return tree->form(a.binary(Op::pow, tree->to_expression(base, type), a.constant(type, exponent)));
  }
  static Product times(double number, Product x) {
    x.coefficient *= number;
    return x;
  }
};

// scale*rest + number, where rest has coefficient 1
struct Shifted {
  Product rest;
  double scale, number;
};

class Forms {
 public:
  Forms(TensorExprTree& tree, DType type, TensorId tensor, const std::vector<AxisRange>& free)
      : tree_(tree), a_(tree.arena()), type_(type), tensor_(tensor), free_(free) {}

  std::vector<StoredValue> all(const Product& form, const Recipe& value) {
    put(form, value);
    if (form.factors.size() == 1) {
      power(form, value);
      inverse_of_shifted(form, value);
      logarithm(form, value);
      logarithms_in_sum(form, value);
      shifted_value(form, value);
    }
    return std::move(found_);
  }

 private:
  StoredValue& put(Product pattern, Recipe value) {
    found_.push_back({tensor_, free_, std::move(pattern), std::move(value)});
    return found_.back();
  }

  std::optional<Shifted> shifted(const Product& sum) const {
    const auto* terms = sum.factors.size() == 1 && sum.factors[0].halves == 2 ? tree_.terms(sum.factors[0].atom) : nullptr;
    if (!terms || terms->size() != 2 || !(*terms)[1].is_number()) return std::nullopt;
    const Product &rest = (*terms)[0], &number = (*terms)[1];
    return Shifted{{1, rest.factors}, rest.coefficient * sum.coefficient, number.coefficient * sum.coefficient};
  }

  // y = scale*f + number for a bounded f, or exp: f is (y - number)/scale, and so on with f.
  void shifted_value(const Product& form, const Recipe& value) {
    constexpr double kMaxShift = 2;  // of f's scale; beyond, y does not have f's digits
    auto parts = shifted(form);
    if (!parts || parts->rest.factors.size() != 1 || std::abs(parts->number) > kMaxShift * std::abs(parts->scale)) return;
    const Factor f = parts->rest.factors[0];
    Op op = a_[f.atom].op;
    bool inverse = f.halves == -2 && tree_.terms(f.atom);
    if (!inverse && !(f.halves == 2 && (op == Op::tanh || op == Op::sigmoid || op == Op::exp))) return;
    Arithmetic math{&tree_, type_};
    Recipe rest = [=, s = parts->scale, n = parts->number](const Product& read) {
      return math.times(1 / s, math.tree->add(math.type, {value(read), {-n, {}}}));
    };
    put(parts->rest, rest).numerator = true;
    inverse_of_shifted(parts->rest, rest);
  }

  // y = c/(scale*u + number): u is (c/y - number)/scale
  void inverse_of_shifted(const Product& form, const Recipe& value) {
    if (form.factors[0].halves != -2) return;
    auto parts = shifted({1, {{form.factors[0].atom, 2}}});
    if (!parts) return;
    Arithmetic math{&tree_, type_};
    put(parts->rest, [=, c = form.coefficient, s = parts->scale, n = parts->number](const Product& read) {
      Product y = value(read), rest = math.tree->add(math.type, {{c, {}}, math.times(-n, y)});
      return math.tree->multiply({1 / s, {}}, math.tree->multiply(math.tree->power(y, -2), rest));
    }).numerator = true;
  }

  // y = c*log(u): u is exp(y/c), 1/u is exp(-y/c). y = log(1+u): u/(1+u) is -expm1(-y).
  void logarithm(const Product& form, const Recipe& value) {
    const Node n = a_[form.factors[0].atom];
    if (form.factors[0].halves != 2 || (n.op != Op::log && n.op != Op::log1p)) return;
    Product inside = tree_.form(n.arg(0));
    Product u = n.op == Op::log ? inside : tree_.add(type_, {inside, {1, {}}});
    double c = form.coefficient;
    // c*log(v^h) is h*c*log(v), but for even h, where v may be negative.
    if (u.factors.size() == 1 && u.coefficient == 1 && u.factors[0].halves % 4 != 0) {
      c *= u.factors[0].halves / 2.0;
      u.factors[0].halves = 2;
    }
    Arithmetic math{&tree_, type_};
    auto minus_y = [=](const Product& read) { return math.times(-1 / c, value(read)); };
    if (auto parts = shifted(u); parts && parts->number == 1) {
      Product rest = math.times(parts->scale, parts->rest);
      put(tree_.multiply(rest, tree_.power(u, -2)), [=](const Product& read) {
        return math.times(-1, math.apply(Op::expm1, minus_y(read)));
      }).whole = true;
    }
    put(tree_.power(u, -2), [=](const Product& read) { return math.apply(Op::exp, minus_y(read)); });
    put(u, [=](const Product& read) { return math.apply(Op::exp, math.times(-1, minus_y(read))); });
  }

  // y = u - log(s) + …: exp(u)/s is exp(y)
  void logarithms_in_sum(const Product& form, const Recipe& value) {
    const auto* terms = form.factors[0].halves == 2 ? tree_.terms(form.factors[0].atom) : nullptr;
    if (!terms) return;
    std::vector<Product> rest;
    Product factors{1, {}};
    for (Product t : *terms) {
      t.coefficient *= form.coefficient;
      bool log = t.factors.size() == 1 && t.factors[0].halves == 2 && a_[t.factors[0].atom].op == Op::log && std::abs(t.coefficient) == 1;
      if (log)
        factors = tree_.multiply(factors, tree_.power(tree_.form(a_[t.factors[0].atom].arg(0)), t.coefficient > 0 ? 2 : -2));
      else
        rest.push_back(t);
    }
    if (factors.factors.empty() || rest.empty()) return;
    Id inner = tree_.to_expression(tree_.add(type_, rest), type_);
    Arithmetic math{&tree_, type_};
    put(tree_.multiply(factors, tree_.form(a_.unary(Op::exp, inner))),
        [=](const Product& read) { return math.apply(Op::exp, value(read)); });
  }

  // y = c*u^p: u^(p-1), which the derivative has, is (y/c)^((p-1)/p) where that loses no sign; and 1/sqrt(u) is c/y.
  void power(const Product& form, const Recipe& value) {
    const Factor f = form.factors[0];
    const Node n = a_[f.atom];
    Arithmetic math{&tree_, type_};
    double c = form.coefficient;
    if (f.halves == 1) put({1, {{f.atom, -1}}}, [=](const Product& read) { return math.tree->power(math.times(1 / c, value(read)), -2); });
    if (n.op == Op::pow && f.halves == 2 && a_[n.arg(1)].op == Op::constant) {
      double p = a_[n.arg(1)].value;
      bool whole = p == std::floor(p);
      if (whole && std::fmod(p, 2) == 0) return;
      Product less = tree_.form(a_.binary(Op::pow, n.arg(0), a_.constant(type_, p - 1)));
      put(less, [=](const Product& read) {
        Product y = math.times(1 / c, value(read));
        return math.pow(whole ? math.apply(Op::abs, y) : y, (p - 1) / p);
      });
      return;
    }
    // In halves: odd ones are of what is not negative, whole odd powers keep the sign of u, which u^(p-1) has not.
    bool root = f.halves % 2 != 0, odd = f.halves % 4 != 0;
    if (std::abs(f.halves) <= 2 || (!root && !odd)) return;
    put({1, {{f.atom, f.halves - 2}}}, [=](const Product& read) {
      Product y = math.times(1 / c, value(read));
      return math.pow(root ? y : math.apply(Op::abs, y), (f.halves - 2) / static_cast<double>(f.halves));
    });
  }

  TensorExprTree& tree_;
  Arena& a_;
  DType type_;
  TensorId tensor_;
  const std::vector<AxisRange>& free_;
  std::vector<StoredValue> found_;
};

}  // namespace

std::vector<StoredValue> stored_forms(TensorExprTree& tree, DType type, TensorId tensor, const std::vector<AxisRange>& free,
                                      const Product& form) {
  return stored_forms(tree, type, tensor, free, form, [](const Product& read) { return read; });
}

std::vector<StoredValue> stored_forms(TensorExprTree& tree, DType type, TensorId tensor, const std::vector<AxisRange>& free,
                                      const Product& form, const StoredValue::Recipe& value) {
  std::vector<StoredValue> forms = Forms(tree, type, tensor, free).all(form, value);
  // Where a factor is guarded, the value without the guard.
  for (const Factor& f : form.factors) {
    const Node n = tree.arena()[f.atom];
    if (n.op != Op::select || f.halves != 2 || !is_constant(tree.arena(), n.arg(2), 0)) continue;
    Product open{form.coefficient, form.factors};
    std::erase(open.factors, f);
    for (StoredValue& v : Forms(tree, type, tensor, free).all(tree.multiply(open, tree.form(n.arg(1))), value)) {
      v.condition = n.arg(0);
      forms.push_back(std::move(v));
    }
    break;
  }
  std::erase_if(forms, [](const StoredValue& v) { return v.form.is_number(); });
  return forms;
}

}  // namespace xhat

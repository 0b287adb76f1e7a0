#include "cse/algebra/accuracy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "cse/normalize/auto_inliner.h"
#include "expr/core/exact_ops.h"
#include "expr/core/scalar.h"

namespace xhat {
namespace {

// Of every read in turn; where there are several, in some combinations of them.
constexpr std::array kMagnitudes = {1e-6, 1e-4, 1e-2, 0.1, 0.5, 1.0, 1.5, 2.5, 4.0, 6.0, 8.0, 10.0, 14.0, 20.0, 30.0, 100.0, 1e3, 1e6};
constexpr size_t kRounds = 4;  // through all values of every read, where there are several
constexpr std::array kTowardsCentre = {0.0, 0.25, 0.5, 0.75};

// Half a unit in the last place, relative; what is smaller than `least` has fewer digits.
struct Format {
  double rounding, least, most;
};
Format format_of(DType type) {
  switch (type) {
    case DType::f64: return {0x1p-53, std::numeric_limits<double>::min(), std::numeric_limits<double>::max()};
    // Computed in f32.
    case DType::f16:
    case DType::bf16:
    case DType::f32: return {0x1p-24, std::numeric_limits<float>::min(), std::numeric_limits<float>::max()};
    case DType::i64:
    case DType::i32:
    case DType::u32:
    case DType::u8:
    case DType::boolean: break;
  }
  throw Bug("no floating point format");
}

// Values that a function of this kind tells apart are about 1.
bool has_own_scale(Op op) {
  return op == Op::exp || op == Op::expm1 || op == Op::tanh || op == Op::sigmoid || op == Op::softplus || op == Op::erf ||
         op == Op::erfc || op == Op::atan || op == Op::sinc || op == Op::i0e || op == Op::i1e || op == Op::exp2 || op == Op::sinh || op == Op::cosh;
}

}  // namespace

// Two expressions as one list of nodes, children first, with values at one point.
class Accuracy::Walk {
 public:
  Walk(Accuracy& of, Id before, Id after, std::span<const Id> values) : of_(of), tree_(of.tree_), a_(of.a_) {
    before_ = place(before);
    after_ = place(after);
    for (Id v : values) stored_.push_back(place(v));
  }

  size_t variables() const { return leaves_.size(); }
  bool nonnegative(size_t variable) const { return of_.nonnegative(steps_[leaves_[variable]].node); }

  // False: a sample says that digits are lost. None: says nothing.
  std::optional<bool> at(std::span<const double> given) {
    values_.assign(steps_.size(), 0);
    for (size_t i = 0; i < leaves_.size(); ++i) values_[leaves_[i]] = given[i];
    run(1);
    double wanted = values_[before_], got = values_[after_];
    const Format f = format_of(steps_[before_].type);
    // Where a stored value is no number, nobody asks for its derivative.
    if (!fine(before_) || !std::ranges::all_of(stored_, [&](size_t k) { return fine(k); })) return std::nullopt;
    if (!fine(after_)) return false;
    double error = error_of(after_), before = error_of(before_);
    // Elsewhere it is another branch of a select that both stand in.
    double computed_in_f64 = 64 * error / f.rounding * 0x1p-53;
    if (std::abs(got - wanted) > 1e-9 * std::abs(wanted) + computed_in_f64) return std::nullopt;
    if (error <= most_amplification * (before + f.least)) return true;
    double scale = std::abs(wanted);
    for (double t : kTowardsCentre) {
      run(t);
      if (fine(before_)) scale = std::max(scale, std::abs(values_[before_]));
    }
    return error <= most_amplification * (before + f.rounding * scale);
  }

 private:
  struct Step {
    Id node;
    Op op;
    DType type;
    bool leaf;
    std::vector<size_t> args;
    double constant;  // its value, or the part of a function's argument that does not vary
  };

  size_t place(Id root) {
    for (Id id : below(root)) {
      if (at_.contains(id)) continue;
      const Node n = a_[id];
      Step s{.node = id, .op = n.op, .type = n.type, .leaf = is_leaf(n), .args = {}, .constant = 0};
      if (!s.leaf)
        for (Id x : n.args()) s.args.push_back(at_.at(x));
      if (n.op == Op::constant) s.constant = is_float(n.type) ? n.value : static_cast<double>(n.integer);
      if (has_own_scale(n.op)) s.constant = constant_part(n.arg(0));
      at_[id] = steps_.size();
      if (s.leaf) leaves_.push_back(steps_.size());
      steps_.push_back(std::move(s));
    }
    return at_.at(root);
  }

  static bool is_leaf(const Node& n) {
    if (n.op == Op::constant) return false;
    return is_read(n.op) || is_reduction(n.op) || n.op == Op::random || is_integer(n.type);
  }

  std::vector<Id> below(Id root) const {
    std::vector<Id> open = {root}, found;
    std::set<Id> seen = {root};
    while (!open.empty()) {
      Id id = open.back();
      open.pop_back();
      found.push_back(id);
      if (is_leaf(a_[id])) continue;
      for (Id x : a_[id].args())
        if (seen.insert(x).second) open.push_back(x);
    }
    std::ranges::sort(found);
    return found;
  }

  double constant_part(Id argument) {
    Product p = tree_.form(argument);
    if (p.is_number()) return p.coefficient;
    const auto* terms = p.factors.size() == 1 && p.factors[0].halves == 2 ? tree_.terms(p.factors[0].atom) : nullptr;
    if (terms)
      for (const Product& t : *terms)
        if (t.is_number()) return t.coefficient * p.coefficient;
    return 0;
  }

  double apply(const Step& s, const double* x) const {
    switch (s.op) {
      case Op::constant: return s.constant;
      case Op::cast: return x[0];
      case Op::select: return x[0] != 0 ? x[1] : x[2];
      default: break;
    }
    const ScalarOp& op = scalar(s.op);
    if (is_float(s.type)) return op.reals.at(x);
    bool reals = op.tests && std::ranges::all_of(s.args, [&](size_t i) { return is_float(steps_[i].type); });
    if (reals) return static_cast<double>(op.tests.at(x));
    std::array<int64_t, 3> whole{};
    for (size_t i = 0; i < s.args.size(); ++i) whole[i] = static_cast<int64_t>(x[i]);
    return static_cast<double>(op.integers.at(whole.data()));
  }

  void run(double t) {
    std::array<double, 3> x{};
    for (size_t k = 0; k < steps_.size(); ++k) {
      const Step& s = steps_[k];
      if (s.leaf) continue;
      for (size_t i = 0; i < s.args.size(); ++i) x[i] = values_[s.args[i]];
      if (has_own_scale(s.op)) x[0] = s.constant + t * (x[0] - s.constant);
      values_[k] = apply(s, x.data());
    }
  }

  // Is the value, and all that it is made of, inside the type's range?
  bool fine(size_t root) {
    reach(root);
    for (size_t k = 0; k <= root; ++k)
      if (slope_[k] != 0 && is_float(steps_[k].type) && !(std::abs(values_[k]) <= format_of(steps_[k].type).most)) return false;
    return true;
  }

  void reach(size_t root) {
    slope_.assign(root + 1, 0);
    slope_[root] = 1;
    for (size_t k = root + 1; k-- > 0;) {
      if (slope_[k] == 0 || steps_[k].leaf) continue;
      const Step& s = steps_[k];
      for (size_t i = 0; i < s.args.size(); ++i)
        if (s.op != Op::select || i == 0 || (i == 1) == (values_[s.args[0]] != 0)) slope_[s.args[i]] = 1;
    }
  }

  double error_of(size_t root) {
    slope_.assign(root + 1, 0);
    slope_[root] = 1;
    double error = 0;
    std::array<double, 3> x{};
    for (size_t k = root + 1; k-- > 0;) {
      const Step& s = steps_[k];
      if (slope_[k] == 0 || !is_float(s.type)) continue;
      error += std::abs(slope_[k]) * rounding_of(s, values_[k]);
      if (s.leaf || s.op == Op::constant) continue;
      for (size_t i = 0; i < s.args.size(); ++i) x[i] = values_[s.args[i]];
      for (size_t i = 0; i < s.args.size(); ++i)
        if (is_float(steps_[s.args[i]].type)) slope_[s.args[i]] += slope_[k] * partial(s, x, i);
    }
    return error;
  }

  double rounding_of(const Step& s, double value) const {
    if (s.op == Op::constant) return std::abs(round_to(s.type, value) - value);
    // Inputs are what they are.
    if (is_exact(s.op) || (is_read(s.op) && of_.p_.tensors[a_[s.node].symbol].role != Role::defined)) return 0;
    const Format f = format_of(s.type);
    return f.rounding * std::max(std::abs(value), f.least);
  }

  // By a difference: every function of the language has one.
  double partial(const Step& s, std::array<double, 3>& x, size_t i) const {
    constexpr double kStep = 1e-6;
    double middle = x[i], step = middle == 0 ? 1e-9 : std::abs(middle) * kStep;
    x[i] = middle + step;
    double above = apply(s, x.data());
    x[i] = middle - step;
    double below = apply(s, x.data());
    x[i] = middle;
    double slope = (above - below) / (2 * step);
    return std::isfinite(slope) ? slope : 0;
  }

  Accuracy& of_;
  TensorExprTree& tree_;
  Arena& a_;
  std::unordered_map<Id, size_t> at_;
  std::vector<Step> steps_;
  std::vector<size_t> leaves_;
  std::vector<double> values_, slope_;
  size_t before_ = 0, after_ = 0;
  std::vector<size_t> stored_;
};

// Maps that the algebra takes for tensors.
bool Accuracy::is_stored(const Definition& map) {
  if (!stored_) {
    stored_.emplace();
    const Uses uses(p_);
    for (const Definition& d : p_.definitions())
      if (stays_written(a_, uses, d)) stored_->insert(d.target());
  }
  return stored_->contains(map.target());
}

Id Accuracy::written_out(Id expression, std::vector<Id>& values) {
  return rewrite(a_, expression, [&](Id id) {
    const Node n = a_[id];
    const Definition* d = n.op == Op::read && is_float(n.type) ? p_.definition_of(n.symbol) : nullptr;
    if (!d || d->is_call() || is_reduction(a_[d->body].op) || is_stored(*d)) return id;
    std::vector<Id> inner;
    auto known = written_out_.find(n.symbol);
    if (known == written_out_.end()) known = written_out_.emplace(n.symbol, written_out(d->body, inner)).first;
    Replacements at;
    for (size_t i = 0; i < d->axes.size(); ++i) at[d->axes[i].axis] = a_.to(DType::i64, n.arg(i));
    values.push_back(substitute(a_, known->second, at));
    return values.back();
  });
}

bool Accuracy::nonnegative(Id expression) {
  const Node n = a_[expression];
  switch (n.op) {
    case Op::constant: return is_float(n.type) ? n.value >= 0 : n.integer >= 0;
    case Op::exp:
    case Op::abs:
    case Op::sqrt:
    case Op::sigmoid:
    case Op::softplus:
    case Op::exp2:
    case Op::cosh:
    case Op::hypot:
    case Op::erfc:
    case Op::i0e:
    case Op::relu: return true;
    case Op::mul: return n.arg(0) == n.arg(1) || (nonnegative(n.arg(0)) && nonnegative(n.arg(1)));
    case Op::add:
    case Op::div: return nonnegative(n.arg(0)) && nonnegative(n.arg(1));
    case Op::pow: {
      auto whole = whole_power(a_, n);
      return (whole && *whole % 2 == 0) || nonnegative(n.arg(0));
    }
    case Op::sum: return nonnegative(reduce_body(n));
    case Op::read: {
      if (!sums_) {
        sums_.emplace();
        for (const Definition& d : p_.forward.definitions)
          if (!d.is_call() && a_[d.body].op == Op::sum) sums_->emplace(d.target(), d.body);
      }
      auto it = sums_->find(n.symbol);
      return it != sums_->end() && nonnegative(it->second);
    }
    default: return is_integer(n.type) || (n.op == Op::cast && nonnegative(n.arg(0)));
  }
}

bool Accuracy::keeps(Id before, Id after) {
  if (before == after) return true;
  auto [known, is_new] = known_.try_emplace({before, after}, true);
  if (!is_new) return known->second;
  std::vector<Id> values;
  Id from = written_out(before, values), to = written_out(after, values);
  Walk walk(*this, from, to, values);
  constexpr size_t kValues = 2 * kMagnitudes.size();
  const size_t variables = walk.variables(), rounds = variables == 1 ? 1 : kRounds;
  std::vector<double> point(variables);
  for (size_t k = 0; k < rounds * kValues && known->second; ++k) {
    for (size_t i = 0; i < variables; ++i) {
      // By steps that have no factor in common with kValues, so that each read takes every value once in a round.
      constexpr std::array<size_t, 6> kSteps = {1, 5, 7, 11, 13, 17};
      size_t which = (k * kSteps[i % kSteps.size()] + k / kValues * (i + 1) * 7 + i / kSteps.size()) % kValues;
      point[i] = (which % 2 && !walk.nonnegative(i) ? -1 : 1) * kMagnitudes[which / 2];
    }
    if (auto good = walk.at(point); good && !*good) known->second = false;
  }
  return known->second;
}

}  // namespace xhat

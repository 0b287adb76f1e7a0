#include "expr/eval/nonfinite.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "expr/core/uses.h"
#include "expr/eval/meaning.h"

namespace xhat {
namespace {

// Elements of one result that are looked into: most come from the same place.
constexpr size_t kElements = 16;
// Longer expressions are cut in messages.
constexpr size_t kLongestText = 100;

enum class Badness : uint8_t { finite, infinite, nan };
Badness badness(double v) { return std::isnan(v) ? Badness::nan : std::isinf(v) ? Badness::infinite : Badness::finite; }

std::string number(DType type, double v) {
  if (std::isnan(v)) return "nan";  // its sign says nothing
  return type == DType::f64 ? fmt::format("{}", v) : fmt::format("{}", static_cast<float>(v));
}

struct Found {
  size_t place = 0;  // of the definition in the program; inputs stand before all definitions
  NonFiniteOrigin origin;
};

// Walks from one element of a result to the origin of its value.
class Trace : evaluation::Meaning {
 public:
  Trace(const Program& p, const Arrays& all, const DimValues& dims) : Meaning(p, all, dims, Rounding::declared), uses_(p) {
    size_t place = 1;
    for (const Definition& d : p.definitions()) place_[d.target()] = place++;
  }

  const Array& array(TensorId t) const { return tensors_.at(t); }

  Found from(TensorId t, size_t element) {
    made_.reset();
    end_.reset();
    const std::string result = element_text(t, position_of(element, array(t).shape));
    const double value = array(t).reals[element];
    read_element(t, position_of(element, array(t).shape));
    while (at_ != kNone) step();
    // Sums near the largest number may round to either side of it, by their order.
    if (!made_ && !end_) end(place_.at(definition_->target()), "its terms are finite, one by one", definition_->pos);
    Found found = made_ ? *made_ : *end_;
    if (made_ && end_) found.origin.message += "; " + end_->origin.message;
    if (found.origin.message.find(result + " is ") == std::string::npos)
      found.origin.message += fmt::format("; {} is {} because of it", result, number(array(t).type, value));
    return found;
  }

 private:
  const Uses uses_;
  std::unordered_map<TensorId, size_t> place_;
  std::unordered_map<Id, evaluation::Value> known_;  // at the point where the walk is
  int inside_ = 0;                                   // reductions that are being evaluated
  const Definition* definition_ = nullptr;
  std::vector<int64_t> position_;
  std::vector<Id> reduced_;    // axes of reductions around at_
  Id at_ = kNone;              // the expression whose value is not finite; kNone: the walk is over
  std::optional<Found> made_;  // the operation, nearest to the inputs, that made a worse value of its operands
  std::optional<Found> end_;   // the walk ended at a value that was given

  // A value that is used twice is computed once, but for parts of reductions, whose values change from term to term.
  evaluation::Value at(Id id) override {
    if (inside_) return value_of(id);
    if (auto it = known_.find(id); it != known_.end()) return it->second;
    const bool reduction = is_reduction(a_[id].op);
    inside_ += reduction;
    const evaluation::Value v = value_of(id);
    inside_ -= reduction;
    return known_[id] = v;
  }

  double real(Id id) { return is_float(a_[id].type) ? at(id).real : 0; }
  std::string element_text(TensorId t, const std::vector<int64_t>& position) const {
    return p_.tensor(t).name + (position.empty() ? "" : shape_text(position));
  }
  std::string text(Id id) const {
    std::string all = print(p_, id);
    return all.size() <= kLongestText ? all : all.substr(0, kLongestText) + " …";
  }

  void go(Id id) {
    at_ = id;
    known_.clear();
  }

  void end(size_t place, const std::string& message, Pos pos) {
    end_ = Found{place, {message, pos, false}};
    at_ = kNone;
  }

  void read_element(TensorId t, const std::vector<int64_t>& position) {
    const Definition* d = uses_.definition(t);
    if (!d) {
      size_t i = 0;
      for (size_t k = 0; k < position.size(); ++k) i = i * static_cast<size_t>(array(t).shape[k]) + static_cast<size_t>(position[k]);
      const char* what = std::ranges::find(p_.cotangents, t) == p_.cotangents.end() ? "input" : "cotangent";
      const std::string value = number(array(t).type, array(t).reals[i]);
      return end(0, fmt::format("{} {} is {} when it comes in", what, element_text(t, position), value), p_.tensor(t).pos);
    }
    definition_ = d;
    position_ = position;
    reduced_.clear();
    for (size_t k = 0; k < d->axes.size(); ++k) axes_[d->axes[k].axis] = position[k];
    go(d->body);
  }

  // "e[2] is inf: exp(x[i]) makes it of x[i] = 1000".
  void made(Id id, double value, const std::string& of) {
    std::string where;
    for (Id axis : reduced_) where += fmt::format("{}{} = {}", where.empty() ? " (at " : ", ", a_.name(axis), axes_.at(axis));
    if (!where.empty()) where += ")";
    const TensorId t = definition_->target();
    const std::string element = element_text(t, position_) + (id == definition_->body ? " is " : " gets ") + number(a_[id].type, value);
    made_ = Found{place_.at(t), {fmt::format("{}: {}{} makes it of {}", element, text(id), where, of), definition_->pos, true}};
  }

  void step() {
    const Id id = at_;
    const Node& n = a_[id];
    const double value = real(id);
    switch (n.op) {
      case Op::constant: {
        const TensorId t = definition_->target();
        return end(place_.at(t), fmt::format("{} is written in the definition of {}", text(id), p_.tensor(t).name), definition_->pos);
      }
      case Op::read:
      case Op::read_or: {
        std::vector<int64_t> position;
        for (Id index : read_indices(n)) position.push_back(at(index).integer);
        const Array& from = array(n.symbol);
        for (size_t k = 0; k < position.size(); ++k)
          if (position[k] < 0 || position[k] >= from.shape[k]) return void(at_ = n.args().back());
        return read_element(n.symbol, position);
      }
      case Op::select: return void(at_ = at(n.arg(0)).integer ? n.arg(1) : n.arg(2));
      default: return is_reduction(n.op) ? reduction(id, value) : operation(id, value);
    }
  }

  void operation(Id id, double value) {
    const Node& n = a_[id];
    Id worst = n.arg(0);
    std::string of;
    for (Id x : n.args()) {
      if (badness(real(x)) > badness(real(worst))) worst = x;
      if (a_[x].op == Op::constant) continue;
      const evaluation::Value v = at(x);
      of += of.empty() ? "" : ", ";
      of += text(x) + " = " + (is_float(a_[x].type) ? number(a_[x].type, v.real) : std::to_string(v.integer));
    }
    if (badness(value) > badness(real(worst))) made(id, value, of.empty() ? "constants" : of);
    at_ = badness(real(worst)) == Badness::finite ? kNone : worst;
  }

  void reduction(Id id, double value) {
    const Node& n = a_[id];
    const std::vector<AxisRange> axes = reduce_axes(n);
    const std::map<Id, int64_t> outside = axes_;
    std::map<Id, int64_t> point;  // of the first term that is as bad as any
    Badness worst = Badness::finite;
    size_t terms = 0;
    double largest = 0;
    ++inside_;
    each_point(n, axes, 0, [&](evaluation::Value v) {
      ++terms;
      largest = std::max(largest, std::fabs(v.real));
      if (badness(v.real) <= worst) return;
      worst = badness(v.real);
      point = axes_;
    });
    --inside_;
    axes_ = outside;
    const std::string of =
        terms == 0 ? "no terms" : fmt::format("{} term{}, the largest {}", terms, terms == 1 ? "" : "s", number(n.type, largest));
    if (badness(value) > worst) made(id, value, of);
    if (worst == Badness::finite) return void(at_ = kNone);
    axes_ = point;
    for (const AxisRange& r : axes) reduced_.push_back(r.axis);
    go(reduce_body(n));
  }
};

}  // namespace

std::optional<NonFiniteOrigin> find_nonfinite(const Program& p, const Arrays& inputs, const DimValues& dims) {
  Arrays all = evaluate(p, inputs, dims, {.every_tensor = true});
  for (const auto& [name, array] : inputs) all[name] = array;
  Trace trace(p, all, dims);
  std::optional<Found> first;
  auto before = [](const Found& a, const Found& b) { return std::pair(!a.origin.made, a.place) < std::pair(!b.origin.made, b.place); };
  for (const auto* list : {&p.outputs, &p.gradients})
    for (TensorId t : *list) {
      if (!all.contains(p.tensor(t).name) || !is_float(p.tensor(t).type)) continue;
      const std::vector<double>& values = trace.array(t).reals;
      size_t looked = 0;
      for (size_t i = 0; i < values.size() && looked < kElements; ++i) {
        if (std::isfinite(values[i])) continue;
        ++looked;
        Found found = trace.from(t, i);
        if (!first || before(found, *first)) first = std::move(found);
      }
    }
  if (!first) return std::nullopt;
  return first->origin;
}

}  // namespace xhat

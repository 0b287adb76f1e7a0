#include "expr/dsl/formulas.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "expr/core/error.h"
#include "expr/dsl/dsl_state.h"

namespace xhat::dsl {
namespace {

// Letters, and where "..." stands among them.
struct Subscripts {
  std::string letters;
  std::optional<size_t> dots;
};

class Einsum {
 public:
  Einsum(const Tensor& result, const std::string& text, const std::vector<Tensor>& operands)
      : result_(result), text_(text), operands_(operands) {
    std::string bare = text;
    std::erase_if(bare, [](char c) { return c == ' '; });
    const size_t arrow = bare.find("->");
    const std::string inputs = bare.substr(0, arrow);
    for (size_t from = 0; from <= inputs.size();) {
      const size_t comma = std::min(inputs.find(',', from), inputs.size());
      parts_.push_back(read(inputs.substr(from, comma - from)));
      from = comma + 1;
    }
    if (parts_.size() != operands.size()) fail(fmt::format("it has {} operands, and {} are given", parts_.size(), operands.size()));
    for (size_t k = 0; k < operands.size(); ++k) count_dots(parts_[k], operands[k]);
    output_ = arrow == std::string::npos ? implied() : read(bare.substr(arrow + 2));
    for (char c : output_.letters) {
      if (std::ranges::count(output_.letters, c) > 1)
        fail(fmt::format("{} is twice in the result; each of its axes has a letter of its own", c));
      if (std::ranges::none_of(parts_, [&](const Subscripts& s) { return s.letters.find(c) != std::string::npos; }))
        fail(fmt::format("{} of the result is in no operand", c));
    }
    if (dots_ > 0 && !output_.dots) fail("the result lacks the \"...\" of the operands, which is not summed over");
  }

  void define() const {
    Expr product = factor(0);
    for (size_t k = 1; k < operands_.size(); ++k) product = product * factor(k);
    std::string summed;
    for (const Subscripts& s : parts_)
      for (char c : s.letters)
        if (output_.letters.find(c) == std::string::npos && summed.find(c) == std::string::npos) summed += c;
    if (!summed.empty()) {
      auto node = std::make_shared<detail::Node>();
      node->kind = ast::Kind::reduce;
      node->text = "sum";
      node->arg_count = 1;
      for (char c : summed) node->axes.push_back({name_of(c), false});
      node->children.push_back(product.node());
      product = Expr(detail::NodePtr(node));
    }
    Access(result_.state(), indices(output_, dots_)) = product;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(fmt::format("einsum \"{}\": {}; it is written as in \"bik,bkj->bij\", \"ij,j\", \"...ij,...jk->...ik\"", text_, what));
  }

  Subscripts read(const std::string& part) const {
    Subscripts s;
    for (size_t i = 0; i < part.size(); ++i) {
      if (part.compare(i, 3, "...") == 0) {
        if (s.dots) fail("\"...\" stands twice in \"" + part + "\"");
        s.dots = s.letters.size();
        i += 2;
      } else if (std::isalpha(static_cast<unsigned char>(part[i]))) {
        s.letters += part[i];
      } else {
        fail(fmt::format("{} is no letter", part[i]));
      }
    }
    return s;
  }

  // Where dimensions are known, the letters must be as many.
  void count_dots(const Subscripts& s, const Tensor& x) {
    const detail::TensorState& state = *x.state();
    const bool input = state.role == detail::TensorState::Role::input, defined = state.role == detail::TensorState::Role::defined;
    if (!input && !defined) {
      if (s.dots) fail(fmt::format("\"...\" is of parameters and of tensors that are defined, and {} is neither", state.name));
      return;
    }
    const size_t rank = input ? state.extents.size() : state.axes.size();
    if (s.letters.size() > rank || (!s.dots && s.letters.size() < rank))
      fail(fmt::format("{} has {} dimension{}, and \"{}\" has {} letter{}", state.name, rank, rank == 1 ? "" : "s", s.letters,
                       s.letters.size(), s.letters.size() == 1 ? "" : "s"));
    if (s.dots) ranks_[&s] = rank - s.letters.size();
    if (s.dots) dots_ = std::max(dots_, rank - s.letters.size());
  }

  Subscripts implied() const {
    std::map<char, int> times;
    bool dots = false;
    for (const Subscripts& s : parts_) {
      for (char c : s.letters) ++times[c];
      dots |= s.dots.has_value();
    }
    Subscripts out;
    if (dots) out.dots = 0;
    for (auto [c, n] : times)
      if (n == 1) out.letters += c;
    return out;
  }

  // A letter's axis is called like it, but for tensors of that name and for names of dims, which are mostly large letters.
  std::string name_of(char c) const {
    std::string name(1, c);
    const bool taken =
        result_.state()->name == name || std::ranges::any_of(operands_, [&](const Tensor& t) { return t.state()->name == name; });
    return taken || std::isupper(static_cast<unsigned char>(c)) ? name + "_" : name;
  }

  // dots: how many dimensions "..." stands for here; the last of those of all operands.
  std::vector<Subscript> indices(const Subscripts& s, size_t dots) const {
    std::vector<Subscript> at;
    for (size_t i = 0; i <= s.letters.size(); ++i) {
      if (s.dots && *s.dots == i)
        for (size_t d = dots_ - dots; d < dots_; ++d) at.emplace_back(Range(Axis("batch" + std::to_string(d))));
      if (i < s.letters.size()) at.emplace_back(Range(Axis(name_of(s.letters[i]))));
    }
    return at;
  }

  Expr factor(size_t k) const {
    const Subscripts& s = parts_[k];
    const std::vector<Subscript> at = indices(s, s.dots ? ranks_.at(&s) : 0);
    return at.empty() ? static_cast<Expr>(operands_[k]) : static_cast<Expr>(Access(operands_[k].state(), at));
  }

  const Tensor& result_;
  const std::string& text_;
  const std::vector<Tensor>& operands_;
  std::vector<Subscripts> parts_;
  std::map<const Subscripts*, size_t> ranks_;  // of "..."
  Subscripts output_;
  size_t dots_ = 0;
};

}  // namespace

void einsum(const Tensor& result, const std::string& subscripts, const std::vector<Tensor>& operands) {
  Einsum(result, subscripts, operands).define();
}

Expr random_normal(const Expr& seed, const Expr& i) { return 1.4142135623730951 * erfinv(2 * random(seed, i) - (1 - 0x1p-24)); }

Expr random_int(const Expr& seed, const Expr& i, const Expr& low, const Expr& high) {
  return low + shift_right(i64(16777216 * random(seed, i)) * (high - low), 24);
}

}  // namespace xhat::dsl

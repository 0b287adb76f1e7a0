#include "runtime/lazy/infer_extents.h"

#include "runtime/lazy/movement.h"

namespace xhat::lazy::detail {
namespace {

using Term = Extents::Term;

class Inference {
 public:
  Inference(Extents& e, const Graph& g) : e_(e), g_(g) { terms_.resize(g.items.size()); }

  std::vector<Terms> run(const std::vector<Terms>& leaves, const std::vector<Terms>& above) {
    for (size_t i = 0; i < g_.items.size(); ++i) {
      const Item& item = g_.items[i];
      switch (item.role) {
        case Role::leaf: terms_[i] = leaves[item.number]; break;
        case Role::cut: terms_[i] = above[item.number]; break;
        case Role::loss: terms_[i] = fixed(item.node->shape); break;
        case Role::grad: terms_[i] = terms_[g_.derivatives[item.number]->wrt_items[item.which]]; break;
        case Role::value: terms_[i] = value(item); break;
      }
    }
    return std::move(terms_);
  }

 private:
  const Terms& operand(const Item& item, size_t k) const { return terms_[g_.args_of(item)[k]]; }

  Terms fixed(const Shape& shape) {
    Terms t;
    for (int64_t extent : shape) t.push_back(e_.number(extent));
    return t;
  }

  Terms open(const Shape& shape) {
    Terms t;
    for (int64_t extent : shape) t.push_back(e_.unknown(extent, false));
    return t;
  }

  void fix(const Terms& terms) {
    for (Term t : terms) e_.fix(t);
  }

  Terms value(const Item& item) {
    const Node& n = *item.node;
    switch (n.kind) {
      case Kind::leaf:
      case Kind::grad: break;  // have roles of their own
      case Kind::constant:
      case Kind::iota: return open(n.shape);
      case Kind::elementwise: return broadcast(item);
      case Kind::size_of: return {};
      case Kind::reduce: return without(operand(item, 0), n.params);
      case Kind::reshape: return reshape(n, g_.items[g_.args_of(item)[0]], operand(item, 0));
      case Kind::permute:
      case Kind::expand:
      case Kind::slice: return step(n.kind, n.shape, n.params, operand(item, 0));
      case Kind::pad: {
        Terms t = operand(item, 0);
        for (size_t d = 0; d < t.size(); ++d) t[d] = e_.offset(t[d], n.params[2 * d] + n.params[2 * d + 1]);
        return t;
      }
      case Kind::concat: return concat(item, static_cast<size_t>(n.params[0]));
      case Kind::take: {
        Terms t = operand(item, 0);
        const auto at = t.erase(t.begin() + n.params[0]);
        t.insert(at, operand(item, 1).begin(), operand(item, 1).end());
        return t;
      }
      case Kind::gather: return operand(item, 1);
      case Kind::contract: return contract(item);
      case Kind::conv: return conv(item);
      case Kind::window: {
        Terms t = operand(item, 0);
        const size_t windows = n.params.size() / 4, first = t.size() - windows;
        for (size_t d = 0; d < windows; ++d) {
          const int64_t* p = &n.params[4 * d];
          t[first + d] = e_.offset(e_.divide(e_.offset(t[first + d], 2 * p[2] - p[3] * (p[0] - 1) - 1), p[1]), 1);
        }
        return t;
      }
      case Kind::call: return call(item);
      case Kind::contiguous: return operand(item, 0);
      case Kind::assign:
        for (size_t d = 0; d < operand(item, 0).size(); ++d) e_.equate(operand(item, 0)[d], operand(item, 1)[d]);
        return operand(item, 0);
      case Kind::update:
        fix(operand(item, 0));
        fix(operand(item, 1));
        return operand(item, 0);
    }
    return fixed(n.shape);
  }

  Terms broadcast(const Item& item) {
    Terms t;
    for (Term one : open(item.node->shape)) t.push_back(one);
    for (size_t k = 0; k < item.count; ++k) {
      const Terms& o = operand(item, k);
      for (size_t d = 0; d < o.size(); ++d) {
        Term& mine = t[t.size() - o.size() + d];
        if (!e_.is_one(o[d])) e_.equate(mine, o[d]);
      }
    }
    return t;
  }

  static Terms without(const Terms& from, const Params& axes) {
    Terms t;
    for (size_t d = 0; d < from.size(); ++d)
      if (std::ranges::find(axes, static_cast<int64_t>(d)) == axes.end()) t.push_back(from[d]);
    return t;
  }

  Terms step(Kind kind, const Shape& shape, const Params& params, const Terms& from) {
    Terms t;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (kind == Kind::permute) {
        t.push_back(from[static_cast<size_t>(params[d])]);
      } else if (kind == Kind::expand) {
        t.push_back(e_.is_one(from[d]) ? e_.unknown(shape[d], false) : from[d]);
      } else {
        const SliceStep s = slice_step(params, d, e_.value(from[d]));
        const int64_t step = std::abs(s.step);
        if (!s.to_end || (s.from_end && s.step > 0))
          t.push_back(e_.number(shape[d]));
        else
          t.push_back(e_.divide(e_.offset(from[d], (s.step < 0 ? 0 : -s.begin) + step - 1), step));
      }
    }
    return t;
  }

  Terms reshape(const Node& n, const Item& below, const Terms& from) {
    Shape was;
    for (Term t : from) was.push_back(e_.value(t));
    Terms result = fixed(n.shape);
    if (below.role == Role::value && below.node->kind == Kind::expand && n.shape.elements() == 0) return result;
    for (const ReshapeGroup& group : reshape_groups(was, n.shape)) {
      if (group.from.size() == 1 && group.to.size() == 1) {
        result[group.to[0]] = from[group.from[0]];
        continue;
      }
      // Index arithmetic with the inner extents as numbers; the outermost stays open where one dimension is made of several.
      for (size_t k = group.to.size() == 1 ? 1 : 0; k < group.from.size(); ++k) e_.fix(from[group.from[k]]);
      if (group.to.size() != 1) continue;
      Term all = from[group.from[0]];
      for (size_t k = 1; k < group.from.size(); ++k) all = e_.multiply(all, from[group.from[k]]);
      result[group.to[0]] = all;
    }
    return result;
  }

  Terms concat(const Item& item, size_t axis) {
    Terms t = operand(item, 0);
    for (size_t k = 1; k < item.count; ++k)
      for (size_t d = 0; d < t.size(); ++d) {
        if (d == axis)
          t[d] = e_.add(t[d], operand(item, k)[d]);
        else
          e_.equate(t[d], operand(item, k)[d]);
      }
    return t;
  }

  Terms contract(const Item& item) {
    std::map<int64_t, Term> letters;
    const Params& p = item.node->params;
    size_t at = static_cast<size_t>(p[0]) + 1;
    for (size_t k = 0; k < item.count; ++k) {
      const auto count = static_cast<size_t>(p[at++]);
      for (size_t d = 0; d < count; ++d) {
        const Term t = operand(item, k)[d];
        const auto [it, fresh] = letters.try_emplace(p[at++], t);
        if (!fresh) it->second = e_.broadcast(it->second, t);
      }
    }
    Terms t;
    for (size_t d = 0; d < static_cast<size_t>(p[0]); ++d) t.push_back(letters.at(p[d + 1]));
    return t;
  }

  Terms conv(const Item& item) {
    const Terms &x = operand(item, 0), &w = operand(item, 1);
    const Params& p = item.node->params;
    if (p[0] == 1) {
      e_.equate(x[1], w[1]);
    } else {
      for (Term t : {x[1], w[0], w[1]}) e_.fix(t);
    }
    Terms t = {x[0], w[0]};
    for (size_t d = 2; d < x.size(); ++d) {
      e_.fix(w[d]);
      const int64_t stride = p[3 * d - 5], padding = p[3 * d - 4], dilation = p[3 * d - 3];
      t.push_back(e_.offset(e_.divide(e_.offset(x[d], 2 * padding - dilation * (e_.value(w[d]) - 1) - 1), stride), 1));
    }
    return t;
  }

  // Dims of the op that are extents of its inputs are those of the operands; where an extent is anything else, numbers.
  Terms call(const Item& item) {
    const Program& op = *item.node->program;
    std::map<Id, Term> dims;
    for (size_t k = 0; k < item.count; ++k) {
      const Tensor& t = op.tensor(op.inputs[k]);
      for (size_t d = 0; d < t.shape.size(); ++d) {
        const Term mine = operand(item, k)[d];
        if ((*op.arena)[t.shape[d]].op != Op::dim) {
          e_.fix(mine);
          for (Id id : reachable(*op.arena, t.shape[d]))
            if (auto it = dims.find(id); it != dims.end()) e_.fix(it->second);
        } else if (const auto [it, fresh] = dims.try_emplace(t.shape[d], mine); !fresh) {
          e_.equate(it->second, mine);
        }
      }
    }
    const Tensor& result = op.tensor(op.outputs[static_cast<size_t>(item.node->params[0])]);
    Terms t;
    for (size_t d = 0; d < result.shape.size(); ++d) {
      const auto it = dims.find(result.shape[d]);
      t.push_back(it != dims.end() ? it->second : e_.number(item.node->shape[d]));
      if (it != dims.end() || (*op.arena)[result.shape[d]].op == Op::constant) continue;
      for (auto& [dim, term] : dims) e_.fix(term);
    }
    return t;
  }

  Extents& e_;
  const Graph& g_;
  std::vector<Terms> terms_;
};

}  // namespace

std::vector<ReshapeGroup> reshape_groups(const Shape& from, const Shape& to) {
  std::vector<ReshapeGroup> groups;
  size_t i = 0, j = 0;
  while (true) {
    while (i < from.size() && from[i] == 1) ++i;
    while (j < to.size() && to[j] == 1) ++j;
    if (i == from.size() || j == to.size()) return groups;
    ReshapeGroup g;
    int64_t a = from[i], b = to[j];
    g.from.push_back(i++);
    g.to.push_back(j++);
    while (a != b) {
      if (a < b && i < from.size()) {
        if (from[i] != 1) g.from.push_back(i);
        a *= from[i++];
      } else if (j < to.size()) {
        if (to[j] != 1) g.to.push_back(j);
        b *= to[j++];
      } else {
        break;  // no elements at all
      }
    }
    groups.push_back(std::move(g));
  }
}

std::vector<Terms> infer_extents(Extents& e, const Graph& g, const std::vector<Terms>& leaves, const std::vector<Terms>& above) {
  return Inference(e, g).run(leaves, above);
}

}  // namespace xhat::lazy::detail

// The relay policy as a table: a graph of library ops, and the groups that Relay makes of it.
//
//   param x w; y = conv(x, w); z = relu(y); return z
//
// An argument that is a number is a scalar constant, one that begins with # a constant tensor. `y[1,8] = …` gives a shape
// other than 10,20. `tuple(a, b)` and `get(t)` are tuples and their fields, `stop` a mark, `if` and `ref` control.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "fusion/relay/post_dominators.h"
#include "fusion/relay/relay.h"

namespace xhat::fusion::relay_test {
namespace {

using Form = DataflowOp::Form;

// The kinds that Relay's registry gives its ops.
const std::map<OpKind, std::set<std::string>> kRegistry = {
    {OpKind::elemwise, {"exp", "relu", "sigmoid", "tanh", "cast", "mark"}},
    {OpKind::broadcast, {"add", "sub", "mul", "divide", "left_shift", "greater", "less"}},
    {OpKind::injective,
     {"squeeze", "transpose", "reshape", "concat", "split", "upsample", "take", "gather_nd", "full", "trilu", "broadcast_to"}},
    {OpKind::comm_reduce, {"sum", "max", "min", "mean"}},
    {OpKind::out_fusable, {"conv", "dense", "bmm", "pool", "softmax", "layer_norm"}},
    {OpKind::opaque, {"sort"}},
};

class Reader {
 public:
  static DataflowGraph read(const std::string& text) {
    Reader r;
    std::stringstream lines(text);
    for (std::string line; std::getline(lines, line, ';');) r.statement(line);
    return r.g_;
  }

 private:
  void statement(const std::string& line) {
    std::vector<std::string> words = split(line, " ()\n");
    if (words[0] == "param") {
      for (size_t i = 1; i < words.size(); ++i) define(words[i], {.name = {}, .form = Form::parameter});
    } else if (words[0] == "return") {
      for (size_t i = 1; i < words.size(); ++i) g_.results.push_back(argument(words[i]));
    } else {
      DataflowOp op = call(words[2]);
      for (size_t i = 3; i < words.size(); ++i) op.args.push_back(argument(words[i]));
      define(words[0], op);
    }
  }

  static DataflowOp call(const std::string& op) {
    if (op == "tuple") return {.name = {}, .form = Form::tuple};
    if (op == "get") return {.name = {}, .form = Form::tuple_get};
    if (op == "stop") return {.name = {}, .form = Form::stop};
    if (op == "if" || op == "ref") return {.name = {}, .form = Form::control, .is_tensor = op != "ref"};
    for (const auto& [kind, names] : kRegistry)
      if (names.contains(op)) return {.name = {}, .kind = kind, .only_reshapes = op == "reshape" || op == "squeeze"};
    ADD_FAILURE() << "no op '" << op << "'";
    return {};
  }

  void define(std::string name, DataflowOp op) {
    op.shape = {"10", "20"};
    if (size_t bracket = name.find('['); bracket != std::string::npos) {
      op.shape = split(name.substr(bracket), "[,]");
      name.resize(bracket);
    }
    op.name = name;
    EXPECT_TRUE(numbers_.try_emplace(name, g_.ops.size()).second) << name << " is defined twice";
    g_.ops.push_back(std::move(op));
  }

  size_t argument(std::string word) {
    if (word.back() == ',') word.pop_back();
    if (auto it = numbers_.find(word); it != numbers_.end()) return it->second;
    const bool tensor = word[0] == '#';
    EXPECT_TRUE(tensor || isdigit(word[0])) << "no '" << word << "'";
    g_.ops.push_back({.name = word, .form = Form::constant});
    if (tensor) {
      g_.ops.back().shape = {"10", "20"};
      numbers_[word] = g_.ops.size() - 1;
    }
    return g_.ops.size() - 1;
  }

  static std::vector<std::string> split(const std::string& text, const char* separators) {
    std::vector<std::string> words;
    for (size_t at = 0; (at = text.find_first_not_of(separators, at)) != std::string::npos;) {
      size_t end = std::min(text.find_first_of(separators, at), text.size());
      words.push_back(text.substr(at, end - at));
      at = end;
    }
    return words;
  }

  DataflowGraph g_;
  std::map<std::string, size_t> numbers_;
};

std::string groups_text(const std::string& text, const RelayOptions& options = {}) {
  DataflowGraph ops = Reader::read(text);
  ForwardGraph graph = forward_graph(ops);
  return to_text(graph, relay_groups(graph, options));
}

size_t kernels(const std::string& text, const RelayOptions& options = {}) {
  DataflowGraph ops = Reader::read(text);
  auto groups = relay_groups(forward_graph(ops), options);
  return static_cast<size_t>(std::ranges::count(groups, true, &RelayGroup::is_kernel));
}

struct Row {
  std::string name, graph, groups;
  size_t level0;  // kernels of opt_level 0: one per op
};

const Row kRows[] = {
    // R1 to R16 of the notes on Relay: what follows from the rules for small graphs.
    {"R1_scalars_stay_inside", "param x; a = divide(x, #c); b = mul(a, 2); c = relu(b); return c", "{a b c}", 3},
    {"R2_chain_of_poolings",
     "param x; d = divide(x, #c); m = mul(d, 2); r = relu(m); p = pool(r); s = relu(p); q = pool(s); y = relu(q); return y",
     "{d m r} {p s} {q y}", 7},
    {"R3_conv_bias_relu", "param x w b[16,1,1]; c = conv(x, w); a = add(c, b); y = relu(a); return y", "{c a y}", 3},
    {"R4_two_products", "param a b c; d = dense(a, b); e = dense(d, c); return e", "{d} {e}", 2},
    {"R5_diamond_of_elementwise", "param a b; c = dense(a, b); e = exp(c); y = mul(c, e); return y", "{c e y}", 3},
    {"R5_injective_on_the_path", "param a b; c = dense(a, b); s = squeeze(c); y = mul(c, s); return y", "{c} {s y}", 3},
    {"R6_product_is_broadcast", "param a b y[8,8]; c[1,8] = dense(a, b); z[8,8] = add(c, y); return z", "{c} {z}", 2},
    {"R7_product_is_also_a_result", "param a b; c = dense(a, b); y = relu(c); r = tuple(c, y); return r", "{c} {y}", 2},
    {"R8_reduction_takes_no_epilogue", "param x; a = relu(x); s[10] = sum(a); y[10] = exp(s); return y", "{a s} {y}", 3},
    {"R9_prologue_of_a_reduction", "param x; e = exp(x); s[10] = sum(e); return s", "{e s}", 2},
    {"R9_transpose_is_no_prologue", "param x; t[20,10] = transpose(x); s[20] = sum(t); return s", "{t} {s}", 2},
    {"R10_two_reductions", "param x; s[10] = sum(x); m[10] = max(x); y[10] = add(s, m); return y", "{s} {m} {y}", 3},
    {"R11_softmax_from_primitives",
     "param x; m[10,1] = max(x); d = sub(x, m); e = exp(d); s[10,1] = sum(e); y = divide(e, s); return y",
     "{m} {d e} {s} {y}", 5},
    {"R11_layer_norm_from_primitives",
     "param x; m[10,1] = mean(x); c = sub(x, m); q = mul(c, c); v[10,1] = mean(q); e[10,1] = add(v, 1); y = divide(c, e);"
     "return y",
     "{m} {c} {q v} {e y}", 6},
    {"R12_attention_with_softmax_as_one_op",
     "param q k v; s = bmm(q, k); t = mul(s, 8); p = softmax(t); o = bmm(p, v); return o", "{s t} {p} {o}", 4},
    {"R13_resnet_block_with_norms_folded",
     "param x w1 w2 g1[16,1,1] b1[16,1,1] g2[16,1,1] b2[16,1,1]; a = conv(x, w1); b = mul(a, g1); c = add(b, b1);"
     "d = relu(c); e = conv(d, w2); f = mul(e, g2); g = add(f, b2); h = add(g, x); y = relu(h); return y",
     "{a b c d} {e f g h y}", 9},
    {"R14_two_results", "param x; a = exp(x); b = relu(a); r = tuple(a, b); return r", "{a} {b}", 2},
    {"R15_one_op_under_two_results", "param x; e = exp(x); a = relu(e); b = tanh(e); r = tuple(a, b); return r",
     "{e} {a} {b}", 3},
    {"R16_before_opaque", "param x; a = exp(x); b = sort(a); return b", "{a} {b}", 2},
    {"R16_after_opaque", "param x; a = sort(x); b = exp(a); return b", "{a} {b}", 2},
    // The tests of Relay's own pass.
    {"simple", "param x; a = add(x, 1); e = exp(a); s = squeeze(e); return s", "{a e s}", 3},
    {"conv2d_fuse",
     "param x w1 w2 w3; a = add(x, 1); y = conv(a, w1); y1 = add(1, y); y2 = add(y, y1); z2 = conv(y2, w2);"
     "z3 = conv(y2, w3); z = add(z2, z3); return z",
     "{a} {y y1 y2} {z3} {z2 z}", 7},
    {"concatenate", "param x; p[5,10] = pool(x); u = upsample(p); t = tuple(u, x); c[20,20] = concat(t); z[20,20] = add(c, 1); return z",
     "{p} {u t c z}", 4},
    {"tuple_root", "param x; p[5,10] = pool(x); u = upsample(p); r = tuple(u, x); return r", "{p} {u}", 2},
    {"stop_fusion", "param x; a = add(x, 1); s = stop(a); e = exp(s); return e", "{a} {e}", 2},
    {"myia_regression", "param x[] y[]; g[] = greater(x, y); i[] = if(g, x, y); return i", "{g}", 1},
    {"tuple_get_elemwise",
     "param x w; d[1,30] = dense(x, w); s = split(d); s0 = get(s); s1 = get(s); s2 = get(s); a = sigmoid(s0);"
     "b = tanh(s1); c = exp(s2); m = mul(b, c); y = add(a, m); return y",
     "{d} {s s0 a s1 b s2 c m y}", 7},
    {"tuple_get_root", "param x w; s = split(x); s0 = get(s); d = dense(s0, w); return d", "{s s0} {d}", 2},
    {"tuple_intermediate",
     "param x; i = squeeze(x); y1 = add(i, 1); t = squeeze(i); t1 = add(t, 1); y2 = add(t1, 1); y3 = add(i, 1);"
     "u = tuple(y1, y2, y3); c[30,20] = concat(u); q[30,20] = squeeze(c); z[30,20] = add(q, 1); return z",
     "{i y1 t t1 y2 y3 u c q z}", 9},
    {"inception_like",
     "param x w1 w2 w3 w4; a = conv(x, w1); ra = relu(a); b = conv(x, w2); rb = relu(b); t = tuple(ra, rb); c = concat(t);"
     "d = conv(c, w3); rd = relu(d); e = conv(c, w4); re = relu(e); u = tuple(rd, re); f = concat(u); return f",
     "{a ra} {b rb} {t c} {d rd} {e re} {u f}", 10},
    {"parallel_injective",
     "param x; y = add(x, 1); z = squeeze(y); u = transpose(y); w = left_shift(z, u); return w", "{y z u w}", 4},
    // The field behind a reference is used from outside; the others are fields of a tuple all the same (#3867).
    {"split_well_formed",
     "param x; s = split(x); a = get(s); b = get(s); c = get(s); r = ref(b); v = ref(r); y = add(a, v); z = add(y, c); return z",
     "{s} {a y c z}", 3},
    {"take", "param x; t = tuple(x, x); c = concat(t); y = take(c, #i); return y", "{t c y}", 2},
    {"gather_nd", "param x; t = tuple(x, x); c = concat(t); y = gather_nd(c, #i); return y", "{t c y}", 2},
    {"bcast_reduce_scalar", "param x[]; l[] = less(x, 10); m[] = min(l); return m", "{l m}", 2},
    {"softmax_then_cast", "param x; s = softmax(x); y = cast(s); return y", "{s y}", 2},
    // Its claim is the value; this is what the rules make of it.
    {"dynamic_squeeze_slice_take",
     "param x[?,?,4] i[?]; s[?,4] = squeeze(x); t[?,4] = take(s); y[?,4] = take(t, i); return y", "{s t y}", 3},
    {"extract_conv_net",
     "param x w0 w1 w2 w3; c0 = conv(x, w0); c1 = conv(c0, w1); c2 = conv(c0, w2); c3 = conv(c0, w3); a = add(c2, c3);"
     "y = add(c1, a); return y",
     "{c0} {c3} {c2 a} {c1 y}", 6},
    // Relax, whose policy is the same.
    {"relax_multiple_paths",
     "param x w b u w2 b2; c = conv(x, w); rb[16,1,1] = reshape(b); s = add(c, rb); wt[40,16] = transpose(w2);"
     "m[1,16] = dense(u, wt); ma[1,16] = add(m, b2); rm[1,16,1,1] = reshape(ma); z = add(s, rm); return z",
     "{rb} {wt} {m ma} {rm} {c s z}", 8},
    {"relax_layer_norm_then_relu", "param x g b; n = layer_norm(x, g, b); y = relu(n); return y", "{n y}", 2},
    {"relax_opaque_alone", "param x; y = sort(x); return y", "{y}", 1},
    {"relax_used_by_elementwise_and_opaque", "param x; e = exp(x); a = relu(e); b = sort(e); r = tuple(a, b); return r",
     "{e} {a} {b}", 3},
    {"relax_cast_before_a_product", "param x w; h = cast(x); y = dense(h, w); return y", "{h} {y}", 2},
    {"relax_full_trilu_broadcast", "param x; f[n,n] = full(x); t[n,n] = trilu(f); b[1,1,n,n] = broadcast_to(t); return b",
     "{f t b}", 3},
    {"relax_symbolic_shapes", "param x[n,m]; a[n,m] = add(x, 1); e[n,m] = exp(a); s[n,m] = squeeze(e); return s", "{a e s}", 3},
    {"relax_dead_branch", "param x; dead = relu(x); y = exp(x); return y", "{y}", 1},
    {"relax_in_place_after_add", "param x y; a = add(x, y); e = exp(a); s = squeeze(e); return s", "{a e s}", 3},
};

TEST(Relay, GroupsOfEveryTable) {
  for (const Row& row : kRows) {
    EXPECT_EQ(groups_text(row.graph), row.groups) << row.name;
    EXPECT_EQ(kernels(row.graph, {.opt_level = 0}), row.level0) << row.name;
    EXPECT_EQ(groups_text(row.graph, {.opt_level = 2}), row.groups) << row.name << ": levels above 0 are alike";
  }
}

TEST(Relay, DumpListsEdgesWithKinds) {
  DataflowGraph ops = Reader::read(kRows[1].graph);
  EXPECT_EQ(debug_dump(forward_graph(ops)), R"(0 x opaque, external: 2:elemwise
1 #c opaque: 2:elemwise
2 d broadcast: 4:elemwise
3 2 elemwise: 4:broadcast
4 m broadcast: 5:elemwise
5 r elemwise: 6:out_fusable
6 p out_fusable: 7:elemwise
7 s elemwise: 8:out_fusable
8 q out_fusable: 9:elemwise
9 y elemwise, external:
)");
  EXPECT_EQ(relay_groups(forward_graph(ops)).size(), 5u);
}

TEST(Relay, NumbersFollowTheWalkFromTheResultNotTheText) {
  DataflowGraph ops = Reader::read("param x y; b = exp(y); a = exp(x); c = sub(a, b); return c");
  ForwardGraph g = forward_graph(ops);
  std::vector<std::string> names;
  for (size_t i = 0; i < g.nodes.size(); ++i) names.push_back(g.op(i).name);
  EXPECT_EQ(names, (std::vector<std::string>{"x", "y", "a", "b", "c"}));
}

TEST(Relay, PostDominatorsAreLowestCommonAncestorsWithTheKindsOnTheWay) {
  DataflowGraph ops =
      Reader::read("param x w; c = conv(x, w); a = exp(c); b[20,10] = transpose(c); d = relu(a); y = add(d, b); z = exp(y); return z");
  ForwardGraph g = forward_graph(ops);
  std::vector<PostDominator> tree = post_dominators(g);
  struct Want {
    const char *name, *parent;
    int depth;
    OpKind kind;
  };
  for (const Want& w : {Want{"z", "", 1, OpKind::opaque}, Want{"y", "z", 2, OpKind::elemwise},
                        Want{"d", "y", 3, OpKind::elemwise}, Want{"b", "y", 3, OpKind::broadcast},
                        Want{"a", "d", 4, OpKind::elemwise}, Want{"c", "y", 3, OpKind::injective},
                        Want{"x", "", 1, OpKind::opaque}})
    for (size_t i = 0; i < g.nodes.size(); ++i) {
      if (g.op(i).name != w.name) continue;
      EXPECT_EQ(tree[i].parent ? g.op(*tree[i].parent).name : "", w.parent) << w.name;
      EXPECT_EQ(tree[i].depth, w.depth) << w.name;
      EXPECT_EQ(tree[i].kind, w.kind) << w.name;
    }
}

// Brute force: d post-dominates n if no way from n to an end avoids d.
TEST(Relay, PostDominatorsAgreeWithTheDefinitionOnRandomGraphs) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    uint64_t state = seed * 0x9E3779B97F4A7C15u;
    auto random = [&](uint64_t n) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return (state >> 33) % n;
    };
    std::string text = "param n0";
    const size_t n = 4 + random(10);
    for (size_t i = 1; i < n; ++i)
      text += "; n" + std::to_string(i) + " = add(n" + std::to_string(random(i)) + ", n" + std::to_string(random(i)) + ")";
    text += "; return n" + std::to_string(n - 1);
    DataflowGraph ops = Reader::read(text);
    ForwardGraph g = forward_graph(ops);
    std::vector<PostDominator> tree = post_dominators(g);
    auto escapes = [&](size_t from, size_t without) {
      std::vector<size_t> open = {from};
      std::set<size_t> seen = {from};
      while (!open.empty()) {
        size_t at = open.back();
        open.pop_back();
        if (g.nodes[at].users.empty()) return true;
        for (const ForwardEdge& e : g.nodes[at].users)
          if (e.to != without && seen.insert(e.to).second) open.push_back(e.to);
      }
      return false;
    };
    for (size_t i = 0; i < g.nodes.size(); ++i) {
      if (g.nodes[i].external) continue;
      std::optional<size_t> nearest;
      for (size_t d = i + 1; d < g.nodes.size() && !nearest; ++d)
        if (!escapes(i, d)) nearest = d;
      EXPECT_EQ(tree[i].parent, nearest) << text << "\nnode " << i;
    }
  }
}

const RelayGroup& group_of(const ForwardGraph& g, const std::vector<RelayGroup>& groups, const std::string& root) {
  for (const RelayGroup& group : groups)
    if (g.op(group.root).name == root) return group;
  throw std::out_of_range(root);
}

std::vector<std::string> parameters(const std::string& text, const std::string& root, const RelayOptions& options = {}) {
  DataflowGraph ops = Reader::read(text);
  ForwardGraph g = forward_graph(ops);
  auto groups = relay_groups(g, options);
  std::vector<std::string> names;
  for (size_t p : group_of(g, groups, root).parameters) names.push_back(g.op(p).name);
  return names;
}

using Names = std::vector<std::string>;

TEST(Relay, ParametersStandInOrderOfFirstUseEachOnce) {
  EXPECT_EQ(parameters(kRows[0].graph, "c"), (Names{"x", "#c"}));
  EXPECT_EQ(parameters("param a b; e = exp(b); s = add(e, a); t = add(s, b); return t", "t"), (Names{"b", "a"}));
  const std::string take = "param x; t = tuple(x, x); c = concat(t); y = take(c, #i); return y";
  EXPECT_EQ(parameters(take, "y"), (Names{"x", "#i"}));
  EXPECT_EQ(parameters(take, "y", {.link_constants = true}), Names{"x"});
}

TEST(Relay, GroupsOfReshapesAreMarked) {
  DataflowGraph ops = Reader::read("param x; a = reshape(x); b = squeeze(a); c = sort(b); d = squeeze(c); e = exp(d); return e");
  ForwardGraph g = forward_graph(ops);
  auto groups = relay_groups(g);
  EXPECT_TRUE(group_of(g, groups, "b").only_reshapes);
  EXPECT_FALSE(group_of(g, groups, "e").only_reshapes);
}

TEST(Relay, SameShapesOfGroupsAreFewFunctions) {
  DataflowGraph ops = Reader::read(
      "param x w0 w1 w2 w3; c0 = conv(x, w0); c1 = conv(c0, w1); c2 = conv(c0, w2); c3 = conv(c0, w3); a = add(c2, c3);"
      "y = add(c1, a); return y");
  ForwardGraph g = forward_graph(ops);
  std::set<std::vector<OpKind>> distinct;
  for (const RelayGroup& group : relay_groups(g)) {
    if (!group.is_kernel) continue;
    std::vector<OpKind> kinds;
    for (size_t n : group.members) kinds.push_back(g.nodes[n].kind);
    distinct.insert(kinds);
  }
  EXPECT_EQ(distinct.size(), 2u);
}

// Three times: three adds, a concat, an add; all of them into a concat; a pooling; two adds, both results.
TEST(Relay, TupleConsecutive) {
  std::string text = "param x", outer, first;
  for (int i = 0; i < 3; ++i) {
    std::string n = std::to_string(i), fields;
    for (int j = 0; j < 3; ++j) {
      std::string add = "a" + n + std::to_string(j);
      text += "; " + add + " = add(x, 1)";
      fields += (j ? ", " : "") + add;
      first += add + " ";
    }
    text += "; t" + n + " = tuple(" + fields + "); c" + n + "[30,20] = concat(t" + n + "); b" + n + "[30,20] = add(c" + n + ", 1)";
    outer += (i ? ", b" : "b") + n;
    first += "t" + n + " c" + n + " b" + n + " ";
  }
  text += "; t = tuple(" + outer + "); c[90,20] = concat(t); p = pool(c); o = add(p, 1); o2 = add(o, 1); r = tuple(o, o2); return r";
  EXPECT_EQ(groups_text(text), "{" + first + "t c} {p o} {o2}");
  EXPECT_EQ(kernels(text, {.opt_level = 0}), 19u);
}

std::string chain(size_t n) {
  std::string text = "param x", last = "x";
  for (size_t i = 0; i < n; ++i) {
    std::string next = "e" + std::to_string(i);
    text += "; " + next + " = exp(" + last + ")";
    last = next;
  }
  return text + "; return " + last;
}

std::vector<size_t> group_sizes(const std::string& text, const RelayOptions& options) {
  DataflowGraph ops = Reader::read(text);
  std::vector<size_t> sizes;
  for (const RelayGroup& g : relay_groups(forward_graph(ops), options))
    if (g.is_kernel) sizes.push_back(g.members.size());
  return sizes;
}

TEST(Relay, DepthIsLimitedFromTheInputOn) {
  using Sizes = std::vector<size_t>;
  EXPECT_EQ(group_sizes(chain(300), {}), (Sizes{256, 44}));
  EXPECT_EQ(group_sizes(chain(20), {.max_fuse_depth = 10}), (Sizes{10, 10}));
  EXPECT_EQ(group_sizes(chain(20), {.max_fuse_depth = 10, .max_arguments = 128}), (Sizes{10, 10}));
}

TEST(Relay, LongChainsNeedNoStack) {
  EXPECT_EQ(group_sizes(chain(20000), {.max_fuse_depth = 1 << 20}), std::vector<size_t>{20000});
}

TEST(Relay, MaxDiamond) {
  std::string text = "param x", last = "x";
  for (int d = 0; d < 3; ++d) {
    std::string tips[2];
    for (int branch = 0; branch < 2; ++branch) {
      tips[branch] = last;
      for (int i = 0; i < 5; ++i) {
        std::string next = "e" + std::to_string(d) + std::to_string(branch) + std::to_string(i);
        text += "; " + next + " = exp(" + tips[branch] + ")";
        tips[branch] = next;
      }
    }
    last = "a" + std::to_string(d);
    text += "; " + last + " = add(" + tips[0] + ", " + tips[1] + ")";
  }
  EXPECT_EQ(group_sizes(text + "; return " + last, {.max_fuse_depth = 11}), (std::vector<size_t>{11, 11, 11}));
}

// The limit is greedy: five products added up, at most four nodes in a kernel, make five kernels where three would do.
TEST(Relay, GreedyUnderADepthLimit) {
  std::string text = "param x0 x1 x2 x3 x4; m0 = mul(x0, 2); m1 = mul(x1, 2); a1 = add(m0, m1); m2 = mul(x2, 2); a2 = add(a1, m2);"
                     "m3 = mul(x3, 2); a3 = add(a2, m3); m4 = mul(x4, 2); a4 = add(a3, m4); return a4";
  EXPECT_EQ(kernels(text, {.max_fuse_depth = 4}), 5u);
  EXPECT_EQ(kernels(text), 1u);
}

// 300 inputs, add and exp each, added up from the left. The first kernel takes inputs up to the limit less its result;
// after it every pair and every addition stands alone.
TEST(Relay, MaxNumberOfArguments) {
  auto program = [](const std::string& shape) {
    const int inputs = 300;
    std::string text = "param";
    for (int i = 0; i < inputs; ++i) text += " x" + std::to_string(i) + shape;
    std::string sum;
    for (int i = 0; i < inputs; ++i) {
      std::string n = std::to_string(i);
      text += "; a" + n + shape + " = add(x" + n + ", 1); e" + n + shape + " = exp(a" + n + ")";
      if (i > 0) text += "; s" + n + shape + " = add(" + sum + ", e" + n + ")";
      sum = (i > 0 ? "s" : "e") + n;
    }
    return text + "; return " + sum;
  };
  struct Limit {
    const char* shape;
    size_t arguments, first, kernels;
  };
  // An argument of unknown extent takes four: itself, the extent, two strides; the result two.
  for (const Limit& l : {Limit{"[10,20]", 128, 127, 347}, Limit{"[10,20]", 31, 30, 541}, Limit{"[10,20]", 0, 300, 1},
                         Limit{"[?,20]", 128, 31, 1 + 2 * (300 - 31)}, Limit{"[?,20]", 31, 7, 1 + 2 * (300 - 7)},
                         Limit{"[?,20]", 0, 300, 1}}) {
    DataflowGraph ops = Reader::read(program(l.shape));
    ForwardGraph g = forward_graph(ops);
    auto groups = relay_groups(g, {.max_fuse_depth = 5 * 300, .max_arguments = l.arguments});
    size_t kernels = 0, most = 0;
    for (const RelayGroup& group : groups) {
      kernels += group.is_kernel;
      most = std::max(most, group.parameters.size());
    }
    EXPECT_EQ(kernels, l.kernels) << l.shape << " " << l.arguments;
    EXPECT_EQ(most, l.first) << l.shape << " " << l.arguments;
  }
}

TEST(Relay, EveryNodeIsInOneGroupAndOnlyRootsAreUsedOutside) {
  for (const Row& row : kRows) {
    DataflowGraph ops = Reader::read(row.graph);
    ForwardGraph g = forward_graph(ops);
    std::vector<size_t> root(g.nodes.size(), SIZE_MAX);
    for (const RelayGroup& group : relay_groups(g))
      for (size_t n : group.members) {
        EXPECT_EQ(root[n], SIZE_MAX) << row.name;
        root[n] = group.root;
      }
    for (size_t n = 0; n < g.nodes.size(); ++n) {
      ASSERT_NE(root[n], SIZE_MAX) << row.name;
      for (const ForwardEdge& e : g.nodes[n].users)
        EXPECT_TRUE(root[e.to] == root[n] || root[n] == n) << row.name << ": " << g.op(n).name;
    }
  }
}

}  // namespace
}  // namespace xhat::fusion::relay_test

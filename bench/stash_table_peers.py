#!/usr/bin/env python3
"""What PyTorch and JAX keep for the backward of the ops in stash_ops/, and what their backward does.

    python bench/stash_table_peers.py            writes bench/stash_table_peers.json; needs torch and jax
    python bench/stash_table_peers.py softmax    prints one op's backwards instead

Each op is defined once, term by term as in stash_ops/OP.xh, over a namespace F that is torch or jax.numpy.
Three peers:

    torch      eager autograd: what saved_tensors_hooks see; the backward is AOTAutograd's with the default partition
    min-cut    AOTAutograd with min_cut_rematerialization_partition and Inductor's decompositions: torch.compile
    jax        jax.vjp: the leaves of the function it returns; the backward is that function's jaxpr

Nothing is judged or counted here. What is written is the backward as a graph, after common subexpressions and dead
code are gone, and the list of what is kept; bench/stash_table counts the same things in these graphs as in xhat's.

    leaves   [name, kind, elements, bytes]   kind: input, output, cotangent, saved
    nodes    [op, kind, elements, flops, operands]   kind: map or sum (any reduction, matrix products too)
    results  the gradients: indices into leaves, then nodes
    kept     what the forward hands over: [name, kind, bytes]
"""
import datetime
import json
import math
import re
import sys
from pathlib import Path

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import torch
from torch._functorch.aot_autograd import aot_function, make_boxed_compiler
from torch._functorch.compile_utils import fx_graph_cse
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table

HERE = Path(__file__).parent


class Torch:
    exp, log, log1p, sin, tanh, sqrt, abs = torch.exp, torch.log, torch.log1p, torch.sin, torch.tanh, torch.sqrt, torch.abs
    erf, sigmoid, where, clamp = torch.erf, torch.sigmoid, torch.where, torch.clamp

    def relu(x): return torch.relu(x)
    def positive(x): return torch.clamp(x, min=0)
    def stop(x): return x.detach()
    def sum(x, axes, keep=False): return torch.sum(x, axes, keepdim=keep)
    def mean(x, axes, keep=False): return torch.mean(x, axes, keepdim=keep)
    def max(x, axes, keep=False): return torch.amax(x, axes, keepdim=keep)
    def pick(x, labels): return torch.gather(x, 1, labels[:, None].long())[:, 0]
    def transpose(x): return x.transpose(-1, -2)


class Jax:
    exp, log, log1p, sin, tanh, sqrt, abs = jnp.exp, jnp.log, jnp.log1p, jnp.sin, jnp.tanh, jnp.sqrt, jnp.abs
    erf, sigmoid, where, clamp = jax.scipy.special.erf, jax.nn.sigmoid, jnp.where, jnp.clip

    def relu(x): return jax.nn.relu(x)
    def positive(x): return jnp.maximum(x, 0)
    def stop(x): return jax.lax.stop_gradient(x)
    def sum(x, axes, keep=False): return jnp.sum(x, axes, keepdims=keep)
    def mean(x, axes, keep=False): return jnp.mean(x, axes, keepdims=keep)
    def max(x, axes, keep=False): return jnp.max(x, axes, keepdims=keep)
    def pick(x, labels): return jnp.take_along_axis(x, labels[:, None], 1)[:, 0]
    def transpose(x): return jnp.swapaxes(x, -1, -2)


def logistic(F, x): return 1 / (1 + F.exp(-x))


def sin20(F, x):
    for _ in range(20):
        x = F.sin(x)
    return x


def softmax(F, x):
    e = F.exp(x - F.stop(F.max(x, (-1,), True)))
    return e / F.sum(e, (-1,), True)


def log_softmax(F, x):
    m = F.stop(F.max(x, (1,), True))
    return x - m - F.log(F.sum(F.exp(x - m), (1,), True))


def logsumexp(F, x):
    m = F.stop(F.max(x, (1,), True))
    return m[:, 0] + F.log(F.sum(F.exp(x - m), (1,)))


def cross_entropy(F, x, labels):
    z = x - F.stop(F.max(x, (1,), True))
    return F.mean(F.log(F.sum(F.exp(z), (1,))) - F.pick(z, labels), (0,))


def huber(F, x, t):
    r = x - t
    return F.mean(F.where(F.abs(r) < 1, 0.5 * r * r, F.abs(r) - 0.5), (0, 1))


def norm(F, x, gamma, beta, axes):
    mu = F.mean(x, axes, True)
    var = F.mean((x - mu) ** 2, axes, True)
    return (x - mu) / F.sqrt(var + 1e-5) * gamma + beta


def layer_norm_named(F, x, gamma, beta):
    c = x - F.mean(x, (1,), True)
    return gamma * (c * (1 / F.sqrt(F.mean(c * c, (1,), True) + 1e-5))) + beta


def batch_norm_moments(F, x, gamma, beta):
    mu = F.mean(x, (0,), True)
    var = F.mean(x * x, (0,), True) - mu * mu
    return gamma * ((x - mu) / F.sqrt(var + 1e-5)) + beta


def cosine_similarity(F, a, b):
    ab, aa, bb = F.sum(a * b, (1,)), F.sum(a * a, (1,)), F.sum(b * b, (1,))
    return ab / (F.sqrt(aa + 1e-12) * F.sqrt(bb + 1e-12))


OPS = {
    "tanh": lambda F, x: F.tanh(x),
    "sigmoid": lambda F, x: F.sigmoid(x),
    "sigmoid_exp": logistic,
    "silu": lambda F, x: x * logistic(F, x),
    "gelu_tanh": lambda F, x: 0.5 * x * (1 + F.tanh(0.7978845608028654 * (x + 0.044715 * x**3))),
    "gelu_erf": lambda F, x: 0.5 * x * (1 + F.erf(x * 0.7071067811865476)),
    "mish": lambda F, x: x * F.tanh(F.log1p(F.exp(x))),
    "softplus": lambda F, x: F.log1p(F.exp(x)),
    "softplus_stable": lambda F, x: F.positive(x) + F.log1p(F.exp(-F.abs(x))),
    "relu": lambda F, x: F.relu(x),
    "leaky_relu": lambda F, x: F.where(x > 0, x, 0.01 * x),
    "elu": lambda F, x: F.where(x > 0, x, F.exp(x) - 1),
    "selu": lambda F, x: 1.0507009873554805 * F.where(x > 0, x, 1.6732632423543772 * (F.exp(x) - 1)),
    "hardswish": lambda F, x: x * F.clamp(x + 3, 0, 6) / 6,
    "exp": lambda F, x: F.exp(x),
    "log": lambda F, x: F.log(x),
    "log1p": lambda F, x: F.log1p(x),
    "sqrt": lambda F, x: F.sqrt(x),
    "rsqrt": lambda F, x: 1 / F.sqrt(x),
    "reciprocal": lambda F, x: 1 / x,
    "square": lambda F, x: x * x,
    "abs": lambda F, x: F.abs(x),
    "sin20": sin20,
    "swiglu": lambda F, a, b: a * logistic(F, a) * b,
    "softmax": softmax,
    "log_softmax": log_softmax,
    "logsumexp": logsumexp,
    "cross_entropy": cross_entropy,
    "bce_with_logits": lambda F, x, t: F.mean(F.positive(x) - x * t + F.log1p(F.exp(-F.abs(x))), (0, 1)),
    "huber": huber,
    "mse": lambda F, x, t: F.mean((x - t) ** 2, (0, 1)),
    "layer_norm": lambda F, x, g, b: norm(F, x, g, b, (1,)),
    "layer_norm_named": layer_norm_named,
    "rms_norm": lambda F, x, g: x / F.sqrt(F.mean(x * x, (1,), True) + 1e-5) * g,
    "group_norm": lambda F, x, g, b: norm(F, x, g[..., None], b[..., None], (2, 3)),
    "instance_norm": lambda F, x, g, b: norm(F, x, g[:, None], b[:, None], (2,)),
    "batch_norm": lambda F, x, g, b: norm(F, x, g[:, None, None], b[:, None, None], (0, 2, 3)),
    "batch_norm_moments": batch_norm_moments,
    "l2_normalize": lambda F, x: x / F.sqrt(F.sum(x * x, (1,), True) + 1e-12),
    "cosine_similarity": cosine_similarity,
    "matmul_sigmoid": lambda F, x, w: logistic(F, x @ w),
    "matmul_softmax": lambda F, x, w: softmax(F, x @ w),
    "matmul_batch_norm": lambda F, x, w, g, b: norm(F, x @ w, g, b, (0,)),
    "attention": lambda F, q, k, v: softmax(F, (q @ F.transpose(k)) * 0.125) @ v,
}


class Graph:
    """Nodes in order, equal ones once."""

    def __init__(self):
        self.leaves, self.nodes, self.known, self.base = [], [], {}, {}

    def leaf(self, name, kind, elements, size):
        self.leaves.append([name, kind, elements, size])
        return "leaf", len(self.leaves) - 1

    def node(self, op, kind, elements, flops, operands, more=(), view=False):
        key = (op, str(more), tuple(operands))
        if key not in self.known:
            self.known[key] = "node", len(self.nodes)
            self.nodes.append([op, kind, elements, flops, operands])
            if view and len(operands) == 1:
                self.base[self.known[key]] = self.base.get(operands[0], operands[0])
        return self.known[key]

    def json(self, results, kept):
        """Only what the results need."""
        order, at = [], {}

        def need(ref):
            if ref[0] == "node" and ref not in at:
                at[ref] = None
                for operand in self.nodes[ref[1]][4]:
                    need(operand)
                at[ref] = len(self.leaves) + len(order)
                order.append(self.nodes[ref[1]])

        for r in results:
            need(r)
        index = lambda ref: ref[1] if ref[0] == "leaf" else at[ref]
        nodes = [[op, kind, n, flops, [index(o) for o in operands]] for op, kind, n, flops, operands in order]
        return {"kept": kept, "leaves": self.leaves, "nodes": nodes, "results": [index(r) for r in results]}


# Moves or broadcasts what is there; decides; converts: no arithmetic.
VIEWS = """view reshape expand permute t transpose unsqueeze squeeze alias detach clone _unsafe_view broadcast_in_dim
expand_dims copy stop_gradient""".split()
NO_FLOPS = VIEWS + """where full full_like zeros zeros_like ones ones_like scalar_tensor slice select scatter scatter_add
_to_copy convert_element_type gt lt ge le eq ne logical_and logical_or logical_not bitwise_and bitwise_or bitwise_not
and or not select_n iota concatenate gather scatter-add empty arange fill copy_p is_finite pvary mul_one
new_zeros index index_put""".split()
SUMS = """sum mean amax amin prod argmax any all reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or
reduce_and""".split()
PRODUCTS = "mm bmm dot_general".split()


def add_node(graph, op, elements, operands, inside, more):
    """inside: elements that a reduction goes over, multiplications of a matrix product; else None."""
    if op in PRODUCTS:
        return graph.node(op, "sum", elements, 2 * inside, operands, more)
    if op in SUMS:
        if inside == elements:  # over extents of 1
            return graph.node(op, "map", elements, 0, operands, more, view=True)
        return graph.node(op, "sum", elements, inside, operands, more)
    return graph.node(op, "map", elements, 0 if op in NO_FLOPS else elements, operands, more, view=op in VIEWS)


# --- torch ---

def number_of(node):
    value = node.meta["val"]
    return value.numel() if hasattr(value, "numel") else 1


def size_of(node):
    value = node.meta["val"]
    return value.numel() * value.element_size() if hasattr(value, "numel") else 8


def add_fx(graph, nodes, refs):
    for n in nodes:
        if n.op in ("placeholder", "output"):
            continue
        if n.op == "get_attr":
            refs[n.name] = graph.node("constant", "map", 1, 0, [], n.name)
            continue
        op = n.target.__name__.split(".")[0]
        operands = [refs[a.name] for a in n.all_input_nodes]
        more = ([a for a in n.args if not isinstance(a, torch.fx.Node)],
                [type(a).__name__ for a in n.args], sorted(n.kwargs.items(), key=str))
        elements, inside = number_of(n), None
        if op in SUMS:
            inside = number_of(n.args[0])
        if op in PRODUCTS:
            inside = elements * n.args[0].meta["val"].shape[-1]
        refs[n.name] = add_node(graph, op, elements, operands, inside, more)


def torch_graph(f, inputs, names, partition):
    graphs = {}

    def keep(which):
        return make_boxed_compiler(lambda gm, example: graphs.__setitem__(which, gm) or gm)

    compiled = aot_function(f, fw_compiler=keep("forward"), bw_compiler=keep("backward"), partition_fn=partition,
                            decompositions=select_decomp_table())
    y = compiled(*inputs)
    y.backward(torch.ones_like(y))
    forward, backward = graphs["forward"].graph, fx_graph_cse(graphs["backward"].graph)
    scratch, refs, kind_of = Graph(), {}, {}
    holders = [n for n in forward.nodes if n.op == "placeholder"]
    by_ref = {}
    for n, name in zip(holders, names, strict=True):
        refs[n.name] = scratch.leaf(name, "input", number_of(n), size_of(n))
        by_ref[refs[n.name]] = (name, "input")
    add_fx(scratch, forward.nodes, refs)
    (outs,) = next(n for n in forward.nodes if n.op == "output").args
    base = lambda ref: scratch.base.get(ref, ref)
    by_ref.setdefault(base(refs[outs[0].name]), ("y", "output"))
    kept, graph, leaves, found = [], Graph(), {}, {}
    for n in backward.nodes:
        if n.op != "placeholder":
            continue
        if n.name.startswith("tangents"):
            leaves[n.name] = graph.leaf("dy", "cotangent", number_of(n), size_of(n))
            continue
        root = base(refs[n.name])
        name, kind = by_ref.get(root, (n.name, "saved"))
        if root not in found:
            found[root] = graph.leaf(name, kind, number_of(n), size_of(n))
            kept.append([name, kind, size_of(n)])
        leaves[n.name] = found[root]
    add_fx(graph, backward.nodes, leaves)
    (grads,) = next(n for n in backward.nodes if n.op == "output").args
    return graph.json([leaves[g.name] for g in grads if g is not None], kept)


def torch_saved(f, inputs, names):
    saved = {}
    with torch.autograd.graph.saved_tensors_hooks(
            lambda t: saved.setdefault(t.untyped_storage().data_ptr(), t) is None or t, lambda t: t):
        y = f(*inputs)
    known = {t.untyped_storage().data_ptr(): (name, "input") for name, t in zip(names, inputs)}
    known.setdefault(y.untyped_storage().data_ptr(), ("y", "output"))
    return [[*known.get(at, (f"saved{i}", "saved")), t.untyped_storage().nbytes()] for i, (at, t) in enumerate(saved.items())]


# --- jax ---

def add_jaxpr(graph, jaxpr, consts, args):
    refs = {}

    def ref(v):
        if isinstance(v, jax.extend.core.Literal):
            return graph.node("constant", "map", 1, 0, [], v.val)
        return refs[v]

    refs.update(zip(jaxpr.constvars, consts))
    refs.update(zip(jaxpr.invars, args, strict=True))
    for e in jaxpr.eqns:
        op, operands = e.primitive.name, [ref(v) for v in e.invars]
        inner = e.params.get("jaxpr") or e.params.get("call_jaxpr")
        if inner is not None:
            closed = inner if hasattr(inner, "jaxpr") else None
            body = closed.jaxpr if closed else inner
            constants = [graph.node("constant", "map", int(np.size(c)), 0, [], c) for c in (closed.consts if closed else [])]
            refs.update(zip(e.outvars, add_jaxpr(graph, body, constants, operands), strict=True))
            continue
        elements, inside = math.prod(e.outvars[0].aval.shape), None
        shape = e.invars[0].aval.shape if e.invars else ()
        if op in SUMS:
            inside = math.prod(shape)
        if op in PRODUCTS:
            (contracted, _), _ = e.params["dimension_numbers"]
            inside = elements * math.prod(shape[i] for i in contracted)
        if len(e.outvars) != 1:
            raise ValueError(f"{op} has several results")
        # What is added or multiplied has no order; a copy and a conversion to the same type are nothing.
        if op in ("add", "mul", "add_any"):
            operands = sorted(operands)
        if op == "convert_element_type" and e.outvars[0].aval.dtype == e.invars[0].aval.dtype or op == "copy":
            refs[e.outvars[0]] = operands[0]
            continue
        params = {k: v for k, v in e.params.items() if k not in ("sharding", "out_sharding", "accuracy")}
        refs[e.outvars[0]] = add_node(graph, op, elements, operands, inside, (sorted(params.items(), key=str), e.outvars[0].aval.shape))
    return [ref(v) for v in jaxpr.outvars]


def jax_graph(f, inputs, names, differentiable):
    def pullback(*inputs):
        """jax.vjp with respect to the inputs that are differentiable."""
        def run(*moving):
            values = iter(moving)
            return f(*[next(values) if d else x for d, x in zip(differentiable, inputs)])

        return jax.vjp(run, *[x for x, d in zip(inputs, differentiable) if d])

    def forward(*inputs):
        out, back = pullback(*inputs)
        return out, jax.tree.leaves(back)

    y, pull = pullback(*inputs)
    leaves, shape = jax.tree.flatten(pull)
    closed = jax.make_jaxpr(forward)(*inputs)
    scratch, by_ref = Graph(), {}
    refs = []
    for name, x in zip(names, inputs):
        refs.append(scratch.leaf(name, "input", x.size, x.nbytes))
        by_ref[refs[-1]] = (name, "input")
    constants = [scratch.node("constant", "map", int(np.size(c)), 0, [], c) for c in closed.consts]
    outs = add_jaxpr(scratch, closed.jaxpr, constants, refs)
    base = lambda ref: scratch.base.get(ref, ref)
    by_ref.setdefault(base(outs[0]), ("y", "output"))
    assert len(outs) == 1 + len(leaves), "the traced residuals are others"
    graph, kept, found, args = Graph(), [], {}, []
    for i, (out, value) in enumerate(zip(outs[1:], leaves)):
        # A copy or broadcast of what stays anyway is not counted; one of something else is an array of its own.
        root = base(out) if base(out) in by_ref else out
        constant = root[0] == "node" and scratch.nodes[root[1]][0] == "constant"
        if constant:
            args.append(graph.node("constant", "map", 1, 0, [], i))
            continue
        if root not in found:
            name, kind = by_ref.get(root, (f"saved{i}", "saved"))
            found[root] = graph.leaf(name, kind, int(value.size), int(value.nbytes))
            kept.append([name, kind, int(value.nbytes)])
        args.append(found[root])
    dy = jnp.ones_like(y)
    closed = jax.make_jaxpr(lambda rest, dy: jax.tree.unflatten(shape, rest)(dy))(leaves, dy)
    args.append(graph.leaf("dy", "cotangent", dy.size, dy.nbytes))
    constants = [graph.node("constant", "map", int(np.size(c)), 0, [], c) for c in closed.consts]
    return graph.json(add_jaxpr(graph, closed.jaxpr, constants, args), kept)


# --- all of it ---

def parameters(text, dims):
    """[name, shape, is float, is const] of the op's inputs."""
    (inside,) = re.search(r"op \w+\((.*?)\) ->", text, re.S).groups()
    found = []
    for name, dtype, shape, const in re.findall(r"(\w+): (\w+)(?:\[(.*?)\])?( const)?", inside):
        found.append((name, [eval(e, {}, dims) for e in shape.split(",") if e], dtype == "f32", bool(const)))
    return found


def measure(op, dims):
    random = np.random.default_rng(1)
    params = parameters((HERE / "stash_ops" / f"{op}.xh").read_text(), dims)
    names = [p[0] for p in params]
    # Inside everybody's domain: log, sqrt.
    arrays = [random.uniform(0.5, 1.5, shape).astype(np.float32) if real else
              random.integers(0, 64, shape).astype(np.int32) for _, shape, real, _ in params]
    moves = [real and not const for _, _, real, const in params]

    def tensors():
        return [torch.tensor(a, requires_grad=d) for a, d in zip(arrays, moves)]

    in_torch = lambda *xs: OPS[op](Torch, *xs)
    eager = torch_graph(in_torch, tensors(), names, default_partition)
    eager["kept"] = torch_saved(in_torch, tensors(), names)
    return {"torch": eager,
            "min-cut": torch_graph(in_torch, tensors(), names, min_cut_rematerialization_partition),
            "jax": jax_graph(lambda *xs: OPS[op](Jax, *xs), [jnp.asarray(a) for a in arrays], names, moves)}


def main():
    ops = json.loads((HERE / "stash_ops" / "ops.json").read_text())
    if len(sys.argv) > 1:
        for entry in ops:
            if entry["op"] in sys.argv[1:]:
                for peer, g in measure(entry["op"], entry["dims"]).items():
                    print(f"{entry['op']} {peer}: kept {g['kept']}")
                    for i, leaf in enumerate(g["leaves"]):
                        print(f"  {i:3} {leaf[1]} {leaf[0]} {leaf[2]}")
                    for i, n in enumerate(g["nodes"]):
                        print(f"  {i + len(g['leaves']):3} {n[1]} {n[0]} {n[2]} {n[4]}")
                    print(f"  results {g['results']}")
        return
    out = {"date": datetime.date.today().isoformat(),
           "versions": {"torch": torch.__version__, "jax": jax.__version__},
           "ops": {entry["op"]: measure(entry["op"], entry["dims"]) for entry in ops}}
    lines = ",\n".join(f' "{op}": {{\n' + ",\n".join(f'  "{peer}": {json.dumps(g, separators=(",", ":"))}' for peer, g in peers.items())
                       + "}" for op, peers in out["ops"].items())
    head = json.dumps({k: v for k, v in out.items() if k != "ops"})[:-1]
    (HERE / "stash_table_peers.json").write_text(f'{head}, "ops": {{\n{lines}}}}}\n')


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Values and gradients of ops by PyTorch in float64, for tests/kernels/oracle_test.cpp.

    pip install torch numpy && python3 tests/oracle/make_values.py

rewrites tests/oracle/values.json. The tests read that file only; PyTorch is needed to make it. Each row: an op in
xhat's language, the same in PyTorch, the shapes of its inputs ("i5": integers below 5). Inputs are standard normals,
cotangents too.
"""
import json
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

ROWS = [
    ("softmax", "op f(x: f64[N,D]) -> (y) { m[n] = max(d: x[n,d]); e[n,d] = exp(x[n,d] - m[n]); y[n,d] = e[n,d] / sum(k: e[n,k]) }",
     lambda x: x.softmax(1), [(3, 5)]),
    ("log_softmax", "op f(x: f64[N,D]) -> (y) { y[n,d] = x[n,d] - log(sum(k: exp(x[n,k]))) }",
     lambda x: x.log_softmax(1), [(3, 5)]),
    ("layer_norm", """op f(x: f64[N,D], g: f64[D], b: f64[D]) -> (y) {
       m[n] = mean(d: x[n,d])
       v[n] = mean(d: (x[n,d] - m[n])^2)
       y[n,d] = g[d] * (x[n,d] - m[n]) / sqrt(v[n] + 1e-5) + b[d] }""",
     lambda x, g, b: F.layer_norm(x, (7,), g, b), [(4, 7), (7,), (7,)]),
    ("batch_norm", """op f(x: f64[N,C,H,W], g: f64[C], b: f64[C]) -> (y) {
       m[c] = mean(n, h, w: x[n,c,h,w])
       v[c] = mean(n, h, w: (x[n,c,h,w] - m[c])^2)
       y[n,c,h,w] = g[c] * (x[n,c,h,w] - m[c]) / sqrt(v[c] + 1e-5) + b[c] }""",
     lambda x, g, b: F.batch_norm(x, None, None, g, b, training=True), [(3, 2, 4, 5), (2,), (2,)]),
    ("group_norm", """op f(x: f64[N,4,H]) -> (y) {
       m[n,g in 0..2] = mean(c in 0..2, h: x[n,2*g+c,h])
       v[n,g in 0..2] = mean(c in 0..2, h: (x[n,2*g+c,h] - m[n,g])^2)
       y[n,c,h] = (x[n,c,h] - m[n,c/2]) * rsqrt(v[n,c/2] + 1e-5) }""",
     lambda x: F.group_norm(x, 2), [(3, 4, 5)]),
    ("rms_norm", "op f(x: f64[N,D], g: f64[D]) -> (y) { r[n] = rsqrt(mean(d: x[n,d]^2) + 1e-6); y[n,d] = x[n,d] * r[n] * g[d] }",
     lambda x, g: F.rms_norm(x, (6,), g, 1e-6), [(3, 6), (6,)]),
    ("gelu", "op f(x: f64[N]) -> (y) { y[n] = x[n] / 2 * (1 + erf(x[n] / sqrt(2))) }", F.gelu, [(9,)]),
    ("gelu_tanh", "op f(x: f64[N]) -> (y) { y[n] = x[n] / 2 * (1 + tanh(0.7978845608028654 * (x[n] + 0.044715 * x[n]^3))) }",
     lambda x: F.gelu(x, approximate="tanh"), [(9,)]),
    ("silu", "op f(x: f64[N]) -> (y) { y[n] = x[n] * sigmoid(x[n]) }", F.silu, [(9,)]),
    ("mish", "op f(x: f64[N]) -> (y) { y[n] = x[n] * tanh(softplus(x[n])) }", F.mish, [(9,)]),
    ("elu", "op f(x: f64[N]) -> (y) { y[n] = if x[n] > 0 then x[n] else expm1(x[n]) }", F.elu, [(9,)]),
    ("log_sigmoid", "op f(x: f64[N]) -> (y) { y[n] = -softplus(-x[n]) }", F.logsigmoid, [(9,)]),
    ("huber", "op f(p: f64[N], t: f64[N]) -> (y) { d[n] = abs(p[n] - t[n]); y = mean(n: if d[n] <= 1 then d[n]^2 / 2 else d[n] - 0.5) }",
     lambda p, t: F.huber_loss(p, t), [(9,), (9,)]),
    ("cross_entropy", """op f(x: f64[N,C], label: i64[N]) -> (y) {
       m[n] = max(c: x[n,c])
       y = mean(n in 0..N: log(sum(c: exp(x[n,c] - m[n]))) + m[n] - x[n,label[n]]) }""",
     lambda x, label: F.cross_entropy(x, label), [(6, 5), "i5:6"]),
    ("embedding", "op f(t: f64[V,D], ids: i64[L]) -> (y) { y[l,d] = t[ids[l],d] }",
     lambda t, ids: F.embedding(ids, t), [(5, 3), "i5:8"]),
    ("conv2d", "op f(x: f64[1,2,7,8], w: f64[3,2,3,2]) -> (y) { y[n,o,i in 0..4,j in 0..4] = sum(c, r, s: x[n,c,2*i+r-1,2*j+s else 0] * w[o,c,r,s]) }",
     lambda x, w: F.conv2d(x, w, stride=2, padding=(1, 0)), [(1, 2, 7, 8), (3, 2, 3, 2)]),
    ("conv2d_dilated", "op f(x: f64[2,1,9,9], w: f64[2,1,3,3]) -> (y) { y[n,o,i in 0..5,j in 0..5] = sum(c, r, s: x[n,c,i+2*r,j+2*s] * w[o,c,r,s]) }",
     lambda x, w: F.conv2d(x, w, dilation=2), [(2, 1, 9, 9), (2, 1, 3, 3)]),
    ("conv_transpose1d", "op f(x: f64[1,2,5], w: f64[2,3,4]) -> (y) { y[n,o,p in 0..12] = sum(c, i, r if 2*i + r == p: x[n,c,i] * w[c,o,r]) }",
     lambda x, w: F.conv_transpose1d(x, w, stride=2), [(1, 2, 5), (2, 3, 4)]),
    ("max_pool2d", "op f(x: f64[1,2,6,7]) -> (y) { y[n,c,i in 0..3,j in 0..3] = max(r in 0..2, s in 0..3: x[n,c,2*i+r,2*j+s]) }",
     lambda x: F.max_pool2d(x, (2, 3), (2, 2)), [(1, 2, 6, 7)]),
    ("avg_pool2d", "op f(x: f64[1,2,5,5]) -> (y) { y[n,c,i in 0..3,j in 0..3] = sum(r in 0..3, s in 0..3: x[n,c,i+r,j+s]) / 9 }",
     lambda x: F.avg_pool2d(x, 3, 1), [(1, 2, 5, 5)]),
    ("causal_attention", """op f(q: f64[S,D], k: f64[S,D], v: f64[S,D]) -> (o) {
       s[i,j in 0..S] = sum(d: q[i,d] * k[j,d]) / 2
       m[i] = max(j in 0..S if j <= i: s[i,j])
       e[i,j] = if j <= i then exp(s[i,j] - m[i]) else 0
       z[i] = sum(j: e[i,j])
       o[i,d] = sum(j: e[i,j] * v[j,d]) / z[i] }""",
     lambda q, k, v: F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0], [(5, 4), (5, 4), (5, 4)]),
    ("cumsum", "op f(x: f64[N]) -> (y) { y[n in 0..N] = sum(k in 0..n+1: x[k]) }", lambda x: x.cumsum(0), [(7,)]),
    ("cumprod", "op f(x: f64[N]) -> (y) { y[n in 0..N] = prod(k in 0..n+1: x[k]) }", lambda x: x.cumprod(0), [(6,)]),
    ("logsumexp", "op f(x: f64[N,D]) -> (y) { m[n] = max(d: x[n,d]); y[n] = m[n] + log(sum(d: exp(x[n,d] - m[n]))) }",
     lambda x: x.logsumexp(1), [(3, 6)]),
    ("variance", "op f(x: f64[N,D]) -> (y) { m[n] = mean(d: x[n,d]); y[n] = sum(d: (x[n,d] - m[n])^2) / (D - 1) }",
     lambda x: x.var(1), [(3, 6)]),
    ("norm", "op f(x: f64[N,D]) -> (y) { y[n] = sqrt(sum(d: x[n,d]^2)) }", lambda x: x.norm(dim=1), [(3, 6)]),
    ("pixel_shuffle", "op f(x: f64[1,8,3,2]) -> (y) { y[n,c in 0..2,i in 0..6,j in 0..4] = x[n,4*c+2*(i%2)+j%2,i/2,j/2] }",
     lambda x: F.pixel_shuffle(x, 2), [(1, 8, 3, 2)]),
    ("bilinear", "op f(x: f64[B,I], w: f64[O,I,J], z: f64[B,J]) -> (y) { y[b,o] = sum(i, j: x[b,i] * w[o,i,j] * z[b,j]) }",
     lambda x, w, z: F.bilinear(x, z, w), [(3, 4), (2, 4, 5), (3, 5)]),
    ("cosine_similarity", "op f(a: f64[N,D], b: f64[N,D]) -> (y) { y[n] = sum(d: a[n,d] * b[n,d]) / sqrt(sum(d: a[n,d]^2) * sum(d: b[n,d]^2)) }",
     lambda a, b: F.cosine_similarity(a, b), [(3, 6), (3, 6)]),
    ("unfold", "op f(x: f64[N]) -> (y) { y[i in 0..(N-3)/2+1,r in 0..3] = x[2*i+r] }", lambda x: x.unfold(0, 3, 2), [(9,)]),
    ("roll_flip", "op f(x: f64[N]) -> (y) { y[n in 0..N] = x[(n+3)%N] * x[N-1-n] }",
     lambda x: torch.roll(x, -3) * x.flip(0), [(8,)]),
    ("power", "op f(a: f64[N], b: f64[N]) -> (y) { y[n] = (abs(a[n]) + 0.5)^b[n] }", lambda a, b: (a.abs() + 0.5) ** b, [(9,), (9,)]),
    ("trigonometry", "op f(x: f64[N]) -> (y) { y[n] = sin(x[n]) * cos(2*x[n]) + tan(x[n] / 2) }",
     lambda x: torch.sin(x) * torch.cos(2 * x) + torch.tan(x / 2), [(9,)]),
]


def numbers(tensor):
    return [float(v) for v in tensor.detach().reshape(-1)]


def value(number, row):
    name, text, function, shapes = row
    random = np.random.default_rng(number)
    inputs, stored = [], []
    for shape in shapes:
        if isinstance(shape, str):
            limit, count = (int(v) for v in shape[1:].split(":"))
            array = torch.tensor(random.integers(0, limit, count))
        else:
            array = torch.tensor(random.standard_normal(shape), requires_grad=True)
        inputs.append(array)
        stored.append({"shape": list(array.shape), "values": numbers(array)})
    output = function(*inputs)
    cotangent = torch.tensor(np.asarray(random.standard_normal(tuple(output.shape))))
    output.backward(cotangent)
    return {
        "name": name,
        "op": text,
        "inputs": stored,
        "output": numbers(output),
        "cotangent": numbers(cotangent),
        "gradients": [numbers(x.grad) for x in inputs if x.requires_grad],
    }


if __name__ == "__main__":
    rows = [value(i, row) for i, row in enumerate(ROWS)]
    target = pathlib.Path(__file__).with_name("values.json")
    target.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    print(f"{len(rows)} ops, torch {torch.__version__}: {target}")

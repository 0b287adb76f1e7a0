"""Writes a residual transformer of so many layers as one op: python3 bench/transformer_layers.py 8 > layers.xh

What planning takes per layer, and whether kernels and bytes per layer stay the same (docs/performance.md, "Planning").
"""

import sys

NORM = """op layer_norm(x: f32[B,S,D], g: f32[D], b: f32[D]) -> (y) {
  m[n,s] = sum(d: x[n,s,d]) / D
  v[n,s] = sum(d: (x[n,s,d] - m[n,s])^2) / D
  y[n,s,d] = (x[n,s,d] - m[n,s]) / sqrt(v[n,s] + 1e-5) * g[d] + b[d]
}
"""
LAYER = """  n# = layer_norm(@, g#, b#)
  q#[b,s,e] = sum(d: n#[b,s,d] * wq#[d,e])
  k#[b,s,e] = sum(d: n#[b,s,d] * wk#[d,e])
  v#[b,s,e] = sum(d: n#[b,s,d] * wv#[d,e])
  s#[b,i,j] = sum(e: q#[b,i,e] * k#[b,j,e]) / sqrt(f32(E))
  m#[b,i] = max(j: s#[b,i,j])
  p#[b,i,j] = exp(s#[b,i,j] - m#[b,i])
  o#[b,i,e] = sum(j: p#[b,i,j] * v#[b,j,e]) / sum(j: p#[b,i,j])
  r#[b,s,d] = @[b,s,d] + sum(e: o#[b,s,e] * wo#[e,d])
  t# = layer_norm(r#, h#, c#)
  f#[b,s,j] = relu(sum(d: t#[b,s,d] * w1#[d,j]))
  z#[b,s,d] = r#[b,s,d] + sum(j: f#[b,s,j] * w2#[j,d])
"""
WEIGHTS = ["g#: f32[D]", "b#: f32[D]", "wq#: f32[D,E]", "wk#: f32[D,E]", "wv#: f32[D,E]", "wo#: f32[E,D]",
           "h#: f32[D]", "c#: f32[D]", "w1#: f32[D,F]", "w2#: f32[F,D]"]

layers = int(sys.argv[1])
parameters, body, stream = ["x: f32[B,S,D]"], "", "x"
for layer in range(layers):
    parameters += [w.replace("#", str(layer)) for w in WEIGHTS]
    body += LAYER.replace("#", str(layer)).replace("@", stream)
    stream = f"z{layer}"
print(f"{NORM}op layers({', '.join(parameters)}) -> (y) {{\n{body}  y[b,s,d] = {stream}[b,s,d]\n}}")

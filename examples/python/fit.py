"""Logistic regression with a loss of our own; every step writes into memory that is allocated once."""
import numpy as np

import xhat

loss = xhat.op("""op loss(x: f32[N,D] const, label: f32[N] const, w: f32[D], b: f32) -> (l) {
  z[n] = b + sum(d: x[n,d] * w[d])
  l = sum(n: softplus(z[n]) - label[n] * z[n]) / f32(N)
}""")

rng = np.random.default_rng(0)
x = rng.normal(size=(2000, 20)).astype(np.float32)
truth = rng.normal(size=20).astype(np.float32)
label = (x @ truth > 0.3).astype(np.float32)

w, b = np.zeros(20, np.float32), np.zeros((), np.float32)
l, grad_w, grad_b, one = np.empty((), np.float32), np.empty_like(w), np.empty_like(b), np.ones((), np.float32)
for step in range(300):
    _, kept = loss.forward(x, label, w, b, out=l)
    loss.backward(kept, one, out=(grad_w, grad_b))
    w -= 2 * grad_w
    b -= 2 * grad_b
right = ((x @ w + b > 0) == (label > 0)).mean()
print(f"loss {l:.4f}, {right:.1%} right, direction {w @ truth / np.linalg.norm(w) / np.linalg.norm(truth):.4f} of the truth")
assert l < 0.2 and right > 0.97, (l, right)

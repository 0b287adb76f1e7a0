"""Newton's method without a Hessian: hvp is an op of its own, and conjugate gradients ask for nothing else."""
import numpy as np

import xhat

# A chain of springs: the sum over neighbours of how far each is from its rest length, and a force that pulls the end.
energy = xhat.op("""op energy(x: f64[N], force: f64 const) -> (e) {
  e = sum(i in 0..N-1: (x[i+1] - x[i] - 1)^2 + 0.3 * (x[i+1] - x[i] - 1)^4) + x[0]^2 - force * x[N-1]
}""")
gradient, hessian = energy.vjp.only(["grad_x"]), energy.hvp


def solve(x, b):
    """H v = b by conjugate gradients."""
    v, r = np.zeros_like(b), b.copy()
    p, rr = r.copy(), r @ r
    while rr > 1e-20 * (b @ b):
        hp = hessian(x, 0.7, 1.0, p)
        a = rr / (p @ hp)
        v, r = v + a * p, r - a * hp
        p, rr = r + (r @ r) / rr * p, r @ r
    return v


x = np.arange(40, dtype=np.float64)
for step in range(20):
    g = gradient(x, 0.7, 1.0)
    print(f"step {step}: energy {energy(x, 0.7):.10f}, gradient {np.abs(g).max():.1e}")
    if np.abs(g).max() < 1e-10:
        break
    x -= solve(x, g)
assert step < 10

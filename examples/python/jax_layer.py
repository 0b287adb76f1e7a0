"""An op in a JAX model: gradients of every example by vmap of grad, jitted."""
import jax
import jax.numpy as jnp

import xhat
import xhat.jax

swish = xhat.jax.op(xhat.op("op swish(x: f32[N], beta: f32) -> (y) { y[i] = x[i] * sigmoid(beta * x[i]) }"))


def loss(parameters, x, t, activation=swish):
    w, beta, v = parameters
    return (v @ activation(w @ x, beta) - t) ** 2


keys = jax.random.split(jax.random.PRNGKey(0), 4)
parameters = jax.random.normal(keys[0], (16, 8)) / 3, jnp.float32(1.0), jax.random.normal(keys[1], (16,)) / 4
x, t = jax.random.normal(keys[2], (32, 8)), jax.random.normal(keys[3], (32,))

each = jax.jit(jax.vmap(jax.grad(loss), (None, 0, 0)))(parameters, x, t)
norms = jnp.sqrt(sum((g.reshape(32, -1) ** 2).sum(1) for g in each))
wanted = jax.vmap(jax.grad(lambda p, x, t: loss(p, x, t, lambda x, beta: x * jax.nn.sigmoid(beta * x))), (None, 0, 0))(parameters, x, t)
worst = max(float(jnp.abs(a - b).max()) for a, b in zip(each, wanted))
print(f"gradient norms of 32 examples: {norms.min():.3f} to {norms.max():.3f}; farthest from JAX's own: {worst:.1e}")
assert worst < 1e-4

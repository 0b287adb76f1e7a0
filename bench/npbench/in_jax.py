"""The programs in JAX, for ../compare/jax_engine.py."""
from npbench import jax_others, jax_polybench
from npbench.bound import functions


def ops():
    return functions(jax_polybench, jax_others)

"""xhat: write a tensor op once, point by point; get its gradient and fused kernels, on your own arrays.

    import numpy, xhat
    op = xhat.op("op scaled_tanh(x: f32[N], s: f32) -> (y) { y[i] = s * tanh(x[i]) }")
    x = numpy.linspace(-1, 1, 5, dtype=numpy.float32)
    y = op(x, s=2)                         # the outputs
    y, kept = op.forward(x, s=2)           # and what the backward needs
    grad_x, grad_s = op.backward(kept, numpy.ones_like(y))

Arrays are NumPy's, PyTorch's, JAX's or any that DLPack or the buffer protocol shows; nothing is copied. docs/python.md has the rest,
xhat.torch and xhat.jax put ops into models.
"""
import html
import json
import os
import pathlib

from ._xhat import Error, Kept, NonFinite, Op, __version__
from ._xhat import make as _make

__all__ = ["Error", "Kept", "NonFinite", "Op", "Page", "Report", "load", "op"]


def op(text, name=None, **options):
    """The op or program of that name in the text, by default the last one.

    Options: stash="cost", "largest", "none" or "budget=BYTES"; stash_dtype; fuse="full", "relay" or "off"; keep and drop, which arrays
    stay with the caller; wrt, the gradients wanted; threads; prices, tuned (files); check_values. They mean what they mean to the tool.
    """
    if isinstance(text, os.PathLike) or (isinstance(text, str) and text.endswith(".xh")):
        raise Error(f"{text}: xhat.op takes the text of an op; xhat.load reads a file")
    return _make(text, "<xhat.op>", name or "", options)


def load(path, name=None, **options):
    """The same from a file."""
    path = os.fspath(path)
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except OSError as e:
        raise Error(f"{path}: it cannot be read: {e.strerror}") from e
    return _make(text, path, name or "", options)


def _rebuilt(text, file, name, options):
    return _make(text, file, name, options)


class Report(str):
    """A text that is shown as it is. Of check(), true if everything held."""

    passed = True

    def __repr__(self):
        return str(self)

    def __bool__(self):
        return self.passed


class Page:
    """A page of HTML, shown by notebooks; docs/viz.md says what is on it."""

    def __init__(self, text):
        self.html = text

    def save(self, path):
        pathlib.Path(path).write_text(self.html, encoding="utf-8")

    def _repr_html_(self):
        return f'<iframe srcdoc="{html.escape(self.html)}" style="width: 100%; height: 800px; border: 0"></iframe>'


def _explain(self, *, as_json=False, pareto=False, relations=False, **dims):
    """What the engine makes of it: the gradient, the stash with reasons, the kernels. Sizes by keyword; as_json: a dict."""
    _, text = self._tool("explain", dims, {"json": as_json, "pareto": pareto, "relations": relations})
    return json.loads(text) if as_json else Report(text)


def _check(self, *, seed=1, **dims):
    """Derivatives against finite differences, kernels against the evaluator, on data of its own. A report, false if something is wrong."""
    status, text = self._tool("check", dims, {"seed": seed})
    report = Report(text)
    report.passed = status == 0
    return report


def _viz(self, *, run=True, **dims):
    """The page of `xhat viz`, with the timeline of a run if all sizes are given."""
    return Page(self._tool("viz", dims, {"no_run": not run})[1])


Op.explain, Op.check, Op.viz = _explain, _check, _viz
# Ops never change: a copy is the op itself, and a pickle is its text with its options.
Op.__copy__, Op.__deepcopy__, Op.__reduce__ = lambda self: self, lambda self, memo: self, lambda self: (_rebuilt, self._state())

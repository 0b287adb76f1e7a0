"""A suite of ops in one file, SUITE/SUITE.xh, as rows of ops.py: sizes, data and results from the comment before each op."""
import re
from math import prod
from pathlib import Path

HERE = Path(__file__).resolve().parent
OP = re.compile(r"^# (?P<sizes>[^;\n]*);(?P<kinds>[^;\n]*);(?P<outs>[^;\n]*)\nop (?P<name>\w+)\((?P<inputs>[^)]*)\)", re.M)
TENSOR = re.compile(r"(\w+)(?:: (\w+))?(?:\[([^\]]*)\])?")


def shape(text, sizes):
    return tuple(eval(e, {}, sizes) for e in text.split(",")) if text else ()


def kind(text, sizes):
    """What make_input of data.py takes."""
    return {"<": lambda v: int(sizes.get(v, v)), "*": float, "+": lambda _: "square"}[text[0]](text[1:])


def ops_of(suite):
    return OP.finditer((HERE / suite / f"{suite}.xh").read_text())


def sizes_of(m):
    return {k: int(v) for k, v in (e.split("=") for e in m["sizes"].split(","))}


def sizes(suite):
    """Of each op of a suite: the values of its dims."""
    return {m["name"]: sizes_of(m) for m in ops_of(suite)}


def suite(name, Op):
    found = {}
    for m in ops_of(name):
        sizes = sizes_of(m)
        kinds = {re.match(r"\w+", k)[0]: kind(re.sub(r"^\w+", "", k), sizes) for k in m["kinds"].strip().split(",") if k}
        inputs, diff = {}, []
        for name, dtype, dims in TENSOR.findall(m["inputs"]):
            s = shape(dims, sizes)
            inputs[name] = (s, kinds[name]) if name in kinds else s
            if dtype == "f32":
                diff.append(name)
        outs = {name: shape(dims, sizes) for name, _, dims in TENSOR.findall(m["outs"])}
        read = 4 * sum(prod(s[0] if s and isinstance(s[0], tuple) else s) for s in inputs.values())
        written = 4 * sum(prod(s) for s in outs.values())
        gradients = 4 * sum(prod(inputs[d][0] if inputs[d] and isinstance(inputs[d][0], tuple) else inputs[d]) for d in diff)
        found[m["name"]] = Op(m["name"], inputs, tuple(diff), outs, read + written, 0, "", read + written + gradients)
    return found

"""What frameworks ask of an op beside its results: its arguments in order, shapes before there are any, and a name that no other op has."""
import hashlib

from . import Error, _xhat


def in_order(op, inputs, given, named, kind):
    """The arguments as the op has them, by position first, then by name. kind: what they are called in errors."""
    if len(given) > len(inputs):
        raise Error(f"op {op} takes {len(inputs)} {kind} ({', '.join(inputs)}), but {len(given)} are given")
    for name in named:
        if name not in inputs:
            raise Error(f"op {op} has no '{name}'; {kind}: {', '.join(inputs)}")
        if name in inputs[: len(given)]:
            raise Error(f"op {op}: {name} is given twice, by position and by name")
    for name in inputs[len(given):]:
        if name not in named:
            raise Error(f"op {op}: '{name}' is missing")
    return (*given, *(named[name] for name in inputs[len(given):]))


def unique_name(op, name, dims):
    """Of the op's text and options alone: code that a framework keeps on disk finds the same op in another process, or none."""
    said = f"{name}\n{op._identity()}\n{sorted(dims.items())}"
    return f"{name}_{hashlib.sha256(said.encode()).hexdigest()[:12]}"


def shape_function(op, dims, least=min, most=max):
    """shapes of inputs -> shapes of outputs, on numbers and on symbols alike. dims: those that no input tells."""
    lines = [f"  {dim} = {value}" for dim, value in dims.items()]
    lines += [f"  {dim} = {text}" for dim, text in _xhat.dims_from_shapes(op) if dim not in dims]
    shapes = ", ".join(f"({''.join(e + ', ' for e in shape)})" for shape in _xhat.shapes(op, True))
    names = {"min": least, "max": most}
    exec("\n".join(["def shapes_of(shapes):", *lines, f"  return [{shapes}]"]), names)
    return names["shapes_of"]

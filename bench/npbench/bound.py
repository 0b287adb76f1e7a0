"""Functions of modules by the names of programs; what they take by keyword are sizes."""
import functools
import inspect

from npbench.ops import ALL


def functions(*modules):
    found = {}
    for name, program in ALL.items():
        f = next(getattr(m, name) for m in modules if hasattr(m, name))
        wanted = inspect.getfullargspec(f).kwonlyargs
        found[name] = functools.partial(f, **{k: program.sizes[k] for k in wanted})
    return found

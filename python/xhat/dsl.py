"""Ops written with Python's operators, point by point, as with the C++ handles of expr/dsl/dsl.h.

    from xhat.dsl import Builder, axes, dims, f32, mean, sqrt

    op = Builder("rms_norm")
    N, D = dims("N D")
    n, d, k = axes("n d k")
    x, gain = op.input("x", f32, N, D), op.input("gain", f32, D)
    y = op.output("y")
    y[n, d] = gain[d] * x[n, d] / sqrt(mean(k, x[n, k] * x[n, k]) + 1e-6)
    rms_norm = op.build()                  # an xhat.Op

What is written becomes text of the language, so its rules and its messages are those of docs/language.md; rms_norm.text shows it. Comparisons are
expressions, `&`, `|` and `~` join them, `where(c, a, b)` chooses; `n.range(a, b)` is an axis with its range, on the left and in reductions;
`x.get(i - 1, otherwise=0)` reads with a value outside. The functions of the language and its reductions are the functions here.
"""
from . import Error, _xhat
from . import op as _op


class Expression:
    """A text of the language that may stand anywhere."""

    __slots__ = ("text",)
    __hash__ = None

    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text

    def __bool__(self):
        raise Error(f"{self.text} has no value while the op is written; where(condition, a, b) chooses, & and | join conditions")

    def __neg__(self):
        return Expression(f"(-{self.text})")

    def __invert__(self):
        return Expression(f"(!{self.text})")


def _text(value):
    if isinstance(value, Expression):
        return value.text
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if value >= 0 else f"({value})"
    if isinstance(value, float):
        digits = repr(value).replace("e+", "e")
        return f"({digits})" if digits.startswith("-") else digits
    raise Error(f"a {type(value).__name__} cannot stand in an op; numbers, axes, dims and elements of tensors can")


def _operators():
    signs = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "/", "mod": "%", "pow": "^", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
             "eq": "==", "ne": "!=", "and": "&&", "or": "||"}
    for name, sign in signs.items():
        def forward(self, other, sign=sign):
            return Expression(f"({_text(self)} {sign} {_text(other)})")

        def reflected(self, other, sign=sign):
            return Expression(f"({_text(other)} {sign} {_text(self)})")

        setattr(Expression, f"__{name}__", forward)
        if name not in ("lt", "le", "gt", "ge", "eq", "ne"):
            setattr(Expression, f"__r{name}__", reflected)


_operators()


class Axis(Expression):
    __slots__ = ()

    def range(self, begin, end):
        """This axis, from begin to before end."""
        return Ranged(f"{self.text} in {_text(begin)}..{_text(end)}")


class Ranged:
    """An axis with its range, on the left of a definition or in a reduction."""

    def __init__(self, text):
        self.text = text


class Dim(Expression):
    __slots__ = ()


def axes(names):
    """One axis for each of these names, which blanks separate."""
    return _each(Axis, names)


def dims(names):
    return _each(Dim, names)


def _each(kind, names):
    made = [kind(name) for name in names.split()]
    return made[0] if len(made) == 1 else made


def _list(parts):
    return ", ".join(p.text if isinstance(p, Ranged) else _text(p) for p in (parts if isinstance(parts, tuple) else (parts,)))


class Tensor(Expression):
    """A name that is read by x[i, j], and defined once by y[i, j] = ...; a scalar by itself, and by y.set(...)."""

    __slots__ = ("_builder",)

    def __init__(self, builder, name):
        super().__init__(name)
        self._builder = builder

    def __getitem__(self, indices):
        return Expression(f"{self.text}[{_list(indices)}]")

    def __setitem__(self, left, value):
        self._builder._define(f"{self.text}[{_list(left)}] = {_text(value)}", self.text)

    def get(self, *indices, otherwise):
        return Expression(f"{self.text}[{_list(indices)} else {_text(otherwise)}]")

    def set(self, value):
        self._builder._define(f"{self.text} = {_text(value)}", self.text)


class DType:
    """An element type; called, a cast."""

    def __init__(self, name):
        self.name = name

    def __call__(self, value):
        return Expression(f"{self.name}({_text(value)})")


class Builder:
    def __init__(self, name):
        self._name, self._parameters, self._outputs, self._lines, self._defined = name, [], [], [], set()

    def input(self, name, dtype, *extents, const=False):
        shape = f"[{','.join(_text(e) for e in extents)}]" if extents else ""
        self._parameters.append(f"{name}: {dtype.name}{shape}{' const' if const else ''}")
        return Tensor(self, name)

    def output(self, name):
        self._outputs.append(name)
        return Tensor(self, name)

    def tensor(self, name):
        """A name for what is neither input nor output."""
        return Tensor(self, name)

    def dim(self, name, value):
        self._lines.append(f"dim {name} = {_text(value)}")
        return Dim(name)

    def _define(self, line, name):
        if name in self._defined:
            raise Error(f"op {self._name}: {name} is defined twice")
        self._defined.add(name)
        self._lines.append(line)

    @property
    def text(self):
        lines = "".join(f"  {line}\n" for line in self._lines)
        return f"op {self._name}({', '.join(self._parameters)}) -> ({', '.join(self._outputs)}) {{\n{lines}}}\n"

    def build(self, **options):
        return _op(self.text, **options)


def where(condition, then, otherwise):
    return Expression(f"(if {_text(condition)} then {_text(then)} else {_text(otherwise)})")


def random_normal(seed, i):
    """Of the normal distribution with mean 0 and variance 1 (expr/dsl/formulas.h)."""
    return Expression(f"(1.4142135623730951 * erfinv(2 * random({_text(seed)}, {_text(i)}) - 0.99999994039535522))")


def random_int(seed, i, low, high):
    """Of the whole numbers from low to before high, at most 2^24 of them."""
    return Expression(f"({_text(low)} + shift_right(i64(16777216 * random({_text(seed)}, {_text(i)})) * ({_text(high)} - {_text(low)}), 24))")


def einsum(result, subscripts, *operands):
    """Defines result: einsum(y, "bik,bkj->bij", x, w) is y[b, i, j] = sum(k, x[b, i, k] * w[b, k, j]). Each letter is an axis of that name; letters
    that the result lacks are summed over; without "->" the result has the letters that occur once, in alphabetical order."""
    def wrong(what):
        raise Error(f'einsum "{subscripts}": {what}; it is written as in "bik,bkj->bij"')

    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    parts = inputs.split(",")
    if "..." in subscripts:
        wrong("... is not for ops, whose axes have names; write a letter for each dimension")
    for c in inputs.replace(",", "") + output:
        if not c.isalpha():
            wrong(f"{c} is no letter")
    if len(parts) != len(operands):
        wrong(f"it has {len(parts)} operands, and {len(operands)} are given")
    letters = "".join(parts)
    if not arrow:
        output = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    for c in output:
        if output.count(c) > 1:
            wrong(f"{c} is twice in the result")
        if c not in letters:
            wrong(f"{c} of the result is in no operand")
    taken = {_text(x) for x in (result, *operands)}
    axis = {c: Axis(c + "_" if c in taken or c.isupper() else c) for c in letters}
    product = None
    for part, x in zip(parts, operands):
        factor = x[tuple(axis[c] for c in part)] if part else x
        product = factor if product is None else product * factor
    summed = tuple(axis[c] for c in dict.fromkeys(letters) if c not in output)
    body = _reduction("sum", None)(summed, product) if summed else product
    if output:
        result[tuple(axis[c] for c in output)] = body
    else:
        result.set(body)


def _function(name):
    def function(*arguments):
        return Expression(f"{name}({', '.join(_text(a) for a in arguments)})")
    return function


def _reduction(name, of_numbers):
    def reduction(over, *body, where=None):
        if not isinstance(over, (Axis, Ranged, tuple, list)):  # max and min of numbers
            if of_numbers and where is None:
                return of_numbers(over, *body)
            raise Error(f"{name} runs over axes: {name}(k, x[k]), {name}((i, k.range(0, i)), x[i, k])")
        condition = "" if where is None else f" if {_text(where)}"
        if len(body) != 1:
            raise Error(f"{name} takes axes and one body")
        return Expression(f"{name}({_list(tuple(over) if isinstance(over, (tuple, list)) else over)}{condition}: {_text(body[0])})")
    return reduction


_functions, _reductions = _xhat.functions(), _xhat.reductions()
for _name in _functions:
    globals()[_name] = _function(_name)
for _name in _reductions:
    globals()[_name] = _reduction(_name, globals().get(_name) if _name in _functions else None)
for _name in ("f64", "f32", "f16", "bf16", "i64", "i32", "u32", "u8"):
    globals()[_name] = DType(_name)
boolean = DType("bool")
__all__ = ["Axis", "Builder", "DType", "Dim", "Expression", "Tensor", "axes", "boolean", "dims", "einsum", "random_int", "random_normal", "where", *_functions, *_reductions, "f64", "f32", "f16",
           "bf16", "i64", "i32", "u32", "u8"]

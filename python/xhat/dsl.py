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

Programs that mutate are written alike (`Prog`):

    p = Prog("smooth")
    x = p.input("x", f32, N)
    y = p.var("y", clone(x))
    with p.For(i, 1, N):
        y[i] += 0.5 * y[i - 1]
    p.output(y)
    smooth = p.build()
"""
import contextlib
import re

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
        self._name, self._parameters, self._outputs, self._lines, self._defined, self._callees = name, [], [], [], set(), {}
        self._cotangents, self._gradients, self._forward = {}, {}, None

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

    def call(self, results, op, *arguments):
        """Defines tensors, by name, as the results of another op: a, b = f.call("a b", extremes, x)."""
        names = results.split()
        for name in names:
            self._define(f"({', '.join(names)}) = {_call(self, op, arguments)}" if name == names[0] else None, name)
        made = [Tensor(self, name) for name in names]
        return made[0] if len(made) == 1 else made

    def cotangent(self, output, name=None):
        """Of the loss by an output. What is defined from here on belongs to the gradient, which is stated and not derived: gradient(x, dx)."""
        if output.text not in self._outputs:
            raise Error(f"op {self._name}: cotangents are of outputs, and {output.text} is none")
        if self._forward is None:
            self._forward = len(self._lines)
        return Tensor(self, self._cotangents.setdefault(output.text, name or "d" + output.text))

    def gradient(self, of, tensor):
        self._gradients[of.text] = tensor.text

    def _stated(self):
        names = [p.split(":")[0] for p in self._parameters]
        wrong = [x for x in self._gradients if x not in names]
        if wrong or not self._gradients or not self._cotangents:
            raise Error(f"op {self._name}: " + (f"{wrong[0]} is no input that could have a gradient" if wrong
                                                else "a stated gradient has cotangent(y) of its outputs and gradient(x, dx) by its inputs"))
        lines = "".join(f"  {line}\n" for line in self._lines[self._forward:] if line)
        read = [o for o in self._outputs if re.search(rf"\b{o}\b", lines)]
        given = names + read + [self._cotangents[o] for o in self._outputs if o in self._cotangents]
        return f"grad {self._name}({', '.join(given)}) -> ({', '.join(self._gradients[x] for x in names if x in self._gradients)}) {{\n{lines}}}\n"

    @property
    def text(self):
        lines = "".join(f"  {line}\n" for line in self._lines[:self._forward] if line)
        head = f"op {self._name}({', '.join(self._parameters)}) -> ({', '.join(self._outputs)}) {{\n"
        stated = self._stated() if self._cotangents or self._gradients else ""
        return "".join(self._callees.values()) + head + lines + "}\n" + stated

    def build(self, **options):
        return _op(self.text, **options)


def _call(caller, op, arguments):
    """The text of a call; the caller's text begins with that of the op, which is a Builder, a Prog or an xhat.Op."""
    if isinstance(op, (Builder, Prog)):
        name, text = op._name, op.text
    else:
        name, text = op.name, op._state()[0]
        text += "" if text.endswith("\n") else "\n"
    if name == caller._name:
        raise Error(f"{name} calls an op of its name; an op cannot call itself, and two of a file have two names")
    parts = {**op._callees, name: text[len("".join(op._callees.values())):]} if isinstance(op, (Builder, Prog)) else {name: text}
    for part, of in parts.items():
        if caller._callees.setdefault(part, of) != of:
            raise Error(f"two different ops named {part} are called")
    return f"{name}({', '.join(_text(a) for a in arguments)})"


def _subscripts(subscripts):
    def one(s):
        if isinstance(s, Ranged):
            return s.text
        if s is None or s is Ellipsis:
            raise Error("None and ... are no indices of a program; unsqueeze(i) adds a dimension, and dimensions behind the last index are whole")
        if not isinstance(s, slice):
            return _text(s)
        begin, end, step = ("" if part is None else _text(part) for part in (s.start, s.stop, s.step))
        return f"{begin}:{end}" + (f":{step}" if step else "")
    return ", ".join(one(s) for s in (subscripts if isinstance(subscripts, tuple) else (subscripts,)))


class Var(Expression):
    """A variable of a program, or a view of one: y[1:-1, c], y.transpose(0, 1). What is assigned to it is noted as a statement: y.set(e) binds the name,
    y[...] = e and y += e write."""

    __slots__ = ("_program", "_written")

    def __init__(self, program, text):
        super().__init__(text)
        self._program, self._written = program, False

    def __getitem__(self, subscripts):
        return Var(self._program, f"{self.text}[{_subscripts(subscripts)}]")

    def __setitem__(self, subscripts, value):
        place = f"{self.text}[{_subscripts(subscripts)}]"
        if not (isinstance(value, Var) and value._written and value.text == place):  # y[i] += e ends with y[i] = y[i]
            self._note(place, "=", value)

    def __iter__(self):
        raise Error(f"{self.text} has no values while the program is written; program.For(i, 0, N) is a loop of it")

    def set(self, value):
        self._note(self.text, "=", value)

    def get(self, *indices, otherwise):
        return Expression(f"{self.text}[{_list(indices)} else {_text(otherwise)}]")

    def transpose(self, i, j):
        return self._view("transpose", "()", i, j)

    def squeeze(self, i):
        return self._view("squeeze", "()", i)

    def unsqueeze(self, i):
        return self._view("unsqueeze", "()", i)

    def diagonal(self):
        return self._view("diagonal", "()")

    def reshape(self, *extents):
        return self._view("reshape", "[]", *extents)

    def expand(self, *extents):
        return self._view("expand", "[]", *extents)

    def _view(self, name, brackets, *arguments):
        return Var(self._program, f"{self.text}.{name}{brackets[0]}{', '.join(_text(a) for a in arguments)}{brackets[1]}")

    def _note(self, place, sign, value):
        if self._program is None:
            raise Error(f"{self.text} is a value, and no place to assign to")
        self._program._add(f"{place} {sign} {_text(value)}")


def _in_place(sign):
    def method(self, value):
        self._note(self.text, sign, value)
        made = Var(self._program, self.text)
        made._written = True
        return made
    return method


for _of_python, _sign in (("iadd", "+="), ("isub", "-="), ("imul", "*="), ("itruediv", "/=")):
    setattr(Var, f"__{_of_python}__", _in_place(_sign))


class Prog:
    """A program that mutates tensors, in loops and branches (docs/language.md, Programs). With-statements are its blocks."""

    def __init__(self, name):
        self._name, self._parameters, self._outputs, self._lines, self._depth, self._callees = name, [], [], [], 1, {}

    def input(self, name, dtype, *extents, const=False, inout=False):
        """inout: it may be written, and what it holds at the end is an output."""
        shape = f"[{','.join(_text(e) for e in extents)}]" if extents else ""
        self._parameters.append(f"{name}: {'inout ' if inout else ''}{dtype.name}{shape}{' const' if const else ''}")
        return Var(self, name)

    def output(self, *variables):
        for v in variables:
            if not isinstance(v, Var) or not v.text.isidentifier():
                raise Error(f"an output of prog {self._name} is a name, and {_text(v)} is none")
            self._outputs.append(v.text)

    def var(self, name, value):
        """var name = value; of a name or a view, another name of that storage: clone(x) copies."""
        self._add(f"var {name} = {_text(value)}")
        return Var(self, name)

    def local(self, name):
        """A name without var: its first assignment makes it, and it ends with its iteration or branch."""
        return Var(self, name)

    def dim(self, name, value):
        self._add(f"dim {name} = {_text(value)}")
        return Dim(name)

    def call(self, op, *arguments):
        """The result of an op or program that has one: as part of an expression."""
        return Expression(_call(self, op, arguments))

    def assign(self, variables, op, *arguments):
        """(a, b) = op(arguments)."""
        self._add(f"({', '.join(v.text for v in variables)}) = {_call(self, op, arguments)}")

    def For(self, variable, begin, end):
        return self._block(f"for {_text(variable)} in {_text(begin)}..{_text(end)}")

    def While(self, condition, most):
        return self._block(f"while {_text(condition)} max {_text(most)}")

    def If(self, condition):
        return self._block(f"if {_text(condition)}")

    def Else(self):
        """Behind the block of an If."""
        if not self._lines or self._lines[-1] != "  " * self._depth + "}" or not self._branch:
            raise Error(f"prog {self._name}: Else stands directly behind the block of an If")
        self._lines.pop()
        return self._block("} else")

    @contextlib.contextmanager
    def _block(self, head):
        self._add(head + " {")
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            self._add("}")
            self._branch = head.startswith("if ")

    def _add(self, line):
        self._branch = False
        self._lines.append("  " * self._depth + line)

    @property
    def text(self):
        lines = "".join(f"{line}\n" for line in self._lines)
        head = f"prog {self._name}({', '.join(self._parameters)}) -> ({', '.join(self._outputs)}) {{\n"
        return "".join(self._callees.values()) + head + lines + "}\n"

    def build(self, **options):
        return _op(self.text, self._name, **options)


def view(value):
    """A value to take views of: view(x * 2).transpose(0, 1)."""
    return Var(None, f"({_text(value)})")


def clone(value):
    return Expression(f"clone({_text(value)})")


def _of_shape(dtype, extents):
    return dtype.name + (f"[{', '.join(_text(e) for e in extents)}]" if extents else "")


def zeros(dtype, *extents):
    return Expression(f"zeros {_of_shape(dtype, extents)}")


def full(value, dtype, *extents):
    return Expression(f"full({_text(value)}) {_of_shape(dtype, extents)}")


def concat(axis, *parts):
    return Expression(f"concat({_text(axis)}, {', '.join(_text(p) for p in parts)})")


def flip(axis, value):
    return Expression(f"flip({_text(axis)}, {_text(value)})")


def roll(axis, by, value):
    return Expression(f"roll({_text(axis)}, {_text(by)}, {_text(value)})")


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
__all__ = ["Axis", "Builder", "DType", "Dim", "Expression", "Prog", "Tensor", "Var", "axes", "boolean", "clone", "concat", "flip", "full", "roll", "view", "zeros", "dims", "einsum", "random_int", "random_normal", "where", *_functions, *_reductions, "f64", "f32", "f16",
           "bf16", "i64", "i32", "u32", "u8"]

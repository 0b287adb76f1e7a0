"""Tensors of a program in the text of the language, and the program that they make.

An importer of an op says what an element of its result is, as a text with names of axes in it:

    y = graph.define("f32", (3, 4), lambda i, j: f"{x(i, j)} + {b(j)}")

Only what an output needs becomes a statement. Tensors that no statement defines are parameters.
"""

import re

import numpy as np

RESERVED = set("if then else let in inf nan true false op prog grad dim var for while".split())


class NotExpressible(Exception):
    """The reason why a model has no program; counted by its text."""


class Kind:
    """A type of ONNX: its name here is NumPy's, `text` is the language's, which may be wider. Integers of `bits` wrap there by hand."""

    def __init__(self, name, text, bits=0, signed=True):
        self.name, self.text, self.bits, self.signed = name, text, bits, signed
        self.is_float, self.is_bool = text[0] in "fb" and text != "bool", text == "bool"
        self.is_int = not self.is_float and not self.is_bool

    def wrap(self, e):
        """What arithmetic gives in this type, where the language computes in a wider one."""
        if not self.bits or self.text == "i64":
            return e
        half = 1 << (self.bits - 1)
        return f"(({e}) + {half}) % {2 * half} - {half}" if self.signed else f"({e}) % {1 << self.bits}"

    def __eq__(self, other):
        return isinstance(other, Kind) and self.name == other.name

    def __hash__(self):
        return hash(self.name)


KINDS = {
    k.name: k
    for k in [
        Kind("float64", "f64"),
        Kind("float32", "f32"),
        Kind("float16", "f16"),
        Kind("bfloat16", "bf16"),
        Kind("int64", "i64"),
        Kind("int32", "i32"),
        Kind("uint32", "u32"),
        Kind("uint8", "u8"),
        Kind("bool", "bool"),
        Kind("int8", "i32", 8),
        Kind("int16", "i32", 16),
        Kind("uint16", "i32", 16, False),
        Kind("uint64", "i64", 64, False),
    ]
}
BOOL, I64, F32 = KINDS["bool"], KINDS["int64"], KINDS["float32"]
CARRIER = {"i32": np.int32, "i64": np.int64}  # of the types that the language has not


def kind_of(dtype):
    name = np.dtype(dtype).name
    if name not in KINDS:
        raise NotExpressible("strings" if name.startswith(("str", "object")) else f"type {name}")
    return KINDS[name]


def literal(value, kind):
    """A number of that type in the text."""
    if kind.is_bool:
        return "true" if value else "false"
    if kind.is_int:
        text = str(int(value)) if int(value) > -(2**63) else f"-{2**63 - 1} - 1"
    else:
        text = repr(float(value)).replace("e+", "e")
    return f"{kind.text}({text})"


class Tensor:
    def __init__(self, graph, name, kind, shape, value=None):
        self.graph, self.name, self.kind, self.shape, self.value = graph, name, kind, tuple(int(n) for n in shape), value
        self.statement, self.reads = None, set()  # its statement, and the tensors that this reads
        self.constant = False  # a value of the model, which has no gradient

    @property
    def rank(self):
        return len(self.shape)

    @property
    def size(self):
        return int(np.prod(self.shape, dtype=np.int64))

    def __call__(self, *index, otherwise=None):
        """The text of an element. With `otherwise`, that outside."""
        assert len(index) == self.rank, (self.name, self.shape, index)
        if self.constant and self.size == 1:
            return literal(self.value.reshape(-1)[0], self.kind)
        self.graph.read(self)
        if not index:
            return self.name
        return f"{self.name}[{', '.join(map(str, index)) if any(' ' in str(i) for i in index) else ','.join(map(str, index))}{'' if otherwise is None else f' else {otherwise}'}]"

    def spread(self, index):
        """The text of an element where the tensor is broadcast to more or larger dimensions, of which `index` are the axes."""
        last = index[len(index) - self.rank :]
        return self(*[0 if n == 1 else i for n, i in zip(self.shape, last)])


class Graph:
    def __init__(self):
        self.names, self.reading = set(RESERVED), []

    def name(self, wanted):
        """A name of the language that is not taken, and that no axis has."""
        name = re.sub(r"^.*_function_", "", re.sub(r"\W", "_", wanted)) or "t"  # of nodes that stand for a function, the name inside of it
        if name[0].isdigit() or re.fullmatch(r"[ir]\d+|b|j", name):
            name = f"t_{name}"
        unique, n = name, 1
        while unique in self.names:
            n += 1
            unique = f"{name}_{n}"
        self.names.add(unique)
        return unique

    def tensor(self, name, kind, shape, value=None):
        return Tensor(self, self.name(name), kind, shape, value)

    def constant(self, value, name="c"):
        value = np.asarray(value)
        made = self.tensor(name, kind_of(value.dtype), value.shape, value)
        made.constant = True
        return made

    def read(self, tensor):
        if self.reading:
            self.reading[-1].add(tensor)

    def define(self, kind, shape, body, name="t"):
        """The tensor whose element at axes i0, i1, … is the text body(i0, i1, …)."""
        made = self.tensor(name, kind, shape)
        axes = [f"i{d}" for d in range(len(shape))]
        left = ", ".join(f"{a} in 0..{n}" for a, n in zip(axes, made.shape))
        self.reading.append(made.reads)
        made.statement = f"{made.name}{f'[{left}]' if axes else ''} = {body(*axes)}"
        self.reading.pop()
        return made

    def statements(self, results, body):
        """Tensors (name, kind, shape) that statements of a `prog` leave: body(*tensors) is their text."""
        made = [self.tensor(*r) for r in results]
        reads = set()
        self.reading.append(reads)
        text = body(*made)
        self.reading.pop()
        reads -= set(made)
        made[0].statement, made[0].reads, made[0].imperative = text, reads, True
        for other in made[1:]:
            other.statement, other.reads = "", {made[0]}
        return made

    def text(self, name, outputs):
        """The program with these outputs, and its parameters: tensors by their names."""
        order, seen = [], set()

        def visit(tensor):  # depth first, without recursion: chains are long
            stack = [(tensor, False)]
            while stack:
                t, done = stack.pop()
                if done:
                    order.append(t)
                elif t not in seen:
                    seen.add(t)
                    stack.append((t, True))
                    stack.extend((r, False) for r in sorted(t.reads, key=lambda t: t.name, reverse=True))

        for t in outputs:
            visit(t)
        parameters = [t for t in order if t.statement is None]
        word = "prog" if any(getattr(t, "imperative", False) for t in order) else "op"
        head = ", ".join(
            f"{t.name}: {t.kind.text}{list(t.shape) if t.shape else ''}{' const' if t.constant and t.kind.is_float else ''}" for t in parameters
        )
        lines = [line for t in order if t.statement for line in t.statement.splitlines()]
        return (
            f"{word} {name}({head}) -> ({', '.join(t.name for t in outputs)}) {{\n" + "".join(f"  {line}\n" for line in lines) + "}\n",
            parameters,
        )

"""Ops on single elements, with broadcasting: a row each. {0}, {1}, … are operands, other names attributes with the defaults that stand beside."""

import numpy as np

from graph import BOOL, KINDS, NotExpressible, kind_of, literal
from importer import dtype_of, op

UNARY = {
    "Identity": "{0}",
    "Abs": "abs({0})",
    "Neg": "-{0}",
    "Reciprocal": "1 / {0}",
    "Exp": "exp({0})",
    "Log": "log({0})",
    "Sqrt": "sqrt({0})",
    "Sin": "sin({0})",
    "Cos": "cos({0})",
    "Tan": "tan({0})",
    "Tanh": "tanh({0})",
    "Sigmoid": "sigmoid({0})",
    "Erf": "erf({0})",
    "Sign": "sign({0})",
    "Floor": "floor({0})",
    "Ceil": "ceil({0})",
    "Round": "round({0})",
    "Relu": "relu({0})",
    "Softplus": "softplus({0})",
    "Softsign": "{0} / (1 + abs({0}))",
    "Not": "!{0}",
    "HardSwish": "{0} * clamp({0} / 6 + 0.5, 0, 1)",
    "Mish": "{0} * tanh(softplus({0}))",
}
# Functions that the language may have as its own: the row is tried first, then the formula beside it, if there is one.
FUNCTIONS = {
    "Asin": ("asin({0})", None),
    "Acos": ("acos({0})", None),
    "Atan": ("atan({0})", None),
    "Sinh": ("sinh({0})", "(exp({0}) - exp(-{0})) / 2"),
    "Cosh": ("cosh({0})", "(exp({0}) + exp(-{0})) / 2"),
    "Asinh": ("asinh({0})", "sign({0}) * log(abs({0}) + sqrt({0}*{0} + 1))"),
    "Acosh": ("acosh({0})", "log({0} + sqrt({0}*{0} - 1))"),
    "Atanh": ("atanh({0})", "0.5 * log((1 + {0}) / (1 - {0}))"),
}
PARAMETRIC = {
    "LeakyRelu": ("if {0} < 0 then {alpha} * {0} else {0}", dict(alpha=0.01)),
    "Elu": ("if {0} < 0 then {alpha} * expm1({0}) else {0}", dict(alpha=1.0)),
    "Celu": ("max(0, {0}) + min(0, {alpha} * expm1({0} / {alpha}))", dict(alpha=1.0)),
    "Selu": ("{gamma} * (if {0} > 0 then {0} else {alpha} * expm1({0}))", dict(alpha=1.6732631921768188, gamma=1.0507010221481323)),
    "HardSigmoid": ("clamp({alpha} * {0} + {beta}, 0, 1)", dict(alpha=0.2, beta=0.5)),
    "ThresholdedRelu": ("if {0} > {alpha} then {0} else 0", dict(alpha=1.0)),
    "Shrink": ("if {0} < -{lambd} then {0} + {bias} else if {0} > {lambd} then {0} - {bias} else 0", dict(lambd=0.5, bias=0.0)),
    "Swish": ("{0} * sigmoid({alpha} * {0})", dict(alpha=1.0)),
    "Binarizer": ("if {0} > {threshold} then 1 else 0", dict(threshold=0.0)),
}
BINARY = {"Add": "{0} + {1}", "Sub": "{0} - {1}", "Mul": "{0} * {1}", "PRelu": "if {0} < 0 then {1} * {0} else {0}"}
COMPARE = {
    "Equal": "{0} == {1}",
    "Greater": "{0} > {1}",
    "GreaterOrEqual": "{0} >= {1}",
    "Less": "{0} < {1}",
    "LessOrEqual": "{0} <= {1}",
    "And": "{0} && {1}",
    "Or": "{0} || {1}",
    "Xor": "{0} != {1}",
    "IsNaN": "isnan({0})",
}
VARIADIC = {"Sum": "{0} + {1}", "Max": "max({0}, {1})", "Min": "min({0}, {1})", "Mean": "{0} + {1}"}
HAS = {}  # functions of the language that were looked for


def language_has(function):
    import xhat

    if function not in HAS:
        try:
            xhat.op(f"op f(x: f32) -> (y) {{ y = {function}(x) }}")
            HAS[function] = True
        except xhat.Error:
            HAS[function] = False
    return HAS[function]


def elementwise(n, formula, tensors, kind=None, **names):
    """The op that computes the formula at each element of the tensors, broadcast against each other."""
    shape = np.broadcast_shapes(*[t.shape for t in tensors])
    kind = kind or tensors[0].kind
    body = lambda *i: formula.format(*[t.spread(i) for t in tensors], **names)
    return n.define(kind, shape, body if kind.is_bool else lambda *i: kind.wrap(body(*i)))


@op(*UNARY)
def unary(n):
    formula = UNARY[n.proto.op_type]
    return elementwise(n, formula, [n[0]])


@op(*FUNCTIONS)
def function(n):
    own, formula = FUNCTIONS[n.proto.op_type]
    if not language_has(own.split("(")[0]):
        own = formula
    if own is None:
        raise NotExpressible(f"function {n.proto.op_type.lower()}")
    return elementwise(n, own, [n[0]])


@op(*PARAMETRIC)
def parametric(n):
    formula, defaults = PARAMETRIC[n.proto.op_type]
    return elementwise(n, formula, [n[0]], **{k: number(n.get(k, v)) for k, v in defaults.items()})


def number(value):
    return f"({float(value)!r})".replace("e+", "e") if value < 0 else repr(float(value)).replace("e+", "e")


@op(*BINARY)
def binary(n):
    return elementwise(n, BINARY[n.proto.op_type], n.inputs())


@op(*COMPARE)
def compare(n):
    return elementwise(n, COMPARE[n.proto.op_type], n.inputs(), BOOL)


@op(*VARIADIC)
def variadic(n):
    total = n[0]
    for i in range(1, len(n)):
        total = elementwise(n, VARIADIC[n.proto.op_type], [total, n[i]])
    if n.proto.op_type == "Mean":
        return elementwise(n, f"{{0}} / {len(n)}", [total])
    return total if len(n) > 1 else elementwise(n, "{0}", [total])


@op("Div")
def div(n):
    a, b = n[0], n[1]
    if a.kind.is_float:
        return elementwise(n, "{0} / {1}", [a, b])
    if not a.kind.signed or a.kind.text in ("u8", "u32"):
        return elementwise(n, "{0} / {1}", [a, b])
    return elementwise(n, "if ({0} < 0) != ({1} < 0) then -(abs({0}) / abs({1})) else abs({0}) / abs({1})", [a, b])  # towards zero; / floors


@op("Mod")
def mod(n):
    a, b = n[0], n[1]
    if not n.get("fmod", 0):
        return elementwise(n, "{0} % {1}", [a, b])
    return elementwise(n, "if {0} < 0 then -(abs({0}) % abs({1})) else {0} % abs({1})", [a, b])  # the sign of the dividend


@op("Pow")
def power(n):
    a, b = n[0], n[1]
    if a.kind.is_int and b.kind.is_int:
        return (
            elementwise(n, "prod(r in 0..64 if r < i64({1}): {0})", [a, b])
            if a.kind.text == "i64"
            else elementwise(n, f"{a.kind.text}(prod(r in 0..64 if r < i64({{1}}): {{0}}))", [a, b])
        )
    if a.kind.is_int:
        return elementwise(n, f"{a.kind.text}(f64({{0}}) ^ f64({{1}}))", [a, b])
    return elementwise(n, f"{{0}} ^ {a.kind.text}({{1}})", [a, b])


@op("IsInf")
def is_inf(n):
    parts = [f"{{0}} == {sign}{n[0].kind.text}(inf)" for sign, which in (("", "detect_positive"), ("-", "detect_negative")) if n.get(which, 1)]
    return elementwise(n, " || ".join(parts) or "isnan({0}) && !isnan({0})", [n[0]], BOOL)


@op("Gelu")
def gelu(n):
    if n.get("approximate", "none") == "tanh":
        return elementwise(n, "0.5 * {0} * (1 + tanh(0.7978845608028654 * ({0} + 0.044715 * {0}^3)))", [n[0]])
    return elementwise(n, "0.5 * {0} * (1 + erf({0} / sqrt(2)))", [n[0]])


@op("Clip")
def clip(n):
    result = n[0]
    for i, formula, attribute in ((1, "max({0}, {1})", "min"), (2, "min({0}, {1})", "max")):
        if n.has(i):
            result = elementwise(n, formula, [result, n[i]])
        elif attribute in n.attributes:
            result = elementwise(n, formula, [result, n.graph.constant(np.float32(n.get(attribute)))])
    return result if result is not n[0] else elementwise(n, "{0}", [result])


@op("Where")
def where(n):
    return elementwise(n, "if {0} then {1} else {2}", n.inputs(), n[1].kind)


@op("Cast", "CastLike")
def cast(n):
    to = kind_of(dtype_of(n.get("to"))) if n.proto.op_type == "Cast" else n[1].kind
    return cast_to(n, n[0], to)


def cast_to(n, tensor, to):
    if tensor.kind == to:
        return elementwise(n, "{0}", [tensor])
    return elementwise(n, f"{to.text}({{0}})", [tensor], to)


# Bits of integers, which the language takes by division: / and % floor, so that bit b of a negative number is that of its complement of two.
def width(kind):
    return kind.bits or {"u8": 8, "i32": 32, "u32": 32, "i64": 64}[kind.text]


BITWISE = {"BitwiseAnd": "{0} * {1}", "BitwiseOr": "max({0}, {1})", "BitwiseXor": "abs({0} - {1})"}


@op(*BITWISE)
def bitwise(n):
    kind, bits = n[0].kind, width(n[0].kind)
    signed = kind.signed and kind.text[0] == "i"

    def bit(e, b):
        return f"i64({e}) / {1 << b} % 2" if b < 63 else f"(if i64({e}) < 0 then 1 else 0)"

    terms = []
    for b in range(bits):
        weight = literal(-(1 << b) if b == bits - 1 and (signed or bits == 64) else 1 << b, KINDS["int64"])
        terms.append(
            f"({BITWISE[n.proto.op_type].format(f'({bit(chr(123) + str(0) + chr(125), b)})', f'({bit(chr(123) + str(1) + chr(125), b)})')}) * ({weight})"
        )
    return elementwise(n, f"{kind.text}({' + '.join(terms)})", n.inputs())


@op("BitwiseNot")
def bitwise_not(n):
    if n[0].kind.signed and n[0].kind.text[0] == "i":
        return elementwise(n, "-1 - {0}", [n[0]])
    return elementwise(n, f"{n[0].kind.text}({(1 << width(n[0].kind)) - 1} - i64({{0}}))", [n[0]])


@op("BitShift")
def shift(n):
    sign = "*" if n.get("direction") == "LEFT" else "/"
    kind = n[0].kind
    return elementwise(n, f"{kind.text}(i64({{0}}) {sign} prod(r in 0..64 if r < i64({{1}}): i64(2)))", n.inputs())


@op("BitCast")
def bit_cast(n):
    to = kind_of(dtype_of(n.get("to")))
    a, b = n[0].kind, to
    if a.is_int and b.is_int and width(a) == width(b):
        return elementwise(n, f"{b.text}({{0}})", [n[0]], b) if b.text != "i32" or b.bits == 0 else elementwise(n, b.wrap("{0}"), [n[0]], b)
    if a.is_bool and b.is_int:
        return elementwise(n, f"{b.text}({{0}})", [n[0]], b)
    raise NotExpressible("bits of floats as integers")


@op("Dropout")
def dropout(n):
    training = n.has(2) and bool(n.known(2))
    ratio = float(n.known(1, np.float32(n.get("ratio", 0.5))))
    if training and ratio > 0:
        raise NotExpressible("random numbers of another generator")
    y = elementwise(n, "{0}", [n[0]])
    return (y, n.graph.define(BOOL, n[0].shape, lambda *i: "true", "mask")) if n.wants(1) else y


@op("AffineGrid")
def affine_grid(n):
    theta, size = n[0], [int(v) for v in n.known(1)]
    corners, space = n.get("align_corners", 0), size[2:]
    d = len(space)

    def place(i, extent):  # of a sample, in -1..1
        return f"(2 * f32({i}) / {max(extent - 1, 1)} - 1)" if corners else f"((2 * f32({i}) + 1) / {extent} - 1)"

    def body(b, *rest):
        *at, k = rest
        terms = [f"{theta(b, k, c)} * {place(at[d - 1 - c], space[d - 1 - c])}" for c in range(d)]
        return " + ".join(terms + [theta(b, k, d)])

    return n.define(theta.kind, (size[0], *space, d), body)


@op("Adagrad", "Adam", "Momentum")
def optimizer(n):
    """Updates of weights; tensors come as x1, x2, …, g1, g2, …, and so on."""
    a = {
        k: number(n.get(k, v))
        for k, v in dict(norm_coefficient=0.0, norm_coefficient_post=0.0, epsilon=0.0, decay_factor=0.0, alpha=0.9, beta=0.999).items()
    }
    if "beta" in n.attributes:
        a["beta"] = number(n.get("beta"))
    rate, step, rest = n[0], n[1], [n[i] for i in range(2, len(n))]
    states = {"Adagrad": 3, "Momentum": 3, "Adam": 4}[n.proto.op_type]
    count = len(rest) // states
    results = [[] for _ in range(states - 1)]
    for k in range(count):
        x, g, *s = rest[k::count]
        g = elementwise(n, "{norm} * {0} + {1}", [x, g], norm=a["norm_coefficient"])
        if n.proto.op_type == "Adagrad":
            h = elementwise(n, "{0} + {1} * {1}", [s[0], g])
            new = [
                elementwise(
                    n,
                    "{0} - {3} / (1 + f32({4}) * {decay}) * {1} / (sqrt({2}) + {eps})",
                    [x, g, h, rate, step],
                    decay=a["decay_factor"],
                    eps=a["epsilon"],
                ),
                h,
            ]
        elif n.proto.op_type == "Momentum":
            v = elementwise(n, "{alpha} * {0} + (if {2} > 0 then {beta} else 1) * {1}", [s[0], g, step], **a)
            formula = "{0} - {2} * ({1} + {alpha} * {3})" if n.get("mode") == "nesterov" else "{0} - {2} * {3}"
            new = [elementwise(n, formula, [x, g, rate, v], **a), v]
        else:
            v = elementwise(n, "{alpha} * {0} + (1 - {alpha}) * {1}", [s[0], g], **a)
            h = elementwise(n, "{beta} * {0} + (1 - {beta}) * {1} * {1}", [s[1], g], **a)
            formula = "(1 - {post}) * ({0} - (if {4} > 0 then {3} * sqrt(1 - {beta} ^ f32({4})) / (1 - {alpha} ^ f32({4})) else {3}) * {1} / (sqrt({2}) + {eps}))"
            new = [
                elementwise(n, formula, [x, v, h, rate, step], post=a["norm_coefficient_post"], eps=a["epsilon"], alpha=a["alpha"], beta=a["beta"]),
                v,
                h,
            ]
        for made, t in zip(results, new):
            made.append(t)
    return sum(results, [])

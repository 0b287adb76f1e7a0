"""Windows over images of any number of dimensions: convolutions, pooling, and resizing."""

import numpy as np

from contractions import narrow, saturated, scalar
from graph import I64, KINDS, NotExpressible, literal
from importer import op
from views import flat


class Window:
    """Where a window of an op lies: position o*stride + r*dilation - pad for element r of result o, for each dimension of space."""

    def __init__(self, n, space, size, transposed=False):
        d = len(space)
        self.size, self.space = list(size), list(space)
        self.stride, self.dilation = n.ints("strides", default=[1] * d), n.ints("dilations", default=[1] * d)
        pads = n.ints("pads", default=[0] * 2 * d)
        self.before, self.after = pads[:d], pads[d:]
        self.reach = [(s - 1) * k + 1 for s, k in zip(self.size, self.dilation)]
        auto = n.get("auto_pad", "NOTSET")
        if not transposed:
            if auto.startswith("SAME"):
                for k in range(d):
                    total = max((-(-space[k] // self.stride[k]) - 1) * self.stride[k] + self.reach[k] - space[k], 0)
                    self.before[k] = (total + 1) // 2 if auto == "SAME_LOWER" else total // 2
                    self.after[k] = total - self.before[k]
            ceil = n.get("ceil_mode", 0)
            self.out = []
            for k in range(d):
                room = space[k] + self.before[k] + self.after[k] - self.reach[k]
                count = (-(-room // self.stride[k]) if ceil else room // self.stride[k]) + 1
                if ceil and (count - 1) * self.stride[k] >= space[k] + self.before[k]:
                    count -= 1  # a window that would begin in the padding at the end
                self.out.append(count)

    def ranges(self):
        return ", ".join(f"r{k} in 0..{s}" for k, s in enumerate(self.size))

    def at(self, i):
        """The texts of the indices of the window's element r of result i."""

        def index(k, o):
            text = f"{o}*{self.stride[k]}" if self.stride[k] != 1 else o
            text += f" + r{k}*{self.dilation[k]}" if self.dilation[k] != 1 else f" + r{k}"
            return text + (f" - {self.before[k]}" if self.before[k] else "")

        return [index(k, o) for k, o in enumerate(i)]

    def inside(self, i):
        """The condition that the element lies in the image."""
        return " && ".join(f"0 <= {a} && {a} < {e}" for a, e in zip(self.at(i), self.space))


def convolution(n, x, w, bias, kind=None, left=str, right=str, name=None):
    group = n.get("group", 1)
    window = Window(n, x.shape[2:], w.shape[2:])
    kind, channels, per = kind or x.kind, w.shape[1], w.shape[0] // group
    d = len(window.size)

    def body(b, k, *o):
        of = f"{k}/{per}*{channels} + r{d}" if group > 1 else f"r{d}"
        read = x(b, of, *window.at(o), otherwise=literal(0, x.kind) if left is str else left.outside)
        term = (
            f"{left(read)} * {right(w(k, f'r{d}', *[f'r{j}' for j in range(d)]), k)}"
            if left is not str
            else f"{read} * {w(k, f'r{d}', *[f'r{j}' for j in range(d)])}"
        )
        text = narrow(kind, f"sum({window.ranges()}, r{d} in 0..{channels}: {term})")
        return text + (f" + {bias(k)}" if bias else "")

    return n.define(kind, (x.shape[0], w.shape[0], *window.out), body, name)


@op("Conv")
def conv(n):
    return convolution(n, n[0], n[1], n[2])


class Shifted:
    """Elements of a quantized tensor without their zero point; outside of the tensor stands the zero point."""

    def __init__(self, t, zero):
        self.zero = zero
        self.outside = scalar(zero) if zero else literal(0, t.kind)

    def __call__(self, e, channel=None):
        if self.zero is None:
            return f"i32({e})"
        return f"(i32({e}) - i32({scalar(self.zero) if self.zero.size == 1 else self.zero(channel)}))"


@op("ConvInteger")
def conv_integer(n):
    return convolution(n, n[0], n[1], None, KINDS["int32"], Shifted(n[0], n[2]), Shifted(n[1], n[3]))


@op("QLinearConv")
def qlinear_conv(n):
    product = convolution(n, n[0], n[3], n[8], KINDS["int32"], Shifted(n[0], n[2]), Shifted(n[3], n[5]), "product")
    kind, scale = n[7].kind, lambda k: scalar(n[4]) if n[4].size == 1 else n[4](k)
    return n.define(
        kind,
        product.shape,
        lambda b, k, *o: saturated(kind, f"round(f32({product(b, k, *o)}) * ({scalar(n[1])} * {scale(k)} / {scalar(n[6])})) + f32({scalar(n[7])})"),
    )


@op("ConvTranspose")
def conv_transpose(n):
    x, w, bias, group = n[0], n[1], n[2], n.get("group", 1)
    d = x.rank - 2
    size, space = w.shape[2:], x.shape[2:]
    stride, dilation, extra = n.ints("strides", default=[1] * d), n.ints("dilations", default=[1] * d), n.ints("output_padding", default=[0] * d)
    pads, wanted, auto = n.ints("pads", default=[0] * 2 * d), n.ints("output_shape"), n.get("auto_pad", "NOTSET")
    full = [(space[k] - 1) * stride[k] + extra[k] + (size[k] - 1) * dilation[k] + 1 for k in range(d)]
    if wanted is None and auto.startswith("SAME"):
        wanted = [space[k] * stride[k] for k in range(d)]
    before = pads[:d]
    out = [full[k] - pads[k] - pads[k + d] for k in range(d)]
    if wanted is not None:
        total = [max(f - e, 0) for f, e in zip(full, wanted[-d:])]
        before = (
            [t - t // 2 if auto != "SAME_UPPER" and auto != "NOTSET" else t // 2 for t in total] if auto == "SAME_LOWER" else [t // 2 for t in total]
        )
        out = list(wanted[-d:])
    per_in, per_out = x.shape[1] // group, w.shape[1]
    ranges = ", ".join([f"r{k} in 0..{size[k]}" for k in range(d)] + [f"r{k + d} in 0..{space[k]}" for k in range(d)] + [f"r{2 * d} in 0..{per_in}"])
    taps, places = [f"r{k}" for k in range(d)], [f"r{k + d}" for k in range(d)]

    def body(b, c, *o):
        hits = " && ".join(f"{o[k]} + {before[k]} == {places[k]}*{stride[k]} + {taps[k]}*{dilation[k]}" for k in range(d))
        source = f"{c}/{per_out}*{per_in} + r{2 * d}" if group > 1 else f"r{2 * d}"
        text = f"sum({ranges} if {hits}: {x(b, source, *places)} * {w(source, f'{c}%{per_out}' if group > 1 else c, *taps)})"
        return text + (f" + {bias(c)}" if bias else "")

    return n.define(x.kind, (x.shape[0], per_out * group, *out), body)


@op("MaxPool")
def max_pool(n):
    x = n[0]
    window = Window(n, x.shape[2:], n.ints("kernel_shape"))
    shape, space = (*x.shape[:2], *window.out), x.shape[2:]
    lowest = literal(-np.inf, x.kind) if x.kind.is_float else literal(-128 if x.kind.signed and x.kind.text == "i32" else 0, x.kind)
    y = n.define(x.kind, shape, lambda b, c, *o: f"max({window.ranges()}: {x(b, c, *window.at(o), otherwise=lowest)})")
    if not n.wants(1):
        return y

    def place(b, c, *o):  # the first position of the largest, among all of the tensor
        at = window.at(o)
        if n.get("storage_order", 0):
            position = " + ".join(f"({a})*{int(np.prod(space[:k]))}" for k, a in enumerate(at))
        else:
            position = flat([f"({a})" for a in at], space)
        first = f"min({window.ranges()} if {window.inside(o)} && {x(b, c, *at, otherwise=lowest)} == {y(b, c, *o)}: {position})"
        return f"({b}*{x.shape[1]} + {c}) * {int(np.prod(space))} + {first}"

    return y, n.define(I64, shape, place, n.proto.output[1])


@op("MaxUnpool")
def max_unpool(n):
    """Positions count in a tensor of the size that the window gives; a larger one that is asked for has zeros behind."""
    x, ids, d = n[0], n[1], n[0].rank - 2
    strides, kernel, pads = n.ints("strides", default=[1] * d), n.ints("kernel_shape"), n.ints("pads", default=[0] * 2 * d)
    space = [(e - 1) * strides[k] + kernel[k] - pads[k] - pads[k + d] for k, e in enumerate(x.shape[2:])]
    shape = tuple(int(v) for v in n.known(2)) if n.has(2) else (*x.shape[:2], *space)
    ranges, inner = ", ".join(f"r{k} in 0..{e}" for k, e in enumerate(x.shape[2:])), [f"r{k}" for k in range(d)]

    def body(b, c, *o):
        hits = [f"{ids(b, c, *inner)} == {flat((b, c, *o), (*x.shape[:2], *space))}"] + [
            f"{i} < {e}" for i, e, s in zip(o, space, shape[2:]) if s > e
        ]
        return f"sum({ranges} if {' && '.join(hits)}: {x(b, c, *inner)})"

    return n.define(x.kind, shape, body)


@op("AveragePool")
def average_pool(n):
    x = n[0]
    window = Window(n, x.shape[2:], n.ints("kernel_shape"))
    padded = n.get("count_include_pad", 0)

    def body(b, c, *o):
        total = f"sum({window.ranges()}: {x(b, c, *window.at(o), otherwise=0)})"
        held = (
            f"i64({' && '.join(f'{a} < {e + p}' for a, e, p in zip(window.at(o), window.space, window.after))})"
            if padded
            else f"i64({window.inside(o)})"
        )
        return f"{total} / {x.kind.text}(sum({window.ranges()}: {held}))"

    return n.define(x.kind, (*x.shape[:2], *window.out), body)


@op("LpPool")
def lp_pool(n):
    x, p = n[0], n.get("p", 2)
    window = Window(n, x.shape[2:], n.ints("kernel_shape"))
    return n.define(
        x.kind, (*x.shape[:2], *window.out), lambda b, c, *o: f"sum({window.ranges()}: abs({x(b, c, *window.at(o), otherwise=0)})^{p}) ^ (1/{p})"
    )


@op("GlobalAveragePool", "GlobalMaxPool")
def global_pool(n):
    x = n[0]
    space = x.shape[2:]
    ranges, at = ", ".join(f"r{d} in 0..{e}" for d, e in enumerate(space)), [f"r{d}" for d in range(len(space))]
    text = "max({r}: {x})" if n.proto.op_type == "GlobalMaxPool" else f"sum({{r}}: {{x}}) / {int(np.prod(space))}"
    return n.define(x.kind, (*x.shape[:2], *[1] * len(space)), lambda b, c, *_: text.format(r=ranges, x=x(b, c, *at)))


@op("DeformConv")
def deform_conv(n):
    """A convolution whose taps lie where offsets say, read between elements."""
    x, w, offset, bias, mask = n[0], n[1], n[2], n[3], n[4]
    window, groups, parts = Window(n, x.shape[2:], w.shape[2:]), n.get("group", 1), n.get("offset_group", 1)
    if x.rank != 4:
        raise NotExpressible("DeformConv of other than 2 dimensions")
    kh, kw = w.shape[2:]
    shape = (x.shape[0], x.shape[1], kh * kw, *window.out)

    def sample(b, c, k, i, j):
        part = f"{c}/{x.shape[1] // parts}"
        place = lambda d, base, extent: f"f32({base}) + {offset(b, f'({part}*{kh * kw} + {k})*2 + {d}', i, j)}"
        row = place(0, f"{i}*{window.stride[0]} + {k}/{kw}*{window.dilation[0]} - {window.before[0]}", 0)
        column = place(1, f"{j}*{window.stride[1]} + {k}%{kw}*{window.dilation[1]} - {window.before[1]}", 0)
        value = (
            f"let y = {row} in let x0 = {column} in let v = i64(floor(y)) in let u = i64(floor(x0)) in let s = y - floor(y) in let t = x0 - floor(x0) in "
            f"(1-s)*(1-t)*{x(b, c, 'v', 'u', otherwise=0)} + (1-s)*t*{x(b, c, 'v', 'u+1', otherwise=0)} + s*(1-t)*{x(b, c, 'v+1', 'u', otherwise=0)} + s*t*{x(b, c, 'v+1', 'u+1', otherwise=0)}"
        )
        return f"({value})" + (f" * {mask(b, f'{part}*{kh * kw} + {k}', i, j)}" if mask else "")

    n.graph.names |= {"y", "x0", "v", "u", "s", "t"}
    taps = n.graph.define(x.kind, shape, sample, "taps")
    per_out, per_in = w.shape[0] // groups, w.shape[1]

    def body(b, k, i, j):
        text = f"sum(r0 in 0..{per_in}, r1 in 0..{kh}, r2 in 0..{kw}: {taps(b, f'{k}/{per_out}*{per_in} + r0', f'r1*{kw} + r2', i, j)} * {w(k, 'r0', 'r1', 'r2')})"
        return text + (f" + {bias(k)}" if bias else "")

    return n.define(x.kind, (x.shape[0], w.shape[0], *window.out), body)

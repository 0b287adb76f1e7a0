"""PyTorch: the ops from primitives, eager ("torch-eager") and compiled ("torch-compile"); torch's own hand-written ops
("torch-native"), and these compiled ("torch-native-compile")."""
import importlib
import re

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from ops import ADAM, EPS, SIGMA2, SUITE
from worker import THREADS, Skip, Worker, clock


def torch_ops():
    if SUITE:
        return importlib.import_module(f"{SUITE}.in_torch").ops()

    def gelu(x):
        return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))

    def sigmoid(x):
        return 1 / (1 + torch.exp(-x))

    def softplus(x):
        return torch.clamp(x, min=0) + torch.log1p(torch.exp(-x.abs()))

    def softmax(x):
        e = torch.exp(x - x.amax(-1, keepdim=True).detach())
        return e / e.sum(-1, keepdim=True)

    def batch_norm(x, gamma, beta):
        mu = x.mean((0, 2, 3), keepdim=True)
        var = ((x - mu) ** 2).mean((0, 2, 3), keepdim=True)
        return (x - mu) / torch.sqrt(var + EPS) * gamma[None, :, None, None] + beta[None, :, None, None]

    def layer_norm(x, gamma, beta):
        mu = x.mean(-1, keepdim=True)
        var = ((x - mu) ** 2).mean(-1, keepdim=True)
        return (x - mu) / torch.sqrt(var + EPS) * gamma + beta

    def rms_norm(x, gamma):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS) * gamma

    def group_norm(x, gamma, beta):
        g = x.reshape(16, 8, 8, 32, 32)
        mu = g.mean((2, 3, 4), keepdim=True)
        var = ((g - mu) ** 2).mean((2, 3, 4), keepdim=True)
        y = ((g - mu) / torch.sqrt(var + EPS)).reshape(x.shape)
        return y * gamma[None, :, None, None] + beta[None, :, None, None]

    def cross_entropy(x, labels):
        m = x.amax(-1, keepdim=True).detach()
        lse = torch.log(torch.exp(x - m).sum(-1)) + m[:, 0]
        return lse - x.gather(1, labels[:, None])[:, 0]

    def attention(q, k, v):
        return softmax(q @ k.transpose(-1, -2) * 0.125) @ v

    def lstm_cell(x, h, c, wx, wh, bias):
        z = x @ wx.T + h @ wh.T + bias
        i, f, g, o = z.chunk(4, -1)
        c1 = sigmoid(f) * c + sigmoid(i) * torch.tanh(g)
        return sigmoid(o) * torch.tanh(c1), c1

    def lstm_sequence(x, h0, c0, wx, wh, bias):
        h, c, hs = h0, c0, []
        for xt in x.unbind(0):
            h, c = lstm_cell(xt, h, c, wx, wh, bias)
            hs.append(h)
        return torch.stack(hs)

    def taps(x):
        h, w = x.shape[-2:]
        p = F.pad(x, (1, 1, 1, 1))
        return [p[..., i:i + h, j:j + w] for i in range(3) for j in range(3)]

    def conv3x3(x, w, b):
        cols = torch.stack(taps(x), 2).reshape(8, 32 * 9, 56 * 56)
        y = w.reshape(32, 32 * 9) @ cols + b[:, None]
        return torch.clamp(y, min=0).reshape(8, 32, 56, 56)

    def depthwise(x, w):
        w = w.reshape(64, 9)
        return sum(t * w[None, :, i, None, None] for i, t in enumerate(taps(x)))

    def bilateral(x):
        num = den = 0
        for t in taps(x):
            w = torch.exp(-(t - x) ** 2 / (2 * SIGMA2))
            num, den = num + w * t, den + w
        return num / den

    def huber(x, t):
        d = x - t
        a = d.abs()
        return torch.where(a < 1, 0.5 * d * d, a - 0.5)

    def adam(p, g, m, v):  # in place
        m.copy_(ADAM["b1"] * m + (1 - ADAM["b1"]) * g)
        v.copy_(ADAM["b2"] * v + (1 - ADAM["b2"]) * g * g)
        mh, vh = m / (1 - ADAM["b1"] ** ADAM["t"]), v / (1 - ADAM["b2"] ** ADAM["t"])
        return p.copy_(p - ADAM["lr"] * mh / (torch.sqrt(vh) + ADAM["eps"])), m, v

    def rope(x, cos, sin):
        a, b = x[..., :32], x[..., 32:]
        cos, sin = cos[None, :, None, :], sin[None, :, None, :]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    chain = lambda a, b, d: (a @ b.transpose(-1, -2)) @ d.transpose(-1, -2)
    return {
        "tanh": torch.tanh,
        "gelu_tanh_bias": lambda x, b: gelu(x + b),
        "silu": lambda x: x * sigmoid(x),
        "mish": lambda x: x * torch.tanh(softplus(x)),
        "softplus": softplus,
        "batch_norm_train": batch_norm, "layer_norm": layer_norm, "rms_norm": rms_norm, "group_norm": group_norm,
        "softmax": softmax, "cross_entropy": cross_entropy, "attention": attention,
        "lstm_cell": lstm_cell, "lstm_sequence": lstm_sequence,
        "dense_gelu": lambda x, w, b: gelu(x @ w + b),
        "matmul_chain_512": chain, "matmul_chain_8x8_b1024": chain,
        "conv3x3_bias_relu": conv3x3, "depthwise_conv3x3": depthwise,
        "maxpool2x2": lambda x: x.reshape(16, 64, 28, 2, 28, 2).amax((3, 5)),
        "normalize_bgr": lambda x, mean, scale: (x.flip(1) - mean[:, None, None]) * scale[:, None, None],
        "embedding_sum": lambda table, ids: table[ids].sum(1),
        "huber": huber,
        "bce_with_logits": lambda x, t: torch.clamp(x, min=0) - x * t + torch.log1p(torch.exp(-x.abs())),
        "box_blur3x3": lambda x: sum(taps(x)) * (1 / 9),
        "bilateral3x3": bilateral,
        "adam_step": adam, "rope": rope,
        "swiglu": lambda a, b: a * sigmoid(a) * b,
        "mlp2": lambda x, w1, b1, w2, b2: gelu(x @ w1 + b1) @ w2 + b2,
    }


def torch_native_ops():
    if SUITE:  # its ops call torch's own already
        return {}

    def lstm_sequence(x, h0, c0, wx, wh, bias):  # what nn.LSTM calls; its second bias is zero
        return torch.lstm(x, (h0[None], c0[None]), [wx, wh, bias, torch.zeros_like(bias)],
                          True, 1, 0.0, torch.is_grad_enabled(), False, False)[0]

    step = torch.tensor(float(ADAM["t"]))

    def adam(p, g, m, v):  # what optim.Adam(fused=True) calls: in place
        torch._fused_adam_([p], [g], [m], [v], [], [step], lr=ADAM["lr"], beta1=ADAM["b1"], beta2=ADAM["b2"],
                           weight_decay=0.0, eps=ADAM["eps"], amsgrad=False, maximize=False)
        return p, m, v

    gelu = lambda x: F.gelu(x, approximate="tanh")

    def lstm_cell(x, h, c, wx, wh, bias):
        return torch.lstm_cell(x, (h, c), wx, wh, bias, torch.zeros_like(bias))

    chain = lambda a, b, d: (a @ b.mT) @ d.mT
    return {
        "tanh": torch.tanh, "matmul_chain_512": chain, "matmul_chain_8x8_b1024": chain,
        "gelu_tanh_bias": lambda x, b: gelu(x + b),
        "silu": F.silu, "mish": F.mish, "softplus": F.softplus,
        "batch_norm_train": lambda x, gamma, beta: F.batch_norm(x, None, None, gamma, beta, training=True, eps=EPS),
        "layer_norm": lambda x, gamma, beta: F.layer_norm(x, (1024,), gamma, beta, EPS),
        "rms_norm": lambda x, gamma: F.rms_norm(x, (1024,), gamma, EPS),
        "group_norm": lambda x, gamma, beta: F.group_norm(x, 8, gamma, beta, EPS),
        "softmax": lambda x: F.softmax(x, -1),
        "cross_entropy": lambda x, labels: F.cross_entropy(x, labels, reduction="none"),
        "attention": F.scaled_dot_product_attention,
        "lstm_cell": lstm_cell, "lstm_sequence": lstm_sequence,
        "dense_gelu": lambda x, w, b: gelu(torch.addmm(b, x, w)),
        "conv3x3_bias_relu": lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1)),
        "depthwise_conv3x3": lambda x, w: F.conv2d(x, w[:, None], padding=1, groups=64),
        "maxpool2x2": lambda x: F.max_pool2d(x, 2),
        "embedding_sum": lambda table, ids: F.embedding_bag(ids, table, mode="sum"),
        "huber": lambda x, t: F.huber_loss(x, t, reduction="none"),
        "bce_with_logits": lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction="none"),
        "box_blur3x3": lambda x: F.avg_pool2d(x[:, None], 3, 1, 1)[:, 0],
        "adam_step": adam,
        "swiglu": lambda a, b: F.silu(a) * b,
        "mlp2": lambda x, w1, b1, w2, b2: torch.addmm(b2, gelu(torch.addmm(b1, x, w1)), w2),
    }


class TorchWorker(Worker):
    def __init__(self, peer):
        torch.set_num_threads(THREADS)
        torch.manual_seed(0)
        self.compiled, self.native = "compile" in peer, "native" in peer
        self.fns = torch_native_ops() if self.native else torch_ops()
        self.codes = []
        if self.compiled:
            from torch._inductor.graph import GraphLowering
            GraphLowering.save_output_code = staticmethod(self.codes.append)
            x = torch.ones(1024, requires_grad=True)  # the first compile of a process also builds headers, probes ISAs
            torch.autograd.grad(torch.compile(lambda x: torch.tanh(x) * 3)(x).sum(), x)
        self.version = torch.__version__

    def load(self, op, ins, cts):
        if op.name not in self.fns:
            raise Skip("no library op")
        if self.native and self.compiled and "native_compile" not in op.tags:
            raise Skip("decomposes to the primitives")
        self.op, fn = op, self.fns[op.name]
        if self.compiled:
            torch._dynamo.reset()
            fn = torch.compile(fn, dynamic=False)
        self.args = []
        for k, v in ins.items():
            t = torch.from_numpy(v.astype(np.int64) if v.dtype == np.int32 else v.copy())
            self.args.append(t.requires_grad_(k in op.diff))
        self.dys = tuple(torch.from_numpy(c.copy()) for c in cts.values())
        wanted = [a for a in self.args if a.requires_grad]

        def infer():
            with torch.no_grad():
                return fn(*self.args)
        self.infer = infer
        self.forward = (lambda: fn(*self.args)) if op.diff else None
        self.backward = lambda y: torch.autograd.grad(y, wanted, self.dys)
        self.codes.clear()
        cold = {"infer": seconds(lambda: setattr(self, "first", [t.clone() for t in tuple_of(infer())]))}
        infer_codes, self.grads = len(self.codes), ()
        if op.diff:
            cold["train"] = seconds(lambda: setattr(self, "grads", self.backward(self.forward())))
        return self.describe_compiled(cold, infer_codes) if self.compiled else self.describe_eager(fn)

    def describe_compiled(self, cold, infer_codes):
        warm = {"infer": seconds(self.infer)}
        kinds = [inductor_kernels(c) for c in self.codes]
        counts = {"infer": kinds[:infer_codes]}
        if self.op.diff:
            warm["train"] = seconds(lambda: self.backward(self.forward()))
            counts.update(fwd=kinds[infer_codes:-1], bwd=kinds[-1:])
        return {"compile_s": {k: max(0.0, cold[k] - warm[k]) for k in cold}, "saved": self.saved(), "kernel_kinds": counts,
                "kernels": with_total({k: sum(sum(d.values()) for d in v) for k, v in counts.items()})}

    def describe_eager(self, fn):
        copies = [a.detach().clone() for a in self.args]  # some ops work in place
        with torch.no_grad(), AtenCounter() as infer:
            fn(*copies)
        counts = {"infer": infer.kinds}
        if self.op.diff:
            with AtenCounter() as forward:
                y = self.forward()
            with AtenCounter() as backward:
                self.backward(y)
            counts.update(fwd=forward.kinds, bwd=backward.kinds)
        return {"saved": self.saved(), "kernel_kinds": counts,
                "kernels": with_total({k: sum(v.values()) for k, v in counts.items()})}

    def saved(self):
        """Bytes of the storages that autograd keeps, each counted once."""
        if not self.op.diff:
            return {}
        kept = {}

        def pack(t):
            s = t.untyped_storage()
            kept[s.data_ptr()] = (s.nbytes(), t)
            return t
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            y = self.forward()
        ins = {a.untyped_storage().data_ptr() for a in self.args}
        outs = {t.untyped_storage().data_ptr() for t in tuple_of(y)}
        r = {"inputs": 0, "outputs": 0, "extra": 0}
        for p, (n, _) in kept.items():
            r["inputs" if p in ins else "outputs" if p in outs else "extra"] += n
        return r

    def check(self):
        return [t.detach().numpy() for t in self.first], [g.detach().numpy() for g in self.grads]

    def reference(self, op, ins, cts):
        """The primitive formula in float64."""
        args = [torch.from_numpy(v.astype(np.int64 if v.dtype == np.int32 else np.float64)).requires_grad_(k in op.diff)
                for k, v in ins.items()]
        ys = tuple_of(torch_ops()[op.name](*args))
        g = torch.autograd.grad(ys, [a for a in args if a.requires_grad],
                                [torch.from_numpy(c.astype(np.float64)) for c in cts.values()]) if op.diff else ()
        return [t.detach().numpy() for t in ys], [t.numpy() for t in g]

    def drop(self):
        self.args = self.dys = self.first = self.grads = self.infer = self.forward = self.backward = None


def tuple_of(y):
    return y if isinstance(y, tuple) else (y,)


def seconds(call):
    start = clock()
    call()
    return clock() - start


def with_total(kernels):
    return {**kernels, "total": kernels["fwd"] + kernels["bwd"]} if "bwd" in kernels else kernels


class AtenCounter(TorchDispatchMode):
    """Counts ATen calls that are not views."""

    def __init__(self):
        super().__init__()
        self.kinds = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        views = any(a.alias_info is not None and not a.alias_info.is_write for a in func._schema.arguments)
        name = func.overloadpacket.__name__
        if not views and name not in ("detach", "_unsafe_view"):
            self.kinds[name] = self.kinds.get(name, 0) + 1
        return func(*args, **(kwargs or {}))


def inductor_kernels(code):
    """Calls in a generated wrapper, by kind: fused C++ kernels and library calls."""
    kinds = {}
    for line in code[code.index("def call("):].splitlines():
        if re.match(r"\s+(?:kernels\.)?(cpp_fused|cpp_)\w*\(", line):
            kinds["fused"] = kinds.get("fused", 0) + 1
        elif m := re.search(r"(extern_kernels\.\w+|torch\.ops\.\w+\.\w+|aten\.\w+)\S*\(", line):
            kinds[m[1].split(".")[-1]] = kinds.get(m[1].split(".")[-1], 0) + 1
    return kinds

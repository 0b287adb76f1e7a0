"""The engines on a GPU. All work on the same tensors of PyTorch's, on its current stream; JAX has copies of its own.

An engine is loaded with an op and has calls that enqueue and return: infer(), forward() -> state, backward(state). Their ops are those
of ../compare's engines: torch_ops, torch_native_ops, JaxWorker."""
import numpy as np
import torch

import torch_engine
from library import Library
from worker import Skip


def on_gpu(array):
    return torch.from_numpy(np.array(array)).cuda()


class Xhat:
    """The bundle's libraries: results, gradients and the stash go into tensors that exist before, as for any kernel of torch's."""

    def __init__(self, bundle):
        self.bundle, self.version = bundle, bundle["made"]

    def load(self, op, ins, cts):
        if op.name not in self.bundle["ops"]:
            raise Skip("xhat has no such op")
        self.library = Library(op.name, self.bundle["ops"][op.name])
        shaped = {}
        for name, array in ins.items():
            shaped[name] = on_gpu(array)
            if name in op.diff:
                shaped["grad_" + name] = torch.empty_like(shaped[name])
        for name, ct in cts.items():
            shaped[name] = torch.empty(ct.shape, device="cuda")
            shaped["d" + name] = on_gpu(ct)
        self.tensors = shaped
        # The number of a scalar is read here, once; the others read it on the device.
        self.pointers = {name: t.data_ptr() if t.dim() or name not in ins else t.item() for name, t in shaped.items()}
        self.stash = torch.empty(max(1, self.library.stash_bytes), dtype=torch.uint8, device="cuda")
        self.out, self.diff = list(op.outs), list(op.diff)
        self.saved = self.library.stash_bytes
        self.infer()  # loads the code
        torch.cuda.synchronize()

    def call(self, side):
        self.library.call(side, torch.cuda.current_stream().cuda_stream, self.pointers, self.stash.data_ptr())
        return self

    def infer(self):
        self.call("infer")
        return [self.tensors[n] for n in self.out]

    def forward(self):
        return self.call("forward")

    def backward(self, _):
        self.call("backward")
        return [self.tensors["grad_" + n] for n in self.diff]


class Torch:
    """torch-eager, torch-compile: the ops from primitives. torch-native: torch's own, which call cuBLAS, cuDNN and hand-written kernels."""

    def __init__(self, name):
        self.compiled, native = "compile" in name, "native" in name
        # Products and convolutions in f32, as all others compute them.
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        with torch.device("cuda"):
            self.fns = torch_engine.torch_native_ops() if native else torch_engine.torch_ops()
        self.version = torch.__version__

    def load(self, op, ins, cts):
        if op.name not in self.fns:
            raise Skip("no library op")
        fn = self.fns[op.name]
        if self.compiled:
            torch._dynamo.reset()
            fn = torch.compile(fn, dynamic=False)
        self.args = [on_gpu(v.astype(np.int64) if v.dtype == np.int32 else v).requires_grad_(k in op.diff) for k, v in ins.items()]
        self.dys = tuple(on_gpu(c) for c in cts.values())
        self.wanted = [a for a in self.args if a.requires_grad]
        self.fn = fn
        self.saved = None

    def infer(self):
        with torch.no_grad():
            return torch_engine.tuple_of(self.fn(*self.args))

    def forward(self):
        return self.fn(*self.args)

    def backward(self, y):
        return torch.autograd.grad(y, self.wanted, self.dys)


class Jax:
    """jax.jit on primitives. Its calls are measured by the clock, for it has no events on torch's stream."""

    def __init__(self):
        import jax
        import jax_engine
        if jax.default_backend() != "gpu":
            raise ImportError("this JAX has no GPU")
        # Products and convolutions in f32, as all others compute them.
        jax.config.update("jax_default_matmul_precision", "highest")
        self.version = jax.__version__
        self.wait, self.jax = jax.block_until_ready, jax
        self.worker = jax_engine.JaxWorker("jax")

    def load(self, op, ins, cts):
        self.jax.block_until_ready = self.wait
        self.worker.load(op, ins, cts)
        self.first = self.worker.check()
        self.jax.block_until_ready = lambda x: x  # its calls wait; from here on they only enqueue, as those of the others
        self.worker.load(op, ins, cts)
        self.infer, self.forward, self.backward = self.worker.infer, self.worker.forward, self.worker.backward
        self.saved = None


ENGINES = ("xhat", "torch-eager", "torch-compile", "torch-native", "jax")


def make(name, bundle):
    """ImportError: why it is not there."""
    if name == "xhat":
        return Xhat(bundle)
    return Jax() if name == "jax" else Torch(name)

"""A block of a transformer in PyTorch, forward and backward, of which norm, gate and residual are one op of xhat or PyTorch's own; in turns.

    PYTHONPATH=build/python .deps/compare-venv/bin/python python/bench/block.py [--threads 2] [--rounds 15]

x -> x + gain * rms_norm(silu(a) * b) with [a, b] = x W, as in torch_block.py. Prints the least of all rounds, and ratios of the time of each to that of
torch.compile with xhat's op in it (above 1: slower). `part` is norm, gate and residual alone, without the product.
"""
import argparse
import time

import torch

import xhat
import xhat.torch

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--rounds", type=int, default=15)
options = parser.parse_args()
torch.set_num_threads(options.threads)

gated_norm = xhat.torch.custom_op(xhat.op("""op gated_norm(x: f32[N,D], h: f32[N,2*D], gain: f32[D]) -> (y) {
  a[n, d in 0..D] = h[n,d] * sigmoid(h[n,d]) * h[n,d+D]
  y[n,d] = x[n,d] + gain[d] * a[n,d] / sqrt(mean(k: a[n,k] * a[n,k]) + 1e-6)
}""", threads=options.threads))


def plain(x, h, gain):
    a, gate = h.chunk(2, dim=1)
    a = torch.nn.functional.silu(a) * gate
    return x + gain * a * torch.rsqrt(a.square().mean(1, keepdim=True) + 1e-6)


def block(part):
    return lambda x, h, gain, w: part(x, x @ w, gain)


def alone(part):
    return lambda x, h, gain, w: part(x, h, gain)


def measure(shape, make):
    n, d = shape
    torch.manual_seed(0)
    tensors = [torch.randn(n, d), torch.randn(n, 2 * d), torch.ones(d), torch.randn(d, 2 * d) / d**0.5]
    cotangent = torch.randn(n, d)
    ways = {"xhat, compiled": torch.compile(make(gated_norm), fullgraph=True), "xhat, eager": make(gated_norm),
            "torch.compile": torch.compile(make(plain), fullgraph=True), "torch, eager": make(plain)}
    times = {name: [] for name in ways}

    def run(way):
        inputs = [t.detach().requires_grad_() for t in tensors]
        start = time.perf_counter()
        y = way(*inputs)
        y.backward(cotangent)
        taken = time.perf_counter() - start
        return taken, y.detach(), inputs[0].grad

    _, wanted, gradient = run(ways["torch, eager"])
    for way in ways.values():
        for _ in range(3):
            _, y, g = run(way)
        torch.testing.assert_close(y, wanted, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(g, gradient, rtol=1e-3, atol=1e-3)
    for _ in range(options.rounds):
        for name, way in ways.items():
            times[name].append(run(way)[0] * 1e3)
    least = {name: min(t) for name, t in times.items()}
    base = least["xhat, compiled"]
    return "  ".join(f"{name} {ms:8.3f} ms ({ms / base:4.2f})" for name, ms in least.items())


for shape in [(64, 256), (512, 1024), (4096, 1024)]:
    torch._dynamo.reset()
    print(f"part  {shape}: {measure(shape, alone)}", flush=True)
    print(f"block {shape}: {measure(shape, block)}", flush=True)

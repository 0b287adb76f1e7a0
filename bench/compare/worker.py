"""The program's side of the protocol (see run.py) for engines in Python: python worker.py PEER.

An engine is a Worker: it loads an op and has calls that block until their result is there,
  infer()           forward alone
  forward()         forward that keeps what the backward needs; returns what backward() is given
  backward(state)   the gradients
  total()           both as one call, where the engine has that
"""
import gc
import json
import math
import os
import sys
import time
import traceback

import numpy as np

import data
from ops import OPS

clock = time.perf_counter
THREADS = int(os.environ.get("COMPARE_THREADS", "2"))
LONG_CALL = 0.5  # seconds: a call this long needs no uncounted one before it


class Skip(Exception):
    """Why an engine leaves an op out."""


class Worker:
    forward = backward = total = None

    def calibrate(self):
        """Times one warm call of each phase: how many make a sample."""
        t = clock()
        self.infer()
        self.t_infer, self.t_train = clock() - t, 0
        if self.op.diff:
            t = clock()
            self.backward(self.forward())
            self.t_train = clock() - t

    def mean(self, call, seconds, min_ms):
        if seconds < LONG_CALL:
            call()
        n = calls(seconds, min_ms)
        start = clock()
        for _ in range(n):
            call()
        return (clock() - start) / n * 1e3

    def time(self, min_ms):
        sample = {"infer": self.mean(self.infer, self.t_infer, min_ms)}
        if not self.op.diff:
            return sample
        if self.t_train < LONG_CALL:
            self.backward(self.forward())
        n, fwd, bwd = calls(self.t_train, min_ms), 0, 0
        for _ in range(n):
            t0 = clock()
            state = self.forward()
            t1 = clock()
            grads = self.backward(state)
            t2 = clock()
            fwd, bwd = fwd + t1 - t0, bwd + t2 - t1
            del state, grads
        sample.update(fwd=fwd / n * 1e3, bwd=bwd / n * 1e3, total=(fwd + bwd) / n * 1e3)
        if self.total:  # whichever way is the quicker one
            sample["total"] = min(sample["total"], self.mean(self.total, self.t_train, min_ms))
        return sample


def calls(seconds, min_ms):
    return 1 if seconds * 1e3 >= min_ms else min(1000, math.ceil(min_ms / (seconds * 1e3)))


def answer(worker, command, a):
    if command == "load":
        op = OPS[a[0]]
        try:
            described = worker.load(op, *data.read(op, a[1]))
        except Skip as why:
            return {"skip": str(why)}
        worker.calibrate()
        return described
    if command in ("check", "reference"):
        if command == "reference":
            op = OPS[a[2]]
            y, g = worker.reference(op, *data.read(op, a[0]))
        else:
            op, (y, g) = worker.op, worker.check()
        for name, value in [*zip([f"y.{n}" for n in op.outs], y), *zip([f"g.{n}" for n in op.diff], g)]:
            np.save(f"{a[0]}/{a[1]}.{name}.npy", np.asarray(value))
        return {}
    if command == "time":
        return worker.time(float(a[0]))
    if command == "drop":
        worker.drop()
        gc.collect()
        return {}
    return {"error": f"unknown command {command}"}


def main(peer):
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print does not belong in the replies

    def reply(object):
        replies.write(json.dumps(object) + "\n")
        replies.flush()

    start = clock()
    try:
        if peer.startswith("jax"):
            from jax_engine import JaxWorker as Engine
        else:
            from torch_engine import TorchWorker as Engine
        worker = Engine(peer)
    except ImportError as e:
        return reply({"error": str(e)})
    gc.disable()
    reply({"version": worker.version, "startup_s": clock() - start})
    for line in sys.stdin:
        command, *a = line.split()
        try:
            reply(answer(worker, command, a))
        except Exception as e:  # recorded by the driver, which goes on with the next op
            traceback.print_exc()
            reply({"error": f"{type(e).__name__}: {e}"[:300]})


if __name__ == "__main__":
    import worker  # engines import Skip from this module, which under the name __main__ would be another one
    worker.main(sys.argv[1])

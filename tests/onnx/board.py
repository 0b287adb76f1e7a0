#!/usr/bin/env python3
"""board.py [OPTIONS] [NAME…]: ONNX's backend node tests by xhat; prints what passed, what is not expressible and why, and what failed.

board.py                    all cases, in some processes; the table
board.py softmax            cases whose name contains a word; each with its verdict
board.py --show NAME        the program of a case
board.py --gradients        derivatives of float cases too: `check` of ops, against finite differences
board.py --json FILE        verdicts as lines of JSON, appended to the file as they come
"""

import argparse
import collections
import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import sys
import time
import traceback

os.environ.setdefault("XHAT_CACHE_DIR", "")
import numpy as np
import onnx
from onnx import numpy_helper

import ops  # noqa: F401, registers all
from graph import CARRIER, NotExpressible
from importer import Import, dtype_of

import xhat

CASES = pathlib.Path(onnx.__file__).parent / "backend/test/data/node"


def arrays(folder, names, prefix):
    result = {}
    for k, info in enumerate(names):
        path = folder / f"{prefix}_{k}.pb"
        if not path.exists():
            continue
        kind = info.type.WhichOneof("value")
        if kind != "tensor_type":
            raise NotExpressible("sequences and optional values")
        dtype_of(info.type.tensor_type.elem_type)
        tensor = onnx.TensorProto()
        tensor.ParseFromString(path.read_bytes())
        result[info.name] = numpy_helper.to_array(tensor)
    return result


def load(name):
    model = onnx.load(CASES / name / "model.onnx")
    folder = CASES / name / "test_data_set_0"
    return model, arrays(folder, model.graph.input, "input"), arrays(folder, model.graph.output, "output")


def carried(value, kind):
    """The array as the type that the program declares."""
    return (
        np.ascontiguousarray(value).reshape(value.shape).astype(CARRIER[kind.text], copy=False)
        if kind.bits
        else np.ascontiguousarray(value).reshape(value.shape)
    )


def tolerances(name):
    data = CASES / name / "data.json"
    given = json.loads(data.read_text()) if data.exists() else {}
    return dict(rtol=given.get("rtol", 1e-3), atol=given.get("atol", 1e-7))


def run(name, gradients=False):
    """Of a case: the verdict, why, and how long the engine took."""
    text, began = "", time.time()
    try:
        model, inputs, expected = load(name)
        case = Import(model, inputs)
        text, began = case.text, time.time()
        op = xhat.op(text, threads=1)
        results = op(**{k: carried(v, case.kinds[k]) for k, v in case.parameters.items()})
        results = results if isinstance(results, tuple) else (results,)
        for result, tensor, (output, value) in zip(results, case.outputs, expected.items(), strict=True):
            result = np.asarray(result)
            assert result.shape == value.shape, f"{output}: shape {result.shape} instead of {value.shape}"
            result = result.astype(value.dtype) if tensor.kind.bits else result
            assert result.dtype == value.dtype, f"{output}: type {result.dtype} instead of {value.dtype}"
            if value.dtype.name == "bfloat16":
                result, value = result.astype(np.float32), value.astype(np.float32)
            np.testing.assert_allclose(result, value, err_msg=output, **tolerances(name))
        if gradients:
            return gradient(op, case, name, text, began)
        wide = any(k.bits for k in case.kinds.values()) or any(t.kind.bits for t in case.outputs)
        return name, "passed", "in a wider type" if wide else "taken values" if case.taken else "", time.time() - began, text
    except NotExpressible as e:
        return name, "not expressible", str(e), 0, text
    except xhat.Error as e:
        return name, "failed", f"refused: {e}", time.time() - began, text
    except AssertionError as e:
        return name, "failed", "wrong: " + " ".join(str(e).split())[:300], time.time() - began, text
    except Exception as e:  # of the importer itself
        where = traceback.extract_tb(e.__traceback__)[-1]
        return name, "failed", f"importer: {type(e).__name__}: {e} ({os.path.basename(where.filename)}:{where.lineno})", 0, text


def gradient(op, case, name, text, began):
    if not op.gradients or not any(t.kind.is_float for t in case.outputs):
        return name, "not expressible", "no gradient", 0, text
    report = op.check()
    return name, "passed" if report else "failed", "" if report else f"gradient: {report}", time.time() - began, text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--gradients", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--timeout", type=float, default=120, help="seconds for a case")
    options = parser.parse_args()
    names = sorted(p.name for p in CASES.iterdir() if (p / "model.onnx").exists() and (not options.names or any(n in p.name for n in options.names)))
    if options.show:
        for name in names:
            try:
                print(f"# {name}\n{Import(*load(name)[:2]).text}")
            except NotExpressible as e:
                print(f"# {name}: not expressible: {e}")
        return
    began = time.time()
    verdicts = all_of(names, options)
    if options.names or options.gradients:
        for name, verdict, why, seconds, _ in verdicts:
            print(f"{verdict:15} {name} {seconds:.1f} s {why}")
    table(verdicts)
    print(f"{time.time() - began:.0f} s")
    sys.exit(any(v[1] == "failed" for v in verdicts))


def child(names, gradients, pipe):
    for name in names:
        pipe.send(run(name, gradients))
    pipe.close()


def all_of(names, options):
    """The verdicts, by processes that are replaced when a case ends or holds up one."""
    waiting, running, verdicts = list(names), {}, []
    size = max(1, min(200, len(names) // options.jobs))  # the first case of a process loads Halide
    while waiting or running:
        while waiting and len(running) < options.jobs:
            batch, waiting = waiting[:size], waiting[size:]
            mine, theirs = multiprocessing.get_context("fork").Pipe(False)
            process = multiprocessing.get_context("fork").Process(target=child, args=(batch, options.gradients, theirs))
            process.start()
            theirs.close()
            running[mine] = [process, batch, time.time()]
        for pipe in multiprocessing.connection.wait(list(running), timeout=1):
            process, batch, _ = running[pipe]
            try:
                verdict = pipe.recv()
                verdicts.append(verdict)
                if options.json:
                    with open(options.json, "a") as file:
                        file.write(json.dumps(verdict) + "\n")
                if verdict[1] == "failed":
                    print(f"failed {verdict[0]}: {verdict[2].splitlines()[0]}", file=sys.stderr, flush=True)
                running[pipe][1], running[pipe][2] = batch[1:], time.time()
            except EOFError:
                process.join()
                if batch:
                    verdicts.append((batch[0], "failed", f"crash: exit status {process.exitcode}", 0, ""))
                    waiting = batch[1:] + waiting
                del running[pipe]
        for pipe, (process, batch, since) in list(running.items()):
            if batch and time.time() - since > options.timeout:
                process.kill()
                process.join()
                verdicts.append((batch[0], "failed", f"took more than {options.timeout:.0f} s", options.timeout, ""))
                waiting = batch[1:] + waiting
                del running[pipe]
    return sorted(verdicts)


def table(verdicts):
    count = collections.Counter(v[1] for v in verdicts)
    reasons = collections.Counter(v[2] for v in verdicts if v[1] == "not expressible")
    print(f"{len(verdicts)} cases\n{count['passed']:5} passed")
    wide = sum(v[2] == "in a wider type" for v in verdicts)
    if wide:
        print(f"{wide:11} of these with integers that are carried in a wider type")
    print(f"{count['not expressible']:5} not expressible")
    for reason, k in reasons.most_common():
        print(f"{k:11} {reason}")
    print(f"{count['failed']:5} failed")
    for name, verdict, why, *_ in verdicts:
        if verdict == "failed":
            print(f"            {name}: {why.splitlines()[0] if why else ''}")
    slow = sorted(verdicts, key=lambda v: -v[3])[:3]
    print("slowest: " + ", ".join(f"{v[0]} {v[3]:.1f} s" for v in slow))


if __name__ == "__main__":
    main()

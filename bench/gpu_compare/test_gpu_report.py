"""The rounds, with engines and a clock of ours, and the report of a recorded run: python3 test_gpu_report.py. Standard library only."""
import sys
import types
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "compare")]
import gpu_report  # noqa: E402
import gpu_run  # noqa: E402
from ops import OPS  # noqa: E402


def phase(ms):
    return {"min": ms * 0.9, "median": ms, "max": ms * 2, "n": 50}


def row(forward, backward):
    return {"infer": phase(forward), "fwd": phase(forward), "bwd": phase(backward), "total": phase(forward + backward),
            "error_vs_f64": {"y": 1e-7, "g": 2e-7}}


def recorded():
    """Two ops on a device that copies 1000 GB in a second."""
    sides = lambda f, b: {"forward": {"bytes": f, "kernels": 1}, "backward": {"bytes": b, "kernels": 1}}
    return {"date": "2026-01-02", "device": "a device", "driver": "13.0", "made": "2026-01-01", "rounds": 50, "copy_gbps": 1000.0,
            "engines": {"xhat": {"version": "1"}, "torch-compile": {"version": "2"}, "torch-native": {"version": "2"}, "jax": {"error": "no GPU"}},
            "plan": {"tanh": sides(800_000_000, 1_000_000_000), "huber": sides(900_000_000, 500_000_000)},
            "ops": {"tanh": {"xhat": row(1, 1), "torch-compile": row(2, 4)},
                    "huber": {"xhat": row(1, 1), "torch-compile": row(0.5, 1), "torch-native": {"error": "wrong results"}}}}


class Skip(Exception):
    pass


class Engine:
    """Calls that take so long, by the clock below; or none."""
    saved, now, order = 0, 0.0, []

    def __init__(self, name, ms, trouble=None):
        self.name, self.ms, self.trouble = name, ms, trouble

    def load(self, op, ins, cts):
        if self.trouble:
            raise self.trouble

    def call(self, ms):
        Engine.now += ms
        Engine.order.append(self.name)
        return [self]

    def infer(self):
        return self.call(self.ms)

    def forward(self):
        return self.call(2 * self.ms)

    def backward(self, state):
        assert state == [self], "a backward without the state of its forward"
        return self.call(3 * self.ms)


class Clock:
    def ms(self, call):
        start = Engine.now
        result = call()
        return Engine.now - start, result

    def read(self, ms):
        return ms


def rounds():
    sys.modules["data"] = types.SimpleNamespace(make_input=lambda *_: None)
    sys.modules["torch_engine"] = types.SimpleNamespace(TorchWorker=types.SimpleNamespace(reference=lambda *_: ([], [])))
    sys.modules["worker"] = types.SimpleNamespace(Skip=Skip)
    wrong = {"y": 0.5, "g": float("nan")}
    gpu_run.errors = lambda engine, op, reference: wrong if engine.name == "wrong" else {"y": 0.0, "g": 0.0}
    engines = {e.name: e for e in (Engine("a", 1.0), Engine("b", 2.0), Engine("wrong", 1.0), Engine("none", 1.0, Skip("no such op")),
                                   Engine("broken", 1.0, RuntimeError("does not compile")))}
    rows = gpu_run.measure(OPS["tanh"], engines, Clock(), 4)
    assert {k: rows["b"][k]["median"] for k in ("infer", "fwd", "bwd", "total")} == {"infer": 2, "fwd": 4, "bwd": 6, "total": 10}, rows
    assert rows["a"]["total"]["n"] == 4 and "samples" not in rows["a"], rows
    assert rows["none"] == {"skip": "no such op"} and rows["broken"] == {"error": "RuntimeError: does not compile"}, rows
    assert "infer" not in rows["wrong"] and rows["wrong"]["error"].startswith("wrong results"), rows
    firsts = [n for i, n in enumerate(Engine.order[-4 * 2 * 5:]) if i % 10 == 0]  # of each round: five calls of either
    assert firsts == ["a", "b", "a", "b"], firsts


def main():
    rounds()
    text = gpu_report.markdown(recorded())
    line = lambda start, after: next(l for l in text.split(after)[1].splitlines() if l.startswith(start))
    # 0.8 and 0.9 of the copy bandwidth; 2 and 0.5 times torch.compile.
    assert line("| forward ", "## Summary") == "| forward | 85% | 1 of 2 | 1 | huber 0.5 |", line("| forward ", "## Summary")
    # 1.0 and 0.5; 4 and 1.
    assert line("| backward ", "## Summary") == "| backward | 71% | 1 of 2 | 2 | none |", line("| backward ", "## Summary")
    # 1800 MB in 2 ms at 1000 GB/s.
    assert line("| tanh ", "## Both") == "| tanh | 2000 | 6000 | 90% | 3 |", line("| tanh ", "## Both")
    assert "| jax | all | no GPU |" in text and "| torch-native | huber | wrong results |" in text, text
    print("rounds and report are as they should be")


if __name__ == "__main__":
    main()

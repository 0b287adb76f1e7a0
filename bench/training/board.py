"""Steps of training, lazy arrays beside the same model as compiled ops and beside PyTorch. Engines take short turns, so that whatever else
the machine does meets all of them. Figures: the least time of a step, and the median over the rounds of the least time in a turn; ratios are of
the least times, and in parentheses medians over the rounds. After so many steps all engines have the same loss."""
import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "bench" / "compare"))
from engines import environment  # noqa: E402

LAYERS = lambda *widths: [(f"w{i}", (a, b)) for i, (a, b) in enumerate(zip(widths, widths[1:]))]
CONV = [("k0", (16, 1, 3, 3)), ("k1", (32, 16, 3, 3)), ("w2", (32 * 7 * 7, 10))]
MODELS = {
    "mlp_small": ((64, 64), LAYERS(64, 64, 64, 64, 10)),
    "mlp": ((128, 784), LAYERS(784, 512, 512, 10)),
    "conv": ((32, 1, 28, 28), CONV),
}
STEPS = {"mlp_small": 200, "mlp": 20, "conv": 20}  # in a turn


def write(name, folder):
    random = np.random.default_rng(1)
    shape, weights = MODELS[name]
    tensors = {"x": random.standard_normal(shape, np.float32), "labels": random.integers(0, 10, shape[0])}
    for weight, of in weights:
        inner = int(np.prod(of[1:])) if len(of) == 4 else of[0]
        tensors[weight] = (random.standard_normal(of, np.float32) * (2 / inner) ** 0.5).astype(np.float32)
        tensors["b" + weight[1:]] = np.zeros(of[0] if len(of) == 4 else of[1], np.float32)
    with open(f"{folder}/{name}.txt", "w") as file:
        for tensor, value in tensors.items():
            value.tofile(f"{folder}/{name}.{tensor}")
            print(tensor, *value.shape, file=file)


class Engine:
    def __init__(self, name, build, threads, cache):
        kind, _, how = name.partition("-")
        command = [sys.executable, "-B", str(HERE / "in_torch.py"), how] if kind == "torch" else [f"{build}/bench/training_peer", name]
        self.process = subprocess.Popen([*command, str(threads)], env=environment(threads, "keeping", cache), text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, line):
        print(line, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit("an engine has ended")
        return answer.strip()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--engines", default="lazy,lazy-in-two,op,torch-eager,torch-compile")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--build", default=str(ROOT / "build"))
    options = parser.parse_args()
    names = options.engines.split(",")
    print("| model | " + " | ".join(names) + " | " + " | ".join(f"{n} / lazy" for n in names if n != "lazy") + " | loss differs by |")
    print("|---|" + "--:|" * (2 * len(names)))
    with tempfile.TemporaryDirectory() as folder:
        for model in options.models.split(","):
            write(model, folder)
            engines = {name: Engine(name, options.build, options.threads, folder) for name in names}
            for e in engines.values():
                e.ask(f"load {model} {folder}")
            turns = {name: [] for name in names}
            losses = {}
            for _ in range(options.rounds):
                for name, e in engines.items():
                    turns[name].append(min(float(t) for t in e.ask(f"run {STEPS[model]}").split()))
            for name, e in engines.items():
                losses[name] = float(e.ask("loss"))
                e.close()
            least = {name: min(t) for name, t in turns.items()}
            time = lambda name: f"{least[name] * 1e6:.0f} ({statistics.median(turns[name]) * 1e6:.0f}) µs"
            ratio = lambda name: (f"{least[name] / least['lazy']:.2f} "
                                  f"({statistics.median(a / b for a, b in zip(turns[name], turns['lazy'])):.2f})")
            spread = (max(losses.values()) - min(losses.values())) / max(losses.values())
            print(f"| {model} | " + " | ".join(time(n) for n in names) + " | " +
                  " | ".join(ratio(n) for n in names if n != "lazy") + f" | {spread:.1e} |", flush=True)
            if not spread < 1e-2:
                raise SystemExit(f"{model}: the losses are not the same: {losses}")


main()

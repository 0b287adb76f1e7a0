"""The report of a recorded run, of round numbers: python3 test_gpu_report.py. Standard library only."""
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "compare")]
import gpu_report  # noqa: E402


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


def main():
    text = gpu_report.markdown(recorded())
    line = lambda start, after: next(l for l in text.split(after)[1].splitlines() if l.startswith(start))
    # 0.8 and 0.9 of the copy bandwidth; 2 and 0.5 times torch.compile.
    assert line("| forward ", "## Summary") == "| forward | 85% | 1 of 2 | 1 | huber 0.5 |", line("| forward ", "## Summary")
    # 1.0 and 0.5; 4 and 1.
    assert line("| backward ", "## Summary") == "| backward | 71% | 1 of 2 | 2 | none |", line("| backward ", "## Summary")
    # 1800 MB in 2 ms at 1000 GB/s.
    assert line("| tanh ", "## Both") == "| tanh | 2000 | 6000 | 90% | 3 |", line("| tanh ", "## Both")
    assert "| jax | all | no GPU |" in text and "| torch-native | huber | wrong results |" in text, text
    print("the report is as it should be")


if __name__ == "__main__":
    main()

"""The report and the plot of a recorded run, and what suites are read from: python3 test_report.py. Standard library only."""
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import plot
import report

HERE = Path(__file__).resolve().parent


def phase(ms):
    return {"min": ms, "median": ms * 1.1, "max": ms * 2, "n": 9}


def recorded():
    """Two ops and three engines on a machine of round numbers; one engine leaves an op out."""
    gbps = {k: 50.0 for k in ("read", "write", "write_nt", "copy", "copy_nt", "triad", "triad_nt", "update")}
    row = lambda f, b: {"compile_s": {"infer": 0.1, "train": 0.3}, "kernels": {"infer": 1, "fwd": 1, "bwd": 2},
                        "saved": {"inputs": 33554432, "outputs": 0, "extra": 0}, "error_vs_f64": {"y": 1e-7, "g": 2e-7},
                        "infer": phase(f), "fwd": phase(f), "bwd": phase(b), "total": phase(f + b)}
    return {"machine": {"cpu": "a processor", "cores": 2, "caches": [["L2 cache", "4 MiB"]], "kernel": "6", "cxx": "g++ 12", "python": "3.11"},
            "threads": 2, "settings": {"rounds": 9, "min_ms": 4, "allocator": "keeping", "compile_limit_s": 60, "date": "2026-01-02"},
            "peers": {"xhat": {"version": "1"}, "jax": {"version": "2"}, "eigen": {"version": "3"}},
            "roofline": {"threads": 2, "isa": "AVX-512", "fma_gflops": {"one": 100.0, "all": 200.0}, "exp_per_ns": {"one": 4.0, "all": 8.0},
                         "memory_gbps": {"one": gbps, "all": gbps}, "first_touch_64MiB_ms": {"small_pages_ms": 14.0, "huge_pages_ms": 4.0},
                         "sweep": [{"mib": m, **gbps} for m in (1, 1024)]},
            "ops": {"silu": {"peers": {"xhat": row(2, 4), "jax": row(4, 8), "eigen": {"skip": "too slow"}}, "foreign_cores": [0.0, 0.4]},
                    "softmax": {"peers": {"xhat": row(1, 1), "jax": row(3, 2), "eigen": row(0.9, 5)}, "foreign_cores": [0.0]}}}


def main():
    text = report.markdown(recorded())
    # silu: 64 MiB at 50 GB/s are 1.34 ms of the 2 measured, and it is twice as fast as the next.
    line = next(l for l in text.split("## Forward")[1].splitlines() if l.startswith("| silu"))
    for part in ("1.34 bytes", "**2 (67%)**", "4 (34%)", "| 2 |"):
        assert part in line, f"{part} is not in {line}"
    # What was measured beside an op counts for it.
    twice = recorded()
    streams = {k: 100.0 for k in ("copy", "copy_nt", "triad", "triad_nt", "update")}
    twice["ops"]["silu"]["roofline"] = {"at": [{"bytes": 2 ** 26, **streams}], "fma_gflops": 200.0, "exp_per_ns": 8.0}
    line = next(l for l in report.markdown(twice).split("## Forward")[1].splitlines() if l.startswith("| silu"))
    assert "1.05 exp" in line and "**2 (52%)**" in line, line
    # Both ops, both directions: 12/6 and 5/2 times the best other, 2.24 in the mean.
    line = next(l for l in text.splitlines() if l.startswith("| xhat | "))
    assert "2.24 (2 of 2)" in line, line
    # By medians: a tenth longer, on a machine that mostly did half as much as at its best.
    half = {k: v / 2 for k, v in streams.items()}
    twice["ops"]["silu"]["roofline_median"] = {"at": [{"bytes": 2 ** 26, **half}], "fma_gflops": 100.0, "exp_per_ns": 4.0}
    del twice["ops"]["softmax"]
    least, median = [l for l in report.markdown(twice).splitlines() if l.startswith("| xhat | ")][:2]
    assert "52% (1)" in least and "95% (1)" in median, (least, median)
    assert "| eigen | silu | too slow |" in text and "| silu | 1 of 2 | 0.40 |" in text, text
    picture = ElementTree.fromstring(plot.svg(recorded()))
    words = ["".join(e.itertext()) for e in picture.iter() if e.tag.endswith("text")]
    assert {"silu", "softmax", "xhat", "jax", "eigen"} <= set(words), words
    width, height = float(picture.get("width")), float(picture.get("height"))
    for e in picture.iter():
        x, y = e.get("cx"), e.get("cy")
        assert x is None or 0 < float(x) < width and 0 < float(y) < height, "a mark outside of the picture"
    # Every suite can be read.
    for suite, folder in (("strangers", HERE), ("kernelbench", HERE), ("npbench", HERE.parent)):
        read = "import ops; assert len(ops.OPS) > 40, ops.OPS"
        path = os.pathsep.join(map(str, (HERE, folder)))
        subprocess.run([sys.executable, "-B", "-c", read], env={**os.environ, "COMPARE_SUITE": suite, "PYTHONPATH": path}, check=True)
    print("report and plot are as they should be")


if __name__ == "__main__":
    main()

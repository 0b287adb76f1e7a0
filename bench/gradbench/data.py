"""Inputs of GradBench's evals: of their kinds and sizes, made from a seed. The text of lstm, the hands of ht and the cameras of ba are files there;
here are made-up ones of the same shapes."""
import numpy as np

BONES = 22


def lse(n):
    return {"x": np.random.default_rng(n).random(n).tolist()}


def llsq(n, m=128):
    return {"x": np.random.default_rng(n).random(m).tolist(), "n": n}


def gmm(d, k, n=1000):
    r = np.random.default_rng(d * 1000 + k)
    return {"d": d, "k": k, "n": n, "x": r.normal(size=(n, d)).tolist(), "m": 0, "gamma": 1.0, "alpha": r.normal(size=k).tolist(),
            "mu": r.uniform(size=(k, d)).tolist(), "q": r.normal(size=(k, d)).tolist(), "l": r.normal(size=(k, d * (d - 1) // 2)).tolist()}


def kmeans(k, n, d):
    points = np.random.default_rng(k + n).random((n, d)).tolist()
    return {"points": points, "centroids": points[-k:]}  # each is nearest to a point: itself


def ode(n, s):
    return {"x": np.random.default_rng(n).random(n).tolist(), "s": s}


def lstm(l, c, bits=14):
    r = np.random.default_rng(l + c)
    text = r.integers(32, 127, size=c)  # characters, written in bits
    return {"main_params": r.random((2 * l, 4 * bits)).tolist(), "extra_params": r.random((3, bits)).tolist(),
            "state": r.random((2 * l, bits)).tolist(), "sequence": (text[:, None] >> np.arange(bits)[::-1] & 1).astype(float).tolist()}


def ba(n, m, p):
    return {"n": n, "m": m, "p": p, "cam": [0.0157, -0.0128, -0.0044, -0.0341, -0.1075, 1.1202, 399.75, 0.02, -0.01, -3.2e-07, 5.9e-13],
            "x": [-0.612, 0.572, -1.847], "w": 0.93, "feat": [-332.65, 262.09]}


def hand(correspondences, vertices, places=True):
    r = np.random.default_rng(correspondences)
    parents = [-1] + [0 if b % 4 == 1 else b - 1 for b in range(1, BONES)]  # a wrist, five fingers of four bones, a forearm
    relative = np.tile(np.eye(4), (BONES, 1, 1))
    relative[:, :3, 3] = r.normal(size=(BONES, 3)) * 0.3
    absolute = relative.copy()
    for b in range(1, BONES):
        absolute[b] = absolute[parents[b]] @ relative[b]
    weights = np.zeros((vertices, BONES))
    for vertex in weights:
        some = r.choice(BONES, 4, replace=False)
        vertex[some] = r.dirichlet(np.ones(4))
    base = np.concatenate([r.normal(size=(vertices, 3)), np.ones((vertices, 1))], axis=1)
    triangles = [sorted(r.choice(vertices, 3, replace=False).tolist()) for _ in range(2 * vertices // 3)]
    model = {"bone_count": BONES, "bone_names": [f"bone{b}" for b in range(BONES)], "parents": parents, "base_relatives": relative.tolist(),
             "inverse_base_absolutes": np.linalg.inv(absolute).tolist(), "base_positions": base.tolist(), "weights": weights.tolist(),
             "triangles": triangles, "is_mirrored": False}
    hits = r.integers(len(triangles) if places else vertices, size=correspondences)
    return {"theta": (r.normal(size=26) * 0.3).tolist(), "us": r.dirichlet(np.ones(3), correspondences)[:, :2].tolist() if places else [],
            "data": {"model": model, "correspondences": hits.tolist(), "points": r.normal(size=(correspondences, 3)).tolist()}}


# eval -> functions (objective, gradient), and inputs by name. full: sizes of the real eval; small: for tests.
def board(small):
    if small:
        return {
            "lse": (("primal", "gradient"), {"n=100": lambda: lse(100)}),
            "llsq": (("primal", "gradient"), {"n=16,m=8": lambda: llsq(16, 8)}),
            "gmm": (("objective", "jacobian"), {"2_5_20": lambda: gmm(2, 5, 20), "5_3_30": lambda: gmm(5, 3, 30)}),
            "kmeans": (("cost", "dir"), {"k=5,n=40,d=3": lambda: kmeans(5, 40, 3)}),
            "ode": (("primal", "gradient"), {"n=12,s=3": lambda: ode(12, 3), "n=9,s=1": lambda: ode(9, 1)}),
            "lstm": (("objective", "jacobian"), {"l=2,c=12": lambda: lstm(2, 12, 7)}),
            "ba": (("objective", "jacobian"), {"n3_m5_p17": lambda: ba(3, 5, 17)}),
            "ht": (("objective", "jacobian"), {"complicated": lambda: hand(7, 40), "simple": lambda: hand(7, 40, False)}),
        }
    return {
        "lse": (("primal", "gradient"), {f"n={n}": lambda n=n: lse(n) for n in (2500, 40000, 320000)}),
        "llsq": (("primal", "gradient"), {f"n={n},m=128": lambda n=n: llsq(n) for n in (128, 2048, 16392)}),
        "gmm": (("objective", "jacobian"), {f"{d}_{k}_1000": lambda d=d, k=k: gmm(d, k) for d, k in ((2, 5), (10, 25), (32, 25))}),
        "kmeans": (("cost", "dir"), {f"k={k},n={n},d={d}": lambda k=k, n=n, d=d: kmeans(k, n, d)
                                     for k, n, d in ((10, 1000, 8), (100, 10000, 8), (100, 10000, 16))}),
        "ode": (("primal", "gradient"), {f"n={n},s={s}": lambda n=n, s=s: ode(n, s) for n, s in ((1000, 10), (10000, 100), (100000, 10))}),
        "lstm": (("objective", "jacobian"), {f"l={l},c={c}": lambda l=l, c=c: lstm(l, c) for l, c in ((2, 1024), (4, 1024))}),
        "ba": (("objective", "jacobian"), {"n49_m7776_p31843": lambda: ba(49, 7776, 31843), "n372_m47423_p204472": lambda: ba(372, 47423, 204472)}),
        "ht": (("objective", "jacobian"), {f"t26_c{c}": lambda c=c: hand(c, 10000) for c in (100, 1600, 12800)}),
    }


# Evals with four functions, by modes.
DESCENTS = {"particle": {"w": 0.0}, "saddle": {"start": [1.0, 1.0]}}
MODES = ("ff", "fr", "rf", "rr")

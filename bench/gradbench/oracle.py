"""The evals again, in NumPy, and their derivatives by central differences: what answers are held against. Written from what the evals' READMEs
say, with loops where the ops have sums, and nothing shared with them."""
import math

import numpy as np


def lse(i):
    x = np.array(i["x"])
    return x, lambda x: np.log(np.sum(np.exp(x - x.max()))) + x.max()


def llsq(i):
    t = -1 + 2 * np.arange(i["n"]) / (i["n"] - 1)
    powers = np.vander(t, len(i["x"]), increasing=True)
    return np.array(i["x"]), lambda x: np.sum((np.sign(t) - powers @ x) ** 2) / 2


def gmm(i):
    d, k, n = i["d"], i["k"], i["n"]
    x, m, gamma = np.array(i["x"]), i["m"], i["gamma"]

    def f(flat):
        alpha, mu, q, l = np.split(flat, np.cumsum([k, k * d, k * d]))
        mu, q, l = mu.reshape(k, d), q.reshape(k, d), l.reshape(k, -1)
        likely, frobenius = np.zeros((n, k)), 0
        for c in range(k):
            triangle = np.diag(np.exp(q[c]))
            at = 0
            for column in range(d):
                for row in range(column + 1, d):
                    triangle[row, column] = l[c, at]
                    at += 1
            frobenius += np.sum(triangle ** 2)
            likely[:, c] = alpha[c] + q[c].sum() - 0.5 * np.sum(((x - mu[c]) @ triangle.T) ** 2, axis=1)
        lse = lambda v: np.log(np.sum(np.exp(v - v.max(-1, keepdims=True)), -1)) + v.max(-1)
        free = d + m + 1
        gammas = 0.25 * d * (d - 1) * math.log(math.pi) + sum(math.lgamma(0.5 * free - 0.5 * j) for j in range(d))
        prior = k * (free * d * math.log(gamma / math.sqrt(2)) - gammas) - 0.5 * gamma ** 2 * frobenius + m * q.sum()
        return -n * (0.5 * d * math.log(2 * math.pi) + lse(alpha)) + lse(likely).sum() + prior

    return np.concatenate([np.array(i[name]).ravel() for name in ("alpha", "mu", "q", "l")]), f


def kmeans(i):
    points, shape = np.array(i["points"]), np.array(i["centroids"]).shape
    return np.array(i["centroids"]).ravel(), lambda c: np.sum(np.min(np.sum((points[:, None] - c.reshape(shape)) ** 2, 2), 1))


def ode(i):
    s = i["s"]

    def f(x):
        h, y = 2 / s, np.zeros_like(x)
        slope = lambda y: x * np.concatenate([[1], y[:-1]])
        for _ in range(s):
            k1 = slope(y)
            k2 = slope(y + h / 2 * k1)
            k3 = slope(y + h / 2 * k2)
            k4 = slope(y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return y

    return np.array(i["x"]), f


def lstm(i):
    main, extra = np.array(i["main_params"]), np.array(i["extra_params"])
    sequence, bits = np.array(i["sequence"]), extra.shape[1]

    def f(flat):
        w = flat[: main.size].reshape(-1, 2, 4, bits)
        first, out_weight, out_bias = flat[main.size :].reshape(3, bits)
        state = np.array(i["state"]).reshape(-1, 2, bits)
        sigmoid = lambda v: 1 / (1 + np.exp(-v))
        total = 0
        for t in range(len(sequence) - 1):
            v = sequence[t] * first
            for layer, (weight, bias) in enumerate(w):
                hidden, cell = state[layer]
                forget, out = sigmoid(v * weight[0] + bias[0]), sigmoid(v * weight[2] + bias[2])
                into, change = sigmoid(hidden * weight[1] + bias[1]), np.tanh(hidden * weight[3] + bias[3])
                cell = cell * forget + into * change
                v = out * np.tanh(cell)
                state[layer] = v, cell
            guess = v * out_weight + out_bias
            total += np.sum(sequence[t + 1] * (guess - np.log(np.sum(np.exp(guess)) + 2)))
        return -total / (bits * (len(sequence) - 1))

    return np.concatenate([main.ravel(), extra.ravel()]), f


def rotation(v):
    """The matrix that turns around v by its length."""
    angle = np.linalg.norm(v)
    if angle == 0:
        return np.eye(3)
    x, y, z = v / angle
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + math.sin(angle) * cross + (1 - math.cos(angle)) * cross @ cross


def ba(i):
    """One observation: they are all alike."""

    def f(v):
        cam, x, w = v[:11], v[11:14], v[14]
        seen = rotation(cam[:3]) @ (x - cam[3:6])
        flat = seen[:2] / seen[2]
        far = flat @ flat
        return w * (flat * (1 + cam[9] * far + cam[10] * far ** 2) * cam[6] + cam[7:9] - np.array(i["feat"]))

    return np.array(i["cam"] + i["x"] + [i["w"]]), f


def ht(i):
    model, data = i["data"]["model"], i["data"]
    relative, inverse = np.array(model["base_relatives"]), np.array(model["inverse_base_absolutes"])
    base, weights, points = np.array(model["base_positions"]), np.array(model["weights"]), np.array(data["points"])
    us = np.array(i["us"]).reshape(-1, 2)

    def f(v):
        slide, theta = v[:2], v[2:]
        absolute, world = [], []
        for b, parent in enumerate(model["parents"]):
            turn = np.eye(4)
            finger, joint = divmod(b - 2, 4)
            if 0 <= finger < 5 and joint < 3:
                own = theta[6 + 4 * finger : 10 + 4 * finger]
                around_x = rotation([own[[0, 2, 3][joint]], 0, 0])
                turn[:3, :3] = rotation([0, 0, own[1]]) @ around_x if joint == 0 else around_x
            here = relative[b] @ turn
            absolute.append(here if parent < 0 else absolute[parent] @ here)
            world.append(absolute[b] @ inverse[b])
        at = sum(weights[:, b : b + 1] * (base @ world[b].T)[:, :3] for b in range(len(world)))
        if model["is_mirrored"]:
            at[:, 0] *= -1
        at = at @ rotation(theta[:3]).T + theta[3:6]
        if not len(us):
            return (points - at[data["correspondences"]]).ravel()
        corner = np.array(model["triangles"])[data["correspondences"]]
        u = us + slide
        return (points - u[:, :1] * at[corner[:, 0]] - u[:, 1:] * at[corner[:, 1]] - (1 - u.sum(1))[:, None] * at[corner[:, 2]]).ravel()

    return np.concatenate([[0, 0], i["theta"]]), f


def descend(f, x):
    """Gradient descent as the evals want it: steps twice as long after ten gains, half as long after a loss."""
    value, rate, gains, down = f(x), 1e-5, 0, differences(f, x)
    while np.linalg.norm(down) > 1e-5:
        if gains == 10:
            rate, gains = 2 * rate, 0
            continue
        after = x - rate * down
        if np.linalg.norm(x - after) <= 1e-5:
            break
        if f(after) < value:
            x, value, gains, down = after, f(after), gains + 1, differences(f, after)
        else:
            rate, gains = rate / 2, 0
    return x


def particle(i):
    def force(x, w):
        apart = np.array([x - [10, 10 - w], x - [10, 0]])
        return (apart / np.linalg.norm(apart, axis=1)[:, None] ** 3).sum(0)

    def miss(w):
        x, v = np.array([0.0, 8.0]), np.array([0.75, 0.0])
        while True:
            pushed = force(x, w[0])
            x = x + 0.1 * v
            if x[1] <= 0:
                return (x - x[1] / v[1] * v)[0] ** 2
            v = v + 0.1 * pushed

    return descend(miss, np.array([i["w"]]))[0].item()


def saddle(i):
    """The largest value for a point is taken at the end of the same descent from the start, wherever the point is."""
    start = np.array(i["start"])
    there = descend(lambda y: y @ y, start)
    return [*descend(lambda x: x @ x - there @ there, start).tolist(), *there.tolist()]


def differences(f, x, step=1e-6):
    """Row by row of f's results, the slopes along each element of x."""
    columns = []
    for j in range(len(x)):
        h = step * max(1, abs(x[j]))
        up, down = x.copy(), x.copy()
        up[j] += h
        down[j] -= h
        columns.append((f(up) - f(down)) / (2 * h))
    return np.stack(columns, -1)


def expected(eval_name, function, i):
    """What the eval expects, in the form of its answer."""
    x, f = globals()[eval_name](i)
    first = function in ("primal", "objective", "cost")
    if eval_name == "ba":
        p = i["p"]
        if first:
            return {"reproj_error": {"elements": f(x).tolist(), "repeated": p}, "w_err": {"element": 1 - i["w"] ** 2, "repeated": p}}
        cols = list(range(11)) + [11 * i["n"] + j for j in range(3)] + [11 * i["n"] + 3 * i["m"]]
        return {"rows": [15 * r for r in range(30)] + [31 * p] if p >= 15 else None, "cols": cols + cols + [11 * i["n"] + 3 * i["m"] + p - 1],
                "vals": differences(f, x, 1e-7).ravel().tolist() + [-2 * i["w"]]}
    if first:
        return f(x).tolist()
    if eval_name == "kmeans":
        shape = np.array(i["centroids"]).shape
        slope = differences(f, x)
        h = 1e-3  # of a parabola, unless a point changes its centroid
        bend = np.array([(f(x + h * e) - 2 * f(x) + f(x - h * e)) / h ** 2 for e in np.eye(len(x))])
        return (slope / bend).reshape(shape).tolist()
    if eval_name == "ode":
        return differences(lambda x: f(x)[-1], x).tolist()
    slope = differences(f, x)
    if eval_name == "gmm":
        k, d = i["k"], i["d"]
        alpha, mu, q, l = np.split(slope, np.cumsum([k, k * d, k * d]))
        return {"alpha": alpha.tolist(), "mu": mu.reshape(k, d).tolist(), "q": q.reshape(k, d).tolist(), "l": l.reshape(k, -1).tolist()}
    if eval_name == "ht" and not len(i["us"]):
        return slope[:, 2:].tolist()
    return slope.tolist()


def mismatches(want, got, path=""):
    """Where the two differ by more than a tolerance of 1e-4, of the size of both but at least 1."""
    if isinstance(want, dict):
        if not isinstance(got, dict) or set(want) != set(got):
            return [f"{path}: other fields"]
        return [m for key in want for m in mismatches(want[key], got[key], f"{path}.{key}")]
    if want is None:
        return []
    a, b = np.asarray(want, float), np.asarray(got, float)
    if a.shape != b.shape:
        return [f"{path}: shape {b.shape}, expected {a.shape}"]
    off = np.abs(a - b) / np.maximum(1, np.abs(a) + np.abs(b))
    wrong = np.argwhere(~(off <= 1e-4))
    return [f"{path}{w.tolist()}: {b[tuple(w)]}, expected {a[tuple(w)]}" for w in wrong[:5]]

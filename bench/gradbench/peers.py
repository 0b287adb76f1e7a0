"""JAX or PyTorch as a tool of GradBench: peers.py jax|torch. One thread, f64. Written as their users would: whole arrays, grad and vjp; with JAX
everything under jit, which is waited for; PyTorch eager. What is not written here is answered as not there."""
import json
import os
import sys
import time

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np


def arrays(i, names):
    return [np.array(i[name], float) for name in names]


def triangle(d):
    """Where the elements of l stand below the diagonal, column by column."""
    return np.array([(row, column) for column in range(d) for row in range(column + 1, d)]).reshape(-1, 2).T


def log_prior_constant(d, k, m, gamma):
    import math
    free = d + m + 1
    gammas = 0.25 * d * (d - 1) * math.log(math.pi) + sum(math.lgamma(0.5 * free - 0.5 * j) for j in range(d))
    return k * (free * d * math.log(gamma / math.sqrt(2)) - gammas)


def bundle(i):
    """Cameras, points, weights, features, and who sees what."""
    n, m, p = i["n"], i["m"], i["p"]
    return (np.tile(i["cam"], (n, 1)), np.tile(i["x"], (m, 1)), np.full(p, float(i["w"])), np.tile(i["feat"], (p, 1)), np.arange(p) % n,
            np.arange(p) % m)


def coordinates(i, camera, point):
    n, m, p = i["n"], i["m"], i["p"]
    cols = np.concatenate([11 * camera[:, None] + np.arange(11), 11 * n + 3 * point[:, None] + np.arange(3), 11 * n + 3 * m + np.arange(p)[:, None]], 1)
    cols = np.concatenate([np.repeat(cols, 2, 0).ravel(), 11 * n + 3 * m + np.arange(p)])
    rows = np.concatenate([15 * np.arange(2 * p + 1), 30 * p + 1 + np.arange(p)])
    return rows, cols


def sparse(values, rows, cols):
    ends = lambda a: np.asarray(a)[:30].tolist() + [np.asarray(a)[-1].item()]
    return {"rows": ends(rows), "cols": ends(cols), "vals": ends(values)}


def residuals(e, w):
    return {"reproj_error": {"elements": np.asarray(e)[0].tolist(), "repeated": len(w)},
            "w_err": {"element": 1 - float(w[0]) ** 2, "repeated": len(w)}}


def bones(theta, zeros):
    """The two angles of each bone, as lists of scalars."""
    bent, spread = [zeros] * 22, [zeros] * 22
    for b in range(2, 22):
        finger, joint = divmod(b - 2, 4)
        if joint < 3:
            bent[b] = theta[6 + 4 * finger + (0, 2, 3)[joint]]
        if joint == 0:
            spread[b] = theta[6 + 4 * finger + 1]
    return bent, spread


def jax_tool():
    import jax
    import jax.numpy as jnp
    from jax import lax
    jax.config.update("jax_enable_x64", True)

    def lse(x):
        top = jnp.max(x)
        return top + jnp.log(jnp.sum(jnp.exp(x - top)))

    def llsq(x, n):
        t = -1 + 2 * jnp.arange(n) / (n - 1)
        fit = lax.scan(lambda fit, c: (fit * t + c, None), jnp.zeros(n), x[::-1])[0]
        return 0.5 * jnp.sum((jnp.sign(t) - fit) ** 2)

    def gmm(alpha, mu, q, l, x, m, gamma, place):
        k, d = mu.shape
        low = jnp.zeros((k, d, d)).at[:, place[0], place[1]].set(l)
        apart = x[:, None] - mu
        z = jnp.exp(q) * apart + jnp.einsum("kji,nki->nkj", low, apart)
        likely = alpha + q.sum(1) - 0.5 * (z ** 2).sum(2)
        lses = jax.scipy.special.logsumexp
        size = (jnp.exp(q) ** 2).sum() + (l ** 2).sum()
        return (lses(likely, axis=1).sum() - len(x) * (lses(alpha) + 0.5 * d * np.log(2 * np.pi)) + log_prior_constant(d, k, m, gamma)
                - 0.5 * gamma ** 2 * size + m * q.sum())

    def kmeans(c, points):
        apart = (points ** 2).sum(1)[:, None] + (c ** 2).sum(1) - 2 * points @ c.T
        return apart.min(1).sum()

    def ode(x, s):
        h = 2 / s
        one = jnp.ones(1)

        def slope(y):
            return x * jnp.concatenate([one, y[:-1]])

        def step(y, _):
            k1 = slope(y)
            k2 = slope(y + h / 2 * k1)
            k3 = slope(y + h / 2 * k2)
            k4 = slope(y + h * k3)
            return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

        return lax.scan(step, jnp.zeros_like(x), None, length=s)[0]

    def lstm(main, extra, state, sequence):
        main = main.reshape(len(state) // 2, 2, 4, -1)

        def step(carry, now):
            hidden, cell = carry
            v = now * extra[0]
            hs, cs = [], []
            for (w, b), h, c in zip(main, hidden, cell):
                forget, out = jax.nn.sigmoid(v * w[0] + b[0]), jax.nn.sigmoid(v * w[2] + b[2])
                into, change = jax.nn.sigmoid(h * w[1] + b[1]), jnp.tanh(h * w[3] + b[3])
                c = c * forget + into * change
                v = out * jnp.tanh(c)
                hs.append(v)
                cs.append(c)
            return (jnp.stack(hs), jnp.stack(cs)), v

        out = lax.scan(step, (state[::2], state[1::2]), sequence[:-1])[1]
        guess = out * extra[1] + extra[2]
        norm = jnp.log(jnp.exp(guess).sum(1) + 2)
        return -jnp.sum(sequence[1:] * (guess - norm[:, None])) / guess.size

    def reprojection(v, feature):
        a, c, focus, u, k, x, w = v[:3], v[3:6], v[6], v[7:9], v[9:11], v[11:14], v[14]
        square = a @ a
        turned = square > 0
        angle = jnp.sqrt(jnp.where(turned, square, 1.0))
        axis, x = a / angle, x - c
        around = x * jnp.cos(angle) + jnp.cross(axis, x) * jnp.sin(angle) + axis * (axis @ x) * (1 - jnp.cos(angle))
        seen = jnp.where(turned, around, x + jnp.cross(a, x))
        flat = seen[:2] / seen[2]
        far = flat @ flat
        return w * (flat * (1 + k[0] * far + k[1] * far ** 2) * focus + u - feature)

    def observed(cameras, points, w, camera, point):
        return jnp.concatenate([cameras[camera], points[point], w[:, None]], 1)

    def ba_objective(cameras, points, w, features, camera, point):
        return jax.vmap(reprojection)(observed(cameras, points, w, camera, point), features), 1 - w ** 2

    def ba_jacobian(cameras, points, w, features, camera, point):
        each = jax.vmap(jax.jacrev(reprojection))(observed(cameras, points, w, camera, point), features)
        return jnp.concatenate([each.ravel(), -2 * w])

    def rotation(v):
        angle = jnp.sqrt(v @ v)
        x, y, z = v / angle
        cross = jnp.array([[0.0, 0, 0], [0, 0, 0], [0, 0, 0]]).at[([0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1])].set(jnp.stack([-z, y, z, -x, -y, x]))
        return jnp.eye(3) + jnp.sin(angle) * cross + (1 - jnp.cos(angle)) * cross @ cross

    def hand(v, i, parents):
        slide, theta = v[:2], v[2:]
        bent, spread = map(jnp.stack, bones(theta, jnp.zeros(())))
        s, c, ss, cs = jnp.sin(bent), jnp.cos(bent), jnp.sin(spread), jnp.cos(spread)
        zero, one = jnp.zeros(22), jnp.ones(22)
        turn = jnp.stack([cs, -ss * c, ss * s, zero, ss, cs * c, -cs * s, zero, zero, s, c, zero, zero, zero, zero, one], 1).reshape(22, 4, 4)
        here = i["relative"] @ turn
        absolute = []
        for b, parent in enumerate(parents):
            absolute.append(here[b] if parent < 0 else absolute[parent] @ here[b])
        world = jnp.stack(absolute) @ i["inverse"]
        at = jnp.einsum("vb,vk,bik->vi", i["weights"], i["base"], world[:, :3])
        at = at @ rotation(theta[:3]).T + theta[3:6]
        if "corner" not in i:
            return i["points"] - at[i["hits"]]
        u, corner = i["us"] + slide, i["corner"]
        return i["points"] - u[:, :1] * at[corner[:, 0]] - u[:, 1:] * at[corner[:, 1]] - (1 - u.sum(1, keepdims=True)) * at[corner[:, 2]]

    def hand_data(i):
        return {name: jnp.array(value) for name, value in hand_arrays(i).items()}

    def call(f, *given, post=lambda r: np.asarray(r).tolist()):
        f = jax.jit(f)
        held = {}
        given = [jax.tree.map(jnp.asarray, g) for g in given]

        def run():
            held["result"] = jax.block_until_ready(f(*given))
        return run, lambda: post(held["result"])

    x = lambda i: np.array(i["x"], float)
    grad = jax.grad

    def kmeans_step(c, points):
        first, second = jax.jvp(grad(kmeans), (c, points), (jnp.ones_like(c), jnp.zeros_like(points)))
        return first / second

    def gmm_call(f, i, post=float):
        given = arrays(i, ("alpha", "mu", "q", "l", "x"))
        place = triangle(i["d"])
        return call(lambda a, mu, q, l, x: f(a, mu, q, l, x, i["m"], i["gamma"], place), *given, post=post)

    def lstm_call(f, i, post=float):
        return call(f, *arrays(i, ("main_params", "extra_params", "state", "sequence")), post=post)

    def ba_call(f, i, post):
        given = bundle(i)
        return call(f, *given, post=post)

    def places(i):
        _, _, _, _, camera, point = bundle(i)
        return coordinates(i, camera, point)

    def ht_call(jacobian, i):
        parents, extra = i["data"]["model"]["parents"], hand_data(i)
        v = np.concatenate([[0, 0], i["theta"]])
        first = 0 if len(i["us"]) else 2
        f = lambda v, e: hand(v, e, parents)
        if jacobian:
            return call(lambda v, e: jax.jacfwd(f)(v, e)[..., first:].reshape(-1, 28 - first), v, extra)
        return call(lambda v, e: f(v, e).ravel(), v, extra)

    return {
        "lse": {"primal": lambda i: call(lse, x(i)), "gradient": lambda i: call(grad(lse), x(i))},
        "llsq": {"primal": lambda i: call(lambda x: llsq(x, i["n"]), x(i)), "gradient": lambda i: call(grad(lambda x: llsq(x, i["n"])), x(i))},
        "gmm": {"objective": lambda i: gmm_call(gmm, i),
                "jacobian": lambda i: gmm_call(grad(gmm, (0, 1, 2, 3)), i, lambda g: {n: np.asarray(v).tolist() for n, v in zip(("alpha", "mu", "q", "l"), g)})},
        "kmeans": {"cost": lambda i: call(kmeans, *arrays(i, ("centroids", "points"))), "dir": lambda i: call(kmeans_step, *arrays(i, ("centroids", "points")))},
        "ode": {"primal": lambda i: call(lambda x: ode(x, i["s"]), x(i)), "gradient": lambda i: call(grad(lambda x: ode(x, i["s"])[-1]), x(i))},
        "lstm": {"objective": lambda i: lstm_call(lstm, i),
                 "jacobian": lambda i: lstm_call(grad(lstm, (0, 1)), i, lambda g: np.concatenate([np.ravel(v) for v in g]).tolist())},
        "ba": {"objective": lambda i: ba_call(ba_objective, i, lambda r: residuals(r[0], bundle(i)[2])),
               "jacobian": lambda i: ba_call(ba_jacobian, i, lambda v: sparse(v, *places(i)))},
        "ht": {"objective": lambda i: ht_call(False, i), "jacobian": lambda i: ht_call(True, i)},
    }


def hand_arrays(i):
    model, data = i["data"]["model"], i["data"]
    named = {"relative": model["base_relatives"], "inverse": model["inverse_base_absolutes"], "base": model["base_positions"], "weights": model["weights"],
             "points": data["points"]}
    named = {name: np.array(value, float) for name, value in named.items()}
    hits = np.array(data["correspondences"])
    return named | ({"us": np.array(i["us"]), "corner": np.array(model["triangles"])[hits]} if len(i["us"]) else {"hits": hits})


def torch_tool():
    import torch
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)

    def lse(x):
        top = x.max()
        return top + torch.log(torch.exp(x - top).sum())

    def llsq(x, n):
        t = -1 + 2 * torch.arange(n) / (n - 1)
        return 0.5 * ((torch.sign(t) - torch.vander(t, len(x), increasing=True) @ x) ** 2).sum()

    def gmm(alpha, mu, q, l, x, m, gamma, place):
        k, d = mu.shape
        low = torch.zeros(k, d, d).index_put((torch.arange(k)[:, None], place[0], place[1]), l)
        apart = x[:, None] - mu
        z = torch.exp(q) * apart + torch.einsum("kji,nki->nkj", low, apart)
        likely = alpha + q.sum(1) - 0.5 * (z ** 2).sum(2)
        size = (torch.exp(q) ** 2).sum() + (l ** 2).sum()
        return (torch.logsumexp(likely, 1).sum() - len(x) * (torch.logsumexp(alpha, 0) + 0.5 * d * np.log(2 * np.pi))
                + log_prior_constant(d, k, m, gamma) - 0.5 * gamma ** 2 * size + m * q.sum())

    def kmeans(c, points):
        return ((points ** 2).sum(1)[:, None] + (c ** 2).sum(1) - 2 * points @ c.T).min(1)[0].sum()

    def ode(x, s):
        h, y, one = 2 / s, torch.zeros_like(x), torch.ones(1)
        slope = lambda y: x * torch.cat([one, y[:-1]])
        for _ in range(s):
            k1 = slope(y)
            k2 = slope(y + h / 2 * k1)
            k3 = slope(y + h / 2 * k2)
            k4 = slope(y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return y

    def lstm(main, extra, state, sequence):
        layers = main.reshape(len(state) // 2, 2, 4, -1)
        state = [list(s) for s in state.reshape(len(layers), 2, -1)]
        out = []
        for now in sequence[:-1]:
            v = now * extra[0]
            for layer, (w, b) in enumerate(layers):
                h, c = state[layer]
                gates = torch.stack([v, h, v, h]) * w + b
                forget, into, leave = torch.sigmoid(gates[:3])
                c = c * forget + into * torch.tanh(gates[3])
                v = leave * torch.tanh(c)
                state[layer] = [v, c]
            out.append(v)
        guess = torch.stack(out) * extra[1] + extra[2]
        norm = torch.log(torch.exp(guess).sum(1) + 2)
        return -(sequence[1:] * (guess - norm[:, None])).sum() / guess.numel()

    def reprojection(v, feature):
        a, c, focus, u, k, x, w = v[:, :3], v[:, 3:6], v[:, 6:7], v[:, 7:9], v[:, 9:11], v[:, 11:14], v[:, 14:]
        square = (a * a).sum(1, keepdim=True)
        turned = square > 0
        angle = torch.sqrt(torch.where(turned, square, 1.0))
        axis, x = a / angle, x - c
        cross = torch.linalg.cross
        around = x * torch.cos(angle) + cross(axis, x) * torch.sin(angle) + axis * (axis * x).sum(1, keepdim=True) * (1 - torch.cos(angle))
        seen = torch.where(turned, around, x + cross(a, x))
        flat = seen[:, :2] / seen[:, 2:]
        far = (flat * flat).sum(1, keepdim=True)
        return w * (flat * (1 + k[:, :1] * far + k[:, 1:] * far ** 2) * focus + u - feature)

    def observed(cameras, points, w, camera, point):
        return torch.cat([cameras[camera], points[point], w[:, None]], 1)

    def ba_objective(cameras, points, w, features, camera, point):
        return reprojection(observed(cameras, points, w, camera, point), features), 1 - w ** 2

    def ba_jacobian(cameras, points, w, features, camera, point):
        v = observed(cameras, points, w, camera, point).requires_grad_()
        e = reprojection(v, features).sum(0)
        rows = [torch.autograd.grad(e[r], v, retain_graph=r == 0)[0] for r in range(2)]
        return torch.cat([torch.stack(rows, 1).reshape(-1), -2 * w])

    def rotation(v):
        angle = torch.sqrt(v @ v)
        x, y, z = v / angle
        zero = torch.zeros(())
        cross = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero]).reshape(3, 3)
        return torch.eye(3) + torch.sin(angle) * cross + (1 - torch.cos(angle)) * cross @ cross

    def hand(v, i, parents):
        slide, theta = v[:2], v[2:]
        bent, spread = map(torch.stack, bones(theta, torch.zeros(())))
        s, c, ss, cs = torch.sin(bent), torch.cos(bent), torch.sin(spread), torch.cos(spread)
        zero, one = torch.zeros(22), torch.ones(22)
        turn = torch.stack([cs, -ss * c, ss * s, zero, ss, cs * c, -cs * s, zero, zero, s, c, zero, zero, zero, zero, one], 1).reshape(22, 4, 4)
        here = i["relative"] @ turn
        absolute = []
        for b, parent in enumerate(parents):
            absolute.append(here[b] if parent < 0 else absolute[parent] @ here[b])
        world = torch.stack(absolute) @ i["inverse"]
        at = torch.einsum("vb,vk,bik->vi", i["weights"], i["base"], world[:, :3])
        at = at @ rotation(theta[:3]).T + theta[3:6]
        if "corner" not in i:
            return i["points"] - at[i["hits"]]
        u, corner = i["us"] + slide, i["corner"]
        return i["points"] - u[:, :1] * at[corner[:, 0]] - u[:, 1:] * at[corner[:, 1]] - (1 - u.sum(1, keepdim=True)) * at[corner[:, 2]]

    tensor = lambda a: torch.from_numpy(np.ascontiguousarray(a))

    def call(f, *given, post=lambda r: r.tolist(), gradients=0):
        given = [tensor(g) if isinstance(g, np.ndarray) else g for g in given]
        held = {}

        def run():
            if not gradients:
                with torch.no_grad():
                    held["result"] = f(*given)
            else:
                wanted = [g.requires_grad_() for g in given[:gradients]]
                held["result"] = torch.autograd.grad(f(*wanted, *given[gradients:]), wanted)
        return run, lambda: post(held["result"])

    one = dict(post=lambda g: g[0].tolist(), gradients=1)
    x = lambda i: np.array(i["x"], float)

    def kmeans_step(c, points):
        with torch.enable_grad():
            c.requires_grad_()
            first = torch.autograd.grad(kmeans(c, points), c, create_graph=True)[0]
            second = torch.autograd.grad(first.sum(), c)[0]
        return first.detach() / second

    def gmm_call(i, **how):
        place = tensor(triangle(i["d"]))
        return call(lambda a, mu, q, l, x: gmm(a, mu, q, l, x, i["m"], i["gamma"], place), *arrays(i, ("alpha", "mu", "q", "l", "x")), **how)

    def lstm_call(i, **how):
        return call(lstm, *arrays(i, ("main_params", "extra_params", "state", "sequence")), **how)

    def ba_call(f, i, post):
        def run(*given):
            with torch.enable_grad():
                return f(*given)
        return call(run, *bundle(i), post=post)

    def places(i):
        _, _, _, _, camera, point = bundle(i)
        return coordinates(i, camera, point)

    def ht_call(jacobian, i):
        parents, extra = i["data"]["model"]["parents"], {name: tensor(value) for name, value in hand_arrays(i).items()}
        first = 0 if len(i["us"]) else 2
        f = lambda v: hand(v, extra, parents)
        v = np.concatenate([[0, 0], i["theta"]])
        if jacobian:
            return call(lambda v: torch.func.jacfwd(f)(v)[..., first:].reshape(-1, 28 - first), v)
        return call(lambda v: f(v).reshape(-1), v)

    return {
        "lse": {"primal": lambda i: call(lse, x(i)), "gradient": lambda i: call(lse, x(i), **one)},
        "llsq": {"primal": lambda i: call(lambda x: llsq(x, i["n"]), x(i)), "gradient": lambda i: call(lambda x: llsq(x, i["n"]), x(i), **one)},
        "gmm": {"objective": lambda i: gmm_call(i, post=float),
                "jacobian": lambda i: gmm_call(i, gradients=4, post=lambda g: {n: v.tolist() for n, v in zip(("alpha", "mu", "q", "l"), g)})},
        "kmeans": {"cost": lambda i: call(kmeans, *arrays(i, ("centroids", "points"))), "dir": lambda i: call(kmeans_step, *arrays(i, ("centroids", "points")))},
        "ode": {"primal": lambda i: call(lambda x: ode(x, i["s"]), x(i)), "gradient": lambda i: call(lambda x: ode(x, i["s"])[-1], x(i), **one)},
        "lstm": {"objective": lambda i: lstm_call(i),
                 "jacobian": lambda i: lstm_call(i, gradients=2, post=lambda g: torch.cat([v.reshape(-1) for v in g]).tolist())},
        "ba": {"objective": lambda i: ba_call(ba_objective, i, lambda r: residuals(r[0].detach(), bundle(i)[2])),
               "jacobian": lambda i: ba_call(ba_jacobian, i, lambda v: sparse(v, *places(i)))},
        "ht": {"objective": lambda i: ht_call(False, i), "jacobian": lambda i: ht_call(True, i)},
    }


def evaluate(make, i):
    timings = []

    def timed(name, f):
        start = time.perf_counter_ns()
        result = f()
        timings.append({"name": name, "nanoseconds": time.perf_counter_ns() - start})
        return result

    def prepare():
        run, output = make(i)
        run()
        return run, output

    run, output = timed("prepare", prepare)
    spent = runs = 0
    while runs < i["min_runs"] or spent < i["min_seconds"] * 1e9:
        timed("evaluate", run)
        spent += timings[-1]["nanoseconds"]
        runs += 1
    return {"success": True, "output": output(), "timings": timings}


def main(engine):
    modules = {"jax": jax_tool, "torch": torch_tool}[engine]()
    for line in sys.stdin:
        message = json.loads(line)
        answer = {"id": message["id"]}
        if message["kind"] == "start":
            answer["tool"] = engine
        elif message["kind"] == "define":
            answer["success"] = message["module"] in modules
        elif message["kind"] == "evaluate":
            try:
                answer |= evaluate(modules[message["module"]][message["function"]], message["input"])
            except Exception as e:
                answer |= {"success": False, "error": f"{type(e).__name__}: {e}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

"""The programs of Polybench in JAX, as its users would write them: array code, and loops of lax where one step needs the one before."""
import jax.numpy as jnp
from jax import lax


def adi(u, *, N, T):
    dx, dt = 1 / N, 1 / T
    mul1, mul2 = 2 * dt / dx**2, dt / dx**2
    a, b, d, e = -mul1 / 2, 1 + mul1, -mul2 / 2, 1 + mul2
    one = jnp.ones(N - 2)

    def solve(lower, diagonal, right):
        """right[j]: the right sides of unknown j of all systems. Unknowns are 1 at both ends."""
        def down(pq, r):
            p, q = pq
            pivot = lower * p + diagonal
            pq = -lower / pivot, (r - lower * q) / pivot
            return pq, pq

        def up(x, pq):
            x = pq[0] * x + pq[1]
            return x, x

        x = lax.scan(up, one, lax.scan(down, (0 * one, one), right)[1], reverse=True)[1]
        return jnp.concatenate([one[None], x, one[None]])

    def step(_, u):
        v = solve(a, b, -d * u[1:-1, :-2] + (1 + 2 * d) * u[1:-1, 1:-1] - d * u[1:-1, 2:])
        x = solve(d, e, (-a * v[:-2] + (1 + 2 * a) * v[1:-1] - a * v[2:]).T)
        return u.at[1:-1].set(x.T)

    return lax.fori_loop(0, T, step, u)


def atax(a, x):
    return (a @ x) @ a


def bicg(a, p, r):
    return r @ a, a @ p


def cholesky(a):
    i = jnp.arange(len(a))

    def column(k, a):
        pivot = jnp.sqrt(a[k, k])
        c = jnp.where(i > k, a[:, k] / pivot, 0)
        a = a - jnp.tril(jnp.outer(c, c))
        return a.at[:, k].set(jnp.where(i > k, c, a[:, k])).at[k, k].set(pivot)

    return lax.fori_loop(0, len(a), column, a)


def correlation(data):
    n = len(data)
    mean, dev = data.mean(0), data.std(0)
    d = (data - mean) / (jnp.sqrt(n) * jnp.where(dev <= 0.1, 1, dev))
    return jnp.fill_diagonal(d.T @ d, 1, inplace=False)


def covariance(data):
    d = data - data.mean(0)
    return d.T @ d / (len(data) - 1)


def deriche(alpha, img):
    e = jnp.exp(-alpha)
    k = (1 - e) ** 2 / (1 + 2 * alpha * e - jnp.exp(2 * alpha))
    a2, a3, a4 = k * e * (alpha - 1), k * e * (alpha + 1), -k * e * e
    b1, b2 = 2**-alpha, -e * e

    def along_columns(x):
        def down(state, x):
            x1, y1, y2 = state
            y = k * x + a2 * x1 + b1 * y1 + b2 * y2
            return (x, y, y1), y

        def up(state, x):
            x1, x2, y1, y2 = state
            y = a3 * x1 + a4 * x2 + b1 * y1 + b2 * y2
            return (x, x1, y, y1), y

        zero = jnp.zeros_like(x[0])
        return lax.scan(down, (zero,) * 3, x)[1] + lax.scan(up, (zero,) * 4, x, reverse=True)[1]

    return along_columns(along_columns(img.T).T)


def doitgen(a, c4):
    return a @ c4


def durbin(r):
    n = len(r)
    i = jnp.arange(n)

    def step(k, state):
        alpha, beta, y = state
        beta = beta * (1 - alpha * alpha)
        before = jnp.where(i < k, jnp.flip(jnp.roll(y, n - k)), 0)  # y[k-1-i]
        alpha = -(r[k] + before @ r) / beta
        return alpha, beta, (y + alpha * before).at[k].set(alpha)

    return lax.fori_loop(1, n, step, (-r[0], jnp.ones(()), jnp.zeros(n).at[0].set(-r[0])))[2]


def fdtd_2d(ex, ey, hz, fict):
    def step(state, f):
        ex, ey, hz = state
        ey = ey.at[0].set(f).at[1:].add(-0.5 * (hz[1:] - hz[:-1]))
        ex = ex.at[:, 1:].add(-0.5 * (hz[:, 1:] - hz[:, :-1]))
        hz = hz.at[:-1, :-1].add(-0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1]))
        return (ex, ey, hz), None

    return lax.scan(step, (ex, ey, hz), fict)[0]


def floyd_warshall(path):
    return lax.fori_loop(0, len(path), lambda k, p: jnp.minimum(p, p[:, k, None] + p[k]), path)


def gemm(alpha, beta, c, a, b):
    return alpha * (a @ b) + beta * c


def gemver(alpha, beta, a, u1, v1, u2, v2, w, x, y, z):
    a = a + jnp.outer(u1, v1) + jnp.outer(u2, v2)
    x = x + beta * (y @ a) + z
    return a, w + alpha * (a @ x), x


def gesummv(alpha, beta, a, b, x):
    return alpha * (a @ x) + beta * (b @ x)


def gramschmidt(a):
    m, n = a.shape
    j = jnp.arange(n)

    def step(k, state):
        a, q, r = state
        norm = jnp.linalg.norm(a[:, k])
        column = a[:, k] / norm
        row = jnp.where(j > k, column @ a, 0)
        return a - jnp.outer(column, row), q.at[:, k].set(column), r.at[k].set(row.at[k].set(norm))

    a, q, r = lax.fori_loop(0, n, step, (a, jnp.zeros((m, n)), jnp.zeros((n, n))))
    return q, r, a


def heat_3d(a, b, *, T):
    def around(x):
        c = x[1:-1, 1:-1, 1:-1]
        return (c + 0.125 * (x[2:, 1:-1, 1:-1] - 2 * c + x[:-2, 1:-1, 1:-1]) + 0.125 * (x[1:-1, 2:, 1:-1] - 2 * c + x[1:-1, :-2, 1:-1])
                + 0.125 * (x[1:-1, 1:-1, 2:] - 2 * c + x[1:-1, 1:-1, :-2]))

    def step(_, ab):
        a, b = ab
        b = b.at[1:-1, 1:-1, 1:-1].set(around(a))
        return a.at[1:-1, 1:-1, 1:-1].set(around(b)), b

    return lax.fori_loop(1, T, step, (a, b))


def jacobi_1d(a, b, *, T):
    def step(_, ab):
        a, b = ab
        b = b.at[1:-1].set(0.33333 * (a[:-2] + a[1:-1] + a[2:]))
        return a.at[1:-1].set(0.33333 * (b[:-2] + b[1:-1] + b[2:])), b

    return lax.fori_loop(1, T, step, (a, b))


def jacobi_2d(a, b, *, T):
    def around(x):
        return 0.2 * (x[1:-1, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[2:, 1:-1] + x[:-2, 1:-1])

    def step(_, ab):
        a, b = ab
        b = b.at[1:-1, 1:-1].set(around(a))
        return a.at[1:-1, 1:-1].set(around(b)), b

    return lax.fori_loop(1, T, step, (a, b))


def k2mm(alpha, beta, a, b, c, d):
    return alpha * (a @ b) @ c + beta * d


def k3mm(a, b, c, d):
    return (a @ b) @ (c @ d)


def lu(a):
    i = jnp.arange(len(a))

    def step(k, a):
        column = jnp.where(i > k, a[:, k] / a[k, k], 0)
        a = a - jnp.outer(column, jnp.where(i > k, a[k], 0))
        return a.at[:, k].set(jnp.where(i > k, column, a[:, k]))

    return lax.fori_loop(0, len(a), step, a)


def substituted(matrix, b, rows):
    """Unknowns one after the other; `matrix` is 0 where an unknown is not known yet, and on its diagonal."""
    def step(x, i):
        return x.at[i].set((b[i] - matrix[i] @ x)), None

    return lax.scan(step, jnp.zeros_like(b), rows)[0]


def ludcmp(a, b):
    a = lu(a)
    i = jnp.arange(len(a))
    diagonal = jnp.diagonal(a)
    y = substituted(jnp.tril(a, -1), b, i)
    x = substituted(jnp.triu(a, 1) / diagonal[:, None], y / diagonal, i[::-1])
    return x, y, a


def mvt(x1, x2, y1, y2, a):
    return x1 + a @ y1, x2 + y2 @ a


def nussinov(seq, *, N):
    k = jnp.arange(N)

    def cell(j, ti):
        t, i = ti
        pair = jnp.where((i < j - 1) & (seq[i] + seq[j] == 3), 1, 0)
        split = jnp.where((k > i) & (k < j), t[i] + jnp.roll(t[:, j], -1), 0).max()
        best = jnp.maximum(jnp.maximum(t[i, j - 1], t[i + 1, j]), jnp.maximum(t[i + 1, j - 1] + pair, split))
        return t.at[i, j].set(best.astype(jnp.int32)), i

    def row(r, t):
        i = N - 1 - r
        return lax.fori_loop(i + 1, N, cell, (t, i))[0]

    return lax.fori_loop(0, N, row, jnp.zeros((N, N), jnp.int32))


def seidel_2d(a, *, N, T):
    def row(i, a):
        known = a[i - 1, :-2] + a[i - 1, 1:-1] + a[i - 1, 2:] + a[i, 1:-1] + a[i, 2:] + a[i + 1, :-2] + a[i + 1, 1:-1] + a[i + 1, 2:]

        def cell(left, k):
            left = (k + left) / 9
            return left, left

        return a.at[i, 1:-1].set(lax.scan(cell, a[i, 0], known)[1])

    return lax.fori_loop(0, T - 1, lambda _, a: lax.fori_loop(1, N - 1, row, a), a)


def symm(alpha, beta, c, a, b):
    return beta * c + alpha * ((jnp.tril(a) + jnp.tril(a, -1).T) @ b)


def syr2k(alpha, beta, c, a, b):
    p = a @ b.T
    return jnp.triu(c, 1) + jnp.tril(beta * c + alpha * (p + p.T))


def syrk(alpha, beta, c, a):
    return jnp.triu(c, 1) + jnp.tril(beta * c + alpha * (a @ a.T))


def trisolv(l, x, b):
    diagonal = jnp.diagonal(l)
    return substituted(jnp.tril(l, -1) / diagonal[:, None], b / diagonal, jnp.arange(len(b)))


def trmm(alpha, a, b):
    return alpha * (b + jnp.tril(a, -1).T @ b)

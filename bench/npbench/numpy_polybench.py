"""The oracle: the programs of Polybench in NumPy, with the loops of their definitions. Results: listed outputs, then what is written in place."""
import numpy as np


def adi(u, *, N, T):
    dx, dt = 1 / N, 1 / T
    mul1, mul2 = 2 * dt / dx**2, dt / dx**2
    a, b, d, e = -mul1 / 2, 1 + mul1, -mul2 / 2, 1 + mul2
    v, p, q = np.zeros_like(u), np.zeros_like(u), np.zeros_like(u)
    inner = range(1, N - 1)
    for _ in range(T):
        for i in inner:
            v[0, i], p[i, 0], q[i, 0] = 1, 0, 1
        for j in inner:
            for i in inner:
                pivot = a * p[i, j - 1] + b
                p[i, j] = -a / pivot
                q[i, j] = (-d * u[j, i - 1] + (1 + 2 * d) * u[j, i] - d * u[j, i + 1] - a * q[i, j - 1]) / pivot
        for i in inner:
            v[N - 1, i] = 1
        for j in reversed(inner):
            for i in inner:
                v[j, i] = p[i, j] * v[j + 1, i] + q[i, j]
        for i in inner:
            u[i, 0], p[i, 0], q[i, 0] = 1, 0, 1
        for j in inner:
            for i in inner:
                pivot = d * p[i, j - 1] + e
                p[i, j] = -d / pivot
                q[i, j] = (-a * v[i - 1, j] + (1 + 2 * a) * v[i, j] - a * v[i + 1, j] - d * q[i, j - 1]) / pivot
        for i in inner:
            u[i, N - 1] = 1
        for j in reversed(inner):
            for i in inner:
                u[i, j] = p[i, j] * u[i, j + 1] + q[i, j]
    return (u,)


def atax(a, x):
    return ((a @ x) @ a,)


def bicg(a, p, r):
    return a.T @ r, a @ p


def cholesky(a):
    lower = np.linalg.cholesky(a)
    return (np.triu(a, 1) + lower,)


def correlation(data):
    # What np.corrcoef says, where no column is constant.
    return (np.corrcoef(data.T),)


def covariance(data):
    return (np.cov(data.T),)


def deriche(alpha, img):
    e = np.exp(-alpha)
    k = (1 - e) ** 2 / (1 + 2 * alpha * e - np.exp(2 * alpha))
    a2, a3, a4 = k * e * (alpha - 1), k * e * (alpha + 1), -k * e * e
    b1, b2 = 2**-alpha, -e * e

    def along_rows(x):
        y, z = np.zeros_like(x), np.zeros_like(x)
        n = x.shape[1]
        for j in range(n):
            y[:, j] = k * x[:, j]
            if j > 0:
                y[:, j] += a2 * x[:, j - 1] + b1 * y[:, j - 1]
            if j > 1:
                y[:, j] += b2 * y[:, j - 2]
        for j in range(n - 2, -1, -1):
            z[:, j] = a3 * x[:, j + 1] + b1 * z[:, j + 1]
            if j < n - 2:
                z[:, j] += a4 * x[:, j + 2] + b2 * z[:, j + 2]
        return y + z

    return (along_rows(along_rows(img).T).T,)


def doitgen(a, c4):
    return (np.tensordot(a, c4, 1),)


def durbin(r):
    # The system itself: a Toeplitz matrix of 1, r[0], r[1], ... times y is -r.
    n = len(r)
    t = np.concatenate(([1.0], r[:-1]))
    toeplitz = t[np.abs(np.arange(n)[:, None] - np.arange(n))]
    return (np.linalg.solve(toeplitz, -r),)


def fdtd_2d(ex, ey, hz, fict):
    for f in fict:
        ey[1:] = ey[1:] - 0.5 * np.diff(hz, axis=0)
        ey[0] = f
        ex[:, 1:] = ex[:, 1:] - 0.5 * np.diff(hz, axis=1)
        hz[:-1, :-1] = hz[:-1, :-1] - 0.7 * (np.diff(ex, axis=1)[:-1] + np.diff(ey, axis=0)[:, :-1])
    return ex, ey, hz


def floyd_warshall(path):
    for k in range(len(path)):
        path = np.minimum(path, path[:, k, None] + path[k])
    return (path,)


def gemm(alpha, beta, c, a, b):
    return (alpha * (a @ b) + beta * c,)


def gemver(alpha, beta, a, u1, v1, u2, v2, w, x, y, z):
    a = a + np.outer(u1, v1) + np.outer(u2, v2)
    x = x + beta * (a.T @ y) + z
    return a, w + alpha * (a @ x), x


def gesummv(alpha, beta, a, b, x):
    return (alpha * (a @ x) + beta * (b @ x),)


def gramschmidt(a):
    q, r = np.zeros_like(a), np.zeros((a.shape[1],) * 2)
    for k in range(a.shape[1]):
        r[k, k] = np.linalg.norm(a[:, k])
        q[:, k] = a[:, k] / r[k, k]
        for j in range(k + 1, a.shape[1]):
            r[k, j] = q[:, k] @ a[:, j]
            a[:, j] -= q[:, k] * r[k, j]
    return q, r, a


def heat_3d(a, b, *, T):
    def step(x, y):
        c = x[1:-1, 1:-1, 1:-1]
        y[1:-1, 1:-1, 1:-1] = c + 0.125 * sum(np.diff(x, 2, axis)[tuple(slice(None) if k == axis else slice(1, -1) for k in range(3))]
                                              for axis in range(3))

    for _ in range(1, T):
        step(a, b)
        step(b, a)
    return a, b


def jacobi_1d(a, b, *, T):
    third = 0.33333 * np.ones(3)
    for _ in range(1, T):
        b[1:-1] = np.convolve(a, third, "valid")
        a[1:-1] = np.convolve(b, third, "valid")
    return a, b


def jacobi_2d(a, b, *, T):
    def step(x, y):
        y[1:-1, 1:-1] = 0.2 * (x[1:-1, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[2:, 1:-1] + x[:-2, 1:-1])

    for _ in range(1, T):
        step(a, b)
        step(b, a)
    return a, b


def k2mm(alpha, beta, a, b, c, d):
    return (alpha * (a @ b @ c) + beta * d,)


def k3mm(a, b, c, d):
    return (a @ b @ (c @ d),)


def eliminated(a):
    """Both factors of a in one matrix, row by row of the eliminations."""
    for k in range(len(a)):
        for i in range(k + 1, len(a)):
            a[i, k] /= a[k, k]
            a[i, k + 1:] -= a[i, k] * a[k, k + 1:]
    return a


def lu(a):
    return (eliminated(a),)


def ludcmp(a, b):
    x = np.linalg.solve(a, b)
    a = eliminated(a)
    return x, np.triu(a) @ x, a


def mvt(x1, x2, y1, y2, a):
    return x1 + a @ y1, x2 + y2 @ a


def nussinov(seq, *, N):
    t = np.zeros((N, N), np.int32)
    for i in range(N - 1, -1, -1):
        for j in range(i + 1, N):
            pair = int(seq[i] + seq[j] == 3) if i < j - 1 else 0
            t[i, j] = max([t[i, j - 1], t[i + 1, j], t[i + 1, j - 1] + pair] + [t[i, k] + t[k + 1, j] for k in range(i + 1, j)])
    return (t,)


def seidel_2d(a, *, N, T):
    for _ in range(T - 1):
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                a[i, j] = a[i - 1:i + 2, j - 1:j + 2].sum() / 9
    return (a,)


def symm(alpha, beta, c, a, b):
    lower = np.tril(a)
    return (beta * c + alpha * ((lower + np.tril(a, -1).T) @ b),)


def syr2k(alpha, beta, c, a, b):
    return (np.tril(beta * c + alpha * (a @ b.T + b @ a.T)) + np.triu(c, 1),)


def syrk(alpha, beta, c, a):
    return (np.tril(beta * c + alpha * (a @ a.T)) + np.triu(c, 1),)


def trisolv(l, x, b):
    return (np.linalg.solve(np.tril(l), b),)


def trmm(alpha, a, b):
    return (alpha * (b + np.tril(a, -1).T @ b),)

"""The oracle: the programs that are not of Polybench, in NumPy. Results: listed outputs, then what is written in place."""
import numpy as np


def arc_distance(theta1, phi1, theta2, phi2):
    # The angle between two points on the sphere.
    point = lambda t, p: np.array([np.cos(t) * np.cos(p), np.cos(t) * np.sin(p), np.sin(t)])
    a, b = point(theta1, phi1), point(theta2, phi2)
    return (2 * np.arctan2(np.linalg.norm(a - b, axis=0), np.linalg.norm(a + b, axis=0)),)


def azimint_hist(data, radius, *, K):
    bins = (radius.min(), radius.max())
    return (np.histogram(radius, K, bins, weights=data)[0] / np.histogram(radius, K, bins)[0],)


def azimint_naive(data, radius, *, K):
    edges = radius.max() * np.arange(K + 1) / K
    return (np.array([data[(low <= radius) & (radius < high)].mean() for low, high in zip(edges, edges[1:])]),)


def advected(u, dt, dx, dy, un, vn, left, right, down, up, nu):
    """A velocity after a step, without pressure."""
    return (u - un * dt / dx * (u - left) - vn * dt / dy * (u - down)
            + nu * dt * ((right - 2 * u + left) / dx**2 + (up - 2 * u + down) / dy**2))


def cavity_flow(u, v, p, dx, dy, dt, rho, nu, *, T, Q):
    c, left, right, down, up = (slice(1, -1),) * 2, np.s_[1:-1, :-2], np.s_[1:-1, 2:], np.s_[:-2, 1:-1], np.s_[2:, 1:-1]
    for _ in range(T):
        ux, uy = (u[right] - u[left]) / (2 * dx), (u[up] - u[down]) / (2 * dy)
        vx, vy = (v[right] - v[left]) / (2 * dx), (v[up] - v[down]) / (2 * dy)
        b = rho * ((ux + vy) / dt - ux**2 - 2 * uy * vx - vy**2)
        for _ in range(Q):
            p[c] = ((p[right] + p[left]) * dy**2 + (p[up] + p[down]) * dx**2 - b * dx**2 * dy**2) / (2 * (dx**2 + dy**2))
            p[:, -1] = p[:, -2]
            p[0] = p[1]
            p[:, 0] = p[:, 1]
            p[-1] = 0
        un, vn = u[c].copy(), v[c].copy()
        new_u = advected(un, dt, dx, dy, un, vn, u[left], u[right], u[down], u[up], nu) - dt / (2 * rho * dx) * (p[right] - p[left])
        new_v = advected(vn, dt, dx, dy, un, vn, v[left], v[right], v[down], v[up], nu) - dt / (2 * rho * dy) * (p[up] - p[down])
        u, v = np.zeros_like(u), np.zeros_like(v)
        u[c], v[c] = new_u, new_v
        u[-1] = 1
    return u, v, p


def channel_flow(u, v, p, dx, dy, dt, rho, nu, force, *, Q):
    left, right = (lambda x: np.roll(x, 1, 1)[1:-1]), (lambda x: np.roll(x, -1, 1)[1:-1])
    change, count = 1.0, 0
    while change > 0.001:
        ux, uy = (right(u) - left(u)) / (2 * dx), (u[2:] - u[:-2]) / (2 * dy)
        vx, vy = (right(v) - left(v)) / (2 * dx), (v[2:] - v[:-2]) / (2 * dy)
        b = rho * ((ux + vy) / dt - ux**2 - 2 * uy * vx - vy**2)
        for _ in range(Q):
            p[1:-1] = ((right(p) + left(p)) * dy**2 + (p[2:] + p[:-2]) * dx**2 - b * dx**2 * dy**2) / (2 * (dx**2 + dy**2))
            p[-1], p[0] = p[-2], p[1]
        un, vn = u[1:-1].copy(), v[1:-1].copy()
        before = u.sum()
        new_u = (advected(un, dt, dx, dy, un, vn, left(u), right(u), u[:-2], u[2:], nu)
                 - dt / (2 * rho * dx) * (right(p) - left(p)) + force * dt)
        new_v = advected(vn, dt, dx, dy, un, vn, left(v), right(v), v[:-2], v[2:], nu) - dt / (2 * rho * dy) * (p[2:] - p[:-2])
        u, v = np.pad(new_u, ((1, 1), (0, 0))), np.pad(new_v, ((1, 1), (0, 0)))
        change = (u.sum() - before) / u.sum()
        count += 1
    return np.int64(count), u, v, p


def compute(x, y, a, b, c):
    return (np.clip(x, 2, 10) * a + y * b + c,)


def contour_integral(hr, hi, yr, yi, zr, zi):
    ham, y = hr + 1j * hi, yr + 1j * yi
    s = len(ham) - 1
    p0, p1 = np.zeros_like(y), np.zeros_like(y)
    for z in zr + 1j * zi:
        x = np.linalg.solve(sum(z ** (s / 2 - n) * ham[n] for n in range(s + 1)), y)
        x = -x if abs(z) < 1 else x
        p0, p1 = p0 + x, p1 + z * x
    return p0.real, p0.imag, p1.real, p1.imag


def convolved(x, w, b):
    h, k = x.shape[1] - w.shape[0] + 1, x.shape[2] - w.shape[1] + 1
    return b + sum(x[:, r:r + h, s:s + k] @ w[r, s] for r in range(w.shape[0]) for s in range(w.shape[1]))


def conv2d_bias(x, w, b):
    return (convolved(x, w, b),)


def crc16(data):
    crc = 0xFFFF
    for byte in data:
        crc ^= int(byte)
        for _ in range(8):
            crc = crc >> 1 ^ (0x8408 if crc & 1 else 0)
    crc ^= 0xFFFF
    return (np.int32(crc << 8 & 0xFF00 | crc >> 8),)


def go_fast(a):
    return (a + np.tanh(np.diag(a)).sum(),)


def hdiff(x, coeff):
    lap = 4 * x[1:-1, 1:-1] - (x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2])
    limited = lambda flux, slope: np.where(flux * slope > 0, 0, flux)
    fx = limited(np.diff(lap, axis=0)[:, 1:-1], np.diff(x, axis=0)[1:-1, 2:-2])
    fy = limited(np.diff(lap, axis=1)[1:-1], np.diff(x, axis=1)[2:-2, 1:-1])
    return (x[2:-2, 2:-2] - coeff * (np.diff(fx, axis=0) + np.diff(fy, axis=1)),)


def relu(x):
    return np.maximum(x, 0)


def pooled(x):
    n, h, w, c = x.shape
    return x.reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))


def lenet(x, conv1, bias1, conv2, bias2, w1, b1, w2, b2, w3, b3):
    x = pooled(relu(convolved(x, conv1, bias1)))
    x = pooled(relu(convolved(x, conv2, bias2)))
    return (relu(relu(x.reshape(len(x), -1) @ w1 + b1) @ w2 + b2) @ w3 + b3,)


def mandelbrot(xmin, xmax, ymin, ymax, *, X, Y, T):
    c = np.linspace(xmin, xmax, X) + 1j * np.linspace(ymin, ymax, Y)[:, None]
    z, n = np.zeros_like(c), np.zeros(c.shape, np.int64)
    for t in range(T):
        near = abs(z) < 2
        n[near] = t
        z[near] = z[near] ** 2 + c[near]
    n[n == T - 1] = 0
    return (n,)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True),)


def mlp(x, w1, b1, w2, b2, w3, b3):
    return softmax(relu(relu(x @ w1 + b1) @ w2 + b2) @ w3 + b3)


def nbody(mass, pos, vel, dt, g, soft, *, T):
    def acceleration():
        d = pos - pos[:, None]
        return g * np.einsum("j,ijc,ij->ic", mass, d, ((d**2).sum(2) + soft**2) ** -1.5)

    def energies():
        i, j = np.triu_indices(len(mass), 1)
        return (mass[:, None] * vel**2).sum() / 2, -g * (mass[i] * mass[j] / np.linalg.norm(pos[i] - pos[j], axis=1)).sum()

    vel = vel - (mass @ vel) / mass.sum()
    found, acc = [energies()], acceleration()
    for _ in range(T):
        vel = vel + acc * dt / 2
        pos = pos + vel * dt
        acc = acceleration()
        vel = vel + acc * dt / 2
        found.append(energies())
    kinetic, potential = np.array(found).T
    return kinetic, potential, pos, vel


def resnet(x, conv1, conv2, conv3):
    def batch_norm(x):
        return (x - x.mean(0)) / np.sqrt(x.std(0) + 1e-5)

    y = relu(batch_norm(x @ conv1[0, 0]))
    y = relu(batch_norm(convolved(np.pad(y, ((0, 0), (1, 1), (1, 1), (0, 0))), conv2, 0)))
    return (relu(batch_norm(y @ conv3[0, 0]) + x),)


def scattering_self_energies(neigh, dhr, dhi, gr, gi, dr, di):
    dh, g, d = dhr + 1j * dhi, gr + 1j * gi, dr + 1j * di
    sigma = np.zeros_like(g)
    (atoms, neighbours), (nk, ne), (nq, nw, _, _, n3, _) = neigh.shape, g.shape[:2], d.shape
    for k, e, q, w, i, j, a, b in np.ndindex(nk, ne, nq, nw, n3, n3, atoms, neighbours):
        if e >= w:
            sigma[k, e, a] += g[k, e - w, neigh[a, b]] @ dh[a, b, i] @ (dh[a, b, j] * d[q, w, a, b, i, j])
    return sigma.real, sigma.imag


def spmv(row, col, val, x, *, M):
    return (np.array([val[row[i]:row[i + 1]] @ x[col[row[i]:row[i + 1]]] for i in range(M)]),)


def stockham_fft(xr, xi):
    y = np.fft.fft(xr + 1j * xi)
    return y.real, y.imag


def vadv(utens_stage, u_stage, wcon, u_pos, utens, dtr):
    # The tridiagonal systems as dense ones.
    levels = u_pos.shape[2]
    w = 0.125 * (wcon[1:] + wcon[:-1])
    matrix = np.zeros(u_pos.shape + (levels,))
    right = dtr * u_pos + utens + utens_stage
    for k in range(levels):
        matrix[:, :, k, k] = dtr
        for other, coefficient in ((k - 1, -w[:, :, k]), (k + 1, w[:, :, k + 1] if k + 1 < levels else None)):
            if 0 <= other < levels:
                matrix[:, :, k, other] = coefficient
                matrix[:, :, k, k] -= coefficient
                right[:, :, k] -= coefficient * (u_stage[:, :, other] - u_stage[:, :, k])
    return (dtr * (np.linalg.solve(matrix, right[..., None])[..., 0] - u_pos),)

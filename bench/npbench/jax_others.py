"""The programs that are not of Polybench, in JAX, as its users would write them."""
import jax
import jax.numpy as jnp
from jax import lax, nn


def arc_distance(theta1, phi1, theta2, phi2):
    h = jnp.sin((theta2 - theta1) / 2) ** 2 + jnp.cos(theta1) * jnp.cos(theta2) * jnp.sin((phi2 - phi1) / 2) ** 2
    return 2 * jnp.arctan2(jnp.sqrt(h), jnp.sqrt(1 - h))


def azimint_hist(data, radius, *, K):
    low, high = radius.min(), radius.max()
    bins = jnp.minimum(((radius - low) / (high - low) * K).astype(int), K - 1)
    return jnp.zeros(K).at[bins].add(data) / jnp.zeros(K).at[bins].add(1)


def azimint_naive(data, radius, *, K):
    edges = radius.max() * jnp.arange(K + 1) / K

    def ring(low, high):
        inside = (low <= radius) & (radius < high)
        return jnp.where(inside, data, 0).sum() / inside.sum()

    return jax.vmap(ring)(edges[:-1], edges[1:])


def advected(u, dt, dx, dy, un, vn, left, right, down, up, nu):
    return (u - un * dt / dx * (u - left) - vn * dt / dy * (u - down)
            + nu * (dt / dx**2 * (right - 2 * u + left) + dt / dy**2 * (up - 2 * u + down)))


def source(rho, dt, dx, dy, ux, uy, vx, vy):
    ux, uy, vx, vy = ux / (2 * dx), uy / (2 * dy), vx / (2 * dx), vy / (2 * dy)
    return rho * ((ux + vy) / dt - ux**2 - 2 * uy * vx - vy**2)


def cavity_flow(u, v, p, dx, dy, dt, rho, nu, *, T, Q):
    def across(x):
        return x[1:-1, 2:] - x[1:-1, :-2]

    def along(x):
        return x[2:, 1:-1] - x[:-2, 1:-1]

    def sides(x):
        return x[1:-1, :-2], x[1:-1, 2:], x[:-2, 1:-1], x[2:, 1:-1]

    def step(_, uvp):
        u, v, p = uvp
        b = source(rho, dt, dx, dy, across(u), along(u), across(v), along(v))

        def relax(_, p):
            left, right, down, up = sides(p)
            p = p.at[1:-1, 1:-1].set(((right + left) * dy**2 + (up + down) * dx**2 - dx**2 * dy**2 * b) / (2 * (dx**2 + dy**2)))
            p = p.at[:, -1].set(p[:, -2])
            p = p.at[0].set(p[1])
            p = p.at[:, 0].set(p[:, 1])
            return p.at[-1].set(0)

        p = lax.fori_loop(0, Q, relax, p)
        un, vn = u[1:-1, 1:-1], v[1:-1, 1:-1]
        new_u = advected(un, dt, dx, dy, un, vn, *sides(u), nu) - dt / (2 * rho * dx) * across(p)
        new_v = advected(vn, dt, dx, dy, un, vn, *sides(v), nu) - dt / (2 * rho * dy) * along(p)
        return jnp.pad(new_u, 1).at[-1].set(1), jnp.pad(new_v, 1), p

    return lax.fori_loop(0, T, step, (u, v, p))


def channel_flow(u, v, p, dx, dy, dt, rho, nu, force, *, Q):
    def sides(x):
        return jnp.roll(x, 1, 1)[1:-1], jnp.roll(x, -1, 1)[1:-1], x[:-2], x[2:]

    def step(state):
        _, count, u, v, p = state
        (u0, u1, u2, u3), (v0, v1, v2, v3) = sides(u), sides(v)
        b = source(rho, dt, dx, dy, u1 - u0, u3 - u2, v1 - v0, v3 - v2)

        def relax(_, p):
            left, right, down, up = sides(p)
            p = p.at[1:-1].set(((right + left) * dy**2 + (up + down) * dx**2 - dx**2 * dy**2 * b) / (2 * (dx**2 + dy**2)))
            return p.at[-1].set(p[-2]).at[0].set(p[1])

        p = lax.fori_loop(0, Q, relax, p)
        left, right, down, up = sides(p)
        un, vn = u[1:-1], v[1:-1]
        new_u = jnp.pad(advected(un, dt, dx, dy, un, vn, u0, u1, u2, u3, nu) - dt / (2 * rho * dx) * (right - left) + force * dt, ((1, 1), (0, 0)))
        new_v = jnp.pad(advected(vn, dt, dx, dy, un, vn, v0, v1, v2, v3, nu) - dt / (2 * rho * dy) * (up - down), ((1, 1), (0, 0)))
        return (new_u.sum() - u.sum()) / new_u.sum(), count + 1, new_u, new_v, p

    state = jnp.ones(()), jnp.zeros((), int), u, v, p
    return lax.while_loop(lambda state: state[0] > 0.001, step, state)[1:]


def compute(x, y, a, b, c):
    return jnp.clip(x, 2, 10) * a + y * b + c


def contour_integral(hr, hi, yr, yi, zr, zi):
    ham, y, z = lax.complex(hr, hi), lax.complex(yr, yi), lax.complex(zr, zi)
    s = len(ham) - 1

    def point(z):
        powers = z ** (s / 2 - jnp.arange(s + 1))
        x = jnp.linalg.solve(jnp.tensordot(powers, ham, 1), y)
        return jnp.where(abs(z) < 1, -x, x)

    x = jax.vmap(point)(z)
    p0, p1 = x.sum(0), jnp.tensordot(z, x, 1)
    return p0.real, p0.imag, p1.real, p1.imag


def convolved(x, w, padding="VALID"):
    return lax.conv_general_dilated(x, w, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def conv2d_bias(x, w, b):
    return convolved(x, w) + b


def crc16(data):
    def bit(_, crc):
        return (crc >> 1) ^ jnp.where(crc & 1, 0x8408, 0)

    def byte(crc, byte):
        return lax.fori_loop(0, 8, bit, crc ^ byte), None

    crc = lax.scan(byte, jnp.int32(0xFFFF), data.astype(jnp.int32))[0] ^ 0xFFFF
    return (crc << 8 & 0xFF00) | crc >> 8


def go_fast(a):
    return a + jnp.tanh(jnp.diagonal(a)).sum()


def hdiff(x, coeff):
    lap = 4 * x[1:-1, 1:-1] - (x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2])
    fx = lap[1:, 1:-1] - lap[:-1, 1:-1]
    fx = jnp.where(fx * (x[2:-1, 2:-2] - x[1:-2, 2:-2]) > 0, 0, fx)
    fy = lap[1:-1, 1:] - lap[1:-1, :-1]
    fy = jnp.where(fy * (x[2:-2, 2:-1] - x[2:-2, 1:-2]) > 0, 0, fy)
    return x[2:-2, 2:-2] - coeff * (fx[1:] - fx[:-1] + fy[:, 1:] - fy[:, :-1])


def pooled(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def lenet(x, conv1, bias1, conv2, bias2, w1, b1, w2, b2, w3, b3):
    x = pooled(nn.relu(convolved(x, conv1) + bias1))
    x = pooled(nn.relu(convolved(x, conv2) + bias2))
    x = x.reshape(len(x), -1)
    return nn.relu(nn.relu(x @ w1 + b1) @ w2 + b2) @ w3 + b3


def mandelbrot(xmin, xmax, ymin, ymax, *, X, Y, T):
    c = lax.complex(*jnp.meshgrid(jnp.linspace(xmin, xmax, X), jnp.linspace(ymin, ymax, Y)))

    def step(t, zn):
        z, n = zn
        near = abs(z) < 2
        return jnp.where(near, z**2 + c, z), jnp.where(near, t, n)

    n = lax.fori_loop(0, T, step, (jnp.zeros_like(c), jnp.zeros(c.shape, int)))[1]
    return jnp.where(n == T - 1, 0, n)


def softmax(x):
    return nn.softmax(x)


def mlp(x, w1, b1, w2, b2, w3, b3):
    return nn.softmax(nn.relu(nn.relu(x @ w1 + b1) @ w2 + b2) @ w3 + b3)


def nbody(mass, pos, vel, dt, g, soft, *, T):
    def acceleration(pos):
        d = pos[None] - pos[:, None]
        r2 = (d**2).sum(2) + soft**2
        return g * (d * (mass * r2**-1.5)[:, :, None]).sum(1)

    i, j = jnp.triu_indices(len(mass), 1)

    def energies(pos, vel):
        return (mass[:, None] * vel**2).sum() / 2, -g * (mass[i] * mass[j] / jnp.linalg.norm(pos[i] - pos[j], axis=1)).sum()

    def step(state, _):
        pos, vel, acc = state
        vel = vel + acc * dt / 2
        pos = pos + vel * dt
        acc = acceleration(pos)
        vel = vel + acc * dt / 2
        return (pos, vel, acc), energies(pos, vel)

    vel = vel - (mass @ vel) / mass.sum()
    first = energies(pos, vel)
    (pos, vel, _), later = lax.scan(step, (pos, vel, acceleration(pos)), None, T)
    kinetic, potential = (jnp.concatenate([jnp.reshape(a, 1), b]) for a, b in zip(first, later))
    return kinetic, potential, pos, vel


def resnet(x, conv1, conv2, conv3):
    def batch_norm(x):
        return (x - x.mean(0)) / jnp.sqrt(x.std(0) + 1e-5)

    y = nn.relu(batch_norm(convolved(x, conv1)))
    y = nn.relu(batch_norm(convolved(y, conv2, "SAME")))
    return nn.relu(batch_norm(convolved(y, conv3)) + x)


def scattering_self_energies(neigh, dhr, dhi, gr, gi, dr, di):
    dh, g, d = lax.complex(dhr, dhi), lax.complex(gr, gi), lax.complex(dr, di)
    sigma = jnp.zeros_like(g)
    near = g[:, :, neigh]  # [k,e,a,b,x,y]
    right = jnp.einsum("abjxy,qwabij->wabixy", dh, d)
    for w in range(d.shape[1]):
        left = jnp.einsum("keabxz,abizy->keabixy", near[:, :near.shape[1] - w], dh)
        sigma = sigma.at[:, w:].add(jnp.einsum("keabixz,abizy->keaxy", left, right[w]))
    return sigma.real, sigma.imag


def spmv(row, col, val, x, *, M):
    rows = jnp.repeat(jnp.arange(M), jnp.diff(row), total_repeat_length=len(col))
    return jax.ops.segment_sum(val * x[col], rows, M, indices_are_sorted=True)


def stockham_fft(xr, xi):
    y = lax.complex(xr, xi)[None]  # [s, n]: transforms of the strided parts
    while y.shape[1] > 1:
        s, n = y.shape
        a, b = y[:, :n // 2], y[:, n // 2:]
        w = jnp.exp(-2j * jnp.pi * jnp.arange(n // 2) / n)
        y = jnp.stack([a + b, (a - b) * w]).reshape(2 * s, n // 2)
    y = y[:, 0]
    return y.real, y.imag


def vadv(utens_stage, u_stage, wcon, u_pos, utens, dtr):
    w = 0.125 * (wcon[1:] + wcon[:-1])
    zero = jnp.zeros_like(w[:, :, :1])
    lower = jnp.concatenate([zero, -w[:, :, 1:]], 2)
    upper = jnp.concatenate([w[:, :, 1:], zero], 2)
    slope = jnp.concatenate([zero, jnp.diff(u_stage), zero], 2)
    right = dtr * u_pos + utens + utens_stage + lower * slope[:, :, :-1] - upper * slope[:, :, 1:]
    levels = lambda x: jnp.moveaxis(x, 2, 0)

    def down(cd, row):
        a, c, r = row
        divided = 1 / (dtr - a - c - cd[0] * a)
        cd = c * divided, (r - cd[1] * a) * divided
        return cd, cd

    def up(x, cd):
        x = cd[1] - cd[0] * x
        return x, x

    start = jnp.zeros_like(w[:, :, 0])
    columns = lax.scan(down, (start, start), (levels(lower), levels(upper), levels(right)))[1]
    x = lax.scan(up, start, columns, reverse=True)[1]
    return dtr * (jnp.moveaxis(x, 0, 2) - u_pos)

"""The programs of unseen.xh in JAX, as its users would write them: scans over what is carried."""
import jax
import jax.numpy as jnp
from jax import lax, nn


def repeat(step, state, times):
    return lax.scan(lambda s, _: (step(s), None), state, None, length=times)[0]


def thomas(a, b, c, d):
    def down(state, row):
        cp, dp = state
        a, b, c, d = row
        m = 4.0 + jnp.abs(b) - a * cp
        state = c / m, (d - a * dp) / m
        return state, state

    def up(x, row):
        cp, dp = row
        x = dp - cp * x
        return x, x

    zero = jnp.zeros(a.shape[0])
    _, rows = lax.scan(down, (zero, zero), (a.T, b.T, c.T, d.T))
    return lax.scan(up, zero, rows, reverse=True)[1].T


def biquads(x, c):
    def cascade(y, c):
        def step(state, v):
            z1, z2 = state
            o = 0.3 * c[0] * v + z1
            return (0.2 * c[1] * v - 0.4 * jnp.tanh(c[3]) * o + z2, 0.1 * c[2] * v - 0.3 * jnp.tanh(c[4]) * o), o

        zero = jnp.zeros(y.shape[0], y.dtype)
        return lax.scan(step, (zero, zero), y.T)[1].T, None

    return lax.scan(cascade, x, c)[0]


def peephole_lstm(x, w, u, p):
    zero = jnp.zeros((x.shape[1], w.shape[1]), x.dtype)

    def step(state, xz):
        h, c = state
        z = xz + jnp.einsum("bj,gkj->gbk", h, u)
        c = nn.sigmoid(z[1] + p[1] * c + 1) * c + nn.sigmoid(z[0] + p[0] * c) * jnp.tanh(z[2])
        h = nn.sigmoid(z[3] + p[2] * c) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (zero, zero), jnp.einsum("tbi,gki->tgbk", x, w))[1]


def qrnn(x, w):
    before = jnp.concatenate([jnp.zeros_like(x[:1]), x[:-1]])
    z = jnp.einsum("tbi,gik->tgbk", x, w[:, 0]) + jnp.einsum("tbi,gik->tgbk", before, w[:, 1])

    def step(c, z):
        f = nn.sigmoid(z[1])
        c = f * c + (1 - f) * jnp.tanh(z[0])
        return c, nn.sigmoid(z[2]) * c

    return lax.scan(step, jnp.zeros(z.shape[2:], x.dtype), z)[1]


def sir_network(a, s0, beta, gamma, weights):
    s, contact, n = nn.sigmoid(s0 + 2), nn.sigmoid(a), a.shape[0]

    def step(state, weight):
        s, i, r = state
        f, g = beta * s * (contact @ i) / n, gamma * i
        i = i + 0.1 * f - 0.1 * g
        return (s - 0.1 * f, i, r + 0.1 * g), i.sum() * weight

    return lax.scan(step, (s, 1 - s, jnp.zeros(n)), weights)[1]


def log_sinkhorn(c, a, b):
    la, lb = a - nn.logsumexp(a), b - nn.logsumexp(b)

    def step(state):
        f = la - nn.logsumexp(state[1][None] - c, 1)
        return f, lb - nn.logsumexp(f[:, None] - c, 0)

    f, g = repeat(step, (jnp.zeros(c.shape[0]), jnp.zeros(c.shape[1])), 10)
    return (c * jnp.exp(f[:, None] + g[None] - c)).sum()


def soft_dtw(x, y, gamma):
    cost, g = ((x[:, None] - y[None]) ** 2).sum(-1), jnp.abs(gamma) + 0.5

    def row(above, costs):
        def cell(left, at):
            corner, up, c = at
            m = jnp.minimum(corner, jnp.minimum(up, left))
            r = c + m - g * jnp.log(jnp.exp((m - corner) / g) + jnp.exp((m - up) / g) + jnp.exp((m - left) / g))
            return r, r

        r = lax.scan(cell, 1e4, (above[:-1], above[1:], costs))[1]
        return jnp.concatenate([jnp.full(1, 1e4), r]), None

    return lax.scan(row, jnp.full(y.shape[0] + 1, 1e4).at[0].set(0), cost)[0][-1]


def hmm_posteriors(log_p, log_a, e):
    p, first = nn.softmax(log_a, 1), jnp.exp(log_p + e[0])
    first = first / first.sum()

    def forward(a, e):
        a = (a @ p) * jnp.exp(e)
        a = a / a.sum()
        return a, a

    def backward(b, e):
        b = p @ (jnp.exp(e) * b)
        b = b / b.sum()
        return b, b

    one = jnp.ones(log_p.shape[0])
    alpha = jnp.concatenate([first[None], lax.scan(forward, first, e[1:])[1]])
    beta = jnp.concatenate([lax.scan(backward, one, e[1:], reverse=True)[1], one[None]])
    return alpha * beta / (alpha * beta).sum(1, keepdims=True)


def leapfrog(p, v, m):
    def step(state):
        p, v = state
        d = (((p[:, None] - p[None]) ** 2).sum(-1) + 0.5) ** 1.5
        v = v + 0.05 * ((1 + m**2)[None, :, None] * (p[None] - p[:, None]) / d[..., None]).sum(1)
        return p + 0.05 * v, v

    return repeat(step, (p, v), 15)[0]


def kalman(y, a, c, q, r):
    def step(state, y):
        m, p = state
        mp, pp = a @ m * 0.5, 0.25 * a @ p @ a.T + (q**2 + 0.1) * jnp.eye(3)
        v, s = y - c @ mp, c @ pp @ c.T + (r**2 + 0.1) * jnp.eye(2)
        det = s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0]
        inverse = jnp.array([[s[1, 1], -s[0, 1]], [-s[1, 0], s[0, 0]]]) / det
        k = pp @ c.T @ inverse
        return (mp + k @ v, pp - k @ c @ pp), jnp.log(det) + v @ inverse @ v

    return lax.scan(step, (jnp.zeros(3), jnp.eye(3)), y)[1]


def lu(a):
    n = a.shape[0]
    at = jnp.arange(n)

    def step(m, k):
        column = jnp.where(at > k, m[:, k] / m[k, k], m[:, k])
        m = m.at[:, k].set(column)
        return m - jnp.where(at > k, column, 0)[:, None] * jnp.where(at > k, m[k], 0)[None], None

    return lax.scan(step, a + 10 * jnp.eye(n), at)[0]


def lista(y, w, s, thresholds):
    b = y @ w

    def step(x, t):
        z = b + 0.1 * x @ s
        return jnp.sign(z) * nn.relu(jnp.abs(z) - jnp.abs(t) * 0.1), None

    return lax.scan(step, jnp.zeros_like(b), thresholds)[0]


def american_put(s0, k, vol):
    u, j = jnp.exp((jnp.abs(vol) * 0.1 + 0.1) * 0.2), jnp.arange(33.0)
    v = nn.relu(100 + k - (100 + s0) * jnp.exp(jnp.log(u) * (2 * j[:, None] - 32)))

    def step(v, n):
        hold = 0.999 * (0.49 * v[:-1] + 0.51 * v[1:])
        now = 100 + k - (100 + s0) * jnp.exp(jnp.log(u) * (2 * j[:32, None] - n))
        return jnp.concatenate([jnp.maximum(hold, now), v[-1:]]), None

    return lax.scan(step, v, jnp.arange(31.0, -1, -1))[0][0]


def attention_decoder(mem, y0, w, gates):
    def step(h, gate):
        a = nn.softmax(jnp.einsum("bsk,bk->bs", mem, h), 1)
        h = jnp.tanh(jnp.concatenate([h, jnp.einsum("bs,bsk->bk", a, mem)], 1) @ w.T) * gate
        return h, h

    return lax.scan(step, y0, gates)[1]


def clenshaw(x, c):
    def step(state, ck):
        return (ck + 2 * x * state[0] - state[1], state[0]), None

    b1, b2 = lax.scan(step, (jnp.zeros_like(x), jnp.zeros_like(x)), c[1:], reverse=True)[0]
    return c[0] + x * b1 - b2


def adam_fit(x, y, w, lr):
    def step(state):
        w, m, v, b1, b2 = state
        g = x.T @ (x @ w - y) / x.shape[0]
        m, v, b1, b2 = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g**2, b1 * 0.9, b2 * 0.99
        return w - 0.1 * nn.sigmoid(lr) * (m / (1 - b1)) / jnp.sqrt(v / (1 - b2) + 1e-8), m, v, b1, b2

    zero = jnp.zeros_like(w)
    return repeat(step, (w, zero, zero, 1.0, 1.0), 15)[0]


def hopfield(w, x, b):
    return repeat(lambda s: jnp.tanh(0.2 * s @ w.T + b), x, 50)


def graph_diffusion(src, dst, w, x, a):
    weights = nn.sigmoid(w)[:, None]
    return repeat(lambda h: a * x + (1 - a) * 0.1 * jnp.zeros_like(h).at[dst].add(weights * h[src]), x, 10)


def neural_ode(x, w1, b1, w2):
    def slope(y):
        return jnp.tanh(y @ w1.T + b1) @ w2.T

    return repeat(lambda y: y + 0.1 * slope(y + 0.05 * slope(y)), x, 20)


def gated_linear_attention(q, k, v, g):
    def step(s, row):
        q, k, v, g = row
        s = nn.sigmoid(g + 2)[:, :, None] * s + k[:, :, None] * v[:, None]
        return s, jnp.einsum("hi,hij->hj", q, s)

    return lax.scan(step, jnp.zeros((q.shape[1], q.shape[2], v.shape[2]), q.dtype), (q, k, v, g))[1]


def rnn_with_norm(x, wx, wh, gamma):
    def step(h, z):
        z = z + h @ wh.T
        m = z.mean(1, keepdims=True)
        h = jnp.tanh((z - m) / jnp.sqrt(((z - m) ** 2).mean(1, keepdims=True) + 1e-5) * gamma)
        return h, h

    return lax.scan(step, jnp.zeros((x.shape[1], wh.shape[0]), x.dtype), jnp.einsum("tbi,ki->tbk", x, wx))[1]


def around(q):
    return q[:-2, 1:-1] + q[2:, 1:-1] + q[1:-1, :-2] + q[1:-1, 2:]


def wave(u0, c):
    def step(state):
        u, p = state
        return 2 * u - p + 0.1 * nn.sigmoid(c) * (around(jnp.pad(u, 1)) - 4 * u), u

    return repeat(step, (u0, u0), 50)[0]


def poisson(f):
    return repeat(lambda u: u.at[1:-1, 1:-1].set(0.25 * (around(u) - f[1:-1, 1:-1])), jnp.zeros_like(f), 50)


def conjugate_gradient(a, b):
    n = b.shape[0]
    s = a.T @ a / n + jnp.eye(n)

    def step(state):
        x, r, p, rr = state
        ap = s @ p
        alpha = rr / (p @ ap)
        r = r - alpha * ap
        return x + alpha * p, r, r + (r @ r) / rr * p, r @ r

    return repeat(step, (jnp.zeros_like(b), b, b, b @ b), 20)[0]


def newton_schulz(g):
    def step(x):
        a = x @ x.T
        return 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x

    return repeat(step, g / (jnp.sqrt((g**2).sum()) + 1e-7), 5)


def sinkhorn(c, a, b):
    k = jnp.exp(-c * c)

    def step(state):
        u = jnp.exp(a) / (k @ state[1])
        return u, jnp.exp(b) / (k.T @ u)

    u, v = repeat(step, (jnp.ones_like(a), jnp.ones_like(b)), 20)
    return (u[:, None] * k * v * c * c).sum()


def kuramoto_oscillators(phase, own, k):
    n = phase.shape[0]
    return repeat(lambda t: t + 0.05 * (own + k / n * jnp.sin(t[None] - t[:, None]).sum(1)), phase, 20)


def competition(x0, r, a):
    return repeat(lambda x: x + 0.05 * x * (nn.softplus(r) - x @ nn.softplus(a).T), nn.sigmoid(x0), 50)


def mean_field(unary, compatibility):
    def step(q):
        p = jnp.pad(q, ((1, 1), (1, 1), (0, 0)))
        return nn.softmax(unary - around(p) @ compatibility.T, -1)

    return repeat(step, nn.softmax(unary, -1), 5)


def mixture_1d(x, m0, s0):
    n, k = x.shape[0], m0.shape[0]

    def step(state):
        m, s, p = state
        r = nn.softmax(jnp.log(p) - 0.5 * ((x[:, None] - m) / s) ** 2 - jnp.log(s), 1)
        nk = r.sum(0) + 1e-3
        m = (r * x[:, None]).sum(0) / nk
        return m, jnp.sqrt((r * (x[:, None] - m) ** 2).sum(0) / nk + 1e-2), nk / n

    m, s, p = repeat(step, (m0, nn.softplus(s0) + 0.1, jnp.full(k, 1 / k)), 10)
    return jnp.log((p / s * jnp.exp(-0.5 * ((x[:, None] - m) / s) ** 2)).sum(1)).sum()


def averages(x, decay):
    s = nn.sigmoid(decay)

    def step(h, now):
        h = s * h + (1 - s) * now[:, None]
        return h, h

    return lax.scan(step, jnp.zeros((x.shape[0], decay.shape[0]), x.dtype), x.T)[1].transpose(1, 0, 2)


def value_iteration(r, p):
    chances = nn.softmax(p, -1)
    return repeat(lambda v: 0.1 * nn.logsumexp((r + 0.9 * jnp.einsum("asz,z->sa", chances, v)) / 0.1, 1), jnp.zeros(r.shape[0], r.dtype), 50)

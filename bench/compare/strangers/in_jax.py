"""The ops of strangers.xh in JAX, as its users would write them."""
import jax
import jax.numpy as jnp
from jax import lax, nn
from jax.scipy.special import logsumexp


def normalized(x):
    return x / jnp.maximum(jnp.linalg.norm(x, axis=1, keepdims=True), 1e-12)


def contrast(q, k):
    z = normalized(q) @ normalized(k).T / 0.07
    return jnp.mean(logsumexp(z, axis=1) - jnp.diagonal(z))


def picked(x, t):
    return jnp.take_along_axis(x, t[:, None], 1)[:, 0]


def focal(x, t):
    lp = picked(nn.log_softmax(x), t)
    return -(1 - jnp.exp(lp)) ** 2 * lp


def label_smoothing(x, t):
    lp = nn.log_softmax(x)
    return jnp.mean(-0.9 * picked(lp, t) - 0.1 * lp.mean(1))


def quantile(x, y, u):
    d = y[:, None] - x
    return jnp.maximum(u * d, (u - 1) * d).mean()


def tversky(x, t):
    p = nn.sigmoid(x)
    a, b, g = (p * t).sum((2, 3)), (p * (1 - t)).sum((2, 3)), ((1 - p) * t).sum((2, 3))
    return 1 - ((a ** 2 + 1) / (a ** 2 + 0.3 * b ** 2 + 0.7 * g ** 2 + 1)).mean()


def cosine_loss(x, y):
    n = lambda a: jnp.maximum(jnp.sqrt((a * a).sum(1)), 1e-8)
    return 1 - (x * y).sum(1) / (n(x) * n(y))


def layer_norm(x, g, b, axis, eps):
    m = x.mean(axis, keepdims=True)
    v = ((x - m) ** 2).mean(axis, keepdims=True)
    shape = [1] * x.ndim
    shape[axis] = -1
    return (x - m) * lax.rsqrt(v + eps) * g.reshape(shape) + b.reshape(shape)


def global_response_norm(x, g, b):
    q = jnp.sqrt((x ** 2).sum((1, 2), keepdims=True) + 1e-6)
    return g * (x * (q / (q.mean(-1, keepdims=True) + 1e-6))) + b + x


def gated_rms_norm(x, z, w):
    h = x * nn.silu(z)
    return w * h * lax.rsqrt((h * h).mean(1, keepdims=True) + 1e-5)


def local_response_norm(x):
    s = lax.reduce_window(x * x, 0., lax.add, (1, 5, 1, 1), (1, 1, 1, 1), ((0, 0), (2, 2), (0, 0), (0, 0)))
    return x / (2 + 1e-4 * s) ** 0.75


def lennard_jones(x):
    r2 = ((x[:, None] - x[None]) ** 2).sum(-1) + 0.5
    s = 1 / r2 ** 3
    return 2 * ((s * s - s) * (1 - jnp.eye(len(x)))).sum()


def gravity(x, m):
    d = x[None] - x[:, None]
    return (m[None, :, None] * d * (((d ** 2).sum(-1) + 0.01) ** -1.5)[..., None]).sum(1)


def student_t(x, c):
    u = 1 / (1 + ((x[:, None] - c[None]) ** 2).sum(-1))
    return u / u.sum(1, keepdims=True)


def chamfer(a, b):
    d = ((a[:, None] - b[None]) ** 2).sum(-1)
    return d.min(1).mean() + d.min(0).mean()


def heat(u, k):
    p = jnp.pad(u, 1, mode="edge")
    c = slice(1, -1)
    return u + 0.1 * k * (p[:-2, c, c] + p[2:, c, c] + p[c, :-2, c] + p[c, 2:, c] + p[c, c, :-2] + p[c, c, 2:] - 6 * u)


def sobel(x):
    H, W = x.shape[1:]
    s = lambda i, j: x[:, i:H - 2 + i, j:W - 2 + j]
    a = s(0, 2) + 2 * s(1, 2) + s(2, 2) - s(0, 0) - 2 * s(1, 0) - s(2, 0)
    b = s(2, 0) + 2 * s(2, 1) + s(2, 2) - s(0, 0) - 2 * s(0, 1) - s(0, 2)
    return jnp.sqrt(a ** 2 + b ** 2 + 1e-6)


def total_variation(x):
    a, b = x[:, 1:, :-1] - x[:, :-1, :-1], x[:, :-1, 1:] - x[:, :-1, :-1]
    return jnp.sqrt(a ** 2 + b ** 2 + 1e-4).mean()


def gray_scott(u, v):
    lap = lambda x: jnp.roll(x, -1, 0) + jnp.roll(x, 1, 0) + jnp.roll(x, -1, 1) + jnp.roll(x, 1, 1) - 4 * x
    r = u * v ** 2
    return u + 0.16 * lap(u) - r + 0.035 * (1 - u), v + 0.08 * lap(v) + r - 0.1 * v


def ssim(x, y):
    m = lambda a: lax.reduce_window(a, 0., lax.add, (1, 7, 7), (1, 1, 1), "VALID") / 49
    mx, my = m(x), m(y)
    xx, yy, xy = m(x * x) - mx ** 2, m(y * y) - my ** 2, m(x * y) - mx * my
    return (2 * mx * my + 0.01) * (2 * xy + 0.03) / ((mx ** 2 + my ** 2 + 0.01) * (xx + yy + 0.03))


def springs(x, e, r):
    d = x[e[:, 0]] - x[e[:, 1]]
    return 0.5 * ((jnp.sqrt((d ** 2).sum(1) + 1e-9) - r) ** 2).sum()


def segment_mean(x, id, z):
    n = jnp.zeros(len(z)).at[id].add(1.)
    return z + jnp.zeros_like(z).at[id].add(x) / jnp.maximum(n, 1)[:, None]


def table(x, t):
    p = jnp.clip(x * 32, 0, len(t) - 1.001)
    i = jnp.floor(p).astype(jnp.int32)
    f = p - jnp.floor(p)
    return (1 - f) * t[i] + f * t[i + 1]


def warp(x, u, v):
    B, C, H, W = x.shape
    p = jnp.clip(jnp.arange(H)[:, None] + u, 0, H - 1.001)
    q = jnp.clip(jnp.arange(W) + v, 0, W - 1.001)

    def one(x, p, q):
        i, j = jnp.floor(p).astype(jnp.int32), jnp.floor(q).astype(jnp.int32)
        fi, fj = p - jnp.floor(p), q - jnp.floor(q)
        return ((1 - fi) * ((1 - fj) * x[:, i, j] + fj * x[:, i, j + 1])
                + fi * ((1 - fj) * x[:, i + 1, j] + fj * x[:, i + 1, j + 1]))
    return jax.vmap(one)(x, p, q)


def ages(T):
    return jnp.arange(T)[:, None] - jnp.arange(T)


def discounted(r, v):
    d = ages(r.shape[1])
    return r @ jnp.where(d >= 0, 0.99 ** jnp.maximum(d, 0), 0.) - v


def decay_scan(x, a):
    d = ages(x.shape[1])[..., None]
    return jnp.einsum("tkd,bkd->btd", jnp.where(d >= 0, jnp.exp(-a * jnp.maximum(d, 0)), 0.), x)


def sliding(q, k, v):
    d = ages(q.shape[1])
    s = jnp.where((d >= 0) & (d < 64), jnp.einsum("hid,hjd->hij", q, k) * 0.125, -jnp.inf)
    return jnp.einsum("hij,hjd->hid", nn.softmax(s, -1), v)


def tridiagonal(a, b, c, x):
    return a * jnp.pad(x[:, :-1], ((0, 0), (1, 0))) + b * x + c * jnp.pad(x[:, 1:], ((0, 0), (0, 1)))


def conv(x, w, padding, **options):
    n = "NCHW"[:1] + "C" + "HW"[:x.ndim - 2]
    return lax.conv_general_dilated(x, w, (1,) * (x.ndim - 2) if "window_strides" not in options else options.pop("window_strides"),
                                    padding, dimension_numbers=(n, "OI" + n[2:], n), **options)


def gated_conv(x, w, v):
    f = lambda w: conv(x, w, [(4, 0)], rhs_dilation=(4,))
    return jnp.tanh(f(w)) * nn.sigmoid(f(v))


def grouped(x, w, b):
    return conv(x, w, "SAME", feature_group_count=x.shape[1] // w.shape[1]) + b[:, None, None]


def upsampling(x, w):
    return conv(x, jnp.flip(w, (2, 3)).swapaxes(0, 1), [(2, 2), (2, 2)], lhs_dilation=(2, 2))


def separable(x, w, p):
    d = conv(x, w[:, None], "SAME", feature_group_count=x.shape[1])
    return jnp.clip(jnp.einsum("kc,nchw->nkhw", p, d), 0, 6)


def patches(x, w, b, p):
    y = conv(x, w, "VALID", window_strides=(16, 16))
    return y.reshape(*y.shape[:2], -1).swapaxes(1, 2) + b + p


def squeeze_excite(x, u, a, v, b):
    g = nn.sigmoid(nn.relu(x.mean((2, 3)) @ u.T + a) @ v.T + b)
    return x * g[:, :, None, None]


def pool(x):
    return lax.reduce_window(x, 0., lax.add, (1, 1, 3, 3), (1, 1, 2, 2), ((0, 0), (0, 0), (1, 1), (1, 1))) / 9


def mixture(x, m, s, w):
    z = w - s.sum(1) - 0.5 * (((x[:, None] - m) * jnp.exp(-s)) ** 2).sum(-1)
    return -logsumexp(z, axis=1).mean() + logsumexp(w)


def mixture_density(p, m, s, y):
    return -logsumexp(nn.log_softmax(p) - s - 0.5 * ((y[:, None] - m) * jnp.exp(-s)) ** 2, axis=1)


def standardize(x):
    return (x - x.mean(0)) / (x.std(0, ddof=1) + 1e-8)


def ops():
    return {
        "focal_loss": focal, "label_smoothing": label_smoothing, "info_nce": contrast, "quantile_loss": quantile,
        "gaussian_kl": lambda m, s, p, r: 0.5 * (r - s + (jnp.exp(s) + (m - p) ** 2) / jnp.exp(r) - 1).sum(1),
        "tversky": tversky, "cosine_loss": cosine_loss,
        "channel_layer_norm": lambda x, g, b: layer_norm(x, g, b, 1, 1e-6),
        "global_response_norm": global_response_norm, "gated_rms_norm": gated_rms_norm, "standardize_columns": standardize,
        "spatial_softmax": lambda x: nn.softmax(x, 1),
        "weight_norm_linear": lambda x, v, g: x @ ((g / jnp.linalg.norm(v, axis=1))[:, None] * v).T,
        "local_response_norm": local_response_norm,
        "lennard_jones": lennard_jones, "gravity": gravity,
        "kernel_sum": lambda x, z, b: jnp.exp(-0.5 * ((x[:, None] - z[None]) ** 2).sum(-1)) @ b,
        "cosine_similarity": lambda x, y: (x @ y.T) / (jnp.linalg.norm(x, axis=1)[:, None] * jnp.linalg.norm(y, axis=1) + 1e-8),
        "chamfer": chamfer, "student_t_assignment": student_t,
        "heat_3d": heat, "sobel": sobel, "total_variation": total_variation, "gray_scott": gray_scott, "ssim": ssim,
        "token_embedding": lambda w, p, id, g, b: layer_norm(w[id] + p, g, b, -1, 1e-5),
        "spring_energy": springs, "segment_mean": segment_mean, "table_interpolation": table, "warp_bilinear": warp,
        "causal_mean": lambda x: jnp.cumsum(x, 1) / jnp.arange(1, x.shape[1] + 1)[:, None],
        "discounted_returns": discounted, "decay_scan": decay_scan, "sliding_attention": sliding, "tridiagonal_product": tridiagonal,
        "gated_dilated_conv": gated_conv, "grouped_conv": grouped, "upsampling_conv": upsampling,
        "separable_conv_relu6": separable, "patch_embedding": patches, "squeeze_excite": squeeze_excite,
        "overlapping_average_pool": pool, "gaussian_mixture": mixture, "mixture_density": mixture_density,
        "swiglu_block": lambda x, w, v, u: x + (nn.silu(x @ w) * (x @ v)) @ u,
        "low_rank_linear": lambda x, w, a, b: x @ w.T + 2 * ((x @ a.T) @ b.T),
        "bilinear_form": lambda x, w, z: jnp.einsum("ni,kij,nj->nk", x, w, z),
        "factorization_machine": lambda x: 0.5 * (x.sum(1) ** 2 - (x ** 2).sum(1)).sum(1),
    }

"""The ops of strangers.xh in PyTorch, as its users would write them: torch's own functions where there are some."""
import torch
import torch.nn.functional as F


def contrast(q, k):
    z = F.normalize(q, dim=1) @ F.normalize(k, dim=1).T / 0.07
    return F.cross_entropy(z, torch.arange(len(q)))


def focal(x, t):
    lp = F.log_softmax(x, 1).gather(1, t[:, None])[:, 0]
    return -(1 - lp.exp()) ** 2 * lp


def quantile(x, y, u):
    d = y[:, None] - x
    return torch.maximum(u * d, (u - 1) * d).mean()


def tversky(x, t):
    p = torch.sigmoid(x)
    a, b, g = (p * t).sum((2, 3)), (p * (1 - t)).sum((2, 3)), ((1 - p) * t).sum((2, 3))
    return 1 - ((a ** 2 + 1) / (a ** 2 + 0.3 * b ** 2 + 0.7 * g ** 2 + 1)).mean()


def channel_layer_norm(x, g, b):
    return F.layer_norm(x.permute(0, 2, 3, 1), (x.shape[1],), g, b, 1e-6).permute(0, 3, 1, 2)


def global_response_norm(x, g, b):
    q = ((x ** 2).sum((1, 2), keepdim=True) + 1e-6).sqrt()
    return g * (x * (q / (q.mean(-1, keepdim=True) + 1e-6))) + b + x


def lennard_jones(x):
    r2 = ((x[:, None] - x[None]) ** 2).sum(-1) + 0.5
    s = 1 / r2 ** 3
    return 2 * ((s * s - s) * (1 - torch.eye(len(x), dtype=x.dtype))).sum()


def gravity(x, m):
    d = x[None] - x[:, None]
    return (m[None, :, None] * d * ((d ** 2).sum(-1) + 0.01).pow(-1.5)[..., None]).sum(1)


def student_t(x, c):
    u = 1 / (1 + ((x[:, None] - c[None]) ** 2).sum(-1))
    return u / u.sum(1, keepdim=True)


def heat(u, k):
    p = F.pad(u[None, None], (1, 1, 1, 1, 1, 1), mode="replicate")[0, 0]
    c = slice(1, -1)
    return u + 0.1 * k * (p[:-2, c, c] + p[2:, c, c] + p[c, :-2, c] + p[c, 2:, c] + p[c, c, :-2] + p[c, c, 2:] - 6 * u)


def sobel(x):
    w = torch.tensor([[-1., 0, 1], [-2, 0, 2], [-1, 0, 1]], dtype=x.dtype)
    g = F.conv2d(x[:, None], torch.stack([w, w.T])[:, None])
    return (g[:, 0] ** 2 + g[:, 1] ** 2 + 1e-6).sqrt()


def total_variation(x):
    a, b = x[:, 1:, :-1] - x[:, :-1, :-1], x[:, :-1, 1:] - x[:, :-1, :-1]
    return (a ** 2 + b ** 2 + 1e-4).sqrt().mean()


def gray_scott(u, v):
    lap = lambda x: x.roll(-1, 0) + x.roll(1, 0) + x.roll(-1, 1) + x.roll(1, 1) - 4 * x
    r = u * v ** 2
    return u + 0.16 * lap(u) - r + 0.035 * (1 - u), v + 0.08 * lap(v) + r - 0.1 * v


def ssim(x, y):
    m = lambda a: F.avg_pool2d(a[:, None], 7, 1)[:, 0]
    mx, my = m(x), m(y)
    xx, yy, xy = m(x * x) - mx ** 2, m(y * y) - my ** 2, m(x * y) - mx * my
    return (2 * mx * my + 0.01) * (2 * xy + 0.03) / ((mx ** 2 + my ** 2 + 0.01) * (xx + yy + 0.03))


def springs(x, e, r):
    d = x[e[:, 0]] - x[e[:, 1]]
    return 0.5 * ((((d ** 2).sum(1) + 1e-9).sqrt() - r) ** 2).sum()


def segment_mean(x, id, z):
    n = torch.zeros(len(z), dtype=x.dtype).index_add(0, id, torch.ones(len(id), dtype=x.dtype))
    return z + torch.zeros_like(z).index_add(0, id, x) / n.clamp(min=1)[:, None]


def table(x, t):
    p = (x * 32).clamp(0, len(t) - 1.001)
    i = p.floor().long()
    f = p - p.floor()
    return (1 - f) * t[i] + f * t[i + 1]


def warp(x, u, v):
    B, C, H, W = x.shape
    p = (torch.arange(H, dtype=x.dtype)[:, None] + u).clamp(0, H - 1.001)
    q = (torch.arange(W, dtype=x.dtype) + v).clamp(0, W - 1.001)
    grid = torch.stack([q / (W - 1) * 2 - 1, p / (H - 1) * 2 - 1], -1)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=True)


def powers(T, a):
    d = torch.arange(T)[:, None] - torch.arange(T)
    return torch.where(d >= 0, a ** d.clamp(min=0), torch.zeros(()))


def discounted(r, v):
    return r @ powers(r.shape[1], torch.tensor(0.99, dtype=r.dtype)) - v


def decay_scan(x, a):
    d = torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])
    w = torch.where((d >= 0)[..., None], torch.exp(-a * d.clamp(min=0)[..., None]), torch.zeros((), dtype=x.dtype))
    return torch.einsum("tkd,bkd->btd", w, x)


def sliding(q, k, v):
    i = torch.arange(q.shape[1])
    d = i[:, None] - i
    return F.scaled_dot_product_attention(q, k, v, attn_mask=(d >= 0) & (d < 64), scale=0.125)


def tridiagonal(a, b, c, x):
    return a * F.pad(x[:, :-1], (1, 0)) + b * x + c * F.pad(x[:, 1:], (0, 1))


def gated_conv(x, w, v):
    p = F.pad(x, (4, 0))
    return torch.tanh(F.conv1d(p, w, dilation=4)) * torch.sigmoid(F.conv1d(p, v, dilation=4))


def separable(x, w, p):
    d = F.conv2d(x, w[:, None], padding=1, groups=x.shape[1])
    return F.relu6(F.conv2d(d, p[:, :, None, None]))


def squeeze_excite(x, u, a, v, b):
    g = torch.sigmoid(F.linear(F.relu(F.linear(x.mean((2, 3)), u, a)), v, b))
    return x * g[:, :, None, None]


def mixture(x, m, s, w):
    z = w - s.sum(1) - 0.5 * (((x[:, None] - m) * torch.exp(-s)) ** 2).sum(-1)
    return -torch.logsumexp(z, 1).mean() + torch.logsumexp(w, 0)


def mixture_density(p, m, s, y):
    return -torch.logsumexp(F.log_softmax(p, 1) - s - 0.5 * ((y[:, None] - m) * torch.exp(-s)) ** 2, 1)


def ops():
    return {
        "focal_loss": focal,
        "label_smoothing": lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1),
        "info_nce": contrast,
        "quantile_loss": quantile,
        "gaussian_kl": lambda m, s, p, r: 0.5 * (r - s + (s.exp() + (m - p) ** 2) / r.exp() - 1).sum(1),
        "tversky": tversky,
        "cosine_loss": lambda x, y: 1 - F.cosine_similarity(x, y),
        "channel_layer_norm": channel_layer_norm,
        "global_response_norm": global_response_norm,
        "gated_rms_norm": lambda x, z, w: F.rms_norm(x * F.silu(z), (x.shape[1],), w, 1e-5),
        "standardize_columns": lambda x: (x - x.mean(0)) / (x.std(0) + 1e-8),
        "spatial_softmax": lambda x: F.softmax(x, 1),
        "weight_norm_linear": lambda x, v, g: F.linear(x, torch._weight_norm(v, g[:, None], 0)),
        "local_response_norm": lambda x: F.local_response_norm(x, 5, 5e-4, 0.75, 2.0),
        "lennard_jones": lennard_jones,
        "gravity": gravity,
        "kernel_sum": lambda x, z, b: torch.exp(-0.5 * ((x[:, None] - z[None]) ** 2).sum(-1)) @ b,
        "cosine_similarity": lambda x, y: (x @ y.T) / (x.norm(dim=1)[:, None] * y.norm(dim=1)[None] + 1e-8),
        "chamfer": lambda a, b: (lambda d: d.min(1).values.mean() + d.min(0).values.mean())(
            ((a[:, None] - b[None]) ** 2).sum(-1)),
        "student_t_assignment": student_t,
        "heat_3d": heat, "sobel": sobel, "total_variation": total_variation, "gray_scott": gray_scott, "ssim": ssim,
        "token_embedding": lambda w, p, id, g, b: F.layer_norm(F.embedding(id, w) + p, (w.shape[1],), g, b),
        "spring_energy": springs,
        "segment_mean": segment_mean,
        "table_interpolation": table,
        "warp_bilinear": warp,
        "causal_mean": lambda x: x.cumsum(1) / torch.arange(1, x.shape[1] + 1, dtype=x.dtype)[:, None],
        "discounted_returns": discounted,
        "decay_scan": decay_scan,
        "sliding_attention": sliding,
        "tridiagonal_product": tridiagonal,
        "gated_dilated_conv": gated_conv,
        "grouped_conv": lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=x.shape[1] // w.shape[1]),
        "upsampling_conv": lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1),
        "separable_conv_relu6": separable,
        "patch_embedding": lambda x, w, b, p: F.conv2d(x, w, b, stride=16).flatten(2).transpose(1, 2) + p,
        "squeeze_excite": squeeze_excite,
        "overlapping_average_pool": lambda x: F.avg_pool2d(x, 3, 2, 1),
        "gaussian_mixture": mixture,
        "mixture_density": mixture_density,
        "swiglu_block": lambda x, w, v, u: x + (F.silu(x @ w) * (x @ v)) @ u,
        "low_rank_linear": lambda x, w, a, b: F.linear(x, w) + 2 * F.linear(F.linear(x, a), b),
        "bilinear_form": lambda x, w, z: F.bilinear(x, z, w),
        "factorization_machine": lambda x: 0.5 * (x.sum(1) ** 2 - (x ** 2).sum(1)).sum(1),
    }

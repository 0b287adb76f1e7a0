"""The ops of kernelbench.xh in PyTorch, as its users would write them: torch's own functions where there are some."""
import torch
import torch.nn.functional as F


def bn(x, g=None, b=None):
    return F.batch_norm(x, None, None, g, b, True)


def triplet(a, p, q):
    d = lambda u, v: ((u - v + 1e-6) ** 2).sum(1).sqrt()
    return F.relu(d(a, p) - d(a, q) + 1).mean()


def conv_transpose_3d_norm_pool_gelu(x, w, g, b):
    t = F.conv_transpose3d(x, w, stride=2, padding=1, output_padding=1)
    return F.gelu(F.avg_pool3d(F.layer_norm(t, t.shape[-1:], g, b), 2))


def conv_3d_softmax_pool_pool(x, w, b):
    return F.max_pool3d(F.max_pool3d(F.softmax(F.conv3d(x, w, b), 1), 2), 2)


def conv_3d_pool_mean_sum(x, w, b, a):
    p = F.max_pool3d(F.conv3d(x, w, b) / 2, 2)
    return (p.mean((2, 3, 4)) + a).sum(1)


def conv_transpose_pool_mean_tanh(x, w, b):
    return torch.tanh(F.hardtanh(F.max_pool2d(F.conv_transpose2d(x, w, b, padding=1), 2)).mean((2, 3)))


def conv_transpose_norm_pool_norm(x, w, g, b, h, a):
    return F.group_norm(F.max_pool2d(torch.tanh(bn(F.conv_transpose2d(x, w, padding=1), g, b)), 2), 4, h, a)


def transposed_3d(x, w, b=None):
    return F.conv_transpose3d(x, w, b, stride=2, padding=1)


def conv_transpose_3d_log_sum_exp(x, w, b):
    l = torch.logsumexp(transposed_3d(x, w), 1)
    return torch.clamp(l * torch.sigmoid(l + 3) / 6 - b, -1, 1)


def conv_norm_residual_log_sum_exp(x, w, a, g, b):
    t = F.conv2d(x, w, a)
    return torch.logsumexp(t + F.hardswish(torch.tanh(F.group_norm(t, 8, g, b))), 1)


def linear_row_norm_product(x, w, b, y0):
    return (F.layer_norm(F.linear(x, w, b), w.shape[:1]) + y0) * y0


def linear_swish_bias_group_norm(x, w, b, c, g, a):
    return F.group_norm(F.silu(F.linear(x, w, b)) + c, 64, g, a)


def linear_group_norm_min_bias(x, w, b, g, a, c):
    return F.group_norm(F.linear(x, w, b), 64, g, a).min(1)[0] + c[:, None]


def linear_log_sum_exp_chain(x, w, b):
    l = torch.logsumexp(F.linear(x, w, b), 1)
    return F.gelu(F.gelu(F.leaky_relu(F.leaky_relu(l))))


def linear_average_gelu_max(x, w, b):
    return (F.gelu(F.avg_pool1d(F.linear(x, w, b)[:, None], 16)[:, 0]) * 2).max(1)[0]


def linear_mean_log_gelu_residual(x, w, b, s):
    return x + F.gelu((F.linear(x, w, b) - s).mean(1, keepdim=True))


def conv_3d_instance_norm_max(x, w, g):
    s = g[:, None, None, None]
    return (F.instance_norm(F.conv3d(x, w) * s).clamp(-1, 1) * s).max(1)[0]


def conv_transpose_3d_average_bias(x, w, b, p, z):
    return (F.avg_pool3d(transposed_3d(x, w) * p, 2) + b[:, None, None, None]) * z


def conv_transpose_3d_pool_softmax_swish_max(x, w, b, z):
    t = F.conv_transpose3d(x, w, b, stride=2, padding=1, output_padding=1)
    u = F.softmax(F.max_pool3d(t, 2), 1) - z[:, None, None, None]
    return F.silu(u).max(1)[0]


def conv_transpose_mean_log_sum_exp(x, w, b):
    return 10 * torch.logsumexp(F.conv_transpose2d(x, w).mean((2, 3)) + b, 1)


def conv_transpose_min_sum_gelu(x, w, b, a):
    t = F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1)
    return F.gelu(t.min(1)[0].sum(1)) + a


def conv_softplus_tanh_batch_norm(x, w, b, g, a):
    t = F.conv2d(x, w, b)
    return bn(torch.tanh(F.softplus(t)) * t, g, a)


def causal_self_attention(x, w, b, p):
    B, T, D = x.shape
    q, k, v = (z.view(B, T, 4, D // 4).transpose(1, 2) for z in F.linear(x, w, b).split(D, 2))
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return F.linear(o.transpose(1, 2).reshape(B, T, D), p)


def relu_attention(q, k, v):
    s = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return F.relu(s).tril() @ v


def inverted_bottleneck(x, u, w, p, g, b, h, a):
    s = F.relu6(bn(F.conv2d(x, u[:, :, None, None]), g, b))
    d = F.conv2d(s, w[:, None], stride=2, padding=2, groups=len(w))
    return F.conv2d(F.relu6(bn(d, h, a)), p[:, :, None, None])


def shuffle_unit(x, u, w, p):
    t = F.relu(F.conv2d(x, u[:, :, None, None], groups=3))
    d = F.conv2d(t, w[:, None], padding=1, groups=len(w))
    N, E, H, W = d.shape
    s = d.view(N, 3, E // 3, H, W).transpose(1, 2).reshape(N, E, H, W)
    return F.relu(F.conv2d(s, p[:, :, None, None], groups=3)) + torch.cat([x, x], 1)


def fire_module(x, u, v, w):
    t = F.relu(F.conv2d(x, u[:, :, None, None]))
    return torch.cat([F.relu(F.conv2d(t, v[:, :, None, None])), F.relu(F.conv2d(t, w, padding=1))], 1)


def dense_layers(x, g, b, w, h, a, v):
    z = torch.cat([x, F.conv2d(F.relu(bn(x, g, b)), w, padding=1)], 1)
    return torch.cat([z, F.conv2d(F.relu(bn(z, h, a)), v, padding=1)], 1)


def net_vlad(x, c, e, g, h):
    B, N, D = x.shape
    a = F.softmax(bn(x.reshape(-1, D) @ c, g, h), 1).view(B, N, -1)
    w = (a.transpose(1, 2) @ x).transpose(1, 2) - a.sum(1, keepdim=True) * e
    return F.normalize(F.normalize(w, dim=1).reshape(B, -1), dim=1)


def state_space(x, a, b, c):
    """In blocks of 64 steps, as Mamba 2 has it."""
    B, T, H, P = x.shape
    x, a, b, c = (z.reshape(B, T // 64, 64, *z.shape[2:]) for z in (x, a, b, c))
    s = a.permute(0, 3, 1, 2).cumsum(-1)
    lower = torch.ones(64, 64, dtype=torch.bool, device=x.device).tril()
    decay = torch.exp((s[..., :, None] - s[..., None, :]).masked_fill(~lower, -torch.inf))
    inside = torch.einsum("bclhn,bcshn,bhcls,bcshp->bclhp", c, b, decay, x)
    states = torch.einsum("bclhn,bhcl,bclhp->bchpn", b, torch.exp(s[..., -1:] - s), x)
    states = torch.cat([torch.zeros_like(states[:, :1]), states], 1)
    ends = F.pad(s[..., -1], (1, 0)).cumsum(-1)
    chunks = len(ends[0, 0])
    lower = torch.ones(chunks, chunks, dtype=torch.bool, device=x.device).tril()
    between = torch.exp((ends[..., :, None] - ends[..., None, :]).masked_fill(~lower, -torch.inf))
    states = torch.einsum("bhzc,bchpn->bzhpn", between, states)[:, :-1]
    before = torch.einsum("bclhn,bchpn,bhcl->bclhp", c, states, torch.exp(s))
    return (inside + before).reshape(B, T, H, P)


def window_mlp(x, w, b):
    B, H, W, C = x.shape
    t = x.view(B, H // 7, 7, W // 7, 7, 3, C // 3).permute(0, 1, 3, 5, 2, 4, 6).reshape(-1, 3 * 49, C // 3)
    y = F.conv1d(t, w[:, :, None], b, groups=3).view(B, H // 7, W // 7, 3, 7, 7, C // 3)
    return x + y.permute(0, 1, 4, 2, 5, 3, 6).reshape(B, H, W, C)


def inception_module(x, u, v, w, p, q, z):
    one = lambda x, w: F.conv2d(x, w[:, :, None, None])
    return torch.cat([one(x, u), F.conv2d(one(x, v), w, padding=1), F.conv2d(one(x, p), q, padding=2),
                      one(F.max_pool2d(x, 3, 1, 1), z)], 1)


def ops():
    return {
        "diagonal_product": lambda a, b: a[:, None] * b,
        "product_of_lower_triangles": lambda a, b: a.tril() @ b.tril(),
        "tall_times_short": torch.matmul, "long_sums_product": torch.matmul,
        "odd_product_both_transposed": lambda a, b: a.T @ b.T,
        "product_of_four_axes": torch.matmul,
        "frobenius_norm": lambda x: x / torch.norm(x),
        "l1_norm": lambda x: x / x.abs().mean(1, keepdim=True),
        "max_pool_3d_dilated": lambda x: F.max_pool3d(x, 3, 2, 1, 2),
        "max_pool_1d_dilated": lambda x: F.max_pool1d(x, 4, 1, 2, 3),
        "average_pool_3d": lambda x: F.avg_pool3d(x, 3, 2, 1),
        "min_over_middle": lambda x: x.min(1)[0],
        "conv_3d_uneven_kernel": F.conv3d,
        "conv_11x11_stride_4": lambda x, w: F.conv2d(x, w, stride=4, padding=2),
        "conv_uneven_dilated": lambda x, w: F.conv2d(x, w, padding=(2, 6), dilation=2),
        "conv_1d_strided_dilated": lambda x, w: F.conv1d(x, w, stride=3, padding=1, dilation=4),
        "conv_transpose_2d_uneven": F.conv_transpose2d,
        "conv_transpose_3d_grouped": lambda x, w: F.conv_transpose3d(x, w, stride=2, padding=1, groups=4),
        "conv_transpose_1d_dilated": lambda x, w: F.conv_transpose1d(x, w, stride=2, padding=1, dilation=2),
        "conv_transpose_2d_everything":
            lambda x, w: F.conv_transpose2d(x, w, stride=(2, 3), padding=(1, 2), groups=4, dilation=(2, 1)),
        "depthwise_conv_uneven": lambda x, w: F.conv2d(x, w[:, None], padding=(1, 0), groups=len(w)),
        "cumulative_product": lambda x: (1 + x).cumprod(1),
        "reverse_cumulative_sum": lambda x: x.flip(1).cumsum(1).flip(1),
        "masked_cumulative_sum": lambda x, m: (x * (m != 0)).cumsum(1),
        "exclusive_cumulative_sum_middle": lambda x: F.pad(x[:, :-1], (0, 0, 1, 0)).cumsum(1),
        "kl_divergence": lambda x, t: F.kl_div(F.log_softmax(x, 1), F.log_softmax(t, 1), reduction="batchmean", log_target=True),
        "triplet_margin": triplet,
        "conv_relu_bias": lambda x, w, b, a: F.relu(F.conv2d(x, w, b)) + a[:, None, None],
        "conv_transpose_clamps": lambda x, w, b: ((F.conv_transpose2d(x, w, b, 2, 1, 1)).clamp(0, 1) * 2).clamp(0, 1) / 2,
        "conv_transpose_3d_norm_pool_gelu": conv_transpose_3d_norm_pool_gelu,
        "conv_3d_softmax_pool_pool": conv_3d_softmax_pool_pool,
        "conv_3d_pool_mean_sum": conv_3d_pool_mean_sum,
        "conv_transpose_pool_mean_tanh": conv_transpose_pool_mean_tanh,
        "conv_transpose_norm_pool_norm": conv_transpose_norm_pool_norm,
        "product_halved_sum": lambda x, w: (x @ w.T / 2).sum(1) * 1.5,
        "conv_transpose_3d_softmax_sigmoid": lambda x, w, b: torch.sigmoid(F.softmax(transposed_3d(x, w, b), 1)),
        "conv_min_tanh_tanh": lambda x, w, b: torch.tanh(torch.tanh(F.conv2d(x, w, b).min(1)[0])),
        "conv_transpose_3d_log_sum_exp": conv_transpose_3d_log_sum_exp,
        "conv_instance_norm": lambda x, w: F.instance_norm(F.conv2d(x, w)) / 2,
        "conv_group_norm_pool_clamp": lambda x, w, a, g, b, z:
            F.max_pool2d(F.group_norm(F.conv2d(x, w, a), 8, g, b) * z[:, None, None], 4).clamp(0, 1),
        "conv_norm_residual_log_sum_exp": conv_norm_residual_log_sum_exp,
        "linear_row_norm_product": linear_row_norm_product,
        "linear_group_norm_hardtanh": lambda x, w, b, g, a: F.group_norm(F.linear(x, w, b), 16, g, a).clamp(-2, 2),
        "linear_swish_bias_group_norm": linear_swish_bias_group_norm,
        "linear_batch_norm_gelu_relu": lambda x, w, g, a: F.relu(F.gelu(bn(F.linear(x, w), g, a))),
        "linear_group_norm_min_bias": linear_group_norm_min_bias,
        "linear_log_sum_exp_chain": linear_log_sum_exp_chain,
        "linear_pool_sum_scale": lambda x, w, b: F.max_pool1d(F.linear(x, w, b)[:, None], 2)[:, 0].sum(1) * 0.5,
        "linear_average_gelu_max": linear_average_gelu_max,
        "linear_batch_norm_softmax": lambda x, w, g, a, s: F.softmax(s * bn(F.linear(x, w), g, a), 1),
        "linear_gelu_softmax": lambda x, w, b: F.softmax(F.gelu(F.linear(x, w, b)), 1),
        "linear_mean_log_gelu_residual": linear_mean_log_gelu_residual,
        "conv_mish_mish": lambda x, w, b: F.mish(F.mish(F.conv2d(x, w, b))),
        "conv_hardswish_pool_mish": lambda x, w, b: F.mish(F.max_pool2d(F.hardswish(F.conv2d(x, w, b) - 0.5), 2)),
        "conv_3d_instance_norm_max": conv_3d_instance_norm_max,
        "conv_transpose_3d_average_bias": conv_transpose_3d_average_bias,
        "conv_transpose_3d_pool_softmax_swish_max": conv_transpose_3d_pool_softmax_swish_max,
        "conv_average_sigmoid_sum": lambda x, w, b: torch.sigmoid(F.avg_pool2d(F.conv2d(x, w, b), 4)).sum((1, 2, 3)),
        "conv_transpose_mean_log_sum_exp": conv_transpose_mean_log_sum_exp,
        "conv_transpose_min_sum_gelu": conv_transpose_min_sum_gelu,
        "conv_softplus_tanh_batch_norm": conv_softplus_tanh_batch_norm,
        "causal_self_attention": causal_self_attention, "relu_attention": relu_attention,
        "inverted_bottleneck": inverted_bottleneck, "shuffle_unit": shuffle_unit, "fire_module": fire_module,
        "dense_layers": dense_layers,
        "transition_layer": lambda x, g, b, w: F.avg_pool2d(F.conv2d(F.relu(bn(x, g, b)), w[:, :, None, None]), 2),
        "net_vlad": net_vlad, "state_space": state_space, "window_mlp": window_mlp, "inception_module": inception_module,
    }

"""A norm, a gate and a residual as one op in a PyTorch model, trained beside the same in PyTorch."""
import torch

import xhat
import xhat.torch

gated_norm = xhat.torch.custom_op(xhat.op("""op gated_norm(x: f32[N,D], h: f32[N,2*D], gain: f32[D]) -> (y) {
  a[n, d in 0..D] = h[n,d] * sigmoid(h[n,d]) * h[n,d+D]
  y[n,d] = x[n,d] + gain[d] * a[n,d] / sqrt(mean(k: a[n,k] * a[n,k]) + 1e-6)
}"""))


class Block(torch.nn.Module):
    def __init__(self, width, ours):
        super().__init__()
        self.linear, self.gain, self.ours = torch.nn.Linear(width, 2 * width), torch.nn.Parameter(torch.ones(width)), ours

    def forward(self, x):
        h = self.linear(x)
        if self.ours:
            return gated_norm(x, h, self.gain)
        a, gate = h.chunk(2, dim=1)
        a = torch.nn.functional.silu(a) * gate
        return x + self.gain * a * torch.rsqrt(a.square().mean(1, keepdim=True) + 1e-6)


def train(ours):
    torch.manual_seed(0)
    x, t = torch.randn(256, 32), torch.randn(256, 32)
    model = torch.nn.Sequential(*(Block(32, ours) for _ in range(3)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        loss = (model(x) - t).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()


ours, theirs = train(True), train(False)
print(f"loss after 30 steps: {ours:.5f} with the op, {theirs:.5f} without")
assert abs(ours - theirs) < 1e-3 * theirs

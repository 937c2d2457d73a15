"""Muon for the matrices, AdamW for the embedding and the norms."""
import math

from network import BF16, Long, kernel


def orthogonalise(matrix):
    """Five Newton-Schulz steps towards the nearest orthogonal matrix, in bf16 (Jordan et al., Muon, 2024)."""
    x = matrix.to(BF16)
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.t().contiguous()
    x = x / (x.float().norm() + 1e-7).to(BF16)
    for _ in range(5):
        a = x @ x.t()
        x = 3.4445 * x + (-4.775 * a + 2.0315 * (a @ a)) @ x
    return (x.t() if tall else x).float()


class Optimiser:
    def __init__(self, net, muon_lr, adam_lr, decay):
        self.net, self.muon_lr, self.adam_lr, self.decay, self.t = net, muon_lr, adam_lr, decay, 0
        self.m = {name: value.new_zeros(value.shape) for name, value in net.p.items()}
        self.v = {name: value.new_zeros(value.shape) for name, value in net.p.items() if self.uses_adam(name)}

    def uses_adam(self, name):
        return name == "embed" or self.net.p[name].dim() == 1

    def step(self, scale, pool, twins=(), clip=1.0):
        """One update with the gradients of the net and its twins, which are then zero; returns their norm."""
        self.t += 1

        def square_sum(name):
            for twin in twins:
                self.net.g[name] += twin.g[name]
                twin.g[name].zero_()
            return float(self.net.g[name].square().sum())

        names = sorted(self.net.g, key=lambda name: -self.net.g[name].numel())  # the largest first: threads end together
        norm = math.sqrt(sum(pool.map(square_sum, names)))
        list(pool.map(lambda name: self.update(name, scale, min(1.0, clip / (norm + 1e-9))), names))
        return norm

    def update(self, name, scale, shrink):
        gradient, weight = self.net.g[name].mul_(shrink), self.net.p[name]
        if self.uses_adam(name):
            beta1, beta2 = 0.9, 0.97
            decay = self.decay if weight.dim() == 2 else 0.0
            kernel("adamw", weight, gradient, self.m[name], self.v[name], Long(weight.numel()), float(self.adam_lr * scale),
                   beta1, beta2, 1e-9, decay, 1 - beta1**self.t, 1 - beta2**self.t)  # fmt: skip
        else:
            momentum = min(0.95, 0.85 + 0.1 * self.t / 200)
            m = self.m[name].lerp_(gradient, 1 - momentum)
            update = gradient.lerp(m, momentum)
            for part, part_update in zip(self.net.blocks(name, weight), self.net.blocks(name, update)):
                lr = self.muon_lr * scale * max(1.0, part.shape[0] / part.shape[1]) ** 0.5
                part.mul_(1 - self.muon_lr * scale * self.decay).sub_(orthogonalise(part_update), alpha=lr)
        gradient.zero_()
        self.net.refresh(name)

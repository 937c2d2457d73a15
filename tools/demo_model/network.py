"""A Qwen3-shaped network on the CPU with a hand-written forward and backward pass.

Matrix products run in bf16 (torch, oneDNN), everything else in fused.c; master weights and the residual stream are fp32.
"""
import copy
import ctypes
import math
import os

import torch

# glibc's malloc keeps the memory of one step for the next, instead of faulting fresh pages in: M_MMAP_MAX = 0,
# M_TRIM_THRESHOLD as high as it goes, M_ARENA_MAX = 1.
for _option, _value in ((-4, 0), (-1, 2**31 - 1), (-8, 1)):
    ctypes.CDLL(None).mallopt(_option, _value)
_KERNELS = ctypes.CDLL(os.path.dirname(os.path.abspath(__file__)) + "/fused.so")

EPS, THETA, HEAD_DIM = 1e-6, 10000.0, 64
POSITIONS_MAX = 2048
BF16 = torch.bfloat16
Long = ctypes.c_long


def kernel(name, *arguments):
    """Calls a function of fused.c: tensors become pointers, Python floats become floats."""

    def convert(argument):
        if torch.is_tensor(argument):
            return ctypes.c_void_p(argument.data_ptr())
        return ctypes.c_float(argument) if isinstance(argument, float) else argument

    getattr(_KERNELS, name)(*map(convert, arguments))


class Net:
    """Weights `p`, gradients `g`, and bf16 copies `b` of the matrices. Of layer 3: 3.n1 and 3.n2 (norms), 3.qkv, 3.qn and
    3.kn (norms of queries and keys), 3.o, 3.gu (gate and up), 3.dn (down)."""

    def __init__(self, vocab, hidden, layers, heads, kv, ffn, seed=1):
        self.cfg = dict(vocab=vocab, hidden=hidden, layers=layers, heads=heads, kv=kv, ffn=ffn)
        self.hidden, self.layers, self.heads, self.kv, self.ffn = hidden, layers, heads, kv, ffn
        generator = torch.Generator().manual_seed(seed)

        def matrix(rows, columns, scale=1.0):
            return torch.randn(rows, columns, generator=generator) * (scale * 0.5 / math.sqrt(columns))

        self.p = {"embed": torch.randn(vocab, hidden, generator=generator) * 0.02, "norm": torch.ones(hidden)}
        into_residual = 1 / math.sqrt(2 * layers)
        for l in range(layers):
            self.p[f"{l}.n1"] = torch.ones(hidden)
            self.p[f"{l}.qkv"] = matrix((heads + 2 * kv) * HEAD_DIM, hidden)
            self.p[f"{l}.qn"] = torch.ones(HEAD_DIM)
            self.p[f"{l}.kn"] = torch.ones(HEAD_DIM)
            self.p[f"{l}.o"] = matrix(hidden, heads * HEAD_DIM, into_residual)
            self.p[f"{l}.n2"] = torch.ones(hidden)
            self.p[f"{l}.gu"] = matrix(2 * ffn, hidden)
            self.p[f"{l}.dn"] = matrix(hidden, ffn, into_residual)
        self.g = {name: torch.zeros_like(value) for name, value in self.p.items()}
        self.b = {}
        self.refresh()
        half = HEAD_DIM // 2
        angle = torch.arange(POSITIONS_MAX).float()[:, None] * THETA ** (-torch.arange(half).float() / half)
        self.cos, self.sin = angle.cos().contiguous(), angle.sin().contiguous()

    @classmethod
    def load(cls, path):
        checkpoint = torch.load(path)
        net = cls(**checkpoint["cfg"])
        net.p = checkpoint["params"]
        net.refresh()
        return net

    def refresh(self, *names):
        """Makes the bf16 copies again; of all matrices when none is named."""
        for name in names or self.p:
            if self.p[name].dim() == 2:
                self.b[name] = self.p[name].to(BF16)

    def twin(self):
        """The same weights with gradients of its own, for another thread."""
        twin = copy.copy(self)
        twin.g = {name: torch.zeros_like(value) for name, value in self.p.items()}
        return twin

    def blocks(self, name, tensor):
        """The independent matrices inside a fused weight."""
        if name.endswith("qkv"):
            return tensor.split([self.heads * HEAD_DIM, self.kv * HEAD_DIM, self.kv * HEAD_DIM])
        return tensor.split([self.ffn, self.ffn]) if name.endswith("gu") else [tensor]

    def rms(self, x, name):
        """(normalised bf16 rows, reciprocal standard deviations)."""
        rows = x.shape[0]
        y, rstd = torch.empty(rows, self.hidden, dtype=BF16), torch.empty(rows)
        kernel("rms_fwd", x, self.p[name], y, rstd, Long(rows), self.hidden, EPS)
        return y, rstd

    def rms_back(self, x, name, rstd, dy, dx):
        kernel("rms_bwd", x, self.p[name], rstd, dy, dx, self.g[name], Long(x.shape[0]), self.hidden)

    def linear_back(self, name, x, dy):
        self.g[name] += dy.t() @ x
        return dy @ self.b[name]

    def forward_layer(self, l, x, batch, length):
        """(output, what the backward pass needs). x: [batch * length, hidden]."""
        rows, p, b = batch * length, self.p, self.b
        h1, r1 = self.rms(x, f"{l}.n1")
        qkv = h1 @ b[f"{l}.qkv"].t()
        o = torch.empty(rows, self.heads * HEAD_DIM, dtype=BF16)
        lse = torch.empty(batch, self.heads, length)
        norms = (p[f"{l}.qn"], p[f"{l}.kn"])
        kernel("attn_fwd", qkv, *norms, self.cos, self.sin, o, lse, batch, length, self.heads, self.kv, EPS)
        middle = x.clone()
        kernel("add_bf16", middle, o @ b[f"{l}.o"].t(), Long(middle.numel()))
        h2, r2 = self.rms(middle, f"{l}.n2")
        gate_up = h2 @ b[f"{l}.gu"].t()
        activated = torch.empty(rows, self.ffn, dtype=BF16)
        kernel("swiglu_fwd", gate_up, activated, Long(rows), self.ffn)
        y = middle.clone()
        kernel("add_bf16", y, activated @ b[f"{l}.dn"].t(), Long(y.numel()))
        return y, (x, h1, r1, qkv, o, lse, middle, h2, r2, gate_up, activated)

    def backward_layer(self, l, saved, dx, batch, length):
        """Turns dx, the gradient at the layer's output, into the one at its input."""
        x, h1, r1, qkv, o, lse, middle, h2, r2, gate_up, activated = saved
        d_activated = self.linear_back(f"{l}.dn", activated, dx.to(BF16))
        d_gate_up = torch.empty_like(gate_up)
        kernel("swiglu_bwd", gate_up, d_activated, d_gate_up, Long(batch * length), self.ffn)
        self.rms_back(middle, f"{l}.n2", r2, self.linear_back(f"{l}.gu", h2, d_gate_up), dx)
        d_o = self.linear_back(f"{l}.o", o, dx.to(BF16))
        d_qkv = torch.empty_like(qkv)
        norms, d_norms = ([source[f"{l}.{n}"] for n in ("qn", "kn")] for source in (self.p, self.g))
        kernel("attn_bwd", qkv, *norms, self.cos, self.sin, o, lse, d_o, d_qkv, *d_norms, batch, length, self.heads,
               self.kv, EPS)  # fmt: skip
        self.rms_back(x, f"{l}.n1", r1, self.linear_back(f"{l}.qkv", h1, d_qkv), dx)

    def run(self, ids, selected, target, weight, grad=True, teacher=None):
        """The losses at the selected positions; adds to the gradients.

        ids: [B, T] int32; selected: flat positions to predict at; target, weight: one for each of them. grad=False: losses
        only. grad="logits": the gradient of the loss at the logits instead. A teacher's distribution replaces the one-hot
        target.
        """
        batch, length = ids.shape
        back = grad is True
        x = self.p["embed"].index_select(0, ids.reshape(-1).long())
        saved = []
        for l in range(self.layers):
            x, needed = self.forward_layer(l, x, batch, length)
            if back:
                saved.append(needed)
        normed, rstd = self.rms(x, "norm")
        chosen = normed.index_select(0, selected)
        logits = chosen @ self.b["embed"].t()
        loss = torch.empty(len(selected))
        kernel("xent", logits, target, weight, loss, Long(len(selected)), logits.shape[1], int(bool(grad)))
        if not back:
            return logits if grad else loss
        if teacher:  # w (p - onehot) - w (t - onehot) = w (p - t)
            logits -= teacher.run(ids, selected, target, weight, "logits")
        d_normed = torch.zeros(batch * length, self.hidden, dtype=BF16)
        d_normed.index_copy_(0, selected, self.linear_back("embed", chosen, logits))
        dx = torch.zeros(batch * length, self.hidden)
        self.rms_back(x, "norm", rstd, d_normed, dx)
        for l in reversed(range(self.layers)):
            self.backward_layer(l, saved.pop(), dx, batch, length)
        kernel("embed_bwd", ids, dx, self.g["embed"], Long(batch * length), self.hidden)
        return loss

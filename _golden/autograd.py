"""Golden files for ops in place on views. PyTorch rewrites the graph for their gradients. Writes tensor/optest/testdata."""

import torch

from golden import File, Operand
from ops import FOLDER, SPECIAL, expand, transpose

SEED = 20290


def mul_view(x, w):
    y = x.clone()
    y[1:].mul_(w)
    return y


def copy_view(x, w):
    y = x * 1
    y[1:].copy_(w)
    return y


def fill_diagonal(x, w):
    y = x.clone()
    y.diagonal().fill_(0.5)
    y[1:].add_(w)
    return y


def stale_view(x, w):
    """Views are taken first. Then the tensor changes, by an op on it and by ops on the views."""
    y = x.clone()
    v, t = y[1:], y.t()
    y.mul_(2)
    v.add_(w)
    t[:1].neg_()
    return t.clone()


def expanded_view(x, w):
    y = x[:1].clone()
    e = y.expand(3, x.shape[1])
    y.add_(w[:1] if w.dim() > 1 else w)
    return e.clone()


def constant(x, w):
    """A tensor requires no gradient until tensors that do are copied into it."""
    y = torch.zeros_like(x.detach())
    v = y[1:]
    v.copy_(w)
    y[:1].copy_(x[:1])
    return y.clone()


def nested(x, w):
    y = x.clone()
    a = y[1:]
    b = a[:, ::2]
    b.neg_()
    a.mul_(w)
    b.zero_()
    b.add_(x[1:, ::2])
    return y


def main():
    f = File(__file__, SEED)
    n = len(SPECIAL)
    for fn in (mul_view, copy_view, fill_diagonal, stale_view, expanded_view, constant, nested):
        for name, x, w in (
            ("ordinary", f.randn(4, 5), f.randn(3, 5)),
            ("transposed", Operand(f.randn(5, 4), transpose(0, 1)), Operand(f.randn(5, 3), transpose(0, 1))),
            ("broadcast", f.randn(4, 5), f.randn(5)),
            ("expanded", Operand(f.randn(1, 5), expand(4, 5)), Operand(f.randn(1, 5), expand(3, 5))),
            ("empty view", f.randn(1, 5), f.randn(0, 5)),
            ("empty", f.randn(3, 0), f.randn(2, 0)),
            ("extreme", torch.stack([SPECIAL.roll(k) for k in range(3)]), torch.stack([SPECIAL.roll(k) for k in (7, 12)])),
        ):
            if fn is expanded_view and name == "empty view":
                continue  # w has no row to add
            f.case("inplace", f"{name} {fn.__name__}", fn, [x, w], program=fn.__name__)
    f.write(FOLDER + "autograd.safetensors.gz")


if __name__ == "__main__":
    main()

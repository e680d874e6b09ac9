"""Golden files for scans, sorting and searching. Writes tensor/optest/testdata."""

import math

import torch

from golden import File, Operand
from ops import DENORMAL, FOLDER, MAX, SEED, SPECIAL, TINY, expand, narrow, transpose


def spread(f, op, fn, shape, extreme=(), empty=None, **args):
    """One op with one set of arguments on an ordinary, a transposed, an expanded, a narrowed and an empty operand, and on extreme ones."""
    r = f.randn
    tag = f" {list(shape)}" + "".join(f" {k}={v}" for k, v in args.items())
    f.case(op, "ordinary" + tag, fn, [r(*shape)], **args)
    if len(shape) > 1:
        f.case(op, "transposed" + tag, fn, [Operand(r(shape[1], shape[0], *shape[2:]), transpose(0, 1))], **args)
        f.case(op, "expanded" + tag, fn, [Operand(r(1, *shape[1:]), expand(*shape))], **args)
    if shape:
        f.case(op, "narrowed" + tag, fn, [Operand(r(*shape[:-1], shape[-1] + 2), narrow(len(shape) - 1, 1, shape[-1]))], **args)
    if empty is not None:
        f.case(op, "empty" + tag, fn, [r(*empty)], **args)
    for i, x in enumerate(extreme):
        f.case(op, f"extreme {i}" + tag, fn, [x], **args)


INTS = torch.tensor([[1, 2**62, 2**62, 2**62, -3], [-1, -(2**63), -1, 2**63 - 1, 7]])
INF = math.inf


def scans():
    f = File(__file__, SEED + 40)
    zeros = torch.tensor([[2.0, -3.0, 0.0, 4.0, -1.0], [0.0, 1.0, 2.0, -0.0, 3.0], [-0.0, -0.0, 0.0, 0.0, -0.0], [1.5, 2.0, -1.0, 3.0, 0.0]])
    sizes = torch.tensor([[TINY, DENORMAL, -TINY, 1.0, 1e-20], [MAX, 1.0, -MAX, -1.0, MAX], [1e20, -1e20, 1.0, 1e-20, 3.0]])
    for shape, dim in (((3, 7), 1), ((3, 7), 0), ((2, 3, 4), -2), ((5,), -1), ((), 0)):
        e = dim % max(1, len(shape)) == 1 and len(shape) == 2
        empty = (3, 0) if dim == 1 else (0, 3)
        for op in ("cumsum", "cumprod", "logcumsumexp"):
            fn = lambda x: getattr(torch, op)(x, dim)
            extreme = [Operand(SPECIAL.reshape(1, -1), grad=False), Operand(SPECIAL.flip(0).reshape(1, -1), grad=False)] if e else []
            if e and op == "cumsum":
                extreme += [SPECIAL.reshape(1, -1), sizes, zeros]
            if e and op == "cumprod":
                extreme += [zeros, torch.tensor([[2.0, TINY, 0.5, 3.0], [-1.0, 1e20, 1e-20, -2.0], [DENORMAL, 1e20, 1e18, 1e-10]]), Operand(sizes, grad=False)]
            if e and op == "logcumsumexp":
                extreme += [torch.tensor([[-INF, -INF, 1.0, INF, 2.0, INF], [88.0, -104.0, 89.0, 0.0, -0.0, -INF], [-0.0, 0.0, TINY, -TINY, 1e-20, -90.0]]),
                            # PyTorch's gradient there is 0: the logarithms of the seeds vanish beside such numbers.
                            Operand(torch.tensor([[1e20, -1e20, 3.0, 1e20, 1e20, MAX], [-MAX, -MAX, -1e20, -3.0, 0.0, 5.0]]), grad=False)]
            spread(f, op, fn, shape, extreme, empty if len(shape) < 3 and shape else None, dim=dim)
            if op != "logcumsumexp":
                f.case(op, f"int64 {list(shape)} dim={dim}", fn, [INTS if e else f.randint(-5, 5, shape)], dim=dim)
                f.case(op, f"bool {list(shape)} dim={dim}", fn, [f.randint(0, 2, shape).bool()], dim=dim)
        ties = torch.tensor([[1.0, 3.0, 3.0, 2.0, 3.0, INF, INF], [0.0, -0.0, 0.0, -0.0, -1.0, -1.0, -INF], [1.0, math.nan, 3.0, math.nan, 2.0, -INF, INF]])
        for op in ("cummax", "cummin"):
            for part in (0, 1):
                fn = lambda x: getattr(torch, op)(x, dim)[part]
                spread(f, op, fn, shape, [SPECIAL.reshape(1, -1), SPECIAL.flip(0).reshape(1, -1), ties, INTS] if e else [], empty if len(shape) < 3 and shape else None, dim=dim, part=part)
    long = f.randn(1, 300)
    near = torch.where(f.randn(1, 300) < 0, -1.0, 1.0) * (1 + 0.1 * f.randn(1, 300))  # products neither vanish nor overflow
    for op in ("cumsum", "cumprod", "logcumsumexp"):
        f.case(op, "ordinary long", lambda x: getattr(torch, op)(x, 1), [near if op == "cumprod" else long], dim=1)
    for part in (0, 1):
        f.case("cummax", f"ordinary long part={part}", lambda x: torch.cummax(x, 1)[part], [long], dim=1, part=part)
    f.write(FOLDER + "scan.safetensors.gz")


if __name__ == "__main__":
    scans()

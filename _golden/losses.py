"""Golden files for losses, and for norms of rows. Writes nn/testdata/losses.safetensors.gz and tensor/optest/testdata/rownorms.safetensors.gz."""

import math

import torch
import torch.nn.functional as F

from golden import File, Operand
from ops import SEED, SPECIAL, expand, narrow, transpose


def layouts(f, make, *others):
    """Lists of operands: a first one in several layouts, and others that fit its shape or broadcast to it."""
    yield "ordinary", [make(4, 3)] + [o(4, 3) for o in others]
    yield "transposed", [Operand(make(3, 4), transpose(0, 1))] + [o(4, 3) for o in others]
    yield "narrowed", [Operand(make(4, 6), narrow(1, 2, 3))] + [o(4, 3) for o in others]
    yield "expanded", [Operand(make(1, 3), expand(4, 3))] + [o(4, 3) for o in others]
    yield "broadcast", [make(4, 3)] + [o(1, 3) for o in others]
    yield "scalar", [make()] + [o() for o in others]
    yield "empty", [make(0, 3)] + [o(0, 3) for o in others]


def losses():
    f = File(__file__, SEED + 30)
    normal = lambda *s: f.randn(*s)
    chance = lambda *s: torch.rand(s, generator=f.generator) * 0.98 + 0.01
    below = lambda *s: torch.rand(s, generator=f.generator).log()
    plain = [v for v in SPECIAL.tolist() if not math.isnan(v) and abs(v) < 1e30]
    extreme = torch.tensor([-1e4, -200.0, -50.0, -1.0, -0.0, 0.0, 1.0, 50.0, 200.0, 1e4])
    ends = torch.tensor([0.0, 1.0, 1e-40, 1.0 - 2.0**-24, 0.5, 1e-13])
    import warnings
    warnings.simplefilter("ignore")  # warnings about broadcasting
    for op, fn, make, other, special, options in (
            ("l1_loss", F.l1_loss, normal, normal, torch.tensor(plain), [{}]),
            ("mse_loss", F.mse_loss, normal, normal, torch.tensor([v for v in plain if abs(v) < 1e18]), [{}]),
            ("smooth_l1_loss", F.smooth_l1_loss, normal, normal, torch.tensor(plain), [{"beta": 1.0}, {"beta": 0.25}, {"beta": 0.0}]),
            ("huber_loss", F.huber_loss, normal, normal, torch.tensor(plain), [{"delta": 1.0}, {"delta": 0.25}]),
            ("binary_cross_entropy", F.binary_cross_entropy, chance, chance, ends, [{}]),
            ("binary_cross_entropy_with_logits", F.binary_cross_entropy_with_logits, normal, chance, extreme, [{}]),
            ("kl_div", F.kl_div, below, chance, extreme, [{"log_target": False}]),
            ("kl_div", F.kl_div, below, below, extreme, [{"log_target": True}])):
        for args in options:
            for reduction in ("mean", "sum", "none", "batchmean") if op == "kl_div" else ("mean", "sum", "none"):
                run = lambda x, y: fn(x, y, reduction=reduction, **args)
                tag = "".join(f" {k}={v}" for k, v in args.items()) + f" reduction={reduction}"
                for name, operands in layouts(f, make, other):
                    if reduction == "batchmean" and name in ("scalar", "empty") or op.startswith("binary") and name == "broadcast":
                        continue  # batchmean needs a batch, and the binary losses do not broadcast
                    target = operands[1]
                    f.case(op, name + tag, run, [operands[0], Operand(target, grad=op != "kl_div")], **args, reduction=reduction)
                if not args.get("log_target"):
                    y = torch.ones_like(special) if op != "kl_div" else torch.full_like(special, 0.5)
                    y[::3] = 0
                    f.case(op, "extreme" + tag, run, [special, Operand(y, grad=False)], **args, reduction=reduction)
    for reduction in ("mean", "sum", "none"):
        for shape in ((4, 3), (3,), (1, 3), ()):
            run = lambda x, y, w: F.binary_cross_entropy_with_logits(x, y, pos_weight=w, reduction=reduction)
            f.case("binary_cross_entropy_with_logits", f"weight {list(shape)} reduction={reduction}", run, [normal(4, 3), chance(4, 3), Operand(chance(*shape) * 3, grad=False)], reduction=reduction)
        nll = lambda x, t: F.nll_loss(x, t, reduction=reduction)
        t = f.randint(0, 5, (4,))
        holes = t.clone()
        holes[1] = -100
        for name, x, target in (("ordinary", below(4, 5), t), ("transposed", Operand(below(5, 4), transpose(0, 1)), t), ("expanded", Operand(below(1, 5), expand(4, 5)), t), ("holes", below(4, 5), holes),
                                ("empty", below(0, 5), t[:0]), ("all ignored", below(2, 5), torch.full((2,), -100)), ("extreme", torch.tensor([[-math.inf, 0.0], [-1e30, -0.0]]), torch.tensor([0, 1]))):
            f.case("nll_loss", f"{name} reduction={reduction}", nll, [x, target], reduction=reduction)
        f.case("mse_loss", f"extreme all reduction={reduction}", lambda x, y: F.mse_loss(x, y, reduction=reduction), [SPECIAL, torch.ones_like(SPECIAL)], reduction=reduction)
    f.write("nn/testdata/losses.safetensors.gz")


def norms():
    f = File(__file__, SEED + 31)
    r = f.randn
    rows = torch.tensor([[1.0, 2.0, 4.0], [3.0, 3.0, 3.0], [0.0, -0.0, 0.0], [1e-20, -1e-20, 0.0], [1e15, -1e15, 1.0], [math.inf, 1.0, 2.0], [math.nan, 1.0, 2.0]])
    for eps in (1e-5, 1e-3):
        for shape, over in (((4, 6), [6]), ((2, 3, 4), [4]), ((2, 3, 4), [3, 4]), ((5,), [5]), ((0, 3), [3])):
            base = {"ordinary": r(*shape)}
            if len(shape) > 1:
                base["transposed"] = Operand(r(shape[1], shape[0], *shape[2:]), transpose(0, 1))
                base["expanded"] = Operand(r(1, *shape[1:]), expand(*shape))
                base["far"] = r(*shape) + 100
            for name, x in base.items():
                args = {"shape": over, "eps": eps}
                f.case("layer_norm", f"{name} {list(shape)} {args}", lambda x, w, b: F.layer_norm(x, over, w, b, eps), [x, r(*over), r(*over)], **args)
                f.case("layer_norm", f"plain {name} {list(shape)} {args}", lambda x: F.layer_norm(x, over, None, None, eps), [x], **args)
                f.case("rms_norm", f"{name} {list(shape)} {args}", lambda x, w: F.rms_norm(x, over, w, eps), [x, r(*over)], **args)
                f.case("rms_norm", f"plain {name} {list(shape)} {args}", lambda x: F.rms_norm(x, over, None, eps), [x], **args)
        args = {"shape": [3], "eps": eps}
        f.case("layer_norm", f"extreme {args}", lambda x: F.layer_norm(x, [3], None, None, eps), [rows], **args)
        f.case("rms_norm", f"extreme {args}", lambda x: F.rms_norm(x, [3], None, eps), [rows], **args)
    f.write("tensor/optest/testdata/rownorms.safetensors.gz")


if __name__ == "__main__":
    losses()
    norms()

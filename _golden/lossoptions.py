"""Golden files for the losses of package nn with their options. Writes nn/testdata/lossoptions.safetensors.gz."""

import math
import warnings

import torch
import torch.nn.functional as F

from golden import File, Operand
import losses
from ops import SEED, SPECIAL, expand, transpose

warnings.simplefilter("ignore")  # warnings about broadcasting
layouts = lambda *a: ((name, operands) for name, operands in losses.layouts(*a) if name not in ("narrowed", "scalar"))
REDUCTIONS = ("mean", "sum", "none")
f = File(__file__, SEED + 32)
r = f.randn
fixed = lambda t: Operand(t, grad=False)
chance = lambda *s: torch.rand(s, generator=f.generator) * 0.98 + 0.01
below = lambda *s: torch.rand(s, generator=f.generator).log()
signs = lambda *s: f.randint(0, 2, s) * 2 - 1
plain = torch.tensor([v for v in SPECIAL.tolist() if not abs(v) > 1e30])


def tag(args):
    return "".join(f" {k}={v}" for k, v in args.items())


def case(op, name, fn, operands, **args):
    f.case(op, name + tag(args), fn, operands, **args)


def classes():
    """cross_entropy, whose targets are indices or probabilities, and nll_loss."""
    wide = torch.tensor([[1e4, -1e4, 0.0], [80.0, 0.0, -80.0], [-math.inf, 0.0, 1.0], [math.nan, 1.0, 2.0], [math.inf, 0.0, 1.0], [-0.0, 0.0, -0.0], [3e38, 0.0, 1.0]])
    for reduction in REDUCTIONS:
        for smoothing in (0.0, 0.1):
            args = {"reduction": reduction, "label_smoothing": smoothing}
            weighted = lambda x, t, w, **more: F.cross_entropy(x, t, w, **{**args, **more})
            t, w = f.randint(0, 5, (6,)), fixed(chance(5))
            holes = t.clone()
            holes[1] = holes[4] = -100
            case("cross_entropy", "ordinary", weighted, [r(6, 5), t, w], **args)
            case("cross_entropy", "transposed", weighted, [Operand(r(5, 6), transpose(0, 1)), t, w], **args)
            case("cross_entropy", "expanded", weighted, [Operand(r(1, 5), expand(6, 5)), t, w], **args)
            case("cross_entropy", "holes", weighted, [r(6, 5), holes, w], **args)
            own = {"ignore_index": int(t[2])}
            if reduction == "mean":
                case("cross_entropy", "own index", lambda x, t, w: weighted(x, t, w, **own), [r(6, 5), t, w], **args, **own)
            case("cross_entropy", "pixels", weighted, [r(2, 5, 3, 2), f.randint(0, 5, (2, 3, 2)), w], **args)
            if reduction != "sum":
                case("cross_entropy", "signal", weighted, [Operand(r(2, 3, 5), transpose(1, 2)), f.randint(0, 5, (2, 3)), w], **args)
            case("cross_entropy", "one row", weighted, [r(5), torch.tensor(3), w], **args)
            case("cross_entropy", "all ignored", weighted, [r(3, 5), torch.full((3,), -100), w], **args)
            case("cross_entropy", "empty", weighted, [r(0, 5), t[:0], w], **args)
            case("cross_entropy", "extreme", weighted, [wide, torch.tensor([1, 2, 1, 0, 0, 2, 0]), fixed(torch.tensor([0.5, 2.0, 1.0]))], **args)
            chances = lambda x, y: F.cross_entropy(x, y, **args)
            probable = lambda x, y, w: F.cross_entropy(x, y, w, **args)
            some = lambda *s: torch.softmax(r(*s), 1)
            case("cross_entropy", "ordinary probabilities", chances, [r(6, 5), some(6, 5)], **args)
            case("cross_entropy", "ordinary weighted probabilities", probable, [r(6, 5), some(6, 5), w], **args)
            case("cross_entropy", "transposed probabilities", chances, [Operand(r(5, 6), transpose(0, 1)), Operand(some(5, 6), transpose(0, 1))], **args)
            case("cross_entropy", "expanded probabilities", chances, [r(6, 5), Operand(some(1, 5), expand(6, 5))], **args)
            case("cross_entropy", "pixels of probabilities", probable, [r(2, 5, 3, 2), some(2, 5, 3, 2), w], **args)
            case("cross_entropy", "one row of probabilities", probable, [r(5), chance(5), w], **args)
            case("cross_entropy", "empty probabilities", chances, [r(0, 5), r(0, 5)], **args)
            case("cross_entropy", "extreme probabilities", chances, [wide, fixed(torch.tensor([[0.0, 1.0, 0.0]]).repeat(7, 1))], **args)
        args = {"reduction": reduction}
        nll = lambda x, t, w, **more: F.nll_loss(x, t, w, reduction=reduction, **more)
        case("nll_loss", "ordinary", nll, [below(6, 5), t, w], **args)
        case("nll_loss", "transposed", nll, [Operand(below(5, 6), transpose(0, 1)), t, w], **args)
        case("nll_loss", "expanded", nll, [Operand(below(1, 5), expand(6, 5)), t, w], **args)
        case("nll_loss", "holes", nll, [below(6, 5), holes, w], **args)
        case("nll_loss", "own index", lambda x, t, w: nll(x, t, w, **own), [below(6, 5), t, w], **args, **own)
        case("nll_loss", "pixels", nll, [below(2, 5, 3, 2), f.randint(0, 5, (2, 3, 2)), w], **args)
        case("nll_loss", "one row", nll, [below(5), torch.tensor(2), w], **args)
        case("nll_loss", "empty", nll, [below(0, 5), t[:0], w], **args)
        case("nll_loss", "all ignored", nll, [below(3, 5), torch.full((3,), -100), w], **args)
        case("nll_loss", "extreme", nll, [torch.tensor([[-math.inf, 0.0], [-1e30, -0.0], [math.nan, -1e-40]]), torch.tensor([0, 1, 1]), fixed(torch.tensor([2.0, 0.5]))], **args)


def pairs():
    weights = {"l1_loss": F.l1_loss, "mse_loss": F.mse_loss, "huber_loss": lambda x, y, **a: F.huber_loss(x, y, delta=0.5, **a)}
    for reduction in REDUCTIONS:
        args = {"reduction": reduction}
        for op, fn in weights.items():
            more = {**args, "delta": 0.5} if op == "huber_loss" else args
            run = lambda x, y, w: fn(x, y, weight=w, reduction=reduction)
            for name, operands in layouts(f, r, r, chance):
                if name != "broadcast":
                    case(op, name + " weighted", run, operands, **more)
            small = plain[plain.abs() < 1e18]
            case(op, "extreme weighted", run, [small, fixed(torch.ones_like(small)), fixed(torch.full_like(small, 0.5))], **more)
        for name, operands in layouts(f, chance, chance, chance):
            if name != "broadcast":
                weight = Operand(operands[2], grad=False)
                case("binary_cross_entropy", name + " weighted", lambda x, y, w: F.binary_cross_entropy(x, y, w, reduction=reduction), [operands[0], Operand(operands[1], grad=False), weight], **args)
        logits = lambda x, y, w, p: F.binary_cross_entropy_with_logits(x, y, w, pos_weight=p, reduction=reduction)
        for shape in ((4, 3), (3,), (4, 1)):
            case("binary_cross_entropy_with_logits", f"ordinary weighted {list(shape)}", logits, [r(4, 3), chance(4, 3), fixed(chance(*shape)), fixed(chance(3) * 3)], **args)
        for p in (1.0, 0.25):
            run = lambda x, y, z: F.margin_ranking_loss(x, y, z, margin=p, reduction=reduction)
            for name, operands in layouts(f, r, r):
                z = signs(*operands[1].shape).float()
                case("margin_ranking_loss", name, run, operands + [fixed(z)], margin=p, **args)
            case("margin_ranking_loss", "extreme", run, [SPECIAL, fixed(SPECIAL.flip(0)), fixed(torch.ones_like(SPECIAL))], margin=p, **args)
            case("margin_ranking_loss", "ties", run, [torch.tensor([1.0, 2.0]), torch.tensor([1.0 + p, 2.0 - p]), fixed(torch.tensor([-1.0, 1.0]))], margin=p, **args)
            run = lambda x, y: F.hinge_embedding_loss(x, y, margin=p, reduction=reduction)
            for name, operands in layouts(f, r, r):
                case("hinge_embedding_loss", name, run, [operands[0], signs(*operands[1].shape)], margin=p, **args)
            case("hinge_embedding_loss", "extreme", run, [torch.cat([SPECIAL, SPECIAL]), torch.cat([torch.ones(19), -torch.ones(19)]).long()], margin=p, **args)
            case("hinge_embedding_loss", "labels", run, [torch.tensor([0.5, p, 3.0]), torch.tensor([0, -1, 2])], margin=p, **args)
        for margin in (0.0, 0.5, -0.25):
            run = lambda x, y, z: F.cosine_embedding_loss(x, y, z, margin=margin, reduction=reduction)
            case("cosine_embedding_loss", "ordinary", run, [r(6, 4), r(6, 4), signs(6)], margin=margin, **args)
            case("cosine_embedding_loss", "transposed", run, [Operand(r(4, 6), transpose(0, 1)), r(6, 4), signs(6)], margin=margin, **args)
            case("cosine_embedding_loss", "expanded", run, [Operand(r(1, 4), expand(6, 4)), r(6, 4), signs(6)], margin=margin, **args)
            case("cosine_embedding_loss", "one", run, [r(4), r(4), torch.tensor(-1)], margin=margin, **args)
            case("cosine_embedding_loss", "labels", run, [r(3, 4), r(3, 4), torch.tensor([0, 2, 1])], margin=margin, **args)
            case("cosine_embedding_loss", "empty", run, [r(0, 4), r(0, 4), signs(0)], margin=margin, **args)
            case("cosine_embedding_loss", "extreme", run, [torch.tensor([[0.0, -0.0], [1e-20, 0.0], [math.inf, 1.0], [math.nan, 1.0], [1e9, 1e9]]), torch.tensor([[1.0, 2.0], [1e-20, 1e-20], [1.0, 1.0], [1.0, 1.0], [1e9, -1e9]]), torch.tensor([1, -1, 1, -1, 1])], margin=margin, **args)
        for more in ({"margin": 1.0, "p": 2.0, "swap": False}, {"margin": 0.5, "p": 1.0, "swap": True}, {"margin": 2.0, "p": 3.0, "swap": True}):
            run = lambda a, p, n: F.triplet_margin_loss(a, p, n, eps=1e-6, reduction=reduction, **more)
            case("triplet_margin_loss", "ordinary", run, [r(6, 4), r(6, 4), r(6, 4)], **more, **args)
            case("triplet_margin_loss", "transposed", run, [Operand(r(4, 6), transpose(0, 1)), r(6, 4), Operand(r(4, 6), transpose(0, 1))], **more, **args)
            case("triplet_margin_loss", "broadcast", run, [r(6, 4), r(1, 4), r(6, 4)], **more, **args)
            case("triplet_margin_loss", "deep", run, [r(2, 3, 4), r(2, 3, 4), r(2, 3, 4)], **more, **args)
            case("triplet_margin_loss", "empty", run, [r(0, 4), r(0, 4), r(0, 4)], **more, **args)
            case("triplet_margin_loss", "extreme", run, [torch.tensor([[1.0, 2.0], [1e15, 0.0], [math.inf, 1.0], [math.nan, 1.0]]), torch.tensor([[1.0, 2.0], [-1e15, 0.0], [1.0, 1.0], [1.0, 1.0]]), torch.tensor([[3.0, 2.0], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0]])], **more, **args)


def likelihoods():
    for reduction in REDUCTIONS:
        args = {"reduction": reduction}
        for logs in (True, False):
            for full in (True, False):
                more = {"log_input": logs, "full": full}
                run = lambda x, y: F.poisson_nll_loss(x, y, eps=1e-8, reduction=reduction, **more)
                make = r if logs else chance
                for name, operands in layouts(f, make, lambda *s: chance(*s) * 5):
                    case("poisson_nll_loss", name, run, [operands[0], fixed(operands[1].base if isinstance(operands[1], Operand) else operands[1])], **more, **args)
                x = torch.tensor([0.0, -0.0, 1e-30, 50.0, 1e20 if not logs else 80.0, math.nan])
                case("poisson_nll_loss", "extreme", run, [x, fixed(torch.tensor([0.0, 1.0, 2.0, 100.0, 1e6, 1.0]))], **more, **args)
        for full in (True, False):
            more = {"full": full, "eps": 1e-6}
            run = lambda x, y, v: F.gaussian_nll_loss(x, y, v, reduction=reduction, **more)
            case("gaussian_nll_loss", "ordinary", run, [r(4, 3), r(4, 3), chance(4, 3)], **more, **args)
            case("gaussian_nll_loss", "transposed", run, [Operand(r(3, 4), transpose(0, 1)), r(4, 3), Operand(chance(3, 4), transpose(0, 1))], **more, **args)
            case("gaussian_nll_loss", "expanded", run, [Operand(r(1, 3), expand(4, 3)), r(4, 3), chance(4, 3)], **more, **args)
            case("gaussian_nll_loss", "broadcast", run, [r(4, 3), r(4, 3), chance(4, 1)], **more, **args)
            case("gaussian_nll_loss", "one variance", run, [r(4, 3), r(4, 3), chance(4)], **more, **args)
            case("gaussian_nll_loss", "empty", run, [r(0, 3), r(0, 3), chance(0, 3)], **more, **args)
            case("gaussian_nll_loss", "extreme", run, [torch.tensor([1.0, 1e10, math.inf, math.nan, 0.0]), torch.tensor([1.0, -1e10, 1.0, 1.0, -0.0]), torch.tensor([0.0, 1.0, 2.0, 1.0, math.inf])], **more, **args)


def margins():
    for reduction in REDUCTIONS:
        args = {"reduction": reduction}
        run = lambda x, y: F.soft_margin_loss(x, y, reduction=reduction)
        for name, operands in layouts(f, r, r):
            if name != "broadcast":
                case("soft_margin_loss", name, run, [operands[0], fixed(signs(*operands[1].shape).float())], **args)
        case("soft_margin_loss", "extreme", run, [SPECIAL, fixed(torch.where(torch.arange(19) % 2 == 0, 1.0, -1.0))], **args)
        for p, margin in ((1, 1.0), (2, 0.5)):
            more = {"p": p, "margin": margin}
            run = lambda x, t, w=None: F.multi_margin_loss(x, t, weight=w, reduction=reduction, **more)
            t, w = f.randint(0, 5, (6,)), fixed(chance(5))
            case("multi_margin_loss", "ordinary", run, [r(6, 5), t], **more, **args)
            case("multi_margin_loss", "ordinary weighted", run, [r(6, 5), t, w], **more, **args)
            case("multi_margin_loss", "transposed", run, [Operand(r(5, 6), transpose(0, 1)), t], **more, **args)
            case("multi_margin_loss", "expanded", run, [Operand(r(1, 5), expand(6, 5)), t, w], **more, **args)
            case("multi_margin_loss", "one row", run, [r(5), torch.tensor(3), w], **more, **args)
            if reduction == "none":  # for other reductions PyTorch returns uninitialised memory
                case("multi_margin_loss", "empty", run, [r(0, 5), t[:0]], **more, **args)
            case("multi_margin_loss", "extreme", run, [torch.tensor([[1.0, 0.0, 3.0], [math.inf, 1.0, 0.0], [math.nan, 1.0, 0.0], [1e10, -1e10, 0.5], [-0.0, 0.0, -1e-40]]), torch.tensor([0, 1, 1, 2, 0])], **more, **args)
        run = lambda x, t: F.multilabel_margin_loss(x, t, reduction=reduction)
        t = torch.tensor([[3, 0, -1, 1], [-1, 2, 2, 2], [1, 1, -1, -1], [0, 1, 2, 3], [2, -1, 3, -1]])
        case("multilabel_margin_loss", "ordinary", run, [r(5, 4), t], **args)
        case("multilabel_margin_loss", "transposed", run, [Operand(r(4, 5), transpose(0, 1)), t], **args)
        case("multilabel_margin_loss", "expanded", run, [Operand(r(1, 4), expand(5, 4)), t], **args)
        case("multilabel_margin_loss", "one row", run, [r(4), t[0]], **args)
        if reduction == "none":
            case("multilabel_margin_loss", "empty", run, [r(0, 4), t[:0]], **args)
        case("multilabel_margin_loss", "extreme", run, [torch.tensor([[1.0, 0.0, 3.0, 0.0], [math.inf, 1.0, 0.0, 1.0], [math.nan, 1.0, 0.0, 2.0], [1e10, -1e10, 0.5, 1.0], [-0.0, 0.0, -1e-40, 1.0]]), t], **args)
        run = lambda x, y, w=None: F.multilabel_soft_margin_loss(x, y, w, reduction=reduction)
        for name, operands in layouts(f, r, chance, chance):
            case("multilabel_soft_margin_loss", name, run, [operands[0], fixed(operands[1].base if isinstance(operands[1], Operand) else operands[1])], **args)
            case("multilabel_soft_margin_loss", name + " weighted", run, [operands[0], fixed(operands[1]), fixed(operands[2])], **args)
        case("multilabel_soft_margin_loss", "extreme", run, [torch.tensor([[1e4, -1e4, 0.0], [math.nan, -0.0, 80.0]]), fixed(torch.tensor([[0.0, 1.0, 0.5], [0.0, 1.0, 0.25]]))], **args)


if __name__ == "__main__":
    classes()
    pairs()
    likelihoods()
    margins()
    f.write("nn/testdata/lossoptions.safetensors.gz")

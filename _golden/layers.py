"""Golden file for layers that are more than one op: embeddings with options, embedding bags, and F.rrelu. Writes nn/testdata/layers.safetensors.gz."""

import math

import torch
import torch.nn.functional as F

from golden import File, Operand
from ops import SEED, expand, transpose

f = File(__file__, SEED + 70)
r = f.randn
INF, NAN = math.inf, math.nan
TINY = 1e-42


def tag(args):
    return "".join(f" {k}={v}" for k, v in args.items())


def embedding():
    index = torch.tensor([[1, 4, 4], [0, 1, 4]])
    extreme = torch.tensor([[INF, 1.0], [NAN, 0.0], [1e30, -1e30], [TINY, 0.0], [0.0, -0.0], [3.0, 4.0]])
    for args in ({}, {"padding_idx": 1}, {"padding_idx": -1}, {"scale_grad_by_freq": True}, {"max_norm": 1.0}, {"max_norm": 0.5, "norm_type": 1.0},
                 {"max_norm": 1.0, "norm_type": INF, "padding_idx": 0, "scale_grad_by_freq": True}):
        fn = lambda w, i: F.embedding(i, w.clone(), **args)
        row = {k: str(v) if v == INF else v for k, v in args.items()}
        case = lambda name, *operands: f.case("embedding_layer", name + tag(row), fn, operands, **row)
        case("ordinary", r(5, 3), index)
        case("ordinary scalar", r(5, 3), torch.tensor(3))
        case("transposed", Operand(r(3, 5), transpose(0, 1)), Operand(index, transpose(0, 1)))
        case("expanded", r(5, 3), Operand(torch.tensor([[2]]), expand(2, 2)))
        case("empty", r(5, 3), index[:0])
        case("extreme", extreme[2:] if "max_norm" in args else extreme, torch.tensor([0, 3, 2, 3, 0]))


def bags():
    flat = torch.tensor([1, 1, 2, 0, 0, 3, 4, 2])
    offsets = torch.tensor([0, 0, 3, 5, 5])
    closed = torch.tensor([0, 2, 2, 8])
    for mode in ("sum", "mean", "max"):
        for args in ({}, {"padding_idx": 0}, {"padding_idx": -1}, {"max_norm": 1.0}, {"scale_grad_by_freq": True}):
            if mode == "max" and "scale_grad_by_freq" in args:
                continue
            more = {"mode": mode, **args}
            plain = lambda w, i, o: F.embedding_bag(i, w.clone(), o, **more)
            last = lambda w, i, o: F.embedding_bag(i, w.clone(), o, include_last_offset=True, **more)
            rows = lambda w, i: F.embedding_bag(i, w.clone(), **more)
            case = lambda name, fn, operands, **also: f.case("embedding_bag", name + tag({**more, **also}), fn, operands, **{**more, **also})
            case("ordinary offsets", plain, [r(5, 3), flat, offsets])
            case("ordinary closed", last, [r(5, 3), flat, closed], include_last_offset=True)
            case("ordinary matrix", rows, [r(5, 3), flat.reshape(2, 4)])
            case("transposed matrix", rows, [Operand(r(3, 5), transpose(0, 1)), Operand(flat.reshape(4, 2), transpose(0, 1))])
            case("expanded matrix", rows, [r(5, 3), Operand(flat.reshape(1, 8), expand(2, 8))])
            case("empty bags", plain, [r(5, 3), flat[:0], torch.tensor([0, 0, 0])])
            case("ordinary ties", plain, [torch.ones(5, 2), flat, offsets])
            if mode == "sum" and "scale_grad_by_freq" not in args:
                fn = lambda w, i, o, k: F.embedding_bag(i, w.clone(), o, per_sample_weights=k, **more)
                case("ordinary weights", fn, [r(5, 3), flat, offsets, r(8)])
                fn = lambda w, i, k: F.embedding_bag(i, w.clone(), per_sample_weights=k, **more)
                case("ordinary weights matrix", fn, [r(5, 3), flat.reshape(2, 4), r(2, 4)])
        large = torch.tensor([[INF, -INF, 1.0], [1.0, 2.0, TINY], [-INF, 1e30, 0.0], [3.0, -1e30, -0.0], [INF, 5.0, 1.0]])
        f.case("embedding_bag", f"extreme mode={mode}", lambda w, i, o: F.embedding_bag(i, w, o, mode=mode), [large, torch.tensor([1, 0, 3, 2, 4]), torch.tensor([0, 2, 4])], mode=mode)


def units():
    special = torch.tensor([0.0, -0.0, INF, -INF, NAN, TINY, -TINY, 1e30, -1e30, -1.0, 1.0])
    for args in ({"lower": 0.125, "upper": 1 / 3}, {"lower": 0.25, "upper": 0.25}):
        fn = lambda x: F.rrelu(x, training=False, **args)
        case = lambda name, x: f.case("rrelu", name + tag(args), fn, [x], **args)
        case("ordinary", r(3, 4))
        case("scalar", r())
        case("transposed", Operand(r(4, 3), transpose(0, 1)))
        case("expanded", Operand(r(1, 3), expand(4, 3)))
        case("empty", r(0, 3))
        case("extreme", special)
    # The slope is drawn from an interval of one number, so training is not random.
    f.case("rrelu", "ordinary training", lambda x: F.rrelu(x, 0.25, 0.25, True), [r(3, 4)], lower=0.25, upper=0.25, training=True)


if __name__ == "__main__":
    embedding()
    bags()
    units()
    f.write("nn/testdata/layers.safetensors.gz")

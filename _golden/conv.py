"""Golden files for convolutions, pools, interpolation and what rearranges channels and places. Writes tensor/optest/testdata."""

import math

import torch
import torch.nn.functional as F

from golden import File, Operand
from ops import DENORMAL, FOLDER, MAX, MIN_NORMAL, SEED, TINY, expand, narrow, transpose

# Special numbers so far apart that a window of up to three sees one of them.
APART = torch.tensor([1.5, -0.5, TINY, 0.25, 1.0, MAX / 8, -1.0, 2.0, math.inf, 0.5, 0.75, -math.inf, -0.25, 1.25, math.nan, 1.0, 0.5, -DENORMAL, -2.0, 0.125,
                      MIN_NORMAL, 3.0, 0.5, -0.0])


def tagged(args):
    return "".join(f" {k}={v}" for k, v in args.items())


def convolutions(f):
    r = f.randn
    kinds = {
        1: [({}, (2, 2, 7), (3, 2, 3)), ({"stride": [2], "padding": [2], "dilation": [2]}, (2, 2, 7), (3, 2, 3)), ({"groups": 2, "padding": [1]}, (2, 4, 6), (2, 2, 2)),
            ({"same": True}, (2, 2, 6), (3, 2, 4)), ({"same": True, "dilation": [3], "groups": 4}, (1, 4, 7), (4, 1, 2))],
        2: [({}, (2, 2, 5, 4), (3, 2, 3, 2)), ({"stride": [2], "padding": [1]}, (2, 2, 5, 4), (2, 2, 3, 3)), ({"stride": [1, 2], "padding": [0, 2], "dilation": [2, 1]}, (2, 2, 5, 4), (2, 2, 2, 3)),
            ({"groups": 3, "padding": [1]}, (2, 3, 4, 4), (3, 1, 3, 3)), ({"groups": 3}, (2, 3, 3, 4), (6, 1, 2, 2)), ({"groups": 2}, (2, 4, 3, 3), (6, 2, 1, 1)), ({}, (2, 3, 2, 3), (4, 3, 1, 1)),
            ({"stride": [2]}, (2, 3, 4, 3), (2, 3, 1, 1)), ({"same": True}, (2, 2, 4, 4), (2, 2, 2, 4)), ({"padding": [3]}, (1, 2, 2, 2), (2, 2, 3, 4))],
        3: [({}, (1, 2, 3, 3, 3), (2, 2, 2, 3, 2)), ({"stride": [1, 2, 1], "padding": [1, 0, 1], "dilation": [1, 1, 2]}, (1, 2, 2, 4, 3), (2, 2, 2, 2, 2)), ({"groups": 2, "same": True}, (1, 2, 2, 2, 3), (2, 1, 2, 1, 3))],
    }
    for rank, cases in kinds.items():
        conv = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
        op = f"conv{rank}d"
        for k, (args, xs, ws) in enumerate(cases):
            tag = tagged(args)

            def fn(x, w, b=None, args=args):
                return conv(x, w, b, args.get("stride", 1), "same" if args.get("same") else args.get("padding", 0), args.get("dilation", 1), args.get("groups", 1))
            name = f"{tag} {list(xs)} {list(ws)}"
            f.case(op, "ordinary" + name, fn, [r(*xs), r(*ws), r(ws[0])], **args)
            if k == 0 or k == len(cases) - 1:
                f.case(op, "ordinary unbatched" + name, fn, [r(*xs[1:]), r(*ws)], **args)
            if k % 3:
                continue
            back = (xs[-1], *xs[1:-1], xs[0])
            f.case(op, "transposed" + name, fn, [Operand(r(*back), transpose(0, len(xs) - 1)), Operand(r(ws[1], ws[0], *ws[2:]), transpose(0, 1))], **args)
            f.case(op, "expanded" + name, fn, [Operand(r(1, *xs[1:]), expand(*xs)), Operand(r(*ws[:-1], 1), expand(*ws)), Operand(r(1), expand(ws[0]))], **args)
            f.case(op, "empty" + name, fn, [r(0, *xs[1:]), r(*ws), r(ws[0])], **args)
        shape = {1: (1, 1, 24), 2: (1, 1, 1, 24), 3: (1, 1, 1, 1, 24)}[rank]
        kernel = {1: (2, 1, 3), 2: (2, 1, 1, 3), 3: (2, 1, 1, 1, 3)}[rank]
        f.case(op, "extreme", conv, [APART.reshape(shape), r(*kernel), r(2)])
        f.case(op, "extreme weight", conv, [r(*shape[:-1], 3), torch.tensor([math.inf, MAX / 8]).reshape(2, *[1] * (rank + 1))])
        f.case(op, "int64", conv, [f.randint(-9, 9, (2, 2) + (4,) * rank), f.randint(-9, 9, (3, 2) + (2,) * rank), f.randint(-9, 9, (3,))])
    kinds = {
        1: [({}, (2, 3, 4), (3, 2, 3)), ({"stride": [2], "padding": [1], "output_padding": [1]}, (2, 3, 4), (3, 2, 3)), ({"groups": 2, "dilation": [2], "stride": [3]}, (2, 4, 3), (4, 2, 2))],
        2: [({}, (2, 2, 3, 3), (2, 3, 3, 2)), ({"stride": [2], "padding": [1], "output_padding": [1]}, (2, 2, 3, 2), (2, 2, 3, 3)),
            ({"stride": [1, 3], "padding": [1, 0], "dilation": [2, 1], "output_padding": [1, 2]}, (2, 2, 2, 3), (2, 2, 2, 3)), ({"groups": 3, "stride": [2]}, (2, 3, 2, 3), (3, 1, 2, 2)),
            ({"groups": 2}, (2, 4, 2, 2), (4, 2, 2, 2)), ({}, (2, 2, 3, 3), (2, 3, 1, 1))],
        3: [({}, (1, 2, 2, 2, 2), (2, 2, 2, 2, 2)), ({"stride": [2, 1, 2], "padding": [0, 1, 1], "output_padding": [1, 0, 0], "groups": 2}, (1, 2, 2, 3, 2), (2, 1, 2, 2, 3))],
    }
    for rank, cases in kinds.items():
        conv = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
        op = f"conv_transpose{rank}d"
        for k, (args, xs, ws) in enumerate(cases):
            tag = tagged(args)
            outputs = ws[1] * args.get("groups", 1)

            def fn(x, w, b=None, args=args):
                return conv(x, w, b, args.get("stride", 1), args.get("padding", 0), args.get("output_padding", 0), args.get("groups", 1), args.get("dilation", 1))
            name = f"{tag} {list(xs)} {list(ws)}"
            f.case(op, "ordinary" + name, fn, [r(*xs), r(*ws), r(outputs)], **args)
            if k == 0:
                f.case(op, "ordinary unbatched" + name, fn, [r(*xs[1:]), r(*ws)], **args)
            if k % 3:
                continue
            back = (xs[-1], *xs[1:-1], xs[0])
            f.case(op, "transposed" + name, fn, [Operand(r(*back), transpose(0, len(xs) - 1)), Operand(r(ws[1], ws[0], *ws[2:]), transpose(0, 1))], **args)
            f.case(op, "expanded" + name, fn, [Operand(r(1, *xs[1:]), expand(*xs)), Operand(r(*ws[:-1], 1), expand(*ws)), Operand(r(1), expand(outputs))], **args)
            f.case(op, "empty" + name, fn, [r(0, *xs[1:]), r(*ws), r(outputs)], **args)
        shape = {1: (1, 1, 24), 2: (1, 1, 1, 24), 3: (1, 1, 1, 1, 24)}[rank]
        kernel = {1: (1, 2, 2), 2: (1, 2, 1, 2), 3: (1, 2, 1, 1, 2)}[rank]
        f.case(op, "extreme", conv, [APART.reshape(shape), r(*kernel), r(2)])


if __name__ == "__main__":
    f = File(__file__, SEED + 40)
    convolutions(f)
    f.write(FOLDER + "conv.safetensors.gz")

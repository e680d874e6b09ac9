"""Golden files for convolutions, pools, interpolation, and ops that rearrange channels and pixels. Writes tensor/optest/testdata."""

import math

import torch
import torch.nn.functional as F

from golden import File, Operand
from ops import DENORMAL, FOLDER, MAX, MIN_NORMAL, SEED, TINY, expand, narrow, transpose

# Special numbers, so far apart that a window of up to three elements holds only one of them.
APART = torch.tensor([1.5, -0.5, TINY, 0.25, 1.0, MAX / 8, -1.0, 2.0, math.inf, 0.5, 0.75, -math.inf, -0.25, 1.25, math.nan, 1.0, 0.5, -DENORMAL, -2.0, 0.125,
                      MIN_NORMAL, 3.0, 0.5, -0.0])


def tagged(args):
    return "".join(f" {k}={v}" for k, v in args.items())


def both(v):
    """v as a list of two numbers, for height and width."""
    return v * 2 if len(v) == 1 else v


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


def pools(f):
    r = f.randn
    # Ties, NaN more than once in a window, infinities, zeros of both signs.
    ties = torch.tensor([1.0, 1.0, 0.0, -0.0, math.nan, 2.0, math.nan, math.nan, -math.inf, -math.inf, -math.inf, -math.inf, math.inf, math.inf, 1.0, -1.0,
                         MAX, MAX, TINY, -TINY, DENORMAL, 0.0, MIN_NORMAL, -MAX])
    shapes = {1: (2, 2, 7), 2: (1, 2, 5, 6), 3: (1, 1, 3, 4, 4)}
    edge = {1: (1, 2, 12), 2: (1, 1, 6, 4), 3: (1, 1, 2, 3, 4)}
    for rank in (1, 2, 3):
        xs = shapes[rank]
        back = (xs[-1], *xs[1:-1], xs[0])

        def four(op, fn, part, parts, grad=True, **args):
            """Cases of one set of arguments, for all kinds of operands. part is the number of the result, if there are several (parts)."""
            tag = tagged(args)
            if parts:
                args["part"] = part
                tag += f" part={part}"
                grad = part == 0
            f.case(op, "ordinary" + tag, fn, [Operand(r(*xs), grad=grad)], **args)
            if part == 0 and "stride" in args:
                f.case(op, "unbatched" + tag, fn, [Operand(r(*xs[1:]), grad=grad)], **args)
            f.case(op, "transposed" + tag, fn, [Operand(r(*back), transpose(0, len(xs) - 1), grad=grad)], **args)
            f.case(op, "expanded" + tag, fn, [Operand(r(1, 1, *xs[2:]), expand(*xs), grad=grad)], **args)
            f.case(op, "empty" + tag, fn, [Operand(r(0, *xs[1:]), grad=grad)], **args)
            f.case(op, "extreme" + tag, fn, [Operand(ties.reshape(edge[rank]), grad=grad)], **args)

        pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1]
        kinds = [{"kernel": [2]}, {"kernel": [3], "stride": [2], "padding": [1]}, {"kernel": [2], "stride": [1], "dilation": [2]}, {"kernel": [3], "stride": [2], "padding": [1], "ceil": True}]
        for args in kinds if rank < 3 else [{"kernel": [2]}, {"kernel": [2, 1, 2], "stride": [1, 2, 2], "padding": [1, 0, 1], "ceil": True}]:
            for part in (0, 1):
                def fn(x, args=args, part=part):
                    return pool(x, args["kernel"], args.get("stride"), args.get("padding", 0), args.get("dilation", 1), args.get("ceil", False), return_indices=True)[part]
                four(f"max_pool{rank}d", fn, part, 2, **args)
        if rank > 1:
            f.case(f"max_pool{rank}d", "int64", lambda x: pool(x, 2, 1), [f.randint(-3, 4, xs)], kernel=[2], stride=[1])
        if rank == 2:
            large = f.randn(1, 1, 11, 9)
            for part in (0, 1):
                for name, x in (("ordinary large", large), ("extreme large", torch.where(large > 1.2, math.nan, large))):
                    f.case("max_pool2d", f"{name} part={part}", lambda x: pool(x, (10, 8), 1, return_indices=True)[part], [Operand(x, grad=part == 0)], kernel=[10, 8], stride=[1], part=part)
        pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[rank - 1]
        kinds = [{"kernel": [2]}, {"kernel": [3], "stride": [2], "padding": [1]}, {"kernel": [3], "stride": [2], "padding": [1], "ceil": True, "exclude": True}]
        if rank == 2:
            kinds += [{"kernel": [3, 2], "stride": [2, 1], "padding": [1, 0], "divisor": 5}, {"kernel": [3], "stride": [3], "padding": [1], "ceil": True}]
        for args in kinds if rank < 3 else [{"kernel": [2]}, {"kernel": [2], "stride": [1, 2, 2], "padding": [1], "ceil": True, "exclude": True}, {"kernel": [1, 2, 3], "stride": [1], "padding": [0, 1, 1]}]:
            def fn(x, args=args):
                more = (args["divisor"],) if "divisor" in args else ()
                return pool(x, args["kernel"], args.get("stride"), args.get("padding", 0), args.get("ceil", False), not args.get("exclude", False), *more)
            four(f"avg_pool{rank}d", fn, 0, 0, **args)
        if rank < 3:
            pool = (F.lp_pool1d, F.lp_pool2d)[rank - 1]
            for p, args in ((2.0, {"kernel": [2]}), (3.0, {"kernel": [3], "stride": [2], "ceil": True})):
                def fn(x, p=p, args=args):
                    return pool(x, p, args["kernel"][0], args.get("stride", [None])[0], args.get("ceil", False))
                tag = f" p={p}" + tagged(args)
                op = f"lp_pool{rank}d"
                f.case(op, "ordinary" + tag, fn, [r(*xs)], p=p, **args)
                f.case(op, "transposed" + tag, fn, [Operand(r(*back), transpose(0, len(xs) - 1))], p=p, **args)
                f.case(op, "expanded" + tag, fn, [Operand(r(1, 1, *xs[2:]), expand(*xs))], p=p, **args)
                f.case(op, "empty" + tag, fn, [r(0, *xs[1:])], p=p, **args)
                f.case(op, "extreme" + tag, fn, [torch.tensor([1.0, 1.0, 2.0, -2.0, math.inf, 1.0, math.nan, 1.0, 1e4, 1.0, 3.0, 4.0]).reshape(1, 1, *(12,) if rank == 1 else (3, 4))], p=p, **args)
        avg = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[rank - 1]
        most = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)[rank - 1]
        for size in {1: ([3], [1], [9]), 2: ([3, 4], [1, 1], [5, 2]), 3: ([2, 3, 4], [1, 1, 1])}[rank]:
            four(f"adaptive_avg_pool{rank}d", lambda x: avg(x, size), 0, 0, size=size)
            for part in (0, 1):
                four(f"adaptive_max_pool{rank}d", lambda x: most(x, size, return_indices=True)[part], part, 2, size=size)
    kinds = [{"kernel": [2]}, {"kernel": [3, 2], "stride": [2, 1], "padding": [1, 0], "dilation": [1, 2]}, {"kernel": [2], "stride": [2]}]
    for args in kinds:
        tag = tagged(args)

        def columns(x, args=args):
            return F.unfold(x, *(both(args.get(k, [d])) for k, d in (("kernel", 0), ("dilation", 1), ("padding", 0), ("stride", 1))))

        def image(x, args=args):
            return F.fold(x, (5, 4), *(both(args.get(k, [d])) for k, d in (("kernel", 0), ("dilation", 1), ("padding", 0), ("stride", 1))))
        f.case("unfold2d", "ordinary" + tag, columns, [r(2, 2, 5, 4)], **args)
        f.case("unfold2d", "unbatched" + tag, columns, [r(2, 5, 4)], **args)
        f.case("unfold2d", "transposed" + tag, columns, [Operand(r(4, 2, 5, 2), transpose(0, 3))], **args)
        f.case("unfold2d", "expanded" + tag, columns, [Operand(r(1, 1, 5, 4), expand(2, 2, 5, 4))], **args)
        f.case("unfold2d", "empty" + tag, columns, [r(0, 2, 5, 4)], **args)
        f.case("unfold2d", "extreme" + tag, columns, [ties.reshape(1, 1, 6, 4)], **args)
        rows, n = columns(torch.zeros(1, 2, 5, 4)).shape[1:]
        f.case("fold", "ordinary" + tag, image, [r(2, rows, n)], **args)
        f.case("fold", "unbatched" + tag, image, [r(rows, n)], **args)
        f.case("fold", "transposed" + tag, image, [Operand(r(n, rows), transpose(0, 1))], **args)
        f.case("fold", "expanded" + tag, image, [Operand(r(1, rows, 1), expand(2, rows, n))], **args)
        f.case("fold", "empty" + tag, image, [r(0, rows, n)], **args)
        far = torch.where(r(rows // 2, n) > 1.8, math.inf, r(rows // 2, n))  # all infinities have one sign, so that their sums are not NaN
        far[0, 0], far[-1, -1], far[0, 1] = math.nan, MAX, TINY
        f.case("fold", "extreme" + tag, image, [far], **args)


def unpools(f):
    """Maximum unpooling, pooling by norms in three dimensions, and fractional maximum pooling, whose windows follow from samples."""
    torch.use_deterministic_algorithms(False)  # no two elements go to the same place, so the result of unpooling is certain
    r = f.randn
    shapes = {1: (2, 2, 6), 2: (1, 2, 4, 6), 3: (1, 1, 2, 4, 4)}
    special = torch.tensor([1.0, -0.0, math.nan, math.inf, -math.inf, MAX, DENORMAL, TINY])
    for rank in (1, 2, 3):
        pool, unpool, xs = getattr(F, f"max_pool{rank}d"), getattr(F, f"max_unpool{rank}d"), shapes[rank]
        kinds = [{"kernel": [2]}, {"kernel": [2], "size": [n + 1 for n in xs[2:]]}]
        if rank < 3:
            kinds.append({"kernel": [3], "stride": [2], "padding": [1]})
        for args in kinds:
            tag = tagged(args)

            def fn(x, i, args=args):
                return unpool(x, i, args["kernel"] * rank, args.get("stride", args["kernel"]) * rank, args.get("padding", [0]) * rank, args.get("size"))
            y, i = pool(r(*xs), args["kernel"] * rank, args.get("stride"), args.get("padding", 0), return_indices=True)
            if "stride" in args:  # windows overlap, so two of them could have the same maximum
                y, i = r(*y.shape), torch.arange(y[0, 0].numel()).flip(0).reshape(1, 1, *y.shape[2:]).expand(y.shape).contiguous()
            back = list(range(len(xs)))
            back[0], back[-1] = back[-1], back[0]
            f.case(f"max_unpool{rank}d", "ordinary" + tag, fn, [y, i], **args)
            f.case(f"max_unpool{rank}d", "unbatched" + tag, fn, [y[0].clone(), i[0].clone()], **args)
            f.case(f"max_unpool{rank}d", "transposed" + tag, fn, [Operand(y.permute(back).contiguous(), transpose(0, len(xs) - 1)), i], **args)
            f.case(f"max_unpool{rank}d", "expanded" + tag, fn, [Operand(r(1, 1, *y.shape[2:]), expand(*y.shape)), i], **args)
            f.case(f"max_unpool{rank}d", "empty" + tag, fn, [y[:0], i[:0]], **args)
            f.case(f"max_unpool{rank}d", "extreme" + tag, fn, [special.repeat(y.numel() // 8 + 1)[:y.numel()].reshape(y.shape), i], **args)
    for p, args in ((2.0, {"kernel": [2]}), (3.0, {"kernel": [2], "stride": [1], "ceil": True})):
        def norm(x, p=p, args=args):
            return F.lp_pool3d(x, p, args["kernel"][0], args.get("stride", [None])[0], args.get("ceil", False))
        tag = f" p={p}" + tagged(args)
        f.case("lp_pool3d", "ordinary" + tag, norm, [r(1, 2, 3, 2, 4)], p=p, **args)
        f.case("lp_pool3d", "transposed" + tag, norm, [Operand(r(4, 2, 3, 2, 1), transpose(0, 4))], p=p, **args)
        f.case("lp_pool3d", "expanded" + tag, norm, [Operand(r(1, 1, 3, 2, 4), expand(1, 2, 3, 2, 4))], p=p, **args)
        f.case("lp_pool3d", "empty" + tag, norm, [r(0, 2, 3, 2, 4)], p=p, **args)
        f.case("lp_pool3d", "extreme" + tag, norm, [torch.tensor([1.0, 1.0, 2.0, -2.0, math.inf, 1.0, math.nan, 1.0, 1e4, 1.0, 3.0, 4.0] * 2).reshape(1, 1, 2, 3, 4)], p=p, **args)
    for rank, xs, kinds in ((2, (2, 2, 7, 8), [{"kernel": [2], "size": [3, 4]}, {"kernel": [3, 2], "size": [5, 1]}, {"kernel": [2], "ratio": [0.5]}]),
                            (3, (1, 2, 4, 5, 6), [{"kernel": [2], "size": [2, 3, 4]}, {"kernel": [1, 2, 3], "ratio": [0.5, 0.7, 0.6]}])):
        pool = getattr(F, f"fractional_max_pool{rank}d")
        for args in kinds:
            for part in (0, 1):
                def fn(x, u, args=args, part=part):
                    size = args["size"] if "size" in args else [int(n * q) for n, q in zip(xs[2:], args["ratio"] * (rank // len(args["ratio"])))]
                    if x.dim() == rank + 1:
                        u = u.reshape(1, *u.shape)
                    return pool(x, args["kernel"] * (rank // len(args["kernel"])), size, _random_samples=u, return_indices=True)[part]
                more = {"part": part, **args}
                op, tag, grad = f"fractional_max_pool{rank}d", tagged(more), part == 0
                u = lambda n: Operand(torch.rand((n, xs[1], rank), generator=f.generator), grad=False)
                back = (xs[-1], *xs[1:-1], xs[0])
                f.case(op, "ordinary" + tag, fn, [Operand(r(*xs), grad=grad), u(xs[0])], **more)
                f.case(op, "ordinary again" + tag, fn, [Operand(r(*xs), grad=grad), u(xs[0])], **more)
                f.case(op, "transposed" + tag, fn, [Operand(r(*back), transpose(0, len(xs) - 1), grad=grad), u(xs[0])], **more)
                f.case(op, "expanded" + tag, fn, [Operand(r(1, 1, *xs[2:]), expand(*xs), grad=grad), u(xs[0])], **more)
                f.case(op, "empty" + tag, fn, [Operand(r(0, *xs[1:]), grad=grad), u(0)], **more)
                n = math.prod(xs)
                f.case(op, "extreme" + tag, fn, [Operand(special.repeat(n // 8 + 1)[torch.randperm(n, generator=f.generator)].reshape(xs), grad=grad), u(xs[0])], **more)


def resampling(f):
    r = f.randn
    special = torch.tensor([1.0, -0.0, 2.0, math.inf, 0.5, 1.5, TINY, -1.0, math.nan, 1.0, MAX / 8, 3.0, 0.0, -math.inf, 1.0, DENORMAL, 0.25, -2.0])
    shapes = {1: (2, 2, 6), 2: (1, 2, 4, 5), 3: (1, 1, 3, 2, 4)}
    edge = {1: (1, 1, 18), 2: (1, 1, 3, 6), 3: (1, 1, 3, 2, 3)}
    kinds = {
        "nearest": {1: [{"size": [13]}, {"scale": [0.7]}], 2: [{"size": [7, 3]}, {"scale": [1.3, 2.0]}], 3: [{"size": [4, 3, 3]}]},
        "nearest-exact": {1: [{"size": [4]}], 2: [{"size": [7, 3]}, {"scale": [1.7, 0.6]}], 3: [{"scale": [1.5]}]},
        "linear": {1: [{"size": [11]}, {"scale": [0.7]}, {"size": [4], "align": True}, {"size": [6]}], 2: [{"size": [8, 4]}, {"size": [7, 3]}, {"scale": [1.7, 0.6]}, {"size": [6, 5], "align": True}], 3: [{"size": [4, 3, 3]}, {"scale": [1.4], "align": True}]},
        "bicubic": {2: [{"size": [7, 3]}, {"scale": [1.7, 0.6]}, {"size": [6, 3], "align": True}, {"size": [1, 9]}]},
        "area": {1: [{"size": [4]}], 2: [{"size": [3, 2]}], 3: [{"size": [2, 2, 3]}]},
    }
    for mode, of in kinds.items():
        for rank, cases in of.items():
            xs = shapes[rank]
            back = (xs[-1], *xs[1:-1], xs[0])
            for args in cases:
                name = ("linear", "bilinear", "trilinear")[rank - 1] if mode == "linear" else mode

                def fn(x, args=args, name=name, rank=rank):
                    size, scale = (v[0] if v and len(v) == 1 else v for v in (args.get("size"), args.get("scale")))
                    return F.interpolate(x, size, scale, name, args.get("align", False) if "linear" in name or "cubic" in name else None)
                tag = f" {rank} mode={mode}" + tagged(args)
                more = {**args, "mode": mode}
                f.case("interpolate", "ordinary" + tag, fn, [r(*xs)], **more)
                f.case("interpolate", "transposed" + tag, fn, [Operand(r(*back), transpose(0, len(xs) - 1))], **more)
                f.case("interpolate", "expanded" + tag, fn, [Operand(r(1, 1, *xs[2:]), expand(*xs))], **more)
                f.case("interpolate", "empty" + tag, fn, [r(0, *xs[1:])], **more)
                # For that size, rounding in float64 decides whether a sampled position is exactly
                # that of an element.
                if mode != "linear" or args != {"size": [7, 3]}:
                    f.case("interpolate", "extreme" + tag, fn, [special.reshape(edge[rank])], **more)
    # With many positions, the rounding of coordinates shows in the nearest elements and in the
    # weights.
    ramp = torch.arange(37.0).reshape(1, 1, 37) + f.randn(37) / 8
    for mode in ("nearest", "nearest-exact", "linear"):
        for args in ({"size": [101]}, {"scale": [2.37]}, {"size": [12]}):
            f.case("interpolate", f"ordinary ramp mode={mode}" + tagged(args), lambda x: F.interpolate(x, args.get("size"), args.get("scale"), mode), [ramp], mode=mode, **args)
    for mode in ("linear", "bicubic"):
        f.case("interpolate", f"ordinary ramp 2 mode={mode}", lambda x: F.interpolate(x, (1, 101), None, mode.replace("linear", "bilinear")), [ramp.unsqueeze(0)], mode=mode, size=[1, 101])
    f.case("interpolate", "int64", lambda x: F.interpolate(x.float(), 5).long(), [f.randint(-9, 9, (1, 2, 3))], mode="nearest", size=[5])
    grid = special[:16].reshape(1, 4, 2, 2)
    for op, fn, xs, on in (("pixel_shuffle", F.pixel_shuffle, (1, 8, 2, 3), 2), ("pixel_unshuffle", F.pixel_unshuffle, (1, 2, 4, 6), 2), ("channel_shuffle", F.channel_shuffle, (2, 4, 2, 2), 2)):
        run = lambda x: fn(x, on)
        f.case(op, "ordinary", run, [r(*xs)], factor=on)
        if op != "channel_shuffle":
            f.case(op, "ordinary without a batch", run, [r(*xs[1:])], factor=on)
            f.case(op, "ordinary more dimensions", run, [r(2, *xs)], factor=on)
        f.case(op, "transposed", run, [Operand(r(*xs[:2], xs[3], xs[2]), transpose(2, 3))], factor=on)
        f.case(op, "expanded", run, [Operand(r(1, 1, *xs[2:]), expand(2, *xs[1:]))], factor=on)
        # Torch 2.15 wrongly keeps the shape of an empty tensor when it unshuffles, and the gradient
        # of a shuffle unshuffles. So the factor is 1.
        f.case(op, "empty", lambda x: fn(x, 1), [r(0, *xs[1:])], factor=1)
        f.case(op, "extreme", run, [grid], factor=on)
        f.case(op, "int64", run, [f.randint(-9, 9, xs)], factor=on)
        f.case(op, "factor 1", lambda x: fn(x, 1), [r(*xs)], factor=1)
    for mode in ("linear", "bicubic"):
        name = mode.replace("linear", "bilinear")
        for args in ({"size": [2, 3]}, {"size": [7, 9]}, {"scale": [0.4, 1.7]}, {"size": [1, 4], "align": True}, {"size": [2, 2], "align": True}, {"size": [5, 6]}):
            def smooth(x, args=args):
                size, scale = (v and tuple(v) for v in (args.get("size"), args.get("scale")))
                return F.interpolate(x, size, scale, name, args.get("align", False), antialias=True)
            tag = f" antialias mode={mode}" + tagged(args)
            more = {**args, "mode": mode, "antialias": True}
            f.case("interpolate", "ordinary" + tag, smooth, [r(2, 1, 5, 6)], **more)
            f.case("interpolate", "transposed" + tag, smooth, [Operand(r(6, 2, 5, 1), transpose(0, 3))], **more)
            f.case("interpolate", "expanded" + tag, smooth, [Operand(r(1, 1, 5, 6), expand(2, 2, 5, 6))], **more)
            f.case("interpolate", "empty" + tag, smooth, [r(0, 2, 5, 6)], **more)
        f.case("interpolate", f"ordinary ramp antialias mode={mode}", lambda x: F.interpolate(x, (1, 7), None, name, antialias=True), [ramp.unsqueeze(0)], mode=mode, size=[1, 7], antialias=True)


def sampling(f):
    """Positions inside and outside of the image. None is NaN or infinite, because PyTorch then reads other memory."""
    r = f.randn
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for align in (False, True):
                fn = lambda x, g: F.grid_sample(x, g, mode, padding, align)
                args = {"mode": mode, "padding": padding, **({"align": True} if align else {})}
                case = lambda name, *operands: f.case("grid_sample", name + tagged(args), fn, operands, **args)
                case("ordinary", r(2, 3, 4, 5), r(2, 3, 2, 2))
                case("ordinary far", r(1, 2, 5, 3), r(1, 2, 3, 2) * 8)
                case("ordinary one element", r(1, 2, 1, 1), r(1, 2, 3, 2))
                case("transposed", Operand(r(5, 2, 3, 1), transpose(0, 3)), Operand(r(2, 3, 2, 1), transpose(0, 3)))
                case("expanded", Operand(r(1, 1, 3, 4), expand(2, 3, 3, 4)), Operand(r(1, 2, 3, 2), expand(2, 2, 3, 2)))
                case("empty", r(0, 2, 3, 4), r(0, 2, 2, 2))
                case("extreme", APART.reshape(1, 1, 4, 6), r(1, 2, 3, 2))
    edges = torch.tensor([-1.0, 1.0, -1.25, 1.25, -0.75, 0.75, 3.0, 0.0, -3.0, 0.5])
    for padding in ("border", "reflection"):
        for align in (False, True):
            args = {"mode": "bilinear", "padding": padding, **({"align": True} if align else {})}
            f.case("grid_sample", "ordinary edges" + tagged(args), lambda x, g: F.grid_sample(x, g, "bilinear", padding, align),
                   [r(1, 2, 4, 4), torch.stack([edges, edges.flip(0)], -1).reshape(1, 2, 5, 2)], **args)


if __name__ == "__main__":
    f = File(__file__, SEED + 40)
    convolutions(f)
    f.write(FOLDER + "conv.safetensors.gz")
    f = File(__file__, SEED + 41)
    pools(f)
    f.write(FOLDER + "pool.safetensors.gz")
    f = File(__file__, SEED + 42)
    resampling(f)
    f.write(FOLDER + "resample.safetensors.gz")
    f = File(__file__, SEED + 43)
    unpools(f)
    f.write(FOLDER + "unpool.safetensors.gz")
    f = File(__file__, SEED + 44)
    sampling(f)
    f.write(FOLDER + "gridsample.safetensors.gz")

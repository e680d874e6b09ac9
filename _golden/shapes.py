"""Golden files for ops that rearrange, for the wider reductions and for products made of others. Writes tensor/optest/testdata."""

import math

import torch
import torch.nn.functional as F

from golden import File, Operand
from ops import DENORMAL, FOLDER, MAX, SEED, SPECIAL, TINY, expand, narrow, transpose


def spread(f, op, fn, shape, extreme=None, **args):
    """One op with one set of arguments on an ordinary, a transposed, an expanded operand and one between others."""
    r = f.randn
    tag = f" {list(shape)}" + "".join(f" {k}={v}" for k, v in args.items())
    f.case(op, "ordinary" + tag, fn, [r(*shape)], **args)
    f.case(op, "strided" + tag, fn, [Operand(r(*shape[:-1], shape[-1] + 2), narrow(len(shape) - 1, 1, shape[-1]))], **args)
    if len(shape) > 1:
        f.case(op, "transposed" + tag, fn, [Operand(r(shape[1], shape[0], *shape[2:]), transpose(0, 1))], **args)
        f.case(op, "expanded" + tag, fn, [Operand(r(1, *shape[1:]), expand(*shape))], **args)
    if extreme is not None:
        f.case(op, "extreme" + tag, fn, [extreme], **args)


def rearranging():
    f = File(__file__, SEED + 20)
    r = f.randn
    grid = SPECIAL[:18].reshape(3, 6)
    for shape, dim, start, stop, step in (((5, 4), 0, 1, 4, 1), ((3, 6), 1, -5, 6, 2), ((5, 4), 0, 0, -2, 3), ((5, 4), 1, 3, 1, 1), ((5, 4), 0, -99, 99, 1), ((0, 3), 0, 0, 2, 1)):
        fn = lambda x: x.narrow(dim, 0, x.shape[dim])[(slice(None),) * dim + (slice(start, stop, step),)]
        spread(f, "slice", fn, shape, grid, dim=dim, start=start, stop=stop, step=step)
    for shape, offset, d1, d2 in (((3, 4), 0, 0, 1), ((3, 4), 2, 0, 1), ((3, 4), -1, 1, 0), ((2, 3, 4), 1, -1, 0), ((3, 4), 9, 0, 1), ((0, 3), 0, 0, 1)):
        spread(f, "diagonal", lambda x: torch.diagonal(x, offset, d1, d2), shape, offset=offset, dim1=d1, dim2=d2)
    f.case("diagonal", "extreme", lambda x: torch.diagonal(x, 1, 0, 1), [grid], offset=1, dim1=0, dim2=1)
    for shape, offset, d1, d2 in (((3,), 0, -2, -1), ((2, 3), 1, 0, 1), ((2, 3), -2, 1, -1), ((2, 3), 0, 2, 0), ((2, 0), 1, 0, 1)):
        spread(f, "diag_embed", lambda x: torch.diag_embed(x, offset, d1, d2), shape, SPECIAL.reshape(1, -1) if len(shape) > 1 else SPECIAL, offset=offset, dim1=d1, dim2=d2)
    for shape, k in (((4,), 0), ((3,), -2), ((3, 4), 1), ((3, 3), 0), ((4, 2), -1)):
        spread(f, "diag", lambda x: torch.diag(x, k), shape, k=k)
    f.case("diag", "extreme", lambda x: torch.diag(x, 0), [SPECIAL], k=0)
    for op in ("tril", "triu"):
        for shape, k in (((3, 4), 0), ((4, 3), -1), ((2, 3, 3), 1), ((3, 4), 9), ((0, 3), 0)):
            spread(f, op, lambda x: getattr(torch, op)(x, k), shape, k=k)
        f.case(op, "extreme", lambda x: getattr(torch, op)(x, 0), [SPECIAL[-18:].reshape(3, 6)], k=0)
    for shape, dim, size, step in (((7,), 0, 3, 1), ((2, 7), 1, 3, 2), ((5, 3), 0, 2, 3), ((5, 3), 0, 5, 1), ((2, 4, 3), -2, 2, 1), ((3, 4), 1, 0, 1)):
        spread(f, "unfold", lambda x: x.unfold(dim, size, step), shape, dim=dim, size=size, step=step)
    f.case("unfold", "extreme", lambda x: x.unfold(0, 2, 1), [SPECIAL], dim=0, size=2, step=1)
    for size, stride, offset in (([2, 3], [4, 1], 1), ([3, 3], [2, 1], 0), ([2, 2, 2], [0, 3, 1], 2), ([5], [2], 3), ([0, 2], [1, 1], 0), ([], [], 5)):
        args = {"size": size, "stride": stride, "offset": offset}
        fn = lambda x: x.as_strided(size, stride, offset)
        f.case("as_strided", f"ordinary {args}", fn, [r(3, 4)], **args)
        f.case("as_strided", f"extreme {args}", fn, [SPECIAL], **args)
    for shape, dim, sizes in (((2, 6), 1, [3, 2]), ((2, 6), -1, [2, -1]), ((6, 2), 0, [1, 6]), ((4,), 0, [2, 2]), ((3, 0), 1, [0, 5])):
        spread(f, "unflatten", lambda x: x.unflatten(dim, sizes), shape, dim=dim, sizes=sizes)
    for shape, a, b in (((2, 3, 4), 0, 2), ((2, 3, 4), 2, 0), ((2, 3, 4), -1, 1), ((2, 3), 1, 1), ((0, 3, 2), 0, 1)):
        spread(f, "moveaxis", lambda x: torch.moveaxis(x, a, b), shape, source=a, destination=b)
    for shape, size in (((1, 4), [3, 4]), ((4,), [2, 3, 4]), ((3, 1), [2, 3, 5]), ((2, 3), [2, 3]), ((1, 3), [0, 3])):
        spread(f, "broadcast_to", lambda x: torch.broadcast_to(x, size), shape, size=size)
    for shape, n in (((2, 3), [1, 2]), ((2, 3), [2, 3, 1]), ((3,), [4]), ((2, 3), [0, 1]), ((0, 3), [2, 2])):
        spread(f, "repeat", lambda x: x.repeat(n), shape, repeats=n)
    for shape, n in (((2, 3), [2]), ((2, 3), [2, 1, 3]), ((3,), [4]), ((2, 3), []), ((2, 0), [2, 2])):
        spread(f, "tile", lambda x: torch.tile(x, n), shape, repeats=n)
    for shape, n, dim in (((2, 3), 2, 0), ((2, 3), 3, -1), ((2, 3, 2), 2, 1), ((4,), 1, 0), ((4,), 0, 0)):
        spread(f, "repeat_interleave", lambda x: torch.repeat_interleave(x, n, dim), shape, repeats=n, dim=dim)
    for shape, dims in (((3, 4), [0]), ((3, 4), [0, 1]), ((2, 3, 4), [-1, 0]), ((5,), [0]), ((3, 4), []), ((0, 3), [0, 1])):
        spread(f, "flip", lambda x: torch.flip(x, dims), shape, dims=dims)
    for shape, shifts, dims in (((5,), [2], [0]), ((3, 4), [1, -1], [0, 1]), ((3, 4), [5], []), ((3, 4), [1, 1], [0, 0]), ((3, 4), [-9], [1]), ((0, 3), [1], [0])):
        spread(f, "roll", lambda x: torch.roll(x, shifts, dims), shape, shifts=shifts, dims=dims)
    for op, fn, on in (("repeat", lambda x: x.repeat([2]), {"repeats": [2]}), ("tile", lambda x: x.tile([2]), {"repeats": [2]}), ("flip", lambda x: x.flip([0]), {"dims": [0]}),
                       ("roll", lambda x: x.roll([3], [0]), {"shifts": [3], "dims": [0]})):
        f.case(op, "extreme", fn, [SPECIAL], **on)
    for mode, of in (("constant", (((3, 4), [1, 2]), ((3, 4), [1, 0, 2, 3]), ((3, 4), [-1, 2, 0, -2]), ((2, 3, 2), [0, 1, 1, 1, 2, 0]), ((3, 4), [0, 0]), ((0, 3), [1, 1, 1, 0]))),
                     ("reflect", (((2, 4), [3, 1]), ((1, 3, 4), [1, 2, 2, 1]), ((2, 4), [0, 2]), ((2, 2, 3), [2, 2]), ((2, 4), [0, 0]))),
                     ("replicate", (((2, 4), [3, 5]), ((1, 3, 4), [1, 2, 2, 1]), ((2, 4), [0, 2]), ((2, 2, 3), [2, 2]), ((2, 1), [2, 2]))),
                     ("circular", (((2, 4), [3, 4]), ((1, 3, 4), [1, 2, 3, 1]), ((2, 4), [0, 2]), ((2, 2, 3), [2, 2]), ((2, 4), [0, 0])))):
        for shape, pad in of:
            if mode == "constant":
                spread(f, "pad", lambda x: F.pad(x, pad, mode, 2.5), shape, SPECIAL.reshape(1, -1) if len(pad) < 6 and min(pad) >= 0 else None, pad=pad, mode=mode, value=2.5)
            else:
                spread(f, "pad", lambda x: F.pad(x, pad, mode), shape, SPECIAL.reshape(1, -1) if len(pad) == 2 else None, pad=pad, mode=mode, value=0)
    # Ops of several results: each part is a case.
    for shape, size, dim, parts in (((5, 4), 2, 0, 3), ((5, 4), 9, 1, 1), ((6, 2), 3, -2, 2)):
        for part in range(parts):
            spread(f, "split", lambda x: torch.split(x, size, dim)[part], shape, size=size, dim=dim, part=part)
    for shape, sizes, dim in (((5, 4), [1, 4], 0), ((5, 4), [2, 0, 2], 1)):
        for part in range(len(sizes)):
            spread(f, "split", lambda x: torch.split(x, sizes, dim)[part], shape, sizes=sizes, dim=dim, part=part)
    for shape, n, dim in (((5, 4), 3, 0), ((5, 4), 2, 1), ((2, 3), 5, -1)):
        for part in range(len(torch.chunk(torch.zeros(shape), n, dim))):
            spread(f, "chunk", lambda x: torch.chunk(x, n, dim)[part], shape, n=n, dim=dim, part=part)
    for shape, dim in (((2, 4), 0), ((3, 2), -1)):
        for part in range(2):
            spread(f, "unbind", lambda x: torch.unbind(x, dim)[part], shape, dim=dim, part=part)
    for op, shapes in (("hstack", [(2, 3), (2, 1)]), ("hstack", [(3,), (2,)]), ("hstack", [(), (2,)]), ("hstack", [(2, 1, 2), (2, 2, 2)]), ("hstack", [(0,), (2,)]),
                       ("vstack", [(2, 3), (3,)]), ("vstack", [(3,), (3,)]), ("vstack", [(), ()]), ("vstack", [(2, 1, 2), (1, 1, 2)]), ("vstack", [(0, 2), (2,)])):
        f.case(op, f"ordinary {shapes}", lambda *xs: getattr(torch, op)(xs), [r(*s) for s in shapes])
    f.case("hstack", "strided", lambda *xs: torch.hstack(xs), [Operand(r(3, 2), transpose(0, 1)), Operand(r(1, 2), expand(2, 2))])
    f.case("vstack", "strided", lambda *xs: torch.vstack(xs), [Operand(r(3, 2), transpose(0, 1)), Operand(r(1, 3), expand(2, 3))])
    for op in ("hstack", "vstack"):
        f.case(op, "extreme", lambda *xs: getattr(torch, op)(xs), [SPECIAL, SPECIAL.flip(0)])
    for indexing in ("ij", "xy"):
        for part in (0, 1):
            fn = lambda *xs: torch.meshgrid(*xs, indexing=indexing)[part].contiguous()
            args = {"indexing": indexing, "part": part}
            for name, xs in (("ordinary", [r(3), r(2)]), ("three", [r(2), r(3), r(2)]), ("strided", [Operand(r(6), narrow(0, 2, 3)), Operand(r(1), expand(4))]),
                             ("empty", [r(0), r(2)]), ("extreme", [SPECIAL, r(2)])):
                operands = [x if isinstance(x, Operand) else Operand(x) for x in xs]
                for k, o in enumerate(operands):
                    o.grad = k == part
                f.case("meshgrid", f"{name} indexing={indexing} part={part}", fn, operands, **args)
    for shape, a, b in (((2, 3, 4), (0, 1), (1, 0)), ((2, 3, 4), (0, -1), (-1, 1)), ((2, 3, 4, 2), (3, 1), (0, 2)), ((2, 3, 4), (), ()), ((3, 2), (1,), (0,))):
        spread(f, "movedim", lambda x: torch.movedim(x, a, b), shape, source=list(a), destination=list(b))
    f.write(FOLDER + "shape.safetensors.gz")


def reducing():
    f = File(__file__, SEED + 21)
    rows = torch.tensor([[1.0, math.inf, 2.0], [-math.inf, math.inf, 0.0], [math.nan, 1.0, math.inf], [-0.0, 0.0, -0.0], [TINY, DENORMAL, -TINY], [MAX, MAX, -MAX],
                         [-math.inf, -math.inf, -math.inf], [2.0, 2.0, 1.0], [1e20, 1e-20, 3.0], [1e-30, 1e-30, 1e-30], [1e8, 1e8 + 8, 1e8 - 8]])

    def cases(op, fn, dims, grad=True, empty=(), extreme=rows, **extra):
        for dim in dims:
            args = {"dim": dim, "keepdim": False, **extra}
            run = lambda x: fn(x) if dim is None else fn(x, dim=dim)
            tag = "".join(f" {k}={v}" for k, v in args.items())
            f.case(op, "ordinary" + tag, run, [Operand(f.randn(3, 4, 5), grad=grad)], **args)
            f.case(op, "transposed" + tag, run, [Operand(f.randn(5, 4, 3), transpose(0, 2), grad=grad)], **args)
            f.case(op, "expanded" + tag, run, [Operand(f.randn(3, 1, 5), expand(3, 4, 5), grad=grad)], **args)
            if dim is not None:
                keep = {**args, "keepdim": True}
                f.case(op, "kept" + tag, lambda x: fn(x, dim=dim, keepdim=True), [Operand(f.randn(3, 4, 5), grad=grad)], **keep)
        tag = "".join(f" {k}={v}" for k, v in extra.items())
        whole = {"dim": None, "keepdim": False, **extra}
        f.case(op, "scalar" + tag, fn, [Operand(f.randn(), grad=grad)], **whole)
        last = {"dim": -1, "keepdim": False, **extra}
        f.case(op, "extreme" + tag, lambda x: fn(x, dim=-1), [Operand(extreme, grad=grad)], **last)
        for dim in empty:
            args = {"dim": dim, "keepdim": False, **extra}
            f.case(op, f"empty{tag} dim={dim}", lambda x: fn(x, dim=dim), [Operand(f.randn(0, 3), grad=grad)], **args)

    cases("prod", torch.prod, (None, 0, 1, -1), empty=(0, 1))
    for name, x in (("one zero", [[2.0, 0.0, 3.0], [1.5, -2.0, 4.0]]), ("two zeros", [[0.0, 0.0, 3.0], [0.0, -2.0, 4.0]]), ("all zeros", [[0.0, 0.0, 0.0], [-0.0, 1.0, 1.0]])):
        f.case("prod", name, lambda x: torch.prod(x, dim=1), [torch.tensor(x)], dim=1, keepdim=False)
        f.case("prod", name + " whole", torch.prod, [torch.tensor(x)], dim=None, keepdim=False)
    ints = f.randint(-3, 4, (3, 4))
    f.case("prod", "int64", lambda x: torch.prod(x, dim=1), [ints], dim=1, keepdim=False)
    f.case("prod", "bool", torch.prod, [ints > 0], dim=None, keepdim=False)
    for op in ("max", "min"):
        for part in (0, 1):
            fn = lambda x, dim=0, keepdim=False: getattr(torch, op)(x, dim, keepdim)[part]
            cases(op, fn, (0, 1, -1), grad=part == 0, empty=(1,), part=part)
            ties = torch.tensor([[1.0, 3.0, 3.0, -1.0, -1.0], [2.0, 2.0, 2.0, 2.0, 2.0], [math.nan, 1.0, math.nan, 2.0, 0.0]])
            f.case(op, f"ties part={part}", lambda x: fn(x, 1), [Operand(ties, grad=part == 0)], dim=1, keepdim=False, part=part)
            f.case(op, f"int64 part={part}", lambda x: fn(x, 1), [ints], dim=1, keepdim=False, part=part)
    for op in ("any", "all", "count_nonzero"):
        fn = getattr(torch, op)
        for name, x in (("float", torch.tensor([[0.0, -0.0, 0.25], [math.nan, 1.0, TINY], [0.0, 0.0, 0.0], [math.inf, -1.0, 0.5]])), ("int64", ints), ("bool", ints > 0), ("empty", f.randn(0, 3))):
            o = lambda: Operand(x, grad=False)
            f.case(op, name + " whole", fn, [o()], dim=None, keepdim=False)
            for dim in (0, 1, -1):
                f.case(op, f"{name} dim={dim}", lambda x: fn(x, dim=dim), [o()], dim=dim, keepdim=False)
        f.case(op, "transposed", lambda x: fn(x, dim=0), [Operand(ints, transpose(0, 1))], dim=0, keepdim=False)
        f.case(op, "expanded", lambda x: fn(x, dim=0), [Operand(ints[:1], expand(3, 4))], dim=0, keepdim=False)
    for op in ("var", "std"):
        for correction in (0, 1, 5):
            fn = lambda x, dim=None, keepdim=False: getattr(torch, op)(x, dim=dim, correction=correction, keepdim=keepdim)
            cases(op, fn, (None, 0, [1], [0, 2]), empty=(0, 1), correction=correction)
            f.case(op, f"far from zero correction={correction}", lambda x: fn(x, 1), [f.randn(3, 50) + 1000], dim=1, keepdim=False, correction=correction)
    cases("logsumexp", lambda x, dim=(0, 1, 2), keepdim=False: torch.logsumexp(x, dim if x.dim() else -1, keepdim), (None, 0, [1], [0, -1]), empty=(0, 1))
    for p in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf, -math.inf, -1.0):
        fn = lambda x, dim=None, keepdim=False: torch.linalg.vector_norm(x, p, dim, keepdim)
        order = {math.inf: "inf", -math.inf: "-inf"}.get(p, str(p))
        small = rows[[0, 1, 2, 3, 7]] if p in (0.5, 1.5, 3.0, -1.0) else rows  # powers of extreme numbers overflow in float32 alone
        cases("norm", fn, (None, 1, [0, 2]), grad=p != 0, empty=(1,) if p < 0 or p == math.inf else (0, 1), extreme=small, p=order)
        zeros = torch.tensor([[0.0, 0.0, 0.0], [1.0, -1.0, 0.0], [2.0, 2.0, -2.0]])
        f.case("norm", f"zeros p={order}", lambda x: fn(x, 1), [Operand(zeros, grad=p != 0)], dim=1, keepdim=False, p=order)
    f.write(FOLDER + "reducewide.safetensors.gz")


def multiplying():
    f = File(__file__, SEED + 22)
    r = f.randn
    wide = lambda n, m: Operand(r(n, m + 3), narrow(1, 2, m))
    across = lambda n, m: Operand(r(m, n), transpose(0, 1))
    two = {"ordinary": [r(3), r(4)], "strided": [Operand(r(9), narrow(0, 3, 3)), r(4)], "expanded": [Operand(r(1), expand(3)), r(4)], "empty": [r(0), r(4)], "extreme": [SPECIAL, SPECIAL.flip(0)]}
    for name, xs in two.items():
        f.case("outer", name, torch.outer, xs)
    two = {"ordinary": [r(5), r(5)], "strided": [Operand(r(9), narrow(0, 3, 4)), r(4)], "expanded": [Operand(r(1), expand(3)), r(3)], "empty": [r(0), r(0)], "extreme": [SPECIAL[:16], SPECIAL[:16].flip(0)]}
    for name, xs in two.items():
        f.case("dot", name, torch.dot, xs)
    f.case("bmm", "ordinary", torch.bmm, [r(2, 3, 4), r(2, 4, 5)])
    f.case("bmm", "transposed", torch.bmm, [Operand(r(2, 4, 3), transpose(1, 2)), Operand(r(4, 2, 5), transpose(0, 1))])
    f.case("bmm", "expanded", torch.bmm, [Operand(r(1, 3, 4), expand(2, 3, 4)), r(2, 4, 2)])
    f.case("bmm", "empty", torch.bmm, [r(0, 3, 4), r(0, 4, 2)])
    f.case("bmm", "no terms", torch.bmm, [r(2, 3, 0), r(2, 0, 2)])
    for beta, alpha in ((1.0, 1.0), (0.5, 2.0), (0.0, 1.5), (-1.0, 0.0)):
        args = {"beta": beta, "alpha": alpha}
        tag = f" beta={beta} alpha={alpha}"
        add = lambda x, a, b: torch.addmm(x, a, b, beta=beta, alpha=alpha)
        for name, xs in (("ordinary", [r(2, 4), r(2, 3), r(3, 4)]), ("broadcast", [r(4), r(2, 3), r(3, 4)]), ("strided", [across(2, 4), wide(2, 3), across(3, 4)]),
                         ("empty", [r(1, 4), r(0, 3), r(3, 4)]), ("no terms", [r(2, 4), r(2, 0), r(0, 4)])):
            f.case("addmm", name + tag, add, xs, **args)
        badd = lambda x, a, b: torch.baddbmm(x, a, b, beta=beta, alpha=alpha)
        for name, xs in (("ordinary", [r(2, 2, 4), r(2, 2, 3), r(2, 3, 4)]), ("broadcast", [r(2, 1, 4), r(2, 2, 3), r(2, 3, 4)]), ("strided", [Operand(r(4, 2), transpose(0, 1)), Operand(r(1, 2, 3), expand(2, 2, 3)), r(2, 3, 4)]),
                         ("empty", [r(0, 2, 4), r(0, 2, 3), r(0, 3, 4)])):
            f.case("baddbmm", name + tag, badd, xs, **args)
    for eq, shapes in (("ij,jk->ik", [(2, 3), (3, 4)]), ("ij,jk", [(2, 3), (3, 4)]), ("bij->bji", [(2, 3, 4)]), ("ii->i", [(3, 3)]), ("ii", [(3, 3)]), ("ij->", [(2, 3)]), ("ba", [(2, 3)]),
                       ("i,i->i", [(3,), (3,)]), ("bi,bi->b", [(2, 3), (2, 3)]), ("i,j,k->kji", [(2,), (3,), (2,)]), ("bhqd,bhkd->bhqk", [(2, 2, 3, 4), (2, 2, 5, 4)]), ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
                       ("ijj,kj->ik", [(2, 3, 3), (2, 3)]), ("ij,k->j", [(2, 3), (4,)]), ("...ij,...jk->...ik", [(2, 1, 2, 3), (3, 3, 4)]), ("...,i...", [(2, 3), (4, 2, 3)]), ("i...->...", [(3, 2, 2)]),
                       ("ij, ij -> i", [(2, 1), (1, 3)]), ("i,->i", [(3,), ()]), ("ab,cd,ef->fedcba", [(1, 2), (2, 1), (1, 2)]), ("ij,jk->ik", [(2, 0), (0, 4)]), ("ij,jk->ik", [(0, 3), (3, 4)]), ("aB,Bc", [(2, 3), (3, 2)])):
        f.case("einsum", f"ordinary {eq} {list(shapes)}", lambda *xs: torch.einsum(eq, *xs), [r(*s) for s in shapes], equation=eq)
    for eq in ("ij,jk->ik", "ij,jk->", "ij,ji->i"):
        f.case("einsum", f"strided {eq}", lambda *xs: torch.einsum(eq, *xs), [across(3, 4), wide(4, 3)], equation=eq)
        f.case("einsum", f"expanded {eq}", lambda *xs: torch.einsum(eq, *xs), [Operand(r(1, 4), expand(3, 4)), Operand(r(4, 1), expand(4, 3))], equation=eq)
    f.case("einsum", "int64", lambda *xs: torch.einsum("ij,jk->ik", *xs), [f.randint(-5, 5, (2, 3)), f.randint(-5, 5, (3, 2))], equation="ij,jk->ik")
    f.write(FOLDER + "product.safetensors.gz")


def comparing():
    f = File(__file__, SEED + 23)
    r = f.randn
    for name, ix, n in (("ordinary", f.randint(0, 5, (4,)), 5), ("matrix", f.randint(0, 3, (2, 3)), 4), ("transposed", Operand(f.randint(0, 3, (3, 2)), transpose(0, 1)), 3),
                        ("expanded", Operand(f.randint(0, 3, (1, 2)), expand(3, 2)), 3), ("scalar", torch.tensor(2), 3), ("empty", torch.zeros(0, 2, dtype=torch.int64), 3)):
        f.case("one_hot", name, lambda x: F.one_hot(x, n), [ix], num_classes=n)
    pairs = lambda n, m: {"ordinary": [r(n, m), r(n, m)], "transposed": [Operand(r(m, n), transpose(0, 1)), r(n, m)], "narrowed": [Operand(r(n, m + 3), narrow(1, 2, m)), r(n, m)],
                          "expanded": [Operand(r(1, m), expand(n, m)), r(n, m)], "empty": [r(0, m), r(0, m)]}
    rows = [torch.tensor([[0.0, 0.0, 0.0], [1e-20, 0.0, 0.0], [1.0, -2.0, 3.0], [math.inf, 1.0, 0.0], [math.nan, 1.0, 0.0], [1e10, 1.0, -1e10]]), torch.tensor([[1.0, 2.0, 3.0]] * 6)]
    for dim in (0, 1, -1):
        fn = lambda x, y: F.cosine_similarity(x, y, dim, 1e-8)
        for name, xs in {**pairs(4, 3), "broadcast": [r(4, 1, 3), r(2, 3)], "extreme": rows}.items():
            f.case("cosine_similarity", f"{name} dim={dim}", fn, xs, dim=dim, eps=1e-8)
    for p in (1.0, 2.0, 3.0, math.inf):
        order = "inf" if p == math.inf else str(p)
        fn = lambda x, y: F.pairwise_distance(x, y, p, 1e-6)
        same = r(3, 4)
        for name, xs in {**pairs(4, 3), "broadcast": [r(4, 3), r(1, 3)], "vectors": [r(5), r(5)], "equal": [same, same.clone()]}.items():
            f.case("pairwise_distance", f"{name} p={order}", fn, xs, p=order, eps=1e-6)
        fn = lambda x, y: torch.cdist(x, y, p, "donot_use_mm_for_euclid_dist")
        for name, xs in {**pairs(4, 3), "batches": [r(2, 3, 4), r(2, 2, 4)], "broadcast": [r(2, 1, 3, 4), r(3, 2, 4)], "equal": [same, same.clone()], "no columns": [r(2, 0), r(3, 0)]}.items():
            if name == "empty":
                xs = [r(0, 3), r(2, 3)]
            f.case("cdist", f"{name} p={order}", fn, xs, p=order)
    f.write(FOLDER + "distance.safetensors.gz")


if __name__ == "__main__":
    rearranging()
    reducing()
    multiplying()
    comparing()

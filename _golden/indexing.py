"""Golden files for gathering, scattering, masks and indexing as Python's brackets do. Writes tensor/optest/testdata."""

import math

import torch
import torch.nn.functional as F

from golden import File, Operand
from ops import DENORMAL, FOLDER, MAX, SEED, SPECIAL, TINY, expand, narrow, transpose

INTS = torch.tensor([[1, 2**62, 2**62, 2**62], [-1, -(2**63), -1, 2**63 - 1], [0, 5, -7, 2**40]])


def i(*v):
    return torch.tensor(v, dtype=torch.int64)


def fixed(x):
    return Operand(x, grad=False)


GRID = SPECIAL[-16:].reshape(4, 4)  # includes the greatest numbers, infinities and NaN


def scattering():
    f = File(__file__, SEED + 60)
    r = f.randn
    here = torch.tensor([[2, 0, 3], [1, 3, 0]])  # no place of a row occurs twice
    rows = torch.tensor([[2, 0, 1, 0], [0, 1, 2, 1]])
    twice = torch.tensor([[0, 0, 3, 0], [2, 2, 2, 2], [1, 3, 1, 3]])

    def spread(op, fn, index, source=True, **args):
        """fn(x, index, src) on operands of all kinds."""
        tag = "".join(f" {k}={v}" for k, v in args.items())
        src = lambda *s: [r(*s)] if source else []
        f.case(op, "ordinary" + tag, fn, [r(3, 4), index, *src(*index.shape)], **args)
        f.case(op, "ordinary larger source" + tag, fn, [r(4, 5), index, *src(*(n + 1 for n in index.shape))], **args)
        f.case(op, "transposed" + tag, fn, [Operand(r(4, 3), transpose(0, 1)), Operand(index.t().contiguous(), transpose(0, 1)), *([Operand(r(index.shape[1], index.shape[0]), transpose(0, 1))] if source else [])], **args)
        f.case(op, "expanded" + tag, fn, [Operand(r(1, 4), expand(3, 4)), Operand(index[:1].contiguous(), expand(*index.shape)), *([Operand(r(1, index.shape[1]), expand(*index.shape))] if source else [])], **args)
        f.case(op, "narrowed" + tag, fn, [Operand(r(3, 6), narrow(1, 1, 4)), index, *([Operand(r(index.shape[0], index.shape[1] + 2), narrow(1, 2, index.shape[1]))] if source else [])], **args)
        f.case(op, "empty index" + tag, fn, [r(3, 4), torch.zeros(2, 0, dtype=torch.int64), *src(2, 0)], **args)
        f.case(op, "empty" + tag, fn, [r(0, 4), torch.zeros(0, 4, dtype=torch.int64), *src(0, 4)], **args)
        if args["dim"] != 1:
            f.case(op, "scalar" + tag, fn, [r(), torch.tensor(0), *src()], **args)

    for dim, index in ((1, here), (0, rows), (-1, here)):
        a = {"dim": dim}
        spread("scatter", lambda x, ix, s: x.scatter(dim, ix, s[tuple(map(slice, ix.shape))]), index, **a)
        spread("scatter_value", lambda x, ix: x.scatter(dim, ix, -2.5), index, source=False, value=-2.5, **a)
        for ix in (index, twice if dim else twice % 3):
            spread("scatter_add", lambda x, ix, s: x.scatter_add(dim, ix, s[tuple(map(slice, ix.shape))]), ix, **{**a, "repeated": ix is not index})
    f.case("scatter", "extreme", lambda x, ix, s: x.scatter(1, ix, s), [GRID, torch.tensor([[3, 2, 1, 0]] * 4), GRID.flip(0)], dim=1)
    f.case("scatter", "extreme int64", lambda x, ix, s: x.scatter(1, ix, s), [INTS, torch.tensor([[3, 2], [1, 0], [0, 3]]), INTS.flip(0)[:, :2].contiguous()], dim=1)
    for v in (math.inf, -0.0, math.nan, MAX, TINY):
        if v == v and abs(v) < math.inf:
            f.case("scatter_value", f"extreme {v}", lambda x, ix: x.scatter(1, ix, v), [GRID, torch.tensor([[3, 2]] * 4)], dim=1, value=v)
    for k, g in enumerate((fixed(GRID), torch.tensor([[TINY, -TINY, DENORMAL, 1.0], [1e20, -1e20, 1.0, -0.0], [-0.0, 0.0, -0.0, -0.0], [MAX, 1.0, 1e-20, -MAX]]))):
        back = fixed(GRID.flip(1)) if k == 0 else Operand(g.flip(0))
        f.case("scatter_add", f"extreme {k}", lambda x, ix, s: x.scatter_add(1, ix, s), [g, torch.tensor([[3, 2, 1, 1]] * 4), back], dim=1)
    f.case("scatter_add", "extreme int64", lambda x, ix, s: x.scatter_add(1, ix, s), [INTS, torch.tensor([[1, 1, 2, 2]] * 3), INTS.flip(0)], dim=1)
    f.case("scatter_add", "bool", lambda x, ix, s: x.scatter_add(0, ix, s), [torch.tensor([True, False, False]), i(0, 0, 1), torch.tensor([False, False, True])], dim=0)

    ties = torch.tensor([[1.0, 2.0, 2.0, math.nan], [0.0, -0.0, 3.0, 3.0], [-math.inf, 5.0, math.inf, -1.0]])
    tied = torch.tensor([[2.0, 1.0, 2.0, 2.0], [3.0, 3.0, -1.0, 0.0], [math.inf, math.inf, -math.inf, math.nan]])
    zeros = torch.tensor([[2.0, 0.0, 3.0, 0.0], [0.0, 0.0, 3.0, 3.0], [1.0, 5.0, -2.0, -1.0]])
    zeroed = torch.tensor([[2.0, 1.0, 0.0, 2.0], [0.0, 3.0, -1.0, 0.0], [-1.0, 4.0, 0.0, 3.0]])
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        for inc in (True, False):
            a = {"reduce": reduce, "include_self": inc}
            for dim, index in ((1, twice), (0, twice % 3)):
                # index and source have the same shape, because PyTorch has no gradient for other
                # shapes.
                fn = lambda x, ix, s: x.scatter_reduce(dim, ix, s, reduce, include_self=inc)
                tag = f" dim={dim} {reduce} include_self={inc}"
                b = {**a, "dim": dim}
                op = "scatter_reduce"
                f.case(op, "ordinary" + tag, fn, [r(3, 4), index, r(3, 4)], **b)
                f.case(op, "transposed" + tag, fn, [Operand(r(4, 3), transpose(0, 1)), Operand(index.t().contiguous(), transpose(0, 1)), Operand(r(4, 3), transpose(0, 1))], **b)
                f.case(op, "expanded" + tag, fn, [Operand(r(3, 1), expand(3, 4)), Operand(index[:, :1].contiguous(), expand(3, 4)), r(3, 4)], **b)
                if dim == 0:
                    f.case(op, "empty" + tag, fn, [r(3, 0), torch.zeros(2, 0, dtype=torch.int64), r(2, 0)], **b)
                    f.case(op, "empty index" + tag, fn, [r(3, 2), torch.zeros(0, 2, dtype=torch.int64), r(0, 2)], **b)
                    continue
                special = (zeros, zeroed) if reduce == "prod" else (ties, tied) if reduce[0] == "a" else (torch.tensor([[1e20, -0.0, TINY, 3.0]] * 3), torch.tensor([[-1e20, -0.0, TINY, 5.0]] * 3))
                f.case(op, "extreme" + tag, fn, [special[0], torch.tensor([[0, 0, 1, 3], [1, 1, 2, 0], [2, 1, 2, 3]]), special[1]], **b)
                f.case(op, "extreme values" + tag, fn, [fixed(ties), index, fixed(tied)], **b)
                f.case(op, "int64" + tag, fn, [f.randint(-9, 9, (3, 4)), index, f.randint(-9, 9, (3, 4))], **b)
                if reduce[0] != "m":
                    f.case(op, "extreme int64" + tag, fn, [INTS, index, INTS.flip(0)], **b)
            if reduce == "sum":
                continue
            for dim, shape in ((0, (4, 3)), (1, (3, 4))):
                fn = lambda x, ix, s: x.index_reduce(dim, ix, s, reduce, include_self=inc)
                tag, b, op = f" dim={dim} {reduce} include_self={inc}", {**a, "dim": dim}, "index_reduce"
                f.case(op, "ordinary" + tag, fn, [r(*shape), i(1, 3, 1), r(3, 3)], **b)
                f.case(op, "transposed" + tag, fn, [Operand(r(*shape[::-1]), transpose(0, 1)), i(1, 3, 1), Operand(r(3, 3), transpose(0, 1))], **b)
                f.case(op, "expanded" + tag, fn, [Operand(r(1, shape[1]), expand(*shape)), i(1, 3, 1), Operand(r(1, 3), expand(3, 3))], **b)
            f.case(op, "empty" + tag, fn, [r(3, 4), i(), r(3, 0)], **b)
            special = (zeros, zeroed) if reduce == "prod" else (ties, tied)
            f.case(op, "extreme" + tag, fn, [fixed(special[0]) if reduce == "mean" else special[0], i(0, 0, 1, 3), fixed(special[1]) if reduce == "mean" else special[1]], **b)

    for alpha in (1.0, -2.5):
        for dim, shape in ((0, (4, 3)), (1, (3, 4)), (-2, (4, 3))):
            fn = lambda x, ix, s: x.index_add(dim, ix, s, alpha=alpha)
            b, tag = {"dim": dim, "alpha": alpha}, f" dim={dim} alpha={alpha}"
            f.case("index_add", "ordinary" + tag, fn, [r(*shape), i(1, 3, 1), r(3, 3)], **b)
            f.case("index_add", "transposed" + tag, fn, [Operand(r(*shape[::-1]), transpose(0, 1)), i(1, 3, 1), Operand(r(3, 3), transpose(0, 1))], **b)
            f.case("index_add", "expanded" + tag, fn, [Operand(r(1, shape[1]), expand(*shape)), i(1, 3, 1), Operand(r(1, 3), expand(3, 3))], **b)
            f.case("index_add", "empty" + tag, fn, [r(*shape), i(), r(0, 3) if shape[0] == 4 else r(3, 0)], **b)
    f.case("index_add", "extreme", lambda x, ix, s: x.index_add(0, ix, s), [fixed(GRID), i(2, 0, 2, 1), fixed(GRID.flip(1))], dim=0, alpha=1.0)
    f.case("index_add", "extreme int64", lambda x, ix, s: x.index_add(0, ix, s), [INTS, i(2, 0, 2), INTS.flip(1)], dim=0, alpha=1.0)
    f.case("index_add", "scalar", lambda x, ix, s: x.index_add(0, ix, s), [r(), i(0), r()], dim=0, alpha=1.0)
    for dim, shape in ((0, (4, 3)), (1, (3, 4))):
        fn, fill = (lambda x, ix, s: x.index_copy(dim, ix, s)), (lambda x, ix: x.index_fill(dim, ix, 1.5))
        b, tag, c = {"dim": dim}, f" dim={dim}", {"dim": dim, "value": 1.5}
        views = lambda: Operand(r(*shape[::-1]), transpose(0, 1))
        f.case("index_copy", "ordinary" + tag, fn, [r(*shape), i(1, 3, 0), r(3, 3)], **b)
        f.case("index_copy", "transposed" + tag, fn, [views(), i(1, 3, 0), Operand(r(3, 3), transpose(0, 1))], **b)
        f.case("index_copy", "expanded" + tag, fn, [Operand(r(1, shape[1]), expand(*shape)), i(1, 3, 0), Operand(r(1, 3), expand(3, 3))], **b)
        f.case("index_copy", "empty" + tag, fn, [r(*shape), i(), r(0, 3) if dim == 0 else r(3, 0)], **b)
        f.case("index_fill", "ordinary" + tag, fill, [r(*shape), i(1, 3, 1)], **c)
        f.case("index_fill", "ordinary negative" + tag, fill, [r(*shape), i(-1, -4)], **c)
        f.case("index_fill", "transposed" + tag, fill, [views(), i(1, 3)], **c)
        f.case("index_fill", "expanded" + tag, fill, [Operand(r(1, shape[1]), expand(*shape)), Operand(i(2), expand(3))], **c)
        f.case("index_fill", "empty" + tag, fill, [r(*shape), i()], **c)
    f.case("index_copy", "extreme", lambda x, ix, s: x.index_copy(0, ix, s), [GRID, i(3, 0, 2, 1), GRID.flip(1)], dim=0)
    f.case("index_fill", "extreme", lambda x, ix: x.index_fill(0, ix, -0.0), [GRID, i(3, 0)], dim=0, value=-0.0)
    for dim, shape in ((0, (4, 3)), (1, (3, 4))):
        fn, b, tag = (lambda x, ix, v: x.index_fill(dim, ix, v)), {"dim": dim}, f" dim={dim}"
        f.case("index_fill_by", "ordinary" + tag, fn, [r(*shape), i(1, 3), r()], **b)
        f.case("index_fill_by", "ordinary repeated" + tag, fn, [r(*shape), i(1, 3, 1), r()], **b)
        f.case("index_fill_by", "ordinary negative" + tag, fn, [fixed(r(*shape)), i(-1, -4), fixed(r())], **b)
        f.case("index_fill_by", "transposed" + tag, fn, [Operand(r(*shape[::-1]), transpose(0, 1)), i(1, 3), r()], **b)
        f.case("index_fill_by", "expanded" + tag, fn, [Operand(r(1, shape[1]), expand(*shape)), i(2, 0), r()], **b)
        f.case("index_fill_by", "empty" + tag, fn, [r(*shape), i(), r()], **b)
    f.case("index_fill_by", "extreme", lambda x, ix, v: x.index_fill(0, ix, v), [GRID, i(3, 0), torch.tensor(-0.0)], dim=0)
    f.write(FOLDER + "scatter.safetensors.gz")


def gathering():
    f = File(__file__, SEED + 61)
    r = f.randn
    some = torch.tensor([[-12, 3], [11, 3]])
    for op, fn in (("take", lambda x, ix: x.take(ix)),):
        f.case(op, "ordinary", fn, [r(3, 4), some])
        f.case(op, "transposed", fn, [Operand(r(4, 3), transpose(0, 1)), Operand(some, transpose(0, 1))])
        f.case(op, "expanded", fn, [Operand(r(1, 4), expand(3, 4)), Operand(some[:, :1].contiguous(), expand(2, 3))])
        f.case(op, "empty", fn, [r(3, 4), i()])
        f.case(op, "scalar", fn, [r(3, 4), torch.tensor(-1)])
        f.case(op, "extreme", fn, [SPECIAL, i(*range(-19, 19, 3))])
    for dim in (0, 1, -1):
        fn, a = (lambda x, ix: torch.take_along_dim(x, ix, dim)), {"dim": dim}
        at = lambda n, m: (m, n) if dim else (n, m)  # the shape with size n along dim and size m along the other dimension
        for name, x, shape in (("ordinary", r(4, 4), at(5, 4)), ("broadcast index", r(4, 4), at(2, 1)), ("broadcast tensor", r(*at(4, 1)), at(3, 4)), ("transposed", Operand(r(4, 4), transpose(0, 1)), at(4, 4)),
                               ("expanded", Operand(r(1, 4), expand(4, 4)), at(2, 4)), ("empty", r(4, 4), at(0, 4)), ("extreme", GRID, at(4, 4))):
            f.case("take_along_dim", f"{name} dim={dim}", fn, [x, f.randint(-4, 4, shape)], **a)
    for pad in (1, -1):
        fn, a = (lambda w, ix: F.embedding(ix, w, padding_idx=pad)), {"padding": pad}
        ix = torch.tensor([[1, 4, 0], [4, 2, 1]])
        f.case("embedding_padded", f"ordinary {pad}", fn, [r(5, 3), ix], **a)
        f.case("embedding_padded", f"transposed {pad}", fn, [Operand(r(3, 5), transpose(0, 1)), Operand(ix, transpose(0, 1))], **a)
        f.case("embedding_padded", f"expanded {pad}", fn, [Operand(r(1, 3), expand(5, 3)), Operand(i(4), expand(3))], **a)
        f.case("embedding_padded", f"empty {pad}", fn, [r(5, 3), i()], **a)
        f.case("embedding_padded", f"extreme {pad}", fn, [SPECIAL[-15:].reshape(5, 3), ix], **a)
    for weights in (False, True):
        for minimum in (0, 5):
            fn = lambda x, *w: torch.bincount(x, *w, minlength=minimum)
            tag, a = f" minlength={minimum} weights={weights}", {"minlength": minimum}
            w = lambda *s: [fixed(r(*s))] if weights else []
            f.case("bincount", "ordinary" + tag, fn, [i(1, 3, 3, 0, 7, 3), *w(6)], **a)
            f.case("bincount", "transposed" + tag, fn, [Operand(i(1, 9, 3, 3, 9), narrow(0, 2, 2)), *w(2)], **a)
            f.case("bincount", "expanded" + tag, fn, [Operand(i(2), expand(4)), *([Operand(r(1), expand(4), grad=False)] if weights else [])], **a)
            f.case("bincount", "empty" + tag, fn, [i(), *w(0)], **a)
            f.case("bincount", "extreme" + tag, fn, [i(0, 0, 300, 1), *([fixed(torch.tensor([1e20, -1e20, math.inf, -0.0]))] if weights else [])], **a)
    f.write(FOLDER + "gather.safetensors.gz")


def masks():
    f = File(__file__, SEED + 62)
    r = f.randn
    for name, x in (("ordinary", r(3, 4).relu()), ("transposed", Operand(r(4, 3).relu(), transpose(0, 1))), ("expanded", Operand(r(3, 1).relu(), expand(3, 4))), ("empty", r(0, 3)), ("ordinary nothing", torch.zeros(2, 3)),
                    ("ordinary vector", r(9).relu()), ("ordinary three", r(2, 3, 2).relu()), ("scalar", torch.tensor(5.0)), ("scalar zero", torch.tensor(-0.0)), ("extreme", SPECIAL), ("extreme int64", INTS), ("bool", r(3, 4) > 0)):
        o = x if isinstance(x, Operand) else Operand(x)
        o.grad = False
        f.case("nonzero", name, lambda x: x.nonzero(), [o])
        for part in range(max(1, len(o.tensor(torch.float32).shape))):
            f.case("nonzero_tuple", f"{name} part={part}", lambda x: x.nonzero(as_tuple=True)[part], [o], part=part)
    m = r(3, 4) > 0
    for name, x, mask, src in (("ordinary", r(3, 4), m, r(12)), ("ordinary larger source", r(3, 4), m, r(4, 4)), ("transposed", Operand(r(4, 3), transpose(0, 1)), Operand(m.t().contiguous(), transpose(0, 1)), Operand(r(4, 3), transpose(0, 1))),
                               ("expanded", Operand(r(1, 4), expand(3, 4)), Operand(m[:1].contiguous(), expand(3, 4)), Operand(r(3, 1), expand(3, 4))), ("broadcast mask", r(3, 4), m[0], r(12)), ("broadcast tensor", r(4), m, r(12)),
                               ("broadcast both", r(3, 1), m[1], r(12)), ("empty", r(0, 3), torch.zeros(0, 3, dtype=torch.bool), r(2)), ("empty source", r(2, 3), torch.zeros(2, 3, dtype=torch.bool), r(0)), ("scalar", r(), torch.tensor(True), r(1)),
                               ("extreme", GRID, SPECIAL[:16].reshape(4, 4) > 0, GRID.flip(0)), ("extreme int64", INTS, INTS > 0, INTS.flip(0))):
        f.case("masked_select", name, lambda x, m: x.masked_select(m), [x, mask])
        f.case("masked_scatter", name, lambda x, m, s: x.masked_scatter(m, s), [x, mask, src])
    fill, bits = (lambda x, m, v: x.masked_fill(m, v)), (lambda *s: f.randint(0, 2, s).bool())
    f.case("masked_fill_by", "ordinary", fill, [r(3, 4), bits(3, 4), r()])
    f.case("masked_fill_by", "ordinary row", fill, [r(3, 4), bits(4), r()])
    f.case("masked_fill_by", "broadcast", fill, [r(4), bits(3, 1), r()])
    f.case("masked_fill_by", "transposed", fill, [Operand(r(4, 3), transpose(0, 1)), Operand(bits(4, 3), transpose(0, 1)), r()])
    f.case("masked_fill_by", "expanded", fill, [Operand(r(1, 4), expand(3, 4)), bits(3, 4), r()])
    f.case("masked_fill_by", "empty", fill, [r(0, 4), bits(0, 4), r()])
    f.case("masked_fill_by", "scalar", fill, [r(), bits(), r()])
    for k, v in enumerate((-0.0, math.inf, math.nan)):
        f.case("masked_fill_by", f"extreme {k}", fill, [GRID, bits(4, 4), torch.tensor(v)])
    f.write(FOLDER + "mask.safetensors.gz")


def brackets(spec, tensors):
    """Parses spec, an index in brackets. Commas separate the parts, t0 means the first tensor, and [1;2] means the list [1, 2]."""
    def part(p):
        if p in ("...", "None", "True", "False"):
            return {"...": Ellipsis, "None": None, "True": True, "False": False}[p]
        if p[0] == "t":
            return tensors[int(p[1:])]
        if p[0] == "[":
            return [int(v) for v in p[1:-1].split(";") if v]
        if ":" in p:
            return slice(*(int(v) if v else None for v in p.split(":")))
        return int(p)
    return tuple(part(p) for p in spec.split(",") if p)


def put(x, value, accumulate, index):
    """x with value written or added at index. Unlike index_put it accepts an index without tensors."""
    places = torch.arange(x.numel()).reshape(x.shape)[index]
    return x.flatten().index_put((places,), value.expand(places.shape) if value.dim() <= places.dim() else value.reshape(places.shape), accumulate).reshape(x.shape)


def indexing():
    f = File(__file__, SEED + 63)
    r = f.randn
    mask2, mask3, mask4 = r(3, 4) > 0, torch.tensor([True, False, True]), torch.tensor([False, True, True, False])
    none = torch.zeros(2, dtype=torch.bool)
    two = torch.tensor([[0, 1, 1], [1, -1, -2]])
    cases = [("1", []), ("-1,:,2", []), (":,1:3", []), ("...,::2", []), ("...,0", []), ("None,0,...,None", []), ("1,1,1", []), ("", []), ("...", []), (":,0:0", []), (":,5:", []), (":,-2:,None,-3:-1", []),
             ("t0", [i(1, 0, 1)]), (":,t0", [two]), (":,:,t0", [i(3, -4, 3)]), ("t0,t1", [i(0, 1, 1), i(2, -1, 2)]), ("t0,:,t1", [i(0, 1), i(1, 2)]), (":,t0,t1", [i(0, 2), i(1, 1)]), ("0,:,t0", [i(0, 3)]),
             ("t0,0", [i(0, 1)]), ("t0,t1,t2", [two, i(0, 1, 2), torch.tensor([[3], [0]])]), ("t0,None,t1", [i(0, 1), i(1, 2)]), ("[0;1],:,[2;2]", []), ("t0,1:,t1", [i(1), i(3, 0, 3)]), (":,[0;0;2]", []), ("...,t0,None", [i(0, 0)]),
             ("t0", [r(2, 3) > 0]), (":,t0", [mask2]), ("t0", [r(2, 3, 4) > 0]), (":,t0", [mask3]), ("t0,t1", [torch.tensor([True, True]), i(0, 2)]), (":,t0,t1", [mask3, mask4]), ("t0,:,t1", [torch.tensor([False, True]), mask4]),
             ("...,t0", [mask4]), ("t0", [none]), ("True", []), ("False", []), ("t0", [torch.tensor(True)]), ("True,t0", [i(0, 1)]), (":,t0,t1", [torch.tensor(1), i(0, 3)]), ("t0,:,t1", [torch.tensor(1), i(0, 3)]), ("t0,t1", [torch.tensor(1), torch.tensor(-1)]),
             ("t0", [i()]), (":,t0,0", [i()]), ("t0,...", [torch.zeros(0, 2, dtype=torch.int64)])]
    for n, (spec, tensors) in enumerate(cases):
        a = {"spec": spec}
        fn = lambda x, *ts: x[brackets(spec, ts)]
        x = (lambda: r(2, 3, 4), lambda: Operand(r(4, 3, 2), transpose(0, 2)), lambda: Operand(r(2, 1, 4), expand(2, 3, 4)), lambda: Operand(r(2, 3, 7), narrow(2, 2, 4)))
        for k, kind in enumerate(("ordinary", "transposed", "expanded", "narrowed")):
            if k == 0 or n % 3 == k - 1:
                f.case("index", f"{kind} {n} [{spec}]", fn, [x[k](), *tensors], **a)
        shape = torch.zeros(2, 3, 4)[brackets(spec, tensors)].shape
        for accumulate in (False, True):
            repeated = spec in (":,[0;0;2]", "t0,:,t1") or any(t.dtype == torch.int64 and t.dim() for t in tensors) or ";" in spec
            if repeated and not accumulate and spec not in ("0,:,t0", "t0,0", ":,t0,t1", "t0,:,t1"):
                continue  # of several values for one place, PyTorch does not say which one stays
            b = {**a, "accumulate": accumulate}
            pn = lambda x, v, *ts: put(x, v, accumulate, brackets(spec, ts))
            k = (n + accumulate) % 4
            value = (r(*shape), r(*shape[1:]), r(*(1 for _ in shape)), r())[k]
            f.case("index_put", f"{('ordinary', 'transposed', 'expanded', 'narrowed')[n % 4]} {n} [{spec}] {accumulate}", pn, [x[n % 4](), value, *tensors], **b)
            if k != 0 and n % 2:
                f.case("index_put", f"broadcast {n} [{spec}] {accumulate}", pn, [r(2, 3, 4), value, *tensors], **b)
    for n, (spec, tensors) in enumerate((("::2,t0", [i(3, 0)]), ("t0", [GRID > 0]), ("1", []), ("t0", [i(2, 0)]))):
        f.case("index", f"extreme {n} [{spec}]", lambda x, *ts: x[brackets(spec, ts)], [GRID, *tensors], spec=spec)
        for accumulate in (False, True):
            f.case("index_put", f"extreme {n} [{spec}] {accumulate}", lambda x, v, *ts: put(x, v, accumulate, brackets(spec, ts)), [Operand(GRID, grad=not accumulate), Operand(torch.tensor(-0.0), grad=False), *tensors], spec=spec, accumulate=accumulate)
        f.case("index", f"extreme int64 {n} [{spec}]", lambda x, *ts: x[brackets(spec, ts)], [torch.cat([INTS, INTS[:1]]), *tensors], spec=spec)
    for n, (shape, spec, tensors) in enumerate((((0, 3), "t0", [i()]), ((0, 3), ":,t0", [i(1, 2)]), ((2, 0), "t0", [i(1, 0, 1)]), ((3, 0), "1", []), ((0, 3), "t0", [torch.zeros(0, dtype=torch.bool)]), ((0, 3), "t0", [torch.zeros(0, 3, dtype=torch.bool)]), ((2, 0), "t0,t1", [i(), i()]))):
        f.case("index", f"empty {n} {list(shape)} [{spec}]", lambda x, *ts: x[brackets(spec, ts)], [r(*shape), *tensors], spec=spec)
        to = torch.zeros(shape)[brackets(spec, tensors)].shape
        f.case("index_put", f"empty {n} {list(shape)} [{spec}]", lambda x, v, *ts: put(x, v, False, brackets(spec, ts)), [r(*shape), r(*to), *tensors], spec=spec, accumulate=False)
    for k, x in enumerate((r(), r(7))):
        spec = ("", "...", "None", "True")
        for p in spec:
            f.case("index", f"ordinary rank {x.dim()} [{p}]", lambda x: x[brackets(p, [])], [x], spec=p)
    f.case("index", "ordinary scalar by scalar", lambda x, m: x[m], [r(), torch.tensor(False)], spec="t0")
    f.write(FOLDER + "index.safetensors.gz")


if __name__ == "__main__":
    scattering()
    gathering()
    masks()
    indexing()

"""Golden files for scans, sorting and searching. Writes tensor/optest/testdata."""

import math

import torch

from golden import File, Operand
from ops import DENORMAL, FOLDER, MAX, SEED, SPECIAL, TINY, expand, narrow, transpose


def spread(f, op, fn, shape, extreme=(), empty=None, across=False, **args):
    """One op with one set of arguments on an ordinary, a transposed, an expanded, a narrowed and an empty operand, and on extreme ones.

    The operand is expanded in the first dimension or, if across, in the last: PyTorch's kthvalue and median read beyond an operand
    that is expanded in the dimension that they select from.
    """
    r = f.randn
    tag = f" {list(shape)}" + "".join(f" {k}={v}" for k, v in args.items())
    f.case(op, "ordinary" + tag, fn, [r(*shape)], **args)
    if len(shape) > 1:
        f.case(op, "transposed" + tag, fn, [Operand(r(shape[1], shape[0], *shape[2:]), transpose(0, 1))], **args)
        f.case(op, "expanded" + tag, fn, [Operand(r(*shape[:-1], 1) if across else r(1, *shape[1:]), expand(*shape))], **args)
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
                            # No gradient: beside such numbers the logarithms of the seeds vanish,
                            # and PyTorch's gradient is 0.
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
    near = torch.where(f.randn(1, 300) < 0, -1.0, 1.0) * (1 + 0.1 * f.randn(1, 300))  # so that products neither vanish nor overflow
    for op in ("cumsum", "cumprod", "logcumsumexp"):
        f.case(op, "ordinary long", lambda x: getattr(torch, op)(x, 1), [near if op == "cumprod" else long], dim=1)
    for part in (0, 1):
        f.case("cummax", f"ordinary long part={part}", lambda x: torch.cummax(x, 1)[part], [long], dim=1, part=part)
    f.write(FOLDER + "scan.safetensors.gz")


TIES = torch.tensor([[1.0, 3.0, 3.0, 2.0, 3.0, INF, INF], [0.0, -0.0, 0.0, -0.0, -1.0, -1.0, -INF], [1.0, math.nan, 3.0, math.nan, 2.0, -INF, INF]])
# No two elements are equal, because PyTorch does not define which of equal elements it chooses.
APART = torch.tensor([[1.0, 3.0, -3.0, 2.0, TINY, INF, -INF], [0.0, -TINY, DENORMAL, MAX, -1.0, -MAX, 1e-20], [1.0, math.nan, 3.0, 1e20, 2.0, -INF, INF]])
NUMBERS = torch.tensor([[5, -(2**63), 2**63 - 1, 0, 2**53 + 1, 2**53, -1]])


def sorting():
    f = File(__file__, SEED + 41)
    two = lambda op, fn, shape, extreme, empty, **args: [spread(f, op, lambda x: fn(x)[part], shape, extreme, empty, part=part, across=args["dim"] == 0 and op != "sort", **args) for part in (0, 1)]
    for shape, dim in (((3, 7), 1), ((3, 7), 0), ((2, 3, 4), -2), ((), 0)):
        e = dim == 1
        empty = {1: (3, 0), 0: (0, 3) if shape else None}.get(dim)
        for descending in (False, True):
            two("sort", lambda x: torch.sort(x, dim=dim, descending=descending, stable=True), shape, [SPECIAL.reshape(1, -1), SPECIAL.flip(0).reshape(1, -1), TIES, NUMBERS] if e else [], empty, dim=dim, descending=descending)
            if e:
                f.case("sort", f"bool {descending}", lambda x: torch.sort(x, dim=1, descending=descending, stable=True)[1], [f.randint(0, 2, (2, 9)).bool()], dim=1, descending=descending, part=1)
        spread(f, "argsort", lambda x: torch.argsort(x, dim=dim, stable=True), shape, [TIES, NUMBERS] if e else [], empty, dim=dim, descending=False)
        for k, largest in (((0, True), (3, True), (7, False)) if e else ((1, False),)):
            two("topk", lambda x: torch.topk(x, k, dim, largest, True), shape, [APART, NUMBERS] if e else [], (0, 7) if e else None, k=k, dim=dim, largest=largest)
        two("kthvalue", lambda x: torch.kthvalue(x, 3 if e else 1, dim), shape, [APART, NUMBERS] if e else [], (0, 7) if e else None, dim=dim, k=3 if e else 1)
        two("kthvalue", lambda x: torch.kthvalue(x, 1, dim, keepdim=True), shape, [], None, dim=dim, k=1, keepdim=True)
        for op in ("median", "nanmedian", "mode"):
            rows = [TIES[:2] if op == "mode" else APART, APART[:2, :6], NUMBERS]
            two(op, lambda x: getattr(torch, op)(x, dim), shape, rows if e else [], (0, 7) if e else None, dim=dim)
            two(op, lambda x: getattr(torch, op)(x, dim, keepdim=True), shape, [], None, dim=dim, keepdim=True)
    allnan = torch.tensor([[math.nan, math.nan, math.nan], [math.nan, 2.0, 1.0]])
    for op in ("median", "nanmedian"):
        spread(f, op, getattr(torch, op), (3, 4), [APART, TIES, NUMBERS, allnan], (0, 3))
        spread(f, op, getattr(torch, op), (5,))
        for part in (0, 1):
            f.case(op, f"extreme nan part={part}", lambda x: getattr(torch, op)(x, 1)[part], [allnan], dim=1, part=part)
    inf = torch.tensor([[1.0, -1e20, INF, 2.0], [-INF, 1.0, 2.0, INF], [math.nan, 1.0, 2.0, 3.0], [TINY, -TINY, DENORMAL, 0.0], [MAX, -MAX, 1.0, 1e20], [3.0, 2.5, 2.0, 1.0]])
    equal = Operand(torch.tensor([[1.0, INF, INF, 2.0], [2.0, 2.0, 2.0, 1.0], [math.nan, 1.0, math.nan, 1.0], [math.nan] * 4, [-INF, -INF, INF, -INF]]), grad=False)
    for op in ("quantile", "nanquantile"):
        for how in ("linear", "lower", "higher", "midpoint", "nearest"):
            for q in ([0.5, 0.0, 1.0, 0.3, 0.123] if how == "linear" else [0.5, 0.45]):
                spread(f, op, lambda x: getattr(torch, op)(x, q, 1, interpolation=how), (3, 6), [inf, equal] if q in (0.5, 1.0) else [], None, q=[q], how=how, dim=1)
        spread(f, op, lambda x: getattr(torch, op)(x, 0.25), (7,), [], None, q=[0.25], how="linear")
        spread(f, op, lambda x: getattr(torch, op)(x, 0.7, 0, keepdim=True), (3, 5), [], None, q=[0.7], how="linear", dim=0, keepdim=True)
        f.case(op, "ordinary scalar", lambda x: getattr(torch, op)(x, 0.25), [f.randn()], q=[0.25], how="linear")
    spread(f, "quantiles", lambda x: torch.quantile(x, torch.tensor([0.1, 0.5, 0.75], dtype=x.dtype), 1), (3, 6), [inf], None, q=[0.1, 0.5, 0.75], how="linear", dim=1)
    spread(f, "quantiles", lambda x: torch.quantile(x, torch.tensor([0.2, 0.9], dtype=x.dtype), 0, keepdim=True), (5, 2), [], None, q=[0.2, 0.9], how="linear", dim=0, keepdim=True)
    f.case("quantiles", "empty", lambda x: torch.quantile(x, torch.tensor([], dtype=x.dtype), 1), [f.randn(2, 3)], q=[], how="linear", dim=1)
    some = inf.clone()
    some[0, 1], some[5, :3] = math.nan, math.nan
    spread(f, "nanquantiles", lambda x: torch.nanquantile(x, torch.tensor([0.1, 0.5, 0.75], dtype=x.dtype), 1), (3, 6), [some], None, q=[0.1, 0.5, 0.75], how="linear", dim=1)
    spread(f, "nanquantiles", lambda x: torch.nanquantile(x, torch.tensor([0.2, 0.9], dtype=x.dtype), 0, keepdim=True), (5, 2), [], None, q=[0.2, 0.9], how="linear", dim=0, keepdim=True)
    f.case("nanquantiles", "empty", lambda x: torch.nanquantile(x, torch.tensor([], dtype=x.dtype), 1), [f.randn(2, 3)], q=[], how="linear", dim=1)
    f.write(FOLDER + "sort.safetensors.gz")


def searching():
    f = File(__file__, SEED + 42)
    whole = lambda *shape: f.randint(-3, 4, shape).float()  # many elements are equal
    plain = lambda *xs: [Operand(x, grad=False) if isinstance(x, torch.Tensor) else x for x in xs]
    for op, fn in (("unique", torch.unique), ("unique_consecutive", torch.unique_consecutive)):
        for part in (0, 1, 2):
            call = lambda x: fn(x, return_inverse=True, return_counts=True)[part]
            for name, x in (("ordinary", whole(3, 5)), ("transposed", Operand(whole(4, 3), transpose(0, 1), grad=False)), ("expanded", Operand(whole(1, 4), expand(3, 4), grad=False)),
                            ("empty", f.randn(0, 3)), ("scalar", f.randn()), ("extreme", torch.cat([SPECIAL[1:], SPECIAL[2:-1]])), ("extreme ties", TIES), ("extreme int64", NUMBERS.repeat(2, 1)), ("bool", f.randint(0, 2, (5,)).bool())):
                f.case(op, f"{name} part={part}", call, plain(x), part=part)
            for dim in (0, 1):
                call = lambda x: fn(x, return_inverse=True, return_counts=True, dim=dim)[part]
                few = lambda *shape: f.randint(0, 2, shape).float()
                for name, x in (("ordinary", few(6, 2) if dim == 0 else few(2, 6)), ("deep", few(4, 5, 2)), ("transposed", Operand(few(4, 3), transpose(0, 1), grad=False)), ("expanded", Operand(few(1, 4), expand(3, 4), grad=False)),
                                ("empty", f.randn(0, 3) if dim == 0 else f.randn(3, 0)), ("extreme", torch.tensor([[INF, -0.0, MAX], [INF, 0.0, MAX], [-INF, TINY, -MAX]]))):
                    f.case(op, f"{name} dim={dim} part={part}", call, plain(x), dim=dim, part=part)
    values = torch.tensor([[math.nan, INF, -INF, 2.0, -2.0, 0.0, -0.0, TINY, MAX]])
    ends = torch.tensor([-INF, -1.0, 0.0, TINY, 1.0, INF])
    for right in (False, True):
        find = lambda s, v: torch.searchsorted(s, v, right=right)
        rows, line = whole(3, 6).sort(1)[0], whole(7).sort(0)[0]
        for name, xs in (("ordinary", (line, whole(2, 5))), ("rows", (rows, whole(3, 4))), ("transposed", (rows, Operand(whole(4, 3), transpose(0, 1), grad=False))),
                         ("expanded", (Operand(rows[:1], expand(3, 6), grad=False), Operand(whole(3, 1), expand(3, 4), grad=False))), ("narrowed", (Operand(line, narrow(0, 1, 5), grad=False), whole(4))),
                         ("empty", (line, f.randn(0, 3))), ("empty line", (f.randn(0), whole(3))), ("scalar", (line, whole())), ("extreme", (ends, values)), ("extreme int64", (NUMBERS.sort()[0][0], NUMBERS + 0))):
            f.case("searchsorted", f"{name} right={right}", find, plain(*xs), right=right)
        for name, xs in (("ordinary", (whole(2, 5), line)), ("transposed", (Operand(whole(4, 3), transpose(0, 1), grad=False), line)), ("expanded", (Operand(whole(3, 1), expand(3, 4), grad=False), line)),
                         ("empty", (f.randn(0, 3), line)), ("scalar", (whole(), line)), ("extreme", (values, ends))):
            f.case("bucketize", f"{name} right={right}", lambda x, b: torch.bucketize(x, b, right=right), plain(*xs), right=right)
        for name, xs in (("ordinary", (whole(3, 5), whole(2, 2))), ("transposed", (Operand(whole(4, 3), transpose(0, 1), grad=False), whole(3))), ("expanded", (Operand(whole(3, 1), expand(3, 4), grad=False), whole(2))),
                         ("empty", (f.randn(0, 3), whole(2))), ("empty set", (whole(3), f.randn(0))), ("extreme", (values, SPECIAL[2:])), ("extreme int64", (NUMBERS, NUMBERS[0, 2:5]))):
            f.case("isin", f"{name} invert={right}", lambda x, t: torch.isin(x, t, invert=right), plain(*xs), invert=right)
    for n, dim in ((1, 1), (2, 0), (1, -1), (0, 0), (9, 1)):
        spread(f, "diff", lambda x: torch.diff(x, n, dim), (3, 5), [SPECIAL[:18].reshape(3, 6), INTS] if dim == 1 and n == 1 else [], (0, 3), n=n, dim=dim)
    f.case("diff", "bool", lambda x: torch.diff(x, 2, 0), [f.randint(0, 2, (7,)).bool()], n=2, dim=0)
    for bins, lo, hi in ((4, -1.0, 2.0), (3, 0.0, 0.0), (5, -3.0, 3.0), (1, 0.0, 1.0)):
        for name, x in (("ordinary", f.randn(3, 9)), ("transposed", Operand(f.randn(4, 3), transpose(0, 1), grad=False)), ("expanded", Operand(f.randn(1, 4), expand(3, 4), grad=False)), ("empty", f.randn(0, 3)),
                        ("extreme", SPECIAL if lo < hi else torch.full((4,), 2.5)), ("extreme edges", torch.tensor([-1.0, 2.0, 0.5, 1.25, 3.0, -3.0, 0.0, 1.0]))):
            f.case("histc", f"{name} bins={bins} min={lo}", lambda x: torch.histc(x, bins, lo, hi), plain(x), bins=bins, min=lo, max=hi)
    for shape, counts, dim in (((4, 3), [2, 0, 3, 1], 0), ((2, 3), [1, 2, 0], 1), ((3, 2), [2], 0), ((3,), [0, 0, 0], 0), ((0, 3), [], 0)):
        fn = lambda x, r: torch.repeat_interleave(x, r, dim)
        r = torch.tensor(counts, dtype=torch.int64)
        tag = f" {counts} dim={dim}"
        f.case("repeat_interleave_by", "ordinary" + tag, fn, [f.randn(*shape), r], dim=dim)
        if len(shape) > 1:
            f.case("repeat_interleave_by", "transposed" + tag, fn, [Operand(f.randn(shape[1], shape[0]), transpose(0, 1)), r], dim=dim)
        if shape[0] > 1:
            f.case("repeat_interleave_by", "expanded" + tag, fn, [Operand(f.randn(1, *shape[1:]), expand(*shape)), r], dim=dim)
    f.case("repeat_interleave_by", "empty", lambda x, r: torch.repeat_interleave(x, r, 0), [f.randn(2, 0), torch.tensor([1, 2])], dim=0)
    f.case("repeat_interleave_by", "extreme", lambda x, r: torch.repeat_interleave(x, r, 0), [SPECIAL, f.randint(0, 3, (len(SPECIAL),))], dim=0)
    for right in (False, True):
        find = lambda s, v, o: torch.searchsorted(s, v, right=right, sorter=o)
        rows, line = whole(3, 6), whole(7)
        for name, s, v in (("ordinary", line, whole(2, 5)), ("rows", rows, whole(3, 4)), ("transposed", Operand(rows.T.contiguous(), transpose(0, 1), grad=False), Operand(whole(4, 3), transpose(0, 1), grad=False)),
                           ("expanded", Operand(rows[:1], expand(3, 6), grad=False), Operand(whole(3, 1), expand(3, 4), grad=False)), ("empty", line, f.randn(0, 3)), ("empty line", f.randn(0), whole(3)),
                           ("extreme", ends.flip(0), values), ("extreme int64", NUMBERS[0], NUMBERS + 0)):
            order = torch.argsort(s.tensor(torch.float32) if isinstance(s, Operand) else s, dim=-1, stable=True)
            f.case("searchsorted_sorter", f"{name} right={right}", find, plain(s, v, order), right=right)
    f.write(FOLDER + "search.safetensors.gz")


if __name__ == "__main__":
    scans()
    sorting()
    searching()

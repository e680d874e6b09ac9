"""Golden files for the ops: results and gradients in float32 and float64. Writes tensor/optest/testdata."""

import math

import torch
import torch.nn.functional as F

from golden import File, Operand, single, tiled

SEED = 20260
FOLDER = "tensor/optest/testdata/"

TINY = 2.0**-149  # smallest float32 denormal
DENORMAL = 2.0**-130
MIN_NORMAL = 2.0**-126
MAX = (2.0 - 2.0**-23) * 2.0**127
SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, TINY, -TINY, DENORMAL, -DENORMAL, MIN_NORMAL, 1e-20, -1e-20, 1e20, -1e20,
                        MAX, -MAX, math.inf, -math.inf, math.nan])


def transpose(a, b):
    return ("transpose", (a, b))


def narrow(dim, start, length):
    return ("narrow", (dim, start, length))


def expand(*size):
    return ("expand", size)


def unary(f, op, fn, low=-3.0, high=3.0, special=SPECIAL, **args):
    """The cases of a function of one tensor, sampled from [low, high] and at the special values."""
    def sample(*shape):
        return torch.rand(shape, generator=f.generator) * (high - low) + low
    tag = "".join(f" {k}={v}" for k, v in args.items())
    f.case(op, "ordinary" + tag, fn, [sample(3, 5)], **args)
    f.case(op, "transposed" + tag, fn, [Operand(sample(4, 3), transpose(0, 1))], **args)
    f.case(op, "narrowed" + tag, fn, [Operand(sample(5, 6), narrow(1, 1, 3))], **args)
    f.case(op, "expanded" + tag, fn, [Operand(sample(4, 1), expand(2, 4, 3))], **args)
    f.case(op, "empty" + tag, fn, [sample(0, 3)], **args)
    f.case(op, "scalar" + tag, fn, [sample()], **args)
    f.case(op, "sweep" + tag, fn, [torch.linspace(low, high, 67)], **args)
    f.case(op, "extreme" + tag, fn, [special], **args)


def binary(f, op, fn, grad=True, also=()):
    """The cases of a function of two tensors that broadcast."""
    def pair(a, b):
        return [Operand(o, grad=grad) if isinstance(o, torch.Tensor) else o for o in (a, b)]
    n = len(SPECIAL)
    f.case(op, "ordinary", fn, pair(f.randn(3, 5), f.randn(3, 5)))
    f.case(op, "transposed", fn, pair(Operand(f.randn(4, 3), transpose(0, 1), grad=grad), f.randn(3, 4)))
    f.case(op, "narrowed", fn, pair(Operand(f.randn(5, 6), narrow(1, 1, 3), grad=grad),
                                    Operand(f.randn(7, 3), narrow(0, 2, 5), grad=grad)))
    f.case(op, "broadcast", fn, pair(f.randn(3, 1), f.randn(2, 1, 4)))
    f.case(op, "broadcast scalar", fn, pair(f.randn(), f.randn(2, 3)))
    f.case(op, "expanded", fn, pair(Operand(f.randn(1, 4), expand(3, 4), grad=grad), f.randn(3, 4)))
    f.case(op, "empty", fn, pair(f.randn(0, 1), f.randn(1, 3)))
    f.case(op, "scalar", fn, pair(f.randn(), f.randn()))
    f.case(op, "ties", fn, pair(torch.tensor([1.0, 2.0, 3.0, -0.0]), torch.tensor([1.0, 2.5, 3.0, 0.0])), also)
    f.case(op, "extreme", fn, pair(SPECIAL.reshape(n, 1), SPECIAL.reshape(1, n)), also)
    a, b = f.randint(-9, 9, (3, 4)), f.randint(1, 9, (4,))
    f.case(op, "int64", fn, [a, b])


def pointwise():
    f = File(__file__, SEED)
    for op in ("neg", "exp", "sqrt", "square", "abs", "tanh", "sigmoid", "relu"):
        fn = getattr(torch, op)
        low, high = {"exp": (-20, 20), "sqrt": (0.01, 9), "tanh": (-9, 9), "sigmoid": (-20, 20)}.get(op, (-3, 3))
        unary(f, op, fn, low, high)
    unary(f, "log", torch.log, 1e-3, 50)
    for approximate in ("none", "tanh"):
        unary(f, "gelu", lambda x, a=approximate: F.gelu(x, approximate=a), -6, 6, approximate=approximate)
    for exponent in (2.0, 3.0, 0.5, -1.0, 0.0, 1.5, -0.5):
        fn = lambda x, e=exponent: torch.pow(x, e)
        unary(f, "pow", fn, 0.05, 4, exponent=exponent)
        f.case("pow", f"negative base exponent={exponent}", fn, [torch.linspace(-2, 2, 9)], exponent=exponent)
    for low, high in ((-1.0, 1.0), (None, 0.5), (-0.5, None), (1.0, -1.0)):
        fn = lambda x, lo=low, hi=high: torch.clamp(x, lo, hi)
        special = torch.cat([SPECIAL, torch.tensor([v for v in (low, high) if v is not None])])
        unary(f, "clamp", fn, special=special, min=low, max=high)
    f.write(FOLDER + "unary.safetensors.gz")

    f = File(__file__, SEED + 1)
    for op in ("add", "sub", "mul", "div", "minimum", "maximum"):
        fn = getattr(torch, op)
        binary(f, op, fn, also=(single(fn), tiled(fn)) if op in ("minimum", "maximum") else ())
    for op in ("eq", "ne", "lt", "le", "gt", "ge"):
        binary(f, op, getattr(torch, op), grad=False)
    where = torch.where
    cond = lambda *shape: f.randint(0, 2, shape).bool()
    f.case("where", "ordinary", where, [cond(3, 5), f.randn(3, 5), f.randn(3, 5)])
    f.case("where", "transposed", where, [Operand(cond(4, 3), transpose(0, 1)), f.randn(3, 4), Operand(f.randn(4, 3), transpose(0, 1))])
    f.case("where", "broadcast", where, [cond(4), f.randn(3, 1), f.randn(2, 1, 1)])
    f.case("where", "broadcast scalar", where, [cond(2, 3), f.randn(), f.randn(2, 3)])
    f.case("where", "empty", where, [cond(0, 1), f.randn(1, 3), f.randn()])
    n = len(SPECIAL)
    f.case("where", "extreme", where, [torch.arange(n) % 2 == 0, SPECIAL, SPECIAL.flip(0)])
    f.write(FOLDER + "binary.safetensors.gz")


def reductions():
    f = File(__file__, SEED + 2)
    def cases(op, fn, dims, grad=True):
        for dim in dims:
            for keep in (False, True):
                if dim is None and keep:
                    continue
                def run(x, dim=dim, keep=keep):
                    return fn(x) if dim is None else fn(x, dim=dim, keepdim=keep)
                args = {"dim": dim, "keepdim": keep}
                tag = f" dim={dim} keepdim={keep}"
                f.case(op, "ordinary" + tag, run, [Operand(f.randn(3, 4, 5), grad=grad)], **args)
                if not keep:
                    f.case(op, "transposed" + tag, run, [Operand(f.randn(5, 4, 3), transpose(0, 2), grad=grad)], **args)
                    f.case(op, "expanded" + tag, run, [Operand(f.randn(3, 1, 5), expand(3, 4, 5), grad=grad)], **args)
        whole = {"dim": None, "keepdim": False}
        f.case(op, "scalar", fn, [Operand(f.randn(), grad=grad)], **whole)
        f.case(op, "long", fn, [Operand(f.randn(3001), grad=grad)], **whole)
        rows = torch.tensor([[1.0, math.inf, 2.0], [-math.inf, math.inf, 0.0], [math.nan, 1.0, math.inf], [-0.0, 0.0, -0.0],
                             [TINY, DENORMAL, -TINY], [MAX, MAX, -MAX], [-math.inf, -math.inf, -math.inf], [2.0, 2.0, 1.0]])
        last = lambda x: fn(x, dim=-1, keepdim=False)
        also = [lambda x: last(x.roll(1, -1)), lambda x: last(x.roll(2, -1))] if op in ("amax", "amin") else ()
        f.case(op, "extreme", last, [Operand(rows, grad=grad)], also, dim=-1 if op == "argmax" or op == "argmin" else [-1], keepdim=False)
    lists = (None, [0], [1], [-1], [0, 2], [0, 1, 2])
    for op in ("sum", "mean", "amax", "amin"):
        cases(op, getattr(torch, op), lists)
    for op in ("argmax", "argmin"):
        cases(op, getattr(torch, op), (None, 0, 1, -1), grad=False)
    for op in ("sum", "mean"):
        fn = getattr(torch, op)
        f.case(op, "empty whole", fn, [f.randn(0, 3)], dim=None, keepdim=False)
        f.case(op, "empty dim=[0]", lambda x: fn(x, dim=[0]), [f.randn(0, 3)], dim=[0], keepdim=False)
    for op in ("sum", "mean", "amax", "amin"):
        fn = getattr(torch, op)
        f.case(op, "empty dim=[1]", lambda x: fn(x, dim=[1]), [f.randn(0, 3)], dim=[1], keepdim=False)
    f.case("argmax", "empty dim=1", lambda x: torch.argmax(x, dim=1), [Operand(f.randn(0, 3), grad=False)], dim=1, keepdim=False)
    f.case("argmin", "empty dim=1", lambda x: torch.argmin(x, dim=1), [Operand(f.randn(0, 3), grad=False)], dim=1, keepdim=False)
    ints = f.randint(-9, 9, (3, 4))
    for op in ("sum", "amax", "amin"):
        fn = getattr(torch, op)
        f.case(op, "int64 dim=[1]", lambda x: fn(x, dim=[1]), [ints], dim=[1], keepdim=False)
    f.case("sum", "bool", torch.sum, [ints > 0], dim=None, keepdim=False)
    f.write(FOLDER + "reduce.safetensors.gz")


def products():
    f = File(__file__, SEED + 3)
    mm = torch.matmul
    r = f.randn
    f.case("matmul", "2d", mm, [r(3, 4), r(4, 5)])
    f.case("matmul", "2d long inner", mm, [r(5, 131), r(131, 3)])
    f.case("matmul", "2d odd tiles", mm, [r(17, 9), r(9, 33)])
    f.case("matmul", "2d transposed left", mm, [Operand(r(4, 3), transpose(0, 1)), r(4, 5)])
    f.case("matmul", "2d transposed right", mm, [r(3, 4), Operand(r(5, 4), transpose(0, 1))])
    f.case("matmul", "2d transposed both", mm, [Operand(r(4, 3), transpose(0, 1)), Operand(r(5, 4), transpose(0, 1))])
    f.case("matmul", "2d narrowed", mm, [Operand(r(5, 9), narrow(1, 2, 4)), Operand(r(7, 5), narrow(0, 1, 4))])
    f.case("matmul", "2d expanded", mm, [Operand(r(1, 4), expand(3, 4)), Operand(r(4, 1), expand(4, 5))])
    f.case("matmul", "1d by 1d", mm, [r(6), r(6)])
    f.case("matmul", "1d by 2d", mm, [r(4), r(4, 5)])
    f.case("matmul", "2d by 1d", mm, [r(3, 4), r(4)])
    f.case("matmul", "1d by 3d", mm, [r(4), r(2, 4, 5)])
    f.case("matmul", "3d by 1d", mm, [r(2, 3, 4), r(4)])
    f.case("matmul", "batched", mm, [r(2, 3, 4), r(2, 4, 5)])
    f.case("matmul", "batched by 2d", mm, [r(2, 3, 4), r(4, 5)])
    f.case("matmul", "2d by batched", mm, [r(3, 4), r(2, 4, 5)])
    f.case("matmul", "batch broadcast", mm, [r(2, 1, 3, 4), r(3, 4, 2)])
    f.case("matmul", "batch transposed", mm, [Operand(r(2, 4, 3), transpose(1, 2)), Operand(r(4, 2, 5), transpose(0, 1))])
    f.case("matmul", "empty inner", mm, [r(3, 0), r(0, 5)])
    f.case("matmul", "empty rows", mm, [r(0, 4), r(4, 5)])
    f.case("matmul", "empty batch", mm, [r(0, 3, 4), r(4, 5)])
    a = torch.tensor([[math.inf, 0.0, 1.0], [math.nan, 1.0, 1.0], [MAX, MAX, 1.0], [TINY, 1.0, 0.0]])
    b = torch.tensor([[1.0, 0.0], [2.0, 3.0], [-1.0, math.inf]])
    f.case("matmul", "extreme", mm, [a, b])

    lin = F.linear
    f.case("linear", "ordinary", lin, [r(3, 4), r(5, 4), r(5)])
    f.case("linear", "no bias", lin, [r(3, 4), r(5, 4)])
    f.case("linear", "1d input", lin, [r(4), r(5, 4), r(5)])
    f.case("linear", "3d input", lin, [r(2, 3, 4), r(5, 4), r(5)])
    f.case("linear", "transposed", lin, [Operand(r(4, 3), transpose(0, 1)), Operand(r(4, 5), transpose(0, 1)), r(5)])
    f.case("linear", "expanded bias", lin, [r(3, 4), r(5, 4), Operand(r(1), expand(5))])
    f.case("linear", "empty batch", lin, [r(0, 4), r(5, 4), r(5)])
    f.case("linear", "extreme", lin, [a, b.T.contiguous(), torch.tensor([math.inf, 1.0])])
    f.write(FOLDER + "matmul.safetensors.gz")


def losses():
    f = File(__file__, SEED + 4)
    r = f.randn
    rows = torch.tensor([[1.0, math.inf, 2.0], [-math.inf, 0.0, 1.0], [math.nan, 1.0, 2.0], [1e4, -1e4, 0.0], [3e38, 3e38, -3e38],
                         [-math.inf, -math.inf, -math.inf], [TINY, -TINY, 0.0], [80.0, 0.0, -80.0]])
    for op in ("softmax", "log_softmax"):
        for dim in (-1, 0, 1):
            fn = lambda x, d=dim: getattr(torch, op)(x, dim=d)
            f.case(op, f"ordinary dim={dim}", fn, [r(3, 4, 5, scale=3)], dim=dim)
            f.case(op, f"transposed dim={dim}", fn, [Operand(r(5, 4, 3), transpose(0, 2))], dim=dim)
            f.case(op, f"expanded dim={dim}", fn, [Operand(r(3, 1, 5), expand(3, 4, 5))], dim=dim)
        last = lambda x: getattr(torch, op)(x, dim=-1)
        f.case(op, "narrowed", last, [Operand(r(3, 9), narrow(1, 2, 5))], dim=-1)
        f.case(op, "long rows", last, [r(2, 1033, scale=4)], dim=-1)
        f.case(op, "empty", last, [r(0, 3)], dim=-1)
        f.case(op, "empty rows", last, [r(3, 0)], dim=-1)
        f.case(op, "scalar", last, [r()], dim=-1)
        f.case(op, "extreme", last, [rows], dim=-1)

    def cross(name, x, target, reduction="mean", ignore=-100, smoothing=0.0):
        def fn(logits, t):
            return F.cross_entropy(logits, t, reduction=reduction, ignore_index=ignore, label_smoothing=smoothing)
        f.case("cross_entropy", f"{name} reduction={reduction} ignore_index={ignore} label_smoothing={smoothing}", fn, [x, target],
               reduction=reduction, ignore_index=ignore, label_smoothing=smoothing)
    for reduction in ("mean", "sum", "none"):
        t = f.randint(0, 10, (6,))
        cross("ordinary", r(6, 10, scale=2), t, reduction)
        cross("ordinary", r(6, 10, scale=2), t, reduction, smoothing=0.1)
        holes = t.clone()
        holes[1] = holes[4] = -100
        cross("holes", r(6, 10), holes, reduction)
        cross("holes", r(6, 10), holes, reduction, smoothing=0.2)
        cross("own index", r(6, 10), t, reduction, ignore=int(t[2]))
        cross("transposed", Operand(r(10, 6), transpose(0, 1)), t, reduction)
        cross("expanded", Operand(r(1, 10), expand(6, 10)), t, reduction)
        cross("pixels", r(2, 4, 3, 2), f.randint(0, 4, (2, 3, 2)), reduction)
        cross("pixels", r(2, 4, 3, 2), f.randint(0, 4, (2, 3, 2)), reduction, smoothing=0.1)
        cross("one row", r(10), torch.tensor(3), reduction)
        cross("all ignored", r(3, 4), torch.full((3,), -100), reduction)
        cross("empty", r(0, 4), torch.zeros(0, dtype=torch.int64), reduction)
        cross("extreme", rows, torch.tensor([1, 1, 0, 0, 2, 0, 1, 2]), reduction)
        cross("wide logits", torch.tensor([[1e4, -1e4, 0.0], [80.0, 0.0, -80.0], [3e38, 0.0, 1.0]]), torch.tensor([1, 2, 0]), reduction)
    f.write(FOLDER + "loss.safetensors.gz")


def views():
    f = File(__file__, SEED + 5)
    r = f.randn
    def each(op, fn, of, **args):
        """Cases of one op and one set of arguments, for a contiguous, a transposed and an expanded operand of the same shape."""
        tag = f" {list(of)}" + "".join(f" {k}={v}" for k, v in args.items())
        f.case(op, "ordinary" + tag, fn, [r(*of)], **args)
        if len(of) > 1:
            f.case(op, "transposed" + tag, fn, [Operand(r(of[1], of[0], *of[2:]), transpose(0, 1))], **args)
            f.case(op, "expanded" + tag, fn, [Operand(r(1, *of[1:]), expand(*of))], **args)
    for shape, to in (((3, 4), [12]), ((3, 4), [2, -1, 2]), ((2, 3, 4), [6, 4]), ((2, 3, 4), [4, 6]), ((1,), []), ((0, 3), [3, 0])):
        each("reshape", lambda x: x.reshape(to), shape, shape=to)
    for shape, a, b in (((3, 4), 0, 1), ((2, 3, 4), 0, -1), ((2, 3, 4), 1, 1), ((0, 3), 0, 1)):
        each("transpose", lambda x: x.transpose(a, b), shape, dim0=a, dim1=b)
    for shape, dims in (((3, 4), [1, 0]), ((2, 3, 4), [2, 0, 1]), ((2, 3, 4), [0, -1, 1]), ((2, 0, 4), [2, 1, 0])):
        each("permute", lambda x: x.permute(dims), shape, dims=dims)
    for shape, size in (((1, 4), [3, 4]), ((1, 4), [3, -1]), ((4,), [2, 3, 4]), ((3, 1, 4), [2, 3, 5, 4]), ((1, 3), [0, 3])):
        each("expand", lambda x: x.expand(size), shape, size=size)
    for shape, dim, start, length in (((5, 4), 0, 1, 3), ((5, 4), -1, 2, 2), ((5, 4), 1, 0, 4), ((5, 4), 0, 2, 0), ((2, 5, 3), 1, 4, 1)):
        each("narrow", lambda x: x.narrow(dim, start, length), shape, dim=dim, start=start, length=length)
    for shape, dim, index in (((5, 4), 0, 2), ((5, 4), 1, -1), ((2, 3, 4), 1, 0), ((3,), 0, 1), ((0, 3), 1, 2)):
        each("select", lambda x: x.select(dim, index), shape, dim=dim, index=index)
    for op, cases in (("cat", (([(3, 4), (2, 4)], 0), ([(3, 4), (3, 1), (3, 2)], 1), ([(2, 3, 4), (2, 3, 1)], -1), ([(3, 4)], 0), ([(0, 4), (2, 4)], 0))),
                      ("stack", (([(3, 4), (3, 4)], 0), ([(3, 4), (3, 4), (3, 4)], 1), ([(3, 4), (3, 4)], -1), ([(), ()], 0), ([(0, 2), (0, 2)], 1)))):
        for shapes, dim in cases:
            f.case(op, f"ordinary {len(shapes)} of {list(shapes[0])} dim={dim}", lambda *xs: getattr(torch, op)(xs, dim), [r(*s) for s in shapes], dim=dim)
        strided = [Operand(r(4, 3), transpose(0, 1)), Operand(r(1, 4), expand(3, 4)), Operand(r(3, 9), narrow(1, 2, 4))]
        f.case(op, "strided", lambda *xs: getattr(torch, op)(xs, 1), strided, dim=1)
        f.case(op, "extreme", lambda *xs: getattr(torch, op)(xs, 0), [SPECIAL, SPECIAL.flip(0)], dim=0)
        f.case(op, "int64", lambda *xs: getattr(torch, op)(xs, 0), [f.randint(0, 9, (2, 2)), f.randint(0, 9, (2, 2))], dim=0)
    f.case("cat", "legacy empty", lambda *xs: torch.cat(xs, 0), [r(0), r(2, 3)], dim=0)

    rows = lambda *ix: torch.tensor(ix, dtype=torch.int64)
    for shape, dim in (((5, 3), 0), ((3, 5), 1), ((2, 5, 3), 1), ((2, 3, 5), -1)):
        fn = lambda x, ix: x.index_select(dim, ix)
        f.case("index_select", f"ordinary {list(shape)} dim={dim}", fn, [r(*shape), rows(4, 0, 2)], dim=dim)
        f.case("index_select", f"repeated {list(shape)} dim={dim}", fn, [r(*shape), rows(1, 1, 4, 1, 4)], dim=dim)
    first = lambda x, ix: x.index_select(0, ix)
    f.case("index_select", "transposed", first, [Operand(r(3, 5), transpose(0, 1)), rows(3, 3, 1)], dim=0)
    f.case("index_select", "expanded", first, [Operand(r(1, 3), expand(5, 3)), rows(3, 3, 1)], dim=0)
    f.case("index_select", "empty index", first, [r(5, 3), rows()], dim=0)
    f.case("index_select", "empty rows", first, [r(5, 0), rows(1, 2)], dim=0)
    f.case("index_select", "extreme", first, [SPECIAL, rows(*range(18, -1, -1))], dim=0)
    emb = lambda w, ix: F.embedding(ix, w)
    f.case("embedding", "ordinary", emb, [r(7, 3), rows(1, 6, 0)])
    f.case("embedding", "2d repeated", emb, [r(7, 3), torch.tensor([[1, 1, 2], [2, 1, 6]])])
    f.case("embedding", "scalar index", emb, [r(7, 3), torch.tensor(4)])
    f.case("embedding", "transposed", emb, [Operand(r(3, 7), transpose(0, 1)), Operand(torch.tensor([[1, 2], [3, 1]]), transpose(0, 1))])
    f.case("embedding", "empty index", emb, [r(7, 3), rows()])
    f.case("embedding", "many repeats", emb, [r(4, 2), f.randint(0, 4, (300,))])
    f.write(FOLDER + "view.safetensors.gz")


if __name__ == "__main__":
    pointwise()
    reductions()
    products()
    losses()
    views()

"""Golden files for what the other scripts leave out: scalar forms, powers, views, and kinds of operands. Writes
tensor/optest/testdata/completing.safetensors.gz."""

import warnings

import torch
import torch.nn.functional as F

from golden import File, Operand
from ops import FOLDER, SPECIAL, expand, narrow, transpose

SEED = 20290
N = len(SPECIAL)
LIMITS = torch.tensor([2**63 - 1, -2**63, 2**53 + 1, -7, 0, 3])


def of_one(f, op, fn, shape=(3, 4), empty=(0, 4), special=SPECIAL.reshape(1, N), grad=True, **args):
    """The cases of an op with one operand, in every layout."""
    tag = "".join(f" {k}={v}" for k, v in args.items())
    o = lambda t, *views: Operand(t, *views, grad=grad)
    r = f.randn
    f.case(op, "ordinary" + tag, fn, [o(r(*shape))], **args)
    if len(shape) > 1:
        f.case(op, "transposed" + tag, fn, [o(r(shape[1], shape[0], *shape[2:]), transpose(0, 1))], **args)
    else:
        f.case(op, "strided" + tag, fn, [o(r(shape[0] + 3), narrow(0, 2, shape[0]))], **args)
    f.case(op, "expanded" + tag, fn, [o(r(1, *shape[1:]), expand(*shape))], **args)
    if empty is not None:
        f.case(op, "empty" + tag, fn, [o(r(*empty))], **args)
    if special is not None:
        f.case(op, "extreme" + tag, fn, [o(special)], **args)


def of_integers(f, op, fn, **args):
    a = f.randint(-99, 99, (3, 4))
    tag = "".join(f" {k}={v}" for k, v in args.items())
    f.case(op, "ordinary" + tag, fn, [a], **args)
    f.case(op, "transposed" + tag, fn, [Operand(a, transpose(0, 1))], **args)
    f.case(op, "expanded" + tag, fn, [Operand(a[:1].contiguous(), expand(5, 4))], **args)
    f.case(op, "empty" + tag, fn, [a[:0]], **args)
    f.case(op, "extreme" + tag, fn, [LIMITS], **args)


def scalars(f):
    t = torch
    for v in (1.5, -2.0):
        for op, fn in (("add_scalar", lambda x: x + v), ("mul_scalar", lambda x: x * v), ("div_scalar", lambda x: x / v), ("rsub_scalar", lambda x: v - x), ("rdiv_scalar", lambda x: v / x)):
            of_one(f, op, fn, v=v)
        of_one(f, "sub_scalar", lambda x: x - v, v=v)
        of_one(f, "floor_divide_scalar", lambda x: t.floor_divide(x, v), grad=False, v=v)
        of_one(f, "trunc_divide_scalar", lambda x: t.div(x, v, rounding_mode="trunc"), grad=False, v=v)
        of_one(f, "remainder_scalar", lambda x: x % v, v=v)
        of_one(f, "fmod_scalar", lambda x: t.fmod(x, v), v=v)
        of_one(f, "copysign_scalar", lambda x: t.copysign(x, v), v=v)
    for v in (0.5, 0.0):
        for op in ("eq", "ne", "lt", "le", "gt", "ge"):
            of_one(f, op + "_scalar", lambda x: getattr(t, op)(x, v), grad=False, v=v)
    for v in (3.0, -5.0):
        n = int(v)
        for op, fn in (("floor_divide_integer_scalar", lambda x: t.floor_divide(x, n)), ("trunc_divide_integer_scalar", lambda x: t.div(x, n, rounding_mode="trunc")),
                       ("remainder_integer_scalar", lambda x: x % n), ("fmod_integer_scalar", lambda x: t.fmod(x, n)),
                       ("bitwise_and_scalar", lambda x: x & n), ("bitwise_or_scalar", lambda x: x | n), ("bitwise_xor_scalar", lambda x: x ^ n)):
            of_integers(f, op, fn, v=v)
    for v in (3.0, 0.0, 63.0):
        of_integers(f, "bitwise_left_shift_scalar", lambda x: x << int(v), v=v)
        of_integers(f, "bitwise_right_shift_scalar", lambda x: x >> int(v), v=v)
    a, b = f.randint(-99, 99, (3, 4)), f.randint(1, 9, (4,))
    trunc = lambda x, y: t.div(x, y, rounding_mode="trunc")
    f.case("trunc_divide_integer", "ordinary", trunc, [a, b.expand(3, 4).contiguous()])
    f.case("trunc_divide_integer", "transposed", trunc, [Operand(a.T.contiguous(), transpose(0, 1)), b])
    f.case("trunc_divide_integer", "broadcast", trunc, [a, -b])
    f.case("trunc_divide_integer", "empty", trunc, [a[:0], b])
    f.case("trunc_divide_integer", "extreme", trunc, [LIMITS.reshape(6, 1), t.tensor([2**62 + 1, 3, -3, -2**63])])
    for op in ("left", "right"):
        fn = getattr(t, f"bitwise_{op}_shift")
        f.case(f"bitwise_{op}_shift", "expanded", fn, [Operand(a[:1].contiguous(), expand(3, 4)), b])
        f.case(f"bitwise_{op}_shift", "extreme", fn, [LIMITS.reshape(6, 1), t.tensor([0, 1, 5, 63])])
    f.case("bitwise_not", "extreme", t.bitwise_not, [LIMITS])


def reversed_scalars(f):
    """Ops on a number and a tensor, most of them with the number first."""
    t = torch
    for v in (1.5, -2.0):
        of_one(f, "rfloor_divide_scalar", lambda x: v // x, grad=False, v=v)
        of_one(f, "rremainder_scalar", lambda x: v % x, grad=False, v=v)  # PyTorch has no gradient for it
        of_one(f, "rxlogy_scalar", lambda x: t.xlogy(v, x.abs()), v=v)
        of_one(f, "xlogy_scalar", lambda x: t.xlogy(x, abs(v)), v=abs(v))
        of_one(f, "where_scalar", lambda x: t.where(x > 0.25, x, v), v=v)
        of_one(f, "rwhere_scalar", lambda x: t.where(x > 0.25, v, x), v=v)
        of_one(f, "where_scalars", lambda x: t.where(x > 0.25, v, -v).to(t.float32), grad=False, v=v)
    counts = f.randint(0, 64, (3, 4))
    for v in (3.0, -1000.0):
        for op, fn in (("left", lambda x: int(v) << x), ("right", lambda x: int(v) >> x)):
            name, args = f"rbitwise_{op}_shift_scalar", {"v": v}
            f.case(name, f"ordinary v={v}", fn, [counts], **args)
            f.case(name, f"transposed v={v}", fn, [Operand(counts, transpose(0, 1))], **args)
            f.case(name, f"expanded v={v}", fn, [Operand(counts[:1].contiguous(), expand(5, 4))], **args)
            f.case(name, f"empty v={v}", fn, [counts[:0]], **args)
            f.case(name, f"extreme v={v}", fn, [LIMITS], **args)


def powers(f):
    """Powers of tensors, with gradients of base and exponent."""
    r = f.randn
    base = lambda *s: r(*s).abs() + 0.1
    fn = torch.pow
    f.case("pow_tensor", "ordinary", fn, [base(3, 5), r(3, 5)])
    f.case("pow_tensor", "transposed", fn, [Operand(base(4, 3), transpose(0, 1)), r(3, 4)])
    f.case("pow_tensor", "broadcast", fn, [base(3, 1), r(2, 1, 4)])
    f.case("pow_tensor", "empty", fn, [base(0, 1), r(1, 3)])
    f.case("pow_tensor", "whole exponents", fn, [r(4, 1), torch.tensor([-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0])])
    f.case("pow_tensor", "extreme", fn, [SPECIAL.reshape(N, 1), SPECIAL.reshape(1, N)])
    for n in (2, 3, -1):
        f.case("pow", f"int64 exponent={n}", lambda x: x.pow(float(n)), [f.randint(1, 9, (3, 4))], exponent=float(n))


def views(f):
    of_one(f, "flatten", lambda x: x.flatten(0, -1))
    of_one(f, "view", lambda x: x.contiguous().view(-1), shape=(3, 4))
    of_one(f, "t", lambda x: x.mT)
    of_one(f, "unsqueeze", lambda x: x.unsqueeze(1), dim=1)
    of_one(f, "squeeze", lambda x: x.squeeze(0), shape=(1, 4), empty=(1, 0), dim=0)
    of_one(f, "clone", torch.clone)
    of_one(f, "detach", lambda x: x.detach(), grad=False)
    of_one(f, "zeros_like", torch.zeros_like, grad=False)
    of_one(f, "ones_like", torch.ones_like, grad=False)
    of_one(f, "full_like", lambda x: torch.full_like(x, 2.5), grad=False, v=2.5)
    of_one(f, "fill", lambda x: x.clone().fill_(2.5), grad=False, v=2.5)
    of_one(f, "zero", lambda x: x.clone().zero_(), grad=False)
    copy = lambda x, y: x.clone().copy_(y)
    r = f.randn
    plain = lambda t, *views: Operand(t, *views, grad=False)
    f.case("copy", "ordinary", copy, [plain(r(3, 4)), plain(r(3, 4))])
    f.case("copy", "transposed", copy, [plain(r(3, 4)), plain(r(4, 3), transpose(0, 1))])
    f.case("copy", "broadcast", copy, [plain(r(3, 4)), plain(r(4))])
    f.case("copy", "empty", copy, [plain(r(0, 4)), plain(r(4))])
    f.case("copy", "extreme", copy, [plain(r(N)), plain(SPECIAL)])
    of_one(f, "glu", lambda x: F.glu(x, -1), empty=(0, 4), special=torch.cat([SPECIAL[:18], SPECIAL[1:]]).reshape(1, 36), dim=-1)
    of_one(f, "glu", lambda x: F.glu(x, 0), shape=(4, 3), empty=(0, 3), special=torch.cat([SPECIAL[:18], SPECIAL[1:]]).reshape(2, 18), dim=0)
    # Kinds of operands that other scripts leave out.
    few = {"size": [2, 2], "stride": [1, 2], "offset": 0}
    f.case("as_strided", "transposed", lambda x: x.as_strided([2, 2], [1, 2], 0), [Operand(r(4, 3), transpose(0, 1))], **few)
    f.case("as_strided", "expanded", lambda x: x.as_strided([2, 2], [1, 2], 0), [Operand(r(1, 4), expand(3, 4), grad=False)], **few)
    f.case("as_strided", "empty", lambda x: x.as_strided([0, 2], [1, 1], 0), [r(0, 4)], size=[0, 2], stride=[1, 1], offset=0)
    of_one(f, "broadcast_to", lambda x: x.broadcast_to([2, 3, 4]), empty=None, special=None, size=[2, 3, 4])
    f.case("broadcast_to", "empty", lambda x: x.broadcast_to([2, 0, 4]), [r(0, 4)], size=[2, 0, 4])
    f.case("broadcast_to", "extreme", lambda x: x.broadcast_to([2, N]), [SPECIAL], size=[2, N])
    f.case("expand", "empty", lambda x: x.expand(2, 0, 4), [r(0, 4)], size=[2, 0, 4])
    f.case("expand", "extreme", lambda x: x.expand(2, N), [SPECIAL], size=[2, N])
    for op, fn, args in (("moveaxis", lambda x: x.moveaxis(0, 1), {"source": 0, "destination": 1}), ("narrow", lambda x: x.narrow(1, 1, 2), {"dim": 1, "start": 1, "length": 2}),
                         ("permute", lambda x: x.permute(1, 0), {"dims": [1, 0]}), ("transpose", lambda x: x.transpose(0, 1), {"dim0": 0, "dim1": 1}),
                         ("select", lambda x: x.select(1, 2), {"dim": 1, "index": 2}), ("unflatten", lambda x: x.unflatten(0, [1, -1]), {"dim": 0, "sizes": [1, -1]}),
                         ("repeat_interleave", lambda x: x.repeat_interleave(2, 1), {"repeats": 2, "dim": 1}), ("unfold", lambda x: x.unfold(1, 2, 1), {"dim": 1, "size": 2, "step": 1}),
                         ("diagonal", lambda x: x.diagonal(1, 0, 1), {"offset": 1, "dim1": 0, "dim2": 1}), ("slice", lambda x: x[:, 1:3], {"dim": 1, "start": 1, "stop": 3, "step": 1}),
                         ("split", lambda x: x.split(2, 1)[0], {"size": 2, "dim": 1, "part": 0}), ("chunk", lambda x: x.chunk(2, 1)[0], {"n": 2, "dim": 1, "part": 0}),
                         ("unbind", lambda x: x.unbind(1)[1], {"dim": 1, "part": 1}), ("reshape", lambda x: x.reshape(-1, 1), {"shape": [-1, 1]})):
        if op == "unflatten":
            f.case(op, "extreme", fn, [SPECIAL], **args)
            continue
        if op != "reshape":
            f.case(op, "empty", fn, [r(0, 4)], **args)
        f.case(op, "extreme", fn, [SPECIAL.reshape(1, N)], **args)
    f.case("diag", "empty", lambda x: x.diag(0), [r(0, 4)], k=0)


def indices(f):
    r = f.randn
    for op, fn in (("gather", lambda x, i: x.gather(1, i)), ("scatter_add", lambda x, i, s: x.scatter_add(1, i, s))):
        more = lambda *s: [r(*s)] if op == "scatter_add" else []
        ix = f.randint(0, 4, (3, 6))
        f.case(op, "ordinary", fn, [r(3, 4), ix, *more(3, 6)], dim=1)
        f.case(op, "transposed", fn, [Operand(r(4, 3), transpose(0, 1)), Operand(ix.T.contiguous(), transpose(0, 1)), *more(3, 6)], dim=1)
        f.case(op, "expanded", fn, [Operand(r(1, 4), expand(3, 4)), Operand(ix[:1].contiguous(), expand(3, 6)), *more(3, 6)], dim=1)
        f.case(op, "empty", fn, [r(3, 4), ix[:, :0], *more(3, 0)], dim=1)
        f.case(op, "extreme", fn, [SPECIAL.reshape(1, N), torch.arange(N - 1, -1, -1).reshape(1, N), *([SPECIAL.reshape(1, N)] if op == "scatter_add" else [])], dim=1)
    emb = lambda w, i: F.embedding(i, w)
    f.case("embedding", "expanded", emb, [Operand(r(1, 3), expand(5, 3)), f.randint(0, 5, (4,))])
    f.case("embedding", "extreme", emb, [SPECIAL.reshape(N, 1), f.randint(0, N, (N,))])
    f.case("one_hot", "extreme", lambda x: F.one_hot(x, 6), [torch.tensor([0, 5, 0, 5])], num_classes=6)


def products(f):
    r = f.randn
    a, b = SPECIAL[1:].reshape(6, 3), SPECIAL[:18].reshape(3, 6)
    c = SPECIAL[:6]
    for beta, alpha in ((1.0, 1.0), (0.5, -2.0)):
        args = {"beta": beta, "alpha": alpha}
        f.case("addmm", f"extreme {args}", lambda x, y, z: torch.addmm(x, y, z, **args), [c, a, b], **args)
        f.case("baddbmm", f"extreme {args}", lambda x, y, z: torch.baddbmm(x, y, z, **args), [c.reshape(1, 1, 6), a.reshape(1, 6, 3), b.reshape(1, 3, 6)], **args)
    f.case("einsum", "extreme", lambda x, y: torch.einsum("ij,jk->ik", x, y), [a, b], equation="ij,jk->ik")
    f.case("bmm", "extreme", torch.bmm, [a.reshape(1, 6, 3), b.reshape(1, 3, 6)])
    f.case("dot", "extreme with NaN", torch.dot, [SPECIAL, SPECIAL.flip(0)])
    rows = torch.tensor([[1.0, 2.0, 0.0], [0.0, -0.0, 0.0], [2.0**-149, -2.0**-130, 0.0], [1e20, -1e20, 1.0], [torch.inf, 1.0, 0.0], [torch.nan, 1.0, 0.0]])
    for p in (1.0, 2.0, torch.inf):
        name = "inf" if p == torch.inf else str(p)
        f.case("pairwise_distance", f"extreme p={name}", lambda x, y: F.pairwise_distance(x, y, p, 1e-6), [rows[:4], rows[:4].flip(0)], p=name, eps=1e-6)
        f.case("cdist", f"extreme p={name}", lambda x, y: torch.cdist(x, y, p, compute_mode="donot_use_mm_for_euclid_dist"), [rows[:3], rows[1:4]], p=name)


def kinks(f):
    """Results for NaN and other extremes, without gradients where PyTorch's gradient for NaN depends on its place in a SIMD vector."""
    x = lambda: Operand(torch.tensor([torch.nan, 1.0, torch.inf, 2.0**-149]), grad=False)
    f.case("relu6", "extreme, values", F.relu6, [x()])
    f.case("hardtanh", "extreme, values", lambda x: F.hardtanh(x, -3.0, 6.0), [x()], min_val=-3.0, max_val=6.0)
    f.case("hardshrink", "extreme, values", lambda x: F.hardshrink(x, 0.5), [x()], lambd=0.5)
    f.case("softshrink", "extreme, values", lambda x: F.softshrink(x, 0.5), [x()], lambd=0.5)
    for n in (2, 0, -1):
        f.case("round_decimals", f"extreme, special decimals={n}", lambda x: torch.round(x, decimals=n), [torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0, 2.0**-149])], decimals=n)
    either = lambda x, y: torch.isclose(x, y, 0.25, 0.125, equal_nan=True)
    still = lambda x: Operand(x, grad=False)
    pairs = torch.tensor([torch.nan, 1.0, torch.nan, torch.inf, -torch.inf]), torch.tensor([torch.nan, torch.nan, 2.0, torch.inf, torch.inf])
    f.case("isclose_nan", "extreme, NaN of both", either, [still(p) for p in pairs])
    f.case("isclose_nan", "broadcast, extreme, of each with each", either, [still(pairs[0]), still(pairs[1].reshape(5, 1))])
    near = torch.tensor([[torch.nan, 1.0, 2.0], [0.0, -4.0, 0.25]]), torch.tensor([[torch.nan, 1.25, 2.75], [0.0, -5.5, 0.375]])
    f.case("isclose_nan", "ordinary", either, [still(p) for p in near])
    f.case("isclose_nan", "strided", either, [still(p.T) for p in near])
    f.case("isclose_nan", "empty", either, [still(torch.empty(0, 3)), still(torch.empty(0, 3))])
    zeros = torch.cat([SPECIAL, torch.tensor([-0.25, 0.25])])
    for low, high in ((0.0, None), (None, 0.0), (0.0, 0.0), (-0.0, None)):
        f.case("clamp", f"extreme, at zero min={low} max={high}", lambda x: torch.clamp(x, low, high), [zeros], min=low, max=high)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    f = File(__file__, SEED)
    scalars(f)
    reversed_scalars(f)
    powers(f)
    views(f)
    indices(f)
    products(f)
    kinks(f)
    f.write(FOLDER + "completing.safetensors.gz")

"""Golden files for the elementwise functions beyond those of ops.py. Writes tensor/optest/testdata."""

import math

import torch
import torch.nn.functional as F

from golden import File, Operand, single, tiled
from ops import FOLDER, SPECIAL, expand, narrow, transpose

SEED = 20270
N = len(SPECIAL)


def unary(f, op, fn, low=-3.0, high=3.0, special=SPECIAL, grad=True, also=(), **args):
    """The cases of a function of one tensor, sampled from [low, high] and at the special values."""
    def sample(*shape):
        return torch.rand(shape, generator=f.generator) * (high - low) + low
    tag = "".join(f" {k}={v}" for k, v in args.items())
    f.case(op, "ordinary" + tag, fn, [Operand(sample(3, 5), grad=grad)], also, **args)
    f.case(op, "transposed" + tag, fn, [Operand(sample(4, 3), transpose(0, 1), grad=grad)], also, **args)
    f.case(op, "expanded" + tag, fn, [Operand(sample(4, 1), expand(2, 4, 3), grad=grad)], also, **args)
    f.case(op, "empty" + tag, fn, [Operand(sample(0, 3), grad=grad)], **args)
    f.case(op, "sweep" + tag, fn, [Operand(torch.linspace(low, high, 41), grad=grad)], also, **args)
    f.case(op, "extreme" + tag, fn, [Operand(special, grad=grad)], also, **args)


def binary(f, op, fn, positive=False, grad=True, **args):
    """The cases of a function of two tensors that broadcast; positive: the second one is positive, except at the special values."""
    def second(*shape):
        y = f.randn(*shape)
        return y.abs() + 0.25 if positive else y
    o = lambda t, *views: Operand(t, *views, grad=grad)
    tag = "".join(f" {k}={v}" for k, v in args.items())
    f.case(op, "ordinary" + tag, fn, [o(f.randn(3, 5)), o(second(3, 5))], **args)
    f.case(op, "transposed" + tag, fn, [o(f.randn(4, 3), transpose(0, 1)), o(second(3, 4))], **args)
    f.case(op, "narrowed" + tag, fn, [o(f.randn(5, 6), narrow(1, 1, 3)), o(second(7, 3), narrow(0, 2, 5))], **args)
    f.case(op, "broadcast" + tag, fn, [o(f.randn(3, 1)), o(second(2, 1, 4))], **args)
    f.case(op, "empty" + tag, fn, [o(f.randn(0, 1)), o(second(1, 3))], **args)
    f.case(op, "extreme" + tag, fn, [o(SPECIAL.reshape(N, 1)), o(SPECIAL.reshape(1, N))], **args)


def functions():
    f = File(__file__, SEED)
    t = torch
    for op, low, high in (("sin", -20, 20), ("cos", -20, 20), ("tan", -1.5, 1.5), ("asin", -1, 1), ("acos", -1, 1), ("atan", -9, 9),
                          ("sinh", -9, 9), ("cosh", -9, 9), ("asinh", -9, 9), ("acosh", 1, 9), ("atanh", -1, 1),
                          ("exp2", -20, 20), ("expm1", -9, 9), ("log2", 0.01, 9), ("log10", 0.01, 9), ("log1p", -0.99, 9),
                          ("erf", -4, 4), ("erfc", -4, 9), ("erfinv", -1, 1), ("logit", 0, 1)):
        unary(f, op, getattr(t, op), low, high)
    unary(f, "logit", lambda x: t.logit(x, 0.25), 0, 1, eps=0.25)
    half = t.cat([SPECIAL, t.tensor([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 8388609.0, 4194304.5, -0.25])])
    for op in ("sign", "floor", "ceil", "round", "trunc", "frac"):
        unary(f, op, getattr(t, op), special=half)
    for n in (2, 0, -1):
        unary(f, "round_decimals", lambda x: t.round(x, decimals=n), -90, 90, special=half[half.abs() < 1e9], decimals=n)
    for op in ("isnan", "isinf", "isposinf", "isneginf", "isfinite"):
        unary(f, op, getattr(t, op), grad=False)
    unary(f, "nan_to_num", lambda x: t.nan_to_num(x, 2.0, 5.0, -7.0), nan=2.0, posinf=5.0, neginf=-7.0)
    for base in (2.0, 0.0, -1.5):
        unary(f, "rpow_scalar", lambda x: base**x, base=base)
    unary(f, "rsqrt", t.rsqrt, 0.01, 9)
    unary(f, "reciprocal", t.reciprocal)
    unary(f, "silu", F.silu, -20, 20)
    unary(f, "logical_not", t.logical_not, grad=False)
    unary(f, "entr", t.special.entr, 0, 4)
    unary(f, "ndtr", t.special.ndtr, -4, 6)
    f.write(FOLDER + "functions.safetensors.gz")


def activations():
    f = File(__file__, SEED + 1)
    kinks = torch.cat([SPECIAL, torch.tensor([3.0, -3.0, 6.0, -0.5, 2.0, 20.0, 20.5, -200.0, 90.0, 8.0])])
    numbers = kinks[~kinks.isnan()]

    def act(op, fn, nan=True, also=(), **args):
        """nan=False leaves NaN out, for functions whose gradient for NaN depends on its place in a SIMD vector."""
        unary(f, op, fn, -6, 8, special=kinks if nan else numbers, also=also, **args)
    act("log_sigmoid", F.logsigmoid)
    act("softsign", F.softsign)
    act("selu", F.selu)
    act("mish", F.mish)
    act("relu6", F.relu6, nan=False)
    act("hardsigmoid", F.hardsigmoid)
    act("hardswish", F.hardswish)
    act("tanhshrink", F.tanhshrink)
    for beta, threshold in ((1.0, 20.0), (2.0, 6.0)):
        act("softplus", lambda x: F.softplus(x, beta, threshold), beta=beta, threshold=threshold)
    for slope in (0.01, 0.0, 2.0):
        act("leaky_relu", lambda x: F.leaky_relu(x, slope), slope=slope)
    for alpha in (1.0, 0.5):
        act("elu", lambda x: F.elu(x, alpha), alpha=alpha)
        act("celu", lambda x: F.celu(x, alpha), alpha=alpha)
        act("hardshrink", lambda x: F.hardshrink(x, alpha), nan=False, lambd=alpha)
        soft = lambda x: F.softshrink(x, alpha)
        act("softshrink", soft, nan=False, also=(single(soft), tiled(soft)), lambd=alpha)
    act("hardtanh", lambda x: F.hardtanh(x, -3.0, 6.0), nan=False, min_val=-3.0, max_val=6.0)
    act("threshold", lambda x: F.threshold(x, 0.5, -2.0), threshold=0.5, value=-2.0)
    r = f.randn
    f.case("prelu", "one weight", F.prelu, [r(3, 4), r(1)])
    f.case("prelu", "a weight a channel", F.prelu, [r(3, 4), r(4)])
    f.case("prelu", "images", F.prelu, [r(2, 3, 2, 2), r(3)])
    f.case("prelu", "transposed", F.prelu, [Operand(r(4, 3), transpose(0, 1)), r(4)])
    f.case("prelu", "empty", F.prelu, [r(0, 4), r(4)])
    f.case("prelu", "extreme", F.prelu, [SPECIAL.reshape(1, N), torch.full((N,), 0.25)])
    f.write(FOLDER + "activation.safetensors.gz")


def pairs():
    f = File(__file__, SEED + 2)
    t = torch
    for op, positive in (("atan2", False), ("hypot", False), ("logaddexp", False), ("xlogy", True), ("copysign", False),
                         ("remainder", True), ("fmod", True)):
        binary(f, op, getattr(t, op), positive)
    binary(f, "fmax", t.fmax)
    binary(f, "fmin", t.fmin)
    binary(f, "isclose", lambda x, y: t.isclose(x, y, 0.25, 0.125), grad=False, rtol=0.25, atol=0.125)
    for mode in ("floor", "trunc"):
        binary(f, "div_" + mode, lambda x, y: t.div(x, y, rounding_mode=mode), True)
    for op in ("logical_and", "logical_or", "logical_xor"):
        binary(f, op, getattr(t, op), grad=False)
    a, b = f.randint(-99, 99, (3, 4)), f.randint(-9, 0, (4,))
    small = f.randint(0, 9, (3, 1))
    for op in ("bitwise_and", "bitwise_or", "bitwise_xor", "fmod", "remainder", "floor_divide"):
        f.case(op, "int64", getattr(t, op), [a, b])
        f.case(op, "int64 transposed", getattr(t, op), [Operand(a.T.contiguous(), transpose(0, 1)), b])
        f.case(op, "int64 expanded", getattr(t, op), [Operand(a[:1].contiguous(), expand(3, 4)), b])
        f.case(op, "int64 empty", getattr(t, op), [a[:0], b])
        f.case(op, "int64 limits", getattr(t, op), [t.tensor([2**63 - 1, -2**63, 2**53 + 1, -7]).reshape(4, 1), t.tensor([2**62 + 1, 3, -3, -2**63])])
    for op in ("bitwise_left_shift", "bitwise_right_shift"):
        fn = getattr(t, op)
        f.case(op, "int64", fn, [a, small])
        f.case(op, "int64 transposed", fn, [Operand(a.T.contiguous(), transpose(0, 1)), small])
        f.case(op, "int64 empty", fn, [a[:0], small[:1]])
        f.case(op, "int64 beyond the width", fn, [a, t.tensor([63, 64, 65, 1000])])
        f.case(op, "int64 negative", fn, [a, t.tensor([-1, -64, -2**63, 0])])
    for op in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        f.case(op, "bool", getattr(t, op), [a > 0, small > 4])
    f.case("bitwise_not", "int64", t.bitwise_not, [a])
    f.case("bitwise_not", "bool", t.bitwise_not, [a > 0])
    f.case("bitwise_not", "transposed", t.bitwise_not, [Operand(a, transpose(0, 1))])
    f.case("bitwise_not", "expanded", t.bitwise_not, [Operand(small, expand(3, 4))])
    f.case("bitwise_not", "empty", t.bitwise_not, [a[:0]])

    r = f.randn
    for w in (0.25, 0.75, -1.5):
        binary(f, "lerp_scalar", lambda x, y: t.lerp(x, y, w), weight=w)
    three = lambda op, fn, last=lambda *s: r(*s), **args: (
        f.case(op, "ordinary", fn, [r(3, 5), r(3, 5), last(3, 5)], **args),
        f.case(op, "transposed", fn, [Operand(r(4, 3), transpose(0, 1)), r(3, 4), Operand(last(4, 3), transpose(0, 1))], **args),
        f.case(op, "broadcast", fn, [r(3, 4), r(4), last(2, 1, 1)], **args),
        f.case(op, "expanded", fn, [Operand(r(1, 4), expand(3, 4)), r(3, 4), Operand(last(3, 1), expand(3, 4))], **args),
        f.case(op, "empty", fn, [r(0, 3), r(0, 3), last(0, 3)], **args),
        f.case(op, "extreme", fn, [SPECIAL.reshape(N, 1), SPECIAL.reshape(1, N), SPECIAL.flip(0).reshape(N, 1)], **args))
    mask = lambda *s: f.randint(0, 2, s).bool()
    filled = lambda x, m: x.masked_fill(m, 7.5)
    f.case("masked_fill", "ordinary", filled, [r(3, 5), mask(3, 5)], value=7.5)
    f.case("masked_fill", "transposed", filled, [Operand(r(4, 3), transpose(0, 1)), Operand(mask(4, 3), transpose(0, 1))], value=7.5)
    f.case("masked_fill", "broadcast", filled, [r(2, 3, 4), mask(3, 1)], value=7.5)
    f.case("masked_fill", "expanded", filled, [Operand(r(1, 4), expand(3, 4)), mask(3, 4)], value=7.5)
    f.case("masked_fill", "empty", filled, [r(0, 3), mask(3)], value=7.5)
    f.case("masked_fill", "extreme", filled, [SPECIAL, t.arange(N) % 3 == 0], value=7.5)
    three("lerp", t.lerp)
    three("addcmul", lambda x, y, z: t.addcmul(x, y, z, value=0.5), value=0.5)
    three("addcdiv", lambda x, y, z: t.addcdiv(x, y, z, value=0.5), lambda *s: r(*s).abs() + 0.25, value=0.5)
    f.write(FOLDER + "pair.safetensors.gz")


if __name__ == "__main__":
    functions()
    activations()
    pairs()

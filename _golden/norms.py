"""Golden files for the normalisations of package tensor. Writes tensor/optest/testdata."""

import math

import torch
import torch.nn.functional as F

from golden import File, Operand
from ops import DENORMAL, FOLDER, SEED, TINY, expand, narrow, transpose


def inputs(f, shape):
    """Inputs of the given shape, in several layouts."""
    r = f.randn
    yield "ordinary", r(*shape)
    yield "transposed", Operand(r(shape[1], shape[0], *shape[2:]), transpose(0, 1))
    yield "narrowed", Operand(r(*shape[:-1], shape[-1] + 3), narrow(len(shape) - 1, 1, shape[-1]))
    yield "expanded", Operand(r(1, *shape[1:]), expand(*shape))
    yield "far", r(*shape) + 50


def extremes(shape):
    """Eight rows of special numbers, in the given shape."""
    rows = [[1.0, 2.0, 4.0, -3.0], [3.0, 3.0, 3.0, 3.0], [0.0, -0.0, 0.0, -0.0], [1e-20, -1e-20, 0.0, 2e-20], [TINY, DENORMAL, -TINY, 0.0],
            [1e15, -1e15, 1.0, 0.0], [math.inf, 1.0, 2.0, 0.5], [math.nan, 1.0, 2.0, -math.inf]]
    return torch.tensor(rows).reshape(shape)


def rows():
    f = File(__file__, SEED + 60)
    r = f.randn
    for eps in (1e-5, 0.1):
        for shape, over in (((4, 6), [6]), ((2, 3, 4), [3, 4])):
            args = {"shape": over, "eps": eps}
            for name, x in inputs(f, shape):
                tag = f"{name} {list(shape)} {args}"
                f.case("layer_norm", tag, lambda x, w, b: F.layer_norm(x, over, w, b, eps), [x, r(*over), r(*over)], **args)
                f.case("rms_norm", tag, lambda x, w: F.rms_norm(x, over, w, eps), [x, r(*over)], **args)
    for shape, over in (((0, 3), [3]), ((2, 0), [0]), ((5,), [5]), ((3, 40), [40])):
        args = {"shape": over, "eps": 1e-5}
        name = "empty" if 0 in shape else "ordinary"
        f.case("layer_norm", f"{name} {list(shape)}", lambda x, w, b: F.layer_norm(x, over, w, b, 1e-5), [r(*shape), Operand(r(1).expand(*over).clone()), r(*over)], **args)
        if shape != (2, 0):
            f.case("rms_norm", f"{name} {list(shape)}", lambda x, w: F.rms_norm(x, over, w, 1e-5), [r(*shape), r(*over)], **args)
        f.case("layer_norm", f"plain {name} {list(shape)}", lambda x: F.layer_norm(x, over, None, None, 1e-5), [r(*shape)], **args)
    args = {"shape": [4], "eps": 1e-5}
    f.case("layer_norm", "extreme", lambda x: F.layer_norm(x, [4], None, None, 1e-5), [extremes((8, 4))], **args)
    f.case("rms_norm", "extreme", lambda x: F.rms_norm(x, [4], None, 1e-5), [extremes((8, 4))], **args)
    f.case("rms_norm", "default", lambda x: F.rms_norm(x, [4]), [r(2, 4)], shape=[4], eps=-1.0)

    for shape, groups in (((2, 4, 3), 2), ((2, 6, 2, 2), 3), ((3, 4), 1)):
        for name, x in inputs(f, shape):
            f.case("group_norm", f"{name} {list(shape)} {groups}", lambda x, w, b: F.group_norm(x, groups, w, b, 1e-5), [x, r(shape[1]), r(shape[1])], groups=groups, eps=1e-5)
        f.case("group_norm", f"plain {list(shape)} {groups}", lambda x: F.group_norm(x, groups, None, None, 0.01), [r(*shape)], groups=groups, eps=0.01)
    f.case("group_norm", "empty", lambda x, w, b: F.group_norm(x, 2, w, b), [r(0, 4, 3), r(4), r(4)], groups=2, eps=1e-5)
    f.case("group_norm", "extreme", lambda x: F.group_norm(x, 2), [extremes((4, 4, 2))], groups=2, eps=1e-5)

    for op, fn in (("batch_norm", F.batch_norm), ("instance_norm", F.instance_norm)):
        for shape in ((4, 3), (2, 3, 4), (3, 2, 2, 2), (2, 2, 1, 2, 3)):
            if op == "instance_norm" and len(shape) < 3:
                continue
            c = shape[1]
            for name, x in inputs(f, shape):
                for training in (True, False):
                    for part in range(3):
                        def run(x, w, b, mean, variance):
                            mean, variance = mean.clone(), variance.clone()
                            y = fn(x, mean, variance, w, b, training, 0.3, 1e-5)
                            return (y, mean, variance)[part]
                        if part and (not training or name not in ("ordinary", "far")):
                            continue
                        stats = [Operand(r(c), grad=False), Operand(r(c).square() + 0.1, grad=False)]
                        f.case(op, f"{name} {list(shape)} training={training} part={part}", run, [x, r(c), r(c)] + stats, training=training, eps=1e-5, momentum=0.3, part=part)
            f.case(op, f"plain {list(shape)}", lambda x: fn(x, None, None, None, None, True, 0.1, 0.01), [r(*shape)], training=True, eps=0.01, momentum=0.1, part=0)
        empty = (0, 3) if op == "batch_norm" else (0, 3, 2)
        if op == "batch_norm":
            none = lambda x, w, b, mean, variance: fn(x, mean.clone(), variance.clone(), w, b, True)
            f.case(op, "empty", none, [r(*empty), r(3), r(3), Operand(r(3), grad=False), Operand(r(3).square(), grad=False)], training=True, eps=1e-5, momentum=0.1, part=0)
        else:  # without weight and gradient, with which PyTorch fails
            f.case(op, "empty", lambda x: fn(x, None, None, None, None, True), [Operand(r(*empty), grad=False)], training=True, eps=1e-5, momentum=0.1, part=0)
        f.case(op, "extreme", lambda x: fn(x, None, None, None, None, True), [extremes((8, 1, 4)).transpose(0, 1).contiguous()], training=True, eps=1e-5, momentum=0.1, part=0)
        stats = [Operand(torch.tensor([0.0, math.inf, math.nan, 1e20, -0.0]), grad=False), Operand(torch.tensor([0.0, 1.0, 1.0, 1e30, math.inf]), grad=False)]
        f.case(op, "extreme fixed", lambda x, m, v: fn(x, m, v, None, None, False), [torch.tensor([[[1.0, -0.0]] * 5, [[math.inf, math.nan]] * 5]), *stats], training=False, eps=1e-5, momentum=0.1, part=0)

    for p in (2.0, 1.0, 3.0, math.inf):
        text = str(p)
        for dim in (1, 0):
            for name, x in inputs(f, (3, 4)):
                f.case("normalize", f"{name} p={text} dim={dim}", lambda x: F.normalize(x, p, dim), [x], p=text, dim=dim, eps=1e-12)
        f.case("normalize", f"extreme p={text}", lambda x: F.normalize(x, p, 1), [torch.tensor([[1.0, 2.0, 4.0], [3.0, -0.0, 3.0], [1e-6, -1e-6, 0.0], [math.nan, 1.0, 2.0]])], p=text, dim=1, eps=1e-12)
        if p != math.inf:
            f.case("normalize", f"empty p={text}", lambda x: F.normalize(x, p, 1), [r(0, 3)], p=text, dim=1, eps=1e-12)
    for size, alpha, beta, k in ((2, 1e-4, 0.75, 1.0), (3, 0.5, 0.5, 2.0), (5, 1.0, 1.0, 0.5)):
        args = {"size": size, "alpha": alpha, "beta": beta, "k": k}
        fn = lambda x: F.local_response_norm(x, size, alpha, beta, k)
        for shape in ((2, 4, 3), (2, 3, 2, 2)):
            for name, x in inputs(f, shape):
                f.case("local_response_norm", f"{name} {list(shape)} {args}", fn, [x], **args)
        f.case("local_response_norm", f"empty {args}", fn, [r(0, 3, 2)], **args)
        f.case("local_response_norm", f"extreme {args}", fn, [extremes((4, 4, 2))], **args)
    f.write(FOLDER + "norms.safetensors.gz")


if __name__ == "__main__":
    rows()

"""PyTorch's rules of types: what type comes out of each op for each pair of types, and what numbers casts and wrapping give.
Writes tensor/optest/testdata/promotion.json.gz: {"binary": {op: {form: [[type or "error"]]}}, "unary": {op: [type or "error"]},
"casts": [[from, to, numbers, results]], "wraps": [[op, type, x, y, result]]}. Numbers are strings, so that int64 survives.
"""

import gzip
import json
import math
import os
import warnings

import torch

from golden import REPOSITORY, versions

SEED = 20300
T = torch
TYPES = [T.bool, T.uint8, T.int8, T.int16, T.int32, T.int64, T.float16, T.bfloat16, T.float32, T.float64]
NAMES = {t: str(t).removeprefix("torch.") for t in TYPES}

BINARY = {
    "add": T.add, "sub": T.sub, "mul": T.mul, "div": T.div, "pow": T.pow, "floor_divide": T.floor_divide,
    "trunc_divide": lambda x, y: T.div(x, y, rounding_mode="trunc"), "remainder": T.remainder, "fmod": T.fmod, "minimum": T.minimum, "maximum": T.maximum,
    "fmax": T.fmax, "fmin": T.fmin, "eq": T.eq, "lt": T.lt, "atan2": T.atan2, "copysign": T.copysign, "xlogy": T.xlogy, "logical_and": T.logical_and,
    "bitwise_and": T.bitwise_and, "bitwise_left_shift": T.bitwise_left_shift, "where": lambda x, y: T.where(T.tensor([True, False]), x, y),
}
SCALAR = {
    "add": lambda x, v: x + v, "sub": lambda x, v: x - v, "rsub": lambda x, v: v - x, "mul": lambda x, v: x * v, "div": lambda x, v: x / v, "rdiv": lambda x, v: v / x, "pow": lambda x, v: x**v,
    "rpow": lambda x, v: v**x, "floor_divide": lambda x, v: x // v, "rfloor_divide": lambda x, v: v // x, "remainder": lambda x, v: x % v, "fmod": T.fmod, "eq": T.eq, "lt": T.lt,
    "clamp_min": lambda x, v: T.clamp(x, min=v), "copysign": T.copysign, "where": lambda x, v: T.where(T.tensor([True, False]), x, v),
}
UNARY = {op: getattr(T, op) for op in (
    "abs", "neg", "sign", "square", "exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "tanh", "sigmoid", "relu", "floor", "ceil", "round", "trunc", "isnan", "isinf", "isfinite", "erf",
    "logical_not", "bitwise_not", "nan_to_num", "sum", "prod", "mean", "amax", "argmax", "any", "all", "count_nonzero", "logsumexp")}
UNARY["logsumexp"] = lambda x: T.logsumexp(x, 0)


def result(fn, *operands):
    try:
        return NAMES[fn(*operands).dtype]
    except (RuntimeError, TypeError):
        return "error"


def text(t):
    return [repr(v) for v in t.tolist()]


def main():
    warnings.simplefilter("ignore")
    out = {"binary": {}, "scalar": {}, "unary": {}, "casts": [], "wraps": []}
    for op, fn in BINARY.items():
        one = lambda t, dims: T.ones(dims, dtype=t)
        out["binary"][op] = {
            form: [[result(fn, one(a, dx), one(b, dy)) for b in TYPES] for a in TYPES] for form, dx, dy in (("tensors", (2,), (2,)), ("right 0-dim", (2,), ()), ("left 0-dim", (), (2,)), ("both 0-dim", (), ()))}
    for op, fn in SCALAR.items():
        out["scalar"][op] = {str(v): [result(fn, T.ones(2, dtype=t), v) for t in TYPES] for v in (2, 2.5)}
    for op, fn in UNARY.items():
        out["unary"][op] = [result(fn, T.ones(2, dtype=t)) for t in TYPES]
    floats = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 100.75, -100.75, 126.9, 1e-8, 2.0**-24, 2.0**-25, 65504.0, 65519.0, 65520.0, 1e5, 3.4e38, 1e39, math.inf, -math.inf, math.nan, 1 + 2.0**-8, 1 + 2.0**-9, 1 + 3 * 2.0**-9]
    ints = [0, 1, -1, 2, 127, 128, -128, -129, 255, 256, 32767, 32768, -32769, 2**24 + 1, 2**31 - 1, 2**31, -2**31 - 1, 2**53 + 1, 2**63 - 1, -2**63, 2049, 65519, 65520]
    for a in TYPES:
        x = T.tensor(floats, dtype=T.float64).to(a) if a.is_floating_point else T.tensor(ints).to(a)
        x = x.unique() if a == T.bool else x
        for b in TYPES:
            y = x
            if a.is_floating_point and not b.is_floating_point and b != T.bool:  # outside of the type C leaves it open; here it saturates
                low, high = (T.iinfo(b).min, T.iinfo(b).max)
                w = x.double().trunc()
                y = x[(w >= low) & (w <= high) & (w < 2.0**63)]
            out["casts"].append([NAMES[a], NAMES[b], text(y), text(y.to(b))])
    for t in (T.uint8, T.int8, T.int16, T.int32, T.int64):
        i = T.iinfo(t)
        for op, fn in (("add", T.add), ("sub", T.sub), ("mul", T.mul), ("floor_divide", T.floor_divide), ("remainder", T.remainder), ("trunc_divide", BINARY["trunc_divide"]), ("fmod", T.fmod),
                       ("pow", T.pow), ("bitwise_and", T.bitwise_and), ("bitwise_left_shift", T.bitwise_left_shift), ("bitwise_right_shift", T.bitwise_right_shift)):
            x = T.tensor([i.max, i.min, i.max, i.min, 7, i.max // 2, 100, 3, -7 if i.min else 200], dtype=t)
            y = T.tensor([1, 1, i.max, 2, 3, 3, 100, 5, 2], dtype=t)
            if op in ("pow", "bitwise_left_shift", "bitwise_right_shift"):
                y = T.tensor([1, 2, 0, 3, 3, 2, 2, 5, 1], dtype=t)
            out["wraps"].append([op, NAMES[t], text(x), text(y), text(fn(x, y))])
    out["meta"] = versions(__file__, SEED)
    path = os.path.join(REPOSITORY, "tensor/optest/testdata/promotion.json.gz")
    with open(path, "wb") as f, gzip.GzipFile(filename="", fileobj=f, mode="wb", compresslevel=9, mtime=0) as z:
        z.write(json.dumps(out, separators=(",", ":")).encode())
    print(path, os.path.getsize(path))


if __name__ == "__main__":
    main()

"""Golden table of how tensors print. Writes internal/golden/testdata/print.json.

A row's "repr" is what PyTorch prints for the tensor. Rows with a CUDA device were printed without a GPU: PyTorch's own formatter
made the numbers, and its own function appended the suffixes it appends for such a tensor, in its order.
"""

import json
import math
import os

import torch
import torch._tensor_str as formatter

from golden import REPOSITORY, versions

SEED = 5
INF, NAN = math.inf, math.nan
ROWS = []


def number(v):
    """JSON has no infinities and no NaN: they become strings."""
    if isinstance(v, float) and not math.isfinite(v):
        return str(v)
    return v


def row(name, t, device="cpu", requires_grad=False):
    shown = t.clone().requires_grad_() if requires_grad else t
    if device == "cpu":
        text = repr(shown)
    else:
        suffixes = [f"device='{device}'"]
        if t.numel() == 0 and t.dim() != 1:
            suffixes.append(f"size={tuple(t.shape)}")
        if t.dtype != torch.float32 and (t.numel() == 0 or t.dtype not in (torch.int64, torch.bool)):
            suffixes.append(f"dtype={t.dtype}")
        if requires_grad:
            suffixes.append("requires_grad=True")
        body = "[]" if t.numel() == 0 else formatter._tensor_str(t, len("tensor("))
        text = formatter._add_suffixes("tensor(" + body, suffixes, len("tensor("), force_newline=False)
    ROWS.append({
        "name": name, "dtype": str(t.dtype).removeprefix("torch."), "shape": list(t.shape), "device": device,
        "requires_grad": requires_grad, "data": [number(v) for v in t.double().reshape(-1).tolist()] if t.is_floating_point() else t.reshape(-1).tolist(),
        "repr": text,
    })


def main():
    torch.manual_seed(SEED)
    T = torch.tensor
    row("one float", T([1.0]))
    row("whole floats", T([1.0, 2.0, -3.0]))
    row("fractions", T([0.5, -1.25, 3.0]))
    row("four digits", T([math.pi, -math.e, 100.123456]))
    row("mixed scale", T([1e-3, 1.0, 100.0]))
    row("ratio just above 1000", T([0.001, 1.001]))
    row("scientific by ratio", T([1e-5, 1.0]))
    row("scientific by size", T([1e9, 1.5]))
    row("scientific small", T([1e-5, 2e-5]))
    row("scientific negative", T([-1e-10, 2e10]))
    row("whole and huge", T([1.0, 2e9]))
    row("whole and 1e8", T([1.0, 1e8]))
    row("below 1e-4", T([0.00005, 0.00009]))
    row("denormal", T([2.0**-149, 2.0**-130]))
    row("largest", T([3.4028235e38, -3.4028235e38]))
    row("zeros", torch.zeros(3))
    row("negative zero", T([-0.0, 0.0, 1.5]))
    row("nan and inf", T([1.0, NAN, INF, -INF]))
    row("nan, inf and fractions", T([0.5, NAN, INF, -INF]))
    row("only nan", T([NAN, NAN]))
    row("only inf", T([INF, -INF]))
    row("nan and scientific", T([1e-8, NAN, 1.0]))
    row("0-d", T(3.0))
    row("0-d fraction", T(3.14159))
    row("0-d small", T(1e-6))
    row("0-d nan", T(NAN))
    row("0-d int", T(7))
    row("0-d bool", T(True))
    row("0-d with grad", T(3.5), requires_grad=True)
    row("empty", T([]))
    row("empty 2-d", torch.zeros(2, 0))
    row("empty 3-d", torch.zeros(0, 3, 4))
    row("empty int64", torch.zeros(0, dtype=torch.int64))
    row("empty int64 2-d", torch.zeros(0, 3, dtype=torch.int64))
    row("empty float64", torch.zeros(0, dtype=torch.float64))
    row("empty with grad", torch.zeros(0), requires_grad=True)
    row("ints", T([1, 20, -300]))
    row("large ints", T([1, 2**53 + 1, -2**63]))
    row("bools", T([True, False, True]))
    row("bool matrix", T([[True, False], [False, False]]))
    for dtype in (torch.int32, torch.int16, torch.int8, torch.uint8):
        row(str(dtype).removeprefix("torch."), T([1, 2, 100], dtype=dtype))
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        row(str(dtype).removeprefix("torch."), T([1.5, -2.25, 1000.0], dtype=dtype))
        row(str(dtype).removeprefix("torch.") + " tenth", T([0.1, 0.2], dtype=dtype))
        row(str(dtype).removeprefix("torch.") + " scientific", T([1e-5, 1.0], dtype=dtype))
        row(str(dtype).removeprefix("torch.") + " 0-d", T(0.1, dtype=dtype))
    row("float64 beyond float32", T([1e300, 1e-300], dtype=torch.float64))
    row("float16 nan", T([NAN, INF, 2.0], dtype=torch.float16))
    row("matrix", torch.randn(2, 3))
    row("matrix with grad", torch.randn(2, 3), requires_grad=True)
    row("int matrix", torch.arange(6).reshape(2, 3))
    row("3-d", torch.randn(2, 2, 3))
    row("3-d int", torch.arange(24).reshape(2, 3, 4))
    row("4-d", torch.arange(16.0).reshape(2, 2, 2, 2))
    row("5-d", torch.arange(4).reshape(1, 2, 1, 2, 1))
    row("one column", torch.randn(4, 1))
    row("long row wraps", torch.randn(25))
    row("long int row wraps", torch.arange(60))
    row("wide matrix wraps", torch.randn(2, 17))
    row("exactly 1000", torch.arange(1000.0))
    row("1001 summarised", torch.arange(1001.0))
    row("1001 ints summarised", torch.arange(1001))
    row("2-d summarised rows", torch.arange(1200).reshape(300, 4))
    row("2-d summarised columns", torch.arange(1200.0).reshape(4, 300) / 8)
    row("2-d summarised both", torch.arange(1600.0).reshape(40, 40) / 16)
    row("3-d summarised", torch.arange(1344.0).reshape(12, 14, 8) / 4)
    row("3-d summarised ints", torch.arange(1100).reshape(10, 11, 10))
    row("3-d summarised short axes", torch.arange(1080).reshape(6, 30, 6))
    # The widest number lies in what is not shown, so it must not widen the columns.
    hidden = torch.arange(1001)
    hidden[500] = 10**12
    row("summarised hides the widest", hidden)
    row("summarised bools", torch.arange(1001) % 3 == 0)
    row("summarised float64 with grad", torch.arange(1001, dtype=torch.float64), requires_grad=True)
    for device in ("cuda:0", "cuda:1"):
        row("vector on " + device, T([1.0, 2.5]), device)
        row("0-d on " + device, T(3.0), device)
    row("matrix on cuda:0", torch.randn(2, 3), "cuda:0")
    row("ints on cuda:0", T([1, 2]), "cuda:0")
    row("float16 on cuda:0", T([1.5], dtype=torch.float16), "cuda:0")
    row("empty on cuda:0", T([]), "cuda:0")
    row("empty 2-d on cuda:0", torch.zeros(2, 0), "cuda:0")
    row("empty int64 on cuda:0", torch.zeros(0, dtype=torch.int64), "cuda:0")
    row("empty bfloat16 on cuda:0", torch.zeros(0, dtype=torch.bfloat16), "cuda:0")
    row("with grad on cuda:0", torch.randn(3), "cuda:0", requires_grad=True)
    row("suffix wraps on cuda:0", torch.randn(7, dtype=torch.float64), "cuda:0", requires_grad=True)
    row("summarised on cuda:0", torch.arange(1001), "cuda:0")

    # What the table holds must be enough to print the same again.
    for r in ROWS:
        if r["device"] == "cpu" and not (len(r["data"]) == 0):
            t = T([float(v) if isinstance(v, str) else v for v in r["data"]], dtype=getattr(torch, r["dtype"])).reshape(r["shape"])
            if r["requires_grad"]:
                t.requires_grad_()
            assert repr(t) == r["repr"], r["name"]
    path = os.path.join(REPOSITORY, "internal/golden/testdata/print.json")
    lines = ",\n".join("  " + json.dumps(r, allow_nan=False) for r in ROWS)
    with open(path, "w") as f:
        f.write('{"meta": ' + json.dumps(versions(__file__, SEED)) + ',\n"rows": [\n' + lines + "\n]}\n")
    print(f"{path}: {os.path.getsize(path)} bytes, {len(ROWS)} rows")


if __name__ == "__main__":
    main()

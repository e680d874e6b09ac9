"""Runs PyTorch's own samples of operators and says in JSON and tensors what went in and what came out.

The format is specified in the package comment of internal/samples. opdb.py, moduledb.py and optimdb.py write files with it.
"""

import gzip
import json
import math
import os

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import golden

TYPES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.int32: "I32", torch.int64: "I64",
    torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64",
}
NAMES = {t: str(t).removeprefix("torch.") for t in TYPES}
CHANCE = torch.Generator().manual_seed(7)  # of its own: calls seed the other one
HALVES = (torch.float16, torch.bfloat16)


class Unsaid(Exception):
    """A sample that has something in it which the format does not hold; the message says what."""


def leaves_of(value):
    """The tensors in nested arguments, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in leaves_of(v)]
    if isinstance(value, dict):
        return [t for v in value.values() for t in leaves_of(v)]
    if isinstance(value, slice):
        return leaves_of([value.start, value.stop, value.step])
    return []


def spread(n, most):
    """The places of at most most of n, evenly from the list; all of them if most is 0."""
    return [i * n // most for i in range(most)] if 0 < most < n else list(range(n))


def replaced(value, change):
    """Nested arguments with change(v) in the place of each tensor and each element type."""
    if isinstance(value, (torch.Tensor, torch.dtype)):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[replaced(v, change) for v in value])
    if isinstance(value, (list, tuple)):
        return type(value)(replaced(v, change) for v in value)
    if isinstance(value, dict):
        return {k: replaced(v, change) for k, v in value.items()}
    return value


def fresh(t, to=None, grad=False):
    """A copy of t with t's strides; for the run in float64 converted, if it is floating-point.

    In the sample's own type every operand stays as it is: one of another type is there to be promoted.
    """
    to = to if to == torch.float64 and t.is_floating_point() else t.dtype
    t = t.detach()
    if t.is_contiguous():
        c = t.to(to, copy=True).contiguous()
    elif any(s == 0 and n > 1 for s, n in zip(t.stride(), t.shape)):
        small = t
        for d, (s, n) in enumerate(zip(t.stride(), t.shape)):
            if s == 0 and n > 1:
                small = small.narrow(d, 0, 1)
        c = small.to(to, copy=True).contiguous().expand(t.shape)
    else:
        c = torch.empty_strided(t.shape, t.stride(), dtype=to).copy_(t)
    return c.requires_grad_(grad and t.is_floating_point())


def seed(n, k):
    """What the k-th tensor of n elements is multiplied with before it is summed: numbers of six bits."""
    i = torch.arange(n, dtype=torch.int64)
    return ((i * 37 + k * 11 + 5) % 64 * 2 - 63).double() / 32


def weighed(outs):
    """The sum of all floating-point results times their seeds, or None where nothing has a gradient."""
    total = None
    for k, y in enumerate(outs):
        if isinstance(y, torch.Tensor) and y.is_floating_point() and y.requires_grad:
            s = (y * seed(y.numel(), k).to(y.dtype).reshape(y.shape)).sum()
            total = s if total is None else total + s
    return total


def flat(out):
    """Results in a row: tensors, numbers, truth values."""
    if isinstance(out, (list, tuple)) and not isinstance(out, torch.Size):
        return [v for o in out for v in flat(o)]
    return [out]


def shaken(t):
    """t with each number changed by 2⁻²⁴ of itself, up or down by chance."""
    return t * (1 + 2.0 ** -24 * (torch.randint(0, 2, t.shape, generator=CHANCE) * 2 - 1).double())


class Shaking(TorchDispatchMode):
    """While it is on, every new tensor of float64 that an operator returns is shaken."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        there = {t.untyped_storage().data_ptr() for t in leaves_of([list(args), kwargs or {}]) if t.layout == torch.strided}

        def change(v):
            if not isinstance(v, torch.Tensor) or v.dtype != torch.float64 or v.layout != torch.strided or v.untyped_storage().data_ptr() in there:
                return v
            return shaken(v)
        if isinstance(out, (list, tuple)):
            return type(out)(*map(change, out)) if hasattr(out, "_fields") else type(out)(map(change, out))
        return change(out)


def run(call, args, to, order, noise=False):
    """Calls on copies of args in type to. Returns results, gradients (order > 0) and second gradients (order > 1).

    With noise the operands are shaken, and all that is computed on the way.
    """
    if noise:
        with Shaking():
            return run_plain(call, args, to, order, True)
    return run_plain(call, args, to, order, False)


def run_plain(call, args, to, order, noise):
    made = []

    def change(v):
        if isinstance(v, torch.dtype):
            return torch.float64 if to == torch.float64 and v.is_floating_point else v
        c = fresh(v, to, order > 0 and v.requires_grad)
        if noise and v.is_floating_point():
            c = shaken(c.detach()).requires_grad_(c.requires_grad)
        if c.requires_grad:
            made.append(c)
        return c

    before = torch.get_default_dtype()
    if to == torch.float64:
        torch.set_default_dtype(torch.float64)
    try:
        outs = flat(call(replaced(args, change)))
        total = weighed(outs) if order > 0 and made else None
        if total is None:
            return outs, None, None
        grads = torch.autograd.grad(total, made, create_graph=order > 1, allow_unused=True)
        seconds = None
        if order > 1:
            total = weighed(grads)
            if total is None:
                seconds = [None] * len(made)
            else:
                seconds = torch.autograd.grad(total, made, allow_unused=True)
        return outs, [None if g is None else g.detach() for g in grads], seconds
    finally:
        torch.set_default_dtype(before)


class File:
    """Rows and tensors of one file."""

    def __init__(self, script, number):
        self.meta = golden.versions(script, number)
        self.rows, self.tensors, self.named = [], [], {}

    def put(self, t):
        """The name of t's contents in the file."""
        if t.is_complex() or t.dtype not in TYPES:
            raise Unsaid("complex" if t.is_complex() else "type " + str(t.dtype))
        if t.layout != torch.strided:
            raise Unsaid("sparse")
        if t.device.type != "cpu":
            raise Unsaid("a tensor of another device")
        t = torch.empty(t.shape, dtype=t.dtype).copy_(t.detach())  # also of what stands for zeros, or has odd strides
        raw = t.reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""
        key = (t.dtype, tuple(t.shape), raw)
        if key not in self.named:
            self.named[key] = str(len(self.tensors))
            self.tensors.append((TYPES[t.dtype], list(t.shape), raw))
        return self.named[key]

    def value(self, v):
        """v as JSON."""
        if isinstance(v, torch.Tensor):
            if type(v) not in (torch.Tensor, torch.nn.Parameter) or v.is_quantized:
                raise Unsaid("type " + type(v).__name__)
            if v.layout != torch.strided:
                raise Unsaid("sparse")
            said = {"T": self.put(v)}
            if not v.is_contiguous() and v.numel() > 0:
                said["strides"] = list(v.stride())
            return said
        if isinstance(v, (bool, int, str)) or v is None:
            return v
        if isinstance(v, float):
            return v if math.isfinite(v) else {"float": str(v)}
        if isinstance(v, torch.dtype):
            if v not in NAMES:
                raise Unsaid("type " + str(v))
            return {"dtype": NAMES[v]}
        if isinstance(v, torch.device):
            return {"device": str(v)}
        if isinstance(v, (torch.layout, torch.memory_format)):
            return {"layout": str(v)}
        if isinstance(v, slice):
            return {"slice": [self.value(x) for x in (v.start, v.stop, v.step)]}
        if v is Ellipsis:
            return {"ellipsis": True}
        if isinstance(v, torch.Size) or isinstance(v, list):
            return [self.value(x) for x in v]
        if isinstance(v, tuple):
            return {"tuple": [self.value(x) for x in v]}
        if isinstance(v, complex):
            raise Unsaid("complex")
        if isinstance(v, dict):
            return {"dict": {k: self.value(x) for k, x in v.items()}}
        if isinstance(v, np.generic):
            return self.value(v.item())
        if callable(v):
            raise Unsaid("a function as an argument")
        raise Unsaid("an argument of type " + type(v).__name__)

    def numbers(self, own, ref, moved):
        """One tensor that came out, in its own type and in float64, and what it moves by; see [moves]."""
        if own is None:
            return None
        if not isinstance(own, torch.Tensor):
            return {"value": self.value(own)}
        if own.layout != torch.strided:
            raise Unsaid("sparse")
        said = {"own": self.put(own)}
        if own.is_floating_point() and isinstance(ref, torch.Tensor):
            said["ref"] = self.put(ref.double())
            if ref.dtype != torch.float64:
                said["to"] = NAMES[ref.dtype]  # of float64 operands too
            if moved is not None and own.numel():
                said["terms"] = self.put(moved)
        return said

    def write(self, path, rows_name="rows"):
        header, data, at = {"__metadata__": dict(sorted({**self.meta, rows_name: json.dumps(self.rows, separators=(",", ":"))}.items()))}, [], 0
        order = sorted(range(len(self.tensors)), key=lambda i: (self.tensors[i][0], i))
        for i in order:
            kind, shape, raw = self.tensors[i]
            header[str(i)] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(raw)]}
            data.append(raw)
            at += len(raw)
        head = json.dumps(header, separators=(",", ":")).encode()
        head += b" " * (-len(head) % 8)
        raw = len(head).to_bytes(8, "little") + head + b"".join(data)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + ".part", "wb") as f, gzip.GzipFile("", "wb", 9, f, 0) as z:
            z.write(raw)
        os.replace(path + ".part", path)


def exponents(m, a):
    """What a moves by in bytes, as [moves] says, m being the largest change."""
    finite = a[a.isfinite()].abs()
    cap = 256 * (finite.max().item() if finite.numel() else 0)
    e = torch.where(m > 0, torch.ceil(torch.log2(torch.clamp(m * 2.0 ** 24, max=cap))) + 128, torch.zeros_like(m))
    return e.clamp(0, 255).to(torch.uint8)


def moves(call, args, order, times=8):
    """How far each result, gradient and second gradient moves when all that goes in and all on the way is changed by 2⁻²⁴ of itself.

    The largest change of a few tries with signs drawn by chance, divided by 2⁻²⁴: what is added up in a result, or the
    condition of what is not a sum. It is returned as a power of two, plus 128, in a byte; 0 where nothing moves.
    """
    base = run(call, args, torch.float64, order)
    most = None
    for _ in range(times):
        try:
            other = run(call, args, torch.float64, order, noise=True)
        except RuntimeError:
            continue  # a probability beyond 1
        far = []
        for part, moved in zip(base, other):
            for a, b in zip(part or [], moved or []):
                if not isinstance(a, torch.Tensor) or not a.is_floating_point() or not isinstance(b, torch.Tensor) or a.shape != b.shape:
                    far.append(None)
                else:
                    far.append((a.detach().double() - b.detach().double()).abs().nan_to_num(0, 0, 0))
        if most is None:
            most = far
        else:
            most = [m if m is None or f is None else torch.maximum(m, f) for m, f in zip(most, far)]
    if most is None:
        most = [None] * sum(len(part or []) for part in base)
    said, k = [], 0
    for part in base:
        here = []
        for a in part or []:
            m = most[k]
            k += 1
            if m is None or a is None:
                here.append(None)
                continue
            here.append(exponents(m, a.detach().double()))
        said.append(here)
    return base, said

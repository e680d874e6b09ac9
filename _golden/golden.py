"""Writes golden files in the format that Go's internal/golden reads.

A golden file is a gzipped safetensors file. Its __metadata__ holds strings; the key "cases" is a JSON list that says which
tensors are operands, results and gradients of which case. The package comment of internal/golden is the specification.
"""

import gzip
import json
import os
import platform

import numpy as np
import safetensors.numpy
import torch

REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

torch.set_num_threads(1)  # the order of summation is then the same on each machine
torch.use_deterministic_algorithms(True)


def versions(script, seed):
    """The information that is needed to make the file again."""
    return {
        "script": "_golden/" + os.path.basename(script),
        "seed": str(seed),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
    }


DTYPES = {"float32": "F32", "float64": "F64", "int64": "I64", "uint8": "U8", "bool": "BOOL"}


def serialize(tensors, meta):
    """The bytes of a safetensors file. The same content gives the same bytes, unlike in the library, where the order of the header varies."""
    header, data = {"__metadata__": dict(sorted(meta.items()))}, []
    at = 0
    for name, array in sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0])):
        text = array.astype(array.dtype.newbyteorder("<")).tobytes()
        header[name] = {"dtype": DTYPES[array.dtype.name], "shape": list(array.shape), "data_offsets": [at, at + len(text)]}
        data.append(text)
        at += len(text)
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    return len(raw).to_bytes(8, "little") + raw + b"".join(data)


class Operand:
    """A contiguous tensor, and the views that turn it into the operand.

    views is a list of (name, arguments): transpose(dim0, dim1), narrow(dim, start, length), expand(*size).
    """

    def __init__(self, base, *views, grad=True):
        self.base, self.views = base, list(views)
        self.grad = grad and base.is_floating_point()

    def tensor(self, dtype):
        """The operand as a leaf. Its strides are those of the views. Floating point data is converted to dtype."""
        t = self.base.to(dtype) if self.base.is_floating_point() else self.base
        for name, args in self.views:
            t = getattr(t, name)(*args)
        return t.detach().requires_grad_(self.grad)


def tiled(fn):
    """The elementwise function fn, computed on 64 copies of the operands one after another, so that PyTorch uses whole SIMD vectors."""
    def run(*operands):
        full = torch.broadcast_tensors(*operands)
        return fn(*[x.reshape(-1).repeat(64) for x in full])[:full[0].numel()].reshape(full[0].shape)
    return run


def single(fn):
    """The elementwise function fn, computed on single elements, so that PyTorch uses no SIMD vectors."""
    def run(*operands):
        full = torch.broadcast_tensors(*operands)
        parts = [fn(*e) for e in zip(*[x.reshape(-1).unbind() for x in full])]
        return torch.stack(parts).reshape(full[0].shape) if parts else fn(*full)
    return run


class File:
    """Collects tensors and cases and writes them."""

    def __init__(self, script, seed):
        self.meta, self.cases, self.tensors = versions(script, seed), [], {}
        self.generator = torch.Generator().manual_seed(seed)

    def randn(self, *shape, scale=1.0):
        """Normal float32 numbers of the file's generator."""
        return torch.randn(shape, generator=self.generator) * scale

    def randint(self, low, high, shape):
        return torch.randint(low, high, shape, generator=self.generator)

    def store(self, name, t):
        """Stores a tensor under name and returns the name."""
        if name in self.tensors:
            raise KeyError(f"{name} is stored twice")
        array = t.detach().numpy() if isinstance(t, torch.Tensor) else t
        self.tensors[name] = np.ascontiguousarray(array).reshape(array.shape)
        return name

    def case(self, op, name, fn, operands, also=(), **args):
        """Runs fn(*tensors) on float32 and on float64 and records operands, results and gradients.

        also lists functions that compute the same as fn in another arrangement. If one of them returns a zero of the other
        sign, the sign depends in PyTorch on the place of the element in a SIMD vector. The mask "torn" marks these elements.

        The gradients of the floating point operands are those of the sum of all elements of result · seed, for a random seed.
        """
        operands = [o if isinstance(o, Operand) else Operand(o) for o in operands]
        key = f"{op}/{name}"
        row = {"op": op, "name": name, "args": args, "in": [], "out": []}
        for i, o in enumerate(operands):
            entry = {"base": self.store(f"{key}/in{i}", o.base)}
            if o.views:
                entry["views"] = [[v, list(a)] for v, a in o.views]
            row["in"].append(entry)
        result = {}
        seed = None
        torn = torch.tensor(False)
        for label, dtype in (("f32", torch.float32), ("f64", torch.float64)):
            leaves = [o.tensor(dtype) for o in operands]
            y = fn(*leaves)
            result[label] = self.store(f"{key}/out_{label}", y)
            for other in also:
                z = other(*leaves).detach()
                torn = torn | (y == 0) & (z == 0) & (y.signbit() != z.signbit())
            wanted = [(i, t) for i, t in enumerate(leaves) if t.requires_grad]
            if not (wanted and y.requires_grad):
                continue
            if seed is None:
                seed = self.randn(*y.shape)
                result["seed"] = self.store(f"{key}/seed", seed)
            grads = torch.autograd.grad(y, [t for _, t in wanted], seed.to(dtype))
            for (i, _), g in zip(wanted, grads):
                row["in"][i]["grad_" + label] = self.store(f"{key}/grad{i}_{label}", g)
        if torn.any():
            result["torn"] = self.store(f"{key}/torn", torn)
        row["out"].append(result)
        self.cases.append(row)

    def write(self, path, **meta):
        """Writes the file to path in the repository. The same content gives the same bytes."""
        meta = {**self.meta, **{k: v if isinstance(v, str) else json.dumps(v) for k, v in meta.items()}}
        if self.cases:
            meta["cases"] = json.dumps(self.cases, separators=(",", ":"), allow_nan=False)
        raw = serialize(self.tensors, meta)
        back = safetensors.numpy.load(raw)  # the library of the format can read the file
        assert back.keys() == self.tensors.keys() and all(back[k].tobytes() == v.tobytes() for k, v in self.tensors.items())
        path = os.path.join(REPOSITORY, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f, gzip.GzipFile(filename="", fileobj=f, mode="wb", compresslevel=9, mtime=0) as z:
            z.write(raw)
        print(f"{path}: {os.path.getsize(path)} bytes, {len(self.cases)} cases, {len(self.tensors)} tensors")

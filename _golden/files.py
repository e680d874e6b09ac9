"""Writes files for the tests of reading: PyTorch's for package torchfile, saved in the usual ways, safetensors' for package safetensors, and
NumPy's for package npy.

Each tensor "x" of a .pt file stands beside "x.type", "x.shape", "x.stride" and "x.values". A reader must find the same.
"""

import os
import warnings
from collections import OrderedDict

import numpy as np
import safetensors.torch
import torch

from golden import REPOSITORY

SEED = 0
DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
          torch.float64]


def told(tensors):
    """The tensors, and beside each its type, shape, strides and values."""
    out = OrderedDict()
    for name, x in tensors.items():
        out[name] = x
        out[name + ".type"] = str(x.dtype)
        out[name + ".shape"] = list(x.shape)
        out[name + ".stride"] = list(x.stride())
        out[name + ".values"] = [float(v) for v in x.detach().reshape(-1).tolist()]
    return out


def tensors():
    out = OrderedDict()
    for t in DTYPES:
        out[str(t).removeprefix("torch.")] = (torch.arange(6) * 11 % 7).reshape(2, 3).to(t)
    base = torch.arange(60.).reshape(3, 4, 5)
    out["base"] = base
    out["transposed"] = base.transpose(0, 2)
    out["row"] = base[1, 2]
    out["column"] = base[:, 1:3, 4]
    out["expanded"] = torch.tensor([3., 4.])[:, None].expand(2, 3)
    out["unfolded"] = torch.arange(5.).unfold(0, 3, 1)
    out["scalar"] = torch.tensor(2.5)
    out["empty"] = torch.empty(0, 4)
    out["parameter"] = torch.nn.Parameter(torch.ones(2))
    out["special"] = torch.tensor([float("inf"), -0.0, 1e-45, 3.4e38])
    return out


def everything():
    shared = [1, 2]
    return {
        "tensors": told(tensors()),
        "numbers": [0, 1, -1, 255, 256, 65536, -2**31, 2**31, -2**63, 2**63 - 1, 2**64, -2**70, 1.5, float("inf"), True, False, None],
        "strings": ["", "a", "ä∂\U0001f525", "x" * 300],
        "bytes": b"\x00\xffab", "bytearray": bytearray(b"xyz"),
        "tuple": (1, (2, ()), [3]),
        "set": {5},
        "ints": {0: "zero", -7: {"exp_avg": torch.ones(1)}},
        "mixed": {"a": 1, 2: "b", (1, "c"): None, None: 2.5, True: 3},
        "order": OrderedDict([("z", 1), ("a", 2)]),
        "size": torch.Size([2, 3]), "dtype": torch.bfloat16, "device": torch.device("cuda", 1),
        "shared": [shared, shared],
    }


def training():
    """A checkpoint of a model, its optimizer and its scheduler."""
    torch.manual_seed(SEED)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(5, 3)).square().sum().backward()
        optimizer.step()
        scheduler.step()
    return {"epoch": 3, "model_state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}


def numpy_arrays():
    out = {}
    for t in ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]:
        out[t] = (np.arange(6) * 11 % 7).reshape(2, 3).astype(t)
    out["fortran"] = np.asfortranarray(np.arange(24.).reshape(2, 3, 4))
    out["big"] = np.arange(4, dtype=">i4")
    out["scalar"] = np.float32(2.5)
    out["empty"] = np.zeros((0, 3), np.float32)
    return out


def main():
    folder = os.path.join(REPOSITORY, "torchfile", "testdata")
    os.makedirs(folder, exist_ok=True)
    for name, tree in [("everything", everything()), ("training", training())]:
        torch.save(tree, os.path.join(folder, name + ".pt"))
        torch.save(tree, os.path.join(folder, name + "_legacy.pt"), _use_new_zipfile_serialization=False)
    torch.save(told({"a": torch.arange(3.)}), os.path.join(folder, "protocol5.pt"), pickle_protocol=5)
    refused = os.path.join(folder, "refused")
    os.makedirs(refused, exist_ok=True)
    warnings.simplefilter("ignore")
    for name, value in [
        ("complex", torch.ones(2, dtype=torch.complex64)), ("complexnumber", 1j), ("sparse", torch.eye(2).to_sparse()),
        ("quantized", torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)), ("float8", torch.ones(2).to(torch.float8_e4m3fn)),
        ("uint16", torch.ones(2, dtype=torch.uint16)), ("numpy", np.float32(1)), ("module", torch.nn.ReLU()), ("storage", torch.ones(2).untyped_storage()),
    ]:
        torch.save(value, os.path.join(refused, name + ".pt"))
    torch.jit.save(torch.jit.script(torch.nn.ReLU()), os.path.join(refused, "script.pt"))

    folder = os.path.join(REPOSITORY, "safetensors", "testdata")
    os.makedirs(folder, exist_ok=True)
    flat = {name: x.detach().clone().contiguous() for name, x in tensors().items()}
    values = {name: " ".join(map(repr, (float(v) for v in x.reshape(-1).tolist()))) for name, x in flat.items()}
    safetensors.torch.save_file(flat, os.path.join(folder, "python.safetensors"), values)

    folder = os.path.join(REPOSITORY, "npy", "testdata")
    os.makedirs(folder, exist_ok=True)
    arrays = numpy_arrays()
    np.savez(os.path.join(folder, "arrays.npz"), **arrays)
    np.savez_compressed(os.path.join(folder, "compressed.npz"), **arrays)
    for version in [(1, 0), (2, 0), (3, 0)]:
        with open(os.path.join(folder, "version%d.npy" % version[0]), "wb") as f:
            np.lib.format.write_array(f, arrays["fortran"], version=version)
    for name, a in [("structured", np.zeros(2, [("a", "<f4"), ("b", "<i4")])), ("complex", np.ones(2, np.complex64)), ("object", np.array([None])),
                    ("text", np.array(["ab"])), ("uint32", np.ones(2, np.uint32))]:
        np.save(os.path.join(folder, name + ".npy"), a)


if __name__ == "__main__":
    main()

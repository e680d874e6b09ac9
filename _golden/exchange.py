"""Reads files that the tests in Go wrote with PyTorch, safetensors and NumPy. Lets the tests read files that these libraries wrote.

    FLAMBEAU_EXCHANGE=/tmp/exchange go test -count=1 ./torchfile ./safetensors ./npy -run 'TestSave'
    python3 exchange.py /tmp/exchange

does the first half; without an argument the script runs both itself. It stops at the first difference.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
from collections import OrderedDict

import numpy as np
import safetensors
import safetensors.torch
import torch

from golden import REPOSITORY


def equal(a, b):
    return a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


def check_told(told):
    """Compares each tensor with the type, shape and values that are stored beside it."""
    n = 0
    for name, x in told.items():
        if isinstance(x, torch.Tensor):
            n += 1
            assert told[name + ".type"] == x.dtype, name
            assert told[name + ".shape"] == tuple(x.shape), name
            assert all(equal(a, float(b)) for a, b in zip(told[name + ".values"], x.reshape(-1).tolist(), strict=True)), name
    return n


def check_torchfile(folder):
    path = os.path.join(folder, "ours.pt")
    for mmap in [False, True]:
        tree = torch.load(path, weights_only=True, mmap=mmap)
        told = tree["tensors"]
        assert check_told(told) == 17
        assert told["base"].untyped_storage().data_ptr() == told["row"].untyped_storage().data_ptr()
        assert told["transposed"].stride() == (1, 5, 20) and told["part"].untyped_storage().nbytes() == 80
        assert type(tree["state_dict"]) is OrderedDict and list(tree["state_dict"]) == ["a", "b"]
        assert tree["optimizer"]["state"][0]["step"] == 3 and tree["optimizer"]["param_groups"][0]["betas"] == (0.9, 0.999)
        assert tree["numbers"] == [0, 255, 256, 65535, 65536, -1, -2**31, 2**31, -2**63, 2**90, -2**90, 0.1]
        assert tree["text"] == "ä∂\U0001f525" and tree["bytes"] == b"\x00\xff" and tree["set"] == {5}
        assert tree["dtype"] is torch.float16 and tree["device"] == torch.device("cuda:1")
        assert tree[7] == "seven" and tree[None] is True and tree[("a", 1)] == ()
    p = torch.load(os.path.join(folder, "plain.pt"), weights_only=True)
    assert p["ints"] == [1, -2, 1 << 40] and p["widths"] == [-8, 16, -32, 8, 16, 1 << 31, 1 << 63, 7]
    assert p["floats"] == [0.1, -math.inf] and p["float32"] == [0.5, 0.25] and p["bools"] == [True, False]
    assert p["strings"] == ["ä", ""] and p["nested"] == [[1.0], [], [2.0, 3.0]] and p["array"] == [1, 2, 3]
    assert p["bytes"] == b"\x00\xff" and p["raw"] == b"\x01\x02" and p["types"] == [torch.float16, torch.int64]
    assert p["history"] == {"loss": [0.5, 0.25], "accuracy": [0.75]} and p["ids"] == {"a": 1, "b": 2}
    assert p["labels"] == {7: "seven", -1: "none", 10: "ten"} and p["scores"] == {0.5: True} and p["flags"] == {True: 1, False: 0}
    assert p["mixed"] == {1: "one", "two": 2, 3.5: None} and p["maps"] == [{"lr": 0.1}, {}]
    assert p["time"] == 10**9 and p["celsius"] == 36.5 and p["names"] == ["x"] and p["nothing"] == [] and p["empty"] == {}
    assert p["scalar"] == 1.5 and p["flag"] is True and [x.tolist() for x in p["tensors"]] == [[1, 1], [0]]
    assert p["layers"]["fc"]["weight"].tolist() == [[1, 1]] and type(p["ints"][0]) is int and type(p["bools"][0]) is bool
    print("torchfile: what Go saved is what PyTorch reads")


def check_safetensors(folder):
    path = os.path.join(folder, "ours.safetensors")
    with safetensors.safe_open(path, "pt") as f:
        assert f.metadata() == {"format": "pt", 'a"<': "ä"}
    tensors = safetensors.torch.load_file(path)
    assert len(tensors) == 15
    for t in ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]:
        x = torch.arange(6.).reshape(2, 3).to(getattr(torch, t))
        assert tensors[t].dtype == x.dtype and torch.equal(tensors[t], x), t
    assert tensors["scalar"].shape == () and tensors["scalar"] == 7 and tensors["empty"].shape == (0, 4)
    assert tensors["strided"].tolist() == [[1, 3], [2, 4]] and torch.equal(tensors["large"], torch.arange(100_000.))
    assert tensors["ä∂\U0001f525"].tolist() == [-1]
    folder = os.path.join(folder, "sharded")
    with open(os.path.join(folder, "model.safetensors.index.json")) as f:
        index = json.load(f)
    assert index["metadata"]["total_size"] == 6400 and len(index["weight_map"]) == 11
    for name, file in index["weight_map"].items():
        x = safetensors.torch.load_file(os.path.join(folder, file))[name]
        assert torch.equal(x, torch.ones(600) if name == "wide" else torch.full((100,), float(name.split(".")[1]))), name
    print("safetensors: what Go saved is what Python reads")


def check_npy(folder):
    arrays = np.load(os.path.join(folder, "ours.npz"))
    assert len(arrays.files) == 15
    for t in ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]:
        x = np.arange(6).reshape(2, 3).astype(t)
        assert arrays[t].dtype == x.dtype and np.array_equal(arrays[t], x), t
    assert arrays["scalar"].shape == () and arrays["scalar"] == 2.5 and arrays["empty"].shape == (0, 4)
    assert arrays["vector"].tolist() == [1, 2] and arrays["strided"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert arrays["layer/weight"].shape == (2, 2) and arrays["ä"].tolist() == [1]
    for mode in [None, "r"]:
        x = np.load(os.path.join(folder, "ours.npy"), mmap_mode=mode)
        assert x.dtype == np.float32 and x.tolist() == [[0, 1, 2], [3, 4, 5]]
    print("npy: what Go saved is what NumPy reads")


CHECKS = [check_torchfile, check_safetensors, check_npy]


def main():
    if len(sys.argv) > 1:
        for check in CHECKS:
            check(sys.argv[1])
        return
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, FLAMBEAU_EXCHANGE=folder)
        packages = ["./torchfile", "./safetensors", "./npy"]
        subprocess.run(["go", "test", "-count=1", "-run", "TestSave"] + packages, cwd=REPOSITORY, env=env, check=True)
        for check in CHECKS:
            check(folder)


if __name__ == "__main__":
    main()

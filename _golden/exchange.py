"""Reads with PyTorch, safetensors and NumPy what the tests in Go wrote, and lets those read what these write.

    FLAMBEAU_EXCHANGE=/tmp/exchange go test -count=1 ./torchfile ./safetensors ./npy -run 'TestSave'
    python3 exchange.py /tmp/exchange

does the first half; without an argument the script runs both itself. It stops at the first difference.
"""

import math
import os
import subprocess
import sys
import tempfile
from collections import OrderedDict

import torch

from golden import REPOSITORY


def equal(a, b):
    return a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


def check_told(told):
    """Each tensor is what the values beside it say."""
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
    print("torchfile: what Go saved is what PyTorch reads")


CHECKS = [check_torchfile]


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

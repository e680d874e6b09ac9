"""Golden table of the results of PyTorch's samplers and default_collate. Writes data/testdata/torch.json.

"distributed": DistributedSampler's indices of every rank, in order. "batches": the sizes of BatchSampler's batches. "collate":
default_collate of samples, with tensors written as {"shape", "dtype", "data"}.
"""

import json
import os

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler, default_collate, random_split

from golden import REPOSITORY, versions

SEED = 11


def distributed():
    rows = []
    for n in (1, 2, 3, 7, 10, 12):
        for world in (1, 2, 3, 5):
            for drop in (False, True):
                if drop and n < world:
                    continue  # an assertion in PyTorch fails
                ranks = []
                for rank in range(world):
                    s = DistributedSampler(range(n), num_replicas=world, rank=rank, shuffle=False, drop_last=drop)
                    assert len(s) == len(list(s))
                    ranks.append(list(s))
                rows.append({"n": n, "world": world, "drop": drop, "ranks": ranks})
    return rows


def batches():
    rows = []
    for n in (0, 1, 6, 7):
        for size in (1, 3, 7, 8):
            for drop in (False, True):
                b = BatchSampler(SequentialSampler(range(n)), size, drop)
                rows.append({"n": n, "size": size, "drop": drop, "len": len(b), "sizes": [len(x) for x in b]})
    return rows


def repeated():
    """The least and the greatest number of times that a RandomSampler without replacement draws one of n samples."""
    rows = []
    for n, samples in ((4, 4), (4, 10), (3, 2)):
        order = list(RandomSampler(range(n), num_samples=samples))
        rows.append({"n": n, "samples": samples, "least": min(order.count(i) for i in range(n)), "most": max(order.count(i) for i in range(n))})
    return rows


def splits():
    """The sizes of random_split's parts of 10 samples."""
    rows = []
    for f in ([0.5, 0.5], [0.7, 0.2, 0.1], [1 / 3, 1 / 3, 1 / 3], [0.25, 0.25, 0.25, 0.25], [1.0]):
        rows.append({"fractions": f, "sizes": [len(p) for p in random_split(range(10), f)]})
    return rows


def plain(v):
    if isinstance(v, torch.Tensor):
        return {"shape": list(v.shape), "dtype": str(v.dtype).removeprefix("torch."), "data": v.flatten().tolist()}
    if isinstance(v, dict):
        return {k: plain(x) for k, x in v.items()}
    return [plain(x) for x in v] if isinstance(v, (list, tuple)) else v


def collate():
    cases = {
        "float": [1.5, 2.5],
        "int": [3, 4, 5],
        "tensor": [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])],
        "string": ["a", "b"],
        "map": [{"ids": torch.tensor([1, 2]), "name": "x", "weight": 0.5}, {"ids": torch.tensor([3, 4]), "name": "y", "weight": 0.25}],
        "list": [[torch.tensor([1.0]), 7, "p"], [torch.tensor([2.0]), 8, "q"]],
        "nested": [{"a": [1, {"b": 2.0}]}, {"a": [3, {"b": 4.0}]}],
        "strings": [["a", "b"], ["c", "d"]],
    }
    return {name: plain(default_collate(v)) for name, v in cases.items()}


def padded():
    cases = {
        "ints": [torch.tensor([1, 2, 3]), torch.tensor([4]), torch.tensor([], dtype=torch.int64)],
        "floats": [torch.tensor([1.0], dtype=torch.float64), torch.tensor([2.0, 3.0], dtype=torch.float64)],
        "bytes": [torch.tensor([1], dtype=torch.int8), torch.tensor([2, 3], dtype=torch.int8)],
        "rows": [torch.arange(1.0, 3).reshape(1, 2), torch.arange(3.0, 9).reshape(3, 2), torch.arange(9.0, 13).reshape(2, 2)],
        "even": [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])],
    }
    return {name: plain(pad_sequence(v, batch_first=True, padding_value=-1)) for name, v in cases.items()}


if __name__ == "__main__":
    torch.manual_seed(SEED)
    out = {"meta": versions(__file__, SEED), "distributed": distributed(), "batches": batches(), "repeated": repeated(), "splits": splits(), "collate": collate(), "padded": padded()}
    path = os.path.join(REPOSITORY, "data/testdata/torch.json")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in out.items()) + "\n}\n")

"""A case of bench/loader in PyTorch: torch_loader.py CASE SAMPLES WORKERS EPOCHS prints the median of the seconds a batch takes."""

import json
import statistics
import sys
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset


class InMemory(Dataset):
    """A dataset of samples that were made before."""

    def __init__(self, n, size, dtype):
        self.x = [np.zeros(size, dtype) for _ in range(n)]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], i


def dataset(kind, size, n):
    if kind == "tensors":
        return TensorDataset(torch.rand(n, size), torch.arange(n))
    return InMemory(n, size, np.uint8 if kind == "images" else np.float32)


def main():
    case, n, workers, epochs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    kind, size, batch = case.split("_")
    torch.set_num_threads(1)
    loader = DataLoader(dataset(kind, int(size), n), batch_size=int(batch[1:]), shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    times = []
    for epoch in range(epochs + 1):
        start, count = time.perf_counter(), 0
        for _ in loader:
            count += 1
        if epoch > 0:
            times.append((time.perf_counter() - start) / count)
    print(json.dumps(statistics.median(times)))


if __name__ == "__main__":
    main()

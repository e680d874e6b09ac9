"""Steps of optimizers in PyTorch (foreach) and here, on the CPU, turn by turn: medians of the ratios torch/ours, above 1 where we are faster.

    go build -o /tmp/optimizers ./bench/optimizers && python3 bench/optimizers/compare.py /tmp/optimizers 1

The number is that of threads of both. On a machine that does other things too, one thread is what can be compared: threads of PyTorch wait for
each other.
"""

import os
import statistics
import subprocess
import sys
import time

import torch

ROUNDS = 11
SETS = {"small": [(400, 256)], "mixed": [(60, 64), (60, 4096), (40, 36864)], "large": [(4, 1 << 20)]}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-4, momentum=0.9, foreach=True).step,
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-4, weight_decay=0.01, foreach=True).step,
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-4, foreach=True).step,
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=1e-4, foreach=True).step,
    "clip": lambda p: lambda: torch.nn.utils.clip_grad_norm_(p, 1e6, foreach=True),
}


def seconds(step):
    n, start = 0, time.perf_counter()
    while n < 3 or time.perf_counter() - start < 0.1:
        step()
        n += 1
    return (time.perf_counter() - start) / n


def main():
    threads = int(sys.argv[2])
    torch.set_num_threads(threads)
    ours = subprocess.Popen(sys.argv[1], env={**os.environ, "GOMAXPROCS": str(threads)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    for name, make in OPTIMIZERS.items():
        for which, groups in SETS.items():
            params = [torch.randn(size).requires_grad_() for count, size in groups for _ in range(count)]
            for p in params:
                p.grad = torch.randn_like(p)
            step = make(params)
            step()
            ratios, times = [], []
            for _ in range(ROUNDS):
                theirs = seconds(step)
                ours.stdin.write(f"{name} {which}\n")
                ours.stdin.flush()
                mine = float(ours.stdout.readline())
                ratios.append(theirs / mine)
                times.append(mine)
            print(f"{name:8} {which:6} {statistics.median(times) * 1e6:10.0f} us   torch/ours {statistics.median(ratios):5.2f}", flush=True)
    ours.stdin.close()
    ours.wait()


main()

"""The cases of bench/compare in PyTorch: python3 torch_compare.py cpu cuda:0 prints the same JSON rows."""

import json
import statistics
import sys
import time

import torch

BUDGET = 4.0


def sync(dev):
    if dev.type == "cuda":
        torch.cuda.synchronize(dev)


def measure(step, inner):
    for _ in range(2):
        step()
    times, start = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - start < BUDGET and len(times) < 1000:
        t = time.perf_counter()
        step()
        times.append((time.perf_counter() - t) / inner)
        if time.perf_counter() - start > 4 * BUDGET:
            break
    return times


def mlp(dev, batch, sizes):
    layers = []
    for i in range(len(sizes) - 1):
        if i:
            layers.append(torch.nn.ReLU())
        layers.append(torch.nn.Linear(sizes[i], sizes[i + 1]))
    model = torch.nn.Sequential(*layers).to(dev)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0, fused=True)
    x = torch.randn(batch, sizes[0], device=dev)
    y = torch.randint(0, sizes[-1], (batch,), device=dev)

    def step():
        for _ in range(10):
            torch.nn.functional.cross_entropy(model(x), y).backward()
            opt.step()
            opt.zero_grad()
        sync(dev)

    return measure(step, 10), batch, "samples/s"


def matmul(dev, n):
    a, b = torch.randn(n, n, device=dev), torch.randn(n, n, device=dev)

    def step():
        a @ b
        sync(dev)

    return measure(step, 1), 2 * n**3 / 1e9, "GFLOP/s"


def add(dev, n):
    a, b = torch.randn(n, device=dev), torch.randn(n, device=dev)

    def step():
        for _ in range(10):
            a + b
        sync(dev)

    return measure(step, 10), 12 * n / 1e9, "GB/s"


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    rows = []
    for name in sys.argv[1:] or ["cpu"]:
        dev = torch.device(name)
        product = torch.cuda.get_device_name(dev) if dev.type == "cuda" else "cpu"
        for case, f in [
            ("mlp_digits_b32", lambda: mlp(dev, 32, [64, 128, 10])),
            ("mlp_784_4096_4096_10_b128", lambda: mlp(dev, 128, [784, 4096, 4096, 10])),
            ("matmul_1024_f32", lambda: matmul(dev, 1024)),
            ("matmul_4096_f32", lambda: matmul(dev, 4096)),
            ("add_16M_f32", lambda: add(dev, 16 << 20)),
        ]:
            times, work, unit = f()
            m = statistics.median(times)
            rows.append(dict(device=name, device_name=product, emulated=False, case=case, median_seconds=m, min_seconds=min(times),
                             samples=len(times), rate=work / m, unit=unit, torch=torch.__version__))
            print(f"{name:8} {case:24} {work / m:12.1f} {unit}", file=sys.stderr)
    print(json.dumps(rows))


main()

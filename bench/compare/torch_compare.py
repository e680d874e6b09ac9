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


def cnn():
    """models.CNN: the same layers, sizes and dropout."""
    n = torch.nn
    return n.Sequential(
        n.Conv2d(1, 32, 3, padding=1, bias=False), n.BatchNorm2d(32), n.ReLU(), n.MaxPool2d(2),
        n.Conv2d(32, 64, 3, padding=1, bias=False), n.BatchNorm2d(64), n.ReLU(), n.AdaptiveAvgPool2d(2),
        n.Flatten(), n.Dropout(0.25), n.Linear(256, 128), n.ReLU(), n.Dropout(0.5), n.Linear(128, 10))


class Block(torch.nn.Module):
    def __init__(self, width, heads, p):
        super().__init__()
        n = torch.nn
        self.heads, self.p = heads, p
        self.ln_1, self.ln_2 = n.LayerNorm(width), n.LayerNorm(width)
        self.qkv, self.out = n.Linear(width, 3 * width), n.Linear(width, width)
        self.up, self.down = n.Linear(width, 4 * width), n.Linear(4 * width, width)

    def forward(self, x):
        f = torch.nn.functional
        b, t, w = x.shape
        q, k, v = self.qkv(self.ln_1(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        y = f.scaled_dot_product_attention(q, k, v, dropout_p=self.p, is_causal=True).transpose(1, 2).reshape(b, t, w)
        x = x + f.dropout(self.out(y), self.p)
        return x + f.dropout(self.down(f.gelu(self.up(self.ln_2(x)), approximate="tanh")), self.p)


class CharGPT(torch.nn.Module):
    """models.GPT of 4 layers, the weights of the head those of the embedding."""

    def __init__(self, vocab=65, context=64, layers=4, heads=4, width=128, p=0.1):
        super().__init__()
        n = torch.nn
        self.p = p
        self.wte, self.wpe = n.Embedding(vocab, width), n.Embedding(context, width)
        self.blocks, self.ln_f = n.ModuleList(Block(width, heads, p) for _ in range(layers)), n.LayerNorm(width)

    def forward(self, ids):
        x = torch.nn.functional.dropout(self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device)), self.p)
        for b in self.blocks:
            x = b(x)
        return self.ln_f(x) @ self.wte.weight.T


def train(dev, batch, model, make, autocast=None):
    """A step of AdamW on random batches; its peak of memory is that of the steps after the first."""
    model = model.to(dev)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0, fused=True)
    peak = {"bytes": 0, "steps": 0}

    def step():
        with torch.autocast(dev.type, dtype=autocast, enabled=autocast is not None):
            x, y = make()
            loss = torch.nn.functional.cross_entropy(model(x).flatten(0, -2), y.flatten())
        loss.backward()
        opt.step()
        opt.zero_grad()
        sync(dev)
        if dev.type == "cuda":
            if peak["steps"] == 0:
                torch.cuda.reset_peak_memory_stats(dev)
            peak["bytes"] = torch.cuda.max_memory_allocated(dev)
        peak["steps"] += 1

    times = measure(step, 1)
    return times, batch, "samples/s", peak["bytes"]


def images(dev):
    return lambda: (torch.randn(256, 1, 28, 28, device=dev), torch.randint(0, 10, (256,), device=dev))


def text(dev):
    return lambda: (torch.randint(0, 65, (32, 64), device=dev), torch.randint(0, 65, (32, 64), device=dev))


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
            ("cnn_b256", lambda: train(dev, 256, cnn(), images(dev))),
            ("chargpt_b32", lambda: train(dev, 32, CharGPT(), text(dev))),
            ("chargpt_b32_bf16", lambda: train(dev, 32, CharGPT(), text(dev), torch.bfloat16)),
            ("matmul_1024_f32", lambda: matmul(dev, 1024)),
            ("matmul_4096_f32", lambda: matmul(dev, 4096)),
            ("add_16M_f32", lambda: add(dev, 16 << 20)),
        ]:
            times, work, unit, *peak = f()
            m = statistics.median(times)
            rows.append(dict(device=name, device_name=product, emulated=False, case=case, median_seconds=m, min_seconds=min(times),
                             samples=len(times), rate=work / m, unit=unit, peak_bytes=peak[0] if peak else 0, torch=torch.__version__))
            print(f"{name:8} {case:24} {work / m:12.1f} {unit}", file=sys.stderr)
    print(json.dumps(rows))


main()

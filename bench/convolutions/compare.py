"""Times convolutions, pools and batch normalisation in PyTorch and in the program given, run by run in turns: python3 compare.py PROGRAM [CASE …]

Both use one thread, and processor time is compared, so that a machine with other work gives the same ratios. It prints, for each case, the
median milliseconds of both, the median of the ratios of neighbouring runs, PyTorch's time by ours (above 1 we are faster), and of convolutions
what rate that is in GFLOP/s, nominal: products with zeros of the padding count.
"""

import os
import statistics
import subprocess
import sys
import time

import torch

LAYERS = [  # images, channels, size, outputs, kernel, stride, groups
    "256 1 28 32 3 1 1", "256 32 14 64 3 1 1", "8 3 224 64 7 2 1", "8 64 56 64 3 1 1", "8 64 56 256 1 1 1", "8 256 56 512 1 2 1",
    "8 128 56 128 3 2 1", "8 256 14 256 3 1 1", "8 512 7 512 3 1 1", "8 512 7 2048 1 1 1", "8 128 56 128 3 1 128",
]
CASES = (
    [f"conv {part} {layer}" for layer in LAYERS for part in ("forward", "data", "weight") if part != "data" or " 1 28 " not in layer]
    + [f"{kind} {part} {sizes}" for kind, sizes in (
        ("max", "256 32 28 0 2 2 1"), ("max", "8 64 112 0 3 2 1"), ("avg", "8 64 56 0 2 2 1"), ("avg", "8 64 56 0 3 1 1"),
        ("adaptive", "256 64 14 2 0 0 1"), ("adaptive", "8 512 7 1 0 0 1"), ("norm", "256 32 28 0 0 0 1"), ("norm", "8 64 56 0 0 0 1"),
        ("relu", "256 32 28 0 0 0 1")) for part in ("forward", "data")]
    + ["cnn step 256 1 28 0 0 0 1", "lenet step 32 1 28 0 0 0 1", "resnet step 32 3 32 0 0 0 1",
       "resnet forward 1 3 224 0 0 0 1", "resnet forward 8 3 224 0 0 0 1"]
)
BUDGET = float(os.environ.get("SECONDS_A_CASE", "1"))


def layer(part, x, w, f):
    if part == "forward":
        def step():
            with torch.no_grad():
                f(x, w)
        return step, None
    of = w if part == "weight" else x
    of.requires_grad_()
    y = f(x, w)
    g = torch.randn_like(y)
    return lambda: torch.autograd.grad(y, of, g, retain_graph=True), y


def cnn(channels, size):
    """models.CNN."""
    n = torch.nn
    return n.Sequential(
        n.Conv2d(channels, 32, 3, padding=1, bias=False), n.BatchNorm2d(32), n.ReLU(), n.MaxPool2d(2),
        n.Conv2d(32, 64, 3, padding=1, bias=False), n.BatchNorm2d(64), n.ReLU(), n.AdaptiveAvgPool2d(2),
        n.Flatten(), n.Dropout(0.25), n.Linear(256, 128), n.ReLU(), n.Dropout(0.5), n.Linear(128, 10))


def lenet(channels, size):
    """models.LeNet."""
    n = torch.nn
    return n.Sequential(
        n.Conv2d(channels, 6, 5, padding=(32 - size) // 2), n.ReLU(), n.MaxPool2d(2), n.Conv2d(6, 16, 5), n.ReLU(), n.MaxPool2d(2),
        n.Flatten(), n.Linear(400, 120), n.ReLU(), n.Linear(120, 84), n.ReLU(), n.Linear(84, 10))


class Block(torch.nn.Module):
    """A block of ResNet-18."""

    def __init__(self, channels, outputs, stride):
        super().__init__()
        n = torch.nn
        self.conv1, self.bn1 = n.Conv2d(channels, outputs, 3, stride, 1, bias=False), n.BatchNorm2d(outputs)
        self.conv2, self.bn2 = n.Conv2d(outputs, outputs, 3, 1, 1, bias=False), n.BatchNorm2d(outputs)
        self.shortcut = None
        if stride > 1:
            self.shortcut = n.Sequential(n.Conv2d(channels, outputs, 1, stride, bias=False), n.BatchNorm2d(outputs))

    def forward(self, x):
        h = self.bn2(self.conv2(torch.relu_(self.bn1(self.conv1(x)))))
        return torch.relu_(h.add_(x if self.shortcut is None else self.shortcut(x)))


class ResNet18(torch.nn.Sequential):
    """torchvision's ResNet-18, with operations in place where it has them."""

    def __init__(self, channels, size):
        n = torch.nn
        super().__init__(
            n.Conv2d(channels, 64, 7, 2, 3, bias=False), n.BatchNorm2d(64), n.ReLU(inplace=True), n.MaxPool2d(3, 2, 1),
            *(Block(max(64, w // 2) if i == 0 else w, w, 2 if i == 0 and w > 64 else 1) for w in (64, 128, 256, 512) for i in range(2)),
            n.AdaptiveAvgPool2d(1), n.Flatten(), n.Linear(512, 1000))


def step_of(case):
    """The run of a case, and the floating point operations of a convolution."""
    kind, part, *sizes = case.split()
    n, channels, size, outputs, kernel, stride, groups = map(int, sizes)
    f = torch.nn.functional
    x = torch.randn(n, channels, size, size)
    if kind == "conv":
        w = torch.randn(outputs, channels // groups, kernel, kernel)
        to = (size + kernel // 2 * 2 - kernel) // stride + 1
        step, _ = layer(part, x, w, lambda x, w: f.conv2d(x, w, None, stride, kernel // 2, 1, groups))
        return step, 2 * n * outputs * to * to * (channels // groups) * kernel * kernel
    if kind in ("cnn", "lenet", "resnet"):
        model = {"cnn": cnn, "lenet": lenet, "resnet": ResNet18}[kind](channels, size)
        if part == "forward":
            model.eval()

            def infer():
                with torch.no_grad():
                    model(x)
            return infer, 0
        opt = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0, fused=True)
        classes = model[-1].out_features

        def train():
            f.cross_entropy(model(torch.randn(n, channels, size, size)), torch.randint(0, classes, (n,))).backward()
            opt.step()
            opt.zero_grad()
        return train, 0
    ops = {
        "max": lambda x, w: f.max_pool2d(x, kernel, stride, (kernel - 1) // 2),
        "avg": lambda x, w: f.avg_pool2d(x, kernel, stride, (kernel - 1) // 2),
        "adaptive": lambda x, w: f.adaptive_avg_pool2d(x, outputs),
        "relu": lambda x, w: f.relu(x),
    }
    if kind == "norm":
        ops["norm"] = lambda x, w, m=torch.nn.BatchNorm2d(channels): m(x)
    return layer(part, x, None, ops[kind])[0], 0


def main():
    torch.set_num_threads(1)
    ours = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "GOMAXPROCS": "1"})

    def go(case):
        ours.stdin.write(case + "\n")
        ours.stdin.flush()
        return float(ours.stdout.readline())

    print(f"torch {torch.__version__}, one thread each")
    for case in sys.argv[2:] or CASES:
        step, flops = step_of(case)
        step()
        go(case)
        theirs, mine, began = [], [], time.perf_counter()
        while len(mine) < 5 or time.perf_counter() - began < BUDGET and len(mine) < 100:
            t = time.process_time()
            step()
            theirs.append(time.process_time() - t)
            mine.append(go(case))
        ratio = statistics.median(a / max(b, 1e-9) for a, b in zip(theirs, mine))
        rates = f"  {flops / statistics.median(theirs) / 1e9:5.0f} and {flops / statistics.median(mine) / 1e9:4.0f} GFLOP/s" if flops else ""
        print(f"{case:34} torch {statistics.median(theirs) * 1e3:8.2f} ms  ours {statistics.median(mine) * 1e3:8.2f} ms  ratio {ratio:5.2f}{rates}", flush=True)
    ours.stdin.close()
    ours.wait()


if __name__ == "__main__":
    main()

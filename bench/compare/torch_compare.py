"""The cases of bench/compare in PyTorch: python3 torch_compare.py [--trial] [--only REGEXP] [--seconds 1.5] [--compile] cpu cuda:0 prints the same
lines of JSON.

--compile measures each step under torch.compile too, and tells the faster. With --peer it is the other side of compare against, as against.go
describes, for the cases of one device: python3 torch_compare.py --peer [--compile] cpu.
"""

import argparse
import gc
import json
import os
import re
import statistics
import sys
import time

# Computes float32 products in full precision, since some images enable TF32 for all programs.
os.environ.pop("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", None)
os.environ["NVIDIA_TF32_OVERRIDE"] = "0"

import torch

from torch_gpt import GPT
import torch_models

parser = argparse.ArgumentParser()
parser.add_argument("--trial", action="store_true")
parser.add_argument("--seconds", type=float, default=1.5)
parser.add_argument("--only", default="", help="the cases whose names this expression matches")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--peer", action="store_true")
parser.add_argument("devices", nargs="*", default=["cpu"])
args = parser.parse_args()
BUDGET = args.seconds
f32, bf16, f16, u8 = torch.float32, torch.bfloat16, torch.float16, torch.uint8


def size(n, small):
    return small if args.trial else n


def sync(dev):
    if dev.type == "cuda":
        torch.cuda.synchronize(dev)


def warm(dev, step):
    start = time.perf_counter()
    while True:
        step()
        sync(dev)
        if args.trial or time.perf_counter() - start > BUDGET / 4:
            break


def sample(dev, step, inner):
    """Seconds of a step by the host's clock, and by the GPU's events, of inner calls together, as in bench/compare."""
    cuda = dev.type == "cuda"
    least, most = (1, 1) if args.trial else (5, 1000)
    if cuda:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    host, device, began = [], [], time.perf_counter()
    while len(host) < least or time.perf_counter() - began < BUDGET and len(host) < most:
        t = time.perf_counter()
        if cuda:
            begin.record()
        for _ in range(inner):
            step()
        if cuda:
            end.record()
        sync(dev)
        host.append((time.perf_counter() - t) / inner)
        if cuda:
            device.append(begin.elapsed_time(end) / 1e3 / inner)
        if time.perf_counter() - began > 4 * BUDGET:
            break
    return host, device


def measure(dev, step, inner, gpu_time=False, compiled=torch.compile):
    """The faster of eager and compiled: seconds by the GPU's events where asked for, by the host's, the peak of memory, and the medians of both."""
    inner = 1 if args.trial else inner
    variants = {"eager": step}
    if args.compile:
        torch._dynamo.reset()  # steps of different cases share their code, and a code is compiled only a few times
        variants["compiled"] = compiled(step)

    def failed(name, e):
        if name == "eager":
            raise e
        print(f"{name}: {type(e).__name__}: {e}", file=sys.stderr)
        del variants[name]
        return f"{type(e).__name__}: {e}"

    if args.peer:
        return serve(dev, variants, inner, gpu_time, failed)
    best, medians = None, {}
    for name in list(variants):
        try:
            warm(dev, variants[name])
            if dev.type == "cuda":
                torch.cuda.reset_peak_memory_stats(dev)
            host, device = sample(dev, variants[name], inner)
        except Exception as e:
            failed(name, e)
            continue
        times = device if device and gpu_time else host
        medians[name] = statistics.median(times)
        if medians[name] == min(medians.values()):
            best = times, statistics.median(host), torch.cuda.max_memory_allocated(dev) if device else 0
    return *best, medians


def answer(told):
    print(json.dumps(told), flush=True)


def serve(dev, variants, inner, gpu_time, failed):
    """Answers the rounds of a case, until its end."""
    def each(f):
        told = {}
        for name in list(variants):
            try:
                told[name] = f(variants[name])
            except Exception as e:
                told[name] = {"error": failed(name, e)}
        return {name: a for name, a in told.items() if a}

    def seconds(step):
        host, device = sample(dev, step, inner)
        return {"seconds": statistics.median(device if device and gpu_time else host)}

    answer(each(lambda step: warm(dev, step)))
    for line in iter(sys.stdin.readline, "end\n"):
        answer(each(seconds))
    return [1], 1, 0, {}


def peer(dev):
    cases = {name: f for name, _, _, f in CASES + CPU_CASES}
    for line in sys.stdin:
        try:
            cases[line.split()[1]](dev)
        except Exception as e:
            answer({"": {"error": f"{type(e).__name__}: {e}"}})
            for line in iter(sys.stdin.readline, "end\n"):
                answer({})
        gc.collect()
        answer({})


def mlp(*sizes):
    sizes = [size(n, min(n, 32)) for n in sizes]
    layers = []
    for i in range(len(sizes) - 1):
        if i:
            layers.append(torch.nn.ReLU())
        layers.append(torch.nn.Linear(sizes[i], sizes[i + 1]))
    model = torch.nn.Sequential(*layers)
    return model, lambda dev, n: (torch.randn(n, sizes[0], device=dev), torch.randint(0, sizes[-1], (n,), device=dev))


def cnn():
    """models.CNN: the same layers, sizes and dropout."""
    n = torch.nn
    return n.Sequential(
        n.Conv2d(1, 32, 3, padding=1, bias=False), n.BatchNorm2d(32), n.ReLU(), n.MaxPool2d(2),
        n.Conv2d(32, 64, 3, padding=1, bias=False), n.BatchNorm2d(64), n.ReLU(), n.AdaptiveAvgPool2d(2),
        n.Flatten(), n.Dropout(0.25), n.Linear(256, 128), n.ReLU(), n.Dropout(0.5), n.Linear(128, 10))


def train(dev, batch, build, autocast=None, graph=False):
    """Steps of AdamW on random batches, eager or as a graph."""
    batch = size(batch, 2)
    model, make = build()
    model = count(model.to(dev))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0, fused=True, capturable=graph)

    def loss_of(x, y):
        return torch.nn.functional.cross_entropy(model(x).flatten(0, -2), y.flatten())

    def steps(f):
        def step():
            with torch.autocast(dev.type, dtype=autocast, enabled=autocast is not None):
                x, y = make(dev, batch)
                loss = f(x, y)
            loss.backward()
            opt.step()
            opt.zero_grad()
            return loss
        return step

    step = steps(loss_of)
    if graph:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g):
            step()
        return measure(dev, g.replay, 10), batch
    # Only the loss is compiled: with random numbers and the optimizer, mlp_digits_b64 was slower.
    told = measure(dev, step, 10, compiled=lambda step: steps(torch.compile(loss_of)))
    if dev.type == "cpu":
        MORE["loss"] = step().item()
    return told, batch


MORE = {}  # what a row says about the model


def count(model):
    MORE["parameters"] = sum(p.numel() for p in model.parameters())
    return model


def convolutions():
    side = size(28, 8)
    return cnn(), lambda dev, n: (torch.randn(n, 1, side, side, device=dev), torch.randint(0, 10, (n,), device=dev))


def text():
    context = size(64, 8)
    model = GPT(65, context, size(4, 1), 4, size(128, 32), 0.1)
    return model, lambda dev, n: (torch.randint(0, 65, (n, context), device=dev), torch.randint(0, 65, (n, context), device=dev))


def images(build, channels, side):
    return build(), lambda dev, n: (torch.randn(n, channels, side, side, device=dev), torch.randint(0, 10, (n,), device=dev))


def lstm():
    length = size(32, 4)
    return torch_models.Classifier(), lambda dev, n: (torch.randn(length, n, 64, device=dev), torch.randint(0, 10, (n,), device=dev))


@torch.no_grad()
def inferring(dev):
    side = size(224, 32)
    model, x = count(torch_models.resnet18(1000)).eval(), torch.randn(1, 3, side, side)
    return measure(dev, lambda: model(x), 1), 1


@torch.no_grad()
def decoding(dev):
    vocab, context, layers, heads, width, prompt = size(50257, 61), size(1024, 32), size(12, 1), size(12, 2), size(768, 64), size(128, 8)
    model = count(GPT(vocab, context, layers, heads, width, 0.0))
    caches = [torch.zeros(2, 1, heads, context, width // heads) for _ in range(layers)]
    model.decode(torch.randint(0, vocab, (1, prompt)), caches, 0)
    token = torch.randint(0, vocab, (1, 1))
    return measure(dev, lambda: model.decode(token, caches, prompt).argmax(-1).item(), 1), 1


def product(dev, t, m, n, k):
    m, n, k = size(m, min(m, 48)), size(n, min(n, 64)), size(k, min(k, 80))
    a, b = torch.randn(m, k, device=dev).to(t), torch.randn(k, n, device=dev).to(t)
    flops = 2 * m * n * k
    return measure(dev, lambda: a @ b, int(min(100, max(1, 2e11 / flops))), True), flops / 1e9


def vectors(dev, t, moved, f):
    n = size(256 << 20, 4096)
    a, b = torch.rand(n, device=dev).to(t), torch.rand(n, device=dev).to(t)
    return measure(dev, lambda: f(a, b), 10, True), moved * a.numel() * a.element_size() / 1e9


def square(a):
    n = int(a.numel() ** 0.5)
    return a.view(n, n)


def copying(dev):
    a, b = (torch.empty(size(1 << 30, 1 << 16), dtype=u8, device=dev) for _ in range(2))
    return measure(dev, lambda: b.copy_(a), 10, True), 2 * a.numel() / 1e9


def launching(dev):
    a, one = torch.zeros(1, device=dev), torch.ones(1, device=dev)
    return measure(dev, lambda: a.add_(one), 1000), None


def ordering(dev, n, small, operands, f):
    torch.manual_seed(1)
    n = size(n, small)
    x = operands(dev, n)
    with torch.no_grad():
        return measure(dev, lambda: f(*x), 10), n / 1e6


def token_rows(dev, n):
    vocab = min(50257, 16 * n)
    return torch.randn(n, 768, device=dev), torch.randint(0, vocab, (n,), device=dev), torch.zeros(vocab, 768, device=dev)


def numbers(dev, n):
    return (torch.randint(0, 1 << 20, (n,), device=dev),)


CASES = [  # in the order of cases.go: name, unit, for GPUs only, function
    ("add_256M_f32", "GB/s", True, lambda d: vectors(d, f32, 3, lambda a, b: a + b)),
    ("relu_256M_f32", "GB/s", True, lambda d: vectors(d, f32, 2, lambda a, b: a.relu())),
    ("add_256M_bf16", "GB/s", True, lambda d: vectors(d, bf16, 3, lambda a, b: a + b)),
    ("copy_1GiB", "GB/s", True, copying),
    ("matmul_4096_f32", "GFLOP/s", False, lambda d: product(d, f32, 4096, 4096, 4096)),
    ("mlp_784_4096_4096_10_b128", "samples/s", False, lambda d: train(d, 128, lambda: mlp(784, 4096, 4096, 10))),
    ("cnn_b256", "samples/s", False, lambda d: train(d, 256, convolutions)),
    ("chargpt_b32", "samples/s", False, lambda d: train(d, 32, text)),
    ("mlp_digits_b32", "samples/s", False, lambda d: train(d, 32, lambda: mlp(64, 128, 10))),
    ("chargpt_b32_bf16", "samples/s", False, lambda d: train(d, 32, text, bf16)),
    ("mlp_digits_b32_graph", "samples/s", True, lambda d: train(d, 32, lambda: mlp(64, 128, 10), graph=True)),
    ("cnn_b256_graph", "samples/s", True, lambda d: train(d, 256, convolutions, graph=True)),
    ("chargpt_b32_graph", "samples/s", True, lambda d: train(d, 32, text, graph=True)),
    ("launch_add_1", "ns", True, launching),
    ("matmul_1024_f32", "GFLOP/s", False, lambda d: product(d, f32, 1024, 1024, 1024)),
    ("matmul_2048_f32", "GFLOP/s", True, lambda d: product(d, f32, 2048, 2048, 2048)),
    ("matmul_8192_f32", "GFLOP/s", True, lambda d: product(d, f32, 8192, 8192, 8192)),
    ("matmul_16x4096x4096_f32", "GFLOP/s", True, lambda d: product(d, f32, 16, 4096, 4096)),
    ("matmul_128x4096x4096_f32", "GFLOP/s", True, lambda d: product(d, f32, 128, 4096, 4096)),
    ("matmul_4096x64x4096_f32", "GFLOP/s", True, lambda d: product(d, f32, 4096, 64, 4096)),
    ("matmul_4096x4096x64_f32", "GFLOP/s", True, lambda d: product(d, f32, 4096, 4096, 64)),
    ("matmul_256x256x65536_f32", "GFLOP/s", True, lambda d: product(d, f32, 256, 256, 65536)),
    ("matmul_4096_bf16", "GFLOP/s", True, lambda d: product(d, bf16, 4096, 4096, 4096)),
    ("matmul_8192_bf16", "GFLOP/s", True, lambda d: product(d, bf16, 8192, 8192, 8192)),
    ("matmul_4096_f16", "GFLOP/s", True, lambda d: product(d, f16, 4096, 4096, 4096)),
    ("gelu_256M_f32", "GB/s", True, lambda d: vectors(d, f32, 2, lambda a, b: torch.nn.functional.gelu(a))),
    ("exp_256M_f32", "GB/s", True, lambda d: vectors(d, f32, 2, lambda a, b: a.exp())),
    ("relu_256M_bf16", "GB/s", True, lambda d: vectors(d, bf16, 2, lambda a, b: a.relu())),
    ("add_odd_256M_f32", "GB/s", True, lambda d: vectors(d, f32, 3, lambda a, b: a[1:] + b[1:])),
    ("transpose_16K_f32", "GB/s", True, lambda d: vectors(d, f32, 2, lambda a, b: square(a).T.contiguous())),
    ("sum_256M_f32", "GB/s", True, lambda d: vectors(d, f32, 1, lambda a, b: a.sum())),
    ("sum_rows_256M_f32", "GB/s", True, lambda d: vectors(d, f32, 1, lambda a, b: a.view(-1, 1024).sum(1))),
    ("sum_columns_256M_f32", "GB/s", True, lambda d: vectors(d, f32, 1, lambda a, b: a.view(-1, 1024).sum(0))),
    ("softmax_256M_f32", "GB/s", True, lambda d: vectors(d, f32, 2, lambda a, b: a.view(-1, 1024).softmax(1))),
    ("layer_norm_256M_f32", "GB/s", True, lambda d: vectors(d, f32, 2, lambda a, b: torch.nn.functional.layer_norm(a.view(-1, 1024), (1024,)))),
    ("sort_16M_f32", "Melem/s", True, lambda d: ordering(d, 16 << 20, 4096, lambda d, n: (torch.randn(n, device=d),), lambda x: x.sort(stable=True))),
    ("topk_50_64x50257_f32", "Mrow/s", True, lambda d: ordering(d, 64, 2, lambda d, n: (torch.randn(n, 50257, device=d),), lambda x: x.topk(50))),
    ("unique_16M_i64", "Melem/s", True, lambda d: ordering(d, 16 << 20, 4096, numbers, lambda x: x.unique())),
    ("index_add_8192x768_f32", "Mrow/s", True, lambda d: ordering(d, 8192, 64, token_rows, lambda x, at, to: to.index_add_(0, at, x))),
    ("embedding_grad_8192x768_f32", "Mrow/s", True, lambda d: ordering(d, 8192, 64, token_rows, lambda x, at, to: torch.ops.aten.embedding_dense_backward(x, at, len(to), -1, False))),
]
CPU_CASES = [
    ("mlp_digits_b1", "samples/s", False, lambda d: train(d, 1, lambda: mlp(64, 128, 10))),
    ("mlp_digits_b64", "samples/s", False, lambda d: train(d, 64, lambda: mlp(64, 128, 10))),
    ("mlp_digits_b512", "samples/s", False, lambda d: train(d, 512, lambda: mlp(64, 128, 10))),
    ("lenet_b64", "samples/s", False, lambda d: train(d, 64, lambda: images(torch_models.lenet, 1, 28))),
    ("resnet18_32_b32", "samples/s", False, lambda d: train(d, 32, lambda: images(lambda: torch_models.resnet18(10), 3, 32))),
    ("resnet18_224_infer_b1", "samples/s", False, inferring),
    ("lstm_128_b32", "samples/s", False, lambda d: train(d, 32, lstm)),
    ("gpt2_decode", "tokens/s", False, decoding),
]


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    failed = False
    if args.peer:
        return peer(torch.device(args.devices[0]))
    for name in args.devices:
        dev = torch.device(name)
        product = torch.cuda.get_device_name(dev) if dev.type == "cuda" else "cpu"
        for case, unit, gpu, f in CASES + ([] if dev.type == "cuda" else CPU_CASES):
            if not re.search(args.only, case) or gpu and dev.type != "cuda" and not args.trial or dev.type != "cuda" and (case.endswith("_graph") or case == "launch_add_1"):
                continue
            row = dict(device=name, device_name=product, emulated=False, case=case, unit=unit, torch=torch.__version__)
            gc.collect()
            MORE.clear()
            base = torch.cuda.memory_allocated(dev) if dev.type == "cuda" else 0
            try:
                (times, wall, peak, variants), work = f(dev)
                m = statistics.median(times)
                rate = work / m if work else m * 1e9
                row.update(median_seconds=m, min_seconds=min(times), wall_seconds=wall, samples=len(times), rate=rate, peak_bytes=peak - base, **MORE)
                if len(variants) > 1:
                    row["variants"] = variants
                print(f"{name:8} {case:28} {rate:12.1f} {unit} {min(variants, key=variants.get) if args.compile else ''}", file=sys.stderr)
            except Exception as e:  # measure the other cases anyway
                failed = True
                row["error"] = f"{type(e).__name__}: {e}"
                print(f"{name:8} {case:28} {row['error']}", file=sys.stderr)
            print(json.dumps(row), flush=True)
    sys.exit(1 if failed else 0)


main()

"""PyTorch's side of compare against: python3 torch_against.py [--trial] [--seconds 0.3] DEVICE.

It reads one command per input line and answers each with a line of JSON, as against.go describes. A variant is PyTorch as it comes
(eager), with the flash kernels alone for attention (flash), compiled, or as a graph.
"""

import argparse
import gc
import json
import os
import statistics
import sys
import time

os.environ.pop("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", None)
os.environ["NVIDIA_TF32_OVERRIDE"] = "0"

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy, linear, scaled_dot_product_attention

from torch_gpt import GPT

parser = argparse.ArgumentParser()
parser.add_argument("--trial", action="store_true")
parser.add_argument("--seconds", type=float, default=0.3)
parser.add_argument("device")
args = parser.parse_args()
DEV = torch.device(args.device)
CUDA = DEV.type == "cuda"
bf16 = torch.bfloat16
if args.trial:
    torch.set_num_threads(1)


def size(n, small):
    return small if args.trial else n


def sync():
    if CUDA:
        torch.cuda.synchronize(DEV)


class Variant:
    """A step to measure, with inner calls per measurement, by the GPU's clock if requested."""

    def __init__(self, step, inner, gpu_time):
        self.step, self.inner, self.gpu_time = step, 1 if args.trial else inner, gpu_time and CUDA

    def warm(self):
        start = time.perf_counter()
        while True:
            self.step()
            sync()
            if args.trial or time.perf_counter() - start > args.seconds / 4:
                break

    def round(self):
        """The median time of a step in seconds, over as many samples as in bench/compare."""
        least, most = (1, 1) if args.trial else (5, 1000)
        times, began = [], time.perf_counter()
        if self.gpu_time:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        while len(times) < least or time.perf_counter() - began < args.seconds and len(times) < most:
            t = time.perf_counter()
            if self.gpu_time:
                begin.record()
            for _ in range(self.inner):
                self.step()
            if self.gpu_time:
                end.record()
            sync()
            times.append((begin.elapsed_time(end) / 1e3 if self.gpu_time else time.perf_counter() - t) / self.inner)
            if time.perf_counter() - began > 4 * args.seconds:
                break
        return statistics.median(times)


def calls(flops):
    return int(min(100, max(1, 2e11 / flops)))


def flash(step):
    """step with only the flash kernels for attention."""
    def run():
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            step()
    return run


def gpt2(graph=False):
    """Steps of GPT-2 124M under autocast to bfloat16 with AdamW, all variants of one model. On the CPU the flash kernels take no dropout."""
    context, vocab, batch = size(1024, 32), size(50257, 61), size(8, 2)
    model = GPT(vocab, context, size(12, 1), size(12, 2), size(768, 64), 0.1 if CUDA else 0.0).to(DEV)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0, fused=True, capturable=graph)

    def loss_of(x, y):
        with torch.autocast(DEV.type, dtype=bf16):
            return cross_entropy(model(x).flatten(0, -2), y.flatten())

    def steps(f):
        def step():
            x, y = (torch.randint(0, vocab, (batch, context), device=DEV) for _ in range(2))
            f(x, y).backward()
            opt.step()
            opt.zero_grad()
        return step

    eager = steps(loss_of)
    if graph:
        return {"eager": Variant(eager, 10, False), **({"graph": Variant(recorded(eager), 10, False)} if CUDA else {})}
    compiled = steps(torch.compile(loss_of, backend="eager" if args.trial else "inductor"))
    return {name: Variant(step, 10, False) for name, step in (("eager", eager), ("flash", flash(eager)), ("compiled", compiled))}


def recorded(step):
    """A step as a captured graph, after some steps on a side stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def attention(batch, heads, queries, keys, features, causal, gradient):
    batch, heads, queries, keys = size(batch, 1), size(heads, 2), size(queries, min(queries, 32)), size(keys, 32)
    q, g = (torch.randn(batch, heads, queries, features, device=DEV).to(bf16) for _ in range(2))
    k, v = (torch.randn(batch, heads, keys, features, device=DEV).to(bf16) for _ in range(2))
    seen = queries * (queries + 1) / 2 if causal else queries * keys
    flops = 4 * batch * heads * seen * features * (3.5 if gradient else 1)
    if gradient:
        for x in (q, k, v):
            x.requires_grad_()

    def step():
        y = scaled_dot_product_attention(q, k, v, is_causal=causal)
        if gradient:
            torch.autograd.grad(y, (q, k, v), g)

    return {"eager": Variant(step, calls(flops), True), "flash": Variant(flash(step), calls(flops), True)}


def product(n, k, way):
    m, n, k = size(8192, 48), size(n, min(n, 72)), size(k, 64)
    x, g, w = (torch.randn(a, b, device=DEV).to(bf16) for a, b in ((m, k), (m, n), (n, k)))
    step = {"": lambda: linear(x, w), "_dx": lambda: g @ w, "_dw": lambda: g.T @ x}[way]
    return {"eager": Variant(step, calls(2 * m * n * k), True)}


CASES = {"gpt2_8x1024_bf16": gpt2, "gpt2_8x1024_bf16_graph": lambda: gpt2(True)}
for name, dims, causal in (("8x12x1024x64_causal", (8, 12, 1024, 1024, 64), True), ("1x12x8192x64_causal", (1, 12, 8192, 8192, 64), True),
                           ("8x12x1x64_keys4096", (8, 12, 1, 4096, 64), False)):
    CASES["attention_" + name] = lambda dims=dims, causal=causal: attention(*dims, causal, False)
    if dims[2] > 1:
        CASES["attention_" + name + "_both"] = lambda dims=dims, causal=causal: attention(*dims, causal, True)
for name, n, k in (("qkv", 2304, 768), ("proj", 768, 768), ("fc", 3072, 768), ("out", 768, 3072), ("head", 50257, 768)):
    for way in ("", "_dx", "_dw"):
        CASES["linear_" + name + way] = lambda n=n, k=k, way=way: product(n, k, way)


def each(variants, f):
    """The result of f for each variant. A variant that fails is reported and removed."""
    told = {}
    for name in list(variants):
        try:
            seconds = f(variants[name])
            if seconds is not None:
                told[name] = {"seconds": seconds}
        except Exception as e:
            told[name] = {"error": f"{type(e).__name__}: {e}"}
            del variants[name]
    return told


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    variants = {}
    for line in sys.stdin:
        word, _, name = line.strip().partition(" ")
        told = {}
        if word == "case":
            variants = {}
            try:
                variants = CASES[name]()
                told = each(variants, Variant.warm)
            except Exception as e:
                told = {"": {"error": f"{type(e).__name__}: {e}"}}
        elif word == "round":
            told = each(variants, Variant.round)
        elif word == "end":
            variants = {}
            gc.collect()
            if CUDA:
                torch.cuda.empty_cache()
        print(json.dumps(told), flush=True)


main()

"""Writes samples of PyTorch's optim_db: steps of optimizers, with the constructor arguments of PyTorch's tests.

    python optimdb.py [--out DIR]     writes internal/samples/testdata/optims.safetensors.gz

In a row op is the optimizer's class and kw its arguments. args has two parameters, and then the gradients of each in all steps, stacked
along a new first dimension. out has the parameters after each step, stacked likewise. LBFGS uses a loss instead of the gradients: the
sum over both parameters of (|seed| + ½)·(p - 1)² + p⁴/10, with the seed of samples.py.
"""

import argparse
import collections
import os
import warnings

import torch
from torch.testing._internal.common_optimizers import optim_db

import golden
import samples
from samples import File, Unsaid

warnings.simplefilter("ignore")

FOLDER = os.path.join(golden.REPOSITORY, "internal", "samples", "testdata")
SEED = 20240615
STEPS = 12
SKIPPED = {"foreach", "fused", "capturable", "differentiable"}  # they change how PyTorch computes, and not the result


def steps(cls, kwargs, params, grads, dtype):
    ps = [p.to(dtype).clone().requires_grad_() for p in params]
    kw = {k: v.to(dtype) if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()}
    o = cls(ps, **kw)
    after = [[] for _ in ps]
    for i in range(STEPS):
        if cls is torch.optim.LBFGS:
            def loss():
                o.zero_grad()
                total = sum(((p - 1) ** 2 * (samples.seed(p.numel(), k).to(dtype).reshape(p.shape).abs() + 0.5) + p ** 4 / 10).sum() for k, p in enumerate(ps))
                total.backward()
                return total
            o.step(loss)
        else:
            for p, g in zip(ps, grads):
                p.grad = g[i].to(dtype).clone()
            o.step()
        for a, p in zip(after, ps):
            a.append(p.detach().clone())
    return [torch.stack(a) for a in after]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out", default=FOLDER)
    a = p.parse_args()
    file = File(__file__, SEED)
    for info in optim_db:
        left = collections.Counter()
        name = info.optim_cls.__name__
        torch.manual_seed(SEED)
        shapes = [(3, 4), (2, 5)] if name == "Muon" else [(3, 4), (5,)]
        params = [torch.randn(s) for s in shapes]
        grads = [torch.randn(STEPS, *s) for s in shapes]
        for n, sample in enumerate(info.optim_inputs_func(device="cpu")):
            kw = {k: v for k, v in sample.kwargs.items() if k not in SKIPPED}
            try:
                row = {"op": name, "n": n, "type": "float32", "from": "sample", "args": [file.value(t) for t in params + grads],
                       "kw": {k: file.value(v) for k, v in kw.items()}}
                own = steps(info.optim_cls, kw, params, grads, torch.float32)
                ref = steps(info.optim_cls, kw, params, grads, torch.float64)
                moved = None
                for _ in range(8):
                    shaken = [[samples.shaken(t.double()) for t in ts] for ts in (params, grads)]
                    far = [(x - y).abs() for x, y in zip(ref, steps(info.optim_cls, kw, shaken[0], shaken[1], torch.float64))]
                    moved = far if moved is None else [torch.maximum(x, y) for x, y in zip(moved, far)]
                row["out"] = [file.numbers(x, y, samples.exponents(m, y)) for x, y, m in zip(own, ref, moved)]
                file.rows.append(row)
            except Unsaid as e:
                left["sample with " + str(e)] += 1
            except Exception as e:
                left["sample that PyTorch refuses: " + type(e).__name__ + ": " + str(e)[:60]] += 1
        for n, bad in enumerate(info.optim_error_inputs_func(device="cpu", dtype=torch.float32) if info.optim_error_inputs_func else []):
            s = bad.optimizer_error_input if hasattr(bad, "optimizer_error_input") else bad.error_input if hasattr(bad, "error_input") else bad
            kw = {k: v for k, v in s.kwargs.items()}
            if SKIPPED & set(kw):
                left["error input about how PyTorch computes"] += 1
                continue
            try:
                row = {"op": name, "n": n, "type": "", "from": "error", "args": [file.value(t) for t in params + grads], "kw": {k: file.value(v) for k, v in kw.items()}}
                info.optim_cls([p.clone().requires_grad_() for p in params] if s.params is None or isinstance(s.params, torch.Tensor) or all(isinstance(q, torch.Tensor) for q in s.params) else s.params, **kw)
                left["error input about the list of parameters"] += 1
            except Unsaid as e:
                left["error input with " + str(e)] += 1
            except Exception as e:
                if s.params is not None and not all(isinstance(q, torch.Tensor) for q in s.params):
                    left["error input about the list of parameters"] += 1
                    continue
                row["error"] = type(e).__name__ + ": " + str(e).splitlines()[0][:160]
                file.rows.append(row)
        file.rows.append({"op": name, "from": "entry", "left": dict(left)})
    path = os.path.join(a.out, "optims.safetensors.gz")
    file.write(path)
    print(len(file.rows), "rows", os.path.getsize(path), "bytes")


main()

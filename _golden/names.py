"""Writes the public names of PyTorch's modules for GPUs, mixed precision, checkpointing and profiling, with the methods and arguments of what
users call most: internal/arch/testdata/torchnames.json. The file has no values, so no seed is needed."""

import importlib
import inspect
import json
import os
import warnings

import golden
import torch

MODULES = [
    "torch.cuda", "torch.cuda.memory", "torch.cuda.graphs", "torch.cuda.nvtx", "torch.cuda.random", "torch.cuda.amp", "torch.amp",
    "torch.utils.checkpoint", "torch.autograd.graph", "torch.profiler", "torch.backends.cuda",
]
CLASSES = [
    "torch.cuda.CUDAGraph", "torch.cuda.Event", "torch.cuda.Stream", "torch.amp.GradScaler", "torch.profiler.profile",
]
FUNCTIONS = [
    "torch.cuda.graph", "torch.cuda.make_graphed_callables", "torch.amp.GradScaler", "torch.amp.autocast",
    "torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential", "torch.autograd.graph.save_on_cpu",
    "torch.profiler.profile", "torch.profiler.schedule",
]


def find(name):
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


warnings.simplefilter("ignore")
names = {}
for m in MODULES:
    names[m] = sorted(importlib.import_module(m).__all__)
# PyTorch documents these functions of torch.cuda.memory, although their names are private.
names["torch.cuda.memory"] += [n for n in ("_record_memory_history", "_snapshot", "_dump_snapshot") if hasattr(torch.cuda.memory, n)]
names["torch.backends.cuda.matmul"] = [
    n for n in ("allow_tf32", "allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction", "allow_fp16_accumulation", "fp32_precision")
    if hasattr(torch.backends.cuda.matmul, n)
]
for c in CLASSES:
    names[c + " methods"] = sorted(n for n in dir(find(c)) if not n.startswith("_") and n not in dir(object))
for f in FUNCTIONS:
    names[f + " arguments"] = sorted(n for n, p in inspect.signature(find(f)).parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))

path = os.path.join(golden.REPOSITORY, "internal/arch/testdata/torchnames.json")
os.makedirs(os.path.dirname(path), exist_ok=True)
made_by = {k: v for k, v in golden.versions(__file__, 0).items() if k in ("script", "torch")}
with open(path, "w") as f:
    f.write('{"made_by": %s, "names": {\n' % json.dumps(made_by))
    f.write(",\n".join("%s: %s" % (json.dumps(m), json.dumps(list(n))) for m, n in names.items()))
    f.write("\n}}\n")

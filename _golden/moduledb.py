"""Writes samples of PyTorch's module_db: layers, with their constructor arguments, operands and results.

    python moduledb.py                writes internal/samples/testdata/modules*.safetensors.gz, the part that is committed
    python moduledb.py --all DIR      writes all samples to DIR, one file a layer

The rows have the form of opdb.py. The first argument is the layer's state by name, with which the layer is called. "new" has the arguments
of the constructor, and "training" the mode. After the results come the floating point buffers, as the call leaves them.
"""

import argparse
import collections
import os
import sys
import traceback
import warnings

import torch
from torch.testing._internal.common_modules import module_db

import golden
import samples
from samples import File, Unsaid

warnings.simplefilter("ignore")
torch.use_deterministic_algorithms(False)

FOLDER = os.path.join(golden.REPOSITORY, "internal", "samples", "testdata")
SEED = 20240614
NOWHERE = {"device", "dtype"}


def signature(s):
    def of(v):
        if isinstance(v, torch.Tensor):
            return (v.dim(), v.numel() == 0, v.dtype)
        if isinstance(v, (list, tuple)):
            return tuple(of(x) for x in v)
        if isinstance(v, dict):
            return tuple(sorted((k, of(x)) for k, x in v.items()))
        return v if isinstance(v, (bool, str)) or v is None else type(v).__name__ if isinstance(v, (int, float)) else str(type(v))
    c, f = s.constructor_input, s.forward_input
    return (of(c.args), of(c.kwargs), of(f.args), of(f.kwargs))


def weight(s):
    return sum(t.numel() for t in samples.leaves_of([list(s.forward_input.args), s.forward_input.kwargs]))


def chosen(found, most):
    seen, picked = set(), []
    for i, s in sorted(enumerate(found), key=lambda p: (weight(p[1]), p[0])):
        key = signature(s)
        if key not in seen and len(picked) < most and (not picked or weight(s) <= 400):
            seen.add(key)
            picked.append(i)
    return sorted(picked)


def record(file, info, sample, dtype, n, training, order, times):
    made = sample.constructor_input
    torch.manual_seed(SEED)
    # The seed makes the layer's parameters repeatable. Nothing else is random here.
    module = info.module_cls(*made.args, **made.kwargs).to(dtype).train(training)
    state = {k: v.detach().clone().requires_grad_(isinstance(v, torch.nn.Parameter) and v.requires_grad)
             for k, v in sorted(module.state_dict(keep_vars=True).items())}
    args = [state, list(sample.forward_input.args), dict(sorted(sample.forward_input.kwargs.items()))]
    row = {"op": info.name, "n": n, "type": samples.NAMES[dtype], "from": "sample", "training": training,
           "new": {"args": [file.value(v) for v in made.args], "kw": {k: file.value(v) for k, v in made.kwargs.items() if k not in NOWHERE}},
           "args": [file.value(state)] + [file.value(v) for v in args[1]], "kw": {k: file.value(v) for k, v in args[2].items()}}

    def call(a):
        torch.manual_seed(call.seed)
        out = samples.flat(torch.func.functional_call(module, a[0], tuple(a[1]), a[2]))
        return out + [v for k, v in a[0].items() if v.is_floating_point() and not state[k].requires_grad]

    call.seed = 1
    first, _, _ = samples.run(call, args, dtype, 0)
    call.seed = 2
    again, _, _ = samples.run(call, args, dtype, 0)
    if any(isinstance(a, torch.Tensor) and not torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(first, again)):
        row["random"] = True
        row["out"] = [{"shape": list(y.shape), "type": samples.NAMES[y.dtype]} for y in first]
        file.rows.append(row)
        return
    while True:
        try:
            own = samples.run(call, args, dtype, order)
            base, moved = samples.moves(call, args, order, times)
            break
        except (RuntimeError, NotImplementedError):
            if order == 0:
                raise
            order -= 1
    row["leaves"] = [i for i, t in enumerate(samples.leaves_of(args)) if t.requires_grad and t.is_floating_point()]
    row["out"] = [file.numbers(a, b, m) for a, b, m in zip(own[0], base[0], moved[0])]
    for key, part in (("grads", 1), ("seconds", 2)):
        if own[part] is not None and base[part] is not None:
            row[key] = [file.numbers(a, b, m) for a, b, m in zip(own[part], base[part], moved[part])]
    file.rows.append(row)


def errors(file, info, left):
    if info.module_error_inputs_func is None:
        return
    torch.manual_seed(SEED)
    for n, bad in enumerate(info.module_error_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=True)):
        s = bad.module_error_input if hasattr(bad, "module_error_input") else bad.error_input if hasattr(bad, "error_input") else bad
        s = getattr(s, "module_input", s)
        made, forward = s.constructor_input, s.forward_input
        try:
            row = {"op": info.name, "n": n, "from": "error", "type": "", "training": True,
                   "new": {"args": [file.value(v) for v in made.args], "kw": {k: file.value(v) for k, v in made.kwargs.items() if k not in NOWHERE}}}
            try:
                module = info.module_cls(*made.args, **made.kwargs)
            except Exception as e:
                row.update(args=[], kw={}, error=type(e).__name__ + ": " + str(e).splitlines()[0][:160])
                file.rows.append(row)
                continue
            state = {k: v.detach() for k, v in sorted(module.state_dict().items())}
            row["args"] = [file.value(state)] + [file.value(v) for v in forward.args]
            row["kw"] = {k: file.value(v) for k, v in forward.kwargs.items()}
            try:
                module(*forward.args, **forward.kwargs)
                left["error input that this build of PyTorch takes"] += 1
            except Exception as e:
                row["error"] = type(e).__name__ + ": " + str(e).splitlines()[0][:160]
                file.rows.append(row)
        except Unsaid as e:
            left["error input with " + str(e)] += 1


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--all", metavar="DIR")
    p.add_argument("--most", type=int, default=0, help="with --all: so many samples of a type and source, evenly from the list; 0: all")
    p.add_argument("--only", default="")
    p.add_argument("--verbose", action="store_true")
    p.add_argument("--out", default=FOLDER)
    a = p.parse_args()
    only = set(filter(None, a.only.split(",")))
    files = [File(__file__, SEED), File(__file__, SEED)]  # two files, so that each is far smaller than a tracked file may be
    for i, info in enumerate(module_db):
        if only and info.name not in only:
            continue
        file = File(__file__, SEED) if a.all else files[2 * i // len(module_db)]
        left = collections.Counter()
        for dtype in (torch.float32, torch.bfloat16, torch.float16) if a.all else (torch.float32,):
            for training in (True, False) if info.train_and_eval_differ else (True,):
                torch.manual_seed(SEED)
                try:
                    found = [s for s in info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training) if s.forward_input is not None]
                except Exception as e:
                    left["samples that PyTorch fails to make: " + type(e).__name__] += 1
                    continue
                for n in samples.spread(len(found), a.most) if a.all else chosen(found, 4 if training else 2):
                    if weight(found[n]) > (20000 if a.all else 2500):
                        left["sample of more than %d elements" % (20000 if a.all else 2500)] += 1
                        continue
                    try:
                        record(file, info, found[n], dtype, n, training, 2 if dtype == torch.float32 else 1, 4 if a.all else 8)
                    except Unsaid as e:
                        left["sample with " + str(e)] += 1
                    except Exception as e:
                        left["sample that PyTorch refuses: " + type(e).__name__] += 1
                        if a.verbose:
                            print(info.name, n, traceback.format_exc(limit=-3), file=sys.stderr)
        errors(file, info, left)
        file.rows.append({"op": info.name, "from": "entry", "left": dict(left)})
        if a.all:
            file.write(os.path.join(a.all, "modules-" + info.name + ".safetensors.gz"))
            print(info.name, len(file.rows), flush=True)
    if not a.all:
        for i, file in enumerate(files):
            path = os.path.join(a.out, "modules%d.safetensors.gz" % i)
            file.write(path)
            print(len(file.rows), "rows", os.path.getsize(path), "bytes")


main()

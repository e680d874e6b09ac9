"""Writes samples of PyTorch's op_db: the arguments with which its test suite calls each operator, the results, and arguments to refuse.

    python opdb.py                writes internal/samples/testdata/ops*.safetensors.gz, the part that is committed
    python opdb.py --all DIR      writes all samples and reference inputs to DIR, one file an entry;
                                  with --most 8 eight of each type and source, evenly from the list
"""

import argparse
import collections
import hashlib
import logging
import os
import sys
import traceback
import warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db

import golden
import samples
from samples import File, Unsaid

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
torch.use_deterministic_algorithms(False)

FOLDER = os.path.join(golden.REPOSITORY, "internal", "samples", "testdata")
SEED = 20240613


def svd(u, s, v):
    k = s.shape[-1]
    return u[..., :k] @ v[..., :k].mH, s


# Entries whose results are unique only up to signs or bases, with a function that returns the
# unique part.
GAUGE = {
    "linalg.svd": lambda o: svd(o[0], o[1], o[2].mH),
    "svd": lambda o: svd(*o),
    "linalg.eigh": lambda o: (o[0], o[1].abs()),
    "linalg.qr": lambda o: (o[0][..., :min(o[0].shape[-1], o[1].shape[-1])].abs(), o[1].abs()),
    "linalg.lstsq": lambda o: o[0],  # LstSq of package tensor returns only this
    "linalg.lstsq.grad_oriented": lambda o: o[0],
}
# Entries whose results are random numbers or uninitialised memory.
RANDOM = {
    "multinomial", "bernoulli", "randint", "randint_like", "randn", "randn_like", "rand_like", "normal", "uniform", "cauchy",
    "exponential", "geometric", "log_normal", "nn.functional.rrelu",
    "empty", "empty_like", "new_empty", "new_empty_strided", "empty_strided", "empty_permuted", "resize_", "resize_as_"}

MANUAL_SEED = torch.manual_seed
FLOATS = [torch.float32, torch.bfloat16, torch.float16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]


def named(op):
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


def signature(sample):
    """The kind of a sample: which arguments there are, the ranks, layouts and types of tensors, the signs of numbers, and all other values."""
    def of(v):
        if isinstance(v, torch.Tensor):
            return (v.dim(), v.numel() == 0, v.layout == torch.strided and v.is_contiguous(), v.dtype)
        if isinstance(v, (list, tuple)):
            return tuple(of(x) for x in v)
        if isinstance(v, (bool, str)) or v is None:
            return v
        if isinstance(v, (int, float)):
            return (type(v).__name__, v < 0)
        return str(v)
    return (of(sample.input), of(sample.args), tuple(sorted((k, of(v)) for k, v in sample.kwargs.items())))


def weight(sample):
    return sum(t.numel() for t in samples.leaves_of([sample.input, sample.args, sample.kwargs]))


def chosen(found, most, budget):
    """The smallest samples of different kinds. There are at most `most` of them, with at most `budget` elements in all, but at least one."""
    seen, picked = set(), []
    few = lambda s: max([t.numel() for t in samples.leaves_of([s.input, s.args, s.kwargs])], default=9) < 3
    order = sorted(enumerate(found), key=lambda p: (few(p[1]), weight(p[1]), p[0]))
    for i, s in order:
        key = signature(s)
        if key in seen or picked and (len(picked) >= most or budget - weight(s) < 0):
            continue
        seen.add(key)
        picked.append(i)
        budget -= weight(s)
    return sorted(picked)


def shuffles(op, sample):
    """Whether a sample of an entry of RANDOM is random. F.rrelu is random in training only."""
    return op.name != "nn.functional.rrelu" or sample.kwargs.get("training", False)


def record(file, op, sample, dtype, n, source, order, times):
    """Adds the row of one sample. Raises Unsaid or what PyTorch raises."""
    name = named(op)
    args = [[sample.input, *sample.args], dict(sorted(sample.kwargs.items()))]
    row = {"op": name, "n": n, "type": samples.NAMES[dtype], "from": source,
           "args": [file.value(v) for v in args[0]], "kw": {k: file.value(v) for k, v in args[1].items()}}

    def call(a):
        MANUAL_SEED(call.seed)
        torch.manual_seed = lambda n: MANUAL_SEED(n + call.seed)  # some entries set a seed themselves
        try:
            out = op(*a[0], **a[1])
        finally:
            torch.manual_seed = MANUAL_SEED
        return GAUGE[name](out) if name in GAUGE else out

    call.seed = 1
    grads = order > 0 and op.supports_autograd
    first, _, _ = samples.run(call, args, dtype, 0)
    call.seed = 2
    again, _, _ = samples.run(call, args, dtype, 0)
    random = (op.name in RANDOM and shuffles(op, sample)) or any(isinstance(a, torch.Tensor) and not torch.equal(a.nan_to_num(), b.nan_to_num())
                    for a, b in zip(first, again) if isinstance(a, torch.Tensor) and a.layout == torch.strided)
    if random:
        row["random"] = True
        row["out"] = [{"shape": list(y.shape), "type": samples.NAMES.get(y.dtype, str(y.dtype))} if isinstance(y, torch.Tensor) else file.numbers(y, None, None) for y in first]
        file.rows.append(row)
        return
    order = min(order, 0 if not grads else 2 if op.supports_gradgrad else 1)
    leaves = [t.requires_grad and t.is_floating_point() for t in samples.leaves_of(args)]
    # The second gradient may be missing in PyTorch even where the entry says that it is there.
    while True:
        try:
            own = samples.run(call, args, dtype, order)
            base, moved = samples.moves(call, args, order, times)
            break
        except (RuntimeError, NotImplementedError) as e:
            if order == 0:
                raise
            order -= 1
    if any(isinstance(y, torch.Tensor) and y.is_complex() for y in own[0]):
        raise Unsaid("complex")
    if moved and len(moved[0]) != len(own[0]):
        moved = [[None] * len(own[0]), moved[1] if len(moved) > 1 else [], moved[2] if len(moved) > 2 else []]
    row["leaves"] = [i for i, is_leaf in enumerate(leaves) if is_leaf]
    row["out"] = [file.numbers(a, b, m) for a, b, m in zip(own[0], base[0], moved[0])]
    for key, part in (("grads", 1), ("seconds", 2)):
        if own[part] is not None and base[part] is not None:
            row[key] = [file.numbers(a, b, m) for a, b, m in zip(own[part], base[part], moved[part])]
    file.rows.append(row)


def errors(file, op, whole):
    """Adds arguments that the entry must refuse, if PyTorch refuses them. Counts those left out, by reason, and returns the counts."""
    left = collections.Counter()
    if op.error_inputs_func is None:
        return left
    torch.manual_seed(SEED)
    seen = set()
    try:
        found = list(op.error_inputs("cpu"))
    except Exception as e:
        left["error inputs that PyTorch fails to make: " + type(e).__name__] += 1
        return left
    for n, bad in enumerate(found):
        s = bad.sample_input
        args = [[s.input, *s.args], dict(s.kwargs)]
        if weight(s) > 20000:
            left["error input with more than 20000 elements"] += 1
            continue
        try:
            row = {"op": named(op), "n": n, "from": "error", "type": "",
                   "args": [file.value(v) for v in args[0]], "kw": {k: file.value(v) for k, v in args[1].items()}}
        except Unsaid as e:
            left["error input with " + str(e)] += 1
            continue
        except RuntimeError as e:
            left["error input that cannot be read: " + str(e).splitlines()[0][:60]] += 1
            continue
        try:
            op(s.input, *s.args, **s.kwargs)
            left["error input that this build of PyTorch takes"] += 1
            continue
        except Exception as e:
            row["error"] = type(e).__name__ + ": " + str(e).splitlines()[0][:160]
        key = (str(row["args"]), str(row["kw"]))
        if key in seen:
            continue
        seen.add(key)
        file.rows.append(row)
    return left


def entry(file, op, whole):
    """Adds the rows of one entry. Counts the samples left out, by reason, and returns the counts."""
    left = collections.Counter()
    for dtype in FLOATS + INTEGERS:
        if dtype not in op.dtypes:
            continue
        order = 2 if dtype == torch.float32 else 1 if dtype in samples.HALVES else 0
        sources = [("sample", op.sample_inputs)]
        if whole and dtype in (torch.float32, torch.int64, torch.bool):
            sources.append(("reference", op.reference_inputs))
        for source, make in sources:
            torch.manual_seed(SEED)
            try:
                found = list(make("cpu", dtype, requires_grad=order > 0 and op.supports_autograd))
            except Exception as e:
                left["samples that PyTorch fails to make: " + type(e).__name__] += 1
                continue
            if whole:
                picked = samples.spread(len(found), MOST)
            elif dtype == torch.float32:
                picked = chosen(found, 5, 400)
            elif dtype in (torch.bfloat16, torch.int64, torch.bool):
                picked = chosen(found, 2, 60)
            else:
                picked = chosen(found, 1, 60)
            for n in picked:
                if weight(found[n]) > (20000 if whole else 2000):
                    left["sample of more than %d elements" % (20000 if whole else 2000)] += 1
                    continue
                try:
                    record(file, op, found[n], dtype, n, source, order, 4 if whole else 8)
                except Unsaid as e:
                    left["sample with " + str(e)] += 1
                except Exception as e:
                    left["sample that PyTorch refuses: " + type(e).__name__] += 1
                    if VERBOSE:
                        print(named(op), dtype, n, traceback.format_exc(limit=-3), file=sys.stderr)
    left += errors(file, op, whole)
    return left


def main():
    global VERBOSE, MOST
    p = argparse.ArgumentParser()
    p.add_argument("--all", metavar="DIR")
    p.add_argument("--most", type=int, default=0, help="with --all: so many samples of a type and source, evenly from the list; 0: all")
    p.add_argument("--only", default="")
    p.add_argument("--files", default="01234567", help="which of the eight files")
    p.add_argument("--verbose", action="store_true")
    p.add_argument("--out", default=FOLDER)
    a = p.parse_args()
    VERBOSE, MOST = a.verbose, a.most
    only = set(filter(None, a.only.split(",")))
    shards = {}
    # The entries are divided into files, so that each file is far smaller than a tracked file may
    # be.
    for i, op in enumerate(op_db):
        if only and named(op) not in only and op.name not in only or str(i * 8 // len(op_db)) not in a.files:
            continue
        if a.all:
            file = File(__file__, SEED)
        else:
            file = shards.setdefault(i * 8 // len(op_db), File(__file__, SEED))
        left = entry(file, op, bool(a.all))
        file.rows.append({"op": named(op), "from": "entry", "left": dict(left),
                          "types": sorted(samples.NAMES[t] for t in op.dtypes if t in samples.NAMES), "gradient": op.supports_autograd, "second": op.supports_gradgrad})
        if a.all:
            safe = "ops-%03d-%s" % (i, named(op).replace("/", "_"))
            file.write(os.path.join(a.all, safe + ".safetensors.gz"))
            print(i, named(op), len(file.rows), flush=True)
    for k, file in shards.items():
        file.write(os.path.join(a.out, "ops%d.safetensors.gz" % k))
        print(k, len(file.rows), "rows", len(file.tensors), "tensors", sum(len(r) for _, _, r in file.tensors), "bytes",
              os.path.getsize(os.path.join(a.out, "ops%d.safetensors.gz" % k)), "compressed")


main()

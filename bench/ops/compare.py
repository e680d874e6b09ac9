"""The library's ops on the CPU beside PyTorch's, turn by turn: a table of the ratios ours/torch of their times, the worst first.

    go build -o /tmp/ops ./bench/ops && python3 bench/ops/compare.py /tmp/ops [--threads 2] [--only REGEXP] [--sizes tiny,medium,large,fixed]
        [--rounds 5] [--ms 4] [--rest 20] [--load 0] [--cpu-time] [--json FILE] [--markdown FILE]

A round times ours, then PyTorch's; the ratio of a case is the median of its rounds', so that what else the machine does hits both. Above 1 PyTorch
is faster. Before each, the threads of the other get --rest milliseconds to fall asleep: OpenMP's spin for 4 to 10 ms, and would take a processor.
Each of PyTorch's threads is bound to a processor (OMP_PROC_BIND), unless there is a load. Unbound, both may wake on the same processor after a rest;
an op of 64K elements then takes 2.7 ms instead of 5 µs.
--load is how many processes spin beside both. The table ends with the geometric mean of the ratios.
--json writes a line for each case: its ratios, the median times, and what a call of ours allocates of Go memory.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
import warnings

PROCESSORS = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None  # binding the threads changes it
if not any(a.startswith("--load") for a in sys.argv):
    os.environ.setdefault("OMP_PROC_BIND", "true")

import torch
import torch.nn.functional as F

warnings.filterwarnings("ignore")


def unbind():
    """Lets a new process use the processors that this one had at first."""
    if PROCESSORS:
        os.sched_setaffinity(0, PROCESSORS)


def make(o):
    dims, layout = list(o["dims"]), o.get("layout", "")
    if layout == "t":
        dims.reverse()
    if layout == "s":
        dims[-1] *= 2
    kind = o["kind"]
    if kind == "normal":
        x = torch.randn(dims)
    elif kind == "positive":
        x = torch.rand(dims) + 0.1
    elif kind == "unit":
        x = torch.rand(dims) * 1.8 - 0.9
    elif kind == "ones":
        x = torch.ones(dims)
    elif kind == "int8":
        x = torch.randint(-128, 128, dims, dtype=torch.int8)
    elif kind == "half":
        x = torch.randn(dims).bfloat16()
    elif kind == "bool":
        x = torch.rand(dims) < 0.5
    elif kind == "index":
        x = torch.randint(0, o["bound"], dims)
    elif kind == "long":
        x = torch.randint(-1000, 1000, dims)
    elif kind == "spd":
        a = torch.randn(dims)
        x = a @ a.mT + torch.eye(dims[-1]) * dims[-1]
    if layout == "t":
        x = x.permute(*reversed(range(x.dim())))
    if layout == "s":
        x = x[..., ::2]
    return x


class Torch:
    def __init__(self):
        self.made = {}

    def get(self, o, k, grad):
        key = (json.dumps(o), k, grad)
        if key not in self.made:
            x = make(o)
            self.made[key] = x.detach().requires_grad_() if grad else x
        return self.made[key]

    def step(self, case, backward):
        x = [self.get(o, i, backward and "abcd"[i] in case["grad"]) for i, o in enumerate(case["operands"])]
        names = "abcd"[: len(x)]
        f = eval("lambda " + ", ".join(names) + ": " + case["call"], {"torch": torch, "F": F})
        if not backward:
            return lambda: f(*x)
        leaves = [v for v in x if v.requires_grad]
        g = torch.ones_like(f(*x))
        grad = torch.autograd.grad
        return lambda: grad(f(*x), leaves, g)


def seconds(step, least, per, clock):
    n, start, taken, block = 0, clock(), 0, range(per)
    while n == 0 or taken < least:
        for _ in block:
            step()
        n += per
        taken = clock() - start
    return taken / n


def measure(args):
    """Rows of the cases, and what failed."""
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    listed = subprocess.run([args.program, "list"], check=True, capture_output=True, text=True).stdout
    cases = [json.loads(line) for line in listed.splitlines()]
    sizes = args.sizes.split(",")
    cases = [c for c in cases if re.search(args.only, c["case"]) and c["size"] in sizes]
    cases.sort(key=lambda c: sizes.index(c["size"]))
    ours = subprocess.Popen([args.program, "serve"], env={**os.environ, "GOMAXPROCS": str(args.threads)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=unbind)

    def ask(line):
        ours.stdin.write(line + "\n")
        ours.stdin.flush()

    theirs, rows, failed, last = Torch(), [], [], None
    lines = open(args.json, "w") if args.json else None
    spin = f"import os\nwhile os.getppid() == {os.getpid()}: pass"
    load = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(args.load)]
    for case in cases:
        if case["size"] != last:
            last = case["size"]
            ask("drop")
            theirs.made.clear()
        for mode in ["forward", "backward"] if case["grad"] else ["forward"]:
            row = {"case": case["case"], "size": case["size"], "mode": mode}
            try:
                step = theirs.step(case, mode == "backward")
                step()
            except Exception as e:
                failed.append(f"{row}: {e}")
                continue
            mine, other, ratios = [], [], []
            rounds = args.rounds if case["size"] != "large" else args.rounds // 2 + 1
            for _ in range(rounds):
                time.sleep(args.rest / 1000)
                ask(f"{case['case']} {case['size']} {mode} {args.ms}ms {'cpu' if args.cpu_time else 'wall'}")
                a = json.loads(ours.stdout.readline())
                if "error" in a:
                    failed.append(f"{row}: {a['error']}")
                    break
                time.sleep(args.rest / 1000)
                t = seconds(step, args.ms / 1000, case["batch"], time.process_time if args.cpu_time else time.perf_counter)
                mine.append(a["seconds"])
                other.append(t)
                ratios.append(a["seconds"] / t)
            if not ratios:
                continue
            row |= {"ratio": statistics.median(ratios), "ratios": [round(r, 3) for r in ratios], "ours": statistics.median(mine), "torch": statistics.median(other), "allocs": round(a["allocs"], 1), "bytes": round(a["bytes"])}
            rows.append(row)
            if lines:
                print(json.dumps(row), file=lines, flush=True)
    for p in load:
        p.kill()
    ours.stdin.close()
    ours.wait()
    return rows, failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", help="what ./bench/ops was built as; or a file that --json wrote, to print its tables again")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--sizes", default="tiny,medium,large,fixed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ms", type=float, default=4)
    parser.add_argument("--rest", type=float, default=20)
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--cpu-time", action="store_true", help="count the processor's time, of all threads, instead of the clock's: for a busy machine, with one thread")
    parser.add_argument("--json")
    parser.add_argument("--markdown")
    args = parser.parse_args()
    began = time.time()
    if args.program.endswith(".jsonl"):
        with open(args.program) as f:
            rows, failed = [json.loads(line) for line in f], []
    else:
        rows, failed = measure(args)
        print(f"torch {torch.__version__}, {args.threads} threads, {len(rows)} measurements of {args.rounds} rounds in {time.time() - began:.0f} s")
    rows.sort(key=lambda r: -r["ratio"])
    print(f"{'case':26} {'size':7} {'mode':9} {'ours/torch':>10} {'ours us':>11} {'torch us':>11} {'allocs':>7} {'bytes':>9}")
    for r in rows:
        print(f"{r['case']:26} {r['size']:7} {r['mode']:9} {r['ratio']:10.2f} {r['ours'] * 1e6:11.2f} {r['torch'] * 1e6:11.2f} {r['allocs']:7.1f} {r['bytes']:9d}")
    summary(rows)
    if args.markdown:
        with open(args.markdown, "w") as f:
            f.write(markdown(rows))
    if failed:
        sys.exit("\n".join(failed))


def summary(rows):
    print(f"\n{'size':7} {'mode':9} {'cases':>6} {'median':>7} {'mean':>6} {'> 1.5':>6} {'> 3':>5}")
    for size in ["tiny", "medium", "large", "fixed"]:
        for mode in ["forward", "backward"]:
            r = [x["ratio"] for x in rows if x["size"] == size and x["mode"] == mode]
            if r:
                print(f"{size:7} {mode:9} {len(r):6} {statistics.median(r):7.2f} {statistics.geometric_mean(r):6.2f} {sum(x > 1.5 for x in r):6} {sum(x > 3 for x in r):5}")
    if rows:
        print(f"geometric mean of all: {statistics.geometric_mean([x['ratio'] for x in rows]):.2f}")


def markdown(rows):
    """A line for each case: the ratios at each size, forward and with the gradient."""
    columns = [(s, m) for s in ["tiny", "medium", "large", "fixed"] for m in ["forward", "backward"] if any(r["size"] == s and r["mode"] == m for r in rows)]
    cells, worst = {}, {}
    for r in rows:
        cells[r["case"], r["size"], r["mode"]] = r["ratio"]
        worst[r["case"]] = max(worst.get(r["case"], 0), r["ratio"])
    lines = ["| case | " + " | ".join(s + ("" if m == "forward" else " + gradient") for s, m in columns) + " |", "| --- |" + " ---: |" * len(columns)]
    for case in sorted(worst, key=lambda c: -worst[c]):
        lines.append(f"| {case} | " + " | ".join(f"{cells[case, s, m]:.2f}" if (case, s, m) in cells else "" for s, m in columns) + " |")
    return "\n".join(lines) + "\n"


main()

"""Times recurrent and attention layers in PyTorch and in the program given, step by step in turns: python3 compare.py PROGRAM [CASE …]

It prints, for each case, the median seconds of a step in both and the median of the ratios of neighbouring steps, PyTorch's time by ours:
above 1 we are faster.
"""

import statistics
import subprocess
import sys
import time

import torch

CASES = [  # kind, mode, length, batch, features, hidden
    "lstm train 100 32 128 256", "lstm train 50 16 32 64", "lstm train 400 8 64 128", "lstm infer 100 1 128 256", "lstm infer 100 32 128 256",
    "gru train 100 32 128 256", "gru train 50 16 32 64", "rnn train 100 32 128 256", "rnn train 50 16 32 64",
    "attention train 128 8 256 0", "encoder train 128 8 256 1024", "encoder infer 128 8 256 1024",
]
ROUNDS = 25


def step_of(case):
    kind, mode, length, batch, features, hidden = case.split()
    length, batch, features, hidden = int(length), int(batch), int(features), int(hidden)
    x = torch.randn(length, batch, features, requires_grad=mode == "train")
    if kind in ("rnn", "gru", "lstm"):
        layer = {"rnn": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[kind](features, hidden)
        forward = lambda: layer(x)[0]
    elif kind == "encoder":
        layer = torch.nn.TransformerEncoderLayer(features, 8, hidden, 0.0)
        forward = lambda: layer(x)
    else:
        layer = torch.nn.MultiheadAttention(features, 8)
        forward = lambda: layer(x, x, x, need_weights=False)[0]
    if mode == "infer":
        layer.eval()

        def step():
            with torch.no_grad():
                forward()
    else:
        def step():
            forward().sum().backward()
            layer.zero_grad()
            x.grad = None
    return step


def main():
    ours = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def go(case):
        ours.stdin.write(case + "\n")
        ours.stdin.flush()
        return float(ours.stdout.readline())

    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    for case in sys.argv[2:] or CASES:
        step = step_of(case)
        step()
        go(case)
        theirs, mine = [], []
        for _ in range(ROUNDS):
            t = time.perf_counter()
            step()
            theirs.append(time.perf_counter() - t)
            mine.append(go(case))
        ratio = statistics.median(a / b for a, b in zip(theirs, mine))
        print(f"{case:32} torch {statistics.median(theirs) * 1e3:8.2f} ms  ours {statistics.median(mine) * 1e3:8.2f} ms  ratio {ratio:.2f}", flush=True)
    ours.stdin.close()
    ours.wait()


if __name__ == "__main__":
    main()

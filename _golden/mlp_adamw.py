"""Golden training curve: 50 steps of AdamW on a 784-512-512-10 perceptron. Writes internal/golden/testdata/mlp_adamw.

Pixels and labels are in the file. The initial weights come from a generator that gives the same bits in any language. One
splitmix64 stream fills the parameters in order, row by row. The upper 24 bits k of each output give the weight
(k - 2^23) / 2^28, a float32 in [-1/32, 1/32). The file holds the CRC-32 of each parameter's little-endian bytes.
"""

import zlib

import numpy as np
import torch
import torch.nn.functional as F

from golden import File

SEED = 784
STEPS, BATCH, PIXELS, HIDDEN, CLASSES = 50, 64, 784, 512, 10
HYPER = {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}
SHAPES = [("fc1.weight", (HIDDEN, PIXELS)), ("fc1.bias", (HIDDEN,)),
          ("fc2.weight", (HIDDEN, HIDDEN)), ("fc2.bias", (HIDDEN,)),
          ("fc3.weight", (CLASSES, HIDDEN)), ("fc3.bias", (CLASSES,))]
SAMPLES = 32


def splitmix64(seed, n):
    """The first n outputs of the generator of Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014)."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def weights():
    total = sum(int(np.prod(s)) for _, s in SHAPES)
    k = (splitmix64(SEED, total) >> np.uint64(40)).astype(np.int64) - 2**23
    flat = (k / 2.0**28).astype(np.float32)
    out, at = [], 0
    for name, shape in SHAPES:
        n = int(np.prod(shape))
        out.append((name, flat[at:at + n].reshape(shape)))
        at += n
    return out


def batches():
    """Noisy copies of ten sparse patterns in three grey levels; about every eighth label is random, so the loss has a floor."""
    g = np.random.Generator(np.random.PCG64(SEED))
    patterns = g.random((CLASSES, PIXELS)) < 0.2
    classes = g.integers(0, CLASSES, (STEPS, BATCH))
    kept = g.random((STEPS, BATCH, PIXELS)) < 0.35
    noise = g.random((STEPS, BATCH, PIXELS)) < 0.08
    level = np.where(g.random((STEPS, BATCH, PIXELS)) < 0.5, 8, 16)
    pixels = np.where(patterns[classes] & kept | noise, level, 0).astype(np.uint8)
    blind = g.random((STEPS, BATCH)) < 0.125
    labels = np.where(blind, g.integers(0, CLASSES, (STEPS, BATCH)), classes).astype(np.int64)
    return pixels, labels


def train(dtype, init, pixels, labels):
    params = [torch.tensor(w).to(dtype).requires_grad_() for _, w in init]
    optimizer = torch.optim.AdamW(params, lr=HYPER["lr"], betas=tuple(HYPER["betas"]), eps=HYPER["eps"], weight_decay=HYPER["weight_decay"])
    losses = []
    for x, y in zip(pixels, labels):
        x = torch.tensor(x).to(dtype) / 16
        w1, b1, w2, b2, w3, b3 = params
        h = F.relu(F.linear(x, w1, b1))
        h = F.relu(F.linear(h, w2, b2))
        loss = F.cross_entropy(F.linear(h, w3, b3), torch.tensor(y))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses, dtype=np.float32 if dtype == torch.float32 else np.float64), [p.detach() for p in params]


def main():
    f = File(__file__, SEED)
    init, (pixels, labels) = weights(), batches()
    f.store("pixels", pixels)
    f.store("labels", labels)
    rows = [{"name": name, "shape": w.shape, "crc32": zlib.crc32(w.astype("<f4").tobytes()), "sum": float(w.astype(np.float64).sum())}
            for name, w in init]
    for label, dtype in (("f32", torch.float32), ("f64", torch.float64)):
        losses, final = train(dtype, init, pixels, labels)
        f.store("losses_" + label, losses)
        print(label, losses[[0, 1, 2, 5, 10, 20, 30, 40, 49]])
        for row, p in zip(rows, final):
            flat = p.reshape(-1)
            at = [i * flat.numel() // SAMPLES for i in range(SAMPLES)]
            f.store(f"final_{label}/{row['name']}", flat[at])
            row["final_sum_" + label] = flat.double().sum().item()
            row["final_square_sum_" + label] = flat.double().square().sum().item()
    f.write("internal/golden/testdata/mlp_adamw.safetensors.gz", parameters=rows, hyper=HYPER)


if __name__ == "__main__":
    main()

"""The bytes that a training step holds in PyTorch, for nn/testdata/peak.json; models and sizes are those of models/peak_test.go.

held: the greatest sum, over a step after the first, of parameters, buffers, optimizer state, gradients that have been accumulated, and tensors
that autograd has saved, each storage counted once. It is taken whenever something is saved or accumulated: at the end of forward that is
saved + parameters + state, in Backward saved ones go and gradients come. What a node saved counts until the next node asks for what it saved, so
that it counts beside the gradients that it gave. Gradients on their way and what ops use inside do not count.
(torch.autograd.graph.saved_tensors_hooks; a saved tensor is released when its packed form is.)

live: the greatest sum of all storages that Python or autograd can reach over the same step, the optimizer's included: what an allocator without
rounding would see, but for what kernels use inside. (A TorchDispatchMode that watches every result.)
"""
import json
import os
import weakref

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

import golden  # one thread, fixed algorithms

SEED = 20240901


def dropout(x, p):
    """Dropout as on a GPU, where the mask is saved as bool; on a CPU PyTorch saves it as float."""
    return torch.native_dropout(x, p, True)[0] if p > 0 else x


class Dropout(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        return dropout(x, self.p)


def mlp(sizes, dropout):
    layers = []
    for i in range(1, len(sizes)):
        if i > 1:
            layers += [nn.ReLU(), Dropout(dropout)]
        layers.append(nn.Linear(sizes[i - 1], sizes[i]))
    return nn.Sequential(*layers, Dropout(dropout))


def cnn(channels, classes):
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), Dropout(0.25), nn.Linear(256, 128), nn.ReLU(), Dropout(0.5), nn.Linear(128, classes))


class LeNet(nn.Module):
    def __init__(self, size, channels, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 6, 5, padding=(32 - size) // 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, classes)

    def forward(self, x):
        x = F.max_pool2d(self.conv1(x).relu(), 2)
        x = F.max_pool2d(self.conv2(x).relu(), 2)
        return self.fc3(self.fc2(self.fc1(x.flatten(1)).relu()).relu())


class Block(nn.Module):
    def __init__(self, width, heads, drop):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.drop = heads, drop

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.attn(self.ln1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + dropout(self.proj(y.transpose(1, 2).reshape(b, t, c)), self.drop)
        return x + dropout(self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh")), self.drop)


class GPT(nn.Module):
    def __init__(self, vocab, context, layers, heads, width, drop):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.h = nn.ModuleList(Block(width, heads, drop) for _ in range(layers))
        self.ln = nn.LayerNorm(width)
        self.drop = drop

    def forward(self, ids):
        x = dropout(self.wte(ids) + self.wpe.weight[: ids.shape[1]], self.drop)
        for b in self.h:
            x = b(x)
        return F.linear(self.ln(x), self.wte.weight)


class Held:
    """Counts storages that autograd has saved."""

    def __init__(self, always):
        self.always = {s.data_ptr(): s.nbytes() for s in always}
        self.count, self.bytes, self.grads, self.peak = {}, {}, {}, 0
        self.done = []

    def now(self):
        n = sum(self.always.values()) + sum(self.grads.values())
        n += sum(self.bytes[p] for p in self.count if p not in self.always and p not in self.grads)
        self.peak = max(self.peak, n)

    def pack(self, x):
        s = x.untyped_storage()
        p = s.data_ptr()
        self.count[p] = self.count.get(p, 0) + 1
        self.bytes[p] = s.nbytes()
        box = Box(x)
        weakref.finalize(box, self.release, p)
        self.now()
        return box

    def unpack(self, box):
        for p in self.done:
            self.count[p] -= 1
            if self.count[p] == 0:
                del self.count[p]
        self.done.clear()
        return box.x

    def release(self, p):
        self.done.append(p)

    def accumulated(self, p):
        s = p.grad.untyped_storage()
        self.grads[s.data_ptr()] = s.nbytes()
        self.now()


class Box:
    def __init__(self, x):
        self.x = x


class Live(TorchDispatchMode):
    """Counts storages that are reachable."""

    def __init__(self, always):
        super().__init__()
        self.seen, self.total, self.peak = set(), 0, 0
        for s in always:
            self.add(s)

    def add(self, s):
        if s._cdata in self.seen or s.nbytes() == 0:
            return
        self.seen.add(s._cdata)
        self.total += s.nbytes()
        self.peak = max(self.peak, self.total)
        weakref.finalize(s, self.drop, s._cdata, s.nbytes())

    def drop(self, key, n):
        self.seen.discard(key)
        self.total -= n

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for t in tree_iter(out):
            if isinstance(t, torch.Tensor):
                self.add(t.untyped_storage())
        return out


def storages(model, opt):
    tensors = list(model.parameters()) + list(model.buffers())
    for state in opt.state.values():
        tensors += [v for v in state.values() if isinstance(v, torch.Tensor)]
    return [t.untyped_storage() for t in tensors]


def measure(model, make, loss_of):
    model.train()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)

    def forward(x, y):
        return loss_of(model(x), y)

    def step():
        x, y = make()
        loss = forward(x, y)
        loss.backward()
        del loss
        opt.step()
        opt.zero_grad()

    step()
    held = Held(storages(model, opt))
    hooks = [p.register_post_accumulate_grad_hook(held.accumulated) for p in model.parameters()]
    x, y = make()
    with torch.autograd.graph.saved_tensors_hooks(held.pack, held.unpack):
        loss = forward(x, y)
    forward_end = held.peak
    loss.backward()
    del loss, x, y
    opt.step()
    opt.zero_grad()
    for h in hooks:
        h.remove()
    with Live(storages(model, opt)) as live:
        step()
    return {"held": held.peak, "live": live.peak, "parameters": sum(p.numel() * 4 for p in model.parameters()), "forward": forward_end}


def classes(out, y):
    return F.cross_entropy(out, y)


def tokens(out, y):
    return F.cross_entropy(out.flatten(0, 1), y.flatten())


def main():
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    r = {}

    def images(n, channels, size, flat=False):
        def make():
            x = torch.zeros(n, channels * size * size) if flat else torch.zeros(n, channels, size, size)
            return x, torch.zeros(n, dtype=torch.int64)
        return make

    def text(batch, length):
        return lambda: (torch.zeros(batch, length, dtype=torch.int64), torch.zeros(batch, length, dtype=torch.int64))

    r["mlp"] = measure(mlp([784, 512, 256, 10], 0.2), images(128, 1, 28, True), classes)
    r["mlp, wide batch"] = measure(mlp([784, 512, 256, 10], 0.2), images(2048, 1, 28, True), classes)
    r["mlp, 24 layers"] = measure(mlp([256] * 25, 0.1), images(1024, 1, 16, True), classes)
    r["mlp, without dropout"] = measure(mlp([256] * 25, 0), images(1024, 1, 16, True), classes)
    r["lenet"] = measure(LeNet(28, 1, 10), images(256, 1, 28), classes)
    r["cnn"] = measure(cnn(1, 10), images(256, 1, 28), classes)
    r["chargpt"] = measure(GPT(65, 64, 4, 4, 128, 0.0), text(32, 64), tokens)
    r["chargpt, dropout"] = measure(GPT(65, 64, 4, 4, 128, 0.1), text(32, 64), tokens)
    r["gpt, 12 layers"] = measure(GPT(1000, 256, 12, 4, 256, 0.1), text(2, 256), tokens)
    for name, v in r.items():
        print(name, v)
    path = os.path.join(os.path.dirname(__file__), "..", "models", "testdata", "peak.json")
    with open(path, "w") as f:
        json.dump({"torch": torch.__version__.split("+")[0], "cases": r}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()

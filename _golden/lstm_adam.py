"""Golden training curve: 200 steps of Adam on a two-layer LSTM that learns the next letter. Writes optim/testdata/lstm_adam.safetensors.gz.

The text is in the file. Sequence b of step s begins at letter (37 s + 101 b) mod (letters - LENGTH - 1). The initial parameters come from a
generator that gives the same bits in any language. One splitmix64 stream fills the parameters in order, row by row. The upper 24 bits k of
each output give (k - 2^23) / 2^26, a float32 in [-1/8, 1/8).
"""

import numpy as np
import torch
import torch.nn.functional as F

from golden import File
from mlp_adamw import splitmix64

SEED = 1997
STEPS, BATCH, LENGTH, EMBED, HIDDEN, LAYERS = 200, 8, 24, 12, 32, 2
LR = 5e-3
TEXT = (
    "a tensor is a view of a storage on a device, and a scope owns tensors and ends. what an op makes belongs to the youngest scope among "
    "its operands, so the scope travels with the batch. when it closes, the memory of all that it owns goes back at once. the gradient of a "
    "leaf lives with the leaf. the engine walks the graph from the loss to the leaves and drops what was saved as it passes. "
)


class Letters(torch.nn.Module):
    def __init__(self, letters):
        super().__init__()
        self.embed = torch.nn.Embedding(letters, EMBED)
        self.lstm = torch.nn.LSTM(EMBED, HIDDEN, LAYERS)
        self.head = torch.nn.Linear(HIDDEN, letters)

    def forward(self, x):
        return self.head(self.lstm(self.embed(x))[0])


def train(dtype, codes, letters):
    m = Letters(letters)
    total = sum(p.numel() for p in m.parameters())
    k = (splitmix64(SEED, total) >> np.uint64(40)).astype(np.int64) - 2**23
    flat, at = torch.tensor((k / 2.0**26).astype(np.float32)), 0
    names = []
    with torch.no_grad():
        for name, p in m.named_parameters():
            p.copy_(flat[at:at + p.numel()].reshape(p.shape))
            at += p.numel()
            names.append(name)
    m = m.to(dtype)
    opt = torch.optim.Adam(m.parameters(), lr=LR)
    losses = []
    for s in range(STEPS):
        starts = [(37 * s + 101 * b) % (len(codes) - LENGTH - 1) for b in range(BATCH)]
        window = torch.stack([codes[i:i + LENGTH + 1] for i in starts], 1)
        loss = F.cross_entropy(m(window[:-1]).flatten(0, 1), window[1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return np.array(losses, dtype=np.float32 if dtype == torch.float32 else np.float64), names


def main():
    f = File(__file__, SEED)
    alphabet = "".join(sorted(set(TEXT)))
    codes = torch.tensor([alphabet.index(c) for c in TEXT])
    f.store("codes", codes)
    for label, dtype in (("f32", torch.float32), ("f64", torch.float64)):
        losses, names = train(dtype, codes, len(alphabet))
        f.store("losses_" + label, losses)
        print(label, losses[[0, 1, 10, 50, 100, 150, 199]])
    f.write("optim/testdata/lstm_adam.safetensors.gz", names=names, letters=len(alphabet), batch=BATCH, length=LENGTH, embed=EMBED, hidden=HIDDEN,
            layers=LAYERS, lr=LR)


if __name__ == "__main__":
    main()

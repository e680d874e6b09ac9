"""A golden training curve of a small convolutional network. Writes optim/testdata/cnn.

conv(1→4, 3×3, padding 1) – batch norm – ReLU – max pool 2 – conv(4→8, 3×3, padding 1) – batch norm – ReLU – max pool 2 – linear(32→5), mean
cross-entropy, SGD with momentum and weight decay, 200 steps on batches of 16. Sample n of a step has the label (7n + 3·step) mod 5, and
at (i, j) the pixel ((i·(label+1) + j·(label+3) + 5n + 11·step) mod 17)/16 - 1/2. The file holds the weights at the start and the loss of each
step, in float32 and in float64 from the same weights.
"""

import torch
from torch import nn

from golden import File

SEED = 9
STEPS, BATCH, SIZE = 200, 16, 8


def batch(step, dtype):
    n = torch.arange(BATCH)
    label = (7 * n + 3 * step) % 5
    i, j = torch.arange(SIZE).view(1, SIZE, 1), torch.arange(SIZE).view(1, 1, SIZE)
    k = label.view(-1, 1, 1)
    x = ((i * (k + 1) + j * (k + 3) + 5 * n.view(-1, 1, 1) + 11 * step) % 17).to(dtype) / 16 - 0.5
    return x.unsqueeze(1), label


def model():
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32, 5))


def main():
    f = File(__file__, SEED)
    torch.manual_seed(SEED)
    start = model().state_dict()
    for k, v in start.items():
        f.store(f"start/{k}", v)
    for label, dtype in (("f32", torch.float32), ("f64", torch.float64)):
        m = model()
        m.load_state_dict(start)
        m.to(dtype)
        optimizer = torch.optim.SGD(m.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-3)
        losses = []
        for step in range(STEPS):
            x, y = batch(step, dtype)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(m(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        f.store(f"losses_{label}", torch.stack(losses))
        print(label, float(losses[0]), float(losses[50]), float(losses[-1]))
        if label == "f64":
            for k, v in m.state_dict().items():
                if "running" in k:
                    f.store(f"end/{k}", v)
    f.write("optim/testdata/cnn.safetensors.gz")


if __name__ == "__main__":
    main()

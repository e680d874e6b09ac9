"""Golden training of layers with weight normalisation and spectral normalisation. Writes nn/testdata/reparam.safetensors.gz."""

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from golden import File

SEED = 1998
STEPS = 6
LR = 0.05


def main():
    torch.manual_seed(SEED)
    m = nn.Sequential(
        spectral_norm(nn.Conv2d(2, 3, 3, padding=1)),
        nn.Tanh(),
        spectral_norm(nn.ConvTranspose2d(3, 4, 2, stride=2)),
        nn.Flatten(),
        weight_norm(nn.Linear(64, 5)),
        weight_norm(nn.Linear(5, 3, bias=False), dim=1),
        spectral_norm(nn.Linear(3, 2)),
        weight_norm(nn.Linear(2, 2), dim=None),
    ).double()
    f = File(__file__, SEED)
    x, y = torch.randn(4, 2, 2, 2).double(), torch.randn(4, 2).double()
    f.store("x", x)
    f.store("y", y)
    # Their optimizer goes through the names in an order that nobody else needs to know.
    names = list(m.state_dict())
    for name, t in m.state_dict().items():
        f.store("first." + name, t.clone())
    opt = torch.optim.SGD(m.parameters(), lr=LR)
    losses = []
    for _ in range(STEPS):
        loss = nn.functional.mse_loss(m(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.detach())
    m.eval()
    losses.append(nn.functional.mse_loss(m(x), y).detach())
    f.store("losses", torch.stack(losses))
    for name, t in m.state_dict().items():
        f.store("last." + name, t)
    f.store("weight", m[0].weight.detach())
    f.write("nn/testdata/reparam.safetensors.gz", names=names, lr=LR)


if __name__ == "__main__":
    main()

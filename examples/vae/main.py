"""The same program in PyTorch: python main.py [--epochs 20]"""
import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.utils import save_image


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(64, 128)
        self.mean = nn.Linear(128, 8)
        self.logvar = nn.Linear(128, 8)
        self.decoder = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 64))

    def encode(self, x):
        h = F.relu(self.hidden(x))
        return self.mean(h), self.logvar(h)

    def loss(self, x):
        mean, logvar = self.encode(x)
        z = mean + torch.randn_like(mean) * torch.exp(logvar / 2)
        bce = F.binary_cross_entropy_with_logits(self.decoder(z), x, reduction="sum")
        kld = -0.5 * torch.sum(1 + logvar - mean**2 - torch.exp(logvar))
        return (bce + kld) / len(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--out", default="digits.png")
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    digits = load_digits()
    x = torch.tensor(digits.data / 16, dtype=torch.float32)
    loader = DataLoader(TensorDataset(x), batch_size=64, shuffle=True, pin_memory=True)
    model = VAE().to(device)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        total = 0.0
        for (x,) in loader:
            loss = model.loss(x.to(device, non_blocking=True))
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch + 1}: loss {total / len(loader):.2f}")

    with torch.no_grad():
        pictures = torch.sigmoid(model.decoder(torch.randn(32, 8, device=device)))
    save_image(pictures.view(-1, 1, 8, 8), args.out)
    print("32 new digits are in", args.out)


if __name__ == "__main__":
    main()

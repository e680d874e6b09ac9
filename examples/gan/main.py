"""The same program in PyTorch: python main.py [--epochs 20]"""
import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

NOISE = 16


def new_generator():
    return nn.Sequential(
        nn.ConvTranspose2d(NOISE, 32, 2, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1),
        nn.Sigmoid(),
    )


def new_discriminator():
    return nn.Sequential(
        nn.Conv2d(1, 16, 4, stride=2, padding=1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(16, 32, 4, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(128, 1),
    )


def loss(logits, target):
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, target))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    digits = load_digits()
    x = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)
    loader = DataLoader(TensorDataset(x), batch_size=64, shuffle=True, drop_last=True, pin_memory=True)
    generator = new_generator().to(device)
    discriminator = new_discriminator().to(device)
    opt_g = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    opt_d = torch.optim.Adam(discriminator.parameters(), lr=5e-4, betas=(0.5, 0.999))
    for epoch in range(args.epochs):
        sum_d = sum_g = 0.0
        for (real,) in loader:
            real = real.to(device, non_blocking=True)
            fake = generator(torch.randn(len(real), NOISE, 1, 1, device=device))

            opt_d.zero_grad()
            loss_d = loss(discriminator(real), 0.9) + loss(discriminator(fake.detach()), 0)
            loss_d.backward()
            opt_d.step()

            opt_g.zero_grad()
            loss_g = loss(discriminator(fake), 1)
            loss_g.backward()
            opt_g.step()

            sum_d += loss_d.item()
            sum_g += loss_g.item()
        print(f"epoch {epoch + 1}: discriminator {sum_d / len(loader):.3f}, generator {sum_g / len(loader):.3f}")

    generator.eval()
    with torch.no_grad():
        pictures = generator(torch.randn(2, NOISE, 1, 1, device=device))
    for picture in pictures.view(2, 8, 8).cpu():
        for row in picture:
            print("".join(" .:-=+*#%@"[int(v * 9.99)] for v in row))


if __name__ == "__main__":
    main()

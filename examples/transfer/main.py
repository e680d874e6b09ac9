"""The same program in PyTorch: python main.py WEIGHTS.pth PICTURES [--epochs 5] [--size 224]"""
import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, random_split
from torchvision import datasets, models, transforms


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("weights")
    parser.add_argument("pictures")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--size", type=int, default=224)
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    normalize = transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    prepare = transforms.Compose(
        [transforms.Resize(args.size), transforms.CenterCrop(args.size), transforms.ToTensor(), normalize]
    )
    folder = datasets.ImageFolder(args.pictures, prepare)
    train, test = random_split(folder, [0.8, 0.2])
    train_loader = DataLoader(train, batch_size=16, shuffle=True, pin_memory=True)
    test_loader = DataLoader(test, batch_size=16, pin_memory=True)

    model = models.resnet18()
    model.load_state_dict(torch.load(args.weights, weights_only=True))
    model.requires_grad_(False)
    model.fc = nn.Linear(512, len(folder.classes))  # only this layer is trained
    model = model.to(device)
    model.eval()  # batch normalisation keeps its statistics too
    opt = torch.optim.SGD(model.fc.parameters(), lr=1e-2, momentum=0.9)
    for epoch in range(args.epochs):
        total = 0.0
        for x, y in train_loader:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()

        right = 0
        with torch.no_grad():
            for x, y in test_loader:
                x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
                right += (model(x).argmax(-1) == y).sum().item()
        print(f"epoch {epoch + 1}: loss {total / len(train_loader):.4f}, {right} of {len(test)} right")


if __name__ == "__main__":
    main()

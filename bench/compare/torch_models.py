"""models.LeNet and models.ResNet18 in PyTorch, and the classifier of cpucases.go, for torch_compare.py."""

import torch
from torch import nn


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def conv(i, o, kernel, stride):
    layer = nn.Conv2d(i, o, kernel, stride, kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


class Block(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.body = nn.Sequential(conv(i, o, 3, stride), nn.BatchNorm2d(o), nn.ReLU(inplace=True), conv(o, o, 3, 1), nn.BatchNorm2d(o))
        self.shortcut = nn.Identity() if i == o else nn.Sequential(conv(i, o, 1, stride), nn.BatchNorm2d(o))

    def forward(self, x):
        y = self.body(x)
        y += self.shortcut(x)
        return y.relu_()


def resnet18(classes):
    """torchvision's ResNet-18, which adds and applies ReLU in place too."""
    return nn.Sequential(
        conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
        *(Block(i, o, 1 if i == o else 2) for i, o in ((64, 64), (64, 64), (64, 128), (128, 128), (128, 256), (256, 256), (256, 512), (512, 512))),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(64, 128), nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0][-1])

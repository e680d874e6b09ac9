"""Exchanges torchvision's ResNet-50 and ViT-B/16, in full size, between PyTorch and Flambeau: in both directions and both formats.

    python interop_vision.py write DIR     random models, saved as .safetensors and .pt, with images and logits
    go run ./bench/interop DIR             loads them, compares logits, and saves other models with their logits
    python interop_vision.py check DIR     loads these models and compares logits

The files are large (about 1.3 GB) and are not committed.
"""

import os
import sys

import torch
import torchvision
from safetensors.torch import load_file, save_file

TOLERANCE = 1e-4  # as a part of the greatest logit
MODELS = {"resnet50": torchvision.models.resnet50, "vit_b_16": torchvision.models.vit_b_16}


def write(folder):
    torch.manual_seed(20261181)
    x = torch.randn(2, 3, 224, 224)
    for name, make in MODELS.items():
        m = make(weights=None)
        with torch.no_grad():
            for key, t in m.state_dict().items():  # zeros and ones, as in a new model, would hide mistakes
                if key.endswith("running_var"):
                    t.uniform_(0.5, 1.5)
                elif key.endswith(("running_mean", ".bias")) or "class_token" in key:
                    t.normal_(0, 0.1)
                elif t.dim() == 1:
                    t.uniform_(0.5, 1.5)
                elif key == "heads.head.weight":
                    t.normal_(0, 0.02)
            logits = m.eval()(x)
        save_file(m.state_dict(), f"{folder}/{name}.safetensors")
        torch.save(m.state_dict(), f"{folder}/{name}.pt")
        save_file({"images": x, "logits": logits}, f"{folder}/{name}.expected.safetensors")
        print(f"{name}: logits up to {logits.abs().max():.4f}")


def check(folder):
    for name, make in MODELS.items():
        want = load_file(f"{folder}/{name}.ours.expected.safetensors")
        for kind in ("safetensors", "pt"):
            path = f"{folder}/{name}.ours.{kind}"
            m = make(weights=None)
            m.load_state_dict(load_file(path) if kind == "safetensors" else torch.load(path, weights_only=True))
            with torch.no_grad():
                logits = m.eval()(want["images"])
            off = ((logits - want["logits"]).abs().max() / logits.abs().max()).item()
            print(f"{os.path.basename(path)}: logits differ by {off:.2g} of the greatest")
            assert off < TOLERANCE and logits.abs().max() > 0


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](sys.argv[2])

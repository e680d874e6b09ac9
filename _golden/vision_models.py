"""torchvision's ResNet and VisionTransformer in small, and the names and shapes of the large ones. Writes models/testdata/vision.safetensors.gz.

Weights and images are not stored: both sides compute them from a hash.
"""

import json
import math

import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet
from torchvision.models.vision_transformer import VisionTransformer

from golden import File

SEED = 20261180


def uniform(seed, n, scale):
    """n float32 numbers in [-scale, scale) of a hash, MurmurHash3's finalizer of index and seed."""
    x = (np.arange(n, dtype=np.uint64) + np.uint64(seed) * np.uint64(0x9E3779B1)) & np.uint64(0xFFFFFFFF)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x ^= x >> np.uint64(shift)
        x = (x * np.uint64(factor)) & np.uint64(0xFFFFFFFF)
    x ^= x >> np.uint64(16)
    return ((x.astype(np.float64) / 2**31 - 1) * scale).astype(np.float32)


def value(i, name, t):
    """The tensor called name, number i of the sorted names."""
    if name.endswith("num_batches_tracked"):
        return torch.tensor(3)
    norm = "bn" in name or "ln" in name or "downsample.1" in name
    if name.endswith("running_var"):
        scale, add = 0.5, 1
    elif norm and name.endswith("weight"):
        scale, add = 0.25, 1
    elif t.dim() < 2 or name.endswith("running_mean"):
        scale, add = 0.125, 0
    elif "token" in name or "embedding" in name:
        scale, add = 0.5, 0
    else:
        scale, add = math.sqrt(3 / (t.numel() // t.shape[0])), 0
    return torch.from_numpy(uniform(i + 1, t.numel(), scale)).reshape(t.shape) + add


def fill(model):
    state = model.state_dict()
    model.load_state_dict({name: value(i, name, state[name]) for i, name in enumerate(sorted(state))})


def small_resnet(block, blocks, width, classes, channels):
    """torchvision's network with another width and other images."""
    m = ResNet.__new__(ResNet)
    nn.Module.__init__(m)
    m._norm_layer, m.inplanes, m.dilation, m.groups, m.base_width = nn.BatchNorm2d, width, 1, 1, 64
    m.conv1, m.bn1, m.relu = nn.Conv2d(channels, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU()
    m.maxpool, m.avgpool = nn.MaxPool2d(3, 2, 1), nn.AdaptiveAvgPool2d(1)
    for i, n in enumerate(blocks):
        setattr(m, f"layer{i + 1}", m._make_layer(block, width << i, n, stride=1 if i == 0 else 2))
    m.fc = nn.Linear((width << 3) * block.expansion, classes)
    return m


def run(f, name, make, images, labels, gradients, statistics=()):
    x = torch.from_numpy(uniform(500, math.prod(images), 1.0)).reshape(images)
    labels = torch.tensor(labels)
    for label, dtype in (("f32", torch.float32), ("f64", torch.float64)):
        m = make()
        fill(m)
        m = m.to(dtype)
        f.store(f"{name}/eval/{label}", m.eval()(x.to(dtype)))
        logits = m.train()(x.to(dtype))
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        f.store(f"{name}/train/{label}", logits)
        f.store(f"{name}/loss/{label}", loss)
        params, buffers = dict(m.named_parameters()), dict(m.named_buffers())
        for n in gradients:
            f.store(f"{name}/grad {n}/{label}", params[n].grad)
        for n in statistics:
            f.store(f"{name}/buffer {n}/{label}", buffers[n])


if __name__ == "__main__":
    f = File(__file__, SEED)
    run(f, "basic", lambda: small_resnet(BasicBlock, [1, 2, 1, 1], 8, 7, 1), (4, 1, 48, 40), [3, 0, 6, 2],
        ["conv1.weight", "bn1.weight", "layer1.0.conv2.weight", "layer2.0.downsample.0.weight", "layer2.1.bn2.bias", "layer4.0.downsample.1.weight", "fc.weight", "fc.bias"],
        ["bn1.running_mean", "layer4.0.bn2.running_var"])
    run(f, "bottleneck", lambda: small_resnet(Bottleneck, [1, 1, 2, 1], 4, 5, 3), (4, 3, 48, 48), [3, 0, 4, 2],
        ["conv1.weight", "bn1.bias", "layer1.0.conv2.weight", "layer1.0.downsample.0.weight", "layer3.1.bn3.weight", "layer3.0.conv3.weight", "fc.weight"],
        ["layer1.0.downsample.1.running_mean", "layer3.1.bn3.running_var"])
    run(f, "vit", lambda: VisionTransformer(32, 8, 2, 4, 32, 48, num_classes=5), (3, 3, 32, 32), [3, 0, 4],
        ["class_token", "encoder.pos_embedding", "conv_proj.bias", "encoder.layers.encoder_layer_0.self_attention.in_proj_weight",
         "encoder.layers.encoder_layer_1.self_attention.out_proj.bias", "encoder.layers.encoder_layer_0.mlp.0.weight",
         "encoder.layers.encoder_layer_1.ln_2.weight", "encoder.ln.bias", "heads.head.weight"])
    names = {}
    for n in ("resnet18", "resnet34", "resnet50", "vit_b_16"):
        m = getattr(torchvision.models, n)(weights=None)
        names[n] = {k: list(v.shape) for k, v in m.state_dict().items()}
    mlp = torchvision.ops.MLP(4, [5, 3], dropout=0.1)
    names["mlp"] = {k: list(v.shape) for k, v in mlp.state_dict().items()}
    f.write("models/testdata/vision.safetensors.gz", names=names, torchvision=torchvision.__version__)

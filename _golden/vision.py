<<<<<<< HEAD
"""What torchvision's transforms of tensors compute, data/vision/testdata/transforms.safetensors.gz, and what Pillow decodes, pictures there."""

import io

import numpy as np
import PIL
import torch
import torchvision
import torchvision.transforms.functional as F
from torchvision.transforms import InterpolationMode as Mode

from PIL import Image

from golden import File, Operand

SEED = 20261122
MODES = {"bilinear": (Mode.BILINEAR, True), "bicubic": (Mode.BICUBIC, True), "nearest": (Mode.NEAREST, True),
         "bilinear plain": (Mode.BILINEAR, False), "bicubic plain": (Mode.BICUBIC, False)}


def pictures():
    file = File(__file__, SEED)
    y, x = np.mgrid[:15, :23]
    planes = np.stack([127 + 100 * np.sin(x * 0.3 + c) + 40 * np.cos(y * 0.35 * (c + 1)) for c in range(3)], -1)
    color = Image.fromarray((planes + file.randn(15, 23, 3, scale=12).numpy()).clip(0, 255).astype(np.uint8))
    clear = color.convert("RGBA")
    clear.putalpha(Image.fromarray((x * 11 % 256).astype(np.uint8)))
    palette = color.quantize(20)
    wide = Image.fromarray((planes[..., 0].clip(0, 255) * 257).astype(np.uint16))

    def case(name, image, form, expect=None, **options):
        """The bytes of the file, and the pixels that Pillow gives for it."""
        text = io.BytesIO()
        image.save(text, form, **options)
        back = Image.open(io.BytesIO(text.getvalue()))
        for mode in ("RGB", "L"):
            pixels = np.asarray(back.convert(mode)) if expect is None else expect[mode]
            pixels = torch.from_numpy(np.ascontiguousarray(pixels.reshape(15, 23, -1).transpose(2, 0, 1)))
            file.case(form.lower(), f"{name} {mode}", lambda _: pixels, [Operand(torch.tensor(list(text.getvalue()), dtype=torch.uint8))], mode=mode)

    for name, subsampling in (("4:4:4", 0), ("4:2:2", 1), ("4:2:0", 2)):
        case(name, color, "JPEG", quality=92, subsampling=subsampling)
    case("progressive", color, "JPEG", quality=80, progressive=True)
    case("gray", color.convert("L"), "JPEG", quality=92)
    case("lossy", color, "WEBP", quality=90)
    case("lossy, coarse", color, "WEBP", quality=30)
    case("lossy, transparent", clear, "WEBP", quality=90, exact=True)
    case("lossless", clear, "WEBP", lossless=True, exact=True)
    case("palette", palette, "GIF")
    case("color", color, "PNG")
    case("transparent", clear, "PNG")
    case("gray, transparent", clear.convert("LA"), "PNG")
    case("palette", palette, "PNG")
    case("bits", color.convert("1"), "PNG")
    high = (np.asarray(wide) >> 8).astype(np.uint8)  # Pillow cuts 16 bits off at 255 instead
    case("gray, 16 bits", wide, "PNG", expect={"RGB": np.stack([high] * 3, -1), "L": high})
    file.write("data/vision/testdata/pictures.safetensors.gz", torchvision=torchvision.__version__, pillow=PIL.__version__)


def main():
    pictures()
    file = File(__file__, SEED)

    def image(h, w, c=3):
        """Smooth colours with noise and some full and some empty pixels."""
        y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        planes = torch.stack([127 + 90 * torch.sin(x * (0.3 + k / 5) + y * 0.2 + k) for k in range(c)])
        return (planes + file.randn(c, h, w, scale=40)).round().clamp(0, 255).to(torch.uint8)

    def case(op, name, fn, image, **args):
        """On bytes and on numbers 0 … 1."""
        file.case(op, name + " bytes", lambda x: fn(x), [Operand(image, grad=False)], **args)
        file.case(op, name + " numbers", lambda x: fn(x), [Operand(image / 255, grad=False)], **args)

    base, gray, small = image(13, 17), image(9, 8, 1), image(7, 9)  # of odd sides: turned by 90 degrees no pixel lies between two
    for mode, (m, smooth) in MODES.items():
        for h, w in ((5, 6), (13, 9), (20, 31), (1, 1), (6, 40)):
            case("resize_to", f"{mode} {h}x{w}", lambda x: F.resize(x, [h, w], m, antialias=smooth), base, h=h, w=w, mode=mode)
        case("resize_to", f"{mode} gray", lambda x: F.resize(x, [4, 11], m, antialias=smooth), gray, h=4, w=11, mode=mode)
        case("resize", f"{mode} 7", lambda x: F.resize(x, [7], m, antialias=smooth), base, size=7, mode=mode)
        case("resized_crop", mode, lambda x: F.resized_crop(x, 2, 3, 8, 11, [6, 6], m, antialias=smooth), base,
             top=2, left=3, h=8, w=11, size=6, mode=mode)
    case("resize", "tall", lambda x: F.resize(x, [5], Mode.BILINEAR, antialias=True), image(17, 6), size=5, mode="bilinear")
    for size in (4, 5, 12, 13, 14, 20):
        case("center_crop", f"{size}", lambda x: F.center_crop(x, [size, size]), base, size=size)
    for mode in ("constant", "edge", "reflect", "symmetric"):
        for p in ([1, 2, 3, 4], [5, 0, 0, 5], [7, 8, 7, 8]):
            fill = 0.5 if mode == "constant" else 0
            file.case("pad", f"{mode} {p} numbers", lambda x: F.pad(x, p, fill, mode), [Operand(gray / 255, grad=False)], padding=p, mode=mode, fill=fill)
            fill = 77 if mode == "constant" else 0
            file.case("pad", f"{mode} {p} bytes", lambda x: F.pad(x, p, fill, mode), [Operand(gray, grad=False)], padding=p, mode=mode, fill=fill)
    for degrees in (0, 7.5, -33, 90, 180, 201.5):
        for mode in ("nearest", "bilinear"):
            for fill in (0, 60):
                for scale, kind in ((1, "bytes"), (255, "numbers")):
                    x = small if scale == 1 else small / 255
                    file.case("rotate", f"{degrees} {mode} {fill} {kind}",
                              lambda x: F.rotate(x, degrees, Mode(mode), fill=[fill / scale] * 3), [Operand(x, grad=False)],
                              degrees=degrees, mode=mode, fill=fill / scale)
    case("grayscale", "one", lambda x: F.rgb_to_grayscale(x, 1), base, channels=1)
    case("grayscale", "three", lambda x: F.rgb_to_grayscale(x, 3), base, channels=3)
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    file.case("normalize", "imagenet", lambda x: F.normalize(x, mean, std), [Operand(base / 255, grad=False)], mean=mean, std=std)
    for factor in (0, 0.4, 1, 1.7):
        case("brightness", f"{factor}", lambda x: F.adjust_brightness(x, factor), small, factor=factor)
        case("contrast", f"{factor}", lambda x: F.adjust_contrast(x, factor), small, factor=factor)
        case("saturation", f"{factor}", lambda x: F.adjust_saturation(x, factor), small, factor=factor)
        case("contrast", f"gray {factor}", lambda x: F.adjust_contrast(x, factor), gray, factor=factor)
    extremes = torch.tensor([[0, 0, 0], [255, 255, 255], [255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0], [0, 9, 9], [8, 0, 8], [1, 1, 0], [255, 254, 255]],
                            dtype=torch.uint8).T.reshape(3, 2, 5).contiguous()
    for turn in (-0.5, -0.2, 0, 0.1, 0.37, 0.5):
        case("hue", f"{turn}", lambda x: F.adjust_hue(x, turn), small, turn=turn)
        case("hue", f"extremes {turn}", lambda x: F.adjust_hue(x, turn), extremes, turn=turn)
    case("to_tensor", "scaled", lambda x: x / 255 if x.dtype == torch.uint8 else x, base)
    file.write("data/vision/testdata/transforms.safetensors.gz", torchvision=torchvision.__version__)


if __name__ == "__main__":
    main()
=======
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
>>>>>>> nn-core

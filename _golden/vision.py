"""What torchvision's transforms of tensors compute: data/vision/testdata/transforms.safetensors.gz."""

import torch
import torchvision
import torchvision.transforms.functional as F
from torchvision.transforms import InterpolationMode as Mode

from golden import File, Operand

SEED = 20261122
MODES = {"bilinear": (Mode.BILINEAR, True), "bicubic": (Mode.BICUBIC, True), "nearest": (Mode.NEAREST, True),
         "bilinear plain": (Mode.BILINEAR, False), "bicubic plain": (Mode.BICUBIC, False)}


def main():
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

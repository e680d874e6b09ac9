"""The cases of BenchmarkImages in data/vision, by torchvision with Pillow, one image on one thread: python3 torch_images.py.

    go test -run - -bench Images ./data/vision
"""

import io
import random
import statistics
import time

import numpy as np
import torch
import torchvision.transforms as T
from PIL import Image

torch.set_num_threads(1)


def photo():
    y, x = np.meshgrid(np.arange(375), np.arange(500), indexing="ij")
    planes = [127 + 60 * np.sin(x * 0.05 + c) + 40 * np.sin(y * 0.11) + 20 * np.sin(x * y * 0.013) for c in range(3)]
    return Image.fromarray(np.stack(planes, -1).astype(np.uint8))


def main():
    random.seed(1), torch.manual_seed(1)
    image = photo()
    small = image.resize((224, 224), Image.BILINEAR)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90)
    normal = T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    bilinear = T.InterpolationMode.BILINEAR
    cases = {
        "resize256": (T.Resize(256), image),
        "resize256bicubic": (T.Resize(256, T.InterpolationMode.BICUBIC), image),
        "train224": (T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(), normal]), image),
        "eval224": (T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor(), normal]), image),
        "jitter224": (T.ColorJitter(0.4, 0.4, 0.4, 0.1), small),
        "rotate224": (T.RandomRotation(15, bilinear), small),
        "decode": (lambda f: Image.open(io.BytesIO(f)).convert("RGB"), file.getvalue()),
    }
    for name, (f, on) in cases.items():
        times = []
        for i in range(300):
            start = time.perf_counter()
            f(on)
            times.append(time.perf_counter() - start)
        print(f"{name:20} {statistics.median(times[50:]) * 1e3:8.3f} ms")


if __name__ == "__main__":
    main()

"""Golden files for what attention.py leaves out: distances at the edges, bilinear forms. Writes tensor/optest/testdata/neuralextra.safetensors.gz."""

import math

import torch
import torch.nn.functional as F

from golden import File, Operand
from ops import FOLDER, SEED, expand, transpose

f = File(__file__, SEED + 41)
r = f.randn
INF, NAN = math.inf, math.nan


def distances():
    a = torch.tensor([[0.0, -0.0, 0.0], [1e-20, 1e-20, 0.0], [1.0, -2.0, 3.0], [INF, 1.0, 0.0], [NAN, 1.0, 0.0], [1e15, 1.0, -1e15], [2.0, 2.0, 2.0], [INF, 0.0, 0.0]])
    b = torch.tensor([[0.0, 0.0, 0.0], [0.0, -1e-20, 0.0], [1.0, -2.0, 3.5], [1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [-1e15, 1.0, 1e15], [1.0, 1.0, 1.0], [INF, 0.0, 0.0]])
    for p in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, INF, -INF, -1.0):
        order = "inf" if p == INF else "-inf" if p == -INF else str(p)
        known = lambda t: Operand(t, grad=p != 0)  # PyTorch has no gradient for 0
        for eps in (1e-6, 0.0):
            fn = lambda x, y: F.pairwise_distance(x, y, p, eps)
            args = {"p": order, "eps": eps}
            f.case("pairwise_distance", f"ordinary edge {args}", fn, [known(r(3, 4)), known(r(3, 4))], **args)
            f.case("pairwise_distance", f"extreme {args}", fn, [known(a), known(b)], **args)
        if p >= 0:
            fn = lambda x, y: torch.cdist(x, y, p, "donot_use_mm_for_euclid_dist")
            f.case("cdist", f"ordinary edge p={order}", fn, [r(3, 4), r(2, 4)], p=order)
            f.case("cdist", f"extreme p={order}", fn, [a[:7] if p < INF else a[:4], b[:3]], p=order)  # whether PyTorch's greatest sees NaN depends on its place in a vector
    for dim in (0, 1, -1):
        fn = lambda x, y: F.cosine_similarity(x, y, dim, 1e-8)
        args = {"dim": dim, "eps": 1e-8}
        f.case("cosine_similarity", f"broadcast rank dim={dim}", fn, [r(2, 3), r(4, 2, 3)], **args)
        f.case("cosine_similarity", f"extreme lengths dim={dim}", fn, [a[:3], b[:3]], **args)
        f.case("cosine_similarity", f"ties dim={dim}", fn, [b[2:5].clone(), b[2:5].clone()], **args)


if __name__ == "__main__":
    distances()
    f.write(FOLDER + "neuralextra.safetensors.gz")

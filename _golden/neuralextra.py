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
        known = lambda t: Operand(t, grad=p != 0)  # PyTorch has no gradient for p = 0
        for eps in (1e-6, 0.0):
            fn = lambda x, y: F.pairwise_distance(x, y, p, eps)
            args = {"p": order, "eps": eps}
            f.case("pairwise_distance", f"ordinary edge {args}", fn, [known(r(3, 4)), known(r(3, 4))], **args)
            f.case("pairwise_distance", f"extreme {args}", fn, [known(a), known(b)], **args)
        if p >= 0:
            fn = lambda x, y: torch.cdist(x, y, p, "donot_use_mm_for_euclid_dist")
            f.case("cdist", f"ordinary edge p={order}", fn, [r(3, 4), r(2, 4)], p=order)
            # No NaN for p = inf: whether PyTorch's maximum notices it depends on its place in a
            # SIMD vector.
            f.case("cdist", f"extreme p={order}", fn, [a[:7] if p < INF else a[:4], b[:3]], p=order)
    for dim in (0, 1, -1):
        fn = lambda x, y: F.cosine_similarity(x, y, dim, 1e-8)
        args = {"dim": dim, "eps": 1e-8}
        f.case("cosine_similarity", f"broadcast rank dim={dim}", fn, [r(2, 3), r(4, 2, 3)], **args)
        f.case("cosine_similarity", f"extreme lengths dim={dim}", fn, [a[:3], b[:3]], **args)
        f.case("cosine_similarity", f"ties dim={dim}", fn, [b[2:5].clone(), b[2:5].clone()], **args)


def layers():
    bi = lambda x, y, w, b=None: F.bilinear(x, y, w, b)
    f.case("bilinear", "ordinary", bi, [r(4, 3), r(4, 2), r(5, 3, 2), r(5)])
    f.case("bilinear", "ordinary without bias", bi, [r(4, 3), r(4, 2), r(5, 3, 2)])
    f.case("bilinear", "ordinary deep", bi, [r(2, 3, 3), r(2, 3, 2), r(2, 3, 2), r(2)])
    f.case("bilinear", "ordinary vectors", bi, [r(3), r(2), r(4, 3, 2), r(4)])
    f.case("bilinear", "transposed", bi, [Operand(r(3, 4), transpose(0, 1)), Operand(r(2, 4), transpose(0, 1)), Operand(r(5, 2, 3), transpose(1, 2)), r(5)])
    f.case("bilinear", "expanded", bi, [Operand(r(1, 3), expand(4, 3)), r(4, 2), r(5, 3, 2), Operand(r(1), expand(5))])
    f.case("bilinear", "empty", bi, [r(0, 3), r(0, 2), r(5, 3, 2), r(5)])
    f.case("bilinear", "extreme", bi, [torch.tensor([[INF, 1.0], [NAN, 0.0], [1e20, 1.0]]), torch.tensor([[1.0, 2.0], [1.0, 1.0], [1e25, 0.0]]), r(2, 2, 2), r(2)])
    rows = torch.tensor([[1.0, INF, 2.0], [-INF, 0.0, 1.0], [NAN, 1.0, 2.0], [1e4, -1e4, 0.0], [3e38, 3e38, -3e38], [INF, INF, INF], [-0.0, 0.0, 1e-45], [2.0, 2.0, 2.0]])
    for dim in (-1, 0):
        fn = lambda x: F.softmin(x, dim=dim)
        f.case("softmin", f"ordinary dim={dim}", fn, [r(3, 4)], dim=dim)
        f.case("softmin", f"transposed dim={dim}", fn, [Operand(r(4, 3), transpose(0, 1))], dim=dim)
        f.case("softmin", f"expanded dim={dim}", fn, [Operand(r(1, 3), expand(4, 3))], dim=dim)
        f.case("softmin", f"empty dim={dim}", fn, [r(0, 3)], dim=dim)
        f.case("softmin", f"scalar dim={dim}", fn, [r()], dim=dim)
    f.case("softmin", "extreme dim=-1", lambda x: F.softmin(x, dim=-1), [rows], dim=-1)


if __name__ == "__main__":
    distances()
    layers()
    f.write(FOLDER + "neuralextra.safetensors.gz")

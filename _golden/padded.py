"""Golden file for convolutions that pad their input with itself. Writes nn/testdata/padded.safetensors.gz."""

import torch

from golden import File, Operand
from modelcases import model_case
from ops import SEED, transpose

f = File(__file__, SEED + 91)
r = f.randn


if __name__ == "__main__":
    shapes = {1: (2, 2, 6), 2: (2, 2, 5, 6), 3: (1, 2, 3, 4, 4)}
    for rank, xs in shapes.items():
        layer = getattr(torch.nn, f"Conv{rank}d")
        for mode in ("zeros", "reflect", "replicate", "circular"):
            kinds = [{"padding": [1] * rank}, {"padding": "same"}]
            if rank < 3:
                kinds.append({"padding": list(range(2, 2 - rank, -1)), "stride": [2] * rank, "dilation": [1] * rank, "groups": 2})
            for kw in kinds:
                kernel = (3, 2, 2)[:rank] if kw["padding"] == "same" else (3,) * rank
                options = {k: tuple(v) if isinstance(v, list) else v for k, v in kw.items()}
                make = lambda: layer(2, 4, kernel, padding_mode=mode, **options)
                call = lambda m, x, _: [m(x[0])]
                args = {"mode": mode, "rank": rank, "kernel": list(kernel), **{k: v for k, v in kw.items() if v != "same"}}
                if kw["padding"] == "same":
                    args["same"] = True
                name = f"{mode} {rank} {kw}"
                model_case(f, "conv", "ordinary " + name, make, call, [r(*xs)], **args)
                model_case(f, "conv", "unbatched " + name, make, call, [r(*xs[1:])], **args)
                if mode != "zeros" and rank == 2:
                    back = (xs[-1], *xs[1:-1], xs[0])
                    model_case(f, "conv", "transposed " + name, make, call, [Operand(r(*back), transpose(0, len(xs) - 1))], **args)
    f.write("nn/testdata/padded.safetensors.gz")

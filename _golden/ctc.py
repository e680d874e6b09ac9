"""Golden file for connectionist temporal classification. Writes nn/testdata/ctc.safetensors.gz."""

import math

import torch
import torch.nn.functional as F

from golden import File, Operand
from ops import SEED, expand, transpose

f = File(__file__, SEED + 42)
r = f.randn
long = lambda *v: torch.tensor(v, dtype=torch.int64)


def case(name, x, targets, inputs, lengths, blank=0, zero_infinity=False, soft=True, reductions=("mean", "sum", "none")):
    for reduction in reductions:
        args = {"blank": blank, "zero_infinity": zero_infinity, "reduction": reduction, "soft": soft}
        fn = lambda x, t, i, l: F.ctc_loss(x.log_softmax(-1) if soft else x, t, i, l, blank, reduction, zero_infinity)
        f.case("ctc_loss", name + "".join(f" {k}={v}" for k, v in args.items()), fn, [Operand(o.base.clone(), *o.views) if isinstance(o, Operand) else o.clone() for o in (x, targets, inputs, lengths)], **args)


if __name__ == "__main__":
    some = f.randint(1, 5, (3, 4))
    case("ordinary", r(7, 3, 5), some, long(7, 5, 6), long(4, 2, 3))
    case("ordinary", r(7, 3, 5).log_softmax(-1), some, long(7, 5, 6), long(4, 2, 3), soft=False)
    case("ordinary", r(7, 3, 5), some - 1, long(7, 7, 7), long(3, 4, 1), blank=4)
    case("repeated", r(8, 2, 3), torch.tensor([[1, 1, 2], [2, 2, 2]]), long(8, 6), long(3, 3))
    case("empty target", r(4, 2, 3), torch.tensor([[1, 2], [1, 1]]), long(4, 3), long(0, 1))
    case("one input", r(5, 4), long(2, 1), torch.tensor(5), torch.tensor(2))
    case("transposed", Operand(r(3, 7, 5), transpose(0, 1)), Operand(some.T.contiguous(), transpose(0, 1)), long(7, 5, 6), long(4, 2, 3))
    case("expanded", Operand(r(7, 1, 5), expand(7, 3, 5)), Operand(some[:1], expand(3, 4)), long(7, 7, 6), long(3, 2, 1))
    case("extreme too long", r(3, 2, 4), torch.tensor([[1, 2, 3], [1, 1, 2]]), long(2, 3), long(3, 2), zero_infinity=True)
    case("extreme too long", r(3, 2, 4), torch.tensor([[1, 2, 3], [1, 1, 2]]), long(2, 3), long(3, 2), reductions=("none", "sum"))
    case("extreme chances", torch.tensor([[[30.0, 0.0, -30.0]], [[-25.0, 0.0, 20.0]], [[0.0, 1.0, 20.0]]]), torch.tensor([[2]]), long(3), long(1))
    case("extreme certainty", torch.tensor([[[-math.inf, 0.0]], [[0.0, -math.inf]], [[0.0, -math.inf]]]), torch.tensor([[1]]), long(3), long(1), soft=False)
    case("extreme NaN", torch.tensor([[[math.nan, 0.0]], [[0.0, 1.0]]]), torch.tensor([[1]]), long(2), long(1))
    flat = f.randint(1, 5, (9,))
    case("ordinary one vector", r(7, 3, 5), flat, long(7, 5, 6), long(4, 2, 3))
    case("ordinary one vector", r(7, 3, 5), flat, long(7, 5, 6), long(0, 2, 7), zero_infinity=True)
    for zero in (False, True):
        case("extreme impossible", r(5, 3, 5), torch.tensor([[1, 1, 2], [1, 1, 1], [3, 1, 2]]), long(3, 2, 5), long(3, 3, 3), zero_infinity=zero, reductions=("none", "mean"))
    f.write("nn/testdata/ctc.safetensors.gz")

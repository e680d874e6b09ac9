"""Golden files for attention and rotary embeddings. Writes tensor/optest/testdata/attention.safetensors.gz."""

import math

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from golden import File, Operand
from ops import FOLDER, MAX, SEED, TINY, expand, narrow, transpose

f = File(__file__, SEED + 40)
r = f.randn
fixed = lambda t: Operand(t, grad=False)
INF, NAN = math.inf, math.nan


def attention():
    def case(name, operands, causal=False, scale=None, gqa=False):
        args = {"causal": causal, "scale": scale or 0.0, "gqa": gqa}
        def fn(q, k, v, mask=None):
            with sdpa_kernel(SDPBackend.MATH):
                return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=gqa)
        f.case("scaled_dot_product_attention", name, fn, operands, **args)
    bits = lambda *s: f.randint(0, 2, s).bool()
    holes = bits(3, 5)
    holes[1] = False
    added = r(3, 5)
    added[1] = -INF
    added[2, 3] = -INF
    swap = transpose(1, 2)
    some = lambda *s: [r(*s, 3, 4), r(*s, 5, 4), r(*s, 5, 2)]
    case("ordinary", some(2))
    case("ordinary of matrices", some())
    case("ordinary with heads", some(2, 3))
    case("ordinary scaled", some(2), scale=0.3)
    case("ordinary with a negative scale", some(2), scale=-0.5)
    case("ordinary causal", some(2), causal=True)
    case("ordinary causal with more queries", [r(2, 5, 4), r(2, 3, 4), r(2, 3, 2)], causal=True)
    case("ordinary with long rows", [r(1, 2, 8), r(1, 67, 8), r(1, 67, 3)])
    case("ordinary masked", some(2) + [bits(3, 5) | torch.eye(3, 5).bool()])
    case("ordinary with a row masked", some(2) + [holes])
    case("ordinary with added masks", some(2) + [r(3, 5)])
    case("ordinary with a row of added infinities", some(2) + [fixed(added)])
    case("ordinary with grouped heads", [r(2, 6, 3, 4), r(2, 2, 5, 4), r(2, 2, 5, 3)], gqa=True)
    case("ordinary with grouped heads and masks", [r(2, 4, 3, 4), r(2, 2, 5, 4), r(2, 2, 5, 3), bits(2, 1, 3, 5)], gqa=True)
    case("ordinary with grouped causal heads", [r(4, 3, 4), r(2, 3, 4), r(2, 3, 3)], gqa=True, causal=True)
    case("ordinary with one shared head", [r(4, 3, 4), r(1, 5, 4), r(1, 5, 3)], gqa=True)
    case("transposed", [Operand(r(2, 4, 3), swap), Operand(r(2, 4, 5), swap), Operand(r(2, 2, 5), swap)])
    case("transposed heads", [Operand(r(2, 3, 2, 4), swap), Operand(r(2, 5, 2, 4), swap), Operand(r(2, 5, 2, 3), swap)], causal=True)
    case("transposed masked", some(2) + [Operand(bits(5, 3), transpose(0, 1))])
    case("narrowed", [Operand(r(2, 3, 9), narrow(2, 1, 4)), Operand(r(2, 5, 9), narrow(2, 5, 4)), Operand(r(2, 7, 2), narrow(1, 1, 5))])
    case("expanded", [Operand(r(1, 3, 4), expand(2, 3, 4)), Operand(r(2, 1, 4), expand(2, 5, 4)), r(2, 5, 2)])
    case("expanded masks", some(2) + [Operand(r(1, 5), expand(3, 5))])
    case("broadcast", [r(2, 1, 3, 4), r(3, 5, 4), r(2, 3, 5, 2)])
    case("broadcast keys", [r(2, 3, 4), r(1, 5, 4), r(5, 2)])
    case("broadcast masks", some(2, 3) + [r(2, 1, 1, 5)])
    case("broadcast padding", some(2, 3) + [bits(2, 1, 1, 5) | (torch.arange(5) == 0)])
    case("empty queries", [r(2, 0, 4), r(2, 5, 4), r(2, 5, 2)])
    case("empty keys", [fixed(r(2, 3, 4)), fixed(r(2, 0, 4)), fixed(r(2, 0, 2))])  # the gradient is 0 or -0 by chance
    case("empty batch", [r(0, 3, 4), r(0, 5, 4), r(0, 5, 2)])
    case("empty features", [r(2, 3, 0), r(2, 5, 0), r(2, 5, 2)], scale=1.0)
    case("empty values", [r(2, 3, 4), r(2, 5, 4), r(2, 5, 0)])
    q = torch.tensor([[1.0, 0.0], [INF, 1.0], [NAN, 0.0], [1e3, -1e3], [0.0, -0.0], [TINY, 1e-30]])
    k = torch.tensor([[1.0, 2.0], [0.5, -1.0], [1e2, 1.0]])
    v = torch.tensor([[1.0, -1e20], [2.0, 0.0], [-0.0, 1e10]])
    case("extreme queries", [q, k, v])
    case("extreme causal queries", [q, k, v], causal=True)
    case("extreme masked queries", [q, k, v, torch.tensor([[True, False, True]])])
    case("extreme scores", [torch.tensor([[1e20, 0.0], [-1e19, 1.0]]), torch.tensor([[1e18, 1.0], [1e18, 0.0]]), r(2, 2)])
    case("extreme values", [r(2, 2), r(3, 2), torch.tensor([[INF, 1.0], [1.0, NAN], [0.0, MAX]])])
    case("extreme keys", [r(2, 2), torch.tensor([[1.0, NAN], [1.0, 2.0]]), r(2, 2)])
    case("extreme masks", [r(3, 2), r(2, 2), r(2, 2), fixed(torch.tensor([[INF, 0.0], [-INF, -INF], [NAN, 0.0]]))])
    case("extreme ties", [torch.zeros(2, 2), torch.ones(3, 2), r(3, 2)])
    case("extreme rows of infinities", [torch.tensor([[-INF, 0.0], [1.0, 0.0]]), torch.tensor([[1.0, 1.0], [2.0, 3.0]]), r(2, 2)])


def rope():
    """Rotary embeddings as models compute them. A pair has an element of each half (GPT-NeoX, Llama), or two neighbours (GPT-J)."""
    def case(name, operands, base=10000.0, offset=0, interleaved=False, dims=0):
        args = {"base": base, "offset": offset, "interleaved": interleaved, "dims": dims}
        def fn(x, position=None):
            d = dims or x.shape[-1]
            t = x.dtype
            if position is None:
                position = torch.arange(offset, offset + x.shape[-2])
            frequency = 1.0 / base ** (torch.arange(0, d, 2).to(t) / d)
            angle = position.to(t)[..., None] * frequency
            cos, sin = angle.cos(), angle.sin()
            turned, rest = x[..., :d], x[..., d:]
            if interleaved:
                a, b = turned[..., 0::2], turned[..., 1::2]
                y = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
            else:
                a, b = turned[..., :d // 2], turned[..., d // 2:]
                y = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
            return torch.cat((y, rest), -1)
        f.case("rope", name, fn, operands, **args)
    for interleaved in (False, True):
        tag = " interleaved" if interleaved else ""
        more = {"interleaved": interleaved}
        case("ordinary" + tag, [r(2, 5, 6)], **more)
        case("ordinary offset" + tag, [r(2, 5, 8)], offset=1000, **more)
        case("ordinary base" + tag, [r(3, 4)], base=500000.0, **more)
        case("ordinary part" + tag, [r(2, 3, 8)], dims=4, **more)
        case("transposed" + tag, [Operand(r(2, 3, 2, 4), transpose(1, 2))], **more)
        case("narrowed" + tag, [Operand(r(4, 9), narrow(1, 1, 6))], **more)
        case("expanded" + tag, [Operand(r(1, 3, 4), expand(2, 3, 4))], **more)
        case("broadcast positions" + tag, [r(2, 2, 3, 4), torch.tensor([[[0, 5, 2]], [[7, 7, 1]]])], **more)
        case("positions" + tag, [r(2, 3, 4), torch.tensor([4, 0, 131071])], **more)
        case("empty" + tag, [r(2, 0, 4)], **more)
        case("empty batch" + tag, [r(0, 3, 4)], **more)
        case("extreme" + tag, [torch.tensor([[1.0, INF, -0.0, 0.0], [NAN, 1.0, TINY, -TINY], [MAX, 1.0, MAX, 2.0], [-INF, 0.0, INF, 1e-40], [1e20, -1e20, 3.0, 4.0]])], **more)


if __name__ == "__main__":
    attention()
    rope()
    f.write(FOLDER + "attention.safetensors.gz")

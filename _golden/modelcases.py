"""Golden cases of whole layers.

A case's operands are the inputs, the masks (int64, 1 for true, or float32) and a vector of all parameters, in the
order of named_parameters. Its result is a vector of all results of the layer.
"""

import torch

from golden import Operand


def flat(*parts):
    return torch.cat([p.reshape(-1) for p in parts if p is not None])


class Called(torch.nn.Module):
    """A call of a layer as a module, whose parameters functional_call replaces."""

    def __init__(self, m, call, x, masks):
        super().__init__()
        self.m, self.call, self.x, self.masks = m, call, x, masks

    def forward(self):
        return flat(*self.call(self.m, self.x, self.masks))


def model_case(f, op, name, make, call, inputs, masks=(), **args):
    """make() returns the layer, and call(layer, inputs, masks) a list of its results. masks are tensors of bool or float."""
    layer = make()
    names = [n for n, _ in layer.named_parameters()]
    params = []
    for p in layer.parameters():
        scale = 0.4 if p.dim() > 1 else 0.2
        params.append(f.randn(*p.shape, scale=scale) + (1 if p.dim() == 1 and p.data.eq(1).all() else 0))
    models = {torch.float32: layer, torch.float64: make().double()}
    kinds = "".join("b" if m.dtype == torch.bool else "f" for m in masks)
    n = len(inputs)

    def fn(*leaves):
        x, rest = leaves[:n], leaves[n:]
        m = [t.bool() if k == "b" else t.detach() for k, t in zip(kinds, rest)]
        dtype = x[0].dtype
        named, at = {}, 0
        for k, p in models[dtype].named_parameters():
            named[k] = rest[-1][at:at + p.numel()].reshape(p.shape)
            at += p.numel()
        return torch.func.functional_call(Called(models[dtype], call, x, m), {"m." + k: v for k, v in named.items()}, ())

    operands = list(inputs) + [Operand(m.long() if m.dtype == torch.bool else m, grad=False) for m in masks] + [flat(*params)]
    f.case(op, name, fn, operands, names=names, inputs=n, masks=kinds, **args)
    for entry in f.cases[-1]["in"]:  # the test compares gradients with those of float64 only
        if "grad_f32" in entry:
            del f.tensors[entry.pop("grad_f32")]

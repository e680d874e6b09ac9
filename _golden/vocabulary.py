"""Golden files for losses over large vocabularies. Writes nn/testdata/vocabulary.safetensors.gz."""

import math

import torch
import torch.nn.functional as F

from golden import File, Operand
from modelcases import model_case
from ops import SEED, transpose

f = File(__file__, SEED + 90)
r = f.randn
long = lambda *v: torch.tensor(v, dtype=torch.int64)


def adaptive():
    targets = long(0, 9, 3, 2, 5, 11, 4, 1)
    for kw in ({"cutoffs": [3]}, {"cutoffs": [2, 5, 9]}, {"cutoffs": [3, 8], "div_value": 2.0, "head_bias": True}):
        make = lambda: torch.nn.AdaptiveLogSoftmaxWithLoss(8, 12, **kw)
        args = {"cutoffs": kw["cutoffs"], "div": kw.get("div_value", 4.0), "bias": "head_bias" in kw}

        def call(m, x, _):
            return [*m(x[0], x[1]), m.log_prob(x[0]).double().to(x[0].dtype), m.predict(x[0]).to(x[0].dtype)]
        alone = lambda m, x, _: [*m(x[0], x[1])]
        model_case(f, "adaptive_log_softmax", f"ordinary {args}", make, call, [r(8, 8), targets], **args)
        model_case(f, "adaptive_log_softmax", f"transposed {args}", make, call, [Operand(r(8, 8), transpose(0, 1)), targets], **args)
        model_case(f, "adaptive_log_softmax", f"extreme {args}", make, call, [r(8, 8) * 5, targets], **args)
        if len(kw["cutoffs"]) == 1:
            model_case(f, "adaptive_log_softmax", f"one {args}", make, alone, [r(8), torch.tensor(7)], **args)


def linear():
    for kw in ({}, {"bias": True}, {"label_smoothing": 0.1}, {"ignore_index": 3, "bias": True}, {"weighted": True, "label_smoothing": 0.2}):
        for reduction in ("mean", "sum", "none"):
            rest = {k: v for k, v in kw.items() if k not in ("bias", "weighted")}
            make = lambda: torch.nn.Linear(4, 7, bias=kw.get("bias", False))
            weight = r(7).abs() if "weighted" in kw else None
            args = {"reduction": reduction, "smoothing": kw.get("label_smoothing", 0.0), "ignore": kw.get("ignore_index", -100), "bias": kw.get("bias", False)}

            def call(m, x, _):
                w = weight.to(x[0].dtype) if weight is not None else None
                return [F.linear_cross_entropy(x[0], m.weight, x[1], linear_bias=m.bias, reduction=reduction, weight=w, **rest)]
            inputs = [r(10, 4), long(0, 6, 3, 2, 5, 1, 4, 1, 3, 0)]
            if weight is not None:
                inputs.append(Operand(weight, grad=False))
            model_case(f, "linear_cross_entropy", f"ordinary {kw} {reduction}", make, call, inputs, **args)
            if reduction != "mean":
                continue
            inputs = [Operand(r(4, 10), transpose(0, 1))] + inputs[1:]
            model_case(f, "linear_cross_entropy", f"transposed {kw} {reduction}", make, call, inputs, **args)
            inputs = [r(10, 4) * 15] + inputs[1:]
            model_case(f, "linear_cross_entropy", f"extreme {kw} {reduction}", make, call, inputs, **args)


if __name__ == "__main__":
    adaptive()
    linear()
    f.write("nn/testdata/vocabulary.safetensors.gz")

"""Result types under torch.autocast("cuda"), op by op, and the trajectory of torch.amp.GradScaler.

No GPU is needed. Operands are fake tensors on the device cuda. For these PyTorch's dispatcher runs the autocast kernels (key AutocastCUDA) of
real tensors, and only the computation is left out.

A type is "low", the type of autocast, or "f32". Each op runs with these types of its floating point operands: all float32 ("f"), all low ("h"),
or the first low and the others float32 ("m"). "error" means that PyTorch refuses the operands. float16 and bfloat16 must give the same types.
"""

import json
import logging
import os
import warnings

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode

import golden

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)  # fake tensors report each refusal
torch.use_deterministic_algorithms(False)  # nothing is computed
HALF = (torch.float16, torch.bfloat16)


def rnd(*s):
    return ("x", s)


def idx(*s):
    return ("i", s)


def msk(*s):
    return ("b", s)


V, M, M2 = rnd(4), rnd(4, 4), [rnd(4, 4), rnd(4, 4)]
B = rnd(2, 4, 4)
U = [M]  # one matrix

# For each method of *tensor.Tensor or function of package tensor: the operands, and the call in
# PyTorch.
OPS = {
    # elementwise
    **{n: (U, f) for n, f in {
        "Tanh": torch.tanh, "Sigmoid": torch.sigmoid, "Relu": torch.relu, "Silu": F.silu, "Gelu": F.gelu, "GeluTanh": lambda x: F.gelu(x, approximate="tanh"),
        "Clone": torch.clone, "AddScalar": lambda x: x + 1.5, "MulScalar": lambda x: x * 1.5, "DivScalar": lambda x: x / 1.5, "RSubScalar": lambda x: 1.5 - x,
        "SubScalar": lambda x: x - 1.5, "RDivScalar": lambda x: 1.5 / x, "Clamp": lambda x: x.clamp(0, 1), "ClampMin": lambda x: x.clamp_min(0), "ClampMax": lambda x: x.clamp_max(0),
        "Neg": torch.neg, "Abs": torch.abs, "Square": torch.square, "Sqrt": torch.sqrt, "Rsqrt": torch.rsqrt, "Reciprocal": torch.reciprocal, "Exp": torch.exp,
        "Log": torch.log, "Exp2": torch.exp2, "Expm1": torch.expm1, "Log2": torch.log2, "Log10": torch.log10, "Log1p": torch.log1p, "Erf": torch.erf, "Erfc": torch.erfc,
        "Erfinv": torch.erfinv, "LogSigmoid": F.logsigmoid, "Logit": torch.logit, "PowScalar": lambda x: x ** 2.5, "RPowScalar": lambda x: 2.5 ** x,
        "CopySignScalar": lambda x: torch.copysign(x, -1.0), "Threshold": lambda x: F.threshold(x, 0, 1), "Softplus": F.softplus, "LeakyRelu": F.leaky_relu, "Elu": F.elu,
        "Celu": F.celu, "Selu": F.selu, "Relu6": F.relu6, "Hardtanh": F.hardtanh, "Hardsigmoid": F.hardsigmoid, "Hardswish": F.hardswish, "Hardshrink": F.hardshrink,
        "Softshrink": F.softshrink, "Tanhshrink": F.tanhshrink, "Softsign": F.softsign, "Mish": F.mish, "Floor": torch.floor, "Ceil": torch.ceil, "Round": torch.round,
        "RoundDecimals": lambda x: torch.round(x, decimals=1), "Trunc": torch.trunc, "Frac": torch.frac, "Sign": torch.sign, "NanToNum": torch.nan_to_num, "Sin": torch.sin,
        "Cos": torch.cos, "Tan": torch.tan, "Asin": torch.asin, "Acos": torch.acos, "Atan": torch.atan, "Sinh": torch.sinh, "Cosh": torch.cosh, "Asinh": torch.asinh,
        "Acosh": torch.acosh, "Atanh": torch.atanh, "TruncDivideScalar": lambda x: torch.div(x, 1.5, rounding_mode="trunc"), "FloorDivideScalar": lambda x: torch.floor_divide(x, 1.5),
        "RemainderScalar": lambda x: torch.remainder(x, 1.5), "FmodScalar": lambda x: torch.fmod(x, 1.5), "LogicalNot": torch.logical_not,
        "IsNaN": torch.isnan, "IsInf": torch.isinf, "IsPosInf": torch.isposinf, "IsNegInf": torch.isneginf, "IsFinite": torch.isfinite,
        **{n + "Scalar": (lambda g: lambda x: g(x, 0.5))(getattr(torch, n.lower())) for n in ("Eq", "Ne", "Lt", "Le", "Gt", "Ge")},
        "XLogYScalar": lambda x: torch.xlogy(x, 2.0), "RXLogYScalar": lambda x: torch.xlogy(2.0, x), "RFloorDivideScalar": lambda x: torch.floor_divide(torch.tensor(2.0), x),
        "RRemainderScalar": lambda x: torch.remainder(2.0, x),
    }.items()},
    **{n: (M2, f) for n, f in {
        "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Div": torch.div, "Minimum": torch.minimum, "Maximum": torch.maximum, "Fmax": torch.fmax, "Fmin": torch.fmin,
        "Pow": torch.pow, "LogAddExp": torch.logaddexp, "XLogY": torch.xlogy, "CopySign": torch.copysign, "Atan2": torch.atan2, "Hypot": torch.hypot,
        "TruncDivide": lambda x, y: torch.div(x, y, rounding_mode="trunc"), "FloorDivide": torch.floor_divide, "Remainder": torch.remainder, "Fmod": torch.fmod,
        "IsClose": torch.isclose, "LerpScalar": lambda x, y: torch.lerp(x, y, 0.5),
        "LogicalAnd": torch.logical_and, "LogicalOr": torch.logical_or, "LogicalXor": torch.logical_xor,
        **{n: getattr(torch, n.lower()) for n in ("Eq", "Ne", "Lt", "Le", "Gt", "Ge")},
    }.items()},
    "Lerp": ([M, M, M], torch.lerp), "Addcmul": ([M, M, M], torch.addcmul), "Addcdiv": ([M, M, M], torch.addcdiv), "PRelu": ([M, rnd(1)], F.prelu),
    "Where": ([msk(4, 4), M, M], torch.where), "WhereScalar": ([msk(4, 4), M], lambda c, x: torch.where(c, x, 1.5)), "RWhereScalar": ([msk(4, 4), M], lambda c, x: torch.where(c, 1.5, x)),
    "MaskedFill": ([M, msk(4, 4)], lambda x, m: x.masked_fill(m, 0)), "Glu": (U, F.glu),
    # reductions
    **{n: (U, f) for n, f in {
        "Sum": torch.sum, "Mean": torch.mean, "Prod": torch.prod, "Amax": torch.amax, "Amin": torch.amin, "Argmax": torch.argmax, "Argmin": torch.argmin, "Any": torch.any,
        "All": torch.all, "CountNonzero": torch.count_nonzero, "Var": torch.var, "Std": torch.std, "LogSumExp": lambda x: torch.logsumexp(x, 1),
        "Norm": lambda x: torch.linalg.vector_norm(x), "Max": lambda x: x.max(1)[0], "Min": lambda x: x.min(1)[0], "Trace": torch.trace,
        "Median": lambda x: x.median(1)[0], "NanMedian": lambda x: x.nanmedian(1)[0], "Mode": lambda x: x.cpu().mode(1)[0], "Kthvalue": lambda x: x.kthvalue(2, 1)[0],
        "Sort": lambda x: x.sort()[0], "TopK": lambda x: x.topk(2)[0], "Argsort": torch.argsort,
        "CumSum": lambda x: x.cumsum(0), "CumProd": lambda x: x.cumprod(0), "LogCumSumExp": lambda x: x.logcumsumexp(0), "CumMax": lambda x: x.cummax(0)[0], "CumMin": lambda x: x.cummin(0)[0],
        "Diff": torch.diff, "Histc": lambda x: x.histc(4, 0, 1),
        "Softmax": lambda x: x.softmax(-1), "LogSoftmax": lambda x: x.log_softmax(-1), "Softmin": lambda x: F.softmin(x, -1), "Normalize": lambda x: F.normalize(x),
        "MatrixNorm": lambda x: torch.linalg.matrix_norm(x, 1),
    }.items()},
    # products
    "MatMul": (M2, torch.matmul), "Linear": ([M, M, V], F.linear), "LinearT": ([M, M, V], lambda x, w, b: F.linear(x, w.T, b)),
    "LinearAct": ([M, M, V], lambda x, w, b: F.silu(F.linear(x, w, b))), "LinearTAct": ([M, M, V], lambda x, w, b: F.silu(F.linear(x, w.T, b))), "Bmm": ([B, B], torch.bmm), "Addmm": ([M, M, M], torch.addmm), "Baddbmm": ([B, B, B], torch.baddbmm), "Outer": ([V, V], torch.outer), "Dot": ([V, V], torch.dot),
    "Einsum": (M2, lambda x, y: torch.einsum("ij,jk->ik", x, y)), "Kron": (M2, torch.kron), "Cross": ([rnd(4, 3), rnd(4, 3)], torch.cross),
    "TensorDot": (M2, lambda x, y: torch.tensordot(x, y, 1)), "Inner": (M2, torch.inner), "VecDot": (M2, torch.linalg.vecdot), "MultiDot": ([M, M, M], lambda *x: torch.linalg.multi_dot(x)),
    "Bilinear": ([M, M, rnd(3, 4, 4), rnd(3)], F.bilinear), "ScaledDotProductAttention": ([B, B, B], F.scaled_dot_product_attention),
    **{f"Conv{n}d": ([rnd(2, 4, *[5] * n), rnd(4, 4, *[3] * n), V], getattr(F, f"conv{n}d")) for n in (1, 2, 3)},
    **{f"ConvTranspose{n}d": ([rnd(2, 4, *[5] * n), rnd(4, 4, *[3] * n), V], getattr(F, f"conv_transpose{n}d")) for n in (1, 2, 3)},
    # distances and norms
    "CosineSimilarity": (M2, F.cosine_similarity), "PairwiseDistance": (M2, F.pairwise_distance), "Cdist": (M2, torch.cdist),
    "LayerNorm": ([M, V, V], lambda x, w, b: F.layer_norm(x, (4,), w, b)), "RMSNorm": ([M, V], lambda x, w: F.rms_norm(x, (4,), w)),
    "GroupNorm": ([B, V, V], lambda x, w, b: F.group_norm(x, 2, w, b)), "BatchNorm": ([B, V, V], lambda x, w, b: F.batch_norm(x, None, None, w, b, True)),
    "InstanceNorm": ([B, V, V], lambda x, w, b: F.instance_norm(x, weight=w, bias=b)), "LocalResponseNorm": ([B], lambda x: F.local_response_norm(x, 2)),
    "CrossEntropy": ([M, idx(4)], lambda x, t: F.cross_entropy(x, t, reduction="none")),
    # pooling, resampling
    **{f"{k}Pool{n}d": ([rnd(2, 4, *[4] * n)], (lambda f: lambda x: f(x, 2))(getattr(F, f"{k.lower()}_pool{n}d"))) for k in ("Max", "Avg") for n in (1, 2, 3)},
    **{f"Adaptive{k}Pool{n}d": ([rnd(2, 4, *[4] * n)], (lambda f: lambda x: f(x, 2))(getattr(F, f"adaptive_{k.lower()}_pool{n}d"))) for k in ("Max", "Avg") for n in (1, 2, 3)},
    **{f"LPPool{n}d": ([rnd(2, 4, *[4] * n)], (lambda f: lambda x: f(x, 2, 2))(getattr(F, f"lp_pool{n}d"))) for n in (1, 2, 3)},
    **{f"MaxUnpool{n}d": ([rnd(2, 4, *[2] * n), idx(2, 4, *[2] * n)], (lambda f: lambda x, i: f(x, i, 2))(getattr(F, f"max_unpool{n}d"))) for n in (1, 2, 3)},
    **{f"FractionalMaxPool{n}d": ([rnd(2, 4, *[4] * n)], (lambda f: lambda x: f(x, 2, 2))(getattr(F, f"fractional_max_pool{n}d"))) for n in (2, 3)},
    "Unfold2d": ([rnd(1, 4, 4, 4)], lambda x: F.unfold(x, 2)), "Fold": ([rnd(1, 16, 9)], lambda x: F.fold(x, (4, 4), 2)),
    "Interpolate": ([rnd(1, 4, 4, 4)], lambda x: F.interpolate(x, scale_factor=2, mode="bilinear")),  # PyTorch does not list the mode "area"
    "GridSample": ([rnd(1, 4, 4, 4), rnd(1, 4, 4, 2)], lambda x, g: F.grid_sample(x, g, align_corners=False)),
    "PixelShuffle": ([rnd(1, 4, 4, 4)], lambda x: F.pixel_shuffle(x, 2)),
    "PixelUnshuffle": ([rnd(1, 4, 4, 4)], lambda x: F.pixel_unshuffle(x, 2)), "ChannelShuffle": ([rnd(1, 4, 4, 4)], lambda x: F.channel_shuffle(x, 2)),
    # shapes and places
    "Cat": (M2, lambda *x: torch.cat(x)), "Stack": (M2, lambda *x: torch.stack(x)), "HStack": (M2, lambda *x: torch.hstack(x)), "VStack": (M2, lambda *x: torch.vstack(x)),
    "Meshgrid": ([V, V], lambda *x: torch.meshgrid(*x)[0]), "MeshgridXY": ([V, V], lambda *x: torch.meshgrid(*x, indexing="xy")[0]),
    "Pad": (U, lambda x: F.pad(x, (1, 1), value=0.5)), "PadReflect": (U, lambda x: F.pad(x, (1, 1), mode="reflect")), "PadReplicate": (U, lambda x: F.pad(x, (1, 1), mode="replicate")),
    "PadCircular": (U, lambda x: F.pad(x, (1, 1), mode="circular")), "Tril": (U, torch.tril), "Triu": (U, torch.triu), "Flip": (U, lambda x: x.flip(0)), "Roll": (U, lambda x: x.roll(1)),
    "Repeat": (U, lambda x: x.repeat(2, 1)), "Tile": (U, lambda x: x.tile(2, 1)), "RepeatInterleave": (U, lambda x: x.repeat_interleave(2)), "DiagEmbed": (U, torch.diag_embed), "Diag": (U, torch.diag),
    "Gather": ([M, idx(4, 4)], lambda x, i: x.gather(0, i)), "ScatterAdd": ([M, idx(4, 4), M], lambda x, i, s: x.scatter_add(0, i, s)), "Scatter": ([M, idx(4, 4), M], lambda x, i, s: x.scatter(0, i, s)),
    "ScatterScalar": ([M, idx(4, 4)], lambda x, i: x.scatter(0, i, 1.5)), "ScatterReduce": ([M, idx(4, 4), M], lambda x, i, s: x.scatter_reduce(0, i, s, "prod")),
    "IndexSelect": ([M, idx(3)], lambda x, i: x.index_select(0, i)), "Embedding": ([M, idx(3)], lambda x, i: F.embedding(i, x)), "EmbeddingPadded": ([M, idx(3)], lambda x, i: F.embedding(i, x, padding_idx=0)),
    "Index": ([M, idx(3)], lambda x, i: x[i]), "IndexPut": ([M, rnd(3, 4), idx(3)], lambda x, v, i: x.index_put((i,), v)), "IndexAdd": ([M, idx(4), M], lambda x, i, s: x.index_add(0, i, s)),
    "IndexCopy": ([M, idx(4), M], lambda x, i, s: x.index_copy(0, i, s)), "IndexFill": ([M, idx(4)], lambda x, i: x.index_fill(0, i, 1.5)),
    "IndexReduce": ([M, idx(4), M], lambda x, i, s: x.index_reduce(0, i, s, "prod")), "Take": ([M, idx(3)], torch.take), "TakeAlong": ([M, idx(4, 4)], lambda x, i: torch.take_along_dim(x, i, 0)),
    "MaskedScatter": ([M, msk(4, 4), M], lambda x, m, s: x.masked_scatter(m, s)), "Searchsorted": ([V, V], torch.searchsorted), "Bucketize": ([V, V], lambda b, x: torch.bucketize(x, b)),
    # forms in place do not autocast: PyTorch keeps the type of the tensor that they change
    **{n + "InPlace": (U, (lambda m: lambda x: getattr(x.clone(), m)())(m)) for n, m in {
        "Exp": "exp_", "Log": "log_", "Rsqrt": "rsqrt_", "Reciprocal": "reciprocal_", "Expm1": "expm1_", "Log1p": "log1p_", "Erfinv": "erfinv_", "Square": "square_", "Sqrt": "sqrt_", "Tanh": "tanh_"}.items()},
    "PowScalarInPlace": (U, lambda x: x.clone().pow_(2.5)), "PowInPlace": (M2, lambda x, y: x.clone().pow_(y)), "AddcmulInPlace": ([M, M, M], lambda x, a, b: x.clone().addcmul_(a, b)),
    "AddcdivInPlace": ([M, M, M], lambda x, a, b: x.clone().addcdiv_(a, b)), "AddInPlace": (M2, lambda x, y: x.clone().add_(y)), "ScatterAddInPlace": ([M, idx(4, 4), M], lambda x, i, s: x.clone().scatter_add_(0, i, s)),
    "IndexPutInPlace": ([M, rnd(3, 4), idx(3)], lambda x, v, i: x.clone().index_put_((i,), v)),
}

# Layers and losses of package nn. The operands are the input and then the parameters.
NN = {
    "Linear": ([M, M, V], F.linear), "L1": (M2, F.l1_loss), "SmoothL1": (M2, F.smooth_l1_loss), "Huber": (M2, F.huber_loss), "MSE": (M2, F.mse_loss), "BCE": (M2, F.binary_cross_entropy),
    "BCEWithLogits": (M2, F.binary_cross_entropy_with_logits), "KLDiv": (M2, F.kl_div), "KLDivLog": (M2, lambda x, y: F.kl_div(x, y, log_target=True)),
    "CrossEntropy": ([M, idx(4)], F.cross_entropy), "NLL": ([M, idx(4)], F.nll_loss), "PoissonNLL": (M2, F.poisson_nll_loss), "GaussianNLL": ([M, M, M], lambda x, y, v: _gaussian(x, y, v)),
    "SoftMargin": (M2, F.soft_margin_loss), "MultiMargin": ([M, idx(4)], F.multi_margin_loss), "MultiLabelSoftMargin": (M2, F.multilabel_soft_margin_loss),
    "MultiLabelMargin": ([M, idx(4, 4)], F.multilabel_margin_loss), "MarginRanking": ([V, V, V], F.margin_ranking_loss), "HingeEmbedding": ([M, M], F.hinge_embedding_loss),
    "CosineEmbedding": ([M, M, V], F.cosine_embedding_loss), "TripletMargin": ([M, M, M], F.triplet_margin_loss),
    "LSTMCell": ([M, M, M, rnd(16, 4), rnd(16, 4), rnd(16), rnd(16)], lambda x, h, c, *w: torch.lstm_cell(x, (h, c), *w)[0]),
    "GRUCell": ([M, M, rnd(12, 4), rnd(12, 4), rnd(12), rnd(12)], torch.gru_cell), "RNNCell": ([M, M, M, M, V, V], torch.rnn_tanh_cell),
    "MultiheadAttention": ([M, rnd(12, 4), rnd(12), M, V], lambda x, wi, bi, wo, bo: F.multi_head_attention_forward(x, x, x, 4, 2, wi, bi, None, None, False, 0.0, wo, bo, need_weights=False)[0]),
}


def _gaussian(x, y, v):
    return 0.5 * (torch.log(v) + (x - y) ** 2 / v).mean()  # F.gaussian_nll_loss computes this too, but reads values, which fake tensors do not have


def made(spec, dtypes, device):
    out, k = [], 0
    for kind, shape in spec:
        if kind == "x":
            out.append(torch.rand(*shape, device=device).to(dtypes[k]))
            k += 1
        else:
            out.append(torch.zeros(*shape, device=device, dtype=torch.int64 if kind == "i" else torch.bool))
    return out


def told(t, low):
    if not t.dtype.is_floating_point:
        return "other"
    return {low: "low", torch.float32: "f32"}[t.dtype]


def asked(spec, f):
    """The types of the results, for each of the types of operands; both types if float16 and bfloat16 differ."""
    n = sum(k == "x" for k, _ in spec)
    out = {}
    for how in "fhm" if n > 1 else "fh":
        got = []
        for low in HALF:
            types = {"f": [torch.float32] * n, "h": [low] * n, "m": [low] + [torch.float32] * (n - 1)}[how]
            with FakeTensorMode(allow_non_fake_inputs=True):
                torch.set_autocast_enabled("cuda", True)
                torch.set_autocast_dtype("cuda", low)
                try:
                    got.append(told(f(*made(spec, types, "cuda")), low))
                except (DataDependentOutputException, DynamicOutputShapeException):
                    raise
                except Exception:
                    got.append("error")
                finally:
                    torch.set_autocast_enabled("cuda", False)
        out[how] = got[0] if got[0] == got[1] else "/".join(got)
    return out


def scaler():
    """Scales and growth trackers of 500 steps of torch.amp.GradScaler with planted infinities and NaNs, and the weight after each."""
    steps = {3, 17, 18, 40, 41, 42, 43, 90, 91, 200, 333, 334, 335, 460}
    s = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=7)
    w = torch.tensor([1.0, -2.0], requires_grad=True)
    opt = torch.optim.Adam([w], lr=0.01)
    scale, tracker, weights, counts = [], [], [], []
    for i in range(500):
        opt.zero_grad()
        s.scale((w * torch.tensor([0.5, 0.25])).sum() * (1 + i % 5)).backward()
        if i in steps:
            w.grad[i % 2] = float("inf") if i % 3 else float("nan")
        s.step(opt)
        s.update()
        scale.append(s.get_scale())
        tracker.append(s.state_dict()["_growth_tracker"])
        weights.append(w.tolist())
        st = opt.state[w]
        counts.append(int(st["step"]) if st else 0)
    return {"planted": sorted(steps), "scale": scale, "tracker": tracker, "weights": weights[::20] + [weights[-1]], "steps": counts, "state": s.state_dict()}


def write(path, what):
    what = {"versions": golden.versions(__file__, 0), **what}
    with open(os.path.join(golden.REPOSITORY, path), "w") as f:
        f.write("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in what.items()) + "\n}\n")


def listed():
    """The names of the ops that have an autocast kernel for CUDA. All other ops follow the usual promotion."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return sorted(o for o in torch._C._dispatch_get_all_op_names() if o.startswith("aten::") and has(o, "AutocastCUDA"))


if __name__ == "__main__":
    os.makedirs(os.path.join(golden.REPOSITORY, "amp/testdata"), exist_ok=True)
    write("tensor/optest/testdata/autocast.json", {"listed": listed(), **{"op " + k: asked(*v) for k, v in OPS.items()}})
    write("nn/testdata/autocast.json", {"op " + k: asked(*v) for k, v in NN.items()})
    write("amp/testdata/scaler.json", scaler())

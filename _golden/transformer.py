"""Golden files for attention layers and transformers. Writes nn/testdata/transformer.safetensors.gz."""

import math

import torch

from golden import File
from modelcases import model_case
from ops import SEED

f = File(__file__, SEED + 51)
r = f.randn
INF = math.inf


def run(op, name, make, call, inputs, masks=(), **args):
    model_case(f, op, name, make, call, inputs, masks, **args)


def attention():
    def mha(name, shapes, masks=(), which=(), weights=False, per_head=False, causal=False, **kw):
        make = lambda: torch.nn.MultiheadAttention(4, 2, **kw)
        inputs = [r(*s) for s in shapes]

        def call(m, x, mm):
            q, k, v = {1: (0, 0, 0), 2: (0, 1, 1), 3: (0, 1, 2)}[len(x)]
            given = dict(zip(which, mm))
            mask = given.get("mask")
            if causal:
                l, s = x[q].shape[int(m.batch_first and x[q].dim() == 3)], x[k].shape[int(m.batch_first and x[k].dim() == 3)]
                mask = torch.ones(l, s, dtype=torch.bool).triu(1)
            return m(x[q], x[k], x[v], key_padding_mask=given.get("padding"), attn_mask=mask, need_weights=weights, average_attn_weights=not per_head)

        run("multi_head_attention", name, make, call, inputs, masks, which=list(which), weights=weights, per_head=per_head, causal=causal,
            kdim=kw.get("kdim", 0), vdim=kw.get("vdim", 0), bias=kw.get("bias", True), batch_first=kw.get("batch_first", False),
            bias_kv=kw.get("add_bias_kv", False), zero=kw.get("add_zero_attn", False))

    pad = torch.tensor([[False, False, False, True], [False, True, False, False], [True, False, False, False]])  # [3, 4]
    square = torch.ones(4, 4, dtype=torch.bool).triu(1)
    square[2, 0] = True
    wide = torch.tensor([[True, False, False, False], [False, False, True, False]])  # [2, 4]
    each = torch.rand(6, 2, 4, generator=f.generator) < 0.3
    each[:, :, 1] = False
    for weights in (False, True):
        w = " weights" if weights else ""
        mha("self" + w, [(4, 3, 4)], weights=weights)
        weights or mha("self batch first", [(3, 4, 4)], weights=weights, batch_first=True)
        weights or mha("cross", [(2, 3, 4), (4, 3, 4)], weights=weights)
        weights or mha("three", [(2, 3, 4), (4, 3, 4), (4, 3, 4)], weights=weights)
        weights or mha("other features", [(2, 3, 4), (4, 3, 5), (4, 3, 3)], weights=weights, kdim=5, vdim=3)
        weights or mha("no bias", [(4, 3, 4)], weights=weights, bias=False)
        weights or mha("unbatched", [(2, 4), (4, 4)], weights=weights, batch_first=weights)
        mha("padding" + w, [(2, 3, 4), (4, 3, 4)], [pad], ["padding"], weights=weights)
        mha("float padding" + w, [(2, 3, 4), (4, 3, 4)], [r(3, 4)], ["padding"], weights=weights)
        mha("mask" + w, [(4, 3, 4)], [square], ["mask"], weights=weights)
        weights or mha("float mask", [(4, 3, 4)], [r(4, 4).masked_fill(square, -INF)], ["mask"], weights=weights)
        mha("mask of each" + w, [(2, 3, 4), (4, 3, 4)], [each], ["mask"], weights=weights)
        mha("both masks" + w, [(2, 3, 4), (4, 3, 4)], [pad, wide], ["padding", "mask"], weights=weights)
        mha("mixed masks" + w, [(2, 3, 4), (4, 3, 4)], [r(3, 4), r(6, 2, 4)], ["padding", "mask"], weights=weights)
        mha("causal" + w, [(4, 3, 4)], weights=weights, causal=True)
        mha("causal padding" + w, [(3, 4, 4)], [pad.roll(1, 1).logical_and(torch.tensor([False, True, True, True]))], ["padding"], weights=weights, causal=True, batch_first=True)
        mha("more keys" + w, [(2, 3, 4), (4, 3, 4)], [pad, wide], ["padding", "mask"], weights=weights, add_bias_kv=True, add_zero_attn=True)
        weights or mha("more keys causal", [(4, 3, 4)], weights=weights, causal=True, add_bias_kv=True, add_zero_attn=True)
        weights or mha("zero key", [(4, 3, 4)], weights=weights, add_zero_attn=True)
        weights or mha("empty batch", [(4, 0, 4)], weights=weights)
    mha("per head", [(2, 3, 4), (4, 3, 4)], [pad], ["padding"], weights=True, per_head=True)
    mha("per head unbatched", [(2, 4), (4, 4)], weights=True, per_head=True)


def transformers():
    gelu = torch.nn.functional.gelu
    for norm_first in (False, True):
        for act in ("relu", "gelu"):
            for batch_first in (norm_first != (act == "gelu"),):
                args = dict(norm_first=norm_first, batch_first=batch_first, bias=act == "relu", layer_norm_eps=1e-3 if batch_first else 1e-5)
                shape = lambda n, b=2: (b, n, 4) if batch_first else (n, b, 4)
                rec = dict(act=act, eps=args["layer_norm_eps"], **{k: args[k] for k in ("norm_first", "batch_first", "bias")})
                pad = torch.tensor([[False, False, True], [False, False, False]])
                causal = torch.ones(3, 3, dtype=torch.bool).triu(1)
                make = lambda: torch.nn.TransformerEncoderLayer(4, 2, 5, 0.0, act, **args)
                run("encoder_layer", f"{rec}", make, lambda m, x, mm: [m(x[0], src_mask=mm[0], src_key_padding_mask=mm[1])], [r(*shape(3))], [causal, pad], **rec)
                make = lambda: torch.nn.TransformerDecoderLayer(4, 2, 5, 0.0, act, **args)
                cross = torch.tensor([[False, True, False, False]] * 3)
                mpad = torch.tensor([[False, False, False, True], [True, False, False, False]])
                run("decoder_layer", f"{rec}", make,
                    lambda m, x, mm: [m(x[0], x[1], tgt_mask=mm[0], tgt_key_padding_mask=mm[1], memory_mask=mm[2], memory_key_padding_mask=mm[3])],
                    [r(*shape(3)), r(*shape(4))], [causal, pad, cross, mpad], **rec)
    rec = dict(act="relu", eps=1e-5, norm_first=False, batch_first=True, bias=True)
    layer = lambda: torch.nn.TransformerEncoderLayer(4, 2, 5, 0.0, batch_first=True)
    run("encoder", "plain", lambda: torch.nn.TransformerEncoder(layer(), 2), lambda m, x, mm: [m(x[0])], [r(2, 3, 4)], norm=False, **rec)
    run("encoder", "norm", lambda: torch.nn.TransformerEncoder(layer(), 2, torch.nn.LayerNorm(4)), lambda m, x, mm: [m(x[0])], [r(2, 3, 4)], norm=True, **rec)
    run("encoder", "unbatched", lambda: torch.nn.TransformerEncoder(layer(), 2), lambda m, x, mm: [m(x[0])], [r(3, 4)], norm=False, **rec)
    rec["batch_first"] = False
    make = lambda: torch.nn.Transformer(4, 2, 1, 2, 5, 0.0)
    causal = torch.ones(3, 3, dtype=torch.bool).triu(1)
    run("transformer", "causal", make, lambda m, x, mm: [m(x[0], x[1], tgt_mask=mm[0], tgt_is_causal=True)], [r(4, 2, 4), r(3, 2, 4)], [causal], **rec)
    pad = torch.tensor([[False, False, False, True], [False, False, False, False]])
    run("transformer", "padding", make, lambda m, x, mm: [m(x[0], x[1], src_key_padding_mask=mm[0], memory_key_padding_mask=mm[0])],
        [r(4, 2, 4), r(3, 2, 4)], [pad], **rec)
    run("transformer", "unbatched", make, lambda m, x, mm: [m(x[0], x[1])], [r(4, 4), r(3, 4)], **rec)


if __name__ == "__main__":
    attention()
    transformers()
    f.write("nn/testdata/transformer.safetensors.gz")

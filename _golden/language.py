"""GPT-2 and BERT of Hugging Face's transformers, in small: logits, losses, gradients, and 200 steps of training.

Weights are not stored. Python and Go compute each element as a hash of two numbers: the parameter's place in the sorted list of names, and the
element's index. Of a matrix of gradients two products are stored: from the left and from the right with vectors of hashes.
"""

import math

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel, GPT2Config, GPT2LMHeadModel

import golden

SEED = 20261121


def mix(seed, n):
    """n hashes of 32 bits: MurmurHash3's finalizer, applied to the indices shifted by a multiple of seed."""
    x = (np.arange(n, dtype=np.uint64) + np.uint64(seed) * np.uint64(0x9E3779B1)) & np.uint64(0xFFFFFFFF)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x ^= x >> np.uint64(shift)
        x = (x * np.uint64(factor)) & np.uint64(0xFFFFFFFF)
    return x ^ (x >> np.uint64(16))


def uniform(seed, n, scale):
    """n float32 numbers in [-scale, scale]. scale is a power of two, so every language computes the same bits."""
    return ((mix(seed, n).astype(np.float64) / 2**31 - 1) * scale).astype(np.float32)


def fill(model, names, scale):
    """Sets all parameters from hashes. names are all names of parameters, in the order that the hashes depend on."""
    params = dict(model.named_parameters())
    with torch.no_grad():
        for i, name in enumerate(names):
            p = params.pop(name)
            v = torch.from_numpy(uniform(i + 1, p.numel(), scale)).reshape(p.shape)
            p.copy_(v + (1 if "LayerNorm.weight" in name or "ln_" in name and name.endswith("weight") else 0))
    assert not params, params.keys()


def digest(i, g):
    """The numbers that are stored of the gradient g of parameter i: a vector itself, and of a matrix its products."""
    g = g.detach().double()
    if g.dim() == 1:
        return g
    rows = torch.from_numpy(uniform(1000 + i, g.shape[0], 1.0)).double()
    columns = torch.from_numpy(uniform(2000 + i, g.shape[1], 1.0)).double()
    return torch.cat([rows @ g, g @ columns])


class Results:
    def __init__(self, f):
        self.f = f

    def run(self, name, make, scale, call):
        """Stores the dict that call(model) returns, and the digests of the gradients of its "loss". Does so in float32 and float64."""
        for label, dtype in (("f32", torch.float32), ("f64", torch.float64)):
            model = make()
            names = sorted(n for n, _ in model.named_parameters())
            fill(model, names, scale)
            model = model.to(dtype).eval()
            out = call(model)
            out["loss"].backward()
            for key, value in out.items():
                self.f.store(f"{name}/{key}/{label}", value)
            params = dict(model.named_parameters())
            for i, n in enumerate(names):
                self.f.store(f"{name}/grad/{n}/{label}", digest(i, params[n].grad).to(dtype))


def gpt_config(**more):
    return GPT2Config(**{**dict(vocab_size=67, n_positions=16, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                                bos_token_id=0, eos_token_id=0), **more})


def bert_config():
    return BertConfig(vocab_size=61, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, max_position_embeddings=16,
                      hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=3)


def networks(f):
    r = Results(f)
    ids = torch.from_numpy(mix(77, 2 * 13).astype(np.int64) % 67).reshape(2, 13)
    f.store("gpt/ids", ids)

    def gpt(model):
        logits = model(ids).logits  # without labels: with them, transformers computes the loss in float32
        return {"logits": logits, "loss": torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())}

    r.run("gpt", lambda: GPT2LMHeadModel(gpt_config()), 0.125, gpt)

    ids_b = torch.from_numpy(mix(78, 3 * 11).astype(np.int64) % 61).reshape(3, 11)
    mask = torch.ones(3, 11, dtype=torch.int64)
    mask[1, 7:] = 0
    mask[2, 1:] = 0
    types = torch.zeros(3, 11, dtype=torch.int64)
    types[:, 5:] = 1
    labels = ids_b.clone()
    labels[:, ::2] = -100
    for name, value in (("ids", ids_b), ("mask", mask), ("types", types), ("labels", labels), ("classes", torch.tensor([2, 0, 1]))):
        f.store(f"bert/{name}", value)

    def base(model):
        y = model(ids_b, attention_mask=mask, token_type_ids=types)
        weight = torch.from_numpy(uniform(3000, y.last_hidden_state.numel(), 1.0)).reshape(y.last_hidden_state.shape)
        pool = torch.from_numpy(uniform(3001, y.pooler_output.numel(), 1.0)).reshape(y.pooler_output.shape)
        loss = (y.last_hidden_state * weight).mean() + (y.pooler_output * pool).mean()
        return {"hidden": y.last_hidden_state, "pooled": y.pooler_output, "loss": loss}

    def masked(model):
        y = model(ids_b, attention_mask=mask, token_type_ids=types, labels=labels)
        return {"logits": y.logits, "loss": y.loss}

    def classes(model):
        y = model(ids_b, attention_mask=mask, labels=torch.tensor([2, 0, 1]))
        return {"logits": y.logits, "loss": y.loss}

    r.run("bert", lambda: BertModel(bert_config()), 0.125, base)
    r.run("bert_masked", lambda: BertForMaskedLM(bert_config()), 0.125, masked)
    r.run("bert_classes", lambda: BertForSequenceClassification(bert_config()), 0.125, classes)


STEPS, BATCH, BLOCK = 200, 8, 16
TEXT = ("the lamp was lit at dusk and put out at dawn. who lit the lamp? the keeper lit it, and the wind put it out. "
        "at dawn the keeper slept; at dusk he woke, and lit the lamp again. so the years went by, dusk after dawn, and the lamp was lit. ")


def training(f):
    """Trains with AdamW, a cosine schedule and clipping. The first weights are hashes."""
    chars = sorted(set(TEXT))
    tokens = np.array([chars.index(c) for c in TEXT], dtype=np.int64)
    f.store("train/tokens", tokens)
    starts = (mix(99, STEPS * BATCH) % np.uint64(len(tokens) - BLOCK - 1)).astype(np.int64).reshape(STEPS, BATCH)
    f.store("train/starts", starts)
    lr = [1e-4 + (3e-3 - 1e-4) * (1 + math.cos(math.pi * k / STEPS)) / 2 for k in range(STEPS)]
    for label, dtype in (("f32", torch.float32), ("f64", torch.float64)):
        model = GPT2LMHeadModel(gpt_config(vocab_size=len(chars)))
        fill(model, sorted(n for n, _ in model.named_parameters()), 0.03125)
        model = model.to(dtype).train()
        opt = torch.optim.AdamW(model.parameters(), lr=lr[0], betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS, 1e-4)
        losses, norms = [], []
        for k in range(STEPS):
            assert abs(opt.param_groups[0]["lr"] - lr[k]) < 1e-12
            x = torch.from_numpy(np.stack([tokens[s:s + BLOCK + 1] for s in starts[k]]))
            logits = model(x[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten())
            opt.zero_grad()
            loss.backward()
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
            opt.step()
            sched.step()
            losses.append(loss.item())
        f.store(f"train/loss/{label}", np.array(losses))
        f.store(f"train/norm/{label}", np.array(norms))
        print(label, losses[0], losses[-1], max(norms), sum(n > 1 for n in norms))


def main():
    import transformers
    f = golden.File(__file__, SEED)
    networks(f)
    training(f)
    f.write("models/testdata/language.safetensors.gz", transformers=transformers.__version__)


main()

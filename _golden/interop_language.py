"""Saves randomly initialised models of transformers, GPT-2 small and BERT-base, with their results.

TestInteropLanguage of package models reads them, if FLAMBEAU_INTEROP names the folder. They have a gigabyte and are not committed.

    python3 interop_language.py FOLDER
"""

import os
import sys

import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

folder = sys.argv[1]
torch.manual_seed(11)
for name, model, vocab in (("gpt2", GPT2LMHeadModel(GPT2Config()), 50257), ("bert", BertModel(BertConfig()), 30522)):
    model.eval()
    with torch.no_grad():
        for p in model.parameters():  # biases and norms that are not all 0 and 1
            if p.dim() == 1:
                p.add_(torch.randn_like(p) * 0.05)
    path = os.path.join(folder, name)
    model.save_pretrained(path)
    torch.save(model.state_dict(), os.path.join(path, "state.pt"))
    ids = torch.randint(0, vocab, (2, 96))
    mask = torch.ones_like(ids)
    answers = {"ids": ids}
    with torch.no_grad():
        if name == "gpt2":
            answers["logits"] = model(ids).logits[:, ::19].contiguous()
            out = model.generate(ids[:1, :20], max_new_tokens=20, do_sample=False, pad_token_id=0, eos_token_id=None)
            answers["generated"] = out[0, 20:]
        else:
            mask[1, 50:] = 0
            y = model(ids, attention_mask=mask, token_type_ids=(torch.arange(96) > 40).long().expand(2, 96))
            answers.update(mask=mask, hidden=y.last_hidden_state, pooled=y.pooler_output)
    save_file(answers, os.path.join(path, "answers.safetensors"))
    print(name, os.listdir(path))

"""Loads files that the tests in Go wrote, with transformers and tokenizers.

    mkdir /tmp/exchange
    FLAMBEAU_EXCHANGE=/tmp/exchange go test -count=1 ./models ./data/text -run 'TestInteropLanguage|TestSave'
    python3 exchange_language.py /tmp/exchange

It stops at the first difference.
"""

import json
import os
import sys

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertTokenizerFast, GPT2Config, GPT2LMHeadModel

folder = sys.argv[1]
model = GPT2LMHeadModel(GPT2Config(vocab_size=67, n_positions=16, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)).eval()
found = model.load_state_dict(load_file(os.path.join(folder, "gpt.safetensors")), strict=False)
assert found.missing_keys == ["lm_head.weight"] and not found.unexpected_keys, found  # lm_head shares the weight of wte
answers = load_file(os.path.join(folder, "gpt_answers.safetensors"))
with torch.no_grad():
    worst = (model(answers["ids"]).logits - answers["logits"]).abs().max().item()
assert worst < 1e-6, worst
print("models: GPT-2 as Go saved it answers the same in transformers, within", worst)

text = os.path.join(folder, "text")
with open(os.path.join(text, "told.json")) as f:
    told = json.load(f)
bpe = Tokenizer(models.BPE.from_file(os.path.join(text, "vocab.json"), os.path.join(text, "merges.txt")))
bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
bpe.add_special_tokens(["<|endoftext|>"])
bert = BertTokenizerFast(os.path.join(text, "vocab.txt"))
for s, (a, b) in zip(told["texts"], told["ids"], strict=True):
    assert bpe.encode(s).ids == (a or []), s
    assert bert.encode(s, add_special_tokens=False) == (b or []), s
print("text: the vocabularies that Go saved give the same tokens in tokenizers,", len(told["texts"]), "texts")

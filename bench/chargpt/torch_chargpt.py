"""PyTorch's side of BenchmarkCharGPTStep in models: milliseconds of a training step, median of 20. Needs torch and transformers.

    python bench/chargpt/torch_chargpt.py [THREADS]
    go test ./models -run '^$' -bench CharGPTStep -cpu THREADS
"""

import statistics
import sys
import time

import torch
from torch.nn.functional import cross_entropy
from transformers import GPT2Config, GPT2LMHeadModel

VOCAB, BLOCK, BATCH = 96, 64, 32

torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
model = GPT2LMHeadModel(GPT2Config(
    vocab_size=VOCAB, n_positions=BLOCK, n_embd=128, n_layer=4, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
    bos_token_id=0, eos_token_id=0))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x, y = torch.randint(0, VOCAB, (BATCH, BLOCK)), torch.randint(0, VOCAB, (BATCH, BLOCK))
times = []
for _ in range(22):
    start = time.perf_counter()
    cross_entropy(model(x).logits.flatten(0, 1), y.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
    times.append(time.perf_counter() - start)
print(f"{1000 * statistics.median(times[2:]):.1f} ms")

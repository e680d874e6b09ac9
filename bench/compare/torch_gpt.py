"""models.GPT in PyTorch, for torch_compare.py and torch_against.py."""

import torch


class Block(torch.nn.Module):
    def __init__(self, width, heads, p):
        super().__init__()
        n = torch.nn
        self.heads, self.p = heads, p
        self.ln_1, self.ln_2 = n.LayerNorm(width), n.LayerNorm(width)
        self.qkv, self.out = n.Linear(width, 3 * width), n.Linear(width, width)
        self.up, self.down = n.Linear(width, 4 * width), n.Linear(4 * width, width)

    def forward(self, x, cache=None):
        f = torch.nn.functional
        b, t, w = x.shape
        q, k, v = self.qkv(self.ln_1(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        if cache:  # of models.Cache: the keys and values of a layer, and how many are filled
            keys, values, n = cache
            keys[:, :, n:n + t], values[:, :, n:n + t] = k, v
            k, v = keys[:, :, :n + t], values[:, :, :n + t]
        y = f.scaled_dot_product_attention(q, k, v, dropout_p=self.p, is_causal=t > 1).transpose(1, 2).reshape(b, t, w)
        x = x + f.dropout(self.out(y), self.p)
        return x + f.dropout(self.down(f.gelu(self.up(self.ln_2(x)), approximate="tanh")), self.p)


class GPT(torch.nn.Module):
    """models.GPT: the weights of the head are those of the embedding."""

    def __init__(self, vocab, context, layers, heads, width, p):
        super().__init__()
        n = torch.nn
        self.p = p
        self.wte, self.wpe = n.Embedding(vocab, width), n.Embedding(context, width)
        self.blocks, self.ln_f = n.ModuleList(Block(width, heads, p) for _ in range(layers)), n.LayerNorm(width)
        for e in (self.wte, self.wpe):
            n.init.normal_(e.weight, std=0.02)

    def forward(self, ids):
        x = torch.nn.functional.dropout(self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device)), self.p)
        for b in self.blocks:
            x = b(x)
        return self.ln_f(x) @ self.wte.weight.T

    def decode(self, ids, caches, n):
        """The logits behind ids, which begin at position n. Behind position 0 ids is one token."""
        x = self.wte(ids) + self.wpe(torch.arange(n, n + ids.shape[1]))
        for b, (keys, values) in zip(self.blocks, caches):
            x = b(x, (keys, values, n))
        return self.ln_f(x[:, -1]) @ self.wte.weight.T

"""The same program in PyTorch: python main.py TEXT [--steps 500]"""
import argparse

import torch
import torch.nn.functional as F
from torch import nn

LENGTH, FEATURES = 64, 128


class LanguageModel(nn.Module):
    def __init__(self, characters):
        super().__init__()
        self.embedding = nn.Embedding(characters, FEATURES)
        self.position = nn.Parameter(0.02 * torch.randn(LENGTH, FEATURES))
        layer = nn.TransformerEncoderLayer(FEATURES, 4, 4 * FEATURES, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(FEATURES, characters)

    def forward(self, tokens):
        n = tokens.shape[1]
        x = self.embedding(tokens) + self.position[:n]
        mask = nn.Transformer.generate_square_subsequent_mask(n, device=x.device)
        return self.head(self.encoder(x, mask=mask, is_causal=True))


def write(model, tokens, count):
    model.eval()
    with torch.no_grad():
        for _ in range(count):
            logits = model(tokens[:, -LENGTH:])[:, -1]
            next = torch.multinomial(F.softmax(logits / 0.8, dim=-1), 1)
            tokens = torch.cat([tokens, next], 1)
    return tokens


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--write", type=int, default=200)
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    text = open(args.text, encoding="utf-8").read()
    characters = sorted(set(text))
    number = {c: i for i, c in enumerate(characters)}
    tokens = torch.tensor([number[c] for c in text])
    blocks = tokens.unfold(0, LENGTH + 1, 1)
    loader = torch.utils.data.DataLoader(blocks, batch_size=args.batch, shuffle=True, drop_last=True, pin_memory=True)

    model = LanguageModel(len(characters)).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    while step < args.steps:
        for block in loader:
            block = block.to(device, non_blocking=True)
            logits = model(block[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), block[:, 1:].flatten())
            opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            step += 1
            if step % 50 == 0 or step == args.steps:
                print(f"step {step}: loss {loss.item():.3f}")
            if step == args.steps:
                break
    written = write(model, tokens[None, :1].to(device), args.write)
    print("".join(characters[i] for i in written[0].tolist()))


if __name__ == "__main__":
    main()

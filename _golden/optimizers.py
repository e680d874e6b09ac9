"""Golden trajectories of optimizers under fixed gradients. Writes internal/golden/testdata/optim.

The operands of a case are the initial values of two parameters, and then the ten gradients of each, stacked along a new first
dimension. The results are the parameters after each of the ten steps, stacked likewise.
"""

import torch

from golden import File

SEED = 31
STEPS = 10
CASES = [
    ("SGD", dict(lr=0.1)),
    ("SGD", dict(lr=0.1, weight_decay=0.1)),
    ("SGD", dict(lr=0.1, momentum=0.9)),
    ("SGD", dict(lr=0.05, momentum=0.9, dampening=0.25)),
    ("SGD", dict(lr=0.1, momentum=0.9, nesterov=True)),
    ("SGD", dict(lr=0.1, momentum=0.8, nesterov=True, weight_decay=0.01)),
    ("SGD", dict(lr=0.1, momentum=0.9, maximize=True)),
    ("Adam", dict(lr=1e-3)),
    ("Adam", dict(lr=0.05, betas=(0.8, 0.95), eps=1e-6)),
    ("Adam", dict(lr=0.01, weight_decay=0.1)),
    ("Adam", dict(lr=0.01, amsgrad=True)),
    ("AdamW", dict(lr=1e-3)),
    ("AdamW", dict(lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
    ("AdamW", dict(lr=0.01, weight_decay=0.0)),
    ("AdamW", dict(lr=0.01, amsgrad=True)),
    ("AdamW", dict(lr=0.01, maximize=True)),
    ("RMSprop", dict(lr=0.01)),
    ("RMSprop", dict(lr=0.01, alpha=0.9, eps=1e-6, momentum=0.9, centered=True, weight_decay=0.01)),
    ("Adagrad", dict(lr=0.1)),
    ("Adagrad", dict(lr=0.1, lr_decay=0.1, weight_decay=0.01, initial_accumulator_value=0.5)),
]


def trajectory(op, args, dtype, params, grads):
    leaves = [p.to(dtype).clone().requires_grad_() for p in params]
    optimizer = getattr(torch.optim, op)(leaves, **args)
    path = [[] for _ in leaves]
    for step in range(STEPS):
        for leaf, g in zip(leaves, grads):
            leaf.grad = g[step].to(dtype)
        optimizer.step()
        for row, leaf in zip(path, leaves):
            row.append(leaf.detach().clone())
    return [torch.stack(row) for row in path], optimizer.defaults


def main():
    f = File(__file__, SEED)
    params = [f.randn(3, 4), torch.tensor([1.0, -2.0, 0.0, 1e-3, 100.0])]
    # The gradients of the second parameter's elements are 0, near eps, ordinary, large, or of
    # changing signs.
    scale = torch.tensor([0.0, 1e-8, 1.0, 1e4, 1.0])
    grads = [f.randn(STEPS, 3, 4), f.randn(STEPS, 5).abs() * scale]
    grads[1][:, 4] *= torch.tensor([1.0, -1.0] * (STEPS // 2))
    names = [f.store(f"in{i}", t) for i, t in enumerate(params + grads)]
    keep = ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize", "betas", "eps", "amsgrad", "alpha", "centered",
            "lr_decay", "initial_accumulator_value")
    for op, args in CASES:
        name = " ".join(f"{k}={v}" for k, v in args.items())
        out = [{}, {}]
        for label, dtype in (("f32", torch.float32), ("f64", torch.float64)):
            paths, defaults = trajectory(op, args, dtype, params, grads)
            for i, path in enumerate(paths):
                out[i][label] = f.store(f"{op}/{name}/p{i}_{label}", path)
        full = {k: defaults[k] for k in keep if k in defaults}
        f.cases.append({"op": op, "name": name, "args": full, "in": [{"base": n} for n in names], "out": out})
    f.write("internal/golden/testdata/optim.safetensors.gz")


if __name__ == "__main__":
    main()

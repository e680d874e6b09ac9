"""Golden trajectories and states of optimizers. Writes optim/testdata/trajectories, clip, muon, average and lbfgs.

Each case has three parameters: one without dimensions, one of five elements, and one that is a transposed matrix. The operands are
the initial values of the parameters, and then the gradients of each, stacked along a new first dimension. The results are the
parameters after each step, stacked likewise. In steps 3, 10 and 17 the second parameter has no gradient. The arguments are those of
the class, or those of two groups. The second group has the last parameter.

The metadata "trees" maps the name of a case to the result of state_dict after step 10, in float32 and in float64, as JSON. There
{"tensor": name} stands for a tensor of the file. Another optimizer loads that state and makes the other steps. torch's loading
changes the type of some scalars. Where the parameters then differ, they are stored as <case>/resumed<i>_<type>.
"""

import copy
import json

import torch

from golden import File, Operand

SEED = 77
STEPS = 20
SAVED = 10  # the state is recorded after this number of steps


class Lion(torch.optim.Optimizer):
    """Lion as in algorithm 2 of X. Chen et al., "Symbolic Discovery of Optimization Algorithms", arXiv:2302.06675."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0, maximize=False):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay, maximize=maximize))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = -p.grad if group["maximize"] else p.grad
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                c = m * b1 + g * (1 - b1)
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(c.sign() * group["lr"])
                m.mul_(b2).add_(g * (1 - b2))


CASES = [
    ("SGD", dict(lr=0.1)),
    ("SGD", dict(lr=0.1, weight_decay=0.1, maximize=True)),
    ("SGD", dict(lr=0.1, momentum=0.9, dampening=0.25, weight_decay=0.01)),
    ("SGD", dict(lr=0.1, momentum=0.8, nesterov=True, weight_decay=0.01)),
    ("SGD", [dict(lr=0.1, momentum=0.9), dict(lr=0.01, momentum=0.5, weight_decay=0.1)]),
    ("Adam", dict(lr=0.01, amsgrad=True)),
    ("Adam", dict(lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1, amsgrad=True, maximize=True)),
    ("Adam", [dict(lr=0.1), dict(lr=0.01, betas=(0.5, 0.9), amsgrad=True)]),
    ("AdamW", dict(lr=0.01)),
    ("AdamW", dict(lr=0.01, amsgrad=True, maximize=True, weight_decay=0.0)),
    ("AdamW", [dict(lr=0.1), dict(lr=0.01, weight_decay=0.5)]),
    ("NAdam", dict(lr=0.01)),
    ("NAdam", dict(lr=0.02, betas=(0.8, 0.95), weight_decay=0.1, momentum_decay=0.1)),
    ("NAdam", dict(lr=0.02, weight_decay=0.1, decoupled_weight_decay=True, maximize=True)),
    ("RAdam", dict(lr=0.01)),
    ("RAdam", dict(lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
    ("RAdam", dict(lr=0.02, weight_decay=0.1, decoupled_weight_decay=True, maximize=True)),
    ("RMSprop", dict(lr=0.01)),
    ("RMSprop", dict(lr=0.01, alpha=0.9, eps=1e-6, momentum=0.9, centered=True, weight_decay=0.01)),
    ("RMSprop", dict(lr=0.01, centered=True, maximize=True)),
    ("RMSprop", [dict(lr=0.01, momentum=0.5), dict(lr=0.02, weight_decay=0.1)]),
    ("Adagrad", dict(lr=0.1)),
    ("Adagrad", dict(lr=0.1, lr_decay=0.1, weight_decay=0.01, initial_accumulator_value=0.5, eps=1e-6, maximize=True)),
    ("Adadelta", dict(lr=1.0)),
    ("Adadelta", dict(lr=0.5, rho=0.8, eps=1e-4, weight_decay=0.1, maximize=True)),
    ("Adamax", dict(lr=0.01)),
    ("Adamax", dict(lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1, maximize=True)),
    ("ASGD", dict(lr=0.1)),
    ("ASGD", dict(lr=0.1, lambd=0.1, alpha=0.5, t0=4, weight_decay=0.1, maximize=True)),
    ("Rprop", dict(lr=0.01)),
    ("Rprop", dict(lr=0.1, etas=(0.4, 1.5), step_sizes=(1e-3, 0.5), maximize=True)),
    ("Lion", dict(lr=0.01)),
    ("Lion", dict(lr=0.01, betas=(0.8, 0.95), weight_decay=0.1, maximize=True)),
    ("Lion", [dict(lr=0.01), dict(lr=0.02, betas=(0.95, 0.98), weight_decay=1.0)]),
    ("Adafactor", dict(lr=0.01)),
    ("Adafactor", dict(lr=0.3, beta2_decay=-0.5, eps=(1e-6, 1e-2), d=1.5, weight_decay=0.1, maximize=True)),
    ("Adafactor", [dict(lr=0.1, d=2.0), dict(lr=0.01, weight_decay=0.5)]),
    ("SparseAdam", dict(lr=0.1)),
    ("SparseAdam", dict(lr=0.02, betas=(0.8, 0.95), eps=1e-6, maximize=True)),
]


def make(op, args, leaves):
    cls = Lion if op == "Lion" else getattr(torch.optim, op)
    if isinstance(args, dict):
        return cls(leaves, **args)
    first, second = args
    return cls([dict(params=leaves[:-1], **first), dict(params=leaves[-1:], **second)])


def gradient(op, g):
    """g in the form that op accepts. For SparseAdam that is a sparse tensor, without the elements that are 0."""
    return g.to_sparse() if op == "SparseAdam" else g


def numbered(tree):
    """tree with the counts of steps as tensors. All optimizers but SparseAdam already have tensors there."""
    for s in tree["state"].values():
        if isinstance(s.get("step"), int):
            s["step"] = torch.tensor(float(s["step"]))
    return tree


def missing(step, i):
    return i == 1 and step % 7 == 3


def jsonable(f, key, v):
    """The tree v as JSON. Tensors are stored in the file, and {"tensor": name} takes their place."""
    if isinstance(v, torch.Tensor):
        return {"tensor": f.store(key, v.detach().clone())}
    if isinstance(v, dict):
        return {str(k): jsonable(f, f"{key}/{k}", e) for k, e in v.items()}
    if isinstance(v, (list, tuple)):
        return [jsonable(f, f"{key}/{i}", e) for i, e in enumerate(v)]
    return v


def clipping():
    """Writes optim/testdata/clip: gradients before and after clipping by norm and by value, and their norm.

    The operands of a case are the gradients of four parameters. The results are the norm, if the case clips by norm, and the gradients.
    """
    f = File(__file__, SEED)
    grads = [Operand(f.randn(), grad=False), Operand(f.randn(5) * 3, grad=False), Operand(f.randn(2, 3), ("transpose", (0, 1)), grad=False), Operand(torch.zeros(0), grad=False)]
    tiny = [Operand(g.base * 1e-3, *g.views, grad=False) for g in grads]
    broken = [Operand(g.base.clone(), *g.views, grad=False) for g in grads]
    broken[1].base[2] = float("inf")
    for name, list_, kind, args in [
        ("norm 2", grads, "norm", dict(max_norm=1.0)),
        ("below the limit", tiny, "norm", dict(max_norm=1.0)),
        ("limit 0", grads, "norm", dict(max_norm=0.0)),
        ("norm 1", grads, "norm", dict(max_norm=0.5, norm_type=1.0)),
        ("norm 3", grads, "norm", dict(max_norm=0.5, norm_type=3.0)),
        ("norm inf", grads[:3], "norm", dict(max_norm=0.5, norm_type=float("inf"))),
        ("infinite", broken, "norm", dict(max_norm=0.5)),
        ("value", grads, "value", dict(clip_value=0.75)),
        ("value of infinity", broken, "value", dict(clip_value=0.75)),
    ]:
        row = {"op": kind, "name": name, "args": {k: str(v) for k, v in args.items()}, "in": [], "out": []}
        for i, g in enumerate(list_):
            row["in"].append({"base": f.store(f"{name}/g{i}", g.base), "views": [[v, list(a)] for v, a in g.views]})
        results = {}
        for label, dtype in (("f32", torch.float32), ("f64", torch.float64)):
            params = []
            for g in list_:
                t = g.tensor(dtype)
                p = torch.zeros_like(t).requires_grad_()
                p.grad = torch.empty_strided(t.size(), t.stride(), dtype=dtype).copy_(t)
                params.append(p)
            if kind == "norm":
                out = [torch.nn.utils.clip_grad_norm_(params, **args)]
            else:
                torch.nn.utils.clip_grad_value_(params, **args)
                out = []
            results[label] = out + [p.grad.contiguous() for p in params]
        for i in range(len(results["f32"])):
            row["out"].append({label: f.store(f"{name}/out{i}_{label}", results[label][i]) for label in results})
        f.cases.append(row)
    f.write("optim/testdata/clip.safetensors.gz")


def muon():
    """Writes optim/testdata/muon: three matrices under fixed gradients, in the form of the trajectories, and the momenta after the last step."""
    f = File(__file__, SEED)
    shapes = [(6, 4), (3, 5), (4, 4)]
    params = [f.randn(*s) for s in shapes]
    grads = [f.randn(8, *s) for s in shapes]
    operands = [{"base": f.store(f"in{i}", t)} for i, t in enumerate(params + grads)]
    for args in [
        dict(lr=0.1),
        dict(lr=0.1, momentum=0.8, nesterov=False, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
        dict(lr=0.02, weight_decay=0.5, adjust_lr_fn="spectral_unclamped", ns_steps=3, eps=1e-5, ns_coefficients=(3.0, -4.0, 2.0)),
    ]:
        name = " ".join(f"{k}={v}" for k, v in args.items())
        out = [{} for _ in range(2 * len(params))]
        for label, dtype in (("f32", torch.float32), ("f64", torch.float64)):
            leaves = [p.to(dtype).clone().requires_grad_() for p in params]
            optimizer = torch.optim.Muon(leaves, **args)
            path = [[] for _ in leaves]
            for step in range(8):
                for leaf, g in zip(leaves, grads):
                    leaf.grad = g[step].to(dtype)
                optimizer.step()
                for line, leaf in zip(path, leaves):
                    line.append(leaf.detach().clone())
            for i, line in enumerate(path):
                out[i][label] = f.store(f"{name}/p{i}_{label}", torch.stack(line))
                out[3 + i][label] = f.store(f"{name}/m{i}_{label}", optimizer.state[leaves[i]]["momentum_buffer"])
        group = {k: v for k, v in optimizer.state_dict()["param_groups"][0].items()}
        f.cases.append({"op": "Muon", "name": name, "args": {"given": args, "group": group}, "in": operands, "out": out})
    f.write("optim/testdata/muon.safetensors.gz")


def averages():
    """Writes optim/testdata/average: a model in six states, its averages after each, and statistics recomputed by update_bn.

    model/<name> and <case>/<name> are stacked along the steps. The model is Sequential(Linear(3, 4), BatchNorm1d(4)).
    """
    from torch.optim import swa_utils as W

    f = File(__file__, SEED)
    torch.manual_seed(SEED)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    cases = {
        "ema": W.AveragedModel(model, multi_avg_fn=W.get_ema_multi_avg_fn(0.9)),
        "ema fast": W.AveragedModel(model, multi_avg_fn=W.get_ema_multi_avg_fn(0.3)),
        "ema buffers": W.AveragedModel(model, multi_avg_fn=W.get_ema_multi_avg_fn(0.6), use_buffers=True),
        "swa": W.AveragedModel(model),
    }
    inputs = f.randn(6, 8, 3)
    seen = {"model": []} | {name: [] for name in cases}
    for x in inputs:
        with torch.no_grad():
            for p in model.parameters():
                p.add_(f.randn(*p.shape))
        model.train()
        model(x)
        seen["model"].append({k: v.clone() for k, v in model.state_dict().items()})
        for name, a in cases.items():
            a.update_parameters(model)
            seen[name].append({k: v.clone() for k, v in a.state_dict().items()})
    for name, states in seen.items():
        for k in states[0]:
            f.store(f"{name}/{k}", torch.stack([s[k] for s in states]))
    cases["swa"].eval()
    W.update_bn(list(inputs), cases["swa"])
    for k, v in cases["swa"].state_dict().items():
        f.store(f"updated/{k}", v)
    f.store("inputs", inputs)
    f.write("optim/testdata/average.safetensors.gz")


def lbfgs():
    """Writes optim/testdata/lbfgs: steps down (1-a)² + 100(b-a²)² + Σ(c - 2)⁴ + c₀·c₂, for x = (a, b) and a matrix c.

    A case has the parameters after each of eight steps, and the value of the function before each. The metadata "trees" has the state after three.
    """
    f, trees = File(__file__, SEED), {}
    for name, args in {
        "fixed": dict(lr=0.001, max_iter=5),
        "wolfe": dict(lr=1.0, max_iter=4, history_size=3, line_search_fn="strong_wolfe"),
        "wolfe max": dict(lr=0.5, max_iter=6, max_eval=9, tolerance_grad=1e-5, tolerance_change=1e-7, line_search_fn="strong_wolfe", maximize=True),
    }.items():
        x = torch.tensor([-1.2, 1.0], dtype=torch.float64, requires_grad=True)
        c = torch.tensor([[0.5, 1.0], [3.0, 2.5]], dtype=torch.float64, requires_grad=True)
        sign = -1 if args.get("maximize") else 1
        optimizer = torch.optim.LBFGS([x, c], **args)

        def closure():
            optimizer.zero_grad()
            loss = sign * ((1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2 + ((c - 2) ** 4).sum() + c[0, 0] * c[1, 0])
            loss.backward()
            return loss

        path, losses = [], []
        for step in range(8):
            losses.append(float(optimizer.step(closure)))
            path.append(torch.cat([x.detach(), c.detach().reshape(-1)]))
            if step == 2:
                state = copy.deepcopy(optimizer.state_dict())
                state["state"][0].pop("al", None)
                trees[name] = jsonable(f, f"{name}/state", state)
        f.store(f"{name}/path", torch.stack(path))
        f.store(f"{name}/losses", torch.tensor(losses, dtype=torch.float64))
    f.write("optim/testdata/lbfgs.safetensors.gz", trees=trees)


def main():
    lbfgs()
    averages()
    clipping()
    muon()
    f = File(__file__, SEED)
    params = [Operand(f.randn()), Operand(torch.tensor([1.0, -2.0, 0.0, 1e-3, 100.0])), Operand(f.randn(2, 3), ("transpose", (0, 1)))]
    # The gradients of the second parameter's elements are 0, near eps, ordinary, large, or of
    # changing signs.
    scale = torch.tensor([0.0, 1e-8, 1.0, 1e4, 1.0])
    grads = [f.randn(STEPS), f.randn(STEPS, 5).abs() * scale, f.randn(STEPS, 3, 2)]
    grads[1][:, 4] *= torch.tensor([1.0, -1.0] * (STEPS // 2))
    operands = []
    for i, p in enumerate(params):
        operands.append({"base": f.store(f"p{i}", p.base), "views": [[v, list(a)] for v, a in p.views]})
    operands += [{"base": f.store(f"g{i}", g)} for i, g in enumerate(grads)]
    holes = [g * ((torch.arange(g.numel()).reshape(g.shape) + torch.arange(STEPS).reshape(-1, *[1] * (g.dim() - 1))) % 3 != 0) for g in grads]
    holed = operands[:3] + [{"base": f.store(f"h{i}", g)} for i, g in enumerate(holes)]
    dense = grads
    trees = {}
    for op, args in CASES:
        grads = holes if op == "SparseAdam" else dense
        row = " | ".join(" ".join(f"{k}={v}" for k, v in a.items()) for a in (args if isinstance(args, list) else [args]))
        name, out, trees[f"{op}/{row}"] = f"{op}/{row}", [{} for _ in params], {}
        for label, dtype in (("f32", torch.float32), ("f64", torch.float64)):
            leaves = [p.tensor(dtype) for p in params]
            leaves = [torch.empty_strided(t.size(), t.stride(), dtype=dtype).copy_(t.detach()).requires_grad_() for t in leaves]
            optimizer = make(op, args, leaves)
            path = [[] for _ in leaves]
            again, resumed = None, [[] for _ in leaves]
            for step in range(STEPS):
                for i, (leaf, g) in enumerate(zip(leaves, grads)):
                    leaf.grad = None if missing(step, i) else gradient(op, g[step].to(dtype))
                optimizer.step()
                for line, leaf in zip(path, leaves):
                    line.append(leaf.detach().clone().contiguous())
                if again is not None:
                    for i, (leaf, g) in enumerate(zip(copies, grads)):
                        leaf.grad = None if missing(step, i) else gradient(op, g[step].to(dtype))
                    again.step()
                    for line, leaf in zip(resumed, copies):
                        line.append(leaf.detach().clone().contiguous())
                if step + 1 == SAVED:
                    trees[name][label] = jsonable(f, f"{name}/{label}", numbered(copy.deepcopy(optimizer.state_dict())))
                    copies = [leaf.detach().clone().requires_grad_() for leaf in leaves]
                    again = make(op, args, copies)
                    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            if any(not torch.equal(torch.stack(a[SAVED:]), torch.stack(b)) for a, b in zip(path, resumed)):
                print("resuming differs:", name, label)
                for i, line in enumerate(resumed):
                    f.store(f"{name}/resumed{i}_{label}", torch.stack(line))
            for i, line in enumerate(path):
                out[i][label] = f.store(f"{name}/p{i}_{label}", torch.stack(line))
        f.cases.append({"op": op, "name": row, "args": {"groups": json.loads(json.dumps(args if isinstance(args, list) else [args]))},
                        "in": holed if op == "SparseAdam" else operands, "out": out})
    f.write("optim/testdata/trajectories.safetensors.gz", trees=trees)


if __name__ == "__main__":
    main()

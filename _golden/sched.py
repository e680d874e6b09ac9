"""Golden learning rates of schedules. Writes optim/sched/testdata/sched.

Each case is a schedule on an optimizer with three groups. Its result is the learning rate of each group, and the momentum or first
beta where the schedule changes it, before the first step and after each of 60. The metadata "states" maps the name of a case to what
state_dict returned after step 23, as JSON, where {"ints": {…}} stands for a map with whole numbers as keys and {"float": "inf"} for a
number that JSON does not have. "metrics" is what the schedules that watch a value are given.
"""

import copy
import json
import math
import warnings
from collections import Counter

import torch
from torch.optim import lr_scheduler as S

from golden import File

SEED = 5
STEPS = 60
SAVED = 23
RATES = [0.1, 0.013, 0.7]

warnings.simplefilter("ignore")


def sgd():
    return torch.optim.SGD([dict(params=[torch.nn.Parameter(torch.zeros(1))], lr=lr) for lr in RATES], lr=1.0, momentum=0.9)


def adam():
    return torch.optim.Adam([dict(params=[torch.nn.Parameter(torch.zeros(1))], lr=lr) for lr in RATES], lr=1.0)


METRICS = [1 / (1 + 0.3 * t) if t < 12 else 0.25 + 0.01 * math.sin(t) if t < 40 else 0.2 - 0.001 * (t - 40) for t in range(STEPS)]

CASES = {
    "step": lambda o: S.StepLR(o, 7, 0.3),
    "step defaults": lambda o: S.StepLR(o, 30),
    "multistep": lambda o: S.MultiStepLR(o, [5, 11, 11, 40], 0.5),
    "constant": lambda o: S.ConstantLR(o, 0.3, 9),
    "linear": lambda o: S.LinearLR(o, 0.25, 0.75, 13),
    "linear warm": lambda o: S.LinearLR(o, 0.1, 1.0, 20),
    "exponential": lambda o: S.ExponentialLR(o, 0.93),
    "polynomial": lambda o: S.PolynomialLR(o, 50, 2.0),
    "polynomial root": lambda o: S.PolynomialLR(o, 40, 0.9),
    "cosine": lambda o: S.CosineAnnealingLR(o, 25, 0.001),
    "cosine odd": lambda o: S.CosineAnnealingLR(o, 60),
    "restarts": lambda o: S.CosineAnnealingWarmRestarts(o, 7, 2, 1e-4),
    "restarts same": lambda o: S.CosineAnnealingWarmRestarts(o, 9),
    "onecycle": lambda o: S.OneCycleLR(o, [0.5, 0.05, 1.0], total_steps=60),
    "onecycle three": lambda o: S.OneCycleLR(o, 0.5, total_steps=61, pct_start=0.4, anneal_strategy="linear", three_phase=True, div_factor=10.0, final_div_factor=100.0, base_momentum=0.7, max_momentum=0.99),
    "onecycle plain": lambda o: S.OneCycleLR(o, 0.5, total_steps=60, cycle_momentum=False),
    "cyclic": lambda o: S.CyclicLR(o, [0.01, 0.001, 0.1], [0.1, 0.02, 0.5], step_size_up=7, step_size_down=11),
    "cyclic two": lambda o: S.CyclicLR(o, 0.01, 0.1, step_size_up=8, mode="triangular2", cycle_momentum=False),
    "cyclic exp": lambda o: S.CyclicLR(o, 0.01, 0.1, step_size_up=8, mode="exp_range", gamma=0.97, base_momentum=0.5, max_momentum=0.95),
    "lambda": lambda o: S.LambdaLR(o, lambda t: 1 / (1 + 0.1 * t)),
    "lambda each": lambda o: S.LambdaLR(o, [lambda t: 1.0, lambda t: 0.5 * t, lambda t: 1 / (1 + t)]),
    "multiplicative": lambda o: S.MultiplicativeLR(o, lambda t: 0.9 + 0.001 * t),
    "plateau": lambda o: S.ReduceLROnPlateau(o, factor=0.5, patience=3, cooldown=2),
    "plateau max": lambda o: S.ReduceLROnPlateau(o, mode="max", factor=0.7, patience=0, threshold=0.01, threshold_mode="abs", min_lr=[0.001, 0.002, 0.3]),
    "sequential": lambda o: S.SequentialLR(o, [S.LinearLR(o, 0.1, 1.0, 10), S.CosineAnnealingLR(o, 40, 0.001)], [10]),
    "sequential three": lambda o: S.SequentialLR(o, [S.ConstantLR(o, 0.2, 100), S.ExponentialLR(o, 0.9), S.StepLR(o, 4, 0.5)], [5, 30]),
    "sequential restarts": lambda o: S.SequentialLR(o, [S.LambdaLR(o, lambda t: 0.1 + 0.05 * t), S.CosineAnnealingWarmRestarts(o, 6, 2), S.PolynomialLR(o, 20, 1.5), S.MultiStepLR(o, [3, 5], 0.1)], [4, 25, 50]),
    "chained": lambda o: S.ChainedScheduler([S.ConstantLR(o, 0.1, 6), S.ExponentialLR(o, 0.95)]),
}


def jsonable(v):
    if isinstance(v, Counter):
        return {"ints": {str(k): n for k, n in v.items()}}
    if isinstance(v, dict):
        return {k: jsonable(e) for k, e in v.items()}
    if isinstance(v, (list, tuple)):
        return [jsonable(e) for e in v]
    if isinstance(v, float) and math.isinf(v):
        return {"float": str(v)}
    return v


def momentum(o):
    return [g["betas"][0] if "betas" in g else g["momentum"] for g in o.param_groups]


def main():
    f, states = File(__file__, SEED), {}
    for name, make in CASES.items():
        for kind, optimizer in (("sgd", sgd), ("adam", adam)):
            if kind == "adam" and not name.startswith(("onecycle", "cyclic")):
                continue
            key = f"{name}/{kind}"
            o = optimizer()
            s = make(o)
            lrs, momenta = [[g["lr"] for g in o.param_groups]], [momentum(o)]
            for t in range(STEPS):
                o.step()
                if isinstance(s, S.ReduceLROnPlateau):
                    s.step(METRICS[t])
                else:
                    s.step()
                lrs.append([g["lr"] for g in o.param_groups])
                momenta.append(momentum(o))
                assert s.get_last_lr() == lrs[-1]
                if t + 1 == SAVED:
                    states[key] = jsonable(copy.deepcopy(s.state_dict()))
            f.store(f"{key}/lr", torch.tensor(lrs, dtype=torch.float64))
            if any(m != momenta[0] for m in momenta) or momenta[0] != [0.9] * 3:
                f.store(f"{key}/momentum", torch.tensor(momenta, dtype=torch.float64))
    f.write("optim/sched/testdata/sched.safetensors.gz", states=states, metrics=METRICS, names=list(states))


if __name__ == "__main__":
    main()

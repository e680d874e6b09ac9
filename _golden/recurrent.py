"""Golden files for recurrent layers. Writes nn/testdata/recurrent.safetensors.gz."""

import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from golden import File
from modelcases import model_case
from ops import SEED

f = File(__file__, SEED + 52)
r = f.randn


def flatten(out):
    """What a recurrent layer returns as a list."""
    y, s = out
    return [y, *s] if isinstance(s, tuple) else [y, s]


def layers():
    kinds = {"rnn_tanh": (torch.nn.RNN, {}), "rnn_relu": (torch.nn.RNN, {"nonlinearity": "relu"}), "lstm": (torch.nn.LSTM, {}), "gru": (torch.nn.GRU, {})}
    for kind, (cls, kw) in kinds.items():
        def case(name, x, initial=None, lengths=None, enforce=True, more=(), **opts):
            make = lambda: cls(2, 3, **kw, **opts)
            out = opts.get("proj_size", 0) or 3
            rows = opts.get("num_layers", 1) * (2 if opts.get("bidirectional") else 1)
            inputs = [r(*x)]
            first = opts.get("batch_first", False)
            n = None if len(x) == 2 else x[0 if first else 1]
            state = lambda width: r(rows, width) if n is None else r(rows, n, width)
            if initial:
                inputs.append(state(out))
                if kind == "lstm":
                    inputs.append(state(3))

            def call(m, x, masks):
                s = None if len(x) == 1 else x[1] if len(x) == 2 else (x[1], x[2])
                if lengths is None:
                    return flatten(m(x[0], s))
                p = pack_padded_sequence(x[0], torch.tensor(lengths), batch_first=first, enforce_sorted=enforce)
                y, *rest = flatten(m(p, s))
                return [pad_packed_sequence(y, batch_first=first, padding_value=0.5)[0], *rest]

            model_case(f, kind, name, make, call, inputs, lengths=lengths, sorted=enforce, layers=opts.get("num_layers", 1), bias=opts.get("bias", True),
                       bidirectional=opts.get("bidirectional", False), batch_first=first, proj=opts.get("proj_size", 0))

        case("ordinary", (5, 2, 2))
        case("initial", (4, 2, 2), initial=True)
        case("batch first", (2, 4, 2), initial=True, batch_first=True)
        case("one step", (1, 2, 2), initial=True)
        case("no bias", (4, 2, 2), bias=False)
        case("bidirectional", (4, 2, 2), initial=True, bidirectional=True)
        case("layers", (4, 2, 2), initial=True, num_layers=2)
        case("all", (2, 3, 2), initial=True, num_layers=2, bidirectional=True, batch_first=True)
        case("unbatched", (4, 2), initial=True, bidirectional=True)
        case("unbatched zeros", (4, 2))
        case("packed", (5, 3, 2), initial=True, lengths=[5, 2, 2])
        case("packed bidirectional", (5, 4, 2), initial=True, lengths=[4, 3, 3, 1], bidirectional=True)
        case("packed unsorted", (3, 4, 2), initial=True, lengths=[1, 3, 4], enforce=False, bidirectional=True, batch_first=True, num_layers=2)
        case("packed zeros", (4, 3, 2), lengths=[2, 4, 1], enforce=False)
        case("empty batch", (3, 0, 2))
        if kind == "lstm":
            case("projected", (4, 2, 2), initial=True, proj_size=2)
            case("projected layers", (4, 2, 2), initial=True, proj_size=2, num_layers=2, bidirectional=True)
            case("projected packed", (4, 3, 2), initial=True, proj_size=2, lengths=[2, 4, 1], enforce=False, bidirectional=True)


def cells():
    kinds = {"rnn_tanh": (torch.nn.RNNCell, {}), "rnn_relu": (torch.nn.RNNCell, {"nonlinearity": "relu"}), "lstm": (torch.nn.LSTMCell, {}), "gru": (torch.nn.GRUCell, {})}
    for kind, (cls, kw) in kinds.items():
        for name, shape, initial, bias in (("ordinary", (2,), True, True), ("no bias", (2,), True, False), ("alone", (), True, True), ("zeros", (2,), False, True)):
            inputs = [r(*shape, 2)]
            if initial:
                inputs += [r(*shape, 3) for _ in range(2 if kind == "lstm" else 1)]

            def call(m, x, masks):
                s = None if len(x) == 1 else x[1] if len(x) == 2 else (x[1], x[2])
                y = m(x[0], s)
                return y if isinstance(y, tuple) else [y]

            model_case(f, kind + "_cell", name, lambda: cls(2, 3, bias, **kw), call, inputs, bias=bias)


if __name__ == "__main__":
    layers()
    cells()
    f.write("nn/testdata/recurrent.safetensors.gz")

"""Metrics by scikit-learn and torch, and TensorBoard events by TensorBoard's own classes.

Wants scikit-learn and tensorboard beside what requirements.txt lists.
"""

import base64
import gzip
import json
import os

import golden
import numpy as np
import sklearn
import sklearn.metrics
import tensorboard
import torch
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

SEED = 20240229


def metrics(rng, n, classes, present):
    scores = rng.standard_normal((n, classes)).astype(np.float32)
    target = rng.choice(present, n)
    # Half of the guesses are made right, and some classes are never guessed.
    scores[np.arange(n), target] += (rng.random(n) < 0.5) * 4
    scores[:, classes - 1] -= 100
    guess = scores.argmax(1)
    case = {"scores": scores.astype(float).round(3).tolist(), "target": target.tolist()}
    scores = np.array(case["scores"], np.float32)
    assert (guess == scores.argmax(1)).all()
    case["accuracy"] = sklearn.metrics.accuracy_score(target, guess)
    case["top3"] = sklearn.metrics.top_k_accuracy_score(target, scores, k=3, labels=range(classes))
    case["confusion"] = sklearn.metrics.confusion_matrix(target, guess, labels=range(classes)).tolist()
    for average in ("macro", "micro", "weighted"):
        p, r, f, _ = sklearn.metrics.precision_recall_fscore_support(target, guess, average=average, zero_division=0)
        case[average] = [p, r, f]
    p, r, f, s = sklearn.metrics.precision_recall_fscore_support(target, guess, labels=range(classes), zero_division=0)
    case["classes"] = np.stack([p, r, f, s]).T.tolist()
    t = torch.tensor(target)
    t[::5] = -100
    assert (t >= 0).any()
    case["perplexity"] = torch.nn.functional.cross_entropy(torch.tensor(scores).double(), t).exp().item()
    return case


def events():
    value = summary_pb2.Summary.Value
    text = value(
        tag="notes",
        metadata=summary_pb2.SummaryMetadata(plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="text")),
        tensor=tensor_pb2.TensorProto(
            dtype=types_pb2.DT_STRING,
            string_val=[b"**bold**"],
            tensor_shape=tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=1)]),
        ),
    )
    histogram = value(
        tag="weights",
        histo=summary_pb2.HistogramProto(min=2, max=2, num=3, sum=6, sum_squares=12, bucket_limit=[2], bucket=[3]),
    )
    return {
        "scalar": event_pb2.Event(wall_time=1.5, step=300, summary=summary_pb2.Summary(value=[value(tag="loss/train", simple_value=0.25)])),
        "text": event_pb2.Event(wall_time=1.5, step=7, summary=summary_pb2.Summary(value=[text])),
        "histogram": event_pb2.Event(wall_time=1.5, step=9, summary=summary_pb2.Summary(value=[histogram])),
        "restart": event_pb2.Event(wall_time=1.5, step=5, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START)),
    }


class Sink:
    def __init__(self):
        self.data = b""

    def write(self, data):
        self.data += data


def framed(event):
    sink = Sink()
    RecordWriter(sink).write(event.SerializeToString())
    return base64.b64encode(sink.data).decode()


def write(path, content):
    with open(path, "wb") as f, gzip.GzipFile(fileobj=f, mode="wb", mtime=0, filename="") as z:
        z.write(json.dumps(content).encode())


def main():
    rng = np.random.default_rng(SEED)
    about = golden.versions(__file__, SEED) | {"sklearn": sklearn.__version__, "tensorboard": tensorboard.__version__}
    folder = os.path.join(golden.REPOSITORY, "train", "testdata")
    os.makedirs(folder, exist_ok=True)
    cases = [metrics(rng, 40, 5, [0, 1, 2, 3, 4]), metrics(rng, 60, 7, [0, 2, 3]), metrics(rng, 2, 4, [1])]
    write(os.path.join(folder, "metrics.json.gz"), {"about": about, "cases": cases})
    folder = os.path.join(golden.REPOSITORY, "train", "tensorboard", "testdata")
    os.makedirs(folder, exist_ok=True)
    write(os.path.join(folder, "events.json.gz"), {"about": about, "events": {k: framed(e) for k, e in events().items()}})


if __name__ == "__main__":
    main()

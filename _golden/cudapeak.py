"""Writes models/testdata/cudapeak.json: the peaks that torch.cuda.max_memory_allocated reports for training steps. No GPU is needed.

PyTorch's CUDA build runs over a stand-in for CUDA's runtime, cuBLAS and cuDNN: cudapeak.c, which this script compiles with gcc and the headers of
the wheels. There memory is addresses without contents, and kernels do not run. PyTorch's own code on the host is used: the choice of kernels on an
H200, its temporaries, and the caching allocator with its statistics.

The columns count bytes, those of peaks above what was in use before the case:

peak: the peak of the second step, without any workspace of cuBLAS and cuDNN. With a GPU the peak is at least as large.
workspace: the same with the usual workspace of cuBLAS.
default: like peak, with the optimizer's default instead of fused=True.
graph: the pool of a CUDA graph of the step.

LSTMs run without cuDNN, because it is not known what cuDNN saves for them.

The cases of bench/compare are bench/compare/torch_compare.py itself, run as on a GPU.
"""
import gc
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
# Calls of these functions go to the real library.
TRUE = {"cudnnGetVersion", "cudnnGetCudartVersion", "cudnnGetProperty", "cudnnGetErrorString", "cudnnGetLastErrorString"}


def compile_stand_in(folder):
    """Compiles cudapeak.c. Other functions that PyTorch calls do nothing there and return success."""
    import torch
    libraries = os.path.join(os.path.dirname(torch.__file__), "lib")
    names = set()
    for lib in ("libtorch_cuda.so", "libc10_cuda.so", "libtorch_python.so", "libtorch_cpu.so", "libcaffe2_nvrtc.so"):
        said = subprocess.run(["nm", "-D", "--undefined-only", os.path.join(libraries, lib)], capture_output=True, text=True, check=True).stdout
        names |= {line.split()[-1].split("@")[0] for line in said.splitlines()}
    names = sorted(n for n in names - TRUE if re.match(r"(__cuda|cuda|cublas|cudnn|cu[A-Z])", n))
    with open(os.path.join(folder, "rest.c"), "w") as f:
        f.writelines(f"__attribute__((weak)) int {n}(void) {{ return 0; }}\n" for n in names)
    site = os.path.dirname(os.path.dirname(torch.__file__))
    headers = glob.glob(f"{site}/nvidia/*/include") + [f"{site}/triton/backends/nvidia/include"]
    out = os.path.join(folder, "libcuda.so.1")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-w", "-o", out, "-Wl,-soname,libcuda.so.1", *(f"-I{h}" for h in headers), os.path.join(HERE, "cudapeak.c"),
                    os.path.join(folder, "rest.c")], check=True)
    return out


def run(stand_in, workspace, *command):
    """Runs Python over the stand-in and returns the lines of JSON that it prints."""
    env = dict(os.environ, LD_PRELOAD=stand_in, TORCH_CUDNN_V8_API_DISABLED="1")
    if not workspace:
        env.update(CUBLAS_WORKSPACE_CONFIG=":0:0", CUBLASLT_WORKSPACE_SIZE="0")
    said = subprocess.run([sys.executable, "-W", "ignore", *command], env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(line) for line in said.splitlines()]


def main():
    cases = {}
    with tempfile.TemporaryDirectory() as folder:
        stand_in = compile_stand_in(folder)
        for key in ("peak", "workspace"):
            for row in run(stand_in, key == "workspace", os.path.join(HERE, "..", "bench", "compare", "torch_compare.py"), "--seconds", "0.01", "cuda:0"):
                if row["unit"] == "samples/s" and not row["case"].endswith("_graph"):  # the replay of a graph allocates nothing, so it has no peak
                    cases.setdefault(row["case"], {})[key] = row["peak_bytes"]
            for row in run(stand_in, key == "workspace", __file__, "--measure", *(["--all"] if key == "peak" else [])):
                name, told = row.pop("case"), row.pop("peak")
                cases.setdefault(name, {})[key] = told
                cases[name].update(row)
    for name, v in cases.items():
        print(name, v)
    import torch
    with open(os.path.join(HERE, "..", "models", "testdata", "cudapeak.json"), "w") as f:
        json.dump({"torch": torch.__version__.split("+")[0], "cases": cases}, f, indent=1)
        f.write("\n")


def measure(every, only=""):
    """Prints a line for each model whose name begins with `only`. If every is true, the lines have default and graph too."""
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    import torchvision
    import transformers

    import peak as small
    torch.use_deterministic_algorithms(False)
    torch.backends.cuda.enable_cudnn_sdp(False)  # the flash kernels are used instead, which save the same tensors
    dev = torch.device("cuda:0")

    def top(step):
        step()
        gc.collect()
        torch.cuda.reset_peak_memory_stats()
        step()
        return torch.cuda.max_memory_allocated()

    def case(name, make, batch, loss_of=small.classes, autocast=None, cudnn=True, graph=False):
        if not name.startswith(only):
            return

        def parts(**fused):
            with dev, torch.backends.cudnn.flags(enabled=cudnn, benchmark=False, deterministic=False):
                model = make().train()
            opt = torch.optim.AdamW(model.parameters(), lr=1e-3, **fused)

            def step():  # as in torch_compare.py
                with torch.autocast("cuda", dtype=autocast, enabled=autocast is not None), torch.backends.cudnn.flags(enabled=cudnn, benchmark=False, deterministic=False):
                    x, y = batch()
                    loss = loss_of(model(x), y)
                loss.backward()
                opt.step()
                opt.zero_grad()
            return step

        gc.collect()
        torch.cuda.empty_cache()
        base = torch.cuda.memory_allocated()
        row = {"case": name, "peak": top(parts(fused=True)) - base}
        gc.collect()
        if every:
            row["default"] = top(parts()) - base
            gc.collect()
        if every and graph:
            step = parts(fused=True, capturable=True)
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                step()
            gc.collect()
            torch.cuda.empty_cache()
            before = torch.cuda.memory_reserved()
            g = torch.cuda.CUDAGraph()
            with torch.cuda.graph(g):
                step()
            torch.cuda.empty_cache()  # this does not free the graph's memory
            row["graph"] = torch.cuda.memory_reserved() - before
            g.reset()
            del g, step
            gc.collect()
        print(json.dumps(row), flush=True)

    def images(n, channels, size, classes=10, flat=False):
        shape = (n, channels * size * size) if flat else (n, channels, size, size)
        return lambda: (torch.randn(shape, device=dev), torch.randint(0, classes, (n,), device=dev))

    def text(n, length, vocab):
        return lambda: (torch.randint(0, vocab, (n, length), device=dev), torch.randint(0, vocab, (n, length), device=dev))

    def gpt(vocab, context, layers, heads, width, drop):
        return lambda: small.GPT(vocab, context, layers, heads, width, drop)

    # The models of peak.py.
    case("mlp", lambda: small.mlp([784, 512, 256, 10], 0.2), images(128, 1, 28, flat=True), graph=True)
    case("mlp, wide batch", lambda: small.mlp([784, 512, 256, 10], 0.2), images(2048, 1, 28, flat=True))
    case("mlp, 24 layers", lambda: small.mlp([256] * 25, 0.1), images(1024, 1, 16, 256, flat=True))
    case("mlp, without dropout", lambda: small.mlp([256] * 25, 0), images(1024, 1, 16, 256, flat=True))
    case("lenet", lambda: small.LeNet(28, 1, 10), images(256, 1, 28))
    case("cnn", lambda: small.cnn(1, 10), images(256, 1, 28), graph=True)
    case("chargpt", gpt(65, 64, 4, 4, 128, 0.0), text(32, 64, 65), small.tokens)
    case("chargpt, dropout", gpt(65, 64, 4, 4, 128, 0.1), text(32, 64, 65), small.tokens, graph=True)
    case("gpt, 12 layers", gpt(1000, 256, 12, 4, 256, 0.1), text(2, 256, 1000), small.tokens)

    # Some of these models in mixed precision, and other models that users try first.
    bert = transformers.BertConfig(num_labels=2)

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = transformers.BertForSequenceClassification(bert)

        def forward(self, ids):
            return self.bert(ids).logits

    class Tagger(nn.Module):
        """A language model of two LSTM layers."""

        def __init__(self, vocab, width):
            super().__init__()
            self.embedding, self.lstm, self.out = nn.Embedding(vocab, width), nn.LSTM(width, width, 2, batch_first=True), nn.Linear(width, vocab)

        def forward(self, ids):
            return self.out(self.lstm(self.embedding(ids))[0])

    def double(a, b):
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU())

    class UNet(nn.Module):
        """O. Ronneberger et al., arXiv:1505.04597, with padding, four levels."""

        def __init__(self, channels, classes, width):
            super().__init__()
            w = [width, 2 * width, 4 * width, 8 * width]
            self.down = nn.ModuleList(double(a, b) for a, b in zip([channels] + w, w))
            self.ups = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in zip(w, w[1:]))
            self.merge = nn.ModuleList(double(2 * a, a) for a in w[:-1])
            self.out = nn.Conv2d(width, classes, 1)

        def forward(self, x):
            seen = []
            for i, block in enumerate(self.down):
                x = block(x if i == 0 else F.max_pool2d(x, 2))
                seen.append(x)
            for i in reversed(range(3)):
                x = self.merge[i](torch.cat([seen[i], self.ups[i](x)], 1))
            return self.out(x)

    def pixels(n, channels, size, classes):
        return lambda: (torch.randn(n, channels, size, size, device=dev), torch.randint(0, classes, (n, size, size), device=dev))

    for word, t in (("", None), (", bf16", torch.bfloat16)):
        if t is not None:
            case("mlp, wide batch" + word, lambda: small.mlp([784, 512, 256, 10], 0.2), images(2048, 1, 28, flat=True), autocast=t)
            case("cnn" + word, lambda: small.cnn(1, 10), images(256, 1, 28), autocast=t)
            case("chargpt, dropout" + word, gpt(65, 64, 4, 4, 128, 0.1), text(32, 64, 65), small.tokens, autocast=t)
        case("resnet18, 32 of 224" + word, lambda: torchvision.models.resnet18(), images(32, 3, 224, 1000), autocast=t, graph=t is None)
        case("resnet50, 16 of 224" + word, lambda: torchvision.models.resnet50(), images(16, 3, 224, 1000), autocast=t)
        case("bert-base, 8 of 128" + word, Classifier, lambda: (torch.randint(0, 30522, (8, 128), device=dev), torch.randint(0, 2, (8,), device=dev)), autocast=t)
        case("gpt2, 4 of 512" + word, gpt(50257, 1024, 12, 12, 768, 0.1), text(4, 512, 50257), small.tokens, autocast=t)
        case("bert-base, 16 of 512" + word, Classifier, lambda: (torch.randint(0, 30522, (16, 512), device=dev), torch.randint(0, 2, (16,), device=dev)), autocast=t)
        case("gpt, 2 of 2048" + word, gpt(1000, 2048, 4, 8, 256, 0.1), text(2, 2048, 1000), small.tokens, autocast=t)
        for n, length in ((8, 1024), (2, 2048), (1, 4096), (1, 8192)):
            case(f"gpt2, {n} of {length}" + word, gpt(50257, length, 12, 12, 768, 0.1), text(n, length, 50257), small.tokens, autocast=t)
        case("lstm, 32 of 128" + word, lambda: Tagger(1000, 256), text(32, 128, 1000), small.tokens, autocast=t, cudnn=False)
        case("unet, 4 of 128" + word, lambda: UNet(3, 4, 32), pixels(4, 3, 128, 4), autocast=t)


if __name__ == "__main__":
    if "--measure" in sys.argv:
        measure("--all" in sys.argv, *sys.argv[sys.argv.index("--only") + 1:][:1] if "--only" in sys.argv else [])
    else:
        main()

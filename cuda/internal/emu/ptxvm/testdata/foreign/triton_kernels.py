"""Compiles the kernels below to PTX with Triton, which needs no GPU for that: python3 triton_kernels.py

Writes NAME.sm_80.ptx.gz and NAME.sm_90.ptx.gz, and triton.json with what a launch needs: threads and bytes of shared memory.
"""
import gzip, json, pathlib, re
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

here = pathlib.Path(__file__).parent


@triton.jit
def add(x, y, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n, other=0.0), mask=i < n)


@triton.jit
def softmax(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + i, mask=i < columns, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * columns + i, e / tl.sum(e, 0), mask=i < columns)


@triton.jit
def layernorm(x, w, b, y, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    m = i < columns
    v = tl.load(x + row * columns + i, mask=m, other=0.0).to(tl.float32)
    mean = tl.sum(v, 0) / columns
    d = tl.where(m, v - mean, 0.0)
    r = 1 / tl.sqrt(tl.sum(d * d, 0) / columns + eps)
    tl.store(y + row * columns + i, (d * r * tl.load(w + i, mask=m, other=0.0) + tl.load(b + i, mask=m, other=0.0)).to(y.dtype.element_ty), mask=m)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        ka = tl.load(a + rm[:, None] * K + (k + rk)[None, :], mask=(rm[:, None] < M) & ((k + rk)[None, :] < K), other=0.0)
        kb = tl.load(b + (k + rk)[:, None] * N + rn[None, :], mask=((k + rk)[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(ka, kb, acc, input_precision=PRECISION)
    tl.store(c + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def attention(q, k, v, o, n, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.arange(0, BN)
    rd = tl.arange(0, D)
    tq = tl.load(q + rm[:, None] * D + rd[None, :], mask=rm[:, None] < n, other=0.0)
    acc = tl.zeros((BM, D), tl.float32)
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    for start in range(0, n, BN):
        at = start + rn
        tk = tl.load(k + at[None, :] * D + rd[:, None], mask=at[None, :] < n, other=0.0)
        s = tl.where((at[None, :] < n) & (at[None, :] <= rm[:, None]), tl.dot(tq, tk) * scale, -1e30)
        m = tl.maximum(top, tl.max(s, 1))
        p = tl.exp(s - m[:, None])
        old = tl.exp(top - m)
        total = total * old + tl.sum(p, 1)
        tv = tl.load(v + at[:, None] * D + rd[None, :], mask=at[:, None] < n, other=0.0)
        acc = tl.dot(p.to(tv.dtype), tv, acc * old[:, None])
        top = m
    tl.store(o + rm[:, None] * D + rd[None, :], (acc / total[:, None]).to(o.dtype.element_ty), mask=rm[:, None] < n)


@triton.jit
def sequence(x, sums, sorted, largest, where, histogram, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * BLOCK + i)
    tl.store(sums + row * BLOCK + i, tl.cumsum(v, 0))
    tl.store(sorted + row * BLOCK + i, tl.sort(v))
    tl.store(largest + row, tl.max(v, 0))
    tl.store(where + row, tl.argmax(v, 0))
    tl.atomic_add(histogram + (v & (BINS - 1)), 1)
    tl.atomic_max(histogram + BINS, tl.max(v, 0))
    tl.atomic_xchg(histogram + BINS + 1, 7)


@triton.jit
def transpose(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    t = tl.load(x + rm[:, None] * N + rn[None, :], mask=(rm[:, None] < M) & (rn[None, :] < N), other=0)
    tl.store(y + rn[:, None] * M + rm[None, :], tl.trans(t), mask=(rn[:, None] < N) & (rm[None, :] < M))


# name, function, types of the arguments, constants, warps, stages, arguments that are multiples of 16
cases = [
    ("triton_add", add, "*fp32 *fp32 *fp32 i32", dict(BLOCK=256), 4, 1, (0, 1, 2)),
    ("triton_softmax", softmax, "*fp32 *fp32 i32", dict(BLOCK=512), 4, 1, (0, 1)),
    ("triton_layernorm", layernorm, "*fp16 *fp32 *fp32 *fp16 i32 fp32", dict(BLOCK=256), 2, 1, (0, 1, 2, 3, 4)),
    ("triton_matmul_fp16", matmul, "*fp16 *fp16 *fp32 i32 i32 i32", dict(BM=32, BN=32, BK=32, PRECISION="ieee"), 4, 3, (0, 1, 2, 4, 5)),
    ("triton_matmul_bf16", matmul, "*bf16 *bf16 *fp32 i32 i32 i32", dict(BM=32, BN=64, BK=32, PRECISION="ieee"), 2, 2, (0, 1, 2, 4, 5)),
    ("triton_matmul_tf32", matmul, "*fp32 *fp32 *fp32 i32 i32 i32", dict(BM=32, BN=32, BK=16, PRECISION="tf32"), 4, 2, (0, 1, 2, 4, 5)),
    ("triton_matmul_fp32", matmul, "*fp32 *fp32 *fp32 i32 i32 i32", dict(BM=16, BN=32, BK=16, PRECISION="ieee"), 4, 2, (0, 1, 2, 4, 5)),
    ("triton_matmul_int8", matmul, "*i8 *i8 *i32 i32 i32 i32", dict(BM=32, BN=32, BK=32, PRECISION="ieee"), 4, 2, (0, 1, 2, 4, 5)),
    ("triton_attention", attention, "*fp16 *fp16 *fp16 *fp16 i32 fp32", dict(BM=32, BN=32, D=32), 4, 2, (0, 1, 2, 3)),
    ("triton_sequence", sequence, "*i32 *i32 *i32 *i32 *i32 *i32 i32", dict(BLOCK=256, BINS=16), 4, 1, (0, 1, 2)),
    ("triton_transpose", transpose, "*fp16 *fp16 i32 i32", dict(BM=32, BN=64), 4, 1, (0, 1, 2, 3)),
]


def main():
    launches = {}
    for name, function, types, constants, warps, stages, aligned in cases:
        names = function.arg_names
        signature = dict(zip(names, types.split())) | {c: "constexpr" for c in constants}
        if "int8" in name:
            function = matmul_int
        source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs={(i,): [["tt.divisibility", 16]] for i in aligned})
        for sm in (80, 90):
            k = triton.compile(source, target=GPUTarget("cuda", sm, 32), options=dict(num_warps=warps, num_stages=stages))
            ptx = re.sub(r"\n\s*\.section.*", "\n", k.asm["ptx"], flags=re.S)  # debugging information names this machine's folders
            ptx = "\n".join(l for l in ptx.splitlines() if not re.match(r"\s*\.(loc|file)\b", l) and not l.lstrip().startswith("//")) + "\n"
            with open(here / f"{name}.sm_{sm}.ptx.gz", "wb") as f, gzip.GzipFile("", "wb", 9, f, mtime=0) as z:
                z.write(f"// Triton {triton.__version__}\n{ptx}".encode())
            launches[f"{name}.sm_{sm}"] = dict(entry=k.metadata.name, threads=32 * warps, shared=k.metadata.shared)
            print(name, sm, len(ptx), k.metadata.shared)
    (here / "triton.json").write_text(json.dumps(launches, indent="\t", sort_keys=True) + "\n")


@triton.jit
def matmul_int(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.int32)
    for k in range(0, K, BK):
        ka = tl.load(a + rm[:, None] * K + (k + rk)[None, :], mask=(rm[:, None] < M) & ((k + rk)[None, :] < K), other=0)
        kb = tl.load(b + (k + rk)[:, None] * N + rn[None, :], mask=((k + rk)[:, None] < K) & (rn[None, :] < N), other=0)
        acc = tl.dot(ka, kb, acc)
    tl.store(c + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


main()

"""Compiles the .cu files beside it to PTX with NVRTC: python3 nvrtc.py LIBNVRTC INCLUDE sm_80 [file.cu[:option,option] ...]

LIBNVRTC is NVIDIA's libnvrtc.so, INCLUDE the folders with cuda_fp16.h and crt/mma.h, with a colon between. Without names every .cu file is compiled, to NAME.sm_80.ptx.gz; a name with
options gives NAME-ftz.sm_80.ptx.gz. The compiler's version stands in the head of each PTX text.
"""
import ctypes, gzip, pathlib, re, sys

here = pathlib.Path(__file__).parent


def compile(lib, source, options):
    program = ctypes.c_void_p()
    def check(code):
        if code == 0:
            return
        size = ctypes.c_size_t()
        lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        lib.nvrtcGetProgramLog(program, log)
        raise SystemExit(f"{source}: {log.value.decode()}")
    check(lib.nvrtcCreateProgram(ctypes.byref(program), (here / source).read_bytes(), source.encode(), 0, None, None))
    check(lib.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*[o.encode() for o in options])))
    size = ctypes.c_size_t()
    check(lib.nvrtcGetPTXSize(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    check(lib.nvrtcGetPTX(program, text))
    return text.value.decode()


def main():
    lib, include, arch = ctypes.CDLL(sys.argv[1]), sys.argv[2], sys.argv[3]
    for name in sys.argv[4:] or sorted(p.name for p in here.glob("*.cu")):
        name, _, extra = name.partition(":")
        ptx = compile(lib, name, [f"--gpu-architecture={arch.replace('sm_', 'compute_')}", "--std=c++17", "-default-device", "--device-int128", *(f"-I{d}" for d in include.split(":")), f"-I{here}", *(f"--{e}" for e in extra.split(",") if e)])
        ptx = re.sub(r"\n{3,}", "\n\n", ptx)
        stem = name.removesuffix(".cu") + "".join("-" + re.sub(r"\W.*", "", e) for e in extra.split(",") if e)
        with open(here / f"{stem}.{arch}.ptx.gz", "wb") as f, gzip.GzipFile("", "wb", 9, f, mtime=0) as z:
            z.write(ptx.encode())
        print(stem, arch, len(ptx))


main()

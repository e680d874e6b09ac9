package emu

import (
	"errors"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
)

func TestModuleErrors(t *testing.T) {
	r := newRig(t, Config{SM: 80})
	load := func(text string) error { _, err := r.ModuleLoadData([]byte(text), cu.JITOptions{}); return err }
	head := func(version, target string) string {
		return ".version " + version + "\n.target " + target + "\n.address_size 64\n.visible .entry k() { ret; }\n"
	}
	for name, c := range map[string]struct {
		text   string
		result cu.Result
		words  string
	}{
		"syntax":         {head("7.0", "sm_80") + "nonsense", cu.ErrInvalidPTX, "line 5"},
		"empty":          {"", cu.ErrInvalidImage, "empty"},
		"newer target":   {head("7.8", "sm_90"), cu.ErrNoBinaryForGPU, "the device is sm_80"},
		"newer version":  {head("8.5", "sm_80"), cu.ErrUnsupportedPTXVersion, "8.4"},
		"a real cubin":   {"\x7fELF\x02\x01\x01", cu.ErrNoBinaryForGPU, "machine code"},
		"an older GPU's": {cubinMagic + "75\n" + head("7.0", "sm_75"), cu.ErrNoBinaryForGPU, "sm_75"},
	} {
		if err := load(c.text); !errors.Is(err, c.result) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	var pe *ptxvm.ParseError
	var e *cu.Error
	if err := load(head("7.0", "sm_80") + "nonsense"); !errors.As(err, &pe) || pe.Line != 5 || !errors.As(err, &e) || !strings.Contains(e.Log, "line 5") {
		t.Errorf("got %v", err)
	}
	r.ok(load(head("7.0", "sm_80") + "\x00"))
	r.ok(load(head("7.0", "sm_75")))
	if err := load(head("8.0", "sm_90a")); !errors.Is(err, cu.ErrNoBinaryForGPU) {
		t.Errorf("sm_90a on sm_80: %v", err)
	}
	r = newRig(t, Config{SM: 90})
	r.ok(load(head("8.0", "sm_90a")))
	if _, err := r.ModuleGetFunction(r.mod, "absent"); !errors.Is(err, cu.ErrNotFound) || !strings.Contains(err.Error(), "affine") {
		t.Errorf("got %v", err)
	}
}

// TestLink checks the result of LinkPTX. It must load and run, but only on devices with the compute
// capability for which it was linked.
func TestLink(t *testing.T) {
	r := newRig(t, Config{})
	var info string
	cubin := must(r.LinkPTX("kernels.ptx", []byte(kernels), cu.JITOptions{Verbose: true, InfoLog: &info}))(t)
	if !strings.HasPrefix(string(cubin), "\x7fELF") || !strings.Contains(info, "affine: 20 bytes of parameters") {
		t.Errorf("cubin %.20q, info %q", cubin, info)
	}
	r.mod = must(r.ModuleLoadData(cubin, cu.JITOptions{}))(t)
	x := r.alloc(256)
	r.ok(r.MemsetD32Async(x, 3, 64, 0))
	r.ok(r.affine(0, x, 64, 3, 1))
	if v := r.read(0, x, 64); !all(v, 10) {
		t.Errorf("got %v", v)
	}
	_, err := r.LinkPTX("bad.ptx", []byte("nonsense"), cu.JITOptions{})
	if !errors.Is(err, cu.ErrInvalidPTX) || !strings.Contains(err.Error(), "bad.ptx, line 1") {
		t.Errorf("got %v", err)
	}
	if _, err := newRig(t, Config{SM: 80}).ModuleLoadData(cubin, cu.JITOptions{}); !errors.Is(err, cu.ErrNoBinaryForGPU) {
		t.Errorf("got %v", err)
	}
}

func TestUnload(t *testing.T) {
	r := newRig(t, Config{})
	f := r.fn("narrow")
	r.ok(r.launch("narrow", 1))
	r.ok(r.ModuleUnload(r.mod))
	if _, err := r.FuncAttribute(f, cu.FuncNumRegs); !errors.Is(err, cu.ErrInvalidHandle) {
		t.Errorf("a function of an unloaded module: %v", err)
	}
	if err := r.ModuleUnload(r.mod); !errors.Is(err, cu.ErrInvalidHandle) {
		t.Errorf("a second unload: %v", err)
	}
	if err := r.CtxSynchronize(); !errors.Is(err, cu.ErrLaunchFailed) || !strings.Contains(err.Error(), "unloaded") {
		t.Errorf("a pending kernel of an unloaded module: %v", err)
	}
}

func TestFunctionAttributes(t *testing.T) {
	r := newRig(t, Config{SM: 80})
	attr := func(kernel string, a cu.FuncAttr) int { return must(r.FuncAttribute(r.fn(kernel), a))(t) }
	for _, c := range []struct {
		kernel string
		attr   cu.FuncAttr
		want   int
	}{
		{"narrow", cu.FuncMaxThreadsPerBlock, 64}, {"exact", cu.FuncMaxThreadsPerBlock, 64}, {"race", cu.FuncMaxThreadsPerBlock, 1024},
		{"race", cu.FuncSharedBytes, 4}, {"race", cu.FuncMaxDynamicShared, 48<<10 - 4}, {"race", cu.FuncPTXVersion, 80}, {"race", cu.FuncBinaryVersion, 80},
		{"race", cu.FuncLocalBytes, 0},
	} {
		if got := attr(c.kernel, c.attr); got != c.want {
			t.Errorf("%s: attribute %d is %d, want %d", c.kernel, c.attr, got, c.want)
		}
	}
	f := r.fn("narrow")
	r.ok(r.FuncSetAttribute(f, cu.FuncMaxDynamicShared, 163<<10))
	if got := attr("narrow", cu.FuncMaxDynamicShared); got != 163<<10 {
		t.Errorf("got %d", got)
	}
	if err := r.FuncSetAttribute(f, cu.FuncMaxDynamicShared, 163<<10+1); !errors.Is(err, cu.ErrInvalidValue) {
		t.Errorf("too much shared memory: %v", err)
	}
	if err := r.FuncSetAttribute(f, cu.FuncNumRegs, 1); !errors.Is(err, cu.ErrInvalidValue) {
		t.Errorf("a fixed attribute: %v", err)
	}
	one := cu.Dim3{X: 1, Y: 1, Z: 1}
	r.ok(r.LaunchKernel(f, one, one, 163<<10, 0, nil))
	r.ok(r.CtxSynchronize())
	for _, c := range []struct {
		kernel  string
		threads int
		shared  uint64
		want    int
	}{{"race", 256, 0, 8}, {"race", 33, 0, 32}, {"race", 32, 0, 32}, {"race", 1024, 0, 2}, {"race", 256, 40 << 10, 3}, {"narrow", 64, 163 << 10, 1}, {"narrow", 65, 0, 0}} {
		if got := must(r.OccupancyMaxActiveBlocks(r.fn(c.kernel), c.threads, c.shared))(t); got != c.want {
			t.Errorf("%s with %d threads and %d bytes: %d blocks, want %d", c.kernel, c.threads, c.shared, got, c.want)
		}
	}
}

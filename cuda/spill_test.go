package cuda

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/emu"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/ptx"
)

// spilling returns a device whose kernels have local memory. The function local returns the size
// of each kernel's local memory. The result warned points to the spills that were reported.
func spilling(t *testing.T, dir string, local func(kernel string) int) (d *Device, warned *[]Spill) {
	t.Helper()
	e, err := emu.New(emu.Config{Memory: 16 << 20, Spill: local})
	must(t, err)
	p, err := newPlatform(e)
	must(t, err)
	p.cubins = &cubinCache{dir}
	warned = new([]Spill)
	p.warn = func(s Spill) { *warned = append(*warned, s) }
	d, err = p.open(0)
	must(t, err)
	return d, warned
}

// TestSpills checks that a spill is reported once, listed, and recorded for later processes. The
// program must continue.
func TestSpills(t *testing.T) {
	dir := t.TempDir()
	d, warned := spilling(t, dir, func(string) int { return 40 })
	x := floats(t, d, nil, 1, 2)
	if len(d.Spills()) != 0 {
		t.Errorf("before there is a kernel: %v", d.Spills())
	}
	must(t, apply(d, nil, double, views(x), views(x)))
	must(t, apply(d, nil, next, views(x), views(x)))
	must(t, apply(d, nil, next, views(x), views(x)))
	check(t, d, nil, x, 4, 6)
	list := d.Spills()
	if len(list) == 0 || len(*warned) != 1 {
		t.Fatalf("spills %v, warnings %v", list, *warned)
	}
	s := (*warned)[0]
	if s.Bytes != 40 || s.Capability != "9.0" || s.Driver != "12.4" || s.Kernel == "" || !strings.Contains(s.String(), "40 bytes of local memory a thread") {
		t.Errorf("%+v: %v", s, s)
	}
	p, err := DeviceProperties(d)
	if must(t, err); p.SpillingKernels != len(list) {
		t.Errorf("the properties tell of %d kernels, want %d", p.SpillingKernels, len(list))
	}
	// A later process must read the record without loading the kernel. It must skip invalid
	// records, and records of another driver.
	must(t, os.WriteFile(filepath.Join(dir, "0"+spillSuffix), []byte("{}"), 0o600))
	d.p.cubins.recordSpill("text", 80, d.p.version, Spill{Kernel: "other", Bytes: 8, Capability: "8.0", Driver: "12.4"})
	later, silent := spilling(t, dir, nil)
	if got := later.Spills(); len(got) != len(list) || got[0] != list[0] || len(*silent) != 0 {
		t.Errorf("a later process lists %v, want %v; it warned of %v", got, list, *silent)
	}
	if all := later.p.cubins.spills(); len(all) != len(list)+1 {
		t.Errorf("records %v", all)
	}
}

// TestNoSpills checks that the library's kernels need no local memory. A program's own kernels must
// not be reported.
func TestNoSpills(t *testing.T) {
	d, warned := spilling(t, t.TempDir(), func(kernel string) int {
		if kernel == "mine" {
			return 64
		}
		return 0
	})
	x := floats(t, d, nil, 1, 2)
	must(t, apply(d, nil, double, views(x), views(x)))
	b := ptx.New("mine")
	b.MaxThreads(32)
	y := b.Pointer("y", ptx.F32)
	b.ReturnIf(b.GlobalID().Ge(b.Param("n", ptx.U32)))
	y.At(b.GlobalID()).Store(y.At(b.GlobalID()).Load())
	built, err := b.Build()
	must(t, err)
	k, err := NewKernel(built, KernelConfig{Block: [3]int{32}})
	must(t, err)
	must(t, d.Launch(nil, k, [3]int{1}, x, 2))
	must(t, d.Synchronize())
	if a, err := d.KernelAttributes(k); err != nil || a.Local != 64 || a.Registers != 32 || a.MaxThreads != 32 || a.Shared != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	if len(d.Spills()) != 0 || len(*warned) != 0 {
		t.Errorf("told of %v, warned of %v", d.Spills(), *warned)
	}
	var operand *device.OperandError
	if _, err := d.KernelAttributes(nil); !errors.As(err, &operand) {
		t.Error(err)
	}
}

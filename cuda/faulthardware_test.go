package cuda

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/ptx"
)

// TestFaultOnHardware runs a kernel that writes outside of memory. Every later call of the device
// must return the fault, and the process must continue. The process loses the GPU's context, so on
// hardware the test runs in a child process.
func TestFaultOnHardware(t *testing.T) {
	const child = "FLAMBEAU_TEST_FAULT_CHILD"
	if os.Getenv(child) == "1" {
		faultEnds(t, hardware(t))
		return
	}
	faultEnds(t, emulated(t, "emulate,mem=16MiB"))
	if hardware(t) == nil {
		return
	}
	for _, sync := range []string{"0", "1"} {
		c := exec.Command(os.Args[0], "-test.run=^TestFaultOnHardware$", "-test.v")
		c.Env = append(os.Environ(), child+"=1", "FLAMBEAU_CUDA_SYNC="+sync)
		out, err := c.CombinedOutput()
		t.Logf("FLAMBEAU_CUDA_SYNC=%s:\n%s", sync, out)
		if err != nil {
			t.Errorf("FLAMBEAU_CUDA_SYNC=%s: %v", sync, err)
		}
	}
}

func faultEnds(t *testing.T, d *Device) {
	b := ptx.New("far_write")
	b.MaxThreads(1)
	y, far := b.Pointer("y", ptx.F32), b.Param("far", ptx.U64)
	y.At(far).Store(b.F32(1))
	built, err := b.Build()
	must(t, err)
	k, err := NewKernel(built, KernelConfig{Block: [3]int{1}})
	must(t, err)
	v := floats(t, d, nil, 1, 2, 3)
	check(t, d, nil, v, 1, 2, 3)
	launched := d.Launch(nil, k, [3]int{1}, v, uint64(1<<40))
	first := d.Synchronize()
	var f *device.Fault
	if !errors.As(first, &f) || !f.Sticky || f.Device != "cuda:0" {
		t.Fatalf("launch: %v; wait: %v", launched, first)
	}
	t.Log(first)
	if d.p.sync && !strings.Contains(first.Error(), "far_write") {
		t.Errorf("each launch was waited for, and the fault does not name the kernel: %v", first)
	}
	_, alloc := d.Alloc(8, nil, device.Origin{})
	for i, err := range []error{alloc, d.Synchronize(), d.Download(nil, make([]byte, 4), v.Buf, 0), apply(d, nil, double, views(v), views(v))} {
		if err != first {
			t.Errorf("call %d after the fault: %v", i, err)
		}
	}
	v.Buf.Free()
	d.Empty()
}

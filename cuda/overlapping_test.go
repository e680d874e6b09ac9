package cuda

import (
	"errors"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
	"github.com/flambeau-go/flambeau/shape"
)

// increment returns a kernel that waits for earlier work on the stream, and then adds 1 to an
// element.
func increment(t *testing.T) *Kernel {
	b := ptx.New("increment")
	b.MaxThreads(1)
	x := b.Pointer("x", ptx.S32)
	b.GridDependencyWait()
	x.Store(x.Load().Add(ptx.Int(1)))
	b.GridDependencyLaunch()
	return finished(t, b, KernelConfig{Overlap: true})
}

func number(t *testing.T, d *Device) device.View {
	b, err := d.Alloc(4, d.DefaultStream(), device.Origin{Op: "test"})
	must(t, err)
	t.Cleanup(b.Free)
	must(t, d.Upload(d.DefaultStream(), b, 0, make([]byte, 4)))
	return device.View{Buf: b, Type: dtype.I32, Layout: shape.Dense(shape.Of(1))}
}

// TestOverlapOnHardware launches kernels with Overlap one after the other. Each must see the result
// of the kernel before it.
func TestOverlapOnHardware(t *testing.T) {
	onBoth(t, "emulate:1,mem=16MiB", func(t *testing.T, d *Device) {
		if d.sm < 90 {
			t.Skip("it needs compute capability 9.0")
		}
		k, x := increment(t), number(t, d)
		for range 5 {
			must(t, d.Launch(nil, k, [3]int{}, x))
		}
		got := make([]byte, 4)
		must(t, d.Download(d.DefaultStream(), got, x.Buf, 0))
		if got[0] != 5 {
			t.Errorf("five increments give %d", got[0])
		}
	})
}

// plainDriver hides the optional interfaces of a driver.
type plainDriver struct{ cu.API }

// attributesSeen counts launches with attributes. It can also imitate a driver that does not
// support them.
type attributesSeen struct {
	plainDriver
	n, overlap int
	err        error
}

func (a *attributesSeen) LaunchKernelEx(k cu.GraphKernel, l cu.LaunchAttributes, s cu.Stream) error {
	a.n++
	if l == (cu.LaunchAttributes{Overlap: true}) {
		a.overlap++
	}
	if a.err != nil {
		return a.err
	}
	return a.API.(cu.AttributeLauncher).LaunchKernelEx(k, l, s)
}

// TestOverlapAttribute checks that only kernels with Overlap set the launch attribute. A driver
// without the attribute must return an error.
func TestOverlapAttribute(t *testing.T) {
	d := emulated(t, "emulate:1,mem=16MiB")
	seen := &attributesSeen{plainDriver: plainDriver{d.api}}
	d.api = seen
	x := number(t, d)
	must(t, d.Launch(nil, increment(t), [3]int{}, x))
	must(t, d.Launch(nil, formFor(t, ptx.SM80, 1), [3]int{}, x))
	if seen.n != 1 || seen.overlap != 1 {
		t.Errorf("%d launches with attributes, %d of them may overlap: want 1 and 1", seen.n, seen.overlap)
	}
	seen.err = &cu.Error{Call: "cuLaunchKernelEx", Result: cu.ErrNotSupported, Detail: "the driver is old"}
	var f *device.Fault
	if err := d.Launch(nil, increment(t), [3]int{}, x); !errors.As(err, &f) || !strings.Contains(err.Error(), "the driver is old") {
		t.Errorf("a driver that refuses: %v", err)
	}
	d.api = plainDriver{seen.API}
	if err := d.Launch(nil, increment(t), [3]int{}, x); !errors.As(err, &f) || !strings.Contains(err.Error(), "takes no attributes") {
		t.Errorf("a driver without attributes: %v", err)
	}
	d.api = seen.API
}

//go:build !nogpu && linux && (amd64 || arm64)

package cuda

import (
	"math"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu"
	"github.com/flambeau-go/flambeau/cuda/internal/lib/cublaslt"
	"github.com/flambeau-go/flambeau/cuda/internal/lib/cublaslt/cublaslttest"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// productRig holds emulated GPUs. The strict cublasLt, a test library, computes their matrix
// products.
type productRig struct {
	testing.TB
	drv  *emu.Driver
	lib  *cublaslttest.Strict
	devs []*Device

	mu    sync.Mutex
	asked []cublaslttest.Op // products that were queued on a stream or captured in a graph
	runs  int               // number of products that have run
}

var _ cublaslttest.Machine = (*productRig)(nil)

// newProducts creates the GPUs. FLAMBEAU_CUBLASLT_STRICT is the path of the strict library, which
// ".ci/run cublaslt" builds.
func newProducts(t testing.TB, spec string) *productRig {
	t.Helper()
	path := os.Getenv("FLAMBEAU_CUBLASLT_STRICT")
	if path == "" {
		t.Skip("FLAMBEAU_CUBLASLT_STRICT is not set")
	}
	devs, err := Emulate(spec)
	must(t, err)
	r := &productRig{TB: t, devs: devs, drv: devs[0].p.api.(*emu.Driver)}
	r.lib, err = cublaslttest.Load(path, r)
	must(t, err)
	live := r.lib.Live()
	devs[0].p.products = func() (*cublaslt.Library, error) { return r.lib.Library, nil }
	for _, d := range devs {
		must(t, d.openProducts())
	}
	t.Cleanup(func() {
		for _, d := range devs {
			must(t, r.lib.Destroy(d.products.handle))
			clear(d.products.plans)
		}
		r.settle(live)
	})
	return r
}

// settle runs the garbage collector until only the given number of library objects is left.
func (r *productRig) settle(live int) {
	r.Helper()
	for range 500 {
		if r.lib.Live() <= live {
			return
		}
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	r.Errorf("%d handles and descriptors are left, want %d", r.lib.Live(), live)
}

func (r *productRig) CurrentDevice() int        { return r.drv.CurrentDevice() }
func (r *productRig) StreamDevice(s uint64) int { return r.drv.StreamDevice(cu.Stream(s)) }
func (r *productRig) MemoryDevice(at, bytes uint64) int {
	return r.drv.MemoryDevice(cu.DevicePtr(at), bytes)
}

// Issue is called by the strict library to queue a product.
func (r *productRig) Issue(op *cublaslttest.Op) error {
	r.mu.Lock()
	r.asked = append(r.asked, *op)
	r.mu.Unlock()
	return r.drv.Foreign("strict product", cu.Stream(op.Stream), uint64(op.M)*uint64(op.N), func(m *emu.Shared) error { return r.effect(m, op) })
}

// counts returns how many products were queued or captured, and how many have run.
func (r *productRig) counts() (asked, runs int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.asked), r.runs
}

// columnsOf is a batch of column-major matrices in device memory.
type columnsOf struct {
	at                   uint64
	rows, cols, ld, size int
	batch, stride        int
}

// forEach calls f for each column, with its address and its offset in a contiguous copy of all
// columns.
func (c *columnsOf) forEach(f func(addr cu.DevicePtr, offset, bytes int) error) error {
	for z := range c.batch {
		for j := range c.cols {
			offset := (z*c.stride + j*c.ld) * c.size
			if err := f(cu.DevicePtr(c.at)+cu.DevicePtr(offset), offset, c.rows*c.size); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *columnsOf) bytes() int { return ((c.batch-1)*c.stride + (c.cols-1)*c.ld + c.rows) * c.size }

func (c *columnsOf) read(m *emu.Shared) ([]byte, error) {
	b := make([]byte, c.bytes())
	return b, c.forEach(func(at cu.DevicePtr, from, n int) error {
		have, err := m.Read(at, uint64(n))
		copy(b[from:], have)
		return err
	})
}

// effect computes a product. It must not access the gaps between columns.
func (r *productRig) effect(m *emu.Shared, op *cublaslttest.Op) error {
	r.mu.Lock()
	r.runs++
	r.mu.Unlock()
	size := map[cublaslt.DataType]int{cublaslt.Float32: 4, cublaslt.Float16: 2, cublaslt.BFloat16: 2}
	a := columnsOf{op.A, int(op.M), int(op.K), int(op.LdA), size[op.Type], int(op.Batch), int(op.StrideA)}
	b := columnsOf{op.B, int(op.K), int(op.N), int(op.LdB), size[op.Type], int(op.Batch), int(op.StrideB)}
	d := columnsOf{op.D, int(op.M), int(op.N), int(op.LdD), size[op.Out], int(op.Batch), int(op.StrideD)}
	if op.TransA != 0 {
		a.rows, a.cols = a.cols, a.rows
	}
	if op.TransB != 0 {
		b.rows, b.cols = b.cols, b.rows
	}
	left, err := a.read(m)
	if err != nil {
		return err
	}
	right, err := b.read(m)
	if err != nil {
		return err
	}
	var bias []byte
	if op.Bias != 0 {
		if bias, err = m.Read(cu.DevicePtr(op.BiasAt), uint64(op.M)*uint64(d.size)); err != nil {
			return err
		}
	}
	out := make([]byte, d.bytes())
	r.lib.Product(op, left, right, bias, out)
	if op.Workspace != 0 {
		w, err := m.Write(cu.DevicePtr(op.Workspace), op.WorkspaceBytes)
		if err != nil {
			return err
		}
		for i := range w {
			w[i] = 0xa5
		}
	}
	return d.forEach(func(at cu.DevicePtr, from, n int) error {
		to, err := m.Write(at, uint64(n))
		copy(to, out[from:])
		return err
	})
}

// laid returns a view with the given layout. Its element at [i, j, k] is element(i, j, k). The
// memory between the elements holds NaN.
func (r *productRig) laid(d *Device, typ dtype.Type, s, strides shape.Dims, offset int, element func(i, j, k int) float64) device.View {
	r.Helper()
	end := offset + 1
	for a := range s.Rank() {
		end += (s.At(a) - 1) * strides.At(a)
	}
	values := make([]float64, end)
	if typ.IsFloat() {
		for i := range values {
			values[i] = math.NaN()
		}
	}
	three := func(n shape.Dims, a int) int { // a vector has only the last axis
		if a -= 3 - n.Rank(); a < 0 {
			return 1
		}
		return n.At(a)
	}
	for i := range three(s, 0) {
		for j := range three(s, 1) {
			for k := range three(s, 2) {
				e := offset + k*three(strides, 2)
				if s.Rank() == 3 {
					e += i*strides.At(0) + j*strides.At(1)
				}
				values[e] = element(i, j, k)
			}
		}
	}
	b, err := d.Alloc(end*typ.Size(), nil, device.Origin{Op: "test"})
	must(r, err)
	must(r, d.Upload(nil, b, 0, bytesAs(typ, values)))
	return device.View{Buf: b, Type: typ, Layout: shape.Layout{Shape: s, Strides: strides, Offset: offset}}
}

// elements downloads a view of rank 3 and returns a function that reads its elements.
func (r *productRig) elements(d *Device, v device.View) func(i, j, k int) float64 {
	r.Helper()
	end := v.Offset + 1
	for a := range 3 {
		end += (v.Shape.At(a) - 1) * v.Strides.At(a)
	}
	b := make([]byte, end*v.Type.Size())
	must(r, d.Download(nil, b, v.Buf, 0))
	all := numbersOf(v.Type, b)
	return func(i, j, k int) float64 {
		return all[v.Offset+i*v.Strides.At(0)+j*v.Strides.At(1)+k*v.Strides.At(2)]
	}
}

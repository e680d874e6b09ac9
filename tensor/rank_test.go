package tensor_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func rank(t *testing.T, name string) device.Device {
	t.Helper()
	d, err := device.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestTensorsOfRanks keeps tensors on ranks of the CPU. A tensor must stay on its rank until it is
// sent to another device, and be printed with its device.
func TestTensorsOfRanks(t *testing.T) {
	host, a, b := rank(t, "cpu"), rank(t, "cpu:0"), rank(t, "cpu:1")
	tensor.Do(func(s *tensor.Scope) {
		x := s.From([]float32{1, 2, 3, 4}, 2, 2)
		want := "tensor([[1., 2.],\n        [3., 4.]], device='cpu:1')"
		if got := x.String(); x.Device() != b || got != want {
			t.Errorf("on %s: %s", x.Device().Name(), got)
		}
		for _, y := range []*tensor.Tensor{x.Add(x), x.MatMul(x.T()), x.New().Arange(3), x.Flip(0), x.Nonzero(), x.Clone(), s.Randn(2)} {
			if y.Device() != b {
				t.Errorf("%v", y)
			}
		}
		if got := x.CPU(); got.Device() != host || strings.Contains(got.String(), "device") {
			t.Errorf("CPU: %v", got)
		}
		for _, d := range []device.Device{host, a, b} {
			y := x.T().To(d)
			if y.Device() != d || !slices.Equal(y.Floats(), []float64{1, 3, 2, 4}) {
				t.Errorf("to %s: %v", d.Name(), y)
			}
			if d != b && y.Storage() == x.Storage() {
				t.Errorf("To %s shares memory", d.Name())
			}
		}
		w := x.To(a).Detach().RequiresGrad()
		w.To(b).Mul(x).Sum().Backward()
		if g := w.Grad(); g.Device() != a || !slices.Equal(g.Floats(), []float64{1, 2, 3, 4}) {
			t.Errorf("the gradient is %v", g)
		}
		m := s.On(a).Ones(2)
		m.MoveTo(b)
		if m.Device() != b || m.Add(s.Ones(2)).Sum().Item() != 4 {
			t.Errorf("moved: %v", m)
		}
	}, tensor.On(b))
	// A scope without a device is on the CPU. It does not silently copy a rank's tensor there.
	err := tensor.Try(func() { tensor.Do(func(s *tensor.Scope) { s.From(tensor.Root().On(b).Ones(2)) }) })
	if err == nil || !strings.Contains(err.Error(), "the tensor is on cpu:1") {
		t.Errorf("%v", err)
	}
}

// TestRanksDoNotMix checks that operands on two ranks of the CPU cause the same error as operands
// on two GPUs.
func TestRanksDoNotMix(t *testing.T) {
	on := func(name string) *tensor.Tensor { return tensor.Root().On(rank(t, name)).Ones(3) }
	for _, c := range [][2]string{{"cpu:0", "cpu:1"}, {"cpu", "cpu:0"}, {"cpu:1", "cpu"}} {
		err := tensor.Try(func() { on(c[0]).Add(on(c[1])) })
		var e *tensor.Error
		want := "operands are on " + c[0] + " and " + c[1]
		if !errors.As(err, &e) || !errors.Is(err, tensor.ErrDevice) || !strings.Contains(err.Error(), want) || e.Operands[1].Device != c[1] {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// TestMemoryOfRankComesBack checks the memory statistics of a rank. The memory of the rank's
// tensors must be counted there, and return to the rank.
func TestMemoryOfRankComesBack(t *testing.T) {
	d, host := rank(t, "cpu:9"), rank(t, "cpu")
	before, other := d.Stats().Allocated, host.Stats().Allocated
	tensor.Do(func(s *tensor.Scope) {
		x := s.Ones(1<<10, 1<<8)
		if n := d.Stats().Allocated - before; n < 1<<20 {
			t.Errorf("%d bytes are allocated", n)
		}
		y := x.AddScalar(1)
		y.Free()
		x.MulScalarInPlace(2)
		if n := d.Stats().Allocated - before; n != 1<<20 {
			t.Errorf("%d bytes are allocated, want those of one tensor", n)
		}
	}, tensor.On(d))
	if n := d.Stats().Allocated; n != before {
		t.Errorf("%d bytes are left, %d before", n, before)
	}
	if n := host.Stats().Allocated; n != other {
		t.Errorf("the CPU has %d bytes, %d before", n, other)
	}
	if d.Empty() == 0 {
		t.Error("nothing was kept for later")
	}
}

// TestLinearAlgebraOfRank runs linear algebra on a rank. The results must be on that rank, and have
// the same bits as on the CPU.
func TestLinearAlgebraOfRank(t *testing.T) {
	compute := func(d device.Device) (v []float64) {
		tensor.Do(func(s *tensor.Scope) {
			x := s.Typed(dtype.F64).Arange(3*16).Sin().Reshape(3, 4, 4).RequiresGrad()
			spd := x.MatMul(x.Transpose(1, 2)).Add(s.Typed(dtype.F64).Eye(4))
			u, w, _ := spd.SVD(true)
			for _, y := range []*tensor.Tensor{spd.Inverse(), spd.Det(), spd.Cholesky(false), u.Abs(), w, s.Typed(dtype.F64).Zeros(0, 3, 3).Inverse()} {
				if y.Device() != d {
					t.Errorf("on %s: %v", d.Name(), y)
				}
				v = append(v, y.Floats()...)
			}
			spd.Inverse().Sum().Backward()
			v = append(v, x.Grad().Floats()...)
		}, tensor.On(d))
		return v
	}
	if want, got := compute(rank(t, "cpu")), compute(rank(t, "cpu:1")); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	err := tensor.Try(func() { tensor.Root().On(rank(t, "cpu:1")).Zeros(2, 2).Inverse() })
	if !errors.Is(err, tensor.ErrLinAlg) || !strings.Contains(err.Error(), "cpu:1") {
		t.Errorf("a singular matrix: %v", err)
	}
}

// TestPinnedMemoryOfRank checks that page-locked memory works for a rank of the CPU as it does for
// the CPU.
func TestPinnedMemoryOfRank(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=16MiB")
	if err != nil {
		t.Fatal(err)
	}
	d := rank(t, "cpu:1")
	tensor.Do(func(s *tensor.Scope) {
		for _, x := range []*tensor.Tensor{s.Arange(3000).Float(), s.Arange(6000).Float().Reshape(3000, 2).T().Select(0, 1)} {
			p := x.PinMemory(gpus[0])
			if !p.IsPinned() || p.Device() != d || p.PinMemory(gpus[0]) != p {
				t.Fatalf("%v", p)
			}
			y := p.To(gpus[0], tensor.NonBlocking())
			back := y.AddScalar(1).To(d, tensor.NonBlocking())
			if !back.IsPinned() || back.Device() != d || !slices.Equal(back.Floats(), x.AddScalar(1).Floats()) {
				t.Errorf("%v", back)
			}
			if y.Sum().ItemLater().Item() != x.Sum().Item() {
				t.Error("the sums differ")
			}
		}
		var e *tensor.Error
		if err := tensor.Try(func() { s.Ones(2).PinMemory(d) }); !errors.As(err, &e) || !strings.Contains(err.Error(), "cpu:1 has no page-locked memory") {
			t.Errorf("%v", err)
		}
		if x := s.Ones(1); x.ItemLater().Item() != 1 {
			t.Error("the number differs")
		}
	}, tensor.On(d))
	if n := gpus[0].PinnedStats().Allocated; n != 0 {
		t.Errorf("%d bytes of page-locked memory are left", n)
	}
}

// TestHostMemoryOfRank checks that a rank of the CPU reports an index error immediately, as the CPU
// does. It also checks that the memory of the rank's tensors is read and written without a copy.
func TestHostMemoryOfRank(t *testing.T) {
	d := rank(t, "cpu:1")
	tensor.Do(func(s *tensor.Scope) {
		x := s.Arange(12).Float().Reshape(3, 4)
		var index *device.IndexError
		if err := tensor.Try(func() { x.IndexSelect(0, s.From([]int64{1, 7})) }); !errors.As(err, &index) || !strings.Contains(err.Error(), "7") {
			t.Errorf("%v", err)
		}
		f, err := os.Create(filepath.Join(t.TempDir(), "x"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if n, err := x.T().WriteTo(f); n != 48 || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		tensor.Raw("first", []*tensor.Tensor{x}, nil, func(st device.Stream, outs, _ []device.View) error {
			if st.Device() != d {
				t.Errorf("the stream is of %s", st.Device().Name())
			}
			clear(outs[0].Buf.Host()[:4*4])
			return nil
		})
		if x.Sum().Item() != 60 {
			t.Errorf("%v", x)
		}
		big := s.Ones(1).Expand(1<<20, 1<<20, 1<<10)
		if err := tensor.Try(func() { big.Floats() }); !errors.Is(err, device.ErrOutOfMemory) {
			t.Errorf("%v", err)
		}
		if math.IsNaN(x.Mean().Item()) {
			t.Error("no mean")
		}
	}, tensor.On(d))
}

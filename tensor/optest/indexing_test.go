package optest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// mistake is a wrong call, with the kind of its error and words of the message.
type mistake struct {
	name  string
	kind  error
	wrong func()
	says  []string
}

func checkMistakes(t *testing.T, file string, list []mistake) {
	for _, c := range list {
		t.Run(c.name, func(t *testing.T) {
			err := tensor.Try(c.wrong)
			var e *tensor.Error
			if !errors.As(err, &e) || !errors.Is(err, c.kind) {
				t.Fatalf("%v is not %v", err, c.kind)
			}
			for _, part := range append(c.says, fmt.Sprintf("at optest/%s:%d", file, line)) {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in:\n%v", part, err)
				}
			}
		})
	}
}

func TestScatterMistakes(t *testing.T) {
	gpu := emulated(t)
	for _, dev := range []device.Device{hostDevice(), gpu} {
		t.Run(dev.Info().Kind, func(t *testing.T) {
			tensor.Do(func(s *tensor.Scope) {
				m := s.On(dev)
				ix := func(v ...int64) *tt { return m.Typed(dtype.I64).From(v) }
				v, a, b := m.Ones(4), m.Ones(3, 4), m.Ones(2, 4)
				full := ix(0, 1, 2, 0, 1, 2, 0, 1).Reshape(2, 4)
				mask := v.GtScalar(0)
				other := s.Ones(4)
				if dev == hostDevice() {
					other = s.On(gpu).Ones(4)
				}
				w := m.Ones(4).RequiresGrad()
				wait := func() { m.Ones(1).Item() }
				checkMistakes(t, "indexing_test.go", []mistake{
					{"rank of the index", tensor.ErrShape, func() { here(); a.Scatter(0, ix(0), b) }, []string{"scatter", "rank", "[3, 4]", "[1]"}},
					{"rank of the source", tensor.ErrShape, func() { here(); a.ScatterAdd(0, full, v) }, []string{"scatter_add", "source", "[4]"}},
					{"index larger than the source", tensor.ErrShape, func() { here(); a.Scatter(1, full, b.Narrow(1, 0, 3)) }, []string{"scatter", "dimension 1", "size 4", "source 3"}},
					{"index larger than the tensor", tensor.ErrShape, func() { here(); a.Narrow(0, 0, 1).ScatterAdd(1, full, b) }, []string{"scatter_add", "size 2", "dimension 0", "tensor 1"}},
					{"dimension", tensor.ErrShape, func() { here(); a.Scatter(2, full, b) }, []string{"scatter", "dimension 2"}},
					{"type of the source", tensor.ErrType, func() { here(); a.Scatter(0, full, b.Double()) }, []string{"scatter", "float64", "float32", "Cast"}},
					{"type of the index", tensor.ErrType, func() { here(); a.ScatterAdd(0, b, b) }, []string{"scatter_add", "int64", "float32"}},
					{"device", tensor.ErrDevice, func() { here(); v.ScatterAdd(0, ix(0, 1, 2, 3), other) }, []string{"scatter_add", "cpu", "cuda:0"}},
					{"scattered index", tensor.ErrIndex, func() { here(); v.Scatter(0, ix(0, 9), v); wait() }, []string{"scatter", "index 9", "position 1", "size 4"}},
					{"negative scattered index", tensor.ErrIndex, func() { here(); v.ScatterScalar(0, ix(0, -1), 2); wait() }, []string{"scatter", "index -1", "position 1", "size 4"}},
					{"index in place", tensor.ErrIndex, func() { here(); m.Ones(4).ScatterAddInPlace(0, ix(4), v); wait() }, []string{"scatter_add", "index 4", "size 4"}},
					{"index of nothing", tensor.ErrIndex, func() { here(); m.Ones(0).ScatterAdd(0, ix(0), v); wait() }, []string{"scatter_add", "index 0", "size 0"}},
					{"leaf in place", tensor.ErrGrad, func() { here(); w.ScatterAddInPlace(0, ix(1), v) }, []string{"scatter_add", "leaf"}},
					{"expanded in place", tensor.ErrShape, func() { here(); m.Ones(1).Expand(4).IndexFillInPlace(0, ix(1), 2) }, []string{"index_fill", "expanded"}},
					{"number that does not fit", tensor.ErrValue, func() { here(); ix(1, 2).Cast(dtype.U8).ScatterScalar(0, ix(0), 256) }, []string{"scatter", "256", "uint8"}},
					{"no number of integers", tensor.ErrValue, func() { here(); ix(1, 2).IndexFill(0, ix(0), math.NaN()) }, []string{"index_fill", "NaN", "int64"}},
					{"reduction", tensor.ErrValue, func() { here(); v.ScatterReduce(0, ix(1), v, "median", true) }, []string{"scatter_reduce", `"median"`, `"mean"`}},
					{"mean of bool", tensor.ErrType, func() { here(); mask.ScatterReduce(0, ix(1), mask, "mean", true) }, []string{"scatter_reduce", "bool"}},
					{"reduced index", tensor.ErrIndex, func() { here(); v.ScatterReduce(0, ix(7), v, "amax", true); wait() }, []string{"scatter_reduce", "index 7"}},
					{"rows of the source", tensor.ErrShape, func() { here(); a.IndexAdd(0, ix(0, 1, 2), b, 1) }, []string{"index_add", "[2, 4]", "dimension 0"}},
					{"index of rank 2", tensor.ErrShape, func() { here(); a.IndexCopy(0, full, b) }, []string{"index_copy", "vector"}},
					{"fraction of integers", tensor.ErrType, func() { here(); ix(1, 2).IndexAdd(0, ix(0), ix(5), 0.5) }, []string{"index_add", "0.5", "int64"}},
					{"filled index", tensor.ErrIndex, func() { here(); v.IndexFill(0, ix(0, -5), 1); wait() }, []string{"index_fill", "index -5", "position 1", "size 4"}},
					{"added row", tensor.ErrIndex, func() { here(); a.IndexAdd(0, ix(0, 3), b, 1); wait() }, []string{"index_add", "index 3", "position 1", "size 3"}},
					{"taken", tensor.ErrIndex, func() { here(); a.Take(ix(3, 12)); wait() }, []string{"take", "index 12", "position 1", "size 12"}},
					{"taken along", tensor.ErrIndex, func() { here(); a.TakeAlong(ix(3, -5).Reshape(1, 2), 1); wait() }, []string{"take_along_dim", "index -5", "position 1", "size 4"}},
					{"taken along shapes", tensor.ErrShape, func() { here(); a.TakeAlong(full, 1) }, []string{"take_along_dim", "[3, 4]", "[2, 4]", "broadcast"}},
					{"padding", tensor.ErrIndex, func() { here(); a.EmbeddingPadded(ix(0), 3) }, []string{"embedding", "padding index 3", "3 rows"}},
					{"mask", tensor.ErrType, func() { here(); v.MaskedSelect(v) }, []string{"masked_select", "bool", "float32"}},
					{"mask's shape", tensor.ErrShape, func() { here(); m.Ones(3).MaskedSelect(mask) }, []string{"masked_select", "[3]", "[4]"}},
					{"too few", tensor.ErrIndex, func() { here(); v.MaskedScatter(mask, m.Ones(3)); wait() }, []string{"masked_scatter", "index 3", "size 3"}},
					{"nothing to scatter", tensor.ErrIndex, func() { here(); v.MaskedScatter(mask, m.Ones(0)); wait() }, []string{"masked_scatter", "index 1"}},
					{"type of what is scattered", tensor.ErrType, func() { here(); v.MaskedScatter(mask, v.Double()) }, []string{"masked_scatter", "float64"}},
					{"larger mask in place", tensor.ErrShape, func() { here(); v.MaskedScatterInPlace(a.GtScalar(0), a) }, []string{"masked_scatter", "[3, 4]", "[4]"}},
					{"counted floats", tensor.ErrType, func() { here(); v.Bincount(nil, 0) }, []string{"bincount", "float32"}},
					{"counted negatives", tensor.ErrIndex, func() { here(); ix(3, -2).Bincount(nil, 0) }, []string{"bincount", "-2"}},
					{"weights", tensor.ErrShape, func() { here(); ix(3, 2).Bincount(v, 0) }, []string{"bincount", "[2]", "[4]"}},
					{"endless counts", tensor.ErrValue, func() { here(); ix(1<<62).Bincount(nil, 0) }, []string{"bincount", "memory"}},
				})
			})
		})
	}
	if err := gpu.Synchronize(); err != nil {
		t.Error(err)
	}
}

// TestScatterInPlaceMemory checks that an in-place op without a gradient writes the memory itself,
// also through views, and raises the version. If it reads from the same memory, it reads before it
// writes.
func TestScatterInPlaceMemory(t *testing.T) {
	for _, dev := range []device.Device{hostDevice(), emulated(t)} {
		tensor.Do(func(s *tensor.Scope) {
			m := s.On(dev)
			ix := func(v ...int64) *tt { return m.Typed(dtype.I64).From(v) }
			base := m.Arange(12).Cast(dtype.F32).Reshape(3, 4)
			half := base.Narrow(1, 1, 2) // columns 1 and 2
			version := base.Version()
			check := func(what string, y *tt, want ...float64) {
				t.Helper()
				if y != half || base.Version() == version {
					t.Errorf("%s: another tensor, or the version stayed %d", what, version)
				}
				version = base.Version()
				if got := base.Floats(); !slices.Equal(got, want) {
					t.Errorf("%s on %v: %v, want %v", what, dev.Name(), got, want)
				}
			}
			check("scatter", half.ScatterInPlace(0, ix(2, 0).Reshape(1, 2), m.Full(-1, 1, 2)), 0, 1, -1, 3, 4, 5, 6, 7, 8, -1, 10, 11)
			check("scatter of a number", half.ScatterScalarInPlace(1, ix(1).Reshape(1, 1), 50), 0, 1, 50, 3, 4, 5, 6, 7, 8, -1, 10, 11)
			check("index_add of itself", half.IndexAddInPlace(0, ix(1, 0, 2), half, 1), 0, 6, 56, 3, 4, 6, 56, 7, 8, -2, 20, 11)
			check("index_copy of itself", half.IndexCopyInPlace(1, ix(1, 0), half), 0, 56, 6, 3, 4, 56, 6, 7, 8, 20, -2, 11)
			check("scatter_add", half.ScatterAddInPlace(1, ix(0, 0).Reshape(1, 2), half), 0, 118, 6, 3, 4, 56, 6, 7, 8, 20, -2, 11)
			check("index_fill", half.IndexFillInPlace(0, ix(-1), 0), 0, 118, 6, 3, 4, 56, 6, 7, 8, 0, 0, 11)
			check("masked_scatter", half.MaskedScatterInPlace(half.EqScalar(6), base), 0, 118, 0, 3, 4, 56, 118, 7, 8, 0, 0, 11)
			// here a tensor is its own index
			if n := ix(3, 1); n.ScatterAddInPlace(0, n.Narrow(0, 1, 1), n) != n || !slices.Equal(n.Floats(), []float64{3, 4}) {
				t.Errorf("by its own index: %v", n)
			}
		})
	}
}

// TestScatterInPlaceGraph checks that an in-place op may change a result that has a gradient. The
// graph continues from the changed value.
func TestScatterInPlaceGraph(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		w, v := s.From([]float64{1, 2, 3, 4}).RequiresGrad(), s.From([]float64{10, 20}).RequiresGrad()
		y := w.MulScalar(2)
		i := s.From([]int64{2, 0})
		y.ScatterInPlace(0, i, v).IndexAddInPlace(0, i, v, 3).IndexFillInPlace(0, s.From([]int64{1}), 5)
		y.MaskedScatterInPlace(s.From([]bool{false, false, false, true}), v)
		g := tensor.Gradients(y.Sum(), []*tt{w, v})
		for k, want := range [][]float64{{0, 0, 0, 0}, {5, 4}} {
			if !slices.Equal(g[k].Floats(), want) {
				t.Errorf("gradient %d is %v, want %v", k, g[k], want)
			}
		}
		if want := []float64{80, 5, 40, 10}; !slices.Equal(y.Floats(), want) {
			t.Errorf("%v, want %v", y, want)
		}
		z := w.Exp()
		z.ScatterAddInPlace(0, i, v) // the gradient of exp needs its result
		err := tensor.Try(func() { z.Sum().Backward() })
		if !errors.Is(err, tensor.ErrInPlace) {
			t.Errorf("a saved result that was changed: %v", err)
		}
	})
}

// TestScatterLastWins writes several values to the same element. The last one must win, on every
// device and in each form of the kernel. Each value must receive the gradient of that element.
func TestScatterLastWins(t *testing.T) {
	for _, dev := range []device.Device{hostDevice(), emulated(t)} {
		tensor.Do(func(s *tensor.Scope) {
			m := s.On(dev)
			// the two sizes lead to different kernels: one thread for each line, and sorting
			for _, n := range []int{5, 100} {
				src := m.Typed(dtype.F64).Arange(n).RequiresGrad()
				index := m.Typed(dtype.I64).Arange(n).RemainderScalar(3)
				y := m.Typed(dtype.F64).Zeros(4).Scatter(0, index, src)
				want := make([]float64, 4)
				for i := range n {
					want[i%3] = float64(i)
				}
				if !slices.Equal(y.Floats(), want) {
					t.Errorf("%d elements on %s: %v, want %v", n, dev.Name(), y, want)
				}
				if g := tensor.Gradients(y.Sum(), []*tt{src})[0]; g.Sum().Item() != float64(n) {
					t.Errorf("gradients %v", g)
				}
			}
		})
	}
}

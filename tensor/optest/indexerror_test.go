package optest

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func TestIndexMistakes(t *testing.T) {
	gpu := emulated(t)
	for _, dev := range []device.Device{hostDevice(), gpu} {
		t.Run(dev.Info().Kind, func(t *testing.T) {
			tensor.Do(func(s *tensor.Scope) {
				m := s.On(dev)
				ix := func(v ...int64) *tt { return m.Typed(dtype.I64).From(v) }
				x, deep := m.Ones(3, 4), m.Ones(1, 1, 1, 1, 1, 1, 1, 2)
				mask := m.Ones(3).GtScalar(0)
				other := s.Typed(dtype.I64).Zeros(2)
				if dev == hostDevice() {
					other = s.On(gpu).Typed(dtype.I64).Zeros(2)
				}
				w := m.Ones(3, 4).RequiresGrad()
				wait := func() { m.Ones(1).Item() }
				on := "[3, 4] float32 on " + dev.Name()
				checkMistakes(t, "indexerror_test.go", []mistake{
					{"too many", tensor.ErrShape, func() { here(); x.Index(0, tensor.All, ix(1)) }, []string{"index", "3 dimensions", "has 2", on}},
					{"number", tensor.ErrIndex, func() { here(); x.Index(tensor.All, 4) }, []string{"index 4", "dimension 1", "size 4", on}},
					{"negative number", tensor.ErrIndex, func() { here(); x.Index(-4) }, []string{"index -4", "dimension 0", "size 3"}},
					{"list", tensor.ErrIndex, func() { here(); x.Index([]int{0, -1, 3}) }, []string{"index 3", "dimension 0", "size 3"}},
					{"two ellipses", tensor.ErrValue, func() { here(); x.Index(tensor.Ellipsis, tensor.Ellipsis) }, []string{"argument 1", "Ellipsis"}},
					{"step", tensor.ErrValue, func() { here(); x.Index(0, tensor.Range(0, 2, 0)) }, []string{"argument 1", "step of 0"}},
					{"no index", tensor.ErrType, func() { here(); x.Index(0, "a") }, []string{"argument 1", "string", "Range"}},
					{"nothing", tensor.ErrType, func() { here(); x.Index(nil) }, []string{"argument 0", "nil"}},
					{"nil tensor", tensor.ErrValue, func() { here(); x.Index((*tt)(nil)) }, []string{"index", "nil"}},
					{"floats", tensor.ErrType, func() { here(); x.Index(0, x) }, []string{"argument 1", "float32", "int64", "Cast"}},
					{"mask's shape", tensor.ErrShape, func() { here(); x.Index(tensor.All, mask) }, []string{"mask", "size 3", "dimension 0", "4 in dimension 1"}},
					{"shapes of indices", tensor.ErrShape, func() { here(); x.Index(ix(0, 1), ix(0, 1, 2)) }, []string{"[2] and [3]", "broadcast"}},
					{"device", tensor.ErrDevice, func() { here(); x.Index(other) }, []string{"index", "cpu", "cuda:0"}},
					{"rank", tensor.ErrShape, func() { here(); deep.Index(tensor.NewAxis) }, []string{"index", "8 dimensions"}},
					{"rank of the result", tensor.ErrShape, func() { here(); deep.Index(ix(0).Reshape(1, 1)) }, []string{"index", "9 dimensions"}},
					{"late", tensor.ErrIndex, func() { here(); x.Index(ix(0, 2, 3)); wait() }, []string{"index: index 3", "position 2", "size 3"}},
					{"late, of int32", tensor.ErrIndex, func() { here(); x.Index(tensor.All, ix(0, 9).Cast(dtype.I32)); wait() }, []string{"index: index 9", "position 1", "size 4"}},
					{"late and negative", tensor.ErrIndex, func() { here(); x.Index(ix(0, -4)); wait() }, []string{"index: index -4", "position 1", "size 3"}},
					{"late, one of two", tensor.ErrIndex, func() { here(); x.Index(ix(0, 1), ix(3, 4)); wait() }, []string{"index: index 4", "position 1", "size 4"}},
					{"late, the other of two", tensor.ErrIndex, func() { here(); x.Index(ix(0, -7), ix(3, 3)); wait() }, []string{"index: index -7", "position 1", "size 3"}},
					{"late, of rank 0", tensor.ErrIndex, func() { here(); x.Index(ix(5).Reshape()); wait() }, []string{"index: index 5", "size 3"}},
					{"late, put", tensor.ErrIndex, func() { here(); x.IndexPut(1, true, ix(0, 3)); wait() }, []string{"index_put: index 3", "position 1", "size 3"}},
					{"late, set", tensor.ErrIndex, func() { here(); m.Ones(3, 4).SetIndex(1, ix(1), ix(0, -5)); wait() }, []string{"index_put: index -5", "position 1", "size 4"}},
					{"value's shape", tensor.ErrShape, func() { here(); x.SetIndex(m.Ones(3), 0) }, []string{"index_put", "value of shape [3]", "[4]"}},
					{"value's shape by tensors", tensor.ErrShape, func() { here(); x.SetIndex(m.Ones(2, 2), mask) }, []string{"index_put", "[2, 2]", "[3, 4]"}},
					{"value's type", tensor.ErrType, func() { here(); x.SetIndex(m.Typed(dtype.F64).Ones(4), ix(0)) }, []string{"index_put", "float64", "float32", "Cast"}},
					{"no value", tensor.ErrType, func() { here(); x.SetIndex("one", 0) }, []string{"index_put", "string"}},
					{"value on another device", tensor.ErrDevice, func() { here(); x.SetIndex(other.Float(), 0) }, []string{"index_put", "cpu", "cuda:0"}},
					{"number that does not fit", tensor.ErrValue, func() { here(); ix(1, 2).Cast(dtype.I16).SetIndex(1<<15, 0) }, []string{"index_put", "32768", "int16"}},
					{"downwards", tensor.ErrValue, func() { here(); x.SetIndex(1, tensor.Range(2, -tensor.End, -1)) }, []string{"index_put", "negative step", "Flip"}},
					{"leaf", tensor.ErrGrad, func() { here(); w.SetIndex(1, 0) }, []string{"index_put", "leaf", "NoGrad"}},
					{"expanded", tensor.ErrShape, func() { here(); m.Ones(1).Expand(4).SetIndex(1, 0) }, []string{"index_put", "expanded"}},
				})
			})
		})
	}
	if err := gpu.Synchronize(); err != nil {
		t.Error(err)
	}
	if n := gpu.Stats().Allocated; n != 0 {
		t.Errorf("%d bytes are left in use", n)
	}
}

// TestIndexViewsAndAssignments checks that indexing with ints, ranges, Ellipsis and NewAxis returns
// views that share memory, including views of views. Indexing with tensors returns copies. Every
// form of assignment writes the memory itself and raises the version.
func TestIndexViewsAndAssignments(t *testing.T) {
	for _, dev := range []device.Device{hostDevice(), emulated(t)} {
		tensor.Do(func(s *tensor.Scope) {
			m := s.On(dev)
			ix := func(v ...int64) *tt { return m.Typed(dtype.I64).From(v) }
			x := m.Typed(dtype.F32).Arange(12).Reshape(3, 4)
			x.Index(1, tensor.Range(1, tensor.End)).Index(tensor.NewAxis, tensor.Range(0, 3, 2)).Fill(-1)
			x.Index(ix(0)).Fill(99)               // this fills a copy
			x.Index(x.EqScalar(2)).Fill(99)       // this fills a copy
			x.Index(tensor.All, -1).Index().Neg() // nothing changes this view
			want := []float64{0, 1, 2, 3, 4, -1, 6, -1, 8, 9, 10, 11}
			check := func(what string) {
				t.Helper()
				if got := x.Floats(); !slices.Equal(got, want) {
					t.Fatalf("%s on %s: %v, want %v", what, dev.Name(), got, want)
				}
			}
			check("views")
			set := func(what string, value any, ix []any, places ...int) {
				t.Helper()
				version := x.Version()
				if x.SetIndex(value, ix...) != x || x.Version() == version {
					t.Errorf("%s: another tensor, or the version stayed", what)
				}
				values := []float64{}
				switch v := value.(type) {
				case *tt:
					values = v.Floats()
				case int:
					values = []float64{float64(v)}
				}
				for k, p := range places {
					want[p] = values[k%len(values)]
				}
				check(what)
			}
			set("a number", 50, []any{0, 1}, 1)
			// here SetIndex converts the type of the value
			set("a row", m.Typed(dtype.F64).From([]float64{1, 2, 3, 4}), []any{-1}, 8, 9, 10, 11)
			set("leading ones", m.Ones(1, 1, 4), []any{1}, 4, 5, 6, 7)
			set("columns", m.From([]float32{20, 30}), []any{tensor.All, tensor.Range(0, 4, 3)}, 0, 3, 4, 7, 8, 11)
			set("pairs", m.From([]float32{5, 6}), []any{ix(2, 0), []int{1, 2}}, 9, 2)
			set("apart", m.From([]float32{7, 8}).Reshape(2, 1), []any{ix(0, 1), tensor.NewAxis, ix(3, 0)}, 3, 4)
			set("a mask", m.From([]float32{-5, -6}), []any{m.From([]bool{false, true, false}), tensor.Range(1, 3)}, 5, 6)
			set("where a mask is true", 0, []any{tensor.Ellipsis, m.From([]bool{false, false, false, true})}, 3, 7, 11)
			set("a tensor of one where a mask is true", m.From([]float32{9}), []any{x.GtScalar(19)}, slices.Clone(places(x, func(v float64) bool { return v > 19 }))...)
			set("everything", 1, nil, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
			y := x.T()
			// y is transposed, so its dimensions cannot be joined
			y.SetIndex(m.From([]float32{2, 3}), ix(0, 3), ix(1, 2))
			want[4], want[11] = 2, 3
			check("transposed")
			x.SetIndex(x.Index(0), 2) // the value lies in the same memory
			want[8], want[9], want[10], want[11] = want[0], want[1], want[2], want[3]
			check("from itself")
			// here value and target overlap in memory
			x.SetIndex(x.T().Index(tensor.Range(0, 3), tensor.All), tensor.All, tensor.Range(1, 4))
			old := slices.Clone(want)
			for i := range 3 {
				for j := range 3 {
					want[4*i+1+j] = old[4*j+i]
				}
			}
			check("overlapping")
			x.IndexPutInPlace(1, true, []int{0, 0, 2}, 3)
			want[3] += 2
			want[11]++
			check("accumulated")
			n := m.Typed(dtype.I64).Zeros(2).SetIndex(int64(math.MaxInt64), 1)
			if v := tensor.Data[int64](n); v[1] != math.MaxInt64 {
				t.Errorf("a great number came as %d", v[1])
			}
		})
	}
}

func places(x *tt, is func(v float64) bool) (at []int) {
	for i, v := range x.Floats() {
		if is(v) {
			at = append(at, i)
		}
	}
	return at
}

// TestAssignmentsInAGraph assigns to elements of a tensor in a graph. The overwritten values must
// receive no gradient, and the assigned values must receive theirs. Backward must refuse a tensor
// that was saved before the assignment.
func TestAssignmentsInAGraph(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		w, v := s.From([]float64{1, 2, 3, 4}).RequiresGrad(), s.From([]float64{10, 20}).RequiresGrad()
		mask := s.From([]bool{false, false, false, true})
		y := w.MulScalar(3)
		y.SetIndex(v, tensor.Range(0, 2)).SetIndex(7, mask).IndexPutInPlace(v, true, s.From([]int64{0, 2}))
		y.SetIndex(v.Index(0), mask)
		if want := []float64{20, 20, 29, 10}; !slices.Equal(y.Floats(), want) {
			t.Fatalf("%v, want %v", y, want)
		}
		seed := s.From([]float64{1, 10, 100, 1000})
		g := tensor.Gradients(y, []*tt{w, v}, tensor.GradOutput(seed))
		for k, want := range [][]float64{{0, 0, 300, 0}, {1002, 110}} {
			if !slices.Equal(g[k].Floats(), want) {
				t.Errorf("gradient %d is %v, want %v", k, g[k], want)
			}
		}
		z := w.Exp()
		z.SetIndex(0, 1)
		if err := tensor.Try(func() { z.Sum().Backward() }); !errors.Is(err, tensor.ErrInPlace) {
			t.Errorf("a saved result that was changed: %v", err)
		}
		index := s.From([]int64{1, 1})
		u := w.Index(index)
		index.Fill(0)
		// Backward must work although the index has changed since its use
		if err := tensor.Try(func() { u.Sum().Backward() }); err != nil {
			t.Errorf("an index that was changed after use: %v", err)
		}
		s.Do(func(c *tensor.Scope) {
			w.In(c).SetIndex(5, 0)
		}, tensor.NoGrad())
		if w.Floats()[0] != 5 || !w.IsLeaf() {
			t.Errorf("a leaf without gradients: %v", w)
		}
	})
}

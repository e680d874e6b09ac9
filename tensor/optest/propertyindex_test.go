package optest

import (
	"errors"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
	"pgregory.net/rapid"
)

// drawIndex draws an index for a shape, in the form that the reference accepts. Some indices are
// out of range.
func drawIndex(t *rapid.T, dims []int) (ix []any) {
	wild := 0
	if rapid.IntRange(0, 9).Draw(t, "wild") == 0 {
		wild = 1
	}
	number := func(n int) int { return rapid.IntRange(-n-wild, max(n-1+wild, -n)).Draw(t, "number") }
	shapeOf := rapid.SampledFrom([][]int{{}, {1}, {2}, {3}, {2, 1}, {2, 3}, {0}})
	var lists [][]int // shapes of index tensors; most of them can be broadcast to a common shape
	d, dots, marks := 0, false, 0
	for range rapid.IntRange(0, len(dims)+2).Draw(t, "arguments") {
		kind := rapid.IntRange(0, 8).Draw(t, "kind")
		if d == len(dims) && kind > 1 {
			break
		}
		switch {
		case kind == 0 && !dots:
			dots = true
			d += rapid.IntRange(0, len(dims)-d).Draw(t, "skipped")
			ix = append(ix, tensor.Ellipsis)
		case kind == 1 && marks < 2:
			marks++
			ix = append(ix, tensor.NewAxis)
		case d == len(dims):
		case kind == 2 && dims[d] > 0:
			ix = append(ix, number(dims[d]))
			d++
		case kind <= 4:
			n := dims[d]
			if rapid.Bool().Draw(t, "down") && n > 0 {
				start := rapid.IntRange(0, n-1).Draw(t, "start")
				ix = append(ix, span{start, rapid.IntRange(-1, start).Draw(t, "stop"), -rapid.IntRange(1, 3).Draw(t, "step")})
			} else {
				start := rapid.IntRange(0, n).Draw(t, "start")
				ix = append(ix, span{start, rapid.IntRange(start, n).Draw(t, "stop"), rapid.IntRange(1, 3).Draw(t, "step")})
			}
			d++
		case kind <= 6 && dims[d] > 0:
			s := shapeOf.Draw(t, "index shape")
			if len(lists) > 0 && rapid.IntRange(0, 5).Draw(t, "same shape") > 0 {
				s = lists[0]
			}
			lists = append(lists, s)
			a := newArray(s...)
			for i := range a.v {
				a.v[i] = float64(number(dims[d]))
			}
			if len(s) == 1 && rapid.Bool().Draw(t, "as a list") {
				list := make([]int, len(a.v))
				for i := range list {
					list[i] = int(a.v[i])
				}
				ix = append(ix, list)
			} else {
				ix = append(ix, intArray(a))
			}
			d++
		case kind >= 7:
			n := rapid.IntRange(0, len(dims)-d).Draw(t, "mask rank")
			a := newArray(dims[d : d+n]...)
			for i := range a.v {
				a.v[i] = float64(rapid.IntRange(0, 1).Draw(t, "bit"))
			}
			ix = append(ix, boolArray(a))
			d += n
		}
	}
	return ix
}

// TestIndexIsTheLoop compares Index and IndexPut with plain loops, in any layout. They must read
// and write the same elements. An index that the loop refuses must be an error. The gradient of
// Index must add its seed to these elements.
func TestIndexIsTheLoop(t *testing.T) {
	for _, dev := range []device.Device{hostDevice(), emulated(t)} {
		t.Run(dev.Info().Kind, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { in(t, func(s *tensor.Scope) { indexIsTheLoop(t, s.On(dev)) }) })
		})
	}
}

func indexIsTheLoop(t *rapid.T, m tensor.Maker) {
	a := drawArray(t, 0, 4)
	leaf := m.From(a.v).Reshape(a.dims...).RequiresGrad()
	x, turned := leaf.MulScalar(1), false
	if n := len(a.dims); n > 1 && rapid.Bool().Draw(t, "transposed") {
		p := identity(n)
		p[0], p[n-1] = n-1, 0
		x, a, turned = x.Permute(p...), a.permute(p), true
	}
	ix := drawIndex(t, a.dims)
	args := onDeviceOf(x, spans(ix))
	shape, places, wrong := placesOf(a.dims, ix)
	var y *tt
	err := tensor.Try(func() {
		y = x.Index(args...)
		m.Ones(1).Item() // an error that a GPU finds late is reported by this call
	})
	if wrong != nil || len(shape) > 8 {
		var e *tensor.Error
		// If the result is empty, the index is not read, so a wrong index is no error.
		if !errors.As(err, &e) && (err != nil || y.Size() > 0) {
			t.Fatalf("%v of %v: error %v, want one like %v", args, a.dims, err, wrong)
		}
		return
	}
	if err != nil {
		t.Fatalf("%v of %v: %v", args, a.dims, err)
	}
	want := newArray(shape...)
	for i, p := range places {
		want.v[i] = a.v[p]
	}
	same(t, "index", y, want)
	seed := newArray(shape...)
	for i := range seed.v {
		seed.v[i] = float64(i%7 + 1)
	}
	g := m.From(seed.v).Reshape(shape...)
	back := newArray(a.dims...)
	for i, p := range places {
		back.v[p] += seed.v[i]
	}
	got := tensor.Gradients(y, []*tt{leaf}, tensor.GradOutput(g))[0]
	if turned {
		got = got.Transpose(0, -1)
	}
	same(t, "gradient", got, back)
	if slices.ContainsFunc(ix, func(v any) bool { s, ok := v.(span); return ok && s.step < 0 }) {
		return
	}
	value := seed
	if rapid.Bool().Draw(t, "one value") {
		value = array{nil, []float64{-5}}
	}
	v := m.From(value.v).Reshape(value.dims...)
	for _, accumulate := range []bool{false, true} {
		want := indexPutRef(a.dims, ix, accumulate)([]array{a, value})
		same(t, "index_put", x.IndexPut(v, accumulate, args...), want)
		z := x.Detach().Transpose(0, -1).Clone().Transpose(0, -1)
		if z.IndexPutInPlace(v, accumulate, args...); x.Rank() > 0 {
			same(t, "index_put in place", z, want)
		}
	}
}

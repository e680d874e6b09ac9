package tensor_test

import (
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestGradientOfParts compares the gradient that is assembled from parts with the recorded
// gradient. The recorded gradient pads each part's gradient to the whole, with a launch for each
// part and for each gap. If the parts' gradients already lie in one memory at their offsets, there
// must be no launch.
func TestGradientOfParts(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	type tt = tensor.Tensor
	sum := func(x ...*tt) *tt {
		y := x[0].Sum()
		for _, x := range x[1:] {
			y = y.Add(x.Sum())
		}
		return y
	}
	sq := func(x *tt) *tt { return x.Square() }
	for name, c := range map[string]struct {
		f        func(x *tt) *tt
		launches int // expected number of launches, or a negative number to skip this check
	}{
		"all":           {func(x *tt) *tt { p := x.Split(2, 1); return sum(sq(p[0]), sq(p[1]), sq(p[2])) }, 3},
		"middle":        {func(x *tt) *tt { return sum(sq(x.Split(2, 1)[1])) }, 2},
		"last":          {func(x *tt) *tt { return sum(sq(x.Chunk(3, 1)[2])) }, 2},
		"without one":   {func(x *tt) *tt { p := x.SplitSizes([]int{1, 2, 3}, 1); return sum(sq(p[0]), sq(p[2])) }, 3},
		"unbound":       {func(x *tt) *tt { p := x.Unbind(0); return sum(sq(p[3]), sq(p[0]), sq(p[2]), sq(p[1])) }, 4},
		"with the rest": {func(x *tt) *tt { p := x.Split(3, 1); return sum(sq(p[0]), sq(p[1]), sq(x)) }, -1},
		"rest first":    {func(x *tt) *tt { p := x.Split(3, 1); return sum(sq(x), sq(p[0]), sq(p[1])) }, -1},
		"rest between":  {func(x *tt) *tt { p := x.Split(3, 1); return sum(sq(p[0]), sq(x), sq(p[1])) }, -1},
		"overlapping":   {func(x *tt) *tt { return sum(sq(x.Narrow(1, 0, 4)), sq(x.Narrow(1, 3, 3)), sq(x.Narrow(1, 1, 4))) }, -1},
		"two axes":      {func(x *tt) *tt { return sum(sq(x.Narrow(1, 0, 4)), sq(x.Narrow(0, 1, 2)), sq(x.Select(0, 1))) }, -1},
		"list and one":  {func(x *tt) *tt { p := x.Split(2, 1); return sum(sq(p[0]), sq(x.Narrow(1, 1, 2)), sq(p[2])) }, -1},
		"entries":       {func(x *tt) *tt { return sum(sq(x.Select(1, 5)), sq(x.Select(1, 1)), sq(x.Select(1, 1))) }, -1},
		"slices":        {func(x *tt) *tt { return sum(sq(x.Slice(1, 1, 3, 1)), sq(x.Slice(1, 0, 6, 2))) }, -1},
		"nothing":       {func(x *tt) *tt { return sum(sq(x.Narrow(1, 2, 0)), sq(x.Narrow(1, 6, 0))) }, 1},
		"the whole":     {func(x *tt) *tt { return sum(sq(x.Narrow(1, 0, 6))) }, 0},
		"of a part":     {func(x *tt) *tt { p := x.Split(3, 1)[1].Split(2, 0); return sum(sq(p[0]), sq(p[1])) }, 4},
		"joined again":  {func(x *tt) *tt { p := x.Split(2, 1); return sum(sq(tensor.Cat(1, p...))) }, 0},
		"in order":      {func(x *tt) *tt { p := x.Unbind(1); return sum(sq(tensor.Stack(1, p...))) }, 0},
		"out of order":  {func(x *tt) *tt { p := x.Split(2, 1); return sum(sq(tensor.Cat(1, p[2], p[1], p[0]))) }, 3},
		"one twice":     {func(x *tt) *tt { p := x.Split(3, 1); return sum(sq(tensor.Cat(1, p[0], p[1])), p[0].Exp()) }, -1},
		"of larger":     {func(x *tt) *tt { return sum(sq(tensor.Cat(1, x.Narrow(1, 1, 2), x.Exp()))) }, -1},
		"in place": {func(x *tt) *tt {
			y := x.MulScalar(2)
			p := y.Split(3, 1)
			p[0].MulInPlace(p[0].Clone())
			return sum(sq(p[0]), sq(p[1]), sq(y))
		}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			for _, on := range []tensor.Option{tensor.Seed(1), tensor.On(gpus[0])} {
				for _, leaf := range []bool{true, false} {
					tensor.Do(func(s *tensor.Scope) {
						x := s.Randn(4, 6).RequiresGrad()
						y := x
						if !leaf {
							y = x.MulScalar(3)
						}
						z := c.f(y)
						want := tensor.Gradients(z, []*tt{x, y}, tensor.CreateGraph())
						count := &partWrites{}
						if !device.SetTracer(count) {
							t.Fatal("there is another tracer")
						}
						got := tensor.Gradients(z, []*tt{x, y}, tensor.RetainGraph())
						device.SetTracer(nil)
						if c.launches >= 0 && count.n != c.launches {
							t.Errorf("%d launches put the gradient together, want %d", count.n, c.launches)
						}
						z.Backward()
						for i, got := range append(got, x.Grad()) {
							if w := want[i%2].Detach(); !got.AllClose(w, 1e-6, 0) {
								t.Errorf("gradient %d is %v, not %v", i, got, w)
							}
						}
					}, on)
				}
			}
		})
	}
}

// partWrites counts the launches that write gradients of parts into the gradient of the whole.
type partWrites struct{ n int }

func (*partWrites) Wants() (w device.TraceWants) { return w }
func (*partWrites) End(device.SpanID)            {}
func (*partWrites) Recorded(uint64)              {}
func (*partWrites) Kernel(device.KernelEvent)    {}
func (*partWrites) Copy(device.CopyEvent)        {}
func (*partWrites) Sync(device.SyncEvent)        {}
func (*partWrites) Memory(device.MemoryEvent)    {}

func (c *partWrites) Begin(s device.Span) device.SpanID {
	if op, ok := strings.CutSuffix(s.Name, ".grad"); ok && s.Kind == device.SpanDirect && strings.Contains("split unbind narrow select slice", op) {
		c.n++
	}
	return device.NewSpanID()
}

package devicetest

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// unfoldTypes has element types of every size.
var unfoldTypes = []dtype.Type{dtype.F32, dtype.BF16, dtype.F64, dtype.U8, dtype.Bool, dtype.I64, dtype.F16, dtype.I32}

func testUnfold(r *rig) {
	if !r.supports("unfold") {
		return
	}
	cases := 60
	if r.large {
		cases = 400
	}
	for i := range cases {
		in, columns, w := r.randomFold(1 + i%3)
		t := unfoldTypes[i%len(unfoldTypes)]
		x := r.small(t, in, inForms[r.rnd.IntN(len(inForms))])
		y := r.empty(t, columns, outForms[r.rnd.IntN(len(outForms))])
		r.unfold(fmt.Sprintf("unfold of %v %v, %+v", t, in, w), y, x, w)
	}
	line := device.Window{Rank: 1, Kernel: [3]int{2}, Stride: [3]int{1}, Dilation: [3]int{1}, Before: [3]int{1}}
	for _, c := range []struct {
		what    string
		x       shape.Dims
		windows int
	}{
		{"without windows", shape.Of(2, 3, 5), 0}, {"of no samples", shape.Of(0, 3, 5), 4},
		{"of no channels", shape.Of(2, 0, 5), 4}, {"of empty planes", shape.Of(2, 3, 0), 4},
	} {
		columns := c.x.Head(2).Append(2, c.windows)
		r.unfold("unfold "+c.what, r.empty(dtype.F32, columns, contiguous), r.small(dtype.F32, c.x, contiguous), line)
	}
}

// unfold compares y, the result of an unfold of x, with a reference, if the device supports the op.
func (r *rig) unfold(what string, y, x *array, w device.Window) {
	defer r.end()
	o := &device.Unfold{Y: y.v, X: x.v, Window: w}
	if !r.dev.Supports(o) {
		return
	}
	from, want, to := x.bits(), make([]uint64, y.v.Size()), y.v.Shape
	for i := range want {
		var index [shape.MaxRank]int
		for d, left := to.Rank()-1, i; d >= 0; d-- {
			index[d], left = left%to.At(d), left/to.At(d)
		}
		at, size, inside := 0, 1, true
		for d := w.Rank - 1; d >= 0; d-- {
			v := index[2+w.Rank+d]*w.Stride[d] + index[2+d]*w.Dilation[d] - w.Before[d]
			inside = inside && v >= 0 && v < x.v.Shape.At(2+d)
			at, size = at+v*size, size*x.v.Shape.At(2+d)
		}
		if inside {
			want[i] = from[(index[0]*to.At(1)+index[1])*size+at]
		}
	}
	r.run(what, o)
	y.equal(what, want)
}

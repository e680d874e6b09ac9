package cpu

import (
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// TestCopiesBetweenAnyViews copies between views with permuted, reversed, repeated and distant
// dimensions. Each element must be copied, and nothing else may be written.
func TestCopiesBetweenAnyViews(t *testing.T) {
	d := newDevice(3)
	defer d.workers.dismiss()
	rnd := rand.New(rand.NewPCG(5, 6))
	types := []dtype.Type{dtype.U8, dtype.I16, dtype.I32, dtype.I64}
	sizes := []int{1, 2, 3, 5, 7, 8, 9, 16, 17, 40}
	for range 3000 {
		rank := rnd.IntN(5)
		var s shape.Dims
		for range rank {
			s = s.Append(sizes[rnd.IntN(len(sizes))])
		}
		if s.Size() > 60_000 {
			continue
		}
		typ := types[rnd.IntN(len(types))]
		out, in := anyView(t, d, rnd, typ, s, false), anyView(t, d, rnd, typ, s, true)
		w := typ.Size()
		from, to := in.Buf.Host(), out.Buf.Host()
		for i := range from {
			from[i] = byte(rnd.Uint32())
		}
		want := make([]byte, len(to))
		for p := range s.Size() {
			a, b := out.Offset, in.Offset
			for k, q := rank-1, p; k >= 0; k-- {
				c := q % s.At(k)
				q /= s.At(k)
				a, b = a+c*out.Strides.At(k), b+c*in.Strides.At(k)
			}
			copy(want[a*w:], from[b*w:(b+1)*w])
		}
		if do(t, d, mapOf(castProgram(typ, typ), out, in)); string(to) != string(want) {
			t.Fatalf("%v of shape %v: strides %v to %v", typ, s, in.Strides, out.Strides)
		}
	}
}

// TestCopyTasksForgetMemory checks that a copy task in the pool holds no pointer to the memory of
// tensors, even if another implementation ran the copy.
func TestCopyTasksForgetMemory(t *testing.T) {
	d := newDevice(1)
	defer d.workers.dismiss()
	out, in := newView(t, d, dtype.F32, 64, 64), newView(t, d, dtype.F32, 64, 64)
	for _, x := range []device.View{in, {Buf: in.Buf, Type: in.Type, Layout: in.Transpose(0, 1)}} {
		do(t, d, mapOf(castProgram(dtype.F32, dtype.F32), out, x))
		if task := copyTasks.Get().(*copyTask); task.to != nil || task.from != nil {
			t.Errorf("strides %v: the task points to the result or the operand", x.Strides)
		}
	}
}

// anyView returns a view of shape s on zeroed memory, with dimensions in any order and with gaps.
// For an operand, dimensions may also be reversed or repeated.
func anyView(tb testing.TB, d *Device, rnd *rand.Rand, t dtype.Type, s shape.Dims, operand bool) device.View {
	v := device.View{Type: t, Layout: shape.Dense(s)}
	next := 1 + rnd.IntN(2)
	for _, k := range rnd.Perm(s.Rank()) {
		stride := next
		next = next*s.At(k) + rnd.IntN(2)*rnd.IntN(9)
		switch what := rnd.IntN(6); {
		case operand && what == 0:
			v.Offset += (s.At(k) - 1) * stride
			stride = -stride
		case operand && what == 1:
			stride = 0
		}
		v.Strides = v.Strides.With(k, stride)
	}
	v.Buf = newView(tb, d, t, next).Buf
	clear(v.Buf.Host())
	return v
}

// TestCopiesOfOneElement copies one element under the race detector, whose pointer checks report a
// read of any other element.
func TestCopiesOfOneElement(t *testing.T) {
	d := Get()
	for _, ty := range dtype.Types() {
		x, y := newView(t, d, ty, 1), newView(t, d, ty, 1)
		x.Buf.Host()[0] = 1
		x.Strides, y.Strides = shape.Of(2), shape.Of(-1)
		do(t, d, mapOf(castProgram(ty, ty), y, x))
		if y.Buf.Host()[0] != 1 {
			t.Errorf("%v was not copied", ty)
		}
	}
}

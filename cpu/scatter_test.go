package cpu

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// TestScatterAbreast scatters along an axis that is not the innermost. Targets whose innermost
// dimension is contiguous are scattered many lines at a time, others line by line. Results and
// errors must be the same.
func TestScatterAbreast(t *testing.T) {
	d := newDevice(2)
	r := rand.New(rand.NewPCG(1, 2))
	element := func(v *device.View, i, j, k int) unsafe.Pointer {
		return unsafe.Add(pointer(v), v.Type.Size()*(i*v.Strides.At(0)+j*v.Strides.At(1)+k*v.Strides.At(2)))
	}
	each := func(v *device.View, f func(i, j, k int)) {
		for p := range v.Size() {
			m, c := v.Shape.At(1), v.Shape.At(2)
			f(p/(m*c), p/c%m, p%c)
		}
	}
	const bound = 6
	for _, s := range [][3]int{{1, 5, 8}, {3, 4, 9}, {2, 3, 1030}, {2, 70, 600}, {4, 9, 3}} {
		for kind := range device.ScatterMin + 1 {
			for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16, dtype.I64, dtype.I32, dtype.I16, dtype.I8, dtype.U8, dtype.Bool} {
				for k, it := range []dtype.Type{dtype.I64, dtype.I32, dtype.I64} {
					src, index := newView(t, d, typ, s[:]...), newView(t, d, it, s[:]...)
					to, turned := newView(t, d, typ, s[0], bound, s[2]), newView(t, d, typ, s[0], s[2], bound)
					turned.Layout = turned.Transpose(1, 2)
					bits := func() uint64 {
						if typ == dtype.Bool {
							return r.Uint64() & 1
						}
						return r.Uint64() & 0x3f3f3f3f3f3f3f3f // no NaN
					}
					each(&src, func(i, j, k int) { writeBits(element(&src, i, j, k), typ.Size(), bits()) })
					each(&to, func(i, j, k int) {
						b := bits()
						writeBits(element(&to, i, j, k), typ.Size(), b)
						writeBits(element(&turned, i, j, k), typ.Size(), b)
					})
					each(&index, func(i, j, c int) {
						x := r.IntN(bound)
						if k == 2 && r.IntN(99) == 0 {
							x += bound
						} else if r.IntN(3) == 0 {
							x -= bound // with Wrap, the same element
						}
						writeBits(element(&index, i, j, c), it.Size(), uint64(x))
					})
					name := fmt.Sprintf("%v of %v with indices %v, kind %d", s, typ, it, kind)
					o := device.Scatter{Kind: kind, Dst: to, Src: src, Index: index, Axis: 1, Wrap: true}
					got := device.Run(d, nil, &o)
					o.Dst = turned
					want := device.Run(d, nil, &o)
					var a, b *device.IndexError
					if errors.As(got, &a) != errors.As(want, &b) || a != nil && *a != *b {
						t.Errorf("%s: %v, want %v", name, got, want)
					}
					different := 0
					each(&to, func(i, j, k int) {
						if readBits(element(&to, i, j, k), typ.Size()) != readBits(element(&turned, i, j, k), typ.Size()) {
							different++
						}
					})
					if different > 0 {
						t.Errorf("%s: %d elements differ", name, different)
					}
				}
			}
		}
	}
}

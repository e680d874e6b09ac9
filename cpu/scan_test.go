package cpu

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// TestScanInPlace scans contiguous rows, and the same rows with gaps between their elements. The
// results must have the same bits. Only a NaN may have other bits.
func TestScanInPlace(t *testing.T) {
	d := Get()
	rnd := rand.New(rand.NewPCG(8, 9))
	special := []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), math.MaxFloat64}
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.I64} {
		for _, s := range [][2]int{{1, 1}, {3, 50}, {4, 7}, {9, 300}} {
			rows, n := s[0], s[1]
			apart := newView(t, d, typ, rows, 2*n)
			apart.Layout = shape.Layout{Shape: shape.Of(rows, n, 1), Strides: shape.Of(2*n, 2, 1)}
			plain := newView(t, d, typ, rows, n, 1)
			for i := range rows * n {
				v := 0.5 + rnd.Float64()
				if i%31 == 0 {
					v = special[i/31%len(special)]
				}
				if typ == dtype.I64 {
					v = float64(i)
				}
				size, b := typ.Size(), expr.Encode(typ, v)
				writeBits(unsafe.Add(pointer(&plain), i*size), size, b)
				writeBits(unsafe.Add(pointer(&apart), 2*i*size), size, b)
			}
			for _, kind := range []device.ScanKind{device.ScanSum, device.ScanProd, device.ScanLinear} {
				if kind == device.ScanLinear && typ == dtype.I64 {
					continue // recurrences are of floats
				}
				for _, reverse := range []bool{false, true} {
					var got [2][]byte
					for i, x := range []device.View{plain, apart} {
						out := newView(t, d, typ, rows, n, 1)
						ins := views(x)
						if kind == device.ScanLinear {
							ins = views(x, x)
						}
						do(t, d, &device.Scan{Kind: kind, Out: out, Ins: ins, Reverse: reverse})
						for k, size := 0, typ.Size(); k < rows*n; k++ {
							p := unsafe.Add(pointer(&out), k*size)
							if v := expr.Decode(typ, readBits(p, size)); v != v {
								writeBits(p, size, 0)
							}
						}
						got[i] = bytes.Clone(out.Buf.Host())
					}
					if !bytes.Equal(got[0], got[1]) {
						t.Errorf("%v of %d rows of %d %v, reverse %v: the bits differ", kind, rows, n, typ, reverse)
					}
				}
			}
		}
	}
}

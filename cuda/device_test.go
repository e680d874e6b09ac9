package cuda

import (
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/device/devicetest"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

func TestConformance(t *testing.T) { devicetest.Run(t, emulated(t, "emulate,mem=64MiB")) }

// TestConformanceUnderAdversarialOrder runs the conformance suite on the oldest supported compute
// capability. Streams run as late as possible, and memory grows by pages.
func TestConformanceUnderAdversarialOrder(t *testing.T) {
	devicetest.Run(t, emulated(t, "emulate,mem=64MiB,sm=80,seed=1,expandable=on"))
}

// TestConformanceOnHardware runs the conformance suite on a real GPU.
func TestConformanceOnHardware(t *testing.T) {
	d := hardware(t)
	if d == nil {
		t.Skip("needs a GPU: ", Unavailable())
	}
	devicetest.Run(t, d)
}

// TestConstantsWrap stores a constant that is too large for a narrow integer type. The stored value
// must be the constant modulo the type's range.
func TestConstantsWrap(t *testing.T) {
	d := emulated(t, "emulate,mem=16MiB")
	for _, typ := range []dtype.Type{dtype.U8, dtype.I8, dtype.I16} {
		for _, c := range []int{-1, 300, 70000, -129, 200, 40000} {
			for _, n := range []int{1, 3, 64, 67} {
				p := expr.MustLower([]*expr.Expr{expr.C(float64(c)).Cvt(dtype.I32)}, []dtype.Type{typ}, nil, -1)
				b, err := d.Alloc(n*typ.Size(), nil, device.Origin{Op: "test"})
				must(t, err)
				out := device.View{Buf: b, Type: typ, Layout: shape.Dense(shape.Of(n))}
				if err := apply(d, nil, p, views(out), nil); err != nil {
					t.Errorf("%v %d %d: %v", typ, c, n, err)
					continue
				}
				got := make([]byte, n*typ.Size())
				must(t, d.Download(nil, got, b, 0))
				for i := range n {
					if got[i*typ.Size()] != byte(c) || typ.Size() == 2 && got[2*i+1] != byte(c>>8) {
						t.Errorf("%v %d: element %d is %x", typ, c, i, got[i*typ.Size():][:typ.Size()])
						break
					}
				}
				b.Free()
			}
		}
	}
}

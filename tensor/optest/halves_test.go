package optest

import (
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestHalvesAreRoundedFloat32 compares elementwise functions of 16-bit floats with the rounded
// float32 results of the same operands. They may differ by at most one unit in the last place. NaN,
// infinities and the sign of zero must be the same. The operands are samples and all pairs of
// special values.
func TestHalvesAreRoundedFloat32(t *testing.T) {
	gpu := emulated(t)
	for _, e := range tensor.Declared() {
		if e.Result == tensor.Integral || testing.Short() && !someOps(e.Name) {
			continue
		}
		for _, ty := range []dtype.Type{dtype.F16, dtype.BF16} {
			for _, dev := range []device.Device{hostDevice(), gpu} {
				guard(t, e.Name, func(s *tensor.Scope) {
					w := &walk{dev: dev}
					var half, single []*tt
					for k := range e.Arity {
						d := e.Domain[min(k, len(e.Domain)-1)]
						a := sample(random(e.Name, "halves"), typeOf(e, k, ty), d[0], d[1], 500)
						for i := range len(special) * len(special) {
							v := special[i%len(special)]
							if k == 1 {
								v = special[i/len(special)]
							} else if k == 2 {
								v = special[(i+i/len(special))%len(special)]
							}
							a.v[i] = v
						}
						x := w.put(s, &a, typeOf(e, k, ty), contiguous)
						half = append(half, x)
						if e.Fixed>>k&1 == 0 {
							x = x.Float()
						}
						single = append(single, x)
					}
					got, want := call(e, half), call(e, single)
					if e.Result != tensor.Truth {
						want = want.Cast(ty)
					}
					if got.Type() != want.Type() {
						t.Errorf("%s of %v on %s is %v, want %v", e.Name, ty, dev.Name(), got.Type(), want.Type())
						return
					}
					g, f := got.Floats(), want.Floats()
					for i := range f {
						same := g[i] == f[i] && math.Signbit(g[i]) == math.Signbit(f[i]) || g[i] != g[i] && f[i] != f[i]
						near := g[i] != 0 && f[i] != 0 && math.Abs(g[i]-f[i]) <= ulp(ty, f[i]) && !math.IsInf(g[i], 0) && !math.IsInf(f[i], 0)
						if !same && !near {
							t.Errorf("%s of %v on %s: element %d is %v, the rounded float32 result %v", e.Name, ty, dev.Name(), i, g[i], f[i])
							return
						}
					}
				})
			}
		}
	}
}

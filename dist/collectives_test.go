package dist

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// lists returns two lists of devices for each number of ranks: one of CPU ranks, and one of GPUs.
func lists(t testing.TB, worlds ...int) map[string]DeviceList {
	t.Helper()
	all := map[string]DeviceList{}
	for _, n := range worlds {
		gpus, err := cuda.Emulate(fmt.Sprintf("emulate:%d,mem=64MiB", n))
		if err != nil {
			t.Fatal(err)
		}
		var list []device.Device
		var names []string
		for _, d := range gpus {
			list = append(list, d)
			names = append(names, "cpu")
		}
		all[fmt.Sprintf("cuda×%d", n)] = On(list...)
		all[fmt.Sprintf("cpu×%d", n)] = Devices(names...)
	}
	return all
}

// forEach runs f on every list of [lists]. With -short it leaves out the GPUs: CI runs the race
// detector with -short, and the emulator is slow under the race detector. Tests that call lists
// directly use GPUs even with -short.
func forEach(t *testing.T, worlds []int, f func(t *testing.T, l DeviceList)) {
	for name, l := range lists(t, worlds...) {
		if testing.Short() && strings.HasPrefix(name, "cuda") {
			continue
		}
		t.Run(name, func(t *testing.T) { f(t, l) })
	}
}

// run calls Run with copies between devices in place of NCCL. It fails the test if Run returns an
// error.
func run(t testing.TB, l DeviceList, f func(g *Group), opts ...Option) {
	t.Helper()
	running(t, l, f, append([]Option{InProcess()}, opts...)...)
}

func running(t testing.TB, l DeviceList, f func(g *Group), opts ...Option) {
	t.Helper()
	err := Run(context.Background(), l, func(_ context.Context, g *Group) error {
		f(g)
		return nil
	}, opts...)
	if err != nil {
		t.Fatal(err)
	}
}

// element returns element i of rank r: a small whole number, whose sums are exact in every type.
func element(r, i int) float64 { return float64((i*7+r*3)%5 + 1) }

func filled(s *tensor.Scope, typ dtype.Type, r, n int) *tensor.Tensor {
	v := make([]float64, n)
	for i := range v {
		v[i] = element(r, i)
	}
	return s.Typed(dtype.F64).From(v).Cast(typ)
}

func want(t *testing.T, what string, x *tensor.Tensor, f func(i int) float64) {
	t.Helper()
	for i, v := range x.Floats() {
		if w := f(i); math.Abs(v-w) > 1e-2*math.Abs(w) {
			t.Errorf("%s: element %d is %v, want %v", what, i, v, w)
			return
		}
	}
}

// TestCollectives compares every collective, type and size with a simple reference.
func TestCollectives(t *testing.T) {
	forEach(t, []int{1, 2, 3, 4}, func(t *testing.T, l DeviceList) { checkCollectives(t, l, InProcess()) })
}

// checkCollectives tests all collectives. Every backend must pass it.
func checkCollectives(t *testing.T, l DeviceList, opts ...Option) {
	types := []dtype.Type{dtype.F32, dtype.F64, dtype.F16, dtype.BF16, dtype.I64, dtype.I32, dtype.I16, dtype.U8}
	running(t, l, func(g *Group) {
		w, r := g.World(), g.Rank()
		for _, typ := range types {
			for _, n := range []int{0, 1, 5, 1000} {
				name := fmt.Sprintf("%v of %d", typ, n)
				g.Do(func(s *tensor.Scope) {
					for _, c := range []Combine{Sum, Mean, Max, Min, Product} {
						if c == Mean && !typ.IsFloat() || c == Product && typ == dtype.U8 {
							continue
						}
						x := filled(s, typ, r, n)
						g.AllReduce(x, c)
						want(t, "all reduce "+c.String()+" "+name, x, func(i int) float64 { return combined(c, w, i) })
						y := s.Typed(typ).Empty(n)
						g.ReduceScatter(y, filled(s, typ, r, w*n), c)
						want(t, "reduce scatter "+c.String()+" "+name, y, func(i int) float64 { return combined(c, w, r*n+i) })
					}
					for root := range w {
						x := filled(s, typ, r, n)
						g.Broadcast(x, root)
						want(t, "broadcast "+name, x, func(i int) float64 { return element(root, i) })
						var all, parts *tensor.Tensor
						if r == root {
							all, parts = s.Typed(typ).Empty(w, n), filled(s, typ, r, w*n)
						}
						g.Gather(all, filled(s, typ, r, n), root)
						if r == root {
							want(t, "gather "+name, all, func(i int) float64 { return element(i/n, i%n) })
						}
						y := s.Typed(typ).Empty(n)
						g.Scatter(y, parts, root)
						want(t, "scatter "+name, y, func(i int) float64 { return element(root, r*n+i) })
					}
					all := s.Typed(typ).Empty(w, n)
					g.AllGather(all, filled(s, typ, r, n))
					want(t, "all gather "+name, all, func(i int) float64 { return element(i/n, i%n) })
					y := s.Typed(typ).Empty(w, n)
					g.AllToAll(y, filled(s, typ, r, w*n))
					want(t, "all to all "+name, y, func(i int) float64 { return element(i/n, r*n+i%n) })
					if w > 1 {
						got := s.Typed(typ).Empty(n)
						g.Send(filled(s, typ, r, n), (r+1)%w)
						g.Recv(got, (r+w-1)%w)
						want(t, "send "+name, got, func(i int) float64 { return element((r+w-1)%w, i) })
					}
				})
			}
		}
		g.Barrier()
	}, opts...)
}

func combined(c Combine, world, i int) float64 {
	v := element(0, i)
	for r := 1; r < world; r++ {
		x := element(r, i)
		switch c {
		case Max:
			v = max(v, x)
		case Min:
			v = min(v, x)
		case Product:
			v *= x
		default:
			v += x
		}
	}
	if c == Mean {
		v /= float64(world)
	}
	return v
}

// TestRounds sums more elements than fit into a staging buffer, so the sum needs several rounds.
// The result must be exact.
func TestRounds(t *testing.T) {
	forEach(t, []int{2, 3}, func(t *testing.T, l DeviceList) {
		run(t, l, func(g *Group) {
			g.Do(func(s *tensor.Scope) {
				n := 2*g.World()*staged/4 + 77
				x := s.Typed(dtype.F32).Full(float64(g.Rank()+1), n)
				x.Narrow(0, n-1, 1).AddScalarInPlace(float64(10 * g.Rank()))
				g.AllReduce(x, Sum)
				w := float64(g.World())
				sum := w * (w + 1) / 2
				for i, v := range x.Floats() {
					if i < n-1 && v != sum || i == n-1 && v != sum+5*w*(w-1) {
						t.Errorf("%v: element %d is %v", g, i, v)
						return
					}
				}
			})
		})
	})
}

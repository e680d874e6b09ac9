package tensor_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func on(t *testing.T, what string, x *tt, dev device.Device) {
	t.Helper()
	if x.Device() != dev {
		t.Errorf("%s is on %s, want %s", what, x.Device().Name(), dev.Name())
	}
}

func TestBroadcastToDevices(t *testing.T) {
	devs := threeDevices(t)
	for _, home := range devs {
		tensor.Do(func(s *tensor.Scope) {
			x := s.From([]float32{1, 2, 3, 4, 5, 6}, 2, 3).T().RequiresGrad()
			x = x.In(s)
			copies := x.BroadcastToDevices(devs...)
			for i, y := range copies {
				on(t, "a copy", y, devs[i])
				values(t, "a copy", y, 1, 4, 2, 5, 3, 6)
				if y == x {
					t.Error("a copy is x itself")
				}
			}
			// The gradients are added in the order of the devices. Another order would give other
			// bits.
			var loss *tt
			for i, y := range copies {
				l := y.Mul(y.Scope().On(devs[i]).From([]float32{1e8, 1, -1e8}[i : i+1])).Sum().To(home)
				if loss == nil {
					loss = l
				} else {
					loss = loss.Add(l)
				}
			}
			loss.Backward()
			zero := float64(float32(float32(1e8)+1) - 1e8)
			values(t, "the gradient", x.Grad(), zero, zero, zero, zero, zero, zero)
			on(t, "the gradient", x.Grad(), home)

			// These cases use only one result, use one device twice, and check second derivatives.
			x.ZeroGrad()
			x.BroadcastToDevices(devs...)[2].Sum().Backward()
			values(t, "the gradient by one", x.Grad(), 1, 1, 1, 1, 1, 1)
			pair := x.Detach().BroadcastToDevices(devs[1], devs[1])
			on(t, "one of two", pair[0], devs[1])
			on(t, "the other", pair[1], devs[1])
		}, tensor.On(home))
	}
}

func TestBroadcastToDevicesAddsInOrder(t *testing.T) {
	devs := threeDevices(t)
	tensor.Do(func(s *tensor.Scope) {
		factors := []float32{1e8, 1, -1e8, 1}
		for _, order := range [][]int{{0, 1, 2, 3}, {0, 2, 1, 3}, {3, 2, 1, 0}} {
			var list []device.Device
			want := float32(0)
			for k, i := range order {
				list = append(list, devs[k%3])
				want += factors[i]
			}
			x := s.From([]float32{1}).RequiresGrad()
			var losses []*tt
			for k, y := range x.BroadcastToDevices(list...) {
				losses = append(losses, y.MulScalar(float64(factors[order[k]])).Sum())
			}
			slices.Reverse(losses)
			tensor.ReduceAddToDevice(devs[0], losses...).Backward()
			values(t, fmt.Sprint("the gradient, order ", order), x.Grad(), float64(want))
		}
	})
}

func TestScatterToDevices(t *testing.T) {
	devs := threeDevices(t)
	for _, home := range devs {
		tensor.Do(func(s *tensor.Scope) {
			x := s.Arange(10).Float().Reshape(5, 2).RequiresGrad()
			parts := x.ScatterToDevices(0, devs)
			for i, want := range [][]float64{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}} {
				on(t, "a part", parts[i], devs[i])
				values(t, "a part", parts[i], want...)
			}
			all := tensor.GatherToDevice(0, home, parts[0].MulScalar(1), parts[1].MulScalar(2), parts[2].MulScalar(3))
			on(t, "the whole", all, home)
			values(t, "the whole", all, 0, 1, 2, 3, 8, 10, 12, 14, 24, 27)
			all.Square().Sum().Backward()
			values(t, "the gradient", x.Grad(), 0, 2, 4, 6, 32, 40, 48, 56, 144, 162)
			on(t, "the gradient", x.Grad(), home)

			// The parts are torch's chunks. If there are too few rows, there are fewer parts than
			// devices. If there are no rows, all parts are empty.
			for rows, want := range map[int][]int{1: {1}, 2: {1, 1}, 4: {2, 2}, 7: {3, 3, 1}, 0: {0, 0, 0}} {
				var got []int
				for i, p := range s.Zeros(2, rows).ScatterToDevices(-1, devs) {
					got = append(got, p.Dim(1))
					on(t, "a part", p, devs[i])
				}
				if !slices.Equal(got, want) {
					t.Errorf("%d rows over 3 devices are %v, want %v", rows, got, want)
				}
			}
			// Here the sizes are given, and another dimension is divided.
			sized := x.Detach().T().ScatterToDevices(1, devs, 3, 0, 2)
			values(t, "three columns", sized[0], 0, 2, 4, 1, 3, 5)
			values(t, "no column", sized[1])
			values(t, "two columns", sized[2], 6, 8, 7, 9)
			back := tensor.GatherToDevice(-1, home, sized...)
			values(t, "the columns", back, 0, 2, 4, 6, 8, 1, 3, 5, 7, 9)
		}, tensor.On(home))
	}
}

func TestGatherToDevice(t *testing.T) {
	devs := threeDevices(t)
	for _, home := range devs {
		tensor.Do(func(s *tensor.Scope) {
			var list, scalars, bools []*tt
			for i, d := range devs {
				m := s.On(d)
				list = append(list, m.Arange(6).Float().AddScalar(float64(10*i)).Reshape(3, 2).T().RequiresGrad())
				scalars = append(scalars, m.Full(float64(i)).RequiresGrad())
				bools = append(bools, m.From([]bool{i == 1}))
			}
			rows := tensor.GatherToDevice(0, home, list...)
			on(t, "rows", rows, home)
			values(t, "rows", rows, 0, 2, 4, 1, 3, 5, 10, 12, 14, 11, 13, 15, 20, 22, 24, 21, 23, 25)
			columns := tensor.GatherToDevice(1, home, list...)
			values(t, "columns", columns, 0, 2, 4, 10, 12, 14, 20, 22, 24, 1, 3, 5, 11, 13, 15, 21, 23, 25)
			columns.Mul(s.Arange(18).Float().Reshape(2, 9)).Sum().Backward()
			for i, x := range list {
				on(t, "a gradient", x.Grad(), devs[i])
				k := float64(3 * i)
				values(t, "a gradient", x.Grad(), k, k+1, k+2, k+9, k+10, k+11)
			}
			losses := tensor.GatherToDevice(0, home, scalars...)
			values(t, "losses", losses, 0, 1, 2)
			losses.Mul(s.From([]float32{5, 6, 7})).Sum().Backward()
			for i, x := range scalars {
				values(t, "the gradient of a loss", x.Grad(), float64(5+i))
				on(t, "the gradient of a loss", x.Grad(), devs[i])
			}
			values(t, "bools", tensor.GatherToDevice(0, home, bools...), 0, 1, 0)
			one := tensor.GatherToDevice(0, home, list[1].Detach())
			values(t, "one", one, 10, 12, 14, 11, 13, 15)
			on(t, "one", one, home)

			// Only some operands require a gradient, and the run asks for only one of these
			// gradients.
			y := tensor.GatherToDevice(0, home, list[0].Detach(), list[1], list[2]).Square().Sum()
			g := tensor.Gradients(y, []*tt{list[2]})
			on(t, "the gradient of one", g[0], devs[2])
			values(t, "the gradient of one", g[0], 40, 44, 48, 42, 46, 50)
		}, tensor.On(home))
	}
}

func TestReduceAddToDevice(t *testing.T) {
	devs := threeDevices(t)
	for _, home := range devs {
		tensor.Do(func(s *tensor.Scope) {
			var list []*tt
			for i, v := range []float32{1e8, 1, -1e8, 1} {
				list = append(list, s.On(devs[i%3]).From([]float32{v, float32(i)}).RequiresGrad())
			}
			y := tensor.ReduceAddToDevice(home, list...)
			on(t, "the sum", y, home)
			values(t, "the sum", y, 1, 6)
			list[1], list[2] = list[2], list[1]
			values(t, "the sum in another order", tensor.ReduceAddToDevice(home, list...), 2, 6)
			y.Mul(s.From([]float32{3, 4})).Sum().Backward()
			for _, x := range list {
				on(t, "a gradient", x.Grad(), x.Device())
				values(t, "a gradient", x.Grad(), 3, 4)
			}
			values(t, "the first operand", list[0], 1e8, 0)
			for _, x := range list {
				one := tensor.ReduceAddToDevice(home, x)
				on(t, "the sum of one", one, home)
				values(t, "the sum of one", one, x.Floats()...)
				one.Sum().Backward()
				values(t, "its gradient", x.Grad(), 4, 5)
			}
		}, tensor.On(home))
	}
}

// TestCrossDeviceDerivatives checks that first and second derivatives across devices equal finite
// differences.
func TestCrossDeviceDerivatives(t *testing.T) {
	devs := threeDevices(t)
	tensor.Do(func(s *tensor.Scope) {
		whole := func(home device.Device) []*tt {
			return []*tt{s.On(home).Typed(dtype.F64).Linspace(0.3, 1.7, 6).Reshape(3, 2).RequiresGrad()}
		}
		var spread []*tt
		for i, d := range devs {
			spread = append(spread, s.On(d).Typed(dtype.F64).Linspace(0.5, 1.5, 4).AddScalar(float64(i)).Detach().Reshape(2, 2).Clone().RequiresGrad())
		}
		for _, home := range devs {
			for name, c := range map[string]struct {
				in []*tt
				f  func(x []*tt) *tt
			}{
				"broadcast": {whole(home), func(x []*tt) *tt {
					y := x[0].BroadcastToDevices(devs...)
					return tensor.ReduceAddToDevice(home, y[0].Square(), y[1].Exp(), y[2].PowScalar(3)).Mul(x[0])
				}},
				"scatter": {whole(home), func(x []*tt) *tt {
					y := x[0].ScatterToDevices(0, devs, 1, 2, 0)
					return tensor.GatherToDevice(0, devs[1], y[1].Exp(), y[0].Square(), y[2])
				}},
				"gather": {spread, func(x []*tt) *tt {
					return tensor.GatherToDevice(1, home, x...).Square()
				}},
				"reduce": {spread, func(x []*tt) *tt {
					return tensor.ReduceAddToDevice(home, x...).PowScalar(3)
				}},
			} {
				if err := autograd.Check(c.f, c.in, autograd.CheckOptions{SecondOrder: true}); err != nil {
					t.Errorf("%s on %s: %v", name, home.Name(), err)
				}
			}
		}
	})
}

func TestCrossDeviceRefuses(t *testing.T) {
	devs := threeDevices(t)
	tensor.Do(func(s *tensor.Scope) {
		a, b := s.Ones(2, 3), s.On(devs[1]).Ones(2, 3)
		freed := s.Ones(1)
		freed.Free()
		for what, c := range map[string]struct {
			kind error
			says string
			f    func()
		}{
			"broadcast to nowhere":    {tensor.ErrValue, "no devices", func() { a.BroadcastToDevices() }},
			"broadcast to nil":        {tensor.ErrDevice, "device 1 is nil", func() { a.BroadcastToDevices(devs[0], nil) }},
			"broadcast of freed":      {tensor.ErrFreed, "broadcast_to_devices", func() { freed.BroadcastToDevices(devs...) }},
			"scatter to nowhere":      {tensor.ErrValue, "no devices", func() { a.ScatterToDevices(0, nil) }},
			"scatter to nil":          {tensor.ErrDevice, "device 0 is nil", func() { a.ScatterToDevices(0, []device.Device{nil}) }},
			"scatter of a number":     {tensor.ErrShape, "rank 0", func() { s.Ones().ScatterToDevices(0, devs) }},
			"scatter beyond":          {tensor.ErrShape, "dimension 2", func() { a.ScatterToDevices(2, devs) }},
			"scatter of few sizes":    {tensor.ErrValue, "2 sizes for 3 devices", func() { a.ScatterToDevices(0, devs, 1, 1) }},
			"scatter of wrong sizes":  {tensor.ErrShape, "do not add up", func() { a.ScatterToDevices(0, devs, 1, 1, 1) }},
			"gather of nothing":       {tensor.ErrValue, "no tensors", func() { tensor.GatherToDevice(0, devs[0]) }},
			"gather to nil":           {tensor.ErrDevice, "nil", func() { tensor.GatherToDevice(0, nil, a) }},
			"gather of nil":           {tensor.ErrValue, "nil", func() { tensor.GatherToDevice(0, devs[0], a, nil) }},
			"gather of types":         {tensor.ErrType, "tensor 1 is of type float64, the first of float32", func() { tensor.GatherToDevice(0, devs[0], a, b.Double()) }},
			"gather of ranks":         {tensor.ErrShape, "tensor 1 has 1 dimensions, the first 2", func() { tensor.GatherToDevice(0, devs[0], a, b.Reshape(-1)) }},
			"gather of a number":      {tensor.ErrShape, "tensor 1 has 0 dimensions", func() { tensor.GatherToDevice(0, devs[0], a, b.Sum()) }},
			"gather of numbers":       {tensor.ErrShape, "dimension 1", func() { tensor.GatherToDevice(1, devs[0], a.Sum(), b.Sum()) }},
			"gather of shapes":        {tensor.ErrShape, "in another dimension than 0", func() { tensor.GatherToDevice(0, devs[0], a, b.Narrow(1, 0, 2)) }},
			"gather beyond":           {tensor.ErrShape, "dimension -3", func() { tensor.GatherToDevice(-3, devs[0], a, b) }},
			"reduce of nothing":       {tensor.ErrValue, "no tensors", func() { tensor.ReduceAddToDevice(devs[0]) }},
			"reduce to nil":           {tensor.ErrDevice, "nil", func() { tensor.ReduceAddToDevice(nil, a) }},
			"reduce of types":         {tensor.ErrType, "tensor 1", func() { tensor.ReduceAddToDevice(devs[0], a, b.Double()) }},
			"reduce of shapes":        {tensor.ErrShape, "tensor 1 has shape [3, 2]", func() { tensor.ReduceAddToDevice(devs[0], a, b.T()) }},
			"an op that does not say": {tensor.ErrDevice, "cpu and cuda:0", func() { tensor.Cat(0, a, b) }},
		} {
			if err := tensor.Try(c.f); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// TestFuncCrossesDevices applies a program's own function to operands on several devices, and saves
// tensors on each of them. A gradient on the wrong device must be an error.
func TestFuncCrossesDevices(t *testing.T) {
	devs := threeDevices(t)
	dot := autograd.Func{
		Name:           "dot_across",
		CrossesDevices: true,
		Forward: func(c *tensor.Context, in []*tt) *tt {
			c.Save(in...)
			return in[0].To(devs[2]).Mul(in[1].To(devs[2])).Sum()
		},
		Backward: func(c *tensor.Context, g *tt) []*tt {
			a, b := c.Saved(0), c.Saved(1)
			return []*tt{b.To(a.Device()).Mul(g.To(a.Device())), a.To(b.Device()).Mul(g.To(b.Device()))}
		},
	}
	wrong := dot
	wrong.Backward = func(c *tensor.Context, g *tt) []*tt {
		return []*tt{c.Saved(1).Mul(g.To(devs[1])), nil}
	}
	once := dot
	once.OnceDifferentiable = true
	plain := dot
	plain.CrossesDevices = false
	pack := tensor.SavedTensorsHooks(func(x *tt) any { return x.CPU() }, func(s *tensor.Scope, v any) *tt { return v.(*tt) })
	tensor.Do(func(s *tensor.Scope) {
		a := s.Typed(dtype.F64).From([]float64{1, 2}).RequiresGrad()
		b := s.On(devs[1]).Typed(dtype.F64).From([]float64{3, 5}).RequiresGrad()
		if err := autograd.Check(func(x []*tt) *tt { return dot.Apply(x...).Square() }, []*tt{a, b}, autograd.CheckOptions{SecondOrder: true}); err != nil {
			t.Error(err)
		}
		if err := tensor.Try(func() { wrong.Apply(a, b).Backward() }); !errors.Is(err, tensor.ErrGrad) || !strings.Contains(err.Error(), "on cuda:0 for operand 0, of shape [2] on cpu") {
			t.Errorf("a gradient on a wrong device: %v", err)
		}
		if err := tensor.Try(func() { plain.Apply(a, b) }); !errors.Is(err, tensor.ErrDevice) {
			t.Errorf("a function that does not say that it crosses: %v", err)
		}
		g := tensor.Gradients(once.Apply(a, b), []*tt{a, b}, tensor.CreateGraph())
		values(t, "the gradient, once", g[1], 1, 2)
		if err := tensor.Try(func() { tensor.Gradients(g[0].Sum(), []*tt{b}) }); !errors.Is(err, tensor.ErrGrad) {
			t.Errorf("a second derivative of what has one only: %v", err)
		}
		// hooks see each value on its device, and must return a value on the same device
		s.Do(func(s *tensor.Scope) {
			y := dot.Apply(a.In(s), b.In(s))
			if err := tensor.Try(func() { y.Backward() }); !errors.Is(err, tensor.ErrDevice) || !strings.Contains(err.Error(), "which is on cuda:0") {
				t.Errorf("a saved value that comes back elsewhere: %v", err)
			}
		}, pack)
	})
}

// TestCrossDeviceStreams records the streams of a VJP. The VJP must queue its work for a device on
// the stream that the forward pass used there, whatever the device of the result is.
func TestCrossDeviceStreams(t *testing.T) {
	devs := threeDevices(t)
	st, err := devs[1].NewStream(0)
	if err != nil {
		t.Fatal(err)
	}
	var seen []device.Stream
	look := autograd.Func{
		Name:           "look",
		CrossesDevices: true,
		Forward:        func(c *tensor.Context, in []*tt) *tt { return in[0].To(devs[2]) },
		Backward: func(c *tensor.Context, g *tt) []*tt {
			for _, d := range devs[1:] {
				seen = append(seen, c.Scope().Stream(d))
			}
			return []*tt{g.To(devs[1]), nil}
		},
	}
	tensor.Do(func(s *tensor.Scope) {
		a, b := s.Ones(2).RequiresGrad(), s.On(devs[2]).Ones(2)
		var y *tt
		s.Do(func(c *tensor.Scope) {
			y = look.Apply(a.In(c), b).Sum()
			c.Close(y)
		}, tensor.Stream(st))
		y.Backward()
		values(t, "the gradient", a.Grad(), 1, 1)
	}, tensor.On(devs[1]))
	if want := []device.Stream{st, devs[2].DefaultStream()}; !slices.Equal(seen, want) {
		t.Errorf("the streams of the VJP are %v, want %v", seen, want)
	}
}

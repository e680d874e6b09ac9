package tensor_test

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
	"github.com/flambeau-go/flambeau/tensor"
)

// doubleOnHost writes 2·x to y, in the CPU's memory.
func doubleOnHost(_ device.Stream, outs, ins []device.View) error {
	y, x := outs[0].Buf.Host()[4*outs[0].Offset:], ins[0].Buf.Host()[4*ins[0].Offset:]
	for i := range ins[0].Size() {
		v := math.Float32frombits(binary.NativeEndian.Uint32(x[4*i:]))
		binary.NativeEndian.PutUint32(y[4*i:], math.Float32bits(2*v))
	}
	return nil
}

func TestRawOnHost(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x, y := s.From([]float32{0, 1, 2, 3}).Narrow(0, 1, 3), s.Zeros(3)
		version := y.Version()
		tensor.Raw("double", []*tensor.Tensor{y}, []*tensor.Tensor{x}, doubleOnHost)
		if got := y.Floats(); got[0] != 2 || got[2] != 6 {
			t.Errorf("the result is %v", got)
		}
		if y.Version() != version+1 || x.Version() != 0 {
			t.Errorf("versions are %d and %d", y.Version(), x.Version())
		}
	})
}

func TestRawMisuse(t *testing.T) {
	gpu, _ := emulated(t, 1)
	cause := errors.New("no such luck")
	nothing := func(device.Stream, []device.View, []device.View) error { return nil }
	tensor.Do(func(s *tensor.Scope) {
		x, leaf, freed := s.Ones(3), s.Ones(3).RequiresGrad(), s.Ones(3)
		freed.Free()
		list := func(x ...*tensor.Tensor) []*tensor.Tensor { return x }
		for name, c := range map[string]struct {
			kind error
			f    func()
		}{
			"no results":      {tensor.ErrValue, func() { tensor.Raw("own", nil, list(x), nothing) }},
			"freed operand":   {tensor.ErrFreed, func() { tensor.Raw("own", list(x), list(freed), nothing) }},
			"freed result":    {tensor.ErrFreed, func() { tensor.Raw("own", list(freed), nil, nothing) }},
			"nil":             {tensor.ErrValue, func() { tensor.Raw("own", list(nil), nil, nothing) }},
			"two devices":     {tensor.ErrDevice, func() { tensor.Raw("own", list(x), list(s.On(gpu).Ones(3)), nothing) }},
			"lost gradient":   {tensor.ErrGrad, func() { tensor.Raw("own", list(s.Zeros(3)), list(leaf), nothing) }},
			"leaf in place":   {tensor.ErrGrad, func() { tensor.Raw("own", list(leaf), list(x), nothing) }},
			"expanded result": {tensor.ErrShape, func() { tensor.Raw("own", list(s.Ones(1).Expand(3)), list(x), nothing) }},
			"error of the work": {cause, func() {
				tensor.Raw("own", list(x), nil, func(device.Stream, []device.View, []device.View) error { return cause })
			}},
		} {
			err := tensor.Try(c.f)
			var e *tensor.Error
			if !errors.Is(err, c.kind) || !errors.As(err, &e) || e.Op != "own" || !strings.Contains(e.Site, "raw_test.go:") {
				t.Errorf("%s: %v, want %v", name, err, c.kind)
			}
		}
		// Here a graph has saved a value that Raw changes. Backward must refuse the value.
		p := leaf.MulScalar(2)
		y := p.Square().Sum()
		s.Do(func(c *tensor.Scope) { tensor.Raw("own", list(p.In(c)), nil, nothing) }, tensor.NoGrad())
		if err := tensor.Try(func() { y.Backward() }); !errors.Is(err, tensor.ErrInPlace) {
			t.Errorf("backward through a value that was overwritten: %v", err)
		}
	})
}

// TestRawStreams queues work in Raw on one stream. The work must see the results of earlier ops on
// another stream, and later ops on a third stream must see the result of the work.
func TestRawStreams(t *testing.T) {
	gpu, _ := emulated(t, 1)
	b := ptx.New("plus_one")
	b.MaxThreads(64)
	y, x, n := b.Pointer("y", ptx.F32), b.Pointer("x", ptx.F32), b.Param("n", ptx.U32)
	i := b.GlobalID()
	b.ReturnIf(i.Ge(n))
	y.At(i).Store(x.At(i).Load().Add(ptx.Float(1)))
	built, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	k, err := cuda.NewKernel(built, cuda.KernelConfig{Block: [3]int{64}})
	if err != nil {
		t.Fatal(err)
	}
	other, err := gpu.NewStream(0)
	if err != nil {
		t.Fatal(err)
	}
	tensor.Do(func(s *tensor.Scope) {
		x := s.Full(41, 1000)
		var y *tensor.Tensor
		s.Do(func(c *tensor.Scope) {
			y = c.Typed(dtype.F32).Empty(1000)
			tensor.Raw("plus_one", []*tensor.Tensor{y}, []*tensor.Tensor{x}, func(st device.Stream, outs, ins []device.View) error {
				if st != other {
					t.Errorf("the work is queued on %v, the scope's stream is %v", st.ID(), other.ID())
				}
				return gpu.(*cuda.Device).Launch(st, k, [3]int{(1000 + 63) / 64}, outs[0], ins[0], 1000)
			})
			c.Close(y)
		}, tensor.Stream(other))
		x.Fill(0) // this write waits for the kernel
		if v := y.MulScalar(2).Amin().Item(); v != 84 {
			t.Errorf("the result is %v, want 84", v)
		}
	}, tensor.On(gpu))
	if err := gpu.Synchronize(); err != nil {
		t.Error(err)
	}
}

func TestRawOfNothing(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		var e *tensor.Error
		if err := tensor.Try(func() { tensor.Raw("mine", []*tensor.Tensor{s.Zeros(1)}, nil, nil) }); !errors.As(err, &e) || e.Err != tensor.ErrValue || e.Op != "mine" {
			t.Errorf("the error is %v", err)
		}
	})
}

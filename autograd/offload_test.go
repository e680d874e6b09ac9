package autograd_test

import (
	"bytes"
	"testing"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestSaveOnCPU checks that the GPU's peak memory is only a few values if saved values go to the
// CPU. The gradients must have the same bits. This also holds for a kept graph, for second
// derivatives, and for recomputed segments.
func TestSaveOnCPU(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	dev := gpus[0]
	const width, batch, layers = 16, 64, 12
	const one = width * batch * 4
	tensor.Do(func(s *tensor.Scope) {
		m := newStack(s, layers, width)
		data := s.Randn(batch, width)
		forward := func(x *tt) *tt {
			for _, f := range m.fns {
				y := f(x)
				x.Free()
				x = y
			}
			return x
		}
		run := func(twice, segments bool, opts ...tensor.Option) (bits []byte, peak int) {
			s.Generator().SetState(3, 0)
			before := dev.Stats().Allocated
			dev.ResetPeak()
			s.Do(func(s *tensor.Scope) {
				var y *tt
				if segments {
					y = autograd.CheckpointSequential(m.fns, 4, data.In(s))
				} else {
					y = forward(data.In(s))
				}
				loss := y.Square().Mean()
				if twice {
					g := tensor.Gradients(loss, m.w, tensor.CreateGraph())
					sum := g[0].Square().Sum()
					for _, d := range g[1:] {
						sum = sum.Add(d.Square().Sum())
					}
					sum.Backward(tensor.RetainGraph())
					loss.Backward(tensor.RetainGraph())
				}
				loss.Backward()
				peak = (dev.Stats().AllocatedPeak - before) / one
			}, opts...)
			bits = m.gradients(t)
			if left := dev.Stats().Allocated - before; left != 0 {
				t.Errorf("%d bytes stay", left)
			}
			return bits, peak
		}
		run(false, false)
		run(false, false, autograd.SaveOnCPU(true))
		plain, most := run(false, false)
		for _, pinned := range []bool{true, false} {
			got, least := run(false, false, autograd.SaveOnCPU(pinned))
			if !bytes.Equal(got, plain) {
				t.Errorf("pinned %v: not the same bits", pinned)
			}
			if least > 12 || most < 2*layers {
				t.Errorf("pinned %v: a peak of %d values, %d without", pinned, least, most)
			}
		}
		if got, least := run(false, true, autograd.SaveOnCPU(true)); !bytes.Equal(got, plain) || least > 16 {
			t.Errorf("with segments: a peak of %d values; the same bits: %v", least, bytes.Equal(got, plain))
		}
		plain, _ = run(true, false)
		if got, _ := run(true, false, autograd.SaveOnCPU(true)); !bytes.Equal(got, plain) {
			t.Error("second derivatives: not the same bits")
		}
	}, tensor.On(dev))
	if n := dev.Stats().Allocated; n != 0 {
		t.Errorf("%d bytes are left in use", n)
	}
}

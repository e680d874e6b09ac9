package cuda_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// A captured training step is launched as one graph. Its inputs are fixed tensors that the program
// overwrites before each step. The optimizer uses the learning rate that is set at each replay. The
// capture itself runs nothing, so n replays are n steps.
func Example_graph() {
	gpu := emulate("64MiB")
	tensor.ManualSeed(1)
	model := nn.To(nn.NewSequential(nn.NewLinear(2, 8), nn.Tanh{}, nn.NewLinear(8, 2)), gpu)
	opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 0.1})
	m := tensor.Root().On(gpu)
	x, y := m.Zeros(4, 2), m.Typed(dtype.I64).Zeros(4)
	var loss *tensor.Tensor
	step, err := tensor.Capture(gpu, func(s *tensor.Scope) {
		loss = nn.CrossEntropy(model.Forward(x.In(s)), y.In(s))
		loss.Backward()
		optim.ClipGradNorm(nn.Parameters(model), 1)
		opt.Step()
		opt.ZeroGrad()
	})
	if err != nil {
		log.Fatal(err)
	}
	defer step.Close()
	for k := range 30 {
		tensor.Do(func(s *tensor.Scope) { // the next batch
			x.In(s).Copy(s.From([][]float32{{0, 0}, {0, 1}, {1, 0}, {1, 1}}))
			y.In(s).Copy(s.From([]int64{0, 1, 1, 0}))
		})
		opt.SetLR(0.1 / (1 + 0.01*float64(k)))
		if err := step.Replay(); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(opt.Steps(), "steps, loss below 0.1:", loss.Item() < 0.1)
	// Output:
	// 30 steps, loss below 0.1: true
}

// A recording can also be made without tensors. Work that is queued on the recording's stream is
// kept for replays. The recorded work doubles a vector, so each replay doubles it again.
func Example_recording() {
	gpu := emulate("64MiB")
	x, err := gpu.Alloc(8, nil, device.Origin{Op: "example"})
	if err != nil {
		log.Fatal(err)
	}
	defer x.Free()
	if err := gpu.Upload(nil, x, 0, []byte{1, 0, 0, 0, 2, 0, 0, 0}); err != nil {
		log.Fatal(err)
	}
	if err := gpu.Synchronize(); err != nil {
		log.Fatal(err)
	}
	r, err := gpu.(device.Recorder).NewRecording()
	if err != nil {
		log.Fatal(err)
	}
	v := []device.View{{Buf: x, Type: dtype.I32, Layout: shape.Dense(shape.Of(2))}}
	double := expr.MustLower([]*expr.Expr{expr.X(0).Add(expr.X(0))}, []dtype.Type{dtype.I32}, []dtype.Type{dtype.I32}, -1)
	if err := device.Run(gpu, r.Stream(), &device.Map{Program: double, Outs: v, Ins: v}); err != nil {
		log.Fatal(err)
	}
	g, err := r.Finish()
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		if err := g.Replay(nil); err != nil {
			log.Fatal(err)
		}
	}
	got := make([]byte, 8)
	if err := gpu.Download(r.Stream(), got, x, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Println(got[0], got[4])
	if err := g.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 8 16
}

// A recording can have two streams. The second one, the fork, may run at the same time as the
// first. The first stream must wait for the fork before Finish. Otherwise Finish returns an error
// that names the fork.
func Example_fork() {
	gpu := emulate("64MiB")
	record := func(join bool) error {
		r, err := gpu.(device.Recorder).NewRecording()
		if err != nil {
			return err
		}
		side, err := r.Fork(gpu)
		if err != nil {
			return err
		}
		x, err := gpu.Alloc(8, side, device.Origin{Op: "example"})
		if err != nil {
			return err
		}
		defer x.Free()
		v := []device.View{{Buf: x, Type: dtype.I32, Layout: shape.Dense(shape.Of(2))}}
		one := expr.MustLower([]*expr.Expr{expr.C(1)}, []dtype.Type{dtype.I32}, nil, -1)
		if err := device.Run(gpu, side, &device.Map{Program: one, Outs: v}); err != nil {
			return err
		}
		if join {
			if err := r.Stream().(cuda.Stream).WaitStream(side); err != nil {
				return err
			}
		}
		g, err := r.Finish()
		if err != nil {
			return err
		}
		return errors.Join(g.Replay(nil), g.Close())
	}
	fmt.Println(record(true))
	var unjoined *device.RecordError
	fmt.Println(errors.As(record(false), &unjoined), unjoined.Op)
	// Output:
	// <nil>
	// true finish
}

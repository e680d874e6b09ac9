package tensor_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"math"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// Work is recorded once and repeated by one launch. To change its input values, overwrite tensors
// that existed before the capture.
func ExampleCapture() {
	gpus, err := cuda.Emulate("emulate,mem=64MiB") // with a GPU: device.Open("cuda")
	if err != nil {
		log.Fatal(err)
	}
	gpu := gpus[0]
	x := tensor.Root().On(gpu).Zeros(3)
	var y *tensor.Tensor
	g, err := tensor.Capture(gpu, func(s *tensor.Scope) {
		y = x.In(s).Square().AddScalar(1)
	})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	for v := range 3 {
		x.Fill(float64(v + 1))
		if err := g.Replay(); err != nil {
			log.Fatal(err)
		}
		fmt.Println(y)
	}
	_, err = tensor.Capture(gpu, func(s *tensor.Scope) {
		if x.In(s).Sum().Item() > 0 { // Item would wait for a value
			x.Zero()
		}
	})
	fmt.Println(errors.Is(err, tensor.ErrCapture))
	// Output:
	// tensor([2., 2., 2.], device='cuda:0')
	// tensor([5., 5., 5.], device='cuda:0')
	// tensor([10., 10., 10.], device='cuda:0')
	// true
}

// One graph holds the work of several streams, and replays run that work concurrently. The tensors
// keep the necessary order, and no stream is joined explicitly.
func ExampleCapture_streams() {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		log.Fatal(err)
	}
	gpu := gpus[0]
	side, err := cuda.NewStream(gpu, 0)
	if err != nil {
		log.Fatal(err)
	}
	x := tensor.Root().On(gpu).Zeros(3)
	var sum *tensor.Tensor
	g, err := tensor.Capture(gpu, func(s *tensor.Scope) {
		var cube *tensor.Tensor
		s.Do(func(c *tensor.Scope) {
			cube = x.In(c).Square().Mul(x)
			c.Close(cube)
		}, tensor.Stream(side))
		double := x.In(s).MulScalar(2) // may run at the same time as the work on the other stream
		sum = double.Add(cube)         // the sum waits for both operands
	})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	for v := range 3 {
		x.Fill(float64(v + 1))
		if err := g.Replay(); err != nil {
			log.Fatal(err)
		}
		fmt.Println(sum)
	}
	// Output:
	// tensor([3., 3., 3.], device='cuda:0')
	// tensor([12., 12., 12.], device='cuda:0')
	// tensor([33., 33., 33.], device='cuda:0')
}

// Feed passes a number from the host to each replay. For example, a captured step can
// receive its learning rate.
func ExampleGraph_Feed() {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		log.Fatal(err)
	}
	temperature := 0.0
	sum := tensor.Root().On(gpus[0]).Zeros(2)
	g, err := tensor.Capture(gpus[0], func(s *tensor.Scope) {
		t := s.Capture().Feed(dtype.F32, 1, func(to []byte) {
			binary.NativeEndian.PutUint32(to, math.Float32bits(float32(temperature)))
		})
		sum.In(s).AddInPlace(t)
	})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	for _, temperature = range []float64{1, 0.5, 0.25} {
		if err := g.Replay(); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(sum)
	// Output:
	// tensor([1.7500, 1.7500], device='cuda:0')
}

// decay opens a scope of its own, as an optimizer's step does. From its operand, decay finds the
// graph that is being captured, and opens the scope in the graph's scope. One replay runs one
// operation: the kernel that multiplies computes the square too.
func ExampleCapturing() {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		log.Fatal(err)
	}
	decay := func(w, by *tensor.Tensor) {
		tensor.Capturing(by).Scope().Do(func(s *tensor.Scope) { w.In(s).MulInPlace(by) })
	}
	w := tensor.Root().On(gpus[0]).Ones(2)
	decay(w, w.FullLike(0.5)) // outside of a capture the call runs immediately
	g, err := tensor.Capture(gpus[0], func(s *tensor.Scope) { decay(w, w.In(s).Mul(w)) })
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	fmt.Println(w, g.Operations(), "operation")
	fmt.Println(g.Replay(), w)
	// Output:
	// tensor([0.5000, 0.5000], device='cuda:0') 1 operation
	// <nil> tensor([0.1250, 0.1250], device='cuda:0')
}

// A function that changes gradients finds the running capture with CapturingGrads.
func ExampleCapturingGrads() {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		log.Fatal(err)
	}
	halve := func(params ...*tensor.Tensor) {
		tensor.CapturingGrads(params...).Scope().Do(func(s *tensor.Scope) {
			for _, p := range params {
				p.Grad().In(s).MulScalarInPlace(0.5)
			}
		})
	}
	w := tensor.Root().On(gpus[0]).Ones(2).RequiresGrad()
	g, err := tensor.Capture(gpus[0], func(s *tensor.Scope) {
		w.In(s).MulScalar(3).Sum().Backward()
		halve(w)
	})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	fmt.Println(g.Replay(), w.Grad())
	// Output:
	// <nil> tensor([1.5000, 1.5000], device='cuda:0')
}

// Check adds a check before every replay. The check in this example
// refuses to continue without new inputs.
func ExampleGraph_Check() {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		log.Fatal(err)
	}
	errOld := errors.New("the batch is the one of the last step")
	x := tensor.Root().On(gpus[0]).Zeros(2)
	seen := x.Version()
	g, err := tensor.Capture(gpus[0], func(s *tensor.Scope) {
		x.In(s).Sum()
		s.Capture().Check(func() error {
			if x.Version() == seen {
				return errOld
			}
			seen = x.Version()
			return nil
		})
	})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	fmt.Println(errors.Is(g.Replay(), errOld))
	x.Fill(1)
	fmt.Println(g.Replay())
	// Output:
	// true
	// <nil>
}

// The state is made at its first use, like an optimizer's state. Adopt keeps replays from making it
// again. Stream lets a program measure the replays.
func ExampleGraph_Adopt() {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		log.Fatal(err)
	}
	gpu := gpus[0]
	x := tensor.Root().On(gpu).Ones(2)
	var sum *tensor.Tensor
	add := func(s *tensor.Scope) {
		if sum == nil {
			sum = tensor.Root().On(gpu).Zeros(2) // sum is outside of the graph's scope
			s.Capture().Adopt(sum)
		}
		sum.In(s).AddInPlace(x)
	}
	g, err := tensor.Capture(gpu, add)
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	start, err1 := cuda.NewEvent(gpu, cuda.EnableTiming())
	end, err2 := cuda.NewEvent(gpu, cuda.EnableTiming())
	err = errors.Join(err1, err2, start.Record(g.Stream()), g.Replay(), g.Replay(), end.Record(g.Stream()), end.Wait())
	if err != nil {
		log.Fatal(err)
	}
	took, err := start.Elapsed(end)
	fmt.Println(sum, took > 0, err)
	// Output: tensor([2., 2.], device='cuda:0') true <nil>
}

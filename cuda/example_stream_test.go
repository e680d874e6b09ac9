package cuda_test

import (
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// A scope queues its work on a stream, as with torch.cuda.stream(s). The program does not have to
// wait for the result y. It is read on the default stream, which waits for the scope's stream
// automatically.
func ExampleNewStream() {
	gpu := emulate("64MiB")
	side, err := cuda.NewStream(gpu, 1)
	if err != nil {
		log.Fatal(err)
	}
	tensor.Do(func(s *tensor.Scope) {
		x := s.Full(3, 2)
		var y *tensor.Tensor
		s.Do(func(c *tensor.Scope) {
			y = x.In(c).Square()
			fmt.Println(c.Stream() == device.Stream(side), s.Stream() == device.Stream(cuda.DefaultStream(gpu)))
			c.Close(y)
		}, tensor.Stream(side))
		fmt.Println(y.Add(x))
	}, tensor.On(gpu))
	fmt.Println(side.Priority())
	fmt.Println(cuda.PriorityRange(gpu))
	// Output:
	// true true
	// tensor([12., 12.], device='cuda:0')
	// 1
	// 0 5
}

// Events measure the time of work on the GPU while the host continues, like
// torch.cuda.Event(enable_timing=True). An emulated GPU returns the times of its cost model.
func ExampleEvent() {
	gpu := emulate("64MiB")
	start, err1 := cuda.NewEvent(gpu, cuda.EnableTiming())
	end, err2 := cuda.NewEvent(gpu, cuda.EnableTiming())
	if err := errors.Join(err1, err2); err != nil {
		log.Fatal(err)
	}
	tensor.Do(func(s *tensor.Scope) {
		x := s.Ones(256, 256)
		if err := start.Record(s.Stream()); err != nil {
			log.Fatal(err)
		}
		x.Exp()
		if err := end.Record(s.Stream()); err != nil {
			log.Fatal(err)
		}
	}, tensor.On(gpu))
	if err := end.Wait(); err != nil {
		log.Fatal(err)
	}
	took, err := start.Elapsed(end)
	fmt.Println(took > 0, err)
	// Output: true <nil>
}

// A program that queues its own kernels on several streams must order them by events, or by waits
// for whole streams.
func ExampleStream() {
	gpu := emulate("64MiB")
	a, err1 := cuda.NewStream(gpu, 0)
	b, err2 := cuda.NewStream(gpu, 0)
	e, err3 := cuda.NewEvent(gpu)
	if err := errors.Join(err1, err2, err3); err != nil {
		log.Fatal(err)
	}
	err := errors.Join(
		e.Record(a),     // torch: a.record_event(e)
		b.Wait(e),       // b.wait_event(e)
		a.WaitStream(b), // a.wait_stream(b)
		a.Synchronize(), // a.synchronize()
	)
	done, query := a.Query()
	fmt.Println(err, done, query)
	// Output: <nil> true <nil>
}

// Copies from page-locked memory run at the same time as the work of other streams. RecordStream
// tells the library about kernels of the program that read x.
func ExampleStream_copies() {
	gpu := emulate("64MiB")
	copies, err := cuda.NewStream(gpu, 0)
	if err != nil {
		log.Fatal(err)
	}
	batch := tensor.From([]float32{1, 2, 3}).PinMemory(gpu)
	tensor.Do(func(s *tensor.Scope) {
		var x *tensor.Tensor
		s.Do(func(c *tensor.Scope) {
			x = batch.In(c).To(gpu, tensor.NonBlocking())
			c.Close(x)
		}, tensor.Stream(copies))
		fmt.Println(x.MulScalar(2)) // the default stream waits for the copy
		// needed if a kernel of the program's own reads x on that stream
		x.RecordStream(copies)
	}, tensor.On(gpu))
	// Output: tensor([2., 4., 6.], device='cuda:0')
}

// A host that has other work asks from time to time whether the GPU has reached the event.
func ExampleEvent_Query() {
	gpu := emulate("64MiB")
	e, err := cuda.NewEvent(gpu)
	if err != nil {
		log.Fatal(err)
	}
	defer e.Release() // without Release, the garbage collector would release the event
	x := tensor.Ones(3).To(gpu).Exp()
	if err := e.Record(cuda.DefaultStream(gpu)); err != nil {
		log.Fatal(err)
	}
	for !e.Done() {
		time.Sleep(time.Millisecond)
	}
	done, err := e.Query() // like Done, but also returns a fault of the work
	fmt.Println(done, err, x.Shape())
	// Output: true <nil> [3]
}

package device_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"strings"

	// register the CPU driver; package tensor imports it too
	_ "github.com/flambeau-go/flambeau/cpu"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// Best corresponds to this expression in PyTorch: "cuda" if torch.cuda.is_available() else "cpu".
// It also returns the reason for its choice. This program imports no GPU driver, so Best chooses
// the CPU.
func Example() {
	dev, why := device.Best()
	fmt.Println(dev.Name(), strings.HasSuffix(why, "using the CPU"))
	// Output: cpu true
}

// The error for a device that cannot be opened says what is missing and what to do.
func ExampleOpen() {
	_, err := device.Open("cuda:1")
	fmt.Println(err)
	var u *device.UnavailableError
	if errors.As(err, &u) {
		fmt.Println(u.Help)
	}
	_, err = device.Open("tpu")
	fmt.Println(err)
	_, err = device.Open("cpu:1000")
	fmt.Println(err)
	// Output:
	// device "cuda:1" is not available: the driver is not linked into this program; add import _ "github.com/flambeau-go/flambeau/cuda"
	// add import _ "github.com/flambeau-go/flambeau/cuda"
	// device "tpu" is not available: there is no kind of device "tpu"; known are cpu and auto
	// device "cpu:1000" is not available: the processor has at most 256 ranks; they are cpu:0 to cpu:255
}

// Each rank of the CPU is a device with some of the workers (goroutines). Two ranks train side by
// side, like two GPUs.
func ExampleWorkerSharer() {
	for i := range 2 {
		dev, err := device.Open(fmt.Sprintf("cpu:%d", i))
		if err != nil {
			log.Fatal(err)
		}
		rank := dev.(device.WorkerSharer)
		rank.SetWorkers(2)
		fmt.Println(dev.Name(), rank.Workers(), dev.Info().Host)
	}
	// Output:
	// cpu:0 2 true
	// cpu:1 2 true
}

// Stats counts the memory in use, like torch.cuda.memory_allocated and similar functions.
func ExampleStats() {
	dev, err := device.Open("cpu")
	if err != nil {
		log.Fatal(err)
	}
	before := dev.Stats().Allocated
	b, err := dev.Alloc(1<<20, dev.DefaultStream(), device.Origin{Op: "example"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(dev.Stats().Allocated - before)
	b.Free()
	fmt.Println(dev.Stats().Allocated-before, dev.Info().Kind)
	// Output:
	// 1048576
	// 0 cpu
}

// Count returns the number of devices of a kind. If there are none, the error says why.
func ExampleCount() {
	n, err := device.Count("cpu")
	fmt.Println(n, err)
	n, err = device.Count("cuda")
	fmt.Println(n, err != nil)
	// Output:
	// 1 <nil>
	// 0 true
}

// If an allocation does not fit into the device's memory, the error wraps ErrOutOfMemory.
func ExampleErrOutOfMemory() {
	dev, err := device.Open("cpu")
	if err != nil {
		log.Fatal(err)
	}
	_, err = dev.Alloc(1<<60, dev.DefaultStream(), device.Origin{Op: "example"})
	fmt.Println(errors.Is(err, device.ErrOutOfMemory))
	// Output: true
}

// A primitive is a Go value. Some primitives, such as a softmax, are optional. A device supports an
// optional primitive if it runs the primitive faster than a composition of other primitives.
func ExampleRun() {
	dev, err := device.Open("cpu")
	if err != nil {
		log.Fatal(err)
	}
	s := dev.DefaultStream()
	b, err := dev.Alloc(12, s, device.Origin{Op: "example"})
	if err != nil {
		log.Fatal(err)
	}
	if err := dev.Upload(s, b, 0, make([]byte, 12)); err != nil {
		log.Fatal(err)
	}
	x := device.View{Buf: b, Type: dtype.F32, Layout: shape.Dense(shape.Of(1, 3))}
	op := &device.Softmax{Out: x, X: x}
	fmt.Println(dev.Supports(op), device.Run(dev, s, op))
	got := make([]byte, 12)
	if err := dev.Download(s, got, b, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Println(expr.Decode(dtype.F32, uint64(binary.LittleEndian.Uint32(got))))
	b.Free()
	fmt.Println(device.Run(dev, s, op))
	// Output:
	// true <nil>
	// 0.3333333432674408
	// cpu: softmax: out: the buffer has been freed
}

// A kernel finds an index outside its axis. The next call that waits for the device returns an
// error with the index and its position.
func ExampleIndexError() {
	fmt.Println(&device.IndexError{Index: 12, Bound: 10, Position: 1})
	// Output:
	// index 12 at position 1 is out of range for an axis of size 10
}

// OpenMeta returns a device that only pretends to have memory. It uses the same kernels and the
// same allocator as a real device. Stats returns how much memory the program would use.
func ExampleOpenMeta() {
	dev, err := device.OpenMeta("cpu", device.MetaConfig{Memory: 1 << 40})
	if err != nil {
		log.Fatal(err)
	}
	s := dev.DefaultStream()
	b, err := dev.Alloc(512<<30, s, device.Origin{Op: "example"}) // 512 GiB
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(dev.Name(), dev.Info().Meta, dev.Stats().Allocated>>30, "GiB")
	err = dev.Download(s, make([]byte, 4), b, 0)
	fmt.Println(errors.Is(err, device.ErrNoValues))
	// Output:
	// cpu true 512 GiB
	// true
}

// Work counts the operations and bytes of a primitive, here a product of a 2×3 and a 3×4 matrix.
func ExampleWork() {
	view := func(d ...int) device.View { return device.View{Type: dtype.F32, Layout: shape.Dense(shape.Of(d...))} }
	w := (&device.MatMul{Out: view(1, 2, 4), A: view(1, 2, 3), B: view(1, 3, 4)}).Work()
	fmt.Println(w.FLOPs, w.Bytes, w.Intensity() < 1)
	// Output:
	// 48 104 true
}

package cuda_test

import (
	"fmt"
	"log"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/tensor"
)

// Spills lists the loaded kernels for which the driver's compiler had too few registers.
func ExampleDevice_Spills() {
	gpu := emulate("64MiB").(*cuda.Device)
	x := tensor.Ones(8, 8).To(gpu)
	defer x.Free()
	y := x.Softmax(-1)
	defer y.Free()
	for _, s := range gpu.Spills() {
		fmt.Println(s)
	}
	fmt.Println(len(gpu.Spills()), "kernels spill registers")
	// This is the text of a spill.
	fmt.Println(cuda.Spill{Kernel: "softmax", Bytes: 16, Capability: "9.0", Driver: "12.4"})
	// Output:
	// 0 kernels spill registers
	// the driver (CUDA 12.4) gave kernel softmax 16 bytes of local memory a thread: it is slower than it could be on compute capability 9.0
}

// RecordedSpills returns the spills that were recorded on this machine. This example counts those
// of a driver that has been replaced since.
func ExampleRecordedSpills() {
	n := 0
	for _, s := range cuda.RecordedSpills() {
		if s.Driver == "11.0" && s.Capability == "7.5" { // a GPU that this library does not support
			n++
		}
	}
	fmt.Println(n)
	// Output: 0
}

// KernelAttributes returns the registers and memory that the driver gave a program's own kernel. An
// emulated GPU has no compiler, and assumes 32 registers.
func ExampleDevice_KernelAttributes() {
	gpu := emulate("64MiB").(*cuda.Device)
	var a cuda.KernelAttributes
	a, err := gpu.KernelAttributes(signedSquare)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(a.Registers, a.Local, a.Shared, a.MaxThreads)
	// Output: 32 0 0 128
}

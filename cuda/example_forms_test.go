package cuda_test

import (
	"fmt"
	"log"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/ptx"
	"github.com/flambeau-go/flambeau/tensor"
)

// targetOf builds a kernel for the target a. The kernel stores the number of the target.
func targetOf(a ptx.Arch) *cuda.Kernel {
	b := ptx.New("target")
	b.Target(a)
	b.Pointer("out", ptx.S32).Store(ptx.Int(int64(a.SM())))
	built, err := b.Build()
	if err != nil {
		log.Fatal(err)
	}
	k, err := cuda.NewKernel(built, cuda.KernelConfig{})
	if err != nil {
		log.Fatal(err)
	}
	return k
}

// A kernel can have several forms for different targets, here three. The device has compute
// capability 9.0, so it runs the form for sm_90a.
func ExampleKernel_Forms() {
	gpu := emulate("64MiB")
	k, err := targetOf(ptx.SM80).Forms(targetOf(ptx.SM90a), targetOf(ptx.SM120))
	if err != nil {
		log.Fatal(err)
	}
	x := tensor.Root().On(gpu).From([]int32{0})
	tensor.Raw("target", []*tensor.Tensor{x}, nil, func(s device.Stream, outs, _ []device.View) error {
		return s.Device().(*cuda.Device).Launch(s, k, [3]int{}, outs[0])
	})
	fmt.Println(x)
	// Output:
	// tensor([90], device='cuda:0', dtype=torch.int32)
}

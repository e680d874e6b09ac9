package cuda_test

import (
	"fmt"
	"log"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// A copy from page-locked memory runs while the host and other streams continue. The program does
// not have to wait for it. Ops that read the copy, or overwrite its source, wait automatically.
func Example_pinnedMemory() {
	gpu := emulate("64MiB")
	x := tensor.From([]float32{1, 2, 3}).PinMemory(gpu)
	y := x.To(gpu, tensor.NonBlocking())
	x.Fill(0) // waits until the copy has read x
	fmt.Println(x.IsPinned(), y)
	z := y.Square().To(x.Device(), tensor.NonBlocking())
	fmt.Println(z.IsPinned(), z)
	fmt.Println(gpu.(device.PinnedAllocator).PinnedStats().Allocations)
	// Output:
	// true tensor([1., 2., 3.], device='cuda:0')
	// true tensor([1., 4., 9.])
	// 2
}

// A data loader copies batches to the GPU before the training loop needs them.
func Example_loader() {
	gpu := emulate("64MiB")
	ds, err := data.NewTensorDataset(tensor.Root().Arange(6), tensor.Root().Arange(6))
	if err != nil {
		log.Fatal(err)
	}
	loader, err := data.NewLoader(ds, data.Config{Batch: 3, Device: gpu, Pin: true})
	if err != nil {
		log.Fatal(err)
	}
	for batch, err := range loader.Batches() {
		if err != nil {
			log.Fatal(err)
		}
		tensor.Do(func(s *tensor.Scope) {
			fmt.Println(s.From(batch.X))
		}, tensor.On(gpu))
	}
	// Output:
	// tensor([0, 1, 2], device='cuda:0')
	// tensor([3, 4, 5], device='cuda:0')
}

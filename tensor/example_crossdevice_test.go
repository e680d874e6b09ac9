package tensor_test

import (
	"fmt"
	"log"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// This step runs on two GPUs, without ranks. The weight is copied to both GPUs, the batch is
// divided, and the losses are gathered. The gradient of the weight is the sum of the gradients on
// both GPUs, added in the order of the devices.
func ExampleTensor_BroadcastToDevices() {
	gpus, err := cuda.Emulate("emulate:2,mem=64MiB")
	if err != nil {
		log.Fatal(err)
	}
	devs := []device.Device{gpus[0], gpus[1]}
	tensor.Do(func(s *tensor.Scope) {
		w := s.From([]float32{1, 2}).RequiresGrad()
		batch := s.From([]float32{1, 2, 3, 4, 5, 6}, 3, 2)
		weights := w.BroadcastToDevices(devs...)
		var losses []*tensor.Tensor
		for i, x := range batch.ScatterToDevices(0, devs) {
			fmt.Println(x.Shape(), "on", x.Device().Name())
			losses = append(losses, x.Mul(weights[i]).Sum())
		}
		fmt.Println(tensor.GatherToDevice(0, gpus[0], losses...).Detach())
		total := tensor.ReduceAddToDevice(gpus[0], losses...)
		total.Backward()
		fmt.Println(total.Detach(), w.Grad())
	}, tensor.On(gpus[0]))
	// Output:
	// [2, 2] on cuda:0
	// [1, 2] on cuda:1
	// tensor([16., 17.], device='cuda:0')
	// tensor(33., device='cuda:0') tensor([ 9., 12.], device='cuda:0')
}

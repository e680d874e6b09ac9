package cuda_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
)

// Connect uses NCCL if it is installed. For an unsupported collective, the error wraps
// errors.ErrUnsupported, and a program can use another implementation.
func ExampleDevice_Connect() {
	gpus, err := cuda.Emulate("emulate:2")
	if err != nil {
		log.Fatal(err)
	}
	_, err = gpus[0].Connect([]device.Device{gpus[0], gpus[0]})
	var e *cuda.CollectiveError
	if errors.As(err, &e) {
		fmt.Println(e.Op, e.Rank, e.Device, errors.Is(e, errors.ErrUnsupported))
	}
	_, err = gpus[0].Connect([]device.Device{gpus[0], gpus[1]})
	var u *device.UnavailableError
	fmt.Println(errors.As(err, &u), err)
	// errors.Is returns true only for a communicator that was aborted or closed
	fmt.Println(errors.Is(err, cuda.ErrAborted))
	// Output:
	// connect 1 cuda:0 true
	// true device "nccl" is not available: the GPUs are emulated, and NCCL works on hardware
	// false
}

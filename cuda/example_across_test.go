package cuda_test

import (
	"encoding/binary"
	"fmt"
	"log"
	"math"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// One graph can span two GPUs. Both GPUs compute, and data is copied between them. A replay is one
// launch. A value that changes from replay to replay is copied to the device that needs it.
func Example_graphAcross() {
	gpus, err := cuda.Emulate("emulate:2,mem=16MiB")
	if err != nil {
		log.Fatal(err)
	}
	a, b := tensor.Root().On(gpus[0]).Ones(2), tensor.Root().On(gpus[1]).Ones(2)
	var sum *tensor.Tensor
	rate := 0.0
	g, err := tensor.Capture(gpus[0], func(s *tensor.Scope) {
		r := s.Capture().FeedOn(gpus[1], dtype.F32, 1, func(to []byte) {
			binary.NativeEndian.PutUint32(to, math.Float32bits(float32(rate)))
		})
		sum = a.In(s).MulScalar(10).To(gpus[1]).Add(b.In(s).Mul(r))
	}, tensor.Across(gpus[1]))
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	for rate = 1; rate < 3; rate++ {
		if err := g.Replay(); err != nil {
			log.Fatal(err)
		}
		fmt.Println(sum.Floats(), sum.Device().Name())
	}
	// Output:
	// [11 11] cuda:1
	// [12 12] cuda:1
}

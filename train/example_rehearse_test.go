package train_test

import (
	"context"
	"fmt"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// Rehearse loads the kernels of a step before the first step. A GPU's driver compiles several
// kernels at the same time.
func ExampleRehearse() {
	gpus, err := cuda.Emulate("emulate")
	if err != nil {
		panic(err)
	}
	gpu, last := gpus[0], 0
	step := func(s *tensor.Scope) {
		m := nn.NewSequential(nn.NewLinear(8, 16, nn.In(s)), nn.GELU{}, nn.NewLinear(16, 4, nn.In(s)))
		opt := optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: 1e-3})
		nn.CrossEntropy(m.Forward(s.Zeros(32, 8)), s.Typed(dtype.I64).Zeros(32)).Backward()
		opt.Step()
	}
	if err := train.Rehearse(context.Background(), gpu, step, func(done, all int) { last = all }); err != nil {
		panic(err)
	}
	c := gpu.Counters()
	fmt.Println("all are loaded:", last > 0 && int(c.Kernels) == last)
	fmt.Println("launches:", c.Launches)
	// Output:
	// all are loaded: true
	// launches: 0
}

package data_test

import (
	"errors"
	"fmt"
	"log"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/tensor"
)

func ExampleLoader_Steps() {
	x := tensor.From([][]float32{{1}, {2}, {3}, {4}})
	set, err := data.NewTensorDataset(x, x.Flatten(0, 1))
	if err != nil {
		log.Fatal(err)
	}
	loader, err := data.NewLoader(set, data.Config{Batch: 2})
	if err != nil {
		log.Fatal(err)
	}
	w := tensor.From([]float32{2}).RequiresGrad()
	for step, err := range loader.Steps() {
		if err != nil {
			log.Fatal(err)
		}
		loss := step.X.Mul(w).Flatten(0, 1).Sub(step.Y).Square().Mean()
		loss.Backward()
		fmt.Println(loss.Item(), w.Grad().Item())
	} // here the step's scope frees its tensors
	// Output:
	// 2.5 5
	// 12.5 30
}

// The scope of a step is on the loader's device and has the given options. It ends with the
// body of the loop, however the body ends.
func TestSteps(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=16MiB")
	if err != nil {
		t.Fatal(err)
	}
	set, err := data.NewTensorDataset(tensor.Ones(6, 2), tensor.Ones(6))
	if err != nil {
		t.Fatal(err)
	}
	loader, err := data.NewLoader(set, data.Config{Batch: 2, Device: gpus[0]})
	if err != nil {
		t.Fatal(err)
	}
	held := func() int { return gpus[0].Stats().Allocated }
	before := held()
	var kept, left *tensor.Tensor
	loop := func(body func(i int, s *data.Step) bool, opts ...tensor.Option) {
		i := 0
		for step, err := range loader.Steps(opts...) {
			if err != nil {
				t.Fatal(err)
			}
			if !body(i, step) {
				break
			}
			i++
		}
	}
	loop(func(i int, s *data.Step) bool {
		y := s.X.Add(s.Scope.Ones(2, 2))
		if s.X.Device() != gpus[0] || y.Device() != gpus[0] || s.Scope.GradEnabled() {
			t.Error(s.X.Device(), y.Device(), s.Scope.GradEnabled())
		}
		if left != nil {
			if err := tensor.Try(func() { left.Sum() }); !errors.Is(err, tensor.ErrScope) {
				t.Error("the tensors of a step outlive it:", err)
			}
		}
		left = y
		if i == 1 {
			kept = y
			s.Scope.Close(kept)
		}
		return i < 1
	}, tensor.NoGrad())
	if v := kept.Floats(); v[0] != 2 || v[3] != 2 {
		t.Error(kept)
	}
	kept.Free()
	err = tensor.Try(func() {
		loop(func(i int, s *data.Step) bool { s.X.MatMul(s.Y.Detach().Reshape(1, 2)); return true })
	})
	if !errors.Is(err, tensor.ErrShape) {
		t.Error(err)
	}
	if err := gpus[0].Synchronize(); err != nil {
		t.Fatal(err)
	}
	if after := held(); after != before {
		t.Errorf("%d bytes are held, %d before", after, before)
	}
}

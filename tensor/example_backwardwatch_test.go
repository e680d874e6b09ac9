package tensor_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// A bucket waits for the gradients of its leaves, and counts how many are missing. Data parallel
// training uses such buckets.
type bucket struct{ leaves []*tensor.Tensor }

func (b bucket) Begin(_ *tensor.Scope, reached []bool) tensor.BackwardRun {
	r := &bucketRun{bucket: b}
	for i, on := range reached {
		if on {
			r.waits++
		} else {
			fmt.Println("leaf", i, "is not used")
		}
	}
	return r
}

type bucketRun struct {
	bucket
	waits int
}

func (r *bucketRun) Ready(i int) {
	fmt.Println("leaf", i, "has", r.leaves[i].Grad())
	r.less()
}

func (r *bucketRun) Missed(int) { r.less() }

func (r *bucketRun) less() {
	if r.waits--; r.waits == 0 {
		fmt.Println("the bucket is full")
	}
}

func (r *bucketRun) End(failed error) { fmt.Println("the end:", failed) }

// Before a run, a watcher knows which gradients to wait for. It is told about each gradient as soon
// as the gradient is complete. The leaf nearest to the loss comes first.
func ExampleWatchBackward() {
	a := tensor.From([]float32{1, 2}).RequiresGrad()
	b := tensor.From([]float32{3, 4}).RequiresGrad()
	c := tensor.From([]float32{5, 6}).RequiresGrad()
	leaves := []*tensor.Tensor{a, b, c}
	remove := tensor.WatchBackward(leaves, bucket{leaves})
	defer remove()
	a.Square().Mul(b).Sum().Backward()
	// Output:
	// leaf 2 is not used
	// leaf 1 has tensor([1., 4.])
	// leaf 0 has tensor([ 6., 16.])
	// the bucket is full
	// the end: <nil>
}

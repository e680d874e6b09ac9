package tensor_test

import (
	"fmt"
	"log"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/tensor"
)

// This example shows the hooks of a capture. The hook Ended tells a function whether there will be
// a graph. The hook Then calls a function after each replay. Here that function copies a number to
// the host without waiting. Exclude makes graphs that share state on the host take turns.
func ExampleGraph_Then() {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		log.Fatal(err)
	}
	x := tensor.Root().On(gpus[0]).Ones(2)
	var shared tensor.Exclusive
	var late []*tensor.LateItem
	g, err := tensor.Capture(gpus[0], func(s *tensor.Scope) {
		x.In(s).MulScalarInPlace(2)
		c := s.Capture()
		c.Exclude(&shared)
		c.Ended(func(ok bool) error {
			fmt.Println("captured:", ok)
			return nil
		})
		c.Then(func() { late = append(late, x.Select(0, 0).ItemLater()) })
	})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	for range 2 {
		if err := g.Replay(); err != nil {
			log.Fatal(err)
		}
	}
	for _, l := range late {
		fmt.Println(l.Item())
	}
	// Output:
	// captured: true
	// 2
	// 4
}

// Command hello computes a gradient.
package main

import (
	"fmt"

	_ "github.com/flambeau-go/flambeau/cuda" // lets the program use GPUs
	"github.com/flambeau-go/flambeau/tensor"
)

func main() {
	x := tensor.From([][]float32{{1, 2}, {3, 4}}).RequiresGrad()
	y := x.Square().Sum()
	y.Backward()
	fmt.Println(y.Item())
	fmt.Println(x.Grad())
}

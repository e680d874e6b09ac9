package amp_test

import (
	"fmt"
	"testing"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/tensor"
)

// String describes a scaler, a graph or a generator in one line. Calling it within a capture does
// not end the capture.
func TestString(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=16MiB")
	if err != nil {
		t.Fatal(err)
	}
	gpu := gpus[0]
	s := amp.NewGradScaler(amp.InitScale(8))
	x := tensor.Zeros(4).To(gpu)
	gen := tensor.NewGenerator(3)
	g, err := tensor.Capture(gpu, func(sc *tensor.Scope) {
		s.Scale(x.In(sc).Sum())
		if got, want := fmt.Sprint(s, " ", sc.Capture(), " ", gen), "GradScaler(begun with 8, times 2 after 2000 good steps, times 0.5 after a bad one) "+
			"Graph(being captured on cuda:0) Generator(seed 3, offset 0)"; got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if got, want := fmt.Sprint(g), fmt.Sprintf("Graph(%d operations on cuda:0)", g.Operations()); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := fmt.Sprint(amp.NewGradScaler(amp.Enabled(false))); got != "GradScaler(disabled)" {
		t.Error(got)
	}
}

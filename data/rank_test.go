package data_test

import (
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// Batches arrive on a rank of the CPU, even if the samples are on another rank.
func TestBatchesArriveOnARank(t *testing.T) {
	open := func(name string) device.Device {
		d, err := device.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	host, rank, other := open("cpu"), open("cpu:1"), open("cpu:0")
	for _, pin := range []bool{false, true} {
		l := load(t, wide{8, 3}, data.Config{Batch: 4, Device: rank, Pin: pin})
		n := 0
		for b, err := range l.Batches() {
			if err != nil {
				t.Fatal(err)
			}
			tensor.Do(func(s *tensor.Scope) {
				x := b.Into(s).Nested.X.(map[string]any)["x"].(*tensor.Tensor)
				if x.Device() != rank || b.Y.Device() != rank || x.Select(1, 0).Sub(b.Y).Abs().Sum().Item() != 0 {
					t.Errorf("%v %v", x, b.Y)
				}
				n++
			}, tensor.On(rank))
		}
		if n != 2 || pin != (l.Note() != "") {
			t.Errorf("%d batches, the note is %q", n, l.Note())
		}
	}
	x := tensor.Root().On(rank).Arange(8).Float()
	ds, err := data.NewTensorDataset(x, x.MulScalar(2))
	if err != nil {
		t.Fatal(err)
	}
	for want, d := range map[device.Device]device.Device{rank: nil, host: host, other: other} {
		var seen []float64
		for b, err := range load(t, ds, data.Config{Batch: 4, Device: d}).Batches() {
			if err != nil || b.X.Device() != want || b.Y.Device() != want {
				t.Fatalf("for %v: %v, %v", want, b, err)
			}
			seen = append(seen, b.Y.Floats()...)
			b.Free()
		}
		if !slices.Equal(seen, []float64{0, 2, 4, 6, 8, 10, 12, 14}) {
			t.Errorf("for %v: %v", want, seen)
		}
	}
}

package tensor_test

import (
	"errors"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestRecordStream reads x on a separate stream, by work that the program queues itself. After
// RecordStream, later writes to x and later owners of its memory must wait for this work.
func TestRecordStream(t *testing.T) {
	const n = 1 << 12
	for seed := range 6 {
		dev, other := emulated(t, seed+1)
		side, err := dev.NewStream(0)
		if err != nil {
			t.Fatal(err)
		}
		tensor.Do(func(s *tensor.Scope) {
			if s.Stream() != dev.DefaultStream() || s.Stream(other) != other.DefaultStream() {
				t.Error("the scope's stream is another")
			}
			x := s.Full(3, n)
			out, err := dev.Alloc(4*n, side, device.Origin{Op: "test", Shape: shape.Of(n), Type: dtype.F32})
			if err != nil {
				t.Fatal(err)
			}
			var buf device.Buffer
			tensor.Raw("peek", []*tensor.Tensor{x}, nil, func(_ device.Stream, outs, _ []device.View) error {
				buf = outs[0].Buf
				return nil
			})
			x.RecordStream(side)
			if err := dev.CopyFrom(side, out, 0, buf, 0, 4*n); err != nil {
				t.Fatal(err)
			}
			if seed%2 == 0 {
				x.Fill(5)
			} else {
				x.Free()
				s.Full(5, n)
			}
			got := make([]byte, 4*n)
			if err := dev.Download(side, got, out, 0); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if got[4*i+2] != 0x40 || got[4*i+3] != 0x40 { // float32(3) is 0x40400000
					t.Fatalf("seed %d: element %d was overwritten before it was read", seed, i)
				}
			}
			out.Free()
			for _, st := range []device.Stream{nil, other.DefaultStream()} {
				if err := tensor.Try(func() { s.Ones(2).RecordStream(st) }); !errors.Is(err, tensor.ErrDevice) {
					t.Errorf("a stream of another device: %v", err)
				}
			}
			if err := tensor.Try(func() { s.Stream(nil) }); !errors.Is(err, tensor.ErrDevice) {
				t.Errorf("a nil device: %v", err)
			}
		}, tensor.On(dev))
	}
}

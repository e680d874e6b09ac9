package cuda_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"math"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// A square root on an emulated GPU. On a machine with an NVIDIA GPU, device.Open("cuda:0") returns
// the real one, and nothing else changes.
func Example() {
	gpus, err := cuda.Emulate("emulate,mem=64MiB,sm=80")
	if err != nil {
		log.Fatal(err)
	}
	var dev device.Device = gpus[0]
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	var data []byte
	for _, x := range []float32{1, 4, 9} {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
	}
	s := dev.DefaultStream()
	b, err := dev.Alloc(len(data), s, device.Origin{Op: "example", Shape: shape.Of(3), Type: dtype.F32})
	check(err)
	defer b.Free()
	check(dev.Upload(s, b, 0, data))
	x := device.View{Buf: b, Type: dtype.F32, Layout: shape.Dense(shape.Of(3))}
	root, err := expr.Lower([]*expr.Expr{expr.X(0).Sqrt()}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, -1)
	check(err)
	check(device.Run(dev, s, &device.Map{Program: root, Outs: []device.View{x}, Ins: []device.View{x}}))
	check(dev.Download(s, data, b, 0))
	for i := range 3 {
		fmt.Print(math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:])), " ")
	}
	fmt.Println(dev.Info().Name)
	// Output: 1 2 3 Emulated GPU (sm_80)
}

// If the specification is wrong, the error says what is accepted.
func ExampleEmulate() {
	_, err := cuda.Emulate("emulate,sm=75")
	var u *device.UnavailableError
	fmt.Println(errors.As(err, &u))
	fmt.Println(u.Help)
	// Output:
	// true
	// want sm= and one of 80, 86, 87, 89, 90
}

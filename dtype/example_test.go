package dtype_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
)

// Types promote as in PyTorch: the higher class wins. Within a class, the result type can hold the
// values of both types.
func Example() {
	fmt.Println(dtype.Promote(dtype.I64, dtype.F16))
	fmt.Println(dtype.Promote(dtype.U8, dtype.I8))
	fmt.Println(dtype.Promote(dtype.F16, dtype.BF16))
	fmt.Println(dtype.Promote(dtype.Bool, dtype.Bool))
	// Output:
	// float16
	// int16
	// float32
	// bool
}

// Parse accepts torch's names and their short forms.
func ExampleParse() {
	t, err := dtype.Parse("half")
	fmt.Println(t, t.Size(), t.IsFloat(), err)
	_, err = dtype.Parse("complex64")
	fmt.Println(err)
	// Output:
	// float16 2 true <nil>
	// dtype: unknown type "complex64" (one of [bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64])
}

// Of returns the element type for a Go type.
func ExampleOf() {
	fmt.Println(dtype.Of[float32](), dtype.Of[int64](), dtype.Of[dtype.BFloat16]())
	// Output: float32 int64 bfloat16
}

// 16-bit floats are rounded to nearest, ties to even. bfloat16 has the range of float32 with fewer
// digits.
func ExampleToFloat16() {
	fmt.Println(dtype.ToFloat16(0.1).Float32(), dtype.ToFloat16(1e6).Float32())
	fmt.Println(dtype.ToBFloat16(0.1).Float32(), dtype.ToBFloat16(1e6).Float32())
	// Output:
	// 0.099975586 +Inf
	// 0.100097656 999424
}

// Arithmetic on small types is computed in wider types.
func ExampleType_Compute() {
	for _, t := range dtype.Types() {
		fmt.Print(t, "→", t.Compute(), " ")
	}
	fmt.Println()
	// Output:
	// bool→bool uint8→int32 int8→int32 int16→int32 int32→int32 int64→int64 float16→float32 bfloat16→float32 float32→float32 float64→float64
}

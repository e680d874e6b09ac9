package golden

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// Tensor is one stored tensor. It is contiguous and row-major.
type Tensor struct {
	Name  string
	DType string // name of the type in safetensors, a key of sizes: "F32", "I64", "BOOL"
	Shape []int  // sizes of the dimensions; empty for a scalar
	Data  []byte // elements, little-endian; must not be changed
}

// sizes holds the sizes in bytes of the element types that golden files use.
var sizes = map[string]int{
	"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1,
}

// Len returns the number of elements.
func (t Tensor) Len() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// IsFloat reports whether the elements are floating-point numbers.
func (t Tensor) IsFloat() bool {
	return slices.Contains([]string{"F64", "F32", "F16", "BF16"}, t.DType)
}

// Float32s returns the elements of an F32 tensor. For other types it panics, because the test then
// reads the wrong tensor.
func (t Tensor) Float32s() []float32 {
	t.must("F32")
	out := make([]float32, t.Len())
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
	}
	return out
}

// Float64s returns the elements of a tensor of any type. Only integers beyond ±2⁵³ are rounded.
func (t Tensor) Float64s() []float64 {
	out := make([]float64, t.Len())
	for i := range out {
		switch t.DType {
		case "F32":
			out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:])))
		case "F64":
			out[i] = math.Float64frombits(binary.LittleEndian.Uint64(t.Data[8*i:]))
		case "F16":
			out[i] = half(binary.LittleEndian.Uint16(t.Data[2*i:]))
		case "BF16":
			out[i] = float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(t.Data[2*i:])) << 16))
		default:
			out[i] = float64(t.integer(i))
		}
	}
	return out
}

// half returns the number that has the bits b in IEEE 754's binary16.
func half(b uint16) float64 {
	sign, e, f := 1-2*float64(b>>15), int(b>>10&31), float64(b&1023)
	switch e {
	case 0:
		return sign * math.Ldexp(f, -24)
	case 31:
		if f != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1024+f, e-25)
}

func (t Tensor) integer(i int) int64 {
	switch t.DType {
	case "I64":
		return int64(binary.LittleEndian.Uint64(t.Data[8*i:]))
	case "I32":
		return int64(int32(binary.LittleEndian.Uint32(t.Data[4*i:])))
	case "I16":
		return int64(int16(binary.LittleEndian.Uint16(t.Data[2*i:])))
	case "I8":
		return int64(int8(t.Data[i]))
	}
	return int64(t.Data[i])
}

// Int64s returns the elements of a tensor of integers or bools. It panics for other types.
func (t Tensor) Int64s() []int64 {
	t.must("I64", "I32", "I16", "I8", "U8", "BOOL")
	out := make([]int64, t.Len())
	for i := range out {
		out[i] = t.integer(i)
	}
	return out
}

// Bools returns the elements of a BOOL tensor. It panics for other types.
func (t Tensor) Bools() []bool {
	t.must("BOOL")
	out := make([]bool, t.Len())
	for i := range out {
		out[i] = t.Data[i] != 0
	}
	return out
}

func (t Tensor) must(types ...string) {
	if !slices.Contains(types, t.DType) {
		panic(fmt.Sprintf("golden: tensor %s is %s, not one of %v", t.Name, t.DType, types))
	}
}

// parse parses a safetensors file. The tensors share the memory of raw.
func parse(raw []byte, path string) (map[string]Tensor, map[string]string, error) {
	bad := func(where, format string, args ...any) error {
		return &FormatError{path, where, fmt.Sprintf(format, args...)}
	}
	if len(raw) < 8 {
		return nil, nil, bad("header", "%d bytes, less than its own length", len(raw))
	}
	n := binary.LittleEndian.Uint64(raw)
	if n > uint64(len(raw)-8) {
		return nil, nil, bad("header", "says it has %d bytes; %d follow", n, len(raw)-8)
	}
	var header map[string]json.RawMessage
	if err := json.Unmarshal(raw[8:8+n], &header); err != nil {
		return nil, nil, bad("header", "%v", err)
	}
	data := raw[8+n:]
	meta := map[string]string{}
	tensors := make(map[string]Tensor, len(header))
	for name, text := range header {
		if name == "__metadata__" {
			if err := json.Unmarshal(text, &meta); err != nil {
				return nil, nil, bad("metadata", "%v", err)
			}
			continue
		}
		var entry struct {
			DType   string `json:"dtype"`
			Shape   []int  `json:"shape"`
			Offsets [2]int `json:"data_offsets"`
		}
		where := "tensor " + name
		if err := json.Unmarshal(text, &entry); err != nil {
			return nil, nil, bad(where, "%v", err)
		}
		size, ok := sizes[entry.DType]
		if !ok {
			return nil, nil, bad(where, "element type %q is not one that golden files use", entry.DType)
		}
		for _, d := range entry.Shape {
			if d < 0 || d > 0 && size > maxSize/d {
				return nil, nil, bad(where, "shape %v", entry.Shape)
			}
			size *= d
		}
		from, to := entry.Offsets[0], entry.Offsets[1]
		if from < 0 || from > to || to > len(data) || to-from != size {
			return nil, nil, bad(where, "%s of shape %v lies at [%d, %d) of %d bytes", entry.DType, entry.Shape, from, to, len(data))
		}
		tensors[name] = Tensor{name, entry.DType, entry.Shape, data[from:to:to]}
	}
	return tensors, meta, nil
}

package samples

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/tensor"
)

// A row is one recorded call of PyTorch. The last row of an entry describes the entry instead. The
// package comment explains the fields.
type row struct {
	Op      string                     `json:"op"`
	N       int                        `json:"n"`
	Type    string                     `json:"type"`
	From    string                     `json:"from"`
	Args    []json.RawMessage          `json:"args"`
	Kw      map[string]json.RawMessage `json:"kw"`
	Leaves  []int                      `json:"leaves"`
	Out     []*number                  `json:"out"`
	Grads   []*number                  `json:"grads"`
	Seconds []*number                  `json:"seconds"`
	Random  bool                       `json:"random"`
	Error   string                     `json:"error"`
	Left    map[string]int             `json:"left"`

	// New holds, for layers, the arguments of the constructor and the mode
	New struct {
		Args []json.RawMessage          `json:"args"`
		Kw   map[string]json.RawMessage `json:"kw"`
	} `json:"new"`
	Training bool `json:"training"`

	file *golden.File
	more bool // the row comes from a file outside of testdata
}

// A number is one recorded result: a tensor or a single value.
type number struct {
	Own   string `json:"own"`
	Ref   string `json:"ref"`
	Terms string `json:"terms"`
	// type of the result for float64 operands, if it is not float64
	To    string          `json:"to"`
	Value json.RawMessage `json:"value"`
	Shape []int           `json:"shape"` // shape of a random result; its type is Type
	Type  string          `json:"type"`
}

func rowsOf(path string) ([]row, error) {
	f, err := golden.Open(path)
	if err != nil {
		return nil, err
	}
	var rows []row
	if err := json.Unmarshal([]byte(f.Meta["rows"]), &rows); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for i := range rows {
		rows[i].file = f
	}
	return rows, nil
}

// These types stand for Python values that JSON does not have.
type (
	tuple    []any
	span     [3]any
	ellipsis struct{}
	layout   string
)

// stored maps the types in golden files to the library's types.
var stored = map[string]dtype.Type{
	"F64": dtype.F64, "F32": dtype.F32, "F16": dtype.F16, "BF16": dtype.BF16, "I64": dtype.I64,
	"I32": dtype.I32, "I16": dtype.I16, "I8": dtype.I8, "U8": dtype.U8, "BOOL": dtype.Bool,
}

// A maker converts recorded values to values of this library, for one sample.
type maker struct {
	file   *golden.File
	scope  *tensor.Scope
	double bool // convert floats and float types to float64
	// function that changes the memory layout of each tensor; may be nil
	form    func(x *tensor.Tensor) *tensor.Tensor
	tensors []*tensor.Tensor
	leaves  []*tensor.Tensor
	isLeaf  map[int]bool
}

// value decodes one recorded value.
func (m *maker) value(text json.RawMessage) any {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		panic(fmt.Sprintf("samples: value %s: %v", text, err))
	}
	return m.made(v)
}

func (m *maker) list(v any) []any {
	l, _ := v.([]any)
	out := make([]any, len(l))
	for i := range l {
		out[i] = m.made(l[i])
	}
	return out
}

func (m *maker) made(v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := strconv.Atoi(v.String()); err == nil {
			return i
		}
		f, err := v.Float64()
		if err != nil {
			panic(err)
		}
		return f
	case []any:
		return m.list(v)
	case map[string]any:
		return m.object(v)
	}
	return v
}

func (m *maker) object(v map[string]any) any {
	for key, x := range v {
		switch key {
		case "T":
			return m.tensor(x.(string), v["strides"])
		case "float":
			f, err := strconv.ParseFloat(x.(string), 64)
			if err != nil {
				panic(err)
			}
			return f
		case "dtype":
			t, err := dtype.Parse(x.(string))
			if err != nil {
				panic(err)
			}
			if m.double && t.IsFloat() {
				t = dtype.F64
			}
			return t
		case "slice":
			return span(m.list(x))
		case "ellipsis":
			return ellipsis{}
		case "tuple":
			return tuple(m.list(x))
		case "layout":
			return layout(x.(string))
		case "device":
			return nil
		case "dict":
			out := map[string]any{}
			dict := x.(map[string]any)
			// PyTorch numbered the tensors in the order of the keys
			for _, k := range sortedKeys(dict) {
				out[k] = m.made(dict[k])
			}
			return out
		}
	}
	panic(fmt.Sprintf("samples: value %v", v))
}

// tensor returns a recorded tensor with its recorded strides, or in the layout that m.form makes.
// If PyTorch computed a gradient for it, it is a leaf.
func (m *maker) tensor(name string, strides any) *tensor.Tensor {
	t, err := m.file.Tensor(name)
	if err != nil {
		panic(err)
	}
	s := m.scope
	x := s.From(tensor.FromBytes(stored[t.DType], t.Data, t.Shape...))
	if m.double && x.Type().IsFloat() {
		x = x.Cast(dtype.F64)
	}
	switch l, _ := strides.([]any); {
	case m.form != nil && x.Rank() > 0 && x.Size() > 0:
		x = m.form(x)
	case l != nil:
		x = strided(x, l)
	}
	if m.isLeaf[len(m.tensors)] && x.Type().IsFloat() {
		x = x.Detach().RequiresGrad()
		m.leaves = append(m.leaves, x)
	}
	m.tensors = append(m.tensors, x)
	return x
}

// strided returns x with the strides of PyTorch's tensor. A dimension with stride 0 is expanded,
// and elements may share memory.
func strided(x *tensor.Tensor, l []any) *tensor.Tensor {
	dims, strides := x.Shape().Slice(), make([]int, len(l))
	places := []int{0}
	for i, v := range l {
		n, _ := v.(json.Number).Int64()
		strides[i] = int(n)
		var next []int
		for _, p := range places {
			for k := range dims[i] {
				next = append(next, p+k*int(n))
			}
		}
		places = next
	}
	if len(places) == 0 {
		return x
	}
	room := x.Scope().Typed(x.Type()).Zeros(slices.Max(places) + 1)
	return room.IndexPut(x.Flatten(0, -1), false, places).AsStrided(dims, strides)
}

// gapped returns x in memory with a gap after each element.
func gapped(x *tensor.Tensor) *tensor.Tensor {
	dims := x.Shape().Slice()
	dims[len(dims)-1] *= 2
	room := x.Scope().Typed(x.Type()).Zeros(dims...)
	y := room.Slice(len(dims)-1, 1, tensor.End, 2)
	y.Copy(x)
	return y
}

// permuted returns x in another memory layout: the first dimension of x is the innermost in memory.
func permuted(x *tensor.Tensor) *tensor.Tensor {
	order := make([]int, x.Rank())
	back := make([]int, x.Rank())
	for i := range order {
		order[i] = (i + 1) % len(order)
		back[order[i]] = i
	}
	return x.Permute(order...).Clone().Contiguous().Permute(back...)
}

// seed returns the seeds of the elements of tensor k, as described in the package comment. They are
// factors in the sum whose gradient is computed.
func seed(s *tensor.Scope, t dtype.Type, k int, dims []int) *tensor.Tensor {
	n := 1
	for _, d := range dims {
		n *= d
	}
	v := make([]float64, n)
	for i := range v {
		v[i] = float64((i*37+k*11+5)%64*2-63) / 32
	}
	return s.From(v, dims...).Cast(t)
}

// terms returns the powers of two whose exponents, plus 128, are the bytes of tensor t.
func terms(t golden.Tensor) []float64 {
	out := make([]float64, t.Len())
	for i, e := range t.Data {
		if e > 0 {
			out[i] = math.Ldexp(1, int(e)-128)
		}
	}
	return out
}

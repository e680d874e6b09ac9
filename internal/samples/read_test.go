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

// A row is one call that PyTorch made, or the end of an entry; see the package comment.
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

	// Of a layer: what it is made with, and its mode.
	New struct {
		Args []json.RawMessage          `json:"args"`
		Kw   map[string]json.RawMessage `json:"kw"`
	} `json:"new"`
	Training bool `json:"training"`

	file *golden.File
	more bool // it is not one of testdata
}

// A number is what came out at one place.
type number struct {
	Own   string          `json:"own"`
	Ref   string          `json:"ref"`
	Terms string          `json:"terms"`
	To    string          `json:"to"` // the type of the result of float64 operands, if not float64
	Value json.RawMessage `json:"value"`
	Shape []int           `json:"shape"` // of what is random, with Type
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

// What JSON does not have.
type (
	tuple    []any
	span     [3]any
	ellipsis struct{}
	layout   string
)

// stored are the types of golden files.
var stored = map[string]dtype.Type{
	"F64": dtype.F64, "F32": dtype.F32, "F16": dtype.F16, "BF16": dtype.BF16, "I64": dtype.I64,
	"I32": dtype.I32, "I16": dtype.I16, "I8": dtype.I8, "U8": dtype.U8, "BOOL": dtype.Bool,
}

// A maker turns recorded values into ours.
type maker struct {
	file    *golden.File
	scope   *tensor.Scope
	double  bool                                  // floats and float types become float64
	form    func(x *tensor.Tensor) *tensor.Tensor // another layout for each tensor, or nil
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
			for _, k := range sortedKeys(dict) { // as PyTorch counted the tensors
				out[k] = m.made(dict[k])
			}
			return out
		}
	}
	panic(fmt.Sprintf("samples: value %v", v))
}

// tensor places a stored tensor, with its recorded strides or in m's form, as a leaf if it is one.
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

// strided is x with the strides that PyTorch's tensor had, of which 0 is an expanded dimension;
// elements may share a place.
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

// gapped is x in memory in which every other element is another tensor's.
func gapped(x *tensor.Tensor) *tensor.Tensor {
	dims := x.Shape().Slice()
	dims[len(dims)-1] *= 2
	room := x.Scope().Typed(x.Type()).Zeros(dims...)
	y := room.Slice(len(dims)-1, 1, tensor.End, 2)
	y.Copy(x)
	return y
}

// permuted is x in memory in which its first dimension comes last.
func permuted(x *tensor.Tensor) *tensor.Tensor {
	order := make([]int, x.Rank())
	back := make([]int, x.Rank())
	for i := range order {
		order[i] = (i + 1) % len(order)
		back[order[i]] = i
	}
	return x.Permute(order...).Clone().Contiguous().Permute(back...)
}

// seed is what the k-th tensor of a sum of products is multiplied with.
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

// terms are the powers of two that a byte tensor holds the exponents of.
func terms(t golden.Tensor) []float64 {
	out := make([]float64, t.Len())
	for i, e := range t.Data {
		if e > 0 {
			out[i] = math.Ldexp(1, int(e)-128)
		}
	}
	return out
}

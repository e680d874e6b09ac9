package golden

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"reflect"
	"strings"
	"testing"
)

func pack(header string, data []byte) []byte {
	raw := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	raw = append(append(raw, header...), data...)
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(raw)
	z.Close()
	return b.Bytes()
}

const sampleHeader = `{
	"__metadata__": {"torch": "2.15.0", "cases": "[{\"op\":\"pow\",\"name\":\"n\",\"args\":{\"exponent\":0.5,\"dim\":null,\"dims\":[1,-2],\"betas\":[0.5,0.25],\"keep\":true,\"how\":\"mean\"},\"in\":[{\"base\":\"a\",\"views\":[[\"transpose\",[0,1]],[\"narrow\",[0,1,1]],[\"expand\",[3,1,2]]],\"grad_f32\":\"a\",\"grad_f64\":\"d\"},{\"base\":\"i\"}],\"out\":[{\"f32\":\"a\",\"f64\":\"d\",\"seed\":\"a\"},{\"f32\":\"b\",\"f64\":\"u\"}]}]"},
	"a": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
	"d": {"dtype": "F64", "shape": [], "data_offsets": [8, 16]},
	"i": {"dtype": "I64", "shape": [1], "data_offsets": [16, 24]},
	"u": {"dtype": "U8", "shape": [2], "data_offsets": [24, 26]},
	"b": {"dtype": "BOOL", "shape": [2], "data_offsets": [26, 28]},
	"e": {"dtype": "F32", "shape": [0, 3], "data_offsets": [28, 28]}
}`

func sampleData() []byte {
	var b []byte
	b = binary.LittleEndian.AppendUint32(b, math.Float32bits(1.5))
	b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(math.Inf(-1))))
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(0.1))
	b = binary.LittleEndian.AppendUint64(b, 1<<64-7)
	return append(b, 0, 255, 1, 0)
}

func TestRead(t *testing.T) {
	f, err := Read(bytes.NewReader(pack(sampleHeader, sampleData())))
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"torch": "2.15.0"}; !reflect.DeepEqual(f.Meta, want) {
		t.Errorf("Meta is %v, want %v", f.Meta, want)
	}
	get := func(name string) Tensor {
		v, err := f.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	equal := func(what string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	equal("a", get("a").Float32s(), []float32{1.5, float32(math.Inf(-1))})
	equal("a wide", get("a").Float64s(), []float64{1.5, math.Inf(-1)})
	equal("d", get("d").Float64s(), []float64{0.1})
	equal("i", get("i").Int64s(), []int64{-7})
	equal("i wide", get("i").Float64s(), []float64{-7})
	equal("u", get("u").Int64s(), []int64{0, 255})
	equal("b", get("b").Bools(), []bool{true, false})
	equal("e", get("e").Float32s(), []float32{})
	equal("kinds", []bool{get("a").IsFloat(), get("d").IsFloat(), get("i").IsFloat()}, []bool{true, true, false})

	if len(f.Cases) != 1 {
		t.Fatalf("%d cases, want 1", len(f.Cases))
	}
	c := f.Cases[0]
	equal("op and name", c.Op+" "+c.Name, "pow n")
	equal("views", c.In[0].Views, []View{{"transpose", []int{0, 1}}, {"narrow", []int{0, 1, 1}}, {"expand", []int{3, 1, 2}}})
	equal("grad", c.In[0].GradF64.Float64s(), []float64{0.1})
	if c.In[1].GradF32 != nil || c.In[1].Views != nil || c.Out[1].Seed != nil || c.Out[0].Seed == nil {
		t.Error("what the case leaves out is not nil, or what it has is")
	}
	a := c.Args
	equal("exponent", a.Float("exponent"), 0.5)
	equal("dims", a.Ints("dims"), []int{1, -2})
	equal("betas", a.Floats("betas"), []float64{0.5, 0.25})
	equal("keep", a.Bool("keep"), true)
	equal("how", a.Text("how"), "mean")
	equal("has", []bool{a.Has("dim"), a.Has("nothing"), a.Has("keep")}, []bool{false, false, true})
}

func TestMisusePanics(t *testing.T) {
	f, err := Read(bytes.NewReader(pack(sampleHeader, sampleData())))
	if err != nil {
		t.Fatal(err)
	}
	for what, call := range map[string]func(){
		"tensor d is F64":         func() { v, _ := f.Tensor("d"); v.Float32s() },
		"tensor a is F32":         func() { v, _ := f.Tensor("a"); v.Int64s() },
		"tensor u is U8":          func() { v, _ := f.Tensor("u"); v.Bools() },
		"no argument dim":         func() { f.Cases[0].Args.Int("dim") },
		"argument exponent: json": func() { f.Cases[0].Args.Int("exponent") },
	} {
		func() {
			defer func() {
				if r, _ := recover().(string); !strings.Contains(r, what) {
					t.Errorf("the panic says %q, want %q", r, what)
				}
			}()
			call()
		}()
	}
}

func TestMalformed(t *testing.T) {
	one := func(dtype, shape, offsets string) []byte {
		return pack(`{"x": {"dtype": "`+dtype+`", "shape": `+shape+`, "data_offsets": `+offsets+`}}`, make([]byte, 8))
	}
	cases := func(text string) []byte {
		return pack(`{"__metadata__": {"cases": "`+strings.ReplaceAll(text, `"`, `\"`)+`"}}`, nil)
	}
	good := one("F32", "[2]", "[0, 8]")
	if _, err := Read(bytes.NewReader(good)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		text  []byte
		where string
	}{
		{"not gzip", []byte("plain text"), "gzip"},
		{"cut short", good[:len(good)-9], "gzip"},
		{"broken checksum", append(bytes.Clone(good[:len(good)-5]), 1, 2, 3, 4, 5), "gzip"},
		{"header too long", func() []byte {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			z.Write([]byte{255, 255, 255, 255, 255, 255, 255, 255, '{', '}'})
			z.Close()
			return b.Bytes()
		}(), "header"},
		{"header not JSON", pack("{", nil), "header"},
		{"metadata not strings", pack(`{"__metadata__": {"a": 1}}`, nil), "metadata"},
		{"element type", one("F8", "[8]", "[0, 8]"), "tensor x"},
		{"size and offsets differ", one("F32", "[3]", "[0, 8]"), "tensor x"},
		{"negative dimension", one("F32", "[-2]", "[0, 8]"), "tensor x"},
		{"overflowing shape", one("F32", "[4294967296, 4294967296]", "[0, 8]"), "tensor x"},
		{"offsets backwards", one("F32", "[2]", "[8, 0]"), "tensor x"},
		{"offsets beyond", one("F32", "[2]", "[4, 12]"), "tensor x"},
		{"cases not JSON", cases(`[`), "cases"},
		{"unknown view", cases(`[{"in":[{"base":"x","views":[["flip",[0]]]}]}]`), "cases"},
		{"view without arguments", cases(`[{"in":[{"base":"x","views":[["narrow",[0]]]}]}]`), "cases"},
		{"missing tensor", cases(`[{"op":"add","name":"n","in":[{"base":"x"}]}]`), "case add/n"},
	} {
		var bad *FormatError
		if _, err := Read(bytes.NewReader(tc.text)); !errors.As(err, &bad) || bad.Where != tc.where {
			t.Errorf("%s: error %v, want a FormatError at %q", tc.name, err, tc.where)
		}
	}
	if _, err := Open("testdata/absent"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an absent file gives %v, want fs.ErrNotExist", err)
	}
}

// FuzzParse passes headers and data to the reader. The reader must return an error, or tensors
// whose elements can all be read.
func FuzzParse(f *testing.F) {
	f.Add([]byte(sampleHeader), sampleData())
	f.Add([]byte(`{"x": {"dtype": "F32", "shape": [9223372036854775807, 2], "data_offsets": [0, 8]}}`), make([]byte, 8))
	f.Add([]byte(`{"__metadata__": {"cases": "[{}]"}, "x": null}`), []byte{})
	f.Fuzz(func(t *testing.T, header, data []byte) {
		raw := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
		tensors, meta, err := parse(append(append(raw, header...), data...), "")
		if err != nil {
			return
		}
		for _, v := range tensors {
			if got := len(v.Float64s()); got != v.Len() {
				t.Errorf("%d elements of %d", got, v.Len())
			}
		}
		// Wrong cases must give an error and must not panic.
		_ = (&File{tensors: tensors}).parseCases(meta["cases"])
	})
}

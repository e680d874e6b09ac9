package golden

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"
)

func f64s(v ...float64) Tensor {
	t := Tensor{DType: "F64", Shape: []int{len(v)}}
	for _, x := range v {
		t.Data = binary.LittleEndian.AppendUint64(t.Data, math.Float64bits(x))
	}
	return t
}

// TestRule checks elements that the rule accepts or rejects. For each there is our result,
// PyTorch's result in float32, and PyTorch's result in float64.
func TestRule(t *testing.T) {
	inf, nan, neg := math.Inf(1), math.NaN(), math.Copysign(0, -1)
	for _, c := range []struct {
		got, w32, w64, terms float64
		ok                   bool
	}{
		{1, 1, 1, 0, true}, {1 + 4*0x1p-23, 1, 1, 0, true}, {1 + 5*0x1p-23, 1, 1, 0, false},
		{1 + 5*0x1p-23, 1 + 3*0x1p-23, 1, 0, true}, {1 + 7*0x1p-23, 1 + 3*0x1p-23, 1, 0, false}, {1 + 8*0x1p-23, 1, 1, 8, true},
		{nan, nan, nan, 0, true}, {1, nan, nan, 0, false}, {nan, 1, 1, 0, false}, {nan, inf, nan, 0, true}, {inf, nan, 1, 0, false},
		{inf, inf, inf, 0, true}, {-inf, inf, inf, 0, false}, {inf, inf, 1e40, 0, true}, {inf, 3e38, 3e38, 0, false}, {3.4e38, inf, 1e40, 0, false},
		{5, inf, 5, 0, true}, {5.1, inf, 5, 0, false}, {5, nan, 5, 0, true}, {inf, nan, 1e39, 0, true}, {1, 1, inf, 0, false},
		{0, 0, 0, 0, true}, {neg, 0, 0, 0, false}, {0, neg, neg, 0, false}, {neg, 0, neg, 0, true}, {0, 0, neg, 0, true},
		{neg, 0, 1e-46, 0, false}, {neg, neg, 1e-46, 0, true}, {0, 0x1p-149, 0x1p-149, 0, true}, {0, 1, 1, 0, false}, {6 * 0x1p-149, 0, 0, 0, false},
	} {
		if msg := (Rule{Terms: []float64{c.terms}}).Wrong([]float64{c.got}, false, f64s(c.w32), f64s(c.w64)); (msg == "") != c.ok {
			t.Errorf("%+v: %q", c, msg)
		}
	}
	torn := Tensor{DType: "BOOL", Shape: []int{2}, Data: []byte{1, 0}}
	if msg := (Rule{Torn: &torn}).Wrong([]float64{neg, 0}, false, f64s(0, 0), f64s(0, 0)); msg != "" {
		t.Error(msg)
	}
	if (Rule{Torn: &torn}).Wrong([]float64{0, neg}, false, f64s(0, 0), f64s(0, 0)) == "" {
		t.Error("a zero that is not torn has its sign")
	}
	if (Rule{}).Wrong([]float64{1 + 1e-11}, true, f64s(1), f64s(1)) == "" || (Rule{Rounded64: 1e-10}).Wrong([]float64{1 + 1e-11}, true, f64s(1), f64s(1)) != "" {
		t.Error("float64 has its own precision")
	}
}

func TestRuleOf16Bits(t *testing.T) {
	for _, c := range []struct {
		p             Precision
		got, own, ref float64
		ok            bool
	}{
		{Half, 1 + 0x1p-8, 1, 1, true},
		{Half, 1 + 0x1p-7, 1, 1, false},
		{BFloat, 1 + 0x1p-5, 1, 1, true},
		{BFloat, 1 + 0x1p-4, 1, 1, false},
		{Half, math.Inf(1), math.Inf(1), 65520, true},
		{Half, math.Inf(1), 65504, 65519, false},
		{BFloat, math.Inf(-1), math.Inf(-1), -3.4e38, true},
	} {
		if msg := (Rule{}).WrongIn(c.p, []float64{c.got}, f64s(c.own), f64s(c.ref)); (msg == "") != c.ok {
			t.Errorf("%+v: %q", c, msg)
		}
	}
}

func TestTypesOfTensors(t *testing.T) {
	f, err := Read(bytes.NewReader(pack(`{
		"h": {"dtype": "F16", "shape": [4], "data_offsets": [0, 8]},
		"b": {"dtype": "BF16", "shape": [1], "data_offsets": [8, 10]},
		"s": {"dtype": "I16", "shape": [1], "data_offsets": [10, 12]},
		"i": {"dtype": "I32", "shape": [1], "data_offsets": [12, 16]},
		"c": {"dtype": "I8", "shape": [1], "data_offsets": [16, 17]}
	}`, []byte{0, 0x3c, 1, 0x80, 0, 0xfc, 0xff, 0x7b, 0xc0, 0xbf, 0xfe, 0xff, 0xfd, 0xff, 0xff, 0xff, 0x80})))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]float64{
		"h": {1, -0x1p-24, math.Inf(-1), 65504}, "b": {-1.5}, "s": {-2}, "i": {-3}, "c": {-128},
	} {
		if v, err := f.Tensor(name); err != nil || !slices.Equal(v.Float64s(), want) {
			t.Errorf("%s is %v, want %v (%v)", name, v.Float64s(), want, err)
		}
	}
}

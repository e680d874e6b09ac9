package optest

import (
	"fmt"
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// source is an op that makes a tensor without operands, or from random numbers. It is tested on
// every device and in each of its types.
type source struct {
	name  string // name of the method of tensor.Maker, or of *tensor.Tensor
	types []dtype.Type
	call  func(m tensor.Maker, t dtype.Type) *tt
	want  []float64 // the expected result; nil for random numbers
	// for random numbers: reports whether v is a possible number
	holds func(t dtype.Type, v float64) bool
	dims  []int
}

func (s *source) kind() string {
	if s.want != nil || s.holds == nil {
		return "creation"
	}
	return "random"
}

var halves = []dtype.Type{dtype.F16, dtype.BF16, dtype.F32, dtype.F64}

func within(lo, hi float64) func(dtype.Type, float64) bool {
	return func(_ dtype.Type, v float64) bool { return lo <= v && v <= hi }
}

func whole(lo, hi float64) func(dtype.Type, float64) bool {
	return func(_ dtype.Type, v float64) bool { return lo <= v && v < hi && v == math.Trunc(v) }
}

// sources lists the ops that make a tensor, by kind. Files with further ops of this kind add them
// in init.
var sources = []source{
	{name: "Zeros", types: dtype.Types(), dims: []int{2, 3}, want: make([]float64, 6), call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Zeros(2, 3) }},
	{name: "Ones", types: dtype.Types(), dims: []int{3}, want: []float64{1, 1, 1}, call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Ones(3) }},
	{name: "Full", types: dtype.Types(), dims: []int{1, 2}, want: []float64{1, 1}, call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Full(1, 1, 2) }},
	{name: "Empty", types: dtype.Types(), dims: []int{2, 0, 3}, want: []float64{}, call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Empty(2, 0, 3) }},
	{name: "EmptyLike", types: dtype.Types(), dims: []int{2, 0}, want: []float64{}, call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Zeros(2, 0).EmptyLike() }},
	{name: "Arange", types: numbers(), dims: []int{3}, want: []float64{0, 1, 2}, call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Arange(3) }},
	{name: "NewZeros", types: dtype.Types(), dims: []int{2, 3}, want: make([]float64, 6), call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Ones(1).NewZeros(2, 3) }},
	{name: "NewOnes", types: dtype.Types(), dims: []int{2}, want: []float64{1, 1}, call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Zeros(1).NewOnes(2) }},
	{name: "NewFull", types: numbers(), dims: []int{1, 2}, want: []float64{7, 7}, call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Zeros(1).NewFull(7, 1, 2) }},
	{name: "NewEmpty", types: dtype.Types(), dims: []int{2, 0}, want: []float64{}, call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Zeros(1).NewEmpty(2, 0) }},
	{name: "NewTensor", types: numbers(), dims: []int{2}, want: []float64{3, 4}, call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Zeros(1).NewTensor([]int{3, 4}) }},
	{name: "ArangeStep", types: numbers(), dims: []int{4}, want: []float64{1, 3, 5, 7}, call: func(m tensor.Maker, _ dtype.Type) *tt { return m.ArangeStep(1, 8, 2) }},
	{name: "Linspace", types: numbers(), dims: []int{5}, want: []float64{0, 2, 4, 6, 8}, call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Linspace(0, 8, 5) }},
	{name: "Logspace", types: numbers(), dims: []int{4}, want: []float64{1, 4, 16, 64}, call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Logspace(0, 6, 4, 2) }},
	{name: "Eye", types: dtype.Types(), dims: []int{2, 2}, want: []float64{1, 0, 0, 1}, call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Eye(2) }},
	{name: "ALiBi", types: halves, dims: []int{2, 1, 2}, want: []float64{-0.0625, math.Copysign(0, -1), -0.00390625, math.Copysign(0, -1)}, call: func(m tensor.Maker, _ dtype.Type) *tt { return m.ALiBi(2, 1, 2) }},
	{name: "From", types: dtype.Types(), dims: []int{2, 2}, want: []float64{0, 1, 1, 0}, call: func(m tensor.Maker, _ dtype.Type) *tt { return m.From([]float64{0, 1, 1, 0}, 2, 2) }},

	{name: "Rand", types: halves, dims: []int{40, 3}, holds: within(0, 1), call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Rand(40, 3) }},
	{name: "Randn", types: halves, dims: []int{120}, holds: within(-7, 7), call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Randn(120) }},
	{name: "Uniform", types: halves, dims: []int{120}, holds: within(-3, 5), call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Uniform(-3, 5, 120) }},
	{name: "Normal", types: halves, dims: []int{120}, holds: within(-5, 9), call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Normal(2, 1, 120) }},
	{name: "TruncNormal", types: halves, dims: []int{120}, holds: within(-1, 2), call: func(m tensor.Maker, _ dtype.Type) *tt { return m.TruncNormal(0, 1, -1, 2, 120) }},
	{name: "Bernoulli", types: halves, dims: []int{120}, holds: whole(0, 2), call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Bernoulli(0.3, 120) }},
	{name: "RandInt", types: []dtype.Type{dtype.I8, dtype.I16, dtype.I32, dtype.I64}, dims: []int{120}, holds: whole(-5, 7), call: func(m tensor.Maker, _ dtype.Type) *tt { return m.RandInt(-5, 7, 120) }},
	{name: "RandPerm", types: []dtype.Type{dtype.I64}, dims: []int{50}, holds: whole(0, 50), call: func(m tensor.Maker, _ dtype.Type) *tt { return m.RandPerm(50) }},
	{name: "Multinomial", types: halves, dims: []int{3, 8}, holds: whole(0, 4), call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Ones(3, 4).Multinomial(8, true) }},
	{name: "RandLike", types: halves, dims: []int{4, 5}, holds: within(0, 1), call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Zeros(4, 5).RandLike() }},
	{name: "RandnLike", types: halves, dims: []int{4, 5}, holds: within(-7, 7), call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Zeros(4, 5).RandnLike() }},
	{name: "RandIntLike", types: numbers(), dims: []int{4, 5}, holds: whole(0, 9), call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Zeros(4, 5).RandIntLike(0, 9) }},
	{name: "UniformInPlace", types: halves, dims: []int{4, 5}, holds: within(2, 3), call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Zeros(4, 5).UniformInPlace(2, 3) }},
	{name: "NormalInPlace", types: halves, dims: []int{4, 5}, holds: within(-7, 7), call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Zeros(4, 5).NormalInPlace(0, 1) }},
	{name: "TruncNormalInPlace", types: halves, dims: []int{4, 5}, holds: within(-1, 2), call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Zeros(4, 5).TruncNormalInPlace(0, 1, -1, 2) }},
	{name: "BernoulliInPlace", types: halves, dims: []int{4, 5}, holds: whole(0, 2), call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Zeros(4, 5).BernoulliInPlace(0.3) }},
	{name: "Dropout", types: halves, dims: []int{4, 5}, holds: func(_ dtype.Type, v float64) bool { return v == 0 || v == 4 }, call: func(m tensor.Maker, _ dtype.Type) *tt { return m.Ones(4, 5).Dropout(0.75) }},
}

func numbers() []dtype.Type { return dtype.Types()[1:] }

// sources tests the ops that make tensors. The results must be on the device and have the requested
// type. Random numbers must be the same for the same seed, lie within bounds, and not be all equal.
func (w *walk) sources(t reporter) {
	for i := range sources {
		s := &sources[i]
		if !w.selects(s.name) {
			continue
		}
		for _, ty := range s.types {
			w.walked.add(s.name, ty, 0)
			var runs [2][]float64
			for n := range runs {
				err := tensor.Try(func() {
					tensor.Do(func(sc *tensor.Scope) {
						x := s.call(sc.On(w.dev).Typed(ty), ty)
						if want := s.result(ty); x.Type() != want || x.Device() != w.dev || !slices.Equal(x.Shape().Slice(), s.dims) {
							t.Errorf("%s %v is %v %v on %s, want %v %v on %s", s.name, ty, x.Type(), x.Shape(), x.Device().Name(), want, s.dims, w.dev.Name())
						}
						runs[n] = x.Floats()
					}, tensor.Seed(9))
				})
				if err != nil {
					t.Errorf("%s %v: %v", s.name, ty, err)
				}
			}
			if msg := s.wrong(ty, runs[0]); msg != "" {
				t.Errorf("%s %v: %s", s.name, ty, msg)
			} else if !slices.Equal(runs[0], runs[1]) {
				t.Errorf("%s %v is not the same again: %v, %v", s.name, ty, runs[0], runs[1])
			}
		}
	}
}

// result returns the type of the result of s when type t is requested.
func (s *source) result(t dtype.Type) dtype.Type {
	if s.name == "Multinomial" {
		return dtype.I64
	}
	return t
}

func (s *source) wrong(t dtype.Type, v []float64) string {
	if s.want != nil {
		for i, x := range s.want {
			if len(v) != len(s.want) || v[i] != round(t, x) {
				return fmt.Sprintf("is %v, want %v", v, s.want)
			}
		}
		return ""
	}
	same := true
	for _, x := range v {
		if !s.holds(t, x) {
			return fmt.Sprintf("%v may not come out", x)
		}
		same = same && x == v[0]
	}
	if same {
		return fmt.Sprintf("all numbers are %v", v)
	}
	return ""
}

package tensor_test

import (
	"errors"
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// fuzzNumber maps a fuzzer's byte to a size, dimension or index. It returns mostly small numbers,
// and some at which products and sums overflow. It returns no numbers in between: results of
// gigabytes are valid, but the test has no memory for them.
func fuzzNumber(b byte) int {
	if b < 224 {
		return int(b%13) - 4
	}
	return [...]int{math.MaxInt64, math.MinInt64, math.MaxInt64 - 1, math.MinInt64 + 1, 1 << 62, -1 << 62, 1<<62 - 1, 1 << 61, 1 << 55, -1 << 55, 1<<53 + 1, 3 << 60,
		tensor.End, tensor.KeepDim, math.MaxInt64 / 3, 1<<63 - 64}[b%16]
}

// fuzzShapes are ops with shapes, dimensions and positions as arguments. Each op uses as many of
// the fuzzer's numbers as it needs.
var fuzzShapes = []struct {
	name string
	call func(x *tensor.Tensor, a []int) []*tensor.Tensor
}{
	{"reshape", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.Reshape(a...)) }},
	{"view", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.View(a...)) }},
	{"flatten", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.Flatten(a[0], a[1])) }},
	{"unflatten", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.Unflatten(a[0], a[1:]...)) }},
	{"transpose", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.Transpose(a[0], a[1])) }},
	{"t", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.T()) }},
	{"permute", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.Permute(a...)) }},
	{"moveaxis", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.MoveAxis(a[0], a[1])) }},
	{"expand", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.Expand(a...)) }},
	{"broadcast_to", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.BroadcastTo(a...)) }},
	{"unsqueeze", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.Unsqueeze(a[0])) }},
	{"squeeze", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.Squeeze(a...)) }},
	{"narrow", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.Narrow(a[0], a[1], a[2])) }},
	{"select", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.Select(a[0], a[1])) }},
	{"slice", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.Slice(a[0], a[1], a[2], a[3])) }},
	{"diagonal", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.Diagonal(a[0], a[1], a[2])) }},
	{"diag_embed", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.DiagEmbed(a[0], a[1], a[2])) }},
	{"diag", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.Diag(a[0])) }},
	{"tril", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.Tril(a[0]).Add(x.Triu(a[1]))) }},
	{"unfold", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.Unfold(a[0], a[1], a[2])) }},
	{"as_strided", func(x *tensor.Tensor, a []int) []*tensor.Tensor {
		n := len(a) / 2
		return one(x.AsStrided(a[:n], a[n:2*n], a[len(a)-1]))
	}},
	{"repeat", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.Repeat(a...)) }},
	{"tile", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.Tile(a...)) }},
	{"repeat_interleave", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.RepeatInterleave(a[0], a[1])) }},
	{"flip", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.Flip(a...)) }},
	{"roll", func(x *tensor.Tensor, a []int) []*tensor.Tensor { n := len(a) / 2; return one(x.Roll(a[:n], a[n:])) }},
	{"roll flat", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.Roll(a[:1], nil)) }},
	{"pad", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.Pad(2, a...)) }},
	{"pad_reflect", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.PadReflect(a...)) }},
	{"pad_replicate", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.PadReplicate(a...)) }},
	{"pad_circular", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.PadCircular(a...)) }},
	{"split", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return x.Split(a[0], a[1]) }},
	{"split_sizes", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return x.SplitSizes(a[1:], a[0]) }},
	{"chunk", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return x.Chunk(a[0], a[1]) }},
	{"unbind", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return x.Unbind(a[0]) }},
	{"cat", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(tensor.Cat(a[0], x, x.Detach(), x)) }},
	{"stack", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(tensor.Stack(a[0], x, x)) }},
	{"hstack", func(x *tensor.Tensor, a []int) []*tensor.Tensor {
		return append(one(tensor.HStack(x, x)), tensor.VStack(x, x))
	}},
	{"meshgrid", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return tensor.Meshgrid(x, x) }},
	{"sum", func(x *tensor.Tensor, a []int) []*tensor.Tensor {
		return append(one(x.Sum(a...)), x.Mean(a...), x.Amax(a...))
	}},
	{"max", func(x *tensor.Tensor, a []int) []*tensor.Tensor {
		v, _ := x.Max(a[0])
		return append(one(v), x.Var(a[1], a[2:]...))
	}},
	{"softmax", func(x *tensor.Tensor, a []int) []*tensor.Tensor {
		return append(one(x.Softmax(a[0])), x.LogSumExp(a[1]))
	}},
	{"gather", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.IndexSelect(a[0], indices(x, a[1:]))) }},
	{"embedding", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.Embedding(indices(x, a))) }},
	{"one_hot", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(indices(x, a[1:]).OneHot(a[0])) }},
	{"glu", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.Glu(a[0])) }},
	{"zeros", func(x *tensor.Tensor, a []int) []*tensor.Tensor { return one(x.Scope().Zeros(a...)) }},
	{"arange", func(x *tensor.Tensor, a []int) []*tensor.Tensor {
		return one(x.Scope().Typed(dtype.F32).ArangeStep(float64(a[0]%100), float64(a[1]%100), float64(a[2])))
	}},
}

func one(x *tensor.Tensor) []*tensor.Tensor { return []*tensor.Tensor{x} }

func indices(x *tensor.Tensor, a []int) *tensor.Tensor {
	v := make([]int64, len(a))
	for i := range a {
		v[i] = int64(a[i])
	}
	return x.Scope().From(v)
}

// FuzzShapes calls ops with arguments of any kind. The result must be a tensor that can be read and
// differentiated, or a *tensor.Error. Try passes on any other panic.
func FuzzShapes(f *testing.F) {
	for i := range fuzzShapes {
		for _, args := range [][]byte{{0}, {4, 5, 6}, {3, 3, 3, 3}, {224, 225, 226, 227}, {228, 5, 4, 228, 5, 4}, {5, 235, 236, 5}, {6, 7, 237, 4}, {4, 224}, {224, 4}, {5, 225, 4}} {
			f.Add(byte(i), uint16(0x4a2), args)
			f.Add(byte(i), uint16(0x013), args)
		}
	}
	f.Fuzz(func(t *testing.T, op byte, shape uint16, args []byte) {
		dims := make([]int, int(shape&7)%5)
		for i := range dims {
			dims[i] = int(shape>>(3+3*i)) & 3
		}
		a := make([]int, 0, 12)
		for _, b := range args[:min(len(args), 10)] {
			a = append(a, fuzzNumber(b))
		}
		for len(a) < 4 {
			a = append(a, 0)
		}
		c := fuzzShapes[int(op)%len(fuzzShapes)]
		err := tensor.Try(func() {
			tensor.Do(func(s *tensor.Scope) {
				x := s.Ones(dims...)
				if shape>>15 != 0 && len(dims) > 1 {
					x = x.T()
				}
				x.RequiresGrad()
				for _, y := range c.call(x, a) {
					if y.Size() > 1<<16 {
						continue // an expanded view has no memory of this size
					}
					if len(y.Floats()) != y.Size() {
						t.Errorf("%s of %v with %v: %d elements of %d", c.name, dims, a, len(y.Floats()), y.Size())
					}
					if y.NeedsGrad() && y.Type().IsFloat() {
						if g := tensor.Gradients(y.Sum(), one(x), tensor.RetainGraph())[0]; g.Shape() != x.Shape() {
							t.Errorf("%s of %v with %v: gradient of shape %v", c.name, dims, a, g.Shape())
						}
					}
				}
			})
		})
		var e *tensor.Error
		if err != nil && !errors.As(err, &e) {
			t.Errorf("%s of %v with %v: %v", c.name, dims, a, err)
		}
	})
}

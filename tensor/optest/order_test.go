package optest

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// wrongUse is a call that must panic. The error must have the given kind and contain the given
// words.
type wrongUse struct {
	name  string
	kind  error
	wrong func()
	says  []string
}

func (c wrongUse) check(t *testing.T) {
	t.Helper()
	err := tensor.Try(c.wrong)
	if err == nil {
		t.Errorf("%s: no error", c.name)
		return
	}
	if !errors.Is(err, c.kind) {
		t.Errorf("%s: %v, want %v", c.name, err, c.kind)
	}
	for _, w := range c.says {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %q does not say %q", c.name, err, w)
		}
	}
}

// TestScanMistakes calls scans with wrong arguments. Every device must report them.
func TestScanMistakes(t *testing.T) {
	for _, dev := range []device.Device{hostDevice(), emulated(t)} {
		tensor.Do(func(s *tensor.Scope) {
			x := s.On(dev).Ones(2, 3)
			scalar, ints := s.On(dev).Ones(), s.On(dev).Typed(dtype.I32).Ones(3)
			freed := s.On(dev).Ones(2)
			freed.Free()
			for _, c := range []wrongUse{
				{"dimension", tensor.ErrShape, func() { x.CumSum(2) }, []string{"cumsum", "dimension 2", "[2, 3]"}},
				{"negative dimension", tensor.ErrShape, func() { x.CumProd(-3) }, []string{"cumprod", "dimension -3"}},
				{"dimension of a scalar", tensor.ErrShape, func() { scalar.LogCumSumExp(1) }, []string{"logcumsumexp", "rank 0"}},
				{"dimension of an extreme", tensor.ErrShape, func() { x.CumMax(5) }, []string{"cummax", "dimension 5"}},
				{"integers", tensor.ErrType, func() { ints.LogCumSumExp(0) }, []string{"logcumsumexp", "int32", "Float"}},
				{"freed", tensor.ErrFreed, func() { freed.CumSum(0) }, []string{"cumsum"}},
				{"freed extreme", tensor.ErrFreed, func() { freed.CumMin(0) }, []string{"cummin"}},
			} {
				c.check(t)
			}
		})
	}
}

// TestLongSums checks that a sum of many 16-bit or float32 numbers has no rounding error except the
// rounding of the result.
func TestLongSums(t *testing.T) {
	const n = 5000
	for _, dev := range []device.Device{hostDevice(), emulated(t)} {
		for _, ty := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F16} {
			for _, mode := range [][]tensor.Option{nil, {tensor.Composed()}} {
				tensor.Do(func(s *tensor.Scope) {
					a := sample(random("long sums"), ty, 0, 1, n)
					y := s.On(hostDevice()).From(a.v).Cast(ty).To(dev).CumSum(0).Floats()
					sum := 0.0
					for i, v := range a.v {
						sum += v
						if off := y[i] - sum; off > ulp(ty, sum)+1e-5*sum || off < -ulp(ty, sum)-1e-5*sum {
							t.Fatalf("%s %v: element %d is %v, want %v", dev.Name(), ty, i, y[i], sum)
						}
					}
				}, mode...)
			}
		}
	}
}

// TestSortMistakes calls sorting and searching ops with wrong arguments. Every device must report
// them.
func TestSortMistakes(t *testing.T) {
	for _, dev := range []device.Device{hostDevice(), emulated(t)} {
		tensor.Do(func(s *tensor.Scope) {
			m := s.On(dev)
			x, scalar, none := m.Ones(2, 3), m.Ones(), m.Ones(0, 3)
			ints, line := m.Typed(dtype.I32).Ones(3), m.Ones(4)
			freed := m.Ones(2)
			freed.Free()
			other := dev
			if dev = hostDevice(); other == dev {
				dev = emulated(t)
			}
			far := s.On(dev).Ones(3)
			for _, c := range []wrongUse{
				{"sort", tensor.ErrShape, func() { x.Sort(2, false) }, []string{"sort", "dimension 2", "[2, 3]"}},
				{"argsort", tensor.ErrShape, func() { x.Argsort(-3, false) }, []string{"argsort", "dimension -3"}},
				{"freed", tensor.ErrFreed, func() { freed.Sort(0, false) }, []string{"sort"}},
				{"topk", tensor.ErrValue, func() { x.TopK(4, 1, true, true) }, []string{"topk", "k is 4", "3 elements"}},
				{"negative k", tensor.ErrValue, func() { x.TopK(-1, 1, true, true) }, []string{"topk", "k is -1"}},
				{"topk of a scalar", tensor.ErrValue, func() { scalar.TopK(0, 0, true, true) }, []string{"topk", "rank 0", "Reshape"}},
				{"kthvalue", tensor.ErrValue, func() { x.Kthvalue(0, 1) }, []string{"kthvalue", "k is 0", "1 to 3"}},
				{"kthvalue without a dimension", tensor.ErrShape, func() { x.Kthvalue(1) }, []string{"kthvalue", "one dimension, not 0"}},
				{"kthvalue of none", tensor.ErrShape, func() { none.Kthvalue(1, 0) }, []string{"kthvalue", "no elements"}},
				{"median of none", tensor.ErrShape, func() { none.Median(0) }, []string{"median", "no elements"}},
				{"median of no integers", tensor.ErrShape, func() { ints.Narrow(0, 0, 0).Median() }, []string{"median", "no elements"}},
				{"median of two", tensor.ErrShape, func() { x.Median(0, 1) }, []string{"median", "one dimension, not 2"}},
				{"median keeps nothing", tensor.ErrShape, func() { x.NanMedian(tensor.KeepDim) }, []string{"nanmedian", "no dimension to keep"}},
				{"mode", tensor.ErrShape, func() { x.Mode(7) }, []string{"mode", "dimension 7"}},
				{"mode of none", tensor.ErrShape, func() { none.Mode(0) }, []string{"mode", "no elements"}},
				{"quantile", tensor.ErrValue, func() { x.Quantile(1.5, tensor.Linear) }, []string{"quantile", "1.5", "0 to 1"}},
				{"NaN as quantile", tensor.ErrValue, func() { x.Quantiles([]float64{0.5, math.NaN()}, tensor.Linear) }, []string{"quantile", "NaN"}},
				{"quantile of integers", tensor.ErrType, func() { ints.Quantile(0.5, tensor.Linear) }, []string{"quantile", "int32", "Float"}},
				{"quantile of none", tensor.ErrShape, func() { none.NanQuantile(0.5, tensor.Linear, 1) }, []string{"nanquantile", "no elements"}},
				{"interpolation", tensor.ErrValue, func() { x.Quantile(0.5, 9) }, []string{"quantile", "interpolation 9"}},
				{"unique", tensor.ErrShape, func() { x.Unique(tensor.UniqueOptions{}, 2) }, []string{"unique", "dimension 2"}},
				{"unique of two", tensor.ErrShape, func() { x.Unique(tensor.UniqueOptions{}, 0, 1) }, []string{"unique", "one dimension, or none"}},
				{"unique of nothing", tensor.ErrShape, func() { none.UniqueConsecutive(tensor.UniqueOptions{}, 1) }, []string{"unique_consecutive", "no elements"}},
				{"counts of floats", tensor.ErrType, func() { x.RepeatInterleaveBy(line, 0) }, []string{"repeat_interleave", "float32", "Cast"}},
				{"number of counts", tensor.ErrShape, func() { x.RepeatInterleaveBy(ints, 0) }, []string{"repeat_interleave", "[3]", "vector of 2"}},
				{"negative count", tensor.ErrValue, func() { x.RepeatInterleaveBy(ints.Neg(), 1) }, []string{"repeat_interleave", "negative"}},
				{"searchsorted types", tensor.ErrType, func() { line.Searchsorted(ints, false) }, []string{"searchsorted", "int32", "Cast"}},
				{"searchsorted rows", tensor.ErrShape, func() { x.Searchsorted(line, false) }, []string{"searchsorted", "[2, 3]", "[4]"}},
				{"searchsorted in a scalar", tensor.ErrShape, func() { scalar.Searchsorted(line, false) }, []string{"searchsorted", "vector"}},
				{"bucketize", tensor.ErrShape, func() { line.Bucketize(x, false) }, []string{"bucketize", "vector", "[2, 3]"}},
				{"devices", tensor.ErrDevice, func() { line.Searchsorted(far, false) }, []string{"searchsorted"}},
				{"devices of isin", tensor.ErrDevice, func() { line.IsIn(far, false) }, []string{"isin"}},
				{"diff", tensor.ErrValue, func() { x.Diff(-1, 0) }, []string{"diff", "order -1"}},
				{"diff of a scalar", tensor.ErrShape, func() { scalar.Diff(1, 0) }, []string{"diff", "rank 0"}},
				{"histc of integers", tensor.ErrType, func() { ints.Histc(3, 0, 1) }, []string{"histc", "int32", "Float"}},
				{"bins", tensor.ErrValue, func() { x.Histc(0, 0, 1) }, []string{"histc", "0 bins"}},
				{"range", tensor.ErrValue, func() { x.Histc(3, 1, 0) }, []string{"histc", "from 1 to 0"}},
				{"infinite range", tensor.ErrValue, func() { x.Histc(3, 0, math.Inf(1)) }, []string{"histc", "+Inf"}},
			} {
				c.check(t)
			}
		})
	}
}

// TestRunsOnTheHost checks that the host finds the same runs of equal elements as the composition,
// for all types, strided tensors, NaN, and zeros of both signs.
func TestRunsOnTheHost(t *testing.T) {
	nan, zero := math.NaN(), math.Copysign(0, -1)
	all := func(o ...tensor.Option) (out []*tt) {
		tensor.Do(func(s *tensor.Scope) {
			v := s.From([]float64{3, 3, zero, 0, nan, nan, 1, 1, 1, 0, zero, 7, 3, 3, 3, 1})
			x := []*tt{v, v.Slice(0, 0, 16, 2), v.Narrow(0, 5, 11), v.Narrow(0, 4, 1), v.Reshape(4, 4).T(), s.Zeros(1).Expand(5)}
			for _, ty := range dtype.Types()[1:] {
				x = append(x, v.NanToNum(2, 5, -5).Cast(ty))
			}
			for _, x := range x {
				for k := range 4 {
					o := tensor.UniqueOptions{Inverse: k&1 != 0, Counts: k&2 != 0}
					for _, f := range []func(tensor.UniqueOptions, ...int) (a, b, c *tt){x.Unique, x.UniqueConsecutive} {
						values, inverse, counts := f(o)
						if (inverse != nil) != o.Inverse || (counts != nil) != o.Counts {
							t.Fatalf("%v: results %v %v", o, inverse, counts)
						}
						for _, y := range []*tt{values, inverse, counts} {
							if y != nil {
								out = append(out, tensor.FromBytes(y.Type(), y.Bytes(), y.Shape().Slice()...))
							}
						}
					}
				}
			}
		}, o...)
		return out
	}
	here, composed := all(), all(tensor.Composed())
	for i := range here {
		sameBits(t, "result "+strconv.Itoa(i), here[i], composed[i])
	}
}

// TestBincountOnTheHost checks that Bincount on the host returns the same counts as the
// composition, for all integer types and strides.
func TestBincountOnTheHost(t *testing.T) {
	all := func(o ...tensor.Option) (out []*tt) {
		tensor.Do(func(s *tensor.Scope) {
			for _, ty := range []dtype.Type{dtype.I64, dtype.I32, dtype.I16, dtype.I8, dtype.U8} {
				x := s.From([]int64{3, 0, 5, 3, 3, 9, 1, 0}).Cast(ty)
				for _, x := range []*tt{x, x.Slice(0, 1, 8, 2), x.Narrow(0, 3, 4), x.Narrow(0, 0, 0), s.Typed(ty).Full(7, 1).Expand(4)} {
					for _, n := range []int{0, 20} {
						y := x.Bincount(nil, n)
						out = append(out, tensor.FromBytes(y.Type(), y.Bytes(), y.Shape().Slice()...))
					}
				}
			}
		}, o...)
		return out
	}
	here, composed := all(), all(tensor.Composed())
	for i := range here {
		sameBits(t, "counts "+strconv.Itoa(i), here[i], composed[i])
	}
}

package tensorboard

import (
	"math"
	"slices"
)

// A histogram has the fields of TensorFlow's HistogramProto. Bucket i counts the values that are
// greater than limits[i-1] and at most limits[i].
type histogram struct {
	least, most, n, sum, squares float64
	limits, counts               []float64
}

// buckets is the number of buckets between the least and the greatest value.
const buckets = 64

// histogramOf counts the finite values in buckets of equal width.
func histogramOf(values []float64) histogram {
	v := slices.DeleteFunc(slices.Clone(values), func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) })
	if len(v) == 0 {
		return histogram{limits: []float64{0}, counts: []float64{0}}
	}
	h := histogram{least: slices.Min(v), most: slices.Max(v), n: float64(len(v))}
	for _, x := range v {
		h.sum += x
		h.squares += x * x
	}
	if h.least == h.most {
		h.limits, h.counts = []float64{h.most}, []float64{h.n}
		return h
	}
	h.limits, h.counts = make([]float64, buckets), make([]float64, buckets)
	for i := range h.limits {
		// Both ends are scaled before they are added, because most - least may overflow.
		part := float64(i+1) / buckets
		h.limits[i] = h.least*(1-part) + h.most*part
	}
	h.limits[buckets-1] = h.most
	for _, x := range v {
		i, _ := slices.BinarySearch(h.limits, x)
		h.counts[min(i, buckets-1)]++
	}
	return h
}

package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
)

// Attender is satisfied by devices that compute attention without the weights of all queries and keys in memory.
type Attender interface {
	// Attend sets out [heads, queries, values] to softmax(scale·q·kᵀ)·v for q [heads, queries, features], k [heads/g, keys, features] and v
	// [heads/g, keys, values], where g neighbouring heads of queries share one of keys; all are F32, and strides are not negative. If causal, query
	// i sees the keys 0 … i only. A query whose products are all minus infinity gives 0.
	Attend(s Stream, out, q, k, v View, scale float64, causal bool) error
}

// CheckAttend is [CheckScan] for Attend.
func CheckAttend(out, q, k, v *View) (arg, reason string) {
	for _, o := range []struct {
		name string
		v    *View
	}{{"out", out}, {"q", q}, {"k", k}, {"v", v}} {
		if o.v.Type != dtype.F32 || o.v.Shape.Rank() != 3 {
			return o.name, fmt.Sprintf("%v of %v, want three dimensions of float32", o.v.Shape, o.v.Type)
		}
		for i := range 3 {
			if o.v.Strides.At(i) < 0 {
				return o.name, fmt.Sprintf("strides %v", o.v.Strides)
			}
		}
	}
	heads, shared := q.Shape.At(0), k.Shape.At(0)
	switch {
	case shared == 0 && heads > 0 || shared > 0 && heads%shared != 0 || k.Shape.At(2) != q.Shape.At(2):
		return "k", fmt.Sprintf("%v for queries of %v", k.Shape, q.Shape)
	case v.Shape.At(0) != shared || v.Shape.At(1) != k.Shape.At(1):
		return "v", fmt.Sprintf("%v for keys of %v", v.Shape, k.Shape)
	case out.Shape.At(0) != heads || out.Shape.At(1) != q.Shape.At(1) || out.Shape.At(2) != v.Shape.At(2):
		return "out", fmt.Sprintf("%v for queries of %v and values of %v", out.Shape, q.Shape, v.Shape)
	}
	return "", ""
}
